// Conversations to token ids, for the model files whose chat template is ChatML:
//
//   <|im_start|>ROLE\nCONTENT<|im_end|>\n   for each message, then <|im_start|>assistant\n for the answer to come.
//
// The markers are control tokens; roles and contents are tokenised as plain text, so that what a user typed never becomes a control
// token. Where the template gives conversations without a system message one of its own, so do we, with its words. Knows no HTTP and no
// JSON. Borrows the tokenizer; read-only once initialised, for any number of threads.
#ifndef HEARTH_MODEL_CHAT_H
#define HEARTH_MODEL_CHAT_H

#include "base/err.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHAT_SYSTEM_CAP 4096 // bytes of a template's own system message; the ones in use have some hundred

struct chat_message {
	const char *role; // "system", "user" or "assistant"
	const char *content;
	size_t content_len;
};

struct chat {
	const struct tokenizer *tokenizer;
	int32_t start_id, end_id;
	bool has_default_system;
	size_t default_system_len;
	char default_system[CHAT_SYSTEM_CAP];
};

// chat_init reads tokenizer.chat_template. ERR_NOT_FOUND without one; ERR_UNSUPPORTED when it is not plain ChatML: a marker is missing in
// the template or as a special token of the vocabulary, or it trims what messages say.
MUST_USE enum err chat_init(struct chat *c, const struct gguf *g, const struct tokenizer *t, struct errmsg *em);
// chat_encode writes the conversation's ids, BOS first where the file says so, and with `answer` the start of an assistant's message.
// ERR_UNSUPPORTED for another role, which it names; ERR_LIMIT as tokenizer_encode.
MUST_USE enum err chat_encode(const struct chat *c, const struct chat_message *messages, size_t n_messages, bool answer,
	int32_t *out, size_t cap, size_t *n, struct errmsg *em);

#endif
