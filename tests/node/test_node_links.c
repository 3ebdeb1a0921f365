// Links of the node core: successors, silence, who may send what. The test plays the coordinator, the neighbours and the host.
#include "tests/support/node_host.h"

// ---- links with successors

static void frames_on_a_link_that_has_a_successor_still_count(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	uint32_t prev2 = up(&h, 1, NODE_LINK_DATA);
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0); // the far end may not know the new one yet
	send_step(&h, prev, 1, 7, 0);
	assert_int_equal(count_fx(&h, NODE_FX_TAKE), 1);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, next), 1);
	assert_int_equal(n_frames(&h, FRAME_CREDIT, prev2), 1); // and is answered on the newest
	uint32_t control2 = up(&h, 0, NODE_LINK_CONTROL);
	assert_int_equal(n_frames(&h, FRAME_CONTROL, control2), 1);
	no_part(&h, 2); // on the old control link
	assert_int_equal(status(&h).n_stages, 0);
	stop(&h);
}

// Both ends dialled. The neighbour may have used the link that goes for as long as it did not know of the one that stays.
static void a_spare_link_is_received_from_and_never_sent_on(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	uint32_t spare_prev = up_as(&h, 1, NODE_LINK_DATA, true), spare_next = up_as(&h, 2, NODE_LINK_DATA, true);
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0);
	send_step(&h, spare_prev, 1, 7, 0);
	assert_int_equal(count_fx(&h, NODE_FX_TAKE), 1);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, next), 1);
	assert_int_equal(n_frames(&h, FRAME_CREDIT, prev), 1);
	send_credit(&h, spare_next, 1, 1);
	down(&h, spare_next, true);
	assert_false(says_broken(&h)); // all of it has arrived
	assert_int_equal(run_to(&h, NODE_FX_CLOSE, 5 * S), 5 * S);
	assert_int_equal(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.link, spare_prev);
	assert_true(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.orderly);
	stop(&h);
}

// With a short time to death that comes before it would be closed anyway. Nothing is lost with it.
static void a_spare_link_that_is_silent_ends_in_order(void **state)
{
	(void)state;
	struct host h;
	start_with(&h, false, liveness_with(S));
	plan(&h, 1, 0, 2);
	loaded(&h, OK);
	up(&h, 2, NODE_LINK_DATA);
	uint32_t spare = up_as(&h, 2, NODE_LINK_DATA, true);
	run_to(&h, NODE_FX_CLOSE, S);
	for (int32_t i = 0; i < count_fx(&h, NODE_FX_CLOSE); i++) // the others hear nothing here, either
		assert_int_equal(find_fx(&h, NODE_FX_CLOSE, i)->u.close.orderly, find_fx(&h, NODE_FX_CLOSE, i)->u.close.link == spare);
	down(&h, spare, true);
	assert_false(says_broken(&h));
	stop(&h);
}

static void a_spare_link_takes_the_place_of_one_that_breaks(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	uint32_t spare = up_as(&h, 2, NODE_LINK_DATA, true);
	down(&h, next, false);
	assert_true(says_broken(&h));
	plan(&h, 2, 1, 2);
	send_step(&h, prev, 2, 7, 0);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, spare), 1);
	stop(&h);
}

static void a_hop_with_steps_on_an_old_link_waits_for_their_credits(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	send_step(&h, prev, 1, 7, 0);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, next), 1);
	uint32_t next2 = up(&h, 2, NODE_LINK_DATA);
	send_step(&h, prev, 1, 7, 1);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, 0), 0); // it could overtake the one before
	send_credit(&h, next, 1, 1);
	assert_int_equal(n_frames(&h, FRAME_STEP, next2), 1);
	send_credit(&h, next2, 1, 1);
	down(&h, next, true);
	assert_false(says_broken(&h)); // all of it has arrived
	stop(&h);
}

static void an_old_link_that_breaks_with_steps_of_the_plan_is_reported(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	send_step(&h, prev, 1, 7, 0);
	forwarded(&h);
	up(&h, 2, NODE_LINK_DATA);
	assert_false(says_broken(&h));
	down(&h, next, false);
	assert_true(says_broken(&h));
	// The other neighbour's: the credit that went back on it.
	up(&h, 1, NODE_LINK_DATA);
	down(&h, prev, false);
	assert_true(says_broken(&h));
	stop(&h);
}

static void an_old_link_that_carried_nothing_of_the_plan_may_break(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	struct msg m;
	join_ring(&h, &prev, &next);
	send_step(&h, prev, 1, 7, 0);
	forwarded(&h);
	up(&h, 2, NODE_LINK_DATA);
	uint32_t data2 = up(&h, 0, NODE_LINK_DATA);
	h.now += 6 * S; // by now the far ends know the new links
	plan(&h, 2, 1, 2);
	down(&h, next, false);
	assert_false(says_broken(&h));
	down(&h, h.data, false);
	assert_false(sent(&h, MSG_HELLO, &m));
	down(&h, data2, true); // the newest: whatever its end is called
	assert_true(sent(&h, MSG_HELLO, &m));
	assert_int_equal(m.u.hello.epoch.v, 0);
	stop(&h);
}

// The far end learns of the successor later: what it sent on the old link until then may be lost with it.
static void an_old_link_that_breaks_may_have_carried_what_its_far_end_sent(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	struct msg m;
	join_ring(&h, &prev, &next);
	up(&h, 1, NODE_LINK_DATA);
	down(&h, prev, false); // nothing was sent on it from here
	assert_true(says_broken(&h));
	up(&h, 0, NODE_LINK_DATA);
	down(&h, h.data, false);
	assert_true(sent(&h, MSG_HELLO, &m));
	assert_int_equal(m.u.hello.epoch.v, 0);
	stop(&h);
}

static void an_old_control_link_that_breaks_takes_the_plan_along(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	struct msg m;
	join_ring(&h, &prev, &next);
	up(&h, 0, NODE_LINK_CONTROL);
	assert_true(sent(&h, MSG_HELLO, &m));
	assert_int_equal(m.u.hello.epoch.v, 1);
	down(&h, h.control, false);
	assert_true(sent(&h, MSG_HELLO, &m));
	assert_int_equal(m.u.hello.epoch.v, 0);
	stop(&h);
}

static void an_old_link_is_closed_in_order_after_a_while(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	up(&h, 2, NODE_LINK_DATA);
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0);
	assert_int_equal(run_to(&h, NODE_FX_CLOSE, 5 * S), 5 * S);
	assert_int_equal(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.link, next);
	assert_true(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.orderly);
	stop(&h);
}

static void a_link_that_ends_in_order_is_not_given_up_for_its_silence(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	uint8_t pong[FRAME_PING_BYTES];
	int32_t n_closed = 0;
	join_ring(&h, &prev, &next);
	const uint32_t links[] = {h.control, h.data, prev, up(&h, 2, NODE_LINK_DATA)};
	ping_encode(FRAME_PONG, 0, pong);
	for (int32_t i = 0; i < 12; i++) {
		h.now += S;
		for (size_t k = 0; k < ARRAY_LEN(links); k++)
			frame(&h, links[k], pong, sizeof pong);
		tick(&h);
		n_closed += count_fx(&h, NODE_FX_CLOSE);
	}
	assert_int_equal(n_closed, 1); // after 5 s; its host then waits as long as silence is forgiven
	down(&h, next, true);
	assert_false(says_broken(&h));
	stop(&h);
}

static void the_link_before_is_used_again_when_its_successor_is_lost(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	uint32_t next2 = up(&h, 2, NODE_LINK_DATA);
	down(&h, next2, false);
	assert_true(says_broken(&h));
	plan(&h, 2, 1, 2);
	send_step(&h, prev, 2, 7, 0);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, next), 1);
	h.now += 6 * S;
	tick(&h);
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0); // it has no successor any more
	stop(&h);
}

static void a_link_without_a_place_ends_the_oldest_of_its_kind(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	const int n_free = NODE_LINKS_MAX - 4; // two to the coordinator, one to each neighbour
	for (int i = 0; i < n_free + 20; i++) {
		up(&h, 2, NODE_LINK_DATA);
		assert_int_equal(count_fx(&h, NODE_FX_CLOSE), i >= n_free);
		if (i >= n_free)
			assert_int_equal(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.link, next + (uint32_t)(i - n_free));
	}
	stop(&h);
}

static void an_older_plan_on_an_old_link_changes_nothing(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	uint32_t old = h.control;
	h.control = up(&h, 0, NODE_LINK_CONTROL);
	plan(&h, 3, 1, 2);
	send_step(&h, prev, 3, 7, 0); // the engine is busy
	uint32_t id = forward_id(&h);
	plan(&h, 5, 1, 2); // and waits for it
	h.control = old;
	plan(&h, 4, 2, 1);
	assert_int_equal(h.fx->n, 0);
	tick(&h);
	assert_int_equal(status(&h).epoch.v, 0);
	forward_done(&h, id);
	assert_int_equal(status(&h).epoch.v, 5);
	send_step(&h, prev, 5, 8, 0);
	assert_int_equal(count_fx(&h, NODE_FX_TAKE), 1);
	stop(&h);
}

// ---- what is reported

static void late_frames_of_the_next_stage_are_reported_once_a_second_at_most(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	struct msg m;
	uint8_t pong[FRAME_PING_BYTES];
	join_ring(&h, &prev, &next);
	control_on(&h, h.control, &(struct msg){.type = MSG_WELCOME, .u.welcome = {.name = "me", .member_epoch = {1}}});
	ping_encode(FRAME_PONG, UINT64_MAX, pong); // no answer of ours: a heartbeat and nothing else
	for (int i = 0; i < 130; i++) {
		h.now += S + i % 2 * (S / 100);
		frame(&h, next, pong, sizeof pong);
		assert_false(sent(&h, MSG_NODE_REPORT, &m));
	}
	h.now += 13 * S / 10;
	frame(&h, next, pong, sizeof pong);
	assert_true(sent(&h, MSG_NODE_REPORT, &m));
	assert_int_equal(m.u.node_report.next_heard, 131);
	assert_int_equal(m.u.node_report.next_late, 1);
	assert_int_equal(m.u.node_report.disk_written, 0);
	h.now += 14 * S / 10;
	frame(&h, prev, pong, sizeof pong); // of another link
	frame(&h, next, pong, sizeof pong);
	assert_true(sent(&h, MSG_NODE_REPORT, &m));
	assert_int_equal(m.u.node_report.next_late, 2);
	stop(&h);
}

// ---- silence

static void silence_while_this_machine_slept_is_forgiven_whatever_event_wakes_it(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	h.now += 60 * S;
	send_step(&h, prev, 1, 7, 0); // the first event after the sleep is a step
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0);
	assert_int_equal(count_fx(&h, NODE_FX_TAKE), 1);
	tick(&h);
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0);
	assert_int_equal(run_to(&h, NODE_FX_CLOSE, 8 * S), 8 * S); // awake, it does not forgive
	stop(&h);
}

// ---- who may send what

static void frames_of_the_wrong_neighbour_are_ignored_and_said_once(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	for (int i = 0; i < 3; i++) {
		send_step(&h, next, 1, 7, 0);
		assert_int_equal(count_fx(&h, NODE_FX_TAKE), 0);
		assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0);
		assert_int_equal(count_fx(&h, NODE_FX_LOG), i == 0);
	}
	send_step(&h, prev, 1, 7, 0);
	forwarded(&h);
	for (int i = 0; i < 3; i++) {
		send_credit(&h, prev, 1, 1);
		assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0);
		assert_int_equal(count_fx(&h, NODE_FX_LOG), i == 0);
	}
	send_credit(&h, next, 1, 1);
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0);
	send_credit(&h, next, 1, 1); // its first was taken: this one was not owed
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 1);
	stop(&h);
}

static void a_credit_goes_back_the_way_its_step_came(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	send_step(&h, h.data, 1, 7, 0); // relayed: its session began before the direct link was up
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_CREDIT, h.data), 1);
	send_step(&h, prev, 1, 8, 0);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_CREDIT, prev), 1);
	stop(&h);
}

static void only_the_coordinator_has_a_control_link(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	uint32_t l = up(&h, 1, NODE_LINK_CONTROL);
	assert_int_equal(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.link, l);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_on_a_link_that_has_a_successor_still_count),
		cmocka_unit_test(a_spare_link_is_received_from_and_never_sent_on),
		cmocka_unit_test(a_spare_link_that_is_silent_ends_in_order),
		cmocka_unit_test(a_spare_link_takes_the_place_of_one_that_breaks),
		cmocka_unit_test(a_hop_with_steps_on_an_old_link_waits_for_their_credits),
		cmocka_unit_test(an_old_link_that_breaks_with_steps_of_the_plan_is_reported),
		cmocka_unit_test(an_old_link_that_carried_nothing_of_the_plan_may_break),
		cmocka_unit_test(an_old_link_that_breaks_may_have_carried_what_its_far_end_sent),
		cmocka_unit_test(an_old_control_link_that_breaks_takes_the_plan_along),
		cmocka_unit_test(an_old_link_is_closed_in_order_after_a_while),
		cmocka_unit_test(a_link_that_ends_in_order_is_not_given_up_for_its_silence),
		cmocka_unit_test(the_link_before_is_used_again_when_its_successor_is_lost),
		cmocka_unit_test(a_link_without_a_place_ends_the_oldest_of_its_kind),
		cmocka_unit_test(an_older_plan_on_an_old_link_changes_nothing),
		cmocka_unit_test(silence_while_this_machine_slept_is_forgiven_whatever_event_wakes_it),
		cmocka_unit_test(frames_of_the_wrong_neighbour_are_ignored_and_said_once),
		cmocka_unit_test(a_credit_goes_back_the_way_its_step_came),
		cmocka_unit_test(only_the_coordinator_has_a_control_link),
		cmocka_unit_test(late_frames_of_the_next_stage_are_reported_once_a_second_at_most),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
