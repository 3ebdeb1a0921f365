// Hyper-parameters in our vocabulary (STYLE.md), checked against each other. Pure: the planner and the cores include this.
#ifndef HEARTH_MODEL_HPARAMS_H
#define HEARTH_MODEL_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

enum arch { ARCH_LLAMA };

struct hparams {
	enum arch arch;
	int32_t n_layers;      // 1 .. LAYERS_MAX
	int32_t hidden_dim;
	int32_t ffn_dim;
	int32_t n_heads;
	int32_t n_kv_heads;    // divides n_heads
	int32_t head_dim;      // of q, k and v
	int32_t rope_dim;      // even, <= head_dim
	int32_t vocab_size;
	int32_t ctx_len_train; // tokens the model was trained for
	float norm_eps;
	double rope_theta;
	bool tied_embeddings;  // no output.weight: the head uses token_embd.weight
};

#endif
