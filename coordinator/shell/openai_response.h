// Answers as OpenAI's clients read them: one JSON object, or a stream of server-sent events. Pure; every text is for free(), and NULL means
// that there was no memory.
//
// A stream: begin (of a chat), pieces, then finish, the usage if asked for, and done; or, when it fails, an error, after which nothing comes.
// Each is one event, "id: N\ndata: JSON\n\n", numbered from 1: what a client that comes back names as the last one it has. N = 0 leaves the
// line with the number out: an event that belongs to one connection only.
#ifndef HEARTH_COORDINATOR_SHELL_OPENAI_RESPONSE_H
#define HEARTH_COORDINATOR_SHELL_OPENAI_RESPONSE_H

#include "coordinator/shell/openai_error.h"
#include "coordinator/shell/openai_request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPENAI_ID_CAP 40

// What every part of one answer repeats.
struct openai_reply {
	enum openai_kind kind;
	char id[OPENAI_ID_CAP];
	int64_t created_s;       // unix seconds
	const char *model;       // borrowed, as is fingerprint; valid UTF-8
	const char *fingerprint; // what the bits of an answer depend on beside the request
	bool include_usage;
};

// The "hearth" object: what is needed to get the same answer again, and to check it.
struct openai_extra {
	const char *request; // its id
	uint64_t seed;
	const char *logits_hash; // "": not asked for
	const int32_t *prompt_ids, *output_ids;
	int32_t n_prompt_ids, n_output_ids;
};

struct openai_ending {
	const char *finish_reason; // "stop" or "length"
	int32_t n_prompt_tokens, n_output_tokens;
	const struct openai_extra *extra; // NULL: not asked for
};

// openai_reply_id makes the id of a reply from random bytes.
void openai_reply_id(enum openai_kind kind, const uint8_t random[12], char out[OPENAI_ID_CAP]);

char *openai_response_whole(const struct openai_reply *r, const char *text, size_t len, const struct openai_ending *e);
char *openai_stream_begin(const struct openai_reply *r, int64_t n);
char *openai_stream_piece(const struct openai_reply *r, int64_t n, const char *text, size_t len);
char *openai_stream_finish(const struct openai_reply *r, int64_t n, const struct openai_ending *e);
char *openai_stream_usage(const struct openai_reply *r, int64_t n, const struct openai_ending *e);
char *openai_stream_done(int64_t n);
char *openai_stream_error(const struct openai_error *e, int64_t n);
// openai_stream_json makes an event of a JSON text, which it takes over; NULL gives NULL.
char *openai_stream_json(char *json, int64_t n);

// openai_model_json describes the one model there is; openai_models_json is the list of it.
char *openai_model_json(const char *id, int64_t created_s);
char *openai_models_json(const char *id, int64_t created_s);

#endif
