// The order in which members of a group exchange: which forward and exchange each may be at, and in which part buffer a contribution lies. Private to node/*.c.
//
// Odd and even forwards have a place each. Where a member is in one: forward f, computing towards exchange x or waiting in it. What may come from another one then
// is its contribution to x; to x + 1 while this one waits, as it has sent its own; or to exchange 1 of f + 2, when x does not exist or is the last. So
// contributions are numbered over the forwards of a place (n_passed is that of x), two part buffers take turns, and the one that the engine reads is never written.
//
// In a ring most exchanges are hops, in which a member sends to the next one and waits for the one before. That one needs my contribution only when it
// has gone all the way round, so it may be n_members - 1 exchanges ahead; whoever is d places behind me, round the ring, d; and one only where everybody's
// contribution was needed in between (reach). As it is always so in exchange 1, nobody is two forwards of a place ahead. Nor does anybody know here how many
// exchanges of this forward are left when exchange 1 of the next comes: that has a part buffer of its own, and the others take turns.
#ifndef HEARTH_NODE_TURNS_H
#define HEARTH_NODE_TURNS_H

#include "node/node_state.h"

static inline bool turns_is_lead(const struct node *n)
{
	return n->plan.group.self == 0;
}

static inline bool turns_is_waiting(const struct node *n)
{
	return n->at->id != 0 && !n->at->is_computing;
}

static inline uint64_t turns_items_mask(const struct node *n)
{
	return n->at->n_items == 64 ? UINT64_MAX : (UINT64_C(1) << n->at->n_items) - 1;
}

static inline struct node_forward *turns_place_of(struct node *n, uint64_t forward)
{
	return &n->forwards[forward % NODE_FORWARDS_MAX];
}

static inline int32_t turns_place(const struct node *n)
{
	return (int32_t)(n->at - n->forwards);
}

// turns_is_streaming: not all of this member's weights stay in its memory.
static inline bool turns_is_streaming(const struct node *n)
{
	return n->report.weights.streamed > 0;
}

// turns_next_number returns the number of the forward that comes next in a place.
uint64_t turns_next_number(const struct node *n, const struct node_forward *f);
// turns_older_with returns the forward under way in another place than n->at that uses a slot and has begun before; NULL: none does.
const struct node_forward *turns_older_with(const struct node *n, int32_t slot);
// turns_is_held: what goes on behind another forward, towards an exchange, waits until that one has passed it.
bool turns_is_held(const struct node *n, int32_t slot, int32_t layer_begin, int32_t layer_end, int32_t exchange);
int32_t turns_n_ways(const struct node *n);
// turns_way_of returns which of a member's part buffers a contribution has.
int32_t turns_way_of(const struct node *n, uint64_t number, int32_t exchange);
// turns_way_here is that of the exchange that this member computes towards or waits in, turns_way_read that of the one before: the engine reads those.
int32_t turns_way_here(const struct node *n);
int32_t turns_way_read(const struct node *n, const struct node_forward *g);
struct group_part *turns_part_now(struct node *n, int32_t member);
// turns_sends_to tells whether a member contributes something to another one, or nothing that counts, in an exchange of this forward.
bool turns_sends_to(const struct node *n, int32_t src, int32_t dst, int32_t exchange);
// turns_way_for returns the part buffer of a contribution that may come now; -1: it may not.
int32_t turns_way_for(const struct node *n, const struct part *p);

#endif
