// The order in which sums go round a group, against all orders there are.
#include "partition/solve_groups.h"

#include "tests/support/solve_world.h"

#define MEMBERS 16

static void group_of(struct cost_group *g, int32_t n)
{
	*g = (struct cost_group){.n_members = n};
	for (int32_t i = 0; i < n; i++) {
		g->devices[i] = n - 1 - i;
		g->shares[i] = (uint32_t)(100 + g->devices[i]);
		g->n_streamed[i] = 200 + g->devices[i];
	}
}

static double round_s(const struct cluster *c, const int32_t *devices, int32_t n, double bytes)
{
	double s = 0;
	for (int32_t i = 0; i < n; i++)
		s += group_hop_s(c, devices[i], devices[(i + 1) % n], bytes);
	return s;
}

static void assert_near(double got, double want)
{
	if (got != want && !(fabs(got - want) < 1e-9 * want))
		fail_msg("got %.12g, want %.12g", got, want);
}

// best_of tries all orders of devices[at] and those behind it.
static double best_of(const struct cluster *c, int32_t *devices, int32_t n, int32_t at, double bytes)
{
	double best = at == n ? round_s(c, devices, n, bytes) : INFINITY;
	for (int32_t i = at; i < n; i++) {
		int32_t was = devices[at];
		devices[at] = devices[i];
		devices[i] = was;
		best = fmin(best, best_of(c, devices, n, at + 1, bytes));
		devices[i] = devices[at];
		devices[at] = was;
	}
	return best;
}

static void expect_shares_with_their_members(const struct cost_group *g, int32_t lead)
{
	uint32_t seen = 0;
	assert_int_equal(g->devices[0], lead);
	for (int32_t i = 0; i < g->n_members; i++) {
		seen |= UINT32_C(1) << g->devices[i];
		assert_int_equal(g->shares[i], 100 + g->devices[i]);
		assert_int_equal(g->n_streamed[i], 200 + g->devices[i]);
	}
	assert_int_equal(seen, (UINT32_C(1) << g->n_members) - 1);
}

static void draw_links(struct rng *r, struct world *w, int32_t n)
{
	static const double missing[] = {0, 0.2, 0.5};
	double part = missing[rng_below(r, 3)];
	bool is_even = rng_below(r, 4) == 0; // many links alike
	world_init(w, n, false);
	for (int32_t i = 0; i < n; i++) {
		w->devices[i].visit_s = rng_below(r, 2) ? draw(r, 0, 0.0005) : 0;
		for (int32_t j = 0; j < n; j++)
			w->links[i * n + j] = (struct cluster_link){.delay_s = is_even ? 1e-4 * (double)rng_below(r, 3) : draw(r, 0, 0.01),
				.rate = rng_u01(r) < part ? 0 : is_even ? 1e8 : draw(r, 1e6, 1e9)};
	}
}

static void up_to_eight_members_have_the_best_order(void **state)
{
	struct rng r;
	int32_t n_better = 0, n_none = 0;
	(void)state;
	rng_init(&r, 31);
	for (int32_t trial = 0; trial < 400; trial++) {
		struct world w;
		struct cost_group g, given;
		int32_t n = trial < 390 ? 2 + (int32_t)rng_below(&r, 6) : 8, all[MEMBERS];
		double bytes = draw(&r, 0, 100000);
		draw_links(&r, &w, n);
		group_of(&g, n);
		given = g;
		memcpy(all, g.devices, sizeof all);
		double best_s = best_of(&w.cluster, all, n, 1, bytes), given_s = round_s(&w.cluster, g.devices, n, bytes);
		bool is_better = group_order(&w.cluster, bytes, &g);
		assert_int_equal(is_better, best_s < given_s * (1 - 1e-9));
		assert_near(round_s(&w.cluster, g.devices, n, bytes), best_s);
		expect_shares_with_their_members(&g, n - 1);
		if (!is_better)
			assert_memory_equal(&g, &given, sizeof g);
		n_better += is_better;
		n_none += best_s == INFINITY;
	}
	print_message("%d of 400 orders bettered, of %d there is none\n", n_better, n_none);
	assert_true(n_better > 100 && n_none > 10);
}

// A ring of good links among sixteen is followed from one to the next.
static void a_ring_of_sixteen_is_found(void **state)
{
	struct rng r;
	(void)state;
	rng_init(&r, 32);
	for (int32_t trial = 0; trial < 50; trial++) {
		struct world w;
		struct cost_group g;
		int32_t ring[MEMBERS];
		draw_links(&r, &w, MEMBERS);
		for (int32_t i = 0; i < MEMBERS; i++) {
			int32_t k = (int32_t)rng_below(&r, (uint64_t)i + 1);
			ring[i] = i;
			ring[i] = ring[k];
			ring[k] = i;
			w.devices[i].visit_s = 0;
		}
		for (int32_t i = 0; i < MEMBERS * MEMBERS; i++)
			w.links[i].delay_s += 1e-3;
		for (int32_t i = 0; i < MEMBERS; i++) {
			int32_t a = ring[i], b = ring[(i + 1) % MEMBERS];
			w.links[a * MEMBERS + b] = w.links[b * MEMBERS + a] = (struct cluster_link){.delay_s = 1e-5, .rate = 1e9};
		}
		group_of(&g, MEMBERS);
		assert_true(group_order(&w.cluster, 1000, &g));
		assert_near(round_s(&w.cluster, g.devices, MEMBERS, 1000), MEMBERS * (1e-5 + 1000 / 1e9));
		expect_shares_with_their_members(&g, MEMBERS - 1);
	}
}

static void a_search_among_sixteen_ends_and_makes_nothing_worse(void **state)
{
	struct rng r;
	(void)state;
	rng_init(&r, 33);
	for (int32_t trial = 0; trial < 50; trial++) {
		struct world w;
		struct cost_group g, again;
		draw_links(&r, &w, MEMBERS);
		group_of(&g, MEMBERS);
		again = g;
		double given_s = round_s(&w.cluster, g.devices, MEMBERS, 1000);
		bool is_better = group_order(&w.cluster, 1000, &g);
		double s = round_s(&w.cluster, g.devices, MEMBERS, 1000);
		assert_true(is_better ? s < given_s : s == given_s);
		assert_int_equal(group_order(&w.cluster, 1000, &again), is_better);
		assert_memory_equal(&g, &again, sizeof g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(up_to_eight_members_have_the_best_order),
		cmocka_unit_test(a_ring_of_sixteen_is_found),
		cmocka_unit_test(a_search_among_sixteen_ends_and_makes_nothing_worse),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
