// Private to the k_rows_*.c files: rules 6 and 7, one row after the other: the way of decoding, where each weight is used once and memory
// is the limit.
//
// Four neighbouring super-blocks give one vector of four integer sums in lane order, so that a group costs one conversion and two or
// three float operations. Weights are taken without their offset; the exact sums of the activations put it right afterwards.
#ifndef HEARTH_KERNELS_K_ROWS_H
#define HEARTH_KERNELS_K_ROWS_H

#include "kernels/k_scales.h"
#include "kernels/simd_avx2.h"

// One token's activations.
struct token {
	const int8_t *q;
	const float *d;
	const int16_t *sum16, *sum32;
};

// dot_group adds four super-blocks from block b on, which lie at p and the first n (1 to 4) of which are there, to the lanes; the others
// count as zero (rule 18). The file that includes this defines it.
INLINE __m128 dot_group(enum dtype type, int32_t n, __m128 lanes, const uint8_t *p, const struct token *k, size_t b);

// headers returns the words that hold the f16 scales of n super-blocks, 0 for those past n.
INLINE __m128i headers(enum dtype type, int32_t n, const uint8_t *p)
{
	int32_t h[SUPER_LANES];
	for (int32_t i = 0; i < SUPER_LANES; i++)
		h[i] = i < n ? load_i32(p + (size_t)i * block_bytes(type) + k_header_at(type)) : 0;
	return _mm_setr_epi32(h[0], h[1], h[2], h[3]);
}

INLINE float dot_row(enum dtype type, const uint8_t *p, int32_t n_blocks, const struct token *k)
{
	const uint32_t bytes = block_bytes(type);
	__m128 lanes = _mm_setzero_ps();
	int32_t b = 0;
	for (; b + SUPER_LANES <= n_blocks; b += SUPER_LANES, p += SUPER_LANES * bytes) {
		prefetch_pages(p);
		lanes = dot_group(type, SUPER_LANES, lanes, p, k, (size_t)b);
	}
	switch (n_blocks - b) {
	case 3: lanes = dot_group(type, 3, lanes, p, k, (size_t)b); break;
	case 2: lanes = dot_group(type, 2, lanes, p, k, (size_t)b); break;
	case 1: lanes = dot_group(type, 1, lanes, p, k, (size_t)b); break;
	default: break;
	}
	__m128 pairs = _mm_hadd_ps(lanes, lanes);
	return _mm_cvtss_f32(_mm_hadd_ps(pairs, pairs));
}

INLINE void matmul_rows(enum dtype type, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y,
	size_t y_stride)
{
	struct token tokens[ROWS_TOKENS_MAX];
	for (int32_t t = 0; t < a->n; t++)
		tokens[t] = (struct token){.q = acts_q(a, t), .d = acts_d(a, t), .sum16 = acts_sum16(a, t), .sum32 = acts_sum32(a, t)};
	for (int32_t r = row_begin; r < row_end; r++) {
		for (int32_t t = 0; t < a->n; t++)
			y[(size_t)t * y_stride + (size_t)r] = dot_row(type, weight_row(w, r), w->cols / SUPER_LEN, &tokens[t]);
	}
}

// matmul_k is the whole of rules 6 and 7, each type with code of its own.
INLINE void matmul_k(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y, size_t y_stride)
{
	switch (w->type) {
	case DTYPE_Q4_K: matmul_rows(DTYPE_Q4_K, w, a, row_begin, row_end, y, y_stride); break;
	case DTYPE_Q5_K: matmul_rows(DTYPE_Q5_K, w, a, row_begin, row_end, y, y_stride); break;
	case DTYPE_Q6_K: matmul_rows(DTYPE_Q6_K, w, a, row_begin, row_end, y, y_stride); break;
	default: matmul_rows(DTYPE_Q3_K, w, a, row_begin, row_end, y, y_stride); break;
	}
}

#endif
