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
	liveness_init(&l, &liveness_defaults, 0);
	assert_int_equal(liveness_step(&l, &liveness_defaults, SECOND - 1), LIVENESS_FINE);
	assert_int_equal(liveness_step(&l, &liveness_defaults, SECOND), LIVENESS_PING);
	assert_int_equal(liveness_step(&l, &liveness_defaults, SECOND), LIVENESS_FINE);
	assert_int_equal(liveness_step(&l, &liveness_defaults, 2 * SECOND), LIVENESS_PING);
}

static void silence_is_death_at_eight_seconds_and_not_before(void **state)
{
	(void)state;
	struct liveness l;
	liveness_init(&l, &liveness_defaults, 0);
	assert_int_not_equal(liveness_step(&l, &liveness_defaults, 8 * SECOND - 1), LIVENESS_DEAD);
	assert_int_equal(liveness_step(&l, &liveness_defaults, 8 * SECOND), LIVENESS_DEAD);
}

static void any_byte_is_a_heartbeat(void **state)
{
	(void)state;
	struct liveness l;
	liveness_init(&l, &liveness_defaults, 0);
	liveness_heard(&l, &liveness_defaults, 7 * SECOND);
	assert_int_not_equal(liveness_step(&l, &liveness_defaults, 14 * SECOND), LIVENESS_DEAD);
	assert_int_equal(liveness_step(&l, &liveness_defaults, 15 * SECOND), LIVENESS_DEAD);
}

static void the_deadline_is_when_something_is_due(void **state)
{
	(void)state;
	struct liveness l;
	liveness_init(&l, &liveness_defaults, 0);
	for (int i = 0; i < 8; i++) {
		int64_t at = liveness_deadline_ns(&l, &liveness_defaults);
		assert_int_equal(liveness_step(&l, &liveness_defaults, at - 1), LIVENESS_FINE);
		assert_int_not_equal(liveness_step(&l, &liveness_defaults, at), LIVENESS_FINE);
	}
}

// ---- suspicion

// settled is a link that was silent for each of `silences` in turn, for four minutes; it ends at the time it returns.
static int64_t settled(struct liveness *l, const int64_t *silences_ns, size_t n)
{
	int64_t now_ns = 0;
	liveness_init(l, &liveness_defaults, now_ns);
	for (size_t i = 0; now_ns < 240 * SECOND; i++) {
		now_ns += silences_ns[i % n];
		(void)liveness_heard(l, &liveness_defaults, now_ns);
	}
	return now_ns;
}

static void nothing_is_suspicious_before_one_and_a_half_seconds(void **state)
{
	(void)state;
	struct liveness l;
	const int64_t steady[] = {SECOND / 20};
	int64_t now_ns = settled(&l, steady, 1); // as regular as a clock: phi 8 is at 50 ms and 5.6 times 100 ms
	assert_false(liveness_is_suspect(&l, &liveness_defaults, now_ns + 3 * SECOND / 2 - 1));
	assert_true(liveness_is_suspect(&l, &liveness_defaults, now_ns + 3 * SECOND / 2));
}

static void a_link_is_suspect_at_phi_8_of_its_own_silences(void **state)
{
	(void)state;
	struct liveness l;
	const int64_t halves[] = {SECOND, 2 * SECOND}; // mean 1.5 s, deviation 0.5 s: phi 8 at 1.5 + 5.612 * 0.5
	int64_t now_ns = settled(&l, halves, 2), want_ns = 4306 * SECOND / 1000;
	assert_int_equal(liveness_suspect_ns(&l, &liveness_defaults) / 1000000, want_ns / 1000000);
	assert_false(liveness_is_suspect(&l, &liveness_defaults, now_ns + want_ns - SECOND / 100));
	assert_true(liveness_is_suspect(&l, &liveness_defaults, now_ns + want_ns + SECOND / 100));
}

static void a_link_without_a_history_is_supposed_to_keep_to_its_pings(void **state)
{
	(void)state;
	struct liveness l;
	liveness_init(&l, &liveness_defaults, 0); // mean 1 s, deviation 0.25 s
	assert_int_equal(liveness_suspect_ns(&l, &liveness_defaults), 2403 * SECOND / 1000);
}

static void a_frame_is_late_past_the_longest_but_one_of_the_last_two_minutes(void **state)
{
	(void)state;
	struct liveness l;
	int64_t now_ns = 0;
	int n_late = 0;
	liveness_init(&l, &liveness_defaults, now_ns);
	for (int i = 0; i < 90; i++)
		n_late += liveness_heard(&l, &liveness_defaults, now_ns += SECOND + i % 10 * (SECOND / 100));
	assert_int_equal(n_late, 0); // too little is known
	for (int i = 0; i < 60; i++)
		n_late += liveness_heard(&l, &liveness_defaults, now_ns += SECOND + i % 10 * (SECOND / 100));
	assert_int_equal(n_late, 0);
	assert_true(liveness_heard(&l, &liveness_defaults, now_ns += 12 * SECOND / 10));
	assert_false(liveness_heard(&l, &liveness_defaults, now_ns += SECOND));
}

static void silence_of_my_own_making_is_no_history(void **state)
{
	(void)state;
	struct liveness l;
	const int64_t steady[] = {SECOND};
	int64_t now_ns = settled(&l, steady, 1), before_ns = liveness_suspect_ns(&l, &liveness_defaults);
	for (int i = 0; i < 50; i++) { // this machine sleeps for 6 s, again and again
		now_ns += 6 * SECOND;
		liveness_restart(&l, now_ns);
		assert_false(liveness_is_suspect(&l, &liveness_defaults, now_ns + SECOND));
		(void)liveness_heard(&l, &liveness_defaults, now_ns += SECOND / 2);
	}
	assert_true(liveness_suspect_ns(&l, &liveness_defaults) <= before_ns);
}

static void silences_of_any_length_keep_the_sums_true(void **state)
{
	(void)state;
	struct silences s;
	silences_init(&s, SECOND, 0);
	int64_t now_ns = 0;
	uint64_t x = 1;
	for (int i = 0; i < 1000; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		int64_t silence_ns = i % 7 == 0 ? INT64_MAX / 4 : i % 5 == 0 ? -1 : (int64_t)(x >> 24);
		now_ns += 2 * SECOND;
		(void)silences_add(&s, silence_ns, SECOND, now_ns);
		uint64_t sum = 0, squares = 0;
		for (int32_t k = 0; k < s.n; k++) {
			sum += s.us[k];
			squares += (uint64_t)s.us[k] * s.us[k];
		}
		assert_true(s.sum == sum && s.sum_of_squares == squares);
		uint64_t variance = (squares * (uint64_t)s.n - sum * sum) / ((uint64_t)s.n * (uint64_t)s.n), d = s.deviation_us;
		assert_true(d * d <= variance && (d + 1) * (d + 1) > variance);
	}
	assert_int_equal(s.n, SILENCES_WINDOW);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_quiet_link_is_pinged_every_second),
		cmocka_unit_test(silence_is_death_at_eight_seconds_and_not_before),
		cmocka_unit_test(any_byte_is_a_heartbeat),
		cmocka_unit_test(the_deadline_is_when_something_is_due),
		cmocka_unit_test(nothing_is_suspicious_before_one_and_a_half_seconds),
		cmocka_unit_test(a_link_is_suspect_at_phi_8_of_its_own_silences),
		cmocka_unit_test(a_link_without_a_history_is_supposed_to_keep_to_its_pings),
		cmocka_unit_test(a_frame_is_late_past_the_longest_but_one_of_the_last_two_minutes),
		cmocka_unit_test(silence_of_my_own_making_is_no_history),
		cmocka_unit_test(silences_of_any_length_keep_the_sums_true),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
