// Where hops are a sum over devices, devices and layers are a knapsack: exact for any number of them (cost-model.md, section 7, step 3).
#include "partition/solve_inside.h"

#define PRICE_STEPS 24 // when there are more holders than wanted, a price on each is raised until there are not

static bool is_rule(const struct solver *s, const struct solve_pass *q)
{
	return s->hops == SOLVE_HOPS_RULE && q->costs != SOLVE_BOUND;
}

// hops_s is what being in the ring costs a device: k visits, each with a hop in and a hop out.
static double hops_s(const struct solver *s, const struct solve_pass *q, const struct solve_seat *m)
{
	return q->n_rounds * (is_rule(s, q) ? m->in_mean_s + m->out_mean_s : m->in_s + m->out_s);
}

static double head_hops_s(const struct solver *s, const struct solve_pass *q)
{
	return is_rule(s, q) ? s->head_hops_mean_s : s->head_hops_s;
}

// item_s is what l layers of a seat cost. A head without layers has its two hops all the same.
static double item_s(const struct solver *s, const struct solve_pass *q, int32_t seat, int32_t l, double price_s)
{
	const struct solve_seat *m = &s->seats[seat];
	double t = s->table[(size_t)seat * (size_t)(s->n_layers + 1) + (size_t)l];
	if (l > 0)
		return t + (hops_s(s, q, m) + price_s);
	return seat == s->head_seat ? t + head_hops_s(s, q) : t;
}

static void take_least(double *restrict row, const double *restrict before, double add_s, int32_t n)
{
	for (int32_t l = 0; l < n; l++) {
		double t = before[l] + add_s;
		row[l] = row[l] < t ? row[l] : t;
	}
}

// fill_rows makes row i + 1 from row i: the cheapest way to put l layers on the first i + 1 seats.
static double fill_rows(struct solver *s, const struct solve_pass *q, double price_s)
{
	int32_t n = s->n_layers + 1;
	s->rows[0] = s->head_s + (s->head_seat < 0 ? head_hops_s(s, q) : 0);
	for (int32_t l = 1; l < n; l++)
		s->rows[l] = INFINITY;
	for (int32_t i = 0; i < s->n_seats; i++) {
		const double *before = &s->rows[(size_t)i * (size_t)n];
		double *row = &s->rows[(size_t)(i + 1) * (size_t)n];
		double none_s = item_s(s, q, i, 0, 0);
		for (int32_t l = 0; l < n; l++)
			row[l] = before[l] + none_s;
		for (int32_t j = 1; j < n; j++) {
			double t = item_s(s, q, i, j, price_s);
			if (t < q->value_cap_s)
				take_least(row + j, before, t, n - j);
		}
	}
	return s->rows[(size_t)s->n_seats * (size_t)n + (size_t)s->n_layers];
}

// read_back finds by which items the last row came about, preferring none.
static void read_back(const struct solver *s, const struct solve_pass *q, double price_s, struct solve_found *out)
{
	int32_t n = s->n_layers + 1, l = s->n_layers;
	out->n_holders = 0;
	for (int32_t i = s->n_seats - 1; i >= 0; i--) {
		const double *before = &s->rows[(size_t)i * (size_t)n];
		double want_s = s->rows[(size_t)(i + 1) * (size_t)n + (size_t)l];
		int32_t j = 0;
		while (j < l && before[l - j] + item_s(s, q, i, j, price_s) != want_s)
			j++;
		out->layers[i] = j;
		out->n_holders += j > 0;
		l -= j;
	}
}

void solve_knapsack(struct solver *s, const struct solve_pass *q, struct solve_found *out)
{
	double sum_s = fill_rows(s, q, 0);
	out->is_found = sum_s < INFINITY;
	out->sum_s = sum_s;
	if (!out->is_found)
		return;
	read_back(s, q, 0, out);
	if (out->n_holders <= s->devices_max)
		return;
	// By weak duality the sum less the price of all that are allowed is a bound at any price; what is found is exact at the price of its number.
	double low = 0, high = sum_s, bound_s = sum_s;
	for (int32_t i = 0; i < PRICE_STEPS; i++) {
		double price_s = i == 0 ? high : (low + high) / 2;
		double t = fill_rows(s, q, price_s);
		bound_s = solve_most(bound_s, t - price_s * s->devices_max);
		read_back(s, q, price_s, out);
		if (out->n_holders > s->devices_max)
			low = price_s;
		else
			high = price_s;
	}
	double t = fill_rows(s, q, high);
	read_back(s, q, high, out);
	out->is_found = t < INFINITY && out->n_holders <= s->devices_max;
	out->sum_s = q->costs == SOLVE_BOUND ? bound_s : t - high * out->n_holders;
}
