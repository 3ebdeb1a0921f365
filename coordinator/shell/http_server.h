// HTTP/1.1 on a loopback address, over libmicrohttpd: whole requests in, one answer or a stream of events out. Knows no JSON but the text of
// its own refusals.
//
// One thread of libmicrohttpd's serves all connections. `on_request` runs there, with the whole body; it answers at once (http_reply), or takes
// a hold (http_hold) and lets another thread answer later. A connection that waits is suspended: it costs no thread and no wake-ups.
// An exchange ends when its answer is sent, or its client is gone; who holds it may go on calling until http_release: then nothing happens.
//
// What a client can make us hold is bounded: connections, the bytes of a body and of all bodies, the text of a stream nobody reads
// (http_stream_push says when), and the time that a request may take to arrive. Requests that a browser sends for a foreign page are refused
// (http_origin.h).
#ifndef HEARTH_COORDINATOR_SHELL_HTTP_SERVER_H
#define HEARTH_COORDINATOR_SHELL_HTTP_SERVER_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_CONNECTIONS_MAX 512                // descriptors: half of the 1,024 a process usually may have
#define HTTP_CONNECTIONS_BUSY 448               // above, a new one ends the longest idle one; are all at work, requests are refused with words
#define HTTP_BODIES_MAX (32 * 1024 * 1024)      // bytes of all bodies that are arriving
#define HTTP_DRAIN_MAX (16 * 1024 * 1024)       // bytes of a refused body that are read, so that the client gets to see why
#define HTTP_STREAM_BACKLOG_MAX (1024 * 1024)    // bytes of a stream that wait for its reader: some 4,500 tokens
#define HTTP_IDLE_S 60                          // a connection on which nothing moves is closed
#define HTTP_ARRIVE_NS INT64_C(60000000000)     // from a request's head to its last byte
#define HTTP_QUERY_MAX 4                        // parameters of a query that are looked at
#define HTTP_REQUEST_ID_CAP 40

struct http_server;
struct http_exchange;

struct http_query {
	const char *name, *value; // percent-decoded; value "" when there is none, NULL when a NUL is in it
};

struct http_request {
	const char *method; // "GET", ...
	const char *path;   // percent-decoded, without the query
	const char *content_type; // "" when there is none
	const char *last_event_id; // NULL when there is none
	struct http_query query[HTTP_QUERY_MAX]; // the first ones
	uint32_t n_query; // of all
	const char *body;   // NUL-terminated; the exchange's, until on_request returns
	size_t body_len;
};

struct http_server_params {
	const struct log *log;
	const char *host;
	uint16_t port;   // 0: any
	size_t body_max; // bytes
	void *ctx;
	// on_request: the server's thread. Either http_reply or http_hold.
	void (*on_request)(void *ctx, struct http_exchange *x, const struct http_request *q);
	// refusal makes the body of an error of the server's own, for free(); NULL: no body.
	char *(*refusal)(int status, const char *code, const char *text);
};

MUST_USE enum err http_server_open(const struct http_server_params *p, struct http_server **out, struct errmsg *em);
uint16_t http_server_port(const struct http_server *s);
// http_server_stop accepts no more connections or requests, and waits up to a second for answers to be sent: end them all first.
void http_server_stop(struct http_server *s);
// http_server_close ends every connection. Exchanges that somebody holds stay valid. After http_server_stop; NULL is allowed.
void http_server_close(struct http_server *s);

// Everything below: any thread that holds the exchange, or on_request.

void http_hold(struct http_exchange *x);
void http_release(struct http_exchange *x);

// http_set_request_id: the answer, still to come, has a header "Hearth-Request: ID".
void http_set_request_id(struct http_exchange *x, const char *id);
// http_reply answers with JSON. body is for free() and taken over; NULL (no memory): 500 without a body. allow: of 405, the methods; NULL else.
// Only the first answer counts.
void http_reply(struct http_exchange *x, int status, char *body, const char *allow);
// http_stream_begin answers 200 with a stream of events.
void http_stream_begin(struct http_exchange *x);
// http_stream_push adds text. False when too much waits already, or there is no memory: the text was dropped, and the stream should end.
MUST_USE bool http_stream_push(struct http_exchange *x, const char *text, size_t len);
// http_stream_end: the stream ends behind `last` (NULL: nothing more), which is added whatever waits.
void http_stream_end(struct http_exchange *x, const char *last);
// http_backlog tells how many bytes of the stream wait.
size_t http_backlog(struct http_exchange *x);
// http_is_idle tells whether everything that was given is in the system's hands, or on its way there.
bool http_is_idle(struct http_exchange *x);
// http_is_gone tells whether the client has closed its connection, or its sending side, which means the same; looks at the socket.
bool http_is_gone(struct http_exchange *x);
// http_abort closes the connection without an answer's end. For clients that do not read.
void http_abort(struct http_exchange *x);

#endif
