// Where a plan's time goes (cost-model.md, section 8).
#include "partition/solve.h"

#define NEVER_RESTS (1 - 1e-3) // of a token's time a disk reads

static void account_stage(const struct cost_case *c, int32_t stage, const struct cost_verdict *v, struct solve_stage_account *out)
{
	const struct cost_stage *s = &c->plan->stages[stage];
	const struct cluster_device *d = &c->cluster->devices[s->device];
	const struct cost_device_share *share = &v->stages[stage];
	const struct cost_plan *p = c->plan;
	struct cost_layout l;
	if (cost_layout_of(c, stage, &l, NULL) != OK)
		return;
	double read_share = cost_streamed_share(c, &l, 1);
	int32_t n_over = l.n_units > l.n_slots ? (int32_t)(l.n_units - l.n_slots) : 0, k = p->n_rounds;
	int32_t next = stage + 1 < p->n_stages ? p->stages[stage + 1].device : p->stages[0].device;
	int32_t n_closing = stage + 1 < p->n_stages ? k : k - 1;
	*out = (struct solve_stage_account){.device = s->device,
		.n_layers = s->n_layers,
		.n_accel = l.n_accel,
		.n_streamed = l.n_streamed,
		.n_units = l.n_units,
		.accel_bytes = (uint64_t)l.n_accel * c->shape->layer_bytes,
		.pinned_bytes = l.pinned_bytes,
		.streamed_bytes = (uint64_t)((double)l.streamed_bytes * read_share),
		.window_bytes = (uint64_t)(l.window * l.unit_bytes),
		.overflow_s = n_over > 0 && d->disk_rate > 0 ? n_over * l.unit_bytes / d->disk_rate * read_share : 0,
		.busy_s = share->busy_s,
		.stall_s = share->stall_s,
		.read_s = share->read_s,
		.exchange_s = share->exchange_s};
	out->hop_s = n_closing > 0 ? n_closing * cost_hop_s(c, s->device, next, 1) : 0;
	if (stage + 1 == p->n_stages)
		out->hop_s += cost_hop_s(c, s->device, p->head, 1);
	double visits_s = share->busy_s + share->stall_s + share->exchange_s;
	double longest_s = visits_s > share->read_s ? visits_s : share->read_s;
	out->spare_s = v->token_s > longest_s ? v->token_s - longest_s : 0;
	out->term = share->stall_s > share->busy_s ? SOLVE_TERM_STALL : SOLVE_TERM_COMPUTE;
	if (share->exchange_s > share->busy_s && share->exchange_s > share->stall_s)
		out->term = SOLVE_TERM_EXCHANGES;
	if (share->read_s >= v->token_s * NEVER_RESTS && share->stall_s > 0)
		out->term = SOLVE_TERM_DISK;
}

static void find_bottleneck(struct solve_account *a)
{
	double most_s = a->hop_s;
	a->bottleneck = SOLVE_TERM_HOPS;
	a->bottleneck_stage = -1;
	if (a->head_s > most_s) {
		a->bottleneck = SOLVE_TERM_HEAD;
		most_s = a->head_s;
	}
	for (int32_t i = 0; i < a->n_stages; i++) {
		const struct solve_stage_account *s = &a->stages[i];
		if (s->busy_s + s->stall_s + s->exchange_s <= most_s)
			continue;
		most_s = s->busy_s + s->stall_s + s->exchange_s;
		a->bottleneck = s->term;
		a->bottleneck_stage = i;
	}
	for (int32_t i = 0; i < a->n_stages; i++) { // whoever waits for it, waits in vain
		if (a->stages[i].term != SOLVE_TERM_DISK)
			continue;
		a->bottleneck = SOLVE_TERM_DISK;
		a->bottleneck_stage = i;
	}
}

enum err solve_account_for(const struct cost_case *c, struct arena *scratch, struct solve_account *out)
{
	struct cost_verdict v;
	double exposed_s = 0;
	*out = (struct solve_account){.bottleneck_stage = -1};
	enum err e = cost_judge(c, scratch, &v);
	if (e != OK)
		return e;
	*out = (struct solve_account){.token_s = v.token_s, .hop_s = v.hop_s, .head_s = v.head_s, .n_stages = c->plan->n_stages};
	for (int32_t i = 0; i < out->n_stages; i++) {
		struct solve_stage_account *s = &out->stages[i];
		account_stage(c, i, &v, s);
		out->busy_s += s->busy_s;
		out->stall_s += s->stall_s;
		out->exchange_s += s->exchange_s;
		exposed_s += s->overflow_s > s->busy_s ? s->overflow_s - s->busy_s : 0;
	}
	out->is_tight = exposed_s > out->hop_s;
	find_bottleneck(out);
	return OK;
}
