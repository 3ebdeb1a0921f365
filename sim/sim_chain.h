// The chain of hashes that stands for a model (sim_model.h): what a layer makes of a state. Pure.
//
// A layer that machines may share is made of pieces: in each of four exchanges (base/tensor_split.h) CHAIN_UNITS of them, each of which depends on
// the state, its place, and in the first exchange on the same piece of the position before, which stands for keys and values. All pieces in order
// make the next state, so that a missing, swapped, stale or foreign one gives another.
#ifndef HEARTH_SIM_SIM_CHAIN_H
#define HEARTH_SIM_SIM_CHAIN_H

#include "base/sampling.h"
#include "base/tensor_split.h"
#include "sim/sim_mix.h"

#define CHAIN_ROW 8
#define CHAIN_START 77 // what stands before position 0
#define CHAIN_UNITS 6  // with shares that are far apart, or many members, somebody has none
#define CHAIN_EXCHANGES 4

static const struct split_shape chain_shape = {
	.n_heads = CHAIN_UNITS, .n_kv_heads = CHAIN_UNITS, .head_dim = 1, .hidden_dim = CHAIN_UNITS, .ffn_dim = CHAIN_UNITS, .o_block = 1, .down_block = 1};

static inline uint64_t chain_embed(int32_t token)
{
	return sim_mix((uint64_t)(uint32_t)token, 5);
}

// chain_layer is a layer that nobody shares.
static inline uint64_t chain_layer(uint64_t h, int32_t layer, uint64_t before)
{
	return sim_mix(sim_mix(h, (uint64_t)(uint32_t)layer), before);
}

// chain_range returns which pieces of an exchange are a member's.
static inline struct split_range chain_range(const struct split_part *p, int32_t exchange)
{
	const struct split_range of[CHAIN_EXCHANGES] = {p->heads, p->o_rows, p->ffn, p->down_rows};
	return of[exchange];
}

// chain_piece: `before` is 0 but in the first exchange.
static inline uint64_t chain_piece(uint64_t h, int32_t layer, int32_t exchange, int32_t unit, uint64_t before)
{
	uint64_t place = ((uint64_t)(uint32_t)layer * CHAIN_EXCHANGES + (uint64_t)exchange) * CHAIN_UNITS + (uint64_t)unit;
	return sim_mix(sim_mix(h, place), before);
}

// chain_shared_layer is a whole layer of that kind. Its keys and values: `before` those of the position before, NULL at position 0; `kv` takes its own.
static inline uint64_t chain_shared_layer(uint64_t h, int32_t layer, const uint64_t *before, uint64_t *kv)
{
	uint64_t pieces[CHAIN_UNITS];
	for (int32_t x = 0; x < CHAIN_EXCHANGES; x++) {
		for (int32_t u = 0; u < CHAIN_UNITS; u++) {
			uint64_t old = x > 0 ? 0 : before != NULL ? before[u] : CHAIN_START;
			pieces[u] = chain_piece(h, layer, x, u, old);
		}
		for (int32_t u = 0; u < CHAIN_UNITS; u++) {
			h = sim_mix(h, pieces[u]);
			if (x == 0)
				kv[u] = pieces[u];
		}
	}
	return h;
}

static inline int32_t chain_draw(uint64_t h, const struct sampling *s, int32_t pos, int32_t vocab_size)
{
	if (s->temperature > 0)
		h = sim_mix(sim_mix(h, s->seed), (uint64_t)(uint32_t)pos);
	return (int32_t)(h % (uint64_t)vocab_size);
}

#endif
