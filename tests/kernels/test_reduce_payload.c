#include "kernels/reduce_payload.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/fmath.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "tests/support/canonical_ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N 77 // two whole q8 blocks and a part

static void names_read_back(void **state)
{
	(void)state;
	enum reduce_payload p;
	for (int i = 0; i < N_REDUCE_PAYLOADS; i++) {
		assert_int_equal(reduce_payload_find(reduce_payload_name((enum reduce_payload)i), &p), OK);
		assert_int_equal(p, i);
	}
	assert_int_equal(reduce_payload_find("f16", &p), ERR_RANGE);
}

static void bytes_are_what_the_layouts_say(void **state)
{
	(void)state;
	assert_int_equal(reduce_payload_bytes(REDUCE_F32, 77), 308);
	assert_int_equal(reduce_payload_bytes(REDUCE_BF16, 77), 154);
	assert_int_equal(reduce_payload_bytes(REDUCE_Q8, 77), 89);
	assert_int_equal(reduce_payload_bytes(REDUCE_Q8, 64), 72);
	assert_int_equal(reduce_payload_bytes(REDUCE_Q8, 0), 0);
}

// Each part is copied to storage that ends where it ends.
static enum err there_and_back(enum reduce_payload p, const float *x, int32_t n, float *y)
{
	size_t len = reduce_payload_bytes(p, n);
	uint8_t *bytes = malloc(len + (len == 0));
	enum err e = reduce_payload_encode(p, x, n, bytes);
	if (e == OK)
		e = reduce_payload_decode(p, bytes, n, y);
	free(bytes);
	return e;
}

static void f32_keeps_every_bit_and_bf16_rounds_to_nearest_even(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 1);
	for (int i = 0; i < 300; i++) {
		float x[N], y[N];
		int32_t n = (int32_t)rng_below(&r, N + 1);
		ref_fill(&r, i % 2 ? REF_PLAIN : REF_TINY, x, N);
		assert_int_equal(there_and_back(REDUCE_F32, x, n, y), OK);
		assert_memory_equal(x, y, (size_t)n * sizeof(float));
		assert_int_equal(there_and_back(REDUCE_BF16, x, n, y), OK);
		for (int32_t j = 0; j < n; j++) {
			uint32_t u = fmath_bits(x[j]), low = u & 0xffff, up = low > 0x8000 || (low == 0x8000 && (u >> 16 & 1));
			assert_int_equal(fmath_bits(y[j]), ((u >> 16) + up) << 16);
		}
	}
}

static void q8_is_rule_4_and_keeps_half_a_step(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 2);
	static const enum ref_input kinds[] = {REF_PLAIN, REF_OUTLIERS, REF_TINY, REF_FLAT};
	for (int i = 0; i < 400; i++) {
		float x[N], y[N];
		int32_t n = 1 + (int32_t)rng_below(&r, N);
		ref_fill(&r, kinds[i % 4], x, N);
		assert_int_equal(there_and_back(REDUCE_Q8, x, n, y), OK);
		for (int32_t b = 0; b < n; b += 32) {
			float block[32] = {0}, d;
			int8_t q[32];
			int32_t len = n - b < 32 ? n - b : 32;
			memcpy(block, x + b, (size_t)len * sizeof(float));
			ref_quantise(block, 32, q, &d);
			for (int32_t j = 0; j < len; j++) {
				float want = (float)q[j] * d;
				assert_true(ref_same(&want, &y[b + j], 1));
				assert_true(d == 0.0f || fabsf(y[b + j] - x[b + j]) <= 0.50001f * d);
			}
		}
	}
}

static void what_is_not_finite_or_too_great_is_not_encoded(void **state)
{
	(void)state;
	for (int p = 0; p < N_REDUCE_PAYLOADS; p++) {
		for (int32_t at = 0; at < N; at += 19) {
			float x[N] = {1.0f}, y[N];
			x[at] = NAN;
			assert_int_equal(there_and_back((enum reduce_payload)p, x, N, y), ERR_NON_FINITE);
			x[at] = -INFINITY;
			assert_int_equal(there_and_back((enum reduce_payload)p, x, N, y), ERR_NON_FINITE);
			x[at] = 3.4028234e38f;
			enum err e = there_and_back((enum reduce_payload)p, x, N, y);
			assert_true(p == REDUCE_BF16 ? e == ERR_NON_FINITE : e == OK || p == REDUCE_Q8);
			x[at] = 1e38f;
			assert_int_equal(there_and_back((enum reduce_payload)p, x, N, y), OK);
		}
	}
}

// Whatever q8 encodes it decodes: also the greatest magnitudes, where 127 * d may pass the greatest float.
static void q8_encodes_nothing_that_it_then_refuses(void **state)
{
	(void)state;
	for (uint32_t u = 0x7f7fff00; u < 0x7f800000; u++) {
		float x = fmath_from_bits(u), y;
		uint8_t bytes[5];
		if (reduce_payload_encode(REDUCE_Q8, &x, 1, bytes) == OK)
			assert_int_equal(reduce_payload_decode(REDUCE_Q8, bytes, 1, &y), OK);
	}
}

static void hostile_bytes_are_refused(void **state)
{
	(void)state;
	uint8_t q8[36] = {0}, bf16[4] = {0, 0, 0x80, 0x7f}, f32[4] = {0, 0, 0x80, 0xff};
	float y[32];
	assert_int_equal(reduce_payload_decode(REDUCE_Q8, q8, 32, y), OK);
	q8[9] = 0x80;
	assert_int_equal(reduce_payload_decode(REDUCE_Q8, q8, 32, y), ERR_FORMAT);
	q8[9] = 1;
	q8[3] = 0xbf;
	assert_int_equal(reduce_payload_decode(REDUCE_Q8, q8, 32, y), ERR_FORMAT);
	store_u32(q8, 0x7f800000);
	assert_int_equal(reduce_payload_decode(REDUCE_Q8, q8, 32, y), ERR_NON_FINITE);
	store_u32(q8, 0x7fc00000);
	assert_int_equal(reduce_payload_decode(REDUCE_Q8, q8, 32, y), ERR_NON_FINITE);
	store_u32(q8, 0x7f7fffff);
	q8[9] = 127;
	assert_int_equal(reduce_payload_decode(REDUCE_Q8, q8, 32, y), ERR_NON_FINITE);
	assert_int_equal(reduce_payload_decode(REDUCE_BF16, bf16, 2, y), ERR_NON_FINITE);
	assert_int_equal(reduce_payload_decode(REDUCE_F32, f32, 1, y), ERR_NON_FINITE);
}

// One set of bytes for all machines; the hashes are those of an independent model in Python.
static void encodings_have_these_bytes(void **state)
{
	(void)state;
	static const uint64_t want[N_REDUCE_PAYLOADS] = {0x6e7ab6fc5aba321a, 0x548d2f177eb7ea4e, 0xc19c68232067aaf3};
	for (int p = 0; p < N_REDUCE_PAYLOADS; p++) {
		struct rng r;
		float x[1000];
		uint8_t bytes[4000];
		uint64_t hash = 0xcbf29ce484222325; // FNV-1a
		rng_init(&r, 3);
		for (int i = 0; i < 1000; i++)
			x[i] = (float)(int32_t)(rng_u32(&r) >> 8) * 0x1p-20f - 8.0f;
		assert_int_equal(reduce_payload_encode((enum reduce_payload)p, x, 1000, bytes), OK);
		for (size_t i = 0; i < reduce_payload_bytes((enum reduce_payload)p, 1000); i++)
			hash = (hash ^ bytes[i]) * 0x100000001b3;
		if (hash != want[p])
			fail_msg("%s: %016llx", reduce_payload_name((enum reduce_payload)p), (unsigned long long)hash);
	}
}

int main(void)
{
	kernels_thread_init();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_read_back),
		cmocka_unit_test(bytes_are_what_the_layouts_say),
		cmocka_unit_test(f32_keeps_every_bit_and_bf16_rounds_to_nearest_even),
		cmocka_unit_test(q8_is_rule_4_and_keeps_half_a_step),
		cmocka_unit_test(what_is_not_finite_or_too_great_is_not_encoded),
		cmocka_unit_test(q8_encodes_nothing_that_it_then_refuses),
		cmocka_unit_test(hostile_bytes_are_refused),
		cmocka_unit_test(encodings_have_these_bytes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
