// The planner's input from what members told: struct cluster (partition/cluster.h) of the machines that are here. Pure.
//
// Device 0 is the coordinator's machine, with the node beside it when there is one. Nothing is invented without saying so: figures that were
// not measured are marked as derived. A way between two nodes that never were neighbours is taken through the coordinator, where steps go
// when they do not reach each other: it is no faster than what they have, and marked as going through device 0.
#ifndef HEARTH_COORDINATOR_CLUSTER_VIEW_H
#define HEARTH_COORDINATOR_CLUSTER_VIEW_H

#include "base/device_profile.h"
#include "coordinator/coordinator.h"
#include "partition/cluster.h"

#include <stdbool.h>
#include <stdint.h>

#define CLUSTER_VIEW_MAX (NODES_MAX + 1) // devices: more are planned as chains, each of which is smaller

// One machine, as the coordinator knows it.
struct cluster_view_member {
	const char *name;
	int32_t index;      // the caller's, copied to cluster_view.members and given to `pair`
	bool can_hold;      // layers; the head's machine may have no node
	const struct device_profile *profile;
	uint64_t buffer_bytes;                  // of frames under a plan, which its own reserve does not hold
	double decode_bps;                      // as observed, of the model's weights; 0: nothing was observed
	double prefill_flops, disk_bps;         // likewise; the latter of weights read while they stream
	const struct link_figures *to, *from;   // the coordinator's way to it, and its way back; NULL, or n 0: not known
};

struct cluster_view_input {
	const struct cluster_view_member *members; // (n), the coordinator's machine first
	int32_t n;
	enum dtype type; // of most of the model's weights
	// pair returns what is known of the way from one member to another (neither is the first), by their indices, or NULL.
	const struct link_figures *(*pair)(const void *ctx, int32_t i, int32_t j);
	const void *ctx;
};

struct cluster_view {
	struct cluster cluster; // points into the arrays
	struct cluster_device devices[CLUSTER_VIEW_MAX];
	struct cluster_link links[CLUSTER_VIEW_MAX * CLUSTER_VIEW_MAX];
	int32_t members[CLUSTER_VIEW_MAX];   // the caller's index of each device's member; -1: device 0 without a node
	int32_t n_left_out;                  // members that have told no figures yet, or whose memory holds nothing
	bool head_can_hold;                  // device 0 may hold layers
};

// cluster_view_make fills *out. ERR_STATE: the coordinator's own machine shall hold layers and has not been measured, or has no memory for any. ERR_LIMIT: too many members.
// What it makes passes cluster_check.
MUST_USE enum err cluster_view_make(const struct cluster_view_input *in, struct cluster_view *out, struct errmsg *em);

// coordinator_view fills *out with the members that may hold layers now; their indices are places of coordinator.members. `type` as above.
MUST_USE enum err coordinator_view(const struct coordinator *c, enum dtype type, struct cluster_view *out, struct errmsg *em);

#endif
