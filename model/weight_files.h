// Where the bytes of a model file are: in the file itself, or in other files (cached blocks) that hold parts of it.
//
// Everybody names weights by their place in the model file ("at"); this says which descriptor and offset that is. Owns nothing: files,
// paths, extents and the mapping belong to whoever made the table. Read-only once made, safe for concurrent readers.
#ifndef HEARTH_MODEL_WEIGHT_FILES_H
#define HEARTH_MODEL_WEIGHT_FILES_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weight_file {
	int fd;
	const char *path; // for messages, and to open it again without the page cache
};

// The model file's bytes [at, at + bytes) are those of `file` from `offset` on.
struct weight_extent {
	uint64_t at, bytes;
	int32_t file;
	uint64_t offset;
};

struct weight_files {
	const struct weight_file *files;     // (n_files)
	int32_t n_files;
	const struct weight_extent *extents; // (n_extents), ascending by `at`, without overlaps; what is in none of them is not here
	int32_t n_extents;
	const uint8_t *map;                  // the whole model file, mapped; NULL: it is not
};

// A part of one file.
struct weight_piece {
	int32_t file;
	uint64_t offset, bytes;
};

// weight_files_piece gives the first piece of the model file's bytes [at, at + bytes); the next begins `piece->bytes` later. ERR_NOT_FOUND:
// byte `at` is in no file.
MUST_USE enum err weight_files_piece(const struct weight_files *w, uint64_t at, uint64_t bytes, struct weight_piece *piece, struct errmsg *em);
// weight_files_read copies them all. ERR_IO names file and offset: a file that ends early, or a disk that fails.
MUST_USE enum err weight_files_read(const struct weight_files *w, uint64_t at, uint64_t bytes, void *out, struct errmsg *em);

#endif
