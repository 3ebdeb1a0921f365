#include "flow/liveness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)

static void a_quiet_link_is_pinged_every_second(void **state)
{
	(void)state;
	struct liveness l;
	liveness_init(&l, 0);
	assert_int_equal(liveness_step(&l, &liveness_defaults, SECOND - 1), LIVENESS_FINE);
	assert_int_equal(liveness_step(&l, &liveness_defaults, SECOND), LIVENESS_PING);
	assert_int_equal(liveness_step(&l, &liveness_defaults, SECOND), LIVENESS_FINE);
	assert_int_equal(liveness_step(&l, &liveness_defaults, 2 * SECOND), LIVENESS_PING);
}

static void silence_is_death_at_eight_seconds_and_not_before(void **state)
{
	(void)state;
	struct liveness l;
	liveness_init(&l, 0);
	assert_int_not_equal(liveness_step(&l, &liveness_defaults, 8 * SECOND - 1), LIVENESS_DEAD);
	assert_int_equal(liveness_step(&l, &liveness_defaults, 8 * SECOND), LIVENESS_DEAD);
}

static void any_byte_is_a_heartbeat(void **state)
{
	(void)state;
	struct liveness l;
	liveness_init(&l, 0);
	liveness_heard(&l, 7 * SECOND);
	assert_int_not_equal(liveness_step(&l, &liveness_defaults, 14 * SECOND), LIVENESS_DEAD);
	assert_int_equal(liveness_step(&l, &liveness_defaults, 15 * SECOND), LIVENESS_DEAD);
}

static void the_deadline_is_when_something_is_due(void **state)
{
	(void)state;
	struct liveness l;
	liveness_init(&l, 0);
	for (int i = 0; i < 8; i++) {
		int64_t at = liveness_deadline_ns(&l, &liveness_defaults);
		assert_int_equal(liveness_step(&l, &liveness_defaults, at - 1), LIVENESS_FINE);
		assert_int_not_equal(liveness_step(&l, &liveness_defaults, at), LIVENESS_FINE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_quiet_link_is_pinged_every_second),
		cmocka_unit_test(silence_is_death_at_eight_seconds_and_not_before),
		cmocka_unit_test(any_byte_is_a_heartbeat),
		cmocka_unit_test(the_deadline_is_when_something_is_due),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
