// Stages that are groups of machines: who is told what, who stands for the group in the ring, and what the loss of a member means.
#include "tests/support/coord_host.h"

static const struct placed_member nodes[] = {{"node1", 1}, {"node2", 3}, {"node3", 1}};
static const struct placed_stage stages[] = {{3, 1, &nodes[0], 0, 0}, {3, 2, &nodes[1], 0, 0}}, trio[] = {{6, 3, nodes, 0, 0}};
static const struct placed_chain pair_behind = {2, stages}, all_three = {1, trio};

// open_placed starts n members, the first three of which the placement names.
static void open_placed(struct host *h, const struct placed_chain *placement, int32_t n)
{
	struct coordinator_config config = patient_config();
	config.n_chains = 1;
	config.placement = placement;
	config.n_nodes_min = 3;
	start(h, &config, n);
	for (int32_t i = 1; i <= n; i++)
		arrive(h, i);
}

static void open_ready(struct host *h, const struct placed_chain *placement, int32_t n)
{
	open_placed(h, placement, n);
	be_ready(h, n);
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

// plans_of collects what each member was told when the keys of the plan were there.
static void plans_of(struct host *h, int32_t n, struct msg_plan *out)
{
	struct msg m;
	for (int32_t round = 0; round < 20; round++) {
		if (sent(h, h->control[1], MSG_PLAN, &m))
			break;
		random_bytes(h);
	}
	for (int32_t i = 1; i <= n; i++) {
		assert_true(sent(h, h->control[i], MSG_PLAN, &m));
		out[i] = m.u.plan;
	}
}

static void lose_node(struct host *h, int32_t i)
{
	down(h, h->control[i], false);
	down(h, h->data[i], false);
}

// settle lets the moment pass in which a lost one might come back, and loads the next plan.
static void settle(struct host *h, int32_t n)
{
	h->now += 2 * S;
	tick(h);
	be_ready(h, n);
}

// find_step finds what this step of the core sent to the ring on a link.
static bool find_step(struct host *h, uint32_t link, struct step *out)
{
	for (int32_t i = 0; i < h->fx->n; i++) {
		const struct coord_effect *f = &h->fx->at[i];
		if (f->type == COORD_FX_SEND && f->u.send.link == link && f->u.send.head[0] == FRAME_STEP &&
			step_decode(f->u.send.head, f->u.send.head_len + f->u.send.len, out) == OK)
			return true;
	}
	return false;
}

// begin_answer submits a prompt of three tokens, which comes back from the last stage; one more token is drawn from it, and is on its way.
static void begin_answer(struct host *h, uint32_t first, uint32_t last)
{
	struct step st;
	submit(h, 1, 3, 8);
	forward_done(h, find_fx(h, COORD_FX_FORWARD, 0)->u.forward.id);
	assert_true(find_step(h, first, &st));
	uint8_t bytes[FRAME_STEP_BYTES + 8] = {0};
	st.src_span = (uint16_t)(status(h).chains[0].n_stages - 1);
	st.dst_span = SPAN_HEAD;
	st.payload_len = 8;
	step_encode(&st, bytes);
	frame(h, last, bytes, sizeof bytes);
	const struct coord_sampled items[1] = {{.token = 3}};
	struct coord_event ev = {.type = COORD_EV_SAMPLED, .u.sampled = {.items = items}};
	ev.u.sampled.id = find_fx(h, COORD_FX_SAMPLE, 0)->u.sample.id;
	step(h, &ev);
	forward_done(h, find_fx(h, COORD_FX_FORWARD, 0)->u.forward.id);
	assert_true(find_step(h, first, &st));
}

// again returns the first step under a new plan: states that were kept are asked for at once, others are embedded first.
static struct step again(struct host *h, uint32_t first)
{
	struct step st;
	if (find_step(h, first, &st))
		return st;
	forward_done(h, find_fx(h, COORD_FX_FORWARD, 0)->u.forward.id);
	assert_true(find_step(h, first, &st));
	return st;
}

static void send_part(struct host *h, uint32_t link, struct part p)
{
	uint8_t bytes[FRAME_PART_BYTES + 4] = {0};
	p.epoch.v = p.epoch.v ? p.epoch.v : epoch_of(h);
	p.forward = 1;
	p.total = 4;
	part_encode(&p, bytes);
	frame(h, link, bytes, sizeof bytes);
}

static bool was_closed(struct host *h, uint32_t link)
{
	struct coord_effect *f;
	for (int32_t i = 0; (f = find_fx(h, COORD_FX_CLOSE, i)) != NULL; i++)
		if (f->u.close.link == link)
			return true;
	return false;
}

// ---- plans

static void each_member_is_told_of_the_others(void **state)
{
	(void)state;
	struct host h;
	struct msg_plan p[4];
	open_placed(&h, &pair_behind, 3);
	plans_of(&h, 3, p);
	assert_int_equal(p[1].group.n_members, 0);
	assert_true(p[1].next.present);
	for (int32_t i = 2; i <= 3; i++) {
		const struct msg_group *g = &p[i].group;
		assert_int_equal(p[i].n_stages, 2);
		assert_int_equal(p[i].stage, 1);
		assert_int_equal(p[i].layers.at[0].begin, 3);
		assert_int_equal(g->n_members, 2);
		assert_int_equal(g->self, i - 2);
		assert_int_equal(g->hub, -1);
		assert_int_equal(g->shares[0], 3);
		assert_int_equal(g->shares[1], 1);
		assert_memory_equal(g->members[3 - i].public_key, record(5 - i).public_key, KEY_BYTES);
	}
	assert_memory_equal(p[2].group.members[1].psk, p[3].group.members[0].psk, KEY_BYTES);
	assert_memory_not_equal(p[2].group.members[1].psk, p[2].prev.psk, KEY_BYTES);
	assert_true(p[2].prev.present); // the lead is the stage
	assert_false(p[3].prev.present || p[3].next.present);
	stop(&h);
}

static void every_two_members_have_a_key_of_their_own(void **state)
{
	(void)state;
	struct host h;
	struct msg_plan p[4];
	open_placed(&h, &all_three, 3);
	plans_of(&h, 3, p);
	for (int32_t i = 1; i <= 3; i++) {
		for (int32_t k = 1; k <= 3; k++) {
			if (i == k)
				continue;
			assert_memory_equal(p[i].group.members[k - 1].psk, p[k].group.members[i - 1].psk, KEY_BYTES);
			int32_t third = 6 - i - k;
			assert_memory_not_equal(p[i].group.members[k - 1].psk, p[i].group.members[third - 1].psk, KEY_BYTES);
		}
	}
	stop(&h);
}

static void a_group_with_the_local_node_reaches_it_through_the_coordinator(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	static const struct placed_member who[] = {{"here", 1}, {"node1", 1}};
	static const struct placed_stage stage[] = {{6, 2, who, 0, 0}};
	static const struct placed_chain chain = {1, stage};
	struct coordinator_config config = patient_config();
	config.n_chains = 1;
	config.placement = &chain;
	config.n_nodes_min = 1;
	config.has_local_node = true;
	config.self.b[0] = 99;
	snprintf(config.local_name, sizeof config.local_name, "here");
	start(&h, &config, 1);
	h.control[0] = link_up(&h, config.self, COORD_LINK_CONTROL);
	h.data[0] = link_up(&h, config.self, COORD_LINK_DATA);
	struct msg local = {.type = MSG_HELLO, .u.hello = {.n_threads = 1, .name = "here"}};
	message(&h, h.control[0], &local);
	arrive(&h, 1); // no key is wanted
	assert_true(sent(&h, h.control[1], MSG_PLAN, &m));
	assert_int_equal(m.u.plan.group.self, 1);
	assert_int_equal(m.u.plan.group.members[0].addresses.n, 0);
	assert_true(sent(&h, h.control[0], MSG_PLAN, &m));
	assert_int_equal(m.u.plan.group.self, 0);
	for (int32_t i = 0; i < 2; i++) {
		struct msg loaded = {.type = MSG_LOADED, .u.loaded.epoch = {epoch_of(&h)}};
		message(&h, h.control[i], &loaded);
	}
	assert_true(is_ready(&h));
	send_part(&h, h.data[1], (struct part){.src = 1, .dst = 0});
	assert_int_equal(find_fx(&h, COORD_FX_RELAY, 0)->u.close.link, h.data[0]);
	stop(&h);
}

static void a_plan_is_ready_when_every_member_is(void **state)
{
	(void)state;
	struct host h;
	struct msg_plan p[4];
	open_placed(&h, &pair_behind, 3);
	plans_of(&h, 3, p);
	for (int32_t i = 1; i <= 3; i++) {
		assert_false(is_ready(&h));
		struct msg m = {.type = MSG_LOADED, .u.loaded.epoch = p[i].epoch};
		message(&h, h.control[i], &m);
	}
	assert_true(is_ready(&h));
	struct coord_member_status st = member(&h, 3);
	assert_int_equal(st.stage, 1);
	assert_int_equal(st.place, 1);
	assert_int_equal(st.n_members, 2);
	assert_int_equal(st.share, 1);
	assert_int_equal(st.share_sum, 4);
	assert_string_equal(st.next_link, "group");
	assert_string_equal(member(&h, 2).next_link, "head");
	assert_int_equal(member(&h, 1).n_members, 1);
	stop(&h);
}

// ---- the ring

static void only_the_lead_stands_for_its_stage(void **state)
{
	(void)state;
	struct host h;
	struct step st;
	uint8_t bytes[FRAME_STEP_BYTES + 8] = {0};
	open_ready(&h, &pair_behind, 3);
	submit(&h, 1, 3, 8);
	forward_done(&h, find_fx(&h, COORD_FX_FORWARD, 0)->u.forward.id);
	assert_true(find_step(&h, h.data[1], &st));
	st.src_span = 1;
	st.dst_span = SPAN_HEAD;
	st.payload_len = 8;
	step_encode(&st, bytes);
	frame(&h, h.data[3], bytes, sizeof bytes);
	assert_true(was_closed(&h, h.data[3]));
	stop(&h);

	open_ready(&h, &all_three, 3);
	uint8_t credit[FRAME_CREDIT_BYTES];
	const struct credit cr = {.n = 1, .src_span = 0, .dst_span = SPAN_HEAD, .epoch = {epoch_of(&h)}};
	submit(&h, 1, 3, 8);
	forward_done(&h, find_fx(&h, COORD_FX_FORWARD, 0)->u.forward.id);
	credit_encode(&cr, credit);
	frame(&h, h.data[2], credit, sizeof credit);
	assert_true(was_closed(&h, h.data[2]));
	frame(&h, h.data[1], credit, sizeof credit);
	assert_false(was_closed(&h, h.data[1]));
	stop(&h);
}

static void members_that_cannot_reach_each_other_are_passed_on_to(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, &all_three, 3);
	send_part(&h, h.data[3], (struct part){.src = 2, .dst = 0});
	assert_int_equal(find_fx(&h, COORD_FX_RELAY, 0)->u.close.link, h.data[1]);
	send_part(&h, h.data[1], (struct part){.src = 0, .dst = 1, .exchange = 4});
	assert_int_equal(find_fx(&h, COORD_FX_RELAY, 0)->u.close.link, h.data[2]);
	send_part(&h, h.data[3], (struct part){.src = 2, .dst = 0, .epoch = {epoch_of(&h) - 1}}); // of an old plan
	assert_int_equal(count_fx(&h, COORD_FX_RELAY) + count_fx(&h, COORD_FX_CLOSE), 0);
	stop(&h);
}

static void a_contribution_that_is_not_its_senders_ends_the_link(void **state)
{
	(void)state;
	const struct part bad[] = {
		{.src = 0, .dst = 1}, {.src = 2, .dst = 3}, {.src = 3, .dst = 0}, {.src = 2, .dst = 0, .stage = 1}, {.src = 0, .dst = 2}};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct host h;
		open_ready(&h, &all_three, 3);
		send_part(&h, h.data[3], bad[i]);
		assert_int_equal(count_fx(&h, COORD_FX_RELAY), 0);
		assert_true(was_closed(&h, h.data[3]));
		stop(&h);
	}
	struct host h; // one that stands by is in no group
	open_ready(&h, &all_three, 4);
	send_part(&h, h.data[4], (struct part){.src = 0, .dst = 1});
	assert_int_equal(count_fx(&h, COORD_FX_RELAY), 0);
	uint8_t short_one[FRAME_PART_BYTES - 1] = {FRAME_PART};
	frame(&h, h.data[1], short_one, sizeof short_one);
	assert_true(was_closed(&h, h.data[1]));
	stop(&h);
}

static void a_group_that_does_not_answer_is_said_to_be_one(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, &all_three, 3);
	submit(&h, 1, 3, 8);
	forward_done(&h, find_fx(&h, COORD_FX_FORWARD, 0)->u.forward.id);
	(void)run_to(&h, COORD_FX_END, 60 * S);
	assert_non_null(strstr(find_fx(&h, COORD_FX_END, 0)->u.end.text, "node1 or another of its group"));
	stop(&h);
}

// ---- losses

static void the_others_go_on_without_a_member(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, &pair_behind, 3);
	begin_answer(&h, h.data[1], h.data[2]);
	lose_node(&h, 3);
	assert_false(is_ready(&h));
	settle(&h, 2);
	assert_int_equal(member(&h, 2).n_members, 1); // a stage like any other
	assert_int_equal(member(&h, 2).layers.at[0].begin, 3);
	struct step st = again(&h, h.data[1]);
	assert_int_equal(st.pos, 0); // the group's layers are cut anew, and so computed again, from what the stage before has kept
	assert_int_equal(st.layer_begin, 3);
	assert_int_equal(st.layer_end, 6);
	assert_int_equal(st.payload_len, 0);
	stop(&h);
}

static void a_lost_lead_is_followed(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, &all_three, 3);
	begin_answer(&h, h.data[1], h.data[1]);
	lose_node(&h, 1);
	settle(&h, 3);
	assert_int_equal(member(&h, 2).place, 0);
	assert_int_equal(member(&h, 3).place, 1);
	assert_int_equal(member(&h, 3).n_members, 2);
	assert_int_equal(again(&h, h.data[2]).pos, 0);
	stop(&h);
}

static void nothing_is_lost_with_a_link_between_members(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, &pair_behind, 3);
	begin_answer(&h, h.data[1], h.data[2]);
	uint64_t before = epoch_of(&h);
	struct msg broken = {.type = MSG_PEER_LINK, .u.peer_link = {.epoch = {before}, .broken = true}};
	message(&h, h.control[3], &broken);
	assert_false(is_ready(&h));
	settle(&h, 3);
	assert_true(epoch_of(&h) > before);
	struct step st = again(&h, h.data[1]);
	assert_int_equal(st.pos, 3); // only what was on its way
	assert_int_equal(st.layer_end, 0);
	stop(&h);
}

static void a_member_that_forgot_takes_the_whole_group_with_it(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, &pair_behind, 3);
	begin_answer(&h, h.data[1], h.data[2]);
	lose_node(&h, 3);
	arrive(&h, 3); // another process, which holds nothing
	be_ready(&h, 3);
	assert_int_equal(member(&h, 3).n_members, 2);
	struct step st = again(&h, h.data[1]);
	assert_int_equal(st.pos, 0);
	assert_int_equal(st.layer_begin, 3);
	assert_int_equal(st.layer_end, 6);
	stop(&h);
}

static void a_group_keeps_its_layers_beside_a_stage_that_is_lost(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, &pair_behind, 3);
	begin_answer(&h, h.data[1], h.data[2]);
	lose_node(&h, 1);
	settle(&h, 3);
	assert_int_equal(member(&h, 2).layers.at[0].begin, 0);
	assert_int_equal(member(&h, 2).n_members, 2); // cut as before: the layers that it had hold
	struct step st = again(&h, h.data[2]);
	assert_int_equal(st.layer_begin, 0);
	assert_int_equal(st.layer_end, 3);
	stop(&h);
}

static void who_stands_by_takes_a_members_place(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, &pair_behind, 4);
	assert_int_equal(member(&h, 4).chain, -1);
	begin_answer(&h, h.data[1], h.data[2]);
	lose_node(&h, 3);
	settle(&h, 4);
	struct coord_member_status spare = member(&h, 4);
	assert_int_equal(spare.stage, 1);
	assert_int_equal(spare.place, 1);
	assert_int_equal(spare.share, 1);
	assert_int_equal(spare.share_sum, 4);
	assert_int_equal(again(&h, h.data[1]).layer_begin, 3);
	stop(&h);
}

static void a_member_that_comes_back_gets_its_place_when_no_answer_is_under_way(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, &pair_behind, 3);
	lose_node(&h, 3);
	settle(&h, 2);
	assert_int_equal(member(&h, 2).n_members, 1);
	arrive(&h, 3);
	h.now += 4 * S; // it has to be healthy for a while
	tick(&h);
	be_ready(&h, 3);
	assert_int_equal(member(&h, 3).place, 1);
	assert_int_equal(member(&h, 2).n_members, 2);
	stop(&h);
}

static void a_drained_member_leaves_its_part_to_the_others(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, &all_three, 3);
	struct coord_event drain = {.type = COORD_EV_DRAIN, .u.revoke = {.ticket = 1, .who = "node2"}};
	step(&h, &drain);
	assert_int_equal(find_fx(&h, COORD_FX_ANSWER, 0)->u.answer.err, OK);
	be_ready(&h, 3);
	assert_int_equal(member(&h, 2).stage, -1);
	assert_int_equal(member(&h, 1).n_members, 2);
	assert_int_equal(member(&h, 3).place, 1);
	drain.u.revoke.undo = true;
	step(&h, &drain);
	be_ready(&h, 3);
	assert_int_equal(member(&h, 2).place, 1);
	stop(&h);
}

static void a_revoked_member_is_out_of_its_group(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, &all_three, 3);
	struct coord_event revoke = {.type = COORD_EV_REVOKE, .u.revoke = {.ticket = 1, .who = "node3"}};
	step(&h, &revoke);
	stored(&h, store_id(&h, STORE_REVOKE), OK);
	settle(&h, 2);
	assert_int_equal(member(&h, 1).n_members, 2);
	assert_int_equal(member(&h, 2).place, 1);
	stop(&h);
}

static void whom_the_placement_names_and_who_is_not_there_is_said(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	config.n_chains = 1;
	config.placement = &all_three;
	config.n_nodes_min = 3;
	start(&h, &config, 4);
	for (int32_t i = 1; i <= 4; i++)
		if (i != 3)
			arrive(&h, i);
	assert_string_equal(status(&h).waiting_for, "2 of 3 machines of this chain, but not node3, are here");
	stop(&h);
}

static void a_member_without_room_for_its_part_is_said(void **state)
{
	(void)state;
	struct host h;
	struct msg m = {.type = MSG_HELLO, .u.hello = {.n_threads = 1, .port = 7434, .layers_max = 2, .name = "node2"}};
	open_placed(&h, &pair_behind, 3);
	lose_node(&h, 2);
	h.data[2] = link_up(&h, record(2).id, COORD_LINK_DATA);
	h.control[2] = link_up(&h, record(2).id, COORD_LINK_CONTROL);
	message(&h, h.control[2], &m); // three parts of four in three layers are as much as three of them
	tick(&h);
	assert_non_null(strstr(status(&h).waiting_for, "as much as 3"));
	assert_non_null(strstr(status(&h).waiting_for, "node2"));
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_member_is_told_of_the_others),
		cmocka_unit_test(every_two_members_have_a_key_of_their_own),
		cmocka_unit_test(a_group_with_the_local_node_reaches_it_through_the_coordinator),
		cmocka_unit_test(a_plan_is_ready_when_every_member_is),
		cmocka_unit_test(only_the_lead_stands_for_its_stage),
		cmocka_unit_test(members_that_cannot_reach_each_other_are_passed_on_to),
		cmocka_unit_test(a_contribution_that_is_not_its_senders_ends_the_link),
		cmocka_unit_test(a_group_that_does_not_answer_is_said_to_be_one),
		cmocka_unit_test(the_others_go_on_without_a_member),
		cmocka_unit_test(a_lost_lead_is_followed),
		cmocka_unit_test(nothing_is_lost_with_a_link_between_members),
		cmocka_unit_test(a_member_that_forgot_takes_the_whole_group_with_it),
		cmocka_unit_test(a_group_keeps_its_layers_beside_a_stage_that_is_lost),
		cmocka_unit_test(who_stands_by_takes_a_members_place),
		cmocka_unit_test(a_member_that_comes_back_gets_its_place_when_no_answer_is_under_way),
		cmocka_unit_test(a_drained_member_leaves_its_part_to_the_others),
		cmocka_unit_test(a_revoked_member_is_out_of_its_group),
		cmocka_unit_test(whom_the_placement_names_and_who_is_not_there_is_said),
		cmocka_unit_test(a_member_without_room_for_its_part_is_said),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
