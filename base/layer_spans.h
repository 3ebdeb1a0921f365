// Which layers a machine runs: one span for each round of a step, in order. Between two of its spans the step is with other machines.
#ifndef HEARTH_BASE_LAYER_SPANS_H
#define HEARTH_BASE_LAYER_SPANS_H

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

struct layer_span {
	int32_t begin, end; // half-open; empty where the machine rests in a round
};

// Spans ascend and do not overlap: at[i].end <= at[i + 1].begin.
struct layer_spans {
	int32_t n; // rounds: 1 .. ROUNDS_MAX, or 0 for no layer at all
	struct layer_span at[ROUNDS_MAX];
};

static inline struct layer_spans layer_spans_one(int32_t begin, int32_t end)
{
	return (struct layer_spans){.n = 1, .at = {{begin, end}}};
}

static inline int32_t layer_spans_count(const struct layer_spans *s)
{
	int32_t n = 0;
	for (int32_t i = 0; i < s->n; i++)
		n += s->at[i].end - s->at[i].begin;
	return n;
}

// layer_spans_find returns the place of a layer among those of the spans, counted from 0; -1: it is none of them.
static inline int32_t layer_spans_find(const struct layer_spans *s, int32_t layer)
{
	int32_t before = 0;
	for (int32_t i = 0; i < s->n; i++) {
		if (layer >= s->at[i].begin && layer < s->at[i].end)
			return before + layer - s->at[i].begin;
		before += s->at[i].end - s->at[i].begin;
	}
	return -1;
}

static inline bool layer_spans_equal(const struct layer_spans *a, const struct layer_spans *b)
{
	for (int32_t i = 0; i < a->n && i < b->n; i++)
		if (a->at[i].begin != b->at[i].begin || a->at[i].end != b->at[i].end)
			return false;
	return a->n == b->n;
}

#define LAYER_SPANS_CAP (ROUNDS_MAX * 14 + 1)

// layer_spans_print writes them for a person: "0 to 3, 8 to 11".
void layer_spans_print(const struct layer_spans *s, char out[LAYER_SPANS_CAP]);

#endif
