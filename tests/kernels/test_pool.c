#include "kernels/pool.h"

#include "kernels/kernels.h"
#include "tests/support/canonical_ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_THREADS_MAX 8

struct counts {
	int32_t by_thread[N_THREADS_MAX]; // plain: the pool orders what owner and workers do
	int32_t n_threads;
};

static void count(void *ctx, int32_t thread_idx, int32_t n_threads)
{
	struct counts *c = ctx;
	c->by_thread[thread_idx]++;
	if (thread_idx == 0)
		c->n_threads = n_threads;
}

static void each_run_reaches_every_thread_once(void **state)
{
	(void)state;
	for (int32_t n = 1; n <= N_THREADS_MAX; n++) {
		struct pool *p;
		struct counts c = {{0}, 0};
		assert_int_equal(pool_open(n, &p), OK);
		assert_int_equal(pool_n_threads(p), n);
		for (int run = 1; run <= 200; run++) {
			pool_run(p, count, &c);
			for (int32_t i = 0; i < n; i++)
				assert_int_equal(c.by_thread[i], run);
		}
		assert_int_equal(c.n_threads, n);
		pool_close(p);
	}
	pool_close(NULL);
}

static void a_run_takes_as_many_threads_as_were_asked_for(void **state)
{
	(void)state;
	struct pool *p;
	struct rng r;
	int32_t expected[N_THREADS_MAX] = {0};
	struct counts c = {{0}, 0};
	rng_init(&r, 2);
	assert_int_equal(pool_open(N_THREADS_MAX, &p), OK);
	for (int run = 1; run <= 2000; run++) {
		int32_t n = (int32_t)rng_below(&r, N_THREADS_MAX + 2) + 1; // more than there are, too
		pool_use(p, n);
		n = n < N_THREADS_MAX ? n : N_THREADS_MAX;
		for (int32_t again = (int32_t)rng_below(&r, 3); again >= 0; again--) {
			pool_run(p, count, &c);
			for (int32_t i = 0; i < N_THREADS_MAX; i++)
				assert_int_equal(c.by_thread[i], expected[i] += i < n);
			assert_int_equal(c.n_threads, n);
		}
	}
	pool_use(p, 1);
	pool_run(p, count, &c);
	pool_close(p); // with all of its threads asleep
}

// Closing opens the gate that runs begin with, and a thread may still be on its way from a run that was not its own.
static void closing_is_no_run_for_those_who_took_no_part(void **state)
{
	(void)state;
	for (int round = 0; round < 500; round++) {
		struct pool *p;
		struct counts c = {{0}, 0};
		assert_int_equal(pool_open(N_THREADS_MAX, &p), OK);
		pool_use(p, 2);
		for (int run = 0; run < 1 + round % 4; run++)
			pool_run(p, count, &c);
		pool_close(p);
		for (int32_t i = 2; i < N_THREADS_MAX; i++)
			assert_int_equal(c.by_thread[i], 0);
	}
}

static void runs_after_a_long_wait_still_start(void **state)
{
	(void)state;
	struct pool *p;
	struct counts c = {{0}, 0};
	struct rng r;
	rng_init(&r, 1);
	assert_int_equal(pool_open(2, &p), OK);
	for (int run = 1; run <= 20; run++) {
		// Work of the owner's own, far longer than a thread stays awake.
		uint64_t sum = 0;
		for (int i = 0; i < 1000000; i++)
			sum ^= rng_u64(&r);
		assert_true(sum != 0);
		pool_run(p, count, &c);
		assert_int_equal(c.by_thread[1], run);
	}
	pool_close(p);
}

struct relay {
	struct pool *pool;
	int32_t cells[N_THREADS_MAX]; // written before a barrier by one thread, read behind it by the next
	_Atomic int32_t n_wrong;
};

static void pass_on(void *ctx, int32_t thread_idx, int32_t n_threads)
{
	struct relay *r = ctx;
	for (int32_t step = 1; step <= 100; step++) {
		r->cells[thread_idx] = step * 10 + thread_idx;
		pool_barrier(r->pool);
		int32_t next = (thread_idx + 1) % n_threads;
		if (r->cells[next] != step * 10 + next)
			atomic_fetch_add(&r->n_wrong, 1);
		pool_barrier(r->pool);
	}
}

static void a_barrier_shows_what_the_others_wrote(void **state)
{
	(void)state;
	for (int32_t n = 1; n <= N_THREADS_MAX; n += n == 4 ? 4 : 1) {
		struct relay r = {.n_wrong = 0};
		assert_int_equal(pool_open(n, &r.pool), OK);
		for (int run = 0; run < 5; run++)
			pool_run(r.pool, pass_on, &r);
		assert_int_equal(atomic_load(&r.n_wrong), 0);
		pool_close(r.pool);
	}
}

struct job {
	struct pool *pool;
	const struct kernels *k;
	struct weight w;
	struct acts a;
	float *y;
};

static void share_product(void *ctx, int32_t i, int32_t n)
{
	struct job *j = ctx;
	acts_quantise(j->k, &j->a, j->a.n * i / n, j->a.n * (i + 1) / n);
	pool_barrier(j->pool);
	kernels_matmul(j->k, &j->w, &j->a, j->w.rows * i / n, j->w.rows * (i + 1) / n, j->y, (size_t)j->w.rows);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
	(void)state;
	enum { ROWS = 101, COLS = 576, TOKENS = 9 };
	static uint8_t data[ROWS * COLS / 32 * 20];
	static float x[TOKENS * COLS], want[TOKENS * ROWS], got[TOKENS * ROWS];
	struct rng r;
	rng_init(&r, 1);
	ref_fill_weights(&r, DTYPE_Q4_1, false, data, ROWS, COLS);
	ref_fill(&r, REF_PLAIN, x, TOKENS * COLS);
	void *storage = malloc(acts_bytes(ACT_A32, TOKENS, COLS));
	struct job j = {.k = kernels_find(NULL, NULL),
		.w = {.data = data, .type = DTYPE_Q4_1, .rows = ROWS, .cols = COLS, .row_bytes = COLS / 32 * 20}};
	for (int32_t n_tokens = 1; n_tokens <= TOKENS; n_tokens += 8) {
		acts_init(&j.a, ACT_A32, TOKENS, COLS, storage);
		acts_set(&j.a, x, n_tokens);
		for (int32_t n = 1; n <= 5; n++) {
			j.y = n == 1 ? want : got;
			assert_int_equal(pool_open(n, &j.pool), OK);
			pool_run(j.pool, share_product, &j);
			pool_close(j.pool);
			assert_true(n == 1 || ref_same(got, want, (size_t)(n_tokens * ROWS)));
		}
	}
	free(storage);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(closing_is_no_run_for_those_who_took_no_part),
		cmocka_unit_test(each_run_reaches_every_thread_once),
		cmocka_unit_test(a_run_takes_as_many_threads_as_were_asked_for),
		cmocka_unit_test(runs_after_a_long_wait_still_start),
		cmocka_unit_test(a_barrier_shows_what_the_others_wrote),
		cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
