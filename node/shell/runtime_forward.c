// Computing: batches of a stage, and turns of a group's member, on the worker.
#include "node/shell/runtime_state.h"

#include "base/assert.h"

bool runtime_is_computing(const struct node_runtime *rt)
{
	for (int32_t i = 0; i < NODE_FORWARDS_MAX; i++)
		if (rt->forwards[i].is_busy)
			return true;
	return false;
}

// stalls returns for how long computing has waited for the disk so far. On the worker, like the two below.
static int64_t stalls(const struct node_runtime *rt)
{
	struct residency_stats s;
	stage_work_weight_stats(rt->work, &s);
	return s.stall_ns;
}

// has_weights: a HOLD may have failed to read them, which every item says then.
static bool has_weights(struct rt_job *j)
{
	const struct rt_job *h = &j->rt->holding;
	for (int32_t i = 0; h->err != OK && i < j->n_items; i++)
		j->items[i].err = errmsg_fail(&j->items[i].em, h->err, "%s", h->em.text);
	return h->err == OK;
}

static void run_forward(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
	j->begin_ns = loop_clock_ns();
	j->stall_ns = 0;
	if (!has_weights(j))
		return;
	int64_t stall_ns = stalls(j->rt);
	stage_work_forward(j->rt->work, j->layer_begin, j->layer_end, j->items, j->n_items);
	j->stall_ns = stalls(j->rt) - stall_ns;
}

// run_turn computes as far as the next exchange of a group: the first, or the one behind that whose contributions are here.
static void run_turn(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
	struct node_runtime *rt = j->rt;
	const uint8_t *parts[GROUP_MEMBERS_MAX];
	uint8_t *own = rt->parts + (size_t)node_part_buf(rt->n_members, rt->member, j->turn.forward, 0) * rt->part_bytes;
	if (!has_weights(j)) {
		j->turn = (struct stage_turn){.forward = j->turn.forward, .is_behind = j->turn.is_behind, .was_cut = true};
		return;
	}
	for (int32_t i = 0; i < rt->n_members; i++)
		parts[i] = rt->parts + (size_t)node_part_buf(rt->n_members, i, j->turn.forward, j->which < 0 ? 0 : j->which) * rt->part_bytes;
	if (j->which < 0)
		stage_work_member_begin(rt->work, j->layer_begin, j->layer_end, j->items, j->n_items, own, &j->turn);
	else
		stage_work_member_continue(rt->work, parts, own, &j->turn);
}

// cost_of says what a batch took, in the terms of a device's profile.
static struct node_cost cost_of(const struct rt_job *j)
{
	const struct node_runtime *rt = j->rt;
	const struct hparams *hp = model_hparams(rt->p.model);
	uint64_t n_layers = (uint64_t)(j->layer_end - j->layer_begin), row = (uint64_t)hp->n_kv_heads * (uint64_t)hp->head_dim * 2 * sizeof(uint16_t);
	int64_t ns = j->end_ns - j->begin_ns - j->stall_ns;
	return (struct node_cost){
		.compute_ns = ns > 0 ? (uint64_t)ns : 0,
		.weight_bytes = rt->layer_bytes[j->layer_end] - rt->layer_bytes[j->layer_begin] + n_layers * row * ((uint64_t)j->items[0].pos + 1),
		.token_flop = rt->layer_flop[j->layer_end] - rt->layer_flop[j->layer_begin],
	};
}

void runtime_on_forward(void *ctx)
{
	struct rt_job *j = ctx;
	j->is_busy = false;
	if (j->rt->n_members > 0 && j->turn.waits) {
		struct node_event ev = {.type = NODE_EV_EXCHANGE};
		ev.u.exchange.id = j->id;
		ev.u.exchange.bytes = j->turn.bytes;
		ev.u.exchange.to = j->turn.to;
		ev.u.exchange.failed = j->turn.failed;
		runtime_step(j->rt, &ev);
		return;
	}
	for (int32_t i = 0; i < j->n_items; i++) {
		j->errs[i] = j->items[i].err;
		j->texts[i] = j->items[i].em.text;
	}
	struct node_event ev = {.type = NODE_EV_FORWARD_DONE};
	ev.u.forward_done.id = j->id;
	ev.u.forward_done.errs = j->errs;
	ev.u.forward_done.texts = j->texts;
	ev.u.forward_done.weights = runtime_weight_report(j->rt);
	if (j->rt->n_members == 0)
		ev.u.forward_done.cost = cost_of(j);
	ev.u.forward_done.was_cut = j->rt->n_members > 0 && j->turn.was_cut;
	runtime_step(j->rt, &ev);
	runtime_leave_if_changed(j->rt, j->errs[0]);
}

void runtime_fx_forward(struct node_runtime *rt, const struct node_effect *f)
{
	struct rt_job *j = &rt->forwards[f->u.forward.forward];
	if (rt->p.blocks != NULL)
		node_blocks_note_work(rt->p.blocks);
	j->id = f->u.forward.id;
	j->layer_begin = f->u.forward.layer_begin;
	j->layer_end = f->u.forward.layer_end;
	j->n_items = f->u.forward.n_items;
	for (int32_t i = 0; i < j->n_items; i++) {
		const struct node_forward_item *it = &f->u.forward.items[i];
		j->items[i] = (struct stage_item){
			.wire = rt->bufs + (size_t)it->buf * rt->buf_bytes + (size_t)it->row * rt->row_bytes, .slot = it->slot, .pos = it->pos, .n_tokens = it->n_tokens,
			.want = it->want};
	}
	j->which = -1;
	j->turn.forward = f->u.forward.forward;
	j->turn.is_behind = f->u.forward.is_behind;
	runtime_job_start(rt, j, rt->n_members > 0 ? run_turn : run_forward);
}

void runtime_fx_continue(struct node_runtime *rt, const struct node_effect *f)
{
	struct rt_job *j = &rt->forwards[f->u.resume.forward];
	ASSERT(j->id == f->u.resume.id);
	j->which = f->u.resume.which;
	runtime_job_start(rt, j, run_turn);
}
