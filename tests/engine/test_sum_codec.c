#include "engine/sum_codec.h"

#include "base/bytes.h"
#include "base/fmath.h"
#include "base/rng.h"
#include "base/tensor_split.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define N (2 * SPLIT_Q8_BLOCK + 13) // two whole blocks and a part

static const enum wire_type payloads[] = {WIRE_F32, WIRE_BF16, WIRE_Q8};

// fill draws values whose magnitudes lie up to 2^40 apart; a third of all blocks has zeros, too.
static void fill(struct rng *r, float *x, int32_t n)
{
	uint32_t highest = 40 + rng_below(r, 200);
	for (int32_t i = 0; i < n; i++) {
		uint32_t exp = highest - (rng_below(r, 2) == 0 ? 0 : rng_below(r, 40));
		x[i] = highest % 3 == 0 && rng_below(r, 4) == 0 ? 0.0f : fmath_from_bits((rng_u32(r) & 0x80000000) | exp << 23 | (rng_u32(r) & 0x7fffff));
	}
}

static void rounding_twice_changes_nothing(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 1);
	for (int round = 0; round < 6000; round++) {
		enum wire_type t = payloads[round % 3];
		float x[N], once[N];
		int32_t bad;
		fill(&r, x, N);
		assert_int_equal(sum_round(t, x, N, &bad), OK);
		memcpy(once, x, sizeof x);
		assert_int_equal(sum_round(t, x, N, &bad), OK);
		assert_memory_equal(once, x, sizeof x);
	}
}

static void rounded_sums_survive_the_link(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 2);
	for (int round = 0; round < 3 * 500; round++) {
		enum wire_type t = payloads[round % 3];
		for (int32_t n = 0; n <= N; n++) {
			float x[N], y[N];
			uint8_t bytes[4 * N + 1];
			int32_t bad;
			size_t len = split_payload_bytes(t, n);
			fill(&r, x, n);
			assert_int_equal(sum_round(t, x, n, &bad), OK);
			memset(bytes, 0xa5, sizeof bytes);
			sum_encode(t, x, n, bytes);
			assert_int_equal(bytes[len], 0xa5);
			assert_int_equal(sum_decode(t, bytes, n, y), OK);
			assert_memory_equal(x, y, (size_t)n * sizeof *x);
		}
	}
}

static void q8_takes_a_byte_for_each_value_and_two_for_each_block(void **state)
{
	(void)state;
	assert_int_equal(split_payload_bytes(WIRE_Q8, 0), 0);
	assert_int_equal(split_payload_bytes(WIRE_Q8, 1), 3);
	assert_int_equal(split_payload_bytes(WIRE_Q8, SPLIT_Q8_BLOCK), SPLIT_Q8_BLOCK + 2);
	assert_int_equal(split_payload_bytes(WIRE_Q8, SPLIT_Q8_BLOCK + 1), SPLIT_Q8_BLOCK + 5);
	assert_int_equal(split_payload_bytes(WIRE_BF16, 5), 10);
	assert_int_equal(split_payload_bytes(WIRE_F32, 5), 20);
}

static void the_largest_value_is_127_steps(void **state)
{
	(void)state;
	// Every fraction, so that the scale falls on ties of bf16 and beside them.
	for (uint32_t frac = 0; frac < 1 << 23; frac += 61) {
		float x = fmath_from_bits(0x3f800000 | frac);
		uint8_t out[3];
		sum_encode(WIRE_Q8, &x, 1, out);
		assert_int_equal(load_u16(out), fmath_f32_to_bf16(x / 127.0f));
		assert_int_equal(out[2], 127);
	}
}

static void q8_error_is_at_most_half_a_step(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 3);
	for (int round = 0; round < 5000; round++) {
		float x[SPLIT_Q8_BLOCK], y[SPLIT_Q8_BLOCK], max = 0;
		int32_t bad;
		fill(&r, x, SPLIT_Q8_BLOCK);
		memcpy(y, x, sizeof x);
		assert_int_equal(sum_round(WIRE_Q8, y, SPLIT_Q8_BLOCK, &bad), OK);
		for (int i = 0; i < SPLIT_Q8_BLOCK; i++)
			max = x[i] > max ? x[i] : -x[i] > max ? -x[i] : max;
		for (int i = 0; i < SPLIT_Q8_BLOCK; i++)
			assert_true((x[i] > y[i] ? x[i] - y[i] : y[i] - x[i]) <= max * 0.503f / 127 + 127 * 0x1p-67f); // the scale is 0.4 % off at most
	}
}

static void what_is_next_to_nothing_becomes_zero(void **state)
{
	(void)state;
	const float least = 127 * 0x1p-67f;
	const float cases[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-80f, least * 0.99f, -least, least};
	for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		float x = cases[c];
		int32_t bad;
		uint8_t out[3];
		assert_int_equal(sum_round(WIRE_Q8, &x, 1, &bad), OK);
		sum_encode(WIRE_Q8, &x, 1, out);
		if (c < 5) {
			assert_int_equal(fmath_bits(x), 0); // +0
			assert_memory_equal(out, "\0\0\0", 3);
		} else {
			assert_true(x == cases[c]);
			assert_int_equal((int8_t)out[2], x > 0 ? 127 : -127);
		}
	}
}

static void a_value_that_cannot_be_carried_is_named_and_untouched(void **state)
{
	(void)state;
	const uint32_t last = fmath_bits(127 * 0x1p120f);
	for (uint32_t sign = 0; sign < 2; sign++) {
		float x[40] = {0}, before[40];
		int32_t bad;
		x[3] = 1.2345678f;
		x[37] = fmath_from_bits(last | sign << 31);
		assert_int_equal(sum_round(WIRE_Q8, x, 40, &bad), OK);
		assert_int_equal(fmath_bits(x[37]), last | sign << 31);
		x[3] = 1.2345678f;
		x[37] = fmath_from_bits((last + 1) | sign << 31);
		memcpy(before, x, sizeof x);
		assert_int_equal(sum_round(WIRE_Q8, x, 40, &bad), ERR_NON_FINITE);
		assert_int_equal(bad, 37);
		assert_memory_equal(before, x, sizeof x);
		x[5] = fmath_from_bits(0x7fc00000);
		assert_int_equal(sum_round(WIRE_Q8, x, 40, &bad), ERR_NON_FINITE);
		assert_int_equal(bad, 5);
	}
}

static void decoding_refuses_blocks_that_no_encoder_writes(void **state)
{
	(void)state;
	const struct {
		uint16_t d;
		int8_t q;
		enum err want;
	} cases[] = {
		{0, 0, OK},
		{0, 127, ERR_FORMAT},      // a value without a scale
		{0x3f80, 0, ERR_FORMAT},   // a scale without a value
		{0x3f80, 126, ERR_FORMAT}, // a smaller scale would do
		{0x3f80, -128, ERR_FORMAT},
		{0x3f80, 127, OK},
		{0x3f80, -127, OK},
		{0xbf80, 127, ERR_FORMAT},
		{0x8000, 0, ERR_FORMAT},
		{0x1e00, 127, OK},         // 2^-67
		{0x1dff, 127, ERR_FORMAT},
		{0x0001, 127, ERR_FORMAT},
		{0x7b80, 127, OK},         // 2^120
		{0x7b81, 127, ERR_FORMAT},
		{0x7f80, 127, ERR_NON_FINITE},
		{0x7fc0, 127, ERR_NON_FINITE},
	};
	for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		uint8_t in[5] = {0};
		float x[3];
		store_u16(in, cases[c].d);
		in[3] = (uint8_t)cases[c].q;
		assert_int_equal(sum_decode(WIRE_Q8, in, 3, x), cases[c].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounding_twice_changes_nothing),
		cmocka_unit_test(rounded_sums_survive_the_link),
		cmocka_unit_test(q8_takes_a_byte_for_each_value_and_two_for_each_block),
		cmocka_unit_test(the_largest_value_is_127_steps),
		cmocka_unit_test(q8_error_is_at_most_half_a_step),
		cmocka_unit_test(what_is_next_to_nothing_becomes_zero),
		cmocka_unit_test(a_value_that_cannot_be_carried_is_named_and_untouched),
		cmocka_unit_test(decoding_refuses_blocks_that_no_encoder_writes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
