// Private to kernels/: the packed scales of the K-quants by words instead of bytes, for the vector kernels. weight_block.c writes the same
// layouts down one number at a time.
#ifndef HEARTH_KERNELS_K_SCALES_H
#define HEARTH_KERNELS_K_SCALES_H

#include "base/bytes.h"
#include "kernels/kernels_impl.h"

// k_offset_shift: what is subtracted from the weights of q6_k and q3_k is 1 << k_offset_shift.
static inline unsigned k_offset_shift(enum dtype type)
{
	return type == DTYPE_Q6_K ? 5 : 2;
}

// k_header_at is where the four bytes lie that hold the block's f16 scales: d and dmin, or something else and d.
static inline size_t k_header_at(enum dtype type)
{
	return type == DTYPE_Q6_K ? 206 : type == DTYPE_Q3_K ? 106 : 0;
}

// k_scales_mins unpacks the eight scales and eight mins of a block of q4_k or q5_k, a byte each.
static inline void k_scales_mins(const uint8_t *block, uint64_t *scales, uint64_t *mins)
{
	uint32_t a = load_u32(block + 4), b = load_u32(block + 8), c = load_u32(block + 12);
	uint32_t high_scales = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030), high_mins = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
	*scales = (a & 0x3f3f3f3f) | (uint64_t)high_scales << 32;
	*mins = (b & 0x3f3f3f3f) | (uint64_t)high_mins << 32;
}

// k_q3_scales unpacks the sixteen scales of a block of q3_k, a byte each, still with the 32 that is to be subtracted.
static inline void k_q3_scales(const uint8_t *block, uint64_t scales[2])
{
	uint32_t a = load_u32(block + 96), b = load_u32(block + 100), c = load_u32(block + 104);
	uint32_t w[4] = {(a & 0x0f0f0f0f) | (c << 4 & 0x30303030), (b & 0x0f0f0f0f) | (c << 2 & 0x30303030),
		(a >> 4 & 0x0f0f0f0f) | (c & 0x30303030), (b >> 4 & 0x0f0f0f0f) | (c >> 2 & 0x30303030)};
	scales[0] = w[0] | (uint64_t)w[1] << 32;
	scales[1] = w[2] | (uint64_t)w[3] << 32;
}

#endif
