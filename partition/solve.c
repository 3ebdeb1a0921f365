// The wants, what they leave room for, and the order of the search.
#include "partition/solve.h"

#include "base/assert.h"
#include "partition/plan.h"
#include "partition/solve_groups.h"

#define SUBSET_WORK_MAX (UINT64_C(1) << 27) // 2^n L^2: more than a second
#define STREAMS_MAX 4096
#define PROMPT_MAX (1 << 24)
#define PIECE 64 // an arena's pieces are aligned to it

static const struct solve_limit *limit_of(const struct solve_want *w, int32_t device)
{
	static const struct solve_limit none = {.layers_max = LAYERS_MAX, .is_trusted = true};
	return w->limits ? &w->limits[device] : &none;
}

// ---- Wants

static bool is_weight(double v)
{
	return v >= 0 && v <= 1e9;
}

static enum err check_goal(const struct solve_goal *g, struct errmsg *em)
{
	if (!is_weight(g->tpot_weight) || !is_weight(g->streams_weight) || !is_weight(g->ttft_weight))
		return errmsg_fail(em, ERR_RANGE, "goal: weights %g, %g and %g, want 0 to 1e9", g->tpot_weight, g->streams_weight,
			g->ttft_weight);
	if (g->streams_weight > 0 && (g->n_streams < 1 || g->n_streams > STREAMS_MAX))
		return errmsg_fail(em, ERR_RANGE, "goal: %d streams, want 1 to %d", g->n_streams, STREAMS_MAX);
	if (g->ttft_weight > 0 && (g->n_prompt < 1 || g->n_prompt > PROMPT_MAX))
		return errmsg_fail(em, ERR_RANGE, "goal: a prompt of %d tokens, want 1 to %d", g->n_prompt, PROMPT_MAX);
	if (g->ttft_weight > 0 && (g->chunk < 1 || g->chunk > CHUNK_TOKENS_MAX))
		return errmsg_fail(em, ERR_RANGE, "goal: chunks of %d tokens, want 1 to %d", g->chunk, CHUNK_TOKENS_MAX);
	return OK;
}

static enum err check_counts(const struct solve_want *w, struct errmsg *em)
{
	if (w->head < 0 || w->head >= w->cluster->n_devices)
		return errmsg_fail(em, ERR_RANGE, "the head is device %d of %d", w->head, w->cluster->n_devices);
	if (w->params.units_per_layer < 1 || w->params.units_per_layer > COST_UNITS_MAX)
		return errmsg_fail(em, ERR_RANGE, "%d units per layer, want 1 to %d", w->params.units_per_layer, COST_UNITS_MAX);
	if (w->params.policy != COST_WINDOW && w->params.policy != COST_LRU)
		return errmsg_fail(em, ERR_RANGE, "planning knows windows and the page cache, no policy %d", (int)w->params.policy);
	if (w->params.kv_alloc > CLUSTER_BYTES_MAX || w->params.kv_read > CLUSTER_BYTES_MAX)
		return errmsg_fail(em, ERR_RANGE, "a context of more than %llu positions", (unsigned long long)CLUSTER_BYTES_MAX);
	if (w->devices_max < 0)
		return errmsg_fail(em, ERR_RANGE, "at most %d devices, want 1 or more", w->devices_max);
	if (w->rounds_min < 0 || w->rounds_max < 0 || w->rounds_min > SOLVE_ROUNDS_MAX || w->rounds_max > SOLVE_ROUNDS_MAX ||
		(w->rounds_max > 0 && w->rounds_min > w->rounds_max))
		return errmsg_fail(em, ERR_RANGE, "%d to %d rounds, want 1 to %d", w->rounds_min, w->rounds_max, SOLVE_ROUNDS_MAX);
	if (w->head_layers < 0 || w->head_layers > w->shape->n_layers)
		return errmsg_fail(em, ERR_RANGE, "head_layers is %d, the model has %d", w->head_layers, w->shape->n_layers);
	return OK;
}

static enum err check_order(const struct solve_want *w, struct errmsg *em)
{
	if (w->order == NULL)
		return OK;
	if (w->n_order < 1 || w->n_order > w->cluster->n_devices)
		return errmsg_fail(em, ERR_RANGE, "an order of %d devices, want 1 to %d", w->n_order, w->cluster->n_devices);
	for (int32_t i = 0; i < w->n_order; i++) {
		if (w->order[i] < 0 || w->order[i] >= w->cluster->n_devices)
			return errmsg_fail(em, ERR_RANGE, "the order names device %d of %d", w->order[i], w->cluster->n_devices);
		for (int32_t j = 0; j < i; j++)
			if (w->order[i] == w->order[j])
				return errmsg_fail(
					em, ERR_RANGE, "the order names %s twice", w->cluster->devices[w->order[i]].name);
	}
	return OK;
}

static bool is_in_order(const struct solve_want *w, int32_t device)
{
	for (int32_t i = 0; w->order && i < w->n_order; i++)
		if (w->order[i] == device)
			return true;
	return w->order == NULL;
}

static enum err check_limits(const struct solve_want *w, struct errmsg *em)
{
	int64_t least = 0, most = 0;
	int32_t n_trusted = 0, n_must = 0;
	for (int32_t i = 0; i < w->cluster->n_devices; i++) {
		const struct solve_limit *l = limit_of(w, i);
		const char *name = w->cluster->devices[i].name;
		if (l->layers_min < 0 || l->layers_max < l->layers_min)
			return errmsg_fail(em, ERR_RANGE, "%s: %d to %d layers wanted: the first must be the smaller", name,
				l->layers_min, l->layers_max);
		if (l->layers_min > 0 && !is_in_order(w, i))
			return errmsg_fail(em, ERR_RANGE, "%s must hold %d layers, and the order of the ring leaves it out", name,
				l->layers_min);
		least += l->layers_min;
		n_must += l->layers_min > 0;
		most += is_in_order(w, i) ? l->layers_max : 0;
		n_trusted += l->is_trusted && l->layers_max > 0;
	}
	if (least > w->shape->n_layers)
		return errmsg_fail(em, ERR_RANGE, "the devices must hold %lld layers together, the model has %d", (long long)least,
			w->shape->n_layers);
	if (most < w->shape->n_layers)
		return errmsg_fail(em, ERR_RANGE, "the devices may hold %lld layers together, the model has %d", (long long)most,
			w->shape->n_layers);
	if (w->devices_max > 0 && n_must > w->devices_max)
		return errmsg_fail(em, ERR_RANGE, "%d devices must be used, and at most %d may be", n_must, w->devices_max);
	if (w->head_layers > 0 && n_trusted == 0)
		return errmsg_fail(em, ERR_RANGE, "head_layers is %d, and no device that may hold layers is trusted", w->head_layers);
	return OK;
}

enum err solve_check_want(const struct solve_want *w, struct errmsg *em)
{
	enum err e = cluster_check(w->cluster, em);
	if (e == OK)
		e = model_shape_check(w->shape, em);
	if (e == OK)
		e = check_goal(&w->goal, em);
	if (e == OK)
		e = check_counts(w, em);
	if (e == OK)
		e = check_order(w, em);
	return e == OK ? check_limits(w, em) : e;
}

// ---- Memory

static size_t piece(size_t n, size_t size)
{
	return (n * size + PIECE - 1) / PIECE * PIECE;
}

static int32_t subset_devices(const struct solve_want *w)
{
	uint64_t l = (uint64_t)w->shape->n_layers + 1;
	int32_t n = w->cluster->n_devices < SOLVE_SUBSET_DEVICES ? w->cluster->n_devices : SOLVE_SUBSET_DEVICES;
	while (n > 2 && (l * l << n) > SUBSET_WORK_MAX)
		n--;
	return n;
}

static size_t n_rows(const struct solve_want *w)
{
	size_t knapsack = (size_t)w->cluster->n_devices + 1, subsets = (size_t)1 << subset_devices(w);
	return knapsack > subsets ? knapsack : subsets;
}

// judge_bytes bounds cost_judge_bytes of any plan: windows together have no more slots than the model has units.
static size_t judge_bytes(const struct solve_want *w)
{
	size_t units = (size_t)w->shape->n_layers * (size_t)w->params.units_per_layer;
	return piece(STAGES_MAX, sizeof(struct cost_runner)) + 2 * piece(STAGES_MAX + 1, sizeof(double)) +
		(STAGES_MAX + 1) * PIECE + piece(units, sizeof(double)) +
		(w->allow_groups ? piece(COST_GROUPS_MAX, sizeof(struct cost_crew)) + piece(units * GROUP_MEMBERS_MAX, sizeof(double)) + COST_GROUPS_MAX * PIECE : 0);
}

size_t solve_scratch_bytes(const struct solve_want *w)
{
	if (solve_check_want(w, NULL) != OK)
		return 0;
	size_t n = (size_t)w->cluster->n_devices, row = (size_t)w->shape->n_layers + 1;
	return piece(1, sizeof(struct solver)) + piece(n, sizeof(struct solve_seat)) + piece(n * row, sizeof(struct solve_layout)) +
		piece(n * row, sizeof(double)) + piece(n_rows(w) * row, sizeof(double)) + piece(row, sizeof(double)) +
		piece(n, sizeof(int32_t)) + piece(n, sizeof(struct solve_device_fate)) +
		piece((size_t)SOLVE_ROUNDS_MAX << SOLVE_SUBSET_DEVICES, sizeof(double)) +
		piece((size_t)SOLVE_SUBSET_DEVICES << SOLVE_SUBSET_DEVICES, sizeof(double)) + judge_bytes(w) + PIECE;
}

static enum err take_memory(struct solver *s, struct arena *a)
{
	const struct solve_want *w = s->w;
	size_t n = (size_t)w->cluster->n_devices, row = (size_t)w->shape->n_layers + 1;
	s->seats = arena_alloc_raw(a, n, sizeof *s->seats);
	s->layouts = arena_alloc_raw(a, n * row, sizeof *s->layouts);
	s->table = arena_alloc_raw(a, n * row, sizeof *s->table);
	s->rows = arena_alloc_raw(a, n_rows(w) * row, sizeof *s->rows);
	s->bytes_least = arena_alloc_raw(a, row, sizeof *s->bytes_least);
	s->fates = arena_alloc(a, n, sizeof *s->fates);
	s->ring_s = arena_alloc_raw(a, (size_t)SOLVE_ROUNDS_MAX << SOLVE_SUBSET_DEVICES, sizeof *s->ring_s);
	s->path_s = arena_alloc_raw(a, (size_t)SOLVE_SUBSET_DEVICES << SOLVE_SUBSET_DEVICES, sizeof *s->path_s);
	s->room.layers = arena_alloc(a, n, sizeof *s->room.layers);
	s->judge_scratch = a;
	bool has_all = s->seats && s->layouts && s->table && s->rows && s->bytes_least && s->fates && s->ring_s && s->path_s &&
		s->room.layers && a->cap - a->used >= judge_bytes(w);
	return has_all ? OK : ERR_NOMEM;
}

// ---- The search

// single_plan puts all layers on one seat, with the streams that the closed form likes best.
static bool single_plan(const struct solver *s, int32_t seat, struct cost_plan *p)
{
	struct solve_pass q = {.n_rounds = 1, .has_disks = true, .disk_cap_s = INFINITY, .stage_cap_s = INFINITY};
	const struct solve_seat *m = &s->seats[seat];
	int32_t most;
	if (!(solve_stage_s(s, &q, seat, s->n_layers, &most) < INFINITY))
		return false;
	int32_t best = most, least = solve_streams_least(s, seat, s->n_layers);
	double hops_s = m->device == s->w->head ? 0 : m->in_s + m->out_s + s->head_hops_s, best_s = INFINITY;
	for (int32_t n = least; n <= most; n++) {
		double sum_s = solve_visits_s(s, 1, SOLVE_CLOSED, seat, s->n_layers, n) + hops_s + s->head_s;
		double t = solve_most(sum_s, n * m->read_s);
		if (t < best_s * (1 - SOLVE_EQUAL)) {
			best_s = t;
			best = n;
		}
	}
	*p = (struct cost_plan){.head = s->w->head, .head_on_accel = s->head_on_accel, .n_rounds = 1, .n_stages = 1};
	p->stages[0] = (struct cost_stage){.device = m->device, .n_layers = s->n_layers, .n_streamed = best};
	return true;
}

static void try_singles(struct solver *s)
{
	for (int32_t i = 0; i < s->n_seats; i++) {
		struct solve_candidate c = {0};
		double cutoff = s->has_single ? s->single.score.value : INFINITY;
		if (!single_plan(s, i, &c.plan) || !solve_judge_plan(s, &c.plan, cutoff, &c.score))
			continue;
		if (!s->has_single || solve_is_better(&c, &s->single))
			s->single = c;
		s->has_single = true;
	}
	if (s->has_single)
		solve_keep(s, &s->single.plan);
}

static void try_incumbent(struct solver *s)
{
	const struct cost_plan *p = s->w->incumbent;
	struct cost_case c = {.cluster = s->w->cluster, .shape = s->w->shape, .plan = p, .params = s->w->params};
	struct solve_score score;
	s->incumbent_s = -1;
	if (p == NULL || p->n_groups > 0 || cost_check(&c, NULL) != OK || p->head != s->w->head || !solve_judge_plan(s, p, INFINITY, &score))
		return;
	s->incumbent_s = score.value;
	solve_keep(s, p);
}

static void give_result(struct solver *s, struct solve_result *out)
{
	const struct solve_candidate *best = &s->kept[0];
	struct cost_case c = {.cluster = s->w->cluster, .shape = s->w->shape, .plan = &best->plan, .params = s->w->params};
	out->plan = best->plan;
	for (int32_t i = 0; i < out->plan.n_stages; i++) { // an incumbent may leave them to the layout
		struct cost_layout l;
		if (cost_layout_of(&c, i, &l, NULL) == OK)
			out->plan.stages[i].n_streamed = l.n_streamed;
	}
	out->value = best->score.value;
	out->ttft_s = best->score.ttft_s;
	out->stream_s = best->score.stream_s;
	out->n_judged = s->n_judged;
	out->single = s->has_single ? s->single.plan.stages[0].device : -1;
	out->single_s = s->has_single ? s->single.score.value : 0;
	out->incumbent_s = s->incumbent_s;
}

static enum err search_all(struct solver *s, struct solve_result *out, struct errmsg *em)
{
	try_incumbent(s);
	if (s->hops == SOLVE_HOPS_SUBSETS)
		solve_subsets_init(s, s->w->head_layers > 0);
	for (int32_t on_accel = 0; on_accel < 2; on_accel++) {
		if (!solve_head_fits(s->w, on_accel))
			continue;
		solve_seats_place(s, on_accel);
		try_singles(s);
		solve_search(s, &s->room);
	}
	if (s->n_kept == 0)
		return solve_refuse(s, em);
	solve_moves(s);
	give_result(s, out);
	solve_fates(s, out);
	out->bound = solve_least(out->value, solve_bound(s, &s->room));
	solve_groups(s, out);
	out->gap = out->bound > 0 ? out->value / out->bound - 1 : 0;
	struct cost_case c = {.cluster = s->w->cluster, .shape = s->w->shape, .plan = &out->plan, .params = s->w->params};
	enum err e = cost_check(&c, em);
	return e == OK ? cost_judge(&c, s->judge_scratch, &out->verdict) : e;
}

enum err solve_open(const struct solve_want *w, struct arena *scratch, struct solver **out, struct errmsg *em)
{
	struct solver *s = *out = arena_alloc(scratch, 1, sizeof *s);
	if (s) {
		s->w = w;
		s->goal = w->goal;
		if (s->goal.tpot_weight <= 0 && s->goal.streams_weight <= 0 && s->goal.ttft_weight <= 0)
			s->goal.tpot_weight = 1;
		s->n_layers = w->shape->n_layers;
		s->rounds_min = w->rounds_min > 0 ? w->rounds_min : 1;
		s->rounds_max = w->rounds_max > 0 ? w->rounds_max : SOLVE_ROUNDS_MAX;
		s->devices_max = w->devices_max > 0 && w->devices_max < STAGES_MAX ? w->devices_max : STAGES_MAX;
	}
	if (s == NULL || take_memory(s, scratch) != OK)
		return errmsg_fail(em, ERR_NOMEM, "planning needs %zu bytes of memory", solve_scratch_bytes(w));
	solve_seats_find(s, subset_devices(w));
	return OK;
}

enum err solve(const struct solve_want *w, struct arena *scratch, struct solve_result *out, struct errmsg *em)
{
	size_t used = scratch->used;
	struct solve_device_fate *fates = out->fates;
	struct solver *s;
	*out = (struct solve_result){.fates = fates};
	enum err e = solve_check_want(w, em);
	if (e != OK)
		return e;
	e = solve_open(w, scratch, &s, em);
	if (e == OK)
		e = search_all(s, out, em);
	scratch->used = used;
	return e;
}
