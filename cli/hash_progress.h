// The model file's hash, with progress on a terminal: 70 GB take a minute, and only the first time.
#ifndef HEARTH_CLI_HASH_PROGRESS_H
#define HEARTH_CLI_HASH_PROGRESS_H

#include "base/err.h"
#include "model/file_hash.h"

MUST_USE enum err hash_with_progress(const char *path, const char *cache_path, uint8_t out[FILE_HASH_BYTES], struct errmsg *em);

#endif
