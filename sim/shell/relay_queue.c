#include "sim/shell/relay_queue.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

static struct relay_piece *piece_at(const struct relay_queue *q, uint32_t i)
{
	return &q->pieces[(q->first + i) % RELAY_QUEUE_PIECES];
}

static enum err take_memory(struct relay_queue *q)
{
	q->bytes = malloc(RELAY_QUEUE_BYTES);
	q->pieces = malloc(RELAY_QUEUE_PIECES * sizeof *q->pieces);
	if (q->bytes != NULL && q->pieces != NULL)
		return OK;
	relay_queue_close(q);
	return ERR_NOMEM;
}

bool relay_queue_has_room(const struct relay_queue *q)
{
	return q->used < RELAY_QUEUE_BYTES && q->n_pieces < RELAY_QUEUE_PIECES && q->end == RELAY_NO_END;
}

enum err relay_queue_room(struct relay_queue *q, uint32_t most, uint8_t **where, uint32_t *len)
{
	*len = 0;
	if (!relay_queue_has_room(q))
		return OK;
	if (q->bytes == NULL && take_memory(q) != OK)
		return ERR_NOMEM;
	if (q->used == 0)
		q->head = 0; // the pages used last, still in the cache
	uint32_t tail = (q->head + q->used) % RELAY_QUEUE_BYTES, until = tail < q->head ? q->head : RELAY_QUEUE_BYTES;
	*where = q->bytes + tail;
	*len = until - tail < most ? until - tail : most;
	return OK;
}

void relay_queue_push(struct relay_queue *q, uint32_t len, int64_t due_ns)
{
	ASSERT(relay_queue_has_room(q));
	ASSERT(len >= 1 && len <= RELAY_QUEUE_BYTES - q->used);
	ASSERT(q->n_pieces == 0 || piece_at(q, q->n_pieces - 1)->due_ns <= due_ns);
	*piece_at(q, q->n_pieces++) = (struct relay_piece){.due_ns = due_ns, .len = len};
	q->used += len;
}

void relay_queue_push_end(struct relay_queue *q, enum relay_end end, int64_t due_ns)
{
	ASSERT(end != RELAY_NO_END);
	if (q->is_end_taken)
		return;
	q->end = end;
	q->end_due_ns = due_ns;
}

int64_t relay_queue_due_ns(const struct relay_queue *q)
{
	if (q->n_pieces > 0)
		return piece_at(q, 0)->due_ns;
	return q->end != RELAY_NO_END && !q->is_end_taken ? q->end_due_ns : RELAY_HELD;
}

uint32_t relay_queue_due(const struct relay_queue *q, int64_t now_ns, const uint8_t **where)
{
	uint32_t len = 0, together = RELAY_QUEUE_BYTES - q->head;
	*where = NULL;
	if (q->n_pieces == 0)
		return 0;
	for (uint32_t i = 0; i < q->n_pieces && piece_at(q, i)->due_ns <= now_ns && len < together; i++)
		len += piece_at(q, i)->len;
	*where = q->bytes + q->head;
	return len < together ? len : together;
}

void relay_queue_pop(struct relay_queue *q, uint32_t len, void (*late)(void *ctx, int64_t due_ns), void *ctx)
{
	ASSERT(len <= q->used);
	q->head = (q->head + len) % RELAY_QUEUE_BYTES;
	q->used -= len;
	while (len > 0) {
		struct relay_piece *p = piece_at(q, 0);
		if (p->len > len) {
			p->len -= len;
			return;
		}
		len -= p->len;
		if (late != NULL)
			late(ctx, p->due_ns);
		q->first = (q->first + 1) % RELAY_QUEUE_PIECES;
		q->n_pieces--;
	}
}

enum relay_end relay_queue_take_end(struct relay_queue *q, int64_t now_ns)
{
	if (q->end == RELAY_NO_END || q->is_end_taken || q->n_pieces > 0 || q->end_due_ns > now_ns || q->end_due_ns == RELAY_HELD)
		return RELAY_NO_END;
	q->is_end_taken = true;
	return q->end;
}

void relay_queue_release(struct relay_queue *q, int64_t due_ns)
{
	ASSERT(due_ns != RELAY_HELD);
	for (uint32_t i = q->n_pieces; i > 0 && piece_at(q, i - 1)->due_ns == RELAY_HELD; i--)
		piece_at(q, i - 1)->due_ns = due_ns;
	if (q->end != RELAY_NO_END && q->end_due_ns == RELAY_HELD)
		q->end_due_ns = due_ns;
}

void relay_queue_close(struct relay_queue *q)
{
	free(q->bytes);
	free(q->pieces);
	memset(q, 0, sizeof *q);
}
