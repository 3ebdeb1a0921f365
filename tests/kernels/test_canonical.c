// Golden vectors: seeded inputs, and for each rule and shape the hash of the output's bits, in tests/golden/canonical_vectors.txt.
// Every table on every machine gives the same file. `test_canonical --print` writes it anew: only with a new CANON_VERSION.
//
// A line: name, two spaces, FNV-1a (64 bits) of the output bytes, little-endian, in hexadecimal. The first line is the version.
#include "kernels/canonical.h"

#include "base/fmath.h"
#include "kernels/kernels.h"
#include "tests/support/canonical_ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GOLDEN_PATH "tests/golden/canonical_vectors.txt"
#define VECTORS_MAX 128
#define NAME_LEN 48

struct vectors {
	int n;
	char names[VECTORS_MAX][NAME_LEN];
	uint64_t hashes[VECTORS_MAX];
};

static uint64_t fnv(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;
	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * 0x100000001b3;
	return h;
}

static void PRINTF_LIKE(4, 5) put_bytes(struct vectors *v, const void *data, size_t len, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	assert_true(v->n < VECTORS_MAX);
	vsnprintf(v->names[v->n], NAME_LEN, fmt, args);
	va_end(args);
	v->hashes[v->n++] = fnv(0xcbf29ce484222325, data, len);
}

// put_floats stores NaN as one pattern: its sign and payload are not canonical.
#define put_floats(v, x, n, ...)                                                                                       \
	do {                                                                                                               \
		one_nan(x, n);                                                                                                 \
		put_bytes(v, x, (size_t)(n) * sizeof(float), __VA_ARGS__);                                                     \
	} while (0)

static void one_nan(float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = x[i] == x[i] ? x[i] : fmath_from_bits(0x7fc00000);
}

// product hashes n tokens times (rows, cols).
static void product(struct vectors *v, const struct kernels *k, enum dtype type, const int32_t *shape, uint64_t seed, bool hostile, enum ref_input kind)
{
	int32_t rows = shape[0], cols = shape[1], n = shape[2];
	struct rng r;
	rng_init(&r, seed);
	struct weight w = {.type = type, .rows = rows, .cols = cols};
	assert_true(dtype_row_bytes(w.type, (uint64_t)cols, &w.row_bytes));
	uint8_t *data = malloc((size_t)rows * w.row_bytes);
	float *x = malloc((size_t)n * (size_t)cols * sizeof(float)), *out = malloc((size_t)(n * rows) * sizeof(float));
	void *storage = malloc(acts_bytes(kernels_act_kind(w.type), n, cols) + 1);
	assert_true(data && x && out && storage);
	w.data = data;
	ref_fill_weights(&r, w.type, hostile, data, rows, cols);
	ref_fill(&r, kind, x, (size_t)n * (size_t)cols);
	struct acts a;
	acts_init(&a, kernels_act_kind(w.type), n, cols, storage);
	acts_set(&a, x, n);
	acts_quantise(k, &a, 0, n);
	kernels_matmul(k, &w, &a, 0, rows, out, (size_t)rows);
	put_floats(v, out, (size_t)(n * rows), "product %s %dx%d n=%d", dtype_find((uint32_t)w.type)->name, rows, cols, n);
	free(data);
	free(x);
	free(out);
	free(storage);
}

static void products(struct vectors *v, const struct kernels *k)
{
	static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_F32, DTYPE_F16, DTYPE_BF16};
	static const int32_t shapes[][3] = {{1, 32, 1}, {13, 224, 1}, {8, 576, 1}, {11, 576, 5}, {9, 1536, 2}, {5, 4160, 3}};
	for (size_t y = 0; y < ARRAY_LEN(types); y++) {
		for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
			product(v, k, types[y], shapes[s], 100 * y + s, s == 3, s % 2 ? REF_OUTLIERS : REF_PLAIN);
	}
}

static void k_products(struct vectors *v, const struct kernels *k)
{
	static const enum dtype types[] = {DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};
	static const int32_t shapes[][3] = {{1, 256, 1}, {13, 768, 1}, {9, 1280, 2}, {19, 2048, 5}, {5, 4352, 3}};
	for (size_t y = 0; y < ARRAY_LEN(types); y++) {
		for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
			product(v, k, types[y], shapes[s], 2000 + 100 * y + s, s == 3, s == 3 ? REF_FLAT : s % 2 ? REF_OUTLIERS : REF_PLAIN);
	}
}

static void attentions(struct vectors *v, const struct kernels *k)
{
	static const int32_t shapes[][4] = {{1, 1, 1, 64}, {1, 3, 300, 64}, {5, 2, 254, 128}, {7, 3, 1, 64}, {1, 1, 777, 80}};
	for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
		int32_t n_tokens = shapes[s][0], n_heads = shapes[s][1], n_pos = shapes[s][2], dim = shapes[s][3];
		struct rng r;
		rng_init(&r, s);
		size_t n_kv = (size_t)(n_pos + n_tokens) * (size_t)dim, n_q = (size_t)(n_tokens * n_heads * dim);
		uint16_t *keys = malloc(n_kv * 2), *values = malloc(n_kv * 2);
		float *q = malloc(n_q * sizeof(float)), *out = malloc(n_q * sizeof(float));
		float *scratch = malloc(kernels_attention_group_scratch(n_pos + n_tokens - 1, dim, n_tokens * n_heads) * sizeof(float));
		assert_true(keys && values && q && out && scratch);
		ref_fill_halves(&r, keys, n_kv);
		ref_fill_halves(&r, values, n_kv);
		ref_fill(&r, REF_PLAIN, q, n_q);
		struct attention_group g = {.q = q, .q_stride = (size_t)(n_heads * dim), .k = keys, .v = values, .stride = (size_t)dim,
			.n_tokens = n_tokens, .n_heads = n_heads, .n_pos = n_pos, .head_dim = dim, .out = out, .out_stride = (size_t)(n_heads * dim)};
		kernels_attention_group(k, &g, scratch);
		put_floats(v, out, n_q, "attention %d tokens %d heads %d+ of %d", n_tokens, n_heads, n_pos, dim);
		free(keys);
		free(values);
		free(q);
		free(out);
		free(scratch);
	}
}

static void plain_floats(struct vectors *v, const struct kernels *k)
{
	enum { N = 603 };
	static const char *const names[] = {"plain", "outliers", "tiny", "huge", "non-finite"};
	for (int kind = 0; kind < (int)ARRAY_LEN(names); kind++) {
		struct rng r;
		rng_init(&r, (uint64_t)kind);
		float x[N], w[N], y[N], c[N / 2], s[N / 2], freq[N / 2];
		uint16_t half[N];
		int8_t q[32 * 18];
		ref_fill(&r, (enum ref_input)kind, x, N);
		ref_fill(&r, REF_PLAIN, w, N);
		kernels_rmsnorm(k, x, w, N, 1e-5f, y);
		put_floats(v, y, N, "rmsnorm %s", names[kind]);
		kernels_swiglu(k, x, w, N, y);
		put_floats(v, y, N, "swiglu %s", names[kind]);
		rope_freqs(10000.0 * (kind + 1), N / 2 * 2, freq);
		rope_table(freq, N / 2, 1 << (4 * kind), c, s);
		memcpy(y, x, sizeof(y));
		kernels_rope_pairs(k, y, N / 2, c, s);
		put_floats(v, y, N, "rope %s", names[kind]);
		for (int i = 0; i < N; i++)
			y[i] = x[i] == x[i] ? x[i] : 0.0f;
		kernels_f32_to_f16(k, y, N, half);
		put_bytes(v, half, sizeof(half), "f16 %s", names[kind]);
		void *storage = malloc(acts_bytes(ACT_A32, 1, 576));
		struct acts a;
		acts_init(&a, ACT_A32, 1, 576, storage);
		acts_set(&a, x, 1);
		acts_quantise(k, &a, 0, 1);
		memcpy(q, a.q, sizeof(q));
		put_bytes(v, q, sizeof(q), "a32 q %s", names[kind]);
		put_floats(v, a.d, 18, "a32 d %s", names[kind]);
		free(storage);
	}
}

static void functions(struct vectors *v)
{
	enum { N = 4001 };
	static float exps[N], silus[N], geluts[N], gelues[N], tanhs[N], erfs[N], sigmoids[N];
	static double sines[2 * N], logs[2 * N];
	for (int i = 0; i < N; i++) {
		float x = (float)(i - N / 2) * 0.047f;
		exps[i] = fmath_exp(x);
		sigmoids[i] = fmath_sigmoid(x);
		silus[i] = fmath_silu(x);
		x *= 0.07f;
		geluts[i] = fmath_gelu_tanh(x);
		gelues[i] = fmath_gelu_erf(x);
		tanhs[i] = fmath_tanh(x);
		erfs[i] = fmath_erf(x);
		fmath_sincos((double)i * 97.3, &sines[2 * i], &sines[2 * i + 1]);
		logs[2 * i] = fmath_logd((double)(i + 1) * 1.7);
		logs[2 * i + 1] = fmath_expd((double)x * 50.0);
	}
	put_bytes(v, exps, sizeof(exps), "EXP");
	put_bytes(v, sigmoids, sizeof(exps), "SIGMOID");
	put_bytes(v, silus, sizeof(exps), "SILU");
	put_bytes(v, geluts, sizeof(exps), "GELU_TANH");
	put_bytes(v, gelues, sizeof(exps), "GELU_ERF");
	put_bytes(v, tanhs, sizeof(exps), "TANH");
	put_bytes(v, erfs, sizeof(exps), "ERF");
	put_bytes(v, sines, sizeof(sines), "SINCOS");
	put_bytes(v, logs, sizeof(logs), "LOGD, EXPD");
	double u[100];
	for (uint64_t i = 0; i < 100; i++)
		u[i] = rng_philox_u01(i * 0x123456789abcdef, i << (i % 60));
	put_bytes(v, u, sizeof(u), "philox");
}

static struct vectors *compute(const struct kernels *k)
{
	struct vectors *v = calloc(1, sizeof(*v));
	assert_non_null(v);
	products(v, k);
	attentions(v, k);
	plain_floats(v, k);
	functions(v);
	k_products(v, k);
	return v;
}

static void check_table(const struct kernels *k)
{
	FILE *f = fopen(GOLDEN_PATH, "r");
	if (f == NULL)
		fail_msg("%s cannot be read: run from the top of the tree", GOLDEN_PATH);
	struct vectors *v = compute(k);
	char line[128], want[128];
	assert_non_null(fgets(line, sizeof(line), f));
	snprintf(want, sizeof(want), "canonical arithmetic %d\n", CANON_VERSION);
	assert_string_equal(line, want);
	for (int i = 0; i < v->n; i++) {
		assert_non_null(fgets(line, sizeof(line), f));
		snprintf(want, sizeof(want), "%s  %016llx\n", v->names[i], (unsigned long long)v->hashes[i]);
		if (strcmp(line, want) != 0)
			fail_msg("%s gives %swant %s", kernels_name(k), want, line);
	}
	assert_null(fgets(line, sizeof(line), f));
	fclose(f);
	free(v);
}

static void every_table_of_this_machine_gives_the_golden_bits(void **state)
{
	(void)state;
	for (size_t i = 0; kernels_known(i) != NULL; i++) {
		const struct kernels *k = kernels_find(kernels_known(i), NULL);
		if (k != NULL)
			check_table(k);
		else
			print_message("this machine has no %s\n", kernels_known(i));
	}
}

int main(int argc, char **argv)
{
	kernels_thread_init();
	if (argc > 1 && strcmp(argv[1], "--print") == 0) {
		struct vectors *v = compute(kernels_find("portable", NULL));
		printf("canonical arithmetic %d\n", CANON_VERSION);
		for (int i = 0; i < v->n; i++)
			printf("%s  %016llx\n", v->names[i], (unsigned long long)v->hashes[i]);
		free(v);
		return 0;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_table_of_this_machine_gives_the_golden_bits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
