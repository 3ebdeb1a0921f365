// What a simulated engine is made of. Private to sim_model.c and sim_member.c.
#ifndef HEARTH_SIM_SIM_ENGINE_H
#define HEARTH_SIM_SIM_ENGINE_H

#include "engine/stage_work.h"
#include "node/node.h"
#include "sim/sim_chain.h"
#include "sim/sim_model.h"

// A forward of a group's member, from exchange to exchange.
struct sim_turn {
	int32_t layer, half, layer_end; // where it is
	bool at_rows;                   // the exchange is of rows, else of columns or of nodes
	int32_t hop;                    // in a ring, of its round
	int32_t n_items, n_tokens;
	struct sim_rows items[NODES_MAX];
	uint64_t h[CHUNK_TOKENS_MAX]; // states of all tokens, item after item
	uint64_t rows[CHUNK_TOKENS_MAX][CHAIN_UNITS]; // sums that are complete
	uint64_t nodes[CHUNK_TOKENS_MAX][CHAIN_UNITS][CHAIN_UNITS]; // in a ring: of columns and rows that are known here
};

struct sim_engine {
	const struct sim_model *m;
	struct layer_spans layers;
	int32_t n_slots;
	// the chain
	uint64_t *kv;    // (n_slots, layers, ctx_len), of each shared layer CHAIN_UNITS
	int32_t *n_done; // (n_slots, layers) positions computed
	uint64_t *hash;  // (n_slots)
	struct tensor_split split; // n_members 0: no group
	int32_t member;
	struct sim_turn *turns, *turn; // of a group: those of its forwards, and the one that is being computed
	// the real engine
	struct stage_work *work;
	struct logits_hash *logits; // (n_slots)
};

static inline size_t sim_kv_row(const struct sim_engine *e)
{
	return e->m->config.is_shared ? CHAIN_UNITS : 1;
}

// sim_check_rows sets ERR_RANGE where an item has not its earlier positions in these layers.
static inline void sim_check_rows(const struct sim_engine *e, int32_t begin, int32_t end, struct sim_rows *it)
{
	int32_t n_layers = layer_spans_count(&e->layers), base = layer_spans_find(&e->layers, begin) - begin;
	const int32_t *n_done = e->n_done + (size_t)it->slot * (size_t)n_layers;
	it->err = it->slot >= e->n_slots || it->pos + it->n_tokens > e->m->ctx_len ? ERR_RANGE : OK;
	for (int32_t l = begin + base; it->err == OK && l < end + base; l++)
		it->err = it->pos > n_done[l] ? ERR_RANGE : OK;
}

#endif
