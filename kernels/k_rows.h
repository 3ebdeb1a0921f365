// Private to the k_rows_*.c files: rules 6 and 7, one row after the other: the way of decoding, where each weight is used once and memory
// is the limit.
//
// Four neighbouring super-blocks give one vector of four integer sums in lane order, so that a group costs one conversion and two or
// three float operations. Weights are taken without their offset; the exact sums of the activations put it right afterwards.
#ifndef HEARTH_KERNELS_K_ROWS_H
#define HEARTH_KERNELS_K_ROWS_H

#include "kernels/k_scales.h"
#include "kernels/row_lanes.h"

// One token's activations.
struct token {
	const int8_t *q;
	const float *d;
	const int16_t *sum16, *sum32;
};

// dot_group adds four super-blocks from block b on, which lie at p and the first n (1 to 4) of which are there, to the lanes; the others
// count as zero (rule 18). The file that includes this defines it.
INLINE void dot_group(enum dtype type, int32_t n_lanes, int32_t n, struct row_lanes *lanes, const uint8_t *p, const struct token *k, size_t b);

// headers returns the words that hold the f16 scales of n super-blocks, 0 for those past n.
INLINE __m128i headers(enum dtype type, int32_t n, const uint8_t *p)
{
	int32_t h[SUPER_LANES];
	for (int32_t i = 0; i < SUPER_LANES; i++)
		h[i] = i < n ? load_i32(p + (size_t)i * block_bytes(type) + k_header_at(type)) : 0;
	return _mm_setr_epi32(h[0], h[1], h[2], h[3]);
}

INLINE void dot_row(enum dtype type, int32_t n_lanes, const uint8_t *p, int32_t n_blocks, const struct token *k, struct row_lanes *lanes)
{
	const uint32_t bytes = block_bytes(type);
	int32_t b = 0;
	row_lanes_init(n_lanes, lanes);
	for (; b + SUPER_LANES <= n_blocks; b += SUPER_LANES, p += SUPER_LANES * bytes) {
		prefetch_pages(p);
		dot_group(type, n_lanes, SUPER_LANES, lanes, p, k, (size_t)b);
	}
	switch (n_blocks - b) {
	case 3: dot_group(type, n_lanes, 3, lanes, p, k, (size_t)b); break;
	case 2: dot_group(type, n_lanes, 2, lanes, p, k, (size_t)b); break;
	case 1: dot_group(type, n_lanes, 1, lanes, p, k, (size_t)b); break;
	default: break;
	}
}

INLINE void matmul_rows(enum dtype type, int32_t n_lanes, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end,
	const struct nodes_sink *to)
{
	struct token tokens[ROWS_TOKENS_MAX];
	for (int32_t t = 0; t < a->n; t++)
		tokens[t] = (struct token){.q = acts_q(a, t), .d = acts_d(a, t), .sum16 = acts_sum16(a, t), .sum32 = acts_sum32(a, t)};
	for (int32_t r = row_begin; r < row_end; r++) {
		for (int32_t t = 0; t < a->n; t++) {
			struct row_lanes lanes;
			dot_row(type, n_lanes, weight_row(w, r), w->cols / SUPER_LEN, &tokens[t], &lanes);
			store_nodes(n_lanes, to, t, r, &lanes);
		}
	}
}

// matmul_k is the whole of rules 6 and 7, each type with code of its own.
INLINE void matmul_k(int32_t n_lanes, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end,
	const struct nodes_sink *to)
{
	switch (w->type) {
	case DTYPE_Q4_K: matmul_rows(DTYPE_Q4_K, n_lanes, w, a, row_begin, row_end, to); break;
	case DTYPE_Q5_K: matmul_rows(DTYPE_Q5_K, n_lanes, w, a, row_begin, row_end, to); break;
	case DTYPE_Q6_K: matmul_rows(DTYPE_Q6_K, n_lanes, w, a, row_begin, row_end, to); break;
	default: matmul_rows(DTYPE_Q3_K, n_lanes, w, a, row_begin, row_end, to); break;
	}
}

#endif
