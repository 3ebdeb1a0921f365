// Two nodes that work together both dial. Of two links of one kind between one pair, which stays? Both sides must decide alike,
// without asking each other: the one dialled by the lower NodeID; and of two by the same dialler, the newer.
// Source: link-protocol.md, "Keys". Pure.
#ifndef HEARTH_FLOW_DUP_LINK_H
#define HEARTH_FLOW_DUP_LINK_H

#include "base/ids.h"

#include <stdbool.h>

enum dup_link {
	DUP_LINK_KEEP_OLD, // the new one closes with TAG_FINAL
	DUP_LINK_KEEP_NEW, // the old one does
};

// dup_link_decide is asked when a second link of one kind to `peer` comes up. `self` and `peer` differ. The *_by_us flags say who
// dialled: this machine or the peer.
enum dup_link dup_link_decide(struct node_id self, struct node_id peer, bool old_by_us, bool new_by_us);

#endif
