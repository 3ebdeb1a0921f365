// Rule 5 for several tokens, 8 rows at once.
#define MICRO 4        // tokens a micro kernel takes: their sums, a weight vector and an input stay in registers
#define TILE_BLOCKS 64 // 2,048 columns: 20 KiB, which leave room in a 32 KiB first-level cache for the lanes
#include "kernels/tiles_avx2.h"

#include "kernels/quant_tiles.h"

INLINE __m256i add_fifth_bits(__m256i w, __m256i high, int g)
{
	__m256i nibble = _mm256_and_si256(_mm256_srli_epi32(high, 4 * g), _mm256_set1_epi32(15));
	__m256i spread = _mm256_mullo_epi32(nibble, _mm256_set1_epi32(0x00204081)); // bit k to bits k, k + 7, k + 14, k + 21
	return _mm256_or_si256(w, _mm256_slli_epi32(_mm256_and_si256(spread, _mm256_set1_epi32(0x01010101)), 4));
}

// As they are: dot_group multiplies magnitudes and gives the activations their sign.
INLINE __m256i weights_of_q8(__m256i w)
{
	return w;
}

// dot_group multiplies vector w of a block with the same four elements of one token.
INLINE __m256i dot_group(enum dtype type, __m256i w, const int8_t *q)
{
	__m256i x = _mm256_set1_epi32(load_i32(q));
	if (type == DTYPE_Q8_0)
		return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)), _mm256_set1_epi16(1));
	return _mm256_maddubs_epi16(w, x);
}

// block_dots sums w * q of one block for n tokens into s, 8 rows each. In 16 bits as long as they fit: for four-bit weights over the
// whole block (8 * 2 * 15 * 127), for five-bit ones over half of it.
INLINE void block_dots(enum dtype type, int n, const __m256i *w, const int8_t *q, size_t q_stride, __m256i *s)
{
	const __m256i zero = _mm256_setzero_si256();
	const int run = type_has_fifth_bit(type) ? GROUPS / 2 : GROUPS;
	for (int begin = 0; begin < GROUPS; begin += run) {
		__m256i sums[MICRO] = {zero, zero, zero, zero};
		for (int t = 0; t < n; t++)
			sums[t] = dot_group(type, w[begin], q + (size_t)t * q_stride + 4 * begin);
#pragma GCC unroll 8
		for (int g = begin + 1; g < begin + run; g++) {
			for (int t = 0; t < n; t++) {
				__m256i p = dot_group(type, w[g], q + (size_t)t * q_stride + 4 * g);
				sums[t] = type == DTYPE_Q8_0 ? _mm256_add_epi32(sums[t], p) : _mm256_add_epi16(sums[t], p);
				KEEP_HERE(sums[t]);
			}
		}
		for (int t = 0; t < n; t++) {
			__m256i wide = type == DTYPE_Q8_0 ? sums[t] : _mm256_madd_epi16(sums[t], _mm256_set1_epi16(1));
			s[t] = begin == 0 ? wide : _mm256_add_epi32(s[t], wide);
		}
	}
}

INLINE void micro(enum dtype type, int32_t n_lanes, int n, const struct tile *tile, int32_t n_blocks, const struct tokens *k,
	__m256 (*lanes)[MICRO])
{
	const __m256i zero = _mm256_setzero_si256();
	for (int32_t b = 0, l = 0; b < n_blocks; b++, l = next_lane(n_lanes, b, l)) {
		__m256i s[MICRO] = {zero, zero, zero, zero};
		block_dots(type, n, tile->w[b], k->q + (size_t)b * BLOCK_LEN, k->q_stride, s);
		for (int t = 0; t < n; t++) {
			size_t at = (size_t)t * k->d_stride + (size_t)b;
			__m256i qsum = _mm256_set1_epi32(k->qsum[at]);
			if (type == DTYPE_Q4_0)
				s[t] = _mm256_sub_epi32(s[t], _mm256_slli_epi32(qsum, 3));
			if (type == DTYPE_Q5_0)
				s[t] = _mm256_sub_epi32(s[t], _mm256_slli_epi32(qsum, 4));
			__m256 dx = _mm256_set1_ps(k->d[at]), lane = lanes[l][t];
			lane = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s[t]), _mm256_mul_ps(tile->d[b], dx), lane);
			if (type_has_min(type))
				lane = _mm256_fmadd_ps(_mm256_cvtepi32_ps(qsum), _mm256_mul_ps(tile->m[b], dx), lane);
			lanes[l][t] = lane;
		}
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

void avx2_matmul_tiles(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	(to->n_lanes == QUANT_LANES ? matmul_all : matmul_some)(w, a, row_begin, row_end, to);
}
