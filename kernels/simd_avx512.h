// Private to the *_avx512.c files: AVX-512 F, BW, VL, DQ and VNNI. What a vector of 512 bits does not make faster is AVX2's.
#ifndef HEARTH_KERNELS_SIMD_AVX512_H
#define HEARTH_KERNELS_SIMD_AVX512_H

#include "kernels/simd_avx2.h"

// The entries of the table that differ from AVX2's, each in the file that its noun names.
void avx512_matmul_rows(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to);
void avx512_matmul_tiles(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to);
void avx512_matmul_k_rows(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to);
void avx512_matmul_k_tiles(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to);
void avx512_matmul_float(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to);
void avx512_swiglu(const float *gate, const float *up, int32_t n, float *y);
void avx512_attention_group(const struct attention_group *g, float *scratch);

// What is to be subtracted from the weights is 1 << offset_shift; 0 stands for nothing.
INLINE unsigned offset_shift(enum dtype type)
{
	return type == DTYPE_Q4_0 ? 3 : type == DTYPE_Q5_0 ? 4 : type == DTYPE_Q8_0 ? 7 : 0;
}

INLINE __m512i load512(const void *p)
{
	return _mm512_loadu_si512(p);
}

// twice256 loads 256 bits into both halves.
INLINE __m512i twice256(const void *p)
{
	return _mm512_broadcast_i64x4(load256(p));
}

// halves_epi64 returns one number in the lower half's four quads and another in the upper half's.
INLINE __m512i halves_epi64(long long low, long long high)
{
	return _mm512_setr_epi64(low, low, low, low, high, high, high, high);
}

// Rule 14. max and min give their second operand when one is NaN.
INLINE __m512 exp16(__m512 x)
{
	const __m512 low = _mm512_set1_ps(-87.0f), magic = _mm512_set1_ps(12582912.0f);
	__m512 y = _mm512_min_ps(_mm512_set1_ps(88.0f), _mm512_max_ps(low, x));
	__m512 t = _mm512_fmadd_ps(y, _mm512_set1_ps(0x1.715476p+0f), magic);
	__m512 n = _mm512_sub_ps(t, magic);
	__m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e4p-1f), y);
	r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.7f7d1cp-20f), r);
	__m512 g = _mm512_fmadd_ps(_mm512_set1_ps(0x1.6d10fcp-10f), r, _mm512_set1_ps(0x1.120b62p-7f));
	g = _mm512_fmadd_ps(g, r, _mm512_set1_ps(0x1.55551ap-5f));
	g = _mm512_fmadd_ps(g, r, _mm512_set1_ps(0x1.5554dep-3f));
	g = _mm512_fmadd_ps(g, r, _mm512_set1_ps(0.5f));
	g = _mm512_add_ps(_mm512_fmadd_ps(g, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
	__m512i power = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(0x4b400000 - 127)), 23);
	return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), g, _mm512_castsi512_ps(power));
}

// or_masked returns w | (bits & mask).
INLINE __m512i or_masked(__m512i w, __m512i bits, __m512i mask)
{
	return _mm512_ternarylogic_epi64(w, bits, mask, 0xf8);
}

#endif
