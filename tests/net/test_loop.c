#include "net/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <semaphore.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"

#define MS INT64_C(1000000)
#define S (1000 * MS)

// ---- Timers ----

struct fired {
	int at[1024];
	int n;
};

struct numbered {
	struct loop_timer timer;
	struct fired *fired;
	int number;
};

static void note(void *ctx)
{
	struct numbered *t = ctx;
	t->fired->at[t->fired->n++] = t->number;
}

static bool have_all(void *ctx)
{
	return ((struct fired *)ctx)->n >= 500;
}

static void timers_fire_in_order_of_deadline_and_ties_in_order_set(void **state)
{
	(void)state;
	struct loop l;
	assert_int_equal(loop_open(&l, NULL), OK);
	static struct numbered t[1000];
	static struct fired fired;
	struct rng rng;
	rng_init(&rng, 1);
	int64_t base = loop_clock_ns() - S; // all due already: the heap alone decides
	for (int i = 0; i < 1000; i++) {
		t[i] = (struct numbered){.fired = &fired, .number = i};
		loop_timer_init(&t[i].timer, note, &t[i]);
		loop_timer_set(&l, &t[i].timer, base + (int64_t)rng_below(&rng, 100)); // many ties
	}
	for (int i = 0; i < 1000; i += 2) // half is taken out again, from all over the heap
		loop_timer_clear(&l, &t[(i * 7) % 1000 / 2 * 2].timer);
	assert_true(loop_run_until(&l, have_all, &fired, loop_clock_ns() + 5 * S));
	assert_int_equal(fired.n, 500);
	for (int i = 1; i < fired.n; i++) {
		const struct loop_timer *a = &t[fired.at[i - 1]].timer, *b = &t[fired.at[i]].timer;
		assert_true(a->deadline_ns < b->deadline_ns || (a->deadline_ns == b->deadline_ns && a->order < b->order));
		assert_int_equal(fired.at[i] % 2, 1);
	}
	assert_true(l.timers == NULL);
	loop_close(&l);
}

static void heap_survives_random_sets_and_clears(void **state)
{
	(void)state;
	struct loop l;
	assert_int_equal(loop_open(&l, NULL), OK);
	enum { N = 64 };
	static struct loop_timer t[N];
	struct rng rng;
	rng_init(&rng, 2);
	for (int i = 0; i < N; i++)
		loop_timer_init(&t[i], note, NULL);
	for (int step = 0; step < 20000; step++) {
		struct loop_timer *x = &t[rng_below(&rng, N)];
		if (rng_below(&rng, 3) == 0)
			loop_timer_clear(&l, x);
		else
			loop_timer_set(&l, x, (int64_t)rng_below(&rng, 1000));
		const struct loop_timer *least = NULL;
		for (int i = 0; i < N; i++)
			if (t[i].is_set &&
				(least == NULL || t[i].deadline_ns < least->deadline_ns ||
					(t[i].deadline_ns == least->deadline_ns && t[i].order < least->order)))
				least = &t[i];
		assert_ptr_equal(l.timers, least);
	}
	loop_close(&l);
}

struct again {
	struct loop *loop;
	struct loop_timer timer;
	struct loop_task task;
	int n_timer, n_task;
};

static void timer_again(void *ctx)
{
	struct again *a = ctx;
	a->n_timer++;
	loop_timer_set(a->loop, &a->timer, 1); // long gone by
}

static void task_again(void *ctx)
{
	struct again *a = ctx;
	a->n_task++;
	loop_task_post(a->loop, &a->task);
}

static bool both_ran_often(void *ctx)
{
	struct again *a = ctx;
	return a->n_timer >= 100 && a->n_task >= 100;
}

static void a_task_and_a_timer_that_come_back_at_once_do_not_starve_each_other(void **state)
{
	(void)state;
	struct loop l;
	assert_int_equal(loop_open(&l, NULL), OK);
	struct again a = {.loop = &l};
	loop_timer_init(&a.timer, timer_again, &a);
	loop_task_init(&a.task, task_again, &a);
	loop_timer_set(&l, &a.timer, 1);
	loop_task_post(&l, &a.task);
	assert_true(loop_run_until(&l, both_ran_often, &a, loop_clock_ns() + 5 * S));
	loop_close(&l);
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static void the_loop_tells_how_late_it_was(void **state)
{
	(void)state;
	struct loop l;
	assert_int_equal(loop_open(&l, NULL), OK);
	static struct fired fired;
	fired.n = 0;
	struct numbered t = {.fired = &fired};
	loop_timer_init(&t.timer, note, &t);
	loop_timer_set(&l, &t.timer, loop_clock_ns() - 3 * S);
	assert_false(loop_run_until(&l, never, NULL, loop_clock_ns() + 1 * MS));
	assert_int_equal(fired.n, 1);
	assert_true(loop_get_stats(&l).late_ns_max >= 3 * S);
	loop_close(&l);
}

// ---- Tasks from other threads ----

enum { N_THREADS = 4, N_POSTS = 5000 };

struct poster {
	pthread_t thread;
	struct loop *loop;
	struct loop_task task;
	sem_t ran_once; // the task is taken out of the queue before its next post
	int ran;
};

static void count_run(void *ctx)
{
	struct poster *p = ctx;
	p->ran++;
	sem_post(&p->ran_once);
}

static void *post_many(void *ctx)
{
	struct poster *p = ctx;
	for (int i = 0; i < N_POSTS; i++) {
		loop_task_post(p->loop, &p->task);
		sem_wait(&p->ran_once);
	}
	return NULL;
}

static bool all_ran(void *ctx)
{
	struct poster *p = ctx;
	for (int i = 0; i < N_THREADS; i++)
		if (p[i].ran < N_POSTS)
			return false;
	return true;
}

static void no_post_of_four_threads_is_lost(void **state)
{
	(void)state;
	struct loop l;
	assert_int_equal(loop_open(&l, NULL), OK);
	static struct poster p[N_THREADS];
	for (int i = 0; i < N_THREADS; i++) {
		p[i].loop = &l;
		assert_int_equal(sem_init(&p[i].ran_once, 0, 0), 0);
		loop_task_init(&p[i].task, count_run, &p[i]);
		assert_int_equal(pthread_create(&p[i].thread, NULL, post_many, &p[i]), 0);
	}
	assert_true(loop_run_until(&l, all_ran, p, loop_clock_ns() + 60 * S));
	for (int i = 0; i < N_THREADS; i++) {
		pthread_join(p[i].thread, NULL);
		assert_int_equal(p[i].ran, N_POSTS);
	}
	loop_close(&l);
}

static void add_one(void *ctx)
{
	++*(int *)ctx;
}

static bool is_full_house(void *ctx)
{
	return *(int *)ctx == LOOP_POSTS_MAX;
}

static void the_pool_of_posts_is_bounded_and_comes_back(void **state)
{
	(void)state;
	struct loop l;
	assert_int_equal(loop_open(&l, NULL), OK);
	for (int round = 0; round < 3; round++) {
		int n = 0;
		for (int i = 0; i < LOOP_POSTS_MAX; i++)
			assert_int_equal(loop_post(&l, add_one, &n), OK);
		assert_int_equal(loop_post(&l, add_one, &n), ERR_LIMIT);
		assert_true(loop_run_until(&l, is_full_house, &n, loop_clock_ns() + 5 * S));
	}
	loop_close(&l);
}

static void a_cancelled_task_does_not_run_and_a_queued_one_is_not_queued_twice(void **state)
{
	(void)state;
	struct loop l;
	assert_int_equal(loop_open(&l, NULL), OK);
	int a = 0, b = 0;
	struct loop_task ta, tb;
	loop_task_init(&ta, add_one, &a);
	loop_task_init(&tb, add_one, &b);
	loop_task_post(&l, &ta);
	loop_task_post(&l, &tb);
	loop_task_post(&l, &tb);
	assert_true(loop_task_cancel(&l, &ta));
	assert_false(loop_task_cancel(&l, &ta));
	assert_false(loop_run_until(&l, never, NULL, loop_clock_ns() + 1 * MS));
	assert_int_equal(a, 0);
	assert_int_equal(b, 1);
	loop_close(&l);
}

// ---- Stopping, signals ----

static void *stop_it(void *ctx)
{
	loop_stop(ctx);
	return NULL;
}

static void stop_from_another_thread_ends_a_waiting_loop(void **state)
{
	(void)state;
	struct loop l;
	assert_int_equal(loop_open(&l, NULL), OK);
	for (int i = 0; i < 200; i++) {
		pthread_t t;
		assert_int_equal(pthread_create(&t, NULL, stop_it, &l), 0);
		loop_run(&l); // nothing to do: only the stop ends it
		pthread_join(t, NULL);
	}
	loop_close(&l);
}

// A job under way on another thread; the loop is told when it is done.
struct job {
	struct loop *loop;
	bool is_done; // of the loop's thread
};

static void on_job_done(void *ctx)
{
	((struct job *)ctx)->is_done = true;
}

static bool job_is_done(void *ctx)
{
	return ((struct job *)ctx)->is_done;
}

static void *do_job(void *ctx)
{
	struct job *j = ctx;
	loop_stop(j->loop); // as a second signal does, in the middle of the job
	int64_t end_ns = loop_clock_ns() + 20000000;
	while (loop_clock_ns() < end_ns)
		;
	if (loop_post(j->loop, on_job_done, j) != OK)
		abort();
	return NULL;
}

static void a_stop_does_not_end_what_must_be_finished(void **state)
{
	(void)state;
	struct loop l;
	assert_int_equal(loop_open(&l, NULL), OK);
	for (int i = 0; i < 2; i++) {
		pthread_t t;
		struct job j = {.loop = &l};
		if (i == 1)
			loop_stop(&l); // before
		assert_int_equal(pthread_create(&t, NULL, do_job, &j), 0);
		loop_finish(&l, job_is_done, &j);
		assert_true(j.is_done);
		pthread_join(t, NULL);
		loop_run(&l); // the stop still counts
	}
	loop_close(&l);
}

struct signals {
	struct loop *loop;
	int seen[2];
	int n;
};

static void on_signal(void *ctx, int signo)
{
	struct signals *s = ctx;
	s->seen[s->n++] = signo;
	if (s->n == 2)
		loop_stop(s->loop);
}

static void *raise_both(void *ctx)
{
	(void)ctx;
	kill(getpid(), SIGTERM);
	kill(getpid(), SIGINT);
	return NULL;
}

static void signals_become_calls_on_the_loop(void **state)
{
	(void)state;
	struct loop l;
	assert_int_equal(loop_open(&l, NULL), OK);
	struct signals s = {.loop = &l};
	assert_int_equal(loop_signals(&l, on_signal, &s, NULL), OK);
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, raise_both, NULL), 0);
	loop_run(&l);
	pthread_join(t, NULL);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.seen[0] + s.seen[1], SIGTERM + SIGINT);
	loop_close(&l);
}

static void close_of_a_zeroed_loop_is_fine(void **state)
{
	(void)state;
	struct loop l = {0};
	loop_close(&l);
	assert_int_equal(loop_open(&l, NULL), OK);
	loop_close(&l);
	loop_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timers_fire_in_order_of_deadline_and_ties_in_order_set),
		cmocka_unit_test(heap_survives_random_sets_and_clears),
		cmocka_unit_test(a_task_and_a_timer_that_come_back_at_once_do_not_starve_each_other),
		cmocka_unit_test(the_loop_tells_how_late_it_was),
		cmocka_unit_test(no_post_of_four_threads_is_lost),
		cmocka_unit_test(the_pool_of_posts_is_bounded_and_comes_back),
		cmocka_unit_test(a_cancelled_task_does_not_run_and_a_queued_one_is_not_queued_twice),
		cmocka_unit_test(stop_from_another_thread_ends_a_waiting_loop),
		cmocka_unit_test(a_stop_does_not_end_what_must_be_finished),
		cmocka_unit_test(signals_become_calls_on_the_loop),
		cmocka_unit_test(close_of_a_zeroed_loop_is_fine),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
