#include "net/admin_socket.h"

#include "base/assert.h"
#include "net/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LOCK_NAME "admin.lock"
#define FIRST_BUF 4096
#define QUEUED_BYTES_MAX (4 * (size_t)ADMIN_LINE_MAX)
#define QUEUED_LINES_MAX 1024
#define FINISH_NS INT64_C(5000000000) // how long a client may take to read the end of its answer

struct admin_client {
	struct admin_server *server; // NULL: the place is free
	void *user;
	struct stream stream;
	char *buf; // (cap), owned
	size_t cap, used;
	bool has_spoken;   // the host knows it
	bool is_finishing; // nothing more is read or queued
	bool *gone;        // where a call under way learns that the server was closed inside it
	struct loop_task end_task;
	struct loop_timer finish_timer;
};

struct admin_server {
	struct loop *loop;
	struct admin_callbacks callbacks;
	struct stream_listener listener;
	int lock_fd;
	uint32_t n_clients;
	struct admin_client clients[ADMIN_CLIENTS_MAX];
};

// put_path writes DIR/NAME, which a Unix socket's address must hold.
static enum err put_path(const char *dir, const char *name, char *out, size_t cap, struct errmsg *em)
{
	int n = snprintf(out, cap, "%s/%s", dir, name);
	if (n >= 0 && (size_t)n < cap)
		return OK;
	return errmsg_fail(em, ERR_LIMIT,
		"state directory %s: its path has %zu characters, a socket in it may have at most %zu: choose a shorter one with "
		"--state",
		dir, strlen(dir), cap - 2 - strlen(name));
}

// ---- One client ----

static void free_client(struct admin_client *c)
{
	struct admin_server *s = c->server;
	if (c->gone != NULL)
		*c->gone = true;
	loop_task_cancel(s->loop, &c->end_task);
	loop_timer_clear(s->loop, &c->finish_timer);
	stream_close(&c->stream);
	free(c->buf);
	s->n_clients--;
	*c = (struct admin_client){0};
}

// end_client is for the tail of an event: the host hears that the client is gone.
static void end_client(void *ctx)
{
	struct admin_client *c = ctx;
	struct admin_server *s = c->server;
	if (c->has_spoken && s->callbacks.on_gone != NULL) {
		bool gone = false;
		c->gone = &gone;
		c->is_finishing = true; // admin_send inside on_gone is refused
		s->callbacks.on_gone(s->callbacks.ctx, c);
		if (gone)
			return;
	}
	c->gone = NULL;
	free_client(c);
}

static void read_more(struct admin_client *c)
{
	if (c->used == c->cap) {
		size_t cap = c->cap < FIRST_BUF ? FIRST_BUF : 2 * c->cap;
		char *buf = cap <= 2 * (size_t)ADMIN_LINE_MAX ? realloc(c->buf, cap) : NULL;
		if (buf == NULL) {
			end_client(c);
			return;
		}
		c->buf = buf;
		c->cap = cap;
	}
	stream_read(&c->stream, (uint8_t *)c->buf + c->used, c->cap - c->used);
}

// take_lines hands the host every whole line; false: the client is gone, or its line too long.
static bool take_lines(struct admin_client *c)
{
	size_t at = 0;
	bool gone = false;
	char *end;
	while (!c->is_finishing && (end = memchr(c->buf + at, '\n', c->used - at)) != NULL) {
		size_t len = (size_t)(end - (c->buf + at));
		if (len > ADMIN_LINE_MAX)
			break;
		*end = '\0';
		c->has_spoken = true;
		c->gone = &gone;
		c->server->callbacks.on_line(c->server->callbacks.ctx, c, c->buf + at, len);
		if (gone)
			return false;
		c->gone = NULL;
		at += len + 1;
	}
	c->used -= at;
	memmove(c->buf, c->buf + at, c->used);
	if (c->used > ADMIN_LINE_MAX && !c->is_finishing) {
		end_client(c);
		return false;
	}
	return true;
}

static void on_read(void *ctx, size_t n)
{
	struct admin_client *c = ctx;
	c->used += n;
	if (take_lines(c) && !c->is_finishing)
		read_more(c);
}

static void on_written(void *ctx)
{
	struct admin_client *c = ctx;
	if (c->is_finishing)
		end_client(c);
}

static void on_end(void *ctx, enum stream_end why)
{
	(void)why;
	end_client(ctx);
}

static const struct stream_events client_events = {NULL, on_read, on_written, on_end};

enum err admin_send(struct admin_client *c, const char *line, size_t len)
{
	if (len > ADMIN_LINE_MAX)
		return ERR_LIMIT;
	if (c->is_finishing)
		return ERR_CLOSED;
	ASSERT(memchr(line, '\n', len) == NULL);
	struct stream_chunk *chunk;
	if (stream_chunk_new(&c->stream, len + 1, &chunk) != OK) {
		c->is_finishing = true;
		loop_task_post(c->server->loop, &c->end_task);
		return ERR_CLOSED;
	}
	memcpy(chunk->data, line, len);
	chunk->data[len] = '\n';
	stream_push(&c->stream, chunk);
	return OK;
}

void admin_finish(struct admin_client *c)
{
	if (c->is_finishing)
		return;
	c->is_finishing = true;
	if (c->stream.head == NULL)
		loop_task_post(c->server->loop, &c->end_task);
	else
		loop_timer_set(c->server->loop, &c->finish_timer, loop_now_ns(c->server->loop) + FINISH_NS);
}

void admin_set_user(struct admin_client *c, void *user)
{
	c->user = user;
}

void *admin_user(const struct admin_client *c)
{
	return c->user;
}

// ---- The server ----

static void on_accept(void *ctx, nng_stream *conn)
{
	static const struct stream_limits limits = {.queued_bytes_max = QUEUED_BYTES_MAX, .queued_chunks_max = QUEUED_LINES_MAX};
	struct admin_server *s = ctx;
	struct admin_client *c = NULL;
	for (int i = 0; i < ADMIN_CLIENTS_MAX && c == NULL; i++)
		if (s->clients[i].server == NULL)
			c = &s->clients[i];
	if (c == NULL) {
		nng_stream_free(conn);
		return;
	}
	*c = (struct admin_client){.server = s};
	loop_task_init(&c->end_task, end_client, c);
	loop_timer_init(&c->finish_timer, end_client, c);
	s->n_clients++;
	if (stream_adopt(&c->stream, s->loop, conn, &limits, &client_events, c) != OK)
		free_client(c);
	else
		read_more(c);
}

// take_lock: the lock, not the socket file, says whether a process serves this directory; the kernel drops it with the process.
static enum err take_lock(struct admin_server *s, const char *state_dir, struct errmsg *em)
{
	char path[sizeof((struct sockaddr_un *)0)->sun_path];
	enum err e = put_path(state_dir, LOCK_NAME, path, sizeof path, em);
	if (e != OK)
		return e;
	s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock_fd < 0)
		return errmsg_fail(em, ERR_IO, "%s: %s", path, strerror(errno));
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return OK;
	if (errno == EWOULDBLOCK)
		return errmsg_fail(em, ERR_EXISTS, "hearth is already running with state directory %s", state_dir);
	return errmsg_fail(em, ERR_IO, "%s: lock: %s", path, strerror(errno));
}

enum err admin_server_open(struct admin_server **out, struct loop *loop, const char *state_dir,
	const struct admin_callbacks *callbacks, struct errmsg *em)
{
	*out = NULL;
	struct admin_server *s = calloc(1, sizeof *s);
	if (s == NULL)
		return errmsg_fail(em, ERR_NOMEM, "admin socket: out of memory");
	s->loop = loop;
	s->callbacks = *callbacks;
	s->lock_fd = -1;
	char path[sizeof((struct sockaddr_un *)0)->sun_path];
	char url[sizeof path + 8];
	enum err e = put_path(state_dir, ADMIN_SOCKET_NAME, path, sizeof path, em);
	if (e == OK)
		e = take_lock(s, state_dir, em);
	if (e != OK)
		goto fail;
	if (unlink(path) != 0 && errno != ENOENT) { // a dead process's
		e = errmsg_fail(em, ERR_IO, "%s: %s", path, strerror(errno));
		goto fail;
	}
	snprintf(url, sizeof url, "ipc://%s", path);
	e = stream_listen(&s->listener, loop, url, on_accept, s, em);
	if (e != OK)
		goto fail;
	*out = s;
	return OK;
fail:
	admin_server_close(s);
	return e;
}

void admin_server_close(struct admin_server *s)
{
	if (s == NULL)
		return;
	stream_listener_close(&s->listener); // NNG removes the socket file
	for (int i = 0; i < ADMIN_CLIENTS_MAX; i++)
		if (s->clients[i].server != NULL)
			free_client(&s->clients[i]);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	free(s);
}

uint32_t admin_server_n_clients(const struct admin_server *s)
{
	return s->n_clients;
}

// ---- The command line's side: blocking ----

static enum err connect_error(const char *state_dir, int e, struct errmsg *em)
{
	if (e == ENOENT || e == ECONNREFUSED || e == ENOTDIR)
		return errmsg_fail(em, ERR_NOT_FOUND,
			"no coordinator is running with state directory %s: start it with hearth serve", state_dir);
	return errmsg_fail(em, ERR_IO, "%s/%s: %s", state_dir, ADMIN_SOCKET_NAME, strerror(e));
}

enum err admin_connect(struct admin_conn *c, const char *state_dir, struct errmsg *em)
{
	*c = (struct admin_conn){.fd = -1};
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	enum err e = put_path(state_dir, ADMIN_SOCKET_NAME, sun.sun_path, sizeof sun.sun_path, em);
	if (e != OK)
		return e;
	c->buf = malloc(ADMIN_LINE_MAX + 1);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->buf == NULL || c->fd < 0)
		e = errmsg_fail(em, ERR_IO, "admin socket: %s", strerror(errno));
	else if (connect(c->fd, (struct sockaddr *)&sun, sizeof sun) != 0)
		e = connect_error(state_dir, errno, em);
	if (e != OK)
		admin_disconnect(c);
	return e;
}

static enum err write_all(struct admin_conn *c, const char *data, size_t len, struct errmsg *em)
{
	while (len > 0) {
		ssize_t n = send(c->fd, data, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errmsg_fail(em, ERR_CLOSED, "the coordinator closed the connection: %s", strerror(errno));
		data += n;
		len -= (size_t)n;
	}
	return OK;
}

enum err admin_write_line(struct admin_conn *c, const char *line, struct errmsg *em)
{
	size_t len = strlen(line);
	if (len > ADMIN_LINE_MAX)
		return errmsg_fail(em, ERR_LIMIT, "a request of %zu bytes (want at most %d)", len, ADMIN_LINE_MAX);
	enum err e = write_all(c, line, len, em);
	return e != OK ? e : write_all(c, "\n", 1, em);
}

// wait_readable returns ERR_TIMEOUT at the absolute deadline (INT64_MAX: never).
static enum err wait_readable(int fd, int64_t deadline_ns, struct errmsg *em)
{
	for (;;) {
		int timeout_ms = -1;
		if (deadline_ns != INT64_MAX) {
			int64_t left = deadline_ns - loop_clock_ns();
			timeout_ms = left > 0 ? (int)((left + 999999) / 1000000) : 0;
		}
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int n = poll(&p, 1, timeout_ms);
		if (n > 0)
			return OK;
		if (n == 0)
			return errmsg_fail(em, ERR_TIMEOUT, "the coordinator did not answer in time");
		if (errno != EINTR)
			return errmsg_fail(em, ERR_IO, "admin socket: %s", strerror(errno));
	}
}

enum err admin_read_line(struct admin_conn *c, int timeout_ms, const char **line, size_t *len, struct errmsg *em)
{
	int64_t deadline_ns = timeout_ms < 0 ? INT64_MAX : loop_clock_ns() + timeout_ms * INT64_C(1000000);
	if (c->line_len > 0) { // the line of the last call
		c->used -= c->line_len;
		memmove(c->buf, c->buf + c->line_len, c->used);
		c->line_len = 0;
	}
	size_t seen = 0;
	for (;;) {
		char *end = memchr(c->buf + seen, '\n', c->used - seen);
		if (end != NULL) {
			*end = '\0';
			*line = c->buf;
			*len = (size_t)(end - c->buf);
			c->line_len = *len + 1;
			return OK;
		}
		seen = c->used;
		if (c->used == ADMIN_LINE_MAX + 1)
			return errmsg_fail(
				em, ERR_LIMIT, "the coordinator's answer has a line of more than %d bytes", ADMIN_LINE_MAX);
		enum err e = wait_readable(c->fd, deadline_ns, em);
		if (e != OK)
			return e;
		ssize_t n = recv(c->fd, c->buf + c->used, ADMIN_LINE_MAX + 1 - c->used, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return errmsg_fail(em, ERR_CLOSED, "the coordinator ended the connection%s%s", n < 0 ? ": " : "",
				n < 0 ? strerror(errno) : "");
		c->used += (size_t)n;
	}
}

void admin_disconnect(struct admin_conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	free(c->buf);
	*c = (struct admin_conn){.fd = -1};
}
