#include "base/layer_part.h"

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
