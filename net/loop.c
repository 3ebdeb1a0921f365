#include "net/loop.h"

#include "base/assert.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

int64_t loop_clock_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

// ---- Timers: a pairing heap, so that a timer needs no capacity ----

static bool fires_before(const struct loop_timer *a, const struct loop_timer *b)
{
	return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns : a->order < b->order;
}

// heap_meld joins two heaps whose roots have no siblings.
static struct loop_timer *heap_meld(struct loop_timer *a, struct loop_timer *b)
{
	if (a == NULL)
		return b;
	if (b == NULL)
		return a;
	if (fires_before(b, a)) {
		struct loop_timer *t = a;
		a = b;
		b = t;
	}
	b->sibling = a->child;
	if (a->child != NULL)
		a->child->prev = b;
	b->prev = a;
	a->child = b;
	return a;
}

// heap_meld_siblings melds a list of siblings into one heap: pairs from the left, then those from the right.
static struct loop_timer *heap_meld_siblings(struct loop_timer *first)
{
	struct loop_timer *pairs = NULL; // linked by sibling, the last pair first
	while (first != NULL) {
		struct loop_timer *a = first;
		struct loop_timer *b = a->sibling;
		first = b != NULL ? b->sibling : NULL;
		a->sibling = a->prev = NULL;
		if (b != NULL)
			b->sibling = b->prev = NULL;
		a = heap_meld(a, b);
		a->sibling = pairs;
		pairs = a;
	}

	struct loop_timer *root = NULL;
	while (pairs != NULL) {
		struct loop_timer *next = pairs->sibling;
		pairs->sibling = NULL;
		root = heap_meld(root, pairs);
		pairs = next;
	}
	return root;
}

static void heap_remove(struct loop_timer **root, struct loop_timer *t)
{
	struct loop_timer *orphans = heap_meld_siblings(t->child);
	if (*root == t) {
		*root = orphans;
	} else {
		if (t->prev->child == t)
			t->prev->child = t->sibling;
		else
			t->prev->sibling = t->sibling;
		if (t->sibling != NULL)
			t->sibling->prev = t->prev;
		*root = heap_meld(*root, orphans);
	}
	t->child = t->sibling = t->prev = NULL;
}

void loop_timer_init(struct loop_timer *t, loop_fn fn, void *ctx)
{
	*t = (struct loop_timer){.fn = fn, .ctx = ctx};
}

void loop_timer_set(struct loop *l, struct loop_timer *t, int64_t deadline_ns)
{
	loop_timer_clear(l, t);
	t->deadline_ns = deadline_ns;
	t->order = l->n_timers_set++;
	t->is_set = true;
	l->timers = heap_meld(l->timers, t);
}

void loop_timer_clear(struct loop *l, struct loop_timer *t)
{
	if (!t->is_set)
		return;
	heap_remove(&l->timers, t);
	t->is_set = false;
}

// ---- Tasks ----

void loop_task_init(struct loop_task *t, loop_fn fn, void *ctx)
{
	*t = (struct loop_task){.fn = fn, .ctx = ctx};
}

// unlink_task: the mutex is held.
static void unlink_task(struct loop *l, struct loop_task *t)
{
	t->prev->next = t->next;
	t->next->prev = t->prev;
	t->prev = t->next = NULL;
	t->is_queued = false;
	l->n_queued--;
}

static void wake(struct loop *l)
{
	uint64_t one = 1;
	ssize_t n;
	do
		n = write(l->wake_fd, &one, sizeof one);
	while (n < 0 && errno == EINTR);
	// EAGAIN: the counter is at its maximum, so the loop wakes anyway.
}

void loop_task_post(struct loop *l, struct loop_task *t)
{
	bool must_wake = false;
	pthread_mutex_lock(&l->mutex);
	if (!t->is_queued) {
		t->prev = l->queue.prev;
		t->next = &l->queue;
		l->queue.prev->next = t;
		l->queue.prev = t;
		t->is_queued = true;
		l->n_queued++;
		must_wake = l->is_waiting;
		l->is_waiting = false; // one write wakes it, however many follow
		// Written under the mutex: once the loop has run this task its owner may close the loop, and the descriptor with it.
		if (must_wake)
			wake(l);
	}
	pthread_mutex_unlock(&l->mutex);
}

bool loop_task_cancel(struct loop *l, struct loop_task *t)
{
	pthread_mutex_lock(&l->mutex);
	bool was_queued = t->is_queued;
	if (was_queued)
		unlink_task(l, t);
	pthread_mutex_unlock(&l->mutex);
	return was_queued;
}

static void run_post(void *ctx)
{
	struct loop_post *p = ctx;
	struct loop *l = p->loop;
	loop_fn fn = p->fn;
	void *fn_ctx = p->ctx;
	pthread_mutex_lock(&l->mutex);
	p->next_free = l->free_posts;
	l->free_posts = p;
	pthread_mutex_unlock(&l->mutex);
	fn(fn_ctx);
}

enum err loop_post(struct loop *l, loop_fn fn, void *ctx)
{
	pthread_mutex_lock(&l->mutex);
	struct loop_post *p = l->free_posts;
	if (p != NULL)
		l->free_posts = p->next_free;
	pthread_mutex_unlock(&l->mutex);
	if (p == NULL)
		return ERR_LIMIT;

	p->loop = l;
	p->fn = fn;
	p->ctx = ctx;
	loop_task_init(&p->task, run_post, p);
	loop_task_post(l, &p->task);
	return OK;
}

// ---- Residents ----

void loop_resident_add(struct loop *l, struct loop_resident *r, loop_fn end, void *ctx)
{
	ASSERT(r->next == NULL);
	*r = (struct loop_resident){.end = end, .ctx = ctx, .prev = l->residents.prev, .next = &l->residents};
	r->prev->next = r;
	r->next->prev = r;
}

void loop_resident_remove(struct loop_resident *r)
{
	if (r->next == NULL)
		return;
	r->prev->next = r->next;
	r->next->prev = r->prev;
	r->prev = r->next = NULL;
}

// ---- The loop ----

enum err loop_open(struct loop *l, struct errmsg *em)
{
	*l = (struct loop){.signal_fd = -1};
	l->queue.prev = l->queue.next = &l->queue;
	l->residents.prev = l->residents.next = &l->residents;
	for (int i = 0; i < LOOP_POSTS_MAX; i++)
		l->posts[i].next_free = i + 1 < LOOP_POSTS_MAX ? &l->posts[i + 1] : NULL;
	l->free_posts = &l->posts[0];

	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->wake_fd < 0) {
		int e = errno;
		*l = (struct loop){0};
		return errmsg_fail(em, ERR_IO, "event loop: eventfd: %s", strerror(e));
	}
	int e = pthread_mutex_init(&l->mutex, NULL);
	ASSERT(e == 0); // on Linux a plain mutex needs nothing that could be missing
	return OK;
}

void loop_close(struct loop *l)
{
	if (l->residents.next == NULL) // never opened, or closed (the queue may still be written by whom a resident ends)
		return;
	while (l->residents.next != &l->residents)
		l->residents.next->end(l->residents.next->ctx);
	if (l->signal_fd >= 0) {
		close(l->signal_fd);
		pthread_sigmask(SIG_SETMASK, &l->old_mask, NULL);
	}
	// Nobody may post any more, but whoever posted last may still be inside its unlock.
	pthread_mutex_lock(&l->mutex);
	close(l->wake_fd);
	pthread_mutex_unlock(&l->mutex);
	pthread_mutex_destroy(&l->mutex);
	memset(l, 0, sizeof *l);
}

enum err loop_signals(struct loop *l, void (*on_signal)(void *ctx, int signo), void *ctx, struct errmsg *em)
{
	ASSERT(l->signal_fd < 0);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return errmsg_fail(em, ERR_IO, "event loop: signalfd: %s", strerror(errno));
	pthread_sigmask(SIG_BLOCK, &set, &l->old_mask);
	l->signal_fd = fd;
	l->on_signal = on_signal;
	l->signal_ctx = ctx;
	return OK;
}

static void run_signals(struct loop *l)
{
	struct signalfd_siginfo info;
	while (l->signal_fd >= 0 && read(l->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
		l->on_signal(l->signal_ctx, (int)info.ssi_signo);
}

// run_tasks runs what was queued at its begin: a task that posts itself again waits for the next iteration, so timers get their turn.
static void run_tasks(struct loop *l)
{
	pthread_mutex_lock(&l->mutex);
	uint32_t n = l->n_queued;
	while (n-- > 0 && l->queue.next != &l->queue) {
		struct loop_task *t = l->queue.next;
		unlink_task(l, t);
		loop_fn fn = t->fn;
		void *ctx = t->ctx;
		pthread_mutex_unlock(&l->mutex);
		fn(ctx); // `t` may be gone now
		l->stats.n_tasks++;
		pthread_mutex_lock(&l->mutex);
	}
	pthread_mutex_unlock(&l->mutex);
}

// run_timers runs those that were due when the iteration began; one set meanwhile, even for a time gone by, waits.
static void run_timers(struct loop *l)
{
	uint64_t order_end = l->n_timers_set;
	while (l->timers != NULL && l->timers->deadline_ns <= l->now_ns && l->timers->order < order_end) {
		struct loop_timer *t = l->timers;
		loop_timer_clear(l, t);
		l->stats.n_timers++;
		t->fn(t->ctx);
	}
}

static void begin_iteration(struct loop *l)
{
	l->now_ns = loop_clock_ns();
	l->late_ns = 0;
	if (l->timers != NULL && l->timers->deadline_ns < l->now_ns)
		l->late_ns = l->now_ns - l->timers->deadline_ns;
	if (l->late_ns > l->stats.late_ns_max)
		l->stats.late_ns_max = l->late_ns;
	l->stats.n_iterations++;
}

// wait_for_work returns when there is a task, a signal or a timer due, or at `deadline_ns`.
static void wait_for_work(struct loop *l, int64_t deadline_ns)
{
	if (l->timers != NULL && l->timers->deadline_ns < deadline_ns)
		deadline_ns = l->timers->deadline_ns;
	pthread_mutex_lock(&l->mutex);
	bool idle = l->n_queued == 0 && !atomic_load(&l->is_stopping);
	l->is_waiting = idle;
	pthread_mutex_unlock(&l->mutex);
	if (!idle)
		deadline_ns = 0; // look at the descriptors all the same: signals must not starve

	struct timespec ts = {0, 0};
	int64_t left = deadline_ns == INT64_MAX ? 0 : deadline_ns - loop_clock_ns();
	if (left > 0)
		ts = (struct timespec){.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
	struct pollfd fds[2] = {{.fd = l->wake_fd, .events = POLLIN}, {.fd = l->signal_fd, .events = POLLIN}};
	int n = ppoll(fds, 2, deadline_ns == INT64_MAX ? NULL : &ts, NULL);

	pthread_mutex_lock(&l->mutex);
	l->is_waiting = false;
	pthread_mutex_unlock(&l->mutex);
	uint64_t count;
	if (n > 0 && (fds[0].revents & POLLIN) != 0 && read(l->wake_fd, &count, sizeof count) < 0)
		ASSERT(errno == EAGAIN || errno == EINTR);
}

static void run_what_is_due(struct loop *l)
{
	begin_iteration(l);
	run_signals(l);
	run_tasks(l);
	run_timers(l);
}

void loop_run(struct loop *l)
{
	while (!atomic_load(&l->is_stopping)) {
		run_what_is_due(l);
		wait_for_work(l, INT64_MAX);
	}
	atomic_store(&l->is_stopping, false);
	l->now_ns = 0;
}

void loop_stop(struct loop *l)
{
	pthread_mutex_lock(&l->mutex);
	atomic_store(&l->is_stopping, true);
	if (l->is_waiting)
		wake(l);
	pthread_mutex_unlock(&l->mutex);
}

bool loop_run_until(struct loop *l, bool (*done)(void *ctx), void *ctx, int64_t deadline_ns)
{
	bool is_done = done(ctx);
	while (!is_done && loop_clock_ns() < deadline_ns && !atomic_load(&l->is_stopping)) {
		run_what_is_due(l);
		is_done = done(ctx);
		if (!is_done)
			wait_for_work(l, deadline_ns);
	}
	l->now_ns = 0;
	return is_done;
}

void loop_finish(struct loop *l, bool (*done)(void *ctx), void *ctx)
{
	bool was_stopped = false;
	while (!done(ctx)) {
		was_stopped = atomic_exchange(&l->is_stopping, false) || was_stopped;
		run_what_is_due(l);
		if (!done(ctx))
			wait_for_work(l, INT64_MAX);
	}
	if (was_stopped)
		atomic_store(&l->is_stopping, true);
	l->now_ns = 0;
}

int64_t loop_now_ns(const struct loop *l)
{
	return l->now_ns != 0 ? l->now_ns : loop_clock_ns();
}

int64_t loop_late_ns(const struct loop *l)
{
	return l->late_ns;
}

struct loop_stats loop_get_stats(const struct loop *l)
{
	return l->stats;
}
