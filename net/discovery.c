#include "net/discovery.h"

#include "base/limits.h"
#include "base/thread.h"
#include "proto/msg.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct discovery_sink {
	pthread_mutex_t mutex; // guards: list, state, text, n_owners, is_closed
	struct found_list list;
	enum discovery_state state;
	char text[ERRMSG_CAP];
	int n_owners;   // the loop's side and the thread
	bool is_closed; // the loop's side has gone: its task may not be posted any more
	atomic_bool is_over;
	int stop_fd; // eventfd
	const struct discovery_backend *backend;
	struct discovery_want want;
	// The loop's thread's own:
	struct loop *loop;
	struct loop_task task;
	struct loop_resident resident;
	void (*on_change)(void *ctx, struct discovery *d);
	void *ctx;
};

// The two names are two views of one object.
struct discovery {
	struct discovery_sink s;
};

static void release(struct discovery_sink *s)
{
	pthread_mutex_lock(&s->mutex);
	bool is_last = --s->n_owners == 0;
	pthread_mutex_unlock(&s->mutex);
	if (!is_last)
		return;
	close(s->stop_fd);
	pthread_mutex_destroy(&s->mutex);
	free(s);
}

static void *run(void *ctx)
{
	struct discovery_sink *s = ctx;
	s->backend->run(&s->want, s, s->backend->ctx);
	release(s);
	return NULL;
}

static void on_task(void *ctx)
{
	struct discovery *d = ctx;
	if (d->s.on_change != NULL)
		d->s.on_change(d->s.ctx, d);
}

static void end_with_loop(void *ctx)
{
	discovery_close(ctx);
}

enum err discovery_open(const struct discovery_params *p, struct discovery **out, struct errmsg *em)
{
	pthread_t thread;
	*out = NULL;
	struct discovery *d = calloc(1, sizeof *d);
	if (d == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for discovery");
	struct discovery_sink *s = &d->s;
	*s = (struct discovery_sink){.n_owners = 2, .backend = p->backend, .want = p->want, .loop = p->loop, .on_change = p->on_change, .ctx = p->ctx};
	s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&s->mutex, NULL);
	loop_task_init(&s->task, on_task, d);
	if (s->stop_fd < 0 || !thread_start(&thread, run, s)) {
		if (s->stop_fd >= 0)
			close(s->stop_fd);
		pthread_mutex_destroy(&s->mutex);
		free(d);
		return errmsg_fail(em, ERR_LIMIT, "discovery gets no thread or descriptor: the system's limits are reached");
	}
	pthread_detach(thread);
	loop_resident_add(p->loop, &s->resident, end_with_loop, d);
	*out = d;
	return OK;
}

void discovery_close(struct discovery *d)
{
	if (d == NULL)
		return;
	struct discovery_sink *s = &d->s;
	loop_resident_remove(&s->resident);
	pthread_mutex_lock(&s->mutex);
	s->is_closed = true;
	pthread_mutex_unlock(&s->mutex);
	loop_task_cancel(s->loop, &s->task);
	atomic_store(&s->is_over, true);
	uint64_t one = 1;
	while (write(s->stop_fd, &one, sizeof one) < 0 && errno == EINTR)
		;
	release(s);
}

enum discovery_state discovery_get_state(const struct discovery *d, char text[ERRMSG_CAP])
{
	struct discovery_sink *s = (struct discovery_sink *)(uintptr_t)&d->s; // the mutex changes, the object does not
	pthread_mutex_lock(&s->mutex);
	enum discovery_state state = s->state;
	if (text != NULL)
		memcpy(text, s->text, ERRMSG_CAP);
	pthread_mutex_unlock(&s->mutex);
	return state;
}

void discovery_get_list(const struct discovery *d, struct found_list *out)
{
	struct discovery_sink *s = (struct discovery_sink *)(uintptr_t)&d->s;
	pthread_mutex_lock(&s->mutex);
	*out = s->list;
	pthread_mutex_unlock(&s->mutex);
}

// ---- the backend's side

int discovery_sink_fd(const struct discovery_sink *s)
{
	return s->stop_fd;
}

bool discovery_sink_is_over(const struct discovery_sink *s)
{
	return atomic_load(&s->is_over);
}

// tell is called with the mutex held. A post never waits, so neither does whoever looks meanwhile.
static void tell(struct discovery_sink *s)
{
	if (!s->is_closed)
		loop_task_post(s->loop, &s->task);
}

void discovery_sink_state(struct discovery_sink *s, enum discovery_state state, const char *text)
{
	pthread_mutex_lock(&s->mutex);
	if (s->state != state || strcmp(s->text, text) != 0) {
		s->state = state;
		text_copy(s->text, sizeof s->text, text);
		tell(s);
	}
	pthread_mutex_unlock(&s->mutex);
}

void discovery_sink_found(struct discovery_sink *s, const struct found *f)
{
	if (s->want.is_pinned && !node_id_is(f->txt.id, s->want.pinned))
		return;
	pthread_mutex_lock(&s->mutex);
	if (found_list_put(&s->list, f))
		tell(s);
	pthread_mutex_unlock(&s->mutex);
}

void discovery_sink_gone(struct discovery_sink *s, const struct found_key *key)
{
	pthread_mutex_lock(&s->mutex);
	if (found_list_remove(&s->list, key))
		tell(s);
	pthread_mutex_unlock(&s->mutex);
}

void discovery_sink_clear(struct discovery_sink *s)
{
	pthread_mutex_lock(&s->mutex);
	if (s->list.n > 0) {
		s->list.n = 0;
		tell(s);
	}
	pthread_mutex_unlock(&s->mutex);
}
