// What no plan beats: the tables again, with costs that the judge is never below.
#include "partition/solve_inside.h"

#define STEPS 6
#define ROUNDING (1 - 1e-9) // sums in another order than the judge's

// bound_rounds raises the bound for one number of rounds. What a pass finds when disks may read for t is a bound for every plan that takes at
// most t; when that is t or more there is no such plan.
static double bound_rounds(struct solver *s, int32_t n_rounds, struct solve_found *room, double token_s)
{
	double low = 0, high = token_s;
	for (int32_t i = 0; i < STEPS && high - low > 1e-6 * high; i++) {
		double t = i == 0 ? token_s : (low + high) / 2;
		struct solve_pass q = {.n_rounds = n_rounds,
			.has_disks = true,
			.costs = SOLVE_BOUND,
			.disk_cap_s = t,
			.stage_cap_s = INFINITY,
			.value_cap_s = token_s * (1 + 1e-9)};
		solve_pass_run(s, &q, room);
		if (room->sum_s >= t) {
			low = t;
		} else {
			low = solve_most(low, room->sum_s);
			high = t;
		}
	}
	return low;
}

// bound_prompt is what reading all weights once takes where they are read fastest: each chunk does it.
static double bound_prompt(const struct solver *s)
{
	int32_t n = s->goal.n_prompt < s->goal.chunk ? s->goal.n_prompt : s->goal.chunk;
	double rate = 0, layers = s->layer_mean_bytes * s->n_layers * model_shape_read_share(s->w->shape, n);
	for (int32_t i = 0; i < s->n_seats; i++) {
		const struct cluster_device *d = &s->w->cluster->devices[s->seats[i].device];
		rate = solve_most(rate, cluster_cpu_rate(d, s->w->shape->type));
		rate = d->accel_bytes > 0 ? solve_most(rate, d->accel_rate) : rate;
	}
	return layers / rate;
}

double solve_bound(struct solver *s, struct solve_found *room)
{
	const struct solve_goal *g = &s->goal;
	double token_s = s->kept[0].score.token_s;
	if (s->hops == SOLVE_HOPS_SUBSETS && s->w->head_layers > 0)
		solve_subsets_init(s, false);
	for (int32_t on_accel = 0; on_accel < 2; on_accel++) {
		if (!solve_head_fits(s->w, on_accel))
			continue;
		solve_seats_place(s, on_accel);
		for (int32_t k = 1; k <= s->rounds_max; k++)
			if (k == 1 || k >= s->rounds_min) // a machine alone has one round, whatever is wanted
				token_s = solve_least(token_s, bound_rounds(s, k, room, token_s));
	}
	double sum_s = g->tpot_weight * token_s;
	if (g->streams_weight > 0) // a batch takes no less than a token
		sum_s += g->streams_weight * token_s / g->n_streams;
	if (g->ttft_weight > 0)
		sum_s += g->ttft_weight * bound_prompt(s);
	return sum_s * ROUNDING;
}
