// When the node core has its machine measured, and what it tells the coordinator of it.
#include "tests/support/node_host.h"

static void welcome(struct host *h)
{
	struct msg m = {.type = MSG_WELCOME, .u.welcome = {.name = "me", .member_epoch = {1}}};
	control_on(h, h->control, &m);
}

static void start_probing(struct host *h)
{
	start_as(h, true);
	welcome(h);
}

// let_time_pass: both links live, so that nothing else happens.
static void let_time_pass(struct host *h, int32_t seconds, int32_t *n_probes)
{
	uint8_t ping[FRAME_PING_BYTES];
	for (int32_t i = 0; i < seconds; i++) {
		h->now += S;
		ping_encode(FRAME_PING, 1, ping);
		frame(h, h->control, ping, sizeof ping);
		*n_probes += count_fx(h, NODE_FX_PROBE);
		frame(h, h->data, ping, sizeof ping);
		*n_probes += count_fx(h, NODE_FX_PROBE);
	}
}

static void probed(struct host *h, enum err err)
{
	const struct device_profile p = {.n_threads = 4, .n_rates = 1, .rates = {{DTYPE_Q4_0, 7000000000, 80000000000}}};
	struct node_event ev = {.type = NODE_EV_PROBED, .u.probed = {.err = err, .text = "no memory", .profile = &p}};
	step(h, &ev);
}

static void a_node_that_has_nothing_to_do_is_measured_once(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start_probing(&h);
	assert_null(find_fx(&h, NODE_FX_PROBE, 0)); // who has just joined gets layers in a moment
	int64_t waited = run_to(&h, NODE_FX_PROBE, 30 * S);
	assert_true(waited >= 4 * S && waited <= 6 * S);
	h.now += S;
	probed(&h, OK);
	assert_true(sent(&h, MSG_PROFILE, &m));
	assert_true(m.u.profile.rates[0].decode_bps == 7000000000);
	int32_t n = 0;
	let_time_pass(&h, 30, &n);
	assert_int_equal(n, 0);
	stop(&h);
}

static void work_stops_it_and_quiet_lets_it_begin_again(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start_probing(&h);
	run_to(&h, NODE_FX_PROBE, 30 * S);
	plan(&h, 1, 0, 0);
	assert_int_equal(count_fx(&h, NODE_FX_STOP_PROBE), 1); // layers are to be loaded
	uint32_t id = load_id(&h);
	h.now += S / 10;
	tick(&h);
	assert_int_equal(count_fx(&h, NODE_FX_STOP_PROBE), 0); // said once
	probed(&h, ERR_CANCELLED);
	assert_false(sent(&h, MSG_PROFILE, &m));
	load_done(&h, id, OK);
	assert_non_null(find_fx(&h, NODE_FX_PROBE, 0)); // no step has come for long
	probed(&h, OK);
	assert_true(sent(&h, MSG_PROFILE, &m));
	stop(&h);
}

static void failures_are_logged_and_few(void **state)
{
	(void)state;
	struct host h;
	start_probing(&h);
	run_to(&h, NODE_FX_PROBE, 30 * S);
	int32_t n = 1;
	for (int i = 0; i < 20; i++) {
		if (i < n) {
			probed(&h, ERR_NOMEM);
			assert_non_null(find_fx(&h, NODE_FX_LOG, 0));
		}
		n += find_fx(&h, NODE_FX_PROBE, 0) != NULL;
	}
	assert_int_equal(n, 3);
	stop(&h);
}

static void what_is_known_is_told_after_each_welcome_without_measuring(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start_probing(&h);
	probed(&h, OK); // the host had it on disk
	assert_true(sent(&h, MSG_PROFILE, &m));
	down(&h, h.control, false);
	h.control = up(&h, 0, NODE_LINK_CONTROL);
	assert_false(sent(&h, MSG_PROFILE, &m)); // the Hello first
	welcome(&h);
	assert_true(sent(&h, MSG_PROFILE, &m));
	int32_t n = 0;
	let_time_pass(&h, 20, &n);
	assert_int_equal(n, 0);
	stop(&h);
}

static void who_may_not_measure_does_not(void **state)
{
	(void)state;
	struct host h;
	int32_t n = 0;
	start(&h);
	welcome(&h);
	let_time_pass(&h, 20, &n);
	assert_int_equal(n, 0);
	stop(&h);
}

// work lets one step of session 7 come and be computed, for a millisecond and a million bytes.
static void work(struct host *h, uint32_t link, uint32_t seq)
{
	static const enum err errs[NODE_ITEMS_MAX] = {OK};
	send_step(h, link, 1, 7, seq);
	struct node_event ev = {.type = NODE_EV_FORWARD_DONE};
	ev.u.forward_done.id = forward_id(h);
	ev.u.forward_done.errs = errs;
	ev.u.forward_done.cost = (struct node_cost){.compute_ns = 1000000, .weight_bytes = 1000000, .token_flop = 5};
	h->now += S / 100;
	step(h, &ev);
}

static void what_visits_take_is_reported_but_not_the_first_ones(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	struct msg m = {.type = MSG_BYE};
	join_ring(&h, &prev, &next);
	welcome(&h);
	for (uint32_t i = 0; i < 4; i++)
		work(&h, prev, i);
	send_credit(&h, next, 1, 4);
	h.now += 2 * S;
	tick(&h);
	assert_true(sent(&h, MSG_NODE_REPORT, &m));
	assert_int_equal(m.u.node_report.n_visits, 2); // two may have read weights for the first time
	assert_int_equal(m.u.node_report.decode_bytes, 2000000);
	assert_int_equal(m.u.node_report.decode_us, 2000);
	assert_int_equal(m.u.node_report.prefill_flop, 0);
	h.now += 2 * S;
	tick(&h);
	assert_false(sent(&h, MSG_NODE_REPORT, &m)); // nothing new
	// Giving way is told without a visit, and those behind it read weights anew.
	struct node_event ev = {.type = NODE_EV_WEIGHTS, .u.weights = {.reader = 1, .pinned = 5, .withheld = 7}};
	h.now += 2 * S;
	step(&h, &ev);
	assert_true(sent(&h, MSG_NODE_REPORT, &m));
	assert_int_equal(m.u.node_report.weights.withheld, 7);
	work(&h, prev, 4);
	h.now += 2 * S;
	tick(&h);
	assert_true(sent(&h, MSG_NODE_REPORT, &m));
	assert_int_equal(m.u.node_report.n_visits, 2);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_that_has_nothing_to_do_is_measured_once),
		cmocka_unit_test(work_stops_it_and_quiet_lets_it_begin_again),
		cmocka_unit_test(failures_are_logged_and_few),
		cmocka_unit_test(what_is_known_is_told_after_each_welcome_without_measuring),
		cmocka_unit_test(who_may_not_measure_does_not),
		cmocka_unit_test(what_visits_take_is_reported_but_not_the_first_ones),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
