// What the relay does to connections: delays, rates, slowness, freezes, and cuts of every kind.
#include "sim/shell/emulate.h"

#include "tests/support/relay_world.h"

#include <pthread.h> // the relay has a thread: tools/run_tests.py looks for this

// ---- Time

static int64_t round_trip_ns(const int fds[2])
{
	int64_t begin_ns = poller_clock_ns();
	put(fds[0], "ping");
	get(fds[1], "ping");
	put(fds[1], "pong");
	get(fds[0], "pong");
	return poller_clock_ns() - begin_ns;
}

static void a_delay_is_never_shorter_than_the_model(void **state)
{
	(void)state;
	struct world *w = start("[network]\ndelay = \"20 ms\"\n");
	int fds[2];
	int64_t best_ns = INT64_MAX, begin_ns = poller_clock_ns();
	fds[0] = dial(w, 0, 1);
	put(fds[0], "first");
	fds[1] = take(w, 1);
	get(fds[1], "first");
	assert_true(poller_clock_ns() - begin_ns >= 60 * MS); // there, back, there: the handshake before the first byte
	// The best of five, and of as many more as fit into our patience when the machine is busy.
	begin_ns = poller_clock_ns();
	for (int i = 0; i < 5 || (best_ns >= 80 * MS && poller_clock_ns() - begin_ns < PATIENCE_MS * MS); i++) {
		int64_t ns = round_trip_ns(fds);
		assert_true(ns >= 40 * MS);
		best_ns = ns < best_ns ? ns : best_ns;
	}
	assert_true(best_ns < 80 * MS);
	close_pair(fds);
	stop(w);
}

static void a_rate_holds_back_what_is_over_it(void **state)
{
	(void)state;
	struct world *w = start("[network]\nrate = \"8 Mbit/s\"\n"); // a megabyte a second
	int fds[2];
	open_pair(w, 0, 1, fds);
	struct flood f = {fds[0], 300000};
	int64_t begin_ns = poller_clock_ns();
	assert_null(send_flood(&f));
	read_flood(fds[1], f.bytes);
	assert_true(poller_clock_ns() - begin_ns >= 299 * MS);
	close_pair(fds);
	stop(w);
}

static void slowness_multiplies_delays_until_it_is_healed(void **state)
{
	(void)state;
	struct world *w = start("[network]\ndelay = \"10 ms\"\n");
	int fds[2];
	open_pair(w, 0, 1, fds);
	tell(w, "slow a b 4");
	assert_true(round_trip_ns(fds) >= 80 * MS);
	assert_answer(w, "status", "\"slow\":4.0");
	tell(w, "heal a b");
	assert_answer(w, "status", "\"slow\":1.0");
	close_pair(fds);
	stop(w);
}

static void a_freeze_lets_all_arrive_when_it_ends(void **state)
{
	(void)state;
	struct world *w = start("");
	int fds[2];
	open_pair(w, 0, 1, fds);
	round_trip_ns(fds);
	int64_t begin_ns = poller_clock_ns();
	tell(w, "freeze b 1");
	put(fds[0], "one");
	assert_silent(fds[1]);
	put(fds[0], "two");
	get(fds[1], "onetwo");
	assert_true(poller_clock_ns() - begin_ns >= 1000 * MS);
	close_pair(fds);
	stop(w);
}

// ---- Cuts

static void a_reset_cut_ends_both_sides_and_refuses_until_healed(void **state)
{
	(void)state;
	struct world *w = start("");
	int ab[2], ac[2];
	open_pair(w, 0, 1, ab);
	open_pair(w, 0, 2, ac);
	round_trip_ns(ab);
	assert_answer(w, "cut b a reset", "\"connections\":1"); // a pair has no order
	assert_reset(ab[0]);
	assert_reset(ab[1]);
	round_trip_ns(ac);
	int fd = dial(w, 0, 1);
	assert_reset(fd);
	close(fd);
	close_pair(ab);
	tell(w, "heal a b");
	open_pair(w, 0, 1, ab);
	round_trip_ns(ab);
	close_pair(ab);
	close_pair(ac);
	stop(w);
}

static void behind_a_black_hole_all_is_silent_until_it_is_healed(void **state)
{
	(void)state;
	struct world *w = start("");
	int fds[2];
	open_pair(w, 0, 1, fds);
	round_trip_ns(fds);
	tell(w, "cut a b blackhole");
	put(fds[0], "there");
	put(fds[1], "back");
	int late = dial(w, 0, 1); // the kernel's part of it succeeds
	put(late, "late");
	assert_silent(fds[0]);
	assert_silent(fds[1]);
	assert_silent(w->listeners[1]);
	assert_answer(w, "status", "\"held\":2");
	tell(w, "heal a b");
	get(fds[1], "there");
	get(fds[0], "back");
	int other = take(w, 1);
	get(other, "late");
	close(late);
	close(other);
	close_pair(fds);
	stop(w);
}

static void the_end_of_a_process_behind_a_black_hole_is_not_heard(void **state)
{
	(void)state;
	struct world *w = start("");
	int fds[2];
	open_pair(w, 0, 1, fds);
	round_trip_ns(fds);
	tell(w, "cut a *  blackhole");
	reset(fds[1]);
	assert_silent(fds[0]);
	tell(w, "heal a *");
	assert_reset(fds[0]);
	close(fds[0]);
	stop(w);
}

static void a_one_way_cut_lets_the_other_way_pass(void **state)
{
	(void)state;
	struct world *w = start("");
	int fds[2];
	open_pair(w, 0, 1, fds);
	round_trip_ns(fds);
	tell(w, "cut b a oneway");
	put(fds[0], "there");
	get(fds[1], "there");
	put(fds[1], "back");
	assert_silent(fds[0]);
	assert_answer(w, "status", "\"silent_out\":true,\"silent_in\":false");
	tell(w, "heal");
	get(fds[0], "back");
	close_pair(fds);
	stop(w);
}

static void whoever_gives_up_behind_a_black_hole_leaves_nothing(void **state)
{
	(void)state;
	struct world *w = start("");
	tell(w, "cut a b blackhole");
	for (int i = 0; i < 2 * EMULATE_CONNECTIONS_MAX; i++) {
		int fd = dial(w, 0, 1);
		put(fd, "hello");
		close(fd);
	}
	// Accepted in order: when the relay has the last one, it has had them all.
	tell(w, "cut c b blackhole");
	int last = dial(w, 2, 1), fds[2];
	wait_answer(w, "status", "\"from\":\"c\",\"to\":\"b\",\"open\":0,\"held\":1");
	wait_answer(w, "status", "\"from\":\"a\",\"to\":\"b\",\"open\":0,\"held\":0");
	close(last);
	wait_answer(w, "status", "\"from\":\"c\",\"to\":\"b\",\"open\":0,\"held\":0");
	tell(w, "heal");
	open_pair(w, 0, 1, fds);
	round_trip_ns(fds);
	close_pair(fds);
	stop(w);
}

static void a_place_held_for_long_is_given_to_another(void **state)
{
	(void)state;
	struct world *w = start("");
	int held[EMULATE_CONNECTIONS_MAX], fds[2];
	tell(w, "cut a b blackhole");
	for (int i = 0; i < EMULATE_CONNECTIONS_MAX; i++)
		held[i] = dial(w, 0, 1);
	wait_answer(w, "status", "\"held\":512");
	int refused = dial(w, 0, 2); // the first one goes for it
	assert_reset(held[0]);
	assert_reset(refused);
	open_pair(w, 0, 2, fds);
	round_trip_ns(fds);
	close_pair(fds);
	close(refused);
	for (int i = 0; i < EMULATE_CONNECTIONS_MAX; i++)
		close(held[i]);
	stop(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_delay_is_never_shorter_than_the_model),
		cmocka_unit_test(a_rate_holds_back_what_is_over_it),
		cmocka_unit_test(slowness_multiplies_delays_until_it_is_healed),
		cmocka_unit_test(a_freeze_lets_all_arrive_when_it_ends),
		cmocka_unit_test(a_reset_cut_ends_both_sides_and_refuses_until_healed),
		cmocka_unit_test(behind_a_black_hole_all_is_silent_until_it_is_healed),
		cmocka_unit_test(the_end_of_a_process_behind_a_black_hole_is_not_heard),
		cmocka_unit_test(a_one_way_cut_lets_the_other_way_pass),
		cmocka_unit_test(whoever_gives_up_behind_a_black_hole_leaves_nothing),
		cmocka_unit_test(a_place_held_for_long_is_given_to_another),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
