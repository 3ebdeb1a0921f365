#include "engine/member.h"

#include "base/assert.h"
#include "engine/expert_ffn.h"
#include "engine/lane_sums.h"
#include "engine/layer_parts.h"
#include "engine/member_run.h"

#include <stdlib.h>

struct member_run *member_run_open(struct engine *e)
{
	struct member_run *r = calloc(1, sizeof *r);
	if (r != NULL)
		r->crew.e = e;
	return r;
}

void member_run_close(struct member_run *r)
{
	free(r);
}

// quantise_own makes what this member contributes, for this hand's tokens.
static void quantise_own(struct hand *h, const struct gathered *g)
{
	struct engine *e = h->crew->e;
	struct split_columns c = gathered_columns(e, g, e->c.member);
	int32_t begin, end;
	crew_tokens(h, &begin, &end);
	for (int32_t t = begin; g->kind != ACT_F32 && t < end; t++)
		acts_quantise_blocks(e->c.kernels, &g->in->acts[g->kind], t, c.blocks.begin, c.blocks.end);
}

// complete makes of all contributions what the product takes, for this hand's tokens: sums of blocks that came, and blocks that several share.
static void complete(struct hand *h, const struct gathered *g)
{
	struct engine *e = h->crew->e;
	const struct acts *a = &g->in->acts[g->kind];
	int32_t begin, end;
	crew_tokens(h, &begin, &end);
	for (int32_t t = begin; g->kind != ACT_F32 && t < end; t++) {
		int32_t at = 0;
		for (int32_t m = 0; m < e->split.n_members; m++) {
			struct split_columns c = gathered_columns(e, g, m);
			if (split_len(c.blocks) == 0)
				continue;
			if (m != e->c.member)
				acts_sum_blocks(a, t, c.blocks.begin, c.blocks.end);
			acts_quantise_blocks(e->c.kernels, a, t, at, c.blocks.begin);
			at = c.blocks.end;
		}
		acts_quantise_blocks(e->c.kernels, a, t, at, g->in->cols / g->block);
	}
}

// ---- computing

// sum_nodes computes this member's nodes, as they travel.
static void sum_nodes(struct hand *h, struct lane_sum s)
{
	lane_sum_nodes(h, s);
	if (h->crew->e->split.payload == WIRE_F32)
		return;
	crew_end_phase(h);
	lane_sum_round(h, s);
}

static bool attend(struct hand *h, int32_t layer)
{
	struct engine *e = h->crew->e;
	struct gathered g = gathered_of(e, layer, EXCHANGE_ATTENDED);
	if (!layer_attend(h, layer))
		return false;
	if (split_has_o_lanes(e->split.mode))
		sum_nodes(h, (struct lane_sum){layer, true});
	else
		quantise_own(h, &g);
	return true;
}

static bool ffn(struct hand *h, int32_t layer)
{
	struct engine *e = h->crew->e;
	if (e->split.mode == SPLIT_REDUCE)
		lane_sum_join(h, (struct lane_sum){layer, true});
	layer_add(h);
	layer_norm_ffn(h, layer);
	if (e->hp.n_experts > 0)
		return expert_ffn_block(h, layer);
	struct gathered g = gathered_of(e, layer, EXCHANGE_GATED);
	if (!layer_gate_up(h, layer))
		return false;
	if (split_has_lanes(e->split.mode))
		sum_nodes(h, (struct lane_sum){layer, false});
	else
		quantise_own(h, &g);
	return true;
}

static void end_layer(struct hand *h, int32_t layer)
{
	struct engine *e = h->crew->e;
	if (e->hp.n_experts > 0)
		expert_ffn_add(h);
	if (split_completes_all(e->split.mode))
		lane_sum_join(h, (struct lane_sum){layer, false});
	layer_add(h);
	layer_end(h, layer);
}

bool member_at_hop(const struct member_run *r)
{
	const struct engine *e = r->crew.e;
	enum split_exchange x = r->at.kind;
	bool is_of_o = x == EXCHANGE_O_NODES || x == EXCHANGE_O, is_of_down = x == EXCHANGE_NODES || x == EXCHANGE_DOWN;
	return split_is_ring(e->split.mode) && ((is_of_o && split_has_o_lanes(e->split.mode)) || is_of_down);
}

// has_next_hop: the round of a ring goes on.
static bool has_next_hop(const struct member_run *r)
{
	return member_at_hop(r) && r->at.hop + 1 < split_hops(r->crew.e->split.n_members);
}

// run_hop makes of what came in a hop what is passed on in the next one; completed sums are as they came.
static void run_hop(void *ctx, int32_t thread_idx, int32_t n_threads)
{
	struct member_run *r = ctx;
	struct hand h = {.crew = &r->crew, .idx = thread_idx, .n_hands = n_threads};
	lane_sum_pass(&h, (struct lane_sum){r->at.layer, r->at.kind == EXCHANGE_O_NODES}, r->at.hop);
}

static void run_step(void *ctx, int32_t thread_idx, int32_t n_threads)
{
	struct member_run *r = ctx;
	struct hand h = {.crew = &r->crew, .idx = thread_idx, .n_hands = n_threads};
	struct engine *e = r->crew.e;
	struct gathered g;
	switch (r->step) {
	case STEP_ATTEND:
		if (r->layer == r->crew.layer_begin)
			layer_rope(&h);
		else
			end_layer(&h, r->layer - 1);
		attend(&h, r->layer);
		break;
	case STEP_O:
		if (split_has_o_lanes(e->split.mode)) {
			lane_sum_join(&h, (struct lane_sum){r->layer, true});
			break;
		}
		g = gathered_of(e, r->layer, EXCHANGE_ATTENDED);
		complete(&h, &g);
		layer_o(&h, r->layer);
		break;
	case STEP_FFN:
		ffn(&h, r->layer);
		break;
	case STEP_DOWN:
		if (split_has_lanes(e->split.mode)) {
			lane_sum_join(&h, (struct lane_sum){r->layer, false});
			break;
		}
		g = gathered_of(e, r->layer, EXCHANGE_GATED);
		complete(&h, &g);
		layer_down(&h, r->layer);
		break;
	case STEP_END:
		end_layer(&h, r->layer - 1);
		break;
	}
}

// advance names what the step that was computed waits for, and what comes then.
static void advance(struct member_run *r)
{
	const struct engine *e = r->crew.e;
	bool has_experts = e->hp.n_experts > 0;
	r->at.layer = r->layer;
	r->at.hop = 0;
	switch (r->step) {
	case STEP_ATTEND:
		r->at.kind = split_has_o_lanes(e->split.mode) ? EXCHANGE_O_NODES : EXCHANGE_ATTENDED;
		r->step = e->split.mode == SPLIT_REDUCE ? STEP_FFN : STEP_O;
		return;
	case STEP_O:
		r->at.kind = EXCHANGE_O;
		r->step = STEP_FFN;
		return;
	case STEP_FFN:
		r->at.kind = has_experts ? EXCHANGE_EXPERTS : split_has_lanes(e->split.mode) ? EXCHANGE_NODES : EXCHANGE_GATED;
		r->step = STEP_DOWN;
		if (!has_experts && !split_completes_all(e->split.mode))
			return;
		break;
	case STEP_DOWN:
		r->at.kind = EXCHANGE_DOWN;
		break;
	case STEP_END:
		r->is_running = false;
		return;
	}
	r->layer++;
	r->step = r->layer == r->crew.layer_end ? STEP_END : STEP_ATTEND;
}

// other_of returns the forward beside the one that calls are about; NULL: none is under way.
static struct member_run *other_of(const struct engine *e)
{
	struct member_run *r = e->members[1 - e->run];
	return r != NULL && r->is_running ? r : NULL;
}

static const struct engine_item *item_of_slot(const struct member_run *r, int32_t slot)
{
	for (int32_t i = 0; r != NULL && i < r->n_items; i++)
		if (r->items[i].slot == slot)
			return &r->items[i];
	return NULL;
}

void member_use(struct engine *e, int32_t forward)
{
	ASSERT(forward >= 0 && forward < MEMBER_FORWARDS_MAX);
	ASSERT(e->members[forward] != NULL);
	if (forward == e->run)
		return;
	engine_store_run(e, &e->runs[e->run]);
	engine_fetch_run(e, &e->runs[forward]);
	e->run = forward;
	e->member = e->members[forward];
}

// lend_positions counts those that an older forward is about to compute as computed, or takes that back.
static void lend_positions(struct engine *e, const struct member_run *older, int32_t layer_begin, int32_t layer_end, bool is_lent)
{
	for (int32_t i = 0; older != NULL && i < older->n_items; i++) {
		const struct engine_item *it = &older->items[i];
		for (int32_t layer = layer_begin; layer < layer_end; layer++) {
			int32_t *n = engine_computed(e, layer, it->slot);
			*n += is_lent ? it->n_tokens : -it->n_tokens;
		}
	}
}

// forget_others: a forward of the same slots that this one is not behind has been given up.
static void forget_others(struct engine *e, const struct engine_item *items, int32_t n_items)
{
	struct member_run *other = other_of(e);
	for (int32_t i = 0; i < n_items && other != NULL; i++)
		if (item_of_slot(other, items[i].slot) != NULL)
			other->is_running = false;
}

static enum err begin(struct engine *e, int32_t layer_begin, int32_t layer_end, struct engine_item *items, int32_t n_items, bool is_behind, struct errmsg *em)
{
	struct member_run *r = e->member;
	ASSERT(r != NULL);
	ASSERT(layer_begin < layer_end);
	ASSERT(engine_runs(e, layer_begin, layer_end));
	*r = (struct member_run){.crew = {.e = e, .layer_begin = layer_begin, .layer_end = layer_end}, .is_behind = is_behind, .items = items,
		.n_items = n_items, .layer = layer_begin};
	if (!is_behind)
		forget_others(e, items, n_items);
	const struct member_run *older = is_behind ? other_of(e) : NULL;
	lend_positions(e, older, layer_begin, layer_end, true);
	enum err err = layer_take_batch(&r->crew, items, n_items, em);
	lend_positions(e, older, layer_begin, layer_end, false);
	if (err != OK)
		return err;
	for (int32_t i = 0; i < n_items; i++) {
		items[i].fault = (struct engine_fault){0};
		for (int32_t layer = layer_begin; layer < layer_end; layer++) {
			int32_t *n = engine_computed(e, layer, items[i].slot);
			*n = *n < items[i].pos_begin ? *n : items[i].pos_begin;
		}
	}
	r->is_running = r->crew.n_tokens > 0;
	return OK;
}

enum err member_begin(struct engine *e, int32_t layer_begin, int32_t layer_end, struct engine_item *items, int32_t n_items, struct errmsg *em)
{
	return begin(e, layer_begin, layer_end, items, n_items, false, em);
}

enum err member_begin_behind(struct engine *e, int32_t layer_begin, int32_t layer_end, struct engine_item *items, int32_t n_items, struct errmsg *em)
{
	return begin(e, layer_begin, layer_end, items, n_items, true, em);
}

// fail_unfounded: what an item builds on has failed in the forward before, or was never computed.
static void fail_unfounded(struct member_run *r)
{
	struct engine *e = r->crew.e;
	for (int32_t i = 0, at = 0; i < r->n_items; at += r->items[i++].n_tokens)
		for (int32_t layer = r->crew.layer_begin; layer < r->crew.layer_end; layer++)
			if (*engine_computed(e, layer, r->items[i].slot) < r->items[i].pos_begin)
				e->tokens[at].fault = (struct engine_fault){ERR_RANGE, layer, r->items[i].pos_begin, false, 0};
}

// settle ends a forward. Positions that the one behind it computes again are its own to count.
static enum err settle(struct member_run *r, struct errmsg *em)
{
	struct engine *e = r->crew.e;
	const struct member_run *behind = other_of(e);
	if (r->is_behind)
		fail_unfounded(r);
	enum err err = layer_settle_batch(&r->crew, r->items, r->n_items, em);
	for (int32_t i = 0; behind != NULL && behind->is_behind && i < behind->n_items; i++) {
		for (int32_t layer = behind->crew.layer_begin; layer < behind->crew.layer_end; layer++) {
			int32_t *n = engine_computed(e, layer, behind->items[i].slot);
			*n = *n < behind->items[i].pos_begin ? *n : behind->items[i].pos_begin;
		}
	}
	return err == ERR_RANGE && r->crew.err == OK ? ERR_NON_FINITE : err; // an item's
}

enum err member_compute(struct engine *e, bool *waits, struct member_exchange *at, struct errmsg *em)
{
	struct member_run *r = e->member;
	*waits = false;
	if (!r->is_running)
		return OK;
	r->crew.em = em;
	atomic_store_explicit(&r->crew.next[0], 0, memory_order_relaxed);
	bool is_hop = has_next_hop(r);
	if (!is_hop || r->at.kind == EXCHANGE_O_NODES || r->at.kind == EXCHANGE_NODES)
		pool_run(e->c.pool, is_hop ? run_hop : run_step, r);
	if (r->crew.err != OK)
		r->is_running = false;
	else if (is_hop)
		r->at.hop++;
	else
		advance(r);
	*waits = r->is_running;
	*at = r->at;
	return r->is_running ? OK : settle(r, em);
}

bool member_has_failed(const struct engine *e, int32_t item)
{
	const struct member_run *r = e->member;
	int32_t begin = 0;
	bool has_failed = false;
	for (int32_t i = 0; i < item; i++)
		begin += r->items[i].n_tokens;
	for (int32_t t = 0; t < r->items[item].n_tokens; t++)
		has_failed = has_failed || e->tokens[begin + t].fault.err != OK;
	return has_failed;
}
