#include "coordinator/shell/openai_request.h"

#include "coordinator/shell/openai_json.h"
#include "coordinator/shell/openai_messages.h"
#include "engine/sampler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
	struct openai_request *r;
	struct openai_error *err;
	const char *max_tokens_param; // which of the two names gave max_tokens; NULL: none
};

// ---- parameters that say what to generate

static bool read_model(struct reading *rd, const char *param, json_t *v)
{
	return json_want_word(v, param, &rd->r->model, rd->err);
}

static bool read_messages(struct reading *rd, const char *param, json_t *v)
{
	(void)param;
	return openai_messages_read(v, rd->r, rd->err);
}

static bool read_prompt(struct reading *rd, const char *param, json_t *v)
{
	(void)param;
	return openai_prompt_read(v, rd->r, rd->err);
}

static bool read_max_tokens(struct reading *rd, const char *param, json_t *v)
{
	int64_t n;
	if (!json_want_int(v, param, 1, INT32_MAX, &n, rd->err))
		return false;
	if (rd->max_tokens_param != NULL && n != rd->r->max_tokens) {
		openai_error_set(rd->err, 400, "invalid_value", param, "%s and %s differ: give one of them", rd->max_tokens_param, param);
		return false;
	}
	rd->max_tokens_param = param;
	rd->r->max_tokens = (int32_t)n;
	return true;
}

static bool check_sampling(struct reading *rd, const char *param)
{
	struct errmsg em;
	if (sampler_check(&rd->r->sampling, &em) == OK)
		return true;
	openai_error_set(rd->err, 400, "invalid_value", param, "%s", em.text);
	return false;
}

// read_float refuses what a float does not hold before the cast.
static bool read_float(struct reading *rd, const char *param, json_t *v, float *out)
{
	double x;
	if (!json_want_number(v, param, &x, rd->err))
		return false;
	if (!(x >= -1e9 && x <= 1e9)) {
		openai_error_set(rd->err, 400, "invalid_value", param, "%s: %g is out of range", param, x);
		return false;
	}
	*out = (float)x;
	return check_sampling(rd, param);
}

static bool read_temperature(struct reading *rd, const char *param, json_t *v)
{
	return read_float(rd, param, v, &rd->r->sampling.temperature);
}

static bool read_top_p(struct reading *rd, const char *param, json_t *v)
{
	return read_float(rd, param, v, &rd->r->sampling.top_p);
}

static bool read_min_p(struct reading *rd, const char *param, json_t *v)
{
	return read_float(rd, param, v, &rd->r->sampling.min_p);
}

static bool read_top_k(struct reading *rd, const char *param, json_t *v)
{
	int64_t n;
	if (!json_want_int(v, param, 0, INT32_MAX, &n, rd->err))
		return false;
	rd->r->sampling.top_k = (int32_t)n;
	return true;
}

static bool read_seed(struct reading *rd, const char *param, json_t *v)
{
	int64_t n;
	if (!json_want_int(v, param, INT64_MIN, INT64_MAX, &n, rd->err))
		return false;
	rd->r->sampling.seed = (uint64_t)n; // negative ones too: each is a seed of its own
	rd->r->has_seed = true;
	return true;
}

static bool read_one_stop(struct reading *rd, const char *param, json_t *v)
{
	const char *text;
	if (!json_want_word(v, param, &text, rd->err))
		return false;
	size_t len = strlen(text);
	if (len == 0 || len >= STOP_STRING_CAP) {
		openai_error_set(rd->err, 400, "invalid_value", param, "%s: a stop string of %zu bytes (want 1 to %d)", param, len, STOP_STRING_CAP - 1);
		return false;
	}
	memcpy(rd->r->stops[rd->r->n_stops++], text, len + 1);
	return true;
}

static bool read_stop(struct reading *rd, const char *param, json_t *v)
{
	if (json_is_string(v))
		return read_one_stop(rd, param, v);
	if (!json_is_array(v))
		return json_refuse_type(v, param, "a string or an array of strings", rd->err);
	if (json_array_size(v) > STOP_STRINGS_MAX) {
		openai_error_set(rd->err, 400, "invalid_value", param, "stop: %zu strings (want at most %d)", json_array_size(v), STOP_STRINGS_MAX);
		return false;
	}
	for (size_t i = 0; i < json_array_size(v); i++)
		if (!read_one_stop(rd, param, json_array_get(v, i)))
			return false;
	return true;
}

// ---- parameters that say how to answer

static bool read_stream(struct reading *rd, const char *param, json_t *v)
{
	return json_want_bool(v, param, &rd->r->stream, rd->err);
}

static bool refuse_unknown(struct reading *rd, const char *param)
{
	openai_error_set(rd->err, 400, "unknown_parameter", param, "%s: no such parameter", param);
	return false;
}

static bool read_stream_options(struct reading *rd, const char *param, json_t *v)
{
	const char *key;
	json_t *value;
	bool padding = false;
	if (!json_is_object(v))
		return json_refuse_type(v, param, "an object", rd->err);
	json_object_foreach(v, key, value) {
		bool is_usage = strcmp(key, "include_usage") == 0, is_padding = strcmp(key, "include_obfuscation") == 0;
		char inner[OPENAI_PARAM_CAP];
		snprintf(inner, sizeof inner, "stream_options.%s", key);
		if (!is_usage && !is_padding)
			return refuse_unknown(rd, inner);
		if (!json_is_null(value) && !json_want_bool(value, inner, is_usage ? &rd->r->include_usage : &padding, rd->err))
			return false;
		if (padding) {
			openai_error_set(rd->err, 400, "unsupported_parameter", inner, "%s is not supported: leave it out", inner);
			return false;
		}
	}
	return true;
}

static bool read_hearth(struct reading *rd, const char *param, json_t *v)
{
	const char *key;
	json_t *value;
	if (!json_is_object(v))
		return json_refuse_type(v, param, "an object", rd->err);
	rd->r->hearth = true;
	json_object_foreach(v, key, value) {
		char inner[OPENAI_PARAM_CAP];
		snprintf(inner, sizeof inner, "hearth.%s", key);
		bool *out = strcmp(key, "logits_hash") == 0 ? &rd->r->logits_hash : strcmp(key, "keep") == 0 ? &rd->r->keep : NULL;
		if (out == NULL)
			return refuse_unknown(rd, inner);
		if (!json_is_null(value) && !json_want_bool(value, inner, out, rd->err))
			return false;
	}
	return true;
}

// ---- parameters of OpenAI's that Hearth does not have: only the value that changes nothing is taken

static bool refuse(struct reading *rd, const char *param, json_t *v)
{
	(void)v;
	openai_error_set(rd->err, 400, "unsupported_parameter", param, "%s is not supported: leave it out", param);
	return false;
}

static bool refuse_value(struct reading *rd, const char *param, const char *wanted)
{
	openai_error_set(rd->err, 400, "unsupported_value", param, "%s: only %s is supported", param, wanted);
	return false;
}

static bool only_1(struct reading *rd, const char *param, json_t *v)
{
	int64_t n;
	return json_want_int(v, param, INT64_MIN, INT64_MAX, &n, rd->err) && (n == 1 || refuse_value(rd, param, "1"));
}

static bool only_0(struct reading *rd, const char *param, json_t *v)
{
	double x;
	return json_want_number(v, param, &x, rd->err) && (x == 0 || refuse_value(rd, param, "0"));
}

static bool only_false(struct reading *rd, const char *param, json_t *v)
{
	bool b;
	return json_want_bool(v, param, &b, rd->err) && (!b || refuse_value(rd, param, "false"));
}

static bool only_empty(struct reading *rd, const char *param, json_t *v)
{
	size_t n = json_is_array(v) ? json_array_size(v) : json_is_object(v) ? json_object_size(v) : 1;
	return n == 0 || refuse(rd, param, v);
}

// only_no_tools: without tools, "none" and "auto" say the same.
static bool only_no_tools(struct reading *rd, const char *param, json_t *v)
{
	const char *s = json_string_value(v);
	return (s && (strcmp(s, "none") == 0 || strcmp(s, "auto") == 0)) || refuse_value(rd, param, "\"none\"");
}

static bool only_text_format(struct reading *rd, const char *param, json_t *v)
{
	const char *type = json_string_value(json_object_get(v, "type"));
	return (type && strcmp(type, "text") == 0 && json_object_size(v) == 1) || refuse_value(rd, param, "{\"type\": \"text\"}");
}

static bool only_text_modality(struct reading *rd, const char *param, json_t *v)
{
	const char *one = json_string_value(json_array_get(v, 0));
	return (one && strcmp(one, "text") == 0 && json_array_size(v) == 1) || refuse_value(rd, param, "[\"text\"]");
}

static bool only_default_tier(struct reading *rd, const char *param, json_t *v)
{
	const char *s = json_string_value(v);
	return (s && (strcmp(s, "auto") == 0 || strcmp(s, "default") == 0)) || refuse_value(rd, param, "\"auto\" or \"default\"");
}

// ---- parameters that cannot change an answer

static bool any_text(struct reading *rd, const char *param, json_t *v)
{
	return json_is_string(v) || json_refuse_type(v, param, "a string", rd->err);
}

static bool any_bool(struct reading *rd, const char *param, json_t *v)
{
	return json_is_boolean(v) || json_refuse_type(v, param, "a boolean", rd->err);
}

static bool any_object(struct reading *rd, const char *param, json_t *v)
{
	return json_is_object(v) || json_refuse_type(v, param, "an object", rd->err);
}

#define CHAT (1u << OPENAI_CHAT)
#define COMPLETION (1u << OPENAI_COMPLETION)
#define BOTH (CHAT | COMPLETION)

static const struct field {
	const char *name;
	unsigned kinds;
	bool (*read)(struct reading *rd, const char *param, json_t *v); // v is not null
} fields[] = {
	{"model", BOTH, read_model},
	{"messages", CHAT, read_messages},
	{"prompt", COMPLETION, read_prompt},
	{"max_tokens", BOTH, read_max_tokens},
	{"max_completion_tokens", CHAT, read_max_tokens},
	{"temperature", BOTH, read_temperature},
	{"top_p", BOTH, read_top_p},
	{"top_k", BOTH, read_top_k},
	{"min_p", BOTH, read_min_p},
	{"seed", BOTH, read_seed},
	{"stop", BOTH, read_stop},
	{"stream", BOTH, read_stream},
	{"stream_options", BOTH, read_stream_options},
	{"hearth", BOTH, read_hearth},

	{"n", BOTH, only_1},
	{"best_of", COMPLETION, only_1},
	{"echo", COMPLETION, only_false},
	{"suffix", COMPLETION, refuse},
	{"frequency_penalty", BOTH, only_0},
	{"presence_penalty", BOTH, only_0},
	{"logit_bias", BOTH, only_empty},
	{"logprobs", CHAT, only_false},
	{"logprobs", COMPLETION, refuse}, // there 0 asks for the chosen token's
	{"top_logprobs", CHAT, only_0},
	{"tools", CHAT, only_empty},
	{"tool_choice", CHAT, only_no_tools},
	{"functions", CHAT, only_empty},
	{"function_call", CHAT, only_no_tools},
	{"response_format", CHAT, only_text_format},
	{"modalities", CHAT, only_text_modality},
	{"audio", CHAT, refuse},
	{"prediction", CHAT, refuse},
	{"reasoning_effort", CHAT, refuse},
	{"verbosity", CHAT, refuse},
	{"web_search_options", CHAT, refuse},
	{"store", CHAT, only_false},
	{"service_tier", CHAT, only_default_tier},

	{"user", BOTH, any_text},
	{"safety_identifier", CHAT, any_text},
	{"prompt_cache_key", CHAT, any_text},
	{"metadata", CHAT, any_object},
	{"parallel_tool_calls", CHAT, any_bool}, // there are no tools
};

static const struct field *find_field(enum openai_kind kind, const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		if ((fields[i].kinds & 1u << kind) != 0 && strcmp(fields[i].name, name) == 0)
			return &fields[i];
	return NULL;
}

static bool read_fields(struct reading *rd)
{
	const char *key;
	json_t *value;
	json_object_foreach(rd->r->root, key, value) {
		const struct field *f = find_field(rd->r->kind, key);
		if (f == NULL)
			return refuse_unknown(rd, key);
		if (!json_is_null(value) && !f->read(rd, f->name, value))
			return false;
	}
	return true;
}

static bool refuse_missing(struct openai_error *err, const char *param)
{
	openai_error_set(err, 400, "missing_required_parameter", param, "%s is missing", param);
	return false;
}

static bool check_whole(struct reading *rd)
{
	const struct openai_request *r = rd->r;
	if (r->model == NULL)
		return refuse_missing(rd->err, "model");
	if (r->kind == OPENAI_CHAT && r->messages == NULL)
		return refuse_missing(rd->err, "messages");
	if (r->kind == OPENAI_COMPLETION && r->prompt == NULL && r->prompt_ids == NULL)
		return refuse_missing(rd->err, "prompt");
	if (!r->stream && !json_is_null(json_object_get(r->root, "stream_options")) && json_object_get(r->root, "stream_options") != NULL) {
		openai_error_set(rd->err, 400, "invalid_value", "stream_options", "stream_options: only together with \"stream\": true");
		return false;
	}
	return true;
}

bool openai_request_parse(enum openai_kind kind, const char *body, size_t len, struct openai_request *out, struct openai_error *err)
{
	static const struct json_limits limits = {OPENAI_DEPTH_MAX, OPENAI_CONTAINERS_MAX, OPENAI_VALUES_MAX};
	*out = (struct openai_request){
		.kind = kind,
		.max_tokens = kind == OPENAI_CHAT ? INT32_MAX : OPENAI_COMPLETION_MAX_TOKENS,
		.sampling = {.temperature = 1, .top_p = 1},
	};
	struct reading rd = {.r = out, .err = err};
	out->root = json_load_bounded(body, len, &limits, err);
	if (out->root != NULL && read_fields(&rd) && check_whole(&rd))
		return true;
	openai_request_deinit(out);
	return false;
}

void openai_request_deinit(struct openai_request *r)
{
	for (size_t i = 0; i < r->n_joined; i++)
		free(r->joined[i]);
	free(r->joined);
	free(r->messages);
	free(r->prompt_ids);
	json_decref(r->root);
	memset(r, 0, sizeof *r);
}
