// One request and its answer, inside: what http_server.c and http_exchange.c share. The functions of http_server.h that take an exchange are in
// http_exchange.c.
//
// libmicrohttpd's thread makes it and is its first holder; it is freed with the last hold. The mutex is held while a connection is suspended
// or resumed, so that text which arrives in between cannot be forgotten.
#ifndef HEARTH_COORDINATOR_SHELL_HTTP_EXCHANGE_H
#define HEARTH_COORDINATOR_SHELL_HTTP_EXCHANGE_H

#include "coordinator/shell/http_server.h"

#include <microhttpd.h>
#include <pthread.h>

enum exchange_state { EXCHANGE_WAITING, EXCHANGE_REPLIED, EXCHANGE_STREAMING, EXCHANGE_ABORTED };

struct http_refusal {
	int status; // 0: none
	const char *code, *text;
};

struct http_exchange {
	pthread_mutex_t mutex; // guards all up to the server thread's own
	uint32_t n_holds;
	struct MHD_Connection *connection; // NULL: over
	int fd;                            // its socket, valid while there is a connection
	bool is_suspended;
	enum exchange_state state; // changes once, or twice when it ends with ABORTED
	int status;                // of REPLIED
	char *body;                // of REPLIED, owned
	const char *allow;         // static text
	char request_id[HTTP_REQUEST_ID_CAP]; // "": none
	char *out;                 // of STREAMING: out_len bytes from out_begin wait for the reader
	size_t out_begin, out_len, out_cap;
	bool is_ended;

	// The server thread's own; next and prev: guarded by the server's mutex.
	struct http_exchange *next, *prev;
	char *in;
	size_t in_len, in_cap;
	uint64_t n_declared, n_arrived; // bytes of the body
	int64_t began_ns;
	struct http_refusal refusal;
	bool is_dispatched, closes;
};

struct http_exchange *exchange_new(struct MHD_Connection *c); // NULL: no memory
// exchange_take returns the state, and suspends the connection when it is WAITING.
enum exchange_state exchange_take(struct http_exchange *x);
// exchange_take_body hands over the body of REPLIED; NULL: it has none.
char *exchange_take_body(struct http_exchange *x);
// exchange_read is the MHD_ContentReaderCallback of a stream.
ssize_t exchange_read(void *ctx, uint64_t pos, char *buf, size_t max);
// exchange_over: the connection is no more.
void exchange_over(struct http_exchange *x);

#endif
