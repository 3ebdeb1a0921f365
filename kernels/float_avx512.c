// Float products and GLU. Rule 8: the 32 lanes are two vectors. One row at a time for one or two tokens, where memory is the limit; else
// four rows with three tokens, so that each load serves several products.
#include "kernels/simd_avx512.h"

#include "base/fmath.h"

#define LANE_VECTORS 2
#define ROWS_AT_ONCE 4
#define TOKENS_AT_ONCE 3 // with four rows: 24 sums of the 32 registers
#define ROWS_IN_CACHE 16 // rows that meet all tokens before the next ones are read

// load_weights returns elements i .. i + 15 of a row as f32, those without a bit in mask as 0.
INLINE __m512 load_weights(enum dtype type, const uint8_t *row, int32_t i, __mmask16 mask)
{
	if (type == DTYPE_F32)
		return _mm512_maskz_loadu_ps(mask, row + (size_t)i * 4);
	__m256i half = _mm256_maskz_loadu_epi16(mask, row + (size_t)i * 2);
	if (type == DTYPE_F16)
		return _mm512_cvtph_ps(half);
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// A group of rows and of tokens, and where the products go.
struct corner {
	const uint8_t *row;
	const float *x;
	const struct nodes_sink *to;
	size_t row_bytes, x_stride;
	int32_t cols, r, t; // row and token of the first
};

// add_columns adds up to 32 columns from i on to the lanes, or up to 16 with one vector. Where mask has no bit nothing is added: a lane
// may be -0.
INLINE void add_columns(enum dtype type, int n_vectors, int n_rows, int n, const struct corner *c, int32_t i, const __mmask16 mask[LANE_VECTORS],
	__m512 (*lanes)[TOKENS_AT_ONCE][LANE_VECTORS])
{
	for (int r = 0; r < n_rows; r++) {
		for (int l = 0; l < n_vectors; l++) {
			__m512 w = load_weights(type, c->row + (size_t)r * c->row_bytes, i + 16 * l, mask[l]);
			for (int t = 0; t < n; t++) {
				__m512 x = _mm512_maskz_loadu_ps(mask[l], c->x + (size_t)t * c->x_stride + i + 16 * l);
				lanes[r][t][l] = _mm512_mask3_fmadd_ps(w, x, lanes[r][t][l], mask[l]);
			}
		}
	}
}

INLINE float tree_of(const __m512 l[LANE_VECTORS])
{
	__m256 v[4] = {_mm512_castps512_ps256(l[0]), _mm512_extractf32x8_ps(l[0], 1), _mm512_castps512_ps256(l[1]), _mm512_extractf32x8_ps(l[1], 1)};
	return tree32(v);
}

INLINE void store_nodes(int32_t n_lanes, const struct nodes_sink *to, int32_t t, int32_t row, const __m512 l[LANE_VECTORS])
{
	float lanes[FLOAT_LANES];
	if (n_lanes == FLOAT_LANES) {
		to->y[(size_t)t * to->token_stride + (size_t)row] = tree_of(l);
		return;
	}
	for (int i = 0; i < LANE_VECTORS; i++)
		_mm512_storeu_ps(lanes + 16 * i, l[i]);
	sink_lanes(to, t, row, lanes);
}

// first_lanes fills masks of lanes 0 to n - 1.
INLINE void first_lanes(int32_t n, __mmask16 mask[LANE_VECTORS])
{
	uint32_t m = UINT32_MAX >> (FLOAT_LANES - n);
	mask[0] = (__mmask16)m;
	mask[1] = (__mmask16)(m >> 16);
}

// page_due tells whether it is time for prefetch_pages at column i: once in 256.
INLINE bool page_due(int32_t n_lanes, int32_t i)
{
	return n_lanes == FLOAT_LANES ? i % 256 == 0 : (uint32_t)i % 256 < (uint32_t)n_lanes;
}

INLINE void dot_corner(enum dtype type, int32_t n_lanes, int n_vectors, int n_rows, int n, const struct corner *c)
{
	const uint32_t size = type == DTYPE_F32 ? 4 : 2;
	__mmask16 mask[LANE_VECTORS];
	__m512 lanes[ROWS_AT_ONCE][TOKENS_AT_ONCE][LANE_VECTORS];
	for (int r = 0; r < n_rows; r++) {
		for (int t = 0; t < n; t++)
			lanes[r][t][0] = lanes[r][t][1] = _mm512_setzero_ps();
	}
	first_lanes(n_lanes, mask);
	int32_t i = 0;
	for (; i + n_lanes <= c->cols; i += n_lanes) {
		if (n_rows == 1 && page_due(n_lanes, i))
			prefetch_pages(c->row + (size_t)i * size);
		add_columns(type, n_vectors, n_rows, n, c, i, mask, lanes);
	}
	if (i < c->cols) {
		first_lanes(c->cols - i, mask);
		add_columns(type, n_vectors, n_rows, n, c, i, mask, lanes);
	}
	for (int r = 0; r < n_rows; r++) {
		for (int t = 0; t < n; t++)
			store_nodes(n_lanes, c->to, c->t + t, c->r + r, lanes[r][t]);
	}
}

INLINE void dot_rows(enum dtype type, int32_t n_lanes, int n_vectors, int n_rows, int32_t n, const struct corner *c)
{
	switch (n) {
	case 1: dot_corner(type, n_lanes, n_vectors, n_rows, 1, c); break;
	case 2: dot_corner(type, n_lanes, n_vectors, n_rows, 2, c); break;
	default: dot_corner(type, n_lanes, n_vectors, n_rows, 3, c); break;
	}
}

INLINE void matmul_rows(enum dtype type, int32_t n_lanes, int n_vectors, const struct weight *w, const struct acts *a, int32_t row_begin,
	int32_t row_end, const struct nodes_sink *to)
{
	struct corner c = {.row_bytes = w->row_bytes, .x_stride = (size_t)a->cols, .to = to, .cols = w->cols};
	const int32_t at_once = a->n <= ROWS_TOKENS_MAX ? 1 : ROWS_AT_ONCE;
	for (int32_t begin = row_begin; begin < row_end; begin += ROWS_IN_CACHE) {
		int32_t end = row_end - begin < ROWS_IN_CACHE ? row_end : begin + ROWS_IN_CACHE;
		for (c.t = 0; c.t < a->n; c.t += TOKENS_AT_ONCE) {
			int32_t n = a->n - c.t < TOKENS_AT_ONCE ? a->n - c.t : TOKENS_AT_ONCE, step = at_once;
			c.x = a->x + (size_t)c.t * (size_t)a->cols;
			for (c.r = begin; c.r < end; c.r += step) {
				step = end - c.r < at_once ? 1 : at_once;
				c.row = weight_row(w, c.r);
				if (step == 1)
					dot_rows(type, n_lanes, n_vectors, 1, n, &c);
				else
					dot_rows(type, n_lanes, n_vectors, ROWS_AT_ONCE, n, &c);
			}
		}
	}
}

INLINE void matmul_float(int32_t n_lanes, int n_vectors, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end,
	const struct nodes_sink *to)
{
	if (w->type == DTYPE_F32)
		matmul_rows(DTYPE_F32, n_lanes, n_vectors, w, a, row_begin, row_end, to);
	else if (w->type == DTYPE_F16)
		matmul_rows(DTYPE_F16, n_lanes, n_vectors, w, a, row_begin, row_end, to);
	else
		matmul_rows(DTYPE_BF16, n_lanes, n_vectors, w, a, row_begin, row_end, to);
}

NOINLINE void matmul_all(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	matmul_float(FLOAT_LANES, LANE_VECTORS, w, a, row_begin, row_end, to);
}

NOINLINE void matmul_some(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	const int32_t n_lanes = to->n_lanes;
	ASSERT(n_lanes < FLOAT_LANES);
	if (n_lanes <= 16)
		matmul_float(n_lanes, 1, w, a, row_begin, row_end, to);
	else
		matmul_float(n_lanes, 2, w, a, row_begin, row_end, to);
}

void avx512_matmul_float(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	(to->n_lanes == FLOAT_LANES ? matmul_all : matmul_some)(w, a, row_begin, row_end, to);
}

void avx512_swiglu(const float *gate, const float *up, int32_t n, float *y)
{
	const __m512 one = _mm512_set1_ps(1.0f), sign = _mm512_set1_ps(-0.0f);
	int32_t i = 0;
	for (; i + 16 <= n; i += 16) {
		__m512 g = _mm512_loadu_ps(gate + i);
		__m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, exp16(_mm512_xor_ps(g, sign))));
		_mm512_storeu_ps(y + i, _mm512_mul_ps(silu, _mm512_loadu_ps(up + i)));
	}
	for (; i < n; i++)
		y[i] = fmath_silu(gate[i]) * up[i];
}
