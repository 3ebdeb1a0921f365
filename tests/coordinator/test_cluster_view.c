// What the planner is given: struct cluster from what members told of their machines and of the ways between them.
#include "coordinator/cluster_view.h"

#include "tests/support/coord_host.h"

#include <math.h>

#define GB UINT64_C(1000000000)

static struct cluster_view view; // too large for a small stack
static struct errmsg em;

static struct device_profile profile(uint64_t decode_gbps)
{
	return (struct device_profile){.n_threads = 4, .visit_ns = 50000, .memory_bytes = 16 * GB, .available_bytes = 9 * GB, .cap_bytes = 8 * GB,
		.reserved_bytes = GB / 10, .disk_mmap_bps = 500000000, .disk_direct_bps = 2 * GB, .reader = 1, .n_rates = 2,
		.rates = {{DTYPE_Q4_K, decode_gbps * GB, 100 * GB}, {DTYPE_Q6_K, decode_gbps * GB * 2, 80 * GB}}};
}

struct figures {
	struct device_profile profiles[4];
	struct cluster_view_member members[4];
	struct link_figures to[4], from[4], pair;
	struct cluster_view_input in;
};

static const struct link_figures *pair(const void *ctx, int32_t i, int32_t j)
{
	const struct figures *f = ctx;
	return i == 11 && j == 12 ? &f->pair : NULL;
}

static void figures_init(struct figures *f)
{
	static const char *const names[] = {"head", "attic", "cellar", "study"};
	*f = (struct figures){.in = {.members = f->members, .n = 4, .type = DTYPE_Q4_K, .pair = pair, .ctx = f}};
	for (int32_t i = 0; i < 4; i++) {
		f->profiles[i] = profile(10 + (uint64_t)i);
		f->to[i] = f->from[i] = (struct link_figures){.n = 100, .p50_us = 1000, .p90_us = 2000, .p99_us = 9000, .mean_us = 2000 * i, .rate_bps = GB / 10};
		f->members[i] = (struct cluster_view_member){.name = names[i], .index = 10 + i, .can_hold = true, .profile = &f->profiles[i],
			.buffer_bytes = GB / 100, .to = &f->to[i], .from = &f->from[i]};
	}
}

static const struct cluster_link *way(int32_t i, int32_t j)
{
	return &view.cluster.links[i * view.cluster.n_devices + j];
}

static bool is_near(double a, double b)
{
	return fabs(a - b) <= 1e-9 * fabs(b);
}

static void make(struct figures *f)
{
	assert_int_equal(cluster_view_make(&f->in, &view, &em), OK);
	assert_int_equal(cluster_check(&view.cluster, &em), OK);
}

static void a_profile_becomes_a_device(void **state)
{
	(void)state;
	struct figures f;
	figures_init(&f);
	make(&f);
	const struct cluster_device *d = &view.devices[2];
	assert_int_equal(view.cluster.n_devices, 4);
	assert_int_equal(view.members[2], 12);
	assert_true(view.head_can_hold);
	assert_string_equal(d->name, "cellar");
	assert_true(d->cap_bytes == 8 * GB && d->reserved_bytes == GB / 10 + GB / 100);
	assert_true(is_near(d->cpu_rate, 12e9) && is_near(d->cpu_rate_of[DTYPE_Q6_K], 24e9) && is_near(d->cpu_flops, 100e9));
	assert_true(is_near(d->disk_rate, 5e8) && is_near(d->visit_s, 5e-5));
	assert_int_equal(d->derived, 0);
}

static void the_rate_of_a_disk_is_that_of_the_reader_in_use(void **state)
{
	(void)state;
	struct figures f;
	figures_init(&f);
	f.profiles[1].reader = 2;
	f.profiles[2].reader = 0; // the faster one
	f.profiles[3].disk_mmap_bps = 0;
	make(&f);
	assert_true(is_near(view.devices[1].disk_rate, 2e9) && is_near(view.devices[2].disk_rate, 2e9));
	assert_true(view.devices[3].disk_rate == 0); // diskless
}

static void what_is_observed_counts_more_than_what_was_measured(void **state)
{
	(void)state;
	struct figures f;
	figures_init(&f);
	f.members[1].decode_bps = 5.5e9; // of q4_k: half of what the probe found
	f.members[1].prefill_flops = 7e10;
	f.members[1].disk_bps = 3e8; // others use it, too
	make(&f);
	assert_true(is_near(view.devices[1].cpu_rate, 5.5e9));
	assert_true(is_near(cluster_cpu_rate(&view.devices[1], DTYPE_Q4_K), 5.5e9));
	assert_true(is_near(cluster_cpu_rate(&view.devices[1], DTYPE_Q6_K), 11e9)); // slowed alike
	assert_true(is_near(view.devices[1].cpu_flops, 7e10));
	assert_true(is_near(view.devices[1].disk_rate, 3e8));
}

static void an_observation_that_no_machine_can_have_is_not_believed(void **state)
{
	(void)state;
	static const double lies[] = {1e18, 0.2, -5, 1e-300};
	struct figures f;
	figures_init(&f);
	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		f.members[1].decode_bps = f.members[1].prefill_flops = f.members[1].disk_bps = lies[i];
		make(&f); // cluster_check takes it
		assert_true(is_near(view.devices[1].disk_rate, 5e8));
		assert_true(is_near(view.devices[1].cpu_rate, 11e9) && is_near(view.devices[1].cpu_flops, 1e11));
	}
	f.members[1].decode_bps = 1; // as slow as can be said: other types may be below that
	f.profiles[1].rates[1].decode_bps = GB;
	make(&f);
	f.members[1].decode_bps = 1e15;
	make(&f);
}

static void a_type_that_was_not_measured_has_the_rate_of_another(void **state)
{
	(void)state;
	struct figures f;
	figures_init(&f);
	f.in.type = DTYPE_Q8_0;
	f.profiles[3].n_rates = 0;
	make(&f);
	assert_true(is_near(cluster_cpu_rate(&view.devices[1], DTYPE_Q8_0), 11e9));
	assert_int_equal(view.devices[1].derived & CLUSTER_CPU_RATE, 0);
	assert_true(view.devices[3].cpu_rate > 0);
	assert_int_equal(view.devices[3].derived, CLUSTER_CPU_RATE); // invented, and said so
}

static void a_way_has_half_the_mean_round_trip(void **state)
{
	(void)state;
	struct figures f;
	figures_init(&f);
	f.to[2].rate_bps = 0; // its way back is known
	f.from[2].rate_bps = GB / 20;
	f.to[3].n = 0;
	make(&f);
	assert_true(is_near(way(0, 1)->delay_s, 0.001) && is_near(way(1, 0)->rate, 1e8) && !way(0, 1)->derived);
	assert_true(is_near(way(0, 2)->rate, 5e7) && !way(0, 2)->derived);
	assert_true(is_near(way(0, 3)->delay_s, 0.003)); // as the other end sees it
}

static void one_late_round_trip_of_few_is_not_believed(void **state)
{
	(void)state;
	struct figures f;
	figures_init(&f);
	f.to[1] = (struct link_figures){.n = 5, .p50_us = 400, .p90_us = 12000, .p99_us = 12000, .mean_us = 2800};
	make(&f);
	assert_true(is_near(way(0, 1)->delay_s, 0.0004));
	f.to[1].n = 200; // a link that is like that
	make(&f);
	assert_true(is_near(way(0, 1)->delay_s, 0.0014));
}

static void nodes_that_never_met_are_joined_through_the_coordinator(void **state)
{
	(void)state;
	struct figures f;
	figures_init(&f);
	f.pair = (struct link_figures){.n = 50, .mean_us = 700, .rate_bps = GB};
	make(&f);
	assert_true(is_near(way(1, 3)->delay_s, 0.001 + 0.003) && is_near(way(1, 3)->rate, 5e7) && way(1, 3)->derived);
	assert_int_equal(way(1, 3)->via, 1); // device 0
	assert_int_equal(way(1, 2)->via, 0);
	assert_true(is_near(way(1, 2)->delay_s, 0.00035) && is_near(way(1, 2)->rate, 1e9) && !way(1, 2)->derived);
	assert_true(is_near(way(2, 1)->delay_s, 0.00035)); // seen from the other end
}

// One member's word must not take the plan from all.
static void a_way_slower_than_any_spoils_no_other(void **state)
{
	(void)state;
	struct figures f;
	figures_init(&f);
	f.to[1].n = 0;
	f.from[1].rate_bps = f.from[1].rate_least_bps = f.from[2].rate_bps = f.pair.rate_bps = 1;
	f.pair.n = 1;
	make(&f); // cluster_check takes it, and what goes through the coordinator as well
	assert_true(way(1, 0)->rate >= 1 && way(1, 3)->rate >= 1 && way(2, 3)->rate < way(0, 3)->rate);
}

static void an_unknown_way_is_a_guess_and_says_so(void **state)
{
	(void)state;
	struct figures f;
	figures_init(&f);
	f.members[1].to = f.members[1].from = NULL;
	f.to[2].rate_bps = f.from[2].rate_bps = 0;
	f.to[2].rate_least_bps = 3 * GB; // so fast that no frame could tell how fast
	make(&f);
	assert_true(way(0, 1)->derived && way(0, 1)->rate > 0);
	assert_true(way(0, 2)->derived && is_near(way(0, 2)->rate, 3e9) && is_near(way(0, 2)->delay_s, 0.002));
	assert_true(way(2, 0)->derived && is_near(way(2, 0)->rate, 3e9)); // nothing large went back
}

static void who_has_told_nothing_is_left_out_but_the_head_cannot_be(void **state)
{
	(void)state;
	struct figures f;
	figures_init(&f);
	f.profiles[1].n_threads = 0;
	f.profiles[2].reserved_bytes = 8 * GB; // a cap that leaves nothing for weights
	make(&f);
	assert_int_equal(view.cluster.n_devices, 2);
	assert_int_equal(view.n_left_out, 2);
	assert_int_equal(view.members[1], 13);
	f.members[0].profile = NULL;
	assert_int_equal(cluster_view_make(&f.in, &view, &em), ERR_STATE);
	assert_non_null(strstr(em.text, "coordinator"));
	f.members[0].can_hold = false; // then nothing hangs on its figures
	make(&f);
	assert_int_equal(view.cluster.n_devices, 2);
	assert_int_equal(view.members[0], -1);
}

static void a_head_without_a_node_is_a_device_that_holds_nothing(void **state)
{
	(void)state;
	struct figures f;
	figures_init(&f);
	f.members[0].can_hold = false;
	f.members[3].can_hold = false; // drained: no device at all
	make(&f);
	assert_int_equal(view.cluster.n_devices, 3);
	assert_false(view.head_can_hold);
	assert_int_equal(view.members[0], -1);
}

static void nodes_of_one_name_get_numbers(void **state)
{
	(void)state;
	struct figures f;
	figures_init(&f);
	static const char long_name[] = "an-attic-with-a-name-as-long-as-the-limit-of-all-names-allows-it";
	_Static_assert(sizeof long_name - 1 <= NAME_CAP, "the name is cut to its place");
	f.members[0].name = "pi#2"; // as if it knew what comes
	f.members[1].name = f.members[2].name = "pi";
	make(&f);
	assert_string_equal(view.devices[1].name, "pi");
	assert_string_not_equal(view.devices[2].name, "pi");
	assert_string_not_equal(view.devices[2].name, "pi#2");
	for (int32_t i = 0; i < 4; i++)
		f.members[i].name = long_name;
	make(&f); // cluster_check wants them different
}

// ---- of a coordinator

static void tell_profile(struct host *h, int32_t i)
{
	struct msg m = {.type = MSG_PROFILE, .u.profile = profile(10 + (uint64_t)i)};
	message(h, h->control[i], &m);
}

static void tell_way(struct host *h, int32_t i, struct node_id peer, int32_t mean_us)
{
	struct msg m = {.type = MSG_LINK_RTT, .u.link_rtt = {.peer = peer, .rtt_us = 1, .figures = {.n = 9, .mean_us = mean_us, .rate_bps = GB}}};
	message(h, h->control[i], &m);
}

static void a_coordinator_shows_the_planner_who_is_here(void **state)
{
	(void)state;
	struct host h;
	start(&h, NULL, 3);
	arrive(&h, 1);
	arrive(&h, 2);
	assert_int_equal(coordinator_view(h.c, DTYPE_Q4_K, &view, &em), OK);
	assert_int_equal(view.cluster.n_devices, 1); // nobody was measured: what the head's machine does is assumed
	assert_true(view.devices[0].derived & CLUSTER_CPU_RATE);
	assert_int_equal(cluster_check(&view.cluster, &em), OK);
	struct device_profile own = profile(30);
	struct coord_event ev = {.type = COORD_EV_PROBED, .u.probed.profile = &own};
	step(&h, &ev);
	tell_profile(&h, 1);
	tell_way(&h, 1, record(2).id, 800);
	tell_way(&h, 1, h.config.self, 600);
	tell_way(&h, 1, record(60).id, 5); // nobody's
	assert_int_equal(coordinator_view(h.c, DTYPE_Q4_K, &view, &em), OK);
	assert_int_equal(view.cluster.n_devices, 2); // the head and node 1: node 2 has not told
	assert_int_equal(view.n_left_out, 1);
	tell_profile(&h, 2);
	assert_int_equal(coordinator_view(h.c, DTYPE_Q4_K, &view, &em), OK);
	assert_int_equal(cluster_check(&view.cluster, &em), OK);
	assert_int_equal(view.cluster.n_devices, 3);
	assert_false(view.head_can_hold);
	assert_true(is_near(way(1, 2)->delay_s, 0.0004) && is_near(way(1, 0)->delay_s, 0.0003));
	struct coord_status st = status(&h);
	assert_true(st.members[0].profile.rates[0].decode_bps == 11 * GB);
	assert_int_equal(st.members[0].from_node.mean_us, 600);
	stop(&h);
}

static void what_a_member_does_replaces_what_was_measured_of_it(void **state)
{
	(void)state;
	struct host h;
	start(&h, NULL, 1);
	arrive(&h, 1);
	struct device_profile own = profile(30);
	struct coord_event ev = {.type = COORD_EV_PROBED, .u.probed.profile = &own};
	step(&h, &ev);
	tell_profile(&h, 1);
	struct msg m = {.type = MSG_NODE_REPORT};
	for (uint64_t i = 1; i <= 5; i++) { // four seconds of 6 GB/s behind what the first report says
		m.u.node_report.decode_bytes = i * 6 * GB;
		m.u.node_report.n_visits = i * 20; // which cost 50 us each, and are no computing
		m.u.node_report.decode_us = i * 1001000;
		m.u.node_report.weights.reader = 1;
		m.u.node_report.weights.read = i * GB;
		m.u.node_report.weights.read_us = i * 800000;
		message(&h, h.control[1], &m);
	}
	assert_int_equal(coordinator_view(h.c, DTYPE_Q4_K, &view, &em), OK);
	assert_true(is_near(view.devices[1].cpu_rate, 6e9) && is_near(view.devices[1].disk_rate, 1.25e9));
	assert_true(is_near(status(&h).members[0].decode_bps, 6e9));
	hello(&h, 1); // another process, whose counters begin at what they are
	m.u.node_report.decode_bytes = 900 * GB;
	message(&h, h.control[1], &m);
	assert_true(is_near(status(&h).members[0].decode_bps, 6e9));
	stop(&h);
}

static void report_reading(struct host *h, uint64_t steps, uint64_t read, uint64_t read_us, uint64_t pinned)
{
	struct msg m = {.type = MSG_NODE_REPORT, .u.node_report.weights = {.reader = 1, .steps = steps, .read = read, .read_us = read_us, .pinned = pinned}};
	message(h, h->control[1], &m);
}

static double disk_of_node(struct host *h)
{
	assert_int_equal(coordinator_view(h->c, DTYPE_Q4_K, &view, &em), OK);
	return view.devices[1].disk_rate;
}

static void counters_of_weights_loaded_anew_are_not_compared_with_those_before(void **state)
{
	(void)state;
	struct host h;
	start(&h, NULL, 1);
	arrive(&h, 1);
	tell_profile(&h, 1);
	for (uint64_t i = 1; i <= 5; i++)
		report_reading(&h, i, i * GB, i * 1000000, 7);
	assert_true(is_near(disk_of_node(&h), 1e9));
	struct msg loaded = {.type = MSG_LOADED, .u.loaded.epoch = {epoch_of(&h)}};
	message(&h, h.control[1], &loaded);
	report_reading(&h, 9, 8 * GB, 8000000, 7); // more than ever before, of which 3 GB in 3 s would be the difference
	report_reading(&h, 10, 9 * GB, 9000000, 7);
	assert_true(is_near(disk_of_node(&h), 1e9));
	message(&h, h.control[1], &loaded);
	report_reading(&h, 11, 10 * GB, 20000000, 7); // 1 GB in 11 s would be
	assert_true(is_near(disk_of_node(&h), 1e9));
	report_reading(&h, 12, 11 * GB, 40000000, 3); // with less memory, read anew without another plan
	assert_true(is_near(disk_of_node(&h), 1e9));
	report_reading(&h, 1, 12 * GB, 60000000, 3);
	assert_true(is_near(disk_of_node(&h), 1e9));
	stop(&h);
}

static void a_visit_measured_anew_is_no_computing(void **state)
{
	(void)state;
	struct host h;
	start(&h, NULL, 1);
	arrive(&h, 1);
	struct msg m = {.type = MSG_NODE_REPORT}, told = {.type = MSG_PROFILE, .u.profile = profile(11)};
	for (uint64_t i = 1; i <= 5; i++) {
		told.u.profile.visit_ns = i < 5 ? 100000 : 50000;
		message(&h, h.control[1], &told);
		m.u.node_report.decode_bytes = i * 6 * GB;
		m.u.node_report.n_visits = i * 2000;
		m.u.node_report.decode_us = i * 1200000;
		message(&h, h.control[1], &m);
	}
	assert_true(is_near(status(&h).members[0].decode_bps, 6e9));
	stop(&h);
}

static bool remembers_way(const struct host *h, int32_t i, int32_t j)
{
	struct node_id both[2] = {record(i).id, record(j).id};
	return memmem(h->c, coordinator_size(&h->config), both, sizeof both) != NULL;
}

static void a_revoked_nodes_ways_are_forgotten(void **state)
{
	(void)state;
	struct host h;
	start(&h, NULL, 2);
	arrive(&h, 1);
	arrive(&h, 2);
	tell_way(&h, 2, record(1).id, 800); // not in the order of the ring, whose neighbours have a key
	assert_true(remembers_way(&h, 2, 1));
	struct coord_event revoke = {.type = COORD_EV_REVOKE, .u.revoke = {.ticket = 1, .who = "node2"}};
	step(&h, &revoke);
	stored(&h, store_id(&h, STORE_REVOKE), OK);
	assert_false(remembers_way(&h, 2, 1));
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_profile_becomes_a_device),
		cmocka_unit_test(the_rate_of_a_disk_is_that_of_the_reader_in_use),
		cmocka_unit_test(what_is_observed_counts_more_than_what_was_measured),
		cmocka_unit_test(an_observation_that_no_machine_can_have_is_not_believed),
		cmocka_unit_test(a_type_that_was_not_measured_has_the_rate_of_another),
		cmocka_unit_test(a_way_has_half_the_mean_round_trip),
		cmocka_unit_test(one_late_round_trip_of_few_is_not_believed),
		cmocka_unit_test(nodes_that_never_met_are_joined_through_the_coordinator),
		cmocka_unit_test(a_way_slower_than_any_spoils_no_other),
		cmocka_unit_test(an_unknown_way_is_a_guess_and_says_so),
		cmocka_unit_test(who_has_told_nothing_is_left_out_but_the_head_cannot_be),
		cmocka_unit_test(a_head_without_a_node_is_a_device_that_holds_nothing),
		cmocka_unit_test(nodes_of_one_name_get_numbers),
		cmocka_unit_test(a_coordinator_shows_the_planner_who_is_here),
		cmocka_unit_test(what_a_member_does_replaces_what_was_measured_of_it),
		cmocka_unit_test(counters_of_weights_loaded_anew_are_not_compared_with_those_before),
		cmocka_unit_test(a_visit_measured_anew_is_no_computing),
		cmocka_unit_test(a_revoked_nodes_ways_are_forgotten),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
