// The probe at work, with the smallest budget: every figure is there once, within what a machine can have. How good they are is no unit test's matter.
#include "engine/probe.h"

#include "engine/probe_cache.h"
#include "tests/support/made_model.h"
#include "tests/support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

struct world {
	struct pool *pool;
	char dir[SCRATCH_CAP];
	struct model *model;
};

static int set_up(void **state)
{
	static struct world w;
	char path[MADE_PATH_CAP];
	struct errmsg em;
	*state = &w;
	if (!scratch_open(w.dir) || pool_open(2, &w.pool) != OK)
		return -1;
	made_model(w.dir, "layers=3,hidden=256,ffn=512,heads=4,kv_heads=2,head_dim=64,ctx=64", "Q4_K", "", path);
	return model_open(path, &w.model, &em) == OK ? 0 : -1;
}

static int tear_down(void **state)
{
	struct world *w = *state;
	model_close(w->model);
	pool_close(w->pool);
	return scratch_remove(w->dir);
}

static struct probe_config config(const struct world *w)
{
	return (struct probe_config){.kernels = kernels_find(NULL, NULL), .pool = w->pool, .bytes_max = PROBE_LEAST_BYTES, .budget_ns = 1, .folder = w->dir};
}

static void measure(const struct probe_config *c, struct device_profile *out)
{
	struct probe *p;
	struct errmsg em;
	int n = 0;
	double share = 0;
	if (probe_open(c, &p, &em) != OK)
		fail_msg("%s", em.text);
	while (probe_step(p)) {
		assert_true(++n < 1000);
		assert_true(probe_share(p) >= share && probe_share(p) <= 1); // progress goes one way
		share = probe_share(p);
		probe_note_handover(p, 20000);
	}
	assert_false(probe_step(p));
	assert_true(probe_share(p) == 1);
	probe_result(p, out);
	probe_close(p);
	assert_int_equal(device_profile_check(out, &em), OK);
}

static void the_usual_types_are_measured_without_a_model(void **state)
{
	const struct world *w = *state;
	struct probe_config c = config(w);
	struct device_profile p;
	measure(&c, &p);
	assert_int_equal(p.n_threads, 2);
	assert_true(p.n_cpus >= 1 && p.n_threads_best == 0); // no time for it
	assert_int_equal(p.n_rates, 5);
	for (int32_t i = 0; i < p.n_rates; i++) {
		assert_true(p.rates[i].decode_bps > MIB && p.rates[i].decode_bps < UINT64_C(10000000000000));
		assert_true(p.rates[i].prefill_flops > MIB && p.rates[i].prefill_flops < UINT64_C(1000000000000000));
	}
	assert_true(p.visit_ns >= 20000 && p.visit_ns < UINT64_C(5000000000)); // what handing over took is in it
	assert_true(p.memory_bytes > 16 * MIB && p.available_bytes <= p.memory_bytes);
}

static void a_models_types_come_the_largest_part_first(void **state)
{
	const struct world *w = *state;
	struct probe_config c = config(w);
	struct device_profile p;
	enum dtype types[PROFILE_RATES_MAX];
	c.model = w->model;
	c.has_weights = true;
	int32_t n = probe_types(w->model, types);
	assert_true(n >= 1);
	measure(&c, &p);
	assert_int_equal(p.n_rates, n);
	for (int32_t i = 0; i < n; i++)
		assert_int_equal(p.rates[i].type, types[i]);
	assert_non_null(device_profile_find(&p, DTYPE_Q4_K));
	assert_true(p.rates[0].decode_bps > 0 && p.rates[0].prefill_flops > 0);
}

static void the_best_number_of_threads_is_found_when_there_is_time(void **state)
{
	const struct world *w = *state;
	struct probe_config c = config(w);
	struct device_profile p;
	c.model = w->model; // one type: soon measured
	c.budget_ns = 60000000000;
	measure(&c, &p);
	assert_true(p.n_threads_best >= 1 && p.n_threads_best <= (p.n_cpus > 2 ? p.n_cpus : 2));
	c.skip_threads = true;
	measure(&c, &p);
	assert_int_equal(p.n_threads_best, 0);
}

static void too_little_memory_is_refused_with_the_numbers(void **state)
{
	const struct world *w = *state;
	struct probe_config c = config(w);
	struct probe *p;
	struct errmsg em;
	c.bytes_max = 8 * MIB;
	assert_int_equal(probe_open(&c, &p, &em), ERR_LIMIT);
	assert_non_null(strstr(em.text, "8.0 MiB"));
}

static void a_probe_may_be_dropped_at_any_time(void **state)
{
	const struct world *w = *state;
	struct probe_config c = config(w);
	c.model = w->model;
	c.has_weights = true;
	for (int n = 0; n < 12; n++) {
		struct probe *p;
		assert_int_equal(probe_open(&c, &p, NULL), OK);
		for (int i = 0; i < n; i++)
			(void)probe_step(p);
		probe_close(p);
	}
}

static void a_key_names_all_that_figures_depend_on(void **state)
{
	const struct world *w = *state;
	char keys[5][PROBE_KEY_CAP];
	struct probe_config c = config(w);
	probe_cache_key(&c, "1", keys[0]);
	probe_cache_key(&c, "2", keys[1]);
	c.model = w->model;
	probe_cache_key(&c, "1", keys[2]);
	c.has_weights = true;
	probe_cache_key(&c, "1", keys[3]);
	c.kernels = kernels_find("portable", NULL);
	probe_cache_key(&c, "1", keys[4]);
	for (int i = 0; i < 5; i++)
		for (int k = 0; k < i; k++)
			assert_string_not_equal(keys[i], keys[k]);
	assert_non_null(strstr(keys[4], "threads 2"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_usual_types_are_measured_without_a_model),
		cmocka_unit_test(a_models_types_come_the_largest_part_first),
		cmocka_unit_test(the_best_number_of_threads_is_found_when_there_is_time),
		cmocka_unit_test(too_little_memory_is_refused_with_the_numbers),
		cmocka_unit_test(a_probe_may_be_dropped_at_any_time),
		cmocka_unit_test(a_key_names_all_that_figures_depend_on),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
