// A set of blocks of one model, as bits in memory of the owner's: which are wanted, which somebody holds.
//
// Knows numbers only. Travels as runs, because a node holds whole layers: 40 GB held from one block to another take ten bytes.
//
//   form u8 | form 0, runs: lengths in LEB128 of blocks that are not in the set, that are, that are not ...; none but the first is zero, and
//             what they leave out at the end is not in the set
//           | form 1, bits: ceil(n / 8) bytes, block i is bit i % 8 of byte i / 8; bits past n are zero
#ifndef HEARTH_BLOCKS_BLOCK_SET_H
#define HEARTH_BLOCKS_BLOCK_SET_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct block_set {
	uint64_t *words; // (block_set_words(n)), the owner's; bits past n are zero
	uint32_t n;      // blocks that there are
};

static inline size_t block_set_words(uint32_t n)
{
	return ((size_t)n + 63) / 64;
}

// block_set_init makes an empty set of `words`.
void block_set_init(struct block_set *s, uint64_t *words, uint32_t n);
void block_set_clear(struct block_set *s);
void block_set_copy(struct block_set *to, const struct block_set *from); // of one size
void block_set_add_range(struct block_set *s, uint32_t begin, uint32_t end); // half-open
void block_set_join(struct block_set *to, const struct block_set *from);     // to gets all of from
uint32_t block_set_count(const struct block_set *s);
// block_set_common counts what both hold.
uint32_t block_set_common(const struct block_set *a, const struct block_set *b);
// block_set_next returns the first block of the set from `from` on, or n.
uint32_t block_set_next(const struct block_set *s, uint32_t from);

static inline bool block_set_has(const struct block_set *s, uint32_t i)
{
	return (s->words[i / 64] >> (i % 64) & 1) != 0;
}

static inline void block_set_add(struct block_set *s, uint32_t i)
{
	s->words[i / 64] |= UINT64_C(1) << (i % 64);
}

static inline void block_set_remove(struct block_set *s, uint32_t i)
{
	s->words[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

// block_set_encoded_max returns the most bytes that block_set_encode writes for n blocks.
static inline size_t block_set_encoded_max(uint32_t n)
{
	return 1 + ((size_t)n + 7) / 8;
}
// block_set_encode writes the shorter form and returns its length; out takes block_set_encoded_max(n) bytes.
size_t block_set_encode(const struct block_set *s, uint8_t *out);
// block_set_decode fills a set of n blocks. ERR_FORMAT on anything that breaks a rule; the set is empty then.
MUST_USE enum err block_set_decode(const uint8_t *data, size_t len, struct block_set *out);

#endif
