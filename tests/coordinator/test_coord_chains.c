// Several chains: which one a session goes to, what the loss of a machine means to its own chain and to the others, and who takes its place.
#include "tests/support/coord_host.h"

static const struct placed_member nodes[] = {{"node1", 1}, {"node2", 1}, {"node3", 1}, {"node4", 1}, {"node5", 1}};
static const struct placed_stage first[] = {{3, 1, &nodes[0], 0, 0}, {3, 1, &nodes[1], 0, 0}}, second[] = {{2, 1, &nodes[2], 0, 0}, {4, 1, &nodes[3], 0, 0}},
	third[] = {{6, 1, &nodes[4], 0, 0}};
static const struct placed_chain placement[] = {{2, first}, {2, second}, {1, third}};

// placed_config: three chains of six layers; more members than five stand by.
static struct coordinator_config placed_config(int32_t n_chains, int32_t n_nodes)
{
	struct coordinator_config config = patient_config();
	config.n_chains = n_chains;
	config.placement = placement;
	config.n_nodes_min = n_nodes;
	config.stall_ns = 100000 * S;
	return config;
}

static struct coord_chain_status chain(struct host *h, int32_t i)
{
	struct coord_status st = status(h);
	assert_in_range(i, 0, st.n_chains - 1);
	return st.chains[i];
}

static struct coord_member_status member(struct host *h, int32_t i)
{
	struct coord_status st = status(h);
	for (int32_t k = 0; k < st.n_members; k++)
		if (node_id_is(st.members[k].id, record(i).id))
			return st.members[k];
	fail();
	return st.members[0];
}

// load_chain gives a chain what its plan asks for.
static void load_chain(struct host *h, int32_t which, int32_t n)
{
	for (int32_t round = 0; round < 200 && !chain(h, which).ready; round++) {
		random_bytes(h);
		for (int32_t i = 1; i <= n; i++) {
			struct msg m = {.type = MSG_LOADED, .u.loaded.epoch = chain(h, which).plan_epoch};
			message(h, h->control[i], &m);
		}
	}
	assert_true(chain(h, which).ready);
}

static void open_placed(struct host *h, int32_t n_chains, int32_t n_nodes)
{
	struct coordinator_config config = placed_config(n_chains, n_nodes);
	start(h, &config, n_nodes);
	for (int32_t i = 1; i <= n_nodes; i++)
		arrive(h, i);
	for (int32_t i = 0; i < n_chains; i++)
		load_chain(h, i, n_nodes);
}

static void lose_node(struct host *h, int32_t i)
{
	down(h, h->control[i], false);
	down(h, h->data[i], false);
}

// embed answers every embedding that is asked for.
static void embed(struct host *h)
{
	struct coord_effect *f;
	while ((f = find_fx(h, COORD_FX_FORWARD, 0)) != NULL)
		forward_done(h, f->u.forward.id);
}

// submit_one asks, and lets the first step go out.
static void submit_one(struct host *h, uint64_t req)
{
	submit(h, req, 2, 8);
	embed(h);
}

// step_to finds a step that this event sent to a member's machine.
static bool step_to(struct host *h, int32_t i, struct step *out)
{
	for (int32_t k = 0; k < h->fx->n; k++) {
		const struct coord_effect *f = &h->fx->at[k];
		if (f->type == COORD_FX_SEND && f->u.send.link == h->data[i] && f->u.send.head[0] == FRAME_STEP &&
			step_decode(f->u.send.head, f->u.send.head_len + f->u.send.len, out) == OK)
			return true;
	}
	return false;
}

static void a_session_goes_to_the_chain_with_the_fewest(void **state)
{
	(void)state;
	struct host h;
	open_placed(&h, 3, 5);
	for (uint64_t r = 1; r <= 3; r++)
		submit_one(&h, r);
	for (int32_t i = 0; i < 3; i++)
		assert_int_equal(chain(&h, i).n_active, 1);
	submit_one(&h, 4); // ties go to the first
	assert_int_equal(chain(&h, 0).n_active, 2);
	struct coord_event ev = {.type = COORD_EV_CANCEL, .u.cancel.req = 2};
	step(&h, &ev);
	submit_one(&h, 5); // where one has just gone
	assert_int_equal(chain(&h, 1).n_active, 1);
	for (uint64_t r = 6; r <= 9; r++)
		submit_one(&h, r);
	struct coord_status st = status(&h);
	assert_int_equal(st.n_active, 6); // two slots in each of three chains
	assert_int_equal(st.n_waiting, 2);
	stop(&h);
}

static void steps_under_way_decide_between_equals(void **state)
{
	(void)state;
	struct host h;
	struct step st;
	open_placed(&h, 3, 5);
	submit(&h, 1, 12, 2); // three chunks of four go into the first chain
	embed(&h);
	assert_true(step_to(&h, 1, &st));
	for (uint64_t r = 2; r <= 3; r++)
		submit_one(&h, r);
	assert_in_range(chain(&h, 0).n_steps, 1, 3);
	int32_t busy = chain(&h, 0).n_steps;
	assert_int_equal(chain(&h, 2).n_steps, 1);
	submit(&h, 4, 2, 8);
	assert_int_equal(chain(&h, busy > 1 ? 1 : 0).n_active, 2);
	stop(&h);
}

static void a_loss_touches_no_other_chain(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	open_placed(&h, 3, 5);
	for (uint64_t r = 1; r <= 3; r++)
		submit_one(&h, r);
	uint64_t epochs[3];
	for (int32_t i = 0; i < 3; i++)
		epochs[i] = chain(&h, i).plan_epoch.v;
	down(&h, h.control[3], false);
	assert_false(sent(&h, h.control[1], MSG_PLAN, &m) || sent(&h, h.control[5], MSG_PLAN, &m));
	down(&h, h.data[3], false);
	assert_false(chain(&h, 1).ready);
	assert_true(chain(&h, 0).ready && chain(&h, 2).ready);
	h.now += 2 * S;
	tick(&h);
	load_chain(&h, 1, 5);
	assert_true(chain(&h, 1).plan_epoch.v > epochs[1]);
	assert_int_equal(chain(&h, 1).n_active, 1);
	assert_int_equal(chain(&h, 0).plan_epoch.v, epochs[0]);
	assert_int_equal(chain(&h, 2).plan_epoch.v, epochs[2]);
	stop(&h);
}

static void who_stands_by_takes_a_lost_part_whole(void **state)
{
	(void)state;
	struct host h;
	open_placed(&h, 3, 7);
	assert_int_equal(status(&h).n_standing_by, 2);
	assert_string_equal(member(&h, 6).state, "standby");
	assert_int_equal(member(&h, 6).chain, -1);
	lose_node(&h, 4);
	h.now += 2 * S; // past the moment in which it might have come back
	tick(&h);
	load_chain(&h, 1, 7);
	struct coord_member_status spare = member(&h, 6);
	assert_int_equal(spare.chain, 1);
	assert_int_equal(spare.stage, 1);
	assert_int_equal(spare.layers.at[0].begin, 2);
	assert_int_equal(spare.layers.at[0].end, 6);
	assert_int_equal(member(&h, 3).layers.at[0].end, 2);
	arrive(&h, 4); // its place is taken
	assert_int_equal(member(&h, 4).chain, -1);
	assert_int_equal(member(&h, 6).stage, 1);
	stop(&h);
}

static void who_stands_by_does_not_disturb_a_chain_that_loads(void **state)
{
	(void)state;
	struct host h;
	open_placed(&h, 2, 6);
	lose_node(&h, 2);
	h.now += 2 * S;
	tick(&h);
	for (int32_t i = 0; i < 4; i++)
		random_bytes(&h); // its keys; now it loads
	uint64_t epoch = chain(&h, 0).plan_epoch.v;
	assert_false(chain(&h, 0).ready);
	arrive(&h, 2);
	lose_node(&h, 6);
	assert_int_equal(member(&h, 2).chain, -1);
	assert_int_equal(chain(&h, 0).plan_epoch.v, epoch);
	load_chain(&h, 0, 6);
	assert_int_equal(chain(&h, 0).plan_epoch.v, epoch);
	stop(&h);
}

// say_hello with what it has room for.
static void arrive_with(struct host *h, int32_t i, int32_t layers_max)
{
	h->data[i] = link_up(h, record(i).id, COORD_LINK_DATA);
	h->control[i] = link_up(h, record(i).id, COORD_LINK_CONTROL);
	struct msg m = {.type = MSG_HELLO, .u.hello = {.n_threads = 1, .port = 7434, .layers_max = layers_max}};
	snprintf(m.u.hello.name, NAME_CAP, "node%d", i);
	message(h, h->control[i], &m);
}

static void a_spare_has_room_for_what_was_lost(void **state)
{
	(void)state;
	static const int32_t room[] = {3, 3, 2, 4, 6, 3, 5, 4};
	struct host h;
	struct coordinator_config config = placed_config(3, 8);
	start(&h, &config, 8);
	for (int32_t i = 1; i <= 8; i++)
		arrive_with(&h, i, room[i - 1]);
	for (int32_t i = 0; i < 3; i++)
		load_chain(&h, i, 8);
	lose_node(&h, 4); // four layers
	h.now += 2 * S;
	tick(&h);
	load_chain(&h, 1, 8);
	assert_int_equal(member(&h, 8).chain, 1); // room for four: not three, and none wasted
	lose_node(&h, 5); // six layers, and nobody stands by who could hold them
	h.now += 2 * S;
	tick(&h);
	assert_false(chain(&h, 2).ready);
	assert_non_null(strstr(chain(&h, 2).waiting_for, "of 1 machines of this chain"));
	assert_int_equal(member(&h, 7).chain, -1);
	stop(&h);
}

static void a_spare_whose_cap_holds_no_cache_of_those_layers_is_passed_over(void **state)
{
	(void)state;
	static const uint64_t mib = 1 << 20;
	struct host h;
	struct coordinator_config config = placed_config(3, 8);
	config.layer_kv_bytes = 20 * mib;
	start(&h, &config, 8);
	struct msg m = {.type = MSG_PROFILE, .u.profile = {.n_threads = 1, .n_cpus = 1, .memory_bytes = 100 * mib, .available_bytes = 100 * mib, .cap_bytes = 79 * mib}};
	for (int32_t i = 1; i <= 8; i++)
		arrive(&h, i); // nobody says how many layers it has room for
	message(&h, h.control[6], &m);
	message(&h, h.control[7], &m);
	for (int32_t i = 0; i < 3; i++)
		load_chain(&h, i, 8);
	lose_node(&h, 4); // four layers, and 79 MiB hold the cache of three
	h.now += 2 * S;
	tick(&h);
	load_chain(&h, 1, 8);
	assert_int_equal(member(&h, 8).chain, 1);
	assert_int_equal(member(&h, 6).chain, -1);
	stop(&h);
}

static void who_is_named_is_waited_for_before_another_takes_the_place(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = placed_config(3, 5);
	start(&h, &config, 6);
	for (int32_t i = 1; i <= 6; i++)
		if (i != 5)
			arrive(&h, i); // five are enough: the sixth stands by
	h.now += 2 * S;
	tick(&h);
	assert_int_equal(member(&h, 6).chain, -1);
	arrive(&h, 5);
	for (int32_t i = 0; i < 3; i++)
		load_chain(&h, i, 6);
	assert_int_equal(member(&h, 5).chain, 2);
	assert_int_equal(member(&h, 6).chain, -1);
	stop(&h);
	start(&h, &config, 6);
	for (int32_t i = 1; i <= 6; i++)
		if (i != 5)
			arrive(&h, i);
	h.now += 11 * S; // long enough
	tick(&h);
	load_chain(&h, 2, 6);
	assert_int_equal(member(&h, 6).chain, 2);
	stop(&h);
}

static void neighbours_that_have_room_share_what_nobody_else_takes(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = placed_config(1, 2);
	start(&h, &config, 3);
	arrive_with(&h, 1, 4);
	arrive_with(&h, 2, 6);
	load_chain(&h, 0, 2);
	lose_node(&h, 2);
	h.now += 2 * S;
	tick(&h);
	assert_false(chain(&h, 0).ready);
	assert_non_null(strstr(chain(&h, 0).waiting_for, "has room for 4"));
	arrive_with(&h, 2, 6);
	load_chain(&h, 0, 2);
	lose_node(&h, 1);
	h.now += 2 * S;
	tick(&h);
	load_chain(&h, 0, 2);
	assert_int_equal(member(&h, 2).layers.at[0].begin, 0);
	assert_int_equal(member(&h, 2).layers.at[0].end, 6);
	arrive_with(&h, 3, 3); // a newcomer gives the placement its shape back
	load_chain(&h, 0, 3);
	assert_int_equal(member(&h, 3).stage, 0);
	assert_int_equal(member(&h, 2).layers.at[0].begin, 3);
	stop(&h);
}

static void an_answer_moves_when_its_chain_cannot_go_on(void **state)
{
	(void)state;
	struct host h;
	struct step before, after;
	struct coord_effect *f;
	open_placed(&h, 3, 5);
	for (uint64_t r = 1; r <= 3; r++)
		submit_one(&h, r);
	assert_true(step_to(&h, 5, &before)); // the third session, in the chain of one machine
	lose_node(&h, 5);
	h.now += 2 * S;
	tick(&h);
	assert_int_equal(chain(&h, 2).n_active, 1); // it waits a moment
	assert_int_equal(status(&h).n_moved, 0);
	h.now += 2 * S;
	tick(&h);
	assert_int_equal(status(&h).n_moved, 1);
	assert_int_equal(chain(&h, 2).n_active, 0);
	assert_int_equal(chain(&h, 0).n_active, 2);
	assert_non_null(f = find_fx(&h, COORD_FX_FORWARD, 0));
	assert_int_equal(f->u.forward.items[0].pos, 0); // from its tokens
	assert_int_equal(f->u.forward.items[0].n_tokens, 2);
	forward_done(&h, f->u.forward.id);
	assert_true(step_to(&h, 1, &after));
	assert_int_equal(after.epoch.v, chain(&h, 0).plan_epoch.v);
	assert_true(after.session.v != before.session.v);
	assert_int_equal(after.flags & STEP_FIRST, STEP_FIRST);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	stop(&h);
}

// answer_step lets the third chain, of one machine, answer the step it got, `after_ns` later; the token that this gives is drawn.
static void answer_step(struct host *h, int64_t after_ns)
{
	struct step st;
	uint8_t bytes[FRAME_STEP_BYTES + 8] = {0};
	assert_true(step_to(h, 5, &st));
	st.dst_span = SPAN_HEAD;
	st.src_span = 0;
	st.payload_len = 8;
	step_encode(&st, bytes);
	h->now += after_ns;
	frame(h, h->data[5], bytes, sizeof bytes);
	const struct coord_sampled items[COORD_ITEMS_MAX] = {{.token = 3}};
	struct coord_effect *f = find_fx(h, COORD_FX_SAMPLE, 0);
	assert_non_null(f);
	struct coord_event ev = {.type = COORD_EV_SAMPLED, .u.sampled = {.id = f->u.sample.id, .items = items}};
	step(h, &ev);
}

// The only machine of a chain is lost after a prompt that took so long there: after how long does the answer go on in another chain?
static int64_t moves_after_ns(int64_t took_ns)
{
	struct host h;
	open_placed(&h, 3, 5);
	for (uint64_t r = 1; r <= 3; r++)
		submit_one(&h, r);
	answer_step(&h, took_ns);
	lose_node(&h, 5);
	int64_t begin = h.now;
	while (status(&h).n_moved == 0 && h.now - begin < 200 * S) {
		h.now += S / 2;
		tick(&h);
	}
	int64_t after_ns = h.now - begin;
	stop(&h);
	return after_ns;
}

static void an_answer_waits_for_its_chain_as_long_as_it_took_to_compute(void **state)
{
	(void)state;
	assert_in_range(moves_after_ns(S / 10), 3 * S, 4 * S);
	assert_in_range(moves_after_ns(20 * S), 20 * S, 21 * S);
	assert_in_range(moves_after_ns(500 * S), 75 * S, 76 * S); // half of session_wait, at whose end it would get an error
}

static void an_answer_waits_when_no_chain_has_room(void **state)
{
	(void)state;
	struct host h;
	open_placed(&h, 2, 4);
	for (uint64_t r = 1; r <= 4; r++)
		submit_one(&h, r);
	lose_node(&h, 3);
	lose_node(&h, 4);
	h.now += 10 * S;
	tick(&h);
	assert_int_equal(chain(&h, 1).n_active, 2);
	struct coord_event ev = {.type = COORD_EV_CANCEL, .u.cancel.req = 1}; // in the first chain
	step(&h, &ev);
	assert_int_equal(chain(&h, 0).n_active, 2);
	assert_int_equal(chain(&h, 1).n_active, 1);
	assert_int_equal(run_to(&h, COORD_FX_END, 200 * S) / S, 140); // session_wait from the loss on
	assert_int_equal(find_fx(&h, COORD_FX_END, 0)->u.end.err, ERR_TIMEOUT);
	stop(&h);
}

static void a_frame_of_another_chain_changes_nothing(void **state)
{
	(void)state;
	struct host h;
	struct step st;
	uint8_t bytes[FRAME_STEP_BYTES + 8] = {0}, credit[FRAME_CREDIT_BYTES];
	open_placed(&h, 3, 5);
	for (uint64_t r = 1; r <= 3; r++)
		submit_one(&h, r);
	assert_true(step_to(&h, 5, &st));
	struct step back = st; // what the third chain's only stage would answer, from the last stage of the first
	back.src_span = 1;
	back.dst_span = SPAN_HEAD;
	back.reply = REPLY_LAST;
	back.payload_len = 8;
	step_encode(&back, bytes);
	frame(&h, h.data[2], bytes, sizeof bytes);
	assert_int_equal(h.fx->n, 0);
	struct credit c = {.n = 1, .src_span = 0, .dst_span = SPAN_HEAD, .epoch = chain(&h, 2).plan_epoch};
	credit_encode(&c, credit);
	frame(&h, h.data[1], credit, sizeof credit);
	assert_int_equal(h.fx->n, 0);
	back.src_span = 0;
	step_encode(&back, bytes);
	frame(&h, h.data[5], bytes, sizeof bytes); // and from whom it is due
	assert_int_equal(count_fx(&h, COORD_FX_SAMPLE), 1);
	stop(&h);
}

static void members_are_dealt_to_as_many_chains_as_asked_for(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	config.n_chains = 2;
	config.n_nodes_min = 4;
	start(&h, &config, 6);
	assert_int_equal(count_fx(&h, COORD_FX_LOG), 1); // both wait for the same: that is said once
	for (int32_t i = 1; i <= 3; i++)
		arrive(&h, i);
	assert_string_equal(status(&h).waiting_for, "3 of 4 joined nodes are here");
	arrive(&h, 4);
	load_chain(&h, 0, 4);
	load_chain(&h, 1, 4);
	for (int32_t i = 0; i < 2; i++)
		assert_int_equal(chain(&h, i).n_stages, 2);
	arrive(&h, 5); // nobody misses it
	assert_string_equal(member(&h, 5).state, "standby");
	int32_t of = member(&h, 1).chain;
	lose_node(&h, 1);
	h.now += 2 * S;
	tick(&h);
	assert_int_equal(member(&h, 5).chain, of);
	load_chain(&h, of, 5);
	assert_int_equal(chain(&h, of).n_stages, 2);
	arrive(&h, 1);
	assert_int_equal(member(&h, 1).chain, -1);
	stop(&h);
}

static void a_newcomer_goes_to_the_chain_that_is_broken(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	config.n_chains = 2;
	config.n_nodes_min = 2;
	start(&h, &config, 3);
	arrive(&h, 1);
	arrive(&h, 2);
	load_chain(&h, 0, 2);
	load_chain(&h, 1, 2);
	int32_t of = member(&h, 2).chain;
	lose_node(&h, 2);
	h.now += 2 * S;
	tick(&h);
	char words[REASON_CAP];
	snprintf(words, sizeof words, "none of the machines of chain %d is here", of);
	assert_string_equal(chain(&h, of).waiting_for, words);
	assert_true(status(&h).ready); // the other one answers
	arrive(&h, 3);
	assert_int_equal(member(&h, 3).chain, of);
	load_chain(&h, of, 3);
	stop(&h);
}

static void who_is_drained_is_replaced_in_its_chain_only(void **state)
{
	(void)state;
	struct host h;
	open_placed(&h, 2, 5);
	submit_one(&h, 1);
	uint64_t other = chain(&h, 1).plan_epoch.v;
	struct coord_event ev = {.type = COORD_EV_DRAIN, .u.revoke = {.ticket = 1, .who = "node2"}};
	step(&h, &ev);
	load_chain(&h, 0, 5);
	assert_int_equal(member(&h, 5).chain, 0);
	assert_int_equal(member(&h, 5).stage, 1);
	assert_string_equal(member(&h, 2).state, "drained");
	assert_int_equal(chain(&h, 1).plan_epoch.v, other);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_session_goes_to_the_chain_with_the_fewest),
		cmocka_unit_test(steps_under_way_decide_between_equals),
		cmocka_unit_test(a_loss_touches_no_other_chain),
		cmocka_unit_test(who_stands_by_takes_a_lost_part_whole),
		cmocka_unit_test(who_stands_by_does_not_disturb_a_chain_that_loads),
		cmocka_unit_test(a_spare_has_room_for_what_was_lost),
		cmocka_unit_test(a_spare_whose_cap_holds_no_cache_of_those_layers_is_passed_over),
		cmocka_unit_test(who_is_named_is_waited_for_before_another_takes_the_place),
		cmocka_unit_test(neighbours_that_have_room_share_what_nobody_else_takes),
		cmocka_unit_test(an_answer_moves_when_its_chain_cannot_go_on),
		cmocka_unit_test(an_answer_waits_for_its_chain_as_long_as_it_took_to_compute),
		cmocka_unit_test(an_answer_waits_when_no_chain_has_room),
		cmocka_unit_test(a_frame_of_another_chain_changes_nothing),
		cmocka_unit_test(members_are_dealt_to_as_many_chains_as_asked_for),
		cmocka_unit_test(a_newcomer_goes_to_the_chain_that_is_broken),
		cmocka_unit_test(who_is_drained_is_replaced_in_its_chain_only),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
