// The engine of a simulated node: what a FORWARD does and how long it takes, alone or as one of a group.
//
// Of a group each stretch between two exchanges is a quarter of this member's part of a layer, whatever the mode. The exchanges themselves are frames, which the
// simulated network carries like any others.
#include "sim/world_state.h"

#include "base/assert.h"

#include <stdlib.h>

bool sim_forward_is_busy(const struct sim_node *n)
{
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
		if (n->forwards[k].is_busy)
			return true;
	return false;
}

bool sim_forward_waits(const struct sim_node *n, uint64_t epoch)
{
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
		if (n->forwards[k].is_waiting && n->forwards[k].epoch == epoch)
			return true;
	return false;
}

uint8_t *sim_node_part(struct sim_node *n, int32_t buf)
{
	ASSERT(buf >= 0 && buf < node_part_bufs(n->load_group.mode, n->n_members));
	return n->parts + (size_t)buf * n->part_bytes;
}

enum err sim_forward_set_group(struct sim_world *w, struct sim_node *n, struct errmsg *em)
{
	const struct msg_group *g = &n->load_group;
	free(n->parts);
	n->parts = NULL;
	n->n_members = n->member = 0;
	n->part_bytes = 0;
	for (int32_t i = 0; i < NODE_FORWARDS_MAX; i++)
		n->forwards[i].is_waiting = false;
	if (n->engine == NULL || g->n_members == 0)
		return OK;
	enum err e = sim_engine_share(n->engine, g->mode, g->shares, g->n_members, g->self, em);
	if (e != OK)
		return e;
	n->part_bytes = sim_engine_part_bytes(&w->model);
	n->parts = malloc((size_t)node_part_bufs(g->mode, g->n_members) * n->part_bytes);
	if (n->parts == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for contributions");
	n->n_members = g->n_members;
	n->member = g->self;
	return OK;
}

static uint8_t *rows_of(const struct sim_world *w, struct sim_node *n, const struct node_forward_item *it)
{
	return sim_node_buf(n, it->buf) + (size_t)it->row * w->model.row_kept;
}

// check_batch: what engine.h demands of a call.
static void check_batch(struct sim_world *w, const struct sim_node *n, const struct sim_node_job *j, int32_t n_tokens)
{
	if (n_tokens > w->config.chunk_max)
		sim_world_fail(w, "node %d: a batch of %d tokens, where the engine takes %d", n->machine, n_tokens, w->config.chunk_max);
	for (int32_t i = 0; i < j->n; i++)
		for (int32_t k = 0; k < i; k++)
			if (j->items[i].slot == j->items[k].slot || (j->items[i].buf == j->items[k].buf && j->items[i].row == j->items[k].row))
				sim_world_fail(w, "node %d: slot %d or buffer %d stands twice in a batch", n->machine, j->items[i].slot, j->items[i].buf);
}

static bool is_whole_span(const struct layer_spans *s, const struct sim_node_job *j)
{
	for (int32_t i = 0; i < s->n; i++)
		if (s->at[i].begin == j->layer_begin && s->at[i].end == j->layer_end)
			return true;
	return false;
}

// start lets the engine work: on all layers, or in a group as far as the next exchange.
static void start(struct sim_world *w, struct sim_node *n, struct sim_node_job *j)
{
	struct sim_work work = {.kind = SIM_FORWARD, .machine = n->machine, .layer_begin = j->layer_begin, .layer_end = j->layer_end, .n_items = j->n};
	for (int32_t i = 0; i < j->n; i++) {
		int64_t n_new = j->items[i].n_tokens, pos = j->items[i].pos;
		work.n_tokens += (int32_t)n_new;
		work.n_past += pos;
		work.n_pairs += n_new * pos + n_new * (n_new + 1) / 2;
	}
	if (j->which < 0)
		check_batch(w, n, j, work.n_tokens);
	if (n->n_members > 0) {
		work.layer_end = work.layer_begin + 1;
		work.goes_on = j->which >= 0;
		work.part_num = n->load_group.shares[n->member];
		for (int32_t i = 0; i < n->n_members; i++)
			work.part_den += 4 * (int64_t)n->load_group.shares[i];
	}
	j->is_busy = true;
	j->is_waiting = false;
	// One after the other, as the worker takes them.
	n->free_ns = (n->free_ns > w->now_ns ? n->free_ns : w->now_ns) + sim_duration(w, &work);
	sim_at(w, n->free_ns, EV_FORWARDED, n->machine)->id = j->id;
}

void sim_forward_begin(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	struct sim_node_job *j = &n->forwards[f->u.forward.forward];
	if (j->is_busy || n->engine == NULL) {
		sim_world_fail(w, "node %d starts its engine %s", n->machine, j->is_busy ? "twice at once" : "without layers");
		return;
	}
	struct node_status st;
	node_status_get(n->core, &st);
	w->counts.n_given_up += j->is_waiting;
	for (int32_t k = 0; n->n_members > 0 && k < NODE_FORWARDS_MAX; k++)
		w->counts.n_beside += &n->forwards[k] != j && (n->forwards[k].is_waiting || n->forwards[k].is_busy);
	j->epoch = st.epoch.v;
	j->id = f->u.forward.id;
	j->which = -1;
	j->is_at_head = false;
	j->place = f->u.forward.forward;
	j->is_behind = f->u.forward.is_behind;
	j->layer_begin = f->u.forward.layer_begin;
	j->layer_end = f->u.forward.layer_end;
	j->n = f->u.forward.n_items;
	memcpy(j->items, f->u.forward.items, (size_t)j->n * sizeof j->items[0]);
	for (int32_t i = 0; i < j->n; i++)
		j->digests[i] = sim_mix_bytes(0, rows_of(w, n, &j->items[i]), (size_t)j->items[i].n_tokens * w->model.row_kept);
	w->counts.n_batched += j->n > 1;
	w->counts.n_partial += !is_whole_span(&n->load.u.load.layers, j);
	start(w, n, j);
}

// ---- a group

// parts_digest is that of what the engine reads of the others.
static uint64_t parts_digest(struct sim_node *n, const struct sim_node_job *j)
{
	uint64_t d = 0;
	for (int32_t i = 0; i < n->n_members; i++)
		d = i == n->member ? d : sim_mix_bytes(d, sim_node_part(n, node_part_buf(n->n_members, i, j->place, j->which)), j->exchange.bytes[i]);
	return d;
}

void sim_forward_take_part(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	ASSERT(f->u.take.msg_off + f->u.take.len <= w->message_stored);
	ASSERT(f->u.take.off + f->u.take.len <= n->part_bytes);
	memcpy(sim_node_part(n, f->u.take.buf) + f->u.take.off, w->message + f->u.take.msg_off, f->u.take.len);
}

void sim_forward_continue(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	struct sim_node_job *j = &n->forwards[f->u.resume.forward];
	if (!j->is_waiting || j->is_busy || f->u.resume.id != j->id) {
		sim_world_fail(w, "node %d continues forward %u, which waits in no exchange", n->machine, f->u.resume.id);
		return;
	}
	w->counts.n_exchanges++;
	j->which = f->u.resume.which;
	j->parts_digest = parts_digest(n, j);
	start(w, n, j);
}

// ---- lm_head on the last stage

static uint64_t last_state(const struct sim_rows *r)
{
	return load_u64(r->data + CHAIN_ROW * (r->n_tokens - 1));
}

// reply puts what is wanted of each item where its buffer begins; `parts`: of everybody else's, too.
static void reply(struct sim_node *n, const struct sim_node_job *j, const struct sim_rows *rows, const uint8_t *const *parts)
{
	int32_t at = 0;
	for (int32_t i = 0; i < j->n; i++) {
		if (j->items[i].want == HEAD_NOTHING || rows[i].err != OK)
			continue;
		uint64_t h = last_state(&rows[i]), r = chain_reply(h, j->items[i].want);
		for (int32_t k = 0; parts != NULL && k < n->n_members; k++)
			r ^= k == n->member ? 0 : load_u64(parts[k] + CHAIN_ROW * at) ^ chain_part(h, k);
		store_u64(sim_node_buf(n, j->items[i].buf), r);
		at++;
	}
}

// go_to_head begins the last exchange, in which the first member gets something for each item that wants it; false: there is none.
static bool go_to_head(struct sim_world *w, struct sim_node *n, struct sim_node_job *j, const struct sim_rows *rows, uint8_t *own)
{
	uint32_t bytes = 0;
	for (int32_t i = 0; i < j->n; i++) {
		j->digests[i] = sim_mix_bytes(0, rows[i].data, (size_t)rows[i].n_tokens * w->model.row_kept); // states are final now
		if (j->items[i].want == HEAD_NOTHING)
			continue;
		store_u64(own + bytes, chain_part(last_state(&rows[i]), n->member));
		bytes += CHAIN_ROW;
	}
	for (int32_t i = 0; i < n->n_members; i++) {
		j->exchange.bytes[i] = n->member == 0 && i != 0 ? bytes : 0;
		j->exchange.to[i] = (struct split_sent){0, n->member != 0 && i == 0 ? bytes : 0};
	}
	j->exchange.own_at = 0;
	j->is_at_head = bytes > 0;
	w->counts.n_heads += j->is_at_head && n->member == 0;
	return j->is_at_head;
}

// next_exchange returns whether the engine waits for others now; else it is done, or cut when *was_cut.
static bool next_exchange(struct sim_world *w, struct sim_node *n, struct sim_node_job *j, struct sim_rows *rows, bool *was_cut)
{
	const uint8_t *parts[GROUP_MEMBERS_MAX];
	uint8_t *own = sim_node_part(n, node_part_buf(n->n_members, n->member, j->place, 0));
	if (j->which < 0) {
		bool waits = sim_engine_begin(n->engine, j->place, j->is_behind, j->layer_begin, j->layer_end, rows, j->n, own, &j->exchange);
		*was_cut = !waits;
		return waits;
	}
	if (parts_digest(n, j) != j->parts_digest)
		sim_world_fail(w, "node %d: a contribution changed while the engine worked on it", n->machine);
	for (int32_t i = 0; i < n->n_members; i++)
		parts[i] = i == n->member ? own + j->exchange.own_at : sim_node_part(n, node_part_buf(n->n_members, i, j->place, j->which));
	if (j->is_at_head) {
		j->is_at_head = false;
		if (n->member == 0)
			reply(n, j, rows, parts);
		return false;
	}
	return sim_engine_continue(n->engine, j->place, j->layer_begin, parts, own, &j->exchange) || go_to_head(w, n, j, rows, own);
}

// ---- done

static void tell_exchange(struct sim_world *w, struct sim_node *n, struct sim_node_job *j)
{
	struct node_event ev = {.type = NODE_EV_EXCHANGE};
	j->is_waiting = true;
	ev.u.exchange.id = j->id;
	ev.u.exchange.bytes = j->exchange.bytes;
	ev.u.exchange.to = j->exchange.to;
	ev.u.exchange.failed = 0;
	sim_node_step(w, n, &ev);
}

void sim_forward_on_done(struct sim_world *w, struct sim_node *n, uint32_t id)
{
	struct sim_node_job *j = n->forwards[0].is_busy && n->forwards[0].id == id ? &n->forwards[0] : &n->forwards[1];
	struct sim_rows rows[NODE_ITEMS_MAX];
	enum err errs[NODE_ITEMS_MAX];
	struct node_event ev = {.type = NODE_EV_FORWARD_DONE};
	j->is_busy = false;
	for (int32_t i = 0; i < j->n; i++) {
		const struct node_forward_item *it = &j->items[i];
		uint8_t *data = rows_of(w, n, it);
		if (sim_mix_bytes(0, data, (size_t)it->n_tokens * w->model.row_kept) != j->digests[i])
			sim_world_fail(w, "node %d: buffer %d changed while the engine worked on it", n->machine, it->buf);
		rows[i] = (struct sim_rows){.data = data, .slot = it->slot, .pos = it->pos, .n_tokens = it->n_tokens};
	}
	if (n->n_members == 0) {
		sim_engine_forward(n->engine, j->layer_begin, j->layer_end, rows, j->n);
		reply(n, j, rows, NULL);
		for (int32_t i = 0; i < j->n; i++)
			w->counts.n_heads += j->items[i].want != HEAD_NOTHING;
	} else if (next_exchange(w, n, j, rows, &ev.u.forward_done.was_cut)) {
		tell_exchange(w, n, j);
		return;
	}
	for (int32_t i = 0; i < j->n; i++) {
		errs[i] = rows[i].err;
		// Of a group another member may have been further, or have forgotten: then the answer begins again.
		if (errs[i] == ERR_RANGE && n->n_members == 0)
			sim_world_fail(w, "node %d: the engine was asked for position %d of slot %d before those in front of it", n->machine, rows[i].pos,
				rows[i].slot);
	}
	ev.u.forward_done.id = j->id;
	ev.u.forward_done.errs = errs;
	sim_node_step(w, n, &ev);
}
