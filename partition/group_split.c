// Who computes what of a layer, as the planner counts it. Rows are cut by base/tensor_split; columns are dealt along lanes here.
#include "partition/group_cost.h"

#include "base/assert.h"

int32_t group_lanes(int32_t block)
{
	return block == 1 ? 32 : block == 256 ? 4 : 8;
}

static uint32_t lanes_all(int32_t n_lanes)
{
	return n_lanes == 32 ? UINT32_MAX : (UINT32_C(1) << n_lanes) - 1;
}

int32_t group_nodes(int32_t n_lanes, uint32_t mask)
{
	ASSERT(n_lanes >= 1 && n_lanes <= GROUP_LANES_MAX);
	if (mask == 0)
		return 0;
	if (mask == lanes_all(n_lanes))
		return 1;
	return group_nodes(n_lanes / 2, mask & lanes_all(n_lanes / 2)) + group_nodes(n_lanes / 2, mask >> (n_lanes / 2));
}

// deal gives each member the sets of its share: set i goes to the member whose part of the whole its boundaries round to.
static void deal(const uint32_t *sets, int32_t n_sets, const uint32_t *shares, int32_t n, uint32_t *masks)
{
	uint64_t total = 0, sum = 0;
	int32_t at = 0;
	for (int32_t i = 0; i < n; i++)
		total += shares[i];
	for (int32_t i = 0; i < n; i++) {
		sum += shares[i];
		int32_t end = (int32_t)(((uint64_t)n_sets * sum * 2 + total) / (total * 2));
		masks[i] = 0;
		for (; at < end; at++)
			masks[i] |= sets[at];
	}
}

static int32_t lane_of_head(const struct split_shape *s, int32_t head, int32_t n_lanes)
{
	return (int32_t)((int64_t)head * s->head_dim / s->o_block % n_lanes);
}

// head_sets finds the lanes that must have one owner: those that the blocks of a head lie in, and with a shared block those of both its heads.
static int32_t head_sets(const struct split_shape *s, int32_t n_lanes, uint32_t sets[GROUP_LANES_MAX])
{
	int32_t n = 0;
	for (int32_t i = 0; i < n_lanes; i++)
		sets[n++] = UINT32_C(1) << i;
	for (int32_t head = 0; head < s->n_heads; head++) {
		int64_t first = (int64_t)head * s->head_dim / s->o_block, last = ((int64_t)(head + 1) * s->head_dim - 1) / s->o_block;
		uint32_t lanes = last - first >= n_lanes ? lanes_all(n_lanes) : 0;
		for (int64_t b = first; b <= last && b < first + n_lanes; b++)
			lanes |= UINT32_C(1) << (b % n_lanes);
		int32_t to = -1, kept = 0;
		for (int32_t i = 0; i < n; i++) {
			uint32_t set = sets[i];
			if ((set & lanes) == 0 || to < 0) {
				to = (set & lanes) != 0 ? kept : to;
				sets[kept++] = set;
			} else {
				sets[to] |= set;
			}
		}
		n = kept;
	}
	return n;
}

static void count_rows(const struct split_shape *s, struct group_split *t)
{
	for (int32_t i = 0; i < t->rows.n_members; i++) {
		const struct split_part *p = &t->rows.parts[i];
		t->n_heads[i] = split_len(p->heads);
		t->n_kv_heads[i] = split_len(split_kv_heads(s, p));
		t->n_ffn[i] = split_len(p->ffn);
	}
}

static void deal_o(const struct split_shape *s, const uint32_t *shares, struct group_split *t)
{
	uint32_t sets[GROUP_LANES_MAX];
	int32_t n = t->rows.n_members, per_kv = s->n_heads / s->n_kv_heads;
	deal(sets, head_sets(s, t->o_lanes, sets), shares, n, t->o_mask);
	for (int32_t i = 0; i < n; i++) {
		int32_t last_kv = -1;
		t->n_heads[i] = t->n_kv_heads[i] = 0;
		for (int32_t head = 0; head < s->n_heads; head++) {
			if ((t->o_mask[i] >> lane_of_head(s, head, t->o_lanes) & 1) == 0)
				continue;
			t->n_heads[i]++;
			t->n_kv_heads[i] += head / per_kv != last_kv;
			last_kv = head / per_kv;
		}
	}
}

static void deal_down(const struct split_shape *s, const uint32_t *shares, struct group_split *t)
{
	uint32_t sets[GROUP_LANES_MAX];
	int32_t n_blocks = (s->ffn_dim + s->down_block - 1) / s->down_block;
	for (int32_t i = 0; i < t->down_lanes; i++)
		sets[i] = UINT32_C(1) << i;
	deal(sets, t->down_lanes, shares, t->rows.n_members, t->down_mask);
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
	*out = (struct group_split){.mode = mode, .o_lanes = group_lanes(s->o_block), .down_lanes = group_lanes(s->down_block)};
	if (mode != GROUP_GATHER && s->n_experts > 0)
		return errmsg_fail(em, ERR_RANGE, "a group of a model with experts gathers: nothing is summed");
	enum err e = tensor_split_make(s, SPLIT_GATHER, shares, n, &out->rows, em);
	if (e != OK)
		return e;
	count_rows(s, out);
	if (mode == GROUP_REDUCE)
		deal_o(s, shares, out);
	if (mode != GROUP_GATHER)
		deal_down(s, shares, out);
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
