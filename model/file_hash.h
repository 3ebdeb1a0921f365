// The BLAKE2b-256 of a file, and a small cache of such hashes: members compare their model files by it.
//
// Hashing 70 GB takes a minute, so a hash is remembered under the file's device, inode, size and time of change in
// nanoseconds; whoever replaces or writes the file changes one of them. The cache is a convenience and trusted like the state
// directory it lies in (mode 0700); what is malformed in it is ignored, and written anew.
//
// Cache file: text, one line for each file, newest last, at most FILE_HASH_CACHE_MAX lines:
//   "hearth-file-hash-1\n", then "<device> <inode> <size> <mtime ns> <hash>\n": four decimal numbers and 64 lower-case hex digits.
// Replaced by rename, so that a reader never sees half of it. Two writers at once: one's line is lost, and hashed again next time.
#ifndef HEARTH_MODEL_FILE_HASH_H
#define HEARTH_MODEL_FILE_HASH_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define FILE_HASH_BYTES 32
#define FILE_HASH_CACHE_MAX 64 // files; the oldest line goes first

// A file_hash_progress_fn is told how far it is, about every 4 MiB and at the end, and returns false to stop.
typedef bool (*file_hash_progress_fn)(void *ctx, uint64_t done, uint64_t total);

// file_hash reads the whole file. `progress` may be NULL. ERR_NOT_FOUND, ERR_IO; ERR_CANCELLED when progress said so; ERR_STATE when the
// file changed while it was read.
MUST_USE enum err file_hash(const char *path, file_hash_progress_fn progress, void *ctx, uint8_t out[FILE_HASH_BYTES], struct errmsg *em);
// file_hash_cached answers from the cache file when it knows this very file, and adds it otherwise. A cache that cannot be read or
// written is no error: the hash is what was asked for.
MUST_USE enum err file_hash_cached(const char *path, const char *cache_path, file_hash_progress_fn progress, void *ctx,
	uint8_t out[FILE_HASH_BYTES], struct errmsg *em);

#endif
