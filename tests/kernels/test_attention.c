// Rule 13 of every table against the second writing, alone and in groups; and the kernels over plain floats.
#include "kernels/kernels.h"

#include "tests/support/canonical_ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// K and V of n_pos positions, which end where their allocation ends; position p of head h at (p * n_kv + h) * head_dim.
struct cache {
	uint16_t *k, *v;
	size_t stride;
};

static void cache_open(struct cache *c, struct rng *r, int32_t n_pos, int32_t head_dim, int32_t n_kv)
{
	size_t n = (size_t)n_pos * (size_t)head_dim * (size_t)n_kv;
	c->k = malloc(n * 2);
	c->v = malloc(n * 2);
	c->stride = (size_t)head_dim * (size_t)n_kv;
	assert_true(c->k && c->v);
	ref_fill_halves(r, c->k, n);
	ref_fill_halves(r, c->v, n);
}

static void cache_close(struct cache *c)
{
	free(c->k);
	free(c->v);
}

static float *group_scratch(int32_t n_pos, int32_t head_dim, int32_t n_queries)
{
	float *scratch = malloc(kernels_attention_group_scratch(n_pos, head_dim, n_queries) * sizeof(float));
	assert_non_null(scratch);
	return scratch;
}

// check_group runs one group through every table; the reference sees each query alone.
static void check_group(const struct cache *c, const float *q, int32_t n_tokens, int32_t n_heads, int32_t n_pos, int32_t head_dim)
{
	size_t width = (size_t)n_heads * (size_t)head_dim;
	float *want = malloc((size_t)n_tokens * width * sizeof(float)), *got = malloc((size_t)n_tokens * width * sizeof(float));
	float *scratch = group_scratch(n_pos + n_tokens - 1, head_dim, n_tokens * n_heads);
	for (int32_t i = 0; i < n_tokens * n_heads; i++) {
		struct attention a = {.q = q + (size_t)i * (size_t)head_dim, .k = c->k, .v = c->v, .stride = c->stride,
			.n_pos = n_pos + i / n_heads, .head_dim = head_dim};
		ref_attention(&a, want + (size_t)i * (size_t)head_dim);
	}
	for (size_t i = 0; kernels_known(i) != NULL; i++) {
		const struct kernels *k = kernels_find(kernels_known(i), NULL);
		if (k == NULL)
			continue;
		struct attention_group g = {.q = q, .q_stride = width, .k = c->k, .v = c->v, .stride = c->stride, .n_tokens = n_tokens,
			.n_heads = n_heads, .n_pos = n_pos, .head_dim = head_dim, .out = got, .out_stride = width};
		kernels_attention_group(k, &g, scratch);
		if (!ref_same(got, want, (size_t)n_tokens * width))
			fail_msg("%s: %d tokens, %d heads, %d positions, head of %d", kernels_known(i), n_tokens, n_heads, n_pos, head_dim);
	}
	free(scratch);
	free(want);
	free(got);
}

static void one_query_equals_the_reference_at_every_edge(void **state)
{
	(void)state;
	static const int32_t positions[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 255, 256, 257, 271, 272, 511, 512, 513, 700};
	static const int32_t dims[] = {8, 16, 24, 64, 80, 128};
	struct rng r;
	rng_init(&r, 1);
	for (size_t i = 0; i < ARRAY_LEN(positions); i++) {
		int32_t head_dim = dims[i % ARRAY_LEN(dims)];
		struct cache c;
		float q[128];
		cache_open(&c, &r, positions[i], head_dim, 1);
		ref_fill(&r, REF_PLAIN, q, 128);
		check_group(&c, q, 1, 1, positions[i], head_dim);
		struct attention a = {.q = q, .k = c.k, .v = c.v, .stride = c.stride, .n_pos = positions[i], .head_dim = head_dim};
		float want[128], got[128], *scratch = malloc(kernels_attention_scratch(positions[i], head_dim) * sizeof(float));
		ref_attention(&a, want);
		kernels_attention(kernels_find(NULL, NULL), &a, scratch, got);
		assert_true(ref_same(got, want, (size_t)head_dim));
		free(scratch);
		cache_close(&c);
	}
}

static void a_group_gives_each_query_the_bits_it_has_alone(void **state)
{
	(void)state;
	static const int32_t first[] = {1, 3, 13, 16, 240, 250, 255, 256, 257, 505};
	struct rng r;
	rng_init(&r, 2);
	for (size_t i = 0; i < ARRAY_LEN(first); i++) {
		int32_t n_tokens = 1 + (int32_t)(i * 3 % 11), n_heads = 1 + (int32_t)(i % 4), head_dim = i % 3 == 0 ? 24 : 64;
		struct cache c;
		float *q = malloc((size_t)(n_tokens * n_heads * head_dim) * sizeof(float));
		cache_open(&c, &r, first[i] + n_tokens - 1, head_dim, 1);
		ref_fill(&r, REF_PLAIN, q, (size_t)(n_tokens * n_heads * head_dim));
		check_group(&c, q, n_tokens, n_heads, first[i], head_dim);
		free(q);
		cache_close(&c);
	}
}

static void scores_far_apart_and_huge_heads_work(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 3);
	struct cache c;
	float q[2 * 512];
	cache_open(&c, &r, 300, 512, 2);
	ref_fill(&r, REF_OUTLIERS, q, 1024);
	check_group(&c, q, 1, 2, 300, 512);
	for (int i = 0; i < 1024; i++)
		q[i] *= 300.0f; // most weights underflow to 0, in some chunks all
	check_group(&c, q, 1, 2, 300, 512);
	cache_close(&c);
}

static void what_a_query_does_not_see_changes_nothing(void **state)
{
	(void)state;
	// The last position, seen by the last token only, is NaN in K and V: the others must not notice.
	struct rng r;
	rng_init(&r, 4);
	for (int32_t n_pos = 1; n_pos < 20; n_pos++) {
		struct cache c;
		float q[4 * 2 * 16];
		cache_open(&c, &r, n_pos + 3, 16, 1);
		memset(c.k + (n_pos + 2) * 16, 0x7e, 32);
		memset(c.v + (n_pos + 2) * 16, 0x7e, 32);
		ref_fill(&r, REF_PLAIN, q, 128);
		check_group(&c, q, 4, 2, n_pos, 16);
		cache_close(&c);
	}
}

static void a_query_that_is_not_finite_gives_nan_everywhere(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 5);
	struct cache c;
	float q[3 * 16];
	cache_open(&c, &r, 40, 16, 1);
	ref_fill(&r, REF_PLAIN, q, 48);
	q[5] = __builtin_nanf("");
	q[20] = __builtin_inff();
	check_group(&c, q, 3, 1, 38, 16);
	cache_close(&c);
}

static void plain_float_kernels_equal_the_reference(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 6);
	for (int i = 0; i < 300; i++) {
		int32_t n = 1 + (int32_t)rng_below(&r, 130);
		float x[131], w[131], y[131], want[131];
		uint16_t half[131];
		ref_fill(&r, (enum ref_input)(i % N_REF_INPUTS), x, 131);
		ref_fill(&r, REF_PLAIN, w, 131);
		for (size_t t = 0; kernels_known(t) != NULL; t++) {
			const struct kernels *k = kernels_find(kernels_known(t), NULL);
			if (k == NULL)
				continue;
			ref_rmsnorm(x, w, n, 1e-5f, want);
			kernels_rmsnorm(k, x, w, n, 1e-5f, y);
			assert_true(ref_same(y, want, (size_t)n));
			for (int32_t e = 0; e < n; e++)
				want[e] = ref_silu(x[e]) * w[e];
			kernels_swiglu(k, x, w, n, y);
			assert_true(ref_same(y, want, (size_t)n));
			for (int32_t e = 0; e < n; e++)
				want[e] = w[e] + x[e];
			memcpy(y, w, sizeof(y));
			kernels_add(k, y, x, n);
			assert_true(ref_same(y, want, (size_t)n));
			for (int32_t e = 0; e < n; e++)
				want[e] = ref_fma(w[0], x[e], w[e]);
			memcpy(y, w, sizeof(y));
			kernels_add_scaled(k, y, w[0], x, n);
			assert_true(ref_same(y, want, (size_t)n));
			bool finite = true;
			kernels_f32_to_f16(k, x, n, half);
			for (int32_t e = 0; e < n; e++) {
				finite = finite && x[e] - x[e] == 0.0f;
				assert_true(half[e] == ref_to_half(x[e]) || x[e] != x[e]);
				assert_true(x[e] == x[e] || (half[e] & 0x7fff) > 0x7c00);
			}
			assert_true(kernels_all_finite(k, x, n) == finite);
		}
	}
}

static void halves_convert_both_ways_for_every_pattern(void **state)
{
	(void)state;
	static uint16_t in[65536], back[65536];
	static float x[65536], want[65536];
	for (int i = 0; i < 65536; i++) {
		in[i] = (uint16_t)i;
		want[i] = ref_half((uint16_t)i);
	}
	for (size_t t = 0; kernels_known(t) != NULL; t++) {
		const struct kernels *k = kernels_find(kernels_known(t), NULL);
		if (k == NULL)
			continue;
		kernels_f16_to_f32(k, in, 65536, x);
		kernels_f32_to_f16(k, x, 65536, back);
		assert_true(ref_same(x, want, 65536));
		for (int i = 0; i < 65536; i++)
			assert_true(back[i] == in[i] || x[i] != x[i]);
	}
}

static void rope_turns_pairs_by_rule_12(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 7);
	for (int32_t n_pairs = 1; n_pairs <= 33; n_pairs++) {
		float freq[33], c[33], s[33], x[66], want[66], y[66], apart[66];
		rope_freqs(10000.0, 2 * n_pairs, freq);
		rope_table(freq, n_pairs, 1 + n_pairs * 977, c, s);
		ref_fill(&r, REF_PLAIN, x, 66);
		for (int32_t i = 0; i < n_pairs; i++) {
			double norm = (double)c[i] * c[i] + (double)s[i] * s[i];
			assert_true(norm > 1.0 - 1e-6 && norm < 1.0 + 1e-6);
			want[2 * i] = ref_fma(x[2 * i], c[i], -(x[2 * i + 1] * s[i]));
			want[2 * i + 1] = ref_fma(x[2 * i], s[i], x[2 * i + 1] * c[i]);
		}
		for (size_t t = 0; kernels_known(t) != NULL; t++) {
			const struct kernels *k = kernels_find(kernels_known(t), NULL);
			if (k == NULL)
				continue;
			memcpy(y, x, sizeof(y));
			kernels_rope_pairs(k, y, n_pairs, c, s);
			assert_true(ref_same(y, want, 2 * (size_t)n_pairs));
			for (int32_t i = 0; i < n_pairs; i++) { // the same pairs, each half of them apart
				apart[i] = x[2 * i];
				apart[n_pairs + i] = x[2 * i + 1];
			}
			kernels_rope_halves(k, apart, n_pairs, c, s);
			for (int32_t i = 0; i < n_pairs; i++)
				assert_true(ref_same(&apart[i], &want[2 * i], 1) && ref_same(&apart[n_pairs + i], &want[2 * i + 1], 1));
		}
		assert_true(freq[0] == 1.0f);
	}
}

int main(void)
{
	kernels_thread_init();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_query_equals_the_reference_at_every_edge),
		cmocka_unit_test(a_group_gives_each_query_the_bits_it_has_alone),
		cmocka_unit_test(scores_far_apart_and_huge_heads_work),
		cmocka_unit_test(what_a_query_does_not_see_changes_nothing),
		cmocka_unit_test(a_query_that_is_not_finite_gives_nan_everywhere),
		cmocka_unit_test(plain_float_kernels_equal_the_reference),
		cmocka_unit_test(halves_convert_both_ways_for_every_pattern),
		cmocka_unit_test(rope_turns_pairs_by_rule_12),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
