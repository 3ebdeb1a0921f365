// The solver's answer as the coordinator takes it: node ids and spans of layers, against the plan there is.
#include "partition/plan_best.h"

#include "base/window_layout.h"
#include "tests/support/cost_fixture.h"

#include <math.h>

static const struct node_id ids[DEVICES] = {{{1}}, {{2}}, {{3}}, {{4}}, {{5}}};

struct asked {
	struct fixture f;
	struct solve_limit limits[DEVICES];
	struct solve_device_fate fates[DEVICES];
	struct plan_ask ask;
	struct plan_answer a;
	struct errmsg em;
};

// begin: n machines of 10 GB/s, 8 layers of 1 GB, hops of a millisecond. None holds more than 5 layers, so that two are needed.
static void begin(struct asked *t, int32_t n)
{
	fixture_init(&t->f, n);
	for (int32_t i = 0; i < n; i++) {
		t->f.devices[i].cap_bytes = 5500000000;
		t->limits[i] = (struct solve_limit){.layers_max = LAYERS_MAX, .is_trusted = true};
	}
	t->ask = (struct plan_ask){.nodes = ids,
		.want = {.cluster = &t->f.cluster, .shape = &t->f.shape, .params = t->f.c.params, .limits = t->limits}};
}

static enum err find(struct asked *t)
{
	struct arena scratch;
	assert_int_equal(arena_open(solve_scratch_bytes(&t->ask.want), &scratch), OK);
	enum err e = plan_best(&t->ask, &scratch, t->fates, &t->a, &t->em);
	assert_int_equal(scratch.used, 0);
	arena_close(&scratch);
	return e;
}

// two_stages is the plan with n layers on the first machine and the rest on another one.
static struct plan two_stages(int32_t n, struct node_id second)
{
	struct plan p = {.n_layers = 8, .n_rounds = 1, .n_stages = 2};
	p.stages[0] = (struct plan_stage){.who = plan_group_one(ids[0]), .layers = layer_spans_one(0, n)};
	p.stages[1] = (struct plan_stage){.who = plan_group_one(second), .layers = layer_spans_one(n, 8)};
	return p;
}

static int32_t n_layers_of(const struct plan *p, int32_t device)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		if (node_id_is(plan_lead(&p->stages[i]), ids[device]))
			return layer_spans_count(&p->stages[i].layers);
	return 0;
}

static void layers_go_to_machines_by_their_node_ids(void **state)
{
	(void)state;
	struct asked t;
	begin(&t, 3);
	t.f.devices[2].cpu_rate = 20e9; // as full as can be, then
	assert_int_equal(find(&t), OK);
	assert_int_equal(plan_check(&t.a.plan), OK);
	assert_int_equal(n_layers_of(&t.a.plan, 2), 5);
	assert_int_equal(n_layers_of(&t.a.plan, 0) + n_layers_of(&t.a.plan, 1), 3);
	assert_true(isinf(t.a.current_s));
	assert_true(t.a.token_s > 0.5 && t.a.token_s < 0.7); // 5 GB at 20 GB/s, 3 at 10, two to four hops
}

static void the_head_without_a_node_holds_nothing(void **state)
{
	(void)state;
	struct asked t;
	begin(&t, 3);
	t.limits[0].layers_max = 0;
	assert_int_equal(find(&t), OK);
	assert_int_equal(n_layers_of(&t.a.plan, 0), 0);
	assert_int_equal(n_layers_of(&t.a.plan, 1) + n_layers_of(&t.a.plan, 2), 8);
}

static void the_plan_there_is_is_timed_with_the_same_figures(void **state)
{
	(void)state;
	struct asked t;
	struct plan current = two_stages(3, ids[1]);
	begin(&t, 2);
	t.f.devices[0].cpu_rate = 20e9;
	t.ask.current = &current;
	assert_int_equal(find(&t), OK);
	assert_int_equal(n_layers_of(&t.a.plan, 0), 5);
	assert_true(t.a.current_s > t.a.token_s + 0.09 && t.a.current_s < t.a.token_s + 0.11); // two layers at 10 GB/s and not 20
}

static void a_plan_as_good_as_any_is_kept(void **state)
{
	(void)state;
	struct asked t;
	struct plan current = two_stages(5, ids[2]);
	begin(&t, 3);
	t.ask.current = &current;
	assert_int_equal(find(&t), OK);
	assert_true(t.a.token_s <= t.a.current_s);
	assert_true(t.a.token_s > t.a.current_s * 0.999);
}

static void a_plan_with_somebody_who_is_gone_is_no_plan(void **state)
{
	(void)state;
	struct asked t;
	struct plan current = two_stages(4, (struct node_id){{99}});
	begin(&t, 2);
	t.ask.current = &current;
	assert_int_equal(find(&t), OK);
	assert_true(isinf(t.a.current_s));
}

static void moving_takes_as_long_as_the_slowest_disk(void **state)
{
	(void)state;
	struct asked t;
	struct plan current = two_stages(4, ids[1]);
	begin(&t, 2);
	t.limits[0] = (struct solve_limit){.layers_min = 3, .layers_max = 3, .is_trusted = true};
	t.f.devices[1].disk_rate = 0.5e9;
	t.ask.current = &current;
	assert_int_equal(find(&t), OK);
	assert_int_equal(n_layers_of(&t.a.plan, 1), 5);
	assert_true(fabs(t.a.move_s - 2) < 1e-9); // one layer of 1 GB that it does not hold yet
	t.ask.current = NULL;
	assert_int_equal(find(&t), OK);
	assert_true(fabs(t.a.move_s - 10) < 1e-9); // all five
}

static void who_is_left_out_is_named_with_the_reason(void **state)
{
	(void)state;
	struct asked t;
	begin(&t, 3);
	t.f.devices[0].cap_bytes = UINT64_C(1) << 40;
	t.f.devices[1].cpu_rate = t.f.devices[2].cpu_rate = 1e9;
	t.limits[2].layers_max = 0; // nobody asked about it: nothing is said of it
	assert_int_equal(find(&t), OK);
	assert_int_equal(t.a.plan.n_stages, 1);
	assert_non_null(strstr(t.a.words, "m1 ("));
	assert_null(strstr(t.a.words, "m2"));
	assert_null(strstr(t.a.words, "m0"));
}

static void a_model_that_fits_nowhere_is_an_error_with_the_figures(void **state)
{
	(void)state;
	struct asked t;
	begin(&t, 2);
	t.f.devices[0].cap_bytes = t.f.devices[1].cap_bytes = 1000000;
	assert_int_not_equal(find(&t), OK);
	assert_int_not_equal(t.em.text[0], '\0');
}

static void groups_come_with_their_members_and_are_timed_as_the_plan_there_is(void **state)
{
	(void)state;
	struct asked t;
	begin(&t, 3);
	t.f.shape.split = (struct split_shape){
		.n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .hidden_dim = 4096, .ffn_dim = 14336, .o_lanes = 8, .down_lanes = 8, .o_block = 32, .down_block = 32};
	t.f.devices[2].cap_bytes = 1000000; // no room
	assert_int_equal(find(&t), OK);
	double plain_s = t.a.token_s;
	for (int32_t i = 0; i < t.a.plan.n_stages; i++)
		assert_int_equal(t.a.plan.stages[i].who.n, 1);
	t.ask.want.allow_groups = true;
	assert_int_equal(find(&t), OK);
	assert_int_equal(plan_check(&t.a.plan), OK);
	assert_true(t.a.token_s < plain_s * 0.8);
	assert_int_equal(t.a.plan.n_stages, 1);
	const struct plan_group *who = &t.a.plan.stages[0].who;
	assert_int_equal(who->n, 2);
	assert_true(node_id_is(who->nodes[0], ids[0]) && node_id_is(who->nodes[1], ids[1]));
	assert_int_equal(who->mode, SPLIT_MIXED); // summing for o, too, both would keep all keys
	assert_int_equal(who->hub, 0);
	assert_non_null(strstr(t.a.groups, " share layers: "));
	double best_s = t.a.token_s;
	struct plan current = t.a.plan;
	t.ask.current = &current;
	assert_int_equal(find(&t), OK);
	assert_true(t.a.current_s == best_s && t.a.token_s == best_s);
	assert_true(t.a.move_s == 0);
	double ring_s = 0;
	for (enum split_mode m = SPLIT_GATHER; m < N_SPLIT_MODES; m++) { // whatever it was placed in
		current.stages[0].who.mode = m;
		assert_int_equal(find(&t), OK);
		assert_true(t.a.current_s >= best_s && t.a.current_s < INFINITY);
		ring_s = m == SPLIT_MIXED_RING ? t.a.current_s : ring_s;
	}
	current.stages[0].who.mode = SPLIT_MIXED_SCATTER; // of two it is the same
	assert_int_equal(find(&t), OK);
	assert_true(t.a.current_s == ring_s);
	current.stages[0].who.mode = SPLIT_MIXED;
	current.stages[0].who.shares[1] /= 2;
	assert_int_equal(find(&t), OK);
	assert_true(t.a.current_s > best_s && t.a.current_s < INFINITY);
	assert_true(t.a.move_s > 0);
	t.ask.want.allow_groups = false;
	assert_int_equal(find(&t), OK);
	assert_true(isinf(t.a.current_s));
}

// A machine with room for half its layers, and one four times as slow: in two rounds the first reads while the other computes, the further ahead the better.
static void begin_streaming(struct asked *t)
{
	begin(t, 2);
	t->f.devices[0].disk_rate = 2e9;
	t->f.devices[0].cap_bytes = 2100000000;
	t->f.devices[1].cap_bytes = UINT64_C(1) << 40;
	t->f.devices[1].cpu_rate = 2.5e9;
	t->limits[0] = (struct solve_limit){.layers_min = 4, .layers_max = 4, .is_trusted = true};
	t->ask.want.rounds_min = t->ask.want.rounds_max = 2;
}

static void a_window_that_is_counted_on_is_in_the_plan_and_in_the_time_of_the_plan_there_is(void **state)
{
	(void)state;
	struct asked t;
	begin_streaming(&t);
	assert_int_equal(find(&t), OK);
	assert_int_equal(t.a.plan.n_rounds, 2);
	const struct plan_stage *st = plan_find(&t.a.plan, ids[0]), *other = plan_find(&t.a.plan, ids[1]);
	int32_t n = window_share_units(st->stream_share, 4 * 8), least = 4 * 8 - 16 + WINDOW_MIN;
	assert_in_range(n, least + 1, 4 * 8);
	assert_int_equal(other->stream_share, 0); // holds all it has
	assert_int_equal(plan_check(&t.a.plan), OK);
	double best_s = t.a.token_s;
	struct plan current = t.a.plan;
	t.ask.current = &current;
	assert_int_equal(find(&t), OK);
	assert_true(t.a.current_s == best_s);
	for (int32_t i = 0; i < current.n_stages; i++) // as a repair leaves it
		current.stages[i].stream_share = 0;
	assert_int_equal(find(&t), OK);
	assert_true(t.a.token_s == best_s);
	assert_true(t.a.current_s > best_s * 1.05 && t.a.current_s < INFINITY);
	for (int32_t i = 0; i < current.n_stages; i++)
		current.stages[i].stream_share = 1; // of figures with which more fitted
	double least_s = t.a.current_s;
	assert_int_equal(find(&t), OK);
	assert_true(t.a.current_s == least_s);
	t.f.devices[0].cap_bytes = UINT64_C(1) << 40; // all fits now
	current = t.a.plan;
	assert_int_equal(find(&t), OK);
	assert_true(t.a.current_s <= best_s);
	assert_int_equal(plan_find(&t.a.plan, ids[0])->stream_share, 0);
}

static void the_smallest_window_and_experts_are_left_to_the_machine(void **state)
{
	(void)state;
	struct asked t;
	begin_streaming(&t);
	t.f.shape.expert_share = 0.8;
	t.f.shape.split.n_experts = 8;
	t.f.shape.n_experts_used = 2;
	assert_int_equal(find(&t), OK);
	assert_int_equal(plan_find(&t.a.plan, ids[0])->stream_share, 0);
	begin_streaming(&t);
	t.f.devices[0].disk_rate = 0.01e9; // whatever is read is waited for
	assert_int_equal(find(&t), OK);
	assert_int_equal(plan_find(&t.a.plan, ids[0])->stream_share, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layers_go_to_machines_by_their_node_ids),
		cmocka_unit_test(the_head_without_a_node_holds_nothing),
		cmocka_unit_test(the_plan_there_is_is_timed_with_the_same_figures),
		cmocka_unit_test(a_plan_as_good_as_any_is_kept),
		cmocka_unit_test(a_plan_with_somebody_who_is_gone_is_no_plan),
		cmocka_unit_test(moving_takes_as_long_as_the_slowest_disk),
		cmocka_unit_test(who_is_left_out_is_named_with_the_reason),
		cmocka_unit_test(groups_come_with_their_members_and_are_timed_as_the_plan_there_is),
		cmocka_unit_test(a_window_that_is_counted_on_is_in_the_plan_and_in_the_time_of_the_plan_there_is),
		cmocka_unit_test(the_smallest_window_and_experts_are_left_to_the_machine),
		cmocka_unit_test(a_model_that_fits_nowhere_is_an_error_with_the_figures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
