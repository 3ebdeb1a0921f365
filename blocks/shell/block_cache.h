// The cache of model blocks on this machine's disk: one directory, a folder in it for each model, a quota for all of them.
//
//   DIR/lock                 held while models are opened, room is made, or the cache is looked after
//   DIR/<manifest hash>/     64 hexadecimal digits
//     manifest               blocks/manifest.h; written under another name, fsynced, renamed
//     weights                a file of the model's length, with holes where a block is missing (block_store.h)
//     lock                   held shared by every process that uses the model; its time of change is when one last began to
//
// Directories have mode 0700, files 0600: whoever can write them could not make us compute with wrong weights (every block is checked against
// the manifest, which came from the coordinator), but could fill the disk. A directory of another user, or open to others, is refused.
// Several processes of one user may share the cache: what one fetched is there for the others.
//
// Room is made by removing whole models that no process uses, the least recently used first. Any thread; calls of several processes at once
// exclude each other by the lock.
#ifndef HEARTH_BLOCKS_SHELL_BLOCK_CACHE_H
#define HEARTH_BLOCKS_SHELL_BLOCK_CACHE_H

#include "base/err.h"
#include "blocks/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCK_CACHE_PATH_CAP 1024
#define BLOCK_CACHE_FILE_CAP (BLOCK_CACHE_PATH_CAP + 2 * BLOCK_HASH_BYTES + 16) // of a file in a model's folder
#define BLOCK_CACHE_MODELS_MAX 256

struct block_cache {
	char path[BLOCK_CACHE_PATH_CAP];
	uint64_t bytes_max; // quota; 0: what the disk has
};

// block_cache_open makes the directory where it is missing, parents too. ERR_AUTH: another user's, or open to others.
MUST_USE enum err block_cache_open(const char *path, uint64_t bytes_max, struct block_cache *c, struct errmsg *em);

// block_cache_lock waits for the cache's lock; *fd is to be closed.
MUST_USE enum err block_cache_lock(const struct block_cache *c, int *fd, struct errmsg *em);
// block_cache_file writes the path of a file of a model.
void block_cache_file(const struct block_cache *c, const uint8_t manifest_hash[BLOCK_HASH_BYTES], const char *name, char path[BLOCK_CACHE_FILE_CAP]);

struct block_cache_model {
	uint8_t manifest_hash[BLOCK_HASH_BYTES];
	uint64_t bytes;     // on disk
	int64_t used_s;     // unix seconds; 0: not known
	bool is_in_use;     // by some process
};

// block_cache_list finds the models, the least recently used first; those beyond cap are left out. Nothing is read of them.
MUST_USE enum err block_cache_list(const struct block_cache *c, struct block_cache_model *models, size_t cap, size_t *n, struct errmsg *em);
// block_cache_remove removes a model that no process uses, under the cache's lock, which the caller holds. ERR_BUSY: one does.
MUST_USE enum err block_cache_remove(const struct block_cache *c, const uint8_t manifest_hash[BLOCK_HASH_BYTES], struct errmsg *em);
// block_cache_missing returns how many bytes are too few for `bytes` more: by the quota, or by what the disk has left; 0: there is room.
MUST_USE enum err block_cache_missing(const struct block_cache *c, uint64_t bytes, uint64_t *missing, struct errmsg *em);

#endif
