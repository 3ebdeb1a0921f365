// Private to the *_tiles_avx512.c files: what tiles_avx2.h is to the *_tiles_avx2.c files, with 16 rows.
#ifndef HEARTH_KERNELS_TILES_AVX512_H
#define HEARTH_KERNELS_TILES_AVX512_H

#include "kernels/simd_avx512.h"

#define TILE_ROWS 16

typedef __m512i tile_ints;
typedef __m512 tile_floats;

// load_transposed reads 16 bytes at offset `at` of the block of each row, as four vectors with the same dword of rows 0 to 15.
INLINE void load_transposed(const uint8_t *const rows[TILE_ROWS], size_t at, __m512i v[4])
{
	__m512i r[4];
	for (int i = 0; i < 4; i++) {
		r[i] = _mm512_castsi128_si512(load128(rows[i] + at));
		r[i] = _mm512_inserti32x4(r[i], load128(rows[i + 4] + at), 1);
		r[i] = _mm512_inserti32x4(r[i], load128(rows[i + 8] + at), 2);
		r[i] = _mm512_inserti32x4(r[i], load128(rows[i + 12] + at), 3);
	}
	__m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
	__m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
	v[0] = _mm512_unpacklo_epi64(a, c);
	v[1] = _mm512_unpackhi_epi64(a, c);
	v[2] = _mm512_unpacklo_epi64(b, d);
	v[3] = _mm512_unpackhi_epi64(b, d);
}

INLINE __m512i load_dwords(const uint8_t *const rows[TILE_ROWS], size_t at)
{
	__m128i v[4];
	for (int i = 0; i < 4; i++) {
		v[i] = _mm_setr_epi32(load_i32(rows[4 * i] + at), load_i32(rows[4 * i + 1] + at), load_i32(rows[4 * i + 2] + at),
			load_i32(rows[4 * i + 3] + at));
	}
	return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(v[1], v[0])), _mm256_set_m128i(v[3], v[2]), 1);
}

// Each converts one half of each dword from f16.
INLINE __m512 low_halves(__m512i v)
{
	return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

INLINE __m512 high_halves(__m512i v)
{
	return low_halves(_mm512_srli_epi32(v, 16));
}

INLINE __m512i byte_bits(__m512i v, unsigned from, char mask)
{
	return _mm512_and_si512(_mm512_srli_epi16(v, from), _mm512_set1_epi8(mask));
}

INLINE __m512i or_bits(__m512i w, __m512i high, unsigned from, unsigned to, char mask)
{
	high = from < to ? _mm512_slli_epi16(high, to - from) : _mm512_srli_epi16(high, from - to);
	return or_masked(w, high, _mm512_set1_epi8(mask));
}

INLINE __m512i sub_bytes(__m512i v, char n)
{
	return _mm512_sub_epi8(v, _mm512_set1_epi8(n));
}

INLINE __m512i sub_shifted(__m512i a, __m512i b, unsigned n)
{
	return _mm512_sub_epi32(a, _mm512_slli_epi32(b, n));
}

INLINE __m512i add_pair_dots(__m512i sums, __m512i v, int32_t pair)
{
	return _mm512_dpwssd_epi32(sums, v, _mm512_set1_epi32(pair));
}

INLINE __m512 to_floats(__m512i v)
{
	return _mm512_cvtepi32_ps(v);
}

INLINE __m512 all_floats(float x)
{
	return _mm512_set1_ps(x);
}

INLINE __m512 fused_add(__m512 a, __m512 b, __m512 c)
{
	return _mm512_fmadd_ps(a, b, c);
}

INLINE __m512 fused_sub(__m512 a, __m512 b, __m512 c)
{
	return _mm512_fmsub_ps(a, b, c);
}

INLINE void store_rows(float *y, int32_t n_rows, __m512 v)
{
	_mm512_mask_storeu_ps(y, (__mmask16)((1u << n_rows) - 1), v);
}

// dot4 adds the products of each row's four weights (0 to 255) with four activations.
INLINE __m512i dot4(__m512i sums, __m512i w, const int8_t *q)
{
	return _mm512_dpbusd_epi32(sums, w, _mm512_set1_epi32(load_i32(q)));
}

#endif
