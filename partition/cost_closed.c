// The closed form (cost-model.md, section 4): what a visit takes once the ring runs steadily.
#include "partition/cost.h"

#include "base/assert.h"
#include "partition/cost_round.h"

#define CANDIDATES_MAX 48 // streamed counts tried per device, when there are more
#define SWEEPS_MAX 8      // over all devices

// One visit's sums.
struct visit_sums {
	double work_s; // c: with the fixed cost
	double unit_s; // of its streamed units together: n_r p
	double read_s; // of reading them: n_r rho
	int32_t n;     // n_r
	double unit_least_s, read_least_s; // of one streamed unit
};

// has_equal_parts: a group's members, of which many plans are compared, are not summed layer by layer where all layers are equal.
static bool has_equal_parts(const struct cost_case *c)
{
	return c->part != NULL && c->shape->bytes_of_layer == NULL;
}

static struct visit_sums sum_equal(const struct cost_case *c, int32_t stage, const struct cost_layout *l, int32_t round)
{
	const struct cluster_device *d = cost_device_of(c, stage);
	const struct cost_batch b = cost_decode(c->params.kv_read);
	struct cost_round at = cost_round_begin(c, stage, l, round);
	int32_t n_layers = at.n_left, n_accel = cost_spread_take(&at.accel, n_layers), n_units = (n_layers - n_accel) * c->params.units_per_layer;
	struct visit_sums v = {.work_s = d->visit_s, .n = cost_spread_take(&at.streamed, n_units)};
	v.work_s += n_accel > 0 ? n_accel * cost_accel_s(c, d, 0, &b) : 0;
	if (n_units == 0)
		return v;
	v.unit_least_s = cost_unit_s(c, d, 0, &b);
	v.work_s += n_units * v.unit_least_s;
	if (v.n == 0)
		return v;
	v.read_least_s = cost_read_s(c, d, 0, l, &b);
	v.unit_s = v.n * v.unit_least_s;
	v.read_s = v.n * v.read_least_s;
	return v;
}

static struct visit_sums sum_visit(const struct cost_case *c, int32_t stage, const struct cost_layout *l, int32_t round)
{
	if (has_equal_parts(c))
		return sum_equal(c, stage, l, round);
	const struct cluster_device *d = cost_device_of(c, stage);
	const struct cost_batch b = cost_decode(c->params.kv_read);
	struct cost_round at = cost_round_begin(c, stage, l, round);
	struct visit_sums v = {.work_s = d->visit_s};
	struct cost_item item;
	while (cost_round_next(&at, &item)) {
		if (item.on_accel) {
			v.work_s += cost_accel_s(c, d, item.layer, &b);
			continue;
		}
		double unit_s = cost_unit_s(c, d, item.layer, &b);
		int32_t n = cost_spread_take(&at.streamed, c->params.units_per_layer);
		v.work_s += unit_s * c->params.units_per_layer;
		if (n == 0)
			continue;
		double read_s = cost_read_s(c, d, item.layer, l, &b);
		v.unit_least_s = v.n == 0 || unit_s < v.unit_least_s ? unit_s : v.unit_least_s;
		v.read_least_s = v.n == 0 || read_s < v.read_least_s ? read_s : v.read_least_s;
		v.unit_s += unit_s * n;
		v.read_s += read_s * n;
		v.n += n;
	}
	return v;
}

// other_s is y: the other work between two streamed units.
static double other_s(const struct visit_sums *v, double visit_s)
{
	return v->n > 0 ? (v->work_s - visit_s - v->unit_s) / v->n : 0;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double visit_z(const struct cost_case *c, const struct visit_sums *v, const struct cluster_device *d, int32_t window)
{
	if (v->n == 0)
		return v->work_s;
	if (c->params.policy == COST_LRU || cost_reads_in_turn(c))
		return larger(v->work_s, v->read_s);
	if (c->params.policy == COST_DEMAND)
		return v->work_s + larger(0, v->read_s - v->unit_s);
	if (v->n <= window || c->params.policy == COST_LRU_AHEAD) // of which there is no closed form: it lies above
		return v->work_s;
	double p = v->unit_s / v->n, rho = v->read_s / v->n;
	return larger(v->work_s, d->visit_s + other_s(v, d->visit_s) + 2 * p + (v->n - window) * rho);
}

// crew_round_s is what a group's round takes at least: every layer waits for the slowest in it, who need not be the same in all, and for those who wait for
// each other at exchanges.
static double crew_round_s(struct cost_crew *w, const struct cost_case *c, int32_t stage, int32_t round)
{
	const struct cost_batch b = cost_decode(c->params.kv_read);
	struct cost_round at[GROUP_MEMBERS_MAX];
	double work_s[GROUP_MEMBERS_MAX], visit_s = 0, sum_s = 0;
	bool is_uniform = has_equal_parts(&w->cases[0]);
	cost_crew_tokens(w, c, 1);
	for (int32_t i = 0; i < w->group->n_members; i++) {
		const struct cost_layout *l = &w->runners[i].layout;
		at[i] = cost_round_begin(&w->cases[i], stage, l, round);
		is_uniform = is_uniform && (l->n_accel == 0 || l->n_units == 0);
		visit_s = larger(visit_s, cost_device_of(&w->cases[i], stage)->visit_s);
	}
	for (int32_t n_layers = at[0].n_left; at[0].n_left > 0;) {
		int32_t layer = at[0].layer;
		double longest_s = 0;
		for (int32_t i = 0; i < w->group->n_members; i++) {
			const struct cluster_device *d = cost_device_of(&w->cases[i], stage);
			struct cost_item item;
			bool has_one = cost_round_next(&at[i], &item);
			ASSERT(has_one);
			work_s[i] = item.on_accel ? cost_accel_s(&w->cases[i], d, layer, &b) : cost_unit_s(&w->cases[i], d, layer, &b) * c->params.units_per_layer;
			longest_s = larger(longest_s, work_s[i]);
		}
		double layer_s = w->layer_s + longest_s + cost_crew_slack_s(w, layer, &b, work_s);
		sum_s += is_uniform ? n_layers * layer_s : layer_s;
		if (is_uniform)
			break;
	}
	return w->start_s + visit_s + sum_s;
}

typedef double visit_fn(const struct cost_case *c, const struct visit_sums *v, const struct cluster_device *d, int32_t window);

// crew_z adds up the rounds of a group's visits: its layers and exchanges, during which its members may read, or the longest of their own visits. *disk_s: the longest reading of one of them.
static double crew_z(const struct cost_case *c, int32_t stage, visit_fn *z_of, double *disk_s)
{
	struct cost_crew w;
	double sum_s = 0, disks_s[GROUP_MEMBERS_MAX] = {0};
	cost_crew_init(&w, c, stage);
	for (int32_t i = 0; i < w.group->n_members; i++) {
		enum err e = cost_layout_of(&w.cases[i], stage, &w.runners[i].layout, NULL);
		ASSERT(e == OK);
	}
	for (int32_t r = 0; r < c->plan->n_rounds; r++) {
		double longest_s = 0;
		for (int32_t i = 0; i < w.group->n_members; i++) {
			struct visit_sums v = sum_visit(&w.cases[i], stage, &w.runners[i].layout, r);
			longest_s = larger(longest_s, z_of(&w.cases[i], &v, cost_device_of(&w.cases[i], stage), w.runners[i].layout.window));
			disks_s[i] += v.read_s;
		}
		sum_s += larger(crew_round_s(&w, c, stage, r), longest_s);
	}
	*disk_s = 0;
	for (int32_t i = 0; i < w.group->n_members; i++)
		*disk_s = larger(*disk_s, disks_s[i]);
	return sum_s;
}

void cost_members_s(const struct cost_case *c, int32_t stage, double z_s[GROUP_MEMBERS_MAX])
{
	struct cost_crew w;
	cost_crew_init(&w, c, stage);
	for (int32_t i = 0; i < w.group->n_members; i++) {
		struct cost_layout l;
		enum err e = cost_layout_of(&w.cases[i], stage, &l, NULL);
		ASSERT(e == OK);
		z_s[i] = 0;
		for (int32_t r = 0; r < c->plan->n_rounds; r++) {
			struct visit_sums v = sum_visit(&w.cases[i], stage, &l, r);
			z_s[i] += visit_z(&w.cases[i], &v, cost_device_of(&w.cases[i], stage), l.window);
		}
	}
}

// stage_z puts Z into *z and n rho into *disk_s.
static void stage_z(const struct cost_case *c, int32_t stage, const struct cost_layout *l, double *z, double *disk_s)
{
	*z = *disk_s = 0;
	if (cost_group_of(c->plan, stage)) {
		*z = crew_z(c, stage, visit_z, disk_s);
		return;
	}
	for (int32_t r = 0; r < c->plan->n_rounds; r++) {
		struct visit_sums v = sum_visit(c, stage, l, r);
		*z += visit_z(c, &v, cost_device_of(c, stage), l->window);
		*disk_s += v.read_s;
	}
}

static double all_hops(const struct cost_case *c)
{
	const struct cost_plan *p = c->plan;
	int32_t first = p->stages[0].device, last = p->stages[p->n_stages - 1].device;
	double one_round = 0;
	for (int32_t i = 0; i + 1 < p->n_stages; i++)
		one_round += cost_hop_s(c, p->stages[i].device, p->stages[i + 1].device, 1);
	double closing = p->n_rounds > 1 ? (p->n_rounds - 1) * cost_hop_s(c, last, first, 1) : 0;
	return cost_hop_s(c, p->head, first, 1) + p->n_rounds * one_round + closing + cost_hop_s(c, last, p->head, 1);
}

static void put_total(struct cost_closed *out)
{
	out->token_s = larger(out->visits_s + out->hop_s + out->head_s, out->disk_s);
}

void cost_closed(const struct cost_case *c, struct cost_closed *out)
{
	*out = (struct cost_closed){.hop_s = all_hops(c), .head_s = cost_head_s(c, 1), .disk_stage = -1};
	for (int32_t i = 0; i < c->plan->n_stages; i++) {
		struct cost_layout l;
		double disk_s;
		enum err e = cost_group_of(c->plan, i) ? OK : cost_layout_of(c, i, &l, NULL); // crew_z finds its members' own
		ASSERT(e == OK);
		stage_z(c, i, &l, &out->z_s[i], &disk_s);
		out->visits_s += out->z_s[i];
		if (disk_s > out->disk_s) {
			out->disk_s = disk_s;
			out->disk_stage = i;
		}
	}
	put_total(out);
}

// least_z bounds a visit: the first unit beyond the window is read when the visit's first has been computed, and the last one is computed
// when it has been read.
static double least_z(const struct cost_case *c, const struct visit_sums *v, const struct cluster_device *d, int32_t window)
{
	if (c->params.policy == COST_LRU || cost_reads_in_turn(c))
		return larger(v->work_s, v->n * v->read_least_s);
	if (c->params.policy == COST_DEMAND)
		return v->work_s + larger(0, v->n * v->read_least_s - v->unit_s);
	if (v->n <= window || c->params.policy == COST_LRU_AHEAD)
		return v->work_s;
	return larger(v->work_s, d->visit_s + 2 * v->unit_least_s + (v->n - window) * v->read_least_s);
}

double cost_bound(const struct cost_case *c)
{
	double sum_s = all_hops(c) + cost_head_s(c, 1), disk_s = 0;
	for (int32_t i = 0; i < c->plan->n_stages; i++) {
		struct cost_layout l;
		double read_least_s = -1, group_disk_s;
		if (cost_group_of(c->plan, i)) { // whose disks are left out
			sum_s += crew_z(c, i, least_z, &group_disk_s);
			continue;
		}
		enum err e = cost_layout_of(c, i, &l, NULL);
		ASSERT(e == OK);
		for (int32_t r = 0; r < c->plan->n_rounds; r++) {
			struct visit_sums v = sum_visit(c, i, &l, r);
			sum_s += least_z(c, &v, cost_device_of(c, i), l.window);
			if (v.n > 0 && (read_least_s < 0 || v.read_least_s < read_least_s))
				read_least_s = v.read_least_s;
		}
		// A window may have been read ahead when the judge begins to measure.
		if (l.n_streamed > 0)
			disk_s = larger(disk_s, (l.n_streamed - (double)l.window / COST_JUDGED_TOKENS) * read_least_s);
	}
	return larger(sum_s, disk_s);
}

// One visit on the time line of a token that meets no stall but those in its z.
struct visit_span {
	struct visit_sums sums;
	double begin_s, end_s;
};

static void lay_out_token(
	const struct cost_case *c, int32_t stage, const struct cost_layout *layouts, struct visit_span spans[COST_ROUNDS_MAX])
{
	const struct cost_plan *p = c->plan;
	double t = 0;
	for (int32_t r = 0; r < p->n_rounds; r++) {
		for (int32_t i = 0; i < p->n_stages; i++) {
			int32_t from = i > 0 ? p->stages[i - 1].device : r > 0 ? p->stages[p->n_stages - 1].device : p->head;
			t += cost_hop_s(c, from, p->stages[i].device, 1);
			if (cost_group_of(p, i)) {
				double z, disk_s;
				stage_z(c, i, NULL, &z, &disk_s);
				t += z / p->n_rounds; // about: its own windows are not corrected
				continue;
			}
			struct visit_sums v = sum_visit(c, i, &layouts[i], r);
			double z = visit_z(c, &v, cost_device_of(c, i), layouts[i].window);
			if (i == stage)
				spans[r] = (struct visit_span){.sums = v, .begin_s = t, .end_s = t + z};
			t += z;
		}
	}
}

// correct_run is the bound from visits a, a + 1, ... (n of them, cyclic): while the device is elsewhere than in them, it can only fill its window.
static double correct_run(const struct cost_case *c, const struct visit_span *spans, int32_t a, int32_t n, double sum_s,
	int32_t window, double visit_s)
{
	int32_t k = c->plan->n_rounds, b = (a + n - 1) % k, units = 0;
	double read_s = 0;
	for (int32_t i = 0; i < n; i++) {
		units += spans[(a + i) % k].sums.n;
		read_s += spans[(a + i) % k].sums.read_s;
	}
	const struct visit_sums *v = &spans[a].sums;
	if (units <= window || v->n == 0)
		return 0;
	double inside = spans[b].end_s - spans[a].begin_s + (a + n - 1 >= k ? sum_s : 0);
	return sum_s - inside + visit_s + other_s(v, visit_s) + 2 * v->unit_s / v->n + (units - window) * (read_s / units);
}

double cost_closed_corrected(const struct cost_case *c)
{
	struct cost_closed closed;
	struct cost_layout layouts[STAGES_MAX];
	cost_closed(c, &closed);
	double sum_s = closed.visits_s + closed.hop_s + closed.head_s, t = closed.token_s;
	for (int32_t i = 0; i < c->plan->n_stages; i++) {
		enum err e = cost_layout_of(c, i, &layouts[i], NULL);
		ASSERT(e == OK);
	}
	for (int32_t i = 0; i < c->plan->n_stages; i++) {
		struct visit_span spans[COST_ROUNDS_MAX];
		if (layouts[i].n_streamed == 0 || c->params.policy != COST_WINDOW || cost_reads_in_turn(c) || cost_group_of(c->plan, i))
			continue;
		lay_out_token(c, i, layouts, spans);
		for (int32_t a = 0; a < c->plan->n_rounds; a++)
			for (int32_t n = 1; n <= c->plan->n_rounds; n++)
				t = larger(
					t, correct_run(c, spans, a, n, sum_s, layouts[i].window, cost_device_of(c, i)->visit_s));
	}
	return t;
}

// candidate returns the i-th of n streamed counts between least and most: all, or evenly spaced with both ends.
static int32_t candidate(int32_t least, int32_t most, int32_t i, int32_t n)
{
	return n < 2 ? least : least + (int32_t)((int64_t)(most - least) * i / (n - 1));
}

// choose_stage sets one stage's count to the best, given the others': `rest_s` is everything that is added to its Z, rest_disk_s their disks.
static void choose_stage(
	const struct cost_case *c, struct cost_stage *s, int32_t stage, double rest_s, double rest_disk_s, double *best_s)
{
	struct cost_layout l;
	s->n_streamed = COST_STREAM_LEAST;
	enum err e = cost_layout_of(c, stage, &l, NULL);
	ASSERT(e == OK);
	int32_t least = l.n_streamed, best = least,
		n = l.n_units - least + 1 < CANDIDATES_MAX ? l.n_units - least + 1 : CANDIDATES_MAX;
	*best_s = -1;
	for (int32_t i = 0; i < n; i++) {
		double z, disk_s;
		s->n_streamed = candidate(least, l.n_units, i, n);
		e = cost_layout_of(c, stage, &l, NULL);
		ASSERT(e == OK);
		stage_z(c, stage, &l, &z, &disk_s);
		double t = larger(rest_s + z, larger(rest_disk_s, disk_s));
		if (*best_s < 0 || t < *best_s * (1 - 1e-12)) {
			*best_s = t;
			best = s->n_streamed;
		}
	}
	s->n_streamed = best;
}

static double disk_of_others(const struct cost_case *c, int32_t stage)
{
	double longest = 0;
	for (int32_t i = 0; i < c->plan->n_stages; i++) {
		struct cost_layout l;
		double z, disk_s;
		enum err e = cost_layout_of(c, i, &l, NULL);
		ASSERT(e == OK);
		stage_z(c, i, &l, &z, &disk_s);
		if (i != stage)
			longest = larger(longest, disk_s);
	}
	return longest;
}

enum err cost_choose_streams(const struct cost_case *c, struct cost_plan *plan, struct errmsg *em)
{
	ASSERT(c->plan == plan);
	for (int32_t i = 0; i < plan->n_stages && i < STAGES_MAX; i++)
		plan->stages[i].n_streamed = COST_STREAM_LEAST; // of groups nothing is chosen
	enum err e = cost_check(c, em);
	if (e != OK || c->params.policy == COST_LRU || c->params.policy == COST_LRU_AHEAD)
		return e;
	double before = -1;
	for (int32_t sweep = 0; sweep < SWEEPS_MAX; sweep++) {
		double now = before;
		for (int32_t i = 0; i < plan->n_stages; i++) {
			struct cost_layout l;
			e = cost_layout_of(c, i, &l, em);
			ASSERT(e == OK);
			if (l.n_streamed == 0 || cost_group_of(plan, i))
				continue;
			struct cost_closed closed;
			cost_closed(c, &closed);
			choose_stage(c, &plan->stages[i], i, closed.visits_s - closed.z_s[i] + closed.hop_s + closed.head_s,
				disk_of_others(c, i), &now);
		}
		if (now == before)
			break;
		before = now;
	}
	return OK;
}
