// Rule 13 with AVX-512: one vector holds the scores of a panel.
#define QUERIES_AT_ONCE 8
#include "kernels/attention_panels.h"
#include "kernels/simd_avx512.h"

// load_keys_of puts elements d .. d + 15 (or only 8: the last of the head) of 16 positions into the panel. In each 128 bits of v[p] lie eight
// elements of one position: p and p + 8, then the same positions' next eight elements.
INLINE void load_keys_of(const uint16_t *const rows[PANEL_LEN], int32_t d, bool sixteen, float *panel)
{
	__m512i v[8], a[8], b[8];
	for (int p = 0; p < 8; p++) {
		v[p] = _mm512_castsi128_si512(load128(rows[p] + d));
		v[p] = _mm512_inserti32x4(v[p], load128(rows[p + 8] + d), 1);
		if (!sixteen)
			continue;
		v[p] = _mm512_inserti32x4(v[p], load128(rows[p] + d + 8), 2);
		v[p] = _mm512_inserti32x4(v[p], load128(rows[p + 8] + d + 8), 3);
	}
	for (int i = 0; i < 4; i++) {
		a[i] = _mm512_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
		a[i + 4] = _mm512_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
	}
	for (int i = 0; i < 4; i++) {
		b[2 * i] = _mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
		b[2 * i + 1] = _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
	}
	// b: d 0 1 of positions 0 to 3, d 2 3, d 0 1 of positions 4 to 7, d 2 3; then the same for d 4 to 7.
	for (int i = 0; i < 2; i++) {
		v[4 * i] = _mm512_unpacklo_epi64(b[4 * i], b[4 * i + 2]);
		v[4 * i + 1] = _mm512_unpackhi_epi64(b[4 * i], b[4 * i + 2]);
		v[4 * i + 2] = _mm512_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
		v[4 * i + 3] = _mm512_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
	}
	for (int i = 0; i < 8; i++) {
		_mm512_storeu_ps(panel + (size_t)(d + i) * PANEL_LEN, _mm512_cvtph_ps(_mm512_castsi512_si256(v[i])));
		if (sixteen)
			_mm512_storeu_ps(panel + (size_t)(d + 8 + i) * PANEL_LEN, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v[i], 1)));
	}
}

static void load_keys(const uint16_t *const rows[PANEL_LEN], int32_t head_dim, float *panel)
{
	int32_t d = 0;
	for (; d + 16 <= head_dim; d += 16)
		load_keys_of(rows, d, true, panel);
	if (d < head_dim)
		load_keys_of(rows, d, false, panel);
}

static void load_values(const struct attention_group *g, int32_t begin, int32_t n, float *panel)
{
	for (int32_t p = 0; p < n; p++) {
		const uint16_t *v = g->v + (size_t)(begin + p) * g->stride;
		float *out = panel + (size_t)p * (size_t)g->head_dim;
		int32_t i = 0;
		for (; i + 16 <= g->head_dim; i += 16)
			_mm512_storeu_ps(out + i, _mm512_cvtph_ps(load256(v + i)));
		if (i < g->head_dim)
			_mm256_storeu_ps(out + i, _mm256_cvtph_ps(load128(v + i)));
	}
}

INLINE void score_panel(const struct job *j, int n, int32_t i, int32_t at)
{
	__m512 acc[QUERIES_AT_ONCE];
	const __m512 scale = _mm512_set1_ps(1.0f / sqrtf((float)j->g->head_dim));
	const float *q[QUERIES_AT_ONCE];
	for (int k = 0; k < n; k++) {
		q[k] = query(j, i + k);
		acc[k] = _mm512_setzero_ps();
	}
	for (int32_t d = 0; d < j->g->head_dim; d++) {
		__m512 keys = _mm512_loadu_ps(j->panel + (size_t)d * PANEL_LEN);
		for (int k = 0; k < n; k++)
			acc[k] = _mm512_fmadd_ps(_mm512_set1_ps(q[k][d]), keys, acc[k]);
	}
	for (int k = 0; k < n; k++)
		_mm512_storeu_ps(j->scores + (size_t)(i + k) * CHUNK_LEN + at, _mm512_mul_ps(scale, acc[k]));
}

static void weigh(float *scores, int32_t n, float *m_c, float *l_c)
{
	float m = scores[0];
	int32_t i = 0;
	__m512 top = _mm512_set1_ps(m);
	for (; i + 16 <= n; i += 16)
		top = _mm512_max_ps(_mm512_loadu_ps(scores + i), top);
	float tops[16];
	_mm512_storeu_ps(tops, top);
	for (int k = 0; k < 16; k++)
		m = tops[k] > m ? tops[k] : m;
	for (; i < n; i++)
		m = scores[i] > m ? scores[i] : m;
	__m512 lanes = _mm512_setzero_ps();
	const __m512 ms = _mm512_set1_ps(m);
	for (i = 0; i < n; i += SOFTMAX_LANES) {
		const __mmask16 seen = (__mmask16)(n - i < SOFTMAX_LANES ? (1u << (n - i)) - 1 : 0xffff);
		__m512 p = _mm512_maskz_mov_ps(seen, exp16(_mm512_sub_ps(_mm512_loadu_ps(scores + i), ms)));
		_mm512_storeu_ps(scores + i, p);
		lanes = _mm512_add_ps(lanes, p);
	}
	*m_c = m;
	*l_c = tree8(_mm512_castps512_ps256(lanes)) + tree8(_mm512_extractf32x8_ps(lanes, 1));
}

// add_values runs positions [from, to) of the panel for n queries and n_v vectors of the head from element e on; of the last, mask says
// which elements are there.
INLINE void add_values(const struct job *j, int n, int n_v, float *const *o, const float *const *p, int32_t e, __mmask16 mask, int32_t from,
	int32_t to)
{
	__m512 acc[QUERIES_AT_ONCE][2];
	for (int k = 0; k < n; k++) {
		for (int v = 0; v < n_v; v++)
			acc[k][v] = _mm512_maskz_loadu_ps(mask, o[k] + e + 16 * v);
	}
	for (int32_t at = from; at < to; at++) {
		const float *row = j->panel + (size_t)at * (size_t)j->g->head_dim + e;
		__m512 values[2];
		for (int v = 0; v < n_v; v++)
			values[v] = _mm512_maskz_loadu_ps(mask, row + 16 * v);
		for (int k = 0; k < n; k++) {
			for (int v = 0; v < n_v; v++)
				acc[k][v] = _mm512_fmadd_ps(_mm512_set1_ps(p[k][at]), values[v], acc[k][v]);
		}
	}
	for (int k = 0; k < n; k++) {
		for (int v = 0; v < n_v; v++)
			_mm512_mask_storeu_ps(o[k] + e + 16 * v, mask, acc[k][v]);
	}
}

INLINE void add_head(const struct job *j, int n, float *const *o, const float *const *p, int32_t from, int32_t to)
{
	int32_t e = 0;
	for (; e + 32 <= j->g->head_dim; e += 32)
		add_values(j, n, 2, o, p, e, 0xffff, from, to);
	for (; e + 16 <= j->g->head_dim; e += 16)
		add_values(j, n, 1, o, p, e, 0xffff, from, to);
	if (e < j->g->head_dim)
		add_values(j, n, 1, o, p, e, 0x00ff, from, to);
}

void avx512_attention_group(const struct attention_group *g, float *scratch)
{
	attend_group(g, scratch);
}
