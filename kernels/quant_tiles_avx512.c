// Rule 5 for several tokens, 16 rows at once. One instruction multiplies four weights of each of 16 rows with four activations and adds
// them up in 32 bits, so that nothing can overflow, and a block's sum starts at what the weights' offset takes away.
#define MICRO 8        // tokens a micro kernel takes: a sum and a lane each, and a weight vector stay in registers
#define TILE_BLOCKS 32 // 1,024 columns: 20 KiB, which leave room in the first-level cache
#include "kernels/tiles_avx512.h"

#include "kernels/quant_tiles.h"

INLINE __m512i add_fifth_bits(__m512i w, __m512i high, int g)
{
	const __m512i dwords = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
	__m512i bytes = _mm512_shuffle_epi8(high, _mm512_or_si512(dwords, _mm512_set1_epi8((char)(g / 2))));
	__mmask64 set = _mm512_test_epi8_mask(bytes, _mm512_set1_epi32(g % 2 ? (int)0x80402010 : 0x08040201));
	return _mm512_mask_add_epi8(w, set, w, _mm512_set1_epi8(16));
}

// 0 to 255: the instruction takes no signed weights.
INLINE __m512i weights_of_q8(__m512i w)
{
	return _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
}

// What a micro kernel takes of the sums of its tokens' activations.
struct starts {
	int32_t offset[MICRO][TILE_BLOCKS]; // where the sum of a block begins
	float sum[MICRO][TILE_BLOCKS];      // for types with a min
};

INLINE void prepare(enum dtype type, int n, int32_t n_blocks, const struct tokens *k, struct starts *s)
{
	for (int t = 0; t < n; t++) {
		for (int32_t b = 0; b < n_blocks; b += 16) {
			const __mmask16 there = (__mmask16)(n_blocks - b < 16 ? (1u << (n_blocks - b)) - 1 : 0xffff);
			__m512i qsum = _mm512_maskz_loadu_epi32(there, k->qsum + (size_t)t * k->d_stride + b);
			if (type_has_min(type))
				_mm512_storeu_ps(&s->sum[t][b], _mm512_cvtepi32_ps(qsum));
			else
				_mm512_storeu_si512(&s->offset[t][b], _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(qsum, offset_shift(type))));
		}
	}
}

// one_block adds block b to the lane of each token.
INLINE void one_block(enum dtype type, int n, const struct tile *tile, int32_t b, const struct tokens *k, const struct starts *start,
	__m512 *lane)
{
	const int8_t *q = k->q + (size_t)b * BLOCK_LEN;
	__m512i s[MICRO];
	for (int t = 0; t < n; t++)
		s[t] = type_has_min(type) ? _mm512_setzero_si512() : _mm512_set1_epi32(start->offset[t][b]);
#pragma GCC unroll 8
	for (int g = 0; g < GROUPS; g++) {
		for (int t = 0; t < n; t++)
			s[t] = dot4(s[t], tile->w[b][g], q + (size_t)t * k->q_stride + 4 * g);
	}
	for (int t = 0; t < n; t++) {
		__m512 dx = _mm512_set1_ps(k->d[(size_t)t * k->d_stride + (size_t)b]);
		lane[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[t]), _mm512_mul_ps(tile->d[b], dx), lane[t]);
		if (type_has_min(type))
			lane[t] = _mm512_fmadd_ps(_mm512_set1_ps(start->sum[t][b]), _mm512_mul_ps(tile->m[b], dx), lane[t]);
	}
}

// Lane by lane, so that each stays in registers.
INLINE void micro(enum dtype type, int32_t n_lanes, int n, const struct tile *tile, int32_t n_blocks, const struct tokens *k,
	__m512 (*lanes)[MICRO])
{
	struct starts start;
	prepare(type, n, n_blocks, k, &start);
	for (int32_t l = 0; l < n_lanes && l < n_blocks; l++) {
		__m512 lane[MICRO];
		for (int t = 0; t < n; t++)
			lane[t] = lanes[l][t];
		for (int32_t b = l; b < n_blocks; b += n_lanes)
			one_block(type, n, tile, b, k, &start, lane);
		for (int t = 0; t < n; t++)
			lanes[l][t] = lane[t];
	}
}

NOINLINE void matmul_all(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	matmul_quant(QUANT_LANES, w, a, row_begin, row_end, to);
}

NOINLINE void matmul_some(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	const int32_t n_lanes = to->n_lanes;
	ASSERT(n_lanes < QUANT_LANES);
	matmul_quant(n_lanes, w, a, row_begin, row_end, to);
}

void avx512_matmul_tiles(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	(to->n_lanes == QUANT_LANES ? matmul_all : matmul_some)(w, a, row_begin, row_end, to);
}
