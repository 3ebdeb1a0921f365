#include "blocks/block_set.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <string.h>

enum form { FORM_RUNS = 0, FORM_BITS = 1 };

void block_set_init(struct block_set *s, uint64_t *words, uint32_t n)
{
	*s = (struct block_set){.words = words, .n = n};
	block_set_clear(s);
}

void block_set_clear(struct block_set *s)
{
	if (s->n > 0)
		memset(s->words, 0, block_set_words(s->n) * sizeof *s->words);
}

void block_set_copy(struct block_set *to, const struct block_set *from)
{
	ASSERT(to->n == from->n);
	if (from->n > 0)
		memcpy(to->words, from->words, block_set_words(from->n) * sizeof *from->words);
}

void block_set_add_range(struct block_set *s, uint32_t begin, uint32_t end)
{
	ASSERT(begin <= end && end <= s->n);
	for (uint32_t i = begin; i < end;) {
		if (i % 64 == 0 && end - i >= 64) {
			s->words[i / 64] = UINT64_MAX;
			i += 64;
		} else {
			block_set_add(s, i++);
		}
	}
}

void block_set_join(struct block_set *to, const struct block_set *from)
{
	ASSERT(to->n == from->n);
	for (size_t i = 0; i < block_set_words(from->n); i++)
		to->words[i] |= from->words[i];
}

uint32_t block_set_count(const struct block_set *s)
{
	uint32_t n = 0;
	for (size_t i = 0; i < block_set_words(s->n); i++)
		n += (uint32_t)__builtin_popcountll(s->words[i]);
	return n;
}

uint32_t block_set_common(const struct block_set *a, const struct block_set *b)
{
	ASSERT(a->n == b->n);
	uint32_t n = 0;
	for (size_t i = 0; i < block_set_words(a->n); i++)
		n += (uint32_t)__builtin_popcountll(a->words[i] & b->words[i]);
	return n;
}

uint32_t block_set_next(const struct block_set *s, uint32_t from)
{
	for (size_t i = from / 64; from < s->n && i < block_set_words(s->n); i++) {
		uint64_t word = s->words[i];
		if (i == from / 64)
			word &= UINT64_MAX << (from % 64);
		if (word != 0)
			return (uint32_t)(i * 64 + (size_t)__builtin_ctzll(word));
	}
	return s->n;
}

// run_end returns where the run that begins at `at` ends.
static uint32_t run_end(const struct block_set *s, uint32_t at, bool is_in)
{
	if (!is_in)
		return block_set_next(s, at);
	while (at < s->n && block_set_has(s, at))
		at = at % 64 == 0 && s->words[at / 64] == UINT64_MAX ? at + 64 : at + 1;
	return at < s->n ? at : s->n;
}

static void put_run(struct writer *w, uint32_t v)
{
	for (; v >= 0x80; v >>= 7)
		writer_u8(w, (uint8_t)(v | 0x80));
	writer_u8(w, (uint8_t)v);
}

size_t block_set_encode(const struct block_set *s, uint8_t *out)
{
	size_t n_bytes = block_set_encoded_max(s->n);
	struct writer w = writer_init(out, n_bytes);
	writer_u8(&w, FORM_RUNS);
	uint32_t left = block_set_count(s);
	bool is_in = false;
	for (uint32_t at = 0; left > 0 && !w.failed; is_in = !is_in) {
		uint32_t end = run_end(s, at, is_in);
		put_run(&w, end - at);
		left -= is_in ? end - at : 0;
		at = end;
	}
	if (!w.failed)
		return w.len;
	out[0] = FORM_BITS;
	for (size_t i = 0; i + 1 < n_bytes; i++)
		out[1 + i] = (uint8_t)(s->words[i / 8] >> (i % 8 * 8));
	return n_bytes;
}

// take_run reads a number of at most 32 bits in its shortest form.
static bool take_run(struct reader *r, uint32_t *out)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 35; shift += 7) {
		uint8_t b = reader_u8(r);
		v |= (uint64_t)(b & 0x7f) << shift;
		if (b < 0x80) {
			*out = (uint32_t)v;
			return reader_ok(r) && v <= UINT32_MAX && (b != 0 || shift == 0);
		}
	}
	return false;
}

static enum err decode_runs(struct reader *r, struct block_set *out)
{
	bool is_in = false;
	for (uint32_t at = 0; r->left > 0; is_in = !is_in) {
		uint32_t len;
		bool is_first = at == 0 && !is_in;
		if (!take_run(r, &len) || len > out->n - at || (len == 0 && !is_first))
			return ERR_FORMAT;
		if (is_in)
			block_set_add_range(out, at, at + len);
		at += len;
		if (r->left == 0 && !is_in)
			return ERR_FORMAT; // a run at the end that says nothing
	}
	return OK;
}

static enum err decode_bits(const struct reader *r, struct block_set *out)
{
	if (r->left != block_set_encoded_max(out->n) - 1)
		return ERR_FORMAT;
	if (out->n % 8 != 0 && r->at[r->left - 1] >> (out->n % 8) != 0)
		return ERR_FORMAT;
	for (size_t i = 0; i < r->left; i++)
		out->words[i / 8] |= (uint64_t)r->at[i] << (i % 8 * 8);
	return OK;
}

enum err block_set_decode(const uint8_t *data, size_t len, struct block_set *out)
{
	struct reader r = reader_init(data, len);
	uint8_t form = reader_u8(&r);
	enum err e = ERR_FORMAT;
	block_set_clear(out);
	if (reader_ok(&r) && form == FORM_RUNS)
		e = decode_runs(&r, out);
	else if (reader_ok(&r) && form == FORM_BITS)
		e = decode_bits(&r, out);
	if (e != OK)
		block_set_clear(out);
	return e;
}
