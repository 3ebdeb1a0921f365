// Builds GGUF files in memory for tests: well-formed ones, and hostile ones in which any field can be overwritten afterwards.
//
// Order of calls: begin, all keys, all tensors, begin_data, bytes of the data, finish. Memory grows as needed; running out of it
// aborts (this is a test). gguf_build_free releases it.
#ifndef HEARTH_TESTS_SUPPORT_GGUF_BUILD_H
#define HEARTH_TESTS_SUPPORT_GGUF_BUILD_H

#include "base/dtype.h"
#include "model/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Where an integer field of the header lies, so that a test can set each to each hostile value.
struct gguf_build_field {
	size_t at;
	int bytes; // 4 or 8
};

struct gguf_build {
	uint8_t *data; // (len), owned
	size_t len;
	size_t cap;
	uint64_t n_kv;
	uint64_t n_tensors;
	uint32_t alignment;     // 32 unless set before begin_data
	uint64_t next_offset;   // of the next tensor's data
	size_t data_at;         // where the data section starts, after begin_data
	struct gguf_build_field *fields; // (n_fields), owned
	size_t n_fields;
	size_t fields_cap;
};

void gguf_build_begin(struct gguf_build *b, uint32_t version);
void gguf_build_free(struct gguf_build *b);

// Raw appends. u32 and u64 are remembered as fields.
void gguf_build_bytes(struct gguf_build *b, const void *data, size_t len);
void gguf_build_u32(struct gguf_build *b, uint32_t v);
void gguf_build_u64(struct gguf_build *b, uint64_t v);
void gguf_build_f32(struct gguf_build *b, float v);
void gguf_build_string(struct gguf_build *b, const char *s, size_t len);

// gguf_build_key appends a key and its value type, counts it, and leaves the value to the caller.
void gguf_build_key(struct gguf_build *b, const char *key, uint32_t type);
void gguf_build_kv_u32(struct gguf_build *b, const char *key, uint32_t v);
void gguf_build_kv_f32(struct gguf_build *b, const char *key, float v);
void gguf_build_kv_bool(struct gguf_build *b, const char *key, bool v);
void gguf_build_kv_str(struct gguf_build *b, const char *key, const char *v);
void gguf_build_kv_strs(struct gguf_build *b, const char *key, const char *const *v, size_t n);
void gguf_build_kv_i32s(struct gguf_build *b, const char *key, const int32_t *v, size_t n);

// gguf_build_tensor declares a tensor behind the ones before it. gguf_build_tensor_raw takes every field as it is.
void gguf_build_tensor(struct gguf_build *b, const char *name, enum dtype type, uint64_t cols, uint64_t rows);
void gguf_build_tensor_raw(struct gguf_build *b, const char *name, size_t name_len, uint32_t n_dims, const uint64_t *dims, uint32_t type,
	uint64_t offset);
// gguf_build_begin_data pads to the alignment: the header ends here.
void gguf_build_begin_data(struct gguf_build *b);
// gguf_build_zeros appends zeros up to the end of the last tensor that was declared.
void gguf_build_zeros(struct gguf_build *b);
// gguf_build_finish writes the counts into the head.
void gguf_build_finish(struct gguf_build *b);

// A tiny llama model with random weights and a byte-level vocabulary: ids 0 to 2 are <|endoftext|>, <|im_start|> (BOS) and
// <|im_end|> (EOS), 3 + b is byte b, then merged tokens, then unused ones. Weights depend on the seed alone, and tools/make_tiny_model.py
// writes the same bytes for the same parameters (not of q5_0, q5_1 and the K types, which are only here).
#define TINY_VOCAB_MIN 259
#define TINY_TYPES_MAX 8
struct tiny_llama {
	uint64_t seed;
	int32_t n_layers, hidden_dim, ffn_dim, n_heads, n_kv_heads, vocab_size, ctx_len;
	enum dtype types[TINY_TYPES_MAX]; // matrix i of the file has types[i % n_types]
	int32_t n_types;
	enum dtype embd_type;             // of token_embd and output
	bool untied;                      // has output.weight
	bool biases;                      // has q, k and v biases
};
// tiny_llama_default: 4 layers, hidden 64, ffn 160, 4 heads, 2 kv heads, 320 tokens, 512 positions, all matrices q4_1, embedding q8_0, tied.
struct tiny_llama tiny_llama_default(uint64_t seed);
void gguf_build_tiny_llama(struct gguf_build *b, const struct tiny_llama *t);
// gguf_build_tiny_llama_file writes it to a file; it aborts when that fails.
void gguf_build_tiny_llama_file(const char *path, const struct tiny_llama *t);

#endif
