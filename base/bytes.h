// Bytes: little-endian loads and stores, a bounded reader and a bounded writer, checked products.
//
// `struct reader` is the one forward cursor every parser of outside bytes uses: it never passes its end, and once a read
// fails every later one fails too, so a parser may check `reader_ok` once per record. `struct writer` is its mirror.
// Neither owns its memory.
#ifndef HEARTH_BASE_BYTES_H
#define HEARTH_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t load_u16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t load_u32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t load_u64(const uint8_t *p)
{
	return (uint64_t)load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
}

static inline void store_u16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static inline void store_u32(uint8_t *p, uint32_t v)
{
	store_u16(p, (uint16_t)v);
	store_u16(p + 2, (uint16_t)(v >> 16));
}

static inline void store_u64(uint8_t *p, uint64_t v)
{
	store_u32(p, (uint32_t)v);
	store_u32(p + 4, (uint32_t)(v >> 32));
}

// mul_size, add_size put the product or sum into *out and return true, or return false when it does not fit.
static inline bool mul_size(size_t a, size_t b, size_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}

static inline bool add_size(size_t a, size_t b, size_t *out)
{
	return !__builtin_add_overflow(a, b, out);
}

struct reader {
	const uint8_t *at; // next byte
	size_t left;       // bytes from `at` to the end
	bool failed;       // a read asked for more than was left
};

static inline struct reader reader_init(const void *data, size_t len)
{
	return (struct reader){.at = data, .left = len};
}

static inline bool reader_ok(const struct reader *r)
{
	return !r->failed;
}

// reader_take returns `len` bytes and moves past them, or NULL (and the reader has failed).
static inline const uint8_t *reader_take(struct reader *r, size_t len)
{
	if (r->failed || len > r->left) {
		r->failed = true;
		return NULL;
	}
	const uint8_t *p = r->at;
	r->at += len;
	r->left -= len;
	return p;
}

// The typed reads give 0 after a failure.
static inline uint8_t reader_u8(struct reader *r)
{
	const uint8_t *p = reader_take(r, 1);
	return p ? p[0] : 0;
}

static inline uint16_t reader_u16(struct reader *r)
{
	const uint8_t *p = reader_take(r, 2);
	return p ? load_u16(p) : 0;
}

static inline uint32_t reader_u32(struct reader *r)
{
	const uint8_t *p = reader_take(r, 4);
	return p ? load_u32(p) : 0;
}

static inline uint64_t reader_u64(struct reader *r)
{
	const uint8_t *p = reader_take(r, 8);
	return p ? load_u64(p) : 0;
}

struct writer {
	uint8_t *data; // (cap)
	size_t len;    // bytes written
	size_t cap;
	bool failed; // a write did not fit; `len` stays where it was
};

static inline struct writer writer_init(void *data, size_t cap)
{
	return (struct writer){.data = data, .cap = cap};
}

// writer_take returns room for `len` bytes, or NULL (and the writer has failed).
static inline uint8_t *writer_take(struct writer *w, size_t len)
{
	if (w->failed || len > w->cap - w->len) {
		w->failed = true;
		return NULL;
	}
	uint8_t *p = w->data + w->len;
	w->len += len;
	return p;
}

static inline void writer_bytes(struct writer *w, const void *data, size_t len)
{
	uint8_t *p = writer_take(w, len);
	if (p && len > 0)
		memcpy(p, data, len);
}

static inline void writer_u8(struct writer *w, uint8_t v)
{
	uint8_t *p = writer_take(w, 1);
	if (p)
		p[0] = v;
}

static inline void writer_u16(struct writer *w, uint16_t v)
{
	uint8_t *p = writer_take(w, 2);
	if (p)
		store_u16(p, v);
}

static inline void writer_u32(struct writer *w, uint32_t v)
{
	uint8_t *p = writer_take(w, 4);
	if (p)
		store_u32(p, v);
}

static inline void writer_u64(struct writer *w, uint64_t v)
{
	uint8_t *p = writer_take(w, 8);
	if (p)
		store_u64(p, v);
}

#endif
