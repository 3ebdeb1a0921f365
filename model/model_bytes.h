// Where a model's bytes are: how many each layer and the output head have, and of which type most of them, o and down are. For whoever counts what a
// machine would read, without a look at a weight. Pure.
#ifndef HEARTH_MODEL_MODEL_BYTES_H
#define HEARTH_MODEL_MODEL_BYTES_H

#include "base/dtype.h"
#include "base/limits.h"
#include "model/gguf.h"

#include <stdint.h>

struct model_bytes {
	uint64_t head;               // of the matrix that gives logits: tied embeddings count here; 0: there is none
	uint64_t experts;            // of all layers, in matrices of experts
	enum dtype type;             // with the most bytes
	uint64_t layers[LAYERS_MAX]; // (n_layers) all tensors of a layer, experts too
	enum dtype o[LAYERS_MAX], down[LAYERS_MAX]; // (n_layers) types of the products that members of a group share (base/tensor_split.h); f32 where there is none
};

// model_bytes_of: tensors of layers beyond n_layers (at most LAYERS_MAX) count nowhere.
void model_bytes_of(const struct gguf *g, int32_t n_layers, struct model_bytes *out);

#endif
