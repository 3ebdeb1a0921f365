// What a person reads when a memory cap does not hold a stage. Pure.
#ifndef HEARTH_NODE_SHELL_STAGE_MEMORY_H
#define HEARTH_NODE_SHELL_STAGE_MEMORY_H

#include "node/shell/node_runtime.h"

struct stage_needs {
	const struct engine_size *size;
	uint64_t frames;  // buffers, and as much again in links
	uint64_t to_disk; // kept states on their way there
};

// stage_memory_refuse writes the arithmetic, in as few words as a reason for `hearth status` has room for, and returns ERR_LIMIT.
enum err stage_memory_refuse(const struct node_memory *m, const struct engine_config *c, const struct stage_needs *n, struct errmsg *em);

#endif
