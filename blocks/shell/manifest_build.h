// A manifest made from a model file: every byte is read once, and hashed by blocks, on several threads. 70 GB take a minute, so it is made once and
// kept (known_model.h).
#ifndef HEARTH_BLOCKS_SHELL_MANIFEST_BUILD_H
#define HEARTH_BLOCKS_SHELL_MANIFEST_BUILD_H

#include "base/err.h"
#include "base/log.h"
#include "blocks/manifest.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_BUILD_THREADS_MAX 8

// How far it is, for who asks from another thread.
struct manifest_progress {
	atomic_uint_least64_t bytes_done;
	atomic_bool is_cancelled; // set by who wants it to end
};

struct manifest_source {
	const char *path;      // of the model file
	uint64_t file_bytes, header_bytes;
	uint32_t block_bytes;
	struct manifest_tensor *tensors; // (n_tensors), put in order here
	uint32_t n_tensors;
	int32_t n_threads;     // 0: one
	struct manifest_progress *progress; // NULL: nobody asks
};

// manifest_build gives bytes that the caller frees. ERR_CANCELLED; ERR_IO; ERR_LIMIT: the model is beyond what a manifest holds; ERR_STATE: the file
// changed meanwhile.
MUST_USE enum err manifest_build(const struct manifest_source *s, uint8_t **out, size_t *len, struct errmsg *em);

// manifest_progress_log writes a line for a person: how much was read since begin_ns, how fast, how long it still takes. Any thread.
void manifest_progress_log(const struct log *log, const struct manifest_source *s, int64_t begin_ns, int64_t now_ns);
// manifest_build_threads: how many are worth it on this machine, which does other work besides.
int32_t manifest_build_threads(void);

#endif
