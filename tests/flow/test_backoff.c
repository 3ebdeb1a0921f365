#include "flow/backoff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS INT64_C(1000000)

static void pauses_double_from_first_to_max_within_their_jitter(void **state)
{
	(void)state;
	struct backoff b;
	backoff_init(&b, &backoff_defaults, 7);
	int64_t whole = 100 * MS;
	for (int i = 0; i < 40; i++) {
		int64_t pause = backoff_next_ns(&b);
		assert_true(pause >= whole / 2);
		assert_true(pause <= whole);
		whole = whole * 2 < 30000 * MS ? whole * 2 : 30000 * MS;
	}
}

static void two_seeds_differ_and_one_seed_repeats(void **state)
{
	(void)state;
	struct backoff a, b, c;
	backoff_init(&a, &backoff_defaults, 1);
	backoff_init(&b, &backoff_defaults, 1);
	backoff_init(&c, &backoff_defaults, 2);
	int n_differ = 0;
	for (int i = 0; i < 20; i++) {
		int64_t pause = backoff_next_ns(&a);
		assert_int_equal(pause, backoff_next_ns(&b));
		n_differ += pause != backoff_next_ns(&c);
	}
	assert_true(n_differ > 15);
}

static void only_a_long_life_forgives(void **state)
{
	(void)state;
	struct backoff b;
	backoff_init(&b, &backoff_defaults, 3);
	for (int i = 0; i < 10; i++)
		(void)backoff_next_ns(&b);
	backoff_ended(&b, 1999 * MS);
	assert_true(backoff_next_ns(&b) >= 15000 * MS);
	backoff_ended(&b, 2000 * MS);
	assert_true(backoff_next_ns(&b) <= 100 * MS);
	for (int i = 0; i < 10; i++)
		(void)backoff_next_ns(&b);
	backoff_reset(&b);
	assert_true(backoff_next_ns(&b) <= 100 * MS);
}

static void extreme_limits_do_not_overflow(void **state)
{
	(void)state;
	const struct backoff_limits limits = {.first_ns = INT64_MAX / 3, .max_ns = INT64_MAX / 2, .steady_ns = 1};
	struct backoff b;
	backoff_init(&b, &limits, 4);
	for (int i = 0; i < 100; i++) {
		int64_t pause = backoff_next_ns(&b);
		assert_true(pause > 0);
		assert_true(pause <= limits.max_ns);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pauses_double_from_first_to_max_within_their_jitter),
		cmocka_unit_test(two_seeds_differ_and_one_seed_repeats),
		cmocka_unit_test(only_a_long_life_forgives),
		cmocka_unit_test(extreme_limits_do_not_overflow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
