// Products of a group whose members own lanes of the canonical sum (kernels/lanes.h): of down, and maybe of o, a member has the columns of its
// lanes, packed side by side, and computes nodes; of q, gate and up the rows that are those columns. Private to engine/.
//
// A member keeps its columns of o and of down packed in memory of its own, whatever the cap: a file has them in small pieces.
#ifndef HEARTH_ENGINE_LANE_SUMS_H
#define HEARTH_ENGINE_LANE_SUMS_H

#include "engine/crew.h"
#include "kernels/lanes.h"

// One sum of a layer: of o, from `attended`; or of down, from `gated`.
struct lane_sum {
	int32_t layer;
	bool of_o;
};

// lane_sum_nodes computes this member's nodes from its columns of the input, which are there when the phase begins.
void lane_sum_nodes(struct hand *h, struct lane_sum s);
// lane_sum_round rounds this hand's tokens' nodes to the payload, in the pieces in which they travel: where everybody completes all sums, all of them;
// else those of others' sums, and in a ring those of its first hop alone. When the phase of lane_sum_nodes has ended. A token whose nodes cannot be
// rounded has failed.
void lane_sum_round(struct hand *h, struct lane_sum s);
// lane_sum_join completes the sums that are this member's, into delta, when every member's nodes are there; rounded to
// the payload where they travel on.
void lane_sum_join(struct hand *h, struct lane_sum s);
// In a ring the nodes of a member's outputs come to it by hops, each joined with those of who passes them on. What travels in a hop:
struct lane_hop {
	struct split_range rows;
	uint32_t mask;   // of the lanes that its nodes are made of
	int32_t n_nodes; // of each output
};
// lane_hop_of says what a member passes on in hop h.
struct lane_hop lane_hop_of(const struct engine *e, bool of_o, enum dtype type, int32_t from, int32_t h);
// lane_sum_pass joins what came in hop h with this member's own, for hop h + 1: this hand's tokens, rounded to the payload.
void lane_sum_pass(struct hand *h, struct lane_sum s, int32_t hop);
// lane_sum_came and lane_sum_passed return where what came in a hop lies, and what is passed on in a later one than the first: as lane_sum_at.
float *lane_sum_came(const struct engine *e, struct lane_sum s);
float *lane_sum_passed(const struct engine *e, struct lane_sum s);

// lane_sum_at returns where nodes of a member lie: node j of output r of token t at [(t * n + j) * hidden_dim + r], n of them in all (*n). In a ring
// only this member's.
float *lane_sum_at(const struct engine *e, struct lane_sum s, int32_t member, int32_t *n);
// lane_sum_nodes_max returns how many nodes of an output there is room for: as many as all members together have at most; in a ring its own, what
// came and what is passed on.
int32_t lane_sum_nodes_max(const struct engine *e);
// lane_sum_count returns how many nodes a member has of an output of a matrix of this type.
int32_t lane_sum_count(const struct engine *e, bool of_o, enum dtype type, int32_t member);

// A run of neighbouring blocks of a member's: rows [row_begin, row_end) of gate and up, of which the first lies at `packed`.
struct lane_run {
	int32_t row_begin, row_end, packed;
};
// lane_run_next gives them one after the other (start with zeroes); false: there is none left.
bool lane_run_next(const struct split_part *p, enum dtype down_type, int32_t ffn_dim, struct lane_run *run);

#endif
