// Chains: every one holds the model, nobody is in two, and the mean is above its bound.
#include "partition/solve_chains.h"

#include "tests/support/solve_world.h"

#define CHAINS 3

static struct cost_plan plans[CHAINS_MAX];
static double token_s[CHAINS_MAX];

static enum err chains(struct world *w, int32_t n, struct solve_chains_result *out, struct errmsg *em)
{
	struct arena a;
	size_t bytes = solve_chains_scratch_bytes(&w->want, n);
	assert_int_equal(arena_open(bytes > 0 ? bytes : 1, &a), OK);
	*out = (struct solve_chains_result){.plans = plans, .token_s = token_s};
	enum err e = solve_chains(&w->want, n, &a, out, em);
	assert_int_equal(a.used, 0);
	arena_close(&a);
	return e;
}

static void check_chains(const struct world *w, int32_t n, const struct solve_chains_result *r)
{
	static int32_t uses[WORLD_DEVICES];
	double sum = 0;
	int32_t n_used = 0;
	memset(uses, 0, sizeof uses);
	for (int32_t c = 0; c < n; c++) {
		struct cost_case k = {.cluster = &w->cluster, .shape = &w->shape, .plan = &r->plans[c], .params = w->want.params};
		assert_int_equal(cost_check(&k, NULL), OK);
		for (int32_t i = 0; i < r->plans[c].n_stages; i++)
			uses[r->plans[c].stages[i].device]++;
		sum += r->token_s[c];
		n_used += r->plans[c].n_stages;
	}
	for (int32_t i = 0; i < w->cluster.n_devices; i++)
		assert_true(uses[i] <= 1);
	assert_int_equal(n_used, r->n_used);
	assert_true(r->mean_s > 0 && r->bound > 0 && r->bound <= r->mean_s);
	assert_true(r->mean_s * n - sum < 1e-9 && sum - r->mean_s * n < 1e-9);
}

static void draw_swarm(struct rng *r, struct world *w, int32_t n, double memory)
{
	world_init(w, n, true);
	w->shape = (struct model_shape){.n_layers = 40, .layer_bytes = 300000000, .head_bytes = 200000000, .hop_bytes = 20480};
	for (int32_t i = 0; i < n; i++) {
		w->devices[i].cap_bytes = w->shape.head_bytes + (uint64_t)(memory * draw(r, 0.5, 1.5) * 40 * 0.3e9 / n);
		w->devices[i].cpu_rate = draw(r, 8e9, 50e9);
		w->attach[i] = (struct cluster_link){.delay_s = draw(r, 0.002, 0.02), .rate = draw(r, 2e6, 50e6)};
	}
}

static void every_chain_holds_the_model_and_nobody_is_in_two(void **state)
{
	(void)state;
	static struct world w;
	struct rng r;
	struct solve_chains_result out;
	rng_init(&r, 1);
	for (int i = 0; i < 6; i++) {
		struct errmsg em = {""};
		draw_swarm(&r, &w, 20 + 10 * i, 5);
		if (chains(&w, CHAINS, &out, &em) != OK)
			fail_msg("%s", em.text);
		check_chains(&w, CHAINS, &out);
		print_message("# %d devices, %d chains: mean %.4f s, bound %.4f s, gap %.1f %%\n", w.cluster.n_devices, CHAINS, out.mean_s, out.bound, out.gap * 100);
		assert_true(out.gap < 0.5);
	}
}

static void one_chain_is_the_best_plan(void **state)
{
	(void)state;
	static struct world w;
	struct rng r;
	struct solve_chains_result out;
	struct solve_result one;
	rng_init(&r, 2);
	draw_swarm(&r, &w, 24, 2);
	solve_ok(&w, &one);
	assert_int_equal(chains(&w, 1, &out, NULL), OK);
	assert_true(out.mean_s <= one.value * (1 + 1e-9));
	assert_true(out.bound <= one.bound * (1 + 1e-6));
}

static void too_many_chains_are_refused_with_how_many_are_possible(void **state)
{
	(void)state;
	static struct world w;
	struct rng r;
	struct solve_chains_result out;
	struct errmsg em = {""};
	rng_init(&r, 3);
	draw_swarm(&r, &w, 20, 2.5);
	assert_int_equal(chains(&w, 4, &out, &em), ERR_NOT_FOUND);
	assert_non_null(strstr(em.text, "2 of 4 chains are possible; for the next: the model needs"));
	assert_int_equal(chains(&w, 0, &out, &em), ERR_RANGE);
	assert_int_equal(chains(&w, CHAINS_MAX + 1, &out, &em), ERR_RANGE);
	w.want.limits = w.limits;
	w.limits[3].layers_min = 1;
	assert_int_equal(chains(&w, 2, &out, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "m3 must be used"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_chain_holds_the_model_and_nobody_is_in_two),
		cmocka_unit_test(one_chain_is_the_best_plan),
		cmocka_unit_test(too_many_chains_are_refused_with_how_many_are_possible),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
