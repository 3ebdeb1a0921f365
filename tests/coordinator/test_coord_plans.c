// What the coordinator's plans make of machines that cannot load, have no part, or stay neighbours.
#include "tests/support/coord_host.h"

static void fail_load(struct host *h, int32_t i)
{
	struct msg m = {.type = MSG_LOADED, .u.loaded = {.epoch = {epoch_of(h)}, .error = "no memory for layer 3"}};
	message(h, h->control[i], &m);
}

static void a_node_that_cannot_load_is_tried_again_after_a_pause(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct coord_status st;
	struct coordinator_config config = patient_config();
	start(&h, &config, 1);
	arrive(&h, 1);
	assert_true(sent(&h, h.control[1], MSG_PLAN, &m));
	for (int round = 0; round < 8; round++) {
		fail_load(&h, 1);
		st = status(&h);
		assert_string_equal(st.members[0].state, "cannot load");
		assert_string_equal(st.members[0].detail, "no memory for layer 3");
		assert_non_null(strstr(st.waiting_for, "no memory for layer 3"));
		int64_t begin = h.now;
		bool is_asked = false;
		while (!is_asked && h.now - begin <= 300 * S) {
			assert_true(coordinator_deadline_ns(h.c) > h.now);
			h.now = coordinator_deadline_ns(h.c);
			tick(&h);
			is_asked = sent(&h, h.control[1], MSG_PLAN, &m);
		}
		assert_true(is_asked);
		int64_t longest = (INT64_C(5) << round) * S;
		longest = longest < 300 * S ? longest : 300 * S;
		assert_true(h.now - begin >= longest / 2 && h.now - begin <= longest);
	}
	be_ready(&h, 1);
	st = status(&h);
	assert_string_equal(st.members[0].state, "ready");
	assert_string_equal(st.members[0].detail, "");
	stop(&h);
}

static void a_cluster_that_works_is_not_disturbed_to_try_a_node_again(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	start(&h, &config, 3);
	arrive(&h, 1);
	arrive(&h, 2);
	random_bytes(&h);
	fail_load(&h, 2);
	be_ready(&h, 1);
	uint64_t before = epoch_of(&h);
	h.now += 600 * S;
	tick(&h);
	assert_int_equal(epoch_of(&h), before);
	arrive(&h, 3); // the next plan counts on it
	for (int i = 0; i < 3; i++)
		random_bytes(&h);
	assert_true(status(&h).members[1].stage >= 0);
	assert_true(status(&h).members[2].stage >= 0);
	stop(&h);
}

static void a_node_outside_the_plan_is_told(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct coordinator_config config = base_config();
	config.n_split = 1;
	config.split[0] = 6;
	start(&h, &config, 2);
	arrive(&h, 1);
	be_ready(&h, 1);
	arrive(&h, 2); // it may hold a plan of another time
	assert_true(sent(&h, h.control[2], MSG_PLAN, &m));
	assert_int_equal(m.u.plan.n_stages, 0);
	assert_int_equal(m.u.plan.epoch.v, epoch_of(&h));
	tick(&h);
	assert_false(sent(&h, h.control[2], MSG_PLAN, &m));
	struct msg leaving = {.type = MSG_LEAVING};
	message(&h, h.control[1], &leaving); // 2 takes its place
	assert_true(sent(&h, h.control[2], MSG_PLAN, &m));
	assert_int_equal(m.u.plan.n_stages, 1);
	assert_true(sent(&h, h.control[1], MSG_PLAN, &m));
	assert_int_equal(m.u.plan.n_stages, 0);
	stop(&h);
}

// key_of returns the pairwise key in the plan that is sent in this step to node i.
static void key_of(struct host *h, int32_t i, uint8_t psk[KEY_BYTES])
{
	struct msg m;
	assert_true(sent(h, h->control[i], MSG_PLAN, &m));
	assert_int_not_equal(m.u.plan.prev.present, m.u.plan.next.present);
	memcpy(psk, m.u.plan.prev.present ? m.u.plan.prev.psk : m.u.plan.next.psk, KEY_BYTES);
}

static void a_new_plan_keeps_the_key_of_two_neighbours(void **state)
{
	(void)state;
	struct host h;
	uint8_t before[KEY_BYTES], after[KEY_BYTES];
	struct coordinator_config config = base_config();
	config.n_nodes_min = 2;
	start(&h, &config, 2);
	arrive(&h, 1);
	arrive(&h, 2);
	random_bytes(&h);
	key_of(&h, 2, before);
	be_ready(&h, 2);
	down(&h, h.data[2], false);
	h.data[2] = link_up(&h, record(2).id, COORD_LINK_DATA);
	assert_int_equal(count_fx(&h, COORD_FX_NEED_RANDOM), 0);
	key_of(&h, 2, after);
	assert_memory_equal(before, after, KEY_BYTES);
	stop(&h);
}

static struct coord_member_status status_of_node(struct host *h, int32_t i)
{
	struct coord_status st = status(h);
	for (int32_t k = 0; k < st.n_members; k++)
		if (node_id_is(st.members[k].id, record(i).id))
			return st.members[k];
	fail();
	return st.members[0];
}

static void round_trips_are_those_of_pings_and_what_stages_measured(void **state)
{
	(void)state;
	struct host h;
	uint8_t pong[FRAME_PING_BYTES];
	struct coordinator_config config = patient_config();
	config.n_nodes_min = 3;
	start_ready(&h, &config, 3);
	int32_t stage = status_of_node(&h, 1).stage, next = 0;
	for (int32_t i = 2; i <= 3; i++)
		next = status_of_node(&h, i).stage == stage + 1 ? i : next;
	assert_true(next > 0);
	assert_int_equal(status_of_node(&h, 1).rtt.n, 0);
	// A pong of a ping of 2.5 ms ago, one that was never sent, and one on the data link.
	ping_encode(FRAME_PONG, (uint64_t)(h.now - 2500000), pong);
	frame(&h, h.control[1], pong, sizeof pong);
	assert_true(status_of_node(&h, 1).rtt.n == 1 && status_of_node(&h, 1).rtt.last_ns == 2500000);
	frame(&h, h.data[1], pong, sizeof pong);
	ping_encode(FRAME_PONG, (uint64_t)h.now + 1, pong);
	frame(&h, h.control[1], pong, sizeof pong);
	assert_int_equal(status_of_node(&h, 1).rtt.n, 1);
	// What node 1 measured to the next stage counts, what it says of another does not.
	struct msg m = {.type = MSG_LINK_RTT, .u.link_rtt = {.peer = record(next).id, .rtt_us = 4200}};
	message(&h, h.control[1], &m);
	assert_true(status_of_node(&h, 1).next_rtt.n == 1 && status_of_node(&h, 1).next_rtt.last_ns == 4200000);
	m.u.link_rtt.peer = record(next == 2 ? 3 : 2).id;
	message(&h, h.control[1], &m);
	assert_int_equal(status_of_node(&h, 1).next_rtt.n, 1);
	assert_int_equal(count_fx(&h, COORD_FX_CLOSE), 0);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_that_cannot_load_is_tried_again_after_a_pause),
		cmocka_unit_test(a_cluster_that_works_is_not_disturbed_to_try_a_node_again),
		cmocka_unit_test(a_node_outside_the_plan_is_told),
		cmocka_unit_test(a_new_plan_keeps_the_key_of_two_neighbours),
		cmocka_unit_test(round_trips_are_those_of_pings_and_what_stages_measured),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
