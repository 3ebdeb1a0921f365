#include "partition/solve_chains.h"

#include "partition/solve_inside.h"

#define PIECE 64
#define ROUNDING (1 - 1e-9)

// Who is in which chain; -1: in none yet.
struct deal {
	const struct solve_want *w;
	int32_t n_chains;
	int32_t *chain_of;          // (n_devices)
	int32_t *layers;            // (n_devices): that the knapsack of all chains together gives each
	struct solve_limit *limits; // (n_devices): of the chain being solved
};

static size_t piece(size_t n, size_t size)
{
	return (n * size + PIECE - 1) / PIECE * PIECE;
}

static size_t row_doubles(const struct solve_want *w, int32_t n_chains)
{
	return (size_t)w->shape->n_layers * (size_t)n_chains + 1;
}

size_t solve_chains_scratch_bytes(const struct solve_want *w, int32_t n_chains)
{
	size_t solver = n_chains >= 1 && n_chains <= CHAINS_MAX ? solve_scratch_bytes(w) : 0;
	if (solver == 0)
		return 0;
	size_t n = (size_t)w->cluster->n_devices;
	return solver + piece((n + 1) * row_doubles(w, n_chains), sizeof(double)) + 2 * piece(n, sizeof(int32_t)) +
		piece(n, sizeof(struct solve_limit)) + piece(CHAINS_MAX, sizeof(struct cost_plan)) + piece(CHAINS_MAX, sizeof(double)) + PIECE;
}

// ---- The bound: one knapsack over the layers of all chains, in which each device is used once

static double item_s(const struct solver *s, int32_t seat, int32_t l)
{
	const struct solve_seat *m = &s->seats[seat];
	return s->table[(size_t)seat * (size_t)(s->n_layers + 1) + (size_t)l] + (l > 0 ? m->in_s + m->out_s : 0);
}

static void fill_rows(const struct solver *s, double *rows, int32_t n_all)
{
	size_t width = (size_t)n_all + 1;
	for (int32_t l = 0; l <= n_all; l++)
		rows[l] = l == 0 ? 0 : INFINITY;
	for (int32_t i = 0; i < s->n_seats; i++) {
		const double *restrict before = &rows[(size_t)i * width];
		double *restrict row = &rows[(size_t)(i + 1) * width];
		for (int32_t l = 0; l <= n_all; l++)
			row[l] = before[l];
		for (int32_t j = 1; j <= s->n_layers; j++) {
			double add_s = item_s(s, i, j);
			if (!(add_s < INFINITY))
				continue;
			for (int32_t l = j; l <= n_all; l++) {
				double t = before[l - j] + add_s;
				row[l] = row[l] < t ? row[l] : t;
			}
		}
	}
}

static void read_back(const struct solver *s, const double *rows, int32_t n_all, int32_t *layers)
{
	size_t width = (size_t)n_all + 1;
	int32_t l = n_all;
	for (int32_t i = s->n_seats - 1; i >= 0; i--) {
		double want_s = rows[(size_t)(i + 1) * width + (size_t)l];
		const double *before = &rows[(size_t)i * width];
		int32_t j = 0;
		if (before[l] != want_s)
			for (j = 1; before[l - j] + item_s(s, i, j) != want_s; j++)
				;
		layers[s->seats[i].device] = j;
		l -= j;
	}
}

// bound_mean is a bound on the mean: each chain pays its visits, hops and head, whoever is in it; reading is hidden at best, and one round has
// the fewest hops. All chains but one are without the head's device. INFINITY: no division is possible at all.
static double bound_mean(struct solver *s, double *rows, struct deal *d)
{
	double best_s = INFINITY;
	for (int32_t on_accel = 0; on_accel < 2; on_accel++) {
		struct solve_pass q = {.n_rounds = 1, .has_disks = true, .costs = SOLVE_BOUND, .disk_cap_s = INFINITY, .stage_cap_s = INFINITY};
		int32_t n_all = s->n_layers * d->n_chains;
		if (!solve_head_fits(s->w, on_accel))
			continue;
		solve_seats_place(s, on_accel);
		solve_table_fill(s, &q);
		fill_rows(s, rows, n_all);
		double sum_s = rows[(size_t)s->n_seats * ((size_t)n_all + 1) + (size_t)n_all];
		if (!(sum_s < INFINITY))
			continue;
		sum_s += s->head_s * d->n_chains + s->head_hops_s * (d->n_chains - 1);
		if (sum_s < best_s)
			read_back(s, rows, n_all, d->layers);
		best_s = solve_least(best_s, sum_s);
	}
	return best_s / d->n_chains * ROUNDING;
}

// ---- The division

// deal_layers gives devices, those with most layers first, to the chain that lacks most.
static void deal_layers(struct deal *d)
{
	int32_t need[CHAINS_MAX], n = d->w->cluster->n_devices;
	for (int32_t c = 0; c < d->n_chains; c++)
		need[c] = d->w->shape->n_layers;
	for (int32_t i = 0; i < n; i++)
		d->chain_of[i] = -1;
	for (;;) {
		int32_t most = -1, chain = 0;
		for (int32_t i = 0; i < n; i++)
			if (d->chain_of[i] < 0 && d->layers[i] > 0 && (most < 0 || d->layers[i] > d->layers[most]))
				most = i;
		if (most < 0)
			return;
		for (int32_t c = 1; c < d->n_chains; c++)
			chain = need[c] > need[chain] ? c : chain;
		d->chain_of[most] = chain;
		need[chain] -= d->layers[most];
	}
}

// deal_spares gives those that are left in turn, the fastest first.
static void deal_spares(const struct solver *s, struct deal *d)
{
	for (int32_t turn = 0;; turn++) {
		int32_t best = -1;
		for (int32_t i = 0; i < s->n_seats; i++)
			if (d->chain_of[s->seats[i].device] < 0 && (best < 0 || s->seats[i].unit_s < s->seats[best].unit_s))
				best = i;
		if (best < 0)
			return;
		d->chain_of[s->seats[best].device] = turn % d->n_chains;
	}
}

// solve_one solves a chain over the devices of it, or over those that are in none.
static enum err solve_one(struct deal *d, int32_t chain, struct arena *scratch, struct cost_plan *plan, double *token_s, struct errmsg *em)
{
	struct solve_want w = *d->w;
	struct solve_result r = {0};
	for (int32_t i = 0; i < w.cluster->n_devices; i++) {
		d->limits[i] = d->w->limits ? d->w->limits[i] : (struct solve_limit){.layers_max = LAYERS_MAX, .is_trusted = true};
		if (d->chain_of[i] != chain)
			d->limits[i].layers_max = 0;
	}
	w.limits = d->limits;
	w.goal = (struct solve_goal){0};
	w.order = NULL;
	w.incumbent = NULL;
	enum err e = solve(&w, scratch, &r, em);
	*plan = r.plan;
	*token_s = r.value;
	return e;
}

static enum err solve_dealt(struct deal *d, struct arena *scratch, struct cost_plan *plans, double *token_s, struct errmsg *em)
{
	for (int32_t c = 0; c < d->n_chains; c++) {
		enum err e = solve_one(d, c, scratch, &plans[c], &token_s[c], em);
		if (e != OK)
			return e;
	}
	return OK;
}

// solve_in_turn gives each chain the best of what is left.
static enum err solve_in_turn(struct deal *d, struct arena *scratch, struct cost_plan *plans, double *token_s, struct errmsg *em)
{
	for (int32_t i = 0; i < d->w->cluster->n_devices; i++)
		d->chain_of[i] = -1;
	for (int32_t c = 0; c < d->n_chains; c++) {
		enum err e = solve_one(d, -1, scratch, &plans[c], &token_s[c], em);
		if (e != OK)
			return errmsg_prefix(em, e, "%d of %d chains are possible; for the next", c, d->n_chains);
		for (int32_t i = 0; i < plans[c].n_stages; i++)
			d->chain_of[plans[c].stages[i].device] = c;
	}
	return OK;
}

static double mean_of(const double *v, int32_t n)
{
	double sum = 0;
	for (int32_t i = 0; i < n; i++)
		sum += v[i];
	return sum / n;
}

static enum err check_limits(const struct solve_want *w, int32_t n_chains, struct errmsg *em)
{
	if (n_chains < 1 || n_chains > CHAINS_MAX)
		return errmsg_fail(em, ERR_RANGE, "%d chains, want 1 to %d", n_chains, CHAINS_MAX);
	for (int32_t i = 0; w->limits && i < w->cluster->n_devices; i++)
		if (w->limits[i].layers_min > 0)
			return errmsg_fail(em, ERR_RANGE, "%s must be used, and with chains nobody can say in which",
				w->cluster->devices[i].name);
	return OK;
}

// take_better solves both divisions and keeps the one with the smaller mean.
static enum err take_better(struct deal *d, struct arena *scratch, struct solve_chains_result *out, struct errmsg *em)
{
	struct cost_plan *plans = arena_alloc(scratch, CHAINS_MAX, sizeof *plans);
	double *token_s = arena_alloc(scratch, CHAINS_MAX, sizeof *token_s);
	if (plans == NULL || token_s == NULL)
		return errmsg_fail(em, ERR_NOMEM, "planning chains needs more memory");
	enum err dealt = solve_dealt(d, scratch, out->plans, out->token_s, em);
	enum err in_turn = solve_in_turn(d, scratch, plans, token_s, em);
	if (dealt != OK && in_turn != OK)
		return in_turn;
	if (dealt != OK || (in_turn == OK && mean_of(token_s, d->n_chains) < mean_of(out->token_s, d->n_chains))) {
		for (int32_t c = 0; c < d->n_chains; c++) {
			out->plans[c] = plans[c];
			out->token_s[c] = token_s[c];
		}
	}
	out->mean_s = mean_of(out->token_s, d->n_chains);
	for (int32_t c = 0; c < d->n_chains; c++)
		out->n_used += out->plans[c].n_stages;
	return OK;
}

enum err solve_chains(
	const struct solve_want *w, int32_t n_chains, struct arena *scratch, struct solve_chains_result *out, struct errmsg *em)
{
	size_t used = scratch->used;
	struct solver *s;
	*out = (struct solve_chains_result){.plans = out->plans, .token_s = out->token_s};
	enum err e = solve_check_want(w, em);
	if (e == OK)
		e = check_limits(w, n_chains, em);
	if (e != OK)
		return e;
	size_t n = (size_t)w->cluster->n_devices;
	struct deal d = {.w = w,
		.n_chains = n_chains,
		.chain_of = arena_alloc(scratch, n, sizeof *d.chain_of),
		.layers = arena_alloc(scratch, n, sizeof *d.layers),
		.limits = arena_alloc(scratch, n, sizeof *d.limits)};
	double *rows = arena_alloc_raw(scratch, (n + 1) * row_doubles(w, n_chains), sizeof *rows);
	size_t kept = scratch->used;
	if (d.chain_of == NULL || d.layers == NULL || d.limits == NULL || rows == NULL)
		e = errmsg_fail(em, ERR_NOMEM, "planning chains needs %zu bytes of memory", solve_chains_scratch_bytes(w, n_chains));
	if (e == OK)
		e = solve_open(w, scratch, &s, em);
	if (e == OK) {
		out->bound = bound_mean(s, rows, &d);
		deal_layers(&d);
		deal_spares(s, &d);
		scratch->used = kept; // the chains' solvers take its place
		e = take_better(&d, scratch, out, em);
		out->gap = e == OK && out->bound > 0 ? out->mean_s / out->bound - 1 : 0;
	}
	scratch->used = used;
	return e;
}
