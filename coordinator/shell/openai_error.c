#include "coordinator/shell/openai_error.h"

#include "base/printable.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void openai_error_set(struct openai_error *e, int status, const char *code, const char *param, const char *fmt, ...)
{
	char text[ERRMSG_CAP];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	e->status = status;
	e->code = code;
	printable_copy(param ? param : "", param ? strlen(param) : 0, e->param, sizeof e->param);
	printable_copy(text, strlen(text), e->message, sizeof e->message);
}

static const char *type_of(int status)
{
	return status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";
}

char *openai_error_json(const struct openai_error *e)
{
	json_t *o = json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", e->message, "type", type_of(e->status), "param",
		e->param[0] ? e->param : NULL, "code", e->code);
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}

void openai_error_of(struct openai_error *e, enum err err, const char *param, const char *text)
{
	static const struct {
		enum err err;
		int status;
		const char *code;
	} table[] = {
		{ERR_BUSY, 429, "busy"},
		{ERR_LIMIT, 400, "context_length_exceeded"},
		{ERR_RANGE, 400, "invalid_value"},
		{ERR_NODE_LOST, 503, "node_lost"},
		{ERR_TIMEOUT, 503, "cluster_not_ready"},
		{ERR_CLOSED, 503, "shutting_down"},
		{ERR_NON_FINITE, 500, "not_finite"},
	};
	const char *words = text && text[0] ? text : err_words(err);
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		if (table[i].err == err) {
			openai_error_set(e, table[i].status, table[i].code, table[i].status == 400 ? param : NULL, "%s", words);
			return;
		}
	}
	openai_error_set(e, 500, "internal_error", NULL, "%s", words);
}
