// Rule 13 with AVX2: two vectors hold the scores of a panel.
#define QUERIES_AT_ONCE 4
#include "kernels/attention_panels.h"

// transpose8 turns 8 vectors of 8 f16 per half (half 0: positions 0 to 7, half 1: 8 to 15) into one vector per d.
INLINE void transpose8(__m256i v[8])
{
	__m256i a[8], b[8];
	for (int i = 0; i < 4; i++) {
		a[i] = _mm256_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
		a[i + 4] = _mm256_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
	}
	for (int i = 0; i < 4; i++) {
		b[2 * i] = _mm256_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
		b[2 * i + 1] = _mm256_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
	}
	// b: d 0 1 of positions 0 to 3, d 2 3, d 0 1 of positions 4 to 7, d 2 3; then the same for d 4 to 7.
	for (int i = 0; i < 2; i++) {
		v[4 * i] = _mm256_unpacklo_epi64(b[4 * i], b[4 * i + 2]);
		v[4 * i + 1] = _mm256_unpackhi_epi64(b[4 * i], b[4 * i + 2]);
		v[4 * i + 2] = _mm256_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
		v[4 * i + 3] = _mm256_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
	}
}

static void load_keys(const uint16_t *const rows[PANEL_LEN], int32_t head_dim, float *panel)
{
	for (int32_t d = 0; d < head_dim; d += 8) {
		__m256i v[8];
		for (int p = 0; p < 8; p++)
			v[p] = _mm256_set_m128i(load128(rows[p + 8] + d), load128(rows[p] + d));
		transpose8(v);
		for (int i = 0; i < 8; i++) {
			float *out = panel + (size_t)(d + i) * PANEL_LEN;
			_mm256_storeu_ps(out, _mm256_cvtph_ps(_mm256_castsi256_si128(v[i])));
			_mm256_storeu_ps(out + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(v[i], 1)));
		}
	}
}

static void load_values(const struct attention_group *g, int32_t begin, int32_t n, float *panel)
{
	for (int32_t p = 0; p < n; p++)
		avx2_f16_to_f32(g->v + (size_t)(begin + p) * g->stride, g->head_dim, panel + (size_t)p * (size_t)g->head_dim);
}

INLINE void score_panel(const struct job *j, int n, int32_t i, int32_t at)
{
	__m256 acc[4][2], scale = _mm256_set1_ps(1.0f / sqrtf((float)j->g->head_dim));
	const float *q[4];
	for (int k = 0; k < n; k++) {
		q[k] = query(j, i + k);
		acc[k][0] = acc[k][1] = _mm256_setzero_ps();
	}
	for (int32_t d = 0; d < j->g->head_dim; d++) {
		__m256 low = _mm256_loadu_ps(j->panel + (size_t)d * PANEL_LEN), high = _mm256_loadu_ps(j->panel + (size_t)d * PANEL_LEN + 8);
		for (int k = 0; k < n; k++) {
			__m256 x = _mm256_set1_ps(q[k][d]);
			acc[k][0] = _mm256_fmadd_ps(x, low, acc[k][0]);
			acc[k][1] = _mm256_fmadd_ps(x, high, acc[k][1]);
		}
	}
	for (int k = 0; k < n; k++) {
		float *out = j->scores + (size_t)(i + k) * CHUNK_LEN + at;
		_mm256_storeu_ps(out, _mm256_mul_ps(scale, acc[k][0]));
		_mm256_storeu_ps(out + 8, _mm256_mul_ps(scale, acc[k][1]));
	}
}

static void weigh(float *scores, int32_t n, float *m_c, float *l_c)
{
	float m = scores[0];
	int32_t i = 0;
	__m256 top = _mm256_set1_ps(m);
	for (; i + 8 <= n; i += 8) {
		__m256 s = _mm256_loadu_ps(scores + i);
		top = _mm256_max_ps(s, top);
	}
	float tops[8];
	_mm256_storeu_ps(tops, top);
	for (int k = 0; k < 8; k++)
		m = tops[k] > m ? tops[k] : m;
	for (; i < n; i++)
		m = scores[i] > m ? scores[i] : m;
	const __m256i step = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	__m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, ms = _mm256_set1_ps(m);
	for (i = 0; i < n; i += SOFTMAX_LANES) {
		for (int k = 0; k < 2; k++) {
			__m256 seen = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - i - 8 * k), step));
			__m256 p = _mm256_and_ps(seen, exp8(_mm256_sub_ps(_mm256_loadu_ps(scores + i + 8 * k), ms)));
			_mm256_storeu_ps(scores + i + 8 * k, p);
			lanes[k] = _mm256_add_ps(lanes[k], p);
		}
	}
	*m_c = m;
	*l_c = tree8(lanes[0]) + tree8(lanes[1]);
}

// add_values runs positions [from, to) of the panel for n queries and n_v vectors of the head from element e on.
INLINE void add_values(const struct job *j, int n, int n_v, float *const *o, const float *const *p, int32_t e, int32_t from, int32_t to)
{
	__m256 acc[4][2];
	for (int k = 0; k < n; k++) {
		for (int v = 0; v < n_v; v++)
			acc[k][v] = _mm256_loadu_ps(o[k] + e + 8 * v);
	}
	for (int32_t at = from; at < to; at++) {
		const float *row = j->panel + (size_t)at * (size_t)j->g->head_dim + e;
		for (int k = 0; k < n; k++) {
			__m256 w = _mm256_set1_ps(p[k][at]);
			for (int v = 0; v < n_v; v++)
				acc[k][v] = _mm256_fmadd_ps(w, _mm256_loadu_ps(row + 8 * v), acc[k][v]);
		}
	}
	for (int k = 0; k < n; k++) {
		for (int v = 0; v < n_v; v++)
			_mm256_storeu_ps(o[k] + e + 8 * v, acc[k][v]);
	}
}

INLINE void add_head(const struct job *j, int n, float *const *o, const float *const *p, int32_t from, int32_t to)
{
	int32_t e = 0;
	for (; e + 16 <= j->g->head_dim; e += 16)
		add_values(j, n, 2, o, p, e, from, to);
	if (e < j->g->head_dim)
		add_values(j, n, 1, o, p, e, from, to);
}

void avx2_attention_group(const struct attention_group *g, float *scratch)
{
	attend_group(g, scratch);
}
