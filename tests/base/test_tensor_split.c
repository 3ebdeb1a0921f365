// How a group shares a layer: every part covered once, near the shares, at blocks where that can be; and what is no split is refused.
#include "base/tensor_split.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct split_shape llama_70b = {.n_heads = 64, .n_kv_heads = 8, .head_dim = 128, .hidden_dim = 8192, .ffn_dim = 28672, .o_block = 32, .down_block = 32};
static const struct split_shape smollm2 = {.n_heads = 9, .n_kv_heads = 3, .head_dim = 64, .hidden_dim = 576, .ffn_dim = 1536, .o_block = 32, .down_block = 32};

static struct tensor_split made(const struct split_shape *s, const uint32_t *shares, int32_t n)
{
	struct tensor_split t;
	struct errmsg em = {{0}};
	assert_int_equal(tensor_split_make(s, SPLIT_GATHER, shares, n, &t, &em), OK);
	assert_int_equal(tensor_split_check(s, &t, &em), OK);
	return t;
}

static void assert_range(struct split_range r, int32_t begin, int32_t end)
{
	assert_int_equal(r.begin, begin);
	assert_int_equal(r.end, end);
}

static void shares_of_3_2_1_cut_at_kv_heads_and_blocks(void **state)
{
	(void)state;
	struct tensor_split t = made(&llama_70b, (const uint32_t[]){3, 2, 1}, 3);
	assert_range(t.parts[0].heads, 0, 32);
	assert_range(t.parts[1].heads, 32, 56);
	assert_range(t.parts[2].heads, 56, 64);
	assert_range(t.parts[0].ffn, 0, 14336);
	assert_range(t.parts[1].ffn, 14336, 23904); // block 747 of 896
	assert_range(t.parts[2].o_rows, 6816, 8192);
	assert_range(split_kv_heads(&llama_70b, &t.parts[1]), 4, 7);
}

static void more_members_than_kv_heads_share_some(void **state)
{
	(void)state;
	struct tensor_split t = made(&smollm2, (const uint32_t[]){1, 1, 1, 1, 1}, 5);
	assert_range(t.parts[0].heads, 0, 2);
	assert_range(t.parts[1].heads, 2, 4);
	assert_range(split_kv_heads(&smollm2, &t.parts[1]), 0, 2);
}

static void a_share_of_0_holds_nothing(void **state)
{
	(void)state;
	struct tensor_split t = made(&smollm2, (const uint32_t[]){0, 5, 0}, 3);
	for (int i = 0; i < 3; i += 2) {
		assert_int_equal(split_len(t.parts[i].heads), 0);
		assert_int_equal(split_len(t.parts[i].ffn), 0);
		assert_int_equal(split_len(t.parts[i].o_rows), 0);
		assert_int_equal(split_len(split_kv_heads(&smollm2, &t.parts[i])), 0);
	}
	assert_range(t.parts[1].ffn, 0, 1536);
}

static void random_shares_cover_every_shape_within_a_unit_of_each_share(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 3);
	for (int trial = 0; trial < 2000; trial++) {
		int32_t n = 1 + (int32_t)rng_below(&r, GROUP_MEMBERS_MAX), kv = 1 + (int32_t)rng_below(&r, 12), n_experts = (int32_t)rng_below(&r, 3) == 0 ? 60 : 0;
		struct split_shape s = {.n_heads = kv * (1 + (int32_t)rng_below(&r, 8)), .n_kv_heads = kv, .head_dim = 8 * (1 + (int32_t)rng_below(&r, 16)),
			.hidden_dim = 8 * (1 + (int32_t)rng_below(&r, 600)), .ffn_dim = 256 * (1 + (int32_t)rng_below(&r, 100)), .n_experts = n_experts,
			.o_block = rng_below(&r, 2) ? 32 : 256, .down_block = rng_below(&r, 2) ? 32 : 256};
		uint32_t shares[GROUP_MEMBERS_MAX], total = 0;
		for (int32_t i = 0; i < n; i++)
			shares[i] = (uint32_t)rng_below(&r, 1000) + (i == 0);
		for (int32_t i = 0; i < n; i++)
			total += shares[i];
		struct tensor_split t = made(&s, shares, n);
		for (int32_t i = 0; i < n && n_experts == 0; i++) {
			double want = (double)s.ffn_dim * shares[i] / total;
			assert_true((double)split_len(t.parts[i].ffn) - want < 256.5 && want - (double)split_len(t.parts[i].ffn) < 256.5);
		}
	}
}

static void columns_travel_as_whole_blocks_and_what_is_shared_as_f32(void **state)
{
	(void)state;
	struct split_columns c = split_columns_of((struct split_range){40, 200}, 32);
	assert_range(c.front, 40, 64);
	assert_range(c.blocks, 2, 6);
	assert_range(c.back, 192, 200);
	assert_int_equal(split_columns_bytes(&c, 32), 24 * 4 + 4 * 36 + 8 * 4);
	c = split_columns_of((struct split_range){70, 90}, 32); // inside one block
	assert_int_equal(split_columns_bytes(&c, 32), 80);
	c = split_columns_of((struct split_range){0, 160}, 1);
	assert_int_equal(split_columns_bytes(&c, 1), 640);
	c = split_columns_of((struct split_range){0, 64}, 32);
	assert_int_equal(split_columns_bytes(&c, 32), 72);
}

static void a_70b_layer_of_equal_shares_gathers_107_kb(void **state)
{
	(void)state;
	struct tensor_split t = made(&llama_70b, (const uint32_t[]){1, 1, 1, 1}, 4);
	size_t bytes = 0;
	for (int32_t i = 0; i < 4; i++)
		for (int x = EXCHANGE_ATTENDED; x <= EXCHANGE_DOWN; x++)
			bytes += x == EXCHANGE_O_NODES || x == EXCHANGE_NODES ? 0 : split_bytes(&llama_70b, &t.parts[i], (enum split_exchange)x, 32);
	assert_int_equal(bytes, 9216 + 32768 + 32256 + 32768); // a member receives three quarters of them
}

static void lanes_are_dealt_in_eighths_of_32_blocks(void **state)
{
	(void)state;
	struct tensor_split t;
	struct errmsg em = {{0}};
	struct split_shape s = llama_70b;
	assert_int_equal(tensor_split_make(&s, SPLIT_MIXED_SCATTER, (const uint32_t[]){3, 1}, 2, &t, &em), ERR_RANGE); // lanes not known
	s.down_lanes = 8;
	assert_int_equal(tensor_split_make(&s, SPLIT_MIXED_SCATTER, (const uint32_t[]){3, 1}, 2, &t, &em), OK);
	assert_int_equal(tensor_split_check(&s, &t, &em), OK);
	assert_int_equal(split_mask(t.parts[0].lanes, 8), 0x3f);
	assert_int_equal(split_mask(t.parts[1].lanes, 8), 0xc0);
	assert_range(split_sums(&s, &t, 1, false), 6144, 8192);
	assert_int_equal(tensor_split_make(&s, SPLIT_MIXED_STAR, (const uint32_t[]){1, 1, 1}, 3, &t, &em), OK);
	assert_int_equal(split_mask(t.parts[0].lanes, 8) | split_mask(t.parts[1].lanes, 8) | split_mask(t.parts[2].lanes, 8), 0xff);
	assert_range(split_sums(&s, &t, 0, false), 0, 8192);
	assert_int_equal(split_len(split_sums(&s, &t, 1, false)), 0);
	t.parts[1].lanes.end++;
	t.parts[2].lanes.begin++;
	assert_int_equal(tensor_split_check(&s, &t, &em), ERR_RANGE); // a lane in two
	assert_int_equal(tensor_split_make(&s, SPLIT_REDUCE, (const uint32_t[]){1, 1}, 2, &t, &em), ERR_RANGE); // lanes of o not known
	s.o_lanes = 8;
	assert_int_equal(tensor_split_make(&s, SPLIT_REDUCE, (const uint32_t[]){1, 1}, 2, &t, &em), OK); // four blocks a head: even and odd ones
	assert_int_equal(tensor_split_check(&s, &t, &em), OK);
	for (int32_t head = 0; head < s.n_heads; head++)
		assert_int_equal(split_owns_head(&s, t.mode, &t.parts[0], head), head % 2 == 0);
	t.parts[0].o_lanes.end += 4; // a lane, and so half a head
	t.parts[1].o_lanes.begin += 4;
	assert_int_equal(tensor_split_check(&s, &t, &em), ERR_RANGE);
	s.head_dim = 48; // a block and a half
	assert_int_equal(tensor_split_make(&s, SPLIT_REDUCE, (const uint32_t[]){1, 1}, 2, &t, &em), ERR_RANGE);
	s.n_experts = 8;
	assert_int_equal(tensor_split_make(&s, SPLIT_MIXED, (const uint32_t[]){1, 1}, 2, &t, &em), ERR_RANGE);
}

// Outputs of member 1 of four start at 2, come to 1 over 3 and 0, and go on over 2 and 3 to 0 when they are complete.
static void a_ring_passes_each_members_outputs_to_it_and_on(void **state)
{
	(void)state;
	static const int32_t nodes[] = {2, 3, 0}, sums[] = {1, 2, 3};
	for (int32_t hop = 0; hop < split_hops(4); hop++) {
		assert_int_equal(split_slice(nodes[hop], hop, 4, true), 1);
		assert_int_equal(split_slice(sums[hop], hop, 4, false), 1);
	}
	assert_int_equal(split_before(0, 1, 4), 3);
	assert_int_equal(split_exchanges(SPLIT_GATHER, 4, false), 4);
	assert_int_equal(split_exchanges(SPLIT_GATHER, 4, true), 3);
	assert_int_equal(split_exchanges(SPLIT_MIXED_SCATTER, 4, false), 4);
	assert_int_equal(split_exchanges(SPLIT_REDUCE, 4, false), 2);
	assert_int_equal(split_exchanges(SPLIT_MIXED_RING, 4, false), 8);
	assert_int_equal(split_exchanges(SPLIT_REDUCE_RING, 4, false), 12);
	for (int32_t x = 1; x < 30; x++) {
		assert_int_equal(split_is_hop(SPLIT_MIXED_RING, 4, x), (x - 1) % 8 >= 2);
		assert_int_equal(split_is_hop(SPLIT_REDUCE_RING, 4, x), x > 1);
		assert_false(split_is_hop(SPLIT_REDUCE_SCATTER, 4, x));
	}
}

static void what_covers_no_layer_is_refused(void **state)
{
	(void)state;
	struct errmsg em = {{0}};
	struct tensor_split good = made(&smollm2, (const uint32_t[]){1, 1}, 2), t = good;
	t.parts[1].heads.begin++;
	assert_int_equal(tensor_split_check(&smollm2, &t, &em), ERR_RANGE);
	t = good;
	t.parts[1].ffn.end++;
	assert_int_equal(tensor_split_check(&smollm2, &t, &em), ERR_RANGE);
	t = good;
	t.parts[0].o_rows = (struct split_range){5, 3};
	t.parts[1].o_rows = (struct split_range){3, 576};
	assert_int_equal(tensor_split_check(&smollm2, &t, &em), ERR_RANGE);
	t = good;
	t.n_members = GROUP_MEMBERS_MAX + 1;
	assert_int_equal(tensor_split_check(&smollm2, &t, &em), ERR_RANGE);
	assert_int_equal(tensor_split_make(&smollm2, SPLIT_GATHER, (const uint32_t[]){0, 0}, 2, &t, &em), ERR_RANGE);
	assert_int_equal(tensor_split_make(&smollm2, SPLIT_GATHER, (const uint32_t[]){1}, 0, &t, &em), ERR_RANGE);
}

static void nodes_are_the_greatest_aligned_subtrees(void **state)
{
	(void)state;
	static const struct {
		int32_t n_lanes;
		uint32_t mask;
		int32_t n;
	} cases[] = {{8, 0, 0}, {8, 0xff, 1}, {8, 0x0f, 1}, {8, 0xf0, 1}, {8, 0x3c, 2}, {8, 0x1e, 3}, {8, 0x55, 4}, {8, 0x7f, 3}, {8, 0x80, 1},
		{4, 3, 1}, {4, 6, 2}, {4, 15, 1}, {32, 0xffffffff, 1}, {32, 0xffff, 1}, {32, 0xaaaaaaaa, 16}, {32, 0x7fffffff, 5}, {32, 0x80000000, 1}, {1, 1, 1}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(split_nodes(cases[i].n_lanes, cases[i].mask), cases[i].n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_of_3_2_1_cut_at_kv_heads_and_blocks),
		cmocka_unit_test(more_members_than_kv_heads_share_some),
		cmocka_unit_test(a_share_of_0_holds_nothing),
		cmocka_unit_test(random_shares_cover_every_shape_within_a_unit_of_each_share),
		cmocka_unit_test(columns_travel_as_whole_blocks_and_what_is_shared_as_f32),
		cmocka_unit_test(a_70b_layer_of_equal_shares_gathers_107_kb),
		cmocka_unit_test(lanes_are_dealt_in_eighths_of_32_blocks),
		cmocka_unit_test(a_ring_passes_each_members_outputs_to_it_and_on),
		cmocka_unit_test(what_covers_no_layer_is_refused),
		cmocka_unit_test(nodes_are_the_greatest_aligned_subtrees),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
