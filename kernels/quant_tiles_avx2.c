// Rule 5 for several tokens: 8 rows lie across the lanes of a vector, so that the canonical lanes are 8 vectors and neither a block's
// sum nor the TREE needs a horizontal step.
//
// A tile holds 8 rows over up to TILE_BLOCKS blocks, unpacked and re-arranged: vector g of a block holds elements 4g to 4g + 3 of
// each row. It is made once and used by up to TILE_TOKENS tokens; the lanes of a (token, 8 rows) pair wait in memory between tiles.
#include "kernels/tiles_avx2.h"

#define TILE_BLOCKS 64 // 2,048 columns: 20 KiB, which leave room in a 32 KiB first-level cache for the lanes
#define TILE_TOKENS 64
#define MICRO 4        // tokens a micro kernel takes: their sums, a weight vector and an input stay in registers
#define GROUPS 8       // vectors of one block: 32 elements, 4 per row and vector

struct tile {
	__m256i w[TILE_BLOCKS][GROUPS]; // without its offset; q8_0: signed
	__m256 d[TILE_BLOCKS];
	__m256 m[TILE_BLOCKS];
};

// fifth_bits spreads bits 4g to 4g + 3 of each dword to bit 4 of its four bytes.
INLINE __m256i fifth_bits(__m256i high, int g)
{
	__m256i nibble = _mm256_and_si256(_mm256_srli_epi32(high, 4 * g), _mm256_set1_epi32(15));
	__m256i spread = _mm256_mullo_epi32(nibble, _mm256_set1_epi32(0x00204081)); // bit k to bits k, k + 7, k + 14, k + 21
	return _mm256_slli_epi32(_mm256_and_si256(spread, _mm256_set1_epi32(0x01010101)), 4);
}

// unpack_block fills block b of the tile from offset `at` of each row.
INLINE void unpack_block(enum dtype type, const uint8_t *const rows[TILE_ROWS], size_t at, struct tile *tile, int32_t b)
{
	__m256i head = load_dwords(rows, at), v[GROUPS];
	tile->d[b] = halves_to_float(_mm256_and_si256(head, _mm256_set1_epi32(0xffff)));
	if (type_has_min(type))
		tile->m[b] = halves_to_float(_mm256_srli_epi32(head, 16));
	if (type == DTYPE_Q8_0) {
		load_transposed(rows, at + 2, v);
		load_transposed(rows, at + 18, v + 4);
	} else {
		const __m256i mask = _mm256_set1_epi8(15);
		size_t high_at = at + (type_has_min(type) ? 4 : 2);
		bool five = type == DTYPE_Q5_0 || type == DTYPE_Q5_1;
		load_transposed(rows, high_at + (five ? 4 : 0), v);
		for (int g = 0; g < 4; g++) {
			v[g + 4] = _mm256_and_si256(_mm256_srli_epi16(v[g], 4), mask);
			v[g] = _mm256_and_si256(v[g], mask);
		}
		if (five) {
			__m256i high = load_dwords(rows, high_at);
			for (int g = 0; g < GROUPS; g++)
				v[g] = _mm256_or_si256(v[g], fifth_bits(high, g));
		}
	}
	for (int g = 0; g < GROUPS; g++)
		tile->w[b][g] = v[g];
}

// load_tile unpacks blocks [b0, b0 + n), and asks for the same part of the next 8 rows: eight streams at once are more than the
// processor foresees (batches of 4 from memory: 1.4 times as fast). Asking past a tensor's end is harmless.
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

// dot_group multiplies vector w of a block with the same four elements of one token.
INLINE __m256i dot_group(enum dtype type, __m256i w, const int8_t *q)
{
	__m256i x = _mm256_set1_epi32(load_i32(q));
	if (type == DTYPE_Q8_0)
		return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)), _mm256_set1_epi16(1));
	return _mm256_maddubs_epi16(w, x);
}

// block_dots sums w * q of one block for n tokens into s, 8 rows each. In 16 bits as long as they fit: for four-bit weights over the
// whole block (8 * 2 * 15 * 127), for five-bit ones over half of it.
INLINE void block_dots(enum dtype type, int n, const __m256i *w, const int8_t *q, size_t q_stride, __m256i *s)
{
	const __m256i zero = _mm256_setzero_si256();
	const int run = type == DTYPE_Q5_0 || type == DTYPE_Q5_1 ? GROUPS / 2 : GROUPS;
	for (int begin = 0; begin < GROUPS; begin += run) {
		__m256i sums[MICRO] = {zero, zero, zero, zero};
		for (int t = 0; t < n; t++)
			sums[t] = dot_group(type, w[begin], q + (size_t)t * q_stride + 4 * begin);
#pragma GCC unroll 8
		for (int g = begin + 1; g < begin + run; g++) {
			for (int t = 0; t < n; t++) {
				__m256i p = dot_group(type, w[g], q + (size_t)t * q_stride + 4 * g);
				sums[t] = type == DTYPE_Q8_0 ? _mm256_add_epi32(sums[t], p) : _mm256_add_epi16(sums[t], p);
				KEEP_HERE(sums[t]);
			}
		}
		for (int t = 0; t < n; t++) {
			__m256i wide = type == DTYPE_Q8_0 ? sums[t] : _mm256_madd_epi16(sums[t], _mm256_set1_epi16(1));
			s[t] = begin == 0 ? wide : _mm256_add_epi32(s[t], wide);
		}
	}
}

// micro does n_blocks blocks, the first of them in canonical lane 0, for n tokens. lanes: (8, MICRO).
INLINE void micro(enum dtype type, int n, const struct tile *tile, int32_t n_blocks, const struct tokens *k, __m256 (*lanes)[MICRO])
{
	const __m256i zero = _mm256_setzero_si256();
	for (int32_t b = 0; b < n_blocks; b++) {
		__m256i s[MICRO] = {zero, zero, zero, zero};
		block_dots(type, n, tile->w[b], k->q + (size_t)b * BLOCK_LEN, k->q_stride, s);
		for (int t = 0; t < n; t++) {
			size_t at = (size_t)t * k->d_stride + (size_t)b;
			__m256i qsum = _mm256_set1_epi32(k->qsum[at]);
			if (type == DTYPE_Q4_0)
				s[t] = _mm256_sub_epi32(s[t], _mm256_slli_epi32(qsum, 3));
			if (type == DTYPE_Q5_0)
				s[t] = _mm256_sub_epi32(s[t], _mm256_slli_epi32(qsum, 4));
			__m256 dx = _mm256_set1_ps(k->d[at]), lane = lanes[b % QUANT_LANES][t];
			lane = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s[t]), _mm256_mul_ps(tile->d[b], dx), lane);
			if (type_has_min(type))
				lane = _mm256_fmadd_ps(_mm256_cvtepi32_ps(qsum), _mm256_mul_ps(tile->m[b], dx), lane);
			lanes[b % QUANT_LANES][t] = lane;
		}
	}
}

// tile_times_tokens adds the tile's part of the product to the lanes of n tokens.
INLINE void tile_times_tokens(enum dtype type, const struct tile *tile, int32_t n_blocks, struct tokens k, int32_t n,
	__m256 (*lanes)[QUANT_LANES][MICRO])
{
	for (; n >= MICRO; n -= MICRO, lanes++) {
		micro(type, MICRO, tile, n_blocks, &k, *lanes);
		k.q += MICRO * k.q_stride;
		k.d += MICRO * k.d_stride;
		k.qsum += MICRO * k.d_stride;
	}
	switch (n) {
	case 3: micro(type, 3, tile, n_blocks, &k, *lanes); break;
	case 2: micro(type, 2, tile, n_blocks, &k, *lanes); break;
	case 1: micro(type, 1, tile, n_blocks, &k, *lanes); break;
	default: break;
	}
}

// tree_of returns TREE of token t of a micro kernel's, for 8 rows.
INLINE __m256 tree_of(const __m256 (*l)[MICRO], int32_t t)
{
	__m256 a = _mm256_add_ps(_mm256_add_ps(l[0][t], l[1][t]), _mm256_add_ps(l[2][t], l[3][t]));
	__m256 b = _mm256_add_ps(_mm256_add_ps(l[4][t], l[5][t]), _mm256_add_ps(l[6][t], l[7][t]));
	return _mm256_add_ps(a, b);
}

// eight_rows computes n_rows (1 to 8) outputs of tokens [begin, begin + n). Rows past the last repeat it and are not written.
INLINE void eight_rows(enum dtype type, const struct weight *w, const struct acts *a, int32_t row, int32_t n_rows, int32_t begin, int32_t n,
	float *y, size_t y_stride)
{
	struct tile tile;
	__m256 lanes[TILE_TOKENS / MICRO][QUANT_LANES][MICRO];
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
	for (int32_t t = 0; t < n; t++) {
		float out[TILE_ROWS];
		_mm256_storeu_ps(out, tree_of((const __m256(*)[MICRO])lanes[t / MICRO], t % MICRO));
		memcpy(y + (size_t)(begin + t) * y_stride + row, out, (size_t)n_rows * sizeof(float));
	}
}

INLINE void matmul_tiles(enum dtype type, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y,
	size_t y_stride)
{
	for (int32_t begin = 0; begin < a->n; begin += TILE_TOKENS) {
		int32_t n = a->n - begin < TILE_TOKENS ? a->n - begin : TILE_TOKENS;
		for (int32_t r = row_begin; r < row_end; r += TILE_ROWS)
			eight_rows(type, w, a, r, row_end - r < TILE_ROWS ? row_end - r : TILE_ROWS, begin, n, y, y_stride);
	}
}

void avx2_matmul_tiles(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y, size_t y_stride)
{
	switch (w->type) {
	case DTYPE_Q4_0: matmul_tiles(DTYPE_Q4_0, w, a, row_begin, row_end, y, y_stride); break;
	case DTYPE_Q4_1: matmul_tiles(DTYPE_Q4_1, w, a, row_begin, row_end, y, y_stride); break;
	case DTYPE_Q5_0: matmul_tiles(DTYPE_Q5_0, w, a, row_begin, row_end, y, y_stride); break;
	case DTYPE_Q5_1: matmul_tiles(DTYPE_Q5_1, w, a, row_begin, row_end, y, y_stride); break;
	default: matmul_tiles(DTYPE_Q8_0, w, a, row_begin, row_end, y, y_stride); break;
	}
}
