// Seeds of `hearth sim check` in this process: what a seed is made of. That many seeds hold is the suite `sim` of tools/run_tests.py.
#include "sim/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define S INT64_C(1000000000)
#define N_SEEDS 60

static struct trial_result run(uint64_t seed, uint32_t classes)
{
	struct trial_params p = {.seed = seed, .classes = classes, .until_ns = INT64_MAX, .recovery = true};
	struct trial_result r;
	struct errmsg em;
	if (trial_run(&p, &r, &em) != OK)
		fail_msg("seed %d: %s", (int)seed, em.text);
	if (r.failed)
		fail_msg("seed %d at %.6f s: %s", (int)seed, (double)r.failed_ns / 1e9, r.failure);
	return r;
}

static void a_seed_is_a_minute_of_answers_and_faults(void **state)
{
	(void)state;
	int n_encrypted = 0, n_shared = 0;
	uint32_t n_done = 0, n_losses = 0, n_exchanges = 0, n_heads = 0;
	for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
		struct trial_result r = run(seed, SIM_ALL_FAULTS);
		uint32_t n_drawn = 0;
		for (int i = 0; i < SIM_N_FAULTS; i++) {
			n_drawn += r.drawn[i];
			n_done += r.done[i];
			assert_true(r.done[i] <= r.drawn[i]);
		}
		assert_true(r.end_ns >= 60 * S);
		assert_true(r.n_requests >= 4);
		assert_true(n_drawn >= 2);
		n_encrypted += r.encrypted;
		n_shared += r.n_groups > 0;
		n_losses += r.counts.n_group_losses;
		n_exchanges += r.counts.n_exchanges;
		n_heads += r.counts.n_heads;
		assert_true(r.n_groups > 0 || r.may_group || r.counts.n_shared == 0);
	}
	assert_true(n_encrypted > 0);
	assert_true(n_shared >= N_SEEDS / 10);
	assert_true(n_losses > 0);
	assert_true(n_exchanges > 0);
	assert_true(n_heads > 0);
	assert_true(n_done > 2 * N_SEEDS);
}

static void without_faults_every_request_is_answered(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
		struct trial_result r = run(seed, 0);
		assert_int_equal(r.counts.n_lost + r.counts.n_refused, 0);
	}
}

static void a_seed_run_twice_has_one_history(void **state)
{
	(void)state;
	uint64_t last = 0;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct trial_result a = run(seed, SIM_ALL_FAULTS), b = run(seed, SIM_ALL_FAULTS);
		assert_true(a.history == b.history);
		assert_true(a.history != last);
		last = a.history;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_seed_is_a_minute_of_answers_and_faults),
		cmocka_unit_test(without_faults_every_request_is_answered),
		cmocka_unit_test(a_seed_run_twice_has_one_history),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
