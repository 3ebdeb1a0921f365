// A pool of compute threads that run one function together.
//
// One owner calls pool_run; it takes part as thread 0 and returns when all have finished. Each thread has called
// kernels_thread_init. Between runs threads spin for a moment, then sleep.
//
// A pool may stand for slower threads (pool_slow_down): then its owner rests where it would compute, but not where it waits for something else.
#ifndef HEARTH_KERNELS_POOL_H
#define HEARTH_KERNELS_POOL_H

#include "base/err.h"

#include <stdint.h>

struct pool;
typedef void (*pool_fn)(void *ctx, int32_t thread_idx, int32_t n_threads);

// pool_open starts n_threads - 1 threads (n_threads >= 1). ERR_LIMIT: the system gives no more threads.
MUST_USE enum err pool_open(int32_t n_threads, struct pool **out);
void pool_close(struct pool *p); // NULL is allowed
int32_t pool_n_threads(const struct pool *p);
// pool_use sets how many of its threads take part from the next run on (1 at least; all, when n is more); the others sleep. From any thread.
void pool_use(struct pool *p, int32_t n);
// pool_run calls kernels_thread_init for the owner too. What the owner wrote before is visible to all; what they wrote, to it.
void pool_run(struct pool *p, pool_fn fn, void *ctx);
// pool_barrier waits, inside a pool_fn, until every thread of the run has reached it.
void pool_barrier(struct pool *p);

// pool_slow_down: between pool_resume and pool_rest the owner takes `factor` times as long as it computes (base/pace.h): 1 and less, no longer. Before the first run.
void pool_slow_down(struct pool *p, double factor);
// pool_resume: the owner begins to compute, or has waited. pool_rest: it has computed. On the owner's thread, also inside of a run.
void pool_resume(struct pool *p);
void pool_rest(struct pool *p);

#endif
