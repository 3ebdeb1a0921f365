#include "base/layer_part.h"

// Where a part lies in a layer: it begins at before/all of it and is own/all of it. That and the number of members is all that a cut depends on
// (base/tensor_split.c). In lowest terms, so that equal ones have equal figures.
struct place {
	uint64_t before, own, all;
};

static uint64_t common(uint64_t a, uint64_t b)
{
	while (b != 0) {
		uint64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

static struct place place_of(const struct layer_part *p)
{
	struct place at = {.own = p->shares[p->place]};
	for (int32_t i = 0; i < p->n; i++) {
		at.before += i < p->place ? p->shares[i] : 0;
		at.all += p->shares[i];
	}
	uint64_t unit = common(common(at.before, at.own), at.all);
	return unit == 0 ? at : (struct place){at.before / unit, at.own / unit, at.all / unit};
}

bool layer_part_equal(const struct layer_part *a, const struct layer_part *b)
{
	if (a->n != b->n || a->n == 0)
		return a->n == b->n;
	if (split_has_lanes(a->mode) != split_has_lanes(b->mode) || split_has_o_lanes(a->mode) != split_has_o_lanes(b->mode))
		return false;
	struct place at = place_of(a), other = place_of(b);
	return at.before == other.before && at.own == other.own && at.all == other.all;
}

void held_add(struct held_layers *h, const struct layer_part *part, const struct layer_set *layers)
{
	int32_t i = 0;
	while (i < h->n && !layer_part_equal(&h->at[i].part, part))
		i++;
	if (i < h->n) {
		layer_set_join(&h->at[i].layers, layers);
		return;
	}
	if (h->n == HELD_PARTS_MAX)
		memmove(&h->at[0], &h->at[1], (size_t)--h->n * sizeof h->at[0]);
	h->at[h->n].has_output = false;
	h->at[h->n].part = *part;
	h->at[h->n++].layers = *layers;
}

struct layer_set held_of(const struct held_layers *h, const struct layer_part *part)
{
	struct layer_set have = {{0}};
	for (int32_t i = 0; i < h->n; i++)
		if (h->at[i].part.n == 0 || layer_part_equal(&h->at[i].part, part))
			layer_set_join(&have, &h->at[i].layers);
	return have;
}

void held_add_output(struct held_layers *h, const struct layer_part *part)
{
	for (int32_t i = 0; i < h->n; i++)
		h->at[i].has_output = h->at[i].has_output || layer_part_equal(&h->at[i].part, part);
}

bool held_has_output(const struct held_layers *h, const struct layer_part *part)
{
	for (int32_t i = 0; i < h->n; i++)
		if (h->at[i].has_output && (h->at[i].part.n == 0 || layer_part_equal(&h->at[i].part, part)))
			return true;
	return false;
}
