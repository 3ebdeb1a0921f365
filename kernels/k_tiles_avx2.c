// Rules 6 and 7 for several tokens, 8 rows at once. The scale of 16 or 32 elements is multiplied in by the instruction that widens their
// sum to 32 bits, so it is a 16-bit integer, the same twice per row.
#define MICRO 4       // tokens a micro kernel takes
#define TILE_BLOCKS 8 // 2,048 columns: 23 KiB
#include "kernels/tiles_avx2.h"

#include "kernels/k_tiles.h"

// bytes_to_words returns, of each dword's bytes, number i and number j as two 16-bit integers.
INLINE __m256i bytes_to_words(__m256i v, int i, int j)
{
	const int quad = 0x80 | i << 8 | 0x80 << 16 | j << 24;
	const __m256i pick = _mm256_add_epi32(_mm256_setr_epi32(0, 0x04000400, 0x08000800, 0x0c000c00, 0, 0x04000400, 0x08000800, 0x0c000c00),
		_mm256_set1_epi32(quad));
	return _mm256_srai_epi16(_mm256_shuffle_epi8(v, pick), 8);
}

INLINE __m256i byte_scale(__m256i v, int i)
{
	return bytes_to_words(v, i, i);
}

INLINE __m256i byte_pair(__m256i v, int i)
{
	return bytes_to_words(v, i, i + 1);
}

// A run is as many groups as 16 bits can sum.
INLINE void super_dots(enum dtype type, int n, const struct super *p, const int8_t *q, size_t q_stride, __m256i *s)
{
	const int run = type == DTYPE_Q4_K ? 8 : type == DTYPE_Q6_K ? 2 : 4;
	for (int t = 0; t < n; t++)
		s[t] = _mm256_setzero_si256();
#pragma GCC unroll 1
	for (int begin = 0; begin < SUPER_GROUPS; begin += 8) {
#pragma GCC unroll 4
		for (int at = begin; at < begin + 8; at += run) {
			__m256i sums[MICRO];
			for (int t = 0; t < n; t++)
				sums[t] = _mm256_maddubs_epi16(p->w[at], _mm256_set1_epi32(load_i32(q + (size_t)t * q_stride + 4 * at)));
#pragma GCC unroll 8
			for (int g = at + 1; g < at + run; g++) {
				for (int t = 0; t < n; t++) {
					__m256i x = _mm256_set1_epi32(load_i32(q + (size_t)t * q_stride + 4 * g));
					sums[t] = _mm256_add_epi16(sums[t], _mm256_maddubs_epi16(p->w[g], x));
					KEEP_HERE(sums[t]);
				}
			}
			__m256i scale = p->scale[type_has_min(type) ? at / 8 : at / 4];
			for (int t = 0; t < n; t++)
				s[t] = _mm256_add_epi32(s[t], _mm256_madd_epi16(sums[t], scale));
		}
	}
}

NOINLINE void matmul_all(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	matmul_k(SUPER_LANES, w, a, row_begin, row_end, to);
}

NOINLINE void matmul_some(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	const int32_t n_lanes = to->n_lanes;
	ASSERT(n_lanes < SUPER_LANES);
	matmul_k(n_lanes, w, a, row_begin, row_end, to);
}

void avx2_matmul_k_tiles(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	(to->n_lanes == SUPER_LANES ? matmul_all : matmul_some)(w, a, row_begin, row_end, to);
}
