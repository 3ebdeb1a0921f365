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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_holds_all_of_a_layer_holds_every_part_of_it),
		cmocka_unit_test(a_part_of_a_layer_is_neither_the_layer_nor_another_part),
		cmocka_unit_test(what_has_no_place_is_forgotten_and_not_made_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
