#include "proto/msg.h"

#include "base/bytes.h"
#include "base/window_layout.h"
#include "proto/frame.h"

#include <string.h>

#include "proto/hearth.pb-c.h"

// Unpacking 64 KiB of the smallest sub-messages could ask for a thousand times that; a valid message needs a few KiB.
#define DECODE_ARENA_BYTES (64 * 1024)

// ---- the decoder's arena

struct decode_arena {
	_Alignas(16) uint8_t data[DECODE_ARENA_BYTES];
	size_t used;
};

static void *decode_alloc(void *ctx, size_t size)
{
	struct decode_arena *a = ctx;
	size_t rounded;
	if (!add_size(size, 15, &rounded))
		return NULL;
	rounded &= ~(size_t)15;
	if (rounded > sizeof a->data - a->used)
		return NULL;
	void *p = a->data + a->used;
	a->used += rounded;
	return p;
}

static void decode_free(void *ctx, void *p)
{
	(void)ctx;
	(void)p; // the arena goes away as a whole
}

// ---- fields in

static enum err bad(struct errmsg *em, const char *field)
{
	return errmsg_fail(em, ERR_FORMAT, "%s", field);
}

static enum err get_text(ProtobufCBinaryData in, char *out, size_t cap, const char *field, struct errmsg *em)
{
	if (in.len >= cap || !text_is_plain((const char *)in.data, in.len)) // a NUL is a control character too
		return bad(em, field);
	if (in.len > 0)
		memcpy(out, in.data, in.len);
	out[in.len] = '\0';
	return OK;
}

static enum err get_bytes(ProtobufCBinaryData in, uint8_t *out, size_t len, const char *field, struct errmsg *em)
{
	if (in.len != len)
		return bad(em, field);
	memcpy(out, in.data, len);
	return OK;
}

static enum err get_int(uint32_t in, uint32_t min, uint32_t max, int32_t *out, const char *field, struct errmsg *em)
{
	if (in < min || in > max)
		return bad(em, field);
	*out = (int32_t)in;
	return OK;
}

// Address text is dialled later: only what a host name, an IPv4 or a bracketed IPv6 address and a port are made of.
static bool is_address(const char *s)
{
	const char *colon = strrchr(s, ':');
	if (colon == NULL || colon == s || colon[1] == '\0' || strlen(colon + 1) > 5)
		return false;
	uint32_t port = 0;
	for (const char *p = colon + 1; *p; p++) {
		if (*p < '0' || *p > '9')
			return false;
		port = port * 10 + (uint32_t)(*p - '0');
	}
	for (const char *p = s; p < colon; p++)
		if (!(*p >= '0' && *p <= '9') && !(*p >= 'a' && *p <= 'z') && !(*p >= 'A' && *p <= 'Z') && strchr(".-_:[]%", *p) == NULL)
			return false;
	return port > 0 && port <= 65535;
}

static enum err get_addresses(const ProtobufCBinaryData *in, size_t n, struct address_list *out, struct errmsg *em)
{
	if (n > ADDRS_MAX)
		return bad(em, "addresses: too many");
	out->n = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		enum err e = get_text(in[i], out->at[i], ADDR_CAP, "addresses", em);
		if (e != OK)
			return e;
		if (!is_address(out->at[i]))
			return bad(em, "addresses: not host:port");
	}
	return OK;
}

#define TRY(x)                                                                                                                                                 \
	do {                                                                                                                                                       \
		enum err try_err = (x);                                                                                                                                \
		if (try_err != OK)                                                                                                                                     \
			return try_err;                                                                                                                                    \
	} while (0)

// ---- one validator per message

// get_layer_set: no layer beyond those that a model may have.
static enum err get_layer_set(ProtobufCBinaryData in, struct layer_set *s, const char *field, struct errmsg *em)
{
	if (in.len > (LAYERS_MAX + 7) / 8)
		return bad(em, field);
	for (size_t i = 0; i < 8 * in.len; i++) {
		if ((in.data[i / 8] >> (i % 8) & 1) == 0)
			continue;
		if (i >= LAYERS_MAX)
			return bad(em, field);
		layer_set_add(s, (int32_t)i);
	}
	return OK;
}

// get_shares: of a group's members, 2 of them at least, and not all without a share.
static enum err get_shares(const uint32_t *shares, size_t n_shares, int32_t *n, uint32_t out[GROUP_MEMBERS_MAX], const char *field, struct errmsg *em)
{
	uint32_t any = 0;
	TRY(get_int((uint32_t)(n_shares <= GROUP_MEMBERS_MAX ? n_shares : 0), 2, GROUP_MEMBERS_MAX, n, field, em));
	for (int32_t i = 0; i < *n; i++)
		any |= out[i] = shares[i];
	return any != 0 ? OK : bad(em, field);
}

static enum err get_layer_part(const Hearth__Part *p, struct layer_part *m, struct errmsg *em)
{
	int32_t mode = 0;
	if (p == NULL)
		return OK;
	TRY(get_shares(p->shares, p->n_shares, &m->n, m->shares, "part shares", em));
	TRY(get_int(p->member, 0, (uint32_t)m->n - 1, &m->place, "part member", em));
	TRY(get_int(p->mode, 0, N_SPLIT_MODES - 1, &mode, "part mode", em));
	m->mode = (enum split_mode)mode;
	return OK;
}

static enum err get_held(const Hearth__Hello *p, struct held_layers *m, struct errmsg *em)
{
	struct layer_set layers = {{0}};
	struct layer_part whole = {0};
	TRY(get_layer_set(p->held, &layers, "held", em));
	if (p->held.len > 0)
		held_add(m, &whole, &layers);
	if (p->held_output)
		held_add_output(m, &whole);
	if (p->n_held_parts + (size_t)m->n > HELD_PARTS_MAX)
		return bad(em, "held_parts");
	for (size_t i = 0; i < p->n_held_parts; i++) {
		struct layer_part part = {0};
		layers = (struct layer_set){{0}};
		if (p->held_parts[i]->part == NULL)
			return bad(em, "held_parts");
		TRY(get_layer_part(p->held_parts[i]->part, &part, em));
		TRY(get_layer_set(p->held_parts[i]->layers, &layers, "held_parts", em));
		held_add(m, &part, &layers);
		if (p->held_parts[i]->has_output)
			held_add_output(m, &part);
	}
	return OK;
}

static enum err get_hello(const Hearth__Hello *p, struct msg_hello *m, struct errmsg *em)
{
	TRY(get_text(p->name, m->name, sizeof m->name, "name", em));
	if (m->name[0] == '\0')
		return bad(em, "name: empty");
	TRY(get_bytes(p->model_hash, m->model_hash, HASH_BYTES, "model_hash", em));
	int32_t n_threads = 0, port = 0;
	TRY(get_int(p->n_threads, 1, 4096, &n_threads, "n_threads", em));
	TRY(get_text(p->simd, m->simd, sizeof m->simd, "simd", em));
	TRY(get_int(p->port, 0, 65535, &port, "port", em));
	TRY(get_addresses(p->addresses, p->n_addresses, &m->addresses, em));
	m->n_threads = (uint32_t)n_threads;
	m->port = (uint16_t)port;
	m->epoch.v = p->plan_epoch;
	m->kept = p->kept;
	m->fetches = p->fetches;
	TRY(get_held(p, &m->held, em));
	return get_int(p->layers_max, 0, LAYERS_MAX, &m->layers_max, "layers_max", em);
}

static enum err get_peer(const Hearth__Peer *p, struct msg_peer *m, struct errmsg *em)
{
	m->present = p != NULL;
	if (p == NULL)
		return OK;
	TRY(get_bytes(p->public_key, m->public_key, KEY_BYTES, "peer public_key", em));
	TRY(get_bytes(p->psk, m->psk, KEY_BYTES, "peer psk", em));
	TRY(get_text(p->name, m->name, sizeof m->name, "peer name", em));
	return get_addresses(p->addresses, p->n_addresses, &m->addresses, em);
}

// get_spans: ascending, at most n_max of them.
static enum err get_spans(const uint32_t *begins, size_t n_begins, const uint32_t *ends, size_t n_ends, size_t n_max, struct layer_spans *s, struct errmsg *em)
{
	if (n_begins != n_ends || n_begins > n_max)
		return bad(em, "span_begins");
	for (size_t i = 0; i < n_begins; i++) {
		int32_t from = i > 0 ? s->at[i - 1].end : 0;
		TRY(get_int(begins[i], (uint32_t)from, LAYERS_MAX, &s->at[i].begin, "span_begins", em));
		TRY(get_int(ends[i], begins[i], LAYERS_MAX, &s->at[i].end, "span_ends", em));
	}
	s->n = (int32_t)n_begins;
	return n_begins == 0 || layer_spans_count(s) > 0 ? OK : bad(em, "span_ends");
}

// get_part: one round or, in a ring of several machines, more.
static enum err get_part(const Hearth__Plan *p, struct layer_spans *s, struct errmsg *em)
{
	TRY(get_spans(p->span_begins, p->n_span_begins, p->span_ends, p->n_span_ends, p->n_stages > 1 ? ROUNDS_MAX : 1, s, em));
	return s->n > 0 ? OK : bad(em, "span_begins");
}

// get_others fills the members' places but this node's.
static enum err get_others(const Hearth__Group *p, struct msg_group *m, struct errmsg *em)
{
	if (p->n_others != (size_t)m->n_members - 1)
		return bad(em, "group others");
	for (int32_t i = 0; i < m->n_members; i++) {
		const Hearth__Peer *other = i == m->self ? NULL : p->others[i < m->self ? i : i - 1];
		if (other != NULL && other->public_key.len > 0)
			TRY(get_peer(other, &m->members[i], em));
	}
	return OK;
}

static enum err get_group(const Hearth__Group *p, struct msg_group *m, struct errmsg *em)
{
	if (p == NULL)
		return OK;
	int32_t mode = 0, hub = 0, n = 0;
	TRY(get_shares(p->shares, p->n_shares, &n, m->shares, "group shares", em));
	m->n_members = n;
	TRY(get_int(p->member, 0, (uint32_t)n - 1, &m->self, "group member", em));
	TRY(get_int(p->mode, 0, N_SPLIT_MODES - 1, &mode, "group mode", em));
	TRY(get_int(p->hub, 0, (uint32_t)n, &hub, "group hub", em));
	m->mode = (enum split_mode)mode;
	int32_t payload = 0;
	TRY(get_int(p->payload, 0, N_WIRE_TYPES - 1, &payload, "group payload", em));
	m->payload = (enum wire_type)payload;
	if (!split_is_payload(m->payload) || (m->payload != WIRE_F32 && !split_has_lanes(m->mode)))
		return bad(em, "group payload");
	if (hub > 0 && split_has_lanes(m->mode)) // each member gets something else: there is nothing to pass on
		return bad(em, "group hub");
	m->hub = hub - 1;
	return get_others(p, m, em);
}

static enum err get_plan(const Hearth__Plan *p, struct msg_plan *m, struct errmsg *em)
{
	m->epoch.v = p->plan_epoch;
	if (p->plan_epoch == 0)
		return bad(em, "plan_epoch: 0");
	if (p->n_stages == 0) // no part: whatever else it says means nothing
		return OK;
	TRY(get_int(p->n_stages, 1, STAGES_MAX, &m->n_stages, "n_stages", em));
	TRY(get_int(p->stage, 0, p->n_stages - 1, &m->stage, "stage", em));
	TRY(get_part(p, &m->layers, em));
	int32_t wire = 0;
	TRY(get_int(p->wire, 0, N_WIRE_TYPES - 1, &wire, "wire", em));
	m->wire = (enum wire_type)wire;
	TRY(get_int(p->n_slots, 1, SESSIONS_MAX, &m->n_slots, "n_slots", em));
	TRY(get_int(p->ctx_len, 1, 1 << 24, &m->ctx_len, "ctx_len", em));
	TRY(get_int(p->chunk_max, 1, CHUNK_TOKENS_MAX, &m->chunk_max, "chunk_max", em));
	TRY(get_int(p->hop_credits, 1, HOP_CREDITS_MAX / m->layers.n, &m->hop_credits, "hop_credits", em));
	m->has_output = p->has_output;
	int32_t stream_share = 0;
	TRY(get_int(p->stream_share, 0, WINDOW_SHARE_WHOLE, &stream_share, "stream_share", em));
	m->stream_share = (uint32_t)stream_share;
	TRY(get_peer(p->prev, &m->prev, em));
	TRY(get_peer(p->next, &m->next, em));
	TRY(get_group(p->group, &m->group, em));
	if (m->group.self != 0 && (m->prev.present || m->next.present))
		return bad(em, "a neighbour of a member that does not lead");
	return OK;
}

static enum err get_failed(const Hearth__StepFailed *p, struct msg *m, struct errmsg *em)
{
	m->u.step_failed.epoch.v = p->plan_epoch;
	m->u.step_failed.session.v = p->session;
	if (p->code < STEP_NON_FINITE || p->code > STEP_WEIGHTS)
		return bad(em, "code");
	m->u.step_failed.code = (enum step_failure)p->code;
	return get_text(p->error, m->u.step_failed.error, REASON_CAP, "error", em);
}

static enum err get_grant(const Hearth__JoinGrant *p, struct msg_join_grant *m, struct errmsg *em)
{
	TRY(get_bytes(p->cluster_id, m->cluster_id, CLUSTER_ID_BYTES, "cluster_id", em));
	TRY(get_bytes(p->psk, m->psk, KEY_BYTES, "psk", em));
	TRY(get_text(p->name, m->name, sizeof m->name, "name", em));
	m->member_epoch.v = p->member_epoch;
	return get_addresses(p->addresses, p->n_addresses, &m->addresses, em);
}

// are_counts: each below 2^62, so that sums and products with small numbers cannot wrap.
static bool are_counts(const uint64_t *counts, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (counts[i] >= UINT64_C(1) << 62)
			return false;
	return true;
}

static enum err get_weight_report(const Hearth__WeightReport *p, struct msg_weight_report *m, struct errmsg *em)
{
	const uint64_t counts[] = {p->pinned, p->streamed, p->window, p->read, p->read_us, p->stall_us, p->steps, p->withheld};
	*m = (struct msg_weight_report){.reader = p->reader, .locked = p->locked, .pinned = p->pinned, .streamed = p->streamed, .window = p->window,
		.read = p->read, .read_us = p->read_us, .stall_us = p->stall_us, .steps = p->steps, .withheld = p->withheld};
	if (!are_counts(counts, ARRAY_LEN(counts)))
		return bad(em, "a count of weights");
	return p->reader == 1 || p->reader == 2 ? OK : bad(em, "reader");
}

static enum err get_group_report(const Hearth__GroupReport *p, struct msg_group_report *m, struct errmsg *em)
{
	const uint64_t counts[] = {p->forwards, p->tokens, p->exchanges, p->start_bytes, p->part_bytes, p->frames, p->overhead};
	if (p->forwards == 0 || !are_counts(counts, ARRAY_LEN(counts)))
		return bad(em, "a count of groups");
	*m = (struct msg_group_report){.n_forwards = p->forwards, .n_tokens = p->tokens, .n_exchanges = p->exchanges, .start_bytes = p->start_bytes,
		.part_bytes = p->part_bytes, .n_frames = p->frames, .overhead = p->overhead};
	return OK;
}

static enum err get_node_report(const Hearth__NodeReport *p, struct msg_node_report *m, struct errmsg *em)
{
	const uint64_t counts[] = {p->disk_written, p->disk_read, p->tokens, p->next_heard, p->decode_bytes, p->decode_us, p->visits, p->prefill_flop, p->prefill_us};
	*m = (struct msg_node_report){.disk_written = p->disk_written, .disk_read = p->disk_read, .n_tokens = p->tokens, .next_heard = p->next_heard,
		.next_late = p->next_late, .decode_bytes = p->decode_bytes, .decode_us = p->decode_us, .n_visits = p->visits, .prefill_flop = p->prefill_flop,
		.prefill_us = p->prefill_us};
	if (!are_counts(counts, ARRAY_LEN(counts)) || p->next_late > p->next_heard)
		return bad(em, "a count");
	if (p->group != NULL)
		TRY(get_group_report(p->group, &m->group, em));
	return p->weights != NULL ? get_weight_report(p->weights, &m->weights, em) : OK;
}

static enum err get_link_rtt(const Hearth__LinkRtt *p, struct msg *m, struct errmsg *em)
{
	struct link_figures *f = &m->u.link_rtt.figures;
	TRY(get_bytes(p->peer, m->u.link_rtt.peer.b, NODE_ID_BYTES, "peer", em));
	TRY(get_int(p->rtt_us, 0, LINK_RTT_MAX_US, &m->u.link_rtt.rtt_us, "rtt_us", em));
	TRY(get_int(p->p50_us, 0, LINK_RTT_MAX_US, &f->p50_us, "p50_us", em));
	TRY(get_int(p->p90_us, p->p50_us, LINK_RTT_MAX_US, &f->p90_us, "p90_us", em));
	TRY(get_int(p->p99_us, p->p90_us, LINK_RTT_MAX_US, &f->p99_us, "p99_us", em));
	TRY(get_int(p->mean_us, 0, LINK_RTT_MAX_US, &f->mean_us, "mean_us", em));
	f->n = p->n;
	f->rate_bps = p->rate;
	f->rate_least_bps = p->rate_least;
	if (!are_counts(&f->n, 1) || f->rate_bps > PROFILE_RATE_MAX || f->rate_least_bps > PROFILE_RATE_MAX)
		return bad(em, "a link's rate");
	return OK;
}

static void get_conditions(const Hearth__Profile *p, struct device_conditions *c)
{
	*c = (struct device_conditions){.has = p->has, .on_battery = p->on_battery != 0, .battery_percent = p->battery_percent, .heat_mc = p->heat_mc,
		.load_milli = p->load_milli, .cpu_pressure = p->cpu_pressure, .memory_pressure = p->memory_pressure};
}

static enum err get_profile(const Hearth__Profile *p, struct device_profile *m, struct errmsg *em)
{
	TRY(get_text(p->cpu, m->cpu, sizeof m->cpu, "cpu", em));
	if (p->n_rate_types > PROFILE_RATES_MAX || p->n_rate_decodes != p->n_rate_types || p->n_rate_prefills != p->n_rate_types)
		return bad(em, "rates");
	if (p->n_threads == 0)
		return bad(em, "n_threads");
	m->n_threads = p->n_threads;
	m->n_threads_best = p->n_threads_best;
	m->n_cpus = p->n_cpus;
	m->visit_ns = p->visit_ns;
	m->memory_bytes = p->memory_bytes;
	m->available_bytes = p->available_bytes;
	m->cap_bytes = p->cap_bytes;
	m->reserved_bytes = p->reserved_bytes;
	m->disk_mmap_bps = p->disk_mmap;
	m->disk_direct_bps = p->disk_direct;
	m->reader = p->reader;
	for (size_t i = 0; i < p->n_rate_types; i++) {
		if (dtype_find(p->rate_types[i]) == NULL)
			return bad(em, "rate of an unknown type");
		m->rates[i].type = (enum dtype)p->rate_types[i];
		m->rates[i].decode_bps = p->rate_decodes[i];
		m->rates[i].prefill_flops = p->rate_prefills[i];
	}
	m->n_rates = (int32_t)p->n_rate_types;
	get_conditions(p, &m->at);
	return device_profile_check(m, em) == OK ? OK : ERR_FORMAT;
}

static enum err get_body(const Hearth__Control *c, struct msg *m, struct errmsg *em)
{
	switch (c->body_case) {
	case HEARTH__CONTROL__BODY_HELLO: m->type = MSG_HELLO; return get_hello(c->hello, &m->u.hello, em);
	case HEARTH__CONTROL__BODY_WELCOME:
		m->type = MSG_WELCOME;
		m->u.welcome.member_epoch.v = c->welcome->member_epoch;
		return get_text(c->welcome->name, m->u.welcome.name, NAME_CAP, "name", em);
	case HEARTH__CONTROL__BODY_REFUSED:
		m->type = MSG_REFUSED;
		return get_text(c->refused->reason, m->u.refused.reason, REASON_CAP, "reason", em);
	case HEARTH__CONTROL__BODY_PLAN: m->type = MSG_PLAN; return get_plan(c->plan, &m->u.plan, em);
	case HEARTH__CONTROL__BODY_LOADED:
		m->type = MSG_LOADED;
		m->u.loaded.epoch.v = c->loaded->plan_epoch;
		return get_text(c->loaded->error, m->u.loaded.error, REASON_CAP, "error", em);
	case HEARTH__CONTROL__BODY_CANCEL:
		m->type = MSG_CANCEL;
		m->u.cancel.epoch.v = c->cancel->plan_epoch;
		m->u.cancel.session.v = c->cancel->session;
		return OK;
	case HEARTH__CONTROL__BODY_STEP_FAILED: m->type = MSG_STEP_FAILED; return get_failed(c->step_failed, m, em);
	case HEARTH__CONTROL__BODY_PEER_LINK:
		m->type = MSG_PEER_LINK;
		m->u.peer_link.epoch.v = c->peer_link->plan_epoch;
		m->u.peer_link.direct = c->peer_link->direct != 0;
		m->u.peer_link.broken = c->peer_link->broken != 0;
		return OK;
	case HEARTH__CONTROL__BODY_REVOKED:
		m->type = MSG_REVOKED;
		m->u.revoked.member_epoch.v = c->revoked->member_epoch;
		return get_bytes(c->revoked->node_id, m->u.revoked.node.b, NODE_ID_BYTES, "node_id", em);
	case HEARTH__CONTROL__BODY_LEAVING: m->type = MSG_LEAVING; return OK;
	case HEARTH__CONTROL__BODY_BYE: m->type = MSG_BYE; return OK;
	case HEARTH__CONTROL__BODY_JOIN_GRANT: m->type = MSG_JOIN_GRANT; return get_grant(c->join_grant, &m->u.join_grant, em);
	case HEARTH__CONTROL__BODY_JOIN_ACK: m->type = MSG_JOIN_ACK; return OK;
	case HEARTH__CONTROL__BODY_NODE_REPORT: m->type = MSG_NODE_REPORT; return get_node_report(c->node_report, &m->u.node_report, em);
	case HEARTH__CONTROL__BODY_PROFILE: m->type = MSG_PROFILE; return get_profile(c->profile, &m->u.profile, em);
	case HEARTH__CONTROL__BODY_PREPARE:
		m->type = MSG_PREPARE;
		m->u.prepare.serial = c->prepare->serial;
		m->u.prepare.has_output = c->prepare->has_output;
		TRY(c->prepare->serial == 0 ? bad(em, "serial: 0") : get_layer_part(c->prepare->part, &m->u.prepare.part, em));
		return get_spans(c->prepare->span_begins, c->prepare->n_span_begins, c->prepare->span_ends, c->prepare->n_span_ends, ROUNDS_MAX,
			&m->u.prepare.layers, em);
	case HEARTH__CONTROL__BODY_PREPARED:
		m->type = MSG_PREPARED;
		m->u.prepared.serial = c->prepared->serial;
		return get_text(c->prepared->error, m->u.prepared.error, REASON_CAP, "error", em);
	case HEARTH__CONTROL__BODY_LINK_RTT: m->type = MSG_LINK_RTT; return get_link_rtt(c->link_rtt, m, em);
	default: return errmsg_fail(em, ERR_FORMAT, "no known body");
	}
}

enum err msg_decode(const uint8_t *frame, size_t len, struct msg *out, struct errmsg *em)
{
	memset(out, 0, sizeof *out);
	if (len < 1 || len > CONTROL_RECORD_MAX || frame[0] != FRAME_CONTROL)
		return errmsg_fail(em, ERR_FORMAT, "control message: bad frame");
	struct decode_arena arena;
	arena.used = 0;
	ProtobufCAllocator alloc = {.alloc = decode_alloc, .free = decode_free, .allocator_data = &arena};
	Hearth__Control *c = hearth__control__unpack(&alloc, len - 1, frame + 1);
	if (c == NULL)
		return errmsg_fail(em, ERR_FORMAT, "control message: malformed");
	enum err e = get_body(c, out, em);
	if (e != OK)
		return errmsg_prefix(em, e, "control message %s", out->type ? msg_name(out->type) : "");
	return OK;
}
