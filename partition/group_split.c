// Who computes how much of a layer; base/tensor_split.h cuts it.
#include "partition/group_cost.h"

static void count_members(const struct split_shape *s, enum split_mode mode, struct group_split *t)
{
	int32_t per_kv = s->n_heads / s->n_kv_heads;
	for (int32_t i = 0; i < t->rows.n_members; i++) {
		const struct split_part *p = &t->rows.parts[i];
		int32_t last_kv = -1;
		bool has_none = split_has_o_lanes(mode) && split_mask(p->o_lanes, s->o_lanes) == 0;
		for (int32_t head = p->heads.begin; head < p->heads.end && !has_none; head++) {
			if (!split_owns_head(s, mode, p, head))
				continue;
			t->n_heads[i]++;
			t->n_kv_heads[i] += head / per_kv != last_kv;
			last_kv = head / per_kv;
		}
		t->n_ffn[i] = split_len(p->ffn);
	}
}

// count_columns: block b of down's input is on lane b modulo their number.
static void count_columns(const struct split_shape *s, struct group_split *t)
{
	int32_t n_blocks = (s->ffn_dim + s->down_block - 1) / s->down_block;
	for (int32_t i = 0; i < t->rows.n_members; i++) {
		int32_t blocks = 0;
		for (int32_t lane = 0; lane < t->down_lanes; lane++)
			if (t->down_mask[i] >> lane & 1)
				blocks += (n_blocks - lane + t->down_lanes - 1) / t->down_lanes;
		t->n_ffn[i] = blocks * s->down_block;
	}
}

enum err group_split_make(const struct split_shape *s, enum group_mode mode, const uint32_t *shares, int32_t n, struct group_split *out,
	struct errmsg *em)
{
	enum split_mode as = mode == GROUP_GATHER ? SPLIT_GATHER : mode == GROUP_MIXED ? SPLIT_MIXED : SPLIT_REDUCE;
	*out = (struct group_split){.mode = mode, .o_lanes = s->o_lanes, .down_lanes = s->down_lanes};
	enum err e = tensor_split_make(s, as, shares, n, &out->rows, em);
	if (e != OK)
		return e;
	count_members(s, as, out);
	for (int32_t i = 0; i < n; i++) {
		out->o_mask[i] = mode == GROUP_REDUCE ? split_mask(out->rows.parts[i].o_lanes, s->o_lanes) : 0;
		out->down_mask[i] = mode != GROUP_GATHER ? split_mask(out->rows.parts[i].lanes, s->down_lanes) : 0;
	}
	if (mode != GROUP_GATHER)
		count_columns(s, out);
	return OK;
}

// attention_of returns q, k, v, and o where it belongs to the same part; elements.
static double attention_of(const struct split_shape *s, const struct group_split *t, int32_t i)
{
	double rows = (double)t->n_heads[i] + 2.0 * t->n_kv_heads[i];
	return (rows + (t->mode == GROUP_REDUCE ? t->n_heads[i] : 0)) * s->head_dim * s->hidden_dim;
}

static double ffn_of(const struct split_shape *s, const struct group_split *t, int32_t i)
{
	if (s->n_experts > 0)
		return 3.0 * split_len(t->rows.parts[i].experts) * s->ffn_dim * s->hidden_dim;
	return (t->mode == GROUP_GATHER ? 2.0 : 3.0) * t->n_ffn[i] * s->hidden_dim;
}

void group_work_of(const struct split_shape *s, const struct group_split *t, struct group_work *out)
{
	double ffn = 3.0 * s->ffn_dim * (s->n_experts > 0 ? s->n_experts : 1);
	double whole = ((2.0 * s->n_heads + 2.0 * s->n_kv_heads) * s->head_dim + ffn) * s->hidden_dim;
	*out = (struct group_work){0};
	for (int32_t i = 0; i < t->rows.n_members; i++) {
		const struct split_part *p = &t->rows.parts[i];
		int32_t n = 0;
		out->part[n++][i] = attention_of(s, t, i) / whole;
		if (t->mode != GROUP_REDUCE)
			out->part[n++][i] = (double)split_len(p->o_rows) * s->n_heads * s->head_dim / whole;
		out->part[n++][i] = ffn_of(s, t, i) / whole;
		if (t->mode == GROUP_GATHER && s->n_experts == 0)
			out->part[n++][i] = (double)split_len(p->down_rows) * s->ffn_dim / whole;
		out->n_parts = n;
		for (int32_t k = 0; k < n; k++)
			out->bytes[i] += out->part[k][i];
		out->kv[i] = (double)t->n_kv_heads[i] / s->n_kv_heads;
		out->heads[i] = (double)t->n_heads[i] / s->n_heads;
	}
}
