#include "net/stream.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <nng/supplemental/util/platform.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEND_IOVS 4                        // more would make NNG allocate for each send
#define ACCEPT_RETRY_NS INT64_C(100000000) // without descriptors accept fails at once: ten times a second does not burn the CPU

const char *stream_end_words(enum stream_end e)
{
	static const char *const words[] = {
#define X(name, words) words,
		STREAM_END_TABLE(X)
#undef X
	};
	return (size_t)e < ARRAY_LEN(words) ? words[e] : "connection failed";
}

static enum stream_end end_of_nng(int rv)
{
	switch (rv) {
	case NNG_ECLOSED:
	case NNG_ECONNSHUT:
		return STREAM_EOF;
	case NNG_ECONNRESET:
	case NNG_ECONNABORTED:
		return STREAM_RESET;
	case NNG_ECONNREFUSED:
	case NNG_ENOENT: // a Unix socket that is not there
		return STREAM_REFUSED;
	case NNG_EUNREACHABLE:
		return STREAM_UNREACHABLE;
	case NNG_EADDRINVAL:
		return STREAM_NO_ADDR;
	case NNG_ETIMEDOUT:
		return STREAM_TIMEOUT;
	default:
		return STREAM_FAILED;
	}
}

struct stream_peer stream_peer_of(nng_stream *conn)
{
	struct stream_peer p = {.is_ip = false};
	nng_sockaddr sa;
	if (nng_stream_get_addr(conn, NNG_OPT_REMADDR, &sa) != 0)
		return p;
	if (sa.s_family == NNG_AF_INET) {
		p.is_ip = true;
		p.addr[10] = p.addr[11] = 0xff;
		memcpy(p.addr + 12, &sa.s_in.sa_addr, 4);
		p.port = ntohs(sa.s_in.sa_port);
	} else if (sa.s_family == NNG_AF_INET6) {
		p.is_ip = true;
		memcpy(p.addr, sa.s_in6.sa_addr, 16);
		p.port = ntohs(sa.s_in6.sa_port);
	}
	return p;
}

void stream_peer_text(const struct stream_peer *p, char out[STREAM_PEER_TEXT])
{
	static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};
	char text[INET6_ADDRSTRLEN];
	if (!p->is_ip) {
		snprintf(out, STREAM_PEER_TEXT, "local");
	} else if (memcmp(p->addr, v4_prefix, sizeof v4_prefix) == 0) {
		inet_ntop(AF_INET, p->addr + 12, text, sizeof text);
		snprintf(out, STREAM_PEER_TEXT, "%s:%u", text, p->port);
	} else {
		inet_ntop(AF_INET6, p->addr, text, sizeof text);
		snprintf(out, STREAM_PEER_TEXT, "[%s]:%u", text, p->port);
	}
}

// ---- Events, on the loop's thread ----

static void report_end(struct stream *s, enum stream_end why)
{
	if (s->has_ended)
		return;
	s->has_ended = true;
	s->events->on_end(s->ctx, why);
}

static void start_write(struct stream *s)
{
	nng_iov iov[SEND_IOVS];
	unsigned n = 0;
	for (struct stream_chunk *c = s->head; c != NULL && n < SEND_IOVS; c = c->next)
		iov[n++] = (nng_iov){.iov_buf = c->data + c->done, .iov_len = c->len - c->done};
	int rv = nng_aio_set_iov(s->write_aio, n, iov);
	ASSERT(rv == 0); // fails for more than four only
	s->is_writing = true;
	nng_stream_send(s->conn, s->write_aio);
}

static void drop_chunk(struct stream *s)
{
	struct stream_chunk *c = s->head;
	s->head = c->next;
	if (s->head == NULL)
		s->tail = &s->head;
	s->queued_chunks--;
	s->queued_bytes -= c->len - c->done;
	if (!c->is_borrowed)
		stream_chunk_free(c);
}

// take_sent accounts for n bytes that the kernel took, which may end in the middle of a chunk.
static void take_sent(struct stream *s, size_t n)
{
	while (n > 0 && s->head != NULL) {
		struct stream_chunk *c = s->head;
		size_t part = c->len - c->done < n ? c->len - c->done : n;
		c->done += part;
		s->queued_bytes -= part;
		n -= part;
		if (c->done == c->len)
			drop_chunk(s);
	}
	ASSERT(n == 0);
}

static void on_write_done(void *ctx)
{
	struct stream *s = ctx;
	s->is_writing = false;
	if (s->has_ended)
		return;
	int rv = nng_aio_result(s->write_aio);
	if (rv != 0) {
		report_end(s, end_of_nng(rv));
		return;
	}
	take_sent(s, nng_aio_count(s->write_aio));
	if (s->head != NULL)
		start_write(s);
	else
		s->events->on_written(s->ctx);
}

static void on_read_done(void *ctx)
{
	struct stream *s = ctx;
	s->is_reading = false;
	if (s->has_ended)
		return;
	int rv = nng_aio_result(s->read_aio);
	if (rv != 0)
		report_end(s, end_of_nng(rv));
	else
		s->events->on_read(s->ctx, nng_aio_count(s->read_aio));
}

// ---- Connecting ----
//
// Two faults of NNG 1.5.2 are worked round here, both measured with dials to a port that neither takes nor refuses:
// - A dialer whose dial was cancelled is touched once more by NNG's poll thread, a moment after the cancelled operation was
//   reported: freeing it at once aborts the process. It is buried instead, and freed when that moment is long over.
// - On a busy machine up to 3 in 10 dials are reported as connected before anything was connected: the poll thread sees the new
//   socket before connect() is called, and takes its hang-up for success. Such a connection has no peer: it is dialled again.

#define BURIAL_NS INT64_C(250000000)
#define REDIALS_MAX 8 // a peer that accepts and resets at once has no address either: that must not dial for ever

struct stream_grave {
	struct loop *loop;
	struct loop_resident resident;
	struct loop_timer timer;
	nng_stream_dialer *dialer;
	int64_t end_ns;
};

static void open_grave(void *ctx)
{
	struct stream_grave *g = ctx;
	int64_t left_ns = g->end_ns - loop_clock_ns();
	if (left_ns > 0) // the loop closes before the time is up
		nng_msleep((nng_duration)(left_ns / 1000000 + 1));
	loop_timer_clear(g->loop, &g->timer);
	loop_resident_remove(&g->resident);
	nng_stream_dialer_free(g->dialer);
	free(g);
}

static void bury(struct stream *s)
{
	struct stream_grave *g = s->grave;
	*g = (struct stream_grave){.loop = s->loop, .dialer = s->dialer, .end_ns = loop_clock_ns() + BURIAL_NS};
	loop_resident_add(s->loop, &g->resident, open_grave, g);
	loop_timer_init(&g->timer, open_grave, g);
	loop_timer_set(s->loop, &g->timer, g->end_ns);
	s->grave = NULL;
}

static bool has_peer(nng_stream *conn)
{
	nng_sockaddr sa;
	return nng_stream_get_addr(conn, NNG_OPT_REMADDR, &sa) == 0;
}

static void free_dialer(struct stream *s)
{
	if (s->dialer == NULL)
		return;
	nng_stream_dialer_close(s->dialer);
	nng_aio_stop(s->dial_aio);
	loop_task_cancel(s->loop, &s->dial_task);
	loop_timer_clear(s->loop, &s->dial_timer);
	if (s->conn == NULL && nng_aio_result(s->dial_aio) == 0) {
		nng_stream *late = nng_aio_get_output(s->dial_aio, 0); // it connected while we gave up
		if (late != NULL)
			nng_stream_free(late);
	}
	nng_aio_free(s->dial_aio);
	bury(s);
	s->dialer = NULL;
	s->dial_aio = NULL;
}

static void on_dial_done(void *ctx)
{
	struct stream *s = ctx;
	if (s->has_ended)
		return;
	int rv = nng_aio_result(s->dial_aio);
	if (rv != 0) {
		loop_timer_clear(s->loop, &s->dial_timer);
		report_end(s, end_of_nng(rv));
		return;
	}
	nng_stream *conn = nng_aio_get_output(s->dial_aio, 0);
	if (!has_peer(conn)) {
		nng_aio_set_output(s->dial_aio, 0, NULL);
		nng_stream_free(conn);
		if (s->n_redials++ < REDIALS_MAX)
			nng_stream_dialer_dial(s->dialer, s->dial_aio);
		else
			report_end(s, STREAM_RESET);
		return;
	}
	s->conn = conn;
	free_dialer(s);
	s->peer = stream_peer_of(s->conn);
	s->events->on_connected(s->ctx);
}

static void on_dial_timeout(void *ctx)
{
	struct stream *s = ctx;
	report_end(s, STREAM_TIMEOUT);
}

// The callbacks of NNG's threads: nothing but a post.
static void post_dial(void *ctx)
{
	struct stream *s = ctx;
	loop_task_post(s->loop, &s->dial_task);
}

static void post_read(void *ctx)
{
	struct stream *s = ctx;
	loop_task_post(s->loop, &s->read_task);
}

static void post_write(void *ctx)
{
	struct stream *s = ctx;
	loop_task_post(s->loop, &s->write_task);
}

// ---- Opening and closing ----

static enum err init_stream(
	struct stream *s, struct loop *loop, const struct stream_limits *limits, const struct stream_events *events, void *ctx)
{
	*s = (struct stream){.loop = loop,
		.events = events,
		.ctx = ctx,
		.queued_bytes_max = limits->queued_bytes_max,
		.queued_chunks_max = limits->queued_chunks_max};
	s->tail = &s->head;
	loop_task_init(&s->dial_task, on_dial_done, s);
	loop_task_init(&s->read_task, on_read_done, s);
	loop_task_init(&s->write_task, on_write_done, s);
	loop_timer_init(&s->dial_timer, on_dial_timeout, s);
	if (nng_aio_alloc(&s->read_aio, post_read, s) != 0)
		return ERR_NOMEM;
	if (nng_aio_alloc(&s->write_aio, post_write, s) != 0)
		return ERR_NOMEM;
	return OK;
}

// set_source binds what the dialer dials from.
static bool set_source(nng_stream_dialer *d, const char *from)
{
	nng_sockaddr sa = {0};
	if (inet_pton(AF_INET, from, &sa.s_in.sa_addr) == 1)
		sa.s_in.sa_family = NNG_AF_INET;
	else if (inet_pton(AF_INET6, from, sa.s_in6.sa_addr) == 1)
		sa.s_in6.sa_family = NNG_AF_INET6;
	else
		return false;
	return nng_stream_dialer_set_addr(d, NNG_OPT_LOCADDR, &sa) == 0;
}

enum err stream_connect(struct stream *s, struct loop *loop, const char *url, const char *from, int64_t deadline_ns,
	const struct stream_limits *limits, const struct stream_events *events, void *ctx, struct errmsg *em)
{
	enum err e = init_stream(s, loop, limits, events, ctx);
	if (e == OK && nng_aio_alloc(&s->dial_aio, post_dial, s) != 0)
		e = ERR_NOMEM;
	if (e != OK) {
		stream_close(s);
		return errmsg_fail(em, e, "%s: %s", url, err_words(e));
	}
	s->grave = malloc(sizeof *s->grave);
	int rv = s->grave == NULL ? NNG_ENOMEM : nng_stream_dialer_alloc(&s->dialer, url);
	if (rv != 0) {
		s->dialer = NULL;
		stream_close(s);
		return errmsg_fail(em, rv == NNG_ENOMEM ? ERR_NOMEM : ERR_FORMAT, "%s: %s", url, nng_strerror(rv));
	}
	if (from != NULL && from[0] != '\0' && !set_source(s->dialer, from)) {
		stream_close(s);
		return errmsg_fail(em, ERR_FORMAT, "%s: %s is no address to connect from", url, from);
	}
	// Answers "not supported" for a Unix socket, which has no such delay.
	(void)nng_stream_dialer_set_bool(s->dialer, NNG_OPT_TCP_NODELAY, true);
	loop_timer_set(loop, &s->dial_timer, deadline_ns);
	nng_stream_dialer_dial(s->dialer, s->dial_aio);
	return OK;
}

enum err stream_adopt(struct stream *s, struct loop *loop, nng_stream *conn, const struct stream_limits *limits,
	const struct stream_events *events, void *ctx)
{
	enum err e = init_stream(s, loop, limits, events, ctx);
	s->conn = conn;
	if (e != OK) {
		stream_close(s);
		return e;
	}
	s->peer = stream_peer_of(conn);
	return OK;
}

// stop_aio: afterwards its callback has returned and its task is not queued.
static void stop_aio(struct stream *s, nng_aio *aio, struct loop_task *task)
{
	if (aio == NULL)
		return;
	nng_aio_stop(aio);
	loop_task_cancel(s->loop, task);
}

void stream_close(struct stream *s)
{
	if (s->loop == NULL)
		return;
	free_dialer(s);
	if (s->dial_aio != NULL) // allocated, and no dialer came of it
		nng_aio_free(s->dial_aio);
	free(s->grave);
	if (s->conn != NULL)
		nng_stream_close(s->conn);
	stop_aio(s, s->read_aio, &s->read_task);
	stop_aio(s, s->write_aio, &s->write_task);
	if (s->conn != NULL)
		nng_stream_free(s->conn);
	if (s->read_aio != NULL)
		nng_aio_free(s->read_aio);
	if (s->write_aio != NULL)
		nng_aio_free(s->write_aio);
	while (s->head != NULL)
		drop_chunk(s);
	memset(s, 0, sizeof *s);
}

// ---- Reading and writing ----

void stream_read(struct stream *s, uint8_t *buf, size_t len)
{
	ASSERT(s->conn != NULL);
	ASSERT(!s->is_reading);
	ASSERT(len > 0);
	nng_iov iov = {.iov_buf = buf, .iov_len = len};
	int rv = nng_aio_set_iov(s->read_aio, 1, &iov);
	ASSERT(rv == 0);
	s->is_reading = true;
	nng_stream_recv(s->conn, s->read_aio);
}

bool stream_is_full(const struct stream *s)
{
	return s->queued_chunks >= s->queued_chunks_max || s->queued_bytes >= s->queued_bytes_max;
}

enum err stream_chunk_new(struct stream *s, size_t len, struct stream_chunk **out)
{
	*out = NULL;
	if (stream_is_full(s))
		return ERR_LIMIT;
	struct stream_chunk *c = malloc(sizeof *c + len);
	if (c == NULL)
		return ERR_NOMEM;
	*c = (struct stream_chunk){.data = (uint8_t *)(c + 1), .len = len};
	*out = c;
	return OK;
}

void stream_chunk_free(struct stream_chunk *c)
{
	free(c);
}

void stream_push(struct stream *s, struct stream_chunk *c)
{
	ASSERT(s->conn != NULL);
	ASSERT(c->len > 0);
	c->next = NULL;
	c->done = 0;
	*s->tail = c;
	s->tail = &c->next;
	s->queued_chunks++;
	s->queued_bytes += c->len;
	if (s->has_ended) {
		while (s->head != NULL)
			drop_chunk(s);
		return;
	}
	if (!s->is_writing)
		start_write(s);
}

// ---- Listening ----

static void arm_accept(void *ctx)
{
	struct stream_listener *l = ctx;
	nng_stream_listener_accept(l->listener, l->aio);
}

static void on_accept_done(void *ctx)
{
	struct stream_listener *l = ctx;
	if (nng_aio_result(l->aio) != 0) {
		l->n_failed++;
		loop_timer_set(l->loop, &l->retry, loop_now_ns(l->loop) + ACCEPT_RETRY_NS);
		return;
	}
	nng_stream *conn = nng_aio_get_output(l->aio, 0);
	bool gone = false;
	l->gone = &gone;
	l->on_accept(l->ctx, conn);
	if (gone)
		return;
	l->gone = NULL;
	arm_accept(l);
}

static void post_accept(void *ctx)
{
	struct stream_listener *l = ctx;
	loop_task_post(l->loop, &l->task);
}

static enum err fail_listen(struct stream_listener *l, const char *url, int rv, struct errmsg *em)
{
	stream_listener_close(l);
	switch (rv) {
	case NNG_EADDRINUSE:
		return errmsg_fail(em, ERR_EXISTS, "%s: another program listens there", url);
	case NNG_EADDRINVAL:
		return errmsg_fail(em, ERR_FORMAT, "%s: not an address of this machine (0.0.0.0 is all of them)", url);
	case NNG_EINVAL:
	case NNG_ENOTSUP:
		return errmsg_fail(em, ERR_FORMAT, "%s: no address to listen on (want host:port)", url);
	case NNG_ENOMEM:
		return errmsg_fail(em, ERR_NOMEM, "%s: out of memory", url);
	case NNG_EPERM:
		return errmsg_fail(em, ERR_IO, "%s: permission denied (ports below 1024 are for root)", url);
	default:
		return errmsg_fail(em, ERR_IO, "%s: cannot listen: %s", url, nng_strerror(rv));
	}
}

enum err stream_listen(struct stream_listener *l, struct loop *loop, const char *url,
	void (*on_accept)(void *ctx, nng_stream *conn), void *ctx, struct errmsg *em)
{
	*l = (struct stream_listener){.loop = loop, .on_accept = on_accept, .ctx = ctx};
	loop_task_init(&l->task, on_accept_done, l);
	loop_timer_init(&l->retry, arm_accept, l);
	int rv = nng_aio_alloc(&l->aio, post_accept, l);
	if (rv != 0) {
		l->aio = NULL;
		return fail_listen(l, url, rv, em);
	}
	rv = nng_stream_listener_alloc(&l->listener, url);
	if (rv != 0) {
		l->listener = NULL;
		return fail_listen(l, url, rv, em);
	}
	bool is_local = strncmp(url, "ipc:", 4) == 0;
	rv = is_local ? nng_stream_listener_set_int(l->listener, NNG_OPT_IPC_PERMISSIONS, 0600)
		      : nng_stream_listener_set_bool(l->listener, NNG_OPT_TCP_NODELAY, true);
	if (rv == 0)
		rv = nng_stream_listener_listen(l->listener);
	int port = 0;
	if (rv == 0 && !is_local)
		rv = nng_stream_listener_get_int(l->listener, NNG_OPT_TCP_BOUND_PORT, &port);
	if (rv != 0)
		return fail_listen(l, url, rv, em);
	l->port = (uint16_t)port;
	arm_accept(l);
	return OK;
}

void stream_listener_close(struct stream_listener *l)
{
	if (l->loop == NULL)
		return;
	if (l->gone != NULL)
		*l->gone = true;
	loop_timer_clear(l->loop, &l->retry);
	if (l->listener != NULL)
		nng_stream_listener_close(l->listener);
	if (l->aio != NULL) {
		nng_aio_stop(l->aio);
		// A connection whose task was still queued is nobody's yet.
		bool unseen = loop_task_cancel(l->loop, &l->task);
		nng_stream *conn = unseen && nng_aio_result(l->aio) == 0 ? nng_aio_get_output(l->aio, 0) : NULL;
		if (conn != NULL)
			nng_stream_free(conn);
	}
	if (l->listener != NULL)
		nng_stream_listener_free(l->listener);
	if (l->aio != NULL)
		nng_aio_free(l->aio);
	memset(l, 0, sizeof *l);
}
