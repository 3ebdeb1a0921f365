// Measuring this machine (engine/probe) beside other work: one slice after the other on the engine's worker, whose other jobs come in between, so that
// none waits for longer than a slice. When to begin and to stop is the core's matter.
//
// Thread rule: the loop's thread; slices and `complete` run on the worker's.
#ifndef HEARTH_NODE_SHELL_BACKGROUND_PROBE_H
#define HEARTH_NODE_SHELL_BACKGROUND_PROBE_H

#include "base/device_profile.h"
#include "base/err.h"
#include "engine/probe.h"
#include "engine/worker.h"
#include "net/loop.h"

struct background_probe;

struct background_probe_params {
	struct loop *loop; // borrowed, like all pointers here
	struct worker *worker;
	struct probe_config config;
	// room returns the memory that measuring may take now; 0: no limit. On the loop's thread.
	uint64_t (*room)(void *ctx);
	// complete adds what is not measured, and keeps the profile. On the worker's thread.
	void (*complete)(void *ctx, struct device_profile *p);
	void *ctx;
	// on_done comes once for each start, from the loop. ERR_CANCELLED: it was stopped. profile: when OK, until the call returns.
	void (*on_done)(void *done_ctx, enum err err, const char *text, const struct device_profile *profile);
	void *done_ctx;
};

MUST_USE enum err background_probe_open(const struct background_probe_params *p, struct background_probe **out, struct errmsg *em);
// background_probe_close waits for the slice under way, running the loop; nothing comes back of it. NULL is allowed.
void background_probe_close(struct background_probe *b);
void background_probe_start(struct background_probe *b);
void background_probe_stop(struct background_probe *b);

#endif
