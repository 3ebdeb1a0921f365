// The link model where it loses, is cut, or replays what was recorded.
#include "sim/network.h"

#include "tests/support/network_world.h"

static void assert_fate(struct world *w, int32_t flow, enum network_direction d, int64_t now_ns, enum network_fate want)
{
	int64_t arrival_ns;
	assert_int_equal(network_send(&w->net, flow, d, 100, now_ns, &arrival_ns), want);
}

// Losses

static void a_lost_packet_makes_its_own_flow_wait_and_no_other(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 8);
	set_link(w, 0, 1, (struct network_link_params){.base_ns = 10 * MS, .loss = 0.05});
	int32_t f = open_flow(w, 0, 1), g = open_flow(w, 0, 1);
	int n_lost = 0, n_together = 0, n_free = 0, n = 20000;
	for (int i = 0; i < n; i++) {
		int64_t t = (int64_t)i * 2 * S;
		int64_t first = send_forward(w, f, 100, t), other = send_forward(w, g, 100, t + 1), second = send_forward(w, f, 100, t + 2);
		if (first == t + 10 * MS)
			continue;
		n_lost++;
		assert_true(first >= t + 230 * MS); // 200 ms and a round trip of 20, then the way
		n_together += second == first;
		n_free += other == t + 1 + 10 * MS;
	}
	assert_in_range(n_lost, n * 44 / 1000, n * 56 / 1000);
	assert_true(n_together > n_lost * 90 / 100); // the rest was lost as well
	assert_true(n_free > n_lost * 90 / 100);
	close_world(w);
}

static void the_retransmission_timeout_doubles(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 8);
	set_link(w, 0, 1, (struct network_link_params){.base_ns = 10 * MS, .loss = 0.5});
	int32_t f = open_flow(w, 0, 1);
	int seen[4] = {0};
	for (int i = 0; i < 1000; i++) {
		int64_t t = (int64_t)i * 10000 * S, late_ns = send_forward(w, f, 100, t) - t - 10 * MS;
		for (int k = 0; k < 4; k++)
			seen[k] += late_ns == 220 * MS * ((INT64_C(1) << k) - 1);
	}
	assert_in_range(seen[0], 440, 560);
	assert_in_range(seen[1], 200, 300);
	assert_in_range(seen[2], 90, 160);
	assert_in_range(seen[3], 40, 90);
	close_world(w);
}

static void a_loss_early_in_a_long_message_costs_a_round_trip_only(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 8);
	set_link(w, 0, 1, (struct network_link_params){.base_ns = 10 * MS, .loss = 0.001});
	int32_t f = open_flow(w, 0, 1);
	int n_fast = 0, n_slow = 0, n = 5000;
	for (int i = 0; i < n; i++) {
		int64_t t = (int64_t)i * 2 * S, late_ns = send_forward(w, f, 100 * NETWORK_PACKET_BYTES, t) - t - 10 * MS;
		n_fast += late_ns == 20 * MS;
		n_slow += late_ns >= 200 * MS;
	}
	assert_in_range(n_fast, 380, 540);            // 1 - 0.999^100 = 9.5 %
	assert_in_range(n_slow, 3, 40); // when one of the last three is lost, or the repetition
	close_world(w);
}

// Cuts

static void a_reset_ends_flows_for_ever_and_refuses_new_ones_until_healed(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	int32_t f = open_flow(w, 0, 1), quiet = open_flow(w, 1, 0), other = open_flow(w, 0, 2);
	(void)send_forward(w, f, 10, 0);
	assert_int_equal(network_cut(&w->net, 1, 0, NETWORK_CUT_RESET), OK);
	assert_fate(w, f, NETWORK_FORWARD, 1, NETWORK_RESET);
	assert_fate(w, f, NETWORK_BACK, 2, NETWORK_RESET);
	assert_fate(w, other, NETWORK_FORWARD, 2, NETWORK_ARRIVES);
	int32_t g = open_flow(w, 0, 1), unused = open_flow(w, 1, 0);
	assert_fate(w, g, NETWORK_FORWARD, 3, NETWORK_RESET);
	assert_int_equal(network_heal(&w->net, 0, 1), OK);
	assert_fate(w, f, NETWORK_FORWARD, 4, NETWORK_RESET);
	assert_fate(w, g, NETWORK_FORWARD, 4, NETWORK_RESET);
	assert_fate(w, quiet, NETWORK_BACK, 4, NETWORK_RESET); // sent nothing in the meantime
	assert_fate(w, unused, NETWORK_FORWARD, 4, NETWORK_ARRIVES); // its handshake came after
	assert_fate(w, open_flow(w, 0, 1), NETWORK_FORWARD, 5, NETWORK_ARRIVES);
	close_world(w);
}

static void what_a_black_hole_swallowed_arrives_together_after_it_heals(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	int64_t at;
	set_link(w, 0, 1, (struct network_link_params){.base_ns = 10 * MS});
	int32_t f = open_flow(w, 0, 1);
	(void)send_forward(w, f, 10, 0);
	assert_int_equal(network_cut(&w->net, 0, 1, NETWORK_CUT_BLACK_HOLE), OK);
	assert_fate(w, f, NETWORK_FORWARD, 1 * S, NETWORK_SWALLOWED);
	assert_fate(w, f, NETWORK_BACK, 1 * S, NETWORK_SWALLOWED);
	assert_int_equal(network_retransmit(&w->net, f, NETWORK_FORWARD, 2 * S, &at), NETWORK_SWALLOWED);
	assert_int_equal(network_heal(&w->net, 0, 1), OK);
	// Behind what is held nothing passes.
	assert_fate(w, f, NETWORK_FORWARD, 3 * S, NETWORK_SWALLOWED);
	assert_true(network_is_held(&w->net, f, NETWORK_FORWARD));
	assert_int_equal(network_retransmit(&w->net, f, NETWORK_FORWARD, 3 * S, &at), NETWORK_ARRIVES);
	assert_int_equal(at, 1 * S + 220 * MS * 15 + 10 * MS); // the fourth try: 220, 660, 1540, 3300 ms after the first
	assert_false(network_is_held(&w->net, f, NETWORK_FORWARD));
	assert_int_equal(send_forward(w, f, 10, 3 * S + 1), at);
	assert_int_equal(send_forward(w, f, 10, 5 * S), 5 * S + 10 * MS);
	assert_true(network_is_held(&w->net, f, NETWORK_BACK));
	close_world(w);
}

static void a_one_way_cut_is_silent_one_way(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	int32_t f = open_flow(w, 1, 0), out = open_flow(w, 3, 2), in = open_flow(w, 2, 3);
	assert_int_equal(network_cut(&w->net, 1, 0, NETWORK_CUT_ONE_WAY), OK);
	assert_fate(w, f, NETWORK_FORWARD, 1, NETWORK_SWALLOWED);
	assert_fate(w, f, NETWORK_BACK, 1, NETWORK_ARRIVES);
	assert_int_equal(network_cut(&w->net, 3, NETWORK_ALL, NETWORK_CUT_ONE_WAY), OK);
	assert_fate(w, out, NETWORK_FORWARD, 1, NETWORK_SWALLOWED);
	assert_fate(w, in, NETWORK_FORWARD, 1, NETWORK_ARRIVES);
	assert_fate(w, open_flow(w, 3, 5), NETWORK_FORWARD, 1, NETWORK_SWALLOWED);
	assert_fate(w, open_flow(w, 5, 3), NETWORK_FORWARD, 1, NETWORK_ARRIVES);
	close_world(w);
}

static void a_cut_machine_is_cut_from_all(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	int32_t f = open_flow(w, 0, 1), g = open_flow(w, 2, 0), h = open_flow(w, 1, 2);
	assert_int_equal(network_cut(&w->net, 0, NETWORK_ALL, NETWORK_CUT_BLACK_HOLE), OK);
	assert_fate(w, f, NETWORK_FORWARD, 1, NETWORK_SWALLOWED);
	assert_fate(w, g, NETWORK_FORWARD, 1, NETWORK_SWALLOWED);
	assert_fate(w, h, NETWORK_FORWARD, 1, NETWORK_ARRIVES);
	assert_int_equal(network_cut(&w->net, 0, NETWORK_ALL, NETWORK_CUT_RESET), OK);
	assert_fate(w, g, NETWORK_FORWARD, 2, NETWORK_RESET);
	assert_int_equal(network_heal(&w->net, 0, NETWORK_ALL), OK);
	assert_fate(w, open_flow(w, 0, 1), NETWORK_FORWARD, 3, NETWORK_ARRIVES);
	close_world(w);
}

static void machines_of_different_groups_do_not_hear_each_other(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	int32_t f = open_flow(w, 0, 1), g = open_flow(w, 0, 2);
	network_set_group(&w->net, 0, 1);
	network_set_group(&w->net, 2, 1);
	assert_fate(w, f, NETWORK_FORWARD, 1, NETWORK_SWALLOWED);
	assert_fate(w, f, NETWORK_BACK, 1, NETWORK_SWALLOWED);
	assert_fate(w, g, NETWORK_FORWARD, 1, NETWORK_ARRIVES);
	network_set_group(&w->net, 1, 1);
	assert_fate(w, open_flow(w, 0, 1), NETWORK_FORWARD, 2, NETWORK_ARRIVES);
	close_world(w);
}

// Replay

static void a_trace_is_replayed_by_time_for_ever_and_its_losses_lose(void **state)
{
	(void)state;
	struct arena a;
	const struct trace *t = parse(&a, "t_s,rtt_ms,rate_mbit,lost\n0,4,8,0\n1,6,80,0\n2,,,1\n3,8,,0\n"); // a period of 4 s
	struct world *w = open_world(&small, 1);
	set_link(w, 0, 1, (struct network_link_params){.delay = {NETWORK_DELAY_TRACE, .trace = t}, .rate_bps = 800000});
	int32_t f = open_flow(w, 0, 1);
	assert_int_equal(send_forward(w, f, 0, 0), 2 * MS);
	assert_int_equal(send_way(w, f, NETWORK_BACK, 0, 2 * MS), 4 * MS);
	assert_int_equal(send_forward(w, f, 1000, 100 * MS), 103 * MS);            // 8 Mbit/s, and half of 4 ms
	assert_int_equal(send_forward(w, f, 1000, 1500 * MS), 1503 * MS + 100 * US); // 80 Mbit/s
	assert_int_equal(send_forward(w, f, 1000, 3500 * MS), 3514 * MS);            // not known: the link's own
	assert_int_equal(send_forward(w, f, 0, 4 * S), 4 * S + 2 * MS);
	assert_int_equal(send_forward(w, f, 0, 6900 * MS), 6900 * MS + 200 * MS + 4 * MS); // lost until second 7 of the second round
	close_world(w);
	w = open_world(&small, 1);
	set_link(w, 0, 1, (struct network_link_params){.delay = {NETWORK_DELAY_TRACE, .trace = t, .offset_ns = 1 * S}});
	assert_int_equal(send_forward(w, open_flow(w, 0, 1), 0, 0), 3 * MS);
	close_world(w);
	arena_close(&a);
}

static void a_delivery_trace_gives_1500_bytes_an_opportunity(void **state)
{
	(void)state;
	struct arena a;
	const struct trace *t = parse(&a, "5\n5\n8\n10\n");
	struct world *w = open_world(&small, 1);
	set_link(w, 0, 1, (struct network_link_params){.deliveries = t});
	int32_t f = open_flow(w, 0, 1);
	assert_int_equal(send_forward(w, f, 1000, 0), 5 * MS);
	assert_int_equal(send_forward(w, f, 500, 0), 5 * MS);  // fills the first
	assert_int_equal(send_forward(w, f, 1501, 0), 8 * MS); // the second and a byte of the third
	assert_int_equal(send_forward(w, f, 1499, 9 * MS), 10 * MS); // the third has gone
	assert_int_equal(send_forward(w, f, 1, 10 * MS), 10 * MS);
	assert_int_equal(send_forward(w, f, 4 * 1500, 10 * MS), 20 * MS); // a whole round
	assert_int_equal(send_forward(w, f, 0, 10 * MS), 25 * MS);
	assert_int_equal(send_way(w, f, NETWORK_BACK, 1500, 10 * MS), 10 * MS); // no limit that way
	close_world(w);
	arena_close(&a);
}

static void a_distribution_table_spreads_round_the_base(void **state)
{
	(void)state;
	struct arena a;
	const struct trace *t = parse(&a, "# three\n-8192 0 16384\n");
	struct world *w = open_world(&small, 1);
	set_link(w, 0, 1, (struct network_link_params){.base_ns = 10 * MS, .delay = {NETWORK_DELAY_TABLE, .trace = t, .spread_ns = 2 * MS}});
	int32_t f = open_flow(w, 0, 1);
	int n[3] = {0};
	for (int i = 0; i < 3000; i++) {
		int64_t d = send_forward(w, f, 10, (int64_t)i * S) - (int64_t)i * S;
		assert_true(d == 8 * MS || d == 10 * MS || d == 14 * MS);
		n[d == 10 * MS ? 1 : d == 14 * MS ? 2 : 0]++;
	}
	for (int i = 0; i < 3; i++)
		assert_in_range(n[i], 900, 1100);
	close_world(w);
	arena_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lost_packet_makes_its_own_flow_wait_and_no_other),
		cmocka_unit_test(the_retransmission_timeout_doubles),
		cmocka_unit_test(a_loss_early_in_a_long_message_costs_a_round_trip_only),
		cmocka_unit_test(a_reset_ends_flows_for_ever_and_refuses_new_ones_until_healed),
		cmocka_unit_test(what_a_black_hole_swallowed_arrives_together_after_it_heals),
		cmocka_unit_test(a_one_way_cut_is_silent_one_way),
		cmocka_unit_test(a_cut_machine_is_cut_from_all),
		cmocka_unit_test(machines_of_different_groups_do_not_hear_each_other),
		cmocka_unit_test(a_trace_is_replayed_by_time_for_ever_and_its_losses_lose),
		cmocka_unit_test(a_delivery_trace_gives_1500_bytes_an_opportunity),
		cmocka_unit_test(a_distribution_table_spreads_round_the_base),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
