// How fast the products are, for every weight type and table of this machine; then attention, GLU and quantising.
//
//     kernels_bench [--table NAME] [--cols N] [--mib N] [--threads N] [--lanes N]
//
// Decode: one token against more weights than the caches hold (--mib, 768 by default: some servers have 300 MiB of cache), with one thread
// and with --threads. Beside it the rate of a loop that only reads, the better of one with and one without prefetching, measured
// before and after each product. Batches of 4, 16 and 512 tokens: one thread. The best of several runs counts: the machine may be shared.
// Pages are small, as those of a mapped file are.
//
// --lanes N (the first N of a type's eight, four or thirty-two eighths of lanes: 4 is half of them) measures one thing instead: what a
// product takes whose rows hold only these lanes' columns (kernels/lanes.h), against the plain product of the same bytes. 20 pairs in turn
// (A B B A), the median of the ratios and its 95 % interval; one token with one thread and with --threads, then 16 tokens.
#include "base/rng.h"
#include "kernels/lanes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define BATCH_ROWS 1024
#define REPEATS 4
#define THREADS_MAX 64
#define PAIRS 20
#define BOUND 5 // of 20 sorted ratios those after the first five and before the last five enclose the median with 95.9 %

static const enum dtype types[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0, DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,
	DTYPE_F16, DTYPE_BF16, DTYPE_F32};

static const int32_t batches[] = {4, 16, 512}; // tokens; the last is too much for a slow table

struct options {
	const char *table;
	int32_t cols;
	size_t mib;
	int threads;
	int lanes; // eighths; 0: no such measurement
};

static double now_s(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void *alloc(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		perror("kernels_bench");
		exit(1);
	}
	(void)madvise(p, bytes, MADV_NOHUGEPAGE);
	return p;
}

// alloc_weights returns bytes that every type can read as small finite numbers.
static uint8_t *alloc_weights(size_t bytes)
{
	enum { RUN = 1 << 20 };
	uint16_t *p = alloc(bytes);
	struct rng r;
	rng_init(&r, 1);
	for (size_t i = 0; i < RUN / 2; i++)
		p[i] = (uint16_t)((rng_u32(&r) & 0x83ff) | 0x2000);
	for (size_t at = RUN; at < bytes; at += RUN)
		memcpy((uint8_t *)p + at, p, bytes - at < RUN ? bytes - at : RUN);
	return (uint8_t *)p;
}

// One round of n threads over the rows: a product, or with k NULL only reading.
struct round {
	const struct kernels *k;
	const struct weight *w;
	const struct acts *a;
	float *y;
	uint32_t mask; // not 0: nodes of these lanes
	bool prefetch;
	int n_threads;
	pthread_barrier_t barrier;
	double seconds;
};

struct part {
	struct round *round;
	int idx;
};

static void read_rows(const struct weight *w, int32_t begin, int32_t end, bool prefetch)
{
	typedef uint64_t word4 __attribute__((vector_size(32), aligned(1)));
	const uint8_t *p = (const uint8_t *)w->data + (size_t)begin * w->row_bytes;
	size_t n = (size_t)(end - begin) * w->row_bytes / 128 * 128;
	word4 sum = {0};
	for (size_t i = 0; i < n; i += 128) {
		if (prefetch) {
			uintptr_t page = ((uintptr_t)(p + i) | 4095) + 1;
			__builtin_prefetch((const void *)page, 0, 2);
			__builtin_prefetch((const void *)(page + 64), 0, 2);
			__builtin_prefetch((const void *)(page + 4096), 0, 2);
		}
		sum ^= *(const word4 *)(p + i) ^ *(const word4 *)(p + i + 32) ^ *(const word4 *)(p + i + 64) ^ *(const word4 *)(p + i + 96);
	}
	volatile uint64_t keep = sum[0];
	(void)keep;
}

static void *work(void *ctx)
{
	struct part *p = ctx;
	struct round *r = p->round;
	int32_t begin = (int32_t)((int64_t)r->w->rows * p->idx / r->n_threads), end = (int32_t)((int64_t)r->w->rows * (p->idx + 1) / r->n_threads);
	kernels_thread_init();
	pthread_barrier_wait(&r->barrier);
	double t = now_s();
	if (r->k == NULL)
		read_rows(r->w, begin, end, r->prefetch);
	else if (r->mask != 0)
		kernels_matmul_nodes(r->k, r->w, r->mask, r->a, begin, end, r->y, (size_t)r->w->rows, (size_t)r->w->rows);
	else
		kernels_matmul(r->k, r->w, r->a, begin, end, r->y, (size_t)r->w->rows);
	pthread_barrier_wait(&r->barrier);
	if (p->idx == 0)
		r->seconds = now_s() - t;
	return NULL;
}

static double run_round(struct round *r)
{
	pthread_t threads[THREADS_MAX];
	struct part parts[THREADS_MAX];
	pthread_barrier_init(&r->barrier, NULL, (unsigned)r->n_threads);
	for (int i = 0; i < r->n_threads; i++) {
		parts[i] = (struct part){r, i};
		if (pthread_create(&threads[i], NULL, work, &parts[i]) != 0)
			exit(1);
	}
	for (int i = 0; i < r->n_threads; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&r->barrier);
	return r->seconds;
}

static void best_read(struct round *r, double *seconds)
{
	struct round read = {.w = r->w, .n_threads = r->n_threads};
	for (int prefetch = 0; prefetch < 2; prefetch++) {
		read.prefetch = prefetch;
		double t = run_round(&read);
		*seconds = t < *seconds ? t : *seconds;
	}
}

static size_t acts_area(enum act_kind kind, int32_t n, int32_t cols)
{
	return (size_t)n * (size_t)cols * sizeof(float) + acts_bytes(kind, n, cols);
}

static struct acts make_acts(const struct kernels *k, enum dtype type, int32_t n, int32_t cols)
{
	struct acts a;
	enum act_kind kind = kernels_act_kind(type);
	float *x = alloc(acts_area(kind, n, cols));
	struct rng r;
	rng_init(&r, 2);
	for (size_t i = 0; i < (size_t)n * (size_t)cols; i++)
		x[i] = (float)(rng_u01(&r) - 0.5);
	acts_init(&a, kind, n, cols, x + (size_t)n * (size_t)cols);
	acts_set(&a, x, n);
	acts_quantise(k, &a, 0, n);
	return a;
}

static void free_acts(struct acts *a)
{
	munmap((void *)(uintptr_t)a->x, acts_area(a->kind, a->n_cap, a->cols));
}

static void decode(const struct kernels *k, struct weight *w, const uint8_t *data, size_t bytes, int n_threads)
{
	w->data = data;
	w->rows = (int32_t)(bytes / w->row_bytes);
	struct acts a = make_acts(k, w->type, 1, w->cols);
	float *y = alloc((size_t)w->rows * sizeof(float));
	struct round r = {.k = k, .w = w, .a = &a, .y = y, .n_threads = n_threads};
	double best = 1e9, read = 1e9, total = (double)w->rows * (double)w->row_bytes * 1e-9;
	best_read(&r, &read);
	for (int i = 0; i < REPEATS; i++) {
		double t = run_round(&r);
		best = t < best ? t : best;
		best_read(&r, &read);
	}
	printf("  %d thread%s %6.2f GB/s, %4.2f of reading", n_threads, n_threads > 1 ? "s" : " ", total / best, read / best);
	munmap(y, (size_t)w->rows * sizeof(float));
	free_acts(&a);
}

static void batch(const struct kernels *k, struct weight *w, const uint8_t *data, int32_t n)
{
	w->data = data;
	w->rows = BATCH_ROWS;
	struct acts a = make_acts(k, w->type, n, w->cols);
	size_t bytes = (size_t)n * (size_t)w->rows * sizeof(float);
	float *y = alloc(bytes);
	struct round r = {.k = k, .w = w, .a = &a, .y = y, .n_threads = 1};
	double best = 1e9;
	for (int i = 0; i < REPEATS; i++) {
		double t = run_round(&r);
		best = t < best ? t : best;
	}
	printf("  n=%d %6.1f GFLOP/s", n, 2e-9 * w->rows * (double)w->cols * n / best);
	munmap(y, bytes);
	free_acts(&a);
}

static void bench_table(const struct kernels *k, const struct options *o)
{
	bool slow = strcmp(kernels_name(k), "portable") == 0;
	size_t bytes = (o->mib << 20) / (slow ? 8 : 1);
	uint8_t *data = alloc_weights(o->mib << 20);
	printf("%s, %d columns\n", kernels_name(k), (int)o->cols);
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct weight w = {.type = types[i], .cols = o->cols};
		if (!dtype_row_bytes(w.type, (uint64_t)o->cols, &w.row_bytes))
			continue;
		printf("%-5s", dtype_find((uint32_t)w.type)->name);
		for (int n = 1; n <= o->threads; n += o->threads > 1 ? o->threads - 1 : 1)
			decode(k, &w, data, bytes, n);
		for (size_t b = 0; b < ARRAY_LEN(batches) - slow; b++)
			batch(k, &w, data, batches[b]);
		printf("\n");
		fflush(stdout);
	}
	munmap(data, o->mib << 20);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

// lanes_ratio prints how much longer a product of these lanes takes than the plain one of the same bytes.
static void lanes_ratio(const struct kernels *k, struct weight *w, const uint8_t *data, size_t bytes, int32_t n, int n_threads, uint32_t mask)
{
	double ratio[PAIRS];
	w->data = data;
	w->rows = (int32_t)(bytes / w->row_bytes);
	struct acts a = make_acts(k, w->type, n, w->cols);
	size_t y_bytes = (size_t)n * (size_t)w->rows * sizeof(float);
	struct round r = {.k = k, .w = w, .a = &a, .y = alloc(y_bytes), .n_threads = n_threads};
	(void)run_round(&r);
	for (int i = 0; i < PAIRS; i++) {
		double t[2];
		for (int j = 0; j < 2; j++) {
			int nodes = (i + j) % 2;
			r.mask = nodes ? mask : 0;
			t[nodes] = run_round(&r);
		}
		ratio[i] = t[1] / t[0];
	}
	qsort(ratio, PAIRS, sizeof(ratio[0]), by_size);
	printf("  n=%d, %d thread%s %.3f [%.3f, %.3f]", (int)n, n_threads, n_threads > 1 ? "s" : "", (ratio[PAIRS / 2 - 1] + ratio[PAIRS / 2]) / 2,
		ratio[BOUND], ratio[PAIRS - 1 - BOUND]);
	munmap(r.y, y_bytes);
	free_acts(&a);
}

static void bench_lanes(const struct kernels *k, const struct options *o)
{
	size_t bytes = o->mib << 20;
	uint8_t *data = alloc_weights(bytes);
	printf("%s, %d columns, %d of 8 lanes against all\n", kernels_name(k), (int)o->cols, o->lanes);
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct weight w = {.type = types[i], .cols = o->cols};
		if (!dtype_row_bytes(w.type, (uint64_t)o->cols, &w.row_bytes))
			continue;
		uint32_t mask = lanes_all(o->lanes * kernels_lanes(w.type) / 8);
		printf("%-5s", dtype_find((uint32_t)w.type)->name);
		for (int n = 1; n <= o->threads; n += o->threads > 1 ? o->threads - 1 : 1)
			lanes_ratio(k, &w, data, bytes, 1, n, mask);
		lanes_ratio(k, &w, data, BATCH_ROWS * w.row_bytes, 16, 1, mask);
		printf("\n");
		fflush(stdout);
	}
	munmap(data, bytes);
}

static void attention(const struct kernels *k, int32_t n_tokens, int32_t n_pos, int32_t group)
{
	enum { HEADS = 4, DIM = 128 };
	size_t n_kv = (size_t)(n_pos + n_tokens) * DIM * 2, n_q = (size_t)n_tokens * HEADS * DIM;
	size_t scratch_floats = kernels_attention_group_scratch(n_pos + n_tokens, DIM, group * HEADS);
	uint16_t *kv = alloc(n_kv * sizeof(uint16_t));
	float *q = alloc(n_q * 2 * sizeof(float)), *out = q + n_q, *scratch = alloc(scratch_floats * sizeof(float));
	for (size_t i = 0; i < n_kv; i++)
		kv[i] = (uint16_t)(0x3000 + i % 97 * 8);
	for (size_t i = 0; i < n_q; i++)
		q[i] = (float)(i % 31) * 0.01f;
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
	printf("attention, %d heads of %d, %d tokens from position %d, %d at once: %.3f ms, %.1f GFLOP/s\n", HEADS, DIM, (int)n_tokens, (int)n_pos,
		(int)group, best * 1e3, ops / best * 1e-9);
	munmap(kv, n_kv * sizeof(uint16_t));
	munmap(q, n_q * 2 * sizeof(float));
	munmap(scratch, scratch_floats * sizeof(float));
}

static void swiglu_and_quantise(const struct kernels *k)
{
	enum { N = 1 << 20 };
	float *y = alloc(N * sizeof(float));
	double swiglu = 1e9, quantise[2] = {1e9, 1e9};
	for (int kind = 0; kind < 2; kind++) {
		struct acts a = make_acts(k, kind ? DTYPE_Q4_K : DTYPE_Q4_0, 256, N / 256);
		for (int i = 0; i < REPEATS; i++) {
			double t = now_s();
			acts_quantise(k, &a, 0, 256);
			t = now_s() - t;
			quantise[kind] = t < quantise[kind] ? t : quantise[kind];
			t = now_s();
			kernels_swiglu(k, a.x, a.x, N, y);
			t = now_s() - t;
			swiglu = t < swiglu ? t : swiglu;
		}
		free_acts(&a);
	}
	printf("swiglu %.2f ns, quantise %.2f (per 32) and %.2f (per 256) ns for a value\n", swiglu * 1e9 / N, quantise[0] * 1e9 / N,
		quantise[1] * 1e9 / N);
	munmap(y, N * sizeof(float));
}

static struct options parse(int argc, char **argv)
{
	struct options o = {.cols = 4096, .mib = 768, .threads = 2};
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--table") == 0)
			o.table = argv[i + 1];
		else if (strcmp(argv[i], "--cols") == 0)
			o.cols = (int32_t)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--mib") == 0)
			o.mib = (size_t)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--threads") == 0)
			o.threads = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--lanes") == 0)
			o.lanes = atoi(argv[i + 1]);
		else
			argc = 2;
	}
	if (argc % 2 == 0 || o.cols < 32 || o.cols % 32 != 0 || o.mib < 8 || o.threads < 1 || o.threads > THREADS_MAX || o.lanes < 0 ||
		o.lanes > 7 || o.lanes == 1) {
		fprintf(stderr, "usage: kernels_bench [--table NAME] [--cols N] [--mib N] [--threads N] [--lanes 2..7]\n");
		exit(2);
	}
	return o;
}

int main(int argc, char **argv)
{
	struct options o = parse(argc, argv);
	kernels_thread_init();
	for (size_t i = 0; kernels_known(i) != NULL; i++) {
		struct errmsg em;
		if (o.table != NULL && strcmp(o.table, kernels_known(i)) != 0)
			continue;
		const struct kernels *k = kernels_find(kernels_known(i), &em);
		if (k == NULL) {
			printf("%s\n", em.text);
			continue;
		}
		if (o.lanes > 0) {
			bench_lanes(k, &o);
			continue;
		}
		bench_table(k, &o);
		attention(k, 1, 511, 1);
		attention(k, 512, 1, 8);
		swiglu_and_quantise(k);
	}
	return 0;
}
