#include "engine/give_way.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void a_burst_changes_nothing(void **state)
{
	(void)state;
	struct give_way g;
	give_way_init(&g, 8);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(give_way_look(&g, 7, 8), 8);
		assert_int_equal(give_way_look(&g, 0.2, 8), 8);
	}
}

static void work_of_others_takes_threads_at_the_second_look(void **state)
{
	(void)state;
	struct give_way g;
	give_way_init(&g, 8);
	assert_int_equal(give_way_look(&g, 5, 8), 8);
	assert_int_equal(give_way_look(&g, 3, 8), 5); // what both looks left
	assert_int_equal(give_way_look(&g, 8, 8), 5);
	assert_int_equal(give_way_look(&g, 64, 8), 1); // one is always left
	assert_int_equal(give_way_look(&g, 64, 8), 1);
}

static void threads_come_back_one_by_one(void **state)
{
	(void)state;
	struct give_way g;
	give_way_init(&g, 4);
	(void)give_way_look(&g, 4, 4);
	assert_int_equal(give_way_look(&g, 4, 4), 1);
	for (int i = 0; i < 4; i++)
		assert_int_equal(give_way_look(&g, 0, 4), 1);
	assert_int_equal(give_way_look(&g, 0, 4), 2);
	assert_int_equal(give_way_look(&g, 0, 4), 3);
	assert_int_equal(give_way_look(&g, 1, 4), 3);
	assert_int_equal(give_way_look(&g, 0, 4), 3); // quiet anew
	for (int i = 0; i < 3; i++)
		assert_int_equal(give_way_look(&g, 0, 4), 3);
	assert_int_equal(give_way_look(&g, 0, 4), 4);
	assert_int_equal(give_way_look(&g, 0, 4), 4);
}

static void fewer_threads_than_processors_leave_room_for_others(void **state)
{
	(void)state;
	struct give_way g;
	give_way_init(&g, 4);
	for (int i = 0; i < 10; i++)
		assert_int_equal(give_way_look(&g, 12, 16), 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_burst_changes_nothing),
		cmocka_unit_test(work_of_others_takes_threads_at_the_second_look),
		cmocka_unit_test(threads_come_back_one_by_one),
		cmocka_unit_test(fewer_threads_than_processors_leave_room_for_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
