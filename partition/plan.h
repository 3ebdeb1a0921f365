// A plan: which layers each stage of the ring runs, in each round of a step. Pure.
//
// A step walks the ring n_rounds times. Its road is one span after the other: span r * n_stages + i is what stage i runs in round r, and
// begins at the layer where the span before it ends. With several rounds a machine whose weights do not all fit reads the next ones while
// the step is with others (partition/cost.h says when that pays); one round has the fewest hops.
//
// A stage is one machine, or a group of machines that share each of its layers (base/tensor_split.h). A machine is in one stage at most.
//
// Layers are split evenly, or as the operator gave them, and a plan that lost stages is repaired.
// A planner by cost (partition/cost.h) would fill the same struct.
#ifndef HEARTH_PARTITION_PLAN_H
#define HEARTH_PARTITION_PLAN_H

#include "base/err.h"
#include "base/ids.h"
#include "base/layer_part.h"
#include "base/layer_spans.h"
#include "base/limits.h"
#include "base/tensor_split.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// Who runs a stage. What is unused is zero, so that equal ones have equal bytes.
struct plan_group {
	int32_t n; // machines; 1: a plain stage
	struct node_id nodes[GROUP_MEMBERS_MAX]; // (n) the first is the lead: for the ring it is the stage, and its steps come to it and leave from it
	uint32_t shares[GROUP_MEMBERS_MAX];      // (n) of each layer, in any unit; at least one is not 0. A plain stage's is 1
	enum split_mode mode;
	enum wire_type payload; // of the mode's sums
	int32_t hub; // member hub - 1 passes on what the others contribute; 0: each sends to each, as they must in a mode with lanes
};

struct plan_stage {
	struct plan_group who;
	struct layer_spans layers; // one span for each round; together never empty
	uint32_t stream_share;     // of its weights, where not all fit: what is read anew in each cycle, in WINDOW_SHARE_WHOLE-ths. More than must be leaves a
	                           // larger window. 0: as little as fits, as always in a group
};

struct plan {
	struct plan_epoch epoch;
	int32_t n_layers;
	int32_t n_stages, n_rounds; // one stage has one round
	struct plan_stage stages[STAGES_MAX]; // in ring order
};

// What a plan is made of.
struct plan_want {
	const struct node_id *nodes;     // (n) in ring order; NULL: groups says who they are
	const struct plan_group *groups; // (n) likewise
	int32_t n;
	int32_t n_layers;
	int32_t n_rounds; // at most; fewer where no stage has a layer for each
	const uint32_t *stream_shares; // (n) of stages whose layers are given; NULL: all 0
};

// Of each machine of a plan, whether it is still there.
struct plan_alive {
	bool is[STAGES_MAX][GROUP_MEMBERS_MAX];
};

// plan_even splits the layers over the stages, the first ones taking the remainder; those beyond n_layers stay out.
// n >= 1. The epoch is the caller's to set.
void plan_even(const struct plan_want *w, struct plan *out);
// plan_given takes the layers of each stage, all rounds together, as an operator wrote them. ERR_RANGE when a stage is empty or the sum is not
// n_layers; the message names the stage by `names`.
MUST_USE enum err plan_given(const struct plan_want *w, const char *const *names, const int32_t *layers, struct plan *out, struct errmsg *em);
// plan_repair changes as little of `old` as it can when who is not `alive` is lost: stages of which somebody is left keep their layers and place; a
// gap goes to a spare node, or is shared by the neighbours it had. In a group a spare that no gap needs takes the place of who is lost, with its
// share; else those left share the layers in the proportion they had. ERR_NOT_FOUND: nobody is left. The epoch is the caller's to set.
MUST_USE enum err plan_repair(const struct plan *old, const struct plan_alive *alive, const struct node_id *spares, int32_t n_spares, struct plan *out);
// plan_check asserts nothing: ERR_RANGE says that spans are not contiguous, stages empty, or that they do not cover the model; that more than all is streamed; that a group is none, a
// machine in two places, or that there are more than STAGES_MAX of them.
MUST_USE enum err plan_check(const struct plan *p);

// plan_same_part tells whether two stages are of the same machines and layers, whatever they stream.
static inline bool plan_same_part(const struct plan_stage *a, const struct plan_stage *b)
{
	return memcmp(&a->who, &b->who, sizeof a->who) == 0 && memcmp(&a->layers, &b->layers, sizeof a->layers) == 0;
}

static inline struct plan_group plan_group_one(struct node_id node)
{
	return (struct plan_group){.n = 1, .nodes = {node}, .shares = {1}};
}

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

// plan_lead returns the machine that stands for a stage in the ring.
static inline struct node_id plan_lead(const struct plan_stage *st)
{
	return st->who.nodes[0];
}

// plan_group_find returns the place of a node in a group; -1: it is none of it.
static inline int32_t plan_group_find(const struct plan_group *g, struct node_id node)
{
	for (int32_t i = 0; i < g->n; i++)
		if (node_id_is(g->nodes[i], node))
			return i;
	return -1;
}

// plan_find returns the stage of a node, whatever its place in a group, or NULL.
static inline const struct plan_stage *plan_find(const struct plan *p, struct node_id node)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		if (plan_group_find(&p->stages[i].who, node) >= 0)
			return &p->stages[i];
	return NULL;
}

// A machine's place in a plan; those of a stage follow each other. For (seat = {0}; plan_has_seat; seat = plan_seat_after) is everybody.
struct plan_seat {
	int32_t stage, place; // place 0 is the lead
};

static inline bool plan_has_seat(const struct plan *p, struct plan_seat at)
{
	return at.stage < p->n_stages;
}

static inline struct plan_seat plan_seat_after(const struct plan *p, struct plan_seat at)
{
	bool is_last = at.place + 1 >= p->stages[at.stage].who.n;
	return is_last ? (struct plan_seat){at.stage + 1, 0} : (struct plan_seat){at.stage, at.place + 1};
}

static inline struct node_id plan_node(const struct plan *p, struct plan_seat at)
{
	return p->stages[at.stage].who.nodes[at.place];
}

// plan_part_of returns which part of a stage's layers the machine at a place of it has.
static inline struct layer_part plan_part_of(const struct plan_stage *st, int32_t place)
{
	return layer_part_of(st->who.n, place, st->who.mode, st->who.shares);
}

static inline int32_t plan_n_nodes(const struct plan *p)
{
	int32_t n = 0;
	for (int32_t i = 0; i < p->n_stages; i++)
		n += p->stages[i].who.n;
	return n;
}

static inline const struct layer_span *plan_span(const struct plan *p, int32_t at)
{
	return &p->stages[at % p->n_stages].layers.at[at / p->n_stages];
}

#endif
