// What the coordinator does after a loss, beside what the simulator shows: who is counted on again and when, who is let in meanwhile, and
// replies about steps that are not under way.
#include "tests/support/coord_host.h"

// lose breaks a member's link.
static void lose(struct host *h, uint32_t link)
{
	struct coord_event ev = {.type = COORD_EV_LINK_DOWN};
	ev.u.link_down.link = link;
	ev.u.link_down.reason = "reset";
	step(h, &ev);
}

static void lose_node(struct host *h, int32_t i)
{
	lose(h, h->control[i]);
	lose(h, h->data[i]);
}

static struct coord_status look(struct host *h)
{
	return status(h);
}

static void open_ready(struct host *h, int32_t n)
{
	struct coordinator_config config = base_config();
	config.liveness.dead_after_ns = config.liveness.suspect_after_ns = 1000000 * S; // only what the tests say is lost
	config.n_nodes_min = n;
	start(h, &config, n);
	for (int32_t i = 1; i <= n; i++)
		arrive(h, i);
	be_ready(h, n);
}

static void who_returns_is_used_at_once_when_nothing_goes_without_it(void **state)
{
	(void)state;
	for (int data_first = 0; data_first < 2; data_first++) {
		struct host h;
		struct msg m;
		open_ready(&h, 1);
		lose_node(&h, 1);
		h.now += 10 * S;
		tick(&h);
		if (data_first) {
			arrive(&h, 1);
		} else {
			h.control[1] = link_up(&h, record(1).id, COORD_LINK_CONTROL);
			hello(&h, 1);
			h.data[1] = link_up(&h, record(1).id, COORD_LINK_DATA);
		}
		assert_true(sent(&h, h.control[1], MSG_PLAN, &m)); // three seconds of health are for plans that work without it
		stop(&h);
	}
}

// back_in returns how long a node that was lost and is back waits for a part beside one that works alone.
static int64_t back_in(struct host *h)
{
	struct msg m;
	lose_node(h, 2);
	h->now += 2 * S;
	tick(h);
	be_ready(h, 1);
	arrive(h, 2);
	int64_t begin = h->now;
	while (!sent(h, h->control[2], MSG_PLAN, &m) || m.u.plan.n_stages == 0) {
		assert_true(coordinator_deadline_ns(h->c) > h->now);
		h->now = coordinator_deadline_ns(h->c);
		tick(h);
		for (int i = 0; i < 3 && look(h).plan_epoch.v != 0 && !look(h).ready; i++)
			if (!sent(h, h->control[2], MSG_PLAN, &m))
				random_bytes(h);
	}
	int64_t took = h->now - begin;
	be_ready(h, 2);
	return took;
}

static void who_flaps_waits_longer_each_time_and_a_day_of_health_forgives(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, 2);
	assert_int_equal(back_in(&h), 3 * S);
	assert_int_equal(back_in(&h), 10 * S);
	assert_int_equal(back_in(&h), 20 * S);
	h.now += 86400 * S;
	tick(&h);
	assert_int_equal(back_in(&h), 3 * S);
	stop(&h);
}

static void who_was_leaving_is_not_waited_for(void **state)
{
	(void)state;
	struct host h;
	struct msg m = {.type = MSG_LEAVING};
	struct coordinator_config config = base_config();
	config.liveness.suspect_after_ns = 1000000 * S;
	config.n_split = 2; // nobody can take its layers: it goes on until it is gone
	config.split[0] = config.split[1] = 3;
	start(&h, &config, 3);
	for (int32_t i = 1; i <= 3; i++)
		arrive(&h, i);
	be_ready(&h, 3);
	int32_t who = look(&h).members[0].stage >= 0 ? 1 : 2;
	submit(&h, 1, 3, 3);
	message(&h, h.control[who], &m); // the third takes its place at once ..
	assert_false(look(&h).ready);
	stop(&h);

	open_ready(&h, 1); // .. or there is nobody, and the end of the links ends the wait, too
	submit(&h, 1, 3, 3);
	message(&h, h.control[1], &m);
	lose_node(&h, 1);
	assert_non_null(strstr(look(&h).waiting_for, "no node has joined")); // not: waited for
	stop(&h);
}

static void what_is_no_part_of_the_plan_keeps_nobody_out(void **state)
{
	(void)state;
	struct host h;
	struct msg leaving = {.type = MSG_LEAVING};
	struct coordinator_config config = base_config();
	config.liveness.dead_after_ns = config.liveness.suspect_after_ns = 1000000 * S;
	config.n_split = 1;
	config.split[0] = 6;
	start(&h, &config, 3);
	for (int32_t i = 1; i <= 3; i++)
		arrive(&h, i);
	be_ready(&h, 3);
	assert_int_equal(look(&h).members[0].stage, 0);
	submit(&h, 1, 3, 3);
	assert_int_equal(look(&h).n_active, 1);
	message(&h, h.control[2], &leaving);
	struct coord_event drain = {.type = COORD_EV_DRAIN, .u.revoke = {.ticket = 1, .who = "node3"}};
	step(&h, &drain);
	submit(&h, 2, 3, 3);
	assert_int_equal(look(&h).n_active, 2);
	stop(&h);
}

static void a_failure_of_steps_that_are_not_under_way_changes_nothing(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, 1);
	submit(&h, 1, 3, 3);
	struct coord_effect *f = find_fx(&h, COORD_FX_FORWARD, 0);
	assert_non_null(f);
	struct coord_event done = {.type = COORD_EV_FORWARD_DONE, .u.forward_done.id = f->u.forward.id};
	step(&h, &done);
	uint8_t bytes[FRAME_STEP_BYTES + 8] = {0};
	struct session_id session = {((uint64_t)h.wall << 20) + 1};
	struct step reply = {.reply = REPLY_LAST, .n_tokens = 3, .dst_span = SPAN_HEAD, .epoch = look(&h).plan_epoch, .session = session, .payload_len = 8};
	step_encode(&reply, bytes);
	struct coord_event ev = {.type = COORD_EV_MESSAGE, .u.message = {.link = h.data[1], .data = bytes, .len = sizeof bytes}};
	step(&h, &ev);
	f = find_fx(&h, COORD_FX_SAMPLE, 0);
	assert_non_null(f);
	uint32_t sample = f->u.sample.id;
	// All of it came back, and its token is being drawn: to begin again would lose that.
	struct msg m = {.type = MSG_STEP_FAILED, .u.step_failed = {.epoch = look(&h).plan_epoch, .session = session, .code = STEP_NOT_KEPT}};
	message(&h, h.control[1], &m);
	const struct coord_sampled items[COORD_ITEMS_MAX] = {{.token = 3}};
	struct coord_event sampled = {.type = COORD_EV_SAMPLED, .u.sampled = {.id = sample, .items = items}};
	step(&h, &sampled);
	assert_int_equal(count_fx(&h, COORD_FX_EMIT), 1);
	assert_int_equal(count_fx(&h, COORD_FX_FORWARD), 1);
	stop(&h);
}

// cannot_read puts a request on its way, and tells that a node cannot read its weights.
static void cannot_read(struct host *h, int32_t node)
{
	submit(h, 1, 3, 3);
	struct coord_effect *f = find_fx(h, COORD_FX_FORWARD, 0);
	assert_non_null(f);
	struct coord_event done = {.type = COORD_EV_FORWARD_DONE, .u.forward_done.id = f->u.forward.id};
	step(h, &done);
	struct msg m = {.type = MSG_STEP_FAILED, .u.step_failed = {.epoch = look(h).plan_epoch, .session = {((uint64_t)h->wall << 20) + 1},
		.code = STEP_WEIGHTS, .error = "model.gguf: ends at offset 4096"}};
	message(h, h->control[node], &m);
}

static void who_cannot_read_its_weights_is_lost_to_the_plan_and_not_to_the_answer(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	open_ready(&h, 2);
	cannot_read(&h, 2);
	assert_false(look(&h).ready);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0); // the request goes on
	assert_non_null(strstr(look(&h).members[1].detail, "ends at offset 4096"));
	be_ready(&h, 1);
	assert_true(look(&h).ready);
	assert_int_equal(look(&h).members[1].stage, -1);
	assert_non_null(find_fx(&h, COORD_FX_FORWARD, 0)); // from its tokens
	stop(&h);

	open_ready(&h, 1);
	cannot_read(&h, 1);
	struct coord_effect *f = find_fx(&h, COORD_FX_END, 0);
	assert_non_null(f); // nobody else: the error is the answer, and the cluster stays as it is
	assert_string_equal(f->u.end.text, "node node1 (layers 0 to 5): model.gguf: ends at offset 4096");
	assert_true(look(&h).ready);
	assert_false(sent(&h, h.control[1], MSG_PLAN, &m));
	stop(&h);
}

static void relayed_steps_of_a_hop_stay_on_their_link_until_they_are_credited(void **state)
{
	(void)state;
	struct host h;
	open_ready(&h, 2);
	submit(&h, 1, 3, 3);
	uint8_t bytes[FRAME_STEP_BYTES + 8] = {0};
	struct step s = {.n_tokens = 1, .src_span = 0, .dst_span = 1, .epoch = look(&h).plan_epoch, .session = {7}, .payload_len = 8};
	step_encode(&s, bytes);
	struct coord_event ev = {.type = COORD_EV_MESSAGE, .u.message = {.link = h.data[1], .data = bytes, .len = sizeof bytes}};
	step(&h, &ev);
	uint32_t old = h.data[2];
	assert_int_equal(find_fx(&h, COORD_FX_RELAY, 0)->u.close.link, old);
	h.data[2] = link_up(&h, record(2).id, COORD_LINK_DATA);
	step(&h, &ev);
	assert_int_equal(find_fx(&h, COORD_FX_RELAY, 0)->u.close.link, old); // on the new one it might overtake
	uint8_t credit[FRAME_CREDIT_BYTES];
	struct credit cr = {.n = 2, .src_span = 1, .dst_span = 0, .epoch = look(&h).plan_epoch};
	credit_encode(&cr, credit);
	struct coord_event back = {.type = COORD_EV_MESSAGE, .u.message = {.link = h.data[2], .data = credit, .len = sizeof credit}};
	step(&h, &back);
	step(&h, &ev);
	assert_int_equal(find_fx(&h, COORD_FX_RELAY, 0)->u.close.link, h.data[2]);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_returns_is_used_at_once_when_nothing_goes_without_it),
		cmocka_unit_test(who_flaps_waits_longer_each_time_and_a_day_of_health_forgives),
		cmocka_unit_test(who_was_leaving_is_not_waited_for),
		cmocka_unit_test(what_is_no_part_of_the_plan_keeps_nobody_out),
		cmocka_unit_test(a_failure_of_steps_that_are_not_under_way_changes_nothing),
		cmocka_unit_test(who_cannot_read_its_weights_is_lost_to_the_plan_and_not_to_the_answer),
		cmocka_unit_test(relayed_steps_of_a_hop_stay_on_their_link_until_they_are_credited),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
