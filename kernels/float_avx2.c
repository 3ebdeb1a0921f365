// Everything over plain floats: quantising activations (rule 4), float products (8), norms, GLU, conversions, rope.
#include "kernels/simd_avx2.h"

#include "base/fmath.h"

#define LANE_VECTORS 4   // rule 8's lanes
#define TOKENS_AT_ONCE 3 // of a float product: three times four sums, a weight and an input fit the 16 registers
#define ROWS_IN_CACHE 16 // rows that meet all tokens before the next ones are read

static uint32_t max_lane(__m256i v)
{
	__m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
	m = _mm_max_epu32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(1, 0, 3, 2)));
	m = _mm_max_epu32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(2, 3, 0, 1)));
	return (uint32_t)_mm_cvtsi128_si32(m);
}

// max_magnitude returns the greatest bits(x[i]) & 0x7fffffff; n is a multiple of 8.
static uint32_t max_magnitude(const float *x, int32_t n)
{
	const __m256i mask = _mm256_set1_epi32(0x7fffffff);
	__m256i m = _mm256_setzero_si256();
	for (int32_t i = 0; i < n; i += 8)
		m = _mm256_max_epu32(m, _mm256_and_si256(load256(x + i), mask));
	return max_lane(m);
}

// quantise32 writes 32 values times `inverse` as integers; all lanes of each half of the result are the sum of 16 of them.
static __m256i quantise32(const float *x, __m256 inverse, int8_t *q)
{
	__m256i v[4];
	for (int i = 0; i < 4; i++)
		v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
	__m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
	// The packs worked in each half: groups of four now stand as 0 2 4 6 | 1 3 5 7.
	bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
	_mm256_storeu_si256((__m256i_u *)q, bytes);
	__m256i sums = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
	sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, _MM_SHUFFLE(1, 0, 3, 2)));
	return _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, _MM_SHUFFLE(2, 3, 0, 1)));
}

static __m256i zeros32(int8_t *q)
{
	memset(q, 0, 32);
	return _mm256_setzero_si256();
}

// put_sums stores the sums of quantise32 for the 32 elements from j on.
static void put_sums(const struct acts *a, size_t j, __m256i sums)
{
	int32_t low = _mm256_extract_epi32(sums, 0), high = _mm256_extract_epi32(sums, 4);
	if (a->kind == ACT_A32) {
		a->qsum[j / 32] = low + high;
		return;
	}
	a->sum16[j / 16] = (int16_t)low;
	a->sum16[j / 16 + 1] = (int16_t)high;
	a->sum32[j / 32] = (int16_t)(low + high);
}

void avx2_quantise(const struct acts *a, int32_t t)
{
	const size_t cols = (size_t)a->cols, block_len = a->kind == ACT_A256 ? SUPER_LEN : BLOCK_LEN, at = (size_t)t * cols;
	for (size_t i = at; i < at + cols; i += block_len) {
		uint32_t m = max_magnitude(a->x + i, (int32_t)block_len);
		float amax = fmath_from_bits(m);
		bool zero = m < 0x21800000, bad = m >= 0x7f800000;
		a->d[i / block_len] = zero ? 0.0f : bad ? fmath_from_bits(0x7fc00000) : amax / 127.0f;
		__m256 inverse = _mm256_set1_ps(zero || bad ? 0.0f : 127.0f / amax);
		for (size_t j = i; j < i + block_len; j += 32)
			put_sums(a, j, bad ? zeros32(a->q + j) : quantise32(a->x + j, inverse, a->q + j));
	}
}

// load_weights returns elements i .. i + 7 of a row as f32.
INLINE __m256 load_weights(enum dtype type, const uint8_t *row, int32_t i)
{
	if (type == DTYPE_F32)
		return _mm256_castsi256_ps(load256(row + (size_t)i * 4));
	__m128i half = load128(row + (size_t)i * 2);
	if (type == DTYPE_F16)
		return _mm256_cvtph_ps(half);
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

// A row and the first of some tokens, and where their products go.
struct corner {
	const uint8_t *row;
	const float *x;
	const struct nodes_sink *to;
	size_t x_stride;
	int32_t cols, r, t;
};

INLINE void store_nodes(int32_t n_lanes, const struct nodes_sink *to, int32_t t, int32_t row, float *lanes)
{
	if (n_lanes == FLOAT_LANES)
		to->y[(size_t)t * to->token_stride + (size_t)row] = tree(lanes, FLOAT_LANES);
	else
		sink_lanes(to, t, row, lanes);
}

// page_due tells whether it is time for prefetch_pages at column i: once in 256.
INLINE bool page_due(int32_t n_lanes, int32_t i)
{
	return n_lanes == FLOAT_LANES ? i % 256 == 0 : (uint32_t)i % 256 < (uint32_t)n_lanes;
}

// dot_floats is rule 8 for one row and n tokens (1 to TOKENS_AT_ONCE), column i being on lane i mod n_lanes. What the last of n_vectors
// holds past n_lanes is computed as well, and never looked at.
INLINE void dot_floats(enum dtype type, int32_t n_lanes, int n_vectors, int n, const struct corner *c)
{
	const uint32_t size = type == DTYPE_F32 ? 4 : 2;
	const int32_t last = c->cols - 8 * n_vectors;
	__m256 lanes[TOKENS_AT_ONCE][LANE_VECTORS];
	for (int t = 0; t < n; t++) {
		for (int l = 0; l < n_vectors; l++)
			lanes[t][l] = _mm256_setzero_ps();
	}
	int32_t i = 0;
	for (; i <= last; i += n_lanes) {
		if (n < TOKENS_AT_ONCE && page_due(n_lanes, i))
			prefetch_pages(c->row + (size_t)i * size);
		for (int l = 0; l < n_vectors; l++) {
			__m256 w = load_weights(type, c->row, i + 8 * l);
			for (int t = 0; t < n; t++)
				lanes[t][l] = _mm256_fmadd_ps(w, _mm256_loadu_ps(c->x + (size_t)t * c->x_stride + i + 8 * l), lanes[t][l]);
		}
	}
	for (int t = 0; t < n; t++) {
		if (n_vectors == LANE_VECTORS && n_lanes == FLOAT_LANES && i == c->cols) {
			c->to->y[(size_t)(c->t + t) * c->to->token_stride + (size_t)c->r] = tree32(lanes[t]);
			continue;
		}
		float tail[FLOAT_LANES];
		for (int l = 0; l < n_vectors; l++)
			_mm256_storeu_ps(tail + 8 * l, lanes[t][l]);
		for (int32_t e = i, l = 0; e < c->cols; e++, l = l + 1 == n_lanes ? 0 : l + 1)
			tail[l] = fmaf(weight_at(type, c->row, e), c->x[(size_t)t * c->x_stride + (size_t)e], tail[l]);
		store_nodes(n_lanes, c->to, c->t + t, c->r, tail);
	}
}

// dot_row is rule 8 for one row and the next TOKENS_AT_ONCE of n tokens.
INLINE void dot_row(enum dtype type, int32_t n_lanes, int n_vectors, int32_t n, const struct corner *c)
{
	switch (n) {
	case 1: dot_floats(type, n_lanes, n_vectors, 1, c); break;
	case 2: dot_floats(type, n_lanes, n_vectors, 2, c); break;
	default: dot_floats(type, n_lanes, n_vectors, 3, c); break;
	}
}

INLINE void matmul_rows(enum dtype type, int32_t n_lanes, int n_vectors, const struct weight *w, const struct acts *a, int32_t row_begin,
	int32_t row_end, const struct nodes_sink *to)
{
	struct corner c = {.to = to, .x_stride = (size_t)w->cols, .cols = w->cols};
	for (int32_t begin = row_begin; begin < row_end; begin += ROWS_IN_CACHE) {
		int32_t end = row_end - begin < ROWS_IN_CACHE ? row_end : begin + ROWS_IN_CACHE;
		for (c.t = 0; c.t < a->n; c.t += TOKENS_AT_ONCE) {
			c.x = a->x + (size_t)c.t * (size_t)a->cols;
			for (c.r = begin; c.r < end; c.r++) {
				c.row = weight_row(w, c.r);
				dot_row(type, n_lanes, n_vectors, a->n - c.t, &c);
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
	switch ((n_lanes + 7) / 8) {
	case 1: matmul_float(n_lanes, 1, w, a, row_begin, row_end, to); break;
	case 2: matmul_float(n_lanes, 2, w, a, row_begin, row_end, to); break;
	case 3: matmul_float(n_lanes, 3, w, a, row_begin, row_end, to); break;
	default: matmul_float(n_lanes, LANE_VECTORS, w, a, row_begin, row_end, to); break;
	}
}

void avx2_matmul_float(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	(to->n_lanes == FLOAT_LANES ? matmul_all : matmul_some)(w, a, row_begin, row_end, to);
}

void avx2_rmsnorm(const float *x, const float *w, int32_t n, float eps, float *y)
{
	float ss;
	const struct nodes_sink to = sink_whole(FLOAT_LANES, &ss, 0);
	const struct corner c = {.row = (const uint8_t *)x, .x = x, .to = &to, .cols = n};
	dot_floats(DTYPE_F32, FLOAT_LANES, LANE_VECTORS, 1, &c);
	float r = 1.0f / sqrtf(ss / (float)n + eps);
	__m256 rs = _mm256_set1_ps(r);
	int32_t i = 0;
	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), rs), _mm256_loadu_ps(w + i)));
	for (; i < n; i++)
		y[i] = (x[i] * r) * w[i];
}

void avx2_swiglu(const float *gate, const float *up, int32_t n, float *y)
{
	const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
	int32_t i = 0;
	for (; i + 8 <= n; i += 8) {
		__m256 g = _mm256_loadu_ps(gate + i);
		__m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, exp8(_mm256_xor_ps(g, sign))));
		_mm256_storeu_ps(y + i, _mm256_mul_ps(silu, _mm256_loadu_ps(up + i)));
	}
	for (; i < n; i++)
		y[i] = fmath_silu(gate[i]) * up[i];
}

void avx2_add(float *y, const float *x, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		y[i] += x[i];
}

void avx2_add_scaled(float *y, float w, const float *x, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		y[i] = fmaf(w, x[i], y[i]);
}

void avx2_f32_to_f16(const float *x, int32_t n, uint16_t *out)
{
	int32_t i = 0;
	for (; i + 8 <= n; i += 8) {
		__m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
		_mm_storeu_si128((__m128i_u *)(out + i), h);
	}
	for (; i < n; i++)
		out[i] = fmath_f32_to_f16(x[i]);
}

void avx2_f16_to_f32(const uint16_t *x, int32_t n, float *out)
{
	int32_t i = 0;
	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(out + i, _mm256_cvtph_ps(load128(x + i)));
	for (; i < n; i++)
		out[i] = fmath_f16_to_f32(x[i]);
}

bool avx2_all_finite(const float *x, int32_t n)
{
	int32_t whole = n - n % 8;
	uint32_t m = max_magnitude(x, whole);
	for (int32_t i = whole; i < n; i++) {
		uint32_t magnitude = fmath_bits(x[i]) & 0x7fffffff;
		m = magnitude > m ? magnitude : m;
	}
	return m < 0x7f800000;
}

void avx2_rope_pairs(float *x, int32_t n_pairs, const float *cos_in, const float *sin_in)
{
	const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
	int32_t i = 0;
	for (; i + 4 <= n_pairs; i += 4) {
		__m256 v = _mm256_loadu_ps(x + 2 * i);
		__m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cos_in + i)), twice);
		__m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sin_in + i)), twice);
		// Even: x0 * c - (x1 * s). Odd: x0 * s + (x1 * c).
		__m256 x0 = _mm256_moveldup_ps(v), x1 = _mm256_movehdup_ps(v);
		__m256 first = _mm256_blend_ps(c, s, 0xaa), second = _mm256_blend_ps(s, c, 0xaa);
		_mm256_storeu_ps(x + 2 * i, _mm256_fmaddsub_ps(x0, first, _mm256_mul_ps(x1, second)));
	}
	for (; i < n_pairs; i++) {
		float x0 = x[2 * i], x1 = x[2 * i + 1];
		x[2 * i] = fmaf(x0, cos_in[i], -(x1 * sin_in[i]));
		x[2 * i + 1] = fmaf(x0, sin_in[i], x1 * cos_in[i]);
	}
}

void avx2_rope_halves(float *x, int32_t n_pairs, const float *cos_in, const float *sin_in)
{
	for (int32_t i = 0; i < n_pairs; i++) {
		float x0 = x[i], x1 = x[n_pairs + i];
		x[i] = fmaf(x0, cos_in[i], -(x1 * sin_in[i]));
		x[n_pairs + i] = fmaf(x0, sin_in[i], x1 * cos_in[i]);
	}
}
