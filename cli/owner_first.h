// The machine's owner comes first, carried out: looks every few seconds at what other programs use, and lets fewer threads compute.
#ifndef HEARTH_CLI_OWNER_FIRST_H
#define HEARTH_CLI_OWNER_FIRST_H

#include "base/cpu_use.h"
#include "base/log.h"
#include "cli/options.h"
#include "engine/give_way.h"
#include "engine/worker.h"
#include "net/loop.h"

struct owner_first {
	struct loop *loop;
	const struct log *log;
	struct worker *worker;
	struct give_way way;
	struct cpu_use last;
	struct loop_timer timer;
};

// owner_first_start begins to look, unless --no-give-way or a system without /proc/stat. The struct stays in place until owner_first_stop.
void owner_first_start(struct owner_first *f, const struct options *o, struct loop *loop, struct worker *worker, const struct log *log);
void owner_first_stop(struct owner_first *f); // safe on zeroed memory

#endif
