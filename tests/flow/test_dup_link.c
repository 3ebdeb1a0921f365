#include "flow/dup_link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct node_id low = {{1}}, high = {{2}};

// Links are named by who dialled them: each side sees its own view of the same two.
static void both_sides_keep_the_link_the_lower_id_dialled(void **state)
{
	(void)state;
	// The low node's link was first, the high node's is second.
	assert_int_equal(dup_link_decide(low, high, true, false), DUP_LINK_KEEP_OLD);
	assert_int_equal(dup_link_decide(high, low, false, true), DUP_LINK_KEEP_OLD);
	// The other way round.
	assert_int_equal(dup_link_decide(low, high, false, true), DUP_LINK_KEEP_NEW);
	assert_int_equal(dup_link_decide(high, low, true, false), DUP_LINK_KEEP_NEW);
}

static void the_order_in_which_two_links_came_up_does_not_matter(void **state)
{
	(void)state;
	// The two ends may see the two links come up in different orders; the survivor is the low node's in each case.
	for (int order_at_low = 0; order_at_low < 2; order_at_low++)
		for (int order_at_high = 0; order_at_high < 2; order_at_high++) {
			bool low_first_at_low = order_at_low == 0, low_first_at_high = order_at_high == 0;
			enum dup_link a = dup_link_decide(low, high, low_first_at_low, !low_first_at_low);
			enum dup_link b = dup_link_decide(high, low, !low_first_at_high, low_first_at_high);
			assert_int_equal(a == DUP_LINK_KEEP_OLD, low_first_at_low);
			assert_int_equal(b == DUP_LINK_KEEP_OLD, low_first_at_high);
		}
}

static void the_newer_of_one_dialler_replaces_the_older(void **state)
{
	(void)state;
	assert_int_equal(dup_link_decide(low, high, true, true), DUP_LINK_KEEP_NEW);
	assert_int_equal(dup_link_decide(high, low, false, false), DUP_LINK_KEEP_NEW);
	assert_int_equal(dup_link_decide(high, low, true, true), DUP_LINK_KEEP_NEW);
	assert_int_equal(dup_link_decide(low, high, false, false), DUP_LINK_KEEP_NEW);
}

static void ids_are_compared_from_the_first_byte(void **state)
{
	(void)state;
	struct node_id a = {{0}}, b = {{0}};
	a.b[0] = 1, a.b[31] = 0;    // 01 00 .. 00
	b.b[0] = 0, b.b[31] = 0xff; // 00 00 .. ff: lower
	assert_int_equal(dup_link_decide(b, a, false, true), DUP_LINK_KEEP_NEW);
	assert_int_equal(dup_link_decide(a, b, false, true), DUP_LINK_KEEP_OLD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_sides_keep_the_link_the_lower_id_dialled),
		cmocka_unit_test(the_order_in_which_two_links_came_up_does_not_matter),
		cmocka_unit_test(the_newer_of_one_dialler_replaces_the_older),
		cmocka_unit_test(ids_are_compared_from_the_first_byte),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
