// Any bytes as the body of a request: a request within its limits, or a 400 with words. An answer made of its texts is JSON again.
//
// Input: a byte that picks the kind, then the body.
#include "coordinator/shell/openai_request.h"
#include "coordinator/shell/openai_response.h"
#include "engine/sampler.h"

#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_event(char *event)
{
	require(event != NULL && strncmp(event, "data: {", 7) == 0);
	char *end = strstr(event, "\n\n");
	require(end != NULL && end[2] == '\0' && memchr(event, '\n', strlen(event)) == end);
	json_t *o = json_loadb(event + 6, (size_t)(end - event) - 6, JSON_ALLOW_NUL, NULL);
	require(json_is_object(o));
	json_decref(o);
	free(event);
}

static void check_request(const struct openai_request *r)
{
	struct openai_reply reply = {.kind = r->kind, .created_s = 1, .model = r->model, .fingerprint = "f", .include_usage = r->include_usage};
	openai_reply_id(r->kind, (const uint8_t[12]){0}, reply.id);
	require(sampler_check(&r->sampling, NULL) == OK && r->max_tokens >= 1);
	require(r->n_stops >= 0 && r->n_stops <= STOP_STRINGS_MAX);
	for (int32_t i = 0; i < r->n_stops; i++)
		require(r->stops[i][0] != '\0' && memchr(r->stops[i], '\0', STOP_STRING_CAP) != NULL);
	require((r->kind == OPENAI_CHAT) == (r->n_messages > 0));
	require(r->kind == OPENAI_CHAT || (r->prompt != NULL) != (r->n_prompt_ids > 0));
	for (size_t i = 0; i < r->n_prompt_ids; i++)
		require(r->prompt_ids[i] >= 0);
	for (size_t i = 0; i < r->n_messages; i++)
		check_event(openai_stream_piece(&reply, 0, r->messages[i].content, r->messages[i].content_len));
	if (r->prompt != NULL)
		check_event(openai_stream_piece(&reply, 0, r->prompt, r->prompt_len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct openai_request r;
	struct openai_error err = {0};
	if (size == 0 || size > 65536)
		return 0;
	char *body = (char *)exact_copy(data + 1, size - 1);
	if (openai_request_parse(data[0] & 1 ? OPENAI_CHAT : OPENAI_COMPLETION, body, size - 1, &r, &err)) {
		check_request(&r);
		openai_request_deinit(&r);
	} else {
		require(err.status == 400 && err.code != NULL && err.message[0] != '\0');
		check_event(openai_stream_error(&err, 0));
	}
	free(body);
	return 0;
}
