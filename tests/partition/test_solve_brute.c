// The solver against brute force: every order of every subset, every cut, every number of streamed units, every k, on small random clusters,
// judged by the exact judge. `test_solve_brute N [SEED]` does N instances and prints what it measured:
// bench/solve_brute_bench.sh.
#include "partition/solve.h"

#include "tests/support/instrumented.h"
#include "tests/support/solve_world.h"

#include <math.h>

#define INSTANCES (IS_INSTRUMENTED ? 100 : 700)
#define EQUAL 1e-9

struct tally {
	int32_t n, n_equal, n_none, n_rounds, n_dropping, n_streaming, n_accel_head;
	double worst;      // how much slower than brute force
	double worst_gap;  // of the bound to the best
	int64_t gap_below; // of 1 %
};

static void show_plan(const char *who, const struct cost_plan *p, double t)
{
	fprintf(stderr, "# %s: %.9f s, k = %d, head %d%s:", who, t, p->n_rounds, p->head, p->head_on_accel ? " on accelerator" : "");
	for (int32_t i = 0; i < p->n_stages; i++)
		fprintf(stderr, " m%d %d/%d", p->stages[i].device, p->stages[i].n_layers, p->stages[i].n_streamed);
	fprintf(stderr, "\n");
}

// compare_one solves one instance and lets brute force look for something better.
static void compare_one(struct world *w, int32_t number, bool loud, struct tally *t)
{
	struct solve_result r;
	struct cost_plan best;
	struct cost_case c = {.cluster = &w->cluster, .shape = &w->shape, .plan = &r.plan, .params = w->want.params};
	if (solve_world(w, &r, NULL) != OK) {
		assert_true(brute_force(w, INFINITY, true, NULL) == INFINITY);
		t->n_none++;
		return;
	}
	assert_int_equal(cost_check(&c, NULL), OK);
	double brute_s = brute_force(w, r.value * (1 - EQUAL), true, &best), worse = r.value / brute_s - 1;
	bool is_equal = brute_s >= r.value * (1 - EQUAL);
	t->n++;
	t->n_equal += is_equal;
	t->worst = worse > t->worst ? worse : t->worst;
	t->n_rounds += r.plan.n_rounds > 1;
	t->n_dropping += r.plan.n_stages < w->cluster.n_devices;
	t->n_accel_head += r.plan.head_on_accel;
	bool streams = false;
	for (int32_t i = 0; i < r.plan.n_stages; i++)
		streams = streams || r.plan.stages[i].n_streamed > 0;
	t->n_streaming += streams;
	assert_true(r.bound <= brute_s * (1 + EQUAL));
	assert_true(r.value == r.verdict.token_s);
	assert_true(r.single < 0 || r.value <= r.single_s * (1 + EQUAL)); // a tie is broken by other rules
	double gap = brute_s / r.bound - 1;
	t->worst_gap = gap > t->worst_gap ? gap : t->worst_gap;
	t->gap_below += gap < 0.01;
	if (!is_equal && loud) {
		fprintf(stderr, "# instance %d: %.3f %% slower\n", number, worse * 100);
		show_plan("solver", &r.plan, r.value);
		show_plan("brute force", &best, brute_s);
	}
}

static void compare_of(uint64_t seed, int32_t n, bool equal_layers, bool experts, bool loud, struct tally *t)
{
	static struct world w;
	struct rng r;
	rng_init(&r, seed);
	for (int32_t i = 0; t->n < n; i++) {
		draw_world(&r, &w, equal_layers);
		if (experts) {
			w.shape.split.n_experts = 8 << rng_below(&r, 5);
			w.shape.n_experts_used = 1 + (int32_t)rng_below(&r, 8);
			w.shape.expert_share = draw(&r, 0.5, 0.98);
		}
		compare_one(&w, i, loud, t);
	}
}

static void compare(uint64_t seed, int32_t n, bool equal_layers, bool loud, struct tally *t)
{
	compare_of(seed, n, equal_layers, false, loud, t);
}

static void print_tally(const char *what, const struct tally *t)
{
	fprintf(stderr,
		"# %s: %d instances (and %d that nothing fits): %d equal to brute force (%.3f %%), worst %.2f %% slower; k > 1 %d, "
		"a device dropped %d, streaming %d, head on accelerator %d; bound within 1 %% of the best %lld times, at worst %.1f %% below\n",
		what, t->n, t->n_none, t->n_equal, 100.0 * t->n_equal / t->n, t->worst * 100, t->n_rounds, t->n_dropping, t->n_streaming,
		t->n_accel_head, (long long)t->gap_below, t->worst_gap * 100);
}

static void it_equals_brute_force_on_small_clusters(void **state)
{
	(void)state;
	struct tally t = {0};
	compare(1, INSTANCES, true, true, &t);
	print_tally("equal layers", &t);
	assert_true(t.n_equal >= INSTANCES * 0.998);
	assert_true(t.worst < 0.1);
	assert_true(t.n_rounds > INSTANCES / 5);
	assert_true(t.n_dropping > INSTANCES / 3);
	assert_true(t.n_streaming > INSTANCES / 2);
	assert_true(t.n_accel_head > 3);
}

static void it_is_near_brute_force_when_layers_differ(void **state)
{
	(void)state;
	struct tally t = {0};
	compare(2, INSTANCES / 3, false, true, &t);
	print_tally("unequal layers", &t);
	assert_true(t.n_equal >= INSTANCES / 3 * 0.9);
	assert_true(t.worst < 0.1);
}

static void it_is_near_brute_force_with_experts(void **state)
{
	(void)state;
	struct tally t = {0};
	compare_of(3, INSTANCES / 3, true, true, true, &t);
	print_tally("experts", &t);
	assert_true(t.n_equal >= INSTANCES / 3 * 0.99);
	assert_true(t.worst < 0.1);
	assert_true(t.n_streaming > INSTANCES / 10);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		struct tally t = {0}, u = {0};
		uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 3;
		compare(seed, atoi(argv[1]), true, true, &t);
		print_tally("equal layers", &t);
		compare(seed, atoi(argv[1]) / 5, false, false, &u);
		print_tally("unequal layers", &u);
		return t.n_equal < t.n * 0.998 || t.worst > 0.1;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_equals_brute_force_on_small_clusters),
		cmocka_unit_test(it_is_near_brute_force_when_layers_differ),
		cmocka_unit_test(it_is_near_brute_force_with_experts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
