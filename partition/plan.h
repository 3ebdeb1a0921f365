// A plan: which layers each stage of the ring runs. Pure.
//
// Layers are split evenly, or as the operator gave them, and a plan that lost stages is repaired.
// A planner by cost (partition/cost.h) would fill the same struct.
#ifndef HEARTH_PARTITION_PLAN_H
#define HEARTH_PARTITION_PLAN_H

#include "base/err.h"
#include "base/ids.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

struct plan_stage {
	struct node_id node;
	int32_t layer_begin, layer_end; // never empty
};

struct plan {
	struct plan_epoch epoch;
	int32_t n_layers;
	int32_t n_stages;
	struct plan_stage stages[STAGES_MAX]; // in ring order: stage 0 begins at layer 0, each begins where the one before ends
};

// plan_even splits n_layers over n nodes in the given order, the first ones taking the remainder; nodes beyond n_layers stay out.
// n >= 1. The epoch is the caller's to set.
void plan_even(const struct node_id *nodes, int32_t n, int32_t n_layers, struct plan *out);
// plan_given takes the layers of each stage as an operator wrote them. ERR_RANGE when a stage is empty or the sum is not n_layers;
// the message names the stage by `names`.
MUST_USE enum err plan_given(const struct node_id *nodes, const char *const *names, const int32_t *layers, int32_t n, int32_t n_layers,
	struct plan *out, struct errmsg *em);
// plan_repair changes as little of `old` as it can when the stages that are not `alive` (one flag each) are lost: who is left keeps its layers and
// place; a gap goes to a spare node, or is shared by the neighbours it had. ERR_NOT_FOUND: nobody is left. The epoch is the caller's to set.
MUST_USE enum err plan_repair(const struct plan *old, const bool *alive, const struct node_id *spares, int32_t n_spares, struct plan *out);
// plan_check asserts nothing: ERR_RANGE says that stages are not contiguous, empty, or do not cover the model.
MUST_USE enum err plan_check(const struct plan *p);

#endif
