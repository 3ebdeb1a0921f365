#include "coordinator/shell/openai_json.h"

#include <inttypes.h>
#include <string.h>

// What stands in a text, by its punctuation alone; right for valid JSON, and never too low for what the parser builds before it finds a mistake.
struct shape {
	uint32_t depth, deepest;
	uint32_t n_containers;
	uint32_t n_values;
};

// skip_string returns the index behind the string that begins at `i`, or len.
static size_t skip_string(const char *text, size_t len, size_t i)
{
	for (i++; i < len && text[i] != '"'; i++)
		if (text[i] == '\\')
			i++;
	return i < len ? i + 1 : len;
}

static struct shape measure(const char *text, size_t len)
{
	struct shape s = {.n_values = 1};
	for (size_t i = 0; i < len;) {
		char c = text[i];
		if (c == '"') {
			i = skip_string(text, len, i);
			continue;
		}
		if (c == '[' || c == '{') {
			s.n_containers++;
			s.n_values++;
			if (++s.depth > s.deepest)
				s.deepest = s.depth;
		} else if ((c == ']' || c == '}') && s.depth > 0) {
			s.depth--;
		} else if (c == ',') {
			s.n_values++;
		}
		i++;
	}
	return s;
}

static bool check_shape(const char *text, size_t len, const struct json_limits *l, struct openai_error *err)
{
	struct shape s = measure(text, len);
	if (s.deepest > l->depth_max)
		openai_error_set(err, 400, "invalid_json", NULL, "the body nests %" PRIu32 " levels deep, at most %" PRIu32, s.deepest, l->depth_max);
	else if (s.n_containers > l->containers_max)
		openai_error_set(err, 400, "invalid_json", NULL, "the body has %" PRIu32 " objects and arrays, at most %" PRIu32, s.n_containers, l->containers_max);
	else if (s.n_values > l->values_max)
		openai_error_set(err, 400, "invalid_json", NULL, "the body has %" PRIu32 " values, at most %" PRIu32, s.n_values, l->values_max);
	else
		return true;
	return false;
}

json_t *json_load_bounded(const char *text, size_t len, const struct json_limits *limits, struct openai_error *err)
{
	json_error_t je;
	if (len == 0) {
		openai_error_set(err, 400, "invalid_json", NULL, "the body is empty: want a JSON object");
		return NULL;
	}
	if (!check_shape(text, len, limits, err))
		return NULL;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	if (root == NULL) {
		openai_error_set(err, 400, "invalid_json", NULL, "the body is not valid JSON: line %d, column %d: %s", je.line, je.column, je.text);
	} else if (!json_is_object(root)) {
		openai_error_set(err, 400, "invalid_json", NULL, "the body is not a JSON object");
		json_decref(root);
		root = NULL;
	}
	return root;
}

static const char *type_words(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT: return "an object";
	case JSON_ARRAY: return "an array";
	case JSON_STRING: return "a string";
	case JSON_INTEGER: return "an integer";
	case JSON_REAL: return "a number";
	case JSON_TRUE:
	case JSON_FALSE: return "a boolean";
	case JSON_NULL: return "null";
	}
	return "something else";
}

bool json_refuse_type(const json_t *v, const char *param, const char *wanted, struct openai_error *err)
{
	openai_error_set(err, 400, "invalid_type", param, "%s: want %s, not %s", param, wanted, type_words(v));
	return false;
}

bool json_want_bool(const json_t *v, const char *param, bool *out, struct openai_error *err)
{
	if (!json_is_boolean(v))
		return json_refuse_type(v, param, "a boolean", err);
	*out = json_is_true(v);
	return true;
}

bool json_want_number(const json_t *v, const char *param, double *out, struct openai_error *err)
{
	if (!json_is_number(v))
		return json_refuse_type(v, param, "a number", err);
	*out = json_number_value(v);
	return true;
}

bool json_want_int(const json_t *v, const char *param, int64_t min, int64_t max, int64_t *out, struct openai_error *err)
{
	if (!json_is_integer(v))
		return json_refuse_type(v, param, "an integer", err);
	*out = json_integer_value(v);
	if (*out >= min && *out <= max)
		return true;
	openai_error_set(err, 400, "invalid_value", param, "%s: %" PRId64 " is out of range (want %" PRId64 " to %" PRId64 ")", param, *out, min, max);
	return false;
}

bool json_want_word(const json_t *v, const char *param, const char **out, struct openai_error *err)
{
	if (!json_is_string(v))
		return json_refuse_type(v, param, "a string", err);
	*out = json_string_value(v);
	if (strlen(*out) == json_string_length(v))
		return true;
	openai_error_set(err, 400, "invalid_value", param, "%s: a NUL character has no place in it", param);
	return false;
}
