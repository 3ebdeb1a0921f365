// The HTTP API, as OpenAI's clients know it: /v1/chat/completions, /v1/completions, /v1/models,
// /v1/hearth/requests/ID, /health (docs/http-api.md).
//
// It listens on a loopback address only: there is no password, and no encryption. What a browser sends for a foreign page is refused.
//
// Two threads. The server's own reads requests, checks them, and makes token ids of them (http_server.h); then it hands a reader and its call to
// the loop (http_call.h), which alone touches the coordinator's runtime. Text goes back through the exchange's buffer. A call: post -> on the
// loop: journal_put and answer_start -> pieces -> end -> kept for a while. The readers' leaving is looked for by a timer of the loop.
// Requests that the journal still has from a coordinator that was killed are begun again by http_api_open.
#ifndef HEARTH_COORDINATOR_SHELL_HTTP_API_H
#define HEARTH_COORDINATOR_SHELL_HTTP_API_H

#include "base/err.h"
#include "base/log.h"
#include "coordinator/shell/coord_runtime.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "net/loop.h"

#include <stdbool.h>
#include <stdint.h>

struct http_api;

struct http_api_params {
	struct loop *loop; // borrowed, like all pointers here
	const struct log *log;
	struct coord_runtime *coord;
	const struct model *model;
	const struct tokenizer *tokenizer;
	const char *journal_dir; // NULL: no request is kept on disk
	uint8_t file_tag[HASH_BYTES]; // tells the model file apart on this machine while its hash is not known
	const char *host; // "127.0.0.1", "::1" or another loopback address
	uint16_t port;    // 0: any that is free
};

// http_api_open listens. ERR_UNSUPPORTED for an address that others could reach; ERR_EXISTS when another program has it; ERR_IO with
// the system's words when it cannot be had.
MUST_USE enum err http_api_open(const struct http_api_params *p, struct http_api **out, struct errmsg *em);
uint16_t http_api_port(const struct http_api *h);
// http_api_stop accepts nothing more, and ends every answer with an error that the client gets to read. On the loop's thread, before
// coord_runtime_close. NULL is allowed.
void http_api_stop(struct http_api *h);
// http_api_close after coord_runtime_close, which ends the requests. NULL is allowed.
void http_api_close(struct http_api *h);

// http_api_event_number reads the number of an event, as a client that comes back sends it: digits alone, 0 to 2^31 - 1. Public for its tests.
MUST_USE bool http_api_event_number(const char *text, int64_t *out);

#endif
