#include "net/local_link.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

struct local_frame {
	struct local_frame *next;
	size_t len;
	uint8_t data[];
};

struct local_end {
	struct local_callbacks callbacks;
	struct local_frame *first, **last; // for this end to receive
	uint32_t n_frames;
	size_t n_bytes;
};

struct local_link {
	struct loop *loop;
	struct loop_task task;
	struct local_end ends[2];
	uint32_t queued_frames_max;
	size_t queued_bytes_max, record_max;
	bool is_delivering, is_closing;
	bool is_detached; // either end was: nothing goes through any more
};

static bool is_attached(const struct local_link *l)
{
	return l->ends[0].callbacks.on_frame != NULL && l->ends[1].callbacks.on_frame != NULL;
}

static struct local_frame *take(struct local_end *e)
{
	struct local_frame *f = e->first;
	e->first = f->next;
	if (e->first == NULL)
		e->last = &e->first;
	e->n_frames--;
	e->n_bytes -= f->len;
	return f;
}

static void deliver_end(struct local_link *l, uint32_t end)
{
	struct local_end *e = &l->ends[end];
	// Only what was here at the start: an answer sent meanwhile waits for the next task, so that the loop's other work gets its turn.
	for (uint32_t n = e->n_frames; n > 0 && !l->is_closing && is_attached(l); n--) {
		struct local_frame *f = take(e);
		e->callbacks.on_frame(e->callbacks.ctx, end, f->data, f->len);
		free(f);
	}
}

static void drop_queues(struct local_link *l)
{
	for (uint32_t i = 0; i < 2; i++)
		while (l->ends[i].first != NULL)
			free(take(&l->ends[i]));
}

static void free_all(struct local_link *l)
{
	drop_queues(l);
	loop_task_cancel(l->loop, &l->task);
	free(l);
}

static void deliver(void *ctx)
{
	struct local_link *l = ctx;
	l->is_delivering = true;
	deliver_end(l, 0);
	deliver_end(l, 1);
	l->is_delivering = false;
	if (l->is_closing)
		free_all(l);
	else if (l->is_detached)
		drop_queues(l);
	else if (is_attached(l) && (l->ends[0].first != NULL || l->ends[1].first != NULL))
		loop_task_post(l->loop, &l->task);
}

enum err local_link_open(struct loop *loop, enum lnk1_kind kind, const struct link_limits *limits, struct local_link **out,
	struct errmsg *em)
{
	struct local_link *l = calloc(1, sizeof *l);
	if (l == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a local link");
	l->loop = loop;
	l->queued_frames_max = limits->queued_frames;
	l->queued_bytes_max = limits->queued_bytes[kind];
	l->record_max = link_record_max(kind);
	loop_task_init(&l->task, deliver, l);
	for (uint32_t i = 0; i < 2; i++)
		l->ends[i].last = &l->ends[i].first;
	*out = l;
	return OK;
}

void local_link_close(struct local_link *l)
{
	if (l == NULL)
		return;
	l->is_closing = true;
	if (!l->is_delivering)
		free_all(l);
}

void local_link_attach(struct local_link *l, uint32_t end, const struct local_callbacks *callbacks)
{
	ASSERT(end < 2);
	l->ends[end].callbacks = *callbacks;
	loop_task_post(l->loop, &l->task);
}

void local_link_detach(struct local_link *l, uint32_t end)
{
	if (l == NULL)
		return;
	ASSERT(end < 2);
	l->ends[end].callbacks = (struct local_callbacks){0};
	l->is_detached = true;
	if (!l->is_delivering)
		drop_queues(l);
}

enum err local_link_send(struct local_link *l, uint32_t end, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t payload_len)
{
	ASSERT(end < 2);
	struct local_end *to = &l->ends[1 - end];
	if (head_len > l->record_max || payload_len > l->record_max - head_len || head_len + payload_len == 0)
		return ERR_RANGE;
	size_t len = head_len + payload_len;
	if (l->is_detached || l->is_closing)
		return ERR_CLOSED;
	if (to->n_frames >= l->queued_frames_max || len > l->queued_bytes_max - to->n_bytes)
		return ERR_LIMIT;
	struct local_frame *f = malloc(sizeof *f + len);
	if (f == NULL)
		return ERR_NOMEM;
	f->next = NULL;
	f->len = len;
	memcpy(f->data, head, head_len);
	if (payload_len > 0)
		memcpy(f->data + head_len, payload, payload_len);
	*to->last = f;
	to->last = &f->next;
	to->n_frames++;
	to->n_bytes += len;
	loop_task_post(l->loop, &l->task);
	return OK;
}
