// A plan: which layers each stage of the ring runs, in each round of a step. Pure.
//
// A step walks the ring n_rounds times. Its road is one span after the other: span r * n_stages + i is what stage i runs in round r, and
// begins at the layer where the span before it ends. With several rounds a machine whose weights do not all fit reads the next ones while
// the step is with others (partition/cost.h says when that pays); one round has the fewest hops.
//
// Layers are split evenly, or as the operator gave them, and a plan that lost stages is repaired.
// A planner by cost (partition/cost.h) would fill the same struct.
#ifndef HEARTH_PARTITION_PLAN_H
#define HEARTH_PARTITION_PLAN_H

#include "base/err.h"
#include "base/ids.h"
#include "base/layer_spans.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

struct plan_stage {
	struct node_id node;
	struct layer_spans layers; // one span for each round; together never empty
};

struct plan {
	struct plan_epoch epoch;
	int32_t n_layers;
	int32_t n_stages, n_rounds; // one stage has one round
	struct plan_stage stages[STAGES_MAX]; // in ring order
};

// What a plan is made of.
struct plan_want {
	const struct node_id *nodes; // (n) in ring order
	int32_t n;
	int32_t n_layers;
	int32_t n_rounds; // at most; fewer where no stage has a layer for each
};

// plan_even splits the layers over the nodes, the first ones taking the remainder; nodes beyond n_layers stay out.
// n >= 1. The epoch is the caller's to set.
void plan_even(const struct plan_want *w, struct plan *out);
// plan_given takes the layers of each stage, all rounds together, as an operator wrote them. ERR_RANGE when a stage is empty or the sum is not
// n_layers; the message names the stage by `names`.
MUST_USE enum err plan_given(const struct plan_want *w, const char *const *names, const int32_t *layers, struct plan *out, struct errmsg *em);
// plan_repair changes as little of `old` as it can when the stages that are not `alive` (one flag each) are lost: who is left keeps its layers and
// place; a gap goes to a spare node, or is shared by the neighbours it had. ERR_NOT_FOUND: nobody is left. The epoch is the caller's to set.
MUST_USE enum err plan_repair(const struct plan *old, const bool *alive, const struct node_id *spares, int32_t n_spares, struct plan *out);
// plan_check asserts nothing: ERR_RANGE says that spans are not contiguous, stages empty, or that they do not cover the model.
MUST_USE enum err plan_check(const struct plan *p);

// plan_round_begin: in round r of k a stage runs its layers plan_round_begin(n, k, r) to plan_round_begin(n, k, r + 1) - 1, counted from its first.
static inline int32_t plan_round_begin(int32_t n_layers, int32_t k, int32_t round)
{
	return (int32_t)((int64_t)round * n_layers / k);
}

// plan_n_spans returns the length of a step's road, plan_span the span at a place of it.
static inline int32_t plan_n_spans(const struct plan *p)
{
	return p->n_stages * p->n_rounds;
}

// plan_find returns the stage of a node, or NULL.
static inline const struct plan_stage *plan_find(const struct plan *p, struct node_id node)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		if (node_id_is(p->stages[i].node, node))
			return &p->stages[i];
	return NULL;
}

static inline const struct layer_span *plan_span(const struct plan *p, int32_t at)
{
	return &p->stages[at % p->n_stages].layers.at[at / p->n_stages];
}

#endif
