// The order of a ring: the cheapest way round the layer holders, k times, from the head and back to it.
#include "partition/solve_inside.h"

#include <string.h>

double solve_ring_hops_s(const struct solver *s, const struct cost_plan *p)
{
	const struct cluster *c = s->w->cluster;
	double x = (double)s->w->shape->hop_bytes, round_s = 0, closing_s = 0, there_s, back_s;
	int32_t first = p->stages[0].device, last = p->stages[p->n_stages - 1].device;
	for (int32_t i = 0; i + 1 < p->n_stages; i++) {
		double t;
		if (!cluster_hop(c, p->stages[i].device, p->stages[i + 1].device, x, &t))
			return INFINITY;
		round_s += t;
	}
	if (p->n_rounds > 1 && !cluster_hop(c, last, first, x, &closing_s))
		return INFINITY;
	if (!cluster_hop(c, p->head, first, x, &there_s) || !cluster_hop(c, last, p->head, x, &back_s))
		return INFINITY;
	return there_s + p->n_rounds * round_s + (p->n_rounds - 1) * closing_s + back_s;
}

static bool is_trusted(const struct solver *s, int32_t device)
{
	return s->w->head_layers == 0 || s->w->limits == NULL || s->w->limits[device].is_trusted;
}

static void swap_stages(struct cost_plan *p, int32_t a, int32_t b)
{
	struct cost_stage t = p->stages[a];
	p->stages[a] = p->stages[b];
	p->stages[b] = t;
}

static int32_t place_in_order(const struct solver *s, int32_t device)
{
	for (int32_t i = 0; i < s->w->n_order; i++)
		if (s->w->order[i] == device)
			return i;
	return s->w->n_order;
}

// sort_stages puts them into the wanted order, or else by device with the head first.
static void sort_stages(const struct solver *s, struct cost_plan *p)
{
	for (int32_t i = 1; i < p->n_stages; i++) {
		for (int32_t j = i; j > 0; j--) {
			int32_t a = p->stages[j - 1].device, b = p->stages[j].device;
			bool swap = s->w->order ? place_in_order(s, b) < place_in_order(s, a)
						: b == p->head || (b < a && a != p->head);
			if (!swap)
				break;
			swap_stages(p, j - 1, j);
		}
	}
}

// trusted_ends moves trusted devices to where the model begins and ends. The head, when it holds layers, is first already.
static void trusted_ends(const struct solver *s, struct cost_plan *p)
{
	for (int32_t i = 1; i < p->n_stages && !is_trusted(s, p->stages[0].device); i++)
		if (is_trusted(s, p->stages[i].device))
			swap_stages(p, 0, i);
	for (int32_t i = p->n_stages - 2; i > 0 && !is_trusted(s, p->stages[p->n_stages - 1].device); i--)
		if (is_trusted(s, p->stages[i].device))
			swap_stages(p, p->n_stages - 1, i);
}

static bool ends_fit(const struct solver *s, const struct cost_plan *p)
{
	return is_trusted(s, p->stages[0].device) && is_trusted(s, p->stages[p->n_stages - 1].device);
}

static double hop_or_far(const struct solver *s, int32_t from, int32_t to)
{
	double t;
	return cluster_hop(s->w->cluster, from, to, (double)s->w->shape->hop_bytes, &t) ? t : INFINITY;
}

void solve_paths(const double *hop_s, int32_t n, int32_t first, double *path_s)
{
	for (size_t i = 0; i < ((size_t)1 << n) * (size_t)n; i++)
		path_s[i] = INFINITY;
	path_s[((size_t)1 << first) * (size_t)n + (size_t)first] = 0;
	for (uint32_t set = 0; set < UINT32_C(1) << n; set++) {
		if (!(set >> first & 1))
			continue;
		for (int32_t last = 0; last < n; last++) {
			double t = path_s[(size_t)set * (size_t)n + (size_t)last];
			if (t == INFINITY)
				continue;
			for (int32_t next = 0; next < n; next++) {
				if (set >> next & 1)
					continue;
				double *to = &path_s[(size_t)(set | UINT32_C(1) << next) * (size_t)n + (size_t)next];
				*to = solve_least(*to, t + hop_s[last * n + next]);
			}
		}
	}
}

// A ring over few devices: hops between its stages, there from the head and back.
struct small_ring {
	int32_t n, k;
	double hop_s[SOLVE_SUBSET_DEVICES * SOLVE_SUBSET_DEVICES];
	double there_s[SOLVE_SUBSET_DEVICES], back_s[SOLVE_SUBSET_DEVICES];
};

// walk_back writes the cheapest path over all from `first` to `last`: each step is the one whose sum the table holds.
static void walk_back(const struct small_ring *r, const double *path_s, int32_t last, int32_t *order)
{
	uint32_t set = (UINT32_C(1) << r->n) - 1;
	order[r->n - 1] = last;
	for (int32_t i = r->n - 1; i > 0; i--) {
		double want_s = path_s[(size_t)set * (size_t)r->n + (size_t)last];
		set &= ~(UINT32_C(1) << last);
		int32_t before = 0;
		while (!(set >> before & 1) ||
			path_s[(size_t)set * (size_t)r->n + (size_t)before] + r->hop_s[before * r->n + last] != want_s)
			before++;
		order[i - 1] = last = before;
	}
}

// order_exactly is Held and Karp's table from each possible first stage.
static bool order_exactly(struct solver *s, struct cost_plan *p)
{
	struct small_ring r = {.n = p->n_stages, .k = p->n_rounds};
	struct cost_plan sorted = *p;
	int32_t order[SOLVE_SUBSET_DEVICES];
	double best_s = INFINITY;
	sort_stages(s, &sorted);
	for (int32_t i = 0; i < r.n; i++) {
		r.there_s[i] = hop_or_far(s, p->head, sorted.stages[i].device);
		r.back_s[i] = hop_or_far(s, sorted.stages[i].device, p->head);
		for (int32_t j = 0; j < r.n; j++)
			r.hop_s[i * r.n + j] = hop_or_far(s, sorted.stages[i].device, sorted.stages[j].device);
	}
	int32_t n_firsts = sorted.stages[0].device == p->head ? 1 : r.n;
	for (int32_t first = 0; first < n_firsts; first++) {
		if (!is_trusted(s, sorted.stages[first].device))
			continue;
		solve_paths(r.hop_s, r.n, first, s->path_s);
		for (int32_t last = 0; last < r.n; last++) {
			double path = s->path_s[(((size_t)1 << r.n) - 1) * (size_t)r.n + (size_t)last];
			double closing_s = r.k > 1 ? (r.k - 1) * r.hop_s[last * r.n + first] : 0;
			double t = r.there_s[first] + r.k * path + closing_s + r.back_s[last];
			if (!is_trusted(s, sorted.stages[last].device) || !(t < best_s * (1 - SOLVE_EQUAL)))
				continue;
			best_s = t;
			walk_back(&r, s->path_s, last, order);
		}
	}
	for (int32_t i = 0; i < r.n && best_s < INFINITY; i++)
		p->stages[i] = sorted.stages[order[i]];
	return best_s < INFINITY;
}

static void take_nearest(const struct solver *s, struct cost_plan *p)
{
	for (int32_t i = p->stages[0].device == p->head ? 1 : 0; i < p->n_stages; i++) {
		int32_t here = i > 0 ? p->stages[i - 1].device : p->head, best = i;
		for (int32_t j = i + 1; j < p->n_stages; j++)
			if (hop_or_far(s, here, p->stages[j].device) < hop_or_far(s, here, p->stages[best].device))
				best = j;
		swap_stages(p, i, best);
	}
}

static void reverse(struct cost_plan *p, int32_t a, int32_t b)
{
	for (; a < b; a++, b--)
		swap_stages(p, a, b);
}

void solve_shift(struct cost_plan *p, int32_t a, int32_t b)
{
	struct cost_stage moved = p->stages[a];
	for (; a < b; a++)
		p->stages[a] = p->stages[a + 1];
	for (; a > b; a--)
		p->stages[a] = p->stages[a - 1];
	p->stages[b] = moved;
}

// try_orders reverses a run of stages, or moves one stage, where that shortens the ring.
static bool try_orders(const struct solver *s, struct cost_plan *p, double *hops_s)
{
	int32_t least = p->stages[0].device == p->head ? 1 : 0;
	bool is_better = false;
	for (int32_t a = least; a < p->n_stages; a++) {
		for (int32_t b = least; b < p->n_stages; b++) {
			for (int32_t kind = 0; kind < 2 && a != b; kind++) {
				struct cost_plan tried = *p;
				if (kind == 0)
					reverse(&tried, a, b);
				else
					solve_shift(&tried, a, b);
				double t = solve_ring_hops_s(s, &tried);
				if (!(t < *hops_s * (1 - SOLVE_EQUAL)) || !ends_fit(s, &tried))
					continue;
				*p = tried;
				*hops_s = t;
				is_better = true;
			}
		}
	}
	return is_better;
}

bool solve_ring_order(struct solver *s, struct cost_plan *p)
{
	if (p->n_stages == 1) {
		p->n_rounds = 1;
		return ends_fit(s, p) && solve_ring_hops_s(s, p) < INFINITY;
	}
	if (s->w->order == NULL && p->n_stages <= SOLVE_SUBSET_DEVICES && (s->hops != SOLVE_HOPS_SUM || s->w->head_layers > 0))
		return order_exactly(s, p);
	sort_stages(s, p);
	if (s->hops != SOLVE_HOPS_SUM && s->w->order == NULL)
		take_nearest(s, p);
	if (s->w->order == NULL)
		trusted_ends(s, p);
	double hops_s = solve_ring_hops_s(s, p);
	for (int32_t i = 0; i < p->n_stages && s->hops != SOLVE_HOPS_SUM && s->w->order == NULL; i++)
		if (!try_orders(s, p, &hops_s))
			break;
	return hops_s < INFINITY && ends_fit(s, p);
}

bool solve_ring_place(const struct solver *s, struct cost_plan *p)
{
	struct cost_plan best = *p;
	double best_s = INFINITY;
	int32_t last = p->n_stages - 1;
	if (p->n_stages == 1)
		p->n_rounds = 1;
	if (s->w->order || p->n_stages == 1) {
		sort_stages(s, p);
		return solve_ring_hops_s(s, p) < INFINITY;
	}
	bool is_head = p->stages[last].device == p->head, has_head = p->stages[0].device == p->head;
	for (int32_t at = has_head ? 1 : 0; at <= (is_head ? 0 : last); at++) {
		struct cost_plan tried = *p;
		solve_shift(&tried, last, at);
		double t = solve_ring_hops_s(s, &tried);
		if (!(t < best_s * (1 - SOLVE_EQUAL)) || !ends_fit(s, &tried))
			continue;
		best_s = t;
		best = tried;
	}
	*p = best;
	return best_s < INFINITY;
}
