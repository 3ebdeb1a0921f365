#include "base/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS 1000000

static void what_was_computed_is_rested_for(void **state)
{
	(void)state;
	struct pace p = {.factor = 4};
	pace_begin(&p, 100 * MS);
	assert_int_equal(pace_due(&p, 110 * MS), 30 * MS);
	pace_rested(&p, 30 * MS);
	pace_begin(&p, 140 * MS);
	assert_int_equal(pace_due(&p, 141 * MS), 3 * MS);
}

static void waiting_is_not_rested_for(void **state)
{
	(void)state;
	struct pace p = {.factor = 2};
	pace_begin(&p, 0);
	assert_int_equal(pace_due(&p, 5 * MS), 5 * MS);
	pace_rested(&p, 5 * MS);
	pace_begin(&p, 500 * MS); // after a long wait
	assert_int_equal(pace_due(&p, 501 * MS), MS);
}

static void little_is_owed_and_too_much_is_credited(void **state)
{
	(void)state;
	struct pace p = {.factor = 2};
	int64_t now = 0, rested = 0, computed = 0;
	for (int32_t i = 0; i < 1000; i++) {
		pace_begin(&p, now);
		now += 30000;
		computed += 30000;
		int64_t due = pace_due(&p, now);
		assert_true(due == 0 || due >= PACE_LEAST_NS);
		if (due > 0) {
			due += 70000; // woken late
			now += due;
			rested += due;
			pace_rested(&p, due);
		}
	}
	assert_in_range(rested, computed - 2 * PACE_LEAST_NS, computed + 2 * PACE_LEAST_NS);
}

static void who_is_no_slower_never_rests(void **state)
{
	(void)state;
	struct pace p = {.factor = 1};
	pace_begin(&p, 0);
	assert_int_equal(pace_due(&p, 1000 * MS), 0);
	p.factor = 0;
	assert_int_equal(pace_due(&p, 2000 * MS), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_computed_is_rested_for),
		cmocka_unit_test(waiting_is_not_rested_for),
		cmocka_unit_test(little_is_owed_and_too_much_is_credited),
		cmocka_unit_test(who_is_no_slower_never_rests),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
