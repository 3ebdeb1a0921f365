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

// n_moved counts layers that another node holds than in `old`.
static int32_t n_moved(const struct plan *old, const struct plan *new)
{
	int32_t n = 0;
	for (int32_t i = 0; i < new->n_stages; i++) {
		for (int32_t k = 0; k < old->n_stages; k++) {
			const struct plan_stage *a = &new->stages[i], *b = &old->stages[k];
			int32_t begin = a->layer_begin > b->layer_begin ? a->layer_begin : b->layer_begin;
			int32_t end = a->layer_end < b->layer_end ? a->layer_end : b->layer_end;
			n += end > begin && !node_id_is(a->node, b->node) ? end - begin : 0;
		}
	}
	return n;
}

static void a_repair_moves_the_lost_layers_and_no_other(void **state)
{
	(void)state;
	struct plan old, p;
	const struct node_id spares[2] = {{{8}}, {{9}}};
	for (int32_t n = 1; n <= 6; n++) {
		plan_even(nodes, n, 25, &old);
		for (uint32_t lost = 0; lost < 1u << n; lost++) {
			for (int32_t n_spares = 0; n_spares <= 2; n_spares++) {
				bool alive[6];
				int32_t n_lost = 0;
				for (int32_t i = 0; i < n; i++) {
					alive[i] = (lost >> i & 1) == 0;
					n_lost += alive[i] ? 0 : old.stages[i].layer_end - old.stages[i].layer_begin;
				}
				if (n_lost == 25 && n_spares == 0) {
					assert_int_equal(plan_repair(&old, alive, spares, 0, &p), ERR_NOT_FOUND);
					continue;
				}
				assert_int_equal(plan_repair(&old, alive, spares, n_spares, &p), OK);
				assert_int_equal(plan_check(&p), OK);
				assert_int_equal(n_moved(&old, &p), n_lost);
			}
		}
	}
}

static void a_gap_goes_to_a_spare_or_to_both_neighbours(void **state)
{
	(void)state;
	struct plan old, p;
	const struct node_id spare = {{9}};
	const bool alive[3] = {true, false, true};
	plan_even(nodes, 3, 30, &old);
	assert_int_equal(plan_repair(&old, alive, &spare, 1, &p), OK);
	assert_int_equal(p.n_stages, 3);
	assert_true(node_id_is(p.stages[1].node, spare));
	assert_int_equal(plan_repair(&old, alive, NULL, 0, &p), OK);
	assert_int_equal(p.n_stages, 2);
	assert_int_equal(p.stages[0].layer_end, 15);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_even_split_gives_the_first_ones_the_rest),
		cmocka_unit_test(every_even_split_covers_the_model),
		cmocka_unit_test(a_given_split_is_taken_as_it_is),
		cmocka_unit_test(an_empty_stage_or_a_wrong_sum_is_refused_by_name),
		cmocka_unit_test(check_refuses_gaps),
		cmocka_unit_test(a_repair_moves_the_lost_layers_and_no_other),
		cmocka_unit_test(a_gap_goes_to_a_spare_or_to_both_neighbours),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
