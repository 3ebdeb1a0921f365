// lm_head by rows: an engine's rows of the vocabulary make logits of hidden states, and of them what travels (base/head_reply.h); what members of a
// group made is joined to what one engine with all rows would have made, bit for bit; and what arrives is looked at as what a stranger sent.
//
// Borrows the engine. One thread at a time, the engine's.
#ifndef HEARTH_ENGINE_HEAD_ROWS_H
#define HEARTH_ENGINE_HEAD_ROWS_H

#include "base/head_reply.h"
#include "engine/engine.h"
#include "engine/sampler.h"

struct head_rows;

// One hidden state.
struct head_rows_item {
	const float *hidden; // (hidden_dim)
	enum head_want want; // not HEAD_NOTHING
	uint8_t *out;        // head_reply_bytes of the engine's rows
	enum err err;        // out: OK or ERR_NON_FINITE, and then `out` says so
};

MUST_USE enum err head_rows_open(struct engine *e, struct head_rows **out, struct errmsg *em);
void head_rows_close(struct head_rows *h); // NULL is allowed
// head_rows_memory returns what one takes beside the engine.
uint64_t head_rows_memory(const struct engine_config *c, int32_t n_rows);
// head_rows_run makes what travels of each item. Its error is one of all items: weights that cannot be read.
MUST_USE enum err head_rows_run(struct head_rows *h, struct head_rows_item *items, int32_t n, struct errmsg *em);

// head_reply_choose writes what travels of some rows' logits (n, the first one's id being id_begin). ERR_NON_FINITE: one is not finite.
enum err head_reply_choose(const float *logits, int32_t id_begin, int32_t n, enum head_want want, uint8_t *out);
// head_reply_refuse writes that there are no logits.
void head_reply_refuse(enum head_want want, int32_t n, uint8_t *out);
// head_reply_join makes the whole vocabulary's of what members sent, each at parts[i] of its rows' length. ERR_FORMAT: a member sent what cannot be
// (em names it); ERR_NON_FINITE: logits are missing, as somebody has said.
MUST_USE enum err head_reply_join(const struct tensor_split *split, const uint8_t *const *parts, enum head_want want, uint8_t *out, struct errmsg *em);
// head_reply_best reads candidates of ids [begin, end): at most head_reply_n_best of them, in order. ERR_FORMAT, ERR_NON_FINITE as above.
MUST_USE enum err head_reply_best(const uint8_t *in, int32_t id_begin, int32_t id_end, struct candidate *out);
// head_reply_logits reads n logits. ERR_NON_FINITE.
MUST_USE enum err head_reply_logits(const uint8_t *in, int32_t n, float *out);

#endif
