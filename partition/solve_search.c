// The least T of each number of rounds: a fixed point of what the tables find below T (cost-model.md, section 7, step 4).
#include "partition/solve_inside.h"

#define NEWTON_STEPS 4   // before it bisects
#define STEPS_MAX 40
#define T_ENOUGH 1e-7    // relative
#define NEAR_ENOUGH 1.05 // plans that the closed form puts so near the best one may win before the judge

void solve_pass_run(struct solver *s, const struct solve_pass *q, struct solve_found *out)
{
	solve_table_fill(s, q);
	if (s->hops == SOLVE_HOPS_SUBSETS)
		solve_subsets(s, q, out);
	else
		solve_knapsack(s, q, out);
}

// build_plan makes a plan of what a pass found; *disk_s becomes the longest reading. false: no ring joins its devices.
static bool build_plan(
	struct solver *s, const struct solve_pass *q, const struct solve_found *found, struct cost_plan *p, double *disk_s)
{
	*p = (struct cost_plan){.head = s->w->head, .head_on_accel = s->head_on_accel, .n_rounds = q->n_rounds};
	*disk_s = 0;
	for (int32_t i = 0; i < s->n_seats; i++) {
		int32_t l = found->layers[i], n;
		if (l == 0)
			continue;
		solve_stage_s(s, q, i, l, &n);
		n = solve_streams_lower(s, q->n_rounds, i, l, n);
		*disk_s = solve_most(*disk_s, n * s->seats[i].read_s);
		p->stages[p->n_stages++] = (struct cost_stage){.device = s->seats[i].device, .n_layers = l, .n_streamed = n};
	}
	return solve_ring_order(s, p);
}

// search_rounds lowers T from value_cap_s: the sum found with disks that read at most T is a bound from below, the plan's own T one from above.
static void search_rounds(struct solver *s, struct solve_pass q, struct solve_found *room)
{
	struct cost_plan best;
	bool has_best = false;
	double low = 0, high = q.value_cap_s;
	for (int32_t i = 0; i < STEPS_MAX; i++) {
		bool is_mid = i > NEWTON_STEPS && low > 0;
		struct cost_plan p;
		double t = is_mid ? (low + high) / 2 : high, disk_s;
		q.disk_cap_s = q.value_cap_s = t;
		solve_pass_run(s, &q, room);
		double sum_s = room->is_found ? room->sum_s : INFINITY;
		if (!is_mid && !(sum_s < high * (1 - 1e-9)))
			break;
		if (sum_s > t) {
			low = t;
		} else {
			bool is_ring = build_plan(s, &q, room, &p, &disk_s);
			if (is_ring) {
				best = p;
				has_best = true;
			}
			low = solve_most(low, sum_s);
			high = solve_most(sum_s, disk_s);
			if (!is_ring)
				break;
		}
		if (high - low <= T_ENOUGH * high)
			break;
	}
	if (has_best)
		solve_keep(s, &best);
}

void solve_search(struct solver *s, struct solve_found *room)
{
	for (int32_t k = s->rounds_min; k <= s->rounds_max; k++) {
		for (int32_t disks = 0; disks < 2; disks++) {
			struct solve_pass q = {.n_rounds = k, .has_disks = disks, .costs = SOLVE_CLOSED, .stage_cap_s = INFINITY};
			q.value_cap_s = s->n_kept > 0 && s->goal.tpot_weight > 0
				? s->kept[0].score.token_s * NEAR_ENOUGH
				: INFINITY;
			search_rounds(s, q, room);
		}
	}
}
