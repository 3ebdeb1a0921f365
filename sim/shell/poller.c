#include "sim/shell/poller.h"

#include "base/assert.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define NS_PER_S INT64_C(1000000000)

int64_t poller_clock_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

void poller_watch_init(struct watch *w, int fd, void (*on_ready)(void *ctx, uint32_t events), void *ctx)
{
	*w = (struct watch){.fd = fd, .on_ready = on_ready, .ctx = ctx};
}

enum err poller_want(struct poller *p, struct watch *w, uint32_t interest)
{
	if (interest == w->interest || w->is_forgotten)
		return OK;
	struct epoll_event ev = {.events = interest, .data.ptr = w};
	int op = w->interest == 0 ? EPOLL_CTL_ADD : interest == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
	if (epoll_ctl(p->epoll_fd, op, w->fd, &ev) != 0)
		return ERR_IO;
	w->interest = interest;
	return OK;
}

void poller_forget(struct poller *p, struct watch *w)
{
	if (w->interest != 0)
		epoll_ctl(p->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
	w->interest = 0;
	w->is_forgotten = true;
}

// The timer is edge-triggered: its expiry wakes epoll_wait once, and need not be read.
static void on_timer(void *ctx, uint32_t events)
{
	(void)events;
	((struct poller *)ctx)->armed_ns = POLLER_NEVER;
}

static void on_signal(void *ctx, uint32_t events)
{
	struct poller *p = ctx;
	struct signalfd_siginfo info;
	(void)events;
	if (read(p->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
		return;
	p->signo = (int)info.ssi_signo;
	p->is_stopping = true;
}

enum err poller_open(struct poller *p, int64_t (*after_batch)(void *ctx), void *ctx, struct errmsg *em)
{
	*p = (struct poller){.epoll_fd = -1, .timer_fd = -1, .signal_fd = -1, .armed_ns = POLLER_NEVER, .after_batch = after_batch, .ctx = ctx};
	p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	p->timer_fd = p->epoll_fd < 0 ? -1 : timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	poller_watch_init(&p->timer_watch, p->timer_fd, on_timer, p);
	if (p->timer_fd < 0 || poller_want(p, &p->timer_watch, EPOLLIN | EPOLLET) != OK) {
		errmsg_fail(em, ERR_IO, "cannot wait for events: %s", strerror(errno));
		poller_close(p);
		return ERR_IO;
	}
	return OK;
}

void poller_close(struct poller *p)
{
	if (p->ctx == NULL && p->after_batch == NULL)
		return; // zeroed
	const int fds[] = {p->signal_fd, p->timer_fd, p->epoll_fd};
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	memset(p, 0, sizeof *p);
}

enum err poller_stop_on_signals(struct poller *p, struct errmsg *em)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	p->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	poller_watch_init(&p->signal_watch, p->signal_fd, on_signal, p);
	if (p->signal_fd < 0 || poller_want(p, &p->signal_watch, EPOLLIN) != OK)
		return errmsg_fail(em, ERR_IO, "cannot wait for signals: %s", strerror(errno));
	return OK;
}

static void arm(struct poller *p, int64_t at_ns)
{
	if (at_ns == p->armed_ns)
		return;
	p->armed_ns = at_ns;
	struct itimerspec spec = {.it_value = {0, 0}};
	if (at_ns != POLLER_NEVER) {
		at_ns = at_ns > 0 ? at_ns : 1; // 0 would disarm it
		spec.it_value.tv_sec = (time_t)(at_ns / NS_PER_S);
		spec.it_value.tv_nsec = (long)(at_ns % NS_PER_S);
	}
	int rv = timerfd_settime(p->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
	ASSERT(rv == 0); // fails for times that are none
}

// wait_for_events sleeps until an event or shortly before at_ns; from then on it returns at once.
static int wait_for_events(struct poller *p, int64_t at_ns, struct epoll_event *events)
{
	bool is_near = at_ns != POLLER_NEVER && at_ns - poller_clock_ns() <= POLLER_EARLY_NS;
	if (!is_near)
		arm(p, at_ns == POLLER_NEVER ? POLLER_NEVER : at_ns - POLLER_EARLY_NS);
	return epoll_wait(p->epoll_fd, events, EVENTS_MAX, is_near ? 0 : -1);
}

enum err poller_run(struct poller *p, struct errmsg *em)
{
	struct epoll_event events[EVENTS_MAX];
	p->is_stopping = false;
	while (!p->is_stopping) {
		int n = wait_for_events(p, p->after_batch(p->ctx), events);
		if (n < 0 && errno != EINTR)
			return errmsg_fail(em, ERR_IO, "cannot wait for events: %s", strerror(errno));
		for (int i = 0; i < n; i++) {
			struct watch *w = events[i].data.ptr;
			if (!w->is_forgotten)
				w->on_ready(w->ctx, events[i].events);
		}
	}
	return OK;
}

void poller_stop(struct poller *p)
{
	p->is_stopping = true;
}
