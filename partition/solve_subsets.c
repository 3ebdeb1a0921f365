// Any links between few devices: the cheapest ring of every subset, and the cheapest layers on every subset (cost-model.md, section 7, step 2).
//
// Row S of the table holds, for each number of layers, the least sum of visits when just the seats of S share them. A seat is added to the
// row of the others, and is the highest of S: each row comes from one row. Only such numbers of layers are filled in as the seats of S can
// hold and those above them can complete.
#include "partition/solve_inside.h"

static int32_t highest(uint32_t set)
{
	return 31 - __builtin_clz(set);
}

static double *row_of(const struct solver *s, uint32_t set)
{
	return &s->rows[(size_t)set * (size_t)(s->n_layers + 1)];
}

static double *ring_of(const struct solver *s, int32_t n_rounds, uint32_t set)
{
	return &s->ring_s[((size_t)(n_rounds - 1) << SOLVE_SUBSET_DEVICES) + set];
}

static double hop_or_far(const struct solver *s, int32_t from, int32_t to)
{
	double t;
	return cluster_hop(s->w->cluster, from, to, (double)s->w->shape->hop_bytes, &t) ? t : INFINITY;
}

// ---- Rings

// ring_in_order is the ring of a subset whose order is given.
static void ring_in_order(struct solver *s, uint32_t set)
{
	struct cost_plan p = {.head = s->w->head};
	for (int32_t i = 0; i < s->w->n_order; i++)
		for (int32_t m = 0; m < s->n_seats; m++)
			if ((set >> m & 1) && s->seats[m].device == s->w->order[i])
				p.stages[p.n_stages++].device = s->w->order[i];
	for (p.n_rounds = 1; p.n_rounds <= SOLVE_ROUNDS_MAX; p.n_rounds++)
		*ring_of(s, p.n_rounds, set) = p.n_stages == 1 && p.n_rounds > 1 ? INFINITY : solve_ring_hops_s(s, &p);
}

// rings_from takes the paths from one first seat.
static void rings_from(struct solver *s, const double *hop_s, int32_t first, bool by_trust)
{
	int32_t n = s->n_seats;
	double there_s = hop_or_far(s, s->w->head, s->seats[first].device);
	solve_paths(hop_s, n, first, s->path_s);
	for (uint32_t set = 1; set < UINT32_C(1) << n; set++) {
		if (!(set >> first & 1) || (s->head_seat >= 0 && (set >> s->head_seat & 1) && first != s->head_seat))
			continue;
		for (int32_t last = 0; last < n; last++) {
			double path = s->path_s[(size_t)set * (size_t)n + (size_t)last];
			if (!(path < INFINITY) || (by_trust && !s->seats[last].is_trusted))
				continue;
			double ends_s = there_s + hop_or_far(s, s->seats[last].device, s->w->head), closing_s = hop_s[last * n + first];
			for (int32_t k = 1; k <= (first == last ? 1 : SOLVE_ROUNDS_MAX); k++) {
				double *ring = ring_of(s, k, set), t = ends_s + k * path + (k > 1 ? (k - 1) * closing_s : 0);
				*ring = solve_least(*ring, t);
			}
		}
	}
}

void solve_subsets_init(struct solver *s, bool by_trust)
{
	double hop_s[SOLVE_SUBSET_DEVICES * SOLVE_SUBSET_DEVICES];
	int32_t n = s->n_seats;
	for (uint32_t set = 1; set < UINT32_C(1) << n; set++) {
		for (int32_t k = 1; k <= SOLVE_ROUNDS_MAX; k++)
			*ring_of(s, k, set) = INFINITY;
		if (s->w->order)
			ring_in_order(s, set);
	}
	for (int32_t i = 0; i < n; i++)
		for (int32_t j = 0; j < n; j++)
			hop_s[i * n + j] = hop_or_far(s, s->seats[i].device, s->seats[j].device);
	for (int32_t first = 0; first < n && s->w->order == NULL; first++)
		if (!by_trust || s->seats[first].is_trusted)
			rings_from(s, hop_s, first, by_trust);
}

// ---- Layers

// What a pass knows of each seat: the cheapest visits with any layers, and how many it can hold.
struct reach {
	double least_s[SOLVE_SUBSET_DEVICES];
	int32_t most[SOLVE_SUBSET_DEVICES];
	int32_t most_above[SOLVE_SUBSET_DEVICES]; // of all seats above
};

static void find_reach(const struct solver *s, const struct solve_pass *q, struct reach *r)
{
	for (int32_t m = s->n_seats - 1; m >= 0; m--) {
		const double *z = &s->table[(size_t)m * (size_t)(s->n_layers + 1)];
		r->least_s[m] = INFINITY;
		r->most[m] = 0;
		for (int32_t l = 1; l <= s->n_layers; l++) {
			r->least_s[m] = solve_least(r->least_s[m], z[l]);
			if (z[l] < q->value_cap_s)
				r->most[m] = l;
		}
		r->least_s[m] += q->n_rounds * (s->seats[m].in_s + s->seats[m].out_s);
		r->most_above[m] = m + 1 < s->n_seats ? r->most_above[m + 1] + r->most[m + 1] : 0;
	}
}

static int32_t least_layers(const struct solver *s, const struct reach *r, uint32_t set)
{
	if (set == 0)
		return 0;
	int32_t wanted = s->n_layers - r->most_above[highest(set)], each = __builtin_popcount(set);
	return wanted > each ? wanted : each;
}

// fill_row adds the highest seat to the row of the others.
static void fill_row(struct solver *s, const struct solve_pass *q, const struct reach *r, uint32_t set)
{
	int32_t m = highest(set), least = least_layers(s, r, set), most = s->subset_most[set];
	uint32_t others = set & ~(UINT32_C(1) << m);
	int32_t from = least_layers(s, r, others), until = s->subset_most[others];
	const double *z = &s->table[(size_t)m * (size_t)(s->n_layers + 1)];
	double *restrict row = row_of(s, set), *restrict before = row_of(s, others), best_s = INFINITY;
	for (int32_t l = least; l <= most; l++)
		row[l] = INFINITY;
	for (int32_t j = 1; j <= r->most[m]; j++) {
		int32_t begin = from + j > least ? from + j : least, end = until + j < most ? until + j : most;
		double add_s = z[j];
		if (!(add_s < q->value_cap_s))
			continue;
		for (int32_t l = begin; l <= end; l++) {
			double t = before[l - j] + add_s;
			row[l] = row[l] < t ? row[l] : t;
		}
	}
	for (int32_t l = least; l <= most; l++)
		best_s = solve_least(best_s, row[l]);
	if (!(best_s + s->head_s < q->value_cap_s))
		s->subset_most[set] = -1;
}

// fill_rows marks subsets that lead nowhere by a most of -1: too many devices, too slow with any layers, or unable to hold the model.
static void fill_rows(struct solver *s, const struct solve_pass *q, const struct reach *r)
{
	s->subset_most[0] = 0;
	s->subset_low_s[0] = s->head_s;
	row_of(s, 0)[0] = 0;
	for (uint32_t set = 1; set < UINT32_C(1) << s->n_seats; set++) {
		int32_t m = highest(set);
		uint32_t others = set & ~(UINT32_C(1) << m);
		int32_t most = s->subset_most[others] + r->most[m];
		s->subset_low_s[set] = s->subset_low_s[others] + r->least_s[m];
		s->subset_most[set] = most < s->n_layers ? most : s->n_layers;
		if (s->subset_most[others] < 0 || __builtin_popcount(set) > s->devices_max || !(s->subset_low_s[set] < q->value_cap_s) ||
			least_layers(s, r, set) > s->subset_most[set])
			s->subset_most[set] = -1;
		else
			fill_row(s, q, r, set);
	}
}

static uint32_t must_use(const struct solver *s)
{
	uint32_t set = 0;
	for (int32_t i = 0; i < s->n_seats; i++)
		set |= (uint32_t)(s->seats[i].layers_min > 0) << i;
	return set;
}

static void read_back(const struct solver *s, const struct reach *r, uint32_t set, struct solve_found *out)
{
	int32_t l = s->n_layers;
	for (int32_t i = 0; i < s->n_seats; i++)
		out->layers[i] = 0;
	out->n_holders = __builtin_popcount(set);
	while (set != 0) {
		int32_t m = highest(set), j = 1;
		uint32_t others = set & ~(UINT32_C(1) << m);
		int32_t from = least_layers(s, r, others), until = s->subset_most[others];
		const double *z = &s->table[(size_t)m * (size_t)(s->n_layers + 1)], *before = row_of(s, others);
		while (l - j < from || l - j > until || before[l - j] + z[j] != row_of(s, set)[l])
			j++;
		out->layers[m] = j;
		l -= j;
		set = others;
	}
}

void solve_subsets(struct solver *s, const struct solve_pass *q, struct solve_found *out)
{
	struct reach r;
	uint32_t best = 0, must = must_use(s);
	*out = (struct solve_found){.sum_s = INFINITY, .layers = out->layers};
	find_reach(s, q, &r);
	fill_rows(s, q, &r);
	for (uint32_t set = 1; set < UINT32_C(1) << s->n_seats; set++) {
		if (s->subset_most[set] < s->n_layers || (set & must) != must)
			continue;
		double t = row_of(s, set)[s->n_layers] + *ring_of(s, q->n_rounds, set) + s->head_s;
		if (t < out->sum_s) {
			out->sum_s = t;
			best = set;
		}
	}
	out->is_found = out->sum_s < INFINITY;
	if (out->is_found)
		read_back(s, &r, best, out);
}
