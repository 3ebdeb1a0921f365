// Rule 13 for queries that share K and V.
//
// A score's sum runs over d in order, so 16 positions lie across two vectors: a panel of 16 keys is turned into f32 (d, 16) once
// and used by every query. A value's sum runs over positions in order, so the elements of the head lie across the vectors:
// a panel of 16 values is turned into f32 (16, head_dim) once and used by every query.
#include "kernels/simd_avx2.h"

#include "base/fmath.h"

// What one call works on: scratch taken apart, and queries numbered t * n_heads + h.
struct job {
	const struct attention_group *g;
	int32_t n_queries;
	int32_t n_chunks;
	float *panel;  // (PANEL_LEN * head_dim)
	float *scores; // (n_queries, CHUNK_LEN): scores of the current chunk, then the weights p
	float *parts;  // (n_queries, n_chunks, 2 + head_dim): m_c, l_c, o_c
};

static const float *query(const struct job *j, int32_t i)
{
	const struct attention_group *g = j->g;
	return g->q + (size_t)(i / g->n_heads) * g->q_stride + (size_t)(i % g->n_heads) * (size_t)g->head_dim;
}

// visible returns how many positions of chunk c query i sees; 0 or less: none.
static int32_t visible(const struct job *j, int32_t i, int32_t c)
{
	int32_t n = j->g->n_pos + i / j->g->n_heads - c * CHUNK_LEN;
	return n < CHUNK_LEN ? n : CHUNK_LEN;
}

static float *part(const struct job *j, int32_t i, int32_t c)
{
	return j->parts + ((size_t)i * (size_t)j->n_chunks + (size_t)c) * ((size_t)j->g->head_dim + 2);
}

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

// load_keys fills the panel (head_dim, 16) from positions begin .. begin + n; those past n repeat the last and are masked later.
static void load_keys(const struct attention_group *g, int32_t begin, int32_t n, float *panel)
{
	const uint16_t *rows[PANEL_LEN];
	for (int32_t p = 0; p < PANEL_LEN; p++)
		rows[p] = g->k + (size_t)(begin + (p < n ? p : n - 1)) * g->stride;
	for (int32_t d = 0; d < g->head_dim; d += 8) {
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

// score_panel writes the 16 scores of n queries from query i on, at `at` of their rows.
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

static void score_chunk(const struct job *j, int32_t first, int32_t c, int32_t n_pos)
{
	for (int32_t at = 0; at < n_pos; at += PANEL_LEN) {
		load_keys(j->g, c * CHUNK_LEN + at, n_pos - at < PANEL_LEN ? n_pos - at : PANEL_LEN, j->panel);
		int32_t i = first;
		for (; i + 4 <= j->n_queries; i += 4)
			score_panel(j, 4, i, at);
		switch (j->n_queries - i) {
		case 3: score_panel(j, 3, i, at); break;
		case 2: score_panel(j, 2, i, at); break;
		case 1: score_panel(j, 1, i, at); break;
		default: break;
		}
	}
}

// weigh turns n scores of one query into p, 0 past n up to a multiple of 16, and sets m_c and l_c.
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

// mix_panel adds the panel's values at positions at .. of the chunk to o_c of n queries from query i on. What a query does not see it skips:
// a value that is not finite must not reach it.
INLINE void mix_panel(const struct job *j, int n, int32_t i, int32_t c, int32_t at)
{
	float *o[4];
	const float *p[4];
	int32_t seen[4], all = PANEL_LEN;
	for (int k = 0; k < n; k++) {
		o[k] = part(j, i + k, c) + 2;
		p[k] = j->scores + (size_t)(i + k) * CHUNK_LEN + at;
		int32_t left = visible(j, i + k, c) - at;
		seen[k] = left < 0 ? 0 : left < PANEL_LEN ? left : PANEL_LEN;
		all = seen[k] < all ? seen[k] : all;
	}
	add_head(j, n, o, p, 0, all);
	for (int k = 0; k < n; k++) {
		if (seen[k] > all)
			add_head(j, 1, &o[k], &p[k], all, seen[k]);
	}
}

static void mix_chunk(const struct job *j, int32_t first, int32_t c, int32_t n_pos)
{
	for (int32_t at = 0; at < n_pos; at += PANEL_LEN) {
		load_values(j->g, c * CHUNK_LEN + at, n_pos - at < PANEL_LEN ? n_pos - at : PANEL_LEN, j->panel);
		int32_t i = first;
		for (; i + 4 <= j->n_queries; i += 4)
			mix_panel(j, 4, i, c, at);
		switch (j->n_queries - i) {
		case 3: mix_panel(j, 3, i, c, at); break;
		case 2: mix_panel(j, 2, i, c, at); break;
		case 1: mix_panel(j, 1, i, c, at); break;
		default: break;
		}
	}
}

static void attend_chunk(const struct job *j, int32_t c)
{
	int32_t first = 0; // queries before it see nothing of this chunk
	while (visible(j, first, c) <= 0)
		first++;
	int32_t n_pos = visible(j, j->n_queries - 1, c);
	score_chunk(j, first, c, n_pos);
	for (int32_t i = first; i < j->n_queries; i++) {
		float *out = part(j, i, c);
		weigh(j->scores + (size_t)i * CHUNK_LEN, visible(j, i, c), out, out + 1);
		memset(out + 2, 0, (size_t)j->g->head_dim * sizeof(float));
	}
	mix_chunk(j, first, c, n_pos);
}

static void join_chunks(const struct job *j, int32_t i, float *out)
{
	int32_t n_chunks = 1, head_dim = j->g->head_dim;
	while (n_chunks < j->n_chunks && visible(j, i, n_chunks) > 0)
		n_chunks++;
	float m = part(j, i, 0)[0], l = 0.0f;
	for (int32_t c = 1; c < n_chunks; c++)
		m = part(j, i, c)[0] > m ? part(j, i, c)[0] : m;
	memset(out, 0, (size_t)head_dim * sizeof(float));
	for (int32_t c = 0; c < n_chunks; c++) {
		const float *from = part(j, i, c);
		float w = fmath_exp(from[0] - m);
		l = fmaf(w, from[1], l);
		for (int32_t e = 0; e < head_dim; e += 8)
			_mm256_storeu_ps(out + e, _mm256_fmadd_ps(_mm256_set1_ps(w), _mm256_loadu_ps(from + 2 + e), _mm256_loadu_ps(out + e)));
	}
	float r = 1.0f / l;
	for (int32_t e = 0; e < head_dim; e++)
		out[e] = out[e] * r;
}

void avx2_attention_group(const struct attention_group *g, float *scratch)
{
	struct job j = {.g = g, .n_queries = g->n_tokens * g->n_heads};
	j.n_chunks = (g->n_pos + g->n_tokens - 1 + CHUNK_LEN - 1) / CHUNK_LEN;
	j.panel = scratch;
	j.scores = j.panel + (size_t)PANEL_LEN * (size_t)g->head_dim;
	j.parts = j.scores + (size_t)j.n_queries * CHUNK_LEN;
	for (int32_t c = 0; c < j.n_chunks; c++)
		attend_chunk(&j, c);
	for (int32_t i = 0; i < j.n_queries; i++) {
		size_t at = (size_t)(i % g->n_heads) * (size_t)g->head_dim;
		join_chunks(&j, i, g->out + (size_t)(i / g->n_heads) * g->out_stride + at);
	}
}
