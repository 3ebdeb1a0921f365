// The engine: one range of layers of one model, computing. And, on the coordinator, the head: embedding, final norm, lm_head.
//
// Owns the KV cache and its scratch memory (all allocated in engine_open, sized from the config), borrows the model. Knows no
// plan, no session, no link: a caller names a KV slot and positions. One thread calls it at a time; it spreads the work over
// its pool. Results do not depend on batch, chunk, thread count or implementation (kernels/canonical.h).
#ifndef HEARTH_ENGINE_ENGINE_H
#define HEARTH_ENGINE_ENGINE_H

#include "base/err.h"
#include "engine/wire.h"
#include "kernels/kernels.h"
#include "kernels/pool.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct engine_config {
	const struct model *model;      // borrowed
	const struct kernels *kernels;  // borrowed
	struct pool *pool;              // borrowed; may be shared by engines of one thread
	int32_t layer_begin, layer_end; // layers it runs; begin == end for a head only
	bool has_head;                  // embedding, final norm and lm_head as well
	int32_t n_slots;                // KV slots (sequences held at once)
	int32_t ctx_len;                // positions per slot
	int32_t batch_max;              // tokens of one call, all items together
	enum wire_type wire;            // what every layer boundary is rounded to
};

// Part of a batch: consecutive positions of one sequence. Positions before pos_begin must have been computed in this slot;
// computing a position again overwrites it and forgets everything after it.
struct engine_item {
	int32_t slot;          // 0 .. n_slots - 1; a slot appears at most once in a call
	int32_t pos_begin;
	int32_t n_tokens;      // >= 1
	const int32_t *tokens; // (n_tokens), for engine_embed
	float *hidden;         // (n_tokens, hidden_dim)
};

struct engine;

// engine_open refuses (ERR_UNSUPPORTED, naming the tensor) a weight type without kernels, and (ERR_NOMEM, saying how much) what does not fit.
MUST_USE enum err engine_open(const struct engine_config *c, struct engine **out, struct errmsg *em);
void engine_close(struct engine *e); // NULL is allowed
// engine_kv_bytes returns the bytes of KV cache this engine holds.
uint64_t engine_kv_bytes(const struct engine *e);

// engine_embed writes the embedding of tokens, rounded to the wire type, into hidden.
MUST_USE enum err engine_embed(struct engine *e, const struct engine_item *items, int32_t n_items, struct errmsg *em);
// engine_forward runs layers [layer_begin, layer_end) in place on hidden, rounding after each layer. ERR_NON_FINITE names the
// layer (and for f16 the value that left its range).
MUST_USE enum err engine_forward(struct engine *e, const struct engine_item *items, int32_t n_items, struct errmsg *em);
// engine_logits writes (n, vocab_size) logits of n hidden states (n, hidden_dim), n <= batch_max. ERR_NON_FINITE as above.
MUST_USE enum err engine_logits(struct engine *e, const float *hidden, int32_t n, float *logits, struct errmsg *em);

#endif
