#include "coordinator/coord_state.h"

#include "base/assert.h"
#include "base/log.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>

// ---- effects

// The worst cases: every session of a failed batch ends, and every stage is told of each; or every member is told of something, every link pinged.
static int32_t effects_max(const struct coordinator_config *config)
{
	return coordinator_n_sessions(config) * (STAGES_MAX + 8) + (3 + LINKS_PER_MEMBER) * 2 * coordinator_n_members_max(config) +
		768 * coordinator_n_chains(config);
}

#define EFFECT_BYTES_EACH 86 // most are short
#define PLAN_BYTES 3072      // of one stage's part; a step may send those of every chain
#define PEER_BYTES 1400      // of each other member of its group

// group_bytes: each member of a group is told of each other one. A group of a placement only loses members; a planner's may be as large as any.
static size_t group_bytes(const struct coordinator_config *config)
{
	size_t n_peers = 0, n_most = (size_t)coordinator_n_chains(config) * STAGES_MAX;
	if (config->by_cost && config->may_group) {
		n_most = n_most < (size_t)coordinator_n_members_max(config) ? n_most : (size_t)coordinator_n_members_max(config);
		return n_most * (GROUP_MEMBERS_MAX - 1) * PEER_BYTES;
	}
	for (int32_t i = 0; config->placement != NULL && i < coordinator_n_chains(config); i++)
		for (int32_t k = 0; k < config->placement[i].n_stages; k++)
			n_peers += (size_t)config->placement[i].stages[k].n_members * (size_t)(config->placement[i].stages[k].n_members - 1);
	return n_peers * PEER_BYTES;
}

static size_t effect_bytes_max(const struct coordinator_config *config)
{
	return (size_t)effects_max(config) * EFFECT_BYTES_EACH + (size_t)(coordinator_n_chains(config) - 1) * STAGES_MAX * PLAN_BYTES + group_bytes(config);
}

size_t coordinator_effects_size(const struct coordinator_config *config)
{
	return sizeof(struct coord_effects) + (size_t)effects_max(config) * sizeof(struct coord_effect) + effect_bytes_max(config);
}

void coordinator_effects_init(const struct coordinator_config *config, struct coord_effects *fx)
{
	*fx = (struct coord_effects){.n_max = effects_max(config), .bytes_max = effect_bytes_max(config)};
	fx->bytes = (uint8_t *)(fx->at + fx->n_max);
}

struct coord_effect *coord_fx(struct coord_effects *fx, enum coord_effect_type type)
{
	ASSERT(fx->n < fx->n_max);
	struct coord_effect *f = &fx->at[fx->n++];
	memset(f, 0, sizeof *f);
	f->type = type;
	return f;
}

const uint8_t *coord_fx_bytes(struct coord_effects *fx, const void *data, size_t len)
{
	ASSERT(len <= fx->bytes_max - fx->n_bytes);
	uint8_t *p = fx->bytes + fx->n_bytes;
	memcpy(p, data, len);
	fx->n_bytes += len;
	return p;
}

const char *coord_fx_text(struct coord_effects *fx, const char *text)
{
	return (const char *)coord_fx_bytes(fx, text, strlen(text) + 1);
}

void coord_log(struct coord_effects *fx, int level, const char *fmt, ...)
{
	char text[2 * REASON_CAP + NAME_CAP];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	struct coord_effect *f = coord_fx(fx, COORD_FX_LOG);
	f->u.log.level = level;
	f->u.log.text = coord_fx_text(fx, text);
}

void coord_answer(struct coord_effects *fx, uint64_t ticket, enum err err, const char *fmt, ...)
{
	char text[REASON_CAP + NAME_CAP];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	struct coord_effect *f = coord_fx(fx, COORD_FX_ANSWER);
	f->u.answer.ticket = ticket;
	f->u.answer.err = err;
	f->u.answer.text = coord_fx_text(fx, text);
}

void coord_close(struct coord_effects *fx, uint32_t link, bool orderly)
{
	struct coord_effect *f = coord_fx(fx, COORD_FX_CLOSE);
	f->u.close.link = link;
	f->u.close.orderly = orderly;
}

void coord_send_bytes(struct coord_effects *fx, uint32_t link, const uint8_t *data, size_t len)
{
	struct coord_effect *f = coord_fx(fx, COORD_FX_SEND);
	f->u.send.link = link;
	f->u.send.head = coord_fx_bytes(fx, data, len);
	f->u.send.head_len = len;
	f->u.send.buf = -1;
}

void coord_send_msg(struct coordinator *c, int32_t member, const struct msg *m, struct coord_effects *fx)
{
	struct coord_link *l = member >= 0 ? coord_link_of(c, member, COORD_LINK_CONTROL) : NULL;
	if (l == NULL)
		return; // its LINK_DOWN has said or will say what that means
	uint8_t frame[MSG_ENCODED_MAX];
	size_t len = msg_encode(m, frame);
	coord_link_use(c, l);
	coord_send_bytes(fx, l->handle, frame, len);
}

// ---- losses

void coord_lose_member(struct coordinator *c, int32_t member, const char *reason, struct coord_effects *fx)
{
	struct member *m = &c->members[member];
	struct chain *ch = member_chain(c, member);
	if (ch == NULL || m->stage < 0 || ch->plan_state == PLAN_NONE)
		return;
	coord_log(fx, LOG_WARNING, "node %s is lost (%s)", m->hello.name, reason);
	planning_drop(c, ch, fx);
	snprintf(ch->waiting_for, sizeof ch->waiting_for, "node %s was lost: %s", m->hello.name, reason);
}

// ---- messages

static void on_peer_link(struct coordinator *c, int32_t member, const struct msg *m, struct coord_effects *fx)
{
	struct member *mb = &c->members[member];
	const struct chain *ch = member_chain(c, member);
	if (ch == NULL || m->u.peer_link.epoch.v != ch->plan.epoch.v || mb->stage < 0)
		return;
	mb->next_direct = mb->place == 0 && m->u.peer_link.direct;
	if (!m->u.peer_link.broken)
		return;
	// What was on that link is gone, credits too: even when no answer is under way, a new plan must start them afresh.
	coord_lose_member(c, member, "its direct link to a neighbour broke", fx);
}

static void on_loaded(struct coordinator *c, int32_t member, const struct msg *m, struct coord_effects *fx)
{
	member_figures_on_loaded(c, member);
	planning_on_loaded(c, member, m->u.loaded.epoch, m->u.loaded.error, fx);
}

static void on_control(struct coordinator *c, struct coord_link *l, const uint8_t *data, size_t len, struct coord_effects *fx)
{
	struct msg m;
	struct errmsg em;
	int32_t member = l->member;
	if (msg_decode(data, len, &m, &em) != OK) {
		coord_log(fx, LOG_WARNING, "node %s sent what cannot be read (%s): closing its link", c->members[member].hello.name, em.text);
		coord_close(fx, l->handle, false);
		return;
	}
	if (l->kind == COORD_LINK_JOIN) {
		members_on_join_message(c, l, &m, fx);
		return;
	}
	switch (m.type) {
	case MSG_HELLO:
		if (!l->retired) // else one behind it, on the newer link, says what holds
			members_on_hello(c, member, &m.u.hello, fx);
		return;
	case MSG_LOADED: on_loaded(c, member, &m, fx); return;
	case MSG_STEP_FAILED: ring_on_step_failed(c, member, &m, fx); return;
	case MSG_PEER_LINK: on_peer_link(c, member, &m, fx); return;
	case MSG_LINK_RTT: member_figures_on_link(c, member, &m); return;
	case MSG_PROFILE: member_figures_on_profile(c, member, &m.u.profile); return;
	case MSG_PREPARED: prefetch_on_prepared(c, member, m.u.prepared.serial, m.u.prepared.error, fx); return;
	case MSG_NODE_REPORT: member_figures_on_report(c, member, &m.u.node_report); return;
	case MSG_LEAVING:
		c->members[member].leaving = true;
		planning_note(c, &c->members[member], c->members[member].stage >= 0);
		coord_log(fx, LOG_INFO, "node %s wants to leave", c->members[member].hello.name);
		return;
	default:
		coord_log(fx, LOG_WARNING, "node %s sent %s, which a coordinator does not take: closing its link", c->members[member].hello.name,
			msg_name(m.type));
		coord_close(fx, l->handle, false);
		return;
	}
}

static void on_message(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	const uint8_t *data = ev->u.message.data;
	size_t len = ev->u.message.len;
	struct coord_link *l = coord_link_find(c, ev->u.message.link);
	if (l == NULL)
		return;
	c->members[l->member].n_heard++;
	c->members[l->member].n_late += liveness_heard(&l->life, &c->config.liveness, c->now_ns);
	uint64_t cookie;
	if (ping_decode(data, len, &cookie) == OK) {
		uint8_t pong[FRAME_PING_BYTES];
		ping_encode(FRAME_PONG, cookie, pong);
		if (data[0] == FRAME_PING)
			coord_send_bytes(fx, l->handle, pong, sizeof pong);
		else
			coord_links_on_pong(c, l, cookie);
	} else if (l->kind == COORD_LINK_DATA) {
		ring_on_frame(c, l, data, len, fx);
	} else {
		on_control(c, l, data, len, fx);
	}
}

// ---- time

// forgive_silence: this machine was away itself. Whatever event comes first after that says so, not only a TICK.
static void forgive_silence(struct coordinator *c)
{
	if (c->now_ns - c->stepped_ns < c->config.liveness.ping_after_ns + c->config.liveness.late_loop_ns)
		return;
	coord_links_forgive(c);
	ring_forgive(c);
}

static void on_tick(struct coordinator *c, struct coord_effects *fx)
{
	coord_links_tick(c, fx);
	members_expire(c, fx);
	planning_retry(c);
	proposals_tick(c, fx);
	ring_check_stalls(c, fx);
	sessions_expire(c, fx);
}

static int64_t find_deadline(struct coordinator *c)
{
	const int64_t deadlines[] = {sessions_deadline_ns(c), ring_deadline_ns(c), admission_deadline_ns(c), coord_links_deadline_ns(c), planning_deadline_ns(c),
		proposals_deadline_ns(c), members_deadline_ns(c)};
	int64_t first = INT64_MAX;
	for (size_t i = 0; i < ARRAY_LEN(deadlines); i++)
		first = deadlines[i] < first ? deadlines[i] : first;
	return first;
}

int64_t coordinator_deadline_ns(const struct coordinator *c)
{
	return c->deadline_ns;
}

// ---- the machine

static int32_t or_default(int32_t given, int32_t ours)
{
	return given > 0 ? given : ours;
}

int32_t coordinator_n_chains(const struct coordinator_config *config)
{
	return or_default(config->n_chains, 1);
}

int32_t coordinator_n_sessions(const struct coordinator_config *config)
{
	return or_default(config->limits.sessions_max, SESSIONS_MAX);
}

int32_t coordinator_n_members_max(const struct coordinator_config *config)
{
	return or_default(config->limits.nodes_max, NODES_MAX) + 1;
}

size_t coordinator_n_tokens(const struct coordinator_config *config)
{
	return (size_t)coordinator_n_sessions(config) * (size_t)config->ctx_len;
}

// Where each array lies behind the struct, in bytes from its beginning.
struct places {
	size_t members, links, sessions, head_owner, buf_used, replies, pairs, chains, slot_owner, end;
};

static size_t place(size_t *end, size_t n, size_t size)
{
	size_t at = *end;
	*end += (n * size + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
	return at;
}

static void lay_out(const struct coordinator_config *config, struct places *p)
{
	size_t n_chains = (size_t)coordinator_n_chains(config), n_members = (size_t)coordinator_n_members_max(config);
	size_t n_slots = n_chains * (size_t)config->n_slots, *end = &p->end;
	p->end = 0;
	(void)place(end, 1, sizeof(struct coordinator));
	p->members = place(end, n_members, sizeof(struct member));
	p->links = place(end, LINKS_PER_MEMBER * n_members, sizeof(struct coord_link));
	p->sessions = place(end, (size_t)coordinator_n_sessions(config), sizeof(struct session));
	p->head_owner = place(end, n_slots, sizeof(int32_t));
	p->buf_used = place(end, (size_t)coordinator_n_bufs(config), sizeof(bool));
	p->replies = place(end, n_chains * (size_t)config->hop_credits, sizeof(struct reply));
	p->pairs = place(end, n_chains * PAIRS_MAX, sizeof(struct pair));
	p->chains = place(end, n_chains, sizeof(struct chain));
	p->slot_owner = place(end, n_slots, sizeof(int32_t));
}

size_t coordinator_size(const struct coordinator_config *config)
{
	struct places p;
	lay_out(config, &p);
	return p.end;
}

static void init_arrays(struct coordinator *c)
{
	const struct coordinator_config *config = &c->config;
	struct places p;
	uint8_t *base = (uint8_t *)c;
	lay_out(config, &p);
	c->n_chains = coordinator_n_chains(config);
	c->is_single = c->n_chains == 1 && config->placement == NULL;
	c->n_sessions = coordinator_n_sessions(config);
	c->n_members = coordinator_n_members_max(config);
	c->n_links = LINKS_PER_MEMBER * (c->n_members - 1);
	c->n_head_slots = c->n_chains * config->n_slots;
	c->n_bufs = coordinator_n_bufs(config);
	c->members = (struct member *)(base + p.members);
	c->links = (struct coord_link *)(base + p.links);
	c->sessions = (struct session *)(base + p.sessions);
	c->head_owner = (int32_t *)(base + p.head_owner);
	c->buf_used = (bool *)(base + p.buf_used);
	c->replies = (struct reply *)(base + p.replies);
	c->pairs = (struct pair *)(base + p.pairs);
	c->chains = (struct chain *)(base + p.chains);
	for (int32_t i = 0; i < c->n_chains; i++) {
		c->chains[i] = (struct chain){.index = i, .slot_owner = (int32_t *)(base + p.slot_owner) + i * config->n_slots};
		proposals_init(&c->chains[i]);
	}
}

void coordinator_init(struct coordinator *c, const struct coordinator_config *config, int32_t *token_memory)
{
	memset(c, 0, coordinator_size(config));
	ASSERT(coordinator_n_chains(config) <= CHAINS_MAX);
	ASSERT(coordinator_n_members_max(config) <= SWARM_NODES_MAX + 1);
	ASSERT(config->n_slots >= 1 && config->n_slots <= SESSIONS_MAX);
	ASSERT(config->hop_credits >= 1 && config->hop_credits <= HOP_CREDITS_MAX);
	ASSERT(config->n_rounds >= 1 && config->n_rounds <= ROUNDS_MAX);
	ASSERT(config->chunk_max >= 1 && config->chunk_max <= CHUNK_TOKENS_MAX);
	ASSERT(coordinator_buf_bytes(config) + FRAME_STEP_BYTES <= DATA_RECORD_MAX);
	c->config = *config;
	init_arrays(c);
	if (c->config.stall_ns == 0)
		c->config.stall_ns = STALL_S_DEFAULT * INT64_C(1000000000);
	for (int32_t i = 0; i < c->n_members; i++)
		c->members[i].chain = c->members[i].stage = c->members[i].first_link = -1;
	c->pause_deadline_ns = c->deadline_ns = INT64_MAX;
	if (config->has_local_node) {
		struct member *m = &c->members[0];
		m->used = m->is_local = true;
		m->chain = c->is_single ? 0 : -1;
		m->record.id = config->self;
		planning_init_member(m);
		text_copy(m->record.name, sizeof m->record.name, config->local_name);
		text_copy(m->hello.name, sizeof m->hello.name, config->local_name);
	}
	sessions_init(c, token_memory);
}

static void on_restored(struct coordinator *c, const struct coord_event *ev)
{
	members_restore(c, ev);
	// Plans of this run are above those of every run before it, without a write per plan: a node never takes a new one for old.
	c->last_epoch = (uint64_t)ev->wall_s << 20;
	c->last_session = c->last_epoch; // a node may still hold something of an earlier run's sessions
	for (int32_t i = 0; i < c->n_chains; i++)
		c->chains[i].plan_dirty = true;
}

void coordinator_step(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	fx->n = 0;
	fx->n_bytes = 0;
	c->now_ns = ev->now_ns;
	c->wall_s = ev->wall_s;
	forgive_silence(c);
	switch (ev->type) {
	case COORD_EV_RESTORED: on_restored(c, ev); break;
	case COORD_EV_MODEL: members_on_model(c, ev, fx); break;
	case COORD_EV_LINK_UP: coord_links_on_up(c, ev, fx); break;
	case COORD_EV_LINK_DOWN: coord_links_on_down(c, ev, fx); break;
	case COORD_EV_MESSAGE: on_message(c, ev, fx); break;
	case COORD_EV_JOIN: members_on_join(c, ev, fx); break;
	case COORD_EV_JOIN_FAILED: members_on_join_failed(c, ev, fx); break;
	case COORD_EV_SUBMIT: sessions_on_submit(c, ev, fx); break;
	case COORD_EV_CANCEL: sessions_on_cancel(c, ev->u.cancel.req, fx); break;
	case COORD_EV_INVITE:
		members_expire(c, fx);
		members_on_invite(c, ev, fx);
		break;
	case COORD_EV_REVOKE: members_on_revoke(c, ev, fx); break;
	case COORD_EV_DRAIN: members_on_drain(c, ev, fx); break;
	case COORD_EV_FORWARD_DONE: sessions_on_forward_done(c, ev, fx); break;
	case COORD_EV_SAMPLED: sessions_on_sampled(c, ev, fx); break;
	case COORD_EV_STORED: members_on_stored(c, ev, fx); break;
	case COORD_EV_PROBED: member_figures_on_own(c, ev->u.probed.profile); break;
	case COORD_EV_RANDOM: planning_on_random(c, ev, fx); break;
	case COORD_EV_PLANNED: proposals_on_planned(c, ev, fx); break;
	case COORD_EV_TICK: on_tick(c, fx); break;
	}
	planning_pump(c, fx);
	sessions_pump(c, fx);
	c->stepped_ns = c->now_ns;
	c->deadline_ns = find_deadline(c);
}

bool coordinator_find_psk(const struct coordinator *c, const uint8_t public_key[KEY_BYTES], uint8_t psk[KEY_BYTES])
{
	for (int32_t i = 0; i < c->n_members; i++) {
		const struct member *m = &c->members[i];
		if (m->used && !m->is_local && !m->pending && memcmp(m->record.public_key, public_key, KEY_BYTES) == 0) {
			memcpy(psk, m->record.psk, KEY_BYTES);
			return true;
		}
	}
	return false;
}

struct member_epoch coordinator_member_epoch(const struct coordinator *c)
{
	return c->member_epoch;
}

int32_t coordinator_find_chain(const struct coordinator *c, struct plan_epoch epoch)
{
	for (int32_t i = 0; i < c->n_chains; i++)
		if (c->chains[i].plan.epoch.v == epoch.v)
			return i;
	return -1;
}

int32_t coordinator_chain_of(const struct coordinator *c, uint64_t req)
{
	for (int32_t i = 0; i < c->n_sessions; i++)
		if (c->sessions[i].state == SESSION_ACTIVE && c->sessions[i].req == req)
			return c->sessions[i].chain;
	return -1;
}

uint32_t coordinator_n_moved(const struct coordinator *c)
{
	return (uint32_t)c->n_moved;
}

uint32_t coordinator_n_better(const struct coordinator *c)
{
	return (uint32_t)c->n_better;
}

// ---- status and invariants

static const char *state_words(const struct coordinator *c, const struct member *m)
{
	if (m->leaving)
		return "leaving";
	if (m->drained && m->state == MEMBER_READY)
		return m->stage >= 0 ? "draining" : "drained";
	if (m->state == MEMBER_READY && !m->load_failed && coord_links_is_suspect(c, (int32_t)(m - c->members)))
		return "suspect";
	switch (m->state) {
	case MEMBER_ABSENT: return "absent";
	case MEMBER_CONNECTED: return "connected";
	case MEMBER_REFUSED: return "refused";
	case MEMBER_READY: return m->load_failed ? "cannot load" : !m->has_data ? "connected" : m->asks && m->stage < 0 ? "fetching" : m->chain < 0 ? "standby" : "ready";
	}
	return "";
}

static void member_status(const struct coordinator *c, const struct member *m, struct coord_member_status *out)
{
	const struct chain *ch = member_chain(c, (int32_t)(m - c->members));
	*out = (struct coord_member_status){.id = m->record.id, .is_local = m->is_local, .chain = m->chain, .stage = m->stage, .n_relayed = m->n_relayed, .rtt = m->rtt,
		.n_heard = m->n_heard, .n_late = m->n_late, .report = m->report, .profile = m->profile, .to_node = m->to_node, .from_node = m->from_node,
		.decode_bps = observed_rate_per_s(&m->decode), .prefill_flops = observed_rate_per_s(&m->prefill)};
	text_copy(out->name, sizeof out->name, m->hello.name);
	text_copy(out->state, sizeof out->state, state_words(c, m));
	text_copy(out->detail, sizeof out->detail, m->detail);
	text_copy(out->remote, sizeof out->remote, m->remote);
	out->port = m->hello.port;
	text_copy(out->simd, sizeof out->simd, m->hello.simd);
	out->n_threads = m->hello.n_threads;
	if (ch == NULL || m->stage < 0)
		return;
	const struct plan_stage *st = &ch->plan.stages[m->stage];
	out->layers = st->layers;
	out->stream_share = st->stream_share;
	out->place = m->place;
	out->n_members = st->who.n;
	out->share = st->who.shares[m->place];
	for (int32_t i = 0; i < st->who.n; i++)
		out->share_sum += st->who.shares[i];
	if (m->place > 0) {
		text_copy(out->next_link, sizeof out->next_link, "group");
		return;
	}
	int32_t next = planning_next(&ch->plan, m->stage);
	if (next >= 0 && node_id_is(plan_lead(&ch->plan.stages[next]), m->next_peer))
		out->next_rtt = m->next_rtt;
	const struct link_figures *way = next >= 0 ? member_figures_of_pair(c, m->record.id, plan_lead(&ch->plan.stages[next])) : NULL;
	if (way != NULL)
		out->next_link_figures = *way;
	bool is_direct = m->next_direct || (next >= 0 && !planning_is_between_machines(c, ch, m->stage)); // over no relay but the machine it is for
	text_copy(out->next_link, sizeof out->next_link, next < 0 ? "head" : is_direct ? "direct" : "relay");
}

static void chain_status(const struct coordinator *c, const struct chain *ch, struct coord_chain_status *out)
{
	*out = (struct coord_chain_status){.plan_epoch = ch->plan.epoch, .ready = ch->plan_state == PLAN_READY, .n_stages = ch->plan.n_stages, .n_nodes = plan_n_nodes(&ch->plan),
		.n_active = sessions_count_active(c, ch), .n_steps = (int32_t)admission_n_steps(c, ch)};
	text_copy(out->waiting_for, sizeof out->waiting_for, ch->waiting_for);
	proposals_status(ch, out);
}

void coordinator_status(const struct coordinator *c, struct coord_status *out)
{
	*out = (struct coord_status){.members_cap = out->members_cap, .members = out->members};
	out->plan_epoch = c->chains[0].plan.epoch;
	out->member_epoch = c->member_epoch;
	for (int32_t i = 0; i < c->n_chains; i++)
		out->ready = out->ready || c->chains[i].plan_state == PLAN_READY;
	text_copy(out->waiting_for, sizeof out->waiting_for, c->chains[0].waiting_for);
	for (int32_t i = 0; i < c->n_members; i++) {
		if (!c->members[i].used || c->members[i].pending)
			continue;
		if (out->n_members < out->members_cap)
			member_status(c, &c->members[i], &out->members[out->n_members]);
		out->n_members++;
	}
	out->n_active = sessions_count(c, SESSION_ACTIVE);
	out->n_waiting = sessions_count(c, SESSION_WAITING);
	for (int32_t i = 0; i < INVITES_MAX; i++)
		out->n_invites += c->invite_used[i];
	for (int32_t i = 0; i < c->n_bufs; i++)
		out->n_bufs_used += c->buf_used[i];
	out->n_requests = c->n_requests;
	out->n_tokens = c->n_tokens;
	out->n_recovered = c->n_recovered;
	out->n_moved = c->n_moved;
	out->n_better = c->n_better;
	out->n_chains = c->n_chains;
	for (int32_t i = 0; i < c->n_chains; i++)
		chain_status(c, &c->chains[i], &out->chains[i]);
	out->n_standing_by = placement_n_spares(c);
}

static int32_t count_bufs(const struct coordinator *c)
{
	int32_t n = c->n_replies + (c->sample_id != 0 ? c->n_sample : 0) + (c->forward_id != 0 ? c->n_embed : 0);
	for (int32_t i = 0; i < c->n_sessions; i++)
		n += c->sessions[i].state == SESSION_ACTIVE && c->sessions[i].ready_buf >= 0;
	return n;
}

static void check_chain(const struct coordinator *c, const struct chain *ch)
{
	ASSERT(ch->credits_out >= 0 && ch->credits_out <= ch->hop_credits);
	ASSERT(ch->n_held >= 0 && ch->n_held <= ch->hop_credits);
	ASSERT(!ch->draining || ch->credits_out < ch->hop_credits);
	for (int32_t i = 0; i < SPANS_MAX; i++)
		ASSERT(ch->relays[i] >= 0 && ch->relays[i] <= ch->hop_credits);
	for (int32_t slot = 0; slot < c->config.n_slots; slot++) {
		if (ch->slot_owner[slot] < 0)
			continue;
		const struct session *s = &c->sessions[ch->slot_owner[slot]];
		ASSERT(s->state == SESSION_ACTIVE);
		ASSERT(s->chain == ch->index);
		ASSERT(s->slot == slot);
	}
}

void coordinator_check(const struct coordinator *c)
{
	int32_t used = 0;
	for (int32_t i = 0; i < c->n_bufs; i++)
		used += c->buf_used[i];
	ASSERT(used == count_bufs(c));
	for (int32_t i = 0; i < c->n_chains; i++)
		check_chain(c, &c->chains[i]);
	prefetch_check(c);
	for (int32_t i = 0; i < c->n_sessions; i++) {
		const struct session *s = &c->sessions[i];
		if (s->state != SESSION_ACTIVE)
			continue;
		ASSERT(c->chains[s->chain].slot_owner[s->slot] == i);
		ASSERT(c->head_owner[s->head_slot] == i);
		ASSERT(s->seq_back <= s->seq_sent);
		ASSERT(s->pos_back <= s->n_embedded && s->n_embedded <= s->n_tokens && s->n_tokens <= s->n_max);
	}
}
