#include "node/node_state.h"

#include "base/assert.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#define REPORT_NS 1000000000          // between two reports
#define TELL_WAY_NS 5000000000        // between two of the way to the coordinator
#define LEAVE_PATIENCE_NS 30000000000 // an answer may be under way; a coordinator that never says Bye must not hold us for ever

// ---- effects

struct node_effect *node_fx(struct node_effects *fx, enum node_effect_type type)
{
	ASSERT(fx->n < NODE_EFFECTS_MAX);
	struct node_effect *f = &fx->at[fx->n++];
	memset(f, 0, sizeof *f);
	f->type = type;
	return f;
}

const uint8_t *node_fx_bytes(struct node_effects *fx, const void *data, size_t len)
{
	ASSERT(len <= NODE_EFFECT_BYTES - fx->n_bytes);
	uint8_t *p = fx->bytes + fx->n_bytes;
	memcpy(p, data, len);
	fx->n_bytes += len;
	return p;
}

static const char *fx_text(struct node_effects *fx, const char *text)
{
	return (const char *)node_fx_bytes(fx, text, strlen(text) + 1);
}

void node_log(struct node_effects *fx, int level, const char *fmt, ...)
{
	char text[REASON_CAP + NAME_CAP];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	struct node_effect *f = node_fx(fx, NODE_FX_LOG);
	f->u.log.level = level;
	f->u.log.text = fx_text(fx, text);
}

void node_fx_send(struct node_effects *fx, uint32_t link, const uint8_t *data, size_t len)
{
	struct node_effect *f = node_fx(fx, NODE_FX_SEND);
	f->u.send.link = link;
	f->u.send.head = node_fx_bytes(fx, data, len);
	f->u.send.head_len = len;
	f->u.send.buf = -1;
}

void node_send_msg(struct node *n, struct node_effects *fx, const struct msg *m)
{
	struct node_link *l = node_link_of(n, n->config.coordinator, NODE_LINK_CONTROL);
	if (l == NULL)
		return;
	uint8_t frame[MSG_ENCODED_MAX];
	l->used = n->plan.epoch;
	node_fx_send(fx, l->handle, frame, msg_encode(m, frame));
}

static void fx_exit(struct node_effects *fx, enum err err, const char *text)
{
	struct node_effect *f = node_fx(fx, NODE_FX_EXIT);
	f->u.exit.err = err;
	f->u.exit.text = fx_text(fx, text);
}

void node_fx_close(struct node_effects *fx, uint32_t link, bool orderly)
{
	struct node_effect *f = node_fx(fx, NODE_FX_CLOSE);
	f->u.close.link = link;
	f->u.close.orderly = orderly;
}

// ---- what the coordinator is told

void node_report_next_link(struct node *n, bool broken, struct node_effects *fx)
{
	if (n->plan.epoch.v == 0 || (n->plan.group.self != 0 && !broken))
		return;
	struct msg m = {.type = MSG_PEER_LINK};
	m.u.peer_link.epoch = n->plan.epoch;
	m.u.peer_link.direct = node_next_direct(n) != NULL;
	m.u.peer_link.broken = broken;
	node_send_msg(n, fx, &m);
}

void node_say_hello(struct node *n, struct node_effects *fx)
{
	struct msg m = {.type = MSG_HELLO};
	struct msg_hello *h = &m.u.hello;
	text_copy(h->name, sizeof h->name, n->config.name);
	memcpy(h->model_hash, n->config.model_hash, HASH_BYTES);
	h->n_threads = n->config.n_threads;
	text_copy(h->simd, sizeof h->simd, n->config.simd);
	h->port = n->config.port;
	h->addresses = n->config.addresses;
	h->epoch = n->plan.epoch;
	h->kept = n->has_kept;
	h->layers_max = n->config.layers_max;
	h->fetches = n->config.fetches;
	h->held = n->held;
	node_send_msg(n, fx, &m);
	n->reported = (struct msg_node_report){.disk_written = 0}; // it forgets what was told
	if (n->leaving) {
		struct msg leaving = {.type = MSG_LEAVING};
		node_send_msg(n, fx, &leaving);
	}
}

// report_differs: of what is worth a message of its own.
static bool report_differs(const struct node *n)
{
	const struct msg_node_report *a = &n->report, *b = &n->reported;
	return n->welcomed && (a->disk_written != b->disk_written || a->disk_read != b->disk_read || a->next_late != b->next_late ||
		a->weights.read != b->weights.read || a->weights.pinned != b->weights.pinned || a->weights.withheld != b->weights.withheld || a->weights.reader != b->weights.reader || a->decode_us != b->decode_us ||
		a->prefill_us != b->prefill_us || a->group.n_exchanges != b->group.n_exchanges);
}

static void report(struct node *n, struct node_effects *fx)
{
	if (!report_differs(n) || n->now_ns < n->report_ns)
		return;
	n->report.n_tokens = n->n_tokens;
	struct msg m = {.type = MSG_NODE_REPORT, .u.node_report = n->report};
	node_send_msg(n, fx, &m);
	n->reported = n->report;
	n->report_ns = n->now_ns + REPORT_NS;
}

// ---- plans

static void drop_next_plan(struct node *n)
{
	memset(&n->next, 0, sizeof n->next);
	n->has_next = false;
}

// lose_plan forgets everything under way; the engine keeps its weights for the plan to come.
static void lose_plan(struct node *n)
{
	n->plan.epoch.v = 0;
	n->loaded = n->load_waits = false;
	drop_next_plan(n);
	stage_reset(n);
}

void node_on_coordinator_lost(struct node *n, enum node_link_kind kind, struct node_effects *fx)
{
	bool has_control = node_link_of(n, n->config.coordinator, NODE_LINK_CONTROL) != NULL;
	n->welcomed = n->welcomed && has_control;
	lose_plan(n);
	if (kind == NODE_LINK_CONTROL) {
		n->newest_epoch.v = 0; // another run of the coordinator may count from below
		prepare_lose(n);
	}
	if (has_control)
		node_say_hello(n, fx); // the coordinator may not have noticed: what was on the link is lost, and so is the plan
	else if (n->leaving && kind == NODE_LINK_CONTROL)
		fx_exit(fx, OK, "left (the coordinator is gone)");
}

static void fx_peer(const struct msg_peer *p, enum node_effect_type type, struct node_effects *fx)
{
	struct node_effect *f = node_fx(fx, type);
	f->u.connect.peer = node_peer_id(p->public_key);
	f->u.connect.kind = NODE_LINK_DATA;
	f->u.connect.who = type == NODE_FX_CONNECT ? p : NULL;
}

static void part_from(struct node *n, const struct msg_peer *p, struct node_effects *fx)
{
	node_links_forget(n, node_peer_id(p->public_key));
	fx_peer(p, NODE_FX_DISCONNECT, fx);
}

struct plan_peers {
	struct msg_peer prev, next, members[GROUP_MEMBERS_MAX];
};

static bool same_key(const struct msg_peer *a, const struct msg_peer *b)
{
	return a->present && b->present && memcmp(a->public_key, b->public_key, KEY_BYTES) == 0;
}

// same_peer: a link that was made for the one serves the other.
static bool same_peer(const struct msg_peer *a, const struct msg_peer *b)
{
	return same_key(a, b) && memcmp(a->psk, b->psk, KEY_BYTES) == 0 && memcmp(&a->addresses, &b->addresses, sizeof a->addresses) == 0;
}

// peer_at returns one of a plan's peers, NODE_PEERS_MAX + 1 places: the ring's neighbours, then the group's members.
static struct msg_peer *peer_at(struct plan_peers *p, int32_t i)
{
	return i == 0 ? &p->prev : i == 1 ? &p->next : &p->members[i - 2];
}

static struct plan_peers peers_of(const struct msg_plan *p)
{
	struct plan_peers out = {.prev = p->prev, .next = p->next};
	memcpy(out.members, p->group.members, sizeof out.members);
	return out;
}

// is_among tells whether one of the first n peers is the same, by key or as a whole.
static bool is_among(struct plan_peers *all, int32_t n, const struct msg_peer *p, bool (*same)(const struct msg_peer *, const struct msg_peer *))
{
	for (int32_t i = 0; i < n; i++)
		if (same(peer_at(all, i), p))
			return true;
	return false;
}

// change_peers parts from who is no peer any more and dials who has become one. They are a set: one that was behind us and is before us now, or
// in our group, keeps its link.
static void change_peers(struct node *n, struct plan_peers *want, struct node_effects *fx)
{
	struct plan_peers old = peers_of(&n->plan);
	const int32_t n_places = 2 + GROUP_MEMBERS_MAX;
	n->plan.prev = want->prev;
	n->plan.next = want->next;
	memcpy(n->plan.group.members, want->members, sizeof want->members);
	for (int32_t i = 0; i < n_places; i++) {
		const struct msg_peer *p = peer_at(&old, i);
		if (p->present && !is_among(want, n_places, p, same_peer) && !is_among(&old, i, p, same_key))
			part_from(n, p, fx);
	}
	for (int32_t i = 0; i < 2 + GROUP_MEMBERS_MAX; i++) {
		const struct msg_peer *p = i == 0 ? &n->plan.prev : i == 1 ? &n->plan.next : &n->plan.group.members[i - 2]; // which outlives this call
		if (p->present && !is_among(&old, n_places, p, same_peer) && !is_among(want, i, p, same_key))
			fx_peer(p, NODE_FX_CONNECT, fx);
	}
	memset(&old, 0, sizeof old);
}

static void answer_loaded(struct node *n, const char *error, struct node_effects *fx)
{
	struct msg m = {.type = MSG_LOADED};
	m.u.loaded.epoch = n->plan.epoch;
	text_copy(m.u.loaded.error, sizeof m.u.loaded.error, error);
	node_send_msg(n, fx, &m);
	if (error[0] == '\0')
		node_report_next_link(n, false, fx);
}

struct layer_part node_part_of(const struct msg_group *g)
{
	return layer_part_of(g->n_members, g->self, g->mode, g->shares);
}

// same_group: an engine that computes in one does in the other, whoever the others are.
static bool same_group(const struct msg_group *a, const struct msg_group *b)
{
	return a->n_members == b->n_members && a->self == b->self && a->mode == b->mode && a->payload == b->payload &&
		memcmp(a->shares, b->shares, sizeof a->shares) == 0;
}

// keeps_kv: as recovery_note_part of the coordinator has it, keys and values are of use to the same part of a layer.
static bool keeps_kv(const struct msg_group *from, const struct msg_group *to)
{
	struct layer_part before = node_part_of(from), part = node_part_of(to);
	return from->payload == to->payload && layer_part_equal(&before, &part);
}

static bool engine_fits(const struct msg_plan *engine, const struct msg_plan *p)
{
	return engine->epoch.v != 0 && layer_spans_equal(&engine->layers, &p->layers) && engine->n_slots == p->n_slots &&
		engine->ctx_len == p->ctx_len && engine->chunk_max == p->chunk_max && engine->hop_credits == p->hop_credits && engine->wire == p->wire &&
		engine->has_output == p->has_output && (!p->has_output || (engine->stage == engine->n_stages - 1) == (p->stage == p->n_stages - 1)) && same_group(&engine->group, &p->group);
}

// let_go: the plan has no part for us. Weights and buffers are somebody else's memory now.
static void let_go(struct node *n, struct node_effects *fx)
{
	n->engine.epoch.v = 0;
	n->has_kept = false;
	kept_forget(n, fx);
	if (!n->has_memory)
		return;
	n->has_memory = false;
	node_fx(fx, NODE_FX_UNLOAD);
	node_log(fx, LOG_INFO, "the cluster's plan does without this machine for now: its layers are let go");
}

void node_load(struct node *n, struct node_effects *fx)
{
	const struct msg_plan *p = &n->plan;
	n->load_waits = n->prepare_id != 0;
	if (n->load_waits)
		return;
	if (n->engine.n_slots != p->n_slots || n->engine.ctx_len != p->ctx_len || n->engine.wire != p->wire)
		kept_forget(n, fx);
	if (!keeps_kv(&n->engine.group, &p->group))
		memset(n->kv_session, 0, sizeof n->kv_session); // what was sent is the same however it was computed
	n->load_id = ++n->next_id;
	n->engine.epoch.v = 0;
	n->has_memory = true;
	struct node_effect *f = node_fx(fx, NODE_FX_LOAD);
	f->u.load.id = n->load_id;
	f->u.load.layers = p->layers;
	f->u.load.n_slots = p->n_slots;
	f->u.load.ctx_len = p->ctx_len;
	f->u.load.chunk_max = p->chunk_max;
	f->u.load.n_bufs = p->group.self == 0 ? p->hop_credits * p->layers.n : NODE_FELLOW_BUFS;
	f->u.load.buf_bytes = stage_buf_bytes(n);
	f->u.load.wire = p->wire;
	f->u.load.has_output = stage_has_output(n);
	f->u.load.stream_share = p->stream_share;
	f->u.load.group = &p->group;
}

static void adopt_plan(struct node *n, const struct msg_plan *p, struct node_effects *fx)
{
	struct plan_peers old = peers_of(&n->plan), want = n->config.local ? (struct plan_peers){.prev = {.present = false}} : peers_of(p); // it never dials
	if (!same_key(&n->plan.next, &p->next))
		n->report.next_heard = n->report.next_late = 0;
	n->plan = *p;
	n->plan_ns = n->now_ns;
	n->plan.prev = old.prev;
	n->plan.next = old.next;
	memcpy(n->plan.group.members, old.members, sizeof old.members);
	n->has_next = false;
	n->loaded = n->load_waits = false;
	change_peers(n, &want, fx);
	memset(&old, 0, sizeof old);
	memset(&want, 0, sizeof want);
	stage_reset(n);
	if (p->n_stages == 0) {
		let_go(n, fx);
	} else if (p->layers.at[p->layers.n - 1].end > n->config.n_layers) {
		answer_loaded(n, "the plan names layers that the model does not have", fx);
	} else if (p->group.n_members > 0 && stage_buf_bytes(n) > PART_BYTES_MAX - PART_START_BYTES_MAX) {
		answer_loaded(n, "a chunk of the plan is longer than a group can pass on", fx);
	} else if (engine_fits(&n->engine, p)) {
		n->loaded = true;
		answer_loaded(n, "", fx);
	} else {
		node_load(n, fx);
	}
}

static void on_plan(struct node *n, const struct msg_plan *p, struct node_effects *fx)
{
	if (p->epoch.v <= n->newest_epoch.v)
		return; // older than what we have: crossed on the way
	n->newest_epoch = p->epoch;
	if (stage_has_forward(n) || n->load_id != 0) {
		if (n->load_id != 0 && !n->has_next)
			node_fx(fx, NODE_FX_STOP_LOAD);
		// The engine still works for the old plan; what it computes is not sent any more.
		lose_plan(n);
		n->next = *p;
		n->has_next = true;
		return;
	}
	adopt_plan(n, p, fx);
}

static void on_loaded(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	if (ev->u.loaded.id != n->load_id)
		return;
	n->load_id = 0;
	if (ev->u.loaded.err != OK || ev->u.loaded.lost_kv)
		kept_forget(n, fx);
	n->has_kept = ev->u.loaded.err == OK && !ev->u.loaded.lost_kv;
	if (ev->u.loaded.err == OK) {
		n->engine = n->plan;
		n->engine.epoch.v = 1; // any: it is there
		n->engine.prev = n->engine.next = (struct msg_peer){0}; // their keys stay in one place, which a revocation wipes
		memset(n->engine.group.members, 0, sizeof n->engine.group.members);
		n->group.part_bytes = ev->u.loaded.part_bytes;
	}
	prepare_on_loaded(n, ev->u.loaded.err);
	if (n->has_next || n->plan.epoch.v == 0)
		return;
	n->loaded = ev->u.loaded.err == OK;
	n->report.weights = n->loaded ? ev->u.loaded.weights : (struct msg_weight_report){0};
	n->report.weights.steps = 0;
	n->n_cold = 2 * n->plan.layers.n;
	if (!n->loaded && !n->config.local) // the coordinator's log, on the same machine, says it too
		node_log(fx, LOG_ERROR, "this machine cannot take its part: %s", ev->u.loaded.text);
	answer_loaded(n, n->loaded ? "" : ev->u.loaded.text, fx);
}

static void on_weights(struct node *n, const struct node_event *ev)
{
	if (!n->loaded)
		return;
	n->report.weights = ev->u.weights;
	n->report.weights.steps = 0;
	n->n_cold = 2 * n->plan.layers.n; // the engine reads them anew
}

// ---- messages

static void keep_epoch(struct node *n, struct member_epoch e, struct node_effects *fx)
{
	if (e.v <= n->member_epoch.v)
		return;
	n->member_epoch = e;
	struct node_effect *f = node_fx(fx, NODE_FX_STORE);
	f->u.store.id = ++n->next_id;
	f->u.store.member_epoch = e;
}

static void forget_peer(struct node *n, struct node_id who, struct node_effects *fx)
{
	struct plan_peers want = peers_of(&n->plan);
	bool is_here = false;
	for (int32_t i = 0; i < 2 + GROUP_MEMBERS_MAX; i++) {
		struct msg_peer *p = peer_at(&want, i);
		if (!node_peer_is(p, who))
			continue;
		if (!is_here)
			node_log(fx, LOG_WARNING, "neighbour %s was revoked: its link is closed", p->name);
		is_here = true;
		memset(p, 0, sizeof *p);
	}
	if (is_here) {
		change_peers(n, &want, fx);
		lose_plan(n);
	}
	memset(&want, 0, sizeof want);
}

static void on_revoked(struct node *n, struct member_epoch epoch, struct node_id who, struct node_effects *fx)
{
	keep_epoch(n, epoch, fx);
	struct plan_peers next = peers_of(&n->next);
	for (int32_t i = 0; n->has_next && i < 2 + GROUP_MEMBERS_MAX; i++)
		if (node_peer_is(peer_at(&next, i), who))
			drop_next_plan(n); // written before the revocation; another is on its way
	memset(&next, 0, sizeof next);
	forget_peer(n, who, fx);
}

static void on_control(struct node *n, struct node_link *l, const uint8_t *data, size_t len, struct node_effects *fx)
{
	struct msg m;
	struct errmsg em;
	if (msg_decode(data, len, &m, &em) != OK) {
		node_log(fx, LOG_WARNING, "the coordinator sent what cannot be read (%s): closing the link", em.text);
		node_fx_close(fx, l->handle, false);
		return;
	}
	switch (m.type) {
	case MSG_WELCOME:
		n->welcomed_ns = n->welcomed_ns == 0 ? n->now_ns : n->welcomed_ns;
		n->welcomed = true;
		keep_epoch(n, m.u.welcome.member_epoch, fx);
		node_log(fx, LOG_INFO, "joined the cluster as %s", m.u.welcome.name);
		node_probe_tell(n, fx);
		return;
	case MSG_REFUSED: fx_exit(fx, ERR_STATE, m.u.refused.reason); return;
	case MSG_PLAN: on_plan(n, &m.u.plan, fx); return;
	case MSG_PREPARE: prepare_on_message(n, &m, fx); return;
	case MSG_CANCEL:
		if (m.u.cancel.epoch.v == n->plan.epoch.v && n->plan.epoch.v != 0)
			stage_on_cancel(n, m.u.cancel.session, fx);
		return;
	case MSG_REVOKED: on_revoked(n, m.u.revoked.member_epoch, m.u.revoked.node, fx); return;
	case MSG_BYE: fx_exit(fx, OK, "left the cluster"); return;
	default:
		node_log(fx, LOG_WARNING, "the coordinator sent %s, which a node does not take: closing the link", msg_name(m.type));
		node_fx_close(fx, l->handle, false);
		return;
	}
}

// report_round_trip: of neighbours. The coordinator measures its own links, and is told now and then how they look from here.
static void report_round_trip(struct node *n, struct node_link *l, struct node_effects *fx)
{
	bool is_coordinator = node_id_is(l->peer, n->config.coordinator);
	struct msg m = {.type = MSG_LINK_RTT};
	m.u.link_rtt.peer = l->peer;
	m.u.link_rtt.rtt_us = (int32_t)(l->rtt.last_ns / 1000);
	link_stats_figures(&l->stats, &m.u.link_rtt.figures);
	if (l->kind != NODE_LINK_DATA || (is_coordinator && (m.u.link_rtt.figures.n == 0 || n->now_ns - l->told_ns < TELL_WAY_NS)))
		return;
	l->told_ns = n->now_ns;
	node_send_msg(n, fx, &m);
}

// on_pong: one behind a payload tells of the rate only, not of the link's round trip.
static void on_pong(struct node *n, struct node_link *l, uint64_t cookie, struct node_effects *fx)
{
	bool is_behind_payload = cookie == l->stats.probe_cookie && cookie != 0;
	(void)link_stats_ponged(&l->stats, cookie, n->now_ns);
	if (!is_behind_payload && round_trip_measure(&l->rtt, cookie, n->now_ns))
		report_round_trip(n, l, fx);
}

static void on_message(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	const uint8_t *data = ev->u.message.data;
	size_t len = ev->u.message.len;
	struct node_link *l = node_link_find(n, ev->u.message.link);
	if (l == NULL)
		return; // closed by us a moment ago
	bool is_late = liveness_heard(&l->life, &n->config.liveness, n->now_ns);
	bool is_next = l->kind == NODE_LINK_DATA && !node_id_is(l->peer, n->config.coordinator) && node_peer_is(&n->plan.next, l->peer);
	n->report.next_heard += is_next;
	n->report.next_late += is_next && is_late;
	uint64_t cookie;
	if (ping_decode(data, len, &cookie) == OK) {
		uint8_t pong[FRAME_PING_BYTES];
		ping_encode(FRAME_PONG, cookie, pong);
		if (data[0] == FRAME_PING)
			node_fx_send(fx, l->handle, pong, sizeof pong);
		else
			on_pong(n, l, cookie, fx);
	} else if (l->kind == NODE_LINK_DATA) {
		stage_on_frame(n, l, data, len, fx);
	} else {
		on_control(n, l, data, len, fx);
	}
}

// ---- time

// forgive_silence: this machine was away itself. Whatever event comes first after that says so, not only a TICK.
static void forgive_silence(struct node *n)
{
	if (n->now_ns - n->stepped_ns < n->config.liveness.ping_after_ns + n->config.liveness.late_loop_ns)
		return;
	node_links_forgive(n);
}

static void on_tick(struct node *n, struct node_effects *fx)
{
	if (n->leaving && n->now_ns - n->leave_ns >= LEAVE_PATIENCE_NS)
		fx_exit(fx, OK, "left (the coordinator did not answer in 30 s)");
	if (!n->config.local)
		node_links_tick(n, fx);
}

int64_t node_deadline_ns(const struct node *n)
{
	int64_t deadline = n->config.local ? INT64_MAX : node_links_deadline_ns(n);
	if (n->leaving && n->leave_ns + LEAVE_PATIENCE_NS < deadline)
		deadline = n->leave_ns + LEAVE_PATIENCE_NS;
	if (report_differs(n) && n->report_ns < deadline)
		deadline = n->report_ns;
	if (node_probe_deadline_ns(n) < deadline)
		deadline = node_probe_deadline_ns(n);
	return deadline;
}

// ---- the machine

size_t node_size(void)
{
	return sizeof(struct node);
}

void node_init(struct node *n, const struct node_config *c)
{
	memset(n, 0, sizeof *n);
	n->config = *c;
	n->at = n->forwards;
	n->member_epoch = c->member_epoch;
}

static void on_start(struct node *n, struct node_effects *fx)
{
	static const enum node_link_kind kinds[] = {NODE_LINK_CONTROL, NODE_LINK_DATA};
	for (size_t i = 0; !n->config.local && i < ARRAY_LEN(kinds); i++) {
		struct node_effect *f = node_fx(fx, NODE_FX_CONNECT);
		f->u.connect.peer = n->config.coordinator;
		f->u.connect.kind = kinds[i];
	}
}

static void on_leave(struct node *n, struct node_effects *fx)
{
	if (n->leaving)
		return;
	n->leaving = true;
	n->leave_ns = n->now_ns;
	struct msg m = {.type = MSG_LEAVING};
	if (n->welcomed)
		node_send_msg(n, fx, &m);
	else
		fx_exit(fx, OK, "stopped");
}

void node_step(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	fx->n = 0;
	fx->n_bytes = 0;
	n->now_ns = ev->now_ns;
	forgive_silence(n);
	switch (ev->type) {
	case NODE_EV_START: on_start(n, fx); break;
	case NODE_EV_LINK_UP: node_links_on_up(n, ev, fx); break;
	case NODE_EV_LINK_DOWN: node_links_on_down(n, ev, fx); break;
	case NODE_EV_MESSAGE: on_message(n, ev, fx); break;
	case NODE_EV_LOADED: on_loaded(n, ev, fx); break;
	case NODE_EV_PREPARED: prepare_on_done(n, ev, fx); break;
	case NODE_EV_EXCHANGE: node_group_on_exchange(n, ev, fx); break;
	case NODE_EV_FORWARD_DONE: stage_on_forward_done(n, ev, fx); break;
	case NODE_EV_STORED:
		if (ev->u.stored.err != OK)
			node_log(fx, LOG_ERROR, "the member epoch could not be written to the state directory");
		break;
	case NODE_EV_KEPT: kept_on_written(n, ev, fx); break;
	case NODE_EV_FETCHED: stage_on_fetched(n, ev, fx); break;
	case NODE_EV_PROBED: node_probe_on_probed(n, ev, fx); break;
	case NODE_EV_WEIGHTS: on_weights(n, ev); break;
	case NODE_EV_LEAVE: on_leave(n, fx); break;
	case NODE_EV_TICK: on_tick(n, fx); break;
	}
	if (n->has_next && !stage_has_forward(n) && n->load_id == 0) {
		adopt_plan(n, &n->next, fx);
		drop_next_plan(n);
	}
	prepare_pump(n, fx);
	stage_pump(n, fx);
	node_probe_pump(n, fx);
	report(n, fx);
	n->stepped_ns = n->now_ns;
}

bool node_find_psk(const struct node *n, const uint8_t public_key[KEY_BYTES], uint8_t psk[KEY_BYTES])
{
	const struct msg_plan *p = &n->plan;
	for (int32_t i = 0; i < 2 + GROUP_MEMBERS_MAX; i++) {
		const struct msg_peer *peer = i == 0 ? &p->prev : i == 1 ? &p->next : &p->group.members[i - 2];
		if (peer->present && memcmp(peer->public_key, public_key, KEY_BYTES) == 0) {
			memcpy(psk, peer->psk, KEY_BYTES);
			return true;
		}
	}
	return false;
}

struct member_epoch node_member_epoch(const struct node *n)
{
	return n->member_epoch;
}

void node_status_get(const struct node *n, struct node_status *out)
{
	*out = (struct node_status){
		.connected = n->welcomed,
		.epoch = n->plan.epoch,
		.stage = n->plan.stage,
		.n_stages = n->plan.n_stages,
		.layers = n->plan.layers,
		.loaded = n->loaded,
		.n_steps = n->n_steps,
		.n_tokens = n->n_tokens,
	};
	for (int32_t i = 0; i < HOP_CREDITS_MAX; i++)
		out->n_bufs_used += n->work[i].state != WORK_FREE;
}

void node_check(const struct node *n)
{
	int32_t queued = 0, running = 0, out = 0, listed = 0, n_held = 0;
	for (int32_t i = 0; i < HOP_CREDITS_MAX; i++) {
		queued += n->work[i].state == WORK_QUEUED;
		running += n->work[i].state == WORK_RUNNING;
		out += n->work[i].state == WORK_OUT;
	}
	ASSERT(queued == n->queue.n);
	ASSERT(n->prepare_id == 0 || n->load_id == 0);
	ASSERT(n->prepare_id != 0 || (!n->prepare_stops && !n->load_waits));
	ASSERT(!n->load_waits || !n->loaded);
	for (int32_t i = 0; i < ROUNDS_MAX; i++) {
		const struct node_round *r = &n->rounds[i];
		listed += r->out.n;
		n_held += r->n_held;
		ASSERT(r->credits_out >= 0);
		ASSERT(n->plan.epoch.v == 0 || (r->n_held <= n->plan.hop_credits && r->credits_out <= n->plan.hop_credits));
	}
	ASSERT(out == listed);
	ASSERT(running == 0 || stage_has_forward(n));
	ASSERT(n_held >= queued + out);
	ASSERT(n_held <= queued + out + running);
	for (int32_t i = 0; i < n->queue.n; i++) {
		const struct work *w = &n->work[n->queue.at[i]];
		ASSERT(w->state == WORK_QUEUED);
		ASSERT(n->slots[w->step.slot].session.v == w->step.session.v);
	}
	node_group_check(n);
}
