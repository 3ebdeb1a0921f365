// The least T of each number of rounds: a fixed point of what the tables find below T (cost-model.md, section 7, step 4).
#include "partition/solve_inside.h"

#define NEWTON_STEPS 4   // before it bisects
#define STEPS_MAX 40
#define T_ENOUGH 1e-7    // relative
#define NEAR_ENOUGH 1.10 // plans that the closed form puts so near the best one may win before the judge
#define STREAM_STEPS 20
#define PROMPT_STEPS 16
#define PROMPT_STEP 0.9
#define PAIRS_MAX 12     // of trusted seats, for each k

void solve_pass_run(struct solver *s, const struct solve_pass *q, struct solve_found *out)
{
	solve_table_fill(s, q);
	if (s->hops == SOLVE_HOPS_SUBSETS)
		solve_subsets(s, q, out);
	else
		solve_knapsack(s, q, out);
}

// build_plan makes a plan of what a pass found, in no order yet; *disk_s becomes the longest reading.
static void build_plan(
	const struct solver *s, const struct solve_pass *q, const struct solve_found *found, struct cost_plan *p, double *disk_s)
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
			build_plan(s, &q, room, &p, &disk_s);
			best = p;
			has_best = true;
			low = solve_most(low, sum_s);
			high = solve_most(sum_s, disk_s);
		}
		if (high - low <= T_ENOUGH * high)
			break;
	}
	if (has_best && solve_ring_order(s, &best))
		solve_keep(s, &best);
}

// keep_found keeps what a pass found; *longest_s becomes its longest stage.
static void keep_found(struct solver *s, const struct solve_pass *q, const struct solve_found *found, double *longest_s)
{
	struct cost_plan p;
	double disk_s;
	*longest_s = 0;
	for (int32_t i = 0; i < s->n_seats; i++)
		if (found->layers[i] > 0)
			*longest_s = solve_most(*longest_s, s->table[(size_t)i * (size_t)(s->n_layers + 1) + (size_t)found->layers[i]]);
	build_plan(s, q, found, &p, &disk_s);
	if (solve_ring_order(s, &p))
		solve_keep(s, &p);
}

// search_streams looks for the longest stage X at which n streams are bound as much by it as by the ring: F(X) / n = X.
static void search_streams(struct solver *s, struct solve_found *room)
{
	struct solve_pass q = {.n_rounds = s->rounds_min, .costs = SOLVE_CLOSED, .disk_cap_s = INFINITY, .value_cap_s = INFINITY};
	double low = 0, high = INFINITY, longest_s;
	for (int32_t i = 0; i < STREAM_STEPS; i++) {
		q.stage_cap_s = i == 0 ? INFINITY : (low + high) / 2;
		solve_pass_run(s, &q, room);
		if (room->is_found)
			keep_found(s, &q, room, &longest_s);
		if (i == 0 && !room->is_found)
			return;
		if (i == 0)
			high = longest_s;
		else if (room->is_found && room->sum_s / s->goal.n_streams <= q.stage_cap_s)
			high = q.stage_cap_s;
		else
			low = q.stage_cap_s;
	}
}

// search_prompt lowers the longest stage step by step: c chunks take the sum of all stages once and the longest c - 1 times.
static void search_prompt(struct solver *s, struct solve_found *room)
{
	for (int32_t disks = 0; disks < 2; disks++) {
		struct solve_pass q = {.n_rounds = s->rounds_min,
			.has_disks = disks,
			.costs = SOLVE_PREFILL,
			.disk_cap_s = INFINITY,
			.stage_cap_s = INFINITY,
			.value_cap_s = INFINITY};
		double longest_s;
		for (int32_t i = 0; i < PROMPT_STEPS; i++) {
			solve_pass_run(s, &q, room);
			if (!room->is_found)
				break;
			keep_found(s, &q, room, &longest_s);
			q.stage_cap_s = longest_s * PROMPT_STEP;
		}
	}
}

static void search_tokens(struct solver *s, struct solve_found *room, int32_t n_rounds)
{
	for (int32_t disks = 0; disks < 2; disks++) {
		struct solve_pass q = {.n_rounds = n_rounds, .has_disks = disks, .costs = SOLVE_CLOSED, .stage_cap_s = INFINITY};
		bool is_time = s->n_kept > 0 && s->goal.tpot_weight > 0 && s->goal.streams_weight <= 0 && s->goal.ttft_weight <= 0;
		q.value_cap_s = is_time ? s->kept[0].score.token_s * NEAR_ENOUGH : INFINITY;
		search_rounds(s, q, room);
	}
}

// search_pairs makes pairs of trusted seats the two ends of the ring: the knapsack knows no ends. The head and the fastest come first.
static void search_pairs(struct solver *s, struct solve_found *room, int32_t n_rounds)
{
	int32_t least = s->w->head_layers * n_rounds, n_tried = 0;
	for (int32_t a = -1; a < s->n_seats && n_tried < PAIRS_MAX; a++) {
		int32_t first = a < 0 ? s->head_seat : a;
		if (first < 0 || !s->seats[first].is_trusted || least > s->seats[first].layers_max || (a >= 0 && first == s->head_seat))
			continue;
		for (int32_t last = 0; last < s->n_seats && n_tried < PAIRS_MAX; last++) {
			struct solve_seat *x = &s->seats[first], *y = &s->seats[last];
			int32_t x_min = x->layers_min, y_min = y->layers_min;
			if (last == first || (a >= 0 && last < first) || !y->is_trusted || least > y->layers_max)
				continue;
			n_tried++;
			x->layers_min = x_min > least ? x_min : least;
			y->layers_min = y_min > least ? y_min : least;
			search_tokens(s, room, n_rounds);
			x->layers_min = x_min;
			y->layers_min = y_min;
		}
	}
}

void solve_search(struct solver *s, struct solve_found *room)
{
	for (int32_t k = s->rounds_min; k <= s->rounds_max; k++) {
		search_tokens(s, room, k);
		if (s->w->head_layers > 0 && s->hops != SOLVE_HOPS_SUBSETS)
			search_pairs(s, room, k);
	}
	if (s->goal.streams_weight > 0)
		search_streams(s, room);
	if (s->goal.ttft_weight > 0)
		search_prompt(s, room);
}
