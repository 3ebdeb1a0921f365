// Plans by cost: when the core asks for one, what it does while it waits, and which answers are worth moving layers.
#include "tests/support/coord_host.h"

#include <math.h>

static struct coordinator_config cost_config(void)
{
	struct coordinator_config config = patient_config();
	config.by_cost = true;
	config.stall_ns = 100000 * S;
	return config;
}

static bool asked(struct host *h, uint32_t *id)
{
	const struct coord_effect *f = find_fx(h, COORD_FX_PLAN, 0);
	if (f != NULL)
		*id = f->u.plan.id;
	return f != NULL;
}

// ask_id returns the id of what this step asked.
static uint32_t ask_id(struct host *h)
{
	uint32_t id = 0;
	assert_true(asked(h, &id));
	return id;
}

// split_of makes the plan over nodes 1, 2, ... with so many layers each.
static struct plan split_of(const int32_t *layers, int32_t n)
{
	struct plan p = {.n_layers = 6, .n_rounds = 1};
	for (int32_t i = 0, at = 0; i < n; at += layers[i++])
		if (layers[i] > 0)
			p.stages[p.n_stages++] = (struct plan_stage){.who = plan_group_one(record(i + 1).id), .layers = layer_spans_one(at, at + layers[i])};
	return p;
}

static void planned(struct host *h, uint32_t id, const struct plan *p, double token_s, double current_s, double move_s)
{
	struct coord_event ev = {.type = COORD_EV_PLANNED};
	ev.u.planned.id = id;
	ev.u.planned.plan = p;
	ev.u.planned.text = "";
	ev.u.planned.token_s = token_s;
	ev.u.planned.current_s = current_s;
	ev.u.planned.move_s = move_s;
	step(h, &ev);
}

static void not_planned(struct host *h, uint32_t id)
{
	struct coord_event ev = {.type = COORD_EV_PLANNED};
	ev.u.planned.id = id;
	ev.u.planned.err = ERR_STATE;
	ev.u.planned.text = "nobody has been measured";
	step(h, &ev);
}

static int32_t layers_of(struct host *h, int32_t i)
{
	struct coord_status st = status(h);
	for (int32_t k = 0; k < st.n_members; k++)
		if (node_id_is(st.members[k].id, record(i).id))
			return st.members[k].stage < 0 ? 0 : layer_spans_count(&st.members[k].layers);
	fail();
	return 0;
}

static void assert_layers(struct host *h, int32_t first, int32_t second)
{
	assert_int_equal(layers_of(h, 1), first);
	assert_int_equal(layers_of(h, 2), second);
}

static const int32_t four_two[] = {4, 2}, five_one[] = {5, 1}, one_alone[] = {6, 0};

// start_split: two nodes, under the plan that gives them 4 and 2 layers.
static void start_split(struct host *h)
{
	struct coordinator_config config = cost_config();
	struct plan p = split_of(four_two, 2);
	config.n_nodes_min = 2;
	start(h, &config, 3);
	arrive(h, 1);
	arrive(h, 2);
	planned(h, ask_id(h), &p, 0.1, INFINITY, 0);
	be_ready(h, 2);
	assert_layers(h, 4, 2);
}

// look lets time go until the core asks again, and answers; returns how long that took.
static int64_t look(struct host *h, const struct plan *p, double token_s, double current_s, double move_s)
{
	int64_t took_ns = run_to(h, COORD_FX_PLAN, 40 * S);
	planned(h, ask_id(h), p, token_s, current_s, move_s);
	return took_ns;
}

static void layers_go_where_the_solver_puts_them(void **state)
{
	(void)state;
	struct host h;
	start_split(&h);
	stop(&h);
}

static void status_tells_what_is_predicted(void **state)
{
	(void)state;
	struct host h;
	struct plan better = split_of(five_one, 2);
	start_split(&h);
	assert_true(status(&h).chains[0].predicted_s == 0.1);
	look(&h, &better, 0.09, 0.12, 1); // the figures have changed
	assert_true(status(&h).chains[0].predicted_s == 0.12);
	look(&h, &better, 0.09, 0.12, 1);
	assert_true(status(&h).chains[0].predicted_s == 0); // nothing is ready
	be_ready(&h, 2);
	assert_true(status(&h).chains[0].predicted_s == 0.09);
	assert_int_equal(status(&h).n_better, 1);
	stop(&h);
}

static void no_plan_is_made_before_the_solver_has_answered(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct coordinator_config config = cost_config();
	config.n_nodes_min = 2;
	start(&h, &config, 2);
	arrive(&h, 1);
	assert_null(find_fx(&h, COORD_FX_PLAN, 0)); // one of two
	arrive(&h, 2);
	const struct coord_effect *f = find_fx(&h, COORD_FX_PLAN, 0);
	assert_non_null(f);
	assert_int_equal(f->u.plan.n, 2);
	assert_true(node_id_is(f->u.plan.nodes[0], record(1).id));
	assert_null(f->u.plan.current);
	assert_false(sent(&h, h.control[1], MSG_PLAN, &m));
	assert_string_equal(status(&h).waiting_for, "the best plan is being worked out");
	tick(&h);
	assert_null(find_fx(&h, COORD_FX_PLAN, 0)); // once
	stop(&h);
}

static void without_figures_layers_are_split_evenly(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = cost_config();
	config.n_nodes_min = 2;
	start(&h, &config, 2);
	arrive(&h, 1);
	arrive(&h, 2);
	not_planned(&h, ask_id(&h));
	be_ready(&h, 2);
	assert_layers(&h, 3, 3);
	stop(&h);
}

static void an_answer_about_others_is_not_taken(void **state)
{
	(void)state;
	struct host h;
	struct plan both = split_of(four_two, 2), alone = split_of(one_alone, 2);
	struct coordinator_config config = cost_config();
	start(&h, &config, 2);
	arrive(&h, 1);
	uint32_t first = ask_id(&h);
	arrive(&h, 2);
	uint32_t second = ask_id(&h);
	assert_int_not_equal(first, second);
	planned(&h, first, &alone, 0.1, INFINITY, 0);
	assert_int_equal(epoch_of(&h), 0);
	planned(&h, second, &both, 0.1, INFINITY, 0);
	be_ready(&h, 2);
	assert_layers(&h, 4, 2);
	planned(&h, second, &alone, 0.01, 1, 0); // twice
	planned(&h, 12345, &alone, 0.01, 1, 0);
	assert_layers(&h, 4, 2);
	assert_true(is_ready(&h));
	stop(&h);
}

static void who_comes_is_planned_with_while_the_old_plan_goes_on(void **state)
{
	(void)state;
	struct host h;
	const int32_t three[] = {3, 2, 1};
	struct plan p = split_of(three, 3);
	start_split(&h);
	arrive(&h, 3);
	uint32_t id = ask_id(&h);
	const struct coord_effect *f = find_fx(&h, COORD_FX_PLAN, 0);
	assert_int_equal(f->u.plan.n, 3);
	assert_non_null(f->u.plan.current);
	assert_true(is_ready(&h));
	planned(&h, id, &p, 0.09, 0.1, 1);
	be_ready(&h, 3);
	assert_layers(&h, 3, 2);
	assert_int_equal(layers_of(&h, 3), 1);
	stop(&h);
}

static void who_would_slow_the_cluster_is_left_out(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct plan p = split_of(one_alone, 2);
	struct coordinator_config config = cost_config();
	config.n_nodes_min = 2;
	start(&h, &config, 2);
	arrive(&h, 1);
	arrive(&h, 2);
	planned(&h, ask_id(&h), &p, 0.1, INFINITY, 0);
	assert_true(sent(&h, h.control[2], MSG_PLAN, &m));
	assert_int_equal(m.u.plan.n_stages, 0); // and is told so
	be_ready(&h, 1);
	assert_layers(&h, 6, 0);
	stop(&h);
}

static void a_lost_plan_under_an_answer_is_repaired_without_asking(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start_split(&h);
	submit(&h, 1, 2, 8);
	h.now += 60 * S;
	struct msg leaving = {.type = MSG_LEAVING};
	message(&h, h.control[2], &leaving);
	assert_null(find_fx(&h, COORD_FX_PLAN, 0));
	assert_true(sent(&h, h.control[1], MSG_PLAN, &m));
	assert_int_equal(layer_spans_count(&m.u.plan.layers), 6);
	stop(&h);
}

static void a_gain_that_lasts_moves_layers(void **state)
{
	(void)state;
	struct host h;
	struct plan better = split_of(five_one, 2);
	start_split(&h);
	look(&h, &better, 0.09, 0.1, 1);
	assert_layers(&h, 4, 2); // a moment
	look(&h, &better, 0.09, 0.1, 1);
	be_ready(&h, 2);
	assert_layers(&h, 5, 1);
	stop(&h);
}

// told_share returns the share that node i is told with the plan of this step.
static uint32_t told_share(struct host *h, int32_t i)
{
	struct msg m;
	assert_true(sent(h, h->control[i], MSG_PLAN, &m));
	return m.u.plan.stream_share;
}

static void what_is_streamed_goes_with_the_plan_and_alone_is_no_new_plan(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = cost_config();
	struct plan p = split_of(four_two, 2);
	p.stages[0].stream_share = 12345;
	config.n_nodes_min = 2;
	start(&h, &config, 3);
	arrive(&h, 1);
	arrive(&h, 2);
	planned(&h, ask_id(&h), &p, 0.1, INFINITY, 0);
	random_bytes(&h);
	assert_int_equal(told_share(&h, 1), 12345);
	assert_int_equal(told_share(&h, 2), 0);
	be_ready(&h, 2);
	assert_true(status(&h).chains[0].predicted_s == 0.1);
	uint64_t epoch = epoch_of(&h);
	p.stages[0].stream_share = 23456;
	for (int k = 0; k < 3; k++) {
		look(&h, &p, 0.05, 0.1, 1); // which would be a gain
		assert_int_equal(epoch_of(&h), epoch);
		assert_true(status(&h).chains[0].predicted_s == 0.1); // as they stream
	}
	stop(&h);
}

static void a_gain_that_does_not_last_moves_nothing(void **state)
{
	(void)state;
	struct host h;
	struct plan better = split_of(five_one, 2), same = split_of(four_two, 2);
	start_split(&h);
	uint64_t epoch = epoch_of(&h);
	for (int round = 0; round < 20; round++) {
		look(&h, &better, 0.05, 0.1, 1);
		look(&h, &same, 0.1, 0.1, 0);
	}
	look(&h, &better, 0.05, 0.1, 1);
	look(&h, &better, 0.099, 0.1, 1); // too little
	look(&h, &better, 0.099, 0.1, 1);
	assert_int_equal(epoch_of(&h), epoch);
	stop(&h);
}

static void figures_that_swing_do_not_make_the_cluster_swing(void **state)
{
	(void)state;
	struct host h;
	struct plan a = split_of(four_two, 2), b = split_of(five_one, 2);
	int32_t n_changes = 0;
	start_split(&h);
	int64_t begin = h.now;
	while (h.now - begin < 4 * 3600 * S) {
		uint64_t epoch = epoch_of(&h);
		look(&h, layers_of(&h, 1) == 4 ? &b : &a, 0.05, 0.1, 1); // the other one is always better
		n_changes += epoch_of(&h) != epoch;
		if (epoch_of(&h) != epoch)
			be_ready(&h, 2);
	}
	assert_in_range(n_changes, 5, 20);
	stop(&h);
}

static void a_move_under_an_answer_must_be_worth_what_it_costs(void **state)
{
	(void)state;
	struct host h;
	struct plan better = split_of(five_one, 2);
	start_split(&h);
	submit(&h, 1, 2, 40);
	uint64_t epoch = epoch_of(&h);
	for (int round = 0; round < 4; round++)
		look(&h, &better, 0.05, 0.1, 1.5); // 40 tokens save 2 s, moving costs 1.5
	assert_int_equal(epoch_of(&h), epoch);
	for (int round = 0; round < 2; round++)
		look(&h, &better, 0.05, 0.1, 0.5);
	assert_int_not_equal(epoch_of(&h), epoch);
	be_ready(&h, 2);
	assert_layers(&h, 5, 1);
	assert_int_equal(status(&h).n_active, 1); // and goes on
	stop(&h);
}

static void a_repaired_plan_is_bettered_when_the_answer_has_ended(void **state)
{
	(void)state;
	struct host h;
	struct plan p = split_of(five_one, 2);
	start_split(&h);
	arrive(&h, 3);
	const int32_t three[] = {2, 2, 2};
	struct plan wide = split_of(three, 3);
	planned(&h, ask_id(&h), &wide, 0.05, 0.1, 1);
	be_ready(&h, 3);
	submit(&h, 1, 2, 8);
	struct msg leaving = {.type = MSG_LEAVING};
	message(&h, h.control[3], &leaving);
	be_ready(&h, 2);
	assert_layers(&h, 2, 4);
	struct coord_event ev = {.type = COORD_EV_CANCEL, .u.cancel.req = 1};
	step(&h, &ev);
	struct coord_effect *f = find_fx(&h, COORD_FX_FORWARD, 0);
	if (f != NULL)
		forward_done(&h, f->u.forward.id);
	uint32_t id = 0;
	for (int i = 0; i < 5 && !asked(&h, &id); i++)
		tick(&h);
	assert_int_not_equal(id, 0);
	planned(&h, id, &p, 0.1, 0.2, 1);
	be_ready(&h, 2);
	assert_layers(&h, 5, 1);
	stop(&h);
}

// ---- groups

// pair_of makes the plan in which nodes 1 and 2 share every layer.
static struct plan pair_of(uint32_t first, uint32_t second)
{
	struct plan p = {.n_layers = 6, .n_rounds = 1, .n_stages = 1};
	p.stages[0] = (struct plan_stage){.who = {.n = 2, .nodes = {record(1).id, record(2).id}, .shares = {first, second}, .mode = SPLIT_MIXED},
		.layers = layer_spans_one(0, 6)};
	return p;
}

// start_pair: two nodes, under the plan in which they share layers.
static void start_pair(struct host *h)
{
	struct coordinator_config config = cost_config();
	struct plan p = pair_of(3, 1);
	config.n_nodes_min = 2;
	config.may_group = true;
	start(h, &config, 3);
	arrive(h, 1);
	arrive(h, 2);
	struct coord_event ev = {.type = COORD_EV_PLANNED};
	ev.u.planned.id = ask_id(h);
	ev.u.planned.plan = &p;
	ev.u.planned.text = "";
	ev.u.planned.groups = "node1+node2: fast";
	ev.u.planned.token_s = 0.1;
	ev.u.planned.current_s = INFINITY;
	step(h, &ev);
	be_ready(h, 2);
}

static void a_planned_group_is_told_to_its_members_and_said(void **state)
{
	(void)state;
	struct host h;
	start_pair(&h);
	assert_layers(&h, 6, 6);
	assert_int_equal(status(&h).chains[0].n_nodes, 2);
	assert_string_equal(status(&h).chains[0].groups, "node1+node2: fast");
	stop(&h);
}

// moves_to tells whether a plan that lasts, and takes so much less than the one there is, is moved to.
static bool moves_to(struct host *h, const struct plan *p, double token_s)
{
	uint64_t epoch = epoch_of(h);
	look(h, p, token_s, 0.1, 1);
	look(h, p, token_s, 0.1, 1);
	return epoch_of(h) != epoch;
}

// go_on lets ten minutes pass, after which another change may be.
static void go_on(struct host *h, const struct plan *p)
{
	for (int round = 0; round < 20; round++)
		look(h, p, 0.1, 0.1, 0);
}

static void machines_begin_and_cease_to_share_layers_for_twice_the_gain(void **state)
{
	(void)state;
	struct host h;
	struct plan plain = split_of(four_two, 2), pair = pair_of(3, 1), other = pair_of(2, 2);
	start_pair(&h);
	assert_false(moves_to(&h, &plain, 0.093));
	assert_true(moves_to(&h, &other, 0.093)); // the same machines
	be_ready(&h, 2);
	go_on(&h, &other);
	assert_true(moves_to(&h, &plain, 0.088));
	be_ready(&h, 2);
	go_on(&h, &plain);
	assert_false(moves_to(&h, &pair, 0.093));
	assert_true(moves_to(&h, &pair, 0.088));
	be_ready(&h, 2);
	stop(&h);
}

static void figures_that_swing_do_not_form_and_dissolve_groups_all_day(void **state)
{
	(void)state;
	struct host h;
	struct plan plain = split_of(four_two, 2), pair = pair_of(3, 1);
	int32_t n_changes = 0;
	start_pair(&h);
	int64_t begin = h.now;
	while (h.now - begin < 4 * 3600 * S) {
		uint64_t epoch = epoch_of(&h);
		look(&h, status(&h).chains[0].n_stages == 1 ? &plain : &pair, 0.05, 0.1, 1);
		n_changes += epoch_of(&h) != epoch;
		if (epoch_of(&h) != epoch)
			be_ready(&h, 2);
	}
	assert_in_range(n_changes, 5, 20);
	stop(&h);
}

static void other_parts_of_a_layer_are_layers_to_move(void **state)
{
	(void)state;
	struct host h;
	struct plan other = pair_of(1, 1);
	start_pair(&h);
	submit(&h, 1, 2, 40);
	uint64_t epoch = epoch_of(&h);
	for (int round = 0; round < 4; round++)
		look(&h, &other, 0.05, 0.1, 1.5); // 40 tokens save 2 s, moving costs 1.5
	assert_int_equal(epoch_of(&h), epoch);
	for (int round = 0; round < 2; round++)
		look(&h, &other, 0.05, 0.1, 0.5);
	assert_int_not_equal(epoch_of(&h), epoch);
	stop(&h);
}

// kept_by_both submits a prompt of four tokens and an answer of 40, and brings back what the group has computed of it.
static void kept_by_both(struct host *h)
{
	uint8_t bytes[FRAME_STEP_BYTES + 4 * 8] = {0};
	submit(h, 1, 4, 36);
	struct step s = {.dst_span = SPAN_HEAD, .reply = REPLY_LAST, .session = {((uint64_t)h->wall << 20) + 1}, .n_tokens = 4, .epoch = {epoch_of(h)},
		.payload_len = 8};
	assert_non_null(find_fx(h, COORD_FX_FORWARD, 0));
	forward_done(h, find_fx(h, COORD_FX_FORWARD, 0)->u.forward.id);
	step_encode(&s, bytes);
	frame(h, h->data[1], bytes, FRAME_STEP_BYTES + s.payload_len);
}

static void a_part_cut_alike_is_no_layer_to_move(void **state)
{
	(void)state;
	for (int travels_otherwise = 0; travels_otherwise <= 1; travels_otherwise++) {
		struct host h;
		struct plan other = travels_otherwise ? pair_of(6, 2) : pair_of(1, 3);
		other.stages[0].who.mode = SPLIT_MIXED_SCATTER;
		start_pair(&h);
		kept_by_both(&h);
		uint64_t epoch = epoch_of(&h);
		for (int round = 0; round < 2; round++)
			look(&h, &other, 0.05, 0.1, 0.85); // 36 tokens save 1.8 s; computing four positions again takes 0.2
		assert_int_equal(epoch_of(&h) != epoch, travels_otherwise);
		stop(&h);
	}
}

static void who_is_left_of_a_group_is_planned_with_anew(void **state)
{
	(void)state;
	struct host h;
	struct plan alone = split_of(one_alone, 2);
	start_pair(&h);
	down(&h, h.control[2], false);
	down(&h, h.data[2], false);
	uint32_t id = 0;
	for (int i = 0; i < 60 && !asked(&h, &id); i++) {
		h.now += S;
		tick(&h);
	}
	assert_int_not_equal(id, 0);
	assert_int_equal(find_fx(&h, COORD_FX_PLAN, 0)->u.plan.n, 1);
	planned(&h, id, &alone, 0.2, INFINITY, 0);
	be_ready(&h, 1);
	assert_int_equal(layers_of(&h, 1), 6);
	assert_string_equal(status(&h).chains[0].groups, "");
	stop(&h);
}

static void an_answer_goes_on_with_who_is_left_of_a_group_without_asking(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start_pair(&h);
	submit(&h, 1, 2, 8);
	h.now += 60 * S;
	struct msg leaving = {.type = MSG_LEAVING};
	message(&h, h.control[2], &leaving);
	assert_null(find_fx(&h, COORD_FX_PLAN, 0));
	assert_true(sent(&h, h.control[1], MSG_PLAN, &m));
	assert_int_equal(m.u.plan.group.n_members, 0);
	assert_int_equal(layer_spans_count(&m.u.plan.layers), 6);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layers_go_where_the_solver_puts_them),
		cmocka_unit_test(status_tells_what_is_predicted),
		cmocka_unit_test(no_plan_is_made_before_the_solver_has_answered),
		cmocka_unit_test(without_figures_layers_are_split_evenly),
		cmocka_unit_test(an_answer_about_others_is_not_taken),
		cmocka_unit_test(who_comes_is_planned_with_while_the_old_plan_goes_on),
		cmocka_unit_test(who_would_slow_the_cluster_is_left_out),
		cmocka_unit_test(a_lost_plan_under_an_answer_is_repaired_without_asking),
		cmocka_unit_test(a_gain_that_lasts_moves_layers),
		cmocka_unit_test(what_is_streamed_goes_with_the_plan_and_alone_is_no_new_plan),
		cmocka_unit_test(a_gain_that_does_not_last_moves_nothing),
		cmocka_unit_test(figures_that_swing_do_not_make_the_cluster_swing),
		cmocka_unit_test(a_move_under_an_answer_must_be_worth_what_it_costs),
		cmocka_unit_test(a_repaired_plan_is_bettered_when_the_answer_has_ended),
		cmocka_unit_test(a_planned_group_is_told_to_its_members_and_said),
		cmocka_unit_test(machines_begin_and_cease_to_share_layers_for_twice_the_gain),
		cmocka_unit_test(figures_that_swing_do_not_form_and_dissolve_groups_all_day),
		cmocka_unit_test(other_parts_of_a_layer_are_layers_to_move),
		cmocka_unit_test(a_part_cut_alike_is_no_layer_to_move),
		cmocka_unit_test(who_is_left_of_a_group_is_planned_with_anew),
		cmocka_unit_test(an_answer_goes_on_with_who_is_left_of_a_group_without_asking),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
