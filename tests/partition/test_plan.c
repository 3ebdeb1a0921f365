#include "partition/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct node_id nodes[6] = {{{0}}, {{1}}, {{2}}, {{3}}, {{4}}, {{5}}};
static const char *const names[6] = {"here", "kitchen", "attic", "cellar", "shed", "roof"};

static void an_even_split_gives_the_first_ones_the_rest(void **state)
{
	(void)state;
	struct plan p;
	plan_even(nodes, 4, 30, &p);
	assert_int_equal(p.n_stages, 4);
	assert_int_equal(p.stages[0].layer_end, 8);
	assert_int_equal(p.stages[1].layer_end, 16);
	assert_int_equal(p.stages[3].layer_end - p.stages[3].layer_begin, 7);
	assert_int_equal(plan_check(&p), OK);
}

static void every_even_split_covers_the_model(void **state)
{
	(void)state;
	struct plan p;
	for (int32_t n = 1; n <= 6; n++) {
		for (int32_t layers = 1; layers <= 40; layers++) {
			plan_even(nodes, n, layers, &p);
			assert_int_equal(plan_check(&p), OK);
			assert_int_equal(p.n_stages, n < layers ? n : layers);
		}
	}
}

static void a_given_split_is_taken_as_it_is(void **state)
{
	(void)state;
	struct plan p;
	struct errmsg em;
	const int32_t layers[] = {10, 12, 8};
	assert_int_equal(plan_given(nodes, names, layers, 3, 30, &p, &em), OK);
	assert_int_equal(p.stages[1].layer_begin, 10);
	assert_int_equal(p.stages[1].layer_end, 22);
	assert_int_equal(plan_check(&p), OK);
}

static void an_empty_stage_or_a_wrong_sum_is_refused_by_name(void **state)
{
	(void)state;
	struct plan p;
	struct errmsg em;
	assert_int_equal(plan_given(nodes, names, (const int32_t[]){10, 0, 20}, 3, 30, &p, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "kitchen"));
	assert_int_equal(plan_given(nodes, names, (const int32_t[]){10, 10, 11}, 3, 30, &p, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "attic"));
	assert_int_equal(plan_given(nodes, names, (const int32_t[]){10, 10, 9}, 3, 30, &p, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "29 layers"));
	assert_int_equal(plan_given(nodes, names, (const int32_t[]){INT32_MAX, INT32_MAX}, 2, 30, &p, &em), ERR_RANGE);
}

static void check_refuses_gaps(void **state)
{
	(void)state;
	struct plan p;
	plan_even(nodes, 3, 30, &p);
	p.stages[1].layer_begin++;
	assert_int_equal(plan_check(&p), ERR_RANGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_even_split_gives_the_first_ones_the_rest),
		cmocka_unit_test(every_even_split_covers_the_model),
		cmocka_unit_test(a_given_split_is_taken_as_it_is),
		cmocka_unit_test(an_empty_stage_or_a_wrong_sum_is_refused_by_name),
		cmocka_unit_test(check_refuses_gaps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
