#include "sim/event_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define CAP 64
#define N_STEPS 20000

static void events_come_by_time(void **state)
{
	(void)state;
	struct event_queue q;
	assert_int_equal(event_queue_open(&q, CAP, 1), OK);
	int64_t times[CAP], at;
	struct rng r;
	rng_init(&r, 7);
	for (int i = 0; i < CAP; i++) {
		int64_t t = (int64_t)rng_below(&r, 1000);
		uint32_t place = event_queue_push(&q, t);
		assert_true(place < CAP);
		times[place] = t;
	}
	int64_t last = -1;
	for (int i = 0; i < CAP; i++) {
		uint32_t place = event_queue_pop(&q, INT64_MAX, &at);
		assert_true(place < CAP);
		assert_int_equal(at, times[place]);
		assert_true(at >= last);
		last = at;
	}
	assert_int_equal(event_queue_pop(&q, INT64_MAX, &at), EVENT_NONE);
	event_queue_close(&q);
}

static void nothing_comes_before_its_time(void **state)
{
	(void)state;
	struct event_queue q;
	int64_t at;
	assert_int_equal(event_queue_open(&q, CAP, 1), OK);
	uint32_t place = event_queue_push(&q, 100);
	assert_int_equal(event_queue_pop(&q, 99, &at), EVENT_NONE);
	assert_int_equal(event_queue_pop(&q, 100, &at), place);
	event_queue_close(&q);
}

static void a_full_queue_refuses(void **state)
{
	(void)state;
	struct event_queue q;
	int64_t at;
	assert_int_equal(event_queue_open(&q, 3, 1), OK);
	for (int i = 0; i < 3; i++)
		assert_true(event_queue_push(&q, i) < 3);
	assert_int_equal(event_queue_push(&q, 9), EVENT_NONE);
	assert_true(event_queue_pop(&q, 0, &at) < 3);
	assert_true(event_queue_push(&q, 9) < 3);
	event_queue_close(&q);
}

// order_of puts ten events at one time and notes in which order they come.
static void order_of(uint64_t seed, uint32_t out[10])
{
	struct event_queue q;
	int64_t at;
	assert_int_equal(event_queue_open(&q, CAP, seed), OK);
	for (int i = 0; i < 10; i++)
		assert_int_equal(event_queue_push(&q, 5), (uint32_t)i);
	for (int i = 0; i < 10; i++)
		out[i] = event_queue_pop(&q, 5, &at);
	event_queue_close(&q);
}

static void ties_are_broken_by_the_seed_alone(void **state)
{
	(void)state;
	uint32_t a[10], b[10], c[10];
	order_of(1, a);
	order_of(1, b);
	order_of(2, c);
	assert_memory_equal(a, b, sizeof a);
	assert_memory_not_equal(a, c, sizeof a);
	const uint32_t inserted[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
	assert_memory_not_equal(a, inserted, sizeof a);
}

// A model of the queue: an array that is searched.
struct naive {
	bool used[CAP];
	int64_t at[CAP];
};

static void random_pushes_pops_and_cancels_agree_with_a_search(void **state)
{
	(void)state;
	struct event_queue q;
	struct naive m = {0};
	struct rng r;
	int32_t n = 0;
	rng_init(&r, 3);
	assert_int_equal(event_queue_open(&q, CAP, 4), OK);
	for (int i = 0; i < N_STEPS; i++) {
		uint64_t what = rng_below(&r, 5);
		if (what < 2) {
			int64_t t = (int64_t)rng_below(&r, 50);
			uint32_t place = event_queue_push(&q, t);
			assert_int_equal(place == EVENT_NONE, n == CAP);
			if (place == EVENT_NONE)
				continue;
			assert_false(m.used[place]);
			m.used[place] = true;
			m.at[place] = t;
			n++;
		} else if (what < 4) {
			int64_t at, earliest = INT64_MAX;
			for (int k = 0; k < CAP; k++)
				if (m.used[k] && m.at[k] < earliest)
					earliest = m.at[k];
			uint32_t place = event_queue_pop(&q, INT64_MAX, &at);
			assert_int_equal(place == EVENT_NONE, n == 0);
			if (place == EVENT_NONE)
				continue;
			assert_true(m.used[place]);
			assert_int_equal(at, earliest);
			assert_int_equal(m.at[place], earliest);
			m.used[place] = false;
			n--;
		} else {
			uint32_t place = (uint32_t)rng_below(&r, CAP);
			assert_int_equal(event_queue_has(&q, place), m.used[place]);
			if (!m.used[place])
				continue;
			event_queue_cancel(&q, place);
			m.used[place] = false;
			n--;
		}
	}
	event_queue_close(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_come_by_time),
		cmocka_unit_test(nothing_comes_before_its_time),
		cmocka_unit_test(a_full_queue_refuses),
		cmocka_unit_test(ties_are_broken_by_the_seed_alone),
		cmocka_unit_test(random_pushes_pops_and_cancels_agree_with_a_search),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
