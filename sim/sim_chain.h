// The chain of hashes that stands for a model (sim_model.h): what a layer makes of a state. Pure.
//
// A layer that machines may share has two halves, as a group's exchanges have (base/tensor_split.h): CHAIN_UNITS columns, of the first half what
// attention gives, which also depends on the same column of the position before, as keys and values do; and as many rows, each the sum of a node of
// every column. All rows in order make the next state, so that a missing, swapped, stale or foreign piece gives another.
#ifndef HEARTH_SIM_SIM_CHAIN_H
#define HEARTH_SIM_SIM_CHAIN_H

#include "base/sampling.h"
#include "base/tensor_split.h"
#include "sim/sim_mix.h"

#define CHAIN_ROW 8
#define CHAIN_START 77 // what stands before position 0
#define CHAIN_UNITS 6  // with shares that are far apart, or many members, somebody has none
#define CHAIN_LANES 8  // column u lies in lane u

static const struct split_shape chain_shape = {.n_heads = CHAIN_UNITS, .n_kv_heads = CHAIN_UNITS, .head_dim = 2, .hidden_dim = CHAIN_UNITS,
	.ffn_dim = CHAIN_UNITS, .o_lanes = CHAIN_LANES, .down_lanes = CHAIN_LANES, .o_block = 2, .down_block = 1};

static inline uint64_t chain_embed(int32_t token)
{
	return sim_mix((uint64_t)(uint32_t)token, 5);
}

// chain_layer is a layer that nobody shares.
static inline uint64_t chain_layer(uint64_t h, int32_t layer, uint64_t before)
{
	return sim_mix(sim_mix(h, (uint64_t)(uint32_t)layer), before);
}

// chain_column of a layer's half 0 or 1; `before` is 0 in the second.
static inline uint64_t chain_column(uint64_t h, int32_t layer, int32_t half, int32_t unit, uint64_t before)
{
	uint64_t place = ((uint64_t)(uint32_t)layer * 2 + (uint64_t)half) * CHAIN_UNITS + (uint64_t)unit;
	return sim_mix(sim_mix(h, place), before);
}

// chain_node is what a column adds to a row; chain_join adds it to the row's sum, or a row to the state: in order.
static inline uint64_t chain_node(uint64_t column, int32_t row)
{
	return sim_mix(column, (uint64_t)(uint32_t)row + 11);
}

static inline uint64_t chain_join(uint64_t h, uint64_t piece)
{
	return sim_mix(h, piece);
}

// chain_shared_layer is a whole layer of that kind. Its keys and values: `before` those of the position before, NULL at position 0; `kv` takes its own.
static inline uint64_t chain_shared_layer(uint64_t h, int32_t layer, const uint64_t *before, uint64_t *kv)
{
	for (int32_t half = 0; half < 2; half++) {
		uint64_t columns[CHAIN_UNITS], next = h;
		for (int32_t u = 0; u < CHAIN_UNITS; u++) {
			uint64_t old = half > 0 ? 0 : before != NULL ? before[u] : CHAIN_START;
			columns[u] = chain_column(h, layer, half, u, old);
		}
		for (int32_t r = 0; r < CHAIN_UNITS; r++) {
			uint64_t sum = h;
			for (int32_t u = 0; u < CHAIN_UNITS; u++)
				sum = chain_join(sum, chain_node(columns[u], r));
			next = chain_join(next, sum);
		}
		for (int32_t u = 0; half == 0 && u < CHAIN_UNITS; u++)
			kv[u] = columns[u];
		h = next;
	}
	return h;
}

// chain_reply stands for what travels of a token's logits, where lm_head is the last stage's (base/head_reply.h); of what came it makes the state again.
// chain_part is what a member gives to it.
static inline uint64_t chain_reply(uint64_t h, int want)
{
	return h ^ sim_mix((uint64_t)want, 99);
}

static inline uint64_t chain_part(uint64_t h, int32_t member)
{
	return sim_mix(h, (uint64_t)(uint32_t)member + 1000);
}

static inline int32_t chain_draw(uint64_t h, const struct sampling *s, int32_t pos, int32_t vocab_size)
{
	if (s->temperature > 0)
		h = sim_mix(sim_mix(h, s->seed), (uint64_t)(uint32_t)pos);
	return (int32_t)(h % (uint64_t)vocab_size);
}

#endif
