#include "blocks/shell/block_io.h"

#include "base/assert.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define NICENESS 5

// A first-in first-out list of jobs.
struct job_list {
	struct block_job *first, **last;
};

struct io_thread {
	struct block_io *io;
	struct block_zip *zip;
	pthread_t thread;
};

struct block_io {
	struct loop *loop;
	struct loop_task task; // tells what has ended
	struct io_thread threads[BLOCK_IO_THREADS_MAX];
	int32_t n_threads;
	pthread_mutex_t mutex; // guards what follows
	pthread_cond_t wake;
	struct job_list waiting, ended;
	bool is_stopping;
};

static void push(struct job_list *l, struct block_job *job)
{
	job->next = NULL;
	*l->last = job;
	l->last = &job->next;
}

static struct block_job *pop(struct job_list *l)
{
	struct block_job *job = l->first;
	if (job == NULL)
		return NULL;
	l->first = job->next;
	if (l->first == NULL)
		l->last = &l->first;
	return job;
}

static void *run_thread(void *ctx)
{
	struct io_thread *t = ctx;
	struct block_io *io = t->io;
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICENESS); // of this thread only
	pthread_mutex_lock(&io->mutex);
	for (;;) {
		while (io->waiting.first == NULL && !io->is_stopping)
			pthread_cond_wait(&io->wake, &io->mutex);
		if (io->is_stopping)
			break;
		struct block_job *job = pop(&io->waiting);
		pthread_mutex_unlock(&io->mutex);
		job->run(job, t->zip);
		pthread_mutex_lock(&io->mutex);
		push(&io->ended, job);
		loop_task_post(io->loop, &io->task);
	}
	pthread_mutex_unlock(&io->mutex);
	return NULL;
}

static void on_ended(void *ctx)
{
	struct block_io *io = ctx;
	for (;;) {
		pthread_mutex_lock(&io->mutex);
		struct block_job *job = pop(&io->ended);
		pthread_mutex_unlock(&io->mutex);
		if (job == NULL)
			return;
		job->done(job); // may submit it again
	}
}

static enum err start_thread(struct block_io *io, struct errmsg *em)
{
	struct io_thread *t = &io->threads[io->n_threads];
	t->io = io;
	enum err e = block_zip_open(&t->zip, em);
	if (e == OK && pthread_create(&t->thread, NULL, run_thread, t) != 0) {
		block_zip_close(t->zip);
		e = errmsg_fail(em, ERR_NOMEM, "cannot start the threads that read blocks");
	}
	io->n_threads += e == OK;
	return e;
}

enum err block_io_open(struct loop *loop, int32_t n_threads, struct block_io **out, struct errmsg *em)
{
	ASSERT(n_threads >= 1 && n_threads <= BLOCK_IO_THREADS_MAX);
	struct block_io *io = calloc(1, sizeof *io);
	*out = NULL;
	if (io == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the threads that read blocks");
	io->loop = loop;
	io->waiting.last = &io->waiting.first;
	io->ended.last = &io->ended.first;
	loop_task_init(&io->task, on_ended, io);
	pthread_mutex_init(&io->mutex, NULL);
	pthread_cond_init(&io->wake, NULL);
	enum err e = OK;
	while (io->n_threads < n_threads && e == OK)
		e = start_thread(io, em);
	if (e != OK) {
		block_io_close(io);
		return e;
	}
	*out = io;
	return OK;
}

void block_io_close(struct block_io *io)
{
	if (io == NULL)
		return;
	pthread_mutex_lock(&io->mutex);
	io->is_stopping = true;
	pthread_cond_broadcast(&io->wake);
	pthread_mutex_unlock(&io->mutex);
	for (int32_t i = 0; i < io->n_threads; i++) {
		pthread_join(io->threads[i].thread, NULL);
		block_zip_close(io->threads[i].zip);
	}
	loop_task_cancel(io->loop, &io->task);
	pthread_cond_destroy(&io->wake);
	pthread_mutex_destroy(&io->mutex);
	free(io);
}

void block_io_submit(struct block_io *io, struct block_job *job)
{
	pthread_mutex_lock(&io->mutex);
	push(&io->waiting, job);
	pthread_cond_signal(&io->wake);
	pthread_mutex_unlock(&io->mutex);
}
