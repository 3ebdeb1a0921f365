#include "kernels/pool.h"

#include "base/assert.h"
#include "base/thread.h"
#include "kernels/kernels.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

// One token's products come every few dozen microseconds: waiting that long awake is cheaper than a sleep and a wake-up.
#define SPIN_NS 50000
#define PAUSES_PER_LOOK 16 // processor pauses between two looks at the clock

// A gate is a number that changes: gate_wait returns when it is no longer `old`. A waiter announces itself before it looks a last
// time and an opener changes the number before it looks for sleepers, so that one of them always sees the other.
struct gate {
	_Atomic uint32_t value;
	_Atomic uint32_t n_sleepers;
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

struct worker {
	struct pool *pool;
	pthread_t thread;
	int32_t idx;
};

struct pool {
	int32_t n_threads;
	int32_t n_started; // workers that exist
	bool spins;        // false when there are more threads than processors: who spins then holds up the others
	_Atomic bool quit;
	pool_fn fn;
	void *ctx;
	struct gate start;             // counts runs
	struct gate done;              // follows start when all workers have finished
	_Atomic int32_t n_unfinished;  // workers in the current run
	struct gate barrier;           // counts barriers passed
	_Atomic int32_t n_arrived;     // threads at the current barrier
	struct worker workers[];       // (n_threads - 1)
};

static void cpu_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb"); // yield returns at once on most cores
#endif
}

static void gate_init(struct gate *g)
{
	atomic_init(&g->value, 0);
	atomic_init(&g->n_sleepers, 0);
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->changed, NULL);
}

static void gate_deinit(struct gate *g)
{
	pthread_cond_destroy(&g->changed);
	pthread_mutex_destroy(&g->lock);
}

static void gate_set(struct gate *g, uint32_t value)
{
	// An exchange, not a store: qemu's aarch64 (7.2) lets a load pass the store before it, and both sides would sleep.
	atomic_exchange(&g->value, value);
	if (atomic_load(&g->n_sleepers) == 0)
		return;
	pthread_mutex_lock(&g->lock);
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

static bool gate_spin(struct gate *g, uint32_t old)
{
	int64_t end_ns = thread_clock_ns() + SPIN_NS;
	do {
		for (int i = 0; i < PAUSES_PER_LOOK; i++) {
			if (atomic_load_explicit(&g->value, memory_order_acquire) != old)
				return true;
			cpu_pause();
		}
	} while (thread_clock_ns() < end_ns);
	return false;
}

static void gate_wait(struct gate *g, uint32_t old, bool spins)
{
	if (atomic_load_explicit(&g->value, memory_order_acquire) != old || (spins && gate_spin(g, old)))
		return;
	pthread_mutex_lock(&g->lock);
	atomic_fetch_add(&g->n_sleepers, 1);
	while (atomic_load(&g->value) == old)
		pthread_cond_wait(&g->changed, &g->lock);
	atomic_fetch_sub(&g->n_sleepers, 1);
	pthread_mutex_unlock(&g->lock);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct pool *p = w->pool;
	kernels_thread_init();
	for (uint32_t run = 0;; run++) {
		gate_wait(&p->start, run, p->spins);
		if (atomic_load(&p->quit))
			return NULL;
		p->fn(p->ctx, w->idx, p->n_threads);
		if (atomic_fetch_sub(&p->n_unfinished, 1) == 1)
			gate_set(&p->done, run + 1);
	}
}

static enum err start_workers(struct pool *p)
{
	while (p->n_started < p->n_threads - 1) {
		struct worker *w = &p->workers[p->n_started];
		*w = (struct worker){.pool = p, .idx = p->n_started + 1};
		if (!thread_start(&w->thread, worker_main, w))
			return ERR_LIMIT;
		p->n_started++;
	}
	return OK;
}

static int32_t n_processors(void)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 1;
	return CPU_COUNT(&set);
}

enum err pool_open(int32_t n_threads, struct pool **out)
{
	ASSERT(n_threads >= 1);
	struct pool *p = calloc(1, sizeof(*p) + (size_t)(n_threads - 1) * sizeof(p->workers[0]));
	if (p == NULL)
		return ERR_NOMEM;
	p->n_threads = n_threads;
	p->spins = n_threads <= n_processors();
	gate_init(&p->start);
	gate_init(&p->done);
	gate_init(&p->barrier);
	enum err e = start_workers(p);
	if (e != OK) {
		pool_close(p);
		return e;
	}
	*out = p;
	return OK;
}

void pool_close(struct pool *p)
{
	if (p == NULL)
		return;
	atomic_store(&p->quit, true);
	gate_set(&p->start, atomic_load(&p->start.value) + 1);
	for (int32_t i = 0; i < p->n_started; i++)
		pthread_join(p->workers[i].thread, NULL);
	gate_deinit(&p->start);
	gate_deinit(&p->done);
	gate_deinit(&p->barrier);
	free(p);
}

int32_t pool_n_threads(const struct pool *p)
{
	return p->n_threads;
}

void pool_run(struct pool *p, pool_fn fn, void *ctx)
{
	kernels_thread_init();
	if (p->n_threads == 1) {
		fn(ctx, 0, 1);
		return;
	}
	p->fn = fn;
	p->ctx = ctx;
	atomic_store(&p->n_unfinished, p->n_threads - 1);
	uint32_t run = atomic_load(&p->start.value);
	gate_set(&p->start, run + 1);
	fn(ctx, 0, p->n_threads);
	gate_wait(&p->done, run, p->spins);
}

void pool_barrier(struct pool *p)
{
	if (p->n_threads == 1)
		return;
	uint32_t passed = atomic_load(&p->barrier.value);
	if (atomic_fetch_add(&p->n_arrived, 1) + 1 < p->n_threads) {
		gate_wait(&p->barrier, passed, p->spins);
		return;
	}
	atomic_store(&p->n_arrived, 0);
	gate_set(&p->barrier, passed + 1);
}
