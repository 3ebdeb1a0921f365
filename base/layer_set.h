// A set of layers, or of the boundaries between them: boundary b lies in front of layer b, and n_layers behind the last.
#ifndef HEARTH_BASE_LAYER_SET_H
#define HEARTH_BASE_LAYER_SET_H

#include "base/layer_spans.h"

struct layer_set {
	uint64_t bits[LAYERS_MAX / 64 + 1];
};

static inline bool layer_set_has(const struct layer_set *s, int32_t layer)
{
	return (s->bits[layer / 64] >> (layer % 64) & 1) != 0;
}

static inline void layer_set_add(struct layer_set *s, int32_t layer)
{
	s->bits[layer / 64] |= UINT64_C(1) << (layer % 64);
}

static inline struct layer_set layer_set_of(const struct layer_spans *spans)
{
	struct layer_set s = {{0}};
	for (int32_t i = 0; i < spans->n; i++)
		for (int32_t layer = spans->at[i].begin; layer < spans->at[i].end; layer++)
			layer_set_add(&s, layer);
	return s;
}

// layer_set_join adds what is in `other`.
static inline void layer_set_join(struct layer_set *s, const struct layer_set *other)
{
	for (int32_t i = 0; i < LAYERS_MAX / 64 + 1; i++)
		s->bits[i] |= other->bits[i];
}

// layer_set_covers tells whether every layer of the spans is in the set.
static inline bool layer_set_covers(const struct layer_set *s, const struct layer_spans *spans)
{
	for (int32_t i = 0; i < spans->n; i++)
		for (int32_t layer = spans->at[i].begin; layer < spans->at[i].end; layer++)
			if (!layer_set_has(s, layer))
				return false;
	return true;
}

// layer_set_keep takes out what is not in `other`.
static inline void layer_set_keep(struct layer_set *s, const struct layer_set *other)
{
	for (int32_t i = 0; i < LAYERS_MAX / 64 + 1; i++)
		s->bits[i] &= other->bits[i];
}

#endif
