#include "flow/round_trip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_pong_measures_the_way_there_and_back(void **state)
{
	(void)state;
	struct round_trip r = {0};
	assert_true(round_trip_measure(&r, 1000, 3500));
	assert_true(r.n == 1 && r.last_ns == 2500);
	assert_true(round_trip_measure(&r, 3500, 3500));
	assert_true(r.n == 2 && r.last_ns == 0);
}

static void cookies_that_were_never_sent_measure_nothing(void **state)
{
	(void)state;
	const int64_t now = 5 * ROUND_TRIP_MAX_NS;
	const uint64_t bad[] = {UINT64_MAX, (uint64_t)now + 1, (uint64_t)(now - ROUND_TRIP_MAX_NS) - 1, 0, UINT64_C(1) << 63};
	struct round_trip r = {0};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_false(round_trip_measure(&r, bad[i], now));
	assert_true(r.n == 0);
	assert_true(round_trip_measure(&r, (uint64_t)(now - ROUND_TRIP_MAX_NS), now));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pong_measures_the_way_there_and_back),
		cmocka_unit_test(cookies_that_were_never_sent_measure_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
