// Products, quantisation and look-up of every table against the second writing of the rules.
#include "kernels/kernels_impl.h"

#include "tests/support/canonical_ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS_MAX 40
#define COLS_MAX 4352
#define TOKENS_MAX 70

static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q3_K,
	DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};

// One product: weights that end where their allocation ends (so that a sanitizer sees a read past it), inputs, both results.
struct product {
	struct weight w;
	uint8_t *storage;
	float *x;
	int32_t n;
	float *want; // (n, rows)
	float *got;
};

static void product_open(struct product *p, struct rng *r, enum dtype type, bool hostile, enum ref_input kind, int32_t rows, int32_t cols, int32_t n)
{
	size_t row_bytes, misalign = rng_below(r, 4);
	assert_true(dtype_row_bytes(type, (uint64_t)cols, &row_bytes));
	p->storage = malloc(misalign + (size_t)rows * row_bytes);
	p->x = malloc((size_t)n * (size_t)cols * sizeof(float));
	p->want = malloc((size_t)n * (size_t)rows * sizeof(float));
	p->got = malloc((size_t)n * (size_t)rows * sizeof(float));
	assert_true(p->storage && p->x && p->want && p->got);
	p->n = n;
	p->w = (struct weight){.data = p->storage + misalign, .type = type, .rows = rows, .cols = cols, .row_bytes = row_bytes};
	ref_fill_weights(r, type, hostile, p->storage + misalign, rows, cols);
	ref_fill(r, kind, p->x, (size_t)n * (size_t)cols);
}

static void product_close(struct product *p)
{
	free(p->storage);
	free(p->x);
	free(p->want);
	free(p->got);
}

static void run_reference(struct product *p)
{
	for (int32_t t = 0; t < p->n; t++) {
		for (int32_t r = 0; r < p->w.rows; r++) {
			const uint8_t *row = (const uint8_t *)p->w.data + (size_t)r * p->w.row_bytes;
			p->want[t * p->w.rows + r] = ref_dot(p->w.type, row, p->x + (size_t)t * (size_t)p->w.cols, p->w.cols);
		}
	}
}

// run_table computes tokens [t, t + n) over the rows in two ranges that meet at `cut`.
static void run_table(const struct kernels *k, struct product *p, int32_t t, int32_t n, int32_t cut)
{
	enum act_kind kind = kernels_act_kind(p->w.type);
	size_t bytes = acts_bytes(kind, n, p->w.cols);
	void *storage = malloc(bytes + 1);
	struct acts a;
	acts_init(&a, kind, n, p->w.cols, storage);
	acts_set(&a, p->x + (size_t)t * (size_t)p->w.cols, n);
	acts_quantise(k, &a, 0, n / 2);
	acts_quantise(k, &a, n / 2, n);
	float *y = p->got + t * p->w.rows;
	kernels_matmul(k, &p->w, &a, 0, cut, y, (size_t)p->w.rows);
	kernels_matmul(k, &p->w, &a, cut, p->w.rows, y, (size_t)p->w.rows);
	free(storage);
}

static void check_product(struct product *p)
{
	size_t n = (size_t)p->n * (size_t)p->w.rows;
	for (size_t i = 0; kernels_known(i) != NULL; i++) {
		const struct kernels *k = kernels_find(kernels_known(i), NULL);
		if (k == NULL)
			continue;
		memset(p->got, 0xaa, n * sizeof(float));
		run_table(k, p, 0, p->n, p->w.rows / 3);
		if (!ref_same(p->got, p->want, n))
			fail_msg("%s: %s, %d rows, %d columns, %d tokens", kernels_known(i), dtype_find((uint32_t)p->w.type)->name, p->w.rows, p->w.cols, p->n);
	}
}

static void products_of_every_shape_equal_the_reference(void **state)
{
	(void)state;
	static const int32_t blocks[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 18, 48, 63, 64, 65, 130};
	static const int32_t tokens[] = {1, 2, 3, 4, 5, 7};
	struct rng r;
	rng_init(&r, 1);
	for (size_t y = 0; y < ARRAY_LEN(types); y++) {
		for (size_t b = 0; b < ARRAY_LEN(blocks); b++) {
			struct product p;
			int32_t rows = 1 + (int32_t)rng_below(&r, 21);
			int32_t block = (int32_t)dtype_find(types[y])->block_len, len = block < 32 ? 32 : block;
			if (blocks[b] * len > COLS_MAX)
				continue;
			product_open(&p, &r, types[y], false, b % 2 ? REF_PLAIN : REF_OUTLIERS, rows, blocks[b] * len, tokens[b % ARRAY_LEN(tokens)]);
			run_reference(&p);
			check_product(&p);
			product_close(&p);
		}
	}
}

static void float_rows_of_any_length_equal_the_reference(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 2);
	for (int32_t cols = 1; cols < 100; cols++) {
		struct product p;
		product_open(&p, &r, types[5 + cols % 3], false, cols % 2 ? REF_PLAIN : REF_TINY, 3, cols, 1 + cols % 5);
		run_reference(&p);
		check_product(&p);
		product_close(&p);
	}
}

static void hostile_inputs_give_equal_bits_or_nan_together(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 3);
	for (int i = 0; i < 400; i++) {
		struct product p;
		enum dtype type = types[rng_below(&r, ARRAY_LEN(types))];
		enum ref_input kind = (enum ref_input)rng_below(&r, N_REF_INPUTS);
		int32_t rows = 1 + (int32_t)rng_below(&r, ROWS_MAX), cols = 32 * (1 + (int32_t)rng_below(&r, 24));
		if (dtype_find((uint32_t)type)->block_len == 256)
			cols = (cols + 255) / 256 * 256;
		product_open(&p, &r, type, i % 2, kind, rows, cols, 1 + (int32_t)rng_below(&r, 10));
		run_reference(&p);
		check_product(&p);
		product_close(&p);
	}
}

static void a_batch_gives_each_token_the_bits_it_has_alone(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 4);
	for (size_t y = 0; y < ARRAY_LEN(types); y++) {
		for (size_t i = 0; kernels_known(i) != NULL; i++) {
			const struct kernels *k = kernels_find(kernels_known(i), NULL);
			struct product p;
			if (k == NULL)
				continue;
			product_open(&p, &r, types[y], false, REF_PLAIN, 19, y % 2 ? COLS_MAX : dtype_find(types[y])->block_len == 256 ? 768 : 576, TOKENS_MAX);
			run_table(k, &p, 0, TOKENS_MAX, 8);
			memcpy(p.want, p.got, (size_t)p.n * 19 * sizeof(float));
			for (int32_t t = 0; t < TOKENS_MAX; t++)
				run_table(k, &p, t, 1, (int32_t)rng_below(&r, 20));
			assert_true(ref_same(p.got, p.want, (size_t)p.n * 19));
			product_close(&p);
		}
	}
}

static void a_padded_row_and_a_wide_output_are_respected(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 5);
	for (size_t i = 0; kernels_known(i) != NULL; i++) {
		const struct kernels *k = kernels_find(kernels_known(i), NULL);
		if (k == NULL)
			continue;
		struct product p;
		product_open(&p, &r, DTYPE_Q4_1, false, REF_PLAIN, 12, 96, 5);
		// Every second row: the rows between are poison that must change nothing.
		uint8_t *data = p.storage + ((const uint8_t *)p.w.data - p.storage);
		for (int32_t row = 1; row < 12; row += 2)
			memset(data + (size_t)row * p.w.row_bytes, 0xff, p.w.row_bytes);
		p.w.rows = 6;
		p.w.row_bytes *= 2;
		float y[5 * 9];
		memset(y, 0, sizeof(y));
		void *storage = malloc(acts_bytes(ACT_A32, 5, 96));
		struct acts a;
		acts_init(&a, ACT_A32, 5, 96, storage);
		for (int32_t n = 1; n <= 5; n += 4) {
			acts_set(&a, p.x, n);
			acts_quantise(k, &a, 0, n);
			kernels_matmul(k, &p.w, &a, 0, 6, y + 2, 9);
			for (int32_t t = 0; t < n; t++) {
				for (int32_t row = 0; row < 6; row++) {
					float want = ref_dot(DTYPE_Q4_1, data + (size_t)row * p.w.row_bytes, p.x + t * 96, 96);
					assert_true(ref_same(&y[t * 9 + 2 + row], &want, 1));
				}
				assert_true(y[t * 9] == 0.0f && y[t * 9 + 1] == 0.0f && y[t * 9 + 8] == 0.0f);
			}
		}
		free(storage);
		product_close(&p);
	}
}

static void quantising_follows_rule_4(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 6);
	static const enum act_kind kinds[] = {ACT_A32, ACT_A256};
	for (int i = 0; i < 200; i++) {
		enum act_kind kind = kinds[i % 2];
		int32_t block = kind == ACT_A32 ? 32 : 256, cols = 512;
		float x[512];
		ref_fill(&r, (enum ref_input)(i / 2 % N_REF_INPUTS), x, 512);
		for (size_t table = 0; kernels_known(table) != NULL; table++) {
			const struct kernels *k = kernels_find(kernels_known(table), NULL);
			if (k == NULL)
				continue;
			void *storage = malloc(acts_bytes(kind, 1, cols));
			struct acts a;
			acts_init(&a, kind, 1, cols, storage);
			acts_set(&a, x, 1);
			acts_quantise(k, &a, 0, 1);
			for (int32_t b = 0; b < cols / block; b++) {
				int8_t q[256];
				float d;
				ref_quantise(x + b * block, block, q, &d);
				assert_memory_equal(q, a.q + b * block, (size_t)block);
				assert_true(ref_same(&d, &a.d[b], 1));
			}
			for (int32_t s = 0; s < cols / 32; s++) {
				int32_t sum = 0;
				for (int e = 0; e < 32; e++)
					sum += a.q[s * 32 + e];
				assert_int_equal(sum, kind == ACT_A32 ? a.qsum[s] : a.sum32[s]);
			}
			for (int32_t s = 0; kind == ACT_A256 && s < cols / 16; s++) {
				int32_t sum = 0;
				for (int e = 0; e < 16; e++)
					sum += a.q[s * 16 + e];
				assert_int_equal(sum, a.sum16[s]);
			}
			free(storage);
		}
	}
}

static void ties_round_to_even_when_quantising(void **state)
{
	(void)state;
	// amax = 127: d = 1, id = 1, so that halves are exact ties.
	float x[32] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f};
	static const int8_t want[32] = {127, 0, 2, 2, 0, -2, -2, 126, -126};
	for (size_t i = 0; kernels_known(i) != NULL; i++) {
		const struct kernels *k = kernels_find(kernels_known(i), NULL);
		if (k == NULL)
			continue;
		void *storage = malloc(acts_bytes(ACT_A32, 1, 32));
		struct acts a;
		acts_init(&a, ACT_A32, 1, 32, storage);
		acts_set(&a, x, 1);
		acts_quantise(k, &a, 0, 1);
		assert_memory_equal(a.q, want, 32);
		free(storage);
	}
}

static void a_row_reads_back_as_rule_20_says(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 7);
	for (size_t y = 0; y < ARRAY_LEN(types); y++) {
		struct product p;
		product_open(&p, &r, types[y], true, REF_PLAIN, 5, 768, 1);
		for (int32_t row = 0; row < 5; row++) {
			float got[768], want[768];
			kernels_row_to_f32(&p.w, row, got);
			for (int32_t i = 0; i < 768; i++)
				want[i] = ref_value(types[y], (const uint8_t *)p.w.data + (size_t)row * p.w.row_bytes, i);
			assert_true(ref_same(got, want, 768));
		}
		product_close(&p);
	}
}

static void an_unknown_table_is_refused_by_name(void **state)
{
	(void)state;
	struct errmsg em;
	assert_null(kernels_find("avx9", &em));
	assert_non_null(strstr(em.text, "avx9"));
	assert_string_equal(kernels_name(kernels_find("portable", NULL)), "portable");
	assert_non_null(kernels_find(NULL, NULL));
	assert_false(kernels_has_type(DTYPE_Q2_K));
}

static void the_fastest_table_is_one_that_the_processor_can_run(void **state)
{
	(void)state;
	assert_string_equal(kernels_name(kernels_fastest(0)), "portable");
#ifdef __x86_64__
	assert_string_equal(kernels_name(kernels_fastest(CPU_AVX2)), "avx2");
	assert_string_equal(kernels_name(kernels_fastest(CPU_AVX512)), "portable"); // the table uses AVX2's kernels as well
	assert_string_equal(kernels_name(kernels_fastest(CPU_AVX2 | CPU_AVX512)), "avx512");
#endif
	for (size_t i = 0; kernels_known(i) != NULL; i++) {
		struct errmsg em;
		const struct kernels *k = kernels_find(kernels_known(i), &em);
		if (k == NULL) {
			assert_non_null(strstr(em.text, "lacks"));
			continue;
		}
		assert_ptr_equal(k, kernels_find(NULL, NULL)); // the first that is found is the fastest
		break;
	}
}

int main(void)
{
	kernels_thread_init();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_of_every_shape_equal_the_reference),
		cmocka_unit_test(float_rows_of_any_length_equal_the_reference),
		cmocka_unit_test(hostile_inputs_give_equal_bits_or_nan_together),
		cmocka_unit_test(a_batch_gives_each_token_the_bits_it_has_alone),
		cmocka_unit_test(a_padded_row_and_a_wide_output_are_respected),
		cmocka_unit_test(quantising_follows_rule_4),
		cmocka_unit_test(ties_round_to_even_when_quantising),
		cmocka_unit_test(a_row_reads_back_as_rule_20_says),
		cmocka_unit_test(an_unknown_table_is_refused_by_name),
		cmocka_unit_test(the_fastest_table_is_one_that_the_processor_can_run),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
