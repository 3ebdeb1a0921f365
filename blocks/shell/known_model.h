// What this machine knows of model files on its own disk: their manifests, remembered so that a file is read and hashed once, whoever serves it.
//
//   DIR/<32 hexadecimal digits>       of a hash over what tells this very file apart: device, inode, size, time of change in nanoseconds
//     "HEARTHK1" | device u64 | inode u64 | size u64 | mtime ns u64 | path length u16, path | manifest (blocks/manifest.h) | BLAKE2b-256 of it all
//   DIR/<32 hexadecimal digits>.lock  held while one process reads the file: the others wait for what it finds
//
// Whoever replaces or writes a file changes one of the four. The directory is private (mode 0700) and trusted like it; what is malformed in it is
// made anew. At most KNOWN_MODELS_MAX files, the oldest goes first. Any thread, any process of one user.
#ifndef HEARTH_BLOCKS_SHELL_KNOWN_MODEL_H
#define HEARTH_BLOCKS_SHELL_KNOWN_MODEL_H

#include "base/err.h"
#include "blocks/shell/manifest_build.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KNOWN_MODELS_MAX 64
#define KNOWN_MODEL_PATH_CAP 1024 // of the directory, and of a model's path as it is remembered
#define KNOWN_MODEL_TAG_BYTES 32
#define KNOWN_MODEL_ID_BYTES 32 // what tells a file apart, as in the file

// known_model_tag tells a file apart on this machine as it is now, without reading it. ERR_NOT_FOUND, ERR_IO.
MUST_USE enum err known_model_tag(const char *path, uint8_t tag[KNOWN_MODEL_TAG_BYTES], struct errmsg *em);
// known_model_find gives the manifest of a file, the caller's to free. ERR_NOT_FOUND: it is not known as it is now.
MUST_USE enum err known_model_find(const char *dir, const char *path, uint8_t **manifest, size_t *len, struct errmsg *em);
// known_model_make finds it, or reads the file and remembers what it is; while another process reads it, it waits for that one. A directory that cannot be
// written is no error; dir NULL: nothing is remembered. Errors of manifest_build.
MUST_USE enum err known_model_make(const char *dir, const struct manifest_source *s, uint8_t **manifest, size_t *len, struct errmsg *em);

// What one file of the directory says; borrowed of its bytes.
struct known_model {
	const uint8_t *id; // (KNOWN_MODEL_ID_BYTES)
	char path[KNOWN_MODEL_PATH_CAP];
	const uint8_t *manifest;
	size_t manifest_len;
	struct manifest m;
};
// known_model_parse reads a file's bytes before that hash. Public for its fuzz target.
bool known_model_parse(const uint8_t *data, size_t len, struct known_model *out);

struct known_model_check {
	char path[KNOWN_MODEL_PATH_CAP];
	uint64_t file_bytes;
	uint32_t n_good, n_bad; // blocks
	bool is_gone;           // the file is not there any more, or another one is: forgotten, and nothing was read
};
// known_model_verify reads every known file again and tells of each; one that differs, or is not there, is forgotten.
MUST_USE enum err known_model_verify(const char *dir, void (*tell)(void *ctx, const struct known_model_check *c), void *ctx, struct errmsg *em);

#endif
