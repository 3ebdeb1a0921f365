#include "engine/worker.h"

#include "base/thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct worker {
	const struct kernels *kernels;
	struct pool *pool;
	pthread_t thread;
	pthread_mutex_t mutex; // guards what follows
	pthread_cond_t wake;
	struct worker_job *first, **last;
	bool is_stopping;
};

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
		pool_resume(w->pool);
		job->run(job);
		pool_rest(w->pool);
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
	pool_slow_down(w->pool, factor);
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
