#include "kernels/pool.h"

#include "base/assert.h"
#include "base/limits.h"
#include "base/pace.h"
#include "base/thread.h"
#include "kernels/kernels.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

// One token's products come every few dozen microseconds: waiting that long awake is cheaper than a sleep and a wake-up.
#define SPIN_NS 50000
#define PAUSES_PER_LOOK 16 // processor pauses between two looks at the clock

// A value of the start gate: in its lower bits how many threads take part in the run, above them a count of runs.
#define START_THREADS_BITS 9
#define START_THREADS_MASK ((UINT64_C(1) << START_THREADS_BITS) - 1)
_Static_assert(THREADS_MAX <= START_THREADS_MASK, "a start value holds the number of threads");

// A gate is a number that changes: gate_wait returns when it is no longer `old`. A waiter announces itself before it looks a last
// time and an opener changes the number before it looks for sleepers, so that one of them always sees the other. No number comes twice: who
// rests for hours would take the 2^23rd run after its last for that one.
struct gate {
	_Atomic uint64_t value;
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
	_Atomic int32_t n_wanted; // threads the next run takes
	int32_t n_active;         // threads of the current run
	bool spins;        // false when there are more threads than processors: who spins then holds up the others
	_Atomic bool quit;
	pool_fn fn;
	void *ctx;
	struct pace pace;  // the owner's
	struct gate start;             // a new value begins a run
	struct gate done;              // follows start when all workers of a run have finished
	struct gate resume;            // its low bits are the threads that do not rest
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

static void gate_set(struct gate *g, uint64_t value)
{
	// An exchange, not a store: qemu's aarch64 (7.2) lets a load pass the store before it, and both sides would sleep.
	atomic_exchange(&g->value, value);
	if (atomic_load(&g->n_sleepers) == 0)
		return;
	pthread_mutex_lock(&g->lock);
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

// next_value returns a value that the gate does not have, with n in its low bits.
static uint64_t next_value(struct gate *g, int32_t n)
{
	return ((atomic_load(&g->value) | START_THREADS_MASK) + 1) | (uint64_t)n;
}

static bool gate_spin(struct gate *g, uint64_t old)
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

static void gate_wait(struct gate *g, uint64_t old, bool spins)
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

// rest: a thread that takes part in no run sleeps, and is not woken by each.
static void rest(struct pool *p, int32_t idx)
{
	uint64_t value = atomic_load(&p->resume.value);
	while (idx >= (int32_t)(value & START_THREADS_MASK) && !atomic_load(&p->quit)) {
		gate_wait(&p->resume, value, false);
		value = atomic_load(&p->resume.value);
	}
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct pool *p = w->pool;
	kernels_thread_init();
	for (uint64_t run = 0;;) {
		rest(p, w->idx);
		gate_wait(&p->start, run, p->spins);
		run = atomic_load(&p->start.value);
		if (atomic_load(&p->quit)) // looked at after the value: that of pool_close is no run
			return NULL;
		int32_t n_active = (int32_t)(run & START_THREADS_MASK);
		if (w->idx >= n_active)
			continue; // a run without it: it may have slept through others
		p->fn(p->ctx, w->idx, n_active);
		if (atomic_fetch_sub(&p->n_unfinished, 1) == 1)
			gate_set(&p->done, run);
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
	p->n_threads = p->n_active = n_threads;
	atomic_init(&p->n_wanted, n_threads);
	p->spins = n_threads <= n_processors();
	gate_init(&p->start);
	gate_init(&p->done);
	gate_init(&p->resume);
	atomic_store(&p->resume.value, (uint64_t)n_threads);
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
	gate_set(&p->resume, next_value(&p->resume, p->n_threads));
	gate_set(&p->start, next_value(&p->start, p->n_threads));
	for (int32_t i = 0; i < p->n_started; i++)
		pthread_join(p->workers[i].thread, NULL);
	gate_deinit(&p->start);
	gate_deinit(&p->done);
	gate_deinit(&p->resume);
	gate_deinit(&p->barrier);
	free(p);
}

int32_t pool_n_threads(const struct pool *p)
{
	return p->n_threads;
}

void pool_use(struct pool *p, int32_t n)
{
	ASSERT(n >= 1);
	atomic_store(&p->n_wanted, n < p->n_threads ? n : p->n_threads);
}

void pool_run(struct pool *p, pool_fn fn, void *ctx)
{
	kernels_thread_init();
	int32_t n_wanted = atomic_load(&p->n_wanted);
	if (n_wanted != p->n_active) {
		p->n_active = n_wanted;
		gate_set(&p->resume, next_value(&p->resume, n_wanted));
	}
	if (p->n_active == 1) {
		fn(ctx, 0, 1);
		return;
	}
	p->fn = fn;
	p->ctx = ctx;
	atomic_store(&p->n_unfinished, p->n_active - 1);
	uint64_t before = atomic_load(&p->done.value);
	gate_set(&p->start, next_value(&p->start, p->n_active));
	fn(ctx, 0, p->n_active);
	gate_wait(&p->done, before, p->spins);
}

void pool_barrier(struct pool *p)
{
	if (p->n_active == 1)
		return;
	uint64_t passed = atomic_load(&p->barrier.value);
	if (atomic_fetch_add(&p->n_arrived, 1) + 1 < p->n_active) {
		gate_wait(&p->barrier, passed, p->spins);
		return;
	}
	atomic_store(&p->n_arrived, 0);
	gate_set(&p->barrier, passed + 1);
}

void pool_slow_down(struct pool *p, double factor)
{
	p->pace.factor = factor;
}

void pool_resume(struct pool *p)
{
	if (p->pace.factor > 1)
		pace_begin(&p->pace, thread_clock_ns());
}

void pool_rest(struct pool *p)
{
	if (!(p->pace.factor > 1))
		return;
	int64_t now_ns = thread_clock_ns(), due_ns = pace_due(&p->pace, now_ns);
	if (due_ns == 0)
		return;
	int64_t until_ns = now_ns + due_ns;
	struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
	int64_t end_ns = thread_clock_ns();
	pace_rested(&p->pace, end_ns - now_ns);
	pace_begin(&p->pace, end_ns);
}
