// What a simulated machine computes: bits that a wrong order, slot, layer, position or epoch changes.
//
// Without a real model it is a chain of hashes: a hidden state is 8 bytes that depend on the token, on every layer it went through in order, and
// on every position before it in the same slot. It costs nanoseconds, and the answer of one machine without faults is computed
// directly. A real model runs on the real engine (engine/stage_work), and is compared with engine/generate.
//
// A simulated buffer keeps row_kept bytes of each hidden state; on the links a row counts with the size it has in the wire type, so that
// a 70B model's traffic costs no copies. With a real model both are the same.
// Where layers are shared by groups the chain's are made of pieces (sim_chain.h), and an engine computes those of its member from exchange to exchange.
// Owns the reference engine and the KV of its engines; borrows the model, the kernels and the pool. One thread.
#ifndef HEARTH_SIM_SIM_MODEL_H
#define HEARTH_SIM_SIM_MODEL_H

#include "base/err.h"
#include "base/head_reply.h"
#include "base/layer_spans.h"
#include "base/sampling.h"
#include "base/tensor_split.h"
#include "base/wire_type.h"
#include "kernels/kernels.h"
#include "kernels/pool.h"
#include "model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_model_config {
	const struct model *real; // NULL: a chain of hashes
	const struct kernels *kernels; // with a real model
	struct pool *pool;
	int32_t n_layers, hidden_dim, vocab_size; // of the chain; a real model brings its own
	bool is_shared; // of the chain: machines may share a layer
};

struct sim_model {
	struct sim_model_config config;
	enum wire_type wire;
	int32_t ctx_len, chunk_max;
	size_t row_real; // bytes of a hidden state on the wire
	size_t row_kept; // bytes kept of it
	struct generate *reference;
};

MUST_USE enum err sim_model_open(struct sim_model *m, const struct sim_model_config *c, enum wire_type wire, int32_t ctx_len, int32_t chunk_max,
	struct errmsg *em);
void sim_model_close(struct sim_model *m); // safe on zeroed memory

// What one machine without faults answers. `tokens` holds the prompt and takes n_predict more; *hash is that of all logits of the first
// n_prompt + n_predict - 1 positions, 0 unless `hash_logits`.
struct sim_answer {
	int32_t *tokens; // (n_prompt + n_predict)
	int32_t n_prompt, n_predict;
	struct sampling sampling;
	bool hash_logits;
	uint64_t hash; // out
};
MUST_USE enum err sim_model_answer(struct sim_model *m, struct sim_answer *a, struct errmsg *em);

// ---- One machine's engine

struct sim_engine;

// sim_engine_open: layers with n_slots of KV; none is the head's. ERR_NOMEM, or what the engine says.
MUST_USE enum err sim_engine_open(const struct sim_model *m, const struct layer_spans *layers, int32_t n_slots, struct sim_engine **out,
	struct errmsg *em);
// sim_engine_share makes it one of a group. ERR_RANGE, ERR_STATE (no model for that), ERR_NOMEM.
MUST_USE enum err sim_engine_share(struct sim_engine *e, enum split_mode mode, const uint32_t *shares, int32_t n, int32_t member, struct errmsg *em);
void sim_engine_close(struct sim_engine *e); // NULL is allowed
// sim_engine_take_kv copies what another engine has computed in the layers that both run.
void sim_engine_take_kv(struct sim_engine *e, const struct sim_engine *from);

struct sim_rows {
	uint8_t *data; // (n_tokens, row_kept), in and out
	int32_t slot, pos, n_tokens;
	enum err err;  // out: ERR_RANGE when an earlier position of the slot was never computed
};
// sim_engine_forward runs layers [begin, end), which lie in one of the engine's spans.
void sim_engine_forward(struct sim_engine *e, int32_t layer_begin, int32_t layer_end, struct sim_rows *items, int32_t n);

// What an exchange of a group takes.
struct sim_exchange {
	uint32_t bytes[GROUP_MEMBERS_MAX];       // what each contributes to this member
	struct split_sent to[GROUP_MEMBERS_MAX]; // what of its own buffer is for whom
	uint32_t own_at;                         // and where in that its contribution to itself is
};

// Of a group. sim_engine_begin computes as far as the first exchange: its contribution is in `own`, of sim_engine_part_bytes at most. false: an item has
// an error, and nothing is computed. sim_engine_continue takes everybody's contributions, its own too; false: the forward is over, and the
// items are computed. One that is never continued has computed no position.
bool sim_engine_begin(struct sim_engine *e, int32_t place, bool is_behind, int32_t layer_begin, int32_t layer_end, struct sim_rows *items, int32_t n, uint8_t *own,
	struct sim_exchange *out);
bool sim_engine_continue(struct sim_engine *e, int32_t place, int32_t layer_begin, const uint8_t *const *parts, uint8_t *own, struct sim_exchange *out);
size_t sim_engine_part_bytes(const struct sim_model *m);

// The head's.
void sim_engine_embed(struct sim_engine *e, const int32_t *tokens, int32_t n_tokens, uint8_t *out);

struct sim_draw {
	const uint8_t *data; // (n_rows, row_kept)
	int32_t n_rows, slot, pos;
	enum head_want want; // what data is instead of states
	bool hash, first, draw;
	struct sampling sampling;
	int32_t token; // out
	enum err err;  // out
};
void sim_engine_sample(struct sim_engine *e, struct sim_draw *items, int32_t n);
// sim_engine_hash returns the running hash of the logits of a slot.
uint64_t sim_engine_hash(const struct sim_engine *e, int32_t slot);

#endif
