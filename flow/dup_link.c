#include "flow/dup_link.h"

enum dup_link dup_link_decide(struct node_id self, struct node_id peer, bool old_by_us, bool new_by_us)
{
	if (old_by_us == new_by_us)
		return DUP_LINK_KEEP_NEW;
	bool we_are_lower = memcmp(self.b, peer.b, NODE_ID_BYTES) < 0;
	return new_by_us == we_are_lower ? DUP_LINK_KEEP_NEW : DUP_LINK_KEEP_OLD;
}
