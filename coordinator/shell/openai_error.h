// Why a request was not answered, in the form OpenAI's clients know: {"error": {"message", "type", "param", "code"}} under an HTTP status.
// Pure.
#ifndef HEARTH_COORDINATOR_SHELL_OPENAI_ERROR_H
#define HEARTH_COORDINATOR_SHELL_OPENAI_ERROR_H

#include "base/err.h"

#define OPENAI_PARAM_CAP 96

struct openai_error {
	int status;                   // HTTP; its class gives "type": 429 and 5xx are worth another try
	const char *code;             // static; NULL: null
	char param[OPENAI_PARAM_CAP]; // "messages[2].role"; "": null
	char message[ERRMSG_CAP];     // valid UTF-8 without control characters, whatever it was made from
};

// openai_error_set fills *e. param: "" or NULL for none; cut when too long.
void openai_error_set(struct openai_error *e, int status, const char *code, const char *param, const char *fmt, ...) PRINTF_LIKE(5, 6);
// openai_error_json returns the object as text for free(); NULL without memory.
char *openai_error_json(const struct openai_error *e);
// openai_error_of translates an answer's end: busy 429, a lost node or no cluster 503, a prompt that does not fit 400 (of `param`), else 500.
void openai_error_of(struct openai_error *e, enum err err, const char *param, const char *text);

#endif
