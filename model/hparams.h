// Hyper-parameters in our vocabulary (STYLE.md), checked against each other. The struct is pure: the planner and the cores
// include this. hparams_read is for whoever has a container; it is in model/hparams.c.
#ifndef HEARTH_MODEL_HPARAMS_H
#define HEARTH_MODEL_HPARAMS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;

enum arch { ARCH_LLAMA, ARCH_QWEN3MOE };

struct hparams {
	enum arch arch;
	int32_t n_layers;      // 1 .. LAYERS_MAX
	int32_t hidden_dim;
	int32_t ffn_dim;       // of one expert, when there are experts
	int32_t n_heads;
	int32_t n_kv_heads;    // divides n_heads
	int32_t head_dim;      // of q, k and v
	int32_t rope_dim;      // even, <= head_dim
	int32_t vocab_size;
	int32_t n_experts;     // of each layer; 0: one feed-forward network, always used
	int32_t n_experts_used; // by each token, 1 .. n_experts; 0 with n_experts
	int32_t ctx_len_train; // tokens the model was trained for
	float norm_eps;
	double rope_theta;
	bool tied_embeddings;  // no output.weight: the head uses token_embd.weight
};

// hparams_read takes them from a container and checks them. ERR_UNSUPPORTED names an architecture, or a feature of one (shared experts,
// RoPE scaling, layers that differ), that this program does not run; ERR_NOT_FOUND and ERR_FORMAT name the key.
MUST_USE enum err hparams_read(const struct gguf *g, struct hparams *out, struct errmsg *em);
// hparams_features lists what a file of a known architecture asks for and this program does not compute: one message for each, at most cap
// of them; returns how many. hparams_read stops at the first.
size_t hparams_features(const struct gguf *g, struct errmsg *list, size_t cap);
// hparams_check tells whether the numbers fit each other and our limits (ERR_FORMAT, ERR_LIMIT): also for those that came from a peer.
MUST_USE enum err hparams_check(const struct hparams *hp, struct errmsg *em);
const char *arch_name(enum arch a);

// What architectures differ in, beside their tensors. llama (also with experts, as Mixtral): plain q and k, RoPE turns pairs of neighbours.
// qwen3moe: q and k are normed by head, RoPE turns element i of a head with element i + rope_dim / 2. Routers of both: softmax over all
// experts, the chosen ones' weights made to sum to 1.
bool arch_has_qk_norm(enum arch a);
bool arch_rope_is_halves(enum arch a);

#endif
