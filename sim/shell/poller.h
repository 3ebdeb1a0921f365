// A small event loop over epoll: descriptors, one absolute timer, signals. `hearth emulate` runs on it.
//
// Why not net/loop with NNG's streams, like everything else: each read or write there crosses two of NNG's threads before it reaches the loop's, and
// NNG decides when it reads. A relay must stop reading when a queue is full, end one direction of a connection, reset it on
// purpose, and know within microseconds when bytes came; that is what sockets are for.
//
// A timer wakes a processor that slept up to some tenths of a millisecond late (measured on a virtual machine: 0.02 ms at the median, 0.15 at p99). So the
// loop wakes POLLER_EARLY_NS before a time and looks for events without sleeping until then: that costs as much of a core for each time, and nothing
// when nothing is due.
//
// Ownership: the caller keeps watches in place until poller_forget, and what a watch is embedded in until the batch of events under way is over:
// poller_run calls `after_batch` then. Thread rule: one thread.
#ifndef HEARTH_SIM_SHELL_POLLER_H
#define HEARTH_SIM_SHELL_POLLER_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define POLLER_NEVER INT64_MAX
#define POLLER_EARLY_NS INT64_C(100000) // at p99 0.007 ms late with it, on the same machine

// One descriptor. `on_ready` gets EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLERR, EPOLLHUP bits; never after poller_forget.
struct watch {
	int fd;
	void (*on_ready)(void *ctx, uint32_t events);
	void *ctx;
	uint32_t interest; // EPOLL bits it is registered with; 0: not registered, not even for errors
	bool is_forgotten;
};

struct poller {
	int epoll_fd;
	int timer_fd;
	int signal_fd; // -1: none
	struct watch timer_watch, signal_watch;
	int64_t armed_ns; // POLLER_NEVER: not armed
	bool is_stopping;
	int signo; // the signal that stopped it; 0: none

	// after_batch does what is due and returns when it wants to be called again (POLLER_NEVER: at the next event).
	int64_t (*after_batch)(void *ctx);
	void *ctx;
};

// poller_clock_ns: CLOCK_MONOTONIC.
int64_t poller_clock_ns(void);

// poller_open: ERR_IO. On failure the caller owes nothing.
MUST_USE enum err poller_open(struct poller *p, int64_t (*after_batch)(void *ctx), void *ctx, struct errmsg *em);
void poller_close(struct poller *p); // safe on zeroed memory; descriptors of watches are not its own
// poller_stop_on_signals makes SIGINT and SIGTERM end poller_run. They stay blocked in the calling thread.
MUST_USE enum err poller_stop_on_signals(struct poller *p, struct errmsg *em);

void poller_watch_init(struct watch *w, int fd, void (*on_ready)(void *ctx, uint32_t events), void *ctx);
// poller_want sets the interest; 0 takes the descriptor out, so that not even an error wakes anybody.
MUST_USE enum err poller_want(struct poller *p, struct watch *w, uint32_t interest);
// poller_forget: before the descriptor is closed. Fine on a watch that was never registered.
void poller_forget(struct poller *p, struct watch *w);

// poller_run runs until poller_stop or a signal. ERR_IO: epoll itself failed.
MUST_USE enum err poller_run(struct poller *p, struct errmsg *em);
void poller_stop(struct poller *p);

#endif
