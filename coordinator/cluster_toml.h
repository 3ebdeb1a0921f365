// The cluster that a coordinator plans for, as the TOML file that `hearth plan --cluster` reads (docs/planner.md): what the running program knows of its
// machines, for a person to look at, keep, and change. Pure.
//
// Numbers are written so that they are read back as they are, but for delays, which are whole nanoseconds. A way and its way back are one link
// there: the slower of the two. What nobody measured is marked as derived.
#ifndef HEARTH_COORDINATOR_CLUSTER_TOML_H
#define HEARTH_COORDINATOR_CLUSTER_TOML_H

#include "partition/cluster.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cluster_toml {
	const struct cluster *cluster; // device 0 is the coordinator's; links are a matrix
	bool head_can_hold;            // device 0 may hold layers
	int32_t n_slots, ctx_len, chunk;
};

// cluster_toml_bytes is room enough for any cluster of n devices. cluster_toml_write returns the text's length, without its NUL; what does not fit
// into cap bytes is cut.
size_t cluster_toml_bytes(int32_t n_devices);
size_t cluster_toml_write(const struct cluster_toml *t, char *out, size_t cap);

#endif
