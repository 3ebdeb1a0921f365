// One request for tokens, from its arrival until its answer is forgotten, and those who read it; what http_api.c, http_call.c, http_events.c and
// http_reader.c share.
//
// A call holds what was asked (a request_record: what the journal keeps, too), the answer under way, and what it has said: text, and where each
// event of its stream ends in it. Events are made of that for each reader when it can take them, so that every reader gets the same bytes and
// a slow one costs its own buffer and holds nobody. A reader is one exchange: the client that asked, or one that follows by the request's id.
//
// Nothing is shown before the journal has the request (is_durable), or JOURNAL_WAIT_NS have passed: a disk that hangs must not hang answers.
// A call whose last reader leaves is cancelled, unless it is to be kept, or comes from the journal. When the answer is complete the call stays for
// KEPT_NS, as far as KEPT_MAX and KEPT_BYTES_MAX allow.
//
// Made by the server's thread, which checks the body and makes token ids of it; from call_start on it is the loop's alone.
#ifndef HEARTH_COORDINATOR_SHELL_HTTP_CALL_H
#define HEARTH_COORDINATOR_SHELL_HTTP_CALL_H

#include "coordinator/shell/answer.h"
#include "coordinator/shell/http_api.h"
#include "coordinator/shell/http_server.h"
#include "coordinator/shell/journal.h"
#include "coordinator/shell/openai_request.h"
#include "coordinator/shell/openai_response.h"
#include "coordinator/shell/request_record.h"
#include "engine/logits_hash.h"
#include "model/chat.h"

#include <pthread.h>

#define HTTP_TEXT_MAX (16 * 1024 * 1024) // bytes of one answer; tokens have some bytes each
#define KEPT_NS INT64_C(600000000000)     // an answer that is complete can be read so long
#define KEPT_MAX 1024                     // of them; an answer of 200 tokens takes some 3 KB
#define KEPT_BYTES_MAX (64u * 1024 * 1024)
#define JOURNAL_WAIT_NS INT64_C(5000000000)

struct http_call;
struct http_reader;

struct http_api {
	struct http_api_params p;
	struct http_server *server;
	// Read-only once open.
	struct chat chat;
	bool has_chat;
	struct errmsg no_chat; // why not
	char model_id[REQUEST_MODEL_CAP];
	char fingerprint[64];
	int64_t opened_s;

	pthread_mutex_t mutex;         // guards the next two
	struct http_reader *arrivals;  // list, the newest first
	bool is_stopping;

	// The loop's.
	struct journal *journal; // NULL: none
	bool journal_fails;      // and that was said
	struct loop_task arrived;
	struct loop_timer watch;
	struct http_call *calls; // list, the newest first
	int32_t n_kept;          // of them: complete
	int32_t n_restored;      // by this start, from the journal
	size_t kept_bytes;
};

enum call_state { CALL_RUNNING, CALL_DONE, CALL_FAILED };

struct http_call {
	struct http_api *api;
	struct http_call *next, *prev;
	struct request_record rec;
	char id[REQUEST_ID_HEX + 1];
	struct openai_reply reply; // borrows from rec and api

	struct answer *answer;     // NULL: not begun, or ended
	enum call_state state;
	bool is_restored;          // from the journal
	bool is_cancelled;         // nobody wants it
	bool is_durable;
	struct journal_key key;    // number 0: no entry
	struct http_reader *readers; // list
	int64_t began_ns, ended_ns;
	size_t kept_bytes;           // what api->kept_bytes counts for it

	// What it has said.
	bool has_spoken;             // a token came
	char *text;                  // (text_len)
	size_t text_len, text_cap;
	uint32_t *ends;              // (n_pieces): where each piece ends in text; a stream's
	int32_t n_pieces, pieces_cap;
	int32_t *output_ids;         // (n_output_ids), when rec.hearth
	int32_t n_output_ids, output_cap;
	int32_t n_tokens;            // when DONE
	enum answer_end end;
	char hash[2 * LOGITS_HASH_BYTES + 1];
	struct openai_error error;   // when FAILED
};

enum reader_kind {
	READER_HEALTH, // asks how the cluster is
	READER_CLIENT, // asked for the answer
	READER_FOLLOW, // came with the request's id
};

struct http_reader {
	struct http_api *api;
	struct http_exchange *x; // held
	struct http_reader *next, *prev;
	enum reader_kind kind;
	struct http_call *call;  // CLIENT; FOLLOW: once it is found
	uint8_t id[REQUEST_ID_BYTES]; // FOLLOW
	int64_t n_read;          // events it has
	bool has_begun;          // its stream's head is on its way
	bool is_over;            // has its last bytes, which may still wait in the exchange
	int64_t since_ns, sent_ns;
};

// http_api_watch: something changed that may want looking at sooner.
void http_api_watch(struct http_api *h);
// http_api_serves tells whether that is a name of the model; false after filling *err. Any thread.
bool http_api_serves(const struct http_api *h, const char *model, struct openai_error *err);

// ---- calls (http_call.c)

// call_new checks the body. NULL after filling *err. The server's thread.
struct http_call *call_new(struct http_api *h, enum openai_kind kind, const struct http_request *q, struct openai_error *err);
// call_restore makes one of a journal's record, which it takes over. NULL: no memory.
struct http_call *call_restore(struct http_api *h, struct journal_key key, struct request_record *r);
// call_free: no list knows the call any more, and it has no reader.
void call_free(struct http_call *c);

// The loop's thread. call_start puts the call into h->calls, and begins the answer.
void call_start(struct http_call *c);
// call_find returns the call that a reader with this id may read, or NULL.
struct http_call *call_find(struct http_api *h, const uint8_t id[REQUEST_ID_BYTES]);
// call_on_journal: its entry is on disk, or cannot be.
void call_on_journal(struct http_api *h, struct journal_key key);
// call_watch looks after readers and the end: whenever the API's timer fires, which is when one of the calls wants it. May free the call.
void call_watch(struct http_call *c, int64_t now_ns);
// call_end frees the call and its readers, when the coordinator is no more.
void call_end(struct http_call *c);

// ---- events (http_events.c)

// call_n_events returns how many events of the stream may be shown; when the answer is complete, all of them.
int64_t call_n_events(const struct http_call *c);
// call_n_open_events returns how many of them are not the end: what comes behind belongs together.
int64_t call_n_open_events(const struct http_call *c);
// call_event returns event n (1 to call_n_events) as text for free(); NULL: no memory.
char *call_event(const struct http_call *c, int64_t n);
// call_whole returns the answer in one piece, when DONE.
char *call_whole(const struct http_call *c);

// ---- readers (http_reader.c)

struct http_reader *reader_new(struct http_api *h, struct http_exchange *x, enum reader_kind kind); // NULL: no memory
// reader_free lets go of the exchange; no list knows the reader any more.
void reader_free(struct http_reader *r);
// reader_attach gives the reader to a call, and what the call has said to the reader.
void reader_attach(struct http_reader *r, struct http_call *c);
// reader_pump sends what can be sent.
void reader_pump(struct http_reader *r);
// reader_watch: has it left, does it want a sign of life. Returns whether it is to be freed.
bool reader_watch(struct http_reader *r, int64_t now_ns);
// reader_is_behind tells whether it waits for room in its own exchange.
bool reader_is_behind(const struct http_reader *r);
// reader_fail ends it with an error, in the stream's way when it has begun. The call goes on.
void reader_fail(struct http_reader *r, const struct openai_error *e);

#endif
