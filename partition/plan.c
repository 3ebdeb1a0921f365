#include "partition/plan.h"

#include "base/assert.h"

void plan_even(const struct node_id *nodes, int32_t n, int32_t n_layers, struct plan *out)
{
	ASSERT(n >= 1);
	ASSERT(n_layers >= 1);
	*out = (struct plan){.n_layers = n_layers};
	out->n_stages = n < n_layers ? n : n_layers;
	if (out->n_stages > STAGES_MAX)
		out->n_stages = STAGES_MAX;
	int32_t share = n_layers / out->n_stages, rest = n_layers % out->n_stages, at = 0;
	for (int32_t i = 0; i < out->n_stages; i++) {
		int32_t len = share + (i < rest);
		out->stages[i] = (struct plan_stage){.node = nodes[i], .layer_begin = at, .layer_end = at + len};
		at += len;
	}
}

enum err plan_given(const struct node_id *nodes, const char *const *names, const int32_t *layers, int32_t n, int32_t n_layers,
	struct plan *out, struct errmsg *em)
{
	ASSERT(n >= 1 && n <= STAGES_MAX);
	*out = (struct plan){.n_layers = n_layers, .n_stages = n};
	int64_t at = 0;
	for (int32_t i = 0; i < n; i++) {
		if (layers[i] < 1)
			return errmsg_fail(em, ERR_RANGE, "split: stage %d (%s) has %d layers: give each stage at least one", i, names[i], layers[i]);
		if (at + layers[i] > n_layers)
			return errmsg_fail(em, ERR_RANGE, "split: stage %d (%s) ends at layer %lld: the model has %d layers", i, names[i],
				(long long)(at + layers[i]), n_layers);
		out->stages[i] = (struct plan_stage){.node = nodes[i], .layer_begin = (int32_t)at, .layer_end = (int32_t)at + layers[i]};
		at += layers[i];
	}
	if (at != n_layers)
		return errmsg_fail(em, ERR_RANGE, "split: %d stages hold %lld layers: the model has %d", n, (long long)at, n_layers);
	return OK;
}

enum err plan_check(const struct plan *p)
{
	if (p->n_stages < 1 || p->n_stages > STAGES_MAX)
		return ERR_RANGE;
	int32_t at = 0;
	for (int32_t i = 0; i < p->n_stages; i++) {
		if (p->stages[i].layer_begin != at || p->stages[i].layer_end <= at)
			return ERR_RANGE;
		at = p->stages[i].layer_end;
	}
	return at == p->n_layers ? OK : ERR_RANGE;
}
