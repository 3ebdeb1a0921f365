// The link model: order, rates, shared air, blocks, limits, and one golden history. Losses, cuts and replay: test_network_faults.c.
#include "sim/network.h"

#include "tests/support/network_world.h"

#define GOLDEN_HASH UINT64_C(0x32ff3e65f46a60f1) // of 100,000 arrivals

// Rates

static void a_wire_without_parameters_delivers_at_once(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	int32_t f = open_flow(w, 0, 1);
	assert_int_equal(send_forward(w, f, 1 << 20, 5), 5);
	assert_int_equal(send_way(w, f, NETWORK_BACK, 0, 7), 7);
	set_link(w, 0, 1, (struct network_link_params){.base_ns = 3 * MS});
	assert_int_equal(send_forward(w, f, 1, 10), 10 + 3 * MS);
	close_world(w);
}

static void a_rate_is_exact_to_the_nanosecond_over_any_number_of_messages(void **state)
{
	(void)state;
	static const uint64_t rates[] = {1000, 1234567, 40000000, 999999999999};
	for (size_t r = 0; r < ARRAY_LEN(rates); r++) {
		struct world *w = open_world(&small, 1);
		struct rng sizes;
		rng_init(&sizes, 1);
		set_link(w, 2, 1, (struct network_link_params){.rate_bps = rates[r]});
		int32_t f = open_flow(w, 2, 1);
		unsigned __int128 sum = 0;
		for (int i = 0; i < 1000; i++) {
			size_t bytes = (size_t)rng_below(&sizes, 5000);
			sum += bytes;
			int64_t want = (int64_t)((sum * 8000000000u + rates[r] - 1) / rates[r]);
			assert_int_equal(send_forward(w, f, bytes, 0), want);
		}
		close_world(w);
	}
}

static void each_direction_queues_for_itself_and_an_idle_queue_owes_nothing(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	set_link(w, 3, 1, (struct network_link_params){.rate_bps = 8000000, .rate_back_bps = 16000000}); // 1,000 and 2,000 bytes/ms
	int32_t f = open_flow(w, 3, 1), g = open_flow(w, 1, 3);
	assert_int_equal(send_forward(w, f, 5000, 0), 5 * MS);
	assert_int_equal(send_way(w, f, NETWORK_BACK, 5000, 0), 2500 * US);
	assert_int_equal(send_way(w, g, NETWORK_BACK, 1000, 1 * MS), 6 * MS); // the same wire as f forward
	assert_int_equal(send_forward(w, g, 1000, 1 * MS), 3 * MS);
	assert_int_equal(send_forward(w, f, 1000, 100 * MS), 101 * MS);
	close_world(w);
}

static void a_wired_leg_is_shared_by_all_its_machine_sends(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	set_station(w, 0, (struct network_station_params){.access_point = NETWORK_WIRED, .up_bps = 8000000, .down_bps = 80000000});
	int32_t f = open_flow(w, 0, 1), g = open_flow(w, 0, 2);
	assert_int_equal(send_forward(w, f, 1000, 0), 1 * MS);
	assert_int_equal(send_forward(w, g, 1000, 0), 2 * MS);
	assert_int_equal(send_way(w, g, NETWORK_BACK, 10000, 0), 1 * MS);
	close_world(w);
}

static void a_slow_queue_towards_one_machine_does_not_delay_another(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	set_link(w, 0, 1, (struct network_link_params){.rate_bps = 8000});
	int32_t f = open_flow(w, 0, 1), g = open_flow(w, 0, 2);
	assert_int_equal(send_forward(w, f, 1000, 0), 1 * S);
	assert_int_equal(send_forward(w, g, 1000, 1), 1);
	close_world(w);
}

// drain sends 100 messages of 10,000 bytes on each flow in turn and returns when the last one of flow 0 is there.
static int64_t drain(struct world *w, const int32_t *flows, int n)
{
	int64_t last_ns = 0;
	for (int i = 0; i < 100; i++)
		for (int k = 0; k < n; k++) {
			int64_t t = send_forward(w, flows[k], 10000, 0);
			last_ns = k == 0 ? t : last_ns;
		}
	return last_ns;
}

static void two_stations_of_one_access_point_get_half_its_air_each(void **state)
{
	(void)state;
	const struct network_station_params at0 = {.access_point = 0, .air_bps = 80000000}, at1 = {.access_point = 1, .air_bps = 80000000};
	struct world *w = open_world(&small, 1);
	for (int32_t i = 0; i < 2; i++)
		set_station(w, i, at0);
	set_station(w, 2, at1);
	int32_t alone[] = {open_flow(w, 2, 7)}, both[] = {open_flow(w, 0, 7), open_flow(w, 1, 7)};
	assert_int_equal(drain(w, alone, 1), 100 * MS);
	assert_int_equal(drain(w, both, 2), 199 * MS); // the last message of the other station comes one later
	close_world(w);
}

static void from_station_to_station_the_air_is_paid_twice(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	for (int32_t i = 0; i < 3; i++)
		set_station(w, i, (struct network_station_params){.access_point = i / 2, .air_bps = i == 1 ? 40000000 : 80000000});
	int32_t f = open_flow(w, 0, 1), g = open_flow(w, 2, 7);
	assert_int_equal(send_forward(w, f, 10000, 0), 3 * MS); // 1 ms at 0's speed, 2 ms at 1's
	assert_int_equal(send_forward(w, f, 10000, 0), 6 * MS);
	assert_int_equal(send_forward(w, g, 10000, 0), 1 * MS); // another access point
	close_world(w);
}

static void slowness_divides_rates_and_multiplies_delays_until_it_heals(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	set_link(w, 0, 1, (struct network_link_params){.base_ns = 2 * MS, .rate_bps = 8000000, .rate_back_bps = 8000000});
	int32_t f = open_flow(w, 0, 1);
	assert_int_equal(send_forward(w, f, 1000, 0), 3 * MS);
	assert_int_equal(network_slow(&w->net, 1, 0, 0.25, 3), OK);
	assert_int_equal(send_forward(w, f, 1000, 1 * S), 1 * S + 4 * MS + 6 * MS);
	assert_int_equal(network_heal(&w->net, 0, 1), OK);
	assert_int_equal(send_forward(w, f, 1000, 2 * S), 2 * S + 3 * MS);
	set_station(w, 0, (struct network_station_params){.access_point = 0, .air_bps = 80000000});
	assert_int_equal(network_slow(&w->net, 0, NETWORK_ALL, 0.01, 1), OK);
	assert_int_equal(send_forward(w, f, 1000, 3 * S), 3 * S + 10 * MS + 2 * MS);
	close_world(w);
}

// Order

static void no_flow_is_ever_reordered(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 3);
	struct rng r;
	rng_init(&r, 9);
	int32_t flows[12];
	int64_t last_ns[12][2] = {{0}}, now_ns = 0;
	for (int32_t i = 0; i < 6; i++)
		set_station(w, i, (struct network_station_params){
			.access_point = i % 3 - 1, .delay = by_profile(profile_at((size_t)i + 1)), .air_bps = 30000000});
	for (int32_t i = 0; i < 12; i++) {
		set_link(w, i % 6, (i + 1) % 6, (struct network_link_params){.loss = 0.02, .rate_bps = 50000000});
		flows[i] = open_flow(w, i % 6, (i + 1) % 6);
	}
	int n_same = 0;
	for (int i = 0; i < 40000; i++) {
		uint64_t k = rng_below(&r, 12), d = rng_below(&r, 2);
		now_ns += (int64_t)rng_below(&r, (uint64_t)(2 * MS));
		int64_t t = send_way(w, flows[k], (enum network_direction)d, (size_t)rng_below(&r, 20000), now_ns);
		assert_true(t >= last_ns[k][d]);
		n_same += t == last_ns[k][d];
		last_ns[k][d] = t;
	}
	assert_true(n_same > 100); // blocks did hold some back
	assert_true(w->net.stats.n_lost > 500);
	assert_true(w->net.stats.n_blocked > 500);
	close_world(w);
}

static void a_stall_releases_all_flows_of_its_link_together(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	int32_t f = open_flow(w, 0, 1), g = open_flow(w, 1, 0), other = open_flow(w, 0, 2);
	set_link(w, 0, 1, (struct network_link_params){.base_ns = 1 * MS});
	int64_t before = send_forward(w, f, 10, 0);
	assert_int_equal(network_stall(&w->net, 1, 0, 500 * MS), OK);
	assert_int_equal(before, 1 * MS);
	assert_int_equal(send_forward(w, f, 10, 100 * MS), 500 * MS);
	assert_int_equal(send_forward(w, f, 10, 200 * MS), 500 * MS);
	assert_int_equal(send_forward(w, g, 10, 300 * MS), 500 * MS);
	assert_int_equal(send_forward(w, other, 10, 300 * MS), 300 * MS);
	assert_int_equal(send_forward(w, f, 10, 500 * MS), 501 * MS);
	// A machine's leg stalls all that passes it.
	assert_int_equal(network_stall(&w->net, 0, NETWORK_ALL, 900 * MS), OK);
	assert_int_equal(send_forward(w, other, 10, 600 * MS), 900 * MS);
	assert_int_equal(send_forward(w, g, 10, 600 * MS), 900 * MS);
	close_world(w);
}

// Draws

static const struct profile always_tail = {.name = "tail", .tail = {1, PROFILE_UNIFORM, 80, 80.000001, 0}, .base_dwell_s = 1};

static void a_tail_event_lets_nothing_pass_before_its_half_and_its_end(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	set_station(w, 0, (struct network_station_params){.access_point = NETWORK_WIRED, .delay = by_profile(&always_tail)});
	int32_t f = open_flow(w, 0, 1), g = open_flow(w, 2, 0);
	assert_int_equal(send_forward(w, f, 10, 1 * S), 1 * S + 40 * MS);
	assert_int_equal(send_forward(w, f, 10, 1 * S + 5 * MS), 1 * S + 40 * MS);
	assert_int_equal(send_forward(w, g, 10, 1 * S + 39 * MS), 1 * S + 40 * MS);
	assert_int_equal(send_forward(w, g, 10, 1 * S + 40 * MS), 1 * S + 80 * MS); // the answer: a round trip in all
	assert_int_equal(send_forward(w, f, 10, 1 * S + 70 * MS), 1 * S + 80 * MS);
	assert_int_equal(send_forward(w, f, 10, 1 * S + 80 * MS), 1 * S + 120 * MS); // the next event
	close_world(w);
}

static void three_tail_events_in_ten_hit_the_whole_access_point(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 5);
	set_station(w, 0, (struct network_station_params){.access_point = 0, .delay = by_profile(&always_tail)});
	set_station(w, 1, (struct network_station_params){.access_point = 0});
	set_station(w, 2, (struct network_station_params){.access_point = 1});
	int32_t f = open_flow(w, 0, 7), g = open_flow(w, 7, 1), h = open_flow(w, 7, 2);
	int n_hit = 0, n = 4000;
	for (int i = 0; i < n; i++) {
		int64_t t = (int64_t)i * S;
		(void)send_forward(w, f, 10, t);
		int64_t at = send_forward(w, g, 10, t + 1 * MS);
		assert_true(at == t + 1 * MS || at == t + 40 * MS);
		n_hit += at == t + 40 * MS;
		assert_int_equal(send_forward(w, h, 10, t + 2 * MS), t + 2 * MS);
	}
	assert_in_range(n_hit, n * 27 / 100, n * 33 / 100); // four standard deviations
	close_world(w);
}

static void power_save_delays_only_what_finds_the_link_idle(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 2);
	set_station(w, 0, (struct network_station_params){.access_point = 0, .delay = by_profile(profile_find("W5b"))});
	int32_t f = open_flow(w, 7, 0);
	int n_late_idle = 0, n_late_warm = 0;
	int64_t t = 0;
	for (int i = 0; i < 1000; i++, t += 1 * S)
		n_late_idle += send_forward(w, f, 10, t) >= t + 25 * MS;
	assert_in_range(n_late_idle, 330, 470);
	for (int i = 0; i < 20000; i++) {
		t += 50 * MS;
		n_late_warm += send_forward(w, f, 10, t) >= t + 25 * MS && i > 10;
	}
	assert_int_equal(n_late_warm, 0);
	close_world(w);
}

static int compare_i64(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

// Pings of a station of W1, a second apart: the round trips are the profile's (2.04, 3.63 and 10.2 ms), though each is sent as two messages.
static void a_request_and_its_answer_make_one_round_trip_of_the_profile(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 4);
	set_station(w, 0, (struct network_station_params){.access_point = 0, .delay = by_profile(profile_find("W1"))});
	int32_t f = open_flow(w, 0, 7);
	enum { N = 50000 };
	int64_t *rtt = malloc(N * sizeof *rtt);
	assert_non_null(rtt);
	for (int i = 0; i < N; i++) {
		int64_t t = (int64_t)i * S;
		rtt[i] = send_way(w, f, NETWORK_BACK, 64, send_forward(w, f, 64, t)) - t;
	}
	qsort(rtt, N, sizeof *rtt, compare_i64);
	assert_in_range(rtt[N / 2], 2000 * US, 2080 * US);
	assert_in_range(rtt[N * 9 / 10], 3550 * US, 3710 * US);
	assert_in_range(rtt[N * 99 / 100], 9700 * US, 10800 * US);
	free(rtt);
	close_world(w);
}

static void a_restart_is_silence_for_every_station_of_the_access_point(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 6);
	int32_t flows[3];
	for (int32_t i = 0; i < 3; i++) {
		set_station(w, i, (struct network_station_params){.access_point = 0, .delay = by_profile(profile_find("W8"))});
		flows[i] = open_flow(w, i, 7);
	}
	int first_late[3] = {-1, -1, -1}, n_late = 0;
	for (int s = 0; s < 500; s++)
		for (int i = 0; i < 3; i++) {
			int64_t t = (int64_t)s * S;
			bool is_late = send_forward(w, flows[i], 10, t) - t > 5 * S;
			n_late += is_late;
			if (is_late && first_late[i] < 0)
				first_late[i] = s;
		}
	assert_in_range(first_late[0], 10, 60);
	assert_int_equal(first_late[1], first_late[0]);
	assert_int_equal(first_late[2], first_late[0]);
	assert_in_range(n_late, 3 * 40, 3 * 250); // 45 to 120 s, and up to as long again until the retransmission
	close_world(w);
}

// Limits

static void what_does_not_fit_is_refused_and_closed_flows_make_room(void **state)
{
	(void)state;
	const struct network_limits tiny = {.machines_max = 4, .links_max = 2, .flows_max = 3};
	struct world *w = open_world(&tiny, 1);
	struct errmsg em;
	int32_t f = open_flow(w, 0, 1), x;
	(void)open_flow(w, 1, 0);
	(void)open_flow(w, 0, 2);
	assert_int_equal(network_open_flow(&w->net, 0, 1, &x), ERR_LIMIT);
	network_close_flow(&w->net, f);
	assert_int_equal(network_open_flow(&w->net, 2, 3, &x), ERR_LIMIT);
	assert_int_equal(network_cut(&w->net, 2, 3, NETWORK_CUT_RESET), ERR_LIMIT);
	assert_int_equal(network_link(&w->net, 2, 3, &(struct network_link_params){.loss = 0}, &em), ERR_LIMIT);
	assert_int_equal(open_flow(w, 0, 1), f);
	close_world(w);
	struct network n;
	struct arena a;
	assert_int_equal(arena_open(network_arena_bytes(&small) - 64, &a), OK);
	assert_int_equal(network_init(&n, &a, &small, 1), ERR_LIMIT);
	arena_close(&a);
}

static void a_thousand_machines_fit_into_a_few_megabytes(void **state)
{
	(void)state;
	const struct network_limits swarm = {.machines_max = 1001, .access_points_max = 1000, .links_max = 8000, .flows_max = 16000};
	size_t bytes = network_arena_bytes(&swarm);
	assert_in_range(bytes, 1 << 20, 9 << 20);
	struct world *w = open_world(&swarm, 1);
	for (int32_t i = 1; i <= 1000; i++)
		for (int32_t k = 0; k < 8; k++)
			(void)send_forward(w, open_flow(w, i, (i * (k + 3) + k) % 1001 == i ? 0 : (i * (k + 3) + k) % 1001), 100, i);
	close_world(w);
}

static void parameters_out_of_range_are_refused_with_words(void **state)
{
	(void)state;
	struct arena a;
	const struct trace *table = parse(&a, "1 2\n");
	const struct network_link_params bad[] = {
		{.base_ns = -1}, {.base_ns = NETWORK_DELAY_MAX_NS + 1}, {.loss = 1}, {.loss = -0.1}, {.loss = __builtin_nan("")},
		{.rate_bps = 999}, {.rate_back_bps = NETWORK_RATE_MAX + 1}, {.delay = {.kind = NETWORK_DELAY_PROFILE}},
		{.delay = {.kind = NETWORK_DELAY_TRACE, .trace = table}}, {.delay = {.kind = NETWORK_DELAY_TABLE}},
		{.delay = {.kind = NETWORK_DELAY_TABLE, .trace = table, .spread_ns = -1}}, {.deliveries = table}, {.delay = {.offset_ns = -1}},
	};
	struct world *w = open_world(&small, 1);
	struct errmsg em;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		em.text[0] = '\0';
		assert_int_equal(network_link(&w->net, 0, 1, &bad[i], &em), ERR_RANGE);
		assert_int_equal(network_default_link(&w->net, &bad[i], &em), ERR_RANGE);
		assert_true(em.text[0] != '\0');
	}
	assert_int_equal(network_station(&w->net, 0, &(struct network_station_params){.access_point = 2}, &em), ERR_RANGE);
	assert_string_equal(em.text, "access point 2 (there are 2)");
	assert_int_equal(network_station(&w->net, 0, &(struct network_station_params){.access_point = -2}, &em), ERR_RANGE);
	close_world(w);
	arena_close(&a);
}

static void extreme_messages_and_times_do_not_overflow(void **state)
{
	(void)state;
	struct world *w = open_world(&small, 1);
	set_link(w, 0, 1, (struct network_link_params){.base_ns = NETWORK_DELAY_MAX_NS, .rate_bps = NETWORK_RATE_MIN, .delay = by_profile(profile_find("W6"))});
	assert_int_equal(network_slow(&w->net, 0, 1, 1e-300, 1000), OK);
	int32_t f = open_flow(w, 0, 1);
	int64_t last_ns = 0;
	for (int i = 0; i < 3000; i++) {
		int64_t t = send_forward(w, f, NETWORK_MESSAGE_MAX, (int64_t)i * 1000000 * S);
		assert_true(t >= last_ns);
		last_ns = t;
	}
	assert_true(last_ns > 0);
	close_world(w);
}

// Determinism

static void build_home(struct world *w, const struct trace *delays, const struct trace *table, const struct trace *deliveries)
{
	static const char *const stations[] = {"W1", "W2", "W3", "W5", "W6", "W7"};
	for (int32_t i = 0; i < 6; i++)
		set_station(w, i, (struct network_station_params){.access_point = i % 2, .delay = by_profile(profile_find(stations[i])), .air_bps = 30000000});
	set_link(w, 0, 6, (struct network_link_params){.base_ns = 3 * MS, .delay = {NETWORK_DELAY_TRACE, .trace = delays}, .loss = 0.01});
	set_link(w, 6, 7, (struct network_link_params){.base_ns = 20 * MS, .delay = {NETWORK_DELAY_TABLE, .trace = table, .spread_ns = 4 * MS}, .rate_bps = 9000000});
	set_link(w, 1, 7, (struct network_link_params){.deliveries = deliveries, .delay = by_profile(profile_find("W8"))});
	set_link(w, 2, 3, (struct network_link_params){.delay = by_profile(profile_find("W4")), .loss = 0.001});
}

// run_home sends 100,000 messages with faults between and returns the FNV-1a hash of their fates and arrivals.
static uint64_t run_home(uint64_t seed)
{
	struct arena a[3];
	const struct trace *delays = parse(&a[0], "t_s,rtt_ms,lost\n0,5.5,0\n0.5,7.25,0\n1,,1\n1.25,300,0\n2,4,0\n");
	const struct trace *table = parse(&a[1], "-9000 -4000 -100\n30 5000 20000\n"), *deliveries = parse(&a[2], "1\n2\n2\n5\n9\n");
	struct world *w = open_world(&small, seed);
	struct rng r;
	rng_init(&r, seed);
	build_home(w, delays, table, deliveries);
	int32_t flows[40];
	for (int32_t i = 0; i < 40; i++)
		flows[i] = open_flow(w, i % 8, (i % 8 + 1 + i / 8) % 8);
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	int64_t now_ns = 0, at;
	for (int i = 0; i < 100000; i++) {
		now_ns += (int64_t)rng_below(&r, (uint64_t)(4 * MS));
		int32_t f = flows[rng_below(&r, 40)];
		enum network_direction d = (enum network_direction)rng_below(&r, 2);
		at = -1;
		uint64_t fate = (uint64_t)network_send(&w->net, f, d, (size_t)rng_below(&r, 6000), now_ns, &at);
		if (fate == NETWORK_SWALLOWED)
			fate += (uint64_t)network_retransmit(&w->net, f, d, now_ns, &at) * 4;
		hash = (hash ^ (uint64_t)at) * UINT64_C(0x100000001b3);
		hash = (hash ^ fate) * UINT64_C(0x100000001b3);
		int32_t x = (int32_t)rng_below(&r, 8), y = (x + 1 + (int32_t)rng_below(&r, 7)) % 8;
		if (i % 500 == 100)
			assert_int_equal(network_cut(&w->net, x, y, rng_below(&r, 2) ? NETWORK_CUT_BLACK_HOLE : NETWORK_CUT_ONE_WAY), OK);
		else if (i % 500 == 200)
			assert_int_equal(network_slow(&w->net, x, i % 1000 < 500 ? NETWORK_ALL : y, 0.3, 1.7), OK);
		else if (i % 500 == 300)
			assert_int_equal(network_stall(&w->net, x, y, now_ns + 300 * MS), OK);
		else if (i % 500 == 400)
			for (x = 0; x < 8; x++)
				for (y = x + 1; y < 8; y++)
					assert_int_equal(network_heal(&w->net, x, y), OK);
	}
	assert_true(w->net.stats.n_lost > 1000 && w->net.stats.n_blocked > 1000 && w->net.stats.n_swallowed > 100);
	close_world(w);
	for (int i = 0; i < 3; i++)
		arena_close(&a[i]);
	return hash;
}

static void the_same_seed_and_calls_give_the_same_arrivals_on_every_machine(void **state)
{
	(void)state;
	uint64_t hash = run_home(1);
	assert_true(hash == run_home(1));
	assert_true(hash != run_home(2));
	if (hash != GOLDEN_HASH)
		print_error("got 0x%016llx\n", (unsigned long long)hash);
	assert_true(hash == GOLDEN_HASH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wire_without_parameters_delivers_at_once),
		cmocka_unit_test(a_rate_is_exact_to_the_nanosecond_over_any_number_of_messages),
		cmocka_unit_test(each_direction_queues_for_itself_and_an_idle_queue_owes_nothing),
		cmocka_unit_test(a_wired_leg_is_shared_by_all_its_machine_sends),
		cmocka_unit_test(a_slow_queue_towards_one_machine_does_not_delay_another),
		cmocka_unit_test(two_stations_of_one_access_point_get_half_its_air_each),
		cmocka_unit_test(from_station_to_station_the_air_is_paid_twice),
		cmocka_unit_test(slowness_divides_rates_and_multiplies_delays_until_it_heals),
		cmocka_unit_test(no_flow_is_ever_reordered),
		cmocka_unit_test(a_stall_releases_all_flows_of_its_link_together),
		cmocka_unit_test(a_tail_event_lets_nothing_pass_before_its_half_and_its_end),
		cmocka_unit_test(three_tail_events_in_ten_hit_the_whole_access_point),
		cmocka_unit_test(power_save_delays_only_what_finds_the_link_idle),
		cmocka_unit_test(a_request_and_its_answer_make_one_round_trip_of_the_profile),
		cmocka_unit_test(a_restart_is_silence_for_every_station_of_the_access_point),
		cmocka_unit_test(what_does_not_fit_is_refused_and_closed_flows_make_room),
		cmocka_unit_test(a_thousand_machines_fit_into_a_few_megabytes),
		cmocka_unit_test(parameters_out_of_range_are_refused_with_words),
		cmocka_unit_test(extreme_messages_and_times_do_not_overflow),
		cmocka_unit_test(the_same_seed_and_calls_give_the_same_arrivals_on_every_machine),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
