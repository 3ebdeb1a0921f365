// The heart of virtual time: what happens next. A bounded binary heap ordered by (time, tie-break, insertion).
//
// The tie-break of two events at one time is a number drawn from a seed, so that no code may lean on an order that a real machine
// does not promise; what must stay in order (frames of one connection) gets times that differ. Same seed, same order, everywhere.
// An event is named by its place in the queue: a small number below the capacity, so the caller keeps what it means in an array of its
// own. A place is used again after its event was popped or cancelled. Pure; one owner; all memory from event_queue_open.
#ifndef HEARTH_SIM_EVENT_QUEUE_H
#define HEARTH_SIM_EVENT_QUEUE_H

#include "base/err.h"
#include "base/rng.h"

#include <stdbool.h>
#include <stdint.h>

#define EVENT_NONE UINT32_MAX

struct event_key {
	int64_t at_ns;
	uint64_t tie;
	uint32_t order; // insertion, for equal ties; wraps after 2^32 events, which no run reaches
	uint32_t place;
};

struct event_queue {
	uint32_t cap, n;
	struct event_key *heap; // (cap)
	uint32_t *index_of;     // (cap) where in the heap a place is; EVENT_NONE: free
	uint32_t *free_places;  // (cap) a stack; cap - n of them
	uint32_t n_made;
	struct rng ties;
};

// event_queue_open: ERR_NOMEM.
MUST_USE enum err event_queue_open(struct event_queue *q, uint32_t cap, uint64_t tie_seed);
void event_queue_close(struct event_queue *q); // safe on zeroed memory

// event_queue_push returns the event's place, or EVENT_NONE when the queue is full.
uint32_t event_queue_push(struct event_queue *q, int64_t at_ns);
// event_queue_pop takes out the earliest event that is due at `until_ns` or before; EVENT_NONE when there is none.
uint32_t event_queue_pop(struct event_queue *q, int64_t until_ns, int64_t *at_ns);
// event_queue_cancel takes out an event that is in the queue.
void event_queue_cancel(struct event_queue *q, uint32_t place);
// event_queue_has tells whether a place holds an event.
bool event_queue_has(const struct event_queue *q, uint32_t place);

#endif
