// Keeps this machine's processors from sleeping for a while, so that whoever waits for something runs at once.
//
// A processor that sleeps takes up to some tenths of a millisecond to wake. A thread of the lowest class (SCHED_IDLE) on each one, that does nothing and
// does not sleep, keeps it awake and gives way to everybody else at once. The threads are there from the first call of awake_until on, and sleep themselves
// when nobody wants them. One thread calls.
#ifndef HEARTH_SIM_SHELL_AWAKE_H
#define HEARTH_SIM_SHELL_AWAKE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define AWAKE_THREADS_MAX 64        // processors beyond them sleep as they like
#define AWAKE_NS INT64_C(50000000) // after the last piece that had no time to spare: longer than a home computes a token

struct awake {
	sem_t wake; // no lock: a thread of that class may hold one for long, while others want the processor
	pthread_t threads[AWAKE_THREADS_MAX];
	int32_t n_threads;
	bool is_open, is_started;
	_Atomic int64_t until_ns; // of thread_clock_ns
	_Atomic int32_t n_asleep; // who wait for `wake`, but for those to whom it was posted
	_Atomic bool is_ending;
};

void awake_open(struct awake *a);
// awake_until: all processors, until then at least. Where threads of that class cannot be had nothing happens.
void awake_until(struct awake *a, int64_t until_ns);
int32_t awake_n_threads(const struct awake *a);
void awake_close(struct awake *a); // safe on zeroed memory

#endif
