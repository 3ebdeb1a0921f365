#include "blocks/shell/block_zip.h"

#include "blocks/manifest.h"

#include <stdlib.h>
#include <zstd.h>

#define LEVEL 1           // weights are nearly noise: higher levels find nothing more, slower
#define WINDOW_LOG_MAX 20 // BLOCK_BYTES_MAX

_Static_assert(BLOCK_BYTES_MAX == 1 << WINDOW_LOG_MAX, "no window is longer than a block");

struct block_zip {
	ZSTD_CCtx *pack;
	ZSTD_DCtx *unpack;
};

enum err block_zip_open(struct block_zip **out, struct errmsg *em)
{
	struct block_zip *z = calloc(1, sizeof *z);
	*out = z;
	if (z != NULL) {
		z->pack = ZSTD_createCCtx();
		z->unpack = ZSTD_createDCtx();
	}
	if (z == NULL || z->pack == NULL || z->unpack == NULL || ZSTD_isError(ZSTD_DCtx_setParameter(z->unpack, ZSTD_d_windowLogMax, WINDOW_LOG_MAX))) {
		block_zip_close(z);
		*out = NULL;
		return errmsg_fail(em, ERR_NOMEM, "no memory for zstd");
	}
	return OK;
}

void block_zip_close(struct block_zip *z)
{
	if (z == NULL)
		return;
	ZSTD_freeCCtx(z->pack);
	ZSTD_freeDCtx(z->unpack);
	free(z);
}

size_t block_zip_pack(struct block_zip *z, const uint8_t *data, size_t len, uint8_t *out, size_t cap)
{
	size_t n = ZSTD_compressCCtx(z->pack, out, cap, data, len, LEVEL);
	return ZSTD_isError(n) ? 0 : n;
}

enum err block_zip_unpack(struct block_zip *z, const uint8_t *data, size_t data_len, uint8_t *out, size_t len)
{
	// Streaming, because only that heeds the cap on the window; the frame must end where the bytes end, and fill the block.
	if (ZSTD_getFrameContentSize(data, data_len) != len)
		return ERR_FORMAT;
	ZSTD_inBuffer in = {data, data_len, 0};
	ZSTD_outBuffer to = {out, len, 0};
	ZSTD_DCtx_reset(z->unpack, ZSTD_reset_session_only);
	size_t left = ZSTD_decompressStream(z->unpack, &to, &in);
	return !ZSTD_isError(left) && left == 0 && in.pos == data_len && to.pos == len ? OK : ERR_FORMAT;
}
