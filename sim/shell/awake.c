#include "sim/shell/awake.h"

#include "base/thread.h"

#include <sched.h>
#include <string.h>

#define LOOKS_EVERY 256 // pauses between two looks at the clock: some microseconds

static void pause_a_little(void)
{
	for (int32_t i = 0; i < LOOKS_EVERY; i++) {
#if defined(__x86_64__)
		__builtin_ia32_pause(); // leaves its share to the other thread of a core
#elif defined(__aarch64__)
		__asm__ volatile("yield");
#else
		atomic_signal_fence(memory_order_seq_cst);
#endif
	}
}

static bool is_wanted(struct awake *a)
{
	return thread_clock_ns() < atomic_load(&a->until_ns);
}

// is_back takes one back of those that are asleep; false: all of them are being woken.
static bool is_back(struct awake *a)
{
	int32_t n = atomic_load(&a->n_asleep);
	while (n > 0 && !atomic_compare_exchange_weak(&a->n_asleep, &n, n - 1))
		;
	return n > 0;
}

// sleep_until_wanted counts itself asleep before it looks once more: awake_until stores the time before it looks who sleeps.
static void sleep_until_wanted(struct awake *a)
{
	atomic_fetch_add(&a->n_asleep, 1);
	if ((is_wanted(a) || atomic_load(&a->is_ending)) && is_back(a))
		return;
	while (sem_wait(&a->wake) != 0)
		;
}

static void wake_all(struct awake *a)
{
	for (int32_t n = atomic_exchange(&a->n_asleep, 0); n > 0; n--)
		sem_post(&a->wake);
}

static void *keep_awake(void *ctx)
{
	struct awake *a = ctx;
	while (!atomic_load(&a->is_ending)) {
		sleep_until_wanted(a);
		while (is_wanted(a) && !atomic_load(&a->is_ending))
			pause_a_little();
	}
	return NULL;
}

// start_on starts a thread that stays on one processor, at the lowest class from its first moment on: as a normal one it would take time from others.
static bool start_on(struct awake *a, int cpu)
{
	cpu_set_t only;
	CPU_ZERO(&only);
	CPU_SET(cpu, &only);
	pthread_t *t = &a->threads[a->n_threads];
	struct sched_param none = {.sched_priority = 0};
	if (!thread_start(t, keep_awake, a))
		return false;
	a->n_threads++;
	return pthread_setschedparam(*t, SCHED_IDLE, &none) == 0 && pthread_setaffinity_np(*t, sizeof only, &only) == 0;
}

static void end_threads(struct awake *a)
{
	atomic_store(&a->is_ending, true);
	wake_all(a);
	for (int32_t i = 0; i < a->n_threads; i++)
		pthread_join(a->threads[i], NULL);
	a->n_threads = 0;
}

// start starts them while nobody wants them yet: each sleeps until it has its class.
static void start(struct awake *a)
{
	cpu_set_t cpus;
	a->is_started = true;
	if (sched_getaffinity(0, sizeof cpus, &cpus) != 0)
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE && a->n_threads < AWAKE_THREADS_MAX; cpu++) {
		if (CPU_ISSET(cpu, &cpus) && !start_on(a, cpu)) {
			end_threads(a);
			return;
		}
	}
}

void awake_open(struct awake *a)
{
	memset(a, 0, sizeof *a);
	a->is_open = sem_init(&a->wake, 0, 0) == 0;
}

void awake_until(struct awake *a, int64_t until_ns)
{
	if (a->is_open && !a->is_started)
		start(a);
	atomic_store(&a->until_ns, until_ns);
	if (atomic_load(&a->n_asleep) > 0)
		wake_all(a);
}

int32_t awake_n_threads(const struct awake *a)
{
	return a->n_threads;
}

void awake_close(struct awake *a)
{
	if (!a->is_open)
		return;
	end_threads(a);
	sem_destroy(&a->wake);
	memset(a, 0, sizeof *a);
}
