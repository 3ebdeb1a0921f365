// Products by columns along the lanes of the canonical sum: how a group of machines shares one matrix product and keeps its bits.
//
// A product of rules 5 to 8 adds block b of a row's columns to lane b mod n_lanes, and joins the lanes by TREE (rule 2). So a member of a
// group may own some lanes, given as a mask (bit l is lane l): it holds only the blocks of its lanes, packed side by side in ascending order,
// and computes what of the TREE its lanes complete, the greatest aligned subtrees that lie wholly inside its mask: its nodes (split_nodes
// of base/tensor_split.h counts them). Node j is the j-th of them, lanes ascending. Whoever has the nodes of members whose masks partition the lanes completes the TREE, and gets
// exactly the bits of kernels_matmul over the whole row. A plain sum of members' totals would not.
//
// Of a packed row block j lies on the member's lane j mod n, n lanes in its mask, also where the row's block count is no multiple of
// n_lanes: the last, partial group of blocks holds the lowest lanes, so what the mask picks of it is the beginning of the mask's lanes.
// Packed weights are an ordinary struct weight, packed activations are ordinary acts: quantisation blocks stay whole, so q and d are
// those of the full vector.
//
// A mask may be empty: no columns, no nodes. A mask that meets no block (fewer blocks than lanes) has no columns either, but nodes, all +0.
//
// Nothing here allocates or knows a thread; disjoint ranges of rows or values may be worked on at once.
#ifndef HEARTH_KERNELS_LANES_H
#define HEARTH_KERNELS_LANES_H

#include "kernels/kernels.h"

#define LANES_MAX 32
#define LANE_NODES_MAX 16 // of two neighbouring lanes one mask makes at most one node

// kernels_lanes returns how many lanes products with this weight type have, lanes_block_len how many columns a block of them is: 8 of
// 32 columns (32-block types), 4 of 256 (K-quants), 32 of 1 (f32, f16, bf16).
int32_t kernels_lanes(enum dtype type);
int32_t lanes_block_len(enum dtype type);
// lanes_all is the mask of all n_lanes lanes.
uint32_t lanes_all(int32_t n_lanes);
// lanes_are_partition tells whether each of n_lanes lanes is in exactly one of n masks, and nothing else is in any.
bool lanes_are_partition(int32_t n_lanes, const uint32_t *masks, int32_t n);

// lanes_cols returns how many of `cols` columns (whole blocks) a member with this mask owns.
int32_t lanes_cols(enum dtype type, int32_t cols, uint32_t mask);
// lanes_pack_row copies the member's blocks of a row of `cols` columns: to out, lanes_cols columns.
void lanes_pack_row(enum dtype type, const void *row, int32_t cols, uint32_t mask, void *out);
// lanes_pack_values copies the member's elements of a vector x (n) that products with this weight type take: to out (lanes_cols).
void lanes_pack_values(enum dtype type, const float *x, int32_t n, uint32_t mask, float *out);

// kernels_matmul_nodes computes outputs [row_begin, row_end) of every token as nodes: y[t * token_stride + j * node_stride + r] is node j of
// row r. w and a are packed for this mask. Without columns only w->type, w->rows and a->n are looked at: acts_init refuses 0 columns, so
// (struct acts){.n = n} will do. With the mask of all lanes it is kernels_matmul. Threads as there.
void kernels_matmul_nodes(const struct kernels *k, const struct weight *w, uint32_t mask, const struct acts *a, int32_t row_begin,
	int32_t row_end, float *y, size_t token_stride, size_t node_stride);

// A member's nodes of a run of values: node j of value r is at[j * stride + r].
struct nodes {
	uint32_t mask;
	const float *at;
	size_t stride;
};

// nodes_join completes the TREE of n values from members whose masks partition the lanes: out (n), which overlaps no input.
void nodes_join(int32_t n_lanes, const struct nodes *members, int32_t n_members, int32_t n, float *out);
// nodes_merge joins what two disjoint masks complete together: the nodes of their union, node j of value r to out[j * out_stride + r]. out
// overlaps no input. Merging members in any order ends with what nodes_join gives.
void nodes_merge(int32_t n_lanes, const struct nodes *a, const struct nodes *b, int32_t n, float *out, size_t out_stride);

#endif
