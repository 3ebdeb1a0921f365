// One request for tokens, from its arrival to the last byte of its answer; what http_api.c and http_call.c share.
//
// Made by the server's thread, which checks the body and makes token ids of it; from call_start on it is the loop's alone.
#ifndef HEARTH_COORDINATOR_SHELL_HTTP_CALL_H
#define HEARTH_COORDINATOR_SHELL_HTTP_CALL_H

#include "coordinator/shell/answer.h"
#include "coordinator/shell/http_api.h"
#include "coordinator/shell/http_server.h"
#include "coordinator/shell/openai_request.h"
#include "coordinator/shell/openai_response.h"
#include "model/chat.h"

#include <pthread.h>

#define MODEL_ID_CAP 128
#define HTTP_TEXT_MAX (16 * 1024 * 1024) // bytes of an answer in one piece; tokens have some bytes each

struct http_call;

struct http_api {
	struct http_api_params p;
	struct http_server *server;
	// Read-only once open.
	struct chat chat;
	bool has_chat;
	struct errmsg no_chat; // why not
	char model_id[MODEL_ID_CAP];
	char fingerprint[64];
	int64_t opened_s;

	pthread_mutex_t mutex;      // guards the next two
	struct http_call *arrivals; // list, the newest first
	bool is_stopping;

	// The loop's.
	struct loop_task arrived;
	struct loop_timer watch;
	struct http_call *calls; // list
};

struct http_call {
	struct http_api *api;
	struct http_exchange *x; // held
	struct http_call *next, *prev;
	bool is_health; // asks how the cluster is; all below is unused then

	struct openai_reply reply;
	int32_t *prompt_ids; // (n_prompt_ids)
	int32_t n_prompt_ids;
	int32_t n_predict;
	struct sampling sampling;
	int32_t n_stops;
	char stops[STOP_STRINGS_MAX][STOP_STRING_CAP];
	bool stream, hearth, logits_hash;

	struct answer *answer; // NULL: not begun, or ended
	bool is_over;          // the client has its answer, or is gone: what comes from the coordinator is not for anybody
	bool has_begun;        // the stream's head is on its way
	int64_t since_ns, sent_ns;
	char *text; // of an answer in one piece
	size_t text_len, text_cap;
	int32_t *output_ids; // (n_output_ids), when hearth
	int32_t n_output_ids, output_cap;
};

// call_new checks the body. NULL after filling *err. The server's thread.
struct http_call *call_new(struct http_api *h, struct http_exchange *x, enum openai_kind kind, const struct http_request *q, struct openai_error *err);
// call_free lets go of the exchange; no list knows the call any more.
void call_free(struct http_call *c);

// The loop's thread. call_start begins the answer; afterwards the call is in h->calls until its end, which frees it.
void call_start(struct http_call *c);
// call_watch is called a few times a second: has the client left, does it want a sign of life.
void call_watch(struct http_call *c, int64_t now_ns);
// call_fail answers with an error, in the stream's way when it has begun.
void call_fail(struct http_call *c, const struct openai_error *e);

#endif
