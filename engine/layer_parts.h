// A layer in parts, each run by all hands of a crew: forward.c runs them one after the other, member.c from one exchange to the next. Private to
// engine/.
//
// Parts that return bool say false when weights could not be had: every hand returns then. A part's outputs are there when the phase has ended.
#ifndef HEARTH_ENGINE_LAYER_PARTS_H
#define HEARTH_ENGINE_LAYER_PARTS_H

#include "engine/crew.h"

// layer_of returns what a layer that runs is computed with.
static inline const struct engine_layer *layer_of(const struct engine *e, int32_t layer)
{
	return &e->layers[layer_spans_find(&e->c.layers, layer)];
}

// take_batch checks the items and lists their tokens, in tiles; settle_batch gives each item the fault of its earliest token and notes what is computed
// now. settle_batch returns the first fault's error, or the crew's.
MUST_USE enum err layer_take_batch(struct crew *crew, struct engine_item *items, int32_t n_items, struct errmsg *em);
enum err layer_settle_batch(struct crew *crew, struct engine_item *items, int32_t n_items, struct errmsg *em);

// layer_rope makes the tables of this hand's tokens: before the first layer.
void layer_rope(struct hand *h);
// layer_attend computes its heads' attention into its columns of `attended`, and ends the phase.
bool layer_attend(struct hand *h, int32_t layer);
// layer_o: its rows of o, from `attended` in the form they take, into `delta`.
bool layer_o(struct hand *h, int32_t layer);
// layer_add adds delta to this hand's tokens.
void layer_add(struct hand *h);
// layer_norm_ffn norms this hand's tokens for the second half.
void layer_norm_ffn(struct hand *h, int32_t layer);
// layer_gate_up: its rows into its columns of `gated`. layer_down: from `gated`, its rows of down into `delta`.
bool layer_gate_up(struct hand *h, int32_t layer);
bool layer_down(struct hand *h, int32_t layer);
// layer_end rounds what leaves the layer: every layer boundary, cut or not.
void layer_end(struct hand *h, int32_t layer);

#endif
