// Private to the *_tiles_avx2.c files: how 8 rows of a weight matrix come to lie across the lanes of a vector.
#ifndef HEARTH_KERNELS_TILES_AVX2_H
#define HEARTH_KERNELS_TILES_AVX2_H

#include "kernels/simd_avx2.h"

#define TILE_ROWS 8

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

// halves_to_float converts the lower 16 bits of each dword from f16.
INLINE __m256 halves_to_float(__m256i v)
{
	v = _mm256_packus_epi32(v, v);
	return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(v, _MM_SHUFFLE(3, 1, 2, 0))));
}

#endif
