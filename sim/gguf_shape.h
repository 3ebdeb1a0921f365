// A model file as the cost model sees it: the bytes of each layer as they are in the file, arithmetic from the dimensions.
#ifndef HEARTH_SIM_GGUF_SHAPE_H
#define HEARTH_SIM_GGUF_SHAPE_H

#include "base/err.h"
#include "base/wire_type.h"
#include "model/hparams.h"
#include "partition/cluster.h"

#include <stdint.h>

struct gguf;

// gguf_shape_of reads the dimensions, and what follows from them alone. What hparams_read says.
MUST_USE enum err gguf_shape_of(
	const struct gguf *g, enum wire_type wire, struct hparams *hp, struct model_shape *out, struct errmsg *em);
// gguf_shape_layers then counts the file's bytes: `bytes` (n_layers) are the caller's, and the shape borrows them from then on. ERR_NOT_FOUND: no
// output head.
MUST_USE enum err gguf_shape_layers(const struct gguf *g, uint64_t *bytes, struct model_shape *s, struct errmsg *em);

#endif
