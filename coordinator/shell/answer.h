// An answer as text: token ids in, whole UTF-8 characters out, stop strings matched.
//
// Sits between the API (HTTP, admin socket, `hearth run`) and the coordinator's runtime. A possible beginning of a stop string is held back until
// it is one or is not; when it is, the answer ends there, the rest of the ring's work is cancelled, and tokens behind it are neither shown nor
// counted. Thread rule: the loop's thread.
#ifndef HEARTH_COORDINATOR_SHELL_ANSWER_H
#define HEARTH_COORDINATOR_SHELL_ANSWER_H

#include "base/err.h"
#include "coordinator/shell/coord_runtime.h"
#include "model/tokenizer.h"

#include <stdint.h>

#define STOP_STRINGS_MAX 4    // as the OpenAI API has it
#define STOP_STRING_CAP 256   // bytes, with the NUL

enum answer_end { ANSWER_STOP, ANSWER_LENGTH, ANSWER_CANCELLED, ANSWER_ERROR };

struct answer_result {
	enum answer_end end;
	enum err err;         // with ANSWER_ERROR
	const char *text;     // of the error
	const char *hash;     // "" unless asked for
	int32_t n_tokens;     // generated and shown, a stop token not counted
	int64_t first_ns;     // when the first token came; 0: none did
	int64_t last_ns;
};

struct answer_request {
	const struct tokenizer *tokenizer; // borrowed
	const int32_t *tokens;             // copied: the prompt
	int32_t n_tokens;
	int32_t n_predict;
	struct sampling sampling;
	bool hash_logits, ignore_stop;
	int32_t n_stops;
	char stops[STOP_STRINGS_MAX][STOP_STRING_CAP];
	void *ctx;
	// on_text: text that is ready, not NUL-terminated, valid during the call; len may be 0 when a token shows nothing yet. token: its id; -1: the
	// rest that was held back.
	void (*on_text)(void *ctx, int32_t token, const char *text, size_t len);
	// on_end comes exactly once, last.
	void (*on_end)(void *ctx, const struct answer_result *r);
};

struct answer;

// answer_start begins. ERR_NOMEM, ERR_BUSY; nothing is called back from inside, and on_end does not come after an error.
MUST_USE enum err answer_start(struct coord_runtime *rt, const struct answer_request *r, struct answer **out, struct errmsg *em);
// answer_cancel: the client has gone; on_end follows from the loop with ANSWER_CANCELLED. Not after on_end.
void answer_cancel(struct answer *a);

#endif
