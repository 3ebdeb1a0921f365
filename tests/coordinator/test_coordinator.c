// The coordinator core, event by event: plans, losses, time. The test plays the host, the disk and the nodes; members are in
// test_coord_members.c, and what needs a whole ring is in tests/sim/.
#include "base/log.h"
#include "tests/support/coord_host.h"

static void a_node_with_another_model_is_refused(void **state)
{
	(void)state;
	struct host h;
	struct msg m = {.type = MSG_HELLO, .u.hello = {.name = "node1", .n_threads = 1, .model_hash = {1}}}, out;
	start(&h, NULL, 1);
	h.control[1] = link_up(&h, record(1).id, COORD_LINK_CONTROL);
	message(&h, h.control[1], &m);
	assert_true(sent(&h, h.control[1], MSG_REFUSED, &out));
	assert_non_null(strstr(out.u.refused.reason, "hash"));
	stop(&h);
}

static void an_empty_stage_is_refused_by_name(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	config.n_split = 2;
	config.split[0] = 6;
	start(&h, &config, 2);
	arrive(&h, 1);
	arrive(&h, 2);
	assert_false(is_ready(&h));
	assert_non_null(strstr(status(&h).waiting_for, "node2"));
	stop(&h);
}

static void sixty_four_nodes_and_sessions_fit_the_effects(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	config.n_layers = NODES_MAX;
	config.n_slots = SESSIONS_MAX;
	config.hop_credits = HOP_CREDITS_MAX;
	start_ready(&h, &config, NODES_MAX);
	for (uint64_t r = 1; r <= SESSIONS_MAX; r++)
		submit(&h, r, 4, 4);
	for (int round = 0; round < 2 * SESSIONS_MAX; round++) {
		struct coord_effect *f = find_fx(&h, COORD_FX_FORWARD, 0);
		forward_done(&h, f ? f->u.forward.id : (uint32_t)round);
	}
	assert_int_equal(status(&h).n_active, SESSIONS_MAX);
	down(&h, h.control[7], false);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	assert_int_equal(status(&h).n_active, SESSIONS_MAX);
	assert_non_null(strstr(status(&h).waiting_for, "node7"));
	h.now += config.liveness.rejoin_ns;
	tick(&h); // 63 nodes get parts of a new plan, and never say that they are ready
	h.now += 150 * S;
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_END), SESSIONS_MAX);
	stop(&h);
}

static void silence_of_eight_seconds_loses_a_node(void **state)
{
	(void)state;
	struct host h;
	start_ready(&h, NULL, 1);
	submit(&h, 1, 3, 3);
	int64_t begin = h.now;
	while (is_ready(&h)) {
		assert_true(coordinator_deadline_ns(h.c) > h.now);
		h.now = coordinator_deadline_ns(h.c);
		tick(&h);
	}
	assert_int_equal(h.now - begin, 8 * S);
	struct coord_status st = status(&h);
	assert_non_null(strstr(st.members[0].detail, "silent for 8000 ms"));
	assert_int_equal(st.n_active, 1);
	stop(&h);
}

static void a_suspect_gets_no_new_answer_until_it_is_heard(void **state)
{
	(void)state;
	struct host h;
	start_ready(&h, NULL, 1);
	h.now += 14 * S / 10;
	submit(&h, 1, 3, 3);
	assert_int_equal(count_fx(&h, COORD_FX_FORWARD), 1);
	h.now += 11 * S / 10; // phi 8 of a link without a history is at 2.4 s
	submit(&h, 2, 3, 3);
	struct coord_status st = status(&h);
	assert_int_equal(st.n_active, 1);
	assert_int_equal(st.n_waiting, 1);
	assert_string_equal(st.members[0].state, "suspect");
	struct msg m = {.type = MSG_PEER_LINK, .u.peer_link = {.epoch = st.plan_epoch}};
	message(&h, h.control[1], &m);
	assert_int_equal(status(&h).n_active, 1); // its data link is as silent as before
	uint8_t pong[FRAME_PING_BYTES];
	ping_encode(FRAME_PONG, 1, pong);
	frame(&h, h.data[1], pong, sizeof pong);
	st = status(&h);
	assert_int_equal(st.n_active, 2);
	assert_string_equal(st.members[0].state, "ready");
	stop(&h);
}

static void silence_while_this_machine_slept_is_forgiven_whatever_event_wakes_it(void **state)
{
	(void)state;
	struct host h;
	start_ready(&h, NULL, 1);
	h.now += 60 * S;
	submit(&h, 1, 3, 3); // the first event after the sleep is a request
	assert_int_equal(count_fx(&h, COORD_FX_CLOSE), 0);
	assert_int_equal(count_fx(&h, COORD_FX_FORWARD), 1); // which no suspect gets
	assert_true(is_ready(&h));
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	assert_int_equal(count_fx(&h, COORD_FX_CLOSE), 0);
	assert_true(is_ready(&h));
	stop(&h);
}

static void session_wait_counts_from_the_loss_not_from_the_request(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	config.n_slots = 1;
	config.liveness.dead_after_ns = 100000 * S;
	start_ready(&h, &config, 1);
	submit(&h, 1, 3, 3);
	submit(&h, 2, 3, 3); // waits for the one slot, longer than session_wait
	h.now += 200 * S;
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	down(&h, h.control[1], false);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	h.now += 150 * S - 1;
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	h.now++;
	assert_true(coordinator_deadline_ns(h.c) <= h.now);
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_END), 2);
	assert_int_equal(find_fx(&h, COORD_FX_END, 0)->u.end.err, ERR_TIMEOUT);
	stop(&h);
}

static void a_join_link_carries_no_pings(void **state)
{
	(void)state;
	struct host h;
	start(&h, NULL, 1);
	link_up(&h, record(1).id, COORD_LINK_JOIN);
	for (int i = 0; i < 7; i++) {
		h.now += S;
		tick(&h);
		assert_int_equal(count_fx(&h, COORD_FX_SEND), 0);
	}
	h.now += S;
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_CLOSE), 1);
	stop(&h);
}

static int32_t n_warnings(struct host *h)
{
	int32_t n = 0;
	struct coord_effect *f;
	for (int32_t i = 0; (f = find_fx(h, COORD_FX_LOG, i)) != NULL; i++)
		n += f->u.log.level <= LOG_WARNING;
	return n;
}

static void a_start_warns_only_when_nobody_is_there_to_come(void **state)
{
	(void)state;
	for (int32_t local = 0; local < 2; local++) {
		struct host h;
		struct coordinator_config config = base_config();
		config.self = record(NODES_MAX).id;
		config.has_local_node = local == 1;
		start(&h, &config, 0);
		assert_int_equal(n_warnings(&h), 1 - local);
		assert_string_equal(status(&h).waiting_for,
			local ? "the node on this machine is starting" : "no node has joined, and this machine holds no layers (--no-node)");
		stop(&h);
	}
}

static void requests_that_cannot_be_are_ended_at_once(void **state)
{
	(void)state;
	struct host h;
	start(&h, NULL, 0);
	submit(&h, 1, 0, 1);
	assert_int_equal(find_fx(&h, COORD_FX_END, 0)->u.end.err, ERR_RANGE);
	submit(&h, 2, 1, 0);
	assert_int_equal(find_fx(&h, COORD_FX_END, 0)->u.end.err, ERR_RANGE);
	submit(&h, 3, CTX, 1);
	assert_int_equal(find_fx(&h, COORD_FX_END, 0)->u.end.err, ERR_LIMIT);
	for (uint64_t r = 0; r < SESSIONS_MAX; r++) {
		submit(&h, 10 + r, CTX - 1, 1);
		assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	}
	submit(&h, 4, 1, 1);
	assert_int_equal(find_fx(&h, COORD_FX_END, 0)->u.end.err, ERR_BUSY);
	stop(&h);
}

static void plan_epochs_grow_over_restarts(void **state)
{
	(void)state;
	struct host h;
	struct member_record one = record(1);
	start_ready(&h, NULL, 1);
	uint64_t before = epoch_of(&h);
	stop(&h);
	open_core(&h, NULL);
	h.wall++; // a second later
	restore(&h, &one, 1, NULL, 0);
	arrive(&h, 1);
	assert_true(epoch_of(&h) > before);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_with_another_model_is_refused),
		cmocka_unit_test(an_empty_stage_is_refused_by_name),
		cmocka_unit_test(sixty_four_nodes_and_sessions_fit_the_effects),
		cmocka_unit_test(silence_of_eight_seconds_loses_a_node),
		cmocka_unit_test(a_suspect_gets_no_new_answer_until_it_is_heard),
		cmocka_unit_test(silence_while_this_machine_slept_is_forgiven_whatever_event_wakes_it),
		cmocka_unit_test(session_wait_counts_from_the_loss_not_from_the_request),
		cmocka_unit_test(a_join_link_carries_no_pings),
		cmocka_unit_test(a_start_warns_only_when_nobody_is_there_to_come),
		cmocka_unit_test(requests_that_cannot_be_are_ended_at_once),
		cmocka_unit_test(plan_epochs_grow_over_restarts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
