// A manifest made from a model file: every byte is read once, and hashed by blocks. 70 GB take a minute, so it is made once and kept.
#ifndef HEARTH_BLOCKS_SHELL_MANIFEST_BUILD_H
#define HEARTH_BLOCKS_SHELL_MANIFEST_BUILD_H

#include "base/err.h"
#include "blocks/manifest.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct manifest_source {
	const char *path;      // of the model file
	const uint8_t *model_hash;
	uint64_t file_bytes, header_bytes;
	uint32_t block_bytes;
	struct manifest_tensor *tensors; // (n_tensors), put in order here
	uint32_t n_tensors;
	const atomic_bool *is_cancelled; // NULL: never
};

// manifest_build gives bytes that the caller frees. ERR_CANCELLED; ERR_IO; ERR_LIMIT: the model is beyond what a manifest holds.
MUST_USE enum err manifest_build(const struct manifest_source *s, uint8_t **out, size_t *len, struct errmsg *em);

#endif
