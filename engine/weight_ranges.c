#include "engine/weight_ranges.h"

#include "base/assert.h"
#include "engine/engine_state.h"

#include <stdlib.h>

static enum err add(struct weight_ranges *r, uint64_t at, uint64_t bytes)
{
	if (bytes == 0)
		return OK;
	if (r->n == r->cap) {
		size_t cap = r->cap > 0 ? 2 * r->cap : 256;
		struct weight_range *more = realloc(r->at, cap * sizeof *more);
		if (more == NULL)
			return ERR_NOMEM;
		r->at = more;
		r->cap = cap;
	}
	r->at[r->n++] = (struct weight_range){at, bytes};
	return OK;
}

static enum err add_table(struct weight_ranges *r, const struct unit_table *t)
{
	enum err err = OK;
	for (int32_t i = 0; i < t->n; i++)
		for (int32_t k = 0; k < t->units[i].n_parts && err == OK; k++)
			err = add(r, t->units[i].parts[k].at, t->units[i].parts[k].bytes);
	return err;
}

static enum err add_heads(struct weight_ranges *r, const struct engine *e, const struct tensor_view *bias, bool is_kv)
{
	enum err err = OK;
	uint64_t bytes = (uint64_t)e->hp.head_dim * sizeof(float);
	for (int32_t i = 0; bias->cols > 0 && i < (is_kv ? e->hp.n_kv_heads : e->hp.n_heads) && err == OK; i++)
		if (engine_owns_head(e, is_kv, i))
			err = add(r, bias->at + (uint64_t)i * bytes, bytes);
	return err;
}

// add_small: what is copied, and the matrices whose columns are dealt.
static enum err add_small(struct weight_ranges *r, const struct engine *e, int32_t layer)
{
	struct layer_weights w;
	model_layer(e->c.model, layer, &w);
	const struct tensor_view *vectors[] = {&w.attn_norm, &w.ffn_norm, &w.q_norm, &w.k_norm};
	enum err err = add_heads(r, e, &w.q_bias, false);
	err = err == OK ? add_heads(r, e, &w.k_bias, true) : err;
	err = err == OK ? add_heads(r, e, &w.v_bias, true) : err;
	for (size_t i = 0; i < ARRAY_LEN(vectors) && err == OK; i++)
		err = add(r, vectors[i]->at, (uint64_t)vectors[i]->cols * sizeof(float));
	if (err == OK)
		err = add(r, w.router.at, (uint64_t)w.router.rows * w.router.row_bytes);
	if (err == OK && split_has_o_lanes(e->split.mode) && split_len(e->part.o_lanes) > 0)
		err = add(r, w.o.at, (uint64_t)w.o.rows * w.o.row_bytes);
	if (err == OK && split_has_lanes(e->split.mode) && split_len(e->part.lanes) > 0)
		err = add(r, w.down.at, (uint64_t)w.down.rows * w.down.row_bytes);
	return err;
}

enum err weight_ranges_of(struct engine *e, struct weight_ranges *out)
{
	enum err err = engine_list_units(e);
	if (err == OK)
		err = add_table(out, &e->units);
	if (err == OK)
		err = add_table(out, &e->expert_units);
	for (int32_t i = 0; i < e->hp.n_layers && err == OK; i++)
		if (layer_spans_find(&e->c.layers, i) >= 0)
			err = add_small(out, e, i);
	if (err == OK && engine_has_output(e)) {
		struct tensor_view norm = model_output_norm(e->c.model);
		err = add(out, norm.at, (uint64_t)norm.cols * sizeof(float));
	}
	unit_table_deinit(&e->units);
	unit_table_deinit(&e->expert_units);
	return err;
}

void weight_ranges_deinit(struct weight_ranges *r)
{
	free(r->at);
	*r = (struct weight_ranges){0};
}
