// A stage's work on hidden states as they travel: bytes of the wire type in, layers, bytes out. And the head's: token ids to bytes, bytes to
// logits, hash and token. What runs here runs on the worker's thread. Each call first looks whether the model file is still what it was when it
// was opened: ERR_STATE, of the whole batch, when it is not.
#ifndef HEARTH_ENGINE_STAGE_WORK_H
#define HEARTH_ENGINE_STAGE_WORK_H

#include "base/err.h"
#include "base/head_reply.h"
#include "base/sampling.h"
#include "engine/engine.h"
#include "engine/logits_hash.h"
#include "engine/tensor_group.h"

#include <stdbool.h>
#include <stdint.h>

struct stage_work;

// One step of a batch.
struct stage_item {
	uint8_t *wire;  // (n_tokens rows of wire_bytes), in and out
	int32_t slot, pos, n_tokens;
	enum head_want want; // of its last token, after the model's last layer: `wire` gets that instead, and has room for it. Needs has_output
	enum err err;   // out
	struct errmsg em; // out, when err: of this item alone
};

// stage_work_open opens the engine that c describes, or with MEMBER_EACH the group, and the scratch memory around it.
MUST_USE enum err stage_work_open(const struct engine_config *c, struct stage_work **out, struct errmsg *em);
void stage_work_close(struct stage_work *w); // NULL is allowed
// stage_work_measure tells what one of this config would take, as engine_measure does, with the memory around it.
MUST_USE enum err stage_work_measure(const struct engine_config *c, struct engine_size *out, struct errmsg *em);
// As engine_load_weights and engine_drop_weights.
MUST_USE enum err stage_work_load_weights(struct stage_work *w, const struct residency_limits *limits, struct errmsg *em);
void stage_work_drop_weights(struct stage_work *w);
uint64_t stage_work_bytes(const struct stage_work *w); // without weights
void stage_work_weight_stats(struct stage_work *w, struct residency_stats *out); // from any thread
// stage_work_group_stats tells what the members of a group in this process have sent each other; false: there is none.
bool stage_work_group_stats(const struct stage_work *w, struct tensor_group_stats *out);
// stage_work_take_kv copies what another one of the same model has computed in the layers that both run, as engine_take_kv.
void stage_work_take_kv(struct stage_work *w, const struct stage_work *from);
// stage_work_forward runs a batch through layers [layer_begin, layer_end) of the stage's.
void stage_work_forward(struct stage_work *w, int32_t layer_begin, int32_t layer_end, struct stage_item *items, int32_t n);

// A member of a tensor-parallel group (an engine with a split, engine/member.h) computes a batch from one exchange to the next.
struct stage_turn {
	int32_t forward; // in: which of the config's n_forwards this is about
	bool is_behind;  // in: it uses slots of the other one, which has begun before it (member_begin_behind)
	bool waits;    // in an exchange: `own` has what this member contributes, `to` says what of it is for whom, bytes[] what each of the others sends it
	bool was_cut;  // it has ended before its last exchange: what can be said is in the items
	uint32_t bytes[GROUP_MEMBERS_MAX];
	struct split_sent to[GROUP_MEMBERS_MAX];
	uint64_t failed; // while it waits: bit i, item i has failed already
};

// stage_work_part_bytes bounds any contribution to an exchange: what `own` and `parts` have room for.
size_t stage_work_part_bytes(const struct stage_work *w);
// stage_work_member_begin starts a batch and forgets an unfinished one. The items stay in place until it has ended; then they are as after
// stage_work_forward.
void stage_work_member_begin(struct stage_work *w, int32_t layer_begin, int32_t layer_end, struct stage_item *items, int32_t n, uint8_t *own,
	struct stage_turn *out);
// stage_work_member_continue takes what the others contribute (parts, one for each member; this one's is not looked at).
void stage_work_member_continue(struct stage_work *w, const uint8_t *const *parts, uint8_t *own, struct stage_turn *out);

struct embed_item {
	const int32_t *tokens; // (n_tokens)
	int32_t n_tokens;
	int32_t pos;           // of the first, for em
	uint8_t *wire;         // out
	enum err err;          // out
	struct errmsg em;      // out, when err
};

struct sample_item {
	const uint8_t *wire; // (n_rows)
	int32_t n_rows;
	struct logits_hash *hash; // NULL, or gets the logits of every row
	bool draw;                // from the last row
	enum head_want want;      // what wire is instead of hidden states, of one row: what a stage sent
	int32_t pos;              // of the token to draw
	struct sampling sampling;
	int32_t token;            // out
	enum err err;             // out
	struct errmsg em;         // out, when err
};

// The head's: the engine of c has has_head and no layers.
void stage_work_embed(struct stage_work *w, struct embed_item *items, int32_t n);
// stage_work_sample computes lm_head for all rows together; only rows that are hashed or drawn from.
void stage_work_sample(struct stage_work *w, struct sample_item *items, int32_t n);

#endif
