// Rule 5, one row after the other: the way of decoding, where each weight is used once and memory is the limit.
//
// Eight neighbouring blocks give one vector of eight integer sums in lane order, so that a group costs one conversion, one
// product of scales and one fma. What is past the last whole group is padded with zeros (rule 18).
#include "kernels/row_lanes.h"

// block_sums returns 16 partial sums of one block's w * q, w without its offset. |each| <= 32,512.
INLINE __m256i block_sums(enum dtype type, const uint8_t *p, const int8_t *q)
{
	__m256i x = load256(q);
	if (type == DTYPE_Q8_0) {
		__m256i w = load256(p + 2);
		return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
	}
	uint32_t at = type == DTYPE_Q4_0 ? 2 : type == DTYPE_Q4_1 ? 4 : type == DTYPE_Q5_0 ? 6 : 8;
	__m256i nibbles = _mm256_broadcastsi128_si256(load128(p + at));
	// The upper half is shifted down by four bits; what comes over from the neighbouring byte is masked away.
	__m256i w = _mm256_and_si256(_mm256_srlv_epi64(nibbles, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
	if (type_has_fifth_bit(type)) {
		// Byte i of the vector looks at byte i / 8 of the high bits, and in it at bit i mod 8.
		const __m256i which = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
		const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
		__m256i high = _mm256_shuffle_epi8(_mm256_set1_epi32(load_i32(p + at - 4)), which);
		high = _mm256_cmpeq_epi8(_mm256_and_si256(high, bit), bit);
		w = _mm256_or_si256(w, _mm256_and_si256(high, _mm256_set1_epi8(16)));
	}
	return _mm256_maddubs_epi16(w, x);
}

// Four blocks and the activations that meet them.
struct four {
	const uint8_t *p[4];
	const int8_t *q[4];
};

INLINE struct four four_neighbours(enum dtype type, const uint8_t *p, const int8_t *q)
{
	const uint32_t bytes = block_bytes(type);
	return (struct four){
		.p = {p, p + bytes, p + 2 * bytes, p + 3 * bytes},
		.q = {q, q + BLOCK_LEN, q + 2 * BLOCK_LEN, q + 3 * BLOCK_LEN},
	};
}

// four_sums returns, in each half, four 32-bit sums: those of the four blocks over that half of the block.
// Low-bit types: 8 products of at most 31 * 127 fit 16 bits. q8_0 needs 32 bits from the second addition on.
INLINE __m256i four_sums(enum dtype type, struct four f)
{
	const __m256i ones = _mm256_set1_epi16(1);
	__m256i s[4];
	for (int j = 0; j < 4; j++)
		s[j] = block_sums(type, f.p[j], f.q[j]);
	if (type == DTYPE_Q8_0) {
		for (int j = 0; j < 4; j++)
			s[j] = _mm256_madd_epi16(s[j], ones);
		return _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
	}
	return _mm256_madd_epi16(_mm256_hadd_epi16(_mm256_hadd_epi16(s[0], s[1]), _mm256_hadd_epi16(s[2], s[3])), ones);
}

// join_halves adds up the two halves of blocks 0 to 3 and 4 to 7: eight sums in lane order.
INLINE __m256i join_halves(__m256i low, __m256i high)
{
	return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

// headers returns the first four bytes of four blocks.
INLINE __m128i headers(struct four f)
{
	__m128i a = _mm_unpacklo_epi32(_mm_cvtsi32_si128(load_i32(f.p[0])), _mm_cvtsi32_si128(load_i32(f.p[1])));
	__m128i b = _mm_unpacklo_epi32(_mm_cvtsi32_si128(load_i32(f.p[2])), _mm_cvtsi32_si128(load_i32(f.p[3])));
	return _mm_unpacklo_epi64(a, b);
}

// join makes what one group adds to its lanes.
INLINE struct eight_products join(enum dtype type, __m256i sums, __m128i head_low, __m128i head_high, __m256 dx, __m256i qsum)
{
	const __m128i mask = _mm_set1_epi32(0xffff);
	if (type == DTYPE_Q4_0)
		sums = _mm256_sub_epi32(sums, _mm256_slli_epi32(qsum, 3));
	if (type == DTYPE_Q5_0)
		sums = _mm256_sub_epi32(sums, _mm256_slli_epi32(qsum, 4));
	__m256 d = _mm256_cvtph_ps(_mm_packus_epi32(_mm_and_si128(head_low, mask), _mm_and_si128(head_high, mask)));
	struct eight_products v = {.f = _mm256_cvtepi32_ps(sums), .c = _mm256_mul_ps(d, dx)};
	if (type_has_min(type)) {
		v.g = _mm256_cvtepi32_ps(qsum);
		v.e = _mm256_mul_ps(_mm256_cvtph_ps(_mm_packus_epi32(_mm_srli_epi32(head_low, 16), _mm_srli_epi32(head_high, 16))), dx);
	}
	return v;
}

// One token's activations: the whole groups as they lie, and the last n_tail blocks padded with zeros to a group.
struct token {
	const int8_t *q;
	const float *d;
	const int32_t *qsum;
	int32_t n_whole; // blocks in whole groups
	int32_t n_tail;  // 0 to 7
	int8_t tail_q[QUANT_LANES * BLOCK_LEN];
	float tail_d[QUANT_LANES];
	int32_t tail_qsum[QUANT_LANES];
	float pair_d[QUANT_LANES]; // the first two of tail_d four times: see dot_tail_pairs
	int32_t pair_qsum[QUANT_LANES];
};

static void token_init(struct token *k, const struct acts *a, int32_t t)
{
	int32_t n_blocks = a->cols / BLOCK_LEN, n_tail = n_blocks % QUANT_LANES, n_whole = n_blocks - n_tail;
	*k = (struct token){.q = acts_q(a, t), .d = acts_d(a, t), .qsum = acts_qsum(a, t), .n_whole = n_whole, .n_tail = n_tail};
	memcpy(k->tail_q, k->q + (size_t)n_whole * BLOCK_LEN, (size_t)n_tail * BLOCK_LEN);
	memcpy(k->tail_d, k->d + n_whole, (size_t)n_tail * sizeof(float));
	memcpy(k->tail_qsum, k->qsum + n_whole, (size_t)n_tail * sizeof(int32_t));
	for (int i = 0; i < QUANT_LANES; i++) {
		k->pair_d[i] = k->tail_d[i % 2];
		k->pair_qsum[i] = k->tail_qsum[i % 2];
	}
}

// dot_whole fills the lanes of one row with its whole groups.
INLINE void dot_whole(enum dtype type, int32_t n_lanes, const uint8_t *p, const struct token *k, struct row_lanes *lanes)
{
	const uint32_t bytes = block_bytes(type);
	row_lanes_init(n_lanes, lanes);
	for (int32_t b = 0; b < k->n_whole; b += QUANT_LANES, p += QUANT_LANES * bytes) {
		const int8_t *q = k->q + (size_t)b * BLOCK_LEN;
		prefetch_pages(p);
		struct four low = four_neighbours(type, p, q), high = four_neighbours(type, p + 4 * bytes, q + 4 * BLOCK_LEN);
		__m256i sums = join_halves(four_sums(type, low), four_sums(type, high));
		struct eight_products v = join(type, sums, headers(low), headers(high), _mm256_loadu_ps(k->d + b), load256(k->qsum + b));
		add_eight(n_lanes, type_has_min(type), &v, lanes);
	}
}

// dot_tail adds the last blocks of one row. At p a whole group may be read: what follows the row's end meets q = 0, and its scales
// are masked, since they may be anything.
INLINE void dot_tail(enum dtype type, int32_t n_lanes, const uint8_t *p, const struct token *k, struct row_lanes *lanes)
{
	const __m128i n = _mm_set1_epi32(k->n_tail);
	struct four f = four_neighbours(type, p, k->tail_q);
	__m256i low = four_sums(type, f), high = _mm256_setzero_si256();
	__m128i head_low = _mm_and_si128(headers(f), _mm_cmpgt_epi32(n, _mm_setr_epi32(0, 1, 2, 3))), head_high = _mm_setzero_si128();
	if (k->n_tail > 4) {
		f = four_neighbours(type, p + 4 * block_bytes(type), k->tail_q + 4 * BLOCK_LEN);
		high = four_sums(type, f);
		head_high = _mm_and_si128(headers(f), _mm_cmpgt_epi32(n, _mm_setr_epi32(4, 5, 6, 7)));
	}
	struct eight_products v = join(type, join_halves(low, high), head_low, head_high, _mm256_loadu_ps(k->tail_d), load256(k->tail_qsum));
	add_eight(n_lanes, type_has_min(type), &v, lanes);
}

INLINE struct four two_pairs(enum dtype type, const uint8_t *p, const uint8_t *p2, const struct token *k)
{
	return (struct four){
		.p = {p, p + block_bytes(type), p2, p2 + block_bytes(type)},
		.q = {k->tail_q, k->tail_q + BLOCK_LEN, k->tail_q, k->tail_q + BLOCK_LEN},
	};
}

// dot_tail_pairs adds a last block or two of four rows as one group, whose elements are lanes 0 and 1 of each row. May read on as dot_tail.
INLINE void dot_tail_pairs(enum dtype type, struct row_lanes lanes[4], const uint8_t *p, size_t row_bytes, const struct token *k)
{
	struct four f = two_pairs(type, p, p + row_bytes, k), g = two_pairs(type, p + 2 * row_bytes, p + 3 * row_bytes, k);
	const __m128i pick = _mm_cmpgt_epi32(_mm_set1_epi32(k->n_tail), _mm_setr_epi32(0, 1, 0, 1));
	const struct eight_products v = join(type, join_halves(four_sums(type, f), four_sums(type, g)), _mm_and_si128(headers(f), pick),
		_mm_and_si128(headers(g), pick), _mm256_loadu_ps(k->pair_d), load256(k->pair_qsum));
	__m256d l[4], pairs;
	struct row_lanes four;
	for (int i = 0; i < 4; i++)
		l[i] = _mm256_castps_pd(lanes[i].all);
	pairs = _mm256_insertf128_pd(_mm256_unpacklo_pd(l[0], l[1]), _mm256_castpd256_pd128(_mm256_unpacklo_pd(l[2], l[3])), 1);
	four.all = _mm256_castpd_ps(pairs);
	add_eight(QUANT_LANES, type_has_min(type), &v, &four);
	pairs = _mm256_castps_pd(four.all);
	__m256d upper = _mm256_castpd128_pd256(_mm256_extractf128_pd(pairs, 1));
	lanes[0].all = _mm256_castpd_ps(_mm256_blend_pd(l[0], pairs, 1));
	lanes[1].all = _mm256_castpd_ps(_mm256_blend_pd(l[1], _mm256_permute_pd(pairs, 1), 1));
	lanes[2].all = _mm256_castpd_ps(_mm256_blend_pd(l[2], upper, 1));
	lanes[3].all = _mm256_castpd_ps(_mm256_blend_pd(l[3], _mm256_permute_pd(upper, 1), 1));
}

// dot_four_rows returns four outputs over all lanes; the rows lie below safe_rows_end.
INLINE __m128 dot_four_rows(enum dtype type, const uint8_t *p, size_t row_bytes, const struct token *k)
{
	const uint8_t *tail = p + (size_t)k->n_whole * block_bytes(type);
	struct row_lanes lanes[4];
	for (uint32_t i = 0; i < 4; i++)
		dot_whole(type, QUANT_LANES, p + i * row_bytes, k, &lanes[i]);
	if (k->n_tail > 2) {
		for (uint32_t i = 0; i < 4; i++)
			dot_tail(type, QUANT_LANES, tail + i * row_bytes, k, &lanes[i]);
	} else if (k->n_tail > 0) {
		dot_tail_pairs(type, lanes, tail, row_bytes, k);
	}
	const __m256 all[4] = {lanes[0].all, lanes[1].all, lanes[2].all, lanes[3].all};
	return tree8x4(all);
}

// dot_row fills the lanes of one row. safe: below safe_rows_end.
INLINE void dot_row(enum dtype type, int32_t n_lanes, bool safe, const uint8_t *p, const struct token *k, struct row_lanes *lanes)
{
	const uint32_t bytes = block_bytes(type);
	const uint8_t *end = p + (size_t)k->n_whole * bytes;
	uint8_t tail[QUANT_LANES * BLOCK_BYTES_MAX] = {0};
	dot_whole(type, n_lanes, p, k, lanes);
	if (k->n_tail == 0)
		return;
	if (!safe) {
		memcpy(tail, end, (size_t)k->n_tail * bytes);
		end = tail;
	}
	dot_tail(type, n_lanes, end, k, lanes);
}

// safe_rows_end returns the first row whose tail must not be read on as a whole group: that would leave the tensor.
static int32_t safe_rows_end(const struct weight *w, uint32_t bytes)
{
	size_t rows = (QUANT_LANES * (size_t)bytes + w->row_bytes - 1) / w->row_bytes;
	return rows >= (size_t)w->rows ? 0 : w->rows - (int32_t)rows;
}

INLINE void matmul_rows(enum dtype type, int32_t n_lanes, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end,
	const struct nodes_sink *to)
{
	const int32_t safe_end = safe_rows_end(w, block_bytes(type));
	struct token tokens[ROWS_TOKENS_MAX];
	struct row_lanes lanes;
	for (int32_t t = 0; t < a->n; t++)
		token_init(&tokens[t], a, t);
	int32_t r = row_begin;
	for (; n_lanes == QUANT_LANES && r + 4 <= row_end && r + 3 < safe_end; r += 4) {
		for (int32_t t = 0; t < a->n; t++)
			_mm_storeu_ps(to->y + (size_t)t * to->token_stride + r, dot_four_rows(type, weight_row(w, r), w->row_bytes, &tokens[t]));
	}
	for (; r < row_end; r++) {
		for (int32_t t = 0; t < a->n; t++) {
			dot_row(type, n_lanes, n_lanes < QUANT_LANES && r < safe_end, weight_row(w, r), &tokens[t], &lanes);
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

void avx2_matmul_rows(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	(to->n_lanes == QUANT_LANES ? matmul_all : matmul_some)(w, a, row_begin, row_end, to);
}
