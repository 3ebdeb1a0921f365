// The event loop: one thread owns every machine, link and timer of a process; all other threads only hand it tasks.
//
// A task is a node its owner embeds where it needs one (a stream has one for each operation that can be under way), so
// a post never fails, never allocates and never waits longer than for the queue's mutex. What has no place of its own to
// embed one uses loop_post, which draws from a fixed pool and says when that is empty.
// Timers are embedded too: any number, no capacity, fired in the order of their deadlines, ties in the order they were set.
//
// An iteration runs the tasks that were queued when it began, then the timers that are due, then waits. Tasks first: after
// this process was away (stopped, suspended, starved), what arrived meanwhile is seen before a timer concludes that nothing did.
//
// Ownership: the caller keeps struct loop, tasks and timers in place while they are in use. Thread rule: functions marked
// "any thread" say so; everything else belongs to the loop's thread (the one that calls loop_run; before that, the opener).
// The loop knows nothing of sockets or protocols.
#ifndef HEARTH_NET_LOOP_H
#define HEARTH_NET_LOOP_H

#include "base/err.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct loop;

typedef void (*loop_fn)(void *ctx);

struct loop_task {
	loop_fn fn;
	void *ctx;
	struct loop_task *prev, *next; // in the queue; the loop's
	bool is_queued;                // guarded by the queue's mutex
};

struct loop_timer {
	loop_fn fn;
	void *ctx;
	int64_t deadline_ns;
	uint64_t order;                            // breaks ties
	struct loop_timer *child, *sibling, *prev; // pairing heap; prev: left sibling, or parent of the first child
	bool is_set;
};

// Something that stands alone on the loop, with threads or timers behind it: whatever is still there ends with the loop.
struct loop_resident {
	loop_fn end;
	void *ctx;
	struct loop_resident *prev, *next; // NULL: not added
};

#define LOOP_POSTS_MAX 256 // of loop_post under way at once: a request from another thread each; more means the loop stands still

struct loop_post {
	struct loop_task task; // first
	struct loop *loop;
	loop_fn fn;
	void *ctx;
	struct loop_post *next_free;
};

struct loop_stats {
	uint64_t n_iterations;
	uint64_t n_tasks;
	uint64_t n_timers;
	int64_t late_ns_max; // since the loop was opened
};

struct loop {
	pthread_mutex_t mutex;  // guards: queue, n_queued, is_waiting, free_posts
	struct loop_task queue; // sentinel of a ring
	uint32_t n_queued;
	bool is_waiting; // in poll: a post must write wake_fd
	struct loop_post *free_posts;
	struct loop_post posts[LOOP_POSTS_MAX];
	atomic_bool is_stopping;

	// The rest is the loop thread's own.
	int wake_fd;   // eventfd
	int signal_fd; // -1 without loop_signals
	sigset_t old_mask;
	void (*on_signal)(void *ctx, int signo);
	void *signal_ctx;
	struct loop_timer *timers;      // root: the next deadline
	struct loop_resident residents; // sentinel of a ring
	uint64_t n_timers_set;
	int64_t now_ns;  // of this iteration
	int64_t late_ns; // of this iteration
	struct loop_stats stats;
};

MUST_USE enum err loop_open(struct loop *l, struct errmsg *em);
// loop_close ends the residents, then frees what loop_open took. Queued tasks are dropped without being run, set timers forgotten. Safe on zeroed memory.
void loop_close(struct loop *l);

// loop_signals makes SIGINT and SIGTERM tasks of this loop. It blocks them in the calling thread, so it must come before any
// other thread is made (threads inherit the mask): first thing after loop_open. They stay blocked until loop_close.
MUST_USE enum err loop_signals(struct loop *l, void (*on_signal)(void *ctx, int signo), void *ctx, struct errmsg *em);

// loop_run runs until loop_stop; it may be called again afterwards.
void loop_run(struct loop *l);
// loop_stop: any thread. The iteration under way ends first.
void loop_stop(struct loop *l);
// loop_run_until iterates until done(ctx), loop_stop, or `deadline_ns`; returns done's last answer. For orderly ends and for tests.
bool loop_run_until(struct loop *l, bool (*done)(void *ctx), void *ctx, int64_t deadline_ns);
// loop_finish iterates until done(ctx), whoever stops the loop before or meanwhile (a second signal): for what uses memory that is given back next.
void loop_finish(struct loop *l, bool (*done)(void *ctx), void *ctx);

// loop_clock_ns: any thread. CLOCK_MONOTONIC now.
int64_t loop_clock_ns(void);
// loop_now_ns returns the time at which this iteration began, or the clock outside loop_run.
int64_t loop_now_ns(const struct loop *l);
// loop_late_ns returns by how much the most overdue timer was late when this iteration began: 0 unless this process was away.
// A host forgives its peers' silence when this passes liveness_limits.late_loop_ns.
int64_t loop_late_ns(const struct loop *l);
struct loop_stats loop_get_stats(const struct loop *l);

// loop_task_init: fn(ctx) runs on the loop's thread once for each time the task was queued.
void loop_task_init(struct loop_task *t, loop_fn fn, void *ctx);
// loop_task_post queues `t`: any thread, also NNG's callbacks. A task already queued stays where it is (one run, not two).
void loop_task_post(struct loop *l, struct loop_task *t);
// loop_task_cancel takes `t` out of the queue; loop's thread only, so afterwards fn is neither running nor will it.
// Whoever may still post it must have been silenced before. Returns whether it was queued.
bool loop_task_cancel(struct loop *l, struct loop_task *t);

// loop_post runs fn(ctx) on the loop's thread: any thread. ERR_LIMIT: LOOP_POSTS_MAX are waiting; nothing was queued.
MUST_USE enum err loop_post(struct loop *l, loop_fn fn, void *ctx);

// loop_resident_add: loop_close calls end(ctx), which must remove it, unless loop_resident_remove came before.
void loop_resident_add(struct loop *l, struct loop_resident *r, loop_fn end, void *ctx);
// loop_resident_remove: fine on one that was not added.
void loop_resident_remove(struct loop_resident *r);

void loop_timer_init(struct loop_timer *t, loop_fn fn, void *ctx);
// loop_timer_set arms `t` for an absolute time of loop_clock_ns, in place of the one it had. One shot: fn may set it again.
void loop_timer_set(struct loop *l, struct loop_timer *t, int64_t deadline_ns);
// loop_timer_clear: afterwards fn will not run. Fine on a timer that is not set, or zeroed.
void loop_timer_clear(struct loop *l, struct loop_timer *t);

#endif
