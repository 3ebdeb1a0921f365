// Parts on their way: what a member of a group sends the others, and what of theirs it takes. Private to node/*.c.
#ifndef HEARTH_NODE_PARTS_H
#define HEARTH_NODE_PARTS_H

#include "node/node_state.h"

// parts_send_own sends this member's contribution to the exchange that it waits in: to everybody else, or to the hub, who passes it on.
void parts_send_own(struct node *n, struct node_effects *fx);
// parts_send_start tells the others what is to be computed: exchange 0.
void parts_send_start(struct node *n, const struct part_start *s, struct node_effects *fx);
// parts_is_from tells whether a part of this member's may come on this link: from itself, the hub, or the coordinator, who pass on what it sent.
bool parts_is_from(const struct node *n, const struct node_link *l, int32_t src);
const char *parts_place_fault(const struct node *n, const struct part *p);
// parts_fit tells whether a contribution is as long as it must be.
bool parts_fit(const struct node *n, int32_t member, const struct group_part *p);
// parts_take takes a frame for n->at that is from whom it says, and passes it on where this is the hub. Returns what is wrong with it, or NULL.
const char *parts_take(struct node *n, const struct part *p, const uint8_t *data, struct node_effects *fx);

#endif
