// What a tensor-parallel group costs: who computes how much of a layer, what its members send each other, and how long that takes. Pure.
//
// A mode says where the members exchange. *Gather*: rows everywhere; inputs and outputs of o and of down are gathered, four exchanges a layer.
// *Reduce*: columns of o and of down, dealt along the lanes of the canonical sum; two sums a layer. *Mixed*: gathered for o, summed for down. A
// form says how messages travel. Each exchange is a number of steps; a step is a set of messages that are sent at the same time, and the
// next one begins when all have arrived. Bytes and seconds are both computed from these messages, so that they cannot disagree.
//
// Handling a step of messages costs their receiver what a visit does, beside the software's cost of the link.
// A member's messages share its port unless links are said to be apart, and machines on one access point share its air. What goes between two that have
// no link wakes who passes it on (cluster_link.via), and shares that one's port with everything else that does.
// Source: cost-model.md, section 6; canonical-arithmetic.md, last part.
#ifndef HEARTH_PARTITION_GROUP_COST_H
#define HEARTH_PARTITION_GROUP_COST_H

#include "base/err.h"
#include "base/limits.h"
#include "base/tensor_split.h"
#include "partition/cluster.h"

#include <stdbool.h>
#include <stdint.h>

#define GROUP_PARTS_MAX 4 // of a layer, between exchanges

enum group_mode { GROUP_GATHER, GROUP_MIXED, GROUP_REDUCE };

enum group_form {
	GROUP_DIRECT, // each to each; a sum: reduce-scatter, then all-gather
	GROUP_HUB,    // through one member; a sum: a star
	GROUP_ALL,    // a sum: each sends all the others what it has, and all complete it; of two members a pair exchange
	GROUP_RING,   // a sum: reduce-scatter and all-gather from each member to the next
};

// One group of a plan. The first member is its lead: for the ring it is the stage.
struct cost_group {
	int32_t n_members; // 2 .. GROUP_MEMBERS_MAX
	int32_t hub;       // a member's number; read by the form GROUP_HUB
	enum group_mode mode;
	enum group_form gather_form; // DIRECT or HUB
	enum group_form sum_form;    // not read in mode GATHER
	int32_t devices[GROUP_MEMBERS_MAX];
	uint32_t shares[GROUP_MEMBERS_MAX]; // any unit
	int32_t n_streamed[GROUP_MEMBERS_MAX]; // of each member's own units; -1: as few as fit
};

// What each member computes of a layer.
struct group_split {
	enum group_mode mode;
	struct tensor_split rows; // as the engine cuts it; its o_rows are also the outputs that a member joins in a sum
	int32_t o_lanes, down_lanes; // of the canonical sum
	uint32_t o_mask[GROUP_MEMBERS_MAX], down_mask[GROUP_MEMBERS_MAX]; // lanes of each member, where columns are dealt
	int32_t n_heads[GROUP_MEMBERS_MAX], n_kv_heads[GROUP_MEMBERS_MAX], n_ffn[GROUP_MEMBERS_MAX]; // KV heads: those its query heads use
};

// group_check refuses a group that cannot be: members twice; two that do not reach each other, not even through somebody, unless a hub passes on all
// they send; a model of unknown dimensions.
MUST_USE enum err group_check(const struct cluster *c, const struct model_shape *s, const struct cost_group *g, struct errmsg *em);
// group_split_make cuts a layer. ERR_RANGE: shares that are all 0, too many members; sums that the model's heads, experts or types do not allow.
MUST_USE enum err group_split_make(const struct split_shape *s, enum group_mode mode, const uint32_t *shares, int32_t n, struct group_split *out,
	struct errmsg *em);

static inline bool group_has(const struct cost_group *g, int32_t device)
{
	for (int32_t i = 0; i < g->n_members; i++)
		if (g->devices[i] == device)
			return true;
	return false;
}

// A member's parts of a layer's weights and KV; over all members they may add up to more than 1, where members use the same KV head.
struct group_work {
	int32_t n_parts;
	double part[GROUP_PARTS_MAX][GROUP_MEMBERS_MAX]; // of a layer's bytes and arithmetic, between one exchange and the next
	double bytes[GROUP_MEMBERS_MAX]; // of a layer's bytes: their sum
	double kv[GROUP_MEMBERS_MAX];    // of a layer's KV
	double heads[GROUP_MEMBERS_MAX]; // of its query heads
};

void group_work_of(const struct split_shape *s, const struct group_split *t, struct group_work *out);

// What members send each other, in the order of a layer; behind it the lead's broadcast that begins a visit.
enum group_exchange {
	GROUP_ATTENDED, GROUP_O, GROUP_O_SUM, GROUP_GATED, GROUP_DOWN, GROUP_DOWN_SUM, GROUP_EXPERTS, GROUP_START,
};

// group_exchanges lists those of one layer; returns how many (2 to 4).
int32_t group_exchanges(const struct split_shape *s, enum group_mode mode, enum group_exchange out[GROUP_PARTS_MAX]);

// What a token sends, which the routing of experts decides: how many chosen ones are whose. NULL: as many as its part of all experts.
struct group_chosen {
	double n[GROUP_MEMBERS_MAX];
};

struct group_step {
	uint32_t to[GROUP_MEMBERS_MAX]; // whom each member sends something, maybe nothing but that it can go on
	double bytes[GROUP_MEMBERS_MAX][GROUP_MEMBERS_MAX]; // from, to; of one token
};

// group_steps returns of how many steps an exchange consists, group_step_of fills one of them.
int32_t group_steps(const struct cost_group *g, enum group_exchange x);
void group_step_of(const struct model_shape *s, const struct cost_group *g, const struct group_split *t, enum group_exchange x,
	const struct group_chosen *chosen, int32_t step, struct group_step *out);
// group_hop_s is the time of one message between two machines, alone, until its receiver has it; INFINITY: they do not reach each other.
double group_hop_s(const struct cluster *c, int32_t from, int32_t to, double bytes);

struct group_traffic {
	int32_t n_exchanges, n_steps;
	double seconds;
	double sent[GROUP_MEMBERS_MAX], received[GROUP_MEMBERS_MAX]; // bytes
};

// group_traffic_add adds n tokens of an exchange to *t (GROUP_START: with what the first exchange of a batch takes longer than those of other layers,
// as in a ring, too, everybody then tells everybody that they can compute it), group_layer_traffic is all of a layer's.
void group_traffic_add(const struct cluster *c, const struct model_shape *s, const struct cost_group *g, const struct group_split *split,
	enum group_exchange x, int32_t n_tokens, struct group_traffic *t);
void group_layer_traffic(const struct cluster *c, const struct model_shape *s, const struct cost_group *g, const struct group_split *split,
	int32_t n_tokens, struct group_traffic *out);

const char *group_mode_words(enum group_mode m);
const char *group_form_words(enum group_form f);

#endif
