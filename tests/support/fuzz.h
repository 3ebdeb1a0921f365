// What fuzz targets share. Unprefixed and inline, as in coord_host.h. The order in which bytes of an input are taken is what makes a
// corpus worth keeping: change nothing in it.
#ifndef HEARTH_TESTS_SUPPORT_FUZZ_H
#define HEARTH_TESTS_SUPPORT_FUZZ_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_RAW_MAX 255

// require ends the process, which the fuzzer reports with the input.
static inline void require(bool ok)
{
	if (!ok)
		abort();
}

// exact_copy returns the bytes on a heap block of their own size, so that a read past the end is seen; the caller frees it.
static inline uint8_t *exact_copy(const void *data, size_t len)
{
	uint8_t *copy = malloc(len > 0 ? len : 1);
	require(copy != NULL);
	if (len > 0)
		memcpy(copy, data, len);
	return copy;
}

// take_raw takes a byte of length, then so many bytes or what is left of the input.
static inline size_t take_raw(struct reader *r, uint8_t out[FUZZ_RAW_MAX])
{
	size_t len = reader_u8(r);
	len = len < r->left ? len : r->left;
	if (len > 0)
		memcpy(out, reader_take(r, len), len);
	return len;
}

// A link, and the one that had its place before and is still up; 0: none.
struct fuzz_link {
	uint32_t now, old;
};

static inline void fuzz_link_up(struct fuzz_link *l, uint32_t handle)
{
	l->old = l->now;
	l->now = handle;
}

// fuzz_link_down forgets the link, or the one before it when `old`, and returns its handle.
static inline uint32_t fuzz_link_down(struct fuzz_link *l, bool old)
{
	uint32_t *which = old ? &l->old : &l->now, handle = *which;
	*which = 0;
	return handle;
}

// fuzz_link_pick returns the handle that a frame comes on.
static inline uint32_t fuzz_link_pick(const struct fuzz_link *l, bool on_old)
{
	return on_old && l->old != 0 ? l->old : l->now;
}

#endif
