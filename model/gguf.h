// GGUF, versions 2 and 3: the container, parsed from bytes that nobody vouches for.
//
// Parsing is apart from opening: gguf_parse works on memory (a mapping, a fuzzer's buffer) and never copies the data it
// describes. Strings and arrays are borrowed from that memory, which must outlive the struct; heap use stays below
// 6 x header bytes + 1 MiB. Read-only after parsing and safe for concurrent readers.
// Source: the GGUF specification in the ggml repository.
#ifndef HEARTH_MODEL_GGUF_H
#define HEARTH_MODEL_GGUF_H

#include "base/dtype.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gguf_type { // metadata value types, ids as in the file
	GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64,
};

struct gguf_str {
	const char *data; // not NUL-terminated
	size_t len;
};

struct gguf_kv {
	struct gguf_str key;
	enum gguf_type type;
	enum gguf_type elem_type; // of an array
	uint64_t n_elems;         // of an array; 1 otherwise
	const uint8_t *data;      // first byte of the value (or of the first element)
	size_t data_bytes;
};

struct gguf_tensor {
	struct gguf_str name;   // 1 to 63 bytes
	enum dtype type;
	uint32_t n_dims;        // 1 to 4
	uint64_t dims[4];       // dims[0] is the row length (cols); unused ones are 1
	uint64_t offset;        // from the start of the data section
	size_t bytes;
	const uint8_t *data;    // aligned to `alignment` from the file's start; NULL from gguf_parse_header
};

struct gguf {
	uint32_t version;
	uint32_t alignment;
	uint64_t n_kv;
	const struct gguf_kv *kvs;
	uint64_t n_tensors;
	const struct gguf_tensor *tensors;
	uint64_t data_offset;   // where the data section starts
	uint64_t file_bytes;
	void *owned;            // the parser's heap
};

// gguf_parse reads the whole container in data[0..len). Errors name byte offset and field, what was found and what was wanted:
// ERR_FORMAT, ERR_UNSUPPORTED (a version or tensor type this program does not know), ERR_LIMIT (base/limits.h), ERR_NOMEM. On
// failure the caller owes nothing. Tensors may lie in any order and with gaps, but never overlap, and all lie in the file; bytes
// behind the last one are ignored. Keys and tensor names are unique and hold no NUL.
MUST_USE enum err gguf_parse(const void *data, size_t len, struct gguf *out, struct errmsg *em);
// gguf_parse_header is the same for a file of file_bytes of which only the first len are here: they must hold the header. Tensors have no
// data.
MUST_USE enum err gguf_parse_header(const void *data, size_t len, uint64_t file_bytes, struct gguf *out, struct errmsg *em);
void gguf_deinit(struct gguf *g); // safe on a zeroed struct

// gguf_type_name returns "u8" ... "string", "array"; "?" for an id that is none.
const char *gguf_type_name(enum gguf_type t);
bool gguf_type_is_signed(enum gguf_type t); // an integer type with negative values

// gguf_find returns the key's entry, or NULL. Hashed: constant time.
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

// Typed reads. ERR_NOT_FOUND when the key is missing, ERR_FORMAT when it has another type (the message says which). Any
// unsigned or non-negative integer type serves as u64.
MUST_USE enum err gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct errmsg *em);
MUST_USE enum err gguf_get_f64(const struct gguf *g, const char *key, double *out, struct errmsg *em);
MUST_USE enum err gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct errmsg *em);
MUST_USE enum err gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct errmsg *em);

// gguf_elem_u64 and gguf_elem_f64 read element i of an array, or (i == 0) a single value: false when the type does not fit, as above.
bool gguf_elem_u64(const struct gguf_kv *kv, uint64_t i, uint64_t *out);
bool gguf_elem_f64(const struct gguf_kv *kv, uint64_t i, double *out);

// A walk over an array of strings: start with gguf_strings_init, then gguf_strings_next until it returns false.
struct gguf_strings {
	const uint8_t *at;
	uint64_t left; // strings to come
};
MUST_USE enum err gguf_strings_init(const struct gguf *g, const char *key, struct gguf_strings *it, struct errmsg *em);
bool gguf_strings_next(struct gguf_strings *it, struct gguf_str *out);

#endif
