#include "coordinator/shell/openai_response.h"

#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void openai_reply_id(enum openai_kind kind, const uint8_t random[12], char out[OPENAI_ID_CAP])
{
	char hex[25];
	sodium_bin2hex(hex, sizeof hex, random, 12);
	snprintf(out, OPENAI_ID_CAP, "%s-%s", kind == OPENAI_CHAT ? "chatcmpl" : "cmpl", hex);
}

static char *dump(json_t *o)
{
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}

// ---- parts

static json_t *ids_json(const int32_t *ids, int32_t n)
{
	json_t *a = json_array();
	for (int32_t i = 0; i < n; i++)
		json_array_append_new(a, json_integer(ids[i]));
	return a;
}

static json_t *extra_json(const struct openai_extra *x)
{
	json_t *o = json_pack("{s:s, s:I, s:o, s:o}", "request", x->request, "seed", (json_int_t)x->seed, "prompt_ids",
		ids_json(x->prompt_ids, x->n_prompt_ids), "output_ids", ids_json(x->output_ids, x->n_output_ids));
	if (x->logits_hash[0] != '\0')
		json_object_set_new(o, "logits_hash", json_string(x->logits_hash));
	return o;
}

static json_t *usage_json(const struct openai_ending *e)
{
	return json_pack("{s:i, s:i, s:I}", "prompt_tokens", (int)e->n_prompt_tokens, "completion_tokens", (int)e->n_output_tokens, "total_tokens",
		(json_int_t)e->n_prompt_tokens + e->n_output_tokens);
}

// head_json is what begins every object of an answer; choices are taken over.
static json_t *head_json(const struct openai_reply *r, bool is_chunk, json_t *choices)
{
	const char *object = r->kind == OPENAI_COMPLETION ? "text_completion" : is_chunk ? "chat.completion.chunk" : "chat.completion";
	return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", r->id, "object", object, "created", (json_int_t)r->created_s, "model", r->model,
		"system_fingerprint", r->fingerprint, "choices", choices);
}

static void add(json_t *o, const char *key, json_t *value)
{
	json_object_set_new(o, key, value); // without memory o or value is NULL: then dump gives NULL, or the key is missing
}

char *openai_response_whole(const struct openai_reply *r, const char *text, size_t len, const struct openai_ending *e)
{
	json_t *choices = r->kind == OPENAI_CHAT ?
		json_pack("[{s:i, s:{s:s, s:s%, s:n}, s:n, s:s}]", "index", 0, "message", "role", "assistant", "content", text, len, "refusal", "logprobs",
			"finish_reason", e->finish_reason) :
		json_pack("[{s:i, s:s%, s:n, s:s}]", "index", 0, "text", text, len, "logprobs", "finish_reason", e->finish_reason);
	json_t *o = head_json(r, false, choices);
	add(o, "usage", usage_json(e));
	if (e->extra)
		add(o, "hearth", extra_json(e->extra));
	return dump(o);
}

// ---- streams

static char *event(const char *data, int64_t n)
{
	size_t cap = strlen(data) + sizeof "id: -9223372036854775808\ndata: \n\n";
	char *out = malloc(cap);
	if (out == NULL)
		return NULL;
	int head = n > 0 ? snprintf(out, cap, "id: %" PRId64 "\n", n) : 0;
	snprintf(out + head, cap - (size_t)head, "data: %s\n\n", data);
	return out;
}

char *openai_stream_json(char *json, int64_t n)
{
	char *out = json ? event(json, n) : NULL;
	free(json);
	return out;
}

static json_t *chunk_json(const struct openai_reply *r, json_t *delta, const char *finish_reason)
{
	json_t *choices = r->kind == OPENAI_CHAT ?
		json_pack("[{s:i, s:o, s:n, s:s?}]", "index", 0, "delta", delta, "logprobs", "finish_reason", finish_reason) :
		json_pack("[{s:i, s:o, s:n, s:s?}]", "index", 0, "text", delta, "logprobs", "finish_reason", finish_reason);
	json_t *o = head_json(r, true, choices);
	if (r->include_usage)
		add(o, "usage", json_null()); // in every chunk but the last, as OpenAI has it
	return o;
}

char *openai_stream_begin(const struct openai_reply *r, int64_t n)
{
	return openai_stream_json(dump(chunk_json(r, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL)), n);
}

char *openai_stream_piece(const struct openai_reply *r, int64_t n, const char *text, size_t len)
{
	json_t *delta = r->kind == OPENAI_CHAT ? json_pack("{s:s%}", "content", text, len) : json_stringn(text, len);
	return openai_stream_json(dump(chunk_json(r, delta, NULL)), n);
}

char *openai_stream_finish(const struct openai_reply *r, int64_t n, const struct openai_ending *e)
{
	json_t *last = chunk_json(r, r->kind == OPENAI_CHAT ? json_object() : json_string(""), e->finish_reason);
	if (e->extra)
		add(last, "hearth", extra_json(e->extra));
	return openai_stream_json(dump(last), n);
}

char *openai_stream_usage(const struct openai_reply *r, int64_t n, const struct openai_ending *e)
{
	json_t *o = head_json(r, true, json_array());
	add(o, "usage", usage_json(e));
	return openai_stream_json(dump(o), n);
}

char *openai_stream_done(int64_t n)
{
	return event("[DONE]", n);
}

char *openai_stream_error(const struct openai_error *e, int64_t n)
{
	return openai_stream_json(openai_error_json(e), n);
}

// ---- models

static json_t *model_json(const char *id, int64_t created_s)
{
	return json_pack("{s:s, s:s, s:I, s:s}", "id", id, "object", "model", "created", (json_int_t)created_s, "owned_by", "hearth");
}

char *openai_model_json(const char *id, int64_t created_s)
{
	return dump(model_json(id, created_s));
}

char *openai_models_json(const char *id, int64_t created_s)
{
	return dump(json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(id, created_s)));
}
