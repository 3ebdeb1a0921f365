// The blocks that a part of layers needs: what joins an engine's list of what it reads (engine/weight_ranges.h) and fetching (node/shell/node_blocks.h).
// Thread rule: the loop's thread only.
#ifndef HEARTH_NODE_SHELL_PART_BLOCKS_H
#define HEARTH_NODE_SHELL_PART_BLOCKS_H

#include "engine/engine.h"
#include "node/shell/node_blocks.h"

struct part_blocks {
	const struct model *model; // borrowed, as all of it, for the call
	const struct kernels *kernels;
	struct pool *pool;
	const struct layer_spans *layers;
	const struct tensor_split *split; // NULL: whole layers
	int32_t member;
	bool has_output; // and of the output head
};

// part_blocks_load makes them be here, as node_blocks_load does. Another error: nothing was begun, and `done` does not come.
MUST_USE enum err part_blocks_load(struct node_blocks *nb, const struct part_blocks *p, bool beside, void (*done)(void *, enum err, const char *), void *ctx,
	struct errmsg *em);

#endif
