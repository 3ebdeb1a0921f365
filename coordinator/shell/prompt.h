// What a person typed to the token ids of a prompt: raw text, or one message of a conversation in the model's chat template.
#ifndef HEARTH_COORDINATOR_SHELL_PROMPT_H
#define HEARTH_COORDINATOR_SHELL_PROMPT_H

#include "base/err.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prompt_text {
	const char *text;
	size_t len;
	bool is_chat;       // a user's message; otherwise raw text, in which the names of control tokens count, BOS as the file says
	const char *system; // with is_chat; NULL: the template's own
};

// prompt_encode writes at most cap ids. ERR_LIMIT when they do not fit; ERR_UNSUPPORTED when the model has no chat template we know.
MUST_USE enum err prompt_encode(const struct tokenizer *t, const struct gguf *g, const struct prompt_text *p, int32_t *out, size_t cap, size_t *n,
	struct errmsg *em);

#endif
