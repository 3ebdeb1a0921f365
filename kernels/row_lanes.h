// Private to the *_rows_*.c files: the lanes of one row while its groups of blocks are added, all lanes of the rule or those of a mask
// (kernels/lanes.h).
//
// A group always is as many neighbouring blocks as the rule has lanes. With all lanes each block of it meets one lane of a vector.
// With fewer, n, block j of the packed row lies on lane j mod n, so a group is added in several steps: of n blocks where n divides the
// group, else block by block. Where n_lanes is a constant only what it needs is compiled.
#ifndef HEARTH_KERNELS_ROW_LANES_H
#define HEARTH_KERNELS_ROW_LANES_H

#include "kernels/simd_avx2.h"

#include "base/fmath.h"

struct row_lanes {
	__m256 all;             // 8 lanes
	__m128 low;             // 4, 2 or 1, in its first elements; the others are never looked at
	float few[QUANT_LANES]; // 3, 5, 6 or 7
	int32_t at;             // of few: the lane of the next block
};

// What four blocks add to their lanes: fma(f, c, lane), and with a min then fma(g, e, lane).
struct four_products {
	__m128 f, c, g, e;
};

// The same of eight.
struct eight_products {
	__m256 f, c, g, e;
};

INLINE void row_lanes_init(int32_t n_lanes, struct row_lanes *s)
{
	s->all = _mm256_setzero_ps();
	s->low = _mm_setzero_ps();
	if (n_lanes == QUANT_LANES || (n_lanes & (n_lanes - 1)) == 0)
		return;
	memset(s->few, 0, sizeof(s->few));
	s->at = 0;
}

INLINE void add_one_by_one(int32_t n_lanes, bool has_min, const struct four_products *p, struct row_lanes *s)
{
	float f[4], c[4], g[4], e[4];
	_mm_storeu_ps(f, p->f);
	_mm_storeu_ps(c, p->c);
	if (has_min) {
		_mm_storeu_ps(g, p->g);
		_mm_storeu_ps(e, p->e);
	}
	for (int i = 0; i < 4; i++) {
		float *lane = &s->few[s->at];
		*lane = fmaf(f[i], c[i], *lane);
		if (has_min)
			*lane = fmaf(g[i], e[i], *lane);
		s->at = s->at + 1 == n_lanes ? 0 : s->at + 1;
	}
}

// turned brings element 2 to the front, or with one lane element 1.
INLINE __m128 turned(int32_t n_lanes, __m128 v)
{
	return n_lanes == 2 ? _mm_movehl_ps(v, v) : _mm_permute_ps(v, _MM_SHUFFLE(0, 3, 2, 1));
}

INLINE void add_once(bool has_min, const struct four_products *p, struct row_lanes *s)
{
	s->low = _mm_fmadd_ps(p->f, p->c, s->low);
	if (has_min)
		s->low = _mm_fmadd_ps(p->g, p->e, s->low);
}

// add_four adds four blocks, the first of which lies on lane 0 unless they go one by one.
INLINE void add_four(int32_t n_lanes, bool has_min, const struct four_products *p, struct row_lanes *s)
{
	if (n_lanes == 3 || n_lanes > 4) {
		add_one_by_one(n_lanes, has_min, p, s);
		return;
	}
	add_once(has_min, p, s);
	if (n_lanes == 4)
		return;
	struct four_products v = *p;
	for (int32_t i = n_lanes; i < 4; i += n_lanes) {
		v.f = turned(n_lanes, v.f);
		v.c = turned(n_lanes, v.c);
		if (has_min) {
			v.g = turned(n_lanes, v.g);
			v.e = turned(n_lanes, v.e);
		}
		add_once(has_min, &v, s);
	}
}

// add_eight adds eight blocks.
INLINE void add_eight(int32_t n_lanes, bool has_min, const struct eight_products *p, struct row_lanes *s)
{
	if (n_lanes == QUANT_LANES) {
		s->all = _mm256_fmadd_ps(p->f, p->c, s->all);
		if (has_min)
			s->all = _mm256_fmadd_ps(p->g, p->e, s->all);
		return;
	}
	struct four_products low = {.f = _mm256_castps256_ps128(p->f), .c = _mm256_castps256_ps128(p->c)}, high;
	high = (struct four_products){.f = _mm256_extractf128_ps(p->f, 1), .c = _mm256_extractf128_ps(p->c, 1)};
	if (has_min) {
		low.g = _mm256_castps256_ps128(p->g);
		low.e = _mm256_castps256_ps128(p->e);
		high.g = _mm256_extractf128_ps(p->g, 1);
		high.e = _mm256_extractf128_ps(p->e, 1);
	}
	add_four(n_lanes, has_min, &low, s);
	add_four(n_lanes, has_min, &high, s);
}

// store_nodes puts the nodes of one row where they belong.
INLINE void store_nodes(int32_t n_lanes, const struct nodes_sink *to, int32_t t, int32_t row, struct row_lanes *s)
{
	float *y = to->y + (size_t)t * to->token_stride + row;
	if (n_lanes == QUANT_LANES) {
		*y = tree8(s->all);
	} else if (n_lanes == 3 || n_lanes > 4) {
		sink_lanes(to, t, row, s->few);
	} else if (n_lanes == 4 && to->n_nodes == 1) {
		__m128 pairs = _mm_hadd_ps(s->low, s->low);
		*y = _mm_cvtss_f32(_mm_hadd_ps(pairs, pairs));
	} else {
		float lanes[4];
		_mm_storeu_ps(lanes, s->low);
		sink_lanes(to, t, row, lanes);
	}
}

#endif
