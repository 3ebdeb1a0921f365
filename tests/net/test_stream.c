#include "net/stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/support/sockets.h"

#define S INT64_C(1000000000)
#define PATIENCE (20 * S)

static const struct stream_limits limits = {.queued_bytes_max = 1 << 20, .queued_chunks_max = 16};

// One end of a connection, and what happened to it.
struct end {
	struct stream stream;
	uint8_t buf[65536];
	uint8_t *got; // everything read, when not NULL
	size_t n_got;
	int n_connected, n_written, n_ended;
	enum stream_end why;
	bool is_open;
	bool close_on_read, close_on_written, close_on_connected, no_reading;
};

static void close_end(struct end *e)
{
	stream_close(&e->stream);
	e->is_open = false;
}

static void on_connected(void *ctx)
{
	struct end *e = ctx;
	e->n_connected++;
	if (e->close_on_connected)
		close_end(e);
	else if (!e->no_reading)
		stream_read(&e->stream, e->buf, sizeof e->buf);
}

static void on_read(void *ctx, size_t n)
{
	struct end *e = ctx;
	if (e->got != NULL)
		memcpy(e->got + e->n_got, e->buf, n);
	e->n_got += n;
	if (e->close_on_read)
		close_end(e);
	else
		stream_read(&e->stream, e->buf, sizeof e->buf);
}

static void on_written(void *ctx)
{
	struct end *e = ctx;
	e->n_written++;
	if (e->close_on_written)
		close_end(e);
}

static void on_end(void *ctx, enum stream_end why)
{
	struct end *e = ctx;
	e->n_ended++;
	e->why = why;
}

static const struct stream_events events = {on_connected, on_read, on_written, on_end};

// A loop, a listener, and one accepted and one dialled end.
struct net {
	struct loop loop;
	struct stream_listener listener;
	struct end a; // dialled
	struct end b; // accepted
	int n_accepted;
};

static void on_accept(void *ctx, nng_stream *conn)
{
	struct net *n = ctx;
	n->n_accepted++;
	if (n->b.is_open) {
		nng_stream_free(conn);
		return;
	}
	assert_int_equal(stream_adopt(&n->b.stream, &n->loop, conn, &limits, &events, &n->b), OK);
	n->b.is_open = true;
	on_connected(&n->b);
}

static void url_of(const struct net *n, char url[64])
{
	snprintf(url, 64, "tcp://127.0.0.1:%u", n->listener.port);
}

static void dial(struct net *n, const char *url)
{
	assert_int_equal(stream_connect(&n->a.stream, &n->loop, url, NULL, loop_clock_ns() + 5 * S, &limits, &events, &n->a, NULL), OK);
	n->a.is_open = true;
}

static int setup(void **state)
{
	struct net *n = calloc(1, sizeof *n);
	*state = n;
	return loop_open(&n->loop, NULL) != OK ||
		stream_listen(&n->listener, &n->loop, "tcp://127.0.0.1:0", on_accept, n, NULL) != OK;
}

static int teardown(void **state)
{
	struct net *n = *state;
	stream_close(&n->a.stream);
	stream_close(&n->b.stream);
	stream_listener_close(&n->listener);
	loop_close(&n->loop);
	free(n->b.got);
	free(n);
	return 0;
}

static bool both_connected(void *ctx)
{
	struct net *n = ctx;
	return n->a.n_connected > 0 && n->b.n_connected > 0;
}

static void connect_both(struct net *n)
{
	char url[64];
	url_of(n, url);
	dial(n, url);
	assert_true(loop_run_until(&n->loop, both_connected, n, loop_clock_ns() + PATIENCE));
}

static bool a_ended(void *ctx)
{
	return ((struct net *)ctx)->a.n_ended > 0;
}

static bool b_ended(void *ctx)
{
	return ((struct net *)ctx)->b.n_ended > 0;
}

static void push(struct end *e, const uint8_t *data, size_t len)
{
	struct stream_chunk *c;
	assert_int_equal(stream_chunk_new(&e->stream, len, &c), OK);
	memcpy(c->data, data, len);
	stream_push(&e->stream, c);
}

// ---- Bytes ----

enum { TOTAL = 5 * 1000 * 1000 };

static bool b_has_all(void *ctx)
{
	return ((struct net *)ctx)->b.n_got == TOTAL;
}

static bool has_room_or_all(void *ctx)
{
	struct net *n = ctx;
	return !stream_is_full(&n->a.stream);
}

static void chunks_of_any_size_arrive_whole_and_in_order(void **state)
{
	struct net *n = *state;
	connect_both(n);
	n->b.got = malloc(TOTAL);
	uint8_t *sent = malloc(TOTAL);
	struct rng rng;
	rng_init(&rng, 5);
	for (size_t i = 0; i < TOTAL; i++)
		sent[i] = (uint8_t)rng_u32(&rng);
	for (size_t at = 0; at < TOTAL;) {
		assert_true(loop_run_until(&n->loop, has_room_or_all, n, loop_clock_ns() + PATIENCE));
		size_t len = 1 + rng_below(&rng, rng_below(&rng, 4) == 0 ? 400000 : 200);
		len = len < TOTAL - at ? len : TOTAL - at;
		push(&n->a, sent + at, len);
		at += len;
	}
	assert_true(loop_run_until(&n->loop, b_has_all, n, loop_clock_ns() + PATIENCE));
	assert_memory_equal(n->b.got, sent, TOTAL);
	assert_int_equal(n->a.stream.queued_bytes, 0);
	assert_int_equal(n->a.stream.queued_chunks, 0);
	free(sent);
}

static bool a_wrote(void *ctx)
{
	return ((struct net *)ctx)->a.n_written > 0;
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static void a_queue_that_nobody_drains_is_full_and_opens_again(void **state)
{
	struct net *n = *state;
	n->b.no_reading = true;
	connect_both(n);
	static uint8_t data[300000];
	size_t pushed = 0;
	for (int i = 0; i < 1000; i++) {
		struct stream_chunk *c;
		enum err e = stream_chunk_new(&n->a.stream, sizeof data, &c);
		if (e == ERR_LIMIT) { // is it still, when the kernel has taken what it takes?
			(void)loop_run_until(&n->loop, has_room_or_all, n, loop_clock_ns() + S / 20);
			if (stream_is_full(&n->a.stream))
				break;
			continue;
		}
		assert_int_equal(e, OK);
		memset(c->data, i, c->len);
		stream_push(&n->a.stream, c);
		pushed += sizeof data;
	}
	assert_true(stream_is_full(&n->a.stream));
	assert_true(n->a.stream.queued_bytes < limits.queued_bytes_max + sizeof data);
	n->a.n_written = 0;
	stream_read(&n->b.stream, n->b.buf, sizeof n->b.buf);
	assert_true(loop_run_until(&n->loop, a_wrote, n, loop_clock_ns() + PATIENCE));
	assert_false(stream_is_full(&n->a.stream));
	while (n->b.n_got < pushed)
		(void)loop_run_until(&n->loop, never, NULL, loop_clock_ns() + S / 100);
	assert_int_equal(n->b.n_got, pushed);
}

// ---- Ends ----

static void a_port_nobody_listens_on_is_refused(void **state)
{
	struct net *n = *state;
	uint16_t port;
	int fd = socket_listen(1, &port);
	close(fd);
	char url[64];
	snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port);
	dial(n, url);
	assert_true(loop_run_until(&n->loop, a_ended, n, loop_clock_ns() + PATIENCE));
	assert_int_equal(n->a.why, STREAM_REFUSED);
	assert_int_equal(n->a.n_connected, 0);
}

static void a_connection_nobody_answers_ends_at_its_deadline(void **state)
{
	struct net *n = *state;
	uint16_t port;
	int fill, fd = socket_listen_full(&fill, &port);
	char url[64];
	snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port);
	int64_t begin_ns = loop_clock_ns();
	assert_int_equal(stream_connect(&n->a.stream, &n->loop, url, NULL, begin_ns + S / 5, &limits, &events, &n->a, NULL), OK);
	assert_true(loop_run_until(&n->loop, a_ended, n, loop_clock_ns() + PATIENCE));
	assert_int_equal(n->a.why, STREAM_TIMEOUT);
	assert_true(loop_clock_ns() - begin_ns >= S / 5);
	close(fill);
	close(fd);
}

static void dials_given_up_at_any_moment_harm_nothing(void **state)
{
	struct net *n = *state;
	uint16_t port;
	int fill, fd = socket_listen_full(&fill, &port);
	char url[64];
	snprintf(url, sizeof url, "tcp://127.0.0.1:%u", port);
	for (int i = 0; i < 500; i++) {
		n->a.n_ended = 0;
		int64_t begin_ns = loop_clock_ns();
		assert_int_equal(stream_connect(&n->a.stream, &n->loop, url, NULL, begin_ns + i % 20 * S / 10000, &limits, &events, &n->a, NULL), OK);
		assert_true(loop_run_until(&n->loop, a_ended, n, loop_clock_ns() + PATIENCE));
		assert_int_equal(n->a.n_connected, 0);
		stream_close(&n->a.stream);
	}
	close(fill);
	close(fd);
}

static void a_port_that_cannot_be_ends_the_stream(void **state)
{
	struct net *n = *state;
	dial(n, "tcp://127.0.0.1:99999999");
	assert_true(loop_run_until(&n->loop, a_ended, n, loop_clock_ns() + PATIENCE));
	assert_int_equal(n->a.n_connected, 0);
}

static void end_of_stream_comes_after_the_last_byte(void **state)
{
	struct net *n = *state;
	n->b.got = malloc(65536);
	int fd = socket_connect(NULL, n->listener.port);
	socket_send(fd, "last words", 10);
	close(fd);
	assert_true(loop_run_until(&n->loop, b_ended, n, loop_clock_ns() + PATIENCE));
	assert_int_equal(n->b.n_got, 10);
	assert_int_equal(n->b.why, STREAM_EOF);
	assert_memory_equal(n->b.got, "last words", 10);
}

static bool b_connected(void *ctx)
{
	return ((struct net *)ctx)->b.n_connected > 0;
}

static void a_reset_ends_the_stream_once(void **state)
{
	struct net *n = *state;
	int fd = socket_connect(NULL, n->listener.port);
	assert_true(loop_run_until(&n->loop, b_connected, n, loop_clock_ns() + PATIENCE));
	static uint8_t data[1 << 19];
	push(&n->b, data, sizeof data); // a read and a write are both under way
	push(&n->b, data, sizeof data);
	socket_reset(fd);
	assert_true(loop_run_until(&n->loop, b_ended, n, loop_clock_ns() + PATIENCE));
	(void)loop_run_until(&n->loop, never, NULL, loop_clock_ns() + S / 50);
	assert_int_equal(n->b.n_ended, 1);
	struct stream_chunk *c; // pushing after the end is harmless
	while (stream_chunk_new(&n->b.stream, 8, &c) == OK) {
		size_t before = n->b.stream.queued_bytes;
		stream_push(&n->b.stream, c);
		assert_true(n->b.stream.queued_bytes <= before);
		if (n->b.stream.queued_bytes == 0)
			break;
	}
}

static void the_peers_address_is_known(void **state)
{
	struct net *n = *state;
	int fd = socket_connect("127.0.0.9", n->listener.port);
	assert_true(loop_run_until(&n->loop, b_connected, n, loop_clock_ns() + PATIENCE));
	char text[STREAM_PEER_TEXT];
	stream_peer_text(&n->b.stream.peer, text);
	assert_memory_equal(text, "127.0.0.9:", 10);
	close(fd);
}

static void a_connection_comes_from_the_address_it_was_given(void **state)
{
	struct net *n = *state;
	char url[64], text[STREAM_PEER_TEXT];
	url_of(n, url);
	assert_int_equal(stream_connect(&n->a.stream, &n->loop, url, "127.3.2.1", loop_clock_ns() + 5 * S, &limits, &events, &n->a, NULL), OK);
	n->a.is_open = true;
	assert_true(loop_run_until(&n->loop, both_connected, n, loop_clock_ns() + PATIENCE));
	stream_peer_text(&n->b.stream.peer, text);
	assert_memory_equal(text, "127.3.2.1:", 10);
}

static void an_address_that_is_none_is_no_source(void **state)
{
	struct net *n = *state;
	char url[64];
	struct errmsg em;
	url_of(n, url);
	assert_int_equal(stream_connect(&n->a.stream, &n->loop, url, "nowhere", INT64_MAX, &limits, &events, &n->a, &em), ERR_FORMAT);
	assert_non_null(strstr(em.text, "nowhere is no address to connect from"));
}

static void urls_that_are_none_are_refused(void **state)
{
	struct net *n = *state;
	static const char *const bad[] = {"", "nonsense", "tcp:/127.0.0.1:1", "gopher://127.0.0.1:70"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct errmsg em = {{0}};
		assert_int_equal(
			stream_connect(&n->a.stream, &n->loop, bad[i], NULL, INT64_MAX, &limits, &events, &n->a, &em), ERR_FORMAT);
		assert_true(em.text[0] != '\0');
	}
	struct stream_listener l;
	struct errmsg em;
	char url[64];
	url_of(n, url);
	assert_int_equal(stream_listen(&l, &n->loop, url, on_accept, n, &em), ERR_EXISTS);
	assert_int_equal(stream_listen(&l, &n->loop, "tcp://nonsense", on_accept, n, &em), ERR_FORMAT);
}

static void a_unix_socket_is_private_and_carries_bytes(void **state)
{
	struct net *n = *state;
	char dir[] = "/tmp/hearth-test-XXXXXX";
	assert_non_null(mkdtemp(dir));
	char url[64];
	snprintf(url, sizeof url, "ipc://%s/s", dir);
	struct stream_listener l;
	assert_int_equal(stream_listen(&l, &n->loop, url, on_accept, n, NULL), OK);
	struct stat st;
	assert_int_equal(stat(url + 6, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	dial(n, url);
	assert_true(loop_run_until(&n->loop, both_connected, n, loop_clock_ns() + PATIENCE));
	n->b.got = malloc(65536);
	push(&n->a, (const uint8_t *)"hello", 5);
	while (n->b.n_got < 5)
		(void)loop_run_until(&n->loop, never, NULL, loop_clock_ns() + S / 100);
	assert_memory_equal(n->b.got, "hello", 5);
	assert_false(n->b.stream.peer.is_ip);
	stream_listener_close(&l);
	assert_int_equal(rmdir(dir), 0); // the socket file is gone
}

// ---- Closing at any moment ----

static bool b_accepted_or_a_closed(void *ctx)
{
	struct net *n = ctx;
	return (n->n_accepted > 0 && !n->b.is_open) || n->b.n_ended > 0 || !n->a.is_open || n->a.n_ended > 0;
}

static void kill_both(struct net *n)
{
	stream_close(&n->a.stream);
	stream_close(&n->b.stream);
	n->a = (struct end){.is_open = false};
	n->b = (struct end){.is_open = false};
	n->n_accepted = 0;
}

// One connection, cut at a moment that `i` chooses, with reads and writes of both ends under way.
static void connect_and_kill(struct net *n, uint32_t i, struct rng *rng)
{
	static uint8_t data[200000];
	char url[64];
	url_of(n, url);
	switch (i % 8) {
	case 0:
		n->a.close_on_connected = true;
		break;
	case 1:
		n->b.close_on_read = true;
		break;
	case 2:
		n->a.close_on_written = true;
		break;
	case 3:
		n->b.close_on_connected = true;
		break;
	default:
		break;
	}
	dial(n, url);
	if (i % 8 == 4) // while it connects
		return;
	(void)loop_run_until(&n->loop, both_connected, n, loop_clock_ns() + (i % 8 == 0 || i % 8 == 3 ? S / 100 : PATIENCE));
	for (int k = 0; k < 3; k++) {
		if (n->a.is_open && n->a.n_connected > 0 && !stream_is_full(&n->a.stream))
			push(&n->a, data, 1 + rng_below(rng, sizeof data));
		if (n->b.is_open && !stream_is_full(&n->b.stream))
			push(&n->b, data, 1 + rng_below(rng, sizeof data));
	}
	if (i % 8 == 1 || i % 8 == 2)
		(void)loop_run_until(&n->loop, b_accepted_or_a_closed, n, loop_clock_ns() + PATIENCE);
	else
		(void)loop_run_until(&n->loop, never, NULL, loop_clock_ns() + (int64_t)rng_below(rng, 1500000));
}

static void a_thousand_connections_killed_with_io_under_way_leave_nothing(void **state)
{
	struct net *n = *state;
	struct rng rng;
	rng_init(&rng, 6);
	for (uint32_t i = 0; i < 64; i++) { // the allocator and NNG reach their size
		connect_and_kill(n, i, &rng);
		kill_both(n);
	}
	int fds = open_descriptors();
	long kb = resident_kb();
	for (uint32_t i = 0; i < 1200; i++) {
		connect_and_kill(n, i, &rng);
		kill_both(n);
	}
	// Connections that were cut before they were accepted are still in the listener's hands.
	// NNG, too, closes some sockets a little later, and tells nobody.
	for (int64_t end_ns = loop_clock_ns() + PATIENCE; open_descriptors() > fds && loop_clock_ns() < end_ns;) {
		(void)loop_run_until(&n->loop, never, NULL, loop_clock_ns() + S / 1000);
		kill_both(n);
	}
	assert_true(open_descriptors() <= fds);
	long grown = resident_kb() - kb;
	print_message("memory grew by %ld KiB in 1,200 cycles\n", grown);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__has_feature)
	assert_true(grown < 2048); // a sanitizer keeps freed memory back
#endif
}

static void a_name_lookup_under_way_does_not_hold_up_a_close(void **state)
{
	struct net *n = *state;
	for (int i = 0; i < 20; i++) {
		dial(n, "tcp://no-such-machine.invalid:7433");
		int64_t begin_ns = loop_clock_ns();
		stream_close(&n->a.stream);
		assert_true(loop_clock_ns() - begin_ns < S);
	}
}

#define WITH_NET(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_NET(chunks_of_any_size_arrive_whole_and_in_order),
		WITH_NET(a_queue_that_nobody_drains_is_full_and_opens_again),
		WITH_NET(a_port_nobody_listens_on_is_refused),
		WITH_NET(a_connection_nobody_answers_ends_at_its_deadline),
		WITH_NET(dials_given_up_at_any_moment_harm_nothing),
		WITH_NET(a_port_that_cannot_be_ends_the_stream),
		WITH_NET(end_of_stream_comes_after_the_last_byte),
		WITH_NET(a_reset_ends_the_stream_once),
		WITH_NET(the_peers_address_is_known),
		WITH_NET(a_connection_comes_from_the_address_it_was_given),
		WITH_NET(an_address_that_is_none_is_no_source),
		WITH_NET(urls_that_are_none_are_refused),
		WITH_NET(a_unix_socket_is_private_and_carries_bytes),
		WITH_NET(a_thousand_connections_killed_with_io_under_way_leave_nothing),
		WITH_NET(a_name_lookup_under_way_does_not_hold_up_a_close),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
