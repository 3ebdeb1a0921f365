// Private to the *_avx2.c files: what they share. Each function gives lane by lane the bits of its scalar twin in base/fmath.h.
#ifndef HEARTH_KERNELS_SIMD_AVX2_H
#define HEARTH_KERNELS_SIMD_AVX2_H

#include "base/assert.h"
#include "kernels/kernels_impl.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
// What is compiled twice, for all lanes and for those of a mask, lies in two functions: in one gcc spoils the registers of both.
#define NOINLINE static __attribute__((noinline))

#define BLOCK_BYTES_MAX 34
#define ROWS_TOKENS_MAX 2 // tokens avx2_matmul_rows takes: from three on, laying 8 rows across the lanes is faster

// The entries of the table, each in the file that its noun names.
void avx2_quantise(const struct acts *a, int32_t t);
void avx2_matmul_rows(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to);
void avx2_matmul_tiles(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to);
void avx2_matmul_k_rows(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to);
void avx2_matmul_k_tiles(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to);
void avx2_matmul_float(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to);
void avx2_rmsnorm(const float *x, const float *w, int32_t n, float eps, float *y);
void avx2_swiglu(const float *gate, const float *up, int32_t n, float *y);
void avx2_add(float *y, const float *x, int32_t n);
void avx2_add_scaled(float *y, float w, const float *x, int32_t n);
void avx2_f32_to_f16(const float *x, int32_t n, uint16_t *out);
void avx2_f16_to_f32(const uint16_t *x, int32_t n, float *out);
bool avx2_all_finite(const float *x, int32_t n);
void avx2_rope_pairs(float *x, int32_t n_pairs, const float *cos_in, const float *sin_in);
void avx2_rope_halves(float *x, int32_t n_pairs, const float *cos_in, const float *sin_in);
void avx2_attention_group(const struct attention_group *g, float *scratch);

INLINE __m256i load256(const void *p)
{
	return _mm256_loadu_si256((const __m256i_u *)p);
}

INLINE __m128i load128(const void *p)
{
	return _mm_loadu_si128((const __m128i_u *)p);
}

#define PAGE_BYTES 4096
#define CACHE_LINE 64

// prefetch_pages asks for the beginning of the next two pages of a stream that is being read at p: the processor's own prefetcher stops at
// each page's end, and is set going again by it (a mere read loop over small pages goes from 12.7 to 16 GB/s). Again for each group of
// blocks, not only once a page: that is what was measured to help. Asking past a tensor's end is harmless.
INLINE void prefetch_pages(const uint8_t *p)
{
	uintptr_t page = ((uintptr_t)p | (PAGE_BYTES - 1)) + 1;
	_mm_prefetch((const char *)page, _MM_HINT_T1);
	_mm_prefetch((const char *)(page + CACHE_LINE), _MM_HINT_T1);
	_mm_prefetch((const char *)(page + PAGE_BYTES), _MM_HINT_T1);
}

INLINE int32_t load_i32(const void *p)
{
	int32_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}

// block_bytes is dtype_find's, as a constant where the type is one.
INLINE uint32_t block_bytes(enum dtype type)
{
	switch (type) {
	case DTYPE_Q8_0: return 34;
	case DTYPE_Q4_0: return 18;
	case DTYPE_Q4_1: return 20;
	case DTYPE_Q5_0: return 22;
	case DTYPE_Q5_1: return 24;
	case DTYPE_Q3_K: return 110;
	case DTYPE_Q4_K: return 144;
	case DTYPE_Q5_K: return 176;
	default: return 210;
	}
}

INLINE bool type_has_fifth_bit(enum dtype type)
{
	return type == DTYPE_Q5_0 || type == DTYPE_Q5_1;
}

// Rule 2 for 8 lanes.
INLINE float tree8(__m256 l)
{
	__m256 h = _mm256_hadd_ps(l, l);
	h = _mm256_hadd_ps(h, h);
	return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
}

// Rule 2 for four times 8 lanes: element i is the sum of l[i].
INLINE __m128 tree8x4(const __m256 *l)
{
	__m256 h = _mm256_hadd_ps(_mm256_hadd_ps(l[0], l[1]), _mm256_hadd_ps(l[2], l[3]));
	return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

// Rule 2 for 32 lanes.
INLINE float tree32(const __m256 *l)
{
	__m128 h = tree8x4(l);
	h = _mm_hadd_ps(h, h);
	return _mm_cvtss_f32(_mm_hadd_ps(h, h));
}

// Rule 14. max and min give their second operand when one is NaN.
INLINE __m256 exp8(__m256 x)
{
	const __m256 low = _mm256_set1_ps(-87.0f), magic = _mm256_set1_ps(12582912.0f), one = _mm256_set1_ps(1.0f);
	__m256 y = _mm256_min_ps(_mm256_set1_ps(88.0f), _mm256_max_ps(low, x));
	__m256 t = _mm256_fmadd_ps(y, _mm256_set1_ps(0x1.715476p+0f), magic);
	__m256 n = _mm256_sub_ps(t, magic);
	__m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e4p-1f), y);
	r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.7f7d1cp-20f), r);
	__m256 g = _mm256_fmadd_ps(_mm256_set1_ps(0x1.6d10fcp-10f), r, _mm256_set1_ps(0x1.120b62p-7f));
	g = _mm256_fmadd_ps(g, r, _mm256_set1_ps(0x1.55551ap-5f));
	g = _mm256_fmadd_ps(g, r, _mm256_set1_ps(0x1.5554dep-3f));
	g = _mm256_fmadd_ps(g, r, _mm256_set1_ps(0.5f));
	g = _mm256_add_ps(_mm256_fmadd_ps(g, _mm256_mul_ps(r, r), r), one);
	__m256i power = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(0x4b400000 - 127)), 23);
	__m256 e = _mm256_mul_ps(g, _mm256_castsi256_ps(power));
	return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), e);
}

#endif
