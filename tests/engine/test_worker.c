// The worker: every job once, in order, on one thread that is not its caller's.
#include "engine/worker.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define N_JOBS 500
#define N_SUBMITTERS 4

struct log {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	int32_t n_done;
	int32_t n_run;       // touched by the worker's thread only, while it runs
	pthread_t thread;    // of the first job
	bool is_other_thread; // a job ran elsewhere
};

struct test_job {
	struct worker_job job; // first: the callbacks get its address
	struct log *log;
	struct worker *worker;
	int32_t submitter, number;
	int32_t run_as;        // how many ran before it
	int32_t sum;           // by the pool
};

static struct test_job *of(struct worker_job *job)
{
	return (struct test_job *)(void *)job;
}

static void add_share(void *ctx, int32_t thread_idx, int32_t n_threads)
{
	int32_t *parts = ctx;
	parts[thread_idx] = thread_idx + n_threads;
}

static void run_job(struct worker_job *job)
{
	struct test_job *j = of(job);
	int32_t parts[2] = {0};
	if (j->log->n_run == 0)
		j->log->thread = pthread_self();
	j->log->is_other_thread |= !pthread_equal(j->log->thread, pthread_self());
	j->run_as = j->log->n_run++;
	pool_run(worker_pool(j->worker), add_share, parts);
	j->sum = parts[0] + parts[1];
}

static void job_done(struct worker_job *job)
{
	struct log *l = of(job)->log;
	pthread_mutex_lock(&l->mutex);
	l->n_done++;
	pthread_cond_signal(&l->changed);
	pthread_mutex_unlock(&l->mutex);
}

static void init_jobs(struct test_job *jobs, int32_t n, int32_t submitter, struct worker *w, struct log *l)
{
	for (int32_t i = 0; i < n; i++)
		jobs[i] = (struct test_job){.job = {.run = run_job, .done = job_done}, .log = l, .worker = w, .submitter = submitter, .number = i, .run_as = -1};
}

static void *submit_all(void *ctx)
{
	struct test_job *jobs = ctx;
	for (int32_t i = 0; i < N_JOBS; i++)
		worker_submit(jobs[i].worker, &jobs[i].job);
	return NULL;
}

static void jobs_of_several_threads_run_once_each_in_order(void **state)
{
	(void)state;
	static struct test_job jobs[N_SUBMITTERS][N_JOBS];
	struct log log = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
	struct worker *w;
	pthread_t submitters[N_SUBMITTERS];
	struct errmsg em;
	assert_int_equal(worker_open(2, NULL, &w, &em), OK);
	assert_non_null(worker_kernels(w));
	for (int32_t s = 0; s < N_SUBMITTERS; s++) {
		init_jobs(jobs[s], N_JOBS, s, w, &log);
		assert_int_equal(pthread_create(&submitters[s], NULL, submit_all, jobs[s]), 0);
	}
	for (int32_t s = 0; s < N_SUBMITTERS; s++)
		pthread_join(submitters[s], NULL);
	pthread_mutex_lock(&log.mutex);
	while (log.n_done < N_SUBMITTERS * N_JOBS)
		pthread_cond_wait(&log.changed, &log.mutex);
	pthread_mutex_unlock(&log.mutex);
	worker_close(w);

	static bool seen[N_SUBMITTERS * N_JOBS];
	memset(seen, 0, sizeof seen);
	for (int32_t s = 0; s < N_SUBMITTERS; s++) {
		for (int32_t i = 0; i < N_JOBS; i++) {
			assert_in_range(jobs[s][i].run_as, 0, N_SUBMITTERS * N_JOBS - 1);
			assert_false(seen[jobs[s][i].run_as]);
			seen[jobs[s][i].run_as] = true;
			assert_true(i == 0 || jobs[s][i].run_as > jobs[s][i - 1].run_as);
			assert_int_equal(jobs[s][i].sum, 5); // both threads of the pool took part
		}
	}
	assert_false(log.is_other_thread);
	assert_false(pthread_equal(log.thread, pthread_self()));
}

static void closing_runs_what_was_submitted(void **state)
{
	(void)state;
	static struct test_job jobs[N_JOBS];
	for (int round = 0; round < 20; round++) {
		struct log log = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
		struct worker *w;
		assert_int_equal(worker_open(1, "portable", &w, NULL), OK);
		init_jobs(jobs, 50, 0, w, &log);
		for (int32_t i = 0; i < 50; i++)
			worker_submit(w, &jobs[i].job);
		worker_close(w);
		assert_int_equal(log.n_done, 50);
	}
	worker_close(NULL);
}

static void an_unknown_instruction_set_is_refused(void **state)
{
	(void)state;
	struct worker *w;
	struct errmsg em;
	assert_int_equal(worker_open(1, "abacus", &w, &em), ERR_UNSUPPORTED);
	assert_non_null(strstr(em.text, "abacus"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jobs_of_several_threads_run_once_each_in_order),
		cmocka_unit_test(closing_runs_what_was_submitted),
		cmocka_unit_test(an_unknown_instruction_set_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
