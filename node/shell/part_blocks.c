#include "node/shell/part_blocks.h"

enum err part_blocks_load(struct node_blocks *nb, const struct part_blocks *p, bool beside, void (*done)(void *, enum err, const char *), void *ctx,
	struct errmsg *em)
{
	struct weight_ranges ranges = {0};
	const struct engine_config c = {.model = p->model, .kernels = p->kernels, .pool = p->pool, .layers = *p->layers, .n_slots = 1, .ctx_len = 1,
		.batch_max = 1, .split = p->split, .member = p->member, .has_output = p->has_output};
	bool is_listed = p->split != NULL || p->has_output;
	enum err e = is_listed ? weight_ranges_list(&c, &ranges, em) : OK;
	if (e == OK)
		node_blocks_load(nb, p->layers, is_listed ? &ranges : NULL, beside, done, ctx);
	weight_ranges_deinit(&ranges);
	return e;
}
