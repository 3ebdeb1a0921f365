// Rule 5, one row after the other; the plan is that of quant_rows_avx2.c, with two blocks of 32 at once. Blocks past the last whole group
// are masked, not padded: nothing is read that is not there.
#include "kernels/row_lanes.h"
#include "kernels/simd_avx512.h"

#define PAIRS (QUANT_LANES / 2)

// pair_weights returns the weights of two neighbouring blocks without their offset: 0 to 15, 31 or 255. With only one the upper half is
// anything.
INLINE __m512i pair_weights(enum dtype type, bool both, const uint8_t *p)
{
	const uint8_t *next = both ? p + block_bytes(type) : p;
	if (type == DTYPE_Q8_0) {
		__m512i w = _mm512_inserti64x4(_mm512_castsi256_si512(load256(p + 2)), load256(next + 2), 1);
		return _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
	}
	const size_t high_at = type_has_min(type) ? 4 : 2, at = high_at + (type_has_fifth_bit(type) ? 4 : 0);
	__m512i bits = _mm512_broadcast_i32x4(load128(p + at));
	bits = _mm512_mask_broadcast_i32x4(bits, 0xff00, load128(next + at));
	__m512i w = _mm512_srlv_epi64(bits, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
	w = _mm512_and_si512(w, _mm512_set1_epi8(15));
	if (!type_has_fifth_bit(type))
		return w;
	__mmask64 fifth = (uint32_t)load_i32(p + high_at) | (uint64_t)(uint32_t)load_i32(next + high_at) << 32;
	return _mm512_mask_add_epi8(w, fifth, w, _mm512_set1_epi8(16));
}

// part_sums returns, in each 128 bits, four sums: those of the four pairs over a quarter of the pair. Sums of four products are at most
// 4 * 31 * 127 for low-bit types, and of eight still fit 16 bits; those of q8_0 need 32.
INLINE __m512i part_sums(enum dtype type, const __m512i s[PAIRS])
{
	if (type == DTYPE_Q8_0) {
		__m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
		__m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
		return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
	}
	const __m512i ones = _mm512_set1_epi16(1);
	__m512i a = _mm512_madd_epi16(_mm512_packs_epi32(s[0], s[1]), ones), b = _mm512_madd_epi16(_mm512_packs_epi32(s[2], s[3]), ones);
	return _mm512_madd_epi16(_mm512_packs_epi32(a, b), ones);
}

// headers returns the first four bytes of n blocks, 0 for those past n.
INLINE __m256i headers(enum dtype type, int n, const uint8_t *p)
{
	int32_t h[QUANT_LANES];
	for (int i = 0; i < QUANT_LANES; i++)
		h[i] = i < n ? load_i32(p + (size_t)i * block_bytes(type)) : 0;
	return _mm256_setr_epi32(h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]);
}

// One token's activations.
struct token {
	const int8_t *q;
	const float *d;
	const int32_t *qsum;
};

// dot_group adds eight blocks, the first n (1 to 8) of which are there, to the lanes; the others count as zero (rule 18).
INLINE void dot_group(enum dtype type, int32_t n_lanes, int n, struct row_lanes *lanes, const uint8_t *p, const struct token *k, int32_t b)
{
	const __m512i zero = _mm512_setzero_si512();
	__m512i s[PAIRS];
	for (int i = 0; i < PAIRS; i++) {
		bool both = n - 2 * i > 1;
		__m512i q = zero;
		if (both)
			q = load512(k->q + (size_t)(b + 2 * i) * BLOCK_LEN);
		else if (n - 2 * i == 1)
			q = _mm512_zextsi256_si512(load256(k->q + (size_t)(b + 2 * i) * BLOCK_LEN));
		s[i] = n > 2 * i ? _mm512_dpbusd_epi32(zero, pair_weights(type, both, p + (size_t)(2 * i) * block_bytes(type)), q) : zero;
	}
	__m512i parts = part_sums(type, s);
	parts = _mm512_add_epi32(parts, _mm512_shuffle_i32x4(parts, parts, _MM_SHUFFLE(2, 3, 0, 1)));
	const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 0, 0, 0, 0, 0, 0, 0);
	__m256i sums = _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, parts));
	const __mmask8 there = (__mmask8)((1 << n) - 1);
	__m256i qsum = _mm256_maskz_loadu_epi32(there, k->qsum + b);
	if (!type_has_min(type))
		sums = _mm256_sub_epi32(sums, _mm256_slli_epi32(qsum, offset_shift(type)));
	__m256 dx = _mm256_maskz_loadu_ps(there, k->d + b);
	const __m256i head = headers(type, n, p);
	struct eight_products v = {.f = _mm256_cvtepi32_ps(sums), .c = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_cvtepi32_epi16(head)), dx)};
	if (type_has_min(type)) {
		v.g = _mm256_cvtepi32_ps(qsum);
		v.e = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_cvtepi32_epi16(_mm256_srli_epi32(head, 16))), dx);
	}
	add_eight(n_lanes, type_has_min(type), &v, lanes);
}

// dot_row fills the lanes of one row.
INLINE void dot_row(enum dtype type, int32_t n_lanes, const uint8_t *p, int32_t n_blocks, const struct token *k, struct row_lanes *lanes)
{
	const uint32_t bytes = block_bytes(type);
	int32_t b = 0;
	row_lanes_init(n_lanes, lanes);
	for (; b + QUANT_LANES <= n_blocks; b += QUANT_LANES, p += QUANT_LANES * bytes) {
		prefetch_pages(p);
		dot_group(type, n_lanes, QUANT_LANES, lanes, p, k, b);
	}
	switch (n_blocks - b) {
	case 7: dot_group(type, n_lanes, 7, lanes, p, k, b); break;
	case 6: dot_group(type, n_lanes, 6, lanes, p, k, b); break;
	case 5: dot_group(type, n_lanes, 5, lanes, p, k, b); break;
	case 4: dot_group(type, n_lanes, 4, lanes, p, k, b); break;
	case 3: dot_group(type, n_lanes, 3, lanes, p, k, b); break;
	case 2: dot_group(type, n_lanes, 2, lanes, p, k, b); break;
	case 1: dot_group(type, n_lanes, 1, lanes, p, k, b); break;
	default: break;
	}
}

INLINE void matmul_rows(enum dtype type, int32_t n_lanes, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end,
	const struct nodes_sink *to)
{
	struct token tokens[ROWS_TOKENS_MAX];
	for (int32_t t = 0; t < a->n; t++)
		tokens[t] = (struct token){.q = acts_q(a, t), .d = acts_d(a, t), .qsum = acts_qsum(a, t)};
	for (int32_t r = row_begin; r < row_end; r++) {
		for (int32_t t = 0; t < a->n; t++) {
			struct row_lanes lanes;
			dot_row(type, n_lanes, weight_row(w, r), w->cols / BLOCK_LEN, &tokens[t], &lanes);
			store_nodes(n_lanes, to, t, r, &lanes);
		}
	}
}

// matmul_quant is the whole of rule 5, each type with code of its own.
INLINE void matmul_quant(int32_t n_lanes, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end,
	const struct nodes_sink *to)
{
	switch (w->type) {
	case DTYPE_Q4_0: matmul_rows(DTYPE_Q4_0, n_lanes, w, a, row_begin, row_end, to); break;
	case DTYPE_Q4_1: matmul_rows(DTYPE_Q4_1, n_lanes, w, a, row_begin, row_end, to); break;
	case DTYPE_Q5_0: matmul_rows(DTYPE_Q5_0, n_lanes, w, a, row_begin, row_end, to); break;
	case DTYPE_Q5_1: matmul_rows(DTYPE_Q5_1, n_lanes, w, a, row_begin, row_end, to); break;
	default: matmul_rows(DTYPE_Q8_0, n_lanes, w, a, row_begin, row_end, to); break;
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

void avx512_matmul_rows(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	(to->n_lanes == QUANT_LANES ? matmul_all : matmul_some)(w, a, row_begin, row_end, to);
}
