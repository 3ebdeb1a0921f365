#include "net/link_listener.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/link_world.h"
#include "tests/support/sockets.h"

#define MS INT64_C(1000000)

static struct world *open_with(struct link_limits limits)
{
	return world_open(LNK1_MEMBER, LNK1_DATA, &limits);
}

struct stats_wanted {
	struct world *w;
	uint64_t n_accepted, n_failed;
};

static bool stats_reached(void *ctx)
{
	struct stats_wanted *x = ctx;
	struct link_listener_stats s = link_listener_get_stats(x->w->listener);
	return s.n_accepted >= x->n_accepted && s.n_failed >= x->n_failed;
}

static void wait_accepted(struct world *w, uint64_t n)
{
	assert_true(world_run(w, stats_reached, &(struct stats_wanted){w, n, 0}));
}

static void wait_failed(struct world *w, uint64_t n)
{
	assert_true(world_run(w, stats_reached, &(struct stats_wanted){w, 0, n}));
}

static int count_closed(const int *fds, int n)
{
	int closed = 0;
	for (int i = 0; i < n; i++)
		closed += socket_is_closed(fds[i]);
	return closed;
}

// A good M1 of the fixture's member.
static void send_m1(struct world *w, int fd)
{
	struct lnk1_client c;
	struct lnk1_client_random rnd;
	randombytes_buf(&rnd, sizeof rnd);
	assert_int_equal(lnk1_client_init(&c, &w->fix.client, &rnd), LNK1_SEND);
	size_t len;
	const uint8_t *m1 = lnk1_client_out(&c, &len);
	socket_send(fd, m1, len);
	lnk1_client_deinit(&c);
}

// ---- How many ----

static void of_200_half_open_connections_the_newest_64_stay_and_a_member_still_gets_in(void **state)
{
	(void)state;
	struct world *w = open_with(link_limits_default);
	int fds[200];
	char from[32];
	for (int i = 0; i < 200; i++) {
		snprintf(from, sizeof from, "127.0.1.%d", 1 + i % 20); // ten of each: below the limit of one address
		fds[i] = socket_connect(from, link_listener_port(w->listener));
		if (i % 50 == 49)
			wait_accepted(w, (uint64_t)i + 1);
	}
	struct link_listener_stats s = link_listener_get_stats(w->listener);
	assert_int_equal(s.n_unauth, 64);
	assert_int_equal(s.n_evicted, 136);
	for (int i = 0; i < 200; i++)
		assert_int_equal(socket_is_closed(fds[i]), i < 136);
	world_up(w);
	assert_int_equal(link_listener_get_stats(w->listener).n_up, 1);
	for (int i = 0; i < 200; i++)
		close(fds[i]);
	world_close(w);
}

static void one_address_holds_16_and_pushes_out_only_its_own(void **state)
{
	(void)state;
	struct world *w = open_with(link_limits_default);
	int other = socket_connect("127.0.0.2", link_listener_port(w->listener));
	wait_accepted(w, 1);
	int fds[40];
	for (int i = 0; i < 40; i++) {
		fds[i] = socket_connect("127.0.0.3", link_listener_port(w->listener));
		wait_accepted(w, (uint64_t)i + 2);
	}
	assert_false(socket_is_closed(other));
	assert_int_equal(count_closed(fds, 40), 24);
	assert_false(socket_is_closed(fds[39]));
	assert_true(socket_is_closed(fds[0]));
	assert_int_equal(link_listener_get_stats(w->listener).n_unauth, 17);
	for (int i = 0; i < 40; i++)
		close(fds[i]);
	close(other);
	world_close(w);
}

static void half_open_handshakes_take_no_memory_beyond_their_pool(void **state)
{
	(void)state;
	struct world *w = open_with(link_limits_default);
	long kb = 0;
	for (int round = 0; round < 30; round++) {
		int fds[60];
		char from[32];
		for (int i = 0; i < 60; i++) {
			snprintf(from, sizeof from, "127.0.2.%d", 1 + i);
			fds[i] = socket_connect(from, link_listener_port(w->listener));
			send_m1(w, fds[i]); // answered with M2, then silence
		}
		wait_accepted(w, (uint64_t)(round + 1) * 60);
		world_run_for(w, 5 * MS);
		for (int i = 0; i < 60; i++)
			close(fds[i]);
		wait_failed(w, (uint64_t)(round + 1) * 60);
		if (round == 9)
			kb = resident_kb();
	}
	print_message("memory grew by %ld KiB in 1,200 half-open handshakes\n", resident_kb() - kb);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(resident_kb() - kb < 1024);
#endif
	world_close(w);
}

// ---- How long ----

static void one_byte_at_a_time_is_closed_at_the_absolute_deadline(void **state)
{
	(void)state;
	struct link_limits limits = link_limits_default;
	limits.handshake_ns = 300 * MS;
	struct world *w = open_with(limits);
	int fd = socket_connect(NULL, link_listener_port(w->listener));
	int64_t begin_ns = loop_clock_ns();
	int n_sent = 0;
	while (!socket_is_closed(fd) && loop_clock_ns() - begin_ns < 20 * WORLD_S) {
		socket_send(fd, &"LNK1\1\1\0\1"[n_sent % 8], 1); // a byte every 20 ms would reset any deadline per byte
		n_sent++;
		world_run_for(w, 20 * MS);
	}
	int64_t took_ns = loop_clock_ns() - begin_ns;
	assert_true(took_ns >= 300 * MS);
	assert_true(took_ns < 10 * WORLD_S);
	assert_true(n_sent < 72);
	assert_int_equal(link_listener_get_stats(w->listener).n_failed, 1);
	close(fd);
	world_close(w);
}

static void silence_after_nothing_after_half_a_message_and_after_m1_is_closed(void **state)
{
	(void)state;
	struct link_limits limits = link_limits_default;
	limits.handshake_ns = 200 * MS;
	struct world *w = open_with(limits);
	int fds[3];
	for (int i = 0; i < 3; i++)
		fds[i] = socket_connect(NULL, link_listener_port(w->listener));
	socket_send(fds[1], "LNK1\1\1\0\1", 8);
	send_m1(w, fds[2]);
	wait_failed(w, 3);
	assert_int_equal(count_closed(fds, 3), 3);
	assert_int_equal(link_listener_get_stats(w->listener).n_unauth, 0);
	assert_int_equal(w->server.n_up + w->server.n_down, 0);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	world_close(w);
}

static void an_end_in_the_middle_of_a_handshake_frees_its_slot(void **state)
{
	(void)state;
	struct world *w = open_with(link_limits_default);
	for (int i = 0; i < 4; i++) {
		int fd = socket_connect(NULL, link_listener_port(w->listener));
		if (i == 1)
			socket_send(fd, "LNK1", 4);
		if (i == 2)
			send_m1(w, fd);
		if (i == 3)
			socket_reset(fd);
		else
			close(fd);
		wait_failed(w, (uint64_t)i + (i < 3)); // one that was reset before we looked may have to wait for its deadline
	}
	assert_true(link_listener_get_stats(w->listener).n_unauth <= 1);
	world_close(w);
}

// ---- What ----

static void other_protocols_are_closed_without_an_answer(void **state)
{
	(void)state;
	static const struct {
		const char *bytes;
		size_t len;
	} talk[] = {
		{"GET / HTTP/1.1\r\nHost: hearth.local:7433\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n", 82},
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
		 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			91},
		{"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\nSSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", 80},
		{"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
		 "\0\0\0\0\0"
		 "\0\0\0\0\0\0\0\0\0\0\0\0",
			72},
	};
	struct world *w = open_with(link_limits_default);
	for (size_t i = 0; i < ARRAY_LEN(talk); i++) {
		int fd = socket_connect(NULL, link_listener_port(w->listener));
		int64_t begin_ns = loop_clock_ns();
		socket_send(fd, talk[i].bytes, talk[i].len);
		uint8_t byte;
		assert_false(world_raw_recv(w, fd, &byte, 1)); // closed, and not a byte before it
		assert_true(loop_clock_ns() - begin_ns < 3 * WORLD_S);
		close(fd);
	}
	wait_failed(w, ARRAY_LEN(talk));
	assert_int_equal(w->server.n_up + w->server.n_down, 0);
	world_close(w);
}

static void a_node_refuses_control_links_and_joins(void **state)
{
	(void)state;
	for (int mode = 0; mode < 2; mode++) {
		struct world *w = world_open(mode == 0 ? LNK1_MEMBER : LNK1_JOIN, LNK1_CONTROL, NULL);
		w->fix.cfg.is_node = true;
		world_dial(w, NULL);
		assert_true(world_run(w, world_client_down, w));
		assert_false(w->client.down.was_up);
		assert_int_equal(w->n_joins + w->server.n_up, 0);
		world_close(w);
	}
}

// ---- How often ----

static void failures_beyond_the_burst_wait_in_order_and_none_is_refused(void **state)
{
	(void)state;
	enum { N = 12 };
	struct link_limits limits = link_limits_default;
	limits.failed_burst = 4;
	limits.failed_per_s = 20;
	struct world *w = open_with(limits);
	static const uint8_t junk[LNK1_M1_LEN];
	int fds[N];
	int64_t begin_ns = loop_clock_ns();
	for (int i = 0; i < N; i++) {
		fds[i] = socket_connect("127.0.0.7", link_listener_port(w->listener));
		socket_send(fds[i], junk, sizeof junk);
	}
	wait_accepted(w, N);
	// Another address does not wait for this one.
	int other = socket_connect("127.0.0.8", link_listener_port(w->listener));
	socket_send(other, junk, sizeof junk);
	assert_true(world_raw_closed(w, other));
	close(other);

	int n_before = 0;
	while (n_before < N) {
		int n = 0;
		while (n < N && socket_is_closed(fds[n]))
			n++;
		for (int i = n; i < N;
			i++) // in order: whoever is still open has nobody closed behind it, but for the burst that ran together
			if (i >= 4)
				assert_false(n < i && socket_is_closed(fds[i]) && !socket_is_closed(fds[n]));
		n_before = n;
		assert_true(loop_clock_ns() - begin_ns < 20 * WORLD_S);
		world_run_for(w, 2 * MS);
	}
	// Eight had to wait 50 ms each.
	assert_true(loop_clock_ns() - begin_ns >= 8 * 50 * MS - 60 * MS);
	struct link_listener_stats s = link_listener_get_stats(w->listener);
	assert_int_equal(s.n_failed, N + 1);
	assert_int_equal(s.n_evicted, 0);
	for (int i = 0; i < N; i++)
		close(fds[i]);
	world_close(w);
}

static bool has_n_up(void *ctx)
{
	return ((struct world *)ctx)->server.n_up >= 8;
}

static void a_handshake_that_completes_gives_its_token_back(void **state)
{
	(void)state;
	struct link_limits limits = link_limits_default;
	limits.failed_burst = 1;
	limits.failed_per_s = 1;
	struct world *w = open_with(limits);
	w->client.close_on_up = true;
	int64_t begin_ns = loop_clock_ns();
	for (int i = 0; i < 8; i++)
		world_dial(w, NULL);
	assert_true(world_run(w, has_n_up, w));
	assert_true(world_run(w, world_both_down, w));
	assert_true(loop_clock_ns() - begin_ns < 2 * WORLD_S); // one a second would have taken seven
	world_close(w);
}

static void strangers_cannot_flood_the_log(void **state)
{
	(void)state;
	struct link_limits limits = link_limits_default;
	limits.failed_burst = 1000;
	struct world *w = open_with(limits);
	int pipe_fds[2];
	assert_int_equal(pipe2(pipe_fds, O_NONBLOCK), 0);
	const struct log log = {.fd = pipe_fds[1], .level = LOG_DEBUG};
	struct link_listener *second;
	const struct link_listener_params params = {.addr = "127.0.0.1:0",
		.cfg = &w->fix.cfg,
		.limits = &w->limits,
		.log = &log,
		.callbacks = world_callbacks(&w->server)};
	assert_int_equal(link_listener_open(&second, &w->loop, &params, NULL), OK);
	static const uint8_t junk[LNK1_M1_LEN];
	int64_t begin_ns = loop_clock_ns();
	for (int i = 0; i < 100; i++) {
		int fd = socket_connect(NULL, link_listener_port(second));
		socket_send(fd, junk, sizeof junk);
		assert_true(world_raw_closed(w, fd));
		close(fd);
	}
	int64_t seconds = (loop_clock_ns() - begin_ns) / WORLD_S + 2;
	static char text[65536];
	ssize_t n = read(pipe_fds[0], text, sizeof text - 1);
	assert_true(n > 0);
	int n_lines = 0;
	for (ssize_t i = 0; i < n; i++)
		n_lines += text[i] == '\n';
	assert_true(n_lines <= seconds * (limits.log_lines_per_s + 1)); // and one that counts the rest
	assert_non_null(strstr(text, "handshake with 127.0.0.1:"));
	link_listener_close(second);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	world_close(w);
}

// ---- Closing ----

static bool has_join(void *ctx)
{
	return ((struct world *)ctx)->n_joins > 0;
}

static void closing_the_listener_leaves_authenticated_links_and_ends_half_open_ones(void **state)
{
	(void)state;
	struct world *w = world_open(LNK1_JOIN, LNK1_CONTROL, NULL);
	int fd = socket_connect(NULL, link_listener_port(w->listener));
	wait_accepted(w, 1);
	world_dial(w, NULL);
	assert_true(world_run(w, has_join, w));
	link_listener_close(w->listener);
	w->listener = NULL;
	assert_true(world_raw_closed(w, fd));
	close(fd);
	link_accept(w->joining);
	assert_true(world_run(w, world_both_up, w));
	world_close(w);
}

static void a_taken_port_is_said_to_be_taken(void **state)
{
	(void)state;
	struct world *w = open_with(link_limits_default);
	struct link_listener *second;
	struct errmsg em;
	const struct link_listener_params params = {
		.addr = w->addr, .cfg = &w->fix.cfg, .limits = &w->limits, .callbacks = world_callbacks(&w->server)};
	assert_int_equal(link_listener_open(&second, &w->loop, &params, &em), ERR_EXISTS);
	assert_null(second);
	assert_non_null(strstr(em.text, w->addr));
	world_close(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_200_half_open_connections_the_newest_64_stay_and_a_member_still_gets_in),
		cmocka_unit_test(one_address_holds_16_and_pushes_out_only_its_own),
		cmocka_unit_test(half_open_handshakes_take_no_memory_beyond_their_pool),
		cmocka_unit_test(one_byte_at_a_time_is_closed_at_the_absolute_deadline),
		cmocka_unit_test(silence_after_nothing_after_half_a_message_and_after_m1_is_closed),
		cmocka_unit_test(an_end_in_the_middle_of_a_handshake_frees_its_slot),
		cmocka_unit_test(other_protocols_are_closed_without_an_answer),
		cmocka_unit_test(a_node_refuses_control_links_and_joins),
		cmocka_unit_test(failures_beyond_the_burst_wait_in_order_and_none_is_refused),
		cmocka_unit_test(a_handshake_that_completes_gives_its_token_back),
		cmocka_unit_test(strangers_cannot_flood_the_log),
		cmocka_unit_test(closing_the_listener_leaves_authenticated_links_and_ends_half_open_ones),
		cmocka_unit_test(a_taken_port_is_said_to_be_taken),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
