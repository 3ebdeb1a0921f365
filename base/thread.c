#include "base/thread.h"

#include <signal.h>
#include <time.h>

bool thread_start(pthread_t *out, void *(*run)(void *ctx), void *ctx)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool ok = pthread_create(out, NULL, run, ctx) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ok;
}

int64_t thread_clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
