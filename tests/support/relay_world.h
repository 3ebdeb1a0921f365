// A relay in a thread of its own with sockets on both sides of it, and its control socket. Unprefixed and inline: a test file includes it
// once and reads as if it were its own.
#ifndef HEARTH_TESTS_SUPPORT_RELAY_WORLD_H
#define HEARTH_TESTS_SUPPORT_RELAY_WORLD_H

#include "sim/shell/emulate.h"
#include "sim/shell/emulate_control.h"

#include <arpa/inet.h>
#include <errno.h>
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

static inline void on_stop(void *ctx, uint32_t events)
{
	struct world *w = ctx;
	(void)events;
	poller_stop(emulate_poller(w->relay));
}

static inline void *run_relay(void *arg)
{
	struct world *w = arg;
	struct errmsg em;
	return emulate_run(w->relay, &em) == OK ? NULL : w;
}

static inline struct sockaddr_in address(uint32_t ip, uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(ip), .sin_port = htons(port)};
}

static inline int listen_at(uint32_t ip, uint16_t port)
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
static inline struct world *start(const char *links)
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

static inline void stop(struct world *w)
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

static inline bool is_ready(int fd, short events, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = events};
	return poll(&p, 1, timeout_ms) == 1;
}

static inline int connect_from(uint32_t from_ip, uint32_t ip, uint16_t port)
{
	struct sockaddr_in from = address(from_ip, 0), to = address(ip, port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
	return fd;
}

static inline int dial(struct world *w, int from, int to)
{
	return connect_from(topology_device_ip(&w->topology, from), topology_device_ip(&w->topology, to), w->port);
}

static inline int take(struct world *w, int device)
{
	assert_true(is_ready(w->listeners[device], POLLIN, PATIENCE_MS));
	int fd = accept4(w->listeners[device], NULL, NULL, SOCK_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

// open_pair gives both ends of a connection from one device to another.
static inline void open_pair(struct world *w, int from, int to, int fds[2])
{
	fds[0] = dial(w, from, to);
	fds[1] = take(w, to);
}

static inline void close_pair(const int fds[2])
{
	close(fds[0]);
	close(fds[1]);
}

static inline void put(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static inline void get(int fd, const char *text)
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

static inline void assert_silent(int fd)
{
	assert_false(is_ready(fd, POLLIN, SILENCE_MS));
}

static inline void assert_eof(int fd)
{
	char byte;
	assert_true(is_ready(fd, POLLIN, PATIENCE_MS));
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
}

static inline void assert_reset(int fd)
{
	char byte;
	assert_true(is_ready(fd, POLLIN, PATIENCE_MS));
	assert_int_equal(recv(fd, &byte, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
}

static inline void reset(int fd)
{
	const struct linger at_once = {.l_onoff = 1};
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(fd);
}

// ask gives a command; the answer must begin with {"ok" or hold the error `want`.
static inline char *ask(struct world *w, const char *command)
{
	char *answer;
	struct errmsg em = {0};
	if (emulate_control_ask(w->socket_path, command, &answer, &em) != OK)
		fail_msg("%s", em.text);
	return answer;
}

static inline void tell(struct world *w, const char *command)
{
	char *answer = ask(w, command);
	if (strstr(answer, "\"ok\":true") == NULL)
		fail_msg("%s", answer);
	free(answer);
}

static inline void assert_answer(struct world *w, const char *command, const char *holds)
{
	char *answer = ask(w, command);
	if (strstr(answer, holds) == NULL)
		fail_msg("%s: %s, want %s", command, answer, holds);
	free(answer);
}

// wait_answer asks until the answer holds the words: the relay hears of a socket's end when the kernel tells it.
static inline void wait_answer(struct world *w, const char *command, const char *holds)
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

// fill makes bytes of a counter that does not repeat at powers of two.
static inline void fill(uint8_t *bytes, size_t len, size_t from)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)((from + i) % 251);
}

struct flood {
	int fd;
	size_t bytes;
};

static inline void *send_flood(void *arg)
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

static inline void read_flood(int fd, size_t bytes)
{
	uint8_t got[65536], want[65536];
	size_t at = 0;
	for (ssize_t n; is_ready(fd, POLLIN, PATIENCE_MS) && (n = recv(fd, got, sizeof got, 0)) > 0; at += (size_t)n) {
		fill(want, (size_t)n, at);
		assert_memory_equal(got, want, (size_t)n);
	}
	assert_int_equal(at, bytes);
}

#endif
