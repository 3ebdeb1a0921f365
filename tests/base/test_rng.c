#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// The three vectors are those of the Random123 library's known answers for philox4x32, 10 rounds.
static void philox_gives_the_published_vectors(void **state)
{
	(void)state;
	static const uint32_t in[3][6] = {
		{0, 0, 0, 0, 0, 0},
		{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
		{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0},
	};
	static const uint32_t want[3][4] = {
		{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
		{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
	};
	for (int i = 0; i < 3; i++) {
		uint32_t out[4];
		rng_philox(in[i] + 4, in[i], out);
		assert_memory_equal(out, want[i], sizeof(out));
	}
}

static void a_position_has_one_number_in_its_range(void **state)
{
	(void)state;
	// Zero key and counter: words 6627e8d5 and e169c58d.
	assert_true(rng_philox_u01(0, 0) == (double)(0xe169c58d6627e8d5 >> 11) * 0x1p-53);
	double sum = 0.0;
	for (uint64_t p = 0; p < 100000; p++) {
		double u = rng_philox_u01(42, p);
		assert_true(u >= 0.0 && u < 1.0);
		sum += u;
	}
	assert_true(sum > 49500.0 && sum < 50500.0);
	assert_true(rng_philox_u01(42, 7) != rng_philox_u01(42, 8) && rng_philox_u01(42, 7) != rng_philox_u01(43, 7));
	assert_true(rng_philox_u01(1ull << 40, 0) != rng_philox_u01(0, 0) && rng_philox_u01(0, 1ull << 40) != rng_philox_u01(0, 0));
}

static void the_stream_is_splitmix64(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 1234567);
	assert_true(rng_u64(&r) == 6457827717110365317u);
	assert_true(rng_u64(&r) == 3203168211198807973u);
	assert_true(rng_u64(&r) == 9817491932198370423u);
}

static void below_reaches_every_value_and_no_other(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 1);
	int counts[7] = {0};
	for (int i = 0; i < 70000; i++) {
		uint64_t v = rng_below(&r, 7);
		assert_true(v < 7);
		counts[v]++;
	}
	for (int i = 0; i < 7; i++)
		assert_true(counts[i] > 9500 && counts[i] < 10500);
	assert_true(rng_below(&r, 1) == 0);
	assert_true(rng_below(&r, UINT64_MAX) < UINT64_MAX);
	assert_true(rng_u01(&r) < 1.0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(philox_gives_the_published_vectors),
		cmocka_unit_test(a_position_has_one_number_in_its_range),
		cmocka_unit_test(the_stream_is_splitmix64),
		cmocka_unit_test(below_reaches_every_value_and_no_other),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
