#include "coordinator/shell/openai_messages.h"

#include "base/printable.h"
#include "coordinator/shell/openai_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool no_memory(struct openai_error *err)
{
	openai_error_set(err, 503, "no_memory", NULL, "no memory for this request");
	return false;
}

// ---- contents

// find_part checks one part of a content and gives its text.
static bool find_part(const json_t *part, const char *param, const char **text, size_t *len, struct openai_error *err)
{
	char inner[OPENAI_PARAM_CAP];
	const char *type;
	if (!json_is_object(part))
		return json_refuse_type(part, param, "an object", err);
	snprintf(inner, sizeof inner, "%s.type", param);
	json_t *t = json_object_get(part, "type"), *s = json_object_get(part, "text");
	if (t == NULL) {
		openai_error_set(err, 400, "missing_required_parameter", inner, "%s is missing", inner);
		return false;
	}
	if (!json_want_word(t, inner, &type, err))
		return false;
	if (strcmp(type, "text") != 0) {
		openai_error_set(err, 400, "unsupported_value", inner, "%s: only \"text\" parts are supported", inner);
		return false;
	}
	snprintf(inner, sizeof inner, "%s.text", param);
	if (!json_is_string(s)) {
		openai_error_set(err, 400, s ? "invalid_type" : "missing_required_parameter", inner, "%s: want a string", inner);
		return false;
	}
	*text = json_string_value(s);
	*len = json_string_length(s);
	if (json_object_size(part) == 2)
		return true;
	openai_error_set(err, 400, "unknown_parameter", param, "%s: want only \"type\" and \"text\"", param);
	return false;
}

static bool measure_parts(const json_t *parts, const char *param, size_t *total, struct openai_error *err)
{
	*total = 0;
	for (size_t i = 0; i < json_array_size(parts); i++) {
		char inner[OPENAI_PARAM_CAP];
		const char *text;
		size_t len = 0;
		snprintf(inner, sizeof inner, "%s[%zu]", param, i);
		if (!find_part(json_array_get(parts, i), inner, &text, &len, err))
			return false;
		*total += len + 1; // of a body in memory: cannot wrap
	}
	return true;
}

static bool join_parts(const json_t *parts, const char *param, struct openai_request *r, struct chat_message *m, struct openai_error *err)
{
	size_t total;
	if (json_array_size(parts) == 0) {
		openai_error_set(err, 400, "invalid_value", param, "%s: an empty array", param);
		return false;
	}
	if (!measure_parts(parts, param, &total, err))
		return false;
	char *out = malloc(total);
	if (out == NULL)
		return no_memory(err);
	r->joined[r->n_joined++] = out; // its room was made with the messages
	m->content = out;
	m->content_len = total - 1;
	for (size_t i = 0; i < json_array_size(parts); i++) {
		const json_t *s = json_object_get(json_array_get(parts, i), "text");
		memcpy(out, json_string_value(s), json_string_length(s));
		out += json_string_length(s);
		*out++ = i + 1 < json_array_size(parts) ? '\n' : '\0';
	}
	return true;
}

static bool read_content(const json_t *v, const char *param, struct openai_request *r, struct chat_message *m, struct openai_error *err)
{
	if (v == NULL) {
		openai_error_set(err, 400, "missing_required_parameter", param, "%s is missing", param);
		return false;
	}
	if (json_is_array(v))
		return join_parts(v, param, r, m, err);
	if (!json_is_string(v))
		return json_refuse_type(v, param, "a string or an array of text parts", err);
	m->content = json_string_value(v);
	m->content_len = json_string_length(v);
	return true;
}

// ---- messages

static bool read_role(const json_t *v, const char *param, struct chat_message *m, struct openai_error *err)
{
	static const char *const roles[][2] = {{"system", "system"}, {"developer", "system"}, {"user", "user"}, {"assistant", "assistant"}};
	const char *role;
	char shown[32];
	if (v == NULL) {
		openai_error_set(err, 400, "missing_required_parameter", param, "%s is missing", param);
		return false;
	}
	if (!json_want_word(v, param, &role, err))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
		if (strcmp(role, roles[i][0]) == 0) {
			m->role = roles[i][1];
			return true;
		}
	}
	openai_error_set(err, 400, "unsupported_value", param, "%s: \"%s\" is not supported (want system, developer, user or assistant)", param,
		printable_copy(role, strlen(role), shown, sizeof shown));
	return false;
}

// check_keys refuses what a message says besides role and content, unless it says nothing (null, or an empty array: an answer sent back).
static bool check_keys(json_t *message, const char *param, struct openai_error *err)
{
	static const char *const empty_ok[] = {"name", "refusal", "annotations", "audio", "function_call", "tool_calls"};
	const char *key;
	json_t *value;
	json_object_foreach(message, key, value) {
		char inner[OPENAI_PARAM_CAP];
		if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0)
			continue;
		bool is_known = false;
		for (size_t i = 0; i < ARRAY_LEN(empty_ok); i++)
			is_known = is_known || strcmp(key, empty_ok[i]) == 0;
		if (is_known && (json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0)))
			continue;
		snprintf(inner, sizeof inner, "%s.%s", param, key);
		openai_error_set(err, 400, is_known ? "unsupported_parameter" : "unknown_parameter", inner,
			is_known ? "%s is not supported: leave it out" : "%s: no such parameter", inner);
		return false;
	}
	return true;
}

static bool read_message(json_t *v, size_t i, struct openai_request *r, struct openai_error *err)
{
	char param[OPENAI_PARAM_CAP], inner[OPENAI_PARAM_CAP];
	struct chat_message *m = &r->messages[i];
	snprintf(param, sizeof param, "messages[%zu]", i);
	if (!json_is_object(v))
		return json_refuse_type(v, param, "an object", err);
	snprintf(inner, sizeof inner, "messages[%zu].role", i);
	if (!read_role(json_object_get(v, "role"), inner, m, err))
		return false;
	snprintf(inner, sizeof inner, "messages[%zu].content", i);
	// Keys first: where tools were called the content is null, and that is not what is wrong.
	return check_keys(v, param, err) && read_content(json_object_get(v, "content"), inner, r, m, err);
}

bool openai_messages_read(json_t *v, struct openai_request *r, struct openai_error *err)
{
	if (!json_is_array(v))
		return json_refuse_type(v, "messages", "an array", err);
	size_t n = json_array_size(v);
	if (n == 0) {
		openai_error_set(err, 400, "invalid_value", "messages", "messages: an empty array: there is nothing to answer");
		return false;
	}
	r->messages = calloc(n, sizeof *r->messages);
	r->joined = calloc(n, sizeof *r->joined);
	if (r->messages == NULL || r->joined == NULL)
		return no_memory(err);
	r->n_messages = n;
	for (size_t i = 0; i < n; i++)
		if (!read_message(json_array_get(v, i), i, r, err))
			return false;
	return true;
}

// ---- prompts

static bool read_ids(const json_t *ids, struct openai_request *r, struct openai_error *err)
{
	size_t n = json_array_size(ids);
	r->prompt_ids = calloc(n, sizeof *r->prompt_ids);
	if (r->prompt_ids == NULL)
		return no_memory(err);
	r->n_prompt_ids = n;
	for (size_t i = 0; i < n; i++) {
		char param[OPENAI_PARAM_CAP];
		int64_t id;
		snprintf(param, sizeof param, "prompt[%zu]", i);
		if (!json_want_int(json_array_get(ids, i), param, 0, INT32_MAX, &id, err))
			return false;
		r->prompt_ids[i] = (int32_t)id;
	}
	return true;
}

static bool read_prompt_array(const json_t *v, struct openai_request *r, struct openai_error *err)
{
	const json_t *first = json_array_get(v, 0);
	if (first == NULL) {
		openai_error_set(err, 400, "invalid_value", "prompt", "prompt: an empty array: there is nothing to continue");
		return false;
	}
	if (json_is_integer(first))
		return read_ids(v, r, err);
	if (json_array_size(v) > 1) {
		openai_error_set(err, 400, "unsupported_value", "prompt", "prompt: %zu prompts in one request are not supported: send one", json_array_size(v));
		return false;
	}
	if (json_is_string(first) || (json_is_array(first) && json_is_integer(json_array_get(first, 0))))
		return openai_prompt_read(first, r, err);
	return json_refuse_type(first, "prompt[0]", "a string or token ids", err);
}

bool openai_prompt_read(const json_t *v, struct openai_request *r, struct openai_error *err)
{
	if (json_is_array(v))
		return read_prompt_array(v, r, err);
	if (!json_is_string(v))
		return json_refuse_type(v, "prompt", "a string or an array", err);
	r->prompt = json_string_value(v);
	r->prompt_len = json_string_length(v);
	return true;
}
