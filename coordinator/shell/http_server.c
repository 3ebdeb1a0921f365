#include "coordinator/shell/http_server.h"

#include "base/assert.h"
#include "coordinator/shell/http_exchange.h"
#include "coordinator/shell/http_origin.h"
#include "coordinator/shell/http_peers.h"
#include "net/loop.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTEN_BACKLOG 1024
#define SEND_BUFFER (64 * 1024) // of the system, for each connection: what a client does not read should be seen in the backlog here
#define STOP_WAIT_S 1

struct http_server {
	struct http_server_params p;
	struct MHD_Daemon *daemon;
	uint16_t port;
	pthread_mutex_t mutex; // guards the next three
	pthread_cond_t none_left;
	struct http_exchange *live; // list
	bool is_stopping;
	// The server thread's own.
	struct http_peers peers;
	size_t bodies; // bytes of all bodies
};

// ---- answers

static void add_headers(struct MHD_Response *r, const struct http_exchange *x, int status)
{
	bool is_stream = x->state == EXCHANGE_STREAMING;
	MHD_add_response_header(r, "Content-Type", is_stream ? "text/event-stream; charset=utf-8" : "application/json");
	MHD_add_response_header(r, "Cache-Control", "no-store");
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)
		MHD_add_response_header(r, "Retry-After", "1");
	if (x->request_id[0] != '\0')
		MHD_add_response_header(r, "Hearth-Request", x->request_id);
	if (x->allow != NULL)
		MHD_add_response_header(r, "Allow", x->allow);
	if (x->closes)
		MHD_add_response_header(r, "Connection", "close");
}

static enum MHD_Result queue(struct http_exchange *x, struct MHD_Connection *c, struct MHD_Response *r, int status)
{
	if (r == NULL)
		return MHD_NO;
	add_headers(r, x, status);
	enum MHD_Result ok = MHD_queue_response(c, (unsigned)status, r);
	MHD_destroy_response(r);
	return ok;
}

// answer sends what there is of an answer, or suspends the connection until there is one.
static enum MHD_Result answer(struct http_exchange *x, struct MHD_Connection *c)
{
	switch (exchange_take(x)) {
	case EXCHANGE_WAITING:
		return MHD_YES; // suspended
	case EXCHANGE_ABORTED:
		return MHD_NO;
	case EXCHANGE_STREAMING:
		return queue(x, c, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, exchange_read, x, NULL), MHD_HTTP_OK);
	case EXCHANGE_REPLIED:
		break;
	}
	char *body = exchange_take_body(x);
	size_t len = body ? strlen(body) : 0;
	return queue(x, c, MHD_create_response_from_buffer(len, body ? body : (char *)(uintptr_t) "", body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT),
		x->status);
}

// ---- refusals of the server's own

static void refuse(struct http_exchange *x, int status, const char *code, const char *text)
{
	if (x->refusal.status == 0)
		x->refusal = (struct http_refusal){status, code, text};
}

static void reply_refusal(const struct http_server *s, struct http_exchange *x)
{
	http_reply(x, x->refusal.status, s->p.refusal(x->refusal.status, x->refusal.code, x->refusal.text), NULL);
}

struct origin_check {
	uint32_t n_hosts;
	bool is_foreign;
};

static enum MHD_Result check_header(void *ctx, enum MHD_ValueKind kind, const char *key, const char *value)
{
	struct origin_check *o = ctx;
	(void)kind;
	if (strcasecmp(key, "Host") == 0) {
		o->n_hosts++;
		o->is_foreign = o->is_foreign || value == NULL || !http_host_is_loopback(value);
	} else if (strcasecmp(key, "Origin") == 0) {
		o->is_foreign = o->is_foreign || value == NULL || !http_origin_is_loopback(value);
	}
	return MHD_YES;
}

static void check_origin(struct http_exchange *x, struct MHD_Connection *c, const char *version)
{
	struct origin_check o = {0};
	MHD_get_connection_values(c, MHD_HEADER_KIND, check_header, &o);
	if (o.n_hosts > 1 || (o.n_hosts == 0 && strcmp(version, MHD_HTTP_VERSION_1_0) != 0))
		refuse(x, MHD_HTTP_BAD_REQUEST, "invalid_host", "want exactly one Host header");
	else if (o.is_foreign)
		refuse(x, MHD_HTTP_FORBIDDEN, "foreign_origin",
			"Host and Origin must name this machine (localhost, 127.0.0.1 or [::1]): the API does not answer other sites' pages");
}

// ---- arriving

static const char *header(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

static void check_head(struct http_server *s, struct http_exchange *x, struct MHD_Connection *c, const char *version)
{
	const char *length = header(c, "Content-Length");
	x->n_declared = length ? strtoull(length, NULL, 10) : 0;
	check_origin(x, c, version);
	if (x->n_declared > s->p.body_max)
		refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, "body_too_large", "the body is larger than 2 MiB");
	if (s->peers.n > HTTP_CONNECTIONS_BUSY && s->peers.first == NULL) { // all are at work
		refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, "too_many_connections", "too many connections are open: try again later");
		x->closes = true;
	}
}

static struct http_peer *peer_of(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	return info ? info->socket_context : NULL;
}

// add_live links a new exchange; false: the server stops.
static bool add_live(struct http_server *s, struct http_exchange *x)
{
	pthread_mutex_lock(&s->mutex);
	x->next = s->live;
	if (x->next)
		x->next->prev = x;
	s->live = x;
	bool is_stopping = s->is_stopping;
	pthread_mutex_unlock(&s->mutex);
	return !is_stopping;
}

static enum MHD_Result begin(struct http_server *s, struct MHD_Connection *c, const char *version, void **con_cls)
{
	struct http_exchange *x = exchange_new(c);
	if (x == NULL)
		return MHD_NO;
	*con_cls = x;
	peers_set_idle(&s->peers, peer_of(c), false);
	if (!add_live(s, x)) {
		refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, "shutting_down", "the server is stopping");
		x->closes = true;
	}
	check_head(s, x, c, version);
	// A refused body is read all the same, or the client may see its connection break instead of the reason; not a huge one.
	if (x->refusal.status == 0 || (x->n_declared <= HTTP_DRAIN_MAX && header(c, "Expect") == NULL))
		return MHD_YES;
	x->closes = true;
	reply_refusal(s, x);
	return answer(x, c);
}

static bool grow(struct http_server *s, struct http_exchange *x, size_t wanted)
{
	size_t cap = x->in_cap ? x->in_cap : 4096;
	while (cap < wanted)
		cap *= 2;
	if (cap == x->in_cap)
		return true;
	if (s->bodies + (cap - x->in_cap) > HTTP_BODIES_MAX)
		return false;
	char *in = realloc(x->in, cap);
	if (in == NULL)
		return false;
	s->bodies += cap - x->in_cap;
	x->in = in;
	x->in_cap = cap;
	return true;
}

static void drop_body(struct http_server *s, struct http_exchange *x)
{
	free(x->in);
	s->bodies -= x->in_cap;
	x->in = NULL;
	x->in_cap = x->in_len = 0;
}

static enum MHD_Result take_body(struct http_server *s, struct http_exchange *x, const char *data, size_t len)
{
	x->n_arrived += len;
	if (loop_clock_ns() - x->began_ns > HTTP_ARRIVE_NS || x->n_arrived > HTTP_DRAIN_MAX)
		return MHD_NO;
	if (x->refusal.status == 0 && x->n_arrived > s->p.body_max)
		refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, "body_too_large", "the body is larger than 2 MiB");
	if (x->refusal.status == 0 && !grow(s, x, x->in_len + len + 1))
		refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, "too_many_bodies", "too many request bodies are arriving: try again later");
	if (x->refusal.status != 0) {
		drop_body(s, x);
		return MHD_YES;
	}
	memcpy(x->in + x->in_len, data, len);
	x->in_len += len;
	x->in[x->in_len] = '\0';
	return MHD_YES;
}

static enum MHD_Result add_query(void *ctx, enum MHD_ValueKind kind, const char *name, size_t name_len, const char *value, size_t value_len)
{
	struct http_request *q = ctx;
	(void)kind;
	bool is_text = strlen(name) == name_len && (value == NULL || strlen(value) == value_len);
	if (q->n_query < HTTP_QUERY_MAX)
		q->query[q->n_query] = (struct http_query){.name = name, .value = !is_text ? NULL : value ? value : ""};
	q->n_query++;
	return MHD_YES;
}

static void dispatch(struct http_server *s, struct http_exchange *x, struct MHD_Connection *c, const char *method, const char *path)
{
	const char *type = header(c, "Content-Type");
	x->is_dispatched = true;
	if (x->refusal.status != 0) {
		reply_refusal(s, x);
		return;
	}
	struct http_request q = {.method = method, .path = path, .content_type = type ? type : "", .last_event_id = header(c, "Last-Event-ID"),
		.body = x->in ? x->in : "", .body_len = x->in_len};
	MHD_get_connection_values_n(c, MHD_GET_ARGUMENT_KIND, add_query, &q);
	s->p.on_request(s->p.ctx, x, &q);
	drop_body(s, x);
}

static enum MHD_Result on_access(void *ctx, struct MHD_Connection *c, const char *path, const char *method, const char *version, const char *data,
	size_t *len, void **con_cls)
{
	struct http_server *s = ctx;
	struct http_exchange *x = *con_cls;
	if (x == NULL)
		return begin(s, c, version, con_cls);
	if (*len > 0) {
		size_t n = *len;
		*len = 0;
		return take_body(s, x, data, n);
	}
	if (!x->is_dispatched)
		dispatch(s, x, c, method, path);
	return answer(x, c);
}

// ---- ending

static void remove_live(struct http_server *s, struct http_exchange *x)
{
	pthread_mutex_lock(&s->mutex);
	if (x->prev)
		x->prev->next = x->next;
	else
		s->live = x->next;
	if (x->next)
		x->next->prev = x->prev;
	if (s->live == NULL)
		pthread_cond_signal(&s->none_left);
	pthread_mutex_unlock(&s->mutex);
}

static void on_completed(void *ctx, struct MHD_Connection *c, void **con_cls, enum MHD_RequestTerminationCode why)
{
	struct http_server *s = ctx;
	struct http_exchange *x = *con_cls;
	(void)why;
	*con_cls = NULL;
	if (x == NULL)
		return;
	peers_set_idle(&s->peers, peer_of(c), true);
	drop_body(s, x);
	exchange_over(x);
	remove_live(s, x);
	http_release(x);
}

static void on_connection(void *ctx, struct MHD_Connection *c, void **socket_ctx, enum MHD_ConnectionNotificationCode code)
{
	struct http_server *s = ctx;
	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		peers_remove(&s->peers, *socket_ctx);
		return;
	}
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
	int fd = info ? info->connect_fd : -1, bytes = SEND_BUFFER;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes); // without it, a deaf client is noticed later
	if (s->peers.n >= HTTP_CONNECTIONS_BUSY)
		peers_evict(&s->peers);
	*socket_ctx = peers_add(&s->peers, fd);
}

static void on_log(void *ctx, const char *fmt, va_list ap)
{
	const struct http_server *s = ctx;
	char text[256];
	vsnprintf(text, sizeof text, fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	log_line(s->p.log, LOG_DEBUG, "http: %s", text);
}

// ---- opening and closing

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

// loopback_address refuses what another machine could reach.
static enum err loopback_address(const char *host, uint16_t port, union address *a, socklen_t *len, struct errmsg *em)
{
	static const struct in6_addr loopback6 = IN6ADDR_LOOPBACK_INIT;
	memset(a, 0, sizeof *a);
	if (strcmp(host, "localhost") == 0)
		host = "127.0.0.1";
	if (inet_pton(AF_INET, host, &a->v4.sin_addr) == 1 && ntohl(a->v4.sin_addr.s_addr) >> 24 == 127) {
		a->v4.sin_family = AF_INET;
		a->v4.sin_port = htons(port);
		*len = sizeof a->v4;
		return OK;
	}
	memset(a, 0, sizeof *a);
	if (inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1 && memcmp(&a->v6.sin6_addr, &loopback6, sizeof loopback6) == 0) {
		a->v6.sin6_family = AF_INET6;
		a->v6.sin6_port = htons(port);
		*len = sizeof a->v6;
		return OK;
	}
	return errmsg_fail(em, ERR_UNSUPPORTED, "HTTP on %s: only a loopback address (127.0.0.1 or ::1), as the API has no password", host);
}

static enum err open_listener(struct http_server *s, int *out, bool *is_v6, struct errmsg *em)
{
	union address a;
	socklen_t len;
	int yes = 1;
	enum err e = loopback_address(s->p.host, s->p.port, &a, &len, em);
	if (e != OK)
		return e;
	*is_v6 = a.any.sa_family == AF_INET6;
	int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return errmsg_fail(em, ERR_IO, "HTTP on %s: %s", s->p.host, strerror(errno));
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); // a restart finds its port again
	if (bind(fd, &a.any, len) != 0 || listen(fd, LISTEN_BACKLOG) != 0 || getsockname(fd, &a.any, &len) != 0) {
		e = errno == EADDRINUSE ? errmsg_fail(em, ERR_EXISTS, "HTTP on %s port %u: another program listens there", s->p.host, (unsigned)s->p.port)
			: errmsg_fail(em, ERR_IO, "HTTP on %s port %u: %s%s", s->p.host, (unsigned)s->p.port, strerror(errno),
				  errno == EACCES ? " (ports below 1024 are for root)" : "");
		close(fd);
		return e;
	}
	s->port = ntohs(*is_v6 ? a.v6.sin6_port : a.v4.sin_port);
	*out = fd;
	return OK;
}

static enum err start_daemon(struct http_server *s, int fd, bool is_v6, struct errmsg *em)
{
	// poll, not epoll: with epoll, a connection whose client left just when its answer was complete could go unnoticed up to HTTP_IDLE_S.
	unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (is_v6 ? (unsigned)MHD_USE_IPv6 : 0u);
	s->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_access, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, s, MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)HTTP_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_IDLE_S, MHD_OPTION_END);
	return s->daemon ? OK : errmsg_fail(em, ERR_IO, "HTTP on %s port %u: the server does not start", s->p.host, (unsigned)s->port);
}

static void init_locks(struct http_server *s)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->none_left, &attr);
	pthread_condattr_destroy(&attr);
}

static void free_server(struct http_server *s)
{
	pthread_cond_destroy(&s->none_left);
	pthread_mutex_destroy(&s->mutex);
	free(s);
}

enum err http_server_open(const struct http_server_params *p, struct http_server **out, struct errmsg *em)
{
	struct http_server *s = calloc(1, sizeof *s);
	int fd = -1;
	bool is_v6 = false;
	if (s == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the HTTP server");
	s->p = *p;
	init_locks(s);
	enum err e = open_listener(s, &fd, &is_v6, em);
	if (e == OK && (e = start_daemon(s, fd, is_v6, em)) != OK)
		close(fd);
	if (e != OK) {
		free_server(s);
		return e;
	}
	*out = s;
	return OK;
}

uint16_t http_server_port(const struct http_server *s)
{
	return s->port;
}

void http_server_stop(struct http_server *s)
{
	struct timespec end;
	int fd = MHD_quiesce_daemon(s->daemon);
	if (fd >= 0)
		close(fd);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += STOP_WAIT_S;
	pthread_mutex_lock(&s->mutex);
	s->is_stopping = true;
	while (s->live != NULL && pthread_cond_timedwait(&s->none_left, &s->mutex, &end) == 0) {
	}
	for (struct http_exchange *x = s->live; x != NULL; x = x->next)
		http_abort(x); // a suspended connection would outlive the daemon
	pthread_mutex_unlock(&s->mutex);
}

void http_server_close(struct http_server *s)
{
	if (s == NULL)
		return;
	MHD_stop_daemon(s->daemon);
	free_server(s);
}
