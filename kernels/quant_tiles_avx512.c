// Rule 5 for several tokens: 16 rows lie across the lanes of a vector. The plan of a tile is that of quant_tiles_avx2.c; here one
// instruction multiplies four weights of each of 16 rows with four activations and adds them up in 32 bits, so that nothing can overflow,
// and a block's sum starts at what the weights' offset takes away.
#include "kernels/tiles_avx512.h"

#define TILE_BLOCKS 32 // 1,024 columns: 20 KiB, which leave room in the first-level cache
#define TILE_TOKENS 64
#define MICRO 8        // tokens a micro kernel takes: a sum and a lane each, and a weight vector stay in registers
#define GROUPS 8       // vectors of one block: 32 elements, 4 per row and vector

struct tile {
	__m512i w[TILE_BLOCKS][GROUPS]; // without offset: 0 to 255
	__m512 d[TILE_BLOCKS];
	__m512 m[TILE_BLOCKS];
};

// What is to be subtracted from the weights of a tile is 1 << offset_shift; 0 stands for nothing.
INLINE unsigned offset_shift(enum dtype type)
{
	return type == DTYPE_Q4_0 ? 3 : type == DTYPE_Q5_0 ? 4 : type == DTYPE_Q8_0 ? 7 : 0;
}

// add_fifth_bits adds 16 to the elements of group g whose bit among bits 4g to 4g + 3 of each row's dword is set.
INLINE __m512i add_fifth_bits(__m512i w, __m512i high, int g)
{
	const __m512i dwords = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
	__m512i bytes = _mm512_shuffle_epi8(high, _mm512_or_si512(dwords, _mm512_set1_epi8((char)(g / 2))));
	__mmask64 set = _mm512_test_epi8_mask(bytes, _mm512_set1_epi32(g % 2 ? (int)0x80402010 : 0x08040201));
	return _mm512_mask_add_epi8(w, set, w, _mm512_set1_epi8(16));
}

// unpack_block fills block b of the tile from offset `at` of each row.
INLINE void unpack_block(enum dtype type, const uint8_t *const rows[TILE_ROWS], size_t at, struct tile *tile, int32_t b)
{
	__m512i head = load_dwords(rows, at), v[GROUPS];
	tile->d[b] = halves_to_float(head);
	if (type_has_min(type))
		tile->m[b] = halves_to_float(_mm512_srli_epi32(head, 16));
	if (type == DTYPE_Q8_0) {
		load_transposed(rows, at + 2, v);
		load_transposed(rows, at + 18, v + 4);
		for (int g = 0; g < GROUPS; g++)
			tile->w[b][g] = _mm512_xor_si512(v[g], _mm512_set1_epi8((char)0x80));
		return;
	}
	const __m512i mask = _mm512_set1_epi8(15);
	size_t high_at = at + (type_has_min(type) ? 4 : 2);
	bool five = type == DTYPE_Q5_0 || type == DTYPE_Q5_1;
	load_transposed(rows, high_at + (five ? 4 : 0), v);
	for (int g = 0; g < 4; g++) {
		v[g + 4] = _mm512_and_si512(_mm512_srli_epi16(v[g], 4), mask);
		v[g] = _mm512_and_si512(v[g], mask);
	}
	if (five) {
		__m512i high = load_dwords(rows, high_at);
#pragma GCC unroll 8
		for (int g = 0; g < GROUPS; g++)
			v[g] = add_fifth_bits(v[g], high, g);
	}
	for (int g = 0; g < GROUPS; g++)
		tile->w[b][g] = v[g];
}

INLINE void load_tile(enum dtype type, const uint8_t *const rows[TILE_ROWS], size_t row_bytes, int32_t b0, int32_t n, struct tile *tile)
{
	for (int32_t b = 0; b < n; b++) {
		size_t at = (size_t)(b0 + b) * block_bytes(type);
		for (int r = 0; r < TILE_ROWS; r++)
			_mm_prefetch((const char *)((uintptr_t)rows[r] + TILE_ROWS * row_bytes + at), _MM_HINT_T0);
		unpack_block(type, rows, at, tile, b);
	}
}

// Activations of the tokens a micro kernel works on.
struct tokens {
	const int8_t *q;     // block 0 of the tile, first token
	const float *d;
	const int32_t *qsum;
	size_t q_stride;     // from one token to the next
	size_t d_stride;     // likewise for d and qsum
};

// What a micro kernel takes of the sums of its tokens' activations.
struct starts {
	int32_t offset[MICRO][TILE_BLOCKS]; // where the sum of a block begins
	float sum[MICRO][TILE_BLOCKS];      // for types with a min
};

INLINE void prepare(enum dtype type, int n, int32_t n_blocks, const struct tokens *k, struct starts *s)
{
	for (int t = 0; t < n; t++) {
		for (int32_t b = 0; b < n_blocks; b += 16) {
			const __mmask16 there = (__mmask16)(n_blocks - b < 16 ? (1u << (n_blocks - b)) - 1 : 0xffff);
			__m512i qsum = _mm512_maskz_loadu_epi32(there, k->qsum + (size_t)t * k->d_stride + b);
			if (type_has_min(type))
				_mm512_storeu_ps(&s->sum[t][b], _mm512_cvtepi32_ps(qsum));
			else
				_mm512_storeu_si512(&s->offset[t][b], _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(qsum, offset_shift(type))));
		}
	}
}

// one_block adds block b to the lane of each token.
INLINE void one_block(enum dtype type, int n, const struct tile *tile, int32_t b, const struct tokens *k, const struct starts *start,
	__m512 *lane)
{
	const int8_t *q = k->q + (size_t)b * BLOCK_LEN;
	__m512i s[MICRO];
	for (int t = 0; t < n; t++)
		s[t] = type_has_min(type) ? _mm512_setzero_si512() : _mm512_set1_epi32(start->offset[t][b]);
#pragma GCC unroll 8
	for (int g = 0; g < GROUPS; g++) {
		for (int t = 0; t < n; t++)
			s[t] = dot4(s[t], tile->w[b][g], q + (size_t)t * k->q_stride + 4 * g);
	}
	for (int t = 0; t < n; t++) {
		__m512 dx = _mm512_set1_ps(k->d[(size_t)t * k->d_stride + (size_t)b]);
		lane[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(s[t]), _mm512_mul_ps(tile->d[b], dx), lane[t]);
		if (type_has_min(type))
			lane[t] = _mm512_fmadd_ps(_mm512_set1_ps(start->sum[t][b]), _mm512_mul_ps(tile->m[b], dx), lane[t]);
	}
}

// micro does n_blocks blocks, the first of them in canonical lane 0, for n tokens. lanes: (8, MICRO). Lane by lane, so that each stays in
// registers.
INLINE void micro(enum dtype type, int n, const struct tile *tile, int32_t n_blocks, const struct tokens *k, __m512 (*lanes)[MICRO])
{
	struct starts start;
	prepare(type, n, n_blocks, k, &start);
	for (int32_t l = 0; l < QUANT_LANES && l < n_blocks; l++) {
		__m512 lane[MICRO];
		for (int t = 0; t < n; t++)
			lane[t] = lanes[l][t];
		for (int32_t b = l; b < n_blocks; b += QUANT_LANES)
			one_block(type, n, tile, b, k, &start, lane);
		for (int t = 0; t < n; t++)
			lanes[l][t] = lane[t];
	}
}

// tile_times_tokens adds the tile's part of the product to the lanes of n tokens.
INLINE void tile_times_tokens(enum dtype type, const struct tile *tile, int32_t n_blocks, struct tokens k, int32_t n,
	__m512 (*lanes)[QUANT_LANES][MICRO])
{
	for (; n >= MICRO; n -= MICRO, lanes++) {
		micro(type, MICRO, tile, n_blocks, &k, *lanes);
		k.q += MICRO * k.q_stride;
		k.d += MICRO * k.d_stride;
		k.qsum += MICRO * k.d_stride;
	}
	switch (n) {
	case 7: micro(type, 7, tile, n_blocks, &k, *lanes); break;
	case 6: micro(type, 6, tile, n_blocks, &k, *lanes); break;
	case 5: micro(type, 5, tile, n_blocks, &k, *lanes); break;
	case 4: micro(type, 4, tile, n_blocks, &k, *lanes); break;
	case 3: micro(type, 3, tile, n_blocks, &k, *lanes); break;
	case 2: micro(type, 2, tile, n_blocks, &k, *lanes); break;
	case 1: micro(type, 1, tile, n_blocks, &k, *lanes); break;
	default: break;
	}
}

// tree_of returns TREE of token t of a micro kernel's, for 16 rows.
INLINE __m512 tree_of(__m512 (*l)[MICRO], int32_t t)
{
	__m512 a = _mm512_add_ps(_mm512_add_ps(l[0][t], l[1][t]), _mm512_add_ps(l[2][t], l[3][t]));
	__m512 b = _mm512_add_ps(_mm512_add_ps(l[4][t], l[5][t]), _mm512_add_ps(l[6][t], l[7][t]));
	return _mm512_add_ps(a, b);
}

// sixteen_rows computes n_rows (1 to 16) outputs of tokens [begin, begin + n). Rows past the last repeat it and are not written.
INLINE void sixteen_rows(enum dtype type, const struct weight *w, const struct acts *a, int32_t row, int32_t n_rows, int32_t begin, int32_t n,
	float *y, size_t y_stride)
{
	struct tile tile;
	__m512 lanes[TILE_TOKENS / MICRO][QUANT_LANES][MICRO];
	const uint8_t *rows[TILE_ROWS];
	for (int r = 0; r < TILE_ROWS; r++)
		rows[r] = weight_row(w, row + (r < n_rows ? r : n_rows - 1));
	memset(lanes, 0, (size_t)((n + MICRO - 1) / MICRO) * sizeof(lanes[0]));
	int32_t n_blocks = w->cols / BLOCK_LEN;
	for (int32_t b0 = 0; b0 < n_blocks; b0 += TILE_BLOCKS) {
		int32_t n_here = n_blocks - b0 < TILE_BLOCKS ? n_blocks - b0 : TILE_BLOCKS;
		load_tile(type, rows, w->row_bytes, b0, n_here, &tile);
		struct tokens k = {
			.q = acts_q(a, begin) + (size_t)b0 * BLOCK_LEN,
			.d = acts_d(a, begin) + b0,
			.qsum = acts_qsum(a, begin) + b0,
			.q_stride = (size_t)a->cols,
			.d_stride = (size_t)n_blocks,
		};
		tile_times_tokens(type, &tile, n_here, k, n, lanes);
	}
	const __mmask16 there = (__mmask16)((1u << n_rows) - 1);
	for (int32_t t = 0; t < n; t++)
		_mm512_mask_storeu_ps(y + (size_t)(begin + t) * y_stride + row, there, tree_of(lanes[t / MICRO], t % MICRO));
}

INLINE void matmul_tiles(enum dtype type, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y,
	size_t y_stride)
{
	for (int32_t begin = 0; begin < a->n; begin += TILE_TOKENS) {
		int32_t n = a->n - begin < TILE_TOKENS ? a->n - begin : TILE_TOKENS;
		for (int32_t r = row_begin; r < row_end; r += TILE_ROWS)
			sixteen_rows(type, w, a, r, row_end - r < TILE_ROWS ? row_end - r : TILE_ROWS, begin, n, y, y_stride);
	}
}

void avx512_matmul_tiles(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y, size_t y_stride)
{
	switch (w->type) {
	case DTYPE_Q4_0: matmul_tiles(DTYPE_Q4_0, w, a, row_begin, row_end, y, y_stride); break;
	case DTYPE_Q4_1: matmul_tiles(DTYPE_Q4_1, w, a, row_begin, row_end, y, y_stride); break;
	case DTYPE_Q5_0: matmul_tiles(DTYPE_Q5_0, w, a, row_begin, row_end, y, y_stride); break;
	case DTYPE_Q5_1: matmul_tiles(DTYPE_Q5_1, w, a, row_begin, row_end, y, y_stride); break;
	default: matmul_tiles(DTYPE_Q8_0, w, a, row_begin, row_end, y, y_stride); break;
	}
}
