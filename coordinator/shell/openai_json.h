// Reading JSON that anybody may have written: a bounded parse, and typed values whose refusal names the parameter.
#ifndef HEARTH_COORDINATOR_SHELL_OPENAI_JSON_H
#define HEARTH_COORDINATOR_SHELL_OPENAI_JSON_H

#include "coordinator/shell/openai_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_limits {
	uint32_t depth_max;
	uint32_t containers_max; // objects and arrays
	uint32_t values_max;
};

// json_load_bounded parses one object. It counts levels and values before the parser sees the text, so that neither its stack nor its memory
// depends on what was sent. Duplicate keys, numbers out of range and what is no UTF-8 are refused. NULL after filling *err.
json_t *json_load_bounded(const char *text, size_t len, const struct json_limits *limits, struct openai_error *err);

// Each returns false after filling *err with a 400 that names `param`.
MUST_USE bool json_want_bool(const json_t *v, const char *param, bool *out, struct openai_error *err);
MUST_USE bool json_want_number(const json_t *v, const char *param, double *out, struct openai_error *err);
MUST_USE bool json_want_int(const json_t *v, const char *param, int64_t min, int64_t max, int64_t *out, struct openai_error *err);
// json_want_word: text without NUL, so that strlen is its length. Borrowed from v.
MUST_USE bool json_want_word(const json_t *v, const char *param, const char **out, struct openai_error *err);
// json_refuse_type says what was wanted and what came; always false.
bool json_refuse_type(const json_t *v, const char *param, const char *wanted, struct openai_error *err);

#endif
