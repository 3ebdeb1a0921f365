#include "engine/probe_products.h"

#include "base/bytes.h"
#include "base/rng.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FILL_STEP (64u << 20)
#define PATTERN_BYTES (1u << 20)
#define ROW_TILE 32       // as engine/crew has it
#define SHARES_PER_HAND 4 // likewise
#define PREFILL_ROWS 1024 // of a matrix in a batch: a slice stays short on a slow machine
#define DECODE_ROWS_MAX (1 << 20)
#define X_FILLED (PROBE_BATCH * 8192)

struct probe_products {
	const struct kernels *k;
	uint8_t *weights; // (bytes)
	size_t bytes, filled, cursor;
	float *x;             // (PROBE_BATCH, PROBE_COLS_MAX), of which X_FILLED are no zeros; pages that nobody touches take no memory
	uint8_t *acts[3];     // storage of each form
	float *y;             // outputs of a batch
};

static size_t acts_size(enum act_kind kind)
{
	return acts_bytes(kind, PROBE_BATCH, PROBE_COLS_MAX) + 64; // floats need none
}

#define X_BYTES ((size_t)PROBE_BATCH * PROBE_COLS_MAX * sizeof(float))
#define Y_BYTES ((size_t)PROBE_BATCH * PREFILL_ROWS * sizeof(float) + DECODE_ROWS_MAX * sizeof(float))

// take maps memory: what is not touched is not there.
static void *take(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static void give(void *p, size_t bytes)
{
	if (p != NULL)
		munmap(p, bytes);
}

enum err probe_products_open(const struct kernels *k, size_t bytes, struct probe_products **out, struct errmsg *em)
{
	struct probe_products *p = calloc(1, sizeof *p);
	if (p == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory to measure with");
	p->k = k;
	p->bytes = bytes;
	p->weights = take(bytes);
	p->x = take(X_BYTES);
	p->y = take(Y_BYTES);
	bool ok = p->weights != NULL && p->x != NULL && p->y != NULL;
	for (int i = 0; i < 3; i++) {
		p->acts[i] = take(acts_size((enum act_kind)i));
		ok = ok && p->acts[i] != NULL;
	}
	if (!ok) {
		probe_products_close(p);
		return errmsg_fail(em, ERR_NOMEM, "no memory of %zu MiB to measure with", bytes >> 20);
	}
	(void)madvise(p->weights, bytes, MADV_NOHUGEPAGE); // pages as those of a mapped file
	*out = p;
	return OK;
}

void probe_products_close(struct probe_products *p)
{
	if (p == NULL)
		return;
	for (int i = 0; i < 3; i++)
		give(p->acts[i], acts_size((enum act_kind)i));
	give(p->weights, p->bytes);
	give(p->x, X_BYTES);
	give(p->y, Y_BYTES);
	free(p);
}

// write_pattern writes 16-bit words that every type can read as small finite numbers, wherever a block begins.
static void write_pattern(uint8_t *to, size_t bytes)
{
	struct rng r;
	rng_init(&r, 1);
	for (size_t i = 0; i + 1 < bytes; i += 2)
		store_u16(to + i, (uint16_t)((rng_u32(&r) & 0x83ff) | 0x2000));
}

bool probe_products_fill(struct probe_products *p)
{
	size_t end = p->bytes - p->filled > FILL_STEP ? p->filled + FILL_STEP : p->bytes;
	if (p->filled == 0) {
		write_pattern(p->weights, PATTERN_BYTES < p->bytes ? PATTERN_BYTES : p->bytes);
		p->filled = PATTERN_BYTES < p->bytes ? PATTERN_BYTES : p->bytes;
		for (int32_t i = 0; i < X_FILLED; i++)
			p->x[i] = (float)(i % 31 - 15) * 0.01f;
	}
	for (size_t at = p->filled; at < end; at += PATTERN_BYTES)
		memcpy(p->weights + at, p->weights, end - at < PATTERN_BYTES ? end - at : PATTERN_BYTES);
	p->filled = end > p->filled ? end : p->filled;
	return p->filled < p->bytes;
}

// ---- a slice

// One slice: threads walk through its phases together, each phase one matrix.
struct slice {
	struct probe_products *p;
	const struct probe_matrix *m; // (n) in turn
	int32_t n, n_tokens;
	int64_t begin_ns, ns;
	bool is_over; // the first thread's word, behind a barrier
	struct weight w; // of the phase
	struct acts acts;
	_Atomic int32_t next[2]; // the next share, of phases with even and odd numbers
	double done; // bytes or FLOP
};

// place_matrix lays the next matrix over the buffer behind the one before it, with fewer rows where it does not fit; false: not even a row does.
static bool place_matrix(struct slice *s, int32_t phase)
{
	struct probe_products *p = s->p;
	const struct probe_matrix *m = &s->m[phase % s->n];
	int32_t cols = m->cols < PROBE_COLS_MAX ? m->cols : PROBE_COLS_MAX, rows = m->rows;
	int32_t rows_max = s->n_tokens > 1 ? PREFILL_ROWS : DECODE_ROWS_MAX;
	s->w = (struct weight){.type = m->type, .cols = cols};
	if (!dtype_row_bytes(m->type, (uint64_t)cols, &s->w.row_bytes) || s->w.row_bytes > p->bytes / 2)
		return false;
	size_t fits = p->bytes / 2 / s->w.row_bytes; // so that two never lie on each other
	rows = rows < rows_max ? rows : rows_max;
	rows = (size_t)rows < fits ? rows : (int32_t)fits;
	size_t bytes = (size_t)rows * s->w.row_bytes;
	if (p->cursor + bytes > p->bytes)
		p->cursor = 0;
	s->w.data = p->weights + p->cursor;
	s->w.rows = rows;
	p->cursor += bytes;
	enum act_kind kind = kernels_act_kind(m->type);
	acts_init(&s->acts, kind, s->n_tokens, cols, p->acts[kind]);
	acts_set(&s->acts, p->x, s->n_tokens);
	s->done += s->n_tokens > 1 ? 2.0 * rows * cols * s->n_tokens : (double)bytes;
	return true;
}

static int32_t rows_per_share(const struct slice *s, int32_t n_threads)
{
	if (n_threads == 1)
		return s->w.rows;
	return (s->w.rows / (n_threads * SHARES_PER_HAND) / ROW_TILE + 1) * ROW_TILE;
}

static void compute_shares(struct slice *s, int32_t phase, int32_t n_threads)
{
	int32_t per = rows_per_share(s, n_threads), n = (s->w.rows + per - 1) / per;
	for (;;) {
		int32_t i = atomic_fetch_add_explicit(&s->next[phase & 1], 1, memory_order_relaxed);
		if (i >= n)
			return;
		int32_t begin = i * per, end = s->w.rows - begin > per ? begin + per : s->w.rows;
		kernels_matmul(s->p->k, &s->w, &s->acts, begin, end, s->p->y, (size_t)s->w.rows);
	}
}

struct walk {
	struct slice *s;
	struct pool *pool;
};

static void barrier(const struct walk *w, int32_t n_threads)
{
	if (n_threads > 1)
		pool_barrier(w->pool);
}

static void walk(void *ctx, int32_t idx, int32_t n_threads)
{
	const struct walk *w = ctx;
	struct slice *s = w->s;
	for (int32_t phase = 0;; phase++) {
		if (idx == 0) {
			s->is_over = (phase > 0 && thread_clock_ns() - s->begin_ns >= s->ns) || !place_matrix(s, phase);
			atomic_store_explicit(&s->next[(phase + 1) & 1], 0, memory_order_relaxed);
		}
		barrier(w, n_threads);
		if (s->is_over)
			return;
		if (s->acts.kind != ACT_F32) {
			int64_t n = s->n_tokens;
			acts_quantise(s->p->k, &s->acts, (int32_t)(n * idx / n_threads), (int32_t)(n * (idx + 1) / n_threads));
			barrier(w, n_threads);
		}
		compute_shares(s, phase, n_threads);
		barrier(w, n_threads);
	}
}

static double run_slice(struct probe_products *p, struct pool *pool, const struct probe_matrix *m, int32_t n, int32_t n_tokens, int64_t ns)
{
	struct slice s = {.p = p, .m = m, .n = n, .n_tokens = n_tokens, .ns = ns, .begin_ns = thread_clock_ns()};
	struct walk w = {&s, pool};
	if (n > 0)
		pool_run(pool, walk, &w);
	int64_t took = thread_clock_ns() - s.begin_ns;
	return took > 0 ? s.done * 1e9 / (double)took : 0;
}

double probe_products_decode(struct probe_products *p, struct pool *pool, const struct probe_matrix *m, int32_t n, int64_t ns)
{
	return run_slice(p, pool, m, n, 1, ns);
}

double probe_products_prefill(struct probe_products *p, struct pool *pool, const struct probe_matrix *m, int32_t n, int64_t ns)
{
	return run_slice(p, pool, m, n, PROBE_BATCH, ns);
}
