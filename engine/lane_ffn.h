// The feed-forward half of a layer in a group whose members own lanes of down's sum (kernels/lanes.h): rows of gate and up that are the columns of
// its lanes, packed side by side, and of down those columns, as nodes. Private to engine/.
//
// A member keeps its columns of down packed in memory of its own, whatever the cap: a file has them in small pieces.
#ifndef HEARTH_ENGINE_LANE_FFN_H
#define HEARTH_ENGINE_LANE_FFN_H

#include "engine/crew.h"
#include "kernels/lanes.h"

// lane_ffn_block computes this member's nodes of down. False: weights could not be had.
bool lane_ffn_block(struct hand *h, int32_t layer);
// lane_ffn_join completes the sums that are this member's, into delta, when every member's nodes are there.
void lane_ffn_join(struct hand *h, int32_t layer);
// lane_nodes returns where nodes of a member lie: node j of output r of token t at [t * stride * n + j * stride + r], n of them in all (*n).
float *lane_nodes(const struct engine *e, int32_t layer, int32_t member, int32_t *n);
// lane_nodes_max returns the most nodes that all members together have of an output.
int32_t lane_nodes_max(const struct engine *e);

// A run of neighbouring blocks of a member's: rows [row_begin, row_end) of gate and up, of which the first lies at `packed`.
struct lane_run {
	int32_t row_begin, row_end, packed;
};
// lane_run_next gives them one after the other (start with zeroes); false: there is none left.
bool lane_run_next(const struct split_part *p, enum dtype down_type, int32_t ffn_dim, struct lane_run *run);

#endif
