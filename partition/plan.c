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

enum err plan_repair(const struct plan *old, const bool *alive, const struct node_id *spares, int32_t n_spares, struct plan *out)
{
	int32_t n_used = 0;
	*out = (struct plan){.n_layers = old->n_layers};
	for (int32_t i = 0; i < old->n_stages;) {
		if (alive[i]) {
			out->stages[out->n_stages++] = old->stages[i++];
			continue;
		}
		int32_t end = i;
		while (end < old->n_stages && !alive[end])
			end++;
		int32_t first = old->stages[i].layer_begin, last = old->stages[end - 1].layer_end;
		struct plan_stage *before = i > 0 ? &out->stages[out->n_stages - 1] : NULL;
		if (n_used < n_spares) {
			out->stages[out->n_stages++] = (struct plan_stage){.node = spares[n_used++], .layer_begin = first, .layer_end = last};
		} else if (end == old->n_stages) {
			if (before == NULL)
				return ERR_NOT_FOUND;
			before->layer_end = last;
		} else {
			int32_t cut = before == NULL ? first : first + (last - first + 1) / 2;
			if (before != NULL)
				before->layer_end = cut;
			out->stages[out->n_stages++] = (struct plan_stage){.node = old->stages[end].node, .layer_begin = cut, .layer_end = old->stages[end].layer_end};
			end++;
		}
		i = end;
	}
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
