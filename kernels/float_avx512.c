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
	float *y;
	size_t row_bytes, x_stride, y_stride;
	int32_t cols;
};

// add_columns adds up to 32 columns from i on to the lanes. Where mask has no bit nothing is added: a lane may be -0.
INLINE void add_columns(enum dtype type, int n_rows, int n, const struct corner *c, int32_t i, const __mmask16 mask[LANE_VECTORS],
	__m512 (*lanes)[TOKENS_AT_ONCE][LANE_VECTORS])
{
	for (int r = 0; r < n_rows; r++) {
		for (int l = 0; l < LANE_VECTORS; l++) {
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

INLINE void dot_corner(enum dtype type, int n_rows, int n, const struct corner *c)
{
	const __mmask16 all[LANE_VECTORS] = {0xffff, 0xffff};
	const uint32_t size = type == DTYPE_F32 ? 4 : 2;
	__m512 lanes[ROWS_AT_ONCE][TOKENS_AT_ONCE][LANE_VECTORS];
	for (int r = 0; r < n_rows; r++) {
		for (int t = 0; t < n; t++)
			lanes[r][t][0] = lanes[r][t][1] = _mm512_setzero_ps();
	}
	int32_t i = 0;
	for (; i + FLOAT_LANES <= c->cols; i += FLOAT_LANES) {
		if (n_rows == 1 && i % 256 == 0)
			prefetch_pages(c->row + (size_t)i * size);
		add_columns(type, n_rows, n, c, i, all, lanes);
	}
	if (i < c->cols) {
		uint32_t rest = (1u << (c->cols - i)) - 1;
		const __mmask16 some[LANE_VECTORS] = {(__mmask16)rest, (__mmask16)(rest >> 16)};
		add_columns(type, n_rows, n, c, i, some, lanes);
	}
	for (int r = 0; r < n_rows; r++) {
		for (int t = 0; t < n; t++)
			c->y[(size_t)t * c->y_stride + (size_t)r] = tree_of(lanes[r][t]);
	}
}

INLINE void dot_rows(enum dtype type, int n_rows, int32_t n, const struct corner *c)
{
	switch (n) {
	case 1: dot_corner(type, n_rows, 1, c); break;
	case 2: dot_corner(type, n_rows, 2, c); break;
	default: dot_corner(type, n_rows, 3, c); break;
	}
}

INLINE void matmul_float(enum dtype type, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y,
	size_t y_stride)
{
	struct corner c = {.row_bytes = w->row_bytes, .x_stride = (size_t)a->cols, .y_stride = y_stride, .cols = w->cols};
	const int32_t at_once = a->n <= ROWS_TOKENS_MAX ? 1 : ROWS_AT_ONCE;
	for (int32_t begin = row_begin; begin < row_end; begin += ROWS_IN_CACHE) {
		int32_t end = row_end - begin < ROWS_IN_CACHE ? row_end : begin + ROWS_IN_CACHE;
		for (int32_t t = 0; t < a->n; t += TOKENS_AT_ONCE) {
			int32_t n = a->n - t < TOKENS_AT_ONCE ? a->n - t : TOKENS_AT_ONCE, step = at_once;
			c.x = a->x + (size_t)t * (size_t)a->cols;
			for (int32_t r = begin; r < end; r += step) {
				step = end - r < at_once ? 1 : at_once;
				c.row = weight_row(w, r);
				c.y = y + (size_t)t * y_stride + r;
				if (step == 1)
					dot_rows(type, 1, n, &c);
				else
					dot_rows(type, ROWS_AT_ONCE, n, &c);
			}
		}
	}
}

void avx512_matmul_float(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y, size_t y_stride)
{
	if (w->type == DTYPE_F32)
		matmul_float(DTYPE_F32, w, a, row_begin, row_end, y, y_stride);
	else if (w->type == DTYPE_F16)
		matmul_float(DTYPE_F16, w, a, row_begin, row_end, y, y_stride);
	else
		matmul_float(DTYPE_BF16, w, a, row_begin, row_end, y, y_stride);
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
