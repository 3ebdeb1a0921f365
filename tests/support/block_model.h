// A made model of a few blocks and its manifest, for tests of blocks/. Unprefixed and inline, as in coord_host.h.
#ifndef HEARTH_TESTS_SUPPORT_BLOCK_MODEL_H
#define HEARTH_TESTS_SUPPORT_BLOCK_MODEL_H

#include "blocks/manifest.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_BLOCK 4096u

// Layers of two tensors each, behind a header; every byte depends on `seed`. Freed with block_model_close.
struct block_model {
	uint8_t *bytes;    // (n_bytes) of the file
	uint8_t *manifest; // (manifest_len) encoded
	size_t n_bytes, manifest_len;
	struct manifest m;
};

static inline uint32_t block_model_word(uint32_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 17;
	*x ^= *x << 5;
	return *x;
}

// block_model_open makes a file of header_bytes, then two tensors of tensor_bytes for each layer, then tail_bytes of no tensor.
static inline void block_model_open(struct block_model *b, uint32_t seed, int32_t n_layers, size_t header_bytes, size_t tensor_bytes, size_t tail_bytes)
{
	uint32_t x = seed * 2654435761u + 1;
	*b = (struct block_model){.n_bytes = header_bytes + 2 * (size_t)n_layers * tensor_bytes + tail_bytes};
	b->bytes = malloc(b->n_bytes);
	for (size_t i = 0; i < b->n_bytes; i++)
		b->bytes[i] = (uint8_t)block_model_word(&x);
	uint8_t model_hash[BLOCK_HASH_BYTES];
	if (sodium_init() < 0)
		abort();
	crypto_generichash(model_hash, sizeof model_hash, b->bytes, b->n_bytes, NULL, 0);
	struct manifest_facts f = {.model_hash = model_hash, .file_bytes = b->n_bytes, .header_bytes = header_bytes, .block_bytes = MODEL_BLOCK, .name = "made.gguf",
		.n_tensors = 2 * (uint32_t)n_layers};
	char name[32];
	for (int32_t i = 0; i < 2 * n_layers; i++)
		f.tensor_names_len += (size_t)snprintf(name, sizeof name, "blk.%d.%s", (int)(i / 2), i % 2 == 0 ? "a" : "b");
	b->manifest_len = manifest_size(&f);
	b->manifest = malloc(b->manifest_len);
	struct writer w = writer_init(b->manifest, b->manifest_len);
	uint8_t *hash = manifest_write(&f, &w);
	for (size_t at = 0; at < b->n_bytes; at += MODEL_BLOCK, hash += BLOCK_HASH_BYTES)
		crypto_generichash(hash, BLOCK_HASH_BYTES, b->bytes + at, b->n_bytes - at < MODEL_BLOCK ? b->n_bytes - at : MODEL_BLOCK, NULL, 0);
	for (int32_t i = 0; i < 2 * n_layers; i++) {
		int len = snprintf(name, sizeof name, "blk.%d.%s", (int)(i / 2), i % 2 == 0 ? "a" : "b");
		manifest_put_tensor(&w, &(struct manifest_tensor){.offset = header_bytes + (size_t)i * tensor_bytes, .bytes = tensor_bytes, .name = name, .name_len = (size_t)len});
	}
	struct errmsg em;
	if (w.failed || w.len != b->manifest_len || manifest_parse(b->manifest, b->manifest_len, &b->m, &em) != OK)
		abort();
}

static inline void block_model_close(struct block_model *b)
{
	free(b->bytes);
	free(b->manifest);
}

// block_model_block returns the bytes of block i.
static inline const uint8_t *block_model_block(const struct block_model *b, uint32_t i)
{
	return b->bytes + (size_t)i * MODEL_BLOCK;
}

#endif
