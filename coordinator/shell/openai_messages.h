// What a request wants answered: the messages of a conversation, or a prompt. Part of openai_request.
#ifndef HEARTH_COORDINATOR_SHELL_OPENAI_MESSAGES_H
#define HEARTH_COORDINATOR_SHELL_OPENAI_MESSAGES_H

#include "coordinator/shell/openai_request.h"

// Both fill in *r, which owns what they allocate also when they fail. False after filling *err.
// Of messages: a content is text, or an array of text parts, which are joined with a line end; "developer" is "system".
MUST_USE bool openai_messages_read(json_t *v, struct openai_request *r, struct openai_error *err);
// A prompt is text, or token ids; either may stand alone in an array.
MUST_USE bool openai_prompt_read(const json_t *v, struct openai_request *r, struct openai_error *err);

#endif
