// What members send each other: the bytes of each contribution, out and in.
#include "base/assert.h"
#include "base/fmath.h"
#include "engine/lane_sums.h"
#include "engine/layer_parts.h"
#include "engine/member_run.h"
#include "engine/sum_codec.h"

#include <string.h>

struct gathered gathered_of(struct engine *e, int32_t layer, enum split_exchange x)
{
	const struct engine_layer *l = layer_of(e, layer);
	bool is_attended = x == EXCHANGE_ATTENDED;
	enum act_kind kind = kernels_act_kind(is_attended ? l->o.type : l->down.type);
	return (struct gathered){is_attended ? &e->attended : &e->gated, kind, acts_block_len(kind), is_attended};
}

struct split_columns gathered_columns(const struct engine *e, const struct gathered *g, int32_t member)
{
	const struct split_part *p = &e->split.parts[member];
	int32_t dim = e->hp.head_dim;
	return split_columns_of(g->is_attended ? (struct split_range){p->heads.begin * dim, p->heads.end * dim} : p->ffn, g->block);
}

static bool is_own(const struct engine *e, int32_t member, int32_t choice)
{
	struct split_range r = e->split.parts[member].experts;
	return e->choices[choice].expert >= r.begin && e->choices[choice].expert < r.end;
}

static int32_t n_choices(const struct engine *e)
{
	return e->member->crew.n_tokens * e->hp.n_experts_used;
}

// has_rounded_sums tells whether outputs of o or of down travel as the payload: where they are sums.
static bool has_rounded_sums(const struct engine *e, enum split_exchange x)
{
	return (x == EXCHANGE_O && split_has_o_lanes(e->split.mode)) || (x == EXCHANGE_DOWN && split_has_lanes(e->split.mode));
}

static bool is_nodes(enum split_exchange x)
{
	return x == EXCHANGE_O_NODES || x == EXCHANGE_NODES;
}

static enum dtype type_of(const struct engine *e)
{
	const struct member_run *r = e->member;
	const struct engine_layer *l = layer_of(e, r->at.layer);
	return r->at.kind == EXCHANGE_O_NODES ? l->o.type : l->down.type;
}

// hop_of says which nodes a member passes on in the hop that is waited for.
static struct lane_hop hop_of(const struct engine *e, int32_t from)
{
	return lane_hop_of(e, e->member->at.kind == EXCHANGE_O_NODES, type_of(e), from, e->member->at.hop);
}

// rows_of returns which outputs a member sends, completed.
static struct split_range rows_of(const struct engine *e, int32_t member)
{
	const struct member_run *r = e->member;
	int32_t whose = member_at_hop(r) ? split_slice(member, r->at.hop, e->split.n_members, false) : member;
	const struct split_part *p = &e->split.parts[whose];
	return r->at.kind == EXCHANGE_O ? p->o_rows : p->down_rows;
}

size_t member_bytes(const struct engine *e, int32_t from, int32_t to)
{
	const struct member_run *r = e->member;
	ASSERT(r->is_running);
	if (member_at_hop(r) && from != split_before(to, 1, e->split.n_members))
		return 0;
	enum split_exchange x = r->at.kind;
	const struct engine_layer *l = layer_of(e, r->at.layer);
	size_t n = (size_t)r->crew.n_tokens;
	int32_t block = 1;
	if (x == EXCHANGE_EXPERTS) {
		n = 0;
		for (int32_t i = 0; i < n_choices(e); i++)
			n += is_own(e, from, i);
	} else if (is_nodes(x) && member_at_hop(r)) {
		struct lane_hop hop = hop_of(e, from);
		return n * (size_t)hop.n_nodes * split_payload_bytes(e->split.payload, split_len(hop.rows));
	} else if (is_nodes(x)) {
		bool of_o = x == EXCHANGE_O_NODES;
		size_t n_nodes = (size_t)lane_sum_count(e, of_o, of_o ? l->o.type : l->down.type, from);
		return n * n_nodes * split_payload_bytes(e->split.payload, split_len(split_sums(&e->shape, &e->split, to, of_o)));
	} else if (has_rounded_sums(e, x)) {
		return n * split_payload_bytes(e->split.payload, split_len(rows_of(e, from)));
	} else {
		block = acts_block_len(kernels_act_kind(x == EXCHANGE_ATTENDED || x == EXCHANGE_O ? l->o.type : l->down.type));
	}
	return n * split_bytes(&e->shape, &e->split.parts[from], x, block);
}

// nodes_bytes_max bounds what a member sends of a sum's nodes for one token: to each what it completes, or in the hops of a ring.
static size_t nodes_bytes_max(const struct engine *e, bool of_o, enum dtype type, int32_t member)
{
	size_t max = 0;
	if (!split_is_ring(e->split.mode))
		return (size_t)lane_sum_count(e, of_o, type, member) * split_bytes(&e->shape, &e->split.parts[member], EXCHANGE_NODES, 1);
	for (int32_t h = 0; h < e->split.n_members - 1; h++) {
		struct lane_hop hop = lane_hop_of(e, of_o, type, member, h);
		size_t bytes = (size_t)hop.n_nodes * (size_t)split_len(hop.rows) * sizeof(float);
		max = bytes > max ? bytes : max;
	}
	return max;
}

size_t member_bytes_max(const struct engine *e, int32_t n_tokens)
{
	size_t max = 0;
	for (int32_t i = 0; i < e->hp.n_layers; i++) {
		if (layer_spans_find(&e->c.layers, i) < 0)
			continue;
		struct layer_weights w;
		model_layer(e->c.model, i, &w); // an engine that is only measured has no layers
		bool has_experts = e->hp.n_experts > 0, has_lanes = split_has_lanes(e->split.mode), has_o_lanes = split_has_o_lanes(e->split.mode);
		int32_t o = acts_block_len(kernels_act_kind(w.o.type)), down = has_experts ? 1 : acts_block_len(kernels_act_kind(w.down.type));
		for (int32_t m = 0; m < e->split.n_members; m++) {
			const struct split_part *p = &e->split.parts[m];
			int32_t n_own = split_len(p->experts) < e->hp.n_experts_used ? split_len(p->experts) : e->hp.n_experts_used;
			const size_t sizes[] = {
				has_o_lanes ? 0 : split_bytes(&e->shape, p, EXCHANGE_ATTENDED, o),
				split_bytes(&e->shape, p, EXCHANGE_O, o),
				has_experts ? (size_t)n_own * split_bytes(&e->shape, p, EXCHANGE_EXPERTS, 1) : has_lanes ? 0 : split_bytes(&e->shape, p, EXCHANGE_GATED, down),
				has_experts ? 0 : split_bytes(&e->shape, p, EXCHANGE_DOWN, down),
				has_lanes ? nodes_bytes_max(e, false, w.down.type, m) : 0,
				has_o_lanes ? nodes_bytes_max(e, true, w.o.type, m) : 0,
			};
			for (size_t k = 0; k < ARRAY_LEN(sizes); k++)
				max = sizes[k] > max ? sizes[k] : max;
		}
	}
	return max * (size_t)n_tokens;
}

static uint8_t *put(uint8_t *to, const void *from, size_t n, size_t size)
{
	memcpy(to, from, n * size);
	return to + n * size;
}

static const uint8_t *take(const uint8_t *from, void *to, size_t n, size_t size)
{
	memcpy(to, from, n * size);
	return from + n * size;
}

// A token's blocks of quantised values.
static int8_t *values_at(const struct acts *a, int32_t t, const struct gathered *g, struct split_range blocks)
{
	return a->q + (size_t)t * (size_t)a->cols + (size_t)blocks.begin * (size_t)g->block;
}

static float *scales_at(const struct acts *a, int32_t t, const struct gathered *g, struct split_range blocks)
{
	return a->d + (size_t)t * (size_t)(a->cols / g->block) + blocks.begin;
}

static void export_columns(const struct engine *e, const struct gathered *g, uint8_t *out)
{
	struct split_columns c = gathered_columns(e, g, e->c.member);
	const struct acts *a = &g->in->acts[g->kind];
	size_t n = (size_t)split_len(c.blocks);
	for (int32_t t = 0; t < e->member->crew.n_tokens; t++) {
		const float *x = g->in->x + (size_t)t * (size_t)g->in->cols;
		out = put(out, x + c.front.begin, (size_t)split_len(c.front), sizeof *x);
		if (n > 0) {
			out = put(out, values_at(a, t, g, c.blocks), n * (size_t)g->block, 1);
			out = put(out, scales_at(a, t, g, c.blocks), n, sizeof *a->d);
		}
		out = put(out, x + c.back.begin, (size_t)split_len(c.back), sizeof *x);
	}
}

// has_value_128 looks for the one value that quantising never gives, and that products would not agree about.
static bool has_value_128(const int8_t *q, size_t n)
{
	bool found = false;
	for (size_t i = 0; i < n; i++)
		found |= q[i] == -128;
	return found;
}

static enum err import_columns(const struct engine *e, const struct gathered *g, int32_t member, const uint8_t *in, struct errmsg *em)
{
	struct split_columns c = gathered_columns(e, g, member);
	const struct acts *a = &g->in->acts[g->kind];
	size_t n = (size_t)split_len(c.blocks);
	for (int32_t t = 0; t < e->member->crew.n_tokens; t++) {
		float *x = g->in->x + (size_t)t * (size_t)g->in->cols;
		in = take(in, x + c.front.begin, (size_t)split_len(c.front), sizeof *x);
		if (n > 0) {
			in = take(in, values_at(a, t, g, c.blocks), n * (size_t)g->block, 1);
			in = take(in, scales_at(a, t, g, c.blocks), n, sizeof *a->d);
			if (has_value_128(values_at(a, t, g, c.blocks), n * (size_t)g->block))
				return errmsg_fail(em, ERR_FORMAT, "layer %d: member %d sent a value that is none", (int)e->member->at.layer, (int)member);
		}
		in = take(in, x + c.back.begin, (size_t)split_len(c.back), sizeof *x);
	}
	return OK;
}

// put_rounded and take_rounded carry values that were rounded to a wire type (f32: as they are). What is no encoding of it gives NaN, and fails its token.
static uint8_t *put_rounded(uint8_t *to, enum wire_type t, const float *x, int32_t n)
{
	if (t == WIRE_F32)
		return put(to, x, (size_t)n, sizeof *x);
	sum_encode(t, x, n, to);
	return to + split_payload_bytes(t, n);
}

static const uint8_t *take_rounded(const uint8_t *from, enum wire_type t, float *x, int32_t n)
{
	if (t == WIRE_F32)
		return take(from, x, (size_t)n, sizeof *x);
	if (sum_decode(t, from, n, x) != OK)
		for (int32_t i = 0; i < n; i++)
			x[i] = fmath_from_bits(0x7fc00000);
	return from + split_payload_bytes(t, n);
}

static float *rows_at(const struct engine *e, int32_t t, int32_t member, struct split_range *rows)
{
	*rows = rows_of(e, member);
	return e->delta + (size_t)t * (size_t)e->hp.hidden_dim + rows->begin;
}

static void export_rows(const struct engine *e, uint8_t *out)
{
	struct split_range rows;
	for (int32_t t = 0; t < e->member->crew.n_tokens; t++) {
		const float *at = rows_at(e, t, e->c.member, &rows);
		out = put_rounded(out, has_rounded_sums(e, e->member->at.kind) ? e->split.payload : WIRE_F32, at, split_len(rows));
	}
}

static void import_rows(const struct engine *e, int32_t member, const uint8_t *in)
{
	struct split_range rows;
	for (int32_t t = 0; t < e->member->crew.n_tokens; t++) {
		float *at = rows_at(e, t, member, &rows);
		in = take_rounded(in, has_rounded_sums(e, e->member->at.kind) ? e->split.payload : WIRE_F32, at, split_len(rows));
	}
}

static void export_experts(const struct engine *e, uint8_t *out)
{
	size_t n = (size_t)e->hp.hidden_dim;
	for (int32_t i = 0; i < n_choices(e); i++)
		if (is_own(e, e->c.member, i))
			out = put(out, e->chosen_out + (size_t)i * n, n, sizeof *e->chosen_out);
}

static void import_experts(const struct engine *e, int32_t member, const uint8_t *in)
{
	size_t n = (size_t)e->hp.hidden_dim;
	for (int32_t i = 0; i < n_choices(e); i++)
		if (is_own(e, member, i))
			in = take(in, e->chosen_out + (size_t)i * n, n, sizeof *e->chosen_out);
}

// nodes_at returns node 0 of a member's of token t, and which outputs of it `to` completes; in a ring, of what the member passes on.
static float *nodes_at(const struct engine *e, int32_t from, int32_t to, int32_t t, int32_t *n_nodes, struct split_range *rows)
{
	const struct member_run *r = e->member;
	struct lane_sum s = {r->at.layer, r->at.kind == EXCHANGE_O_NODES};
	float *at;
	if (member_at_hop(r)) {
		struct lane_hop hop = hop_of(e, from);
		*rows = hop.rows;
		*n_nodes = hop.n_nodes;
		at = from != e->c.member ? lane_sum_came(e, s) : r->at.hop > 0 ? lane_sum_passed(e, s) : e->nodes;
	} else {
		*rows = split_sums(&e->shape, &e->split, to, s.of_o);
		at = lane_sum_at(e, s, from, n_nodes);
	}
	return at + (size_t)t * (size_t)*n_nodes * (size_t)e->hp.hidden_dim + rows->begin;
}

static void export_nodes(const struct engine *e, int32_t to, uint8_t *out)
{
	struct split_range rows;
	int32_t n_nodes;
	for (int32_t t = 0; t < e->member->crew.n_tokens; t++) {
		const float *at = nodes_at(e, e->c.member, to, t, &n_nodes, &rows);
		for (int32_t j = 0; j < n_nodes; j++)
			out = put_rounded(out, e->split.payload, at + (size_t)j * (size_t)e->hp.hidden_dim, split_len(rows));
	}
}

static void import_nodes(const struct engine *e, int32_t from, const uint8_t *in)
{
	struct split_range rows;
	int32_t n_nodes;
	for (int32_t t = 0; t < e->member->crew.n_tokens; t++) {
		float *at = nodes_at(e, from, e->c.member, t, &n_nodes, &rows);
		for (int32_t j = 0; j < n_nodes; j++)
			in = take_rounded(in, e->split.payload, at + (size_t)j * (size_t)e->hp.hidden_dim, split_len(rows));
	}
}

static void export_to(struct engine *e, int32_t to, uint8_t *out)
{
	const struct member_run *r = e->member;
	if (r->at.kind == EXCHANGE_ATTENDED || r->at.kind == EXCHANGE_GATED) {
		struct gathered g = gathered_of(e, r->at.layer, r->at.kind);
		export_columns(e, &g, out);
	} else if (r->at.kind == EXCHANGE_EXPERTS) {
		export_experts(e, out);
	} else if (is_nodes(r->at.kind)) {
		export_nodes(e, to, out);
	} else {
		export_rows(e, out);
	}
}

void member_export(struct engine *e, uint8_t *out, struct split_sent *to)
{
	ASSERT(e->member->is_running);
	bool is_same = !is_nodes(e->member->at.kind) || split_completes_all(e->split.mode), is_written = false;
	uint32_t at = 0;
	for (int32_t i = 0; i < e->split.n_members; i++) {
		to[i] = (struct split_sent){at, 0};
		if (i == e->c.member)
			continue;
		to[i].len = (uint32_t)member_bytes(e, e->c.member, i);
		if (to[i].len > 0 && (!is_written || !is_same))
			export_to(e, i, out + at);
		is_written = is_written || to[i].len > 0;
		at += is_same ? 0 : to[i].len;
	}
}

enum err member_import(struct engine *e, int32_t from, const uint8_t *bytes, size_t len, struct errmsg *em)
{
	const struct member_run *r = e->member;
	ASSERT(r->is_running);
	ASSERT(from != e->c.member);
	size_t want = member_bytes(e, from, e->c.member);
	if (len != want)
		return errmsg_fail(em, ERR_FORMAT, "layer %d: member %d sent %zu bytes (want %zu)", (int)r->at.layer, (int)from, len, want);
	if (r->at.kind == EXCHANGE_ATTENDED || r->at.kind == EXCHANGE_GATED) {
		struct gathered g = gathered_of(e, r->at.layer, r->at.kind);
		return import_columns(e, &g, from, bytes, em);
	}
	if (r->at.kind == EXCHANGE_EXPERTS)
		import_experts(e, from, bytes);
	else if (is_nodes(r->at.kind))
		import_nodes(e, from, bytes);
	else
		import_rows(e, from, bytes);
	return OK;
}
