#include "net/local_link.h"

#include "base/assert.h"
#include "base/limits.h"

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
};

struct local_link {
	struct loop *loop;
	struct loop_task task;
	struct local_end ends[2];
	bool is_delivering, is_closing;
};

static void deliver_end(struct local_link *l, uint32_t end)
{
	struct local_end *e = &l->ends[end];
	// Only what was here at the start: an answer sent meanwhile waits for the next task, so that the loop's other work gets its turn.
	for (uint32_t n = e->n_frames; n > 0 && !l->is_closing && e->callbacks.on_frame != NULL; n--) {
		struct local_frame *f = e->first;
		e->first = f->next;
		if (e->first == NULL)
			e->last = &e->first;
		e->n_frames--;
		e->callbacks.on_frame(e->callbacks.ctx, end, f->data, f->len);
		free(f);
	}
}

static void free_all(struct local_link *l)
{
	for (uint32_t i = 0; i < 2; i++) {
		while (l->ends[i].first) {
			struct local_frame *f = l->ends[i].first;
			l->ends[i].first = f->next;
			free(f);
		}
	}
	loop_task_cancel(l->loop, &l->task);
	free(l);
}

static void deliver(void *ctx)
{
	struct local_link *l = ctx;
	if (l->ends[0].callbacks.on_frame == NULL || l->ends[1].callbacks.on_frame == NULL)
		return;
	l->is_delivering = true;
	deliver_end(l, 0);
	deliver_end(l, 1);
	l->is_delivering = false;
	if (l->is_closing)
		free_all(l);
	else if (l->ends[0].first != NULL || l->ends[1].first != NULL)
		loop_task_post(l->loop, &l->task);
}

enum err local_link_open(struct loop *loop, struct local_link **out, struct errmsg *em)
{
	struct local_link *l = calloc(1, sizeof *l);
	if (l == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a local link");
	l->loop = loop;
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
	if (l != NULL)
		l->ends[end].callbacks = (struct local_callbacks){0};
}

enum err local_link_send(struct local_link *l, uint32_t end, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t payload_len)
{
	ASSERT(end < 2);
	struct local_end *to = &l->ends[1 - end];
	if (to->n_frames >= LINK_QUEUE_FRAMES)
		return ERR_LIMIT;
	struct local_frame *f = malloc(sizeof *f + head_len + payload_len);
	if (f == NULL)
		return ERR_NOMEM;
	f->next = NULL;
	f->len = head_len + payload_len;
	memcpy(f->data, head, head_len);
	if (payload_len > 0)
		memcpy(f->data + head_len, payload, payload_len);
	*to->last = f;
	to->last = &f->next;
	to->n_frames++;
	loop_task_post(l->loop, &l->task);
	return OK;
}
