// The relay, from outside: sockets on both sides of it, in a thread of its own; commands through its control socket.
#include "sim/shell/emulate.h"
#include "sim/shell/emulate_control.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define MS INT64_C(1000000)
#define PATIENCE_MS 10000 // for what must come
#define SILENCE_MS 150    // for what must not

// Devices a, b, c; subnet and ports by the process, so that several of these can run at once.
struct world {
	struct topology topology;
	struct emulate *relay;
	struct emulate_control *control;
	struct watch stop_watch;
	pthread_t thread;
	uint16_t port;
	char folder[32], socket_path[64];
	int listeners[3]; // at the devices' own addresses
};

static void on_stop(void *ctx, uint32_t events)
{
	struct world *w = ctx;
	(void)events;
	poller_stop(emulate_poller(w->relay));
}

static void *run_relay(void *arg)
{
	struct world *w = arg;
	struct errmsg em;
	return emulate_run(w->relay, &em) == OK ? NULL : w;
}

static struct sockaddr_in address(uint32_t ip, uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(ip), .sin_port = htons(port)};
}

static int listen_at(uint32_t ip, uint16_t port)
{
	struct sockaddr_in sa = address(ip, port);
	const int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
	assert_int_equal(listen(fd, 16), 0);
	return fd;
}

// start opens a relay whose links are `links`, in TOML.
static struct world *start(const char *links)
{
	struct world *w = calloc(1, sizeof *w);
	struct errmsg em = {0};
	char text[2048];
	int subnet = 100 + getpid() % 100;
	w->port = (uint16_t)(20000 + getpid() % 10000);
	int n = snprintf(text, sizeof text, "subnet = %d\n", subnet);
	for (int i = 1; i <= 3; i++)
		n += snprintf(text + n, sizeof text - (size_t)n, "[[device]]\nname = \"%c\"\nat = \"127.%d.255.%d:%d\"\n", 'a' + i - 1, subnet, i, w->port);
	snprintf(text + n, sizeof text - (size_t)n, "%s", links);
	if (topology_parse("test", text, strlen(text), NULL, &w->topology, &em) != OK || emulate_open(&w->relay, &w->topology, NULL, &em) != OK)
		fail_msg("%s", em.text);
	snprintf(w->folder, sizeof w->folder, "/tmp/emulate.XXXXXX");
	assert_non_null(mkdtemp(w->folder));
	snprintf(w->socket_path, sizeof w->socket_path, "%s/control", w->folder);
	assert_int_equal(emulate_control_open(&w->control, w->relay, w->socket_path, &em), OK);
	poller_watch_init(&w->stop_watch, eventfd(0, EFD_CLOEXEC), on_stop, w);
	assert_int_equal(poller_want(emulate_poller(w->relay), &w->stop_watch, EPOLLIN), OK);
	for (int i = 0; i < 3; i++)
		w->listeners[i] = listen_at(w->topology.devices[i].ip, w->port);
	assert_int_equal(pthread_create(&w->thread, NULL, run_relay, w), 0);
	return w;
}

static void stop(struct world *w)
{
	void *result;
	assert_int_equal(write(w->stop_watch.fd, &(uint64_t){1}, 8), 8);
	assert_int_equal(pthread_join(w->thread, &result), 0);
	assert_null(result);
	emulate_control_close(w->control);
	assert_int_equal(access(w->socket_path, F_OK), -1);
	close(w->stop_watch.fd);
	emulate_close(w->relay);
	for (int i = 0; i < 3; i++)
		if (w->listeners[i] >= 0)
			close(w->listeners[i]);
	rmdir(w->folder);
	topology_close(&w->topology);
	free(w);
}

static bool is_ready(int fd, short events, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = events};
	return poll(&p, 1, timeout_ms) == 1;
}

static int connect_from(uint32_t from_ip, uint32_t ip, uint16_t port)
{
	struct sockaddr_in from = address(from_ip, 0), to = address(ip, port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
	return fd;
}

static int dial(struct world *w, int from, int to)
{
	return connect_from(topology_device_ip(&w->topology, from), topology_device_ip(&w->topology, to), w->port);
}

static int take(struct world *w, int device)
{
	assert_true(is_ready(w->listeners[device], POLLIN, PATIENCE_MS));
	int fd = accept4(w->listeners[device], NULL, NULL, SOCK_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

// open_pair gives both ends of a connection from one device to another.
static void open_pair(struct world *w, int from, int to, int fds[2])
{
	fds[0] = dial(w, from, to);
	fds[1] = take(w, to);
}

static void close_pair(const int fds[2])
{
	close(fds[0]);
	close(fds[1]);
}

static void put(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void get(int fd, const char *text)
{
	char buf[64];
	size_t got = 0, len = strlen(text);
	while (got < len) {
		assert_true(is_ready(fd, POLLIN, PATIENCE_MS));
		ssize_t n = recv(fd, buf + got, len - got, 0);
		assert_true(n > 0);
		got += (size_t)n;
	}
	assert_memory_equal(buf, text, len);
}

static void assert_silent(int fd)
{
	assert_false(is_ready(fd, POLLIN, SILENCE_MS));
}

static void assert_eof(int fd)
{
	char byte;
	assert_true(is_ready(fd, POLLIN, PATIENCE_MS));
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
}

static void assert_reset(int fd)
{
	char byte;
	assert_true(is_ready(fd, POLLIN, PATIENCE_MS));
	assert_int_equal(recv(fd, &byte, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
}

static void reset(int fd)
{
	const struct linger at_once = {.l_onoff = 1};
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(fd);
}

// ask gives a command; the answer must begin with {"ok" or hold the error `want`.
static char *ask(struct world *w, const char *command)
{
	char *answer;
	struct errmsg em = {0};
	if (emulate_control_ask(w->socket_path, command, &answer, &em) != OK)
		fail_msg("%s", em.text);
	return answer;
}

static void tell(struct world *w, const char *command)
{
	char *answer = ask(w, command);
	if (strstr(answer, "\"ok\":true") == NULL)
		fail_msg("%s", answer);
	free(answer);
}

static void assert_answer(struct world *w, const char *command, const char *holds)
{
	char *answer = ask(w, command);
	if (strstr(answer, holds) == NULL)
		fail_msg("%s: %s, want %s", command, answer, holds);
	free(answer);
}

// wait_answer asks until the answer holds the words: the relay hears of a socket's end when the kernel tells it.
static void wait_answer(struct world *w, const char *command, const char *holds)
{
	for (int64_t end_ns = poller_clock_ns() + PATIENCE_MS * MS; poller_clock_ns() < end_ns;) {
		char *answer = ask(w, command);
		bool ok = strstr(answer, holds) != NULL;
		free(answer);
		if (ok)
			return;
	}
	fail_msg("waited for %s", holds);
}

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

// fill makes bytes of a counter that does not repeat at powers of two.
static void fill(uint8_t *bytes, size_t len, size_t from)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)((from + i) % 251);
}

struct flood {
	int fd;
	size_t bytes;
};

static void *send_flood(void *arg)
{
	const struct flood *f = arg;
	uint8_t chunk[100000];
	for (size_t sent = 0; sent < f->bytes;) {
		size_t n = f->bytes - sent < sizeof chunk ? f->bytes - sent : sizeof chunk;
		fill(chunk, n, sent);
		ssize_t put_now = send(f->fd, chunk, n, MSG_NOSIGNAL);
		if (put_now <= 0)
			return arg;
		sent += (size_t)put_now;
	}
	return shutdown(f->fd, SHUT_WR) == 0 ? NULL : arg;
}

static void read_flood(int fd, size_t bytes)
{
	uint8_t got[65536], want[65536];
	size_t at = 0;
	for (ssize_t n; is_ready(fd, POLLIN, PATIENCE_MS) && (n = recv(fd, got, sizeof got, 0)) > 0; at += (size_t)n) {
		fill(want, (size_t)n, at);
		assert_memory_equal(got, want, (size_t)n);
	}
	assert_int_equal(at, bytes);
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
		cmocka_unit_test(a_reader_that_sleeps_stops_the_sender),
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
		cmocka_unit_test(commands_that_make_no_sense_are_told_why),
		cmocka_unit_test(the_control_socket_is_this_users_alone),
		cmocka_unit_test(lines_come_in_any_pieces_and_too_long_ones_end_the_client),
		cmocka_unit_test(clients_that_hang_keep_nobody_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
