// What is learned of a link from pings and payloads: against links whose delay, rate and jitter are known.
#include "flow/link_stats.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS INT64_C(1000000)
#define S INT64_C(1000000000)

// A link in one direction, whose far end answers at once, or is busy with the payload first.
struct line {
	struct link_stats s;
	struct rng rng;
	int64_t now, free_ns; // when what was sent has gone
	double trip_us, rate;  // bytes/s
	double jitter_us;      // mean of what a trip takes longer, exponentially
	double busy_us, busy_share; // so long, in this share of the payloads
};

static struct line line(double trip_us, double rate, double jitter_us)
{
	struct line l = {.now = S, .trip_us = trip_us, .rate = rate, .jitter_us = jitter_us};
	link_stats_init(&l.s);
	rng_init(&l.rng, 7);
	return l;
}

static int64_t trip_ns(struct line *l)
{
	double late = l->jitter_us > 0 ? -l->jitter_us * log(1 - rng_u01(&l->rng)) : 0;
	int64_t waits = l->free_ns > l->now ? l->free_ns - l->now : 0;
	return waits + (int64_t)((l->trip_us + late) * 1000);
}

static void heartbeat(struct line *l)
{
	link_stats_pinged(&l->s, l->now);
	(void)link_stats_ponged(&l->s, (uint64_t)l->now, l->now + trip_ns(l));
}

static bool payload(struct line *l, uint64_t bytes)
{
	l->free_ns = (l->free_ns > l->now ? l->free_ns : l->now) + (int64_t)((double)bytes / l->rate * 1e9);
	bool wants_ping = link_stats_sent(&l->s, bytes, l->now);
	int64_t busy_ns = rng_u01(&l->rng) < l->busy_share ? (int64_t)(l->busy_us * 1000) : 0;
	if (wants_ping)
		assert_true(link_stats_ponged(&l->s, (uint64_t)l->now, l->now + trip_ns(l) + busy_ns));
	return wants_ping;
}

static struct link_figures figures(const struct line *l)
{
	struct link_figures f;
	link_stats_figures(&l->s, &f);
	assert_true(f.p50_us <= f.p90_us && f.p90_us <= f.p99_us);
	return f;
}

static bool is_within(double got, double want, double tolerance)
{
	return fabs(got / want - 1) <= tolerance;
}

// live lets minutes pass, with three payloads in each, after some seconds in which nobody asks for anything.
static void live(struct line *l, int32_t seconds, uint64_t bytes)
{
	for (int32_t i = 0; i < 10; i++) {
		heartbeat(l);
		l->now += S;
	}
	for (int32_t i = 0; i < seconds; i++) {
		heartbeat(l);
		for (int32_t k = 0; k < 3; k++) {
			l->now += 250 * MS;
			(void)payload(l, bytes);
		}
		l->now += 250 * MS;
	}
}

static void nothing_measured_is_nothing_told(void **state)
{
	(void)state;
	struct line l = line(1000, 1e7, 0);
	struct link_figures f = figures(&l);
	assert_int_equal(f.n, 0);
	assert_true(f.rate_bps == 0 && f.rate_least_bps == 0);
}

static void round_trips_are_a_distribution(void **state)
{
	(void)state;
	struct line l = line(1000, 1e9, 0);
	for (int32_t i = 0; i < 200; i++) {
		l.trip_us = i % 100 < 50 ? 1000 : i % 100 < 89 ? 2000 : i % 100 < 98 ? 5000 : 100000;
		heartbeat(&l);
		l.now += S;
	}
	struct link_figures f = figures(&l);
	assert_int_equal(f.n, 200);
	assert_true(is_within(f.p50_us, 1000, 0.07) && is_within(f.p90_us, 5000, 0.07) && is_within(f.p99_us, 100000, 0.07));
	assert_true(is_within(f.mean_us, (50 * 1000 + 39 * 2000 + 9 * 5000 + 2 * 100000) / 100.0, 0.001));
}

static void a_quiet_link_is_known_within_a_per_cent(void **state)
{
	(void)state;
	struct line l = line(400, 11.8e6, 0);
	live(&l, 60, 8192);
	struct link_figures f = figures(&l);
	assert_true(is_within(f.mean_us, 400, 0.01) && is_within((double)f.rate_bps, 11.8e6, 0.01));
	assert_true(f.rate_least_bps <= f.rate_bps);
}

static void a_links_rate_stands_out_of_its_jitter(void **state)
{
	(void)state;
	const struct {
		double trip_us, rate, jitter_us;
		uint64_t bytes;
	} cases[] = {
		{2000, 25e6, 500, 262144}, // Wi-Fi, chunks of a prompt
		{4000, 3e6, 3000, 65536},  // a Pi on 2.4 GHz
		{30000, 2e6, 5000, 65536}, // another home
		{300, 118e6, 50, 524288},  // gigabit
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct line l = line(cases[i].trip_us, cases[i].rate, cases[i].jitter_us);
		live(&l, 180, cases[i].bytes);
		struct link_figures f = figures(&l);
		assert_true(is_within(f.mean_us, cases[i].trip_us + cases[i].jitter_us, 0.1));
		assert_true(is_within((double)f.rate_bps, cases[i].rate, 0.2));
	}
}

static void a_far_end_that_computes_does_not_make_the_link_slow(void **state)
{
	(void)state;
	for (int32_t percent = 10; percent <= 70; percent += 20) {
		struct line l = line(300, 118e6, 50);
		l.busy_us = 9000; // as long as an output head
		l.busy_share = percent / 100.0;
		live(&l, 60, 8192);
		struct link_figures f = figures(&l);
		assert_true(f.rate_bps == 0 || f.rate_bps > 50000000);
		assert_true(f.rate_bps > 0 || f.rate_least_bps > 8000000);
	}
}

static void one_late_payload_is_no_rate(void **state)
{
	(void)state;
	struct line l = line(300, 118e6, 50);
	live(&l, 0, 0);
	l.busy_us = 40000;
	l.busy_share = 1;
	(void)payload(&l, 500000);
	assert_int_equal(figures(&l).rate_bps, 0);
}

static void a_link_that_becomes_slow_is_believed(void **state)
{
	(void)state;
	struct line l = line(2000, 25e6, 500);
	live(&l, 60, 262144);
	l.rate = 3e6;
	live(&l, 180, 262144);
	assert_true(is_within((double)figures(&l).rate_bps, 3e6, 0.2));
}

static void small_frames_on_a_fast_link_tell_a_bound_only(void **state)
{
	(void)state;
	struct line l = line(500, 118e6, 400);
	live(&l, 60, 2048); // 17 us in a noise of 400
	struct link_figures f = figures(&l);
	assert_true(f.rate_bps == 0);
	assert_true(f.rate_least_bps > 1000000 && f.rate_least_bps < 118000000);
}

static void a_ping_behind_a_payload_is_no_round_trip_of_an_idle_link(void **state)
{
	(void)state;
	struct line l = line(1000, 1e6, 0); // 256 KiB take a quarter of a second
	for (int32_t i = 0; i < 100; i++) {
		(void)payload(&l, 262144);
		l.now += 10 * MS;
		heartbeat(&l); // would wait for 250 ms
		l.now += S;
		heartbeat(&l);
		l.now += S;
	}
	struct link_figures f = figures(&l);
	assert_true(f.p99_us < 1100 && is_within(f.mean_us, 1000, 0.01));
	assert_true(is_within((double)f.rate_bps, 1e6, 0.02));
}

static void frames_that_wait_for_each_other_are_not_measured(void **state)
{
	(void)state;
	struct line l = line(1000, 1e6, 0);
	int32_t n = 0;
	for (int32_t i = 0; i < 10; i++)
		heartbeat(&l), l.now += S;
	for (int32_t i = 0; i < 80; i++) { // four long prompts: one chunk after the other as fast as they are computed
		n += payload(&l, 262144);
		l.now += i % 20 == 19 ? 10 * S : 50 * MS;
	}
	assert_int_equal(n, 4);
	assert_true(is_within((double)figures(&l).rate_bps, 1e6, 0.02));
}

static void a_link_that_changes_is_known_anew_within_minutes(void **state)
{
	(void)state;
	struct line l = line(500, 50e6, 100);
	live(&l, 600, 131072);
	assert_true(is_within((double)figures(&l).rate_bps, 50e6, 0.2));
	l.trip_us = 8000;
	l.rate = 2e6;
	live(&l, 600, 131072);
	struct link_figures f = figures(&l);
	assert_true(is_within(f.mean_us, 8100, 0.15) && is_within(f.p50_us, 8100, 0.1));
	assert_true(is_within((double)f.rate_bps, 2e6, 0.2));
}

static void only_the_answer_to_a_ping_under_way_counts(void **state)
{
	(void)state;
	struct link_stats s;
	struct link_figures f;
	link_stats_init(&s);
	assert_false(link_stats_ponged(&s, 0, S));
	assert_false(link_stats_ponged(&s, S, 2 * S)); // of no ping
	link_stats_pinged(&s, 5 * S);
	assert_false(link_stats_ponged(&s, 5 * S - 1, 6 * S));
	assert_false(link_stats_ponged(&s, 5 * S, 4 * S)); // before it was sent
	assert_true(link_stats_ponged(&s, 5 * S, 6 * S));
	assert_false(link_stats_ponged(&s, 5 * S, 6 * S)); // once
	link_stats_pinged(&s, 7 * S);
	link_stats_forget(&s);
	assert_false(link_stats_ponged(&s, 7 * S, 8 * S));
	link_stats_pinged(&s, 8 * S);
	assert_false(link_stats_ponged(&s, 8 * S, 80 * S)); // older than any link lives in silence
	link_stats_figures(&s, &f);
	assert_int_equal(f.n, 1);
}

// A neighbour may hold its PONG back for as long as it likes: what is told of it must not be what a peer ends the link for.
static void a_round_trip_of_a_minute_is_told_within_bounds(void **state)
{
	(void)state;
	struct link_stats s;
	struct link_figures f;
	uint8_t frame[MSG_ENCODED_MAX];
	link_stats_init(&s);
	for (int64_t i = 1; i <= 10; i++) {
		link_stats_pinged(&s, 100 * i * S);
		assert_true(link_stats_ponged(&s, (uint64_t)(100 * i * S), (100 * i + 60) * S));
		link_stats_figures(&s, &f);
		assert_int_equal(f.mean_us, LINK_RTT_MAX_US);
		struct msg m = {.type = MSG_LINK_RTT, .u.link_rtt = {.figures = f}}, got;
		assert_int_equal(msg_decode(frame, msg_encode(&m, frame), &got, NULL), OK);
	}
}

static void any_payload_and_any_time_is_survived(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {0, 1, 1023, 1024, 4194304, UINT64_C(1) << 50, UINT64_MAX};
	struct link_stats s;
	struct link_figures f;
	struct rng r;
	int64_t now = 1;
	link_stats_init(&s);
	rng_init(&r, 3);
	for (int32_t i = 0; i < 20000; i++) {
		now += (int64_t)rng_below(&r, 1 + (UINT64_C(1) << rng_below(&r, 36)));
		if (rng_below(&r, 2) == 0)
			link_stats_pinged(&s, now);
		uint64_t cookie = (uint64_t)now;
		(void)link_stats_sent(&s, sizes[rng_below(&r, ARRAY_LEN(sizes))], now);
		now += (int64_t)rng_below(&r, 1 + (UINT64_C(1) << rng_below(&r, 36)));
		(void)link_stats_ponged(&s, rng_below(&r, 5) == 0 ? rng_u32(&r) : cookie, now);
		link_stats_figures(&s, &f);
		struct msg m = {.type = MSG_LINK_RTT, .u.link_rtt = {.figures = f}}, got;
		uint8_t frame[MSG_ENCODED_MAX];
		assert_int_equal(msg_decode(frame, msg_encode(&m, frame), &got, NULL), OK); // within what a peer takes
	}
	assert_true(s.n > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_measured_is_nothing_told),
		cmocka_unit_test(round_trips_are_a_distribution),
		cmocka_unit_test(a_quiet_link_is_known_within_a_per_cent),
		cmocka_unit_test(a_links_rate_stands_out_of_its_jitter),
		cmocka_unit_test(a_far_end_that_computes_does_not_make_the_link_slow),
		cmocka_unit_test(one_late_payload_is_no_rate),
		cmocka_unit_test(a_link_that_becomes_slow_is_believed),
		cmocka_unit_test(small_frames_on_a_fast_link_tell_a_bound_only),
		cmocka_unit_test(a_ping_behind_a_payload_is_no_round_trip_of_an_idle_link),
		cmocka_unit_test(frames_that_wait_for_each_other_are_not_measured),
		cmocka_unit_test(a_link_that_changes_is_known_anew_within_minutes),
		cmocka_unit_test(only_the_answer_to_a_ping_under_way_counts),
		cmocka_unit_test(a_round_trip_of_a_minute_is_told_within_bounds),
		cmocka_unit_test(any_payload_and_any_time_is_survived),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
