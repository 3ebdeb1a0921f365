// Private to the attention_*.c files of instruction sets: rule 13 for queries that share K and V, as panels.
//
// A score's sum runs over d in order, so the positions lie across the vectors: a panel of 16 keys is turned into f32 (d, 16) once
// and used by every query. A value's sum runs over positions in order, so the elements of the head lie across the vectors:
// a panel of 16 values is turned into f32 (16, head_dim) once and used by every query.
//
// The file that includes this defines QUERIES_AT_ONCE before (4 or 8: the queries whose sums stay in registers), and after it the functions
// declared here, which do the work.
#ifndef HEARTH_KERNELS_ATTENTION_PANELS_H
#define HEARTH_KERNELS_ATTENTION_PANELS_H

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

// load_keys fills the panel (head_dim, 16) from the keys of 16 positions.
static void load_keys(const uint16_t *const rows[PANEL_LEN], int32_t head_dim, float *panel);
// load_values fills the panel (n, head_dim).
static void load_values(const struct attention_group *g, int32_t begin, int32_t n, float *panel);
// score_panel writes the 16 scores of n queries from query i on, at `at` of their rows.
INLINE void score_panel(const struct job *j, int n, int32_t i, int32_t at);
// weigh turns n scores of one query into p, 0 past n up to a multiple of 16, and sets m_c and l_c.
static void weigh(float *scores, int32_t n, float *m_c, float *l_c);
// add_head adds positions [from, to) of the panel, times p, to the heads of n queries.
INLINE void add_head(const struct job *j, int n, float *const *o, const float *const *p, int32_t from, int32_t to);

static void score_chunk(const struct job *j, int32_t first, int32_t c, int32_t n_pos)
{
	for (int32_t at = 0; at < n_pos; at += PANEL_LEN) {
		const uint16_t *rows[PANEL_LEN];
		for (int32_t p = 0; p < PANEL_LEN; p++) {
			int32_t pos = at + p < n_pos ? at + p : n_pos - 1; // those past the last repeat it and are masked later
			rows[p] = j->g->k + (size_t)(c * CHUNK_LEN + pos) * j->g->stride;
		}
		load_keys(rows, j->g->head_dim, j->panel);
		int32_t i = first;
		for (; i + QUERIES_AT_ONCE <= j->n_queries; i += QUERIES_AT_ONCE)
			score_panel(j, QUERIES_AT_ONCE, i, at);
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

// mix_panel adds the panel's values at positions at .. of the chunk to o_c of n queries from query i on. What a query does not see it skips:
// a value that is not finite must not reach it.
INLINE void mix_panel(const struct job *j, int n, int32_t i, int32_t c, int32_t at)
{
	float *o[QUERIES_AT_ONCE];
	const float *p[QUERIES_AT_ONCE];
	int32_t seen[QUERIES_AT_ONCE], all = PANEL_LEN;
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
		for (; i + QUERIES_AT_ONCE <= j->n_queries; i += QUERIES_AT_ONCE)
			mix_panel(j, QUERIES_AT_ONCE, i, c, at);
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

// join_part adds w times a chunk's o_c to out.
static void join_part(float w, const float *o_c, int32_t head_dim, float *out)
{
	for (int32_t e = 0; e < head_dim; e += 8)
		_mm256_storeu_ps(out + e, _mm256_fmadd_ps(_mm256_set1_ps(w), _mm256_loadu_ps(o_c + e), _mm256_loadu_ps(out + e)));
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
		join_part(w, from + 2, head_dim, out);
	}
	float r = 1.0f / l;
	for (int32_t e = 0; e < head_dim; e++)
		out[e] = out[e] * r;
}

// attend_group is the whole of rule 13.
static void attend_group(const struct attention_group *g, float *scratch)
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

#endif
