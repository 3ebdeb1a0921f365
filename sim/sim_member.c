// A simulated engine as one of a group: from exchange to exchange, as engine/member does it.
#include "sim/sim_engine.h"

#include "base/assert.h"
#include "base/bytes.h"

size_t sim_engine_part_bytes(const struct sim_model *m)
{
	return (size_t)m->chunk_max * CHAIN_UNITS * CHAIN_ROW;
}

static uint64_t *kv_at(const struct sim_engine *e, int32_t slot, int32_t layer, int32_t pos)
{
	size_t n_layers = (size_t)layer_spans_count(&e->layers), l = (size_t)layer_spans_find(&e->layers, layer);
	return e->kv + (((size_t)slot * n_layers + l) * (size_t)e->m->ctx_len + (size_t)pos) * CHAIN_UNITS;
}

// piece_of computes one of this member's of one token.
static uint64_t piece_of(struct sim_engine *e, const struct sim_rows *it, int32_t token, uint64_t h, int32_t unit)
{
	const struct sim_turn *t = e->turn;
	int32_t pos = it->pos + token;
	if (t->exchange > 0)
		return chain_piece(h, t->layer, t->exchange, unit, 0);
	uint64_t before = pos > 0 ? kv_at(e, it->slot, t->layer, pos - 1)[unit] : CHAIN_START;
	return kv_at(e, it->slot, t->layer, pos)[unit] = chain_piece(h, t->layer, 0, unit, before);
}

// contribute fills this member's part of the exchange that comes next, and tells what everybody's takes.
static void contribute(struct sim_engine *e, uint8_t *own, uint32_t *bytes)
{
	const struct sim_turn *t = e->turn;
	struct split_range mine = chain_range(&e->split.parts[e->member], t->exchange);
	int32_t at = 0;
	for (int32_t i = 0; i < t->n_items; i++) {
		for (int32_t k = 0; k < t->items[i].n_tokens; k++, at++) {
			for (int32_t u = mine.begin; u < mine.end; u++, own += CHAIN_ROW)
				store_u64(own, piece_of(e, &t->items[i], k, t->h[at], u));
		}
	}
	for (int32_t i = 0; i < e->split.n_members; i++)
		bytes[i] = (uint32_t)(t->n_tokens * split_len(chain_range(&e->split.parts[i], t->exchange)) * CHAIN_ROW);
}

// join makes the next states of everybody's pieces.
static void join(struct sim_engine *e, const uint8_t *const *parts)
{
	struct sim_turn *t = e->turn;
	for (int32_t at = 0; at < t->n_tokens; at++) {
		for (int32_t i = 0; i < e->split.n_members; i++) {
			int32_t n = split_len(chain_range(&e->split.parts[i], t->exchange));
			for (int32_t u = 0; u < n; u++)
				t->h[at] = sim_mix(t->h[at], load_u64(parts[i] + CHAIN_ROW * (at * n + u)));
		}
	}
}

// finish hands the states out and counts the positions as computed.
static void finish(struct sim_engine *e, int32_t layer_begin)
{
	const struct sim_turn *t = e->turn;
	int32_t n_layers = layer_spans_count(&e->layers), base = layer_spans_find(&e->layers, layer_begin) - layer_begin, at = 0;
	for (int32_t i = 0; i < t->n_items; i++) {
		const struct sim_rows *it = &t->items[i];
		for (int32_t k = 0; k < it->n_tokens; k++, at++)
			store_u64(it->data + CHAIN_ROW * k, t->h[at]);
		for (int32_t l = layer_begin + base; l < t->layer_end + base; l++)
			e->n_done[(size_t)it->slot * (size_t)n_layers + (size_t)l] = it->pos + it->n_tokens;
	}
}

bool sim_engine_begin(struct sim_engine *e, int32_t layer_begin, int32_t layer_end, struct sim_rows *items, int32_t n, uint8_t *own, uint32_t *bytes)
{
	struct sim_turn *t = e->turn;
	bool is_cut = false;
	ASSERT(n <= NODES_MAX);
	*t = (struct sim_turn){.layer = layer_begin, .layer_end = layer_end, .n_items = n};
	for (int32_t i = 0; i < n; i++) {
		sim_check_rows(e, layer_begin, layer_end, &items[i]);
		is_cut = is_cut || items[i].err != OK;
		t->items[i] = items[i];
		for (int32_t k = 0; k < items[i].n_tokens; k++)
			t->h[t->n_tokens++] = load_u64(items[i].data + CHAIN_ROW * k);
	}
	if (!is_cut)
		contribute(e, own, bytes);
	return !is_cut;
}

bool sim_engine_continue(struct sim_engine *e, int32_t layer_begin, const uint8_t *const *parts, uint8_t *own, uint32_t *bytes)
{
	struct sim_turn *t = e->turn;
	join(e, parts);
	t->exchange = (t->exchange + 1) % CHAIN_EXCHANGES;
	t->layer += t->exchange == 0;
	if (t->layer == t->layer_end) {
		finish(e, layer_begin);
		return false;
	}
	contribute(e, own, bytes);
	return true;
}
