// The layout of weights in a memory cap: cost-model.md's formulas for equal units, and the cap kept for any.
#include "base/window_layout.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define U 1000
#define N_MAX 300

static const uint64_t *equal_units(void)
{
	static uint64_t units[N_MAX];
	for (int i = 0; i < N_MAX; i++)
		units[i] = U;
	return units;
}

static int32_t count_streamed(const struct window_layout *l)
{
	int32_t n = 0;
	for (int32_t i = 0; i < l->n_units; i++)
		n += window_layout_is_streamed(l, i);
	return n;
}

static void what_fits_is_pinned_whole(void **state)
{
	(void)state;
	struct window_layout l;
	assert_true(window_layout_fit(equal_units(), 100, 100 * U, 4, 0, &l));
	assert_int_equal(l.n_streamed, 0);
	assert_int_equal(l.window, 0);
	assert_int_equal(l.pinned_bytes, 100 * U);
	assert_int_equal(count_streamed(&l), 0);
	assert_true(window_layout_fit(equal_units(), 100, 100 * U - 1, 2, 0, &l));
	assert_int_equal(l.n_streamed, 3); // N - Q + 2 with Q = 99
	assert_int_equal(l.window, 2);
}

static void equal_units_follow_the_cost_model(void **state)
{
	(void)state;
	for (int32_t n_units = 2; n_units <= 120; n_units += 7) {
		for (int32_t slots = 2; slots < n_units; slots++) { // Q
			struct window_layout l;
			for (int32_t want = 2; want <= slots && want < 9; want++) {
				assert_true(window_layout_fit(equal_units(), n_units, (uint64_t)slots * U + U / 2, want, 0, &l));
				int32_t n = n_units - slots + want; // the fewest whose window has `want` slots
				if (n > n_units)
					n = n_units;
				assert_int_equal(l.n_streamed, n);
				assert_int_equal(l.window, slots - (n_units - n));
				assert_int_equal(count_streamed(&l), n);
				assert_int_equal(l.pinned_bytes, (uint64_t)(n_units - n) * U);
				assert_int_equal(l.streamed_bytes, (uint64_t)n * U);
			}
			assert_true(window_layout_fit(equal_units(), n_units, (uint64_t)slots * U, 2, n_units, &l));
			assert_int_equal(l.n_streamed, n_units); // a planner may want all streamed
			assert_int_equal(l.window, slots);
		}
	}
}

static void a_cap_below_two_slots_is_refused(void **state)
{
	(void)state;
	struct window_layout l;
	assert_false(window_layout_fit(equal_units(), 50, 2 * U - 1, 2, 0, &l));
	assert_int_equal(window_layout_least(equal_units(), 50), 2 * U);
	assert_true(window_layout_fit(equal_units(), 50, 2 * U, 2, 0, &l));
	assert_int_equal(l.n_streamed, 50);
	assert_true(window_layout_fit(equal_units(), 1, U, 2, 0, &l));
	assert_int_equal(l.n_streamed, 0);
}

static void streamed_units_are_spread_evenly(void **state)
{
	(void)state;
	struct window_layout l = {.n_units = 240, .n_streamed = 37};
	int32_t last = -1, least = 240, most = 0;
	for (int32_t i = 0; i < l.n_units; i++) {
		if (!window_layout_is_streamed(&l, i))
			continue;
		int32_t gap = i - last;
		if (last >= 0) {
			least = gap < least ? gap : least;
			most = gap > most ? gap : most;
		}
		last = i;
	}
	assert_int_equal(last, 239); // and the wrap to unit 0 is a gap like the others
	assert_int_equal(least, 240 / 37);
	assert_int_equal(most, 240 / 37 + 1);
}

static void unequal_units_keep_the_cap(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 3);
	for (int round = 0; round < 2000; round++) {
		uint64_t units[64], total = 0, most = 0;
		int32_t n = 1 + (int32_t)rng_below(&r, 64);
		for (int32_t i = 0; i < n; i++) {
			units[i] = 1 + rng_below(&r, 1000);
			total += units[i];
			most = units[i] > most ? units[i] : most;
		}
		uint64_t bytes = rng_below(&r, total + total / 4 + 1);
		struct window_layout l;
		bool fits = window_layout_fit(units, n, bytes, 2 + (int32_t)rng_below(&r, 5), 0, &l);
		if (bytes >= window_layout_least(units, n) || bytes >= total)
			assert_true(fits);
		if (!fits)
			continue;
		assert_true(l.pinned_bytes + l.window_bytes <= bytes);
		assert_int_equal(l.pinned_bytes + l.streamed_bytes, total);
		assert_int_equal(l.window_bytes, (uint64_t)l.window * most);
		assert_int_equal(count_streamed(&l), l.n_streamed);
		assert_int_equal(l.n_streamed == 0, l.window == 0);
		assert_true(l.n_streamed < 2 || l.window >= 2);
		if (bytes >= total)
			assert_int_equal(l.n_streamed, 0);
	}
}

static void a_plan_says_any_number_of_equal_units(void **state)
{
	(void)state;
	for (int32_t n_units = 1; n_units <= 4096; n_units = n_units * 3 / 2 + 1) {
		for (int32_t n = 0; n <= n_units; n++) {
			uint32_t share = window_share_of(n, n_units);
			assert_in_range(share, 0, WINDOW_SHARE_WHOLE);
			assert_int_equal(window_share_units(share, n_units), n);
		}
	}
	assert_int_equal(window_layout_streams(equal_units(), 100, 0), 0);
	assert_int_equal(window_layout_streams(equal_units(), 100, 1), 2); // a whole one and what a plan streams
	assert_in_range(window_layout_streams(equal_units(), 100, window_share_of(40, 100)), 41, 41);
	assert_int_equal(window_layout_streams(equal_units(), 100, WINDOW_SHARE_WHOLE), 100);
	assert_int_equal(window_layout_streams(equal_units(), 1, 1), 1);
	const uint64_t huge[] = {UINT64_C(1) << 60, UINT64_C(1) << 60, UINT64_C(1) << 60};
	assert_int_equal(window_layout_streams(huge, 3, WINDOW_SHARE_WHOLE), 3);
	assert_int_equal(window_layout_streams(huge, 3, 1), 2); // a whole one and what a plan streams
}

// A plan counts equal units of `layer / 8`; the machine's differ. Its window is no smaller, and it streams little more than planned.
static void a_planned_window_is_kept_by_other_units(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 8);
	for (int round = 0; round < 2000; round++) {
		uint64_t units[96], sum = 0, most = 0;
		int32_t n = 16 + (int32_t)rng_below(&r, 80);
		for (int32_t i = 0; i < n; i++) {
			units[i] = i % 6 == 0 ? 500 + rng_below(&r, 500) : 900 + rng_below(&r, 100);
			sum += units[i];
			most = units[i] > most ? units[i] : most;
		}
		int32_t planned = 24 + (int32_t)rng_below(&r, 60); // N
		uint64_t u = (sum + (uint64_t)planned - 1) / (uint64_t)planned, bytes = sum / 4 + rng_below(&r, sum / 2);
		int32_t slots = (int32_t)(bytes / u), least = planned - slots + WINDOW_MIN; // Q
		if (slots < WINDOW_MIN || least < 1 || least > planned)
			continue;
		int32_t streamed = least + (int32_t)rng_below(&r, (uint64_t)(planned - least + 1));
		uint64_t window = (uint64_t)(slots - (planned - streamed)) * u;
		struct window_layout l;
		int32_t n_min = window_layout_streams(units, n, window_share_of(streamed, planned));
		assert_true(window_layout_fit(units, n, bytes, WINDOW_MIN, n_min, &l));
		assert_true(l.n_streamed >= n_min);
		if (l.n_streamed == n) // all of it: there is no more
			continue;
		assert_true(l.window_bytes >= window);
		assert_true(l.streamed_bytes <= (uint64_t)streamed * u + 8 * most); // which ones are streamed depends on how many
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plan_says_any_number_of_equal_units),
		cmocka_unit_test(a_planned_window_is_kept_by_other_units),
		cmocka_unit_test(what_fits_is_pinned_whole),
		cmocka_unit_test(equal_units_follow_the_cost_model),
		cmocka_unit_test(a_cap_below_two_slots_is_refused),
		cmocka_unit_test(streamed_units_are_spread_evenly),
		cmocka_unit_test(unequal_units_keep_the_cap),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
