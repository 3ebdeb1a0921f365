#include "sim/event_queue.h"

#include "base/assert.h"

#include <stdlib.h>

enum err event_queue_open(struct event_queue *q, uint32_t cap, uint64_t tie_seed)
{
	ASSERT(cap >= 1 && cap < EVENT_NONE);
	*q = (struct event_queue){.cap = cap};
	rng_init(&q->ties, tie_seed);
	q->heap = malloc(cap * sizeof *q->heap);
	q->index_of = malloc(cap * sizeof *q->index_of);
	q->free_places = malloc(cap * sizeof *q->free_places);
	if (q->heap == NULL || q->index_of == NULL || q->free_places == NULL) {
		event_queue_close(q);
		return ERR_NOMEM;
	}
	for (uint32_t i = 0; i < cap; i++) {
		q->index_of[i] = EVENT_NONE;
		q->free_places[i] = cap - 1 - i;
	}
	return OK;
}

void event_queue_close(struct event_queue *q)
{
	free(q->heap);
	free(q->index_of);
	free(q->free_places);
	*q = (struct event_queue){0};
}

static bool is_before(const struct event_key *a, const struct event_key *b)
{
	if (a->at_ns != b->at_ns)
		return a->at_ns < b->at_ns;
	if (a->tie != b->tie)
		return a->tie < b->tie;
	return a->order < b->order;
}

static void put(struct event_queue *q, uint32_t i, struct event_key key)
{
	q->heap[i] = key;
	q->index_of[key.place] = i;
}

static void sift_up(struct event_queue *q, uint32_t i, struct event_key key)
{
	while (i > 0) {
		uint32_t parent = (i - 1) / 2;
		if (!is_before(&key, &q->heap[parent]))
			break;
		put(q, i, q->heap[parent]);
		i = parent;
	}
	put(q, i, key);
}

static void sift_down(struct event_queue *q, uint32_t i, struct event_key key)
{
	for (;;) {
		uint32_t child = 2 * i + 1;
		if (child >= q->n)
			break;
		if (child + 1 < q->n && is_before(&q->heap[child + 1], &q->heap[child]))
			child++;
		if (!is_before(&q->heap[child], &key))
			break;
		put(q, i, q->heap[child]);
		i = child;
	}
	put(q, i, key);
}

uint32_t event_queue_push(struct event_queue *q, int64_t at_ns)
{
	if (q->n == q->cap)
		return EVENT_NONE;
	uint32_t place = q->free_places[q->cap - 1 - q->n];
	struct event_key key = {.at_ns = at_ns, .tie = rng_u64(&q->ties), .order = q->n_made++, .place = place};
	sift_up(q, q->n++, key);
	return place;
}

// remove_at fills the hole with the last key of the heap.
static void remove_at(struct event_queue *q, uint32_t i)
{
	uint32_t place = q->heap[i].place;
	q->index_of[place] = EVENT_NONE;
	struct event_key last = q->heap[--q->n];
	q->free_places[q->cap - 1 - q->n] = place;
	if (i == q->n)
		return;
	if (i > 0 && is_before(&last, &q->heap[(i - 1) / 2]))
		sift_up(q, i, last);
	else
		sift_down(q, i, last);
}

uint32_t event_queue_pop(struct event_queue *q, int64_t until_ns, int64_t *at_ns)
{
	if (q->n == 0 || q->heap[0].at_ns > until_ns)
		return EVENT_NONE;
	uint32_t place = q->heap[0].place;
	*at_ns = q->heap[0].at_ns;
	remove_at(q, 0);
	return place;
}

bool event_queue_has(const struct event_queue *q, uint32_t place)
{
	return place < q->cap && q->index_of[place] != EVENT_NONE;
}

void event_queue_cancel(struct event_queue *q, uint32_t place)
{
	ASSERT(event_queue_has(q, place));
	remove_at(q, q->index_of[place]);
}
