#include "engine/worker.h"

#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct worker {
	const struct kernels *kernels;
	struct pool *pool;
	pthread_t thread;
	pthread_mutex_t mutex; // guards what follows
	pthread_cond_t wake;
	struct worker_job *first, **last;
	bool is_stopping;
	double slowdown; // written before the first job
};

static void rest(double slowdown, int64_t begin_ns)
{
	int64_t now_ns = thread_clock_ns();
	int64_t until_ns = now_ns + (int64_t)((slowdown - 1) * (double)(now_ns - begin_ns));
	struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static void *worker_thread(void *ctx)
{
	struct worker *w = ctx;
	kernels_thread_init();
	pthread_mutex_lock(&w->mutex);
	for (;;) {
		while (w->first == NULL && !w->is_stopping)
			pthread_cond_wait(&w->wake, &w->mutex);
		struct worker_job *job = w->first;
		if (job == NULL)
			break;
		w->first = job->next;
		if (w->first == NULL)
			w->last = &w->first;
		pthread_mutex_unlock(&w->mutex);
		int64_t begin_ns = thread_clock_ns();
		job->run(job);
		if (w->slowdown > 1)
			rest(w->slowdown, begin_ns);
		job->done(job); // the job may be gone after this
		pthread_mutex_lock(&w->mutex);
	}
	pthread_mutex_unlock(&w->mutex);
	return NULL;
}

enum err worker_open(int32_t n_threads, const char *simd, struct worker **out, struct errmsg *em)
{
	const struct kernels *k = kernels_find(simd, em);
	if (k == NULL)
		return ERR_UNSUPPORTED;
	struct worker *w = calloc(1, sizeof *w);
	if (w == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the worker");
	w->kernels = k;
	w->last = &w->first;
	enum err e = pool_open(n_threads, &w->pool);
	if (e != OK) {
		errmsg_fail(em, e, "cannot start %d compute threads", n_threads);
		goto fail;
	}
	pthread_mutex_init(&w->mutex, NULL);
	pthread_cond_init(&w->wake, NULL);
	if (pthread_create(&w->thread, NULL, worker_thread, w) != 0) {
		e = errmsg_fail(em, ERR_NOMEM, "cannot start the worker's thread");
		pthread_cond_destroy(&w->wake);
		pthread_mutex_destroy(&w->mutex);
		goto fail;
	}
	*out = w;
	return OK;
fail:
	pool_close(w->pool);
	free(w);
	return e;
}

void worker_slow_down(struct worker *w, double factor)
{
	pthread_mutex_lock(&w->mutex);
	w->slowdown = factor;
	pthread_mutex_unlock(&w->mutex);
}

void worker_close(struct worker *w)
{
	if (w == NULL)
		return;
	pthread_mutex_lock(&w->mutex);
	w->is_stopping = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->mutex);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->mutex);
	pool_close(w->pool);
	free(w);
}

void worker_submit(struct worker *w, struct worker_job *job)
{
	pthread_mutex_lock(&w->mutex);
	job->next = NULL;
	*w->last = job;
	w->last = &job->next;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->mutex);
}

struct pool *worker_pool(struct worker *w)
{
	return w->pool;
}

const struct kernels *worker_kernels(const struct worker *w)
{
	return w->kernels;
}
