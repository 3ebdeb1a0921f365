// The profile of this machine for `hearth probe`, `join` and `serve`: where it is cached, and what memory the process may take.
#ifndef HEARTH_CLI_HOST_PROFILE_H
#define HEARTH_CLI_HOST_PROFILE_H

#include "base/err.h"
#include "cli/options.h"
#include "engine/probe.h"
#include "engine/probe_cache.h"
#include "engine/worker.h"
#include "model/model.h"
#include "node/shell/node_runtime.h"

#define HOST_PROFILE_PATH_CAP 1024

struct host_profile {
	struct probe_config config;          // of measuring
	char folder[HOST_PROFILE_PATH_CAP];  // of the cache
	char key[PROBE_KEY_CAP];
	uint64_t cap_bytes;
	uint64_t reserved_bytes, reserved_direct_bytes; // the second one where weights lie in memory of our own
	uint32_t reader;
	double slowdown;              // of the worker (--slowdown): a machine that stands for a slower one
	const struct log *log;
	struct device_profile known;  // host_profile_offer
	struct background_probe_params probe;
};

// host_profile_init fills all but memory, which host_profile_set_memory does. model may be NULL; has_weights: all its bytes are in its file.
MUST_USE enum err host_profile_init(const struct options *o, const struct model *model, bool has_weights, struct worker *worker, struct host_profile *h,
	struct errmsg *em);
// host_profile_set_memory: node is what a cap leaves a stage, all that a stage needs included; NULL, or without a cap: what is free is the limit.
void host_profile_set_memory(struct host_profile *h, const struct options *o, const struct node_memory *node, uint64_t keep_bytes);
// host_profile_load takes a cached profile, with the memory of this process. ERR_NOT_FOUND.
MUST_USE enum err host_profile_load(const struct host_profile *h, struct device_profile *out, int64_t *when_s);
// host_profile_complete adds to a measured profile what this process may take.
void host_profile_complete(const struct host_profile *h, struct device_profile *p);

// host_profile_offer gives a node what it needs: the cached profile, and the means to measure when there is none and the user lets it. *h must outlive it.
void host_profile_offer(struct host_profile *h, const struct options *o, struct node_runtime_params *p);

#endif
