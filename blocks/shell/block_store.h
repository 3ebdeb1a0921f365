// One model in the cache: a file of the model's length in which the blocks that are here lie at their places, and the rest is holes. An engine maps
// it, or reads it past the page cache, as if it were the model.
//
// What is here proves itself: a block counts when its bytes match the manifest's hash, and every process looks once before it uses one. So there
// is no list that could disagree with the file, and nothing to write in order: a crash, a torn write or a flipped bit make a block missing, and
// it is fetched again. block_store_sync is for speed after a power cut, not for truth. Holes are known without reading.
//
// Blocks are written by any process that uses the model, always with the same bytes. Nobody takes one away while another process uses the model.
// All functions but open and close may run on any thread, several at once; which blocks are known to be good is the caller's to remember.
#ifndef HEARTH_BLOCKS_SHELL_BLOCK_STORE_H
#define HEARTH_BLOCKS_SHELL_BLOCK_STORE_H

#include "base/err.h"
#include "blocks/block_set.h"
#include "blocks/manifest.h"
#include "blocks/shell/block_cache.h"

#include <stddef.h>
#include <stdint.h>

struct block_store;

// block_store_open opens the model of this manifest, whose bytes it copies, and makes its folder where it is missing. `c` is borrowed.
MUST_USE enum err block_store_open(const struct block_cache *c, const uint8_t *manifest, size_t len, struct block_store **out, struct errmsg *em);
// block_store_find opens a model that is in the cache by its manifest's hash. ERR_NOT_FOUND; ERR_FORMAT: its manifest is damaged.
MUST_USE enum err block_store_find(const struct block_cache *c, const uint8_t manifest_hash[BLOCK_HASH_BYTES], struct block_store **out, struct errmsg *em);
// block_store_peek is the same for who only looks: the time of use stays what it was.
MUST_USE enum err block_store_peek(const struct block_cache *c, const uint8_t manifest_hash[BLOCK_HASH_BYTES], struct block_store **out, struct errmsg *em);
void block_store_close(struct block_store *s); // NULL is allowed

const struct manifest *block_store_manifest(const struct block_store *s);
const uint8_t *block_store_manifest_bytes(const struct block_store *s, size_t *len);
const char *block_store_path(const struct block_store *s); // of the weights

// block_store_present adds the blocks that are no holes: here perhaps. ERR_IO.
MUST_USE enum err block_store_present(const struct block_store *s, struct block_set *out, struct errmsg *em);
// block_store_read reads a block into buf (block_bytes) and checks it. ERR_NOT_FOUND: a hole; ERR_FORMAT: it is not what the manifest says
// (em names file and offset); ERR_IO.
MUST_USE enum err block_store_read(const struct block_store *s, uint32_t block, uint8_t *buf, struct errmsg *em);
// block_store_write writes a block whose bytes are known to match. ERR_LIMIT: the disk is full; ERR_IO.
MUST_USE enum err block_store_write(const struct block_store *s, uint32_t block, const uint8_t *data, struct errmsg *em);
MUST_USE enum err block_store_sync(const struct block_store *s, struct errmsg *em);
// block_store_drop makes holes of the blocks of a set. ERR_BUSY: another process uses the model.
MUST_USE enum err block_store_drop(const struct block_store *s, const struct block_set *blocks, struct errmsg *em);
// block_store_make_room frees what `bytes` more need: models that nobody uses first, then blocks of this one that are not in `keep`. ERR_LIMIT, with
// the arithmetic, when that is not enough: then nothing of this model was touched.
MUST_USE enum err block_store_make_room(const struct block_store *s, const struct block_set *keep, uint64_t bytes, struct errmsg *em);

// block_file_read reads a block of any file of the model's bytes, without looking at its hash: whoever gets it does. ERR_IO names file and offset.
MUST_USE enum err block_file_read(int fd, const char *path, const struct manifest *m, uint32_t block, uint8_t *buf, struct errmsg *em);

#endif
