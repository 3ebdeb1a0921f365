// What one process may take (--mem), parted among everything that takes memory. Pure: the caller measures, this adds, compares and chooses.
//
// The cap covers the whole process: what is resident of the program and of its libraries, frames, states kept for a lost neighbour,
// activations, KV cache, weights. What is left for weights is what everything else leaves. Memory of our own (not of files) stays
// MEMORY_ANON_ROOM below the cap: the kernel charges a container for page tables and sockets, and can drop only pages of files.
#ifndef HEARTH_ENGINE_MEMORY_BUDGET_H
#define HEARTH_ENGINE_MEMORY_BUDGET_H

#include "base/err.h"

#include <stdint.h>

#define MEMORY_ANON_ROOM (UINT64_C(32) << 20)
#define MEMORY_CTX_STEP 64    // a context that is chosen is a multiple of it
#define MEMORY_CHUNK_LEAST 16 // tokens of a step: fewer make a prompt slow and save little

// Bytes, at one context length and chunk.
struct memory_needs {
	uint64_t program_anon, program_file;  // measured, and room for what is started later
	uint64_t frames;                      // buffers and queues of hidden states
	uint64_t kept;                        // states kept for a lost neighbour, and those on their way to disk
	uint64_t blocks;                      // the model's blocks on their way to other machines
	uint64_t compute;                     // activations, logits, scratch
	uint64_t packed;                      // weights in memory of our own, whatever the cap
	uint64_t kv;
	uint64_t head_whole, head_least;      // the output head's weights: all, and with less it cannot compute
	uint64_t layers_whole, layers_least;  // the layers' on this machine
};

struct memory_request {
	uint64_t cap;
	int32_t ctx_given, ctx_default; // ctx_given 0: choose, at most ctx_default
	int32_t chunk_given, chunk_default;
	// measure fills *out for a context and chunk.
	enum err (*measure)(void *ctx, int32_t ctx_len, int32_t chunk, struct memory_needs *out, struct errmsg *em);
	void *ctx;
};

// For weights: of all readers together, and of one whose memory is our own.
struct memory_share {
	uint64_t bytes, anon_bytes;
};

struct memory_budget {
	uint64_t cap;
	int32_t ctx_len, chunk;
	struct memory_needs needs;
	struct memory_share head, layers;
};

// memory_budget_make chooses chunk and context, and what weights may take. Where not everything fits, the KV cache of a chosen context takes
// at most a quarter of what weights and it have together. ERR_LIMIT: it does not fit; the message has every part, the sum, the cap
// and the largest context that would, or the cap that the smallest takes.
MUST_USE enum err memory_budget_make(const struct memory_request *q, struct memory_budget *out, struct errmsg *em);

// memory_needs_rest returns the sum of everything but weights, memory_needs_anon what of it is our own.
uint64_t memory_needs_rest(const struct memory_needs *n);
uint64_t memory_needs_anon(const struct memory_needs *n);

#define MEMORY_TEXT_CAP 320
// memory_needs_print writes the parts for a person: "program 21.3 MiB, ...".
void memory_needs_print(const struct memory_needs *n, char out[MEMORY_TEXT_CAP]);

#endif
