// Rules 6 and 7, one row after the other, 64 elements of a super-block at once.
#include "kernels/k_rows.h"
#include "kernels/simd_avx512.h"

#define QUARTERS 4 // runs of 64 elements in a super-block

// quarter_weights returns elements 64j to 64j + 63 of a super-block without their offset. Elements 32 apart in a nibbled type share
// bytes: both halves get them, and the upper half is shifted.
INLINE __m512i quarter_weights(enum dtype type, const uint8_t *p, int j)
{
	const __m512i mask4 = _mm512_set1_epi8(15), mask2 = _mm512_set1_epi8(3);
	if (type == DTYPE_Q4_K || type == DTYPE_Q5_K) {
		__m512i bits = twice256(p + (type == DTYPE_Q4_K ? 16 : 48) + 32 * j);
		__m512i w = _mm512_and_si512(_mm512_srlv_epi64(bits, halves_epi64(0, 4)), mask4);
		if (type == DTYPE_Q4_K)
			return w;
		const __m512i which = halves_epi64(0x0101010101010101 << (2 * j), (long long)(0x0202020202020202ull << (2 * j)));
		return _mm512_mask_add_epi8(w, _mm512_test_epi8_mask(twice256(p + 16), which), w, _mm512_set1_epi8(16));
	}
	int half = j / 2;
	if (type == DTYPE_Q6_K) {
		__m512i bits = load512(p + 64 * half), pairs = twice256(p + 128 + 32 * half);
		bits = _mm512_and_si512(j % 2 ? _mm512_srli_epi16(bits, 4) : bits, mask4);
		pairs = j % 2 ? _mm512_srlv_epi64(pairs, halves_epi64(0, 2)) : _mm512_sllv_epi64(pairs, halves_epi64(4, 2));
		return or_masked(bits, pairs, _mm512_set1_epi8(48));
	}
	__m512i pairs = _mm512_srlv_epi64(twice256(p + 32 + 32 * half), j % 2 ? halves_epi64(4, 6) : halves_epi64(0, 2));
	__m512i w = _mm512_and_si512(pairs, mask2);
	const __m512i which = halves_epi64(0x0101010101010101 << (2 * j), (long long)(0x0202020202020202ull << (2 * j)));
	return _mm512_mask_add_epi8(w, _mm512_test_epi8_mask(twice256(p), which), w, _mm512_set1_epi8(4));
}

// pick_scales returns which scale each of the 32 sums of quarters j and j + 1 is multiplied with: in each 128 bits, four sums of the one and
// four of the other.
INLINE __m512i pick_scales(enum dtype type, int j)
{
	const long long word = 0x0001000100010001;
	const int per = type_has_min(type) ? 2 : 4, shared = 4 / per; // scales of a quarter; 128-bit parts that share one
	const int a = per * j, b = per * (j + 1);
	return _mm512_setr_epi64(a * word, b * word, (a + 1 / shared) * word, (b + 1 / shared) * word, (a + 2 / shared) * word,
		(b + 2 / shared) * word, (a + 3 / shared) * word, (b + 3 / shared) * word);
}

// The scales of four super-blocks, unpacked into bytes.
struct scales {
	uint64_t scale[SUPER_LANES][2]; // eight or sixteen
	uint64_t min[SUPER_LANES];
};

INLINE void unpack_scales(enum dtype type, int n, const uint8_t *p, struct scales *out)
{
	for (int i = 0; i < SUPER_LANES; i++) {
		const uint8_t *block = p + (size_t)i * block_bytes(type);
		out->min[i] = 0;
		if (i >= n)
			continue;
		if (type_has_min(type))
			k_scales_mins(block, &out->scale[i][0], &out->min[i]);
		else if (type == DTYPE_Q3_K)
			k_q3_scales(block, out->scale[i]);
		else
			memcpy(out->scale[i], block + 192, 16);
	}
}

// super_sums returns sixteen parts of S of one super-block. Sums of four products are at most 4 * 63 * 127, which fits 16 bits: packed in pairs
// they meet their scales with one instruction for 128 elements.
INLINE __m512i super_sums(enum dtype type, const uint8_t *p, const uint64_t packed[2], const int8_t *q, const int16_t *sum16)
{
	const __m512i zero = _mm512_setzero_si512();
	__m512i scales, s = zero; // scales: words
	if (type_has_min(type)) {
		scales = _mm512_castsi128_si512(_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i_u *)packed)));
	} else {
		__m128i bytes = load128(packed);
		__m256i words = _mm256_cvtepi8_epi16(type == DTYPE_Q3_K ? _mm_sub_epi8(bytes, _mm_set1_epi8(32)) : bytes);
		__m256i offset = _mm256_slli_epi32(_mm256_madd_epi16(words, load256(sum16)), k_offset_shift(type));
		scales = _mm512_castsi256_si512(words);
		s = _mm512_sub_epi32(zero, _mm512_zextsi256_si512(offset));
	}
#pragma GCC unroll 2
	for (int j = 0; j < QUARTERS; j += 2) {
		__m512i a = _mm512_dpbusd_epi32(zero, quarter_weights(type, p, j), load512(q + 64 * j));
		__m512i b = _mm512_dpbusd_epi32(zero, quarter_weights(type, p, j + 1), load512(q + 64 * j + 64));
		s = _mm512_dpwssd_epi32(s, _mm512_packs_epi32(a, b), _mm512_permutexvar_epi16(pick_scales(type, j), scales));
	}
	return s;
}

// add4 returns the sums of four vectors, in order.
INLINE __m128i add4(const __m512i *s)
{
	__m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
	__m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
	__m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
	__m256i d = _mm256_add_epi32(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1));
	return _mm_add_epi32(_mm256_castsi256_si128(d), _mm256_extracti128_si256(d, 1));
}

// min_sums returns M of four super-blocks: their mins, eight in each 128 bits, times the activations' sums.
INLINE __m128i min_sums(int n, const struct scales *scales, const int16_t *sum32)
{
	const __mmask8 there = (__mmask8)((1 << 2 * n) - 1);
	__m512i m = _mm512_madd_epi16(_mm512_cvtepu8_epi16(load256(scales->min)), _mm512_maskz_loadu_epi64(there, sum32));
	m = _mm512_add_epi32(m, _mm512_shuffle_epi32(m, _MM_PERM_BADC));
	m = _mm512_add_epi32(m, _mm512_shuffle_epi32(m, _MM_PERM_CDAB));
	return _mm512_castsi512_si128(_mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), m));
}

INLINE void dot_group(enum dtype type, int32_t n_lanes, int32_t n, struct row_lanes *lanes, const uint8_t *p, const struct token *k, size_t b)
{
	struct scales scales;
	unpack_scales(type, n, p, &scales);
	__m512i s[SUPER_LANES];
	for (size_t i = 0; i < SUPER_LANES; i++) {
		s[i] = _mm512_setzero_si512();
		if ((int32_t)i < n)
			s[i] = super_sums(type, p + i * block_bytes(type), scales.scale[i], k->q + (b + i) * SUPER_LEN, k->sum16 + (b + i) * 16);
	}
	__m128i head = headers(type, n, p);
	__m128 sums = _mm_cvtepi32_ps(add4(s)), upper = _mm_cvtph_ps(_mm_cvtepi32_epi16(_mm_srli_epi32(head, 16))), t;
	if (type_has_min(type)) {
		__m128 m = _mm_cvtepi32_ps(min_sums(n, &scales, k->sum32 + 8 * b));
		t = _mm_fmsub_ps(sums, _mm_cvtph_ps(_mm_cvtepi32_epi16(head)), _mm_mul_ps(m, upper));
	} else {
		t = _mm_mul_ps(sums, upper);
	}
	const struct four_products v = {.f = t, .c = _mm_maskz_loadu_ps((__mmask8)((1 << n) - 1), k->d + b)};
	add_four(n_lanes, false, &v, lanes);
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

void avx512_matmul_k_rows(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	(to->n_lanes == SUPER_LANES ? matmul_all : matmul_some)(w, a, row_begin, row_end, to);
}
