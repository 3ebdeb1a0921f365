#include "engine/lane_sums.h"

#include "base/assert.h"
#include "engine/layer_parts.h"
#include "engine/sum_codec.h"

#include <string.h>

static const struct weight *matrix_of(const struct engine *e, struct lane_sum s)
{
	const struct engine_layer *l = layer_of(e, s.layer);
	return s.of_o ? &l->o : &l->down;
}

static uint32_t mask_of(const struct engine *e, bool of_o, enum dtype type, int32_t member)
{
	const struct split_part *p = &e->split.parts[member];
	return split_mask(of_o ? p->o_lanes : p->lanes, kernels_lanes(type));
}

int32_t lane_sum_count(const struct engine *e, bool of_o, enum dtype type, int32_t member)
{
	return split_nodes(kernels_lanes(type), mask_of(e, of_o, type, member));
}

float *lane_sum_at(const struct engine *e, struct lane_sum s, int32_t member, int32_t *n)
{
	enum dtype type = matrix_of(e, s)->type;
	size_t before = 0;
	ASSERT(!split_is_ring(e->split.mode) || member == e->c.member);
	for (int32_t i = 0; i < member; i++)
		before += (size_t)lane_sum_count(e, s.of_o, type, i);
	*n = lane_sum_count(e, s.of_o, type, member);
	if (split_is_ring(e->split.mode))
		return e->nodes;
	return e->nodes + before * (size_t)e->c.batch_max * (size_t)e->hp.hidden_dim;
}

struct lane_hop lane_hop_of(const struct engine *e, bool of_o, enum dtype type, int32_t from, int32_t h)
{
	int32_t n = e->split.n_members;
	struct lane_hop hop = {.rows = split_sums(&e->shape, &e->split, split_slice(from, h, n, true), of_o)};
	for (int32_t i = 0; i <= h; i++)
		hop.mask |= mask_of(e, of_o, type, split_before(from, i, n));
	hop.n_nodes = split_nodes(kernels_lanes(type), hop.mask);
	return hop;
}

// hop_nodes_max returns the most nodes that travel of an output in any hop.
static int32_t hop_nodes_max(const struct engine *e, bool of_o, enum dtype type)
{
	int32_t max = 0, n = e->split.n_members;
	for (int32_t i = 0; i < n; i++) {
		for (int32_t h = 0; h < n - 1; h++) {
			struct lane_hop hop = lane_hop_of(e, of_o, type, i, h);
			max = hop.n_nodes > max ? hop.n_nodes : max;
		}
	}
	return max;
}

// room_of returns how many nodes of an output a sum needs room for.
static int32_t room_of(const struct engine *e, bool of_o, enum dtype type)
{
	int32_t n = 0;
	if (split_is_ring(e->split.mode))
		return lane_sum_count(e, of_o, type, e->c.member) + 2 * hop_nodes_max(e, of_o, type);
	for (int32_t i = 0; i < e->split.n_members; i++)
		n += lane_sum_count(e, of_o, type, i);
	return n;
}

float *lane_sum_came(const struct engine *e, struct lane_sum s)
{
	size_t own = (size_t)lane_sum_count(e, s.of_o, matrix_of(e, s)->type, e->c.member);
	return e->nodes + own * (size_t)e->c.batch_max * (size_t)e->hp.hidden_dim;
}

float *lane_sum_passed(const struct engine *e, struct lane_sum s)
{
	size_t came = (size_t)hop_nodes_max(e, s.of_o, matrix_of(e, s)->type);
	return lane_sum_came(e, s) + came * (size_t)e->c.batch_max * (size_t)e->hp.hidden_dim;
}

int32_t lane_sum_nodes_max(const struct engine *e)
{
	int32_t max = 0;
	for (int32_t layer = 0; layer < e->hp.n_layers; layer++) {
		struct layer_weights w;
		int32_t n_o, n_down;
		model_layer(e->c.model, layer, &w);
		n_o = split_has_o_lanes(e->split.mode) ? room_of(e, true, w.o.type) : 0;
		n_down = room_of(e, false, w.down.type);
		max = n_o > max ? n_o : max;
		max = n_down > max ? n_down : max;
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

// packed_acts are those of this member's columns of the input.
static struct acts packed_acts(const struct engine *e, struct lane_sum s, int32_t n_tokens)
{
	const struct weight *w = matrix_of(e, s);
	const struct engine_input *in = s.of_o ? &e->attended : &e->gated;
	enum act_kind kind = kernels_act_kind(w->type);
	struct acts a = {.kind = kind, .n = n_tokens};
	if (w->cols == 0)
		return a;
	acts_init(&a, kind, in->n_cap, w->cols, e->acts_storage[kind]);
	acts_set(&a, in->x, n_tokens);
	return a;
}

void lane_sum_nodes(struct hand *h, struct lane_sum s)
{
	struct engine *e = h->crew->e;
	const struct weight *w = matrix_of(e, s);
	int32_t begin, end, n_nodes, share, rows = e->hp.hidden_dim, per_share = crew_rows_per_share(h, rows);
	float *nodes = lane_sum_at(e, s, e->c.member, &n_nodes);
	struct acts a = packed_acts(e, s, h->crew->n_tokens);
	crew_tokens(h, &begin, &end);
	if (w->cols > 0)
		acts_quantise(e->c.kernels, &a, begin, end);
	crew_end_phase(h);
	while (n_nodes > 0 && crew_take(h, rows / per_share + (rows % per_share != 0), &share)) {
		int32_t row = share * per_share, row_end = rows - row > per_share ? row + per_share : rows;
		kernels_matmul_nodes(e->c.kernels, w, mask_of(e, s.of_o, w->type, e->c.member), &a, row, row_end, nodes, (size_t)n_nodes * (size_t)rows,
			(size_t)rows);
	}
}

// round_values fails the token when they are not finite; others then get zeros, and its fault with them.
static void round_values(struct engine *e, int32_t layer, int32_t t, float *x, int32_t n)
{
	int32_t bad;
	if (sum_round(e->split.payload, x, n, &bad) == OK)
		return;
	struct engine_token *tok = &e->tokens[t];
	if (tok->fault.err == OK)
		tok->fault = (struct engine_fault){ERR_NON_FINITE, layer, tok->pos, false, x[bad]};
	memset(x, 0, (size_t)n * sizeof *x);
}

void lane_sum_round(struct hand *h, struct lane_sum s)
{
	struct engine *e = h->crew->e;
	int32_t begin, end, n_nodes, n_pieces = split_completes_all(e->split.mode) ? 1 : e->split.n_members;
	int32_t first = split_slice(e->c.member, 0, e->split.n_members, true);
	float *nodes = lane_sum_at(e, s, e->c.member, &n_nodes);
	crew_tokens(h, &begin, &end);
	for (int32_t t = begin; t < end && e->split.payload != WIRE_F32; t++) {
		for (int32_t i = 0; i < n_pieces * n_nodes; i++) {
			int32_t whose = i % n_pieces;
			bool travels = n_pieces == 1 || (split_is_ring(e->split.mode) ? whose == first : whose != e->c.member);
			if (!travels)
				continue;
			struct split_range rows = split_sums(&e->shape, &e->split, whose, s.of_o);
			size_t at = ((size_t)t * (size_t)n_nodes + (size_t)(i / n_pieces)) * (size_t)e->hp.hidden_dim;
			round_values(e, s.layer, t, nodes + at + rows.begin, split_len(rows));
		}
	}
}

// own_and_came describes values of token t from rows.begin on, of this member and of what came in a hop.
static void own_and_came(const struct engine *e, struct lane_sum s, const struct lane_hop *in, int32_t t, struct nodes out[2])
{
	size_t dim = (size_t)e->hp.hidden_dim, token = (size_t)t * dim, begin = (size_t)in->rows.begin;
	int32_t n;
	const float *own = lane_sum_at(e, s, e->c.member, &n);
	out[0] = (struct nodes){mask_of(e, s.of_o, matrix_of(e, s)->type, e->c.member), own + token * (size_t)n + begin, dim};
	out[1] = (struct nodes){in->mask, lane_sum_came(e, s) + token * (size_t)in->n_nodes + begin, dim};
}

void lane_sum_pass(struct hand *h, struct lane_sum s, int32_t hop)
{
	struct engine *e = h->crew->e;
	enum dtype type = matrix_of(e, s)->type;
	struct lane_hop in = lane_hop_of(e, s.of_o, type, split_before(e->c.member, 1, e->split.n_members), hop);
	struct lane_hop out = lane_hop_of(e, s.of_o, type, e->c.member, hop + 1);
	int32_t begin, end;
	crew_tokens(h, &begin, &end);
	for (int32_t t = begin; t < end && split_len(in.rows) > 0; t++) {
		struct nodes both[2];
		size_t dim = (size_t)e->hp.hidden_dim;
		float *at = lane_sum_passed(e, s) + (size_t)t * (size_t)out.n_nodes * dim + in.rows.begin;
		own_and_came(e, s, &in, t, both);
		nodes_merge(kernels_lanes(type), &both[0], &both[1], split_len(in.rows), at, dim);
		for (int32_t j = 0; j < out.n_nodes && e->split.payload != WIRE_F32; j++)
			round_values(e, s.layer, t, at + (size_t)j * dim, split_len(in.rows));
	}
}

// members_of describes values of token t of the rows that this member completes, of everybody. Returns how many there are.
static int32_t members_of(const struct engine *e, struct lane_sum s, int32_t t, struct nodes out[GROUP_MEMBERS_MAX])
{
	enum dtype type = matrix_of(e, s)->type;
	int32_t n_members = e->split.n_members;
	size_t dim = (size_t)e->hp.hidden_dim;
	struct split_range rows = split_sums(&e->shape, &e->split, e->c.member, s.of_o);
	if (split_is_ring(e->split.mode)) {
		struct lane_hop in = lane_hop_of(e, s.of_o, type, split_before(e->c.member, 1, n_members), n_members - 2);
		own_and_came(e, s, &in, t, out);
		return 2;
	}
	for (int32_t i = 0; i < n_members; i++) {
		int32_t n;
		const float *at = lane_sum_at(e, s, i, &n);
		out[i] = (struct nodes){mask_of(e, s.of_o, type, i), at + (size_t)t * (size_t)n * dim + rows.begin, dim};
	}
	return n_members;
}

void lane_sum_join(struct hand *h, struct lane_sum s)
{
	struct engine *e = h->crew->e;
	enum dtype type = matrix_of(e, s)->type;
	size_t dim = (size_t)e->hp.hidden_dim;
	struct split_range rows = split_sums(&e->shape, &e->split, e->c.member, s.of_o);
	int32_t begin, end;
	crew_tokens(h, &begin, &end);
	for (int32_t t = begin; t < end && split_len(rows) > 0; t++) {
		struct nodes members[GROUP_MEMBERS_MAX];
		int32_t n_members = members_of(e, s, t, members);
		float *sums = e->delta + (size_t)t * dim + rows.begin;
		nodes_join(kernels_lanes(type), members, n_members, split_len(rows), sums);
		if (e->split.payload != WIRE_F32 && !split_completes_all(e->split.mode))
			round_values(e, s.layer, t, sums, split_len(rows));
	}
}
