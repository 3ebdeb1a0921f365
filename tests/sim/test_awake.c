// Threads that keep processors awake: they are of the lowest class, run while they are wanted, and sleep and end when they are not.
#include "sim/shell/awake.h"

#include "base/thread.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MS INT64_C(1000000)

// cpu_ns returns what the threads have computed so far.
static int64_t cpu_ns(const struct awake *a)
{
	int64_t sum = 0;
	for (int32_t i = 0; i < awake_n_threads(a); i++) {
		clockid_t clock;
		struct timespec t;
		assert_int_equal(pthread_getcpuclockid(a->threads[i], &clock), 0);
		assert_int_equal(clock_gettime(clock, &t), 0);
		sum += (int64_t)t.tv_sec * 1000 * MS + t.tv_nsec;
	}
	return sum;
}

// wait_asleep waits until all of them sleep: on a busy machine they come to it late.
static void wait_asleep(struct awake *a)
{
	int64_t end_ns = thread_clock_ns() + 60000 * MS;
	while (atomic_load(&a->n_asleep) < awake_n_threads(a)) {
		assert_true(thread_clock_ns() < end_ns);
		sched_yield();
	}
}

static void there_is_one_of_the_lowest_class_on_each_processor(void **state)
{
	(void)state;
	struct awake a;
	cpu_set_t cpus, seen, only;
	awake_open(&a);
	assert_int_equal(awake_n_threads(&a), 0); // none before somebody wants them
	awake_until(&a, thread_clock_ns() + MS);
	assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
	CPU_ZERO(&seen);
	for (int32_t i = 0; i < awake_n_threads(&a); i++) {
		struct sched_param p;
		int policy;
		assert_int_equal(pthread_getschedparam(a.threads[i], &policy, &p), 0);
		assert_int_equal(policy, SCHED_IDLE);
		assert_int_equal(pthread_getaffinity_np(a.threads[i], sizeof only, &only), 0);
		assert_int_equal(CPU_COUNT(&only), 1);
		CPU_OR(&seen, &seen, &only);
	}
	assert_int_equal(CPU_COUNT(&seen), CPU_COUNT(&cpus) < AWAKE_THREADS_MAX ? CPU_COUNT(&cpus) : AWAKE_THREADS_MAX);
	awake_close(&a);
}

static void they_sleep_when_their_time_is_over_and_wake_again(void **state)
{
	(void)state;
	struct awake a;
	awake_open(&a);
	for (int round = 0; round < 20; round++) {
		awake_until(&a, thread_clock_ns() + MS);
		wait_asleep(&a);
		assert_true(thread_clock_ns() >= atomic_load(&a.until_ns));
	}
	int64_t before_ns = cpu_ns(&a);
	int64_t end_ns = thread_clock_ns() + 20 * MS;
	while (thread_clock_ns() < end_ns)
		;
	assert_true(cpu_ns(&a) - before_ns < MS); // one may still be on its way to sleep
	awake_close(&a);
}

static void they_end_while_they_are_awake(void **state)
{
	(void)state;
	for (int round = 0; round < 50; round++) {
		struct awake a;
		awake_open(&a);
		awake_until(&a, INT64_MAX);
		awake_until(&a, INT64_MAX);
		awake_close(&a);
	}
	struct awake zero;
	memset(&zero, 0, sizeof zero);
	awake_close(&zero);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_is_one_of_the_lowest_class_on_each_processor),
		cmocka_unit_test(they_sleep_when_their_time_is_over_and_wake_again),
		cmocka_unit_test(they_end_while_they_are_awake),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
