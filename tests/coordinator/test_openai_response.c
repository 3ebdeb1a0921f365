#include "coordinator/shell/openai_response.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct openai_reply reply_of(enum openai_kind kind)
{
	static const uint8_t random[12] = {0x01, 0x02, 0xab};
	struct openai_reply r = {.kind = kind, .created_s = 1700000000, .model = "tiny", .fingerprint = "hearth-1-f32"};
	openai_reply_id(kind, random, r.id);
	return r;
}

static void expect_text(char *got, const char *want)
{
	assert_non_null(got);
	assert_string_equal(got, want);
	free(got);
}

#define CHAT_HEAD "{\"id\":\"chatcmpl-0102ab000000000000000000\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"tiny\"," \
	"\"system_fingerprint\":\"hearth-1-f32\",\"choices\":"
#define CHUNK_HEAD "{\"id\":\"chatcmpl-0102ab000000000000000000\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"tiny\"," \
	"\"system_fingerprint\":\"hearth-1-f32\",\"choices\":"
#define TEXT_HEAD "{\"id\":\"cmpl-0102ab000000000000000000\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"tiny\"," \
	"\"system_fingerprint\":\"hearth-1-f32\",\"choices\":"
#define USAGE "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}"

static const struct openai_ending ending = {.finish_reason = "stop", .n_prompt_tokens = 3, .n_output_tokens = 2};

static void a_chat_in_one_piece(void **state)
{
	(void)state;
	struct openai_reply r = reply_of(OPENAI_CHAT);
	expect_text(openai_response_whole(&r, "a\"\0\xc3\xa9\n", 6, &ending),
		CHAT_HEAD "[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"a\\\"\\u0000\xc3\xa9\\n\",\"refusal\":null},\"logprobs\":null,"
			  "\"finish_reason\":\"stop\"}]," USAGE "}");
}

static void a_completion_in_one_piece_with_what_it_takes_to_repeat_it(void **state)
{
	(void)state;
	static const int32_t prompt[] = {1, 2, 3}, output[] = {7, 8};
	struct openai_reply r = reply_of(OPENAI_COMPLETION);
	struct openai_extra extra = {.request = "0a0b", .seed = (uint64_t)INT64_MAX, .logits_hash = "00ff", .prompt_ids = prompt, .n_prompt_ids = 3, .output_ids = output, .n_output_ids = 2};
	struct openai_ending e = ending;
	e.extra = &extra;
	expect_text(openai_response_whole(&r, "", 0, &e), TEXT_HEAD "[{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}]," USAGE
		",\"hearth\":{\"request\":\"0a0b\",\"seed\":9223372036854775807,\"prompt_ids\":[1,2,3],\"output_ids\":[7,8],\"logits_hash\":\"00ff\"}}");
}

static void a_stream_of_a_chat(void **state)
{
	(void)state;
	struct openai_reply r = reply_of(OPENAI_CHAT);
	expect_text(openai_stream_begin(&r, 1), "id: 1\ndata: " CHUNK_HEAD "[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
		"\"finish_reason\":null}]}\n\n");
	expect_text(openai_stream_piece(&r, 2, "a\n", 2), "id: 2\ndata: " CHUNK_HEAD "[{\"index\":0,\"delta\":{\"content\":\"a\\n\"},\"logprobs\":null,"
		"\"finish_reason\":null}]}\n\n");
	expect_text(openai_stream_finish(&r, 3, &ending),
		"id: 3\ndata: " CHUNK_HEAD "[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n");
	expect_text(openai_stream_done(2147483648), "id: 2147483648\ndata: [DONE]\n\n");
}

static void a_stream_with_usage_has_it_in_the_last_chunk_alone(void **state)
{
	(void)state;
	struct openai_reply r = reply_of(OPENAI_COMPLETION);
	r.include_usage = true;
	expect_text(openai_stream_piece(&r, 1, "a", 1), "id: 1\ndata: " TEXT_HEAD "[{\"index\":0,\"text\":\"a\",\"logprobs\":null,\"finish_reason\":null}],"
		"\"usage\":null}\n\n");
	expect_text(openai_stream_finish(&r, 2, &ending), "id: 2\ndata: " TEXT_HEAD "[{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}],"
		"\"usage\":null}\n\n");
	expect_text(openai_stream_usage(&r, 3, &ending), "id: 3\ndata: " TEXT_HEAD "[]," USAGE "}\n\n");
}

static void no_text_can_end_an_event_early(void **state)
{
	(void)state;
	struct openai_reply r = reply_of(OPENAI_CHAT);
	char *text = openai_stream_piece(&r, 0, "\r\n\n\rdata: x\n\n", 13);
	assert_non_null(text);
	assert_ptr_equal(strpbrk(text, "\r\n"), text + strlen(text) - 2);
	free(text);
}

static void errors_have_openais_form(void **state)
{
	(void)state;
	struct openai_error e;
	openai_error_set(&e, 400, "invalid_value", "stop", "stop: \"%s\"", "\x1b\xff");
	expect_text(openai_error_json(&e), "{\"error\":{\"message\":\"stop: \\\"??\\\"\",\"type\":\"invalid_request_error\",\"param\":\"stop\",\"code\":\"invalid_value\"}}");
	openai_error_set(&e, 500, NULL, NULL, "x");
	expect_text(openai_stream_error(&e, 0), "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n");
}

static void each_end_has_its_status(void **state)
{
	(void)state;
	static const struct {
		enum err err;
		int status;
		const char *type, *param;
	} cases[] = {
		{ERR_BUSY, 429, "\"rate_limit_error\"", ""},
		{ERR_LIMIT, 400, "\"invalid_request_error\"", "prompt"},
		{ERR_RANGE, 400, "\"invalid_request_error\"", "prompt"},
		{ERR_NODE_LOST, 503, "\"server_error\"", ""},
		{ERR_TIMEOUT, 503, "\"server_error\"", ""},
		{ERR_CLOSED, 503, "\"server_error\"", ""},
		{ERR_NON_FINITE, 500, "\"server_error\"", ""},
		{ERR_NOMEM, 500, "\"server_error\"", ""},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct openai_error e;
		openai_error_of(&e, cases[i].err, "prompt", "");
		assert_int_equal(e.status, cases[i].status);
		assert_string_equal(e.param, cases[i].param);
		assert_string_equal(e.message, err_words(cases[i].err));
		char *text = openai_error_json(&e);
		assert_non_null(strstr(text, cases[i].type));
		free(text);
	}
}

static void models_are_a_list_of_one(void **state)
{
	(void)state;
	expect_text(openai_models_json("tiny", 5), "{\"object\":\"list\",\"data\":[{\"id\":\"tiny\",\"object\":\"model\",\"created\":5,\"owned_by\":\"hearth\"}]}");
	expect_text(openai_model_json("tiny", 5), "{\"id\":\"tiny\",\"object\":\"model\",\"created\":5,\"owned_by\":\"hearth\"}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chat_in_one_piece),
		cmocka_unit_test(a_completion_in_one_piece_with_what_it_takes_to_repeat_it),
		cmocka_unit_test(a_stream_of_a_chat),
		cmocka_unit_test(a_stream_with_usage_has_it_in_the_last_chunk_alone),
		cmocka_unit_test(no_text_can_end_an_event_early),
		cmocka_unit_test(errors_have_openais_form),
		cmocka_unit_test(each_end_has_its_status),
		cmocka_unit_test(models_are_a_list_of_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
