// One block compressed with zstd, and back: into a buffer of fixed size, whatever the bytes say. One struct per thread at a time.
#ifndef HEARTH_BLOCKS_SHELL_BLOCK_ZIP_H
#define HEARTH_BLOCKS_SHELL_BLOCK_ZIP_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct block_zip; // the memory of a compressor and a decompressor

MUST_USE enum err block_zip_open(struct block_zip **out, struct errmsg *em);
void block_zip_close(struct block_zip *z); // NULL is allowed
// block_zip_pack returns the length of the compressed block, 0 when it does not fit `cap` (it did not shrink).
size_t block_zip_pack(struct block_zip *z, const uint8_t *data, size_t len, uint8_t *out, size_t cap);
// block_zip_unpack: ERR_FORMAT unless the bytes are one whole frame, with no window beyond a block's, that says it holds exactly `len` bytes and does.
MUST_USE enum err block_zip_unpack(struct block_zip *z, const uint8_t *data, size_t data_len, uint8_t *out, size_t len);

#endif
