// The engine: some layers of one model, computing. And, on the coordinator, the head: embedding, final norm, lm_head.
//
// Owns the KV cache and its scratch memory (all allocated in engine_open, sized from the config), borrows the model. Knows no
// plan, no session, no link: a caller names a KV slot and positions. One thread calls it at a time; it spreads the work over
// its pool. Results do not depend on batch, chunk, thread count or implementation (kernels/canonical.h).
//
// Errors come in two sorts. A call that breaks a precondition fails as a whole, before anything is computed (ERR_RANGE: slot, position
// or token out of range, too many tokens). A value that cannot be carried fails only the item it belongs to: the others of
// the batch get the bits they would have alone, so a stream never depends on its company.
#ifndef HEARTH_ENGINE_ENGINE_H
#define HEARTH_ENGINE_ENGINE_H

#include "base/err.h"
#include "base/layer_spans.h"
#include "base/tensor_split.h"
#include "engine/residency.h"
#include "engine/expert_cache.h"
#include "engine/wire.h"
#include "kernels/kernels.h"
#include "kernels/pool.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

#define MEMBER_FORWARDS_MAX 2 // of a group's member under way at once
#define MEMBER_EACH (-1) // all members, as threads of this process (engine/tensor_group.h)

struct engine_config {
	const struct model *model;      // borrowed
	const struct kernels *kernels;  // borrowed
	struct pool *pool;              // borrowed; may be shared by engines of one thread
	struct layer_spans layers;      // that it runs; none for a head only
	bool has_head;                  // embedding, final norm and lm_head as well
	bool embeds_only;               // with has_head: the embedding alone
	bool has_output;                // with layers: final norm and lm_head too; of a group's member its rows
	int32_t n_slots;                // KV slots (sequences held at once)
	int32_t ctx_len;                // positions per slot
	int32_t batch_max;              // tokens of one call, all items together
	enum wire_type wire;            // what every layer boundary is rounded to
	const struct weight_files *files; // borrowed; where the weights are; NULL: in the model's own file
	struct residency_limits weights;  // what they may take; zero: no cap
	bool defer_weights;               // engine_load_weights comes later, before anything is computed
	const struct tensor_split *split; // NULL: whole layers; else (copied, and of the model's shape) it computes the part of a member of this group
	int32_t member;                   // (engine/member.h), and no head; MEMBER_EACH is for engine/stage_work.h
	int32_t n_forwards;               // of a member, under way at once (member_use); 0: one
};

// Why an item failed: of its first token that did, the layer whose output (or keys and values) could not be carried, and the value.
struct engine_fault {
	enum err err;      // OK or ERR_NON_FINITE
	int32_t layer;     // of the whole model; -1: the embedding; n_layers: the logits
	int32_t pos;       // the token's position
	bool in_kv;        // a key or value, not the layer's output
	float value;       // the value, as f32
};

// Part of a batch: consecutive positions of one sequence. Positions before pos_begin must have been computed in this slot, by the layers
// that run; computing a position again overwrites it and forgets everything after it.
struct engine_item {
	int32_t slot;              // 0 .. n_slots - 1; a slot appears at most once in a call
	int32_t pos_begin;
	int32_t n_tokens;          // >= 1
	const int32_t *tokens;     // (n_tokens), for engine_embed
	float *hidden;             // (n_tokens, hidden_dim)
	struct engine_fault fault; // out; after a failed forward, the slot holds positions before pos_begin only, and hidden nothing of use
};

struct engine;

// engine_open refuses (ERR_UNSUPPORTED, naming the tensor) a weight type without kernels, and (ERR_NOMEM, saying how much) what does not fit.
MUST_USE enum err engine_open(const struct engine_config *c, struct engine **out, struct errmsg *em);
void engine_close(struct engine *e); // NULL is allowed

// What an engine of a config would take. Weights in whole pages, as they are pinned.
struct engine_size {
	uint64_t bytes;        // all but weights
	uint64_t kv_bytes;     // of them, KV cache
	uint64_t packed_bytes; // of them, columns that a group's mode deals by lanes: weights that are never streamed
	uint64_t part_bytes;   // with a split: bound of a member's contribution to an exchange
	uint64_t weight_bytes; // all of the layers' and the head's matrices
	uint64_t weight_least; // with less for them it cannot compute: the smallest window
};
// engine_split_shape returns what a split of the model's layers depends on.
struct split_shape engine_split_shape(const struct model *m);
// engine_measure fails as engine_open does, and allocates next to nothing.
MUST_USE enum err engine_measure(const struct engine_config *c, struct engine_size *out, struct errmsg *em);
// engine_load_weights makes the weights available within `limits`, when defer_weights left that out.
MUST_USE enum err engine_load_weights(struct engine *e, const struct residency_limits *limits, struct errmsg *em);
// engine_drop_weights gives them back; what was computed stays.
void engine_drop_weights(struct engine *e);
// engine_take_kv copies what another engine of the same model and wire type has computed in the layers that both run. Nothing, unless
// slots, context and KV heads are the same.
void engine_take_kv(struct engine *e, const struct engine *from);
// engine_bytes returns the memory this engine takes beside its weights, engine_kv_bytes what of it is KV cache.
uint64_t engine_bytes(const struct engine *e);
uint64_t engine_kv_bytes(const struct engine *e);
// engine_weight_stats tells where the weights are and how they come, what is read of experts included; from any thread.
void engine_weight_stats(struct engine *e, struct residency_stats *out);
// engine_expert_stats: false, and zeroes, when experts are not read by us.
bool engine_expert_stats(struct engine *e, struct expert_cache_stats *out);
const struct hparams *engine_hparams(const struct engine *e);
const struct engine_config *engine_config_of(const struct engine *e);

// engine_embed writes the embedding of tokens, rounded to the wire type, into hidden. slot is not used.
MUST_USE enum err engine_embed(struct engine *e, struct engine_item *items, int32_t n_items, struct errmsg *em);
// engine_forward_layers runs layers [begin, end), which lie in one of the engine's spans, in place on hidden, rounding after each layer. Where
// they are not the whole span, those are computed again that were lost: the others keep what they have computed. engine_forward runs the
// layers of an engine with one span.
// All return ERR_NON_FINITE when an item failed; em tells of the first one, each item's fault of its own.
MUST_USE enum err engine_forward(struct engine *e, struct engine_item *items, int32_t n_items, struct errmsg *em);
MUST_USE enum err engine_forward_layers(struct engine *e, int32_t layer_begin, int32_t layer_end, struct engine_item *items, int32_t n_items,
	struct errmsg *em);
// engine_output_rows returns which rows of lm_head it has: empty without has_head or has_output.
struct split_range engine_output_rows(const struct engine *e);
// engine_logits writes (n, its rows) logits of n hidden states (n, hidden_dim), n <= batch_max. With ERR_NON_FINITE every row has been
// written all the same: the caller finds out which ones are good (sampler_draw refuses the others; never hash them).
MUST_USE enum err engine_logits(struct engine *e, const float *hidden, int32_t n, float *logits, struct errmsg *em);

// engine_fault_describe writes what a person reads into em and returns the fault's code.
enum err engine_fault_describe(const struct engine *e, const struct engine_fault *f, struct errmsg *em);

#endif
