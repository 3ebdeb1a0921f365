// Everything over plain floats: quantising activations (rule 4), float products (8), norms, GLU, conversions, rope.
#include "kernels/simd_avx2.h"

#include "base/fmath.h"

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

// dot_floats is rule 8 for one row and n tokens (1 to TOKENS_AT_ONCE), whose values lie `stride` apart.
INLINE void dot_floats(enum dtype type, int n, const uint8_t *row, const float *x, size_t stride, int32_t cols, float *out)
{
	const uint32_t size = type == DTYPE_F32 ? 4 : 2;
	__m256 lanes[TOKENS_AT_ONCE][4];
	for (int t = 0; t < n; t++) {
		for (int l = 0; l < 4; l++)
			lanes[t][l] = _mm256_setzero_ps();
	}
	int32_t i = 0;
	for (; i + FLOAT_LANES <= cols; i += FLOAT_LANES) {
		if (n < TOKENS_AT_ONCE && i % 256 == 0)
			prefetch_pages(row + (size_t)i * size);
		for (int l = 0; l < 4; l++) {
			__m256 w = load_weights(type, row, i + 8 * l);
			for (int t = 0; t < n; t++)
				lanes[t][l] = _mm256_fmadd_ps(w, _mm256_loadu_ps(x + (size_t)t * stride + i + 8 * l), lanes[t][l]);
		}
	}
	for (int t = 0; t < n; t++) {
		if (i == cols) {
			out[t] = tree32(lanes[t]);
			continue;
		}
		float tail[FLOAT_LANES];
		for (int l = 0; l < 4; l++)
			_mm256_storeu_ps(tail + 8 * l, lanes[t][l]);
		for (int32_t e = i; e < cols; e++)
			tail[e % FLOAT_LANES] = fmaf(weight_at(type, row, e), x[(size_t)t * stride + (size_t)e], tail[e % FLOAT_LANES]);
		out[t] = tree(tail, FLOAT_LANES);
	}
}

// dot_row is rule 8 for one row and the next TOKENS_AT_ONCE of n tokens.
INLINE void dot_row(enum dtype type, int32_t n, const uint8_t *row, const float *x, int32_t cols, float *y, size_t y_stride)
{
	float out[TOKENS_AT_ONCE];
	const size_t stride = (size_t)cols;
	switch (n) {
	case 1: dot_floats(type, 1, row, x, stride, cols, out); break;
	case 2: dot_floats(type, 2, row, x, stride, cols, out); break;
	default: dot_floats(type, 3, row, x, stride, cols, out); break;
	}
	for (int32_t i = 0; i < n && i < TOKENS_AT_ONCE; i++)
		y[(size_t)i * y_stride] = out[i];
}

INLINE void matmul_float(enum dtype type, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y,
	size_t y_stride)
{
	for (int32_t begin = row_begin; begin < row_end; begin += ROWS_IN_CACHE) {
		int32_t end = row_end - begin < ROWS_IN_CACHE ? row_end : begin + ROWS_IN_CACHE;
		for (int32_t t = 0; t < a->n; t += TOKENS_AT_ONCE) {
			for (int32_t r = begin; r < end; r++)
				dot_row(type, a->n - t, weight_row(w, r), a->x + (size_t)t * (size_t)a->cols, w->cols, y + (size_t)t * y_stride + r, y_stride);
		}
	}
}

void avx2_matmul_float(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y, size_t y_stride)
{
	if (w->type == DTYPE_F32)
		matmul_float(DTYPE_F32, w, a, row_begin, row_end, y, y_stride);
	else if (w->type == DTYPE_F16)
		matmul_float(DTYPE_F16, w, a, row_begin, row_end, y, y_stride);
	else
		matmul_float(DTYPE_BF16, w, a, row_begin, row_end, y, y_stride);
}

void avx2_rmsnorm(const float *x, const float *w, int32_t n, float eps, float *y)
{
	float ss;
	dot_floats(DTYPE_F32, 1, (const uint8_t *)x, x, 0, n, &ss);
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
