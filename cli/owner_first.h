// The machine's owner comes first, carried out: looks every few seconds at what other programs use and lack, lets fewer threads compute and keeps less
// of the weights in memory.
#ifndef HEARTH_CLI_OWNER_FIRST_H
#define HEARTH_CLI_OWNER_FIRST_H

#include "base/cpu_use.h"
#include "base/log.h"
#include "cli/options.h"
#include "engine/give_memory.h"
#include "engine/give_way.h"
#include "engine/worker.h"
#include "net/loop.h"
#include "node/shell/node_runtime.h"

struct owner_first {
	struct loop *loop;
	const struct log *log;
	struct worker *worker;
	struct node_runtime *node; // NULL: there are no layers here
	struct give_way way;
	struct give_memory memory;
	struct cpu_use last;
	bool has_last;
	struct loop_timer timer;
};

// owner_first_start begins to look, unless --no-give-way; what the system does not tell is not looked at. The struct stays in place until owner_first_stop,
// and so does the node.
void owner_first_start(struct owner_first *f, const struct options *o, struct loop *loop, struct worker *worker, struct node_runtime *node,
	const struct log *log);
void owner_first_stop(struct owner_first *f); // safe on zeroed memory

#endif
