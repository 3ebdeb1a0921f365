// A stage of a real model at work, for measuring: private to engine/probe. What norms, attention, barriers and small matrices cost beside the products
// is in the time of a visit, and only a real one has it all.
//
// Some layers of the model, as many as pass the caches; their pages come from the disk once, layer by layer. One thread, the pool's owner, calls it.
#ifndef HEARTH_ENGINE_PROBE_STAGE_H
#define HEARTH_ENGINE_PROBE_STAGE_H

#include "base/err.h"
#include "engine/probe_products.h"
#include "kernels/kernels.h"
#include "kernels/pool.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct probe_stage;

// probe_stage_layer_bytes returns what one token reads of a layer's weights (of experts, those that it uses), and adds it up by type when by_type is
// not NULL (DTYPE_ID_MAX + 1 places). probe_stage_layer_flop is the arithmetic of one token.
uint64_t probe_stage_layer_bytes(const struct model *m, int32_t layer, uint64_t *by_type);
uint64_t probe_stage_layer_flop(const struct model *m, int32_t layer);

// probe_stage_open takes the first layers, of about `bytes` together. ERR_UNSUPPORTED, ERR_NOMEM.
MUST_USE enum err probe_stage_open(const struct model *m, const struct kernels *k, struct pool *pool, uint64_t bytes, struct probe_stage **out, struct errmsg *em);
void probe_stage_close(struct probe_stage *s); // NULL is allowed
int32_t probe_stage_n_layers(const struct probe_stage *s);
const uint64_t *probe_stage_bytes_by_type(const struct probe_stage *s); // (DTYPE_ID_MAX + 1), of all its layers
// probe_stage_warm computes one token in one layer (from 0), which brings its weights into memory; returns nanoseconds, 0: it failed.
int64_t probe_stage_warm(struct probe_stage *s, int32_t layer);
// probe_stage_decode computes one token in all layers; nanoseconds, 0: it failed.
int64_t probe_stage_decode(struct probe_stage *s);
// probe_stage_visit computes one token in few layers, at once or after a rest in which threads fall asleep; likewise.
int64_t probe_stage_visit(struct probe_stage *s, bool rested);
// probe_stage_prefill computes n_tokens of a prompt in one layer (from 0), n_tokens at most PROBE_BATCH; likewise.
int64_t probe_stage_prefill(struct probe_stage *s, int32_t layer, int32_t n_tokens);

#endif
