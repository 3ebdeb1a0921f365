// Rules 6 and 7 for several tokens, 16 rows at once. One instruction multiplies four weights of each of 16 rows with four activations; each
// sum of 16 or 32 elements is then multiplied with its scale, of 32 bits.
#define MICRO 8       // tokens a micro kernel takes: two sums each, a weight vector and a scale stay in registers
#define TILE_BLOCKS 4 // 1,024 columns: 23 KiB
#include "kernels/tiles_avx512.h"

#include "kernels/k_tiles.h"

INLINE __m512i byte_scale(__m512i v, int i)
{
	return _mm512_srai_epi32(_mm512_slli_epi32(v, 24 - 8 * i), 24);
}

INLINE __m512i byte_pair(__m512i v, int i)
{
	__m512i first = _mm512_and_si512(byte_scale(v, i), _mm512_set1_epi32(0xffff)), second = _mm512_slli_epi32(byte_scale(v, i + 1), 16);
	return _mm512_or_si512(first, second);
}

INLINE void super_dots(enum dtype type, int n, const struct super *p, const int8_t *q, size_t q_stride, __m512i *s)
{
	const int run = type_has_min(type) ? 8 : 4; // groups that share a scale
	for (int t = 0; t < n; t++)
		s[t] = _mm512_setzero_si512();
#pragma GCC unroll 1
	for (int begin = 0; begin < SUPER_GROUPS; begin += run) {
		__m512i sums[MICRO];
		for (int t = 0; t < n; t++)
			sums[t] = dot4(_mm512_setzero_si512(), p->w[begin], q + (size_t)t * q_stride + 4 * begin);
#pragma GCC unroll 8
		for (int g = begin + 1; g < begin + run; g++) {
			for (int t = 0; t < n; t++)
				sums[t] = dot4(sums[t], p->w[g], q + (size_t)t * q_stride + 4 * g);
		}
		__m512i scale = p->scale[begin / run];
		for (int t = 0; t < n; t++)
			s[t] = _mm512_add_epi32(s[t], _mm512_mullo_epi32(sums[t], scale));
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

void avx512_matmul_k_tiles(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	(to->n_lanes == SUPER_LANES ? matmul_all : matmul_some)(w, a, row_begin, row_end, to);
}
