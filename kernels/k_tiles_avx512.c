// Rules 6 and 7 for several tokens: 16 rows lie across the lanes of a vector, so that the canonical lanes are 4 vectors and nothing needs
// a horizontal step. One instruction multiplies four weights of each of 16 rows with four activations; each sum of 16 or 32 elements is
// then multiplied with its scale. The plan of a tile is that of quant_tiles_avx2.c.
#include "kernels/k_scales.h"
#include "kernels/tiles_avx512.h"

#define TILE_SUPERS 4   // super-blocks, 1,024 columns: 23 KiB; as many as there are lanes
#define TILE_TOKENS 64
#define MICRO 8         // tokens a micro kernel takes: two sums each, a weight vector and a scale stay in registers
#define SUPER_GROUPS 64 // vectors of one super-block: 256 elements, 4 per row and vector

struct super {
	__m512i w[SUPER_GROUPS]; // without offset
	__m512i scale[16];       // of 16 elements, or of 32: then only eight
	__m512i pairs[8];        // q6_k, q3_k: scales 2k and 2k + 1 of a row side by side; q4_k, q5_k: the first four, mins likewise
	__m512 d, dmin;
};

// byte_of returns byte i of each dword, with its sign.
INLINE __m512i byte_of(__m512i v, int i)
{
	return _mm512_srai_epi32(_mm512_slli_epi32(v, 24 - 8 * i), 24);
}

// byte_pair returns bytes i and i + 1 (i even) of each dword as two 16-bit integers with their signs.
INLINE __m512i byte_pair(__m512i v, int i)
{
	__m512i first = _mm512_and_si512(byte_of(v, i), _mm512_set1_epi32(0xffff)), second = _mm512_slli_epi32(byte_of(v, i + 1), 16);
	return _mm512_or_si512(first, second);
}

// unpack_scales fills scale, pairs, d and dmin of 16 rows' blocks.
INLINE void unpack_scales(enum dtype type, const uint8_t *const rows[TILE_ROWS], size_t at, struct super *out)
{
	uint64_t packed[TILE_ROWS][2];
	const uint8_t *lines[TILE_ROWS];
	for (int r = 0; r < TILE_ROWS; r++) {
		lines[r] = (const uint8_t *)packed[r];
		if (type_has_min(type))
			k_scales_mins(rows[r] + at, &packed[r][0], &packed[r][1]);
		else if (type == DTYPE_Q3_K)
			k_q3_scales(rows[r] + at, packed[r]);
		else
			memcpy(packed[r], rows[r] + at + 192, 16);
	}
	__m512i v[4], head = load_dwords(rows, at + k_header_at(type));
	load_transposed(lines, 0, v);
	__m512 upper = halves_to_float(_mm512_srli_epi32(head, 16));
	if (type_has_min(type)) {
		for (int k = 0; k < 8; k++)
			out->scale[k] = byte_of(v[k / 4], k % 4);
		for (int k = 0; k < 4; k++)
			out->pairs[k] = byte_pair(v[2 + k / 2], k % 2 * 2);
		out->d = halves_to_float(head);
		out->dmin = upper;
		return;
	}
	for (int k = 0; k < 4 && type == DTYPE_Q3_K; k++)
		v[k] = _mm512_sub_epi8(v[k], _mm512_set1_epi8(32));
	for (int k = 0; k < 16; k++)
		out->scale[k] = byte_of(v[k / 4], k % 4);
	for (int k = 0; k < 8; k++)
		out->pairs[k] = byte_pair(v[k / 2], k % 2 * 2);
	out->d = upper;
}

// or_bits sets bits `to` and up of w to those from bit `from` on of high, as mask says.
INLINE __m512i or_bits(__m512i w, __m512i high, unsigned from, unsigned to, char mask)
{
	high = from < to ? _mm512_slli_epi16(high, to - from) : _mm512_srli_epi16(high, from - to);
	return or_masked(w, high, _mm512_set1_epi8(mask));
}

// unpack_nibbles fills the 64 vectors of q4_k, and the low four bits of q5_k.
INLINE void unpack_nibbles(const uint8_t *const rows[TILE_ROWS], size_t at, __m512i *w)
{
	const __m512i mask = _mm512_set1_epi8(15);
	for (int c = 0; c < 8; c++) { // 16 bytes: elements 64 (c / 2) + 16 (c % 2) on, and 32 further on
		__m512i v[4], *out = w + c / 2 * 16 + c % 2 * 4;
		load_transposed(rows, at + 16 * (size_t)c, v);
		for (int g = 0; g < 4; g++) {
			out[g] = _mm512_and_si512(v[g], mask);
			out[g + 8] = _mm512_and_si512(_mm512_srli_epi16(v[g], 4), mask);
		}
	}
}

INLINE void unpack_q5_k(const uint8_t *const rows[TILE_ROWS], size_t at, __m512i *w)
{
	__m512i high[8];
	unpack_nibbles(rows, at + 48, w);
	load_transposed(rows, at + 16, high);
	load_transposed(rows, at + 32, high + 4);
#pragma GCC unroll 8
	for (unsigned s = 0; s < 8; s++) {
		for (int g = 0; g < 8; g++)
			w[8 * s + (unsigned)g] = or_bits(w[8 * s + (unsigned)g], high[g], s, 4, 16);
	}
}

INLINE void unpack_q6_k(const uint8_t *const rows[TILE_ROWS], size_t at, __m512i *w)
{
	const __m512i mask = _mm512_set1_epi8(15);
	for (size_t half = 0; half < 2; half++, w += 32) {
		__m512i low[16], pairs[8];
		for (size_t c = 0; c < 4; c++)
			load_transposed(rows, at + 64 * half + 16 * c, low + 4 * c);
		load_transposed(rows, at + 128 + 32 * half, pairs);
		load_transposed(rows, at + 144 + 32 * half, pairs + 4);
		for (int g = 0; g < 8; g++) {
			w[g] = or_bits(_mm512_and_si512(low[g], mask), pairs[g], 0, 4, 48);
			w[g + 8] = or_bits(_mm512_and_si512(low[g + 8], mask), pairs[g], 2, 4, 48);
			w[g + 16] = or_bits(_mm512_and_si512(_mm512_srli_epi16(low[g], 4), mask), pairs[g], 4, 4, 48);
			w[g + 24] = or_bits(_mm512_and_si512(_mm512_srli_epi16(low[g + 8], 4), mask), pairs[g], 6, 4, 48);
		}
	}
}

INLINE void unpack_q3_k(const uint8_t *const rows[TILE_ROWS], size_t at, __m512i *w)
{
	const __m512i mask = _mm512_set1_epi8(3);
	__m512i high[8];
	load_transposed(rows, at, high);
	load_transposed(rows, at + 16, high + 4);
	for (unsigned half = 0; half < 2; half++) {
		__m512i pairs[8];
		load_transposed(rows, at + 32 + 32 * half, pairs);
		load_transposed(rows, at + 48 + 32 * half, pairs + 4);
#pragma GCC unroll 4
		for (unsigned s = 0; s < 4; s++) {
			for (unsigned g = 0; g < 8; g++) {
				__m512i low = _mm512_and_si512(_mm512_srli_epi16(pairs[g], 2 * s), mask);
				w[32 * half + 8 * s + g] = half == 0 ? or_bits(low, high[g], s, 2, 4) : or_bits(low, high[g], s + 4, 2, 4);
			}
		}
	}
}

INLINE void load_tile(enum dtype type, const uint8_t *const rows[TILE_ROWS], size_t row_bytes, int32_t b0, int32_t n, struct super *tile)
{
	for (int32_t b = 0; b < n; b++) {
		size_t at = (size_t)(b0 + b) * k_block_bytes(type);
		for (int r = 0; r < TILE_ROWS; r++) {
			for (size_t line = 0; line < k_block_bytes(type); line += 64)
				_mm_prefetch((const char *)((uintptr_t)rows[r] + TILE_ROWS * row_bytes + at + line), _MM_HINT_T0);
		}
		unpack_scales(type, rows, at, &tile[b]);
		switch (type) {
		case DTYPE_Q4_K: unpack_nibbles(rows, at + 16, tile[b].w); break;
		case DTYPE_Q5_K: unpack_q5_k(rows, at, tile[b].w); break;
		case DTYPE_Q6_K: unpack_q6_k(rows, at, tile[b].w); break;
		default: unpack_q3_k(rows, at, tile[b].w); break;
		}
	}
}

// Activations of the tokens a micro kernel works on.
struct tokens {
	const int8_t *q; // super-block 0 of the tile, first token
	const float *d;
	const int16_t *sum16, *sum32;
	size_t n_supers; // of a token: what lies from one to the next
};

// super_dots sums scale * w * q of one super-block for n tokens into s, 16 rows each.
INLINE void super_dots(enum dtype type, int n, const struct super *p, const int8_t *q, size_t q_stride, __m512i *s)
{
	const int run = type_has_min(type) ? 8 : 4; // groups that share a scale
#pragma GCC unroll 1
	for (int begin = 0; begin < SUPER_GROUPS; begin += run) {
		__m512i sums[MICRO];
		for (int t = 0; t < n; t++)
			sums[t] = dot4(_mm512_setzero_si512(), p->w[begin], q + (size_t)t * q_stride + 4 * begin);
#pragma GCC unroll 8
		for (int g = begin + 1; g < begin + run; g++) {
			for (int t = 0; t < n; t++)
				sums[t] = dot4(sums[t], p->w[g], q + (size_t)t * q_stride + 4 * g);
		}
		__m512i scale = p->scale[begin / run];
		for (int t = 0; t < n; t++)
			s[t] = _mm512_add_epi32(s[t], _mm512_mullo_epi32(sums[t], scale));
	}
}

// pair_dots returns the sum of pairs[k] * two neighbouring sums of the activations, over n pairs.
INLINE __m512i pair_dots(const __m512i *pairs, int n, const int16_t *sums)
{
	__m512i s = _mm512_setzero_si512();
	for (int k = 0; k < n; k++)
		s = _mm512_dpwssd_epi32(s, pairs[k], _mm512_set1_epi32(load_i32(sums + 2 * k)));
	return s;
}

// micro does n_supers super-blocks, the first of them in canonical lane 0, for n tokens. lanes: (4, MICRO).
INLINE void micro(enum dtype type, int n, const struct super *tile, int32_t n_supers, const struct tokens *k, __m512 (*lanes)[MICRO])
{
	for (int32_t b = 0; b < n_supers; b++) {
		const struct super *p = &tile[b];
		__m512i s[MICRO];
		for (int t = 0; t < n; t++)
			s[t] = _mm512_setzero_si512();
		super_dots(type, n, p, k->q + (size_t)b * SUPER_LEN, k->n_supers * SUPER_LEN, s);
		for (int t = 0; t < n; t++) {
			size_t at = (size_t)t * k->n_supers + (size_t)b;
			__m512 v;
			if (type_has_min(type)) {
				__m512 m = _mm512_cvtepi32_ps(pair_dots(p->pairs, 4, k->sum32 + 8 * at));
				v = _mm512_fmsub_ps(_mm512_cvtepi32_ps(s[t]), p->d, _mm512_mul_ps(m, p->dmin));
			} else {
				__m512i offset = _mm512_slli_epi32(pair_dots(p->pairs, 8, k->sum16 + 16 * at), type == DTYPE_Q6_K ? 5 : 2);
				v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(s[t], offset)), p->d);
			}
			lanes[b][t] = _mm512_fmadd_ps(v, _mm512_set1_ps(k->d[at]), lanes[b][t]);
		}
	}
}

INLINE void tile_times_tokens(enum dtype type, const struct super *tile, int32_t n_supers, struct tokens k, int32_t n,
	__m512 (*lanes)[SUPER_LANES][MICRO])
{
	for (; n >= MICRO; n -= MICRO, lanes++) {
		micro(type, MICRO, tile, n_supers, &k, *lanes);
		k.q += MICRO * k.n_supers * SUPER_LEN;
		k.d += MICRO * k.n_supers;
		k.sum16 += MICRO * k.n_supers * 16;
		k.sum32 += MICRO * k.n_supers * 8;
	}
	switch (n) {
	case 7: micro(type, 7, tile, n_supers, &k, *lanes); break;
	case 6: micro(type, 6, tile, n_supers, &k, *lanes); break;
	case 5: micro(type, 5, tile, n_supers, &k, *lanes); break;
	case 4: micro(type, 4, tile, n_supers, &k, *lanes); break;
	case 3: micro(type, 3, tile, n_supers, &k, *lanes); break;
	case 2: micro(type, 2, tile, n_supers, &k, *lanes); break;
	case 1: micro(type, 1, tile, n_supers, &k, *lanes); break;
	default: break;
	}
}

// sixteen_rows computes n_rows (1 to 16) outputs of tokens [begin, begin + n). Rows past the last repeat it and are not written.
INLINE void sixteen_rows(enum dtype type, const struct weight *w, const struct acts *a, int32_t row, int32_t n_rows, int32_t begin, int32_t n,
	float *y, size_t y_stride)
{
	struct super tile[TILE_SUPERS];
	__m512 lanes[TILE_TOKENS / MICRO][SUPER_LANES][MICRO];
	const uint8_t *rows[TILE_ROWS];
	for (int r = 0; r < TILE_ROWS; r++)
		rows[r] = weight_row(w, row + (r < n_rows ? r : n_rows - 1));
	memset(lanes, 0, (size_t)((n + MICRO - 1) / MICRO) * sizeof(lanes[0]));
	int32_t n_supers = w->cols / SUPER_LEN;
	for (int32_t b0 = 0; b0 < n_supers; b0 += TILE_SUPERS) {
		int32_t n_here = n_supers - b0 < TILE_SUPERS ? n_supers - b0 : TILE_SUPERS;
		load_tile(type, rows, w->row_bytes, b0, n_here, tile);
		struct tokens k = {
			.q = acts_q(a, begin) + (size_t)b0 * SUPER_LEN,
			.d = acts_d(a, begin) + b0,
			.sum16 = acts_sum16(a, begin) + (size_t)b0 * 16,
			.sum32 = acts_sum32(a, begin) + (size_t)b0 * 8,
			.n_supers = (size_t)n_supers,
		};
		tile_times_tokens(type, tile, n_here, k, n, lanes);
	}
	const __mmask16 there = (__mmask16)((1u << n_rows) - 1);
	for (int32_t t = 0; t < n; t++) {
		__m512(*l)[MICRO] = lanes[t / MICRO];
		int32_t i = t % MICRO;
		__m512 sum = _mm512_add_ps(_mm512_add_ps(l[0][i], l[1][i]), _mm512_add_ps(l[2][i], l[3][i]));
		_mm512_mask_storeu_ps(y + (size_t)(begin + t) * y_stride + row, there, sum);
	}
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

void avx512_matmul_k_tiles(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y, size_t y_stride)
{
	switch (w->type) {
	case DTYPE_Q4_K: matmul_tiles(DTYPE_Q4_K, w, a, row_begin, row_end, y, y_stride); break;
	case DTYPE_Q5_K: matmul_tiles(DTYPE_Q5_K, w, a, row_begin, row_end, y, y_stride); break;
	case DTYPE_Q6_K: matmul_tiles(DTYPE_Q6_K, w, a, row_begin, row_end, y, y_stride); break;
	default: matmul_tiles(DTYPE_Q3_K, w, a, row_begin, row_end, y, y_stride); break;
	}
}
