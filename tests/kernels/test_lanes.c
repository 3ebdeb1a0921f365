// Products cut along the lanes of the canonical sum: whatever the masks, what members' nodes join to is what the whole row gives.
#include "base/tensor_split.h"
#include "kernels/kernels_impl.h"

#include "tests/support/canonical_ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMBERS_MAX 8
#define POISON 0xaa

static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q3_K,
	DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};

struct split {
	uint32_t masks[MEMBERS_MAX];
	int32_t n;
};

// draw_split deals the lanes to 2 to 8 members: each lane by itself, or in aligned runs of a power of two, or in any runs. Some get none.
static struct split draw_split(struct rng *r, int32_t n_lanes)
{
	struct split s = {.n = 2 + (int32_t)rng_below(r, MEMBERS_MAX - 1)};
	uint64_t way = rng_below(r, 3), run = 1;
	if (way == 1)
		run = (uint64_t)n_lanes >> rng_below(r, 4);
	run = run == 0 ? 1 : run;
	for (int32_t l = 0, member = 0; l < n_lanes; l++) {
		if (way == 2 ? rng_below(r, 3) == 0 : (uint64_t)l % run == 0)
			member = (int32_t)rng_below(r, (uint64_t)s.n);
		s.masks[member] |= 1u << l;
	}
	return s;
}

static void *take(size_t bytes)
{
	void *p = malloc(bytes + 1);
	assert_non_null(p);
	return p;
}

struct shape {
	enum dtype type;
	int32_t rows, cols, n;
};

static size_t row_bytes_of(enum dtype type, int32_t cols)
{
	size_t bytes;
	assert_true(dtype_row_bytes(type, (uint64_t)cols, &bytes));
	return bytes;
}

// acts_of makes activations of n tokens x (n, cols); the storage is the caller's to free.
static struct acts acts_of(const struct kernels *k, enum dtype type, const float *x, int32_t n, int32_t cols, void **storage)
{
	struct acts a = {.n = n};
	enum act_kind kind = kernels_act_kind(type);
	*storage = take(acts_bytes(kind, n, cols));
	if (cols == 0)
		return a;
	acts_init(&a, kind, n, cols, *storage);
	acts_set(&a, x, n);
	acts_quantise(k, &a, 0, n);
	return a;
}

// What a member has and makes. Weights end where their allocation ends, so that a sanitizer sees a read past it.
struct member {
	uint32_t mask;
	int32_t n_nodes;
	float *y; // (n, n_nodes, rows), wider than that by node_pad and token_pad
	size_t node_stride, token_stride;
};

static bool is_poison(const float *x, size_t n)
{
	static const uint8_t poison[4] = {POISON, POISON, POISON, POISON};
	for (size_t i = 0; i < n; i++) {
		if (memcmp(x + i, poison, sizeof(poison)) != 0)
			return false;
	}
	return true;
}

static struct member run_member(const struct kernels *k, const struct shape *s, const uint8_t *data, const float *x, uint32_t mask,
	size_t misalign)
{
	int32_t cols = lanes_cols(s->type, s->cols, mask);
	struct member m = {.mask = mask, .n_nodes = split_nodes(kernels_lanes(s->type), mask), .node_stride = (size_t)s->rows + 1};
	m.token_stride = (size_t)m.n_nodes * m.node_stride + 2;
	size_t bytes = row_bytes_of(s->type, cols), floats = (size_t)s->n * m.token_stride;
	uint8_t *packed = malloc(misalign + (size_t)s->rows * bytes + (bytes == 0 && misalign == 0));
	float *values = take((size_t)s->n * (size_t)cols * sizeof(float));
	m.y = take(floats * sizeof(float));
	memset(m.y, POISON, floats * sizeof(float));
	for (int32_t r = 0; r < s->rows; r++)
		lanes_pack_row(s->type, data + (size_t)r * row_bytes_of(s->type, s->cols), s->cols, mask, packed + misalign + (size_t)r * bytes);
	for (int32_t t = 0; t < s->n; t++)
		lanes_pack_values(s->type, x + (size_t)t * (size_t)s->cols, s->cols, mask, values + (size_t)t * (size_t)cols);
	struct weight w = {.data = packed + misalign, .type = s->type, .rows = s->rows, .cols = cols, .row_bytes = bytes};
	void *storage;
	struct acts a = acts_of(k, s->type, values, s->n, cols, &storage);
	kernels_matmul_nodes(k, &w, mask, &a, 0, s->rows / 3, m.y, m.token_stride, m.node_stride);
	kernels_matmul_nodes(k, &w, mask, &a, s->rows / 3, s->rows, m.y, m.token_stride, m.node_stride);
	for (int32_t t = 0; t < s->n; t++) {
		const float *y = m.y + (size_t)t * m.token_stride;
		for (int32_t j = 0; j < m.n_nodes; j++)
			assert_true(is_poison(y + (size_t)(j + 1) * m.node_stride - 1, 1));
		assert_true(is_poison(y + (size_t)m.n_nodes * m.node_stride, 2));
	}
	free(storage);
	free(values);
	free(packed);
	return m;
}

// merge_all merges the members' nodes of one token two by two, in an order drawn, until the TREE (rows) is complete.
static void merge_all(struct rng *r, const struct shape *s, const struct member *members, int32_t n, int32_t t, float *out)
{
	struct nodes have[MEMBERS_MAX];
	float *owned[MEMBERS_MAX] = {NULL};
	const int32_t n_lanes = kernels_lanes(s->type);
	for (int32_t i = 0; i < n; i++)
		have[i] = (struct nodes){members[i].mask, members[i].y + (size_t)t * members[i].token_stride, members[i].node_stride};
	for (; n > 1; n--) {
		size_t a = rng_below(r, (uint64_t)n), b = (a + 1 + rng_below(r, (uint64_t)n - 1)) % (size_t)n;
		size_t stride = (size_t)s->rows + rng_below(r, 3);
		uint32_t mask = have[a].mask | have[b].mask;
		float *joined = take((size_t)split_nodes(n_lanes, mask) * stride * sizeof(float));
		nodes_merge(n_lanes, &have[a], &have[b], s->rows, joined, stride);
		free(owned[a]);
		free(owned[b]);
		owned[a] = joined;
		have[a] = (struct nodes){mask, joined, stride};
		have[b] = have[n - 1];
		owned[b] = owned[n - 1];
		owned[n - 1] = NULL;
		if (a == (size_t)n - 1)
			a = b;
	}
	assert_int_equal(have[0].mask, lanes_all(n_lanes));
	memcpy(out, have[0].at, (size_t)s->rows * sizeof(float));
	free(owned[0]);
}

static void check_table(const struct kernels *k, struct rng *r, const struct shape *s, const struct split *split, const uint8_t *data,
	const float *x)
{
	struct weight w = {.data = data, .type = s->type, .rows = s->rows, .cols = s->cols, .row_bytes = row_bytes_of(s->type, s->cols)};
	const size_t rows = (size_t)s->rows;
	float *want = take((size_t)s->n * rows * sizeof(float)), *got = take(rows * sizeof(float));
	struct member members[MEMBERS_MAX];
	void *storage;
	struct acts a = acts_of(k, s->type, x, s->n, s->cols, &storage);
	kernels_matmul(k, &w, &a, 0, s->rows, want, rows);
	for (int32_t i = 0; i < split->n; i++)
		members[i] = run_member(k, s, data, x, split->masks[i], rng_below(r, 4));
	for (int32_t t = 0; t < s->n; t++) {
		struct nodes nodes[MEMBERS_MAX];
		for (int32_t i = 0; i < split->n; i++)
			nodes[i] = (struct nodes){split->masks[i], members[i].y + (size_t)t * members[i].token_stride, members[i].node_stride};
		nodes_join(kernels_lanes(s->type), nodes, split->n, s->rows, got);
		if (!ref_same(got, want + (size_t)t * rows, rows))
			fail_msg("%s: %s, %d rows, %d columns, token %d of %d, masks %x %x %x..", kernels_name(k), dtype_find((uint32_t)s->type)->name,
				s->rows, s->cols, t, s->n, split->masks[0], split->masks[1], split->masks[2]);
		merge_all(r, s, members, split->n, t, got);
		assert_true(ref_same(got, want + (size_t)t * rows, rows));
	}
	for (int32_t i = 0; i < split->n; i++)
		free(members[i].y);
	free(storage);
	free(got);
	free(want);
}

static void check(struct rng *r, const struct shape *s, const struct split *split, bool hostile, enum ref_input kind)
{
	uint8_t *data = take((size_t)s->rows * row_bytes_of(s->type, s->cols));
	float *x = take((size_t)s->n * (size_t)s->cols * sizeof(float));
	ref_fill_weights(r, s->type, hostile, data, s->rows, s->cols);
	ref_fill(r, kind, x, (size_t)s->n * (size_t)s->cols);
	for (size_t i = 0; kernels_known(i) != NULL; i++) {
		const struct kernels *k = kernels_find(kernels_known(i), NULL);
		if (k != NULL)
			check_table(k, r, s, split, data, x);
	}
	free(data);
	free(x);
}

static void members_of_every_mask_join_to_the_whole_product(void **state)
{
	(void)state;
	static const int32_t blocks[] = {1, 2, 3, 5, 7, 8, 9, 12, 13, 16, 21, 33, 64, 75};
	static const int32_t tokens[] = {1, 2, 3, 4, 5, 8, 11};
	struct rng r;
	rng_init(&r, 1);
	for (size_t y = 0; y < ARRAY_LEN(types); y++) {
		for (int i = 0; i < 40; i++) {
			struct shape s = {.type = types[y], .rows = 1 + (int32_t)rng_below(&r, 21), .n = tokens[rng_below(&r, ARRAY_LEN(tokens))]};
			int32_t len = lanes_block_len(s.type), most = len == 256 ? 10 : (int32_t)ARRAY_LEN(blocks);
			s.cols = len * (blocks[rng_below(&r, (uint64_t)most)] + (len == 1 ? (int32_t)rng_below(&r, 100) : 0));
			struct split split = draw_split(&r, kernels_lanes(s.type));
			check(&r, &s, &split, false, i % 2 ? REF_PLAIN : REF_OUTLIERS);
		}
	}
}

static void every_single_mask_joins_with_its_complement(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 2);
	for (size_t y = 0; y < ARRAY_LEN(types); y++) {
		int32_t n_lanes = kernels_lanes(types[y]);
		uint32_t step = n_lanes == 32 ? 0x2345677 : 1;
		for (uint32_t mask = 1; mask < lanes_all(n_lanes) - step; mask += step) {
			struct split split = {.masks = {mask, lanes_all(n_lanes) & ~mask}, .n = 2};
			int32_t blocks = n_lanes * 2 + (int32_t)rng_below(&r, 8), rows = 1 + (int32_t)rng_below(&r, 9);
			struct shape s = {.type = types[y], .rows = rows, .cols = blocks * lanes_block_len(types[y]), .n = mask % 2 ? 1 : 6};
			check(&r, &s, &split, false, REF_PLAIN);
		}
	}
}

static void hostile_inputs_join_to_equal_bits_or_nan_together(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 3);
	for (int i = 0; i < 200; i++) {
		struct shape s = {.type = types[rng_below(&r, ARRAY_LEN(types))], .rows = 1 + (int32_t)rng_below(&r, 19)};
		s.n = 1 + (int32_t)rng_below(&r, 9);
		s.cols = lanes_block_len(s.type) * (1 + (int32_t)rng_below(&r, lanes_block_len(s.type) == 1 ? 200 : 20));
		struct split split = draw_split(&r, kernels_lanes(s.type));
		check(&r, &s, &split, i % 2, (enum ref_input)rng_below(&r, N_REF_INPUTS));
	}
}

static void a_long_batch_over_long_rows_joins_too(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 4);
	static const uint32_t of8[][3] = {{0x0f, 0xf0, 0}, {0x03, 0x0c, 0xf0}, {0x25, 0xda, 0}}, of4[][3] = {{3, 12, 0}, {1, 2, 12}, {7, 8, 0}};
	static const uint32_t of32[][3] = {{0xffff, 0xffff0000, 0}, {0xff, 0xff00, 0xffff0000}, {0x01234567, 0xfedcba98, 0}};
	for (size_t y = 0; y < ARRAY_LEN(types); y++) {
		for (int i = 0; i < 3; i++) {
			int32_t n_lanes = kernels_lanes(types[y]);
			struct split split = {.n = 3};
			memcpy(split.masks, n_lanes == 8 ? of8[i] : n_lanes == 4 ? of4[i] : of32[i], sizeof(of8[i]));
			struct shape s = {.type = types[y], .rows = 17, .cols = 1001, .n = i == 1 ? 1 : 70};
			s.cols = n_lanes == 4 ? 256 * 37 : n_lanes == 8 ? 32 * 301 : s.cols;
			check(&r, &s, &split, false, REF_PLAIN);
		}
	}
}

static void a_mask_picks_whole_blocks_whose_scales_stay(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 5);
	static const enum dtype kinds[] = {DTYPE_Q4_0, DTYPE_Q4_K};
	for (int i = 0; i < 100; i++) {
		enum dtype type = kinds[i % 2];
		int32_t n_lanes = kernels_lanes(type), len = lanes_block_len(type), j = 0;
		int32_t n_blocks = 1 + (int32_t)rng_below(&r, 30), cols = n_blocks * len;
		uint32_t mask = (uint32_t)rng_below(&r, lanes_all(n_lanes)) + 1;
		float *x = take((size_t)cols * sizeof(float)), *packed = take((size_t)cols * sizeof(float));
		void *whole_storage, *part_storage;
		ref_fill(&r, REF_OUTLIERS, x, (size_t)cols);
		lanes_pack_values(type, x, cols, mask, packed);
		const struct kernels *k = kernels_find(NULL, NULL);
		struct acts whole = acts_of(k, type, x, 1, cols, &whole_storage);
		struct acts part = acts_of(k, type, packed, 1, lanes_cols(type, cols, mask), &part_storage);
		for (int32_t b = 0; b < n_blocks; b++) {
			if ((mask >> b % n_lanes & 1) == 0)
				continue;
			assert_memory_equal(packed + j * len, x + b * len, (size_t)len * sizeof(float));
			assert_memory_equal(part.q + j * len, whole.q + b * len, (size_t)len);
			assert_memory_equal(&part.d[j++], &whole.d[b], sizeof(float));
		}
		assert_int_equal(j * len, lanes_cols(type, cols, mask));
		free(part_storage);
		free(whole_storage);
		free(packed);
		free(x);
	}
}

static void packed_blocks_lie_on_the_masks_lanes_in_turn(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 6);
	for (int i = 0; i < 500; i++) {
		uint32_t mask = (uint32_t)rng_below(&r, 256);
		int32_t n_blocks = (int32_t)rng_below(&r, 40), lanes[8], n = 0, j = 0;
		uint8_t from[40 * 34], to[40 * 34]; // a block of q8_0 is 34 bytes
		for (int32_t l = 0; l < 8; l++) {
			if (mask >> l & 1)
				lanes[n++] = l;
		}
		for (int32_t b = 0; b < n_blocks; b++)
			memset(from + b * 34, b, 34);
		lanes_pack_row(DTYPE_Q8_0, from, n_blocks * 32, mask, to);
		for (; j * 32 < lanes_cols(DTYPE_Q8_0, n_blocks * 32, mask); j++)
			assert_int_equal(to[j * 34] % 8, lanes[j % n]);
		for (int32_t b = 0; b < n_blocks; b++)
			j -= (int32_t)(mask >> b % 8 & 1);
		assert_int_equal(j, 0);
	}
}

static void a_partition_has_each_lane_once(void **state)
{
	(void)state;
	assert_true(lanes_are_partition(8, (uint32_t[]){0x0f, 0, 0xf0}, 3));
	assert_false(lanes_are_partition(8, (uint32_t[]){0x0f, 0xf8}, 2));
	assert_false(lanes_are_partition(8, (uint32_t[]){0x0f, 0x70}, 2));
	assert_false(lanes_are_partition(8, (uint32_t[]){0x0f, 0x1f0}, 2));
	assert_false(lanes_are_partition(8, NULL, 0));
	assert_true(lanes_are_partition(32, (uint32_t[]){0xffffffff}, 1));
}

static void a_member_without_blocks_gives_zeros(void **state)
{
	(void)state;
	float y[2][4];
	memset(y, POISON, sizeof(y));
	struct weight w = {.type = DTYPE_Q4_K, .rows = 2, .cols = lanes_cols(DTYPE_Q4_K, 256, 0xa)};
	struct acts a = {.n = 2};
	assert_int_equal(w.cols, 0);
	kernels_matmul_nodes(kernels_find(NULL, NULL), &w, 0xa, &a, 0, 2, &y[0][0], 4, 2);
	for (int i = 0; i < 8; i++)
		assert_true(y[i / 4][i % 4] == 0.0f && !signbit(y[i / 4][i % 4]));
	memset(y, POISON, sizeof(y));
	kernels_matmul_nodes(kernels_find(NULL, NULL), &w, 0, &a, 0, 2, &y[0][0], 4, 2);
	assert_true(is_poison(&y[0][0], 8));
}

int main(void)
{
	kernels_thread_init();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_of_every_mask_join_to_the_whole_product),
		cmocka_unit_test(every_single_mask_joins_with_its_complement),
		cmocka_unit_test(hostile_inputs_join_to_equal_bits_or_nan_together),
		cmocka_unit_test(a_long_batch_over_long_rows_joins_too),
		cmocka_unit_test(a_mask_picks_whole_blocks_whose_scales_stay),
		cmocka_unit_test(packed_blocks_lie_on_the_masks_lanes_in_turn),
		cmocka_unit_test(a_partition_has_each_lane_once),
		cmocka_unit_test(a_member_without_blocks_gives_zeros),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
