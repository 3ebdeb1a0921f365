#include "flow/observed_rate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool is_near(double a, double b)
{
	return fabs(a / b - 1) <= 0.01;
}

// A machine that reports once a second while it computes half of the time.
struct machine {
	struct observed_rate r;
	uint64_t units, us;
};

static void compute(struct machine *m, int32_t seconds, uint64_t per_s)
{
	for (int32_t i = 0; i < seconds; i++) {
		m->units += per_s / 2;
		m->us += 500000;
		observed_rate_report(&m->r, m->units, m->us);
	}
}

static void too_little_tells_nothing(void **state)
{
	(void)state;
	struct machine m = {.units = 1000};
	assert_true(observed_rate_per_s(&m.r) == 0);
	observed_rate_report(&m.r, UINT64_C(1) << 61, UINT64_C(1) << 61); // what was before it is no observation
	assert_true(observed_rate_per_s(&m.r) == 0);
	observed_rate_report(&m.r, (UINT64_C(1) << 61) + 1000, (UINT64_C(1) << 61) + 1000);
	assert_true(observed_rate_per_s(&m.r) == 0);
}

static void a_steady_machine_has_its_rate(void **state)
{
	(void)state;
	struct machine m = {.units = 0};
	compute(&m, 5, 7000000000);
	assert_true(is_near(observed_rate_per_s(&m.r), 7e9));
	compute(&m, 1000, 7000000000);
	assert_true(is_near(observed_rate_per_s(&m.r), 7e9));
}

static void a_moment_changes_little_and_what_lasts_shows(void **state)
{
	(void)state;
	struct machine m = {.units = 0};
	compute(&m, 100, 8000000000);
	compute(&m, 1, 2000000000);
	assert_true(observed_rate_per_s(&m.r) > 7e9);
	compute(&m, 60, 2000000000); // half a minute of computing
	assert_true(observed_rate_per_s(&m.r) < 2.4e9 && observed_rate_per_s(&m.r) >= 2e9);
}

static void another_process_begins_anew_without_a_wrong_rate(void **state)
{
	(void)state;
	struct machine m = {.units = 0};
	compute(&m, 20, 5000000000);
	m.units = m.us = 0;
	compute(&m, 20, 5000000000);
	assert_true(is_near(observed_rate_per_s(&m.r), 5e9));
	observed_rate_begin(&m.r);
	m.units += UINT64_C(1) << 60; // of a time that nobody saw
	compute(&m, 20, 5000000000);
	assert_true(is_near(observed_rate_per_s(&m.r), 5e9));
}

static void any_counters_are_survived(void **state)
{
	(void)state;
	struct observed_rate r = {.units = 0};
	static const uint64_t values[] = {0, 1, UINT64_MAX, 1, UINT64_C(1) << 62, 0, 0, 5};
	for (size_t i = 0; i < 64; i++) {
		observed_rate_report(&r, values[i % 8], values[i * 3 % 8]);
		double v = observed_rate_per_s(&r);
		assert_true(v >= 0 && v - v == 0);
		assert_true(r.us <= OBSERVED_HELD_US);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(too_little_tells_nothing),
		cmocka_unit_test(a_steady_machine_has_its_rate),
		cmocka_unit_test(a_moment_changes_little_and_what_lasts_shows),
		cmocka_unit_test(another_process_begins_anew_without_a_wrong_rate),
		cmocka_unit_test(any_counters_are_survived),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
