#include "engine/wire.h"

#include "base/bytes.h"
#include "base/fmath.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define N 77 // two whole q8 blocks and a part

// Values of every magnitude that f16 carries too: zeros, subnormals of f16, ties, both signs.
static void fill(struct rng *r, float *x, int32_t n)
{
	for (int32_t i = 0; i < n; i++) {
		uint32_t exp = (uint32_t)(127 - 26 + (int)rng_below(r, 42));
		x[i] = rng_below(r, 16) == 0 ? 0.0f : fmath_from_bits((rng_u32(r) & 0x80000000) | exp << 23 | (rng_u32(r) & 0x7fffff));
		if (rng_below(r, 4) == 0)
			x[i] = fmath_from_bits(fmath_bits(x[i]) & 0xfffff000); // half way between two f16
		if (!(x[i] < 65504.0f && x[i] > -65504.0f))
			x[i] = 1.0f;
	}
}

static void rounding_twice_changes_nothing(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 1);
	for (int t = 0; t < N_WIRE_TYPES; t++) {
		for (int round = 0; round < 2000; round++) {
			float x[N], once[N];
			int32_t bad;
			fill(&r, x, N);
			assert_int_equal(wire_round((enum wire_type)t, x, N, &bad), OK);
			memcpy(once, x, sizeof x);
			assert_int_equal(wire_round((enum wire_type)t, x, N, &bad), OK);
			assert_memory_equal(once, x, sizeof x);
		}
	}
}

static void a_rounded_state_survives_the_link(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 2);
	for (int t = 0; t < N_WIRE_TYPES; t++) {
		for (int32_t n = 1; n <= N; n++) {
			float x[N], y[N];
			uint8_t bytes[4 * N + 64];
			int32_t bad;
			fill(&r, x, n);
			assert_int_equal(wire_round((enum wire_type)t, x, n, &bad), OK);
			memset(bytes, 0xa5, sizeof bytes);
			wire_encode((enum wire_type)t, x, n, bytes);
			size_t len = wire_bytes((enum wire_type)t, n);
			assert_int_equal(bytes[len], 0xa5);
			assert_int_equal(wire_decode((enum wire_type)t, bytes, n, y), OK);
			assert_memory_equal(x, y, (size_t)n * sizeof *x);
		}
	}
}

static void every_f16_and_bf16_pattern_comes_back_or_is_refused(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 65536; h++) {
		uint8_t in[2], out[2];
		float x;
		int32_t bad;
		store_u16(in, (uint16_t)h);
		bool f16_finite = (h & 0x7c00) != 0x7c00, bf16_finite = (h & 0x7f80) != 0x7f80;
		assert_int_equal(wire_decode(WIRE_F16, in, 1, &x), f16_finite ? OK : ERR_NON_FINITE);
		if (f16_finite) {
			assert_int_equal(wire_round(WIRE_F16, &x, 1, &bad), OK);
			wire_encode(WIRE_F16, &x, 1, out);
			assert_memory_equal(in, out, 2);
		}
		assert_int_equal(wire_decode(WIRE_BF16, in, 1, &x), bf16_finite ? OK : ERR_NON_FINITE);
		if (bf16_finite) {
			assert_int_equal(wire_round(WIRE_BF16, &x, 1, &bad), OK);
			wire_encode(WIRE_BF16, &x, 1, out);
			assert_memory_equal(in, out, 2);
		}
	}
}

static void a_value_that_cannot_be_carried_is_named_and_untouched(void **state)
{
	(void)state;
	const struct {
		enum wire_type type;
		uint32_t last; // bits of the largest value that is carried
	} cases[] = {{WIRE_F32, 0x7f7fffff}, {WIRE_BF16, 0x7f7f7fff}, {WIRE_F16, 0x477fefff}, {WIRE_Q8, 0x7f7e0000}};
	for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		for (uint32_t sign = 0; sign < 2; sign++) {
			float x[40] = {0}, before[40];
			int32_t bad;
			x[3] = 1.2345678f;
			x[37] = fmath_from_bits(cases[c].last | sign << 31);
			memcpy(before, x, sizeof x);
			assert_int_equal(wire_round(cases[c].type, x, 40, &bad), OK);
			for (int i = 0; i < 40; i++)
				assert_true(fmath_is_finite(x[i]));
			memcpy(x, before, sizeof x);
			x[37] = fmath_from_bits((cases[c].last + 1) | sign << 31);
			memcpy(before, x, sizeof x);
			assert_int_equal(wire_round(cases[c].type, x, 40, &bad), ERR_NON_FINITE);
			assert_int_equal(bad, 37);
			assert_memory_equal(before, x, sizeof x);
			x[5] = fmath_from_bits(0x7fc00000);
			assert_int_equal(wire_round(cases[c].type, x, 40, &bad), ERR_NON_FINITE);
			assert_int_equal(bad, 5);
		}
	}
}

static void q8_takes_the_smallest_power_of_two(void **state)
{
	(void)state;
	const struct {
		float x;
		uint8_t e, q;
	} cases[] = {
		{127.0f, 127, 127},        // d = 1
		{127.00001f, 128, 64},     // one float more: d = 2, 63.5 and a bit rounds up
		{63.5f, 126, 127},         // d = 1/2 holds it exactly
		{1.0f, 121, 64},
		{0x1p-126f, 1, 1},         // d is never below 2^-126
		{0x1.8p-126f, 1, 2},       // a tie goes to even
		{0x1p-127f, 0, 0},         // half of it is a tie with zero
		{0x1.000004p-127f, 1, 1}, // the next float
		{0x1p-149f, 0, 0},
		{0.0f, 0, 0},
		{-0.0f, 0, 0},
	};
	for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		float x = cases[c].x;
		uint8_t out[33];
		wire_encode(WIRE_Q8, &x, 1, out);
		assert_int_equal(out[0], cases[c].e);
		assert_int_equal(out[1], cases[c].q);
		for (int i = 2; i < 33; i++)
			assert_int_equal(out[i], 0);
	}
	float minus = -0.0f;
	int32_t bad;
	assert_int_equal(wire_round(WIRE_Q8, &minus, 1, &bad), OK);
	assert_int_equal(fmath_bits(minus), 0);
}

static void q8_error_is_at_most_half_a_step(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 3);
	for (int round = 0; round < 5000; round++) {
		float x[32], y[32], max = 0;
		int32_t bad;
		fill(&r, x, 32);
		memcpy(y, x, sizeof x);
		assert_int_equal(wire_round(WIRE_Q8, y, 32, &bad), OK);
		for (int i = 0; i < 32; i++)
			max = x[i] > max ? x[i] : -x[i] > max ? -x[i] : max;
		for (int i = 0; i < 32; i++)
			assert_true((x[i] > y[i] ? x[i] - y[i] : y[i] - x[i]) <= max / 127); // d / 2 <= (2 max / 127) / 2
	}
}

static void decoding_refuses_q8_blocks_that_no_encoder_writes(void **state)
{
	(void)state;
	const struct {
		uint8_t e;
		int8_t q;
		enum err want;
	} cases[] = {
		{0, 1, ERR_FORMAT},           // a value without a scale
		{5, 0, ERR_FORMAT},           // a scale without a value
		{127, 63, ERR_FORMAT},        // half the scale would do
		{127, -128, ERR_FORMAT},
		{127, 64, OK},
		{127, -127, OK},
		{1, 1, OK},
		{248, 127, OK},
		{249, 64, ERR_NON_FINITE},
		{254, 127, ERR_NON_FINITE},
		{255, 1, ERR_NON_FINITE},
	};
	for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		uint8_t in[33] = {cases[c].e};
		float x[3];
		in[2] = (uint8_t)cases[c].q;
		assert_int_equal(wire_decode(WIRE_Q8, in, 3, x), cases[c].want);
	}
	uint8_t fill_used[33] = {127, 64, 0, 0, 1};
	float x[3];
	assert_int_equal(wire_decode(WIRE_Q8, fill_used, 3, x), ERR_FORMAT);
}

static void any_bytes_decode_to_finite_values_or_an_error(void **state)
{
	(void)state;
	struct rng r;
	int n_decoded[N_WIRE_TYPES] = {0};
	rng_init(&r, 4);
	for (int round = 0; round < 20000; round++) {
		uint8_t in[4 * N], again[4 * N];
		float x[N];
		enum wire_type t = (enum wire_type)(round % N_WIRE_TYPES);
		int32_t n = t == WIRE_Q8 ? 32 : 1 + (int32_t)rng_below(&r, round % 3 ? N : 2), bad;
		for (size_t i = 0; i < sizeof in; i++)
			in[i] = (uint8_t)rng_u32(&r);
		if (wire_decode(t, in, n, x) != OK)
			continue;
		n_decoded[t]++;
		assert_int_equal(wire_round(t, x, n, &bad), OK);
		wire_encode(t, x, n, again);
		assert_memory_equal(in, again, wire_bytes(t, n)); // one state, one encoding
	}
	for (int t = 0; t < N_WIRE_TYPES; t++)
		assert_true(n_decoded[t] > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounding_twice_changes_nothing),
		cmocka_unit_test(a_rounded_state_survives_the_link),
		cmocka_unit_test(every_f16_and_bf16_pattern_comes_back_or_is_refused),
		cmocka_unit_test(a_value_that_cannot_be_carried_is_named_and_untouched),
		cmocka_unit_test(q8_takes_the_smallest_power_of_two),
		cmocka_unit_test(q8_error_is_at_most_half_a_step),
		cmocka_unit_test(decoding_refuses_q8_blocks_that_no_encoder_writes),
		cmocka_unit_test(any_bytes_decode_to_finite_values_or_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
