// Sessions and the head's scheduling: who gets a slot, what is embedded, sent and sampled next. See coordinator.h.
#include "coordinator/coord_state.h"

#include "base/assert.h"
#include "base/log.h"

#include <stdio.h>

// ---- buffers

int32_t sessions_buf_take(struct coordinator *c)
{
	for (int32_t i = 0; i < c->n_bufs; i++) {
		if (!c->buf_used[i]) {
			c->buf_used[i] = true;
			return i;
		}
	}
	return -1;
}

void sessions_buf_give(struct coordinator *c, int32_t buf)
{
	ASSERT(c->buf_used[buf]);
	c->buf_used[buf] = false;
}

int32_t coordinator_n_bufs(const struct coordinator_config *config)
{
	// Of each chain. Replies: those of this plan, and those of the last one that the sampler still holds. Embeddings: one per slot.
	return coordinator_n_chains(config) * (2 * config->hop_credits + config->n_slots);
}

size_t coordinator_buf_bytes(const struct coordinator_config *config)
{
	size_t states = wire_bytes(config->wire, config->hidden_dim) * (size_t)config->chunk_max;
	size_t reply = config->has_output ? head_reply_bytes_max(config->vocab_size) : 0;
	return states > reply ? states : reply;
}

void sessions_init(struct coordinator *c, int32_t *token_memory)
{
	for (int32_t i = 0; i < c->n_sessions; i++)
		c->sessions[i].tokens = token_memory + (size_t)i * (size_t)c->config.ctx_len;
	for (int32_t i = 0; i < c->n_head_slots; i++)
		c->head_owner[i] = -1;
	for (int32_t i = 0; i < c->n_chains; i++)
		for (int32_t slot = 0; slot < c->config.n_slots; slot++)
			c->chains[i].slot_owner[slot] = -1;
}

int32_t sessions_count(const struct coordinator *c, enum session_state state)
{
	int32_t n = 0;
	for (int32_t i = 0; i < c->n_sessions; i++)
		n += c->sessions[i].state == state;
	return n;
}

int32_t sessions_count_active(const struct coordinator *c, const struct chain *ch)
{
	int32_t n = 0;
	for (int32_t slot = 0; slot < c->config.n_slots; slot++)
		n += ch->slot_owner[slot] >= 0;
	return n;
}

struct session *sessions_find_active(struct coordinator *c, struct session_id id)
{
	for (int32_t i = 0; i < c->n_sessions; i++)
		if (c->sessions[i].state == SESSION_ACTIVE && c->sessions[i].id.v == id.v)
			return &c->sessions[i];
	return NULL;
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
		sessions_buf_give(c, c->replies[i].buf);
		ring_give_credit(c, &c->chains[c->replies[i].chain], fx);
	}
	c->n_replies = n;
}

static void drop_ready(struct coordinator *c, struct session *s)
{
	if (s->ready_buf >= 0)
		sessions_buf_give(c, s->ready_buf);
	s->ready_buf = -1;
	s->is_ready = false;
}

static void tell_stages(struct coordinator *c, const struct session *s, struct coord_effects *fx)
{
	const struct chain *ch = &c->chains[s->chain];
	struct msg m = {.type = MSG_CANCEL};
	m.u.cancel.epoch = ch->plan.epoch;
	m.u.cancel.session = s->id;
	for (int32_t i = 0; i < ch->plan.n_stages; i++)
		coord_send_msg(c, member_of_stage(c, ch, i), &m, fx);
}

void sessions_end(struct coordinator *c, struct session *s, enum coord_end end, enum err err, const char *text, struct coord_effects *fx)
{
	fx_end(fx, s->req, s->state == SESSION_ACTIVE ? s->head_slot : -1, end, err, text);
	if (s->state == SESSION_ACTIVE) {
		struct chain *ch = &c->chains[s->chain];
		ch->slot_owner[s->slot] = -1;
		c->head_owner[s->head_slot] = -1;
		drop_ready(c, s);
		drop_replies(c, s->id, fx);
		if (ch->plan_state == PLAN_READY)
			tell_stages(c, s, fx); // of what is under way, and of what they keep of it
	}
	s->state = SESSION_FREE;
}

// ---- a lost plan

// halt_session takes it back to what is certain: the positions whose rows went to SAMPLE, or needed none.
static void halt_session(struct coordinator *c, struct session *s, struct coord_effects *fx)
{
	for (int32_t i = c->n_replies - 1; i >= 0; i--)
		if (c->replies[i].session.v == s->id.v)
			s->pos_back = c->replies[i].pos;
	drop_ready(c, s);
	if (s->pos_back < s->replay_to)
		s->kv_epoch.v = 0; // lost in the middle of computing again: which stage has what is not known
	s->replay_to = s->pos_back > s->replay_to ? s->pos_back : s->replay_to;
	s->pos_back = s->n_embedded = 0;
	s->seq_sent = s->seq_back = 0;
	s->since_ns = c->now_ns;
	admission_note_halt(c, s);
	if (++s->n_lost <= LOSSES_MAX)
		return;
	char text[REASON_CAP];
	snprintf(text, sizeof text, "gave up: the machines were lost %d times while one token was computed", LOSSES_MAX + 1);
	sessions_end(c, s, COORD_END_ERROR, ERR_NODE_LOST, text, fx);
}

void sessions_restart(struct coordinator *c, struct session *s, struct coord_effects *fx)
{
	tell_stages(c, s, fx);
	struct session_id old = s->id;
	halt_session(c, s, fx);
	drop_replies(c, old, fx);
	if (s->state != SESSION_ACTIVE)
		return;
	s->id.v = ++c->last_session; // what still comes of the old steps is nobody's
	s->kv_epoch = c->chains[s->chain].plan.epoch;
	s->layer_begin = s->layer_end = 0;
	coord_log(fx, LOG_INFO, "an answer begins again from its tokens: a node has let go of what it needed");
}

static bool is_any_ready(const struct coordinator *c)
{
	for (int32_t i = 0; i < c->n_chains; i++)
		if (c->chains[i].plan_state == PLAN_READY)
			return true;
	return false;
}

void sessions_halt(struct coordinator *c, struct chain *ch, struct coord_effects *fx)
{
	ASSERT(ch->plan_state != PLAN_READY);
	bool is_last = !is_any_ready(c);
	for (int32_t i = 0; i < c->n_sessions; i++) {
		struct session *s = &c->sessions[i];
		if (s->state == SESSION_ACTIVE && s->chain == ch->index)
			halt_session(c, s, fx);
		else if (s->state == SESSION_WAITING && is_last)
			s->since_ns = c->now_ns;
	}
	int32_t n = 0;
	for (int32_t i = 0; i < c->n_replies; i++) {
		if (c->replies[i].chain == ch->index)
			sessions_buf_give(c, c->replies[i].buf);
		else
			c->replies[n++] = c->replies[i];
	}
	c->n_replies = n;
}

void sessions_on_cancel(struct coordinator *c, uint64_t req, struct coord_effects *fx)
{
	for (int32_t i = 0; i < c->n_sessions; i++)
		if (c->sessions[i].state != SESSION_FREE && c->sessions[i].req == req)
			sessions_end(c, &c->sessions[i], COORD_END_CANCELLED, OK, "", fx);
}

// waits_for returns the chain without which a session does nothing, for want of a plan; NULL: there is a plan, or no session.
static const struct chain *waits_for(const struct coordinator *c, const struct session *s)
{
	const struct chain *ch = &c->chains[s->state == SESSION_ACTIVE ? s->chain : 0];
	bool is_stuck = s->state == SESSION_ACTIVE ? ch->plan_state != PLAN_READY : s->state == SESSION_WAITING && !is_any_ready(c);
	return is_stuck ? ch : NULL;
}

void sessions_expire(struct coordinator *c, struct coord_effects *fx)
{
	for (int32_t i = 0; i < c->n_sessions; i++) {
		struct session *s = &c->sessions[i];
		const struct chain *ch = waits_for(c, s);
		if (ch == NULL || c->now_ns - s->since_ns < c->config.session_wait_ns)
			continue;
		char text[2 * REASON_CAP];
		snprintf(text, sizeof text, "gave up after %lld s without a cluster that can answer: %s", (long long)(c->config.session_wait_ns / 1000000000),
			ch->waiting_for);
		sessions_end(c, s, COORD_END_ERROR, ERR_TIMEOUT, text, fx);
	}
}

int64_t sessions_deadline_ns(const struct coordinator *c)
{
	int64_t deadline = INT64_MAX;
	for (int32_t i = 0; i < c->n_sessions; i++) {
		const struct session *s = &c->sessions[i];
		if (waits_for(c, s) != NULL && s->since_ns + c->config.session_wait_ns < deadline)
			deadline = s->since_ns + c->config.session_wait_ns;
	}
	return deadline;
}

// ---- in

static struct session *find_free(struct coordinator *c)
{
	for (int32_t i = 0; i < c->n_sessions; i++)
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
		snprintf(text, sizeof text, "%d requests are being answered or wait already: try again later", c->n_sessions);
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
static uint32_t steps_ahead(const struct chain *ch)
{
	return (uint32_t)ch->plan.n_stages + 1;
}

static bool may_step(const struct coordinator *c, const struct session *s)
{
	if (s->state != SESSION_ACTIVE || s->is_ready || s->n_embedded >= s->n_tokens)
		return false;
	const struct chain *ch = &c->chains[s->chain];
	return ch->plan_state == PLAN_READY && s->seq_sent - s->seq_back < steps_ahead(ch);
}

// next_n returns the tokens of a session's next step. A step is either computed again or new: what is sampled begins where a step begins.
static int32_t next_n(const struct coordinator *c, const struct session *s)
{
	int32_t n = (s->n_embedded < s->replay_to ? s->replay_to : s->n_tokens) - s->n_embedded;
	if (c->config.has_output && s->hash_logits && s->n_embedded >= s->replay_to)
		return 1; // a reply has all logits of one token, and all of them are wanted
	return n > c->config.chunk_max ? c->config.chunk_max : n;
}

// needs_embedding: not when layers further on are computed again.
static bool needs_embedding(const struct session *s)
{
	return s->n_embedded >= s->replay_to || s->layer_begin == 0;
}

static void ready_without_embedding(struct coordinator *c)
{
	for (int32_t i = 0; i < c->n_sessions; i++) {
		struct session *s = &c->sessions[i];
		if (!may_step(c, s) || s->embedding || needs_embedding(s))
			continue;
		s->ready_n = next_n(c, s);
		s->n_embedded += s->ready_n;
		s->is_ready = true;
	}
}

static void start_embedding(struct coordinator *c, struct coord_effects *fx)
{
	int32_t n_tokens = 0;
	c->n_embed = 0;
	for (int32_t i = 0; i < c->n_sessions && c->n_embed < COORD_ITEMS_MAX; i++) {
		struct session *s = &c->sessions[i];
		if (!may_step(c, s) || !needs_embedding(s))
			continue;
		int32_t n = next_n(c, s);
		if (c->n_embed > 0 && n_tokens + n > c->config.chunk_max)
			continue;
		int32_t buf = sessions_buf_take(c);
		ASSERT(buf >= 0);
		n_tokens += n;
		s->embedding = true;
		s->ready_n = n;
		c->embed_session[c->n_embed] = i;
		c->embed_id[c->n_embed] = s->id;
		c->embed_epoch[c->n_embed] = c->chains[s->chain].plan.epoch;
		c->embed[c->n_embed++] = (struct coord_embed_item){
			.tokens = s->tokens + s->n_embedded, .n_tokens = n, .pos = s->n_embedded, .buf = buf};
	}
	if (c->n_embed == 0)
		return;
	c->forward_id = ++c->next_id;
	struct coord_effect *f = coord_fx(fx, COORD_FX_FORWARD);
	f->u.forward.id = c->forward_id;
	f->u.forward.n_items = c->n_embed;
	f->u.forward.items = c->embed;
}

static bool is_running(const struct chain *ch, struct plan_epoch epoch)
{
	return ch->plan_state == PLAN_READY && ch->plan.epoch.v == epoch.v;
}

void sessions_on_forward_done(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	if (ev->u.forward_done.id != c->forward_id)
		return;
	c->forward_id = 0;
	for (int32_t i = 0; i < c->n_embed; i++) {
		struct session *s = &c->sessions[c->embed_session[i]];
		enum err e = ev->u.forward_done.errs ? ev->u.forward_done.errs[i] : OK;
		s->embedding = false;
		bool is_current = s->state == SESSION_ACTIVE && is_running(&c->chains[s->chain], c->embed_epoch[i]);
		if (!is_current || s->id.v != c->embed_id[i].v) {
			sessions_buf_give(c, c->embed[i].buf);
		} else if (e != OK) {
			sessions_buf_give(c, c->embed[i].buf);
			const char *text = ev->u.forward_done.texts ? ev->u.forward_done.texts[i] : "";
			sessions_end(c, s, COORD_END_ERROR, e, text && text[0] ? text : "the embedding failed on the coordinator", fx);
		} else {
			s->ready_buf = c->embed[i].buf;
			s->is_ready = true;
			if (s->seq_sent == s->seq_back)
				s->progress_ns = c->now_ns; // from here on a credit is waited for
			s->n_embedded += s->ready_n;
		}
	}
}

// ---- sampling

static void start_sampling(struct coordinator *c, struct coord_effects *fx)
{
	int32_t n_rows = 0, n = 0;
	while (n < c->n_replies && n < COORD_ITEMS_MAX) {
		const struct reply *r = &c->replies[n];
		if (n > 0 && n_rows + r->n_rows > c->config.chunk_max)
			break;
		struct session *s = sessions_find_active(c, r->session);
		ASSERT(s != NULL); // an ended session's replies are dropped with it
		n_rows += r->n_rows;
		c->sample_session[n] = r->session;
		c->sample_chain[n] = r->chain;
		c->sample_epoch[n] = c->chains[r->chain].plan.epoch;
		c->sample[n] = (struct coord_sample_item){
			.req = s->req,
			.slot = s->head_slot,
			.buf = r->buf,
			.n_rows = r->n_rows,
			.want = r->want,
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
		sessions_end(c, s, COORD_END_STOP, OK, "", fx);
		return;
	}
	struct coord_effect *f = coord_fx(fx, COORD_FX_EMIT);
	f->u.emit.req = s->req;
	f->u.emit.token = token;
	f->u.emit.pos = s->n_tokens;
	s->tokens[s->n_tokens++] = token;
	s->n_lost = 0;
	c->n_tokens++;
	if (s->n_tokens == s->n_max)
		sessions_end(c, s, COORD_END_LENGTH, OK, "", fx);
}

void sessions_on_sampled(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	if (ev->u.sampled.id != c->sample_id)
		return;
	c->sample_id = 0;
	for (int32_t i = 0; i < c->n_sample; i++) {
		sessions_buf_give(c, c->sample[i].buf);
		struct chain *ch = &c->chains[c->sample_chain[i]];
		if (is_running(ch, c->sample_epoch[i])) // else no credit is owed, but what was drawn is good
			ring_give_credit(c, ch, fx);
		struct session *s = sessions_find_active(c, c->sample_session[i]);
		if (s == NULL)
			continue;
		const struct coord_sampled *it = &ev->u.sampled.items[i];
		if (it->err != OK)
			sessions_end(c, s, COORD_END_ERROR, it->err, it->text && it->text[0] ? it->text : err_words(it->err), fx);
		else if (c->sample[i].draw)
			on_token(c, s, it->token, fx);
	}
}

// ---- the pump

void sessions_pump(struct coordinator *c, struct coord_effects *fx)
{
	if (!is_any_ready(c))
		return;
	admission_pump(c, fx);
	ready_without_embedding(c);
	for (int32_t i = 0; i < c->n_chains; i++)
		if (c->chains[i].plan_state == PLAN_READY)
			ring_send_steps(c, &c->chains[i], fx);
	if (c->forward_id == 0)
		start_embedding(c, fx);
	if (c->sample_id == 0 && c->n_replies > 0)
		start_sampling(c, fx);
}
