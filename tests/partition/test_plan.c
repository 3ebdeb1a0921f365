#include "partition/plan.h"

#include "base/window_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct node_id nodes[6] = {{{0}}, {{1}}, {{2}}, {{3}}, {{4}}, {{5}}};
static const char *const names[6] = {"here", "kitchen", "attic", "cellar", "shed", "roof"};

static struct plan_want of_nodes(int32_t n, int32_t n_layers, int32_t n_rounds)
{
	return (struct plan_want){.nodes = nodes, .n = n, .n_layers = n_layers, .n_rounds = n_rounds};
}

static struct plan even(int32_t n, int32_t n_layers, int32_t n_rounds)
{
	struct plan p;
	struct plan_want w = of_nodes(n, n_layers, n_rounds);
	plan_even(&w, &p);
	return p;
}

static void assert_span(const struct plan *p, int32_t at, int32_t begin, int32_t end)
{
	assert_int_equal(plan_span(p, at)->begin, begin);
	assert_int_equal(plan_span(p, at)->end, end);
}

static void an_even_split_gives_the_first_ones_the_rest(void **state)
{
	(void)state;
	struct plan p = even(4, 30, 1);
	assert_int_equal(p.n_stages, 4);
	assert_span(&p, 0, 0, 8);
	assert_span(&p, 1, 8, 16);
	assert_span(&p, 3, 23, 30);
	assert_int_equal(plan_check(&p), OK);
}

static void rounds_cut_the_layers_of_each_stage(void **state)
{
	(void)state;
	struct plan p = even(2, 10, 3); // 5 and 5: 1, 2 and 2 in the rounds
	assert_int_equal(p.n_rounds, 3);
	assert_span(&p, 0, 0, 1);
	assert_span(&p, 1, 1, 2);
	assert_span(&p, 2, 2, 4);
	assert_span(&p, 3, 4, 6);
	assert_span(&p, 4, 6, 8);
	assert_span(&p, 5, 8, 10);
	assert_int_equal(layer_spans_count(&p.stages[1].layers), 5);
	assert_int_equal(even(1, 10, 3).n_rounds, 1); // nobody to wait for
	assert_int_equal(even(3, 7, 9).n_rounds, 3);  // the largest stage has three layers
}

static void every_even_split_covers_the_model(void **state)
{
	(void)state;
	for (int32_t n = 1; n <= 6; n++) {
		for (int32_t layers = 1; layers <= 40; layers++) {
			for (int32_t k = 1; k <= ROUNDS_MAX; k++) {
				struct plan p = even(n, layers, k);
				assert_int_equal(plan_check(&p), OK);
				assert_int_equal(p.n_stages, n < layers ? n : layers);
				assert_true(p.n_rounds <= k);
			}
		}
	}
}

static void a_given_split_is_taken_as_it_is(void **state)
{
	(void)state;
	struct plan p;
	struct errmsg em;
	const int32_t layers[] = {10, 12, 8};
	struct plan_want w = of_nodes(3, 30, 1);
	assert_int_equal(plan_given(&w, names, layers, &p, &em), OK);
	assert_span(&p, 1, 10, 22);
	assert_int_equal(plan_check(&p), OK);
	w.n_rounds = 7; // 10, 12 and 8 layers do not divide
	assert_int_equal(plan_given(&w, names, layers, &p, &em), OK);
	assert_int_equal(plan_check(&p), OK);
	assert_int_equal(p.n_rounds, 7);
	for (int32_t i = 0; i < 3; i++)
		assert_int_equal(layer_spans_count(&p.stages[i].layers), layers[i]);
}

static void stages_stream_what_they_are_given(void **state)
{
	(void)state;
	struct plan p, q;
	const int32_t layers[] = {10, 12, 8};
	const uint32_t shares[] = {0, 30000, WINDOW_SHARE_WHOLE};
	const struct node_id spare = {{9}};
	struct plan_want w = of_nodes(3, 30, 2);
	w.stream_shares = shares;
	assert_int_equal(plan_given(&w, names, layers, &p, NULL), OK);
	assert_int_equal(plan_check(&p), OK);
	for (int32_t i = 0; i < 3; i++)
		assert_int_equal(p.stages[i].stream_share, shares[i]);
	q = p;
	q.stages[1].stream_share = 1;
	assert_true(plan_same_part(&p.stages[1], &q.stages[1]));
	q.stages[1].stream_share = WINDOW_SHARE_WHOLE + 1;
	assert_int_equal(plan_check(&q), ERR_RANGE);
	q.stages[1].stream_share = 1;
	assert_int_equal(plan_check(&q), OK);
	q.stages[1].who = (struct plan_group){.n = 2, .nodes = {q.stages[1].who.nodes[0], {{9}}}, .shares = {1, 1}}; // whose members read as little as must be
	assert_int_equal(plan_check(&q), ERR_RANGE);
	q.stages[1].stream_share = 0;
	assert_int_equal(plan_check(&q), OK);
	const struct plan_alive all = {{{true}, {true}, {true}}}, but_first = {{{false}, {true}, {true}}}, but_second = {{{true}, {false}, {true}}};
	assert_int_equal(plan_repair(&p, &all, NULL, 0, &q), OK);
	assert_int_equal(q.stages[1].stream_share, 30000);
	assert_int_equal(plan_repair(&p, &but_second, &spare, 1, &q), OK); // another machine, of which nothing was planned
	assert_int_equal(q.stages[1].stream_share, 0);
	assert_int_equal(q.stages[2].stream_share, WINDOW_SHARE_WHOLE);
	assert_int_equal(plan_repair(&p, &but_first, NULL, 0, &q), OK); // its layers go to both others, in one round or the next
	assert_int_equal(q.n_stages, 2);
	assert_int_equal(q.stages[0].stream_share, 0);
	assert_int_equal(q.stages[1].stream_share, 0);
	w.stream_shares = NULL;
	assert_int_equal(plan_given(&w, names, layers, &p, NULL), OK);
	assert_int_equal(p.stages[1].stream_share, 0);
}

static void an_empty_stage_or_a_wrong_sum_is_refused_by_name(void **state)
{
	(void)state;
	struct plan p;
	struct errmsg em;
	struct plan_want w = of_nodes(3, 30, 2);
	assert_int_equal(plan_given(&w, names, (const int32_t[]){10, 0, 20}, &p, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "kitchen"));
	assert_int_equal(plan_given(&w, names, (const int32_t[]){10, 10, 11}, &p, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "attic"));
	assert_int_equal(plan_given(&w, names, (const int32_t[]){10, 10, 9}, &p, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "29 layers"));
	w.n = 2;
	assert_int_equal(plan_given(&w, names, (const int32_t[]){INT32_MAX, INT32_MAX}, &p, &em), ERR_RANGE);
}

static void check_refuses_gaps(void **state)
{
	(void)state;
	struct plan p = even(3, 30, 1);
	p.stages[1].layers.at[0].begin++;
	assert_int_equal(plan_check(&p), ERR_RANGE);
	p = even(3, 30, 2);
	p.stages[0].layers.at[1].begin--;
	assert_int_equal(plan_check(&p), ERR_RANGE);
	p = even(3, 30, 2);
	p.stages[2].layers.n = 1;
	assert_int_equal(plan_check(&p), ERR_RANGE);
}

static struct node_id owner(const struct plan *p, int32_t layer)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		if (layer_spans_find(&p->stages[i].layers, layer) >= 0)
			return plan_lead(&p->stages[i]);
	fail_msg("layer %d is nobody's", (int)layer);
	return nodes[0];
}

// n_moved counts layers that another node holds than in `old`.
static int32_t n_moved(const struct plan *old, const struct plan *new)
{
	int32_t n = 0;
	for (int32_t layer = 0; layer < old->n_layers; layer++)
		n += !node_id_is(owner(old, layer), owner(new, layer));
	return n;
}

static void lose_every_set_of(const struct plan *old)
{
	const struct node_id spares[2] = {{{8}}, {{9}}};
	for (uint32_t lost = 0; lost < 1u << old->n_stages; lost++) {
		for (int32_t n_spares = 0; n_spares <= 2; n_spares++) {
			struct plan p;
			struct plan_alive alive;
			int32_t n_lost = 0;
			for (int32_t i = 0; i < old->n_stages; i++) {
				alive.is[i][0] = (lost >> i & 1) == 0;
				n_lost += alive.is[i][0] ? 0 : layer_spans_count(&old->stages[i].layers);
			}
			enum err e = plan_repair(old, &alive, spares, n_spares, &p);
			assert_int_equal(e, n_lost == old->n_layers && n_spares == 0 ? ERR_NOT_FOUND : OK);
			if (e != OK)
				continue;
			assert_int_equal(plan_check(&p), OK);
			assert_int_equal(n_moved(old, &p), n_lost);
		}
	}
}

static void a_repair_moves_the_lost_layers_and_no_other(void **state)
{
	(void)state;
	for (int32_t n = 1; n <= 6; n++) {
		for (int32_t k = 1; k <= 6; k++) {
			struct plan old = even(n, 25, k);
			lose_every_set_of(&old);
		}
	}
}

static void a_gap_goes_to_a_spare_or_to_both_neighbours(void **state)
{
	(void)state;
	struct plan old = even(3, 30, 1), p;
	const struct node_id spare = {{9}};
	const struct plan_alive alive = {{{true}, {false}, {true}}};
	assert_int_equal(plan_repair(&old, &alive, &spare, 1, &p), OK);
	assert_int_equal(p.n_stages, 3);
	assert_true(node_id_is(plan_lead(&p.stages[1]), spare));
	assert_int_equal(plan_repair(&old, &alive, NULL, 0, &p), OK);
	assert_int_equal(p.n_stages, 2);
	assert_span(&p, 0, 0, 15);
}

static void a_spare_takes_a_place_in_every_round(void **state)
{
	(void)state;
	struct plan old = even(3, 30, 2), p;
	const struct node_id spare = {{9}};
	const struct plan_alive alive = {{{true}, {false}, {false}}};
	assert_int_equal(plan_repair(&old, &alive, &spare, 1, &p), OK);
	assert_int_equal(p.n_stages, 2);
	assert_int_equal(p.n_rounds, 2);
	assert_true(node_id_is(plan_lead(&p.stages[1]), spare));
	assert_span(&p, 1, 5, 15);
	assert_span(&p, 3, 20, 30);
	const struct plan_alive last = {{{true}, {true}, {false}}};
	assert_int_equal(plan_repair(&old, &last, NULL, 0, &p), OK); // 10 to 14 lie between two that stay
	assert_span(&p, 1, 5, 13);
	assert_span(&p, 2, 13, 20);
	assert_span(&p, 3, 20, 30);
}

// ---- groups

// of_group makes a ring of 0, of 1 with 2 and 3 as a group (shares 3, 2 and 1), and of 4.
static struct plan of_group(int32_t n_rounds)
{
	const struct plan_group groups[3] = {plan_group_one(nodes[0]), {.n = 3, .nodes = {nodes[1], nodes[2], nodes[3]}, .shares = {3, 2, 1}}, plan_group_one(nodes[4])};
	const struct plan_want w = {.groups = groups, .n = 3, .n_layers = 30, .n_rounds = n_rounds};
	const int32_t layers[] = {10, 12, 8};
	struct plan p;
	struct errmsg em;
	assert_int_equal(plan_given(&w, names, layers, &p, &em), OK);
	assert_int_equal(plan_check(&p), OK);
	return p;
}

static struct plan_alive all_but(int32_t stage, int32_t place)
{
	struct plan_alive a;
	memset(&a, true, sizeof a);
	a.is[stage][place] = false;
	return a;
}

static void a_stage_may_be_a_group(void **state)
{
	(void)state;
	struct plan p = of_group(2);
	assert_int_equal(plan_n_nodes(&p), 5);
	assert_int_equal(plan_n_spans(&p), 6);
	assert_ptr_equal(plan_find(&p, nodes[3]), &p.stages[1]);
	assert_int_equal(plan_group_find(&p.stages[1].who, nodes[3]), 2);
	assert_true(node_id_is(plan_lead(&p.stages[1]), nodes[1]));
	assert_null(plan_find(&p, nodes[5]));
	const struct plan_group pair = {.n = 2, .nodes = {nodes[0], nodes[1]}, .shares = {1, 1}};
	const struct plan_want w = {.groups = &pair, .n = 1, .n_layers = 30, .n_rounds = 3};
	plan_even(&w, &p);
	assert_int_equal(plan_check(&p), OK);
	assert_int_equal(p.n_rounds, 1); // nobody else to wait for
}

static void check_refuses_what_is_no_group(void **state)
{
	(void)state;
	struct plan p = of_group(1);
	p.stages[1].who.shares[0] = p.stages[1].who.shares[1] = 0;
	assert_int_equal(plan_check(&p), OK);
	p.stages[1].who.shares[2] = 0;
	assert_int_equal(plan_check(&p), ERR_RANGE);
	p = of_group(1);
	p.stages[1].who.nodes[2] = nodes[4];
	assert_int_equal(plan_check(&p), ERR_RANGE);
	p = of_group(1);
	p.stages[1].who.n = GROUP_MEMBERS_MAX + 1;
	assert_int_equal(plan_check(&p), ERR_RANGE);
	p.stages[1].who.n = 0;
	assert_int_equal(plan_check(&p), ERR_RANGE);
}

static void check_refuses_a_hub_where_each_member_gets_sums_of_its_own(void **state)
{
	(void)state;
	struct plan p = of_group(1);
	p.stages[1].who.hub = 3;
	for (int32_t mode = 0; mode < N_SPLIT_MODES; mode++) {
		p.stages[1].who.mode = (enum split_mode)mode;
		assert_int_equal(plan_check(&p), split_has_lanes(p.stages[1].who.mode) ? ERR_RANGE : OK);
	}
}

static void members_left_share_as_they_did(void **state)
{
	(void)state;
	struct plan old = of_group(2), p;
	struct plan_alive alive = all_but(1, 1);
	assert_int_equal(plan_repair(&old, &alive, NULL, 0, &p), OK);
	assert_int_equal(plan_check(&p), OK);
	assert_memory_equal(&p.stages[1].layers, &old.stages[1].layers, sizeof old.stages[1].layers);
	const struct plan_group left = {.n = 2, .nodes = {nodes[1], nodes[3]}, .shares = {3, 1}};
	assert_memory_equal(&p.stages[1].who, &left, sizeof left);

	alive.is[1][0] = false; // the last one is a stage like any other
	assert_int_equal(plan_repair(&old, &alive, NULL, 0, &p), OK);
	const struct plan_group last = plan_group_one(nodes[3]);
	assert_memory_equal(&p.stages[1].who, &last, sizeof last);
	alive.is[1][2] = false; // nobody: the neighbours share the gap
	assert_int_equal(plan_repair(&old, &alive, NULL, 0, &p), OK);
	assert_int_equal(plan_check(&p), OK);
	assert_int_equal(p.n_stages, 2);
}

static void a_lost_lead_is_followed_by_the_next_member(void **state)
{
	(void)state;
	struct plan old = of_group(1), p;
	const struct plan_alive alive = all_but(1, 0);
	assert_int_equal(plan_repair(&old, &alive, NULL, 0, &p), OK);
	assert_true(node_id_is(plan_lead(&p.stages[1]), nodes[2]));
	assert_int_equal(p.stages[1].who.n, 2);
}

static void members_left_without_a_share_get_one(void **state)
{
	(void)state;
	struct plan old = of_group(1), p;
	const struct plan_alive alive = all_but(1, 0);
	old.stages[1].who.shares[1] = old.stages[1].who.shares[2] = 0;
	assert_int_equal(plan_repair(&old, &alive, NULL, 0, &p), OK);
	assert_int_equal(plan_check(&p), OK);
}

static void a_spare_takes_a_members_place_and_share(void **state)
{
	(void)state;
	struct plan old = of_group(1), p;
	const struct node_id spares[2] = {{{8}}, {{9}}};
	struct plan_alive alive = all_but(1, 1);
	assert_int_equal(plan_repair(&old, &alive, spares, 1, &p), OK);
	const struct plan_group mended = {.n = 3, .nodes = {nodes[1], spares[0], nodes[3]}, .shares = {3, 2, 1}};
	assert_memory_equal(&p.stages[1].who, &mended, sizeof mended);

	alive.is[2][0] = false; // a stage that is lost whole goes first
	assert_int_equal(plan_repair(&old, &alive, spares, 1, &p), OK);
	assert_int_equal(p.stages[1].who.n, 2);
	assert_true(node_id_is(plan_lead(&p.stages[2]), spares[0]));
	assert_int_equal(plan_repair(&old, &alive, spares, 2, &p), OK);
	assert_true(node_id_is(p.stages[1].who.nodes[1], spares[1]));
	assert_true(node_id_is(plan_lead(&p.stages[2]), spares[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_even_split_gives_the_first_ones_the_rest),
		cmocka_unit_test(rounds_cut_the_layers_of_each_stage),
		cmocka_unit_test(every_even_split_covers_the_model),
		cmocka_unit_test(a_given_split_is_taken_as_it_is),
		cmocka_unit_test(stages_stream_what_they_are_given),
		cmocka_unit_test(an_empty_stage_or_a_wrong_sum_is_refused_by_name),
		cmocka_unit_test(check_refuses_gaps),
		cmocka_unit_test(a_repair_moves_the_lost_layers_and_no_other),
		cmocka_unit_test(a_gap_goes_to_a_spare_or_to_both_neighbours),
		cmocka_unit_test(a_spare_takes_a_place_in_every_round),
		cmocka_unit_test(a_stage_may_be_a_group),
		cmocka_unit_test(check_refuses_what_is_no_group),
		cmocka_unit_test(check_refuses_a_hub_where_each_member_gets_sums_of_its_own),
		cmocka_unit_test(members_left_share_as_they_did),
		cmocka_unit_test(a_lost_lead_is_followed_by_the_next_member),
		cmocka_unit_test(members_left_without_a_share_get_one),
		cmocka_unit_test(a_spare_takes_a_members_place_and_share),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
