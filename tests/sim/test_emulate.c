// The relay, from outside: sockets on both sides of it; commands through its control socket. Its faults: test_emulate_faults.c.
#include "sim/shell/emulate.h"
#include "sim/shell/emulate_control.h"

#include "tests/support/relay_world.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/un.h>

// ---- Passing

static void bytes_pass_both_ways_and_the_other_side_sees_the_device(void **state)
{
	(void)state;
	struct world *w = start("");
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	int fds[2];
	open_pair(w, 0, 1, fds);
	assert_int_equal(getpeername(fds[1], (struct sockaddr *)&peer, &len), 0);
	assert_int_equal(ntohl(peer.sin_addr.s_addr), topology_device_ip(&w->topology, 0));
	put(fds[0], "there");
	get(fds[1], "there");
	put(fds[1], "and back");
	get(fds[0], "and back");
	close_pair(fds);
	stop(w);
}

static void the_address_of_a_pair_needs_no_source(void **state)
{
	(void)state;
	struct world *w = start("");
	int fd = connect_from(INADDR_LOOPBACK, topology_pair_ip(&w->topology, 2, 1), w->port), other = take(w, 1);
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	assert_int_equal(getpeername(other, (struct sockaddr *)&peer, &len), 0);
	assert_int_equal(ntohl(peer.sin_addr.s_addr), topology_device_ip(&w->topology, 2));
	put(fd, "x");
	get(other, "x");
	close(fd);
	close(other);
	stop(w);
}

static void strangers_and_oneself_are_refused(void **state)
{
	(void)state;
	struct world *w = start("");
	int fd = connect_from(INADDR_LOOPBACK, topology_device_ip(&w->topology, 1), w->port);
	assert_reset(fd);
	close(fd);
	fd = dial(w, 1, 1);
	assert_reset(fd);
	close(fd);
	stop(w);
}

static void a_device_that_does_not_listen_gives_a_reset(void **state)
{
	(void)state;
	struct world *w = start("");
	close(w->listeners[1]);
	w->listeners[1] = -1;
	int fd = dial(w, 0, 1);
	assert_reset(fd);
	close(fd);
	stop(w);
}

static void a_half_closed_connection_still_answers(void **state)
{
	(void)state;
	struct world *w = start("[network]\ndelay = \"5 ms\"\n");
	int fds[2];
	fds[0] = dial(w, 0, 1);
	put(fds[0], "question");
	assert_int_equal(shutdown(fds[0], SHUT_WR), 0); // before it is open
	fds[1] = take(w, 1);
	get(fds[1], "question");
	assert_eof(fds[1]);
	put(fds[1], "answer");
	close(fds[1]);
	get(fds[0], "answer");
	assert_eof(fds[0]);
	close(fds[0]);
	wait_answer(w, "status", "\"open\":0");
	stop(w);
}

static void a_reset_passes_through(void **state)
{
	(void)state;
	struct world *w = start("[network]\ndelay = \"5 ms\"\n");
	int fds[2];
	open_pair(w, 0, 1, fds);
	put(fds[0], "x");
	get(fds[1], "x");
	reset(fds[1]);
	assert_reset(fds[0]);
	close(fds[0]);
	stop(w);
}

static void a_flood_keeps_its_order_through_jitter_and_loss(void **state)
{
	(void)state;
	struct world *w = start("[network]\nprofile = \"W1\"\nloss = 0.001\n");
	int fds[2];
	open_pair(w, 0, 1, fds);
	struct flood there = {fds[0], 3000000}, back = {fds[1], 2000000};
	pthread_t a, b;
	void *failed;
	assert_int_equal(pthread_create(&a, NULL, send_flood, &there), 0);
	assert_int_equal(pthread_create(&b, NULL, send_flood, &back), 0);
	read_flood(fds[1], there.bytes);
	read_flood(fds[0], back.bytes);
	assert_int_equal(pthread_join(a, &failed), 0);
	assert_null(failed);
	assert_int_equal(pthread_join(b, &failed), 0);
	assert_null(failed);
	close_pair(fds);
	stop(w);
}

static void what_is_sent_before_it_is_open_waits_for_the_handshake(void **state)
{
	(void)state;
	struct world *w = start("[network]\ndelay = \"300 ms\"\n");
	int fds[2], other[2];
	open_pair(w, 0, 2, other); // the kernel stamps what comes once a socket wants that
	int64_t begin_ns = poller_clock_ns();
	fds[0] = dial(w, 0, 1);
	put(fds[0], "early");
	fds[1] = take(w, 1);
	get(fds[1], "early");
	assert_true(poller_clock_ns() - begin_ns >= 3 * 300 * MS); // SYN, its answer, and then the message
	close_pair(fds);
	close_pair(other);
	stop(w);
}

// Keeps the relay's thread from its work while the test wants it.
struct hold {
	struct watch watch;
	int release[2]; // a pipe
};

static void on_hold(void *ctx, uint32_t events)
{
	struct hold *h = ctx;
	uint64_t n;
	char byte;
	(void)events;
	assert_int_equal(read(h->watch.fd, &n, sizeof n), sizeof n);
	assert_int_equal(read(h->release[0], &byte, 1), 1);
}

static void a_message_counts_from_when_it_came_not_from_when_it_was_read(void **state)
{
	(void)state;
	struct world *w = start("[network]\ndelay = \"1000 ms\"\n");
	struct hold h;
	int fds[2];
	open_pair(w, 0, 1, fds);
	put(fds[0], "open");
	get(fds[1], "open");
	poller_watch_init(&h.watch, eventfd(0, EFD_CLOEXEC), on_hold, &h);
	assert_int_equal(pipe(h.release), 0);
	assert_int_equal(poller_want(emulate_poller(w->relay), &h.watch, EPOLLIN), OK);
	assert_int_equal(write(h.watch.fd, &(uint64_t){1}, 8), 8);
	put(fds[0], "x");
	assert_false(is_ready(fds[1], POLLIN, 700)); // the relay stands still
	int64_t begin_ns = poller_clock_ns();
	assert_int_equal(write(h.release[1], "x", 1), 1);
	get(fds[1], "x");
	assert_true(poller_clock_ns() - begin_ns < 900 * MS); // 300 ms; from when it was read, 1,000
	close_pair(fds);
	stop(w);
	close(h.watch.fd);
	close_pair(h.release);
}

static void a_reader_that_sleeps_stops_the_sender(void **state)
{
	(void)state;
	struct world *w = start("");
	int fds[2];
	uint8_t chunk[100000];
	size_t sent = 0;
	open_pair(w, 0, 1, fds);
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	// Until nothing moves for a while: queue and kernel buffers are full.
	while (is_ready(fds[0], POLLOUT, SILENCE_MS)) {
		fill(chunk, sizeof chunk, sent);
		ssize_t n = send(fds[0], chunk, sizeof chunk, MSG_NOSIGNAL);
		assert_true(n > 0);
		sent += (size_t)n;
		assert_true(sent < 64 << 20);
	}
	assert_true(sent > sizeof chunk);
	assert_int_equal(shutdown(fds[0], SHUT_WR), 0);
	read_flood(fds[1], sent);
	close_pair(fds);
	stop(w);
}

// ---- Commands

static void commands_that_make_no_sense_are_told_why(void **state)
{
	(void)state;
	struct world *w = start("");
	static const char *const cases[][2] = {
		{"", "an empty command"},
		{"   ", "an empty command"},
		{"cat a b", "unknown command cat, did you mean cut?"},
		{"cut a", "want: cut A B [reset|blackhole|oneway]"},
		{"cut a d", "there is no device d"},
		{"cut a a", "a and a are one device"},
		{"cut * a", "there is no device *"},
		{"cut a b softly", "softly is no kind of cut"},
		{"cut a b reset now and then", "too many words"},
		{"heal a", "want: heal A B"},
		{"slow a b", "want: slow A B FACTOR"},
		{"slow a b 0", "want a number from 0.001 to 1000"},
		{"slow a b nan", "got nan, want a number"},
		{"slow a b 1e999", "want a number from"},
		{"slow a b 2x", "want a number from"},
		{"freeze a -1", "want a number from 0 to 3600"},
		{"freeze a b c 1", "want: freeze A [B] SECONDS"},
		{"status now", "status takes no words"},
		{"heal aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\xc3\xa9 b", "a word of 81 bytes"},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_answer(w, cases[i][0], "\"ok\":false");
		assert_answer(w, cases[i][0], cases[i][1]);
	}
	stop(w);
}

static int open_control(struct world *w)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	snprintf(sa.sun_path, sizeof sa.sun_path, "%s", w->socket_path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	return fd;
}

static void the_control_socket_is_this_users_alone(void **state)
{
	(void)state;
	struct world *w = start("");
	struct stat st;
	struct emulate_control *second;
	struct errmsg em;
	assert_int_equal(stat(w->socket_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(emulate_control_open(&second, w->relay, w->socket_path, &em), ERR_EXISTS);
	assert_non_null(strstr(em.text, "a relay listens there"));
	stop(w);
}

static void lines_come_in_any_pieces_and_too_long_ones_end_the_client(void **state)
{
	(void)state;
	struct world *w = start("");
	int fd = open_control(w);
	put(fd, "he");
	assert_silent(fd);
	put(fd, "al\nheal\n");
	get(fd, "{\"t\":");
	close(fd);
	fd = open_control(w);
	char junk[2 * 256];
	memset(junk, 'x', sizeof junk);
	send(fd, junk, sizeof junk, MSG_NOSIGNAL);
	char answer[256] = "";
	assert_true(is_ready(fd, POLLIN, PATIENCE_MS));
	assert_true(recv(fd, answer, sizeof answer - 1, 0) > 0);
	assert_non_null(strstr(answer, "want at most 256"));
	char byte;
	assert_true(is_ready(fd, POLLIN, PATIENCE_MS));
	assert_true(recv(fd, &byte, 1, 0) <= 0); // a reset when some of the junk was not read
	close(fd);
	tell(w, "status");
	stop(w);
}

static void clients_that_hang_keep_nobody_out(void **state)
{
	(void)state;
	struct world *w = start("");
	int fds[8];
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		fds[i] = open_control(w);
		put(fds[i], "help\n");
		get(fds[i], "{");
	}
	put(fds[0], "help\n"); // now the second has been idle longest
	char answer[4096];
	while (is_ready(fds[0], POLLIN, SILENCE_MS))
		assert_true(recv(fds[0], answer, sizeof answer, 0) > 0);
	tell(w, "status");
	for (ssize_t n = 1; n != 0;) {
		assert_true(is_ready(fds[1], POLLIN, PATIENCE_MS));
		n = recv(fds[1], answer, sizeof answer, 0);
		assert_true(n >= 0);
	}
	put(fds[0], "help\n"); // the others are served as before
	get(fds[0], "{");
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close(fds[i]);
	stop(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_pass_both_ways_and_the_other_side_sees_the_device),
		cmocka_unit_test(the_address_of_a_pair_needs_no_source),
		cmocka_unit_test(strangers_and_oneself_are_refused),
		cmocka_unit_test(a_device_that_does_not_listen_gives_a_reset),
		cmocka_unit_test(a_half_closed_connection_still_answers),
		cmocka_unit_test(a_reset_passes_through),
		cmocka_unit_test(a_flood_keeps_its_order_through_jitter_and_loss),
		cmocka_unit_test(what_is_sent_before_it_is_open_waits_for_the_handshake),
		cmocka_unit_test(a_message_counts_from_when_it_came_not_from_when_it_was_read),
		cmocka_unit_test(a_reader_that_sleeps_stops_the_sender),
		cmocka_unit_test(commands_that_make_no_sense_are_told_why),
		cmocka_unit_test(the_control_socket_is_this_users_alone),
		cmocka_unit_test(lines_come_in_any_pieces_and_too_long_ones_end_the_client),
		cmocka_unit_test(clients_that_hang_keep_nobody_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
