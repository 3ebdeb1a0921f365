// A stage at work: steps in, the engine, steps out, credits. See node.h for the life of a step.
#include "node/node_state.h"

#include "base/assert.h"
#include "base/log.h"

#include <stdio.h>

#define PREFILL_TOKENS 16 // with fewer, a visit is neither of one token nor of a long prompt

static void list_push(struct work_list *l, int32_t buf)
{
	ASSERT(l->n < HOP_CREDITS_MAX);
	l->at[l->n++] = buf;
}

static void list_push_front(struct work_list *l, int32_t buf)
{
	ASSERT(l->n < HOP_CREDITS_MAX);
	memmove(&l->at[1], &l->at[0], (size_t)l->n * sizeof l->at[0]);
	l->at[0] = buf;
	l->n++;
}

// list_remove takes out the entry at idx and keeps the order of the rest.
static void list_remove(struct work_list *l, int32_t idx)
{
	memmove(&l->at[idx], &l->at[idx + 1], (size_t)(l->n - idx - 1) * sizeof l->at[0]);
	l->n--;
}

size_t stage_row_bytes(const struct node *n)
{
	return wire_bytes(n->plan.wire, n->config.hidden_dim);
}

bool stage_has_output(const struct node *n)
{
	return n->plan.has_output && n->plan.stage == n->plan.n_stages - 1;
}

size_t stage_buf_bytes(const struct node *n)
{
	size_t states = stage_row_bytes(n) * (size_t)n->plan.chunk_max, reply = stage_has_output(n) ? head_reply_bytes_max(n->config.vocab_size) : 0;
	return states > reply ? states : reply;
}

// round_of returns in which round a frame of this stage's is, or -1: it is another stage's.
static int32_t round_of(const struct node *n, uint16_t span)
{
	int32_t round = span / n->plan.n_stages;
	return span % n->plan.n_stages == n->plan.stage && round < n->plan.layers.n ? round : -1;
}

static uint16_t span_of(const struct node *n, int32_t round)
{
	return (uint16_t)(round * n->plan.n_stages + n->plan.stage);
}

static struct task task_of(const struct node *n, const struct step *s)
{
	const struct layer_span *span = &n->plan.layers.at[round_of(n, s->dst_span)];
	int32_t begin = span->begin, end = span->end;
	int32_t from = s->layer_begin, to = s->layer_end ? s->layer_end : INT32_MAX;
	return (struct task){
		.from_payload = from <= begin && begin < to,
		.from_kept = begin < from && from <= end,
		.layer_begin = from < begin ? begin : from < end ? from : end,
		.layer_end = to > end ? end : to > begin ? to : begin,
		.goes_on = from <= end && end < to,
	};
}

static bool has_layers(const struct task *t)
{
	return t->layer_begin < t->layer_end;
}

static uint16_t span_before(uint16_t span)
{
	return span == 0 ? SPAN_HEAD : (uint16_t)(span - 1);
}

static uint16_t span_behind(const struct node *n, uint16_t span)
{
	return span == n->plan.n_stages * n->plan.layers.n - 1 ? SPAN_HEAD : (uint16_t)(span + 1);
}

bool stage_has_forward(const struct node *n)
{
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
		if (n->forwards[k].id != 0)
			return true;
	return false;
}

struct node_forward *stage_find_forward(struct node *n, uint32_t id)
{
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
		if (id != 0 && n->forwards[k].id == id)
			return &n->forwards[k];
	return NULL;
}

// is_computed: a forward under way has this buffer.
static bool is_computed(const struct node *n, int32_t buf)
{
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
		for (int32_t i = 0; n->forwards[k].id != 0 && i < n->forwards[k].n_items; i++)
			if (n->forwards[k].items[i].buf == buf)
				return true;
	return false;
}

void stage_reset(struct node *n)
{
	node_group_reset(n);
	n->queue.n = 0;
	for (int32_t i = 0; i < HOP_CREDITS_MAX; i++) {
		n->work[i].dead = true;
		if (n->work[i].state != WORK_RUNNING || !is_computed(n, i))
			n->work[i].state = WORK_FREE;
	}
	memset(n->slots, 0, sizeof n->slots);
	n->reads.n = 0;
	n->read_buf = -1;
	for (int32_t i = 0; i < ROUNDS_MAX; i++)
		n->rounds[i] = (struct node_round){.credits_out = n->plan.hop_credits};
}

void stage_drain(struct node *n)
{
	for (int32_t i = 0; i < n->plan.layers.n; i++)
		n->rounds[i].draining = n->rounds[i].draining || n->rounds[i].credits_out < n->plan.hop_credits;
}

// give_credit tells the previous hop that one of its steps has left us, on the way by which it came. Credits carry no order.
static void give_credit(struct node *n, int32_t round, bool relayed, struct node_effects *fx)
{
	ASSERT(n->rounds[round].n_held > 0);
	n->rounds[round].n_held--;
	struct node_link *l = relayed ? node_link_of(n, n->config.coordinator, NODE_LINK_DATA) : node_prev_direct(n);
	if (l == NULL)
		return; // the plan is lost with the link
	l->used = n->plan.epoch;
	uint16_t span = span_of(n, round);
	struct credit c = {.n = 1, .src_span = span, .dst_span = span_before(span), .epoch = n->plan.epoch};
	uint8_t frame[FRAME_CREDIT_BYTES];
	credit_encode(&c, frame);
	node_fx_send(fx, l->handle, frame, sizeof frame);
}

// forget_read: a buffer waits for no rows from disk any more. A read that is under way for it ends for nobody.
static void forget_read(struct node *n, int32_t buf)
{
	n->work[buf].fetching = false;
	for (int32_t i = 0; i < n->reads.n; i++)
		if (n->reads.at[i] == buf)
			list_remove(&n->reads, i--);
	if (n->read_buf == buf)
		n->read_buf = -1;
}

static void drop_work(struct node *n, int32_t buf, struct node_effects *fx)
{
	if (n->work[buf].fetching)
		forget_read(n, buf);
	n->work[buf].state = WORK_FREE;
	give_credit(n, n->work[buf].round, n->work[buf].relayed, fx);
}

static int32_t n_bufs(const struct node *n)
{
	return n->plan.hop_credits * n->plan.layers.n;
}

static void drop_of_slot(struct node *n, struct work_list *list, uint32_t slot, struct node_effects *fx)
{
	for (int32_t i = 0; i < list->n;) {
		int32_t buf = list->at[i];
		if (n->work[buf].step.slot != slot) {
			i++;
			continue;
		}
		list_remove(list, i);
		drop_work(n, buf, fx);
	}
}

// drop_slot forgets waiting steps of a slot; the one that runs is marked and dropped when it is done.
static void drop_slot(struct node *n, uint32_t slot, struct node_effects *fx)
{
	drop_of_slot(n, &n->queue, slot, fx);
	for (int32_t i = 0; i < n->plan.layers.n; i++)
		drop_of_slot(n, &n->rounds[i].out, slot, fx);
	for (int32_t i = 0; i < n_bufs(n); i++)
		if (n->work[i].state == WORK_RUNNING && n->work[i].step.slot == slot)
			n->work[i].dead = true;
	n->slots[slot] = (struct node_slot){0};
}

void stage_on_cancel(struct node *n, struct session_id session, struct node_effects *fx)
{
	for (int32_t i = 0; i < n->plan.n_slots; i++)
		if (n->slots[i].session.v == session.v)
			drop_slot(n, (uint32_t)i, fx);
	kept_end(n, session, fx);
	stage_pump(n, fx);
}

void stage_report_failure(struct node *n, struct session_id session, enum step_failure code, const char *text, struct node_effects *fx)
{
	struct msg m = {.type = MSG_STEP_FAILED};
	m.u.step_failed.epoch = n->plan.epoch;
	m.u.step_failed.session = session;
	m.u.step_failed.code = code;
	text_copy(m.u.step_failed.error, sizeof m.u.step_failed.error, text);
	node_send_msg(n, fx, &m);
}

// wants_output: a reply that only a last stage with lm_head and layers in its last span can give.
static bool wants_output(const struct step *s)
{
	return step_reply_want(s->reply) != HEAD_NOTHING;
}

// is_to_the_end: the last layer of this round's span is computed.
static bool is_to_the_end(const struct node *n, int32_t round, const struct task *t)
{
	return has_layers(t) && t->layer_end == n->plan.layers.at[round].end;
}

static const char *step_fault(const struct node *n, const struct step *s)
{
	if (!n->loaded)
		return "a step before the plan was ready";
	if (n->plan.group.self != 0)
		return "a step for a member that does not lead its group";
	int32_t round = round_of(n, s->dst_span);
	if (round < 0 || s->src_span != span_before(s->dst_span))
		return "a step for another stage";
	if (s->wire != n->plan.wire || s->n_tokens > (uint32_t)n->plan.chunk_max)
		return "a step of another wire type or size than the plan's";
	struct task t = task_of(n, s);
	if (wants_output(s) && (!n->plan.has_output || (span_behind(n, s->dst_span) == SPAN_HEAD && !is_to_the_end(n, round, &t))))
		return "a step that wants logits of a stage without the output head, or without computing its last layer";
	if (s->payload_len != (t.from_payload ? s->n_tokens * stage_row_bytes(n) : 0))
		return "a hidden state of the wrong size";
	if (s->slot >= (uint32_t)n->plan.n_slots || s->pos + s->n_tokens > (uint32_t)n->plan.ctx_len)
		return "a slot or position outside the plan";
	if (((s->flags & STEP_FIRST) != 0) != (s->seq == 0))
		return "a first step that is not the first";
	if (n->rounds[round].n_held >= n->plan.hop_credits)
		return "more steps than credits";
	return NULL;
}

// is_from tells whether a frame of the hop to or from `peer` may come on this link: from the neighbour itself, or from the coordinator,
// who is the head, `span`, or passes on what the neighbour sent.
static bool is_from(const struct node *n, const struct node_link *l, uint16_t span, const struct msg_peer *peer)
{
	return node_id_is(l->peer, n->config.coordinator) || (span != SPAN_HEAD && node_peer_is(peer, l->peer));
}

static int32_t free_buf(const struct node *n)
{
	for (int32_t i = 0; i < n_bufs(n); i++)
		if (n->work[i].state == WORK_FREE)
			return i;
	return -1;
}

static bool is_whole(const struct node *n, const struct step *s)
{
	const struct layer_spans *l = &n->plan.layers;
	return s->layer_end == 0 || (s->layer_begin <= l->at[0].begin && l->at[l->n - 1].end <= s->layer_end);
}

// ---- rows from disk

// fail_read: what a step builds on could not be read. Its session begins again, and what waits here of it is nothing any more.
static void fail_read(struct node *n, int32_t buf, enum err err, const char *text, struct node_effects *fx)
{
	const struct step s = n->work[buf].step;
	kept_on_unread(n, s.session, err, text, fx);
	stage_report_failure(n, s.session, STEP_NOT_KEPT, "what it builds on could not be read from disk", fx);
	drop_slot(n, s.slot, fx);
}

// read_next starts the next read. One at a time: the next step's is done while the engine works for this one.
static void read_next(struct node *n, struct node_effects *fx)
{
	while (n->read_id == 0 && n->reads.n > 0) {
		int32_t buf = n->reads.at[0];
		n->read_id = kept_read(n, &n->work[buf].step, buf, fx);
		if (n->read_id != 0)
			n->read_buf = buf;
		else
			fail_read(n, buf, ERR_NOT_FOUND, "given up meanwhile", fx);
	}
}

void stage_on_fetched(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	if (ev->u.disk.id != n->read_id)
		return;
	int32_t buf = n->read_buf;
	n->read_id = 0;
	n->read_buf = -1;
	if (buf >= 0 && ev->u.disk.err == OK) {
		kept_take(n, &n->work[buf].step, buf, fx);
		forget_read(n, buf);
	} else if (buf >= 0) {
		fail_read(n, buf, ev->u.disk.err, ev->u.disk.text, fx);
	}
	read_next(n, fx);
	stage_pump(n, fx);
}

// ---- steps in

// bind_slot makes a slot serve the session of a first step, when that is here for the first time; false: it builds on what is not here.
static bool bind_slot(struct node *n, const struct step *s, struct node_effects *fx)
{
	struct node_slot *slot = &n->slots[s->slot];
	struct session_id *kv = &n->kv_session[s->slot];
	if (slot->session.v != 0)
		drop_slot(n, s->slot, fx);
	bool begins_anew = s->pos == 0 && is_whole(n, s);
	if (!begins_anew && kv->v != s->session.v)
		return false;
	*kv = s->session;
	n->has_kept = true;
	*slot = (struct node_slot){.session = s->session, .direct = node_next_direct(n) != NULL};
	for (int32_t i = 0; i < n->plan.layers.n; i++)
		slot->next_pos[i] = s->pos;
	return true;
}

// accept_step puts a step that is in order where it belongs: to the engine, or, where no layer of ours is wanted, on its way.
static void accept_step(struct node *n, const struct step *s, const struct task *t, bool relayed, struct node_effects *fx)
{
	int32_t buf = free_buf(n);
	ASSERT(buf >= 0); // n_held < hop_credits, in each round
	int32_t round = round_of(n, s->dst_span);
	n->work[buf] = (struct work){.state = has_layers(t) ? WORK_QUEUED : WORK_OUT, .round = round, .task = *t, .step = *s,
		.direct = n->slots[s->slot].direct, .relayed = relayed};
	list_push(has_layers(t) ? &n->queue : &n->rounds[round].out, buf);
	if (t->from_kept && kept_fetch(n, s, buf, fx)) {
		n->work[buf].fetching = true;
		list_push(&n->reads, buf);
		read_next(n, fx);
	}
	if (!t->from_payload)
		return;
	struct node_effect *f = node_fx(fx, NODE_FX_TAKE);
	f->u.take.buf = buf;
	f->u.take.msg_off = FRAME_STEP_BYTES;
	f->u.take.len = s->payload_len;
}

static void on_step(struct node *n, struct node_link *l, const uint8_t *data, size_t len, struct node_effects *fx)
{
	struct step s;
	if (step_decode(data, len, &s) != OK) {
		node_link_blame(l, "a malformed step", fx);
		return;
	}
	if (s.epoch.v != n->plan.epoch.v)
		return; // of an old plan, or of one not here yet: its sender will be told
	if (!is_from(n, l, s.src_span, &n->plan.prev)) {
		node_link_ignore(l, "a step, and is not the stage before this one", fx);
		return;
	}
	bool relayed = node_id_is(l->peer, n->config.coordinator);
	const char *fault = step_fault(n, &s);
	if (fault != NULL) {
		node_link_blame(l, fault, fx);
		return;
	}
	int32_t round = round_of(n, s.dst_span);
	n->rounds[round].n_held++;
	n->last_step_ns = n->now_ns;
	struct node_slot *slot = &n->slots[s.slot];
	struct task task = task_of(n, &s);
	bool binds = (s.flags & STEP_FIRST) != 0 && round == 0;
	bool is_kept = !binds || bind_slot(n, &s, fx);
	if (!is_kept || (task.from_kept && slot->session.v == s.session.v && !kept_has(n, &s))) {
		stage_report_failure(n, s.session, STEP_NOT_KEPT, "what it builds on is not here any more", fx);
		give_credit(n, round, relayed, fx);
		return;
	}
	if (slot->session.v != s.session.v) { // cancelled, or its slot serves another already
		give_credit(n, round, relayed, fx);
		return;
	}
	if (s.seq != slot->next_seq[round] || s.pos != slot->next_pos[round]) {
		char text[REASON_CAP];
		snprintf(text, sizeof text, "step %u at position %u arrived, wanted step %u at %u", s.seq, s.pos, slot->next_seq[round],
			slot->next_pos[round]);
		stage_report_failure(n, s.session, STEP_OTHER, text, fx);
		give_credit(n, round, relayed, fx);
		return;
	}
	slot->next_seq[round]++;
	slot->next_pos[round] += s.n_tokens;

	accept_step(n, &s, &task, relayed, fx);
	stage_pump(n, fx);
}

static void on_credit(struct node *n, struct node_link *l, const uint8_t *data, size_t len, struct node_effects *fx)
{
	struct credit c;
	if (credit_decode(data, len, &c) != OK) {
		node_link_blame(l, "a malformed credit", fx);
		return;
	}
	if (c.epoch.v != n->plan.epoch.v)
		return;
	if (!is_from(n, l, c.src_span, &n->plan.next)) {
		node_link_ignore(l, "a credit, and is not the stage behind this one", fx);
		return;
	}
	int32_t round = n->plan.n_stages > 0 ? round_of(n, c.dst_span) : -1;
	struct node_round *r = round >= 0 ? &n->rounds[round] : NULL;
	if (r == NULL || c.src_span != span_behind(n, c.dst_span) || c.n > n->plan.hop_credits - r->credits_out) {
		node_link_blame(l, "a credit that was not owed", fx);
		return;
	}
	r->credits_out += c.n;
	r->draining = r->draining && r->credits_out < n->plan.hop_credits;
	stage_pump(n, fx);
}

void stage_on_frame(struct node *n, struct node_link *l, const uint8_t *data, size_t len, struct node_effects *fx)
{
	switch (len > 0 ? data[0] : 0) {
	case FRAME_STEP: on_step(n, l, data, len, fx); return;
	case FRAME_CREDIT: on_credit(n, l, data, len, fx); return;
	case FRAME_PART: node_group_on_part(n, l, data, len, fx); return;
	default: node_link_blame(l, "an unknown frame on a data link", fx); return;
	}
}

// is_first_visit tells whether a step comes to the other members of the group for the first time: not before the first round in which it has layers.
static bool is_first_visit(const struct node *n, const struct work *w)
{
	for (int32_t r = 0; r < w->round; r++)
		if (n->plan.layers.at[r].begin < n->plan.layers.at[r].end)
			return false;
	return true;
}

// begin_in_group tells the other members what n->at->items are.
static void begin_in_group(struct node *n, const struct task *t, int32_t n_tokens, struct node_effects *fx)
{
	struct part_start s = {.layer_begin = t->layer_begin, .layer_end = t->layer_end, .wire = n->plan.wire, .n_items = n->at->n_items, .n_tokens = n_tokens};
	for (int32_t i = 0; i < n->at->n_items; i++) {
		const struct work *w = &n->work[n->at->items[i].buf];
		bool is_first = (w->step.flags & STEP_FIRST) != 0 && is_first_visit(n, w) && w->step.pos == 0 && is_whole(n, &w->step);
		s.items[i] = (struct part_item){.session = w->step.session, .slot = n->at->items[i].slot, .pos = n->at->items[i].pos, .n_tokens = n->at->items[i].n_tokens,
			.is_first = is_first, .want = n->at->items[i].want};
	}
	node_group_begin(n, &s, fx);
}

// start_forward gives the engine everything that waits for the same layers, in order, one step per slot: a batch reads the weights once.
static void start_forward(struct node *n, struct node_effects *fx)
{
	bool taken[SESSIONS_MAX] = {false};
	int32_t n_tokens = 0;
	struct task first = {0};
	n->at->n_items = 0;
	for (int32_t i = 0; i < n->queue.n && n->at->n_items < NODE_ITEMS_MAX;) {
		int32_t buf = n->queue.at[i];
		const struct step *s = &n->work[buf].step;
		const struct task *t = &n->work[buf].task;
		if (n->at->n_items == 0)
			first = *t;
		if (taken[s->slot] || n->work[buf].fetching || node_group_holds(n, (int32_t)s->slot, t->layer_begin, t->layer_end) || t->layer_begin != first.layer_begin || t->layer_end != first.layer_end) {
			taken[s->slot] = true; // none overtakes another of its slot
			i++;
			continue;
		}
		if (n->at->n_items > 0 && n_tokens + (int32_t)s->n_tokens > n->plan.chunk_max)
			break;
		taken[s->slot] = true;
		n_tokens += (int32_t)s->n_tokens;
		n->work[buf].state = WORK_RUNNING;
		n->at->items[n->at->n_items++] = (struct node_forward_item){
			.buf = buf, .slot = (int32_t)s->slot, .pos = (int32_t)s->pos, .n_tokens = (int32_t)s->n_tokens,
			.want = span_behind(n, s->dst_span) == SPAN_HEAD ? step_reply_want(s->reply) : HEAD_NOTHING};
		list_remove(&n->queue, i);
	}
	if (n->at->n_items == 0)
		return; // all of them wait for the disk, or for a forward under way
	if (n->plan.group.n_members > 0) {
		begin_in_group(n, &first, n_tokens, fx);
		return;
	}
	n->at->id = ++n->next_id;
	n->n_tokens += (uint64_t)n_tokens;
	struct node_effect *f = node_fx(fx, NODE_FX_FORWARD);
	f->u.forward.id = n->at->id;
	f->u.forward.layer_begin = first.layer_begin;
	f->u.forward.layer_end = first.layer_end;
	f->u.forward.n_items = n->at->n_items;
	f->u.forward.items = n->at->items;
}

static enum step_failure failure_of(enum err e)
{
	switch (e) {
	case ERR_NON_FINITE: return STEP_NON_FINITE;
	case ERR_RANGE: return STEP_NOT_KEPT; // positions before it were never computed in these layers
	case ERR_IO: return STEP_WEIGHTS;     // nothing else is read
	case ERR_STATE: return STEP_WEIGHTS;  // the model's file is another one by now
	default: return STEP_OTHER;
	}
}

// observe counts what a visit took: of one token, which reads weights, or of many, which compute.
static void observe(struct node *n, const struct node_cost *cost)
{
	uint64_t n_tokens = 0, us = cost->compute_ns / 1000;
	for (int32_t i = 0; i < n->at->n_items; i++)
		n_tokens += (uint64_t)n->at->items[i].n_tokens;
	if (n->n_cold > 0) {
		n->n_cold--;
		return;
	}
	if (n_tokens == 1) {
		n->report.decode_bytes += cost->weight_bytes;
		n->report.decode_us += us;
		n->report.n_visits++;
	} else if (n_tokens >= PREFILL_TOKENS) {
		n->report.prefill_flop += cost->token_flop * n_tokens;
		n->report.prefill_us += us;
	}
}

struct session_id stage_session_of(const struct node *n, int32_t buf)
{
	return n->work[buf].dead ? (struct session_id){0} : n->work[buf].step.session;
}

void stage_report_error(struct node *n, struct session_id session, const struct node_event *ev, int32_t item, struct node_effects *fx)
{
	enum err e = ev->u.forward_done.errs[item];
	const char *text = ev->u.forward_done.texts ? ev->u.forward_done.texts[item] : "";
	stage_report_failure(n, session, failure_of(e), text && text[0] ? text : err_words(e), fx);
}

// free_dead: of an old plan nothing is owed any more; a cancelled step of this one still is.
static void free_dead(struct node *n, struct work *w, struct node_effects *fx)
{
	w->state = WORK_FREE;
	if (w->step.epoch.v == n->plan.epoch.v && n->rounds[w->round].n_held > 0)
		give_credit(n, w->round, w->relayed, fx);
}

void stage_drop_running(struct node *n, struct node_effects *fx)
{
	for (int32_t i = 0; i < n->at->n_items; i++) {
		struct work *w = &n->work[n->at->items[i].buf];
		if (w->dead)
			free_dead(n, w, fx);
		else
			drop_work(n, n->at->items[i].buf, fx);
	}
}

void stage_requeue_running(struct node *n, uint64_t failed, struct node_effects *fx)
{
	for (int32_t i = n->at->n_items - 1; i >= 0; i--) {
		int32_t buf = n->at->items[i].buf;
		struct work *w = &n->work[buf];
		if (w->dead) {
			free_dead(n, w, fx);
		} else if ((failed >> i & 1) != 0) {
			drop_work(n, buf, fx);
		} else {
			w->state = WORK_QUEUED;
			list_push_front(&n->queue, buf);
		}
	}
}

void stage_on_forward_done(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	struct node_forward *at = stage_find_forward(n, ev->u.forward_done.id);
	if (at == NULL)
		return;
	n->at = at;
	if (n->at->is_computing && node_group_on_forward_done(n, ev, fx))
		return;
	n->at->id = 0;
	uint64_t steps = n->report.weights.steps;
	n->report.weights = ev->u.forward_done.weights;
	n->report.weights.steps = steps + 1;
	if (ev->u.forward_done.cost.compute_ns > 0 && n->plan.group.n_members == 0)
		observe(n, &ev->u.forward_done.cost);
	for (int32_t i = 0; i < n->at->n_items; i++) {
		int32_t buf = n->at->items[i].buf;
		struct work *w = &n->work[buf];
		n->n_steps++;
		if (w->dead) {
			free_dead(n, w, fx);
			continue;
		}
		bool has_failed = ev->u.forward_done.errs[i] != OK;
		if (has_failed)
			stage_report_error(n, w->step.session, ev, i, fx);
		if (has_failed || node_group_has_failed(n, i)) { // another member has told of it
			drop_work(n, buf, fx);
			continue;
		}
		w->state = WORK_OUT;
		list_push(&n->rounds[w->round].out, buf);
	}
}

static void send_step(struct node *n, int32_t buf, struct node_link *l, struct node_effects *fx)
{
	struct step s = n->work[buf].step;
	size_t row = stage_row_bytes(n), off = 0, len = row * s.n_tokens;
	s.src_span = s.dst_span;
	s.dst_span = span_behind(n, s.src_span);
	if (s.dst_span == SPAN_HEAD && wants_output(&s)) {
		len = head_reply_bytes(step_reply_want(s.reply), n->config.vocab_size);
	} else if (s.dst_span == SPAN_HEAD && s.reply != REPLY_ALL) {
		off = s.reply == REPLY_LAST ? row * (s.n_tokens - 1) : 0;
		len = s.reply == REPLY_LAST ? row : 0;
	} else if (!n->work[buf].task.goes_on) {
		len = 0;
	}
	s.payload_len = (uint32_t)len;
	uint8_t head[FRAME_STEP_BYTES];
	step_encode(&s, head);
	l->used = n->plan.epoch;
	struct node_effect *f = node_fx(fx, NODE_FX_SEND);
	f->u.send.link = l->handle;
	f->u.send.head = node_fx_bytes(fx, head, sizeof head);
	f->u.send.head_len = sizeof head;
	f->u.send.buf = len > 0 ? buf : -1;
	f->u.send.off = off;
	f->u.send.len = len;
	node_links_on_sent(n, l, len, fx);
	if (s.dst_span != SPAN_HEAD && len > 0)
		kept_put(n, &s, n->work[buf].round, buf, row, fx);
}

// way_out returns the link that a step leaves on: the last round's go to the head, who is the coordinator.
static struct node_link *way_out(struct node *n, const struct work *w)
{
	bool to_head = span_behind(n, span_of(n, w->round)) == SPAN_HEAD;
	return w->direct && !to_head ? node_next_direct(n) : node_link_of(n, n->config.coordinator, NODE_LINK_DATA);
}

static void pump_out(struct node *n, struct node_round *r, struct node_effects *fx)
{
	while (r->out.n > 0 && !n->work[r->out.at[0]].fetching && r->credits_out > 0 && !r->draining) {
		int32_t buf = r->out.at[0];
		struct node_link *l = way_out(n, &n->work[buf]);
		list_remove(&r->out, 0);
		if (l != NULL) { // else a link was lost: the coordinator makes a new plan
			r->credits_out--;
			send_step(n, buf, l, fx);
		}
		drop_work(n, buf, fx);
	}
}

void stage_pump(struct node *n, struct node_effects *fx)
{
	if (n->plan.epoch.v == 0 || !n->loaded)
		return;
	for (int32_t i = 0; i < n->plan.layers.n; i++)
		pump_out(n, &n->rounds[i], fx);
	node_group_pump(n, fx);
	struct node_forward *at = n->plan.group.n_members > 0 ? node_group_next(n) : n->forwards;
	if (at == NULL || at->id != 0 || n->has_next || n->queue.n == 0 || n->group.is_cut)
		return;
	n->at = at;
	start_forward(n, fx);
}
