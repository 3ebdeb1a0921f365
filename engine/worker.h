// The engine's worker: one thread per process that computes, with one pool of compute threads, for every engine of the process.
//
// Jobs run in the order they were submitted: the head's and the stage's engines of one machine never compete for its cores.
// A job is its caller's struct; it must stay in place until done was called. Submit from any thread.
#ifndef HEARTH_ENGINE_WORKER_H
#define HEARTH_ENGINE_WORKER_H

#include "base/err.h"
#include "kernels/kernels.h"
#include "kernels/pool.h"

#include <stdint.h>

struct worker;

struct worker_job {
	void (*run)(struct worker_job *job);  // on the worker's thread
	void (*done)(struct worker_job *job); // on the worker's thread, afterwards: hand it to the loop
	struct worker_job *next;              // the worker's
};

// worker_open starts the thread and a pool of n_threads (the worker's own thread is one of them). `simd` as in kernels_find.
MUST_USE enum err worker_open(int32_t n_threads, const char *simd, struct worker **out, struct errmsg *em);
// worker_slow_down lets the worker rest as it computes, so that it takes `factor` times as long: 1 and less, not at all. Waiting for weights takes as long as it
// does, and they are read while it rests. Before the first job.
void worker_slow_down(struct worker *w, double factor);
// worker_close runs what was submitted, then ends. NULL is allowed.
void worker_close(struct worker *w);
void worker_submit(struct worker *w, struct worker_job *job);
struct pool *worker_pool(struct worker *w);
const struct kernels *worker_kernels(const struct worker *w);

#endif
