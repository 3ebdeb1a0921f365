// Masks of lanes, what they pick of a row, and the TREE taken apart and put together again.
#include "kernels/kernels_impl.h"

#include "base/assert.h"

#define RUN 512 // values that pass through the TREE at once, so that what waits for its neighbour stays in the first-level cache

int32_t kernels_lanes(enum dtype type)
{
	switch (kernels_act_kind(type)) {
	case ACT_F32: return FLOAT_LANES;
	case ACT_A32: return QUANT_LANES;
	default: return SUPER_LANES;
	}
}

int32_t lanes_block_len(enum dtype type)
{
	ASSERT(kernels_has_type(type));
	return (int32_t)dtype_find((uint32_t)type)->block_len;
}

uint32_t lanes_all(int32_t n_lanes)
{
	ASSERT(n_lanes > 0);
	ASSERT(n_lanes <= LANES_MAX);
	return UINT32_MAX >> (LANES_MAX - n_lanes);
}

bool lanes_are_partition(int32_t n_lanes, const uint32_t *masks, int32_t n)
{
	uint32_t seen = 0;
	for (int32_t i = 0; i < n; i++) {
		if ((seen & masks[i]) != 0)
			return false;
		seen |= masks[i];
	}
	return seen == lanes_all(n_lanes);
}

int32_t lanes_cols(enum dtype type, int32_t cols, uint32_t mask)
{
	const int32_t n_lanes = kernels_lanes(type), len = lanes_block_len(type), n_blocks = cols / len, n_whole = n_blocks / n_lanes;
	ASSERT(cols >= 0);
	ASSERT(cols % len == 0);
	ASSERT((mask & ~lanes_all(n_lanes)) == 0);
	uint32_t rest = mask & ((1u << n_blocks % n_lanes) - 1);
	return (n_whole * __builtin_popcount(mask) + __builtin_popcount(rest)) * len;
}

// pack copies the blocks of a mask's lanes, neighbours together.
static void pack(const uint8_t *from, int32_t n_blocks, size_t bytes, int32_t n_lanes, uint32_t mask, uint8_t *to)
{
	int32_t run;
	ASSERT((mask & ~lanes_all(n_lanes)) == 0);
	for (int32_t b = 0; b < n_blocks; b += run) {
		const int32_t l = b % n_lanes, rest = n_blocks - b < n_lanes - l ? n_blocks - b : n_lanes - l;
		const bool own = (mask >> l & 1) != 0;
		for (run = 1; run < rest && (mask >> (l + run) & 1) == own; run++)
			;
		if (!own)
			continue;
		memcpy(to, from + (size_t)b * bytes, (size_t)run * bytes);
		to += (size_t)run * bytes;
	}
}

void lanes_pack_row(enum dtype type, const void *row, int32_t cols, uint32_t mask, void *out)
{
	const int32_t len = lanes_block_len(type);
	ASSERT(cols % len == 0);
	pack(row, cols / len, dtype_find((uint32_t)type)->block_bytes, kernels_lanes(type), mask, out);
}

void lanes_pack_values(enum dtype type, const float *x, int32_t n, uint32_t mask, float *out)
{
	const int32_t len = lanes_block_len(type);
	ASSERT(n % len == 0);
	pack((const uint8_t *)x, n / len, (size_t)len * sizeof(float), kernels_lanes(type), mask, (uint8_t *)out);
}

// node_len returns the lanes of the node that begins at lane l, which is in the mask: the greatest aligned power of two inside it.
static int32_t node_len(int32_t n_lanes, uint32_t mask, int32_t l)
{
	int32_t len = 1;
	while (len < n_lanes && l % (2 * len) == 0 && (~mask >> l & lanes_all(2 * len)) == 0)
		len *= 2;
	return len;
}

// next_node returns the first lane from l on where a node begins, or n_lanes. l lies inside no node.
static int32_t next_node(int32_t n_lanes, uint32_t mask, int32_t l)
{
	while (l < n_lanes && (mask >> l & 1) == 0)
		l++;
	return l;
}

// The nodes at hand by the lane where each begins, with how many lanes it is made of; len 0 where none begins.
struct forest {
	const float *at[LANES_MAX];
	int32_t len[LANES_MAX];
};

static void forest_add(struct forest *f, int32_t n_lanes, const struct nodes *m)
{
	const float *at = m->at;
	int32_t len;
	ASSERT((m->mask & ~lanes_all(n_lanes)) == 0);
	for (int32_t l = next_node(n_lanes, m->mask, 0); l < n_lanes; l = next_node(n_lanes, m->mask, l + len), at += m->stride) {
		len = node_len(n_lanes, m->mask, l);
		f->at[l] = at;
		f->len[l] = len;
	}
}

// subtree returns values [begin, begin + n) of the TREE over lanes [l, l + len): where a node has them, or in room (n).
static const float *subtree(const struct forest *f, int32_t l, int32_t len, int32_t begin, int32_t n, float *room)
{
	if (f->len[l] == len)
		return f->at[l] + begin;
	ASSERT(len > 1);
	float right_room[RUN];
	const float *left = subtree(f, l, len / 2, begin, n, room), *right = subtree(f, l + len / 2, len / 2, begin, n, right_room);
	for (int32_t i = 0; i < n; i++)
		room[i] = left[i] + right[i];
	return room;
}

// join_node writes n values of the TREE over lanes [l, l + len) to out.
static void join_node(const struct forest *f, int32_t l, int32_t len, int32_t n, float *out)
{
	for (int32_t begin = 0; begin < n; begin += RUN) {
		const int32_t here = n - begin < RUN ? n - begin : RUN;
		const float *sums = subtree(f, l, len, begin, here, out + begin);
		if (sums != out + begin)
			memcpy(out + begin, sums, (size_t)here * sizeof(float));
	}
}

void nodes_join(int32_t n_lanes, const struct nodes *members, int32_t n_members, int32_t n, float *out)
{
	struct forest f = {{0}, {0}};
	uint32_t seen = 0;
	for (int32_t i = 0; i < n_members; i++) {
		ASSERT((seen & members[i].mask) == 0);
		seen |= members[i].mask;
		forest_add(&f, n_lanes, &members[i]);
	}
	ASSERT(seen == lanes_all(n_lanes));
	join_node(&f, 0, n_lanes, n, out);
}

void nodes_merge(int32_t n_lanes, const struct nodes *a, const struct nodes *b, int32_t n, float *out, size_t out_stride)
{
	struct forest f = {{0}, {0}};
	const uint32_t mask = a->mask | b->mask;
	int32_t len;
	ASSERT((a->mask & b->mask) == 0);
	forest_add(&f, n_lanes, a);
	forest_add(&f, n_lanes, b);
	for (int32_t l = next_node(n_lanes, mask, 0); l < n_lanes; l = next_node(n_lanes, mask, l + len), out += out_stride) {
		len = node_len(n_lanes, mask, l);
		join_node(&f, l, len, n, out);
	}
}

// sink_init fills what the mask says of a sink.
static void sink_init(struct nodes_sink *to, int32_t n_lanes, uint32_t mask)
{
	int32_t len;
	to->n_lanes = 0;
	to->n_nodes = 0;
	for (int32_t l = next_node(n_lanes, mask, 0); l < n_lanes; l = next_node(n_lanes, mask, l + len)) {
		len = node_len(n_lanes, mask, l);
		to->node[to->n_nodes].first = (uint8_t)to->n_lanes;
		to->node[to->n_nodes++].len = (uint8_t)len;
		to->n_lanes += len;
	}
}

static void sink_zeros(const struct nodes_sink *to, int32_t n_tokens, int32_t row_begin, int32_t row_end)
{
	float lanes[LANES_MAX] = {0};
	for (int32_t t = 0; t < n_tokens; t++) {
		for (int32_t r = row_begin; r < row_end; r++)
			sink_lanes(to, t, r, lanes);
	}
}

void kernels_matmul_nodes(const struct kernels *k, const struct weight *w, uint32_t mask, const struct acts *a, int32_t row_begin,
	int32_t row_end, float *y, size_t token_stride, size_t node_stride)
{
	const int32_t n_lanes = kernels_lanes(w->type);
	ASSERT((mask & ~lanes_all(n_lanes)) == 0);
	ASSERT(row_begin >= 0);
	ASSERT(row_end <= w->rows);
	if (mask == 0 || row_begin >= row_end || a->n <= 0)
		return;
	struct nodes_sink to = {.y = y, .token_stride = token_stride, .node_stride = node_stride};
	sink_init(&to, n_lanes, mask);
	if (w->cols == 0) {
		sink_zeros(&to, a->n, row_begin, row_end);
		return;
	}
	ASSERT(a->kind == kernels_act_kind(w->type));
	ASSERT(a->cols == w->cols);
	k->matmul(w, a, row_begin, row_end, &to);
}
