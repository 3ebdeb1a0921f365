#include "engine/lane_ffn.h"

#include "engine/layer_parts.h"

static uint32_t mask_of(const struct engine *e, int32_t layer, int32_t member)
{
	return split_mask(&e->split.parts[member], kernels_lanes(layer_of(e, layer)->down.type));
}

static int32_t count_of(const struct engine *e, enum dtype type, int32_t member)
{
	int32_t n_lanes = kernels_lanes(type);
	return nodes_count(n_lanes, split_mask(&e->split.parts[member], n_lanes));
}

float *lane_nodes(const struct engine *e, int32_t layer, int32_t member, int32_t *n)
{
	enum dtype type = layer_of(e, layer)->down.type;
	size_t before = 0;
	for (int32_t i = 0; i < member; i++)
		before += (size_t)count_of(e, type, i);
	*n = count_of(e, type, member);
	return e->nodes + before * (size_t)e->c.batch_max * (size_t)e->hp.hidden_dim;
}

int32_t lane_nodes_max(const struct engine *e)
{
	int32_t max = 0;
	for (int32_t layer = 0; layer < e->hp.n_layers; layer++) {
		struct layer_weights w;
		int32_t n = 0;
		model_layer(e->c.model, layer, &w);
		for (int32_t i = 0; i < e->split.n_members; i++)
			n += count_of(e, w.down.type, i);
		max = n > max ? n : max;
	}
	return max;
}

bool lane_run_next(const struct split_part *p, enum dtype down_type, int32_t ffn_dim, struct lane_run *run)
{
	int32_t n_lanes = kernels_lanes(down_type), len = lanes_block_len(down_type), n_blocks = ffn_dim / len;
	int32_t first = p->lanes.begin * n_lanes / SPLIT_LANES, n = p->lanes.end * n_lanes / SPLIT_LANES - first;
	int32_t done = run->row_end - run->row_begin;
	int32_t block = done == 0 ? first : run->row_begin / len + n_lanes;
	if (n == 0 || block >= n_blocks)
		return false;
	int32_t end = block + n < n_blocks ? block + n : n_blocks;
	*run = (struct lane_run){.row_begin = block * len, .row_end = end * len, .packed = run->packed + done};
	return true;
}

// packed_acts are those of this member's columns of `gated`.
static struct acts packed_acts(const struct engine *e, const struct engine_layer *l, int32_t n_tokens)
{
	enum act_kind kind = kernels_act_kind(l->down.type);
	struct acts a = {.kind = kind, .n = n_tokens};
	if (l->gated_cols == 0)
		return a;
	acts_init(&a, kind, e->gated.n_cap, l->gated_cols, e->acts_storage[kind]);
	acts_set(&a, e->gated.x, n_tokens);
	return a;
}

bool lane_ffn_block(struct hand *h, int32_t layer)
{
	struct engine *e = h->crew->e;
	const struct engine_layer *l = layer_of(e, layer);
	int32_t begin, end, n_nodes, share, rows = e->hp.hidden_dim, per_share = crew_rows_per_share(h, rows);
	float *nodes = lane_nodes(e, layer, e->c.member, &n_nodes);
	if (!layer_gate_up(h, layer))
		return false;
	struct acts a = packed_acts(e, l, h->crew->n_tokens);
	crew_tokens(h, &begin, &end);
	if (l->gated_cols > 0)
		acts_quantise(e->c.kernels, &a, begin, end);
	crew_end_phase(h);
	while (n_nodes > 0 && crew_take(h, rows / per_share + (rows % per_share != 0), &share)) {
		int32_t row = share * per_share, row_end = rows - row > per_share ? row + per_share : rows;
		kernels_matmul_nodes(e->c.kernels, &l->down, mask_of(e, layer, e->c.member), &a, row, row_end, nodes, (size_t)n_nodes * (size_t)rows, (size_t)rows);
	}
	return true;
}

void lane_ffn_join(struct hand *h, int32_t layer)
{
	struct engine *e = h->crew->e;
	size_t dim = (size_t)e->hp.hidden_dim;
	struct split_range rows = split_sums(&e->shape, &e->split, e->c.member);
	int32_t begin, end;
	crew_tokens(h, &begin, &end);
	for (int32_t t = begin; t < end && split_len(rows) > 0; t++) {
		struct nodes members[GROUP_MEMBERS_MAX];
		for (int32_t i = 0; i < e->split.n_members; i++) {
			int32_t n;
			const float *at = lane_nodes(e, layer, i, &n);
			members[i] = (struct nodes){mask_of(e, layer, i), at + (size_t)t * (size_t)n * dim + rows.begin, dim};
		}
		nodes_join(kernels_lanes(layer_of(e, layer)->down.type), members, e->split.n_members, split_len(rows), e->delta + (size_t)t * dim + rows.begin);
	}
}
