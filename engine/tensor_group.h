// A whole tensor-parallel group in one process: each member an engine of its own on a thread of its own, with its own weights, window and KV cache,
// joined by memory instead of links. What a group of machines computes, without the machines: `hearth run --tp`, and the tests of splits.
//
// To its caller it is an engine: the same calls, the same errors, the same bits. One thread calls it at a time.
#ifndef HEARTH_ENGINE_TENSOR_GROUP_H
#define HEARTH_ENGINE_TENSOR_GROUP_H

#include "engine/engine.h"
#include "engine/head_rows.h"

struct tensor_group;

// What members sent each other since the group was opened.
struct tensor_group_stats {
	uint64_t n_exchanges;                    // of all layers and forwards
	uint64_t received[GROUP_MEMBERS_MAX];    // payload bytes by each member
	uint64_t n_messages[GROUP_MEMBERS_MAX];  // received by each member
	uint64_t head_bytes;                     // of candidates and logits, by who joins them
};

// tensor_group_open opens an engine for each member of c->split; c->member and c->pool are not looked at. A cap is parted by what each member's
// weights take. Errors as engine_open.
MUST_USE enum err tensor_group_open(const struct engine_config *c, struct tensor_group **out, struct errmsg *em);
void tensor_group_close(struct tensor_group *g); // NULL is allowed
// As the engine's functions of these names; sizes and figures of all members together.
MUST_USE enum err tensor_group_measure(const struct engine_config *c, struct engine_size *out, struct errmsg *em);
MUST_USE enum err tensor_group_load_weights(struct tensor_group *g, const struct residency_limits *limits, struct errmsg *em);
void tensor_group_drop_weights(struct tensor_group *g);
void tensor_group_take_kv(struct tensor_group *g, const struct tensor_group *from);
uint64_t tensor_group_bytes(const struct tensor_group *g);
void tensor_group_weight_stats(struct tensor_group *g, struct residency_stats *out);
MUST_USE enum err tensor_group_forward_layers(struct tensor_group *g, int32_t layer_begin, int32_t layer_end, struct engine_item *items, int32_t n_items,
	struct errmsg *em);
// tensor_group_head makes of hidden states what travels of the whole vocabulary's logits, of what each member's rows gave (has_output). n is at most 64.
MUST_USE enum err tensor_group_head(struct tensor_group *g, struct head_rows_item *items, int32_t n, struct errmsg *em);
void tensor_group_stats_get(const struct tensor_group *g, struct tensor_group_stats *out);
// tensor_group_first returns the engine of the first member: for what does not depend on the part.
struct engine *tensor_group_first(struct tensor_group *g);

#endif
