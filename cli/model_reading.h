// A model file of this machine's own, known by its hash: from an earlier time, or read now, with progress. 70 GB take a minute, and only once.
#ifndef HEARTH_CLI_MODEL_READING_H
#define HEARTH_CLI_MODEL_READING_H

#include "base/err.h"
#include "base/log.h"
#include "model/model.h"
#include "net/loop.h"
#include "proto/msg.h"

#include <stdbool.h>

#define KNOWN_DIR_CAP 1024

// known_dir_resolve writes where what is known of model files is kept; false: there is no place for a cache.
bool known_dir_resolve(const char *cache_flag, char out[KNOWN_DIR_CAP]);
// model_reading_hash runs the loop meanwhile. ERR_CANCELLED: is_interrupted said so.
MUST_USE enum err model_reading_hash(struct loop *loop, const struct log *log, const struct model *m, const char *known_dir, bool (*is_interrupted)(void *ctx), void *ctx,
	uint8_t out[HASH_BYTES], struct errmsg *em);

#endif
