// The ring as the head sees it: steps out to the first stage, replies back from the last one, what is relayed between stages that cannot
// reach each other, and the limit of patience with all of them.
#include "coordinator/coord_state.h"

#include "base/assert.h"
#include "base/log.h"

#include <stdio.h>

static size_t row_bytes(const struct coordinator *c)
{
	return wire_bytes(c->config.wire, c->config.hidden_dim);
}

void ring_reset(struct coordinator *c, struct chain *ch)
{
	for (int32_t i = 0; i < c->n_replies; i++)
		ASSERT(c->replies[i].chain != ch->index);
	// Buffers are as many, however many rounds share them; a round needs one to go on.
	int32_t n = c->config.hop_credits / ch->plan.n_rounds;
	ch->hop_credits = n > 1 ? n : 1;
	ch->credits_out = ch->hop_credits;
	ch->draining = false;
	ch->n_held = 0;
	memset(ch->relays, 0, sizeof ch->relays);
}

void ring_on_retired(struct coordinator *c, int32_t member)
{
	struct chain *ch = member_chain(c, member);
	bool is_first = ch != NULL && ch->plan_state == PLAN_READY && c->members[member].stage == 0 && c->members[member].place == 0;
	if (is_first && ch->credits_out < ch->hop_credits)
		ch->draining = true;
}

void ring_give_credit(struct coordinator *c, struct chain *ch, struct coord_effects *fx)
{
	ASSERT(ch->n_held > 0);
	ch->n_held--;
	struct coord_link *l = coord_link_of(c, member_of_stage(c, ch, ch->plan.n_stages - 1), COORD_LINK_DATA);
	if (l == NULL)
		return; // the plan goes with the link
	struct credit cr = {.n = 1, .src_span = SPAN_HEAD, .dst_span = (uint16_t)(plan_n_spans(&ch->plan) - 1), .epoch = ch->plan.epoch};
	uint8_t frame[FRAME_CREDIT_BYTES];
	credit_encode(&cr, frame);
	coord_link_use(c, l);
	coord_send_bytes(fx, l->handle, frame, sizeof frame);
}

// ---- out

static enum step_reply wanted_reply(const struct coordinator *c, const struct session *s, int32_t pos_end)
{
	if (pos_end <= s->replay_to || (!s->hash_logits && pos_end != s->n_tokens))
		return REPLY_NONE;
	if (!c->config.has_output)
		return s->hash_logits ? REPLY_ALL : REPLY_LAST;
	return !s->hash_logits && sampling_takes_best(&s->sampling) ? REPLY_BEST : REPLY_LOGITS;
}

static void send_ready(struct coordinator *c, struct chain *ch, struct session *s, struct coord_link *l, struct coord_effects *fx)
{
	struct step st = {
		.wire = c->config.wire,
		.reply = wanted_reply(c, s, s->n_embedded),
		.flags = s->seq_sent == 0 ? STEP_FIRST : 0,
		.src_span = SPAN_HEAD,
		.dst_span = 0,
		.epoch = ch->plan.epoch,
		.session = s->id,
		.seq = s->seq_sent,
		.slot = (uint32_t)s->slot,
		.pos = (uint32_t)(s->n_embedded - s->ready_n),
		.n_tokens = (uint32_t)s->ready_n,
		.payload_len = s->ready_buf >= 0 ? (uint32_t)(row_bytes(c) * (size_t)s->ready_n) : 0,
	};
	if (s->n_embedded <= s->replay_to) {
		st.layer_begin = (uint16_t)s->layer_begin;
		st.layer_end = (uint16_t)s->layer_end;
	}
	uint8_t head[FRAME_STEP_BYTES];
	step_encode(&st, head);
	coord_link_use(c, l);
	struct coord_effect *f = coord_fx(fx, COORD_FX_SEND);
	f->u.send.link = l->handle;
	f->u.send.head = coord_fx_bytes(fx, head, sizeof head);
	f->u.send.head_len = sizeof head;
	f->u.send.buf = s->ready_buf;
	f->u.send.len = st.payload_len;
	coord_links_on_sent(c, l, st.payload_len, fx);
	if (s->seq_sent == s->seq_back)
		s->progress_ns = c->now_ns; // from here on the ring is waited for
	if (st.pos == 0)
		s->pass_ns = s->layer_end == 0 ? c->now_ns : 0;
	s->sent_n[s->seq_sent % ARRAY_LEN(s->sent_n)] = (uint16_t)s->ready_n;
	s->seq_sent++;
	ch->credits_out--;
	if (s->ready_buf >= 0)
		sessions_buf_give(c, s->ready_buf); // the host copies before it does anything else
	s->ready_buf = -1;
	s->is_ready = false;
}

void ring_send_steps(struct coordinator *c, struct chain *ch, struct coord_effects *fx)
{
	struct coord_link *l = coord_link_of(c, member_of_stage(c, ch, 0), COORD_LINK_DATA);
	for (int32_t i = 0; l != NULL && !ch->draining && i < c->n_sessions && ch->credits_out > 0; i++) {
		struct session *s = &c->sessions[i];
		if (s->state == SESSION_ACTIVE && s->chain == ch->index && s->is_ready)
			send_ready(c, ch, s, l, fx);
	}
}

// ---- back

static void bad_peer(struct coordinator *c, struct coord_link *l, const char *what, struct coord_effects *fx)
{
	coord_log(fx, LOG_WARNING, "node %s broke the protocol (%s): closing its link", c->members[l->member].hello.name, what);
	coord_close(fx, l->handle, false);
}

static int32_t n_reply_rows(const struct step *st)
{
	return st->reply == REPLY_ALL ? (int32_t)st->n_tokens : st->reply != REPLY_NONE;
}

static size_t reply_bytes(const struct coordinator *c, const struct step *st)
{
	enum head_want want = step_reply_want(st->reply);
	return want == HEAD_NOTHING ? row_bytes(c) * (size_t)n_reply_rows(st) : head_reply_bytes(want, c->config.vocab_size);
}

// is_owed tells whether a reply is the one that is due: the oldest step under way, whole, with the rows that were asked for.
static bool is_owed(const struct coordinator *c, const struct session *s, const struct step *st)
{
	return s->seq_back != s->seq_sent && st->seq == s->seq_back && st->n_tokens == s->sent_n[s->seq_back % ARRAY_LEN(s->sent_n)] &&
		(int32_t)st->pos == s->pos_back && st->reply == wanted_reply(c, s, (int32_t)(st->pos + st->n_tokens)) &&
		st->payload_len == reply_bytes(c, st);
}

static void on_reply(struct coordinator *c, struct chain *ch, struct coord_link *l, const struct step *st, struct coord_effects *fx)
{
	if (st->wire != c->config.wire || ch->n_held >= ch->hop_credits) {
		bad_peer(c, l, "a step of another wire type, or more steps than credits", fx);
		return;
	}
	ch->n_held++;
	struct session *s = sessions_find_active(c, st->session);
	if (s == NULL) {
		ring_give_credit(c, ch, fx);
		return;
	}
	if (!is_owed(c, s, st)) {
		char text[2 * REASON_CAP];
		snprintf(text, sizeof text, "node %s answered with what was not asked for: this is a fault of a node, try again",
			c->members[l->member].hello.name);
		ring_give_credit(c, ch, fx);
		sessions_end(c, s, COORD_END_ERROR, ERR_STATE, text, fx);
		return;
	}
	s->seq_back++;
	s->pos_back = (int32_t)(st->pos + st->n_tokens);
	s->progress_ns = c->now_ns;
	if (s->pass_ns > 0 && s->pos_back == s->n_tokens) {
		s->position_ns = (c->now_ns - s->pass_ns) / s->n_tokens;
		s->pass_ns = 0;
	}
	if (st->payload_len == 0) {
		ring_give_credit(c, ch, fx);
		return;
	}
	int32_t buf = sessions_buf_take(c);
	ASSERT(buf >= 0);
	struct coord_effect *f = coord_fx(fx, COORD_FX_TAKE);
	f->u.take.buf = buf;
	f->u.take.msg_off = FRAME_STEP_BYTES;
	f->u.take.len = st->payload_len;
	c->replies[c->n_replies++] = (struct reply){
		.session = s->id, .chain = ch->index, .buf = buf, .pos = (int32_t)st->pos, .n_rows = n_reply_rows(st), .want = step_reply_want(st->reply),
		.draw = s->pos_back == s->n_tokens};
}

// ---- relay

// relay passes the current message on to a neighbour of its sender that the sender cannot reach.
static void relay(struct coordinator *c, struct coord_link *l, struct coord_link *to, struct coord_effects *fx)
{
	if (to == NULL)
		return; // lost: the plan goes with it
	c->members[l->member].n_relayed++;
	coord_link_use(c, to);
	coord_fx(fx, COORD_FX_RELAY)->u.close.link = to->handle;
}

// is_hop tells whether a frame goes from a span of its sender's to the one that is `step` on along the road.
static bool is_hop(const struct coordinator *c, const struct chain *ch, const struct coord_link *l, uint16_t src, uint16_t dst, int32_t step)
{
	int32_t n = plan_n_spans(&ch->plan);
	return c->members[l->member].place == 0 && src < n && src % ch->plan.n_stages == c->members[l->member].stage && dst < n && dst == src + step;
}

// relay_step: who ignores its credits is closed here, before the queue of the one that it floods is full.
static void relay_step(struct coordinator *c, struct chain *ch, struct coord_link *l, const struct step *st, struct coord_effects *fx)
{
	if (!is_hop(c, ch, l, st->src_span, st->dst_span, 1)) {
		bad_peer(c, l, "a step for a stage that is not its neighbour", fx);
		return;
	}
	if (ch->relays[st->src_span] >= ch->hop_credits) {
		bad_peer(c, l, "more steps to its neighbour than credits", fx);
		return;
	}
	struct coord_link *to = ch->relays[st->src_span] > 0 ? coord_link_find(c, ch->relay_link[st->src_span]) : NULL;
	if (to == NULL || to->closing)
		to = coord_link_of(c, member_of_stage(c, ch, st->dst_span % ch->plan.n_stages), COORD_LINK_DATA);
	ch->relays[st->src_span]++;
	ch->relay_link[st->src_span] = to != NULL ? to->handle : 0;
	relay(c, l, to, fx);
	if (to != NULL)
		coord_links_on_sent(c, to, st->payload_len, fx);
}

static void relay_credit(struct coordinator *c, struct chain *ch, struct coord_link *l, const struct credit *cr, struct coord_effects *fx)
{
	if (!is_hop(c, ch, l, cr->src_span, cr->dst_span, -1)) {
		bad_peer(c, l, "a credit for a stage that is not its neighbour", fx);
		return;
	}
	if (cr->n > ch->relays[cr->dst_span]) {
		bad_peer(c, l, "a credit to its neighbour that was not owed", fx);
		return;
	}
	ch->relays[cr->dst_span] -= cr->n;
	relay(c, l, coord_link_of(c, member_of_stage(c, ch, cr->dst_span % ch->plan.n_stages), COORD_LINK_DATA), fx);
}

// is_part_of tells whether a member may send a contribution to another: its own, or, as the hub of their group, anybody's.
static bool is_part_of(const struct member *m, const struct plan_group *g, const struct part *p)
{
	bool is_own = p->src == m->place, is_passed_on = g->hub == m->place + 1;
	return p->stage == m->stage && p->src < g->n && p->dst < g->n && p->dst != m->place && (is_own || is_passed_on);
}

static void on_part(struct coordinator *c, struct coord_link *l, const uint8_t *data, size_t len, struct coord_effects *fx)
{
	struct part p;
	if (part_decode(data, len, &p) != OK) {
		bad_peer(c, l, "a malformed contribution", fx);
		return;
	}
	const struct member *m = &c->members[l->member];
	const struct chain *ch = member_chain(c, l->member);
	if (ch == NULL || p.epoch.v != ch->plan.epoch.v || ch->plan_state != PLAN_READY)
		return;
	if (m->stage < 0 || !is_part_of(m, &ch->plan.stages[m->stage].who, &p)) {
		bad_peer(c, l, "a contribution for somebody else than its group", fx);
		return;
	}
	int32_t dst = member_of_seat(c, ch, (struct plan_seat){m->stage, p.dst});
	struct coord_link *to = dst >= 0 ? coord_link_of(c, dst, COORD_LINK_DATA) : NULL;
	relay(c, l, to, fx);
	if (to != NULL)
		coord_links_on_sent(c, to, p.payload_len, fx);
}

// ---- frames

static void on_step(struct coordinator *c, struct coord_link *l, const uint8_t *data, size_t len, struct coord_effects *fx)
{
	struct step st;
	if (step_decode(data, len, &st) != OK) {
		bad_peer(c, l, "a malformed step", fx);
		return;
	}
	struct chain *ch = member_chain(c, l->member);
	if (ch == NULL || st.epoch.v != ch->plan.epoch.v || ch->plan_state != PLAN_READY)
		return;
	if (st.dst_span != SPAN_HEAD)
		relay_step(c, ch, l, &st, fx);
	else if (c->members[l->member].stage != ch->plan.n_stages - 1 || c->members[l->member].place != 0 || st.src_span != plan_n_spans(&ch->plan) - 1)
		bad_peer(c, l, "a step to the head from a stage that is not the last", fx);
	else
		on_reply(c, ch, l, &st, fx);
}

static void on_credit(struct coordinator *c, struct coord_link *l, const uint8_t *data, size_t len, struct coord_effects *fx)
{
	struct credit cr;
	if (credit_decode(data, len, &cr) != OK) {
		bad_peer(c, l, "a malformed credit", fx);
		return;
	}
	struct chain *ch = member_chain(c, l->member);
	if (ch == NULL || cr.epoch.v != ch->plan.epoch.v || ch->plan_state != PLAN_READY)
		return;
	if (cr.dst_span != SPAN_HEAD) {
		relay_credit(c, ch, l, &cr, fx);
		return;
	}
	if (c->members[l->member].stage != 0 || c->members[l->member].place != 0 || cr.src_span != 0 || cr.n > ch->hop_credits - ch->credits_out) {
		bad_peer(c, l, "a credit that was not owed", fx);
		return;
	}
	ch->credits_out += cr.n;
	ch->draining = ch->draining && ch->credits_out < ch->hop_credits;
	ch->credited_ns = c->now_ns;
}

void ring_on_frame(struct coordinator *c, struct coord_link *l, const uint8_t *data, size_t len, struct coord_effects *fx)
{
	switch (len > 0 ? data[0] : 0) {
	case FRAME_STEP: on_step(c, l, data, len, fx); return;
	case FRAME_CREDIT: on_credit(c, l, data, len, fx); return;
	case FRAME_PART: on_part(c, l, data, len, fx); return;
	default: bad_peer(c, l, "an unknown frame on a data link", fx); return;
	}
}

void ring_on_step_failed(struct coordinator *c, int32_t member, const struct msg *m, struct coord_effects *fx)
{
	const struct chain *ch = member_chain(c, member);
	if (ch == NULL || m->u.step_failed.epoch.v != ch->plan.epoch.v || ch->plan_state != PLAN_READY || c->members[member].stage < 0)
		return;
	struct session *s = sessions_find_active(c, m->u.step_failed.session);
	if (s == NULL || s->seq_sent == s->seq_back)
		return; // nothing of it is in the ring
	if (m->u.step_failed.code == STEP_NOT_KEPT) {
		sessions_restart(c, s, fx);
		return;
	}
	if (m->u.step_failed.code == STEP_WEIGHTS && planning_on_weights_lost(c, member, m->u.step_failed.error, fx))
		return;
	char text[2 * REASON_CAP + LAYER_SPANS_CAP], layers[LAYER_SPANS_CAP];
	layer_spans_print(&ch->plan.stages[c->members[member].stage].layers, layers);
	snprintf(text, sizeof text, "node %s (layers %s): %s", c->members[member].hello.name, layers, m->u.step_failed.error);
	sessions_end(c, s, COORD_END_ERROR, m->u.step_failed.code == STEP_NON_FINITE ? ERR_NON_FINITE : ERR_STATE, text, fx);
}

// ---- patience

// stall_ns returns when patience with the ring ends for a session; INT64_MAX: it waits for nothing there.
static int64_t stall_ns(const struct coordinator *c, const struct session *s)
{
	bool has_steps = s->seq_sent != s->seq_back;
	if (s->state != SESSION_ACTIVE || (!has_steps && !s->is_ready))
		return INT64_MAX;
	int64_t since = s->progress_ns;
	int64_t credited_ns = c->chains[s->chain].credited_ns;
	if (!has_steps && credited_ns > since) // it waits for a credit, and those that come are taken by others
		since = credited_ns;
	return since + c->config.stall_ns;
}

// held_by returns how many steps are known to be at a span and its hop out; -1: its neighbour sends to it directly, unseen from here.
static int32_t held_by(const struct coordinator *c, const struct chain *ch, int32_t span)
{
	if (span == 0)
		return ch->hop_credits - ch->credits_out;
	return c->members[member_of_stage(c, ch, (span - 1) % ch->plan.n_stages)].next_direct ? -1 : ch->relays[span - 1];
}

// stuck_span returns the first span that may keep what is waited for: the last one that is known to hold a step; when none does, the
// one behind the last hop that can be seen.
static int32_t stuck_span(const struct coordinator *c, const struct chain *ch)
{
	int32_t holder = -1, seen = 0, n_spans = plan_n_spans(&ch->plan);
	for (int32_t i = 0; i < n_spans; i++) {
		int32_t n = held_by(c, ch, i);
		holder = n > 0 ? i : holder;
		seen = n >= 0 ? i : seen;
	}
	if (holder >= 0)
		return holder;
	return seen + 1 < n_spans ? seen + 1 : seen;
}

static void give_up(struct coordinator *c, struct session *s, struct coord_effects *fx)
{
	struct chain *ch = &c->chains[s->chain];
	int32_t span = stuck_span(c, ch), stage = span % ch->plan.n_stages;
	const char *name = c->members[member_of_stage(c, ch, stage)].hello.name;
	char text[2 * REASON_CAP + LAYER_SPANS_CAP], layers[LAYER_SPANS_CAP];
	layer_spans_print(&ch->plan.stages[stage].layers, layers);
	bool is_shared = ch->plan.stages[stage].who.n > 1;
	snprintf(text, sizeof text, "no progress for %lld s: waiting for node %s%s (layers %s)%s", (long long)(c->config.stall_ns / 1000000000), name,
		is_shared ? " or another of its group" : "", layers, span == plan_n_spans(&ch->plan) - 1 ? "" : ", or one behind it");
	coord_log(fx, LOG_WARNING, "an answer makes %s: beginning again with a new plan", text);
	sessions_end(c, s, COORD_END_ERROR, ERR_TIMEOUT, text, fx);
	planning_drop(c, ch, fx);
	snprintf(ch->waiting_for, sizeof ch->waiting_for, "node %s did not answer, and the ring begins again", name);
}

void ring_check_stalls(struct coordinator *c, struct coord_effects *fx)
{
	for (int32_t i = 0; i < c->n_sessions; i++)
		if (stall_ns(c, &c->sessions[i]) <= c->now_ns)
			give_up(c, &c->sessions[i], fx);
}

int64_t ring_deadline_ns(const struct coordinator *c)
{
	int64_t deadline = INT64_MAX;
	for (int32_t i = 0; i < c->n_sessions; i++) {
		int64_t stall = stall_ns(c, &c->sessions[i]);
		deadline = stall < deadline ? stall : deadline;
	}
	return deadline;
}

void ring_forgive(struct coordinator *c)
{
	for (int32_t i = 0; i < c->n_sessions; i++)
		c->sessions[i].progress_ns = c->now_ns;
}
