// The chain of hashes that stands for a model (sim_model.h): what a layer makes of a state. Pure.
//
// A layer that machines may share is made of pieces, CHAIN_UNITS of each kind, as a group's exchanges are (base/tensor_split.h): what attention gives,
// which also depends on the same piece of the position before, as keys and values do; rows of o; gated columns; and rows of down, each the sum of a
// node of every column. All in order make the next state, so that a missing, swapped, stale or foreign one gives another.
#ifndef HEARTH_SIM_SIM_CHAIN_H
#define HEARTH_SIM_SIM_CHAIN_H

#include "base/sampling.h"
#include "base/tensor_split.h"
#include "sim/sim_mix.h"

#define CHAIN_ROW 8
#define CHAIN_START 77 // what stands before position 0
#define CHAIN_UNITS 6  // with shares that are far apart, or many members, somebody has none

enum chain_kind { CHAIN_ATTENDED, CHAIN_O, CHAIN_GATED, CHAIN_DOWN };

static const struct split_shape chain_shape = {
	.down_lanes = SPLIT_LANES, .n_heads = CHAIN_UNITS, .n_kv_heads = CHAIN_UNITS, .head_dim = 1, .hidden_dim = CHAIN_UNITS, .ffn_dim = CHAIN_UNITS, .o_block = 1, .down_block = 1};

static inline uint64_t chain_embed(int32_t token)
{
	return sim_mix((uint64_t)(uint32_t)token, 5);
}

// chain_layer is a layer that nobody shares.
static inline uint64_t chain_layer(uint64_t h, int32_t layer, uint64_t before)
{
	return sim_mix(sim_mix(h, (uint64_t)(uint32_t)layer), before);
}

// chain_piece: `before` is 0 but of what attention gives. Of rows of down see chain_node.
static inline uint64_t chain_piece(uint64_t h, int32_t layer, enum chain_kind kind, int32_t unit, uint64_t before)
{
	uint64_t place = ((uint64_t)(uint32_t)layer * 4 + (uint64_t)kind) * CHAIN_UNITS + (uint64_t)unit;
	return sim_mix(sim_mix(h, place), before);
}

// chain_node is what a gated column adds to a row of down; chain_join adds it, or a piece to a state: in order.
static inline uint64_t chain_node(uint64_t gated, int32_t row)
{
	return sim_mix(gated, (uint64_t)(uint32_t)row + 11);
}

static inline uint64_t chain_join(uint64_t h, uint64_t piece)
{
	return sim_mix(h, piece);
}

// chain_shared_layer is a whole layer of that kind. Its keys and values: `before` those of the position before, NULL at position 0; `kv` takes its own.
static inline uint64_t chain_shared_layer(uint64_t h, int32_t layer, const uint64_t *before, uint64_t *kv)
{
	uint64_t gated[CHAIN_UNITS], next = h;
	for (int32_t u = 0; u < CHAIN_UNITS; u++)
		next = chain_join(next, kv[u] = chain_piece(h, layer, CHAIN_ATTENDED, u, before != NULL ? before[u] : CHAIN_START));
	h = next;
	for (int32_t u = 0; u < CHAIN_UNITS; u++)
		next = chain_join(next, chain_piece(h, layer, CHAIN_O, u, 0));
	h = next;
	for (int32_t u = 0; u < CHAIN_UNITS; u++)
		gated[u] = chain_piece(h, layer, CHAIN_GATED, u, 0);
	for (int32_t r = 0; r < CHAIN_UNITS; r++) {
		uint64_t sum = h;
		for (int32_t u = 0; u < CHAIN_UNITS; u++)
			sum = chain_join(sum, chain_node(gated[u], r));
		next = chain_join(next, sum);
	}
	return next;
}

static inline int32_t chain_draw(uint64_t h, const struct sampling *s, int32_t pos, int32_t vocab_size)
{
	if (s->temperature > 0)
		h = sim_mix(sim_mix(h, s->seed), (uint64_t)(uint32_t)pos);
	return (int32_t)(h % (uint64_t)vocab_size);
}

#endif
