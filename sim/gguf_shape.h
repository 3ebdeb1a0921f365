// A model file as the cost model sees it: the bytes of each layer as they are in the file, arithmetic from the dimensions.
#ifndef HEARTH_SIM_GGUF_SHAPE_H
#define HEARTH_SIM_GGUF_SHAPE_H

#include "base/err.h"
#include "base/wire_type.h"
#include "model/hparams.h"
#include "partition/cluster.h"

#include <stdint.h>

struct gguf;

// gguf_shape_of fills everything but the layers' bytes. What hparams_read says; ERR_NOT_FOUND: no output head.
MUST_USE enum err gguf_shape_of(
	const struct gguf *g, enum wire_type wire, struct hparams *hp, struct model_shape *out, struct errmsg *em);
// gguf_shape_layers fills `bytes` (n_layers), which the shape borrows from then on, and the largest of them.
void gguf_shape_layers(const struct gguf *g, uint64_t *bytes, struct model_shape *s);

#endif
