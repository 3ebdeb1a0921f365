#include "proto/msg.h"

#include "base/assert.h"
#include "proto/frame.h"

#include <string.h>

#include "proto/hearth.pb-c.h"

// ---- fields out. Generated structs hold uint8_t *: protobuf-c never writes through them when packing.

static ProtobufCBinaryData bytes_out(const uint8_t *p, size_t len)
{
	return (ProtobufCBinaryData){.len = len, .data = (uint8_t *)(uintptr_t)p};
}

static ProtobufCBinaryData text_out(const char *s)
{
	return bytes_out((const uint8_t *)s, strlen(s));
}

struct peer_out {
	Hearth__Peer peer;
	ProtobufCBinaryData addresses[ADDRS_MAX];
};

static size_t addresses_out(const struct address_list *list, ProtobufCBinaryData *out)
{
	ASSERT(list->n <= ADDRS_MAX);
	for (uint32_t i = 0; i < list->n; i++)
		out[i] = text_out(list->at[i]);
	return list->n;
}

static Hearth__Peer *peer_out(const struct msg_peer *m, struct peer_out *o)
{
	if (!m->present)
		return NULL;
	hearth__peer__init(&o->peer);
	o->peer.public_key = bytes_out(m->public_key, KEY_BYTES);
	o->peer.psk = bytes_out(m->psk, KEY_BYTES);
	o->peer.name = text_out(m->name);
	o->peer.n_addresses = addresses_out(&m->addresses, o->addresses);
	o->peer.addresses = o->addresses;
	return &o->peer;
}

static size_t pack(Hearth__Control *c, Hearth__Control__BodyCase body, uint8_t *out)
{
	c->body_case = body;
	ASSERT(hearth__control__get_packed_size(c) < MSG_ENCODED_MAX);
	out[0] = FRAME_CONTROL;
	return 1 + hearth__control__pack(c, out + 1);
}

// layer_set_out writes the bytes of a set up to its last layer, and returns how many.
static size_t layer_set_out(const struct layer_set *s, uint8_t out[(LAYERS_MAX + 7) / 8])
{
	size_t len = 0;
	memset(out, 0, (LAYERS_MAX + 7) / 8);
	for (int32_t i = 0; i < LAYERS_MAX; i++) {
		if (!layer_set_has(s, i))
			continue;
		out[i / 8] |= (uint8_t)(1u << i % 8);
		len = (size_t)i / 8 + 1;
	}
	return len;
}

static size_t spans_out(const struct layer_spans *s, uint32_t begins[ROUNDS_MAX], uint32_t ends[ROUNDS_MAX])
{
	for (int32_t i = 0; i < s->n; i++) {
		begins[i] = (uint32_t)s->at[i].begin;
		ends[i] = (uint32_t)s->at[i].end;
	}
	return (size_t)s->n;
}

struct part_out {
	Hearth__Part part;
	uint32_t shares[GROUP_MEMBERS_MAX];
};

static Hearth__Part *part_out(const struct layer_part *m, struct part_out *o)
{
	if (m->n == 0)
		return NULL;
	ASSERT(m->n >= 2 && m->n <= GROUP_MEMBERS_MAX);
	hearth__part__init(&o->part);
	memcpy(o->shares, m->shares, sizeof o->shares);
	o->part.member = (uint32_t)m->place;
	o->part.mode = (uint32_t)m->mode;
	o->part.n_shares = (size_t)m->n;
	o->part.shares = o->shares;
	return &o->part;
}

struct held_out {
	uint8_t whole[(LAYERS_MAX + 7) / 8], layers[HELD_PARTS_MAX][(LAYERS_MAX + 7) / 8];
	struct part_out parts[HELD_PARTS_MAX];
	Hearth__HeldPart held[HELD_PARTS_MAX];
	Hearth__HeldPart *at[HELD_PARTS_MAX];
};

static void put_held(const struct held_layers *m, Hearth__Hello *p, struct held_out *o)
{
	static const struct layer_part whole;
	struct layer_set all = held_of(m, &whole);
	p->held = bytes_out(o->whole, layer_set_out(&all, o->whole));
	p->held_output = held_has_output(m, &whole);
	p->held_parts = o->at;
	for (int32_t i = 0; i < m->n; i++) {
		size_t k = p->n_held_parts;
		if (m->at[i].part.n == 0)
			continue;
		hearth__held_part__init(&o->held[k]);
		o->held[k].part = part_out(&m->at[i].part, &o->parts[k]);
		o->held[k].has_output = m->at[i].has_output;
		o->held[k].layers = bytes_out(o->layers[k], layer_set_out(&m->at[i].layers, o->layers[k]));
		o->at[p->n_held_parts++] = &o->held[k];
	}
}

static size_t put_hello(const struct msg_hello *m, Hearth__Control *c, uint8_t *out)
{
	ProtobufCBinaryData addresses[ADDRS_MAX];
	Hearth__Hello p = HEARTH__HELLO__INIT;
	p.name = text_out(m->name);
	p.model_hash = bytes_out(m->model_hash, HASH_BYTES);
	p.n_threads = m->n_threads;
	p.simd = text_out(m->simd);
	p.port = m->port;
	p.n_addresses = addresses_out(&m->addresses, addresses);
	p.addresses = addresses;
	p.plan_epoch = m->epoch.v;
	p.kept = m->kept;
	p.layers_max = (uint32_t)m->layers_max;
	struct held_out held;
	p.fetches = m->fetches;
	put_held(&m->held, &p, &held);
	c->hello = &p;
	return pack(c, HEARTH__CONTROL__BODY_HELLO, out);
}

struct group_out {
	Hearth__Group group;
	uint32_t shares[GROUP_MEMBERS_MAX];
	struct peer_out others[GROUP_MEMBERS_MAX];
	Hearth__Peer *at[GROUP_MEMBERS_MAX];
};

static Hearth__Group *group_out(const struct msg_group *m, struct group_out *o)
{
	if (m->n_members == 0)
		return NULL;
	ASSERT(m->n_members >= 2 && m->n_members <= GROUP_MEMBERS_MAX);
	hearth__group__init(&o->group);
	o->group.member = (uint32_t)m->self;
	o->group.mode = (uint32_t)m->mode;
	o->group.payload = (uint32_t)m->payload;
	o->group.hub = (uint32_t)(m->hub + 1);
	for (int32_t i = 0; i < m->n_members; i++) {
		o->shares[i] = m->shares[i];
		ASSERT(i != m->self || !m->members[i].present);
		if (i == m->self)
			continue;
		hearth__peer__init(&o->others[i].peer);
		(void)peer_out(&m->members[i], &o->others[i]);
		o->at[o->group.n_others++] = &o->others[i].peer;
	}
	o->group.n_shares = (size_t)m->n_members;
	o->group.shares = o->shares;
	o->group.others = o->at;
	return &o->group;
}

static size_t put_plan(const struct msg_plan *m, Hearth__Control *c, uint8_t *out)
{
	struct peer_out prev, next;
	struct group_out group;
	uint32_t begins[ROUNDS_MAX], ends[ROUNDS_MAX];
	Hearth__Plan p = HEARTH__PLAN__INIT;
	p.plan_epoch = m->epoch.v;
	p.n_stages = (uint32_t)m->n_stages;
	p.stage = (uint32_t)m->stage;
	p.n_span_begins = p.n_span_ends = spans_out(&m->layers, begins, ends);
	p.span_begins = begins;
	p.span_ends = ends;
	p.wire = (uint32_t)m->wire;
	p.n_slots = (uint32_t)m->n_slots;
	p.ctx_len = (uint32_t)m->ctx_len;
	p.chunk_max = (uint32_t)m->chunk_max;
	p.hop_credits = (uint32_t)m->hop_credits;
	p.has_output = m->has_output;
	p.stream_share = m->stream_share;
	p.prev = peer_out(&m->prev, &prev);
	p.next = peer_out(&m->next, &next);
	p.group = group_out(&m->group, &group);
	c->plan = &p;
	return pack(c, HEARTH__CONTROL__BODY_PLAN, out);
}

static size_t put_prepare(const struct msg *m, Hearth__Control *c, uint8_t *out)
{
	struct part_out part;
	uint32_t begins[ROUNDS_MAX], ends[ROUNDS_MAX];
	Hearth__Prepare p = HEARTH__PREPARE__INIT;
	p.serial = m->u.prepare.serial;
	p.n_span_begins = p.n_span_ends = spans_out(&m->u.prepare.layers, begins, ends);
	p.span_begins = begins;
	p.span_ends = ends;
	p.part = part_out(&m->u.prepare.part, &part);
	p.has_output = m->u.prepare.has_output;
	c->prepare = &p;
	return pack(c, HEARTH__CONTROL__BODY_PREPARE, out);
}

static size_t put_grant(const struct msg_join_grant *m, Hearth__Control *c, uint8_t *out)
{
	ProtobufCBinaryData addresses[ADDRS_MAX];
	Hearth__JoinGrant p = HEARTH__JOIN_GRANT__INIT;
	p.cluster_id = bytes_out(m->cluster_id, CLUSTER_ID_BYTES);
	p.psk = bytes_out(m->psk, KEY_BYTES);
	p.name = text_out(m->name);
	p.member_epoch = m->member_epoch.v;
	p.n_addresses = addresses_out(&m->addresses, addresses);
	p.addresses = addresses;
	c->join_grant = &p;
	return pack(c, HEARTH__CONTROL__BODY_JOIN_GRANT, out);
}

// put_weights fills *p; false: there is nothing to tell.
static bool put_weights(const struct msg_weight_report *m, Hearth__WeightReport *p)
{
	p->reader = m->reader;
	p->locked = m->locked;
	p->pinned = m->pinned;
	p->streamed = m->streamed;
	p->window = m->window;
	p->read = m->read;
	p->read_us = m->read_us;
	p->stall_us = m->stall_us;
	p->steps = m->steps;
	p->withheld = m->withheld;
	return m->reader != 0;
}

// put_group fills *p; false: there is nothing to tell.
static bool put_group(const struct msg_group_report *m, Hearth__GroupReport *p)
{
	p->forwards = m->n_forwards;
	p->tokens = m->n_tokens;
	p->exchanges = m->n_exchanges;
	p->start_bytes = m->start_bytes;
	p->part_bytes = m->part_bytes;
	p->frames = m->n_frames;
	p->overhead = m->overhead;
	return m->n_forwards != 0;
}

static size_t put_profile(const struct device_profile *m, Hearth__Control *c, uint8_t *out)
{
	uint32_t types[PROFILE_RATES_MAX];
	uint64_t decodes[PROFILE_RATES_MAX], prefills[PROFILE_RATES_MAX];
	Hearth__Profile p = HEARTH__PROFILE__INIT;
	ASSERT(m->n_rates >= 0 && m->n_rates <= PROFILE_RATES_MAX);
	for (int32_t i = 0; i < m->n_rates; i++) {
		types[i] = (uint32_t)m->rates[i].type;
		decodes[i] = m->rates[i].decode_bps;
		prefills[i] = m->rates[i].prefill_flops;
	}
	p.cpu = text_out(m->cpu);
	p.n_threads = m->n_threads;
	p.n_threads_best = m->n_threads_best;
	p.n_cpus = m->n_cpus;
	p.visit_ns = m->visit_ns;
	p.memory_bytes = m->memory_bytes;
	p.available_bytes = m->available_bytes;
	p.cap_bytes = m->cap_bytes;
	p.reserved_bytes = m->reserved_bytes;
	p.disk_mmap = m->disk_mmap_bps;
	p.disk_direct = m->disk_direct_bps;
	p.reader = m->reader;
	p.n_rate_types = p.n_rate_decodes = p.n_rate_prefills = (size_t)m->n_rates;
	p.rate_types = types;
	p.rate_decodes = decodes;
	p.rate_prefills = prefills;
	p.has = m->at.has;
	p.on_battery = m->at.on_battery;
	p.battery_percent = m->at.battery_percent;
	p.heat_mc = m->at.heat_mc;
	p.load_milli = m->at.load_milli;
	p.cpu_pressure = m->at.cpu_pressure;
	p.memory_pressure = m->at.memory_pressure;
	c->profile = &p;
	return pack(c, HEARTH__CONTROL__BODY_PROFILE, out);
}

static size_t put_rtt(const struct msg *m, Hearth__Control *c, uint8_t *out)
{
	const struct link_figures *f = &m->u.link_rtt.figures;
	Hearth__LinkRtt p = HEARTH__LINK_RTT__INIT;
	p.peer = bytes_out(m->u.link_rtt.peer.b, NODE_ID_BYTES);
	p.rtt_us = (uint32_t)m->u.link_rtt.rtt_us;
	p.n = f->n;
	p.p50_us = (uint32_t)f->p50_us;
	p.p90_us = (uint32_t)f->p90_us;
	p.p99_us = (uint32_t)f->p99_us;
	p.mean_us = (uint32_t)f->mean_us;
	p.rate = f->rate_bps;
	p.rate_least = f->rate_least_bps;
	c->link_rtt = &p;
	return pack(c, HEARTH__CONTROL__BODY_LINK_RTT, out);
}

static size_t put_small(const struct msg *m, Hearth__Control *c, uint8_t *out)
{
	Hearth__Welcome welcome = HEARTH__WELCOME__INIT;
	Hearth__Refused refused = HEARTH__REFUSED__INIT;
	Hearth__Loaded loaded = HEARTH__LOADED__INIT;
	Hearth__Prepared prepared = HEARTH__PREPARED__INIT;
	Hearth__Cancel cancel = HEARTH__CANCEL__INIT;
	Hearth__StepFailed failed = HEARTH__STEP_FAILED__INIT;
	Hearth__PeerLink peer_link = HEARTH__PEER_LINK__INIT;
	Hearth__Revoked revoked = HEARTH__REVOKED__INIT;
	Hearth__Leaving leaving = HEARTH__LEAVING__INIT;
	Hearth__Bye bye = HEARTH__BYE__INIT;
	Hearth__JoinAck ack = HEARTH__JOIN_ACK__INIT;
	Hearth__NodeReport report = HEARTH__NODE_REPORT__INIT;
	Hearth__WeightReport weights = HEARTH__WEIGHT_REPORT__INIT;
	Hearth__GroupReport group = HEARTH__GROUP_REPORT__INIT;
	switch (m->type) {
	case MSG_WELCOME:
		welcome.name = text_out(m->u.welcome.name);
		welcome.member_epoch = m->u.welcome.member_epoch.v;
		c->welcome = &welcome;
		return pack(c, HEARTH__CONTROL__BODY_WELCOME, out);
	case MSG_REFUSED:
		refused.reason = text_out(m->u.refused.reason);
		c->refused = &refused;
		return pack(c, HEARTH__CONTROL__BODY_REFUSED, out);
	case MSG_LOADED:
		loaded.plan_epoch = m->u.loaded.epoch.v;
		loaded.error = text_out(m->u.loaded.error);
		c->loaded = &loaded;
		return pack(c, HEARTH__CONTROL__BODY_LOADED, out);
	case MSG_PREPARED:
		prepared.serial = m->u.prepared.serial;
		prepared.error = text_out(m->u.prepared.error);
		c->prepared = &prepared;
		return pack(c, HEARTH__CONTROL__BODY_PREPARED, out);
	case MSG_CANCEL:
		cancel.plan_epoch = m->u.cancel.epoch.v;
		cancel.session = m->u.cancel.session.v;
		c->cancel = &cancel;
		return pack(c, HEARTH__CONTROL__BODY_CANCEL, out);
	case MSG_STEP_FAILED:
		failed.plan_epoch = m->u.step_failed.epoch.v;
		failed.session = m->u.step_failed.session.v;
		failed.code = (uint32_t)m->u.step_failed.code;
		failed.error = text_out(m->u.step_failed.error);
		c->step_failed = &failed;
		return pack(c, HEARTH__CONTROL__BODY_STEP_FAILED, out);
	case MSG_PEER_LINK:
		peer_link.plan_epoch = m->u.peer_link.epoch.v;
		peer_link.direct = m->u.peer_link.direct;
		peer_link.broken = m->u.peer_link.broken;
		c->peer_link = &peer_link;
		return pack(c, HEARTH__CONTROL__BODY_PEER_LINK, out);
	case MSG_REVOKED:
		revoked.member_epoch = m->u.revoked.member_epoch.v;
		revoked.node_id = bytes_out(m->u.revoked.node.b, NODE_ID_BYTES);
		c->revoked = &revoked;
		return pack(c, HEARTH__CONTROL__BODY_REVOKED, out);
	case MSG_NODE_REPORT:
		report.disk_written = m->u.node_report.disk_written;
		report.disk_read = m->u.node_report.disk_read;
		report.tokens = m->u.node_report.n_tokens;
		report.next_heard = m->u.node_report.next_heard;
		report.next_late = m->u.node_report.next_late;
		report.decode_bytes = m->u.node_report.decode_bytes;
		report.decode_us = m->u.node_report.decode_us;
		report.visits = m->u.node_report.n_visits;
		report.prefill_flop = m->u.node_report.prefill_flop;
		report.prefill_us = m->u.node_report.prefill_us;
		if (put_weights(&m->u.node_report.weights, &weights))
			report.weights = &weights;
		if (put_group(&m->u.node_report.group, &group))
			report.group = &group;
		c->node_report = &report;
		return pack(c, HEARTH__CONTROL__BODY_NODE_REPORT, out);
	case MSG_LEAVING: c->leaving = &leaving; return pack(c, HEARTH__CONTROL__BODY_LEAVING, out);
	case MSG_BYE: c->bye = &bye; return pack(c, HEARTH__CONTROL__BODY_BYE, out);
	default: c->join_ack = &ack; return pack(c, HEARTH__CONTROL__BODY_JOIN_ACK, out);
	}
}

size_t msg_encode(const struct msg *m, uint8_t out[MSG_ENCODED_MAX])
{
	Hearth__Control c = HEARTH__CONTROL__INIT;
	switch (m->type) {
	case MSG_HELLO: return put_hello(&m->u.hello, &c, out);
	case MSG_PLAN: return put_plan(&m->u.plan, &c, out);
	case MSG_PREPARE: return put_prepare(m, &c, out);
	case MSG_JOIN_GRANT: return put_grant(&m->u.join_grant, &c, out);
	case MSG_LINK_RTT: return put_rtt(m, &c, out);
	case MSG_PROFILE: return put_profile(&m->u.profile, &c, out);
	default: return put_small(m, &c, out);
	}
}
