// Rules 6 and 7, one row after the other, 32 elements of a super-block at once.
#include "kernels/k_rows.h"

#define SUBS 8 // runs of 32 elements in a super-block

// What one super-block gives: eight parts of S and four of M.
struct parts {
	__m256i s;
	__m128i m;
};

// sub_weights returns elements 32k to 32k + 31 of a super-block without their offset: 0 to 15, 31, 63 or 7.
INLINE __m256i sub_weights(enum dtype type, const uint8_t *p, int k)
{
	const __m256i mask4 = _mm256_set1_epi8(15), mask2 = _mm256_set1_epi8(3);
	if (type == DTYPE_Q4_K || type == DTYPE_Q5_K) {
		__m256i bits = load256(p + (type == DTYPE_Q4_K ? 16 : 48) + k / 2 * 32);
		__m256i w = _mm256_and_si256(k % 2 ? _mm256_srli_epi16(bits, 4) : bits, mask4);
		if (type == DTYPE_Q4_K)
			return w;
		__m256i high = load256(p + 16);
		high = k < 4 ? _mm256_slli_epi16(high, 4 - k) : _mm256_srli_epi16(high, k - 4);
		return _mm256_or_si256(w, _mm256_and_si256(high, _mm256_set1_epi8(16)));
	}
	int half = k / 4, s = k % 4;
	if (type == DTYPE_Q6_K) {
		__m256i bits = load256(p + 64 * half + 32 * (s % 2)), pairs = load256(p + 128 + 32 * half);
		__m256i w = _mm256_and_si256(s / 2 ? _mm256_srli_epi16(bits, 4) : bits, mask4);
		pairs = s < 2 ? _mm256_slli_epi16(pairs, 4 - 2 * s) : _mm256_srli_epi16(pairs, 2 * s - 4);
		return _mm256_or_si256(w, _mm256_and_si256(pairs, _mm256_set1_epi8(48)));
	}
	__m256i w = _mm256_and_si256(_mm256_srli_epi16(load256(p + 32 + 32 * half), 2 * s), mask2), high = load256(p);
	high = k < 2 ? _mm256_slli_epi16(high, 2 - k) : _mm256_srli_epi16(high, k - 2);
	return _mm256_or_si256(w, _mm256_and_si256(high, _mm256_set1_epi8(4)));
}

// scales16 returns the sixteen scales of q6_k or q3_k, as bytes.
INLINE __m128i scales16(enum dtype type, const uint8_t *p)
{
	if (type == DTYPE_Q6_K)
		return load128(p + 192);
	uint64_t packed[2];
	k_q3_scales(p, packed);
	return _mm_sub_epi8(_mm_set_epi64x((long long)packed[1], (long long)packed[0]), _mm_set1_epi8(32));
}

// super_parts multiplies one super-block with its activations. Pairs of products are at most 2 * 63 * 127, which fits 16 bits.
INLINE struct parts super_parts(enum dtype type, const uint8_t *p, const int8_t *q, const int16_t *sum16, const int16_t *sum32)
{
	struct parts out = {.s = _mm256_setzero_si256(), .m = _mm_setzero_si128()};
	__m256i scales; // word k of each half: the scale of that half of elements 32k to 32k + 31
	if (type_has_min(type)) {
		uint64_t sc, mins;
		k_scales_mins(p, &sc, &mins);
		__m256i both = _mm256_cvtepu8_epi16(_mm_set_epi64x((long long)mins, (long long)sc));
		scales = _mm256_permute4x64_epi64(both, _MM_SHUFFLE(1, 0, 1, 0));
		out.m = _mm_madd_epi16(_mm256_extracti128_si256(both, 1), load128(sum32));
	} else {
		__m128i sc = scales16(type, p);
		__m256i offset = _mm256_madd_epi16(_mm256_cvtepi8_epi16(sc), load256(sum16));
		scales = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(sc, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15)));
		out.s = _mm256_sub_epi32(out.s, _mm256_slli_epi32(offset, k_offset_shift(type)));
	}
#pragma GCC unroll 8
	for (int k = 0; k < SUBS; k++) {
		__m256i products = _mm256_maddubs_epi16(sub_weights(type, p, k), load256(q + 32 * k));
		__m256i scale = _mm256_shuffle_epi8(scales, _mm256_set1_epi16((short)(2 * k | (2 * k + 1) << 8)));
		out.s = _mm256_add_epi32(out.s, _mm256_madd_epi16(products, scale));
	}
	return out;
}

// join makes what n (1 to 4) super-blocks add to their lanes; what is not there counts as zero blocks (rule 18).
INLINE struct four_products join(enum dtype type, int32_t n, const struct parts *part, const uint8_t *p, const float *dx)
{
	__m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(part[0].s, part[1].s), _mm256_hadd_epi32(part[2].s, part[3].s));
	__m128 sums = _mm_cvtepi32_ps(_mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1)));
	__m128i head = headers(type, n, p), high = _mm_srli_epi32(head, 16), zero = _mm_setzero_si128();
	__m128 ds = n == SUPER_LANES ? _mm_loadu_ps(dx) : _mm_setr_ps(dx[0], n > 1 ? dx[1] : 0.0f, n > 2 ? dx[2] : 0.0f, 0.0f);
	__m128 upper = _mm_cvtph_ps(_mm_packus_epi32(high, zero)), t;
	if (type_has_min(type)) {
		__m128i m = _mm_hadd_epi32(_mm_hadd_epi32(part[0].m, part[1].m), _mm_hadd_epi32(part[2].m, part[3].m));
		__m128 d = _mm_cvtph_ps(_mm_packus_epi32(_mm_and_si128(head, _mm_set1_epi32(0xffff)), zero));
		t = _mm_fmsub_ps(sums, d, _mm_mul_ps(_mm_cvtepi32_ps(m), upper));
	} else {
		t = _mm_mul_ps(sums, upper);
	}
	return (struct four_products){.f = t, .c = ds};
}

INLINE void dot_group(enum dtype type, int32_t n_lanes, int32_t n, struct row_lanes *lanes, const uint8_t *p, const struct token *k, size_t b)
{
	struct parts part[SUPER_LANES];
	for (size_t i = 0; i < SUPER_LANES; i++) {
		if ((int32_t)i < n)
			part[i] = super_parts(type, p + i * block_bytes(type), k->q + (b + i) * SUPER_LEN, k->sum16 + (b + i) * 16, k->sum32 + (b + i) * 8);
		else
			part[i] = (struct parts){.s = _mm256_setzero_si256(), .m = _mm_setzero_si128()};
	}
	const struct four_products v = join(type, n, part, p, k->d + b);
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

void avx2_matmul_k_rows(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	(to->n_lanes == SUPER_LANES ? matmul_all : matmul_some)(w, a, row_begin, row_end, to);
}
