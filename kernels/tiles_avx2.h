// Private to the *_tiles_avx2.c files: how 8 rows of a weight matrix come to lie across the lanes of a vector, and the operations that
// tiles.h, quant_tiles.h and k_tiles.h are written in.
#ifndef HEARTH_KERNELS_TILES_AVX2_H
#define HEARTH_KERNELS_TILES_AVX2_H

#include "kernels/simd_avx2.h"

#define TILE_ROWS 8

// The vectors, under names that say no width.
typedef __m256i tile_ints;
typedef __m256 tile_floats;

// KEEP_HERE makes the compiler finish a sum where it stands: gcc 12 else moves the sums behind all products and spills those.
#define KEEP_HERE(v) __asm__("" : "+x"(v))

// transpose4 turns four vectors, each with rows r and r + 4 in its halves, into four with the same dword of rows 0 to 7.
INLINE void transpose4(__m256i v[4])
{
	__m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
	__m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
	v[0] = _mm256_unpacklo_epi64(a, c);
	v[1] = _mm256_unpackhi_epi64(a, c);
	v[2] = _mm256_unpacklo_epi64(b, d);
	v[3] = _mm256_unpackhi_epi64(b, d);
}

// load_transposed reads 16 bytes at offset `at` of the block of each row.
INLINE void load_transposed(const uint8_t *const rows[TILE_ROWS], size_t at, __m256i v[4])
{
	for (int r = 0; r < 4; r++)
		v[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(rows[r] + at)), load128(rows[r + 4] + at), 1);
	transpose4(v);
}

INLINE __m256i load_dwords(const uint8_t *const rows[TILE_ROWS], size_t at)
{
	return _mm256_setr_epi32(load_i32(rows[0] + at), load_i32(rows[1] + at), load_i32(rows[2] + at), load_i32(rows[3] + at),
		load_i32(rows[4] + at), load_i32(rows[5] + at), load_i32(rows[6] + at), load_i32(rows[7] + at));
}

// Each converts one half of each dword from f16; the pack saturates, so the other must be 0.
INLINE __m256 f16_dwords_to_floats(__m256i v)
{
	v = _mm256_packus_epi32(v, v);
	return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(v, _MM_SHUFFLE(3, 1, 2, 0))));
}

INLINE __m256 low_halves(__m256i v)
{
	return f16_dwords_to_floats(_mm256_and_si256(v, _mm256_set1_epi32(0xffff)));
}

INLINE __m256 high_halves(__m256i v)
{
	return f16_dwords_to_floats(_mm256_srli_epi32(v, 16));
}

// byte_bits returns the bits of each byte from bit `from` on, as mask says.
INLINE __m256i byte_bits(__m256i v, unsigned from, char mask)
{
	return _mm256_and_si256(_mm256_srli_epi16(v, (int)from), _mm256_set1_epi8(mask));
}

// or_bits sets bits `to` and up of w to those from bit `from` on of high, as mask says.
INLINE __m256i or_bits(__m256i w, __m256i high, unsigned from, unsigned to, char mask)
{
	high = from < to ? _mm256_slli_epi16(high, (int)(to - from)) : _mm256_srli_epi16(high, (int)(from - to));
	return _mm256_or_si256(w, _mm256_and_si256(high, _mm256_set1_epi8(mask)));
}

INLINE __m256i sub_bytes(__m256i v, char n)
{
	return _mm256_sub_epi8(v, _mm256_set1_epi8(n));
}

// sub_shifted returns a - (b << n).
INLINE __m256i sub_shifted(__m256i a, __m256i b, unsigned n)
{
	return _mm256_sub_epi32(a, _mm256_slli_epi32(b, (int)n));
}

// add_pair_dots adds each row's pair of 16-bit integers times that in `pair`.
INLINE __m256i add_pair_dots(__m256i sums, __m256i v, int32_t pair)
{
	return _mm256_add_epi32(sums, _mm256_madd_epi16(v, _mm256_set1_epi32(pair)));
}

INLINE __m256 to_floats(__m256i v)
{
	return _mm256_cvtepi32_ps(v);
}

INLINE __m256 all_floats(float x)
{
	return _mm256_set1_ps(x);
}

// fused_add and fused_sub return fma(a, b, c) and fma(a, b, -c).
INLINE __m256 fused_add(__m256 a, __m256 b, __m256 c)
{
	return _mm256_fmadd_ps(a, b, c);
}

INLINE __m256 fused_sub(__m256 a, __m256 b, __m256 c)
{
	return _mm256_fmsub_ps(a, b, c);
}

// store_rows writes the first n_rows.
INLINE void store_rows(float *y, int32_t n_rows, __m256 v)
{
	float out[TILE_ROWS];
	_mm256_storeu_ps(out, v);
	memcpy(y, out, (size_t)n_rows * sizeof(float));
}

#endif
