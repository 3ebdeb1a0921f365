#include "engine/give_memory.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static const struct memory_look calm = {.pressure = 0, .available_bytes = 4 * GIB, .total_bytes = 8 * GIB};
static const struct memory_look pressed = {.pressure = 2300, .available_bytes = GIB, .total_bytes = 8 * GIB};

static struct give_memory start(void)
{
	struct give_memory g;
	give_memory_init(&g);
	give_memory_stage(&g, 2000 * MIB, 100 * MIB);
	return g;
}

static uint64_t look(struct give_memory *g, const struct memory_look *l, int32_t n)
{
	uint64_t hold = g->hold;
	for (int32_t i = 0; i < n; i++)
		hold = give_memory_look(g, l);
	return hold;
}

static void a_moment_of_pressure_changes_nothing(void **state)
{
	(void)state;
	struct give_memory g = start();
	for (int32_t i = 0; i < 20; i++) {
		assert_true(look(&g, &pressed, 1) == GIVE_MEMORY_ALL);
		assert_true(look(&g, &calm, 1) == GIVE_MEMORY_ALL);
	}
}

static void pressure_takes_a_quarter_at_a_time_down_to_what_a_window_needs(void **state)
{
	(void)state;
	struct give_memory g = start();
	assert_int_equal(look(&g, &pressed, 2), 1500 * MIB);
	assert_int_equal(look(&g, &pressed, 6), 1500 * MIB); // the kernel's mean is still of before
	assert_int_equal(look(&g, &pressed, 1), 1000 * MIB);
	assert_int_equal(look(&g, &pressed, 7), 500 * MIB);
	assert_int_equal(look(&g, &pressed, 7), 100 * MIB);
	assert_int_equal(look(&g, &pressed, 1000), 100 * MIB);
}

static void what_is_missing_is_given_at_once(void **state)
{
	(void)state;
	struct give_memory g = start();
	const struct memory_look none = {.pressure = -1, .available_bytes = 20 * MIB, .total_bytes = 4 * GIB}; // of 128
	assert_int_equal(look(&g, &none, 2), 1500 * MIB);
	g = start();
	const struct memory_look large = {.pressure = -1, .available_bytes = 24 * MIB, .total_bytes = 64 * GIB}; // of 512
	assert_int_equal(look(&g, &large, 2), 1000 * MIB);
}

static void it_is_taken_back_slowly(void **state)
{
	(void)state;
	struct give_memory g = start();
	(void)look(&g, &pressed, 2);
	(void)look(&g, &pressed, 7); // 1000 MiB
	(void)look(&g, &calm, 5);
	assert_int_equal(look(&g, &calm, 29), 1000 * MIB);
	assert_int_equal(look(&g, &calm, 1), 1500 * MIB);
	assert_int_equal(look(&g, &calm, 29), 1500 * MIB);
	assert_true(look(&g, &calm, 1) == GIVE_MEMORY_ALL);
	assert_true(look(&g, &calm, 5000) == GIVE_MEMORY_ALL);
}

static void taking_back_too_early_makes_the_next_time_later(void **state)
{
	(void)state;
	struct give_memory g = start();
	(void)look(&g, &pressed, 2);
	assert_true(look(&g, &calm, 5 + 30) == GIVE_MEMORY_ALL);
	(void)look(&g, &pressed, 2);
	assert_int_equal(look(&g, &calm, 5 + 59), 1500 * MIB);
	assert_true(look(&g, &calm, 1) == GIVE_MEMORY_ALL);
	assert_true(look(&g, &calm, 480) == GIVE_MEMORY_ALL); // a long peace
	(void)look(&g, &pressed, 2);
	assert_true(look(&g, &calm, 5 + 30) == GIVE_MEMORY_ALL);
}

static void nothing_is_taken_back_that_is_not_there(void **state)
{
	(void)state;
	struct give_memory g = start();
	const struct memory_look tight = {.pressure = 0, .available_bytes = 900 * MIB, .total_bytes = 8 * GIB}; // 2 * 256 and a quarter of the weights
	(void)look(&g, &pressed, 2);
	assert_int_equal(look(&g, &tight, 1000), 1500 * MIB);
}

static void layers_that_went_elsewhere_are_not_taken_back_at_once(void **state)
{
	(void)state;
	struct give_memory g = start();
	(void)look(&g, &pressed, 2); // 1500
	give_memory_stage(&g, 1200 * MIB, 100 * MIB); // the planner moved some away
	assert_int_equal(look(&g, &calm, 20), 1500 * MIB); // that is what the coordinator goes on planning with
	assert_int_equal(look(&g, &pressed, 2), 700 * MIB); // and what is left is given from
	assert_int_equal(g.top, 2000 * MIB);
	give_memory_stage(&g, 0, 0); // no layers
	assert_int_equal(look(&g, &pressed, 100), 700 * MIB);
}

static void whatever_happens_it_stays_within_bounds_and_comes_back(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct rng r;
		struct give_memory g;
		rng_init(&r, seed);
		give_memory_init(&g);
		for (int32_t i = 0; i < 2000; i++) {
			if (rng_below(&r, 100) == 0)
				give_memory_stage(&g, rng_below(&r, 4 * GIB), rng_below(&r, GIB));
			struct memory_look l = {.pressure = (int32_t)rng_below(&r, 3) * 700 - 1, .available_bytes = rng_below(&r, GIB), .total_bytes = 16 * GIB};
			uint64_t before = g.hold, hold = give_memory_look(&g, &l);
			assert_true(hold == GIVE_MEMORY_ALL || hold >= g.least);
			if (hold < before)
				assert_true(give_memory_is_short(&l));
			if (hold > before)
				assert_true(l.pressure < 100 && l.available_bytes >= GIB / 2);
		}
		const struct memory_look plenty = {.pressure = 0, .available_bytes = 100 * GIB, .total_bytes = 128 * GIB};
		assert_true(look(&g, &plenty, 10 * 481) == GIVE_MEMORY_ALL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_moment_of_pressure_changes_nothing),
		cmocka_unit_test(pressure_takes_a_quarter_at_a_time_down_to_what_a_window_needs),
		cmocka_unit_test(what_is_missing_is_given_at_once),
		cmocka_unit_test(it_is_taken_back_slowly),
		cmocka_unit_test(taking_back_too_early_makes_the_next_time_later),
		cmocka_unit_test(nothing_is_taken_back_that_is_not_there),
		cmocka_unit_test(layers_that_went_elsewhere_are_not_taken_back_at_once),
		cmocka_unit_test(whatever_happens_it_stays_within_bounds_and_comes_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
