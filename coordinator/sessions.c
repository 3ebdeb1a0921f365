// Sessions and the head's scheduling: who gets a slot, what is embedded, sent and sampled next. See coordinator.h.
#include "coordinator/coord_state.h"

#include "base/assert.h"
#include "base/log.h"

#include <stdio.h>

// ---- buffers

static int32_t buf_take(struct coordinator *c)
{
	for (int32_t i = 0; i < c->n_bufs; i++) {
		if (!c->buf_used[i]) {
			c->buf_used[i] = true;
			return i;
		}
	}
	return -1;
}

static void buf_give(struct coordinator *c, int32_t buf)
{
	ASSERT(c->buf_used[buf]);
	c->buf_used[buf] = false;
}

static size_t row_bytes(const struct coordinator *c)
{
	return wire_bytes(c->config.wire, c->config.hidden_dim);
}

int32_t coordinator_n_bufs(const struct coordinator_config *config)
{
	// Replies: those of this plan, and those of the last one that the sampler still holds. Embeddings: one per slot.
	return 2 * config->hop_credits + config->n_slots;
}

size_t coordinator_buf_bytes(const struct coordinator_config *config)
{
	return wire_bytes(config->wire, config->hidden_dim) * (size_t)config->chunk_max;
}

void sessions_init(struct coordinator *c, int32_t *token_memory)
{
	c->n_bufs = coordinator_n_bufs(&c->config);
	for (int32_t i = 0; i < SESSIONS_MAX; i++) {
		c->sessions[i].tokens = token_memory + (size_t)i * (size_t)c->config.ctx_len;
		c->slot_owner[i] = -1;
	}
}

int32_t sessions_count(const struct coordinator *c, enum session_state state)
{
	int32_t n = 0;
	for (int32_t i = 0; i < SESSIONS_MAX; i++)
		n += c->sessions[i].state == state;
	return n;
}

static struct session *find_active(struct coordinator *c, struct session_id id)
{
	for (int32_t i = 0; i < SESSIONS_MAX; i++)
		if (c->sessions[i].state == SESSION_ACTIVE && c->sessions[i].id.v == id.v)
			return &c->sessions[i];
	return NULL;
}

// ---- credits of the hop from the last stage

static void give_credit(struct coordinator *c, struct coord_effects *fx)
{
	ASSERT(c->n_held > 0);
	c->n_held--;
	int32_t last = c->plan.n_stages - 1;
	struct coord_link *l = coord_link_of(c, member_find(c, c->plan.stages[last].node), COORD_LINK_DATA);
	if (l == NULL)
		return; // the plan goes with the link
	struct credit cr = {.n = 1, .src_stage = STAGE_HEAD, .dst_stage = (uint16_t)last, .epoch = c->plan.epoch};
	uint8_t frame[FRAME_CREDIT_BYTES];
	credit_encode(&cr, frame);
	coord_send_bytes(fx, l->handle, frame, sizeof frame);
}

// ---- ends

static void fx_end(struct coord_effects *fx, uint64_t req, int32_t slot, enum coord_end end, enum err err, const char *text)
{
	struct coord_effect *f = coord_fx(fx, COORD_FX_END);
	f->u.end.req = req;
	f->u.end.slot = slot;
	f->u.end.end = end;
	f->u.end.err = err;
	f->u.end.text = coord_fx_text(fx, text);
}

static void drop_replies(struct coordinator *c, struct session_id id, struct coord_effects *fx)
{
	int32_t n = 0;
	for (int32_t i = 0; i < c->n_replies; i++) {
		if (c->replies[i].session.v != id.v) {
			c->replies[n++] = c->replies[i];
			continue;
		}
		buf_give(c, c->replies[i].buf);
		give_credit(c, fx);
	}
	c->n_replies = n;
}

static void tell_stages(struct coordinator *c, struct session_id id, struct coord_effects *fx)
{
	struct msg m = {.type = MSG_CANCEL};
	m.u.cancel.epoch = c->plan.epoch;
	m.u.cancel.session = id;
	for (int32_t i = 0; i < c->plan.n_stages; i++)
		coord_send_msg(c, member_find(c, c->plan.stages[i].node), &m, fx);
}

static void end_session(struct coordinator *c, struct session *s, enum coord_end end, enum err err, const char *text, struct coord_effects *fx)
{
	fx_end(fx, s->req, s->state == SESSION_ACTIVE ? s->slot : -1, end, err, text);
	if (s->state == SESSION_ACTIVE) {
		c->slot_owner[s->slot] = -1;
		if (s->ready_buf >= 0)
			buf_give(c, s->ready_buf);
		s->ready_buf = -1;
		drop_replies(c, s->id, fx);
		if (s->seq_sent != s->seq_back && err != ERR_NODE_LOST) // lost: the plan goes, and with it all that is on its way
			tell_stages(c, s->id, fx);
	}
	s->state = SESSION_FREE;
}

void sessions_end_active(struct coordinator *c, enum err err, const char *text, struct coord_effects *fx)
{
	for (int32_t i = 0; i < SESSIONS_MAX; i++)
		if (c->sessions[i].state == SESSION_ACTIVE)
			end_session(c, &c->sessions[i], COORD_END_ERROR, err, text, fx);
}

void sessions_reset(struct coordinator *c)
{
	ASSERT(sessions_count(c, SESSION_ACTIVE) == 0);
	ASSERT(c->n_replies == 0);
	c->credits_out = c->config.hop_credits;
	c->n_held = 0;
}

void sessions_on_cancel(struct coordinator *c, uint64_t req, struct coord_effects *fx)
{
	for (int32_t i = 0; i < SESSIONS_MAX; i++)
		if (c->sessions[i].state != SESSION_FREE && c->sessions[i].req == req)
			end_session(c, &c->sessions[i], COORD_END_CANCELLED, OK, "", fx);
}

void sessions_start_waiting(struct coordinator *c)
{
	for (int32_t i = 0; i < SESSIONS_MAX; i++)
		if (c->sessions[i].state == SESSION_WAITING)
			c->sessions[i].since_ns = c->now_ns;
}

void sessions_expire(struct coordinator *c, struct coord_effects *fx)
{
	if (c->plan_state == PLAN_READY)
		return;
	for (int32_t i = 0; i < SESSIONS_MAX; i++) {
		struct session *s = &c->sessions[i];
		if (s->state != SESSION_WAITING || c->now_ns - s->since_ns < c->config.session_wait_ns)
			continue;
		char text[2 * REASON_CAP];
		snprintf(text, sizeof text, "gave up after %lld s without a cluster that can answer: %s", (long long)(c->config.session_wait_ns / 1000000000),
			c->waiting_for);
		end_session(c, s, COORD_END_ERROR, ERR_TIMEOUT, text, fx);
	}
}

int64_t sessions_deadline_ns(const struct coordinator *c)
{
	int64_t deadline = INT64_MAX;
	for (int32_t i = 0; c->plan_state != PLAN_READY && i < SESSIONS_MAX; i++) {
		const struct session *s = &c->sessions[i];
		if (s->state == SESSION_WAITING && s->since_ns + c->config.session_wait_ns < deadline)
			deadline = s->since_ns + c->config.session_wait_ns;
	}
	return deadline;
}

// ---- in

static struct session *find_free(struct coordinator *c)
{
	for (int32_t i = 0; i < SESSIONS_MAX; i++)
		if (c->sessions[i].state == SESSION_FREE && !c->sessions[i].embedding)
			return &c->sessions[i];
	return NULL;
}

void sessions_on_submit(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	int32_t n = ev->u.submit.n_tokens, n_predict = ev->u.submit.n_predict;
	char text[REASON_CAP];
	c->n_requests++;
	if (n < 1 || n_predict < 1) {
		fx_end(fx, ev->u.submit.req, -1, COORD_END_ERROR, ERR_RANGE, n < 1 ? "the prompt has no tokens" : "no tokens were asked for");
		return;
	}
	if (n >= c->config.ctx_len) {
		snprintf(text, sizeof text, "the prompt has %d tokens: the context holds %d, with room for an answer", n, c->config.ctx_len);
		fx_end(fx, ev->u.submit.req, -1, COORD_END_ERROR, ERR_LIMIT, text);
		return;
	}
	for (int32_t i = 0; i < n; i++) {
		if (ev->u.submit.tokens[i] < 0 || ev->u.submit.tokens[i] >= c->config.vocab_size) {
			fx_end(fx, ev->u.submit.req, -1, COORD_END_ERROR, ERR_RANGE, "a token id is outside the vocabulary");
			return;
		}
	}
	struct session *s = find_free(c);
	if (s == NULL) {
		snprintf(text, sizeof text, "%d requests are being answered or wait already: try again later", SESSIONS_MAX);
		fx_end(fx, ev->u.submit.req, -1, COORD_END_ERROR, ERR_BUSY, text);
		return;
	}
	int32_t *tokens = s->tokens;
	*s = (struct session){
		.state = SESSION_WAITING,
		.req = ev->u.submit.req,
		.since_ns = c->now_ns,
		.order = ++c->last_order,
		.tokens = tokens,
		.n_prompt = n,
		.n_tokens = n,
		.n_max = n_predict > c->config.ctx_len - n ? c->config.ctx_len : n + n_predict,
		.sampling = ev->u.submit.sampling,
		.hash_logits = ev->u.submit.hash_logits,
		.ignore_stop = ev->u.submit.ignore_stop,
		.ready_buf = -1,
	};
	memcpy(tokens, ev->u.submit.tokens, (size_t)n * sizeof tokens[0]);
}

// ---- embedding

// steps_ahead bounds the chunks of one prompt in the ring: one for each stage, and one on its way.
static uint32_t steps_ahead(const struct coordinator *c)
{
	return (uint32_t)c->plan.n_stages + 1;
}

static void start_embedding(struct coordinator *c, struct coord_effects *fx)
{
	int32_t n_tokens = 0;
	c->n_embed = 0;
	for (int32_t i = 0; i < SESSIONS_MAX && c->n_embed < COORD_ITEMS_MAX; i++) {
		struct session *s = &c->sessions[i];
		if (s->state != SESSION_ACTIVE || s->ready_buf >= 0 || s->n_embedded == s->n_tokens || s->seq_sent - s->seq_back >= steps_ahead(c))
			continue;
		int32_t n = s->n_tokens - s->n_embedded;
		if (n > c->config.chunk_max)
			n = c->config.chunk_max;
		if (c->n_embed > 0 && n_tokens + n > c->config.chunk_max)
			continue;
		int32_t buf = buf_take(c);
		ASSERT(buf >= 0);
		n_tokens += n;
		s->embedding = true;
		s->ready_n = n;
		c->embed_session[c->n_embed] = i;
		c->embed[c->n_embed++] = (struct coord_embed_item){.tokens = s->tokens + s->n_embedded, .n_tokens = n, .buf = buf};
	}
	if (c->n_embed == 0)
		return;
	c->forward_id = ++c->next_id;
	struct coord_effect *f = coord_fx(fx, COORD_FX_FORWARD);
	f->u.forward.id = c->forward_id;
	f->u.forward.n_items = c->n_embed;
	f->u.forward.items = c->embed;
}

void sessions_on_forward_done(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	if (ev->u.forward_done.id != c->forward_id)
		return;
	c->forward_id = 0;
	for (int32_t i = 0; i < c->n_embed; i++) {
		struct session *s = &c->sessions[c->embed_session[i]];
		s->embedding = false;
		if (s->state != SESSION_ACTIVE) {
			buf_give(c, c->embed[i].buf);
		} else if (ev->u.forward_done.err != OK) {
			buf_give(c, c->embed[i].buf);
			end_session(c, s, COORD_END_ERROR, ev->u.forward_done.err, "the embedding failed on the coordinator", fx);
		} else {
			s->ready_buf = c->embed[i].buf;
			s->n_embedded += s->ready_n;
		}
	}
}

// ---- out

static enum step_reply wanted_reply(const struct session *s, int32_t pos_end)
{
	if (s->hash_logits)
		return REPLY_ALL;
	return pos_end == s->n_tokens ? REPLY_LAST : REPLY_NONE;
}

static void send_ready(struct coordinator *c, struct session *s, struct coord_link *l, struct coord_effects *fx)
{
	struct step st = {
		.wire = c->config.wire,
		.reply = wanted_reply(s, s->n_embedded),
		.flags = s->seq_sent == 0 ? STEP_FIRST : 0,
		.src_stage = STAGE_HEAD,
		.dst_stage = 0,
		.epoch = c->plan.epoch,
		.session = s->id,
		.seq = s->seq_sent,
		.slot = (uint32_t)s->slot,
		.pos = (uint32_t)(s->n_embedded - s->ready_n),
		.n_tokens = (uint32_t)s->ready_n,
		.payload_len = (uint32_t)(row_bytes(c) * (size_t)s->ready_n),
	};
	uint8_t head[FRAME_STEP_BYTES];
	step_encode(&st, head);
	struct coord_effect *f = coord_fx(fx, COORD_FX_SEND);
	f->u.send.link = l->handle;
	f->u.send.head = coord_fx_bytes(fx, head, sizeof head);
	f->u.send.head_len = sizeof head;
	f->u.send.buf = s->ready_buf;
	f->u.send.len = st.payload_len;
	s->seq_sent++;
	c->credits_out--;
	buf_give(c, s->ready_buf); // the host copies before it does anything else
	s->ready_buf = -1;
}

static void send_steps(struct coordinator *c, struct coord_effects *fx)
{
	struct coord_link *l = coord_link_of(c, member_find(c, c->plan.stages[0].node), COORD_LINK_DATA);
	for (int32_t i = 0; l != NULL && i < SESSIONS_MAX && c->credits_out > 0; i++)
		if (c->sessions[i].state == SESSION_ACTIVE && c->sessions[i].ready_buf >= 0)
			send_ready(c, &c->sessions[i], l, fx);
}

// ---- back

static void bad_peer(struct coordinator *c, struct coord_link *l, const char *what, struct coord_effects *fx)
{
	coord_log(fx, LOG_WARNING, "node %s broke the protocol (%s): closing its link", c->members[l->member].hello.name, what);
	coord_close(fx, l->handle, false);
}

static void on_reply(struct coordinator *c, struct coord_link *l, const struct step *st, struct coord_effects *fx)
{
	if (st->wire != c->config.wire || c->n_held >= c->config.hop_credits) {
		bad_peer(c, l, "a step of another wire type, or more steps than credits", fx);
		return;
	}
	c->n_held++;
	struct session *s = find_active(c, st->session);
	if (s == NULL) {
		give_credit(c, fx);
		return;
	}
	int32_t pos_end = (int32_t)(st->pos + st->n_tokens);
	int32_t n_rows = st->reply == REPLY_ALL ? (int32_t)st->n_tokens : st->reply == REPLY_LAST;
	if (st->seq != s->seq_back || s->seq_back == s->seq_sent || (int32_t)st->pos != s->pos_back || pos_end > s->n_embedded ||
		st->reply != wanted_reply(s, pos_end) || st->payload_len != row_bytes(c) * (size_t)n_rows || n_rows > c->config.chunk_max) {
		give_credit(c, fx);
		end_session(c, s, COORD_END_ERROR, ERR_STATE, "the ring answered out of order: this is a fault of a node, try again", fx);
		return;
	}
	s->seq_back++;
	s->pos_back = pos_end;
	if (n_rows == 0) {
		give_credit(c, fx);
		return;
	}
	int32_t buf = buf_take(c);
	ASSERT(buf >= 0);
	struct coord_effect *f = coord_fx(fx, COORD_FX_TAKE);
	f->u.take.buf = buf;
	f->u.take.msg_off = FRAME_STEP_BYTES;
	f->u.take.len = st->payload_len;
	c->replies[c->n_replies++] = (struct reply){.session = s->id, .buf = buf, .n_rows = n_rows, .draw = pos_end == s->n_tokens};
}

// pass_on relays between two nodes that cannot reach each other. Only neighbours of the ring, and only in their own name.
static void pass_on(struct coordinator *c, struct coord_link *l, uint16_t src, uint16_t dst, bool is_step, struct coord_effects *fx)
{
	struct member *m = &c->members[l->member];
	bool is_neighbour = is_step ? dst == src + 1 : dst + 1 == src;
	if (src != m->stage || dst >= c->plan.n_stages || !is_neighbour) {
		bad_peer(c, l, "a frame for a stage that is not its neighbour", fx);
		return;
	}
	struct coord_link *to = coord_link_of(c, member_find(c, c->plan.stages[dst].node), COORD_LINK_DATA);
	if (to == NULL)
		return; // lost: the plan goes with it
	m->n_relayed++;
	coord_fx(fx, COORD_FX_RELAY)->u.close.link = to->handle;
}

static void on_step(struct coordinator *c, struct coord_link *l, const uint8_t *data, size_t len, struct coord_effects *fx)
{
	struct step st;
	if (step_decode(data, len, &st) != OK) {
		bad_peer(c, l, "a malformed step", fx);
		return;
	}
	if (st.epoch.v != c->plan.epoch.v || c->plan_state != PLAN_READY)
		return;
	if (st.dst_stage != STAGE_HEAD) {
		pass_on(c, l, st.src_stage, st.dst_stage, true, fx);
		return;
	}
	if (c->members[l->member].stage != c->plan.n_stages - 1 || st.src_stage != c->plan.n_stages - 1) {
		bad_peer(c, l, "a step to the head from a stage that is not the last", fx);
		return;
	}
	on_reply(c, l, &st, fx);
}

static void on_credit(struct coordinator *c, struct coord_link *l, const uint8_t *data, size_t len, struct coord_effects *fx)
{
	struct credit cr;
	if (credit_decode(data, len, &cr) != OK) {
		bad_peer(c, l, "a malformed credit", fx);
		return;
	}
	if (cr.epoch.v != c->plan.epoch.v || c->plan_state != PLAN_READY)
		return;
	if (cr.dst_stage != STAGE_HEAD) {
		pass_on(c, l, cr.src_stage, cr.dst_stage, false, fx);
		return;
	}
	if (c->members[l->member].stage != 0 || cr.src_stage != 0 || cr.n > c->config.hop_credits - c->credits_out) {
		bad_peer(c, l, "a credit that was not owed", fx);
		return;
	}
	c->credits_out += cr.n;
}

void sessions_on_frame(struct coordinator *c, struct coord_link *l, const uint8_t *data, size_t len, struct coord_effects *fx)
{
	switch (len > 0 ? data[0] : 0) {
	case FRAME_STEP: on_step(c, l, data, len, fx); return;
	case FRAME_CREDIT: on_credit(c, l, data, len, fx); return;
	default: bad_peer(c, l, "an unknown frame on a data link", fx); return;
	}
}

void sessions_on_step_failed(struct coordinator *c, int32_t member, const struct msg *m, struct coord_effects *fx)
{
	if (m->u.step_failed.epoch.v != c->plan.epoch.v || c->plan_state != PLAN_READY || c->members[member].stage < 0)
		return;
	struct session *s = find_active(c, m->u.step_failed.session);
	if (s == NULL)
		return;
	const struct plan_stage *st = &c->plan.stages[c->members[member].stage];
	char text[2 * REASON_CAP];
	snprintf(text, sizeof text, "node %s (layers %d to %d): %s", c->members[member].hello.name, st->layer_begin, st->layer_end - 1,
		m->u.step_failed.error);
	end_session(c, s, COORD_END_ERROR, m->u.step_failed.code == STEP_NON_FINITE ? ERR_NON_FINITE : ERR_STATE, text, fx);
}

// ---- sampling

static void start_sampling(struct coordinator *c, struct coord_effects *fx)
{
	int32_t n_rows = 0, n = 0;
	while (n < c->n_replies && n < COORD_ITEMS_MAX) {
		const struct reply *r = &c->replies[n];
		if (n > 0 && n_rows + r->n_rows > c->config.chunk_max)
			break;
		struct session *s = find_active(c, r->session);
		ASSERT(s != NULL); // an ended session's replies are dropped with it
		n_rows += r->n_rows;
		c->sample_session[n] = r->session;
		c->sample[n] = (struct coord_sample_item){
			.req = s->req,
			.slot = s->slot,
			.buf = r->buf,
			.n_rows = r->n_rows,
			.hash = s->hash_logits,
			.first = s->hash_logits && !s->hash_started,
			.draw = r->draw,
			.pos = s->n_tokens,
			.sampling = s->sampling,
		};
		s->hash_started = s->hash_started || s->hash_logits;
		n++;
	}
	memmove(c->replies, c->replies + n, (size_t)(c->n_replies - n) * sizeof c->replies[0]);
	c->n_replies -= n;
	c->n_sample = n;
	c->sample_id = ++c->next_id;
	c->sample_epoch = c->plan.epoch;
	struct coord_effect *f = coord_fx(fx, COORD_FX_SAMPLE);
	f->u.sample.id = c->sample_id;
	f->u.sample.n_items = n;
	f->u.sample.items = c->sample;
}

static bool is_stop(const struct coordinator *c, int32_t token)
{
	for (int32_t i = 0; i < c->config.n_stop_ids; i++)
		if (c->config.stop_ids[i] == token)
			return true;
	return false;
}

static void on_token(struct coordinator *c, struct session *s, int32_t token, struct coord_effects *fx)
{
	ASSERT(s->n_tokens < s->n_max);
	if (!s->ignore_stop && is_stop(c, token)) {
		end_session(c, s, COORD_END_STOP, OK, "", fx);
		return;
	}
	struct coord_effect *f = coord_fx(fx, COORD_FX_EMIT);
	f->u.emit.req = s->req;
	f->u.emit.token = token;
	f->u.emit.pos = s->n_tokens;
	s->tokens[s->n_tokens++] = token;
	c->n_tokens++;
	if (s->n_tokens == s->n_max)
		end_session(c, s, COORD_END_LENGTH, OK, "", fx);
}

void sessions_on_sampled(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	if (ev->u.sampled.id != c->sample_id)
		return;
	c->sample_id = 0;
	bool is_current = c->sample_epoch.v == c->plan.epoch.v && c->plan_state == PLAN_READY;
	for (int32_t i = 0; i < c->n_sample; i++) {
		buf_give(c, c->sample[i].buf);
		if (is_current)
			give_credit(c, fx);
		struct session *s = find_active(c, c->sample_session[i]);
		if (s == NULL)
			continue;
		enum err e = ev->u.sampled.err != OK ? ev->u.sampled.err : ev->u.sampled.items[i].err;
		if (e != OK)
			end_session(c, s, COORD_END_ERROR, e, ev->u.sampled.text, fx);
		else if (c->sample[i].draw)
			on_token(c, s, ev->u.sampled.items[i].token, fx);
	}
}

// ---- the pump

static struct session *longest_waiting(struct coordinator *c)
{
	struct session *best = NULL;
	for (int32_t i = 0; i < SESSIONS_MAX; i++) {
		struct session *s = &c->sessions[i];
		if (s->state == SESSION_WAITING && (best == NULL || s->order < best->order))
			best = s;
	}
	return best;
}

static void admit(struct coordinator *c)
{
	for (int32_t slot = 0; slot < c->config.n_slots; slot++) {
		if (c->slot_owner[slot] >= 0)
			continue;
		struct session *s = longest_waiting(c);
		if (s == NULL)
			return;
		s->state = SESSION_ACTIVE;
		s->slot = slot;
		s->id.v = ++c->last_session;
		c->slot_owner[slot] = (int32_t)(s - c->sessions);
	}
}

void sessions_pump(struct coordinator *c, struct coord_effects *fx)
{
	if (c->plan_state != PLAN_READY)
		return;
	if (!c->plan_dirty) // a plan that must change lets nobody in, so that it can
		admit(c);
	send_steps(c, fx);
	if (c->forward_id == 0)
		start_embedding(c, fx);
	if (c->sample_id == 0 && c->n_replies > 0)
		start_sampling(c, fx);
}
