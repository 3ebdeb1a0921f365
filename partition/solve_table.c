// Z_m(l; T): what l layers cost a device, with the streams that suit it best (cost-model.md, sections 4 and 7, step 1).
#include "partition/solve_inside.h"

#include "partition/plan.h"

#define JUDGED_TOKENS 24 // the judge's; a device may have read its window ahead when it begins to measure

static const struct solve_layout *layout_of(const struct solver *s, int32_t seat, int32_t l)
{
	return &s->layouts[(size_t)seat * (size_t)(s->n_layers + 1) + (size_t)l];
}

// place_layers asks the cost model where l layers of a device lie: one stage of a plan that need not be complete.
static struct solve_layout place_layers(const struct solver *s, const struct solve_seat *m, int32_t l)
{
	struct cost_plan one = {.head = s->w->head, .head_on_accel = s->head_on_accel, .n_rounds = 1, .n_stages = 1};
	one.stages[0] = (struct cost_stage){.device = m->device, .n_layers = l, .n_streamed = COST_STREAM_LEAST};
	struct cost_case c = {.cluster = s->w->cluster, .shape = s->w->shape, .plan = &one, .params = s->w->params};
	struct cost_layout at;
	if (l < 1 || cost_layout_of(&c, 0, &at, NULL) != OK)
		return (struct solve_layout){.n_slots = -1};
	int64_t slots = at.n_slots < INT32_MAX ? at.n_slots : INT32_MAX;
	return (struct solve_layout){.n_accel = at.n_accel, .n_units = at.n_units, .n_slots = (int32_t)slots};
}

void solve_seats_place(struct solver *s, bool head_on_accel)
{
	const struct cluster_device *head = &s->w->cluster->devices[s->w->head];
	double rate = head_on_accel ? head->accel_rate : cluster_cpu_rate(head, s->w->shape->type);
	s->head_on_accel = head_on_accel;
	s->head_s = (double)s->w->shape->head_bytes / rate;
	for (int32_t i = 0; i < s->n_seats; i++)
		for (int32_t l = 0; l <= s->n_layers; l++)
			s->layouts[(size_t)i * (size_t)(s->n_layers + 1) + (size_t)l] = place_layers(s, &s->seats[i], l);
}

// One visit: how many layers on the accelerator, units, and of them streamed.
struct visit {
	int32_t n_accel, n_units, n_streamed;
};

// What a device cannot read before its turn: nothing of what it streams, what a page cache evicted, which experts are used.
enum turn_reads { READS_AHEAD, READS_ALL, READS_USED };

static enum turn_reads reads_of(const struct solver *s)
{
	return s->w->params.policy == COST_LRU ? READS_ALL : s->w->shape->expert_share > 0 ? READS_USED : READS_AHEAD;
}

static double visit_s(const struct solve_seat *m, const struct visit *v, int32_t window, enum solve_costs costs, enum turn_reads reads)
{
	double work_s = m->visit_s + v->n_accel * m->accel_s + v->n_units * m->unit_s;
	if (reads == READS_ALL)
		return solve_most(work_s, v->n_streamed * m->read_least_s);
	if (reads == READS_USED)
		return solve_most(work_s, v->n_streamed * (costs == SOLVE_BOUND ? m->read_least_s : m->read_s));
	if (v->n_streamed <= window)
		return work_s;
	if (costs == SOLVE_BOUND) // the first unit beyond the window is read when the first has been computed
		return solve_most(work_s, m->visit_s + 2 * m->unit_least_s + (v->n_streamed - window) * m->read_least_s);
	double other_s = (v->n_accel * m->accel_s + (v->n_units - v->n_streamed) * m->unit_s) / v->n_streamed;
	return solve_most(work_s, m->visit_s + other_s + 2 * m->unit_s + (v->n_streamed - window) * m->read_s);
}

// work_least_s bounds the work of any l layers: those on the accelerator and those beside it each are at least so many of the smallest.
static double work_least_s(const struct solver *s, const struct solve_seat *m, const struct solve_layout *at, int32_t n_rounds)
{
	double mean = s->layer_mean_bytes, units = s->w->params.units_per_layer;
	double kv = (double)s->w->shape->kv_bytes * (double)s->w->params.kv_read, share = model_shape_read_share(s->w->shape, 1);
	int32_t n_cpu = at->n_units / s->w->params.units_per_layer;
	double accel = (share * s->bytes_least[at->n_accel] + at->n_accel * kv) / (share * mean + kv) * m->accel_s;
	double cpu = (share * s->bytes_least[n_cpu] + n_cpu * kv) / (share * mean + kv) * units * m->unit_s;
	return n_rounds * m->visit_s + accel + cpu;
}

double solve_visits_s(
	const struct solver *s, int32_t n_rounds, enum solve_costs costs, int32_t seat, int32_t l, int32_t n_streamed)
{
	const struct solve_seat *m = &s->seats[seat];
	const struct solve_layout *at = layout_of(s, seat, l);
	int32_t units = s->w->params.units_per_layer, window = at->n_slots - (at->n_units - n_streamed);
	enum turn_reads reads = reads_of(s);
	struct solve_seat other; // that reads more for each unit: what is not experts is streamed too
	double share = s->w->shape->expert_share, over = n_streamed - share * at->n_units;
	if (share > 0 && over > 0) {
		double used = model_shape_expert_share(s->w->shape, 1), more = (share * at->n_units * used + over) / (n_streamed * used);
		other = *m;
		other.read_s *= more;
		other.read_least_s *= more;
		m = &other;
	}
	if (costs == SOLVE_PREFILL) {
		double work_s = n_rounds * m->visit_s + at->n_accel * m->prefill_accel_s + at->n_units * m->prefill_unit_s;
		return solve_most(work_s, n_streamed * m->prefill_read_s);
	}
	double least_s = costs == SOLVE_BOUND && s->bytes_least ? work_least_s(s, m, at, n_rounds) : 0;
	if (n_streamed == 0)
		return least_s > 0 ? least_s : n_rounds * m->visit_s + at->n_accel * m->accel_s + at->n_units * m->unit_s;
	struct solve_seat smallest = *m; // a visit's layers may be the smallest ones, and be no accelerator's
	if (least_s > 0) {
		smallest.accel_s = 0;
		smallest.unit_s = m->unit_least_s;
		m = &smallest;
	}
	struct visit before = {0};
	double sum_s = 0;
	for (int32_t r = 0; r < n_rounds; r++) {
		int32_t layer = plan_round_begin(l, n_rounds, r + 1);
		struct visit until = {.n_accel = (int32_t)((int64_t)layer * at->n_accel / l)};
		until.n_units = (layer - until.n_accel) * units;
		until.n_streamed = (int32_t)((int64_t)until.n_units * n_streamed / at->n_units);
		struct visit v = {until.n_accel - before.n_accel, until.n_units - before.n_units, until.n_streamed - before.n_streamed};
		sum_s += visit_s(m, &v, window, costs, reads);
		before = until;
	}
	return solve_most(sum_s, least_s);
}

// streams_most returns the most units a disk reads within the pass's cap. The bound allows for what was read ahead when the judge began:
// T >= (n - q/24) rho.
static int32_t streams_most(const struct solve_pass *q, const struct solve_seat *m, const struct solve_layout *at)
{
	double n = q->disk_cap_s / m->read_s;
	if (q->costs == SOLVE_BOUND)
		n = (JUDGED_TOKENS * (q->disk_cap_s / m->read_least_s) + (at->n_slots - at->n_units)) / (JUDGED_TOKENS - 1);
	n = n * (1 + 1e-12) + 1e-9;
	return n < at->n_units ? (int32_t)n : at->n_units;
}

// choose_streams finds the best count between both ends. More streaming means a larger window, so that the most is hardly ever beaten; where
// rounds are unequal its neighbours or the fewest may win by a unit.
static double choose_streams(
	const struct solver *s, const struct solve_pass *q, int32_t seat, int32_t l, int32_t least, int32_t most, int32_t *n_streamed)
{
	int32_t tries[] = {least, least + (most - least) / 2, most - 2, most - 1, most};
	double best_s = INFINITY;
	bool grows = reads_of(s) == READS_USED; // nothing is won by a larger window then
	for (int32_t i = q->costs == SOLVE_BOUND && !grows ? (int32_t)ARRAY_LEN(tries) - 1 : 0; i < (grows ? 1 : (int32_t)ARRAY_LEN(tries)); i++) {
		if (tries[i] < least)
			continue;
		double t = solve_visits_s(s, q->n_rounds, q->costs, seat, l, tries[i]);
		if (t < best_s * (1 - SOLVE_EQUAL)) {
			best_s = t;
			*n_streamed = tries[i];
		}
	}
	return best_s;
}

double solve_stage_s(const struct solver *s, const struct solve_pass *q, int32_t seat, int32_t l, int32_t *n_streamed)
{
	const struct solve_seat *m = &s->seats[seat];
	const struct solve_layout *at = layout_of(s, seat, l);
	*n_streamed = 0;
	if (l < m->layers_min || l > m->layers_max || at->n_slots < 0)
		return INFINITY;
	// Both ends of the ring have the outer layers in their first or last round; that nobody else has fewer is for the sake of simplicity.
	bool is_end = s->hops == SOLVE_HOPS_SUBSETS && s->w->head_layers > 0 && m->is_trusted && q->costs == SOLVE_CLOSED;
	if (is_end && l < s->w->head_layers * q->n_rounds && l < s->n_layers)
		return INFINITY;
	double t;
	if (at->n_units <= at->n_slots) {
		t = solve_visits_s(s, q->n_rounds, q->costs, seat, l, 0);
	} else if (!q->has_disks || m->read_s == 0) {
		return INFINITY;
	} else if (s->w->params.policy == COST_LRU) {
		*n_streamed = at->n_units;
		t = at->n_units * m->read_least_s <= q->disk_cap_s ? solve_visits_s(s, q->n_rounds, q->costs, seat, l, at->n_units)
								      : INFINITY;
	} else {
		int32_t least = at->n_units - at->n_slots + 2, most = streams_most(q, m, at);
		t = most < least ? INFINITY : choose_streams(s, q, seat, l, least, most, n_streamed);
	}
	return t <= q->stage_cap_s ? t : INFINITY;
}

void solve_table_fill(struct solver *s, const struct solve_pass *q)
{
	for (int32_t i = 0; i < s->n_seats; i++) {
		double *row = &s->table[(size_t)i * (size_t)(s->n_layers + 1)];
		row[0] = s->seats[i].layers_min > 0 ? INFINITY : 0;
		for (int32_t l = 1; l <= s->n_layers; l++) {
			int32_t n_streamed;
			row[l] = solve_stage_s(s, q, i, l, &n_streamed);
		}
	}
}

int32_t solve_streams_least(const struct solver *s, int32_t seat, int32_t l)
{
	const struct solve_layout *at = layout_of(s, seat, l);
	if (at->n_units <= at->n_slots)
		return 0;
	return s->w->params.policy == COST_LRU ? at->n_units : at->n_units - at->n_slots + 2;
}

int32_t solve_streams_most(const struct solver *s, int32_t seat, int32_t l)
{
	const struct solve_layout *at = layout_of(s, seat, l);
	return at->n_units <= at->n_slots ? 0 : at->n_units;
}

int32_t solve_streams_lower(const struct solver *s, int32_t n_rounds, int32_t seat, int32_t l, int32_t n_streamed)
{
	const struct solve_layout *at = layout_of(s, seat, l);
	if (n_streamed == 0 || s->w->params.policy == COST_LRU)
		return n_streamed;
	double enough_s = solve_visits_s(s, n_rounds, SOLVE_CLOSED, seat, l, n_streamed) * (1 + SOLVE_EQUAL);
	int32_t low = at->n_units - at->n_slots + 2, high = n_streamed;
	while (low < high) { // visits become shorter with each unit more, but for a little where rounds are unequal
		int32_t n = low + (high - low) / 2;
		if (solve_visits_s(s, n_rounds, SOLVE_CLOSED, seat, l, n) > enough_s)
			low = n + 1;
		else
			high = n;
	}
	return high;
}
