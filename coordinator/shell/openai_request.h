// The body of a request to /v1/chat/completions or /v1/completions: JSON from anybody to a plain struct, or an error that names the parameter.
//
// Nothing is accepted and then ignored: a parameter that would change the answer and that Hearth does not have is refused unless it
// has the value that changes nothing (null, or the default), and one that nobody knows is refused by name. Parameters that cannot change an
// answer (user, metadata, ...) are taken. docs/http-api.md lists all.
//
// The JSON reader sees only bodies whose depth and number of values are bounded: it spends up to 80 bytes for one of text.
// Pure, safe on any bytes. Ownership: the struct owns what it points to, until openai_request_deinit.
#ifndef HEARTH_COORDINATOR_SHELL_OPENAI_REQUEST_H
#define HEARTH_COORDINATOR_SHELL_OPENAI_REQUEST_H

#include "base/sampling.h"
#include "coordinator/shell/answer.h"
#include "coordinator/shell/openai_error.h"
#include "model/chat.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPENAI_BODY_MAX (2 * 1024 * 1024)   // bytes: some 400,000 tokens of text
#define OPENAI_DEPTH_MAX 64                 // levels of JSON; a request has five
#define OPENAI_CONTAINERS_MAX 65536         // objects and arrays, at 250 bytes each; a message has one, or three with parts
#define OPENAI_VALUES_MAX (256 * 1024)      // values, at 100 bytes each; a prompt of token ids has one for each
#define OPENAI_COMPLETION_MAX_TOKENS 16     // of /v1/completions without max_tokens, as OpenAI has it

enum openai_kind { OPENAI_CHAT, OPENAI_COMPLETION };

struct openai_request {
	enum openai_kind kind;
	const char *model;
	struct chat_message *messages; // chat: (n_messages), at least one; role is "system", "user" or "assistant"
	size_t n_messages;
	const char *prompt; // completion: text, or NULL when it came as ids
	size_t prompt_len;
	int32_t *prompt_ids; // (n_prompt_ids), none negative; the vocabulary is the caller's to check
	size_t n_prompt_ids;

	int32_t max_tokens; // INT32_MAX: what the context has room for
	struct sampling sampling;
	bool has_seed;
	int32_t n_stops;
	char stops[STOP_STRINGS_MAX][STOP_STRING_CAP];
	bool stream, include_usage;
	bool hearth; // asks for the "hearth" object in the answer
	bool logits_hash;
	bool keep; // the answer goes on when its client leaves

	json_t *root;   // what the pointers point into
	char **joined;  // (n_joined): contents made of several parts
	size_t n_joined;
};

// openai_request_parse: false after filling *err; *out then owns nothing.
MUST_USE bool openai_request_parse(enum openai_kind kind, const char *body, size_t len, struct openai_request *out, struct openai_error *err);
void openai_request_deinit(struct openai_request *r); // safe on zeroed memory

#endif
