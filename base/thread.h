// Threads beside the program's own, which serve one object and end with it.
#ifndef HEARTH_BASE_THREAD_H
#define HEARTH_BASE_THREAD_H

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

// thread_start starts a thread in which signals from outside are blocked: they belong to the program's own threads. False: the system gives no more threads.
MUST_USE bool thread_start(pthread_t *out, void *(*run)(void *ctx), void *ctx);

// thread_clock_ns returns monotonic time, for how long something took; it decides nothing.
int64_t thread_clock_ns(void);

#endif
