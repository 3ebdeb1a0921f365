#include "base/layer_part.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct layer_set layers(int32_t begin, int32_t end)
{
	struct layer_spans s = layer_spans_one(begin, end);
	return layer_set_of(&s);
}

static bool covers(const struct held_layers *h, const struct layer_part *part, int32_t begin, int32_t end)
{
	struct layer_spans s = layer_spans_one(begin, end);
	return held_covers(h, part, &s);
}

static const uint32_t shares[] = {3, 1};

static void who_holds_all_of_a_layer_holds_every_part_of_it(void **state)
{
	(void)state;
	struct held_layers h = {0};
	struct layer_part whole = layer_part_of(1, 0, SPLIT_MIXED, shares), part = layer_part_of(2, 1, SPLIT_GATHER, shares);
	struct layer_set set = layers(2, 5);
	assert_int_equal(whole.n, 0);
	held_add(&h, &whole, &set);
	assert_true(covers(&h, &part, 2, 5));
	assert_false(covers(&h, &part, 2, 6));
}

static void a_part_of_a_layer_is_neither_the_layer_nor_another_part(void **state)
{
	(void)state;
	struct held_layers h = {0};
	const uint32_t others[] = {1, 3};
	struct layer_part part = layer_part_of(2, 1, SPLIT_GATHER, shares), whole = {0};
	const struct layer_part not_it[] = {layer_part_of(2, 0, SPLIT_GATHER, shares), layer_part_of(2, 1, SPLIT_MIXED, shares),
		layer_part_of(2, 1, SPLIT_GATHER, others), whole};
	struct layer_set set = layers(0, 4);
	held_add(&h, &part, &set);
	assert_true(covers(&h, &part, 0, 4));
	for (size_t i = 0; i < sizeof not_it / sizeof not_it[0]; i++)
		assert_false(covers(&h, &not_it[i], 0, 1));
}

static void what_has_no_place_is_forgotten_and_not_made_up(void **state)
{
	(void)state;
	struct held_layers h = {0};
	struct layer_part part = layer_part_of(2, 0, SPLIT_GATHER, shares), other = layer_part_of(2, 1, SPLIT_GATHER, shares), whole = {0};
	struct layer_set a = layers(0, 2), b = layers(2, 4), c = layers(4, 6);
	held_add(&h, &part, &a);
	held_add(&h, &other, &b);
	held_add(&h, &part, &c); // joins the first
	assert_int_equal(h.n, 2);
	assert_true(covers(&h, &part, 0, 2) && covers(&h, &part, 4, 6) && !covers(&h, &part, 2, 4));
	held_add(&h, &whole, &c);
	assert_int_equal(h.n, HELD_PARTS_MAX);
	assert_false(covers(&h, &part, 0, 2));
	assert_true(covers(&h, &part, 4, 6) && covers(&h, &other, 2, 6));
}

// cuts_like tells whether members of two splits have the same of a layer's weights, keys and values, whatever sums they complete.
static bool cuts_like(const struct tensor_split *a, int32_t i, const struct tensor_split *b, int32_t k)
{
	struct split_part p = a->parts[i], q = b->parts[k];
	if (split_has_lanes(a->mode) && split_has_lanes(b->mode))
		p.down_rows = q.down_rows;
	if (split_has_o_lanes(a->mode) && split_has_o_lanes(b->mode))
		p.o_rows = q.o_rows;
	return memcmp(&p, &q, sizeof p) == 0;
}

struct cut_group {
	int32_t n;
	enum split_mode mode;
	uint32_t shares[3];
	struct tensor_split split;
};

static void parts_are_equal_where_the_same_is_cut_out_of_a_layer(void **state)
{
	(void)state;
	static const uint32_t of_two[][3] = {{1, 1}, {2, 2}, {3, 1}, {9, 3}, {1, 3}, {2000000000, 2000000000}}, of_three[][3] = {{2, 1, 1}, {2, 2, 0}, {4, 1, 3}};
	const struct split_shape s = {.n_heads = 32, .n_kv_heads = 8, .head_dim = 64, .hidden_dim = 2048, .ffn_dim = 5632, .o_lanes = 8, .down_lanes = 8,
		.vocab_size = 32000, .o_block = 32, .down_block = 32};
	struct cut_group all[N_SPLIT_MODES * 9];
	int32_t n = 0, n_equal = 0;
	for (int32_t mode = 0; mode < N_SPLIT_MODES; mode++) {
		for (size_t i = 0; i < 9; i++) {
			struct cut_group *g = &all[n++];
			*g = (struct cut_group){.n = i < 6 ? 2 : 3, .mode = (enum split_mode)mode};
			memcpy(g->shares, i < 6 ? of_two[i] : of_three[i - 6], sizeof g->shares);
			assert_int_equal(tensor_split_make(&s, g->mode, g->shares, g->n, &g->split, NULL), OK);
		}
	}
	for (int32_t i = 0; i < n; i++) {
		for (int32_t k = 0; k < n; k++) {
			for (int32_t place = 0; place < all[i].n && place < all[k].n; place++) {
				struct layer_part a = layer_part_of(all[i].n, place, all[i].mode, all[i].shares), b = layer_part_of(all[k].n, place, all[k].mode, all[k].shares);
				bool is_same = cuts_like(&all[i].split, place, &all[k].split, place);
				if (layer_part_equal(&a, &b))
					assert_true(is_same);
				n_equal += i != k && layer_part_equal(&a, &b);
			}
		}
	}
	assert_true(n_equal > 100);
}

static void how_sums_travel_is_no_other_part(void **state)
{
	(void)state;
	const uint32_t twice[] = {6, 2}, others[] = {6, 1, 1}, same[] = {12, 3, 1};
	const struct layer_part mixed = layer_part_of(2, 0, SPLIT_MIXED_SCATTER, shares), ring = layer_part_of(2, 0, SPLIT_MIXED_RING, twice);
	const struct layer_part reduce = layer_part_of(2, 0, SPLIT_REDUCE_RING, shares), gather = layer_part_of(2, 0, SPLIT_GATHER, shares);
	const struct layer_part first = layer_part_of(3, 0, SPLIT_GATHER, others), again = layer_part_of(3, 0, SPLIT_GATHER, same);
	assert_true(layer_part_equal(&mixed, &ring));
	assert_false(layer_part_equal(&mixed, &reduce) || layer_part_equal(&mixed, &gather) || layer_part_equal(&reduce, &gather));
	assert_true(layer_part_equal(&first, &again)); // the others are none of its business ..
	assert_false(layer_part_equal(&first, &gather)); // .. but how many there are: heads are cut by it
}

static void the_output_head_is_held_with_its_part(void **state)
{
	(void)state;
	struct held_layers h = {0};
	struct layer_part part = layer_part_of(2, 1, SPLIT_GATHER, shares), other = layer_part_of(2, 0, SPLIT_GATHER, shares), whole = {0};
	struct layer_set set = layers(0, 4);
	held_add_output(&h, &part); // without layers it is forgotten
	assert_false(held_has_output(&h, &part));
	held_add(&h, &part, &set);
	assert_false(held_has_output(&h, &part));
	held_add_output(&h, &part);
	assert_true(held_has_output(&h, &part));
	assert_false(held_has_output(&h, &other) || held_has_output(&h, &whole));
	held_add(&h, &whole, &set);
	assert_false(held_has_output(&h, &other));
	held_add_output(&h, &whole);
	assert_true(held_has_output(&h, &other) && held_has_output(&h, &whole));
	held_add(&h, &other, &set); // takes the place of what came first, and not its head
	held_add(&h, &part, &set);
	assert_false(held_has_output(&h, &other) || held_has_output(&h, &part));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_holds_all_of_a_layer_holds_every_part_of_it),
		cmocka_unit_test(a_part_of_a_layer_is_neither_the_layer_nor_another_part),
		cmocka_unit_test(what_has_no_place_is_forgotten_and_not_made_up),
		cmocka_unit_test(parts_are_equal_where_the_same_is_cut_out_of_a_layer),
		cmocka_unit_test(how_sums_travel_is_no_other_part),
		cmocka_unit_test(the_output_head_is_held_with_its_part),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
