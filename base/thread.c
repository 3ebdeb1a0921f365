#include "base/thread.h"

#include <signal.h>
#include <time.h>

// What a thread's own instruction raises is that thread's: blocked, it would end the process before a handler could say why.
static const int own_signals[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV};

bool thread_start(pthread_t *out, void *(*run)(void *ctx), void *ctx)
{
	sigset_t others, before;
	sigfillset(&others);
	for (size_t i = 0; i < ARRAY_LEN(own_signals); i++)
		sigdelset(&others, own_signals[i]);
	pthread_sigmask(SIG_SETMASK, &others, &before);
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
