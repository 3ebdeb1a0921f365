// The feed-forward half of a layer with experts: a router picks a few for each token, and only those compute. Private to engine/.
//
// Rules 17a (ROUTER) and 9 of kernels/canonical.h. Experts are taken in ascending order, in groups that fit the scratch: a group's pairs
// (an expert and a token that chose it) are gathered, so that an expert's weights are read once for all its tokens; then each token adds
// its experts' outputs, ascending. Gathering changes no bit: a product's output depends on its own token alone.
#ifndef HEARTH_ENGINE_EXPERT_FFN_H
#define HEARTH_ENGINE_EXPERT_FFN_H

#include "engine/crew.h"

// expert_route writes the choices of one token, ascending by expert, from its router logits (n_experts), which it overwrites. The logits are
// finite.
void expert_route(float *logits, int32_t n_experts, int32_t n_used, struct expert_choice *out);

// expert_ffn_block computes what the second half of a layer adds, into delta. A member of a group computes its own experts only, into chosen_out,
// and expert_ffn_add adds all of them to delta when the others' are there. False: weights could not be had.
bool expert_ffn_block(struct hand *h, int32_t layer);
void expert_ffn_add(struct hand *h);

#endif
