// How fast the kernels are, one thread, in the shapes of SmolLM2-135M (hidden 576, ffn 1536, 30 layers of q4_1, a q8_0 head):
// decode against a plain read of the same bytes in the same run, products of 512 tokens, attention. Usage: kernels_bench [table].
#include "base/rng.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_LAYERS 30
#define TOKENS 512
#define REPEATS 5 // the best of these is shown: the machine may be shared

static double now_s(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void *alloc(size_t bytes)
{
	void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
	if (p == NULL)
		exit(1);
	return p;
}

// many_rows makes n_rows rows of random weights with small scales.
static struct weight many_rows(enum dtype type, int32_t n_rows, int32_t cols, uint8_t **storage)
{
	struct weight w = {.type = type, .rows = n_rows, .cols = cols};
	if (!dtype_row_bytes(type, (uint64_t)cols, &w.row_bytes))
		exit(1);
	uint8_t *p = alloc((size_t)n_rows * w.row_bytes);
	struct rng r;
	rng_init(&r, 1);
	uint32_t block = dtype_find((uint32_t)type)->block_bytes;
	for (size_t i = 0; i < (size_t)n_rows * w.row_bytes; i++)
		p[i] = (uint8_t)rng_u32(&r);
	for (size_t i = 0; i < (size_t)n_rows * w.row_bytes; i += block)
		memcpy(p + i, "\x00\x20\x00\x21", type == DTYPE_Q4_1 ? 4 : 2);
	w.data = *storage = p;
	return w;
}

static struct acts make_acts(const struct kernels *k, int32_t n, int32_t cols)
{
	struct acts a;
	float *x = alloc((size_t)n * (size_t)cols * sizeof(float));
	struct rng r;
	rng_init(&r, 2);
	for (size_t i = 0; i < (size_t)n * (size_t)cols; i++)
		x[i] = (float)(rng_u01(&r) - 0.5);
	acts_init(&a, ACT_A32, n, cols, alloc(acts_bytes(ACT_A32, n, cols)));
	acts_set(&a, x, n);
	acts_quantise(k, &a, 0, n);
	return a;
}

// read_all returns the rate at which 32-byte loads alone go through the weights.
static double read_all(const struct weight *w)
{
	typedef uint64_t word4 __attribute__((vector_size(32), aligned(1)));
	const uint8_t *p = w->data;
	size_t n = (size_t)w->rows * w->row_bytes / 128 * 128;
	word4 sum = {0};
	double t = now_s();
	for (size_t i = 0; i < n; i += 128)
		sum ^= *(const word4 *)(p + i) ^ *(const word4 *)(p + i + 32) ^ *(const word4 *)(p + i + 64) ^ *(const word4 *)(p + i + 96);
	t = now_s() - t;
	volatile uint64_t keep = sum[0];
	(void)keep;
	return (double)n / t;
}

static void product(const struct kernels *k, const char *what, enum dtype type, int32_t rows, int32_t cols, int32_t n)
{
	uint8_t *storage;
	struct weight w = many_rows(type, rows, cols, &storage);
	struct acts a = make_acts(k, n, cols);
	float *y = alloc((size_t)n * (size_t)rows * sizeof(float));
	double best = 1e9, read = 0;
	for (int i = 0; i < REPEATS; i++) {
		double r = read_all(&w);
		read = r > read ? r : read;
		double t = now_s();
		kernels_matmul(k, &w, &a, 0, rows, y, (size_t)rows);
		t = now_s() - t;
		best = t < best ? t : best;
	}
	double bytes = (double)rows * (double)w.row_bytes, ops = 2.0 * rows * (double)cols * n;
	printf("%-20s n=%-4d %8.3f ms %7.2f GB/s (read loop %6.2f) %8.1f GFLOP/s\n", what, n, best * 1e3, bytes / best * 1e-9, read * 1e-9,
		ops / best * 1e-9);
	free(storage);
	free(y);
}

static void attention(const struct kernels *k, int32_t n_tokens, int32_t n_pos, int32_t group)
{
	enum { HEADS = 3, DIM = 64 };
	size_t n_kv = (size_t)(n_pos + n_tokens) * DIM * 2, n_q = (size_t)n_tokens * HEADS * DIM;
	uint16_t *kv = alloc(n_kv * sizeof(uint16_t));
	for (size_t i = 0; i < n_kv; i++)
		kv[i] = (uint16_t)(0x3000 + i % 97 * 8);
	float *q = alloc(n_q * 2 * sizeof(float)), *out = q + n_q;
	for (size_t i = 0; i < n_q; i++)
		q[i] = (float)(i % 31) * 0.01f;
	float *scratch = alloc(kernels_attention_group_scratch(n_pos + n_tokens, DIM, group * HEADS) * sizeof(float));
	double best = 1e9;
	for (int i = 0; i < REPEATS; i++) {
		double t = now_s();
		for (int32_t b = 0; b < n_tokens; b += group) {
			struct attention_group g = {.q = q + b * HEADS * DIM, .q_stride = HEADS * DIM, .k = kv, .v = kv + DIM, .stride = 2 * DIM,
				.n_tokens = group, .n_heads = HEADS, .n_pos = n_pos + b, .head_dim = DIM, .out = out + b * HEADS * DIM,
				.out_stride = HEADS * DIM};
			kernels_attention_group(k, &g, scratch);
		}
		t = now_s() - t;
		best = t < best ? t : best;
	}
	double ops = 4.0 * HEADS * DIM * n_tokens * (n_pos + n_tokens / 2.0);
	printf("attention, 3 heads   n=%-4d %8.3f ms in groups of %d tokens, from position %d: %.1f GFLOP/s\n", n_tokens, best * 1e3, group, n_pos,
		ops / best * 1e-9);
	free(kv);
	free(q);
	free(scratch);
}

static void swiglu_and_quantise(const struct kernels *k)
{
	enum { N = 1536 };
	struct acts a = make_acts(k, TOKENS, N);
	float *y = alloc((size_t)N * TOKENS * sizeof(float));
	memset(y, 0, (size_t)N * TOKENS * sizeof(float));
	double t = now_s();
	kernels_swiglu(k, a.x, a.x, N * TOKENS, y);
	double t2 = now_s();
	acts_quantise(k, &a, 0, TOKENS);
	double t3 = now_s();
	printf("swiglu %.2f ns, quantise %.2f ns for a value\n", (t2 - t) * 1e9 / (N * TOKENS), (t3 - t2) * 1e9 / (N * TOKENS));
	free(y);
}

int main(int argc, char **argv)
{
	struct errmsg em;
	const struct kernels *k = kernels_find(argc > 1 ? argv[1] : NULL, &em);
	if (k == NULL) {
		fprintf(stderr, "%s\n", em.text);
		return 2;
	}
	kernels_thread_init();
	printf("kernels: %s, one thread\n", kernels_name(k));
	static const int32_t batches[] = {1, 2, 3, 4, 8, 16, TOKENS};
	for (size_t i = 0; i < ARRAY_LEN(batches); i++) {
		int32_t part = batches[i] == TOKENS ? 16 : 1; // enough rows for a measurement
		product(k, "q4_1, 576 columns", DTYPE_Q4_1, N_LAYERS * (2 * 576 + 2 * 192 + 2 * 1536) / part, 576, batches[i]);
		product(k, "q4_1, 1536 columns", DTYPE_Q4_1, N_LAYERS * 576 / part, 1536, batches[i]);
		product(k, "q8_0, 576 columns", DTYPE_Q8_0, 49152 / part, 576, batches[i]);
	}
	attention(k, 1, 511, 1);
	for (int32_t group = 1; group <= 64; group *= 4)
		attention(k, TOKENS, 1, group);
	swiglu_and_quantise(k);
	return 0;
}
