#include "coordinator/shell/openai_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHAT_HEAD "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]"
#define TEXT_HEAD "{\"model\": \"m\", \"prompt\": \"hi\""

static struct openai_request parse_ok(enum openai_kind kind, const char *body)
{
	struct openai_request r;
	struct openai_error err = {0};
	if (!openai_request_parse(kind, body, strlen(body), &r, &err))
		fail_msg("%s: %s", body, err.message);
	return r;
}

static void expect_bytes(enum openai_kind kind, const char *body, size_t len, const char *code, const char *param)
{
	struct openai_request r;
	struct openai_error err = {0};
	if (openai_request_parse(kind, body, len, &r, &err))
		fail_msg("%.200s: accepted", body);
	assert_int_equal(err.status, 400);
	assert_string_equal(err.code, code);
	assert_string_equal(err.param, param);
	assert_true(err.message[0] != '\0');
	assert_true(param[0] == '\0' || strstr(err.message, param) != NULL);
	assert_null(r.root);
}

static void expect(enum openai_kind kind, const char *body, const char *code, const char *param)
{
	expect_bytes(kind, body, strlen(body), code, param);
}

// expect_field puts `field` behind a valid beginning.
static void expect_field(enum openai_kind kind, const char *field, const char *code, const char *param)
{
	char body[1024];
	snprintf(body, sizeof body, "%s, %s}", kind == OPENAI_CHAT ? CHAT_HEAD : TEXT_HEAD, field);
	expect(kind, body, code, param);
}

static void accept_field(enum openai_kind kind, const char *field)
{
	char body[1024];
	snprintf(body, sizeof body, "%s, %s}", kind == OPENAI_CHAT ? CHAT_HEAD : TEXT_HEAD, field);
	struct openai_request r = parse_ok(kind, body);
	openai_request_deinit(&r);
}

static void defaults_are_openais(void **state)
{
	(void)state;
	struct openai_request r = parse_ok(OPENAI_CHAT, CHAT_HEAD "}");
	assert_string_equal(r.model, "m");
	assert_int_equal(r.n_messages, 1);
	assert_string_equal(r.messages[0].role, "user");
	assert_int_equal(r.messages[0].content_len, 2);
	assert_int_equal(r.max_tokens, INT32_MAX);
	assert_true(r.sampling.temperature == 1 && r.sampling.top_p == 1 && r.sampling.min_p == 0 && r.sampling.top_k == 0);
	assert_false(r.has_seed || r.stream || r.include_usage || r.hearth || r.logits_hash);
	assert_int_equal(r.n_stops, 0);
	openai_request_deinit(&r);
	r = parse_ok(OPENAI_COMPLETION, TEXT_HEAD "}");
	assert_int_equal(r.max_tokens, OPENAI_COMPLETION_MAX_TOKENS);
	assert_string_equal(r.prompt, "hi");
	openai_request_deinit(&r);
}

static void every_parameter_arrives(void **state)
{
	(void)state;
	struct openai_request r = parse_ok(OPENAI_CHAT, CHAT_HEAD ", \"max_completion_tokens\": 7, \"temperature\": 0.5, \"top_p\": 0.25, \"top_k\": 40, "
		"\"min_p\": 0.125, \"seed\": -3, \"stop\": [\"a\", \"b\\n\"], \"stream\": true, \"stream_options\": {\"include_usage\": true}, "
		"\"hearth\": {\"logits_hash\": true}}");
	assert_int_equal(r.max_tokens, 7);
	assert_true(r.sampling.temperature == 0.5f && r.sampling.top_p == 0.25f && r.sampling.min_p == 0.125f);
	assert_int_equal(r.sampling.top_k, 40);
	assert_true(r.has_seed && r.sampling.seed == UINT64_MAX - 2);
	assert_int_equal(r.n_stops, 2);
	assert_string_equal(r.stops[1], "b\n");
	assert_true(r.stream && r.include_usage && r.hearth && r.logits_hash);
	openai_request_deinit(&r);
}

static void seeds_reach_both_ends_of_64_bits(void **state)
{
	(void)state;
	struct openai_request r = parse_ok(OPENAI_COMPLETION, TEXT_HEAD ", \"seed\": 9223372036854775807}");
	assert_true(r.sampling.seed == INT64_MAX);
	openai_request_deinit(&r);
	r = parse_ok(OPENAI_COMPLETION, TEXT_HEAD ", \"seed\": -9223372036854775808}");
	assert_true(r.sampling.seed == (uint64_t)INT64_MIN);
	openai_request_deinit(&r);
	expect_field(OPENAI_COMPLETION, "\"seed\": 9223372036854775808", "invalid_json", "");
}

static void contents_may_be_text_parts(void **state)
{
	(void)state;
	struct openai_request r = parse_ok(OPENAI_CHAT, "{\"model\": \"m\", \"messages\": ["
		"{\"role\": \"developer\", \"content\": [{\"type\": \"text\", \"text\": \"a\\u0000b\"}, {\"text\": \"\", \"type\": \"text\"}, "
		"{\"type\": \"text\", \"text\": \"\u00e9\"}]}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": null, \"annotations\": []}]}");
	assert_int_equal(r.n_messages, 2);
	assert_string_equal(r.messages[0].role, "system");
	assert_int_equal(r.messages[0].content_len, 7);
	assert_memory_equal(r.messages[0].content, "a\0b\n\n\xc3\xa9", 8);
	assert_int_equal(r.messages[1].content_len, 0);
	openai_request_deinit(&r);
}

static void a_prompt_may_be_text_or_ids_alone_in_an_array(void **state)
{
	(void)state;
	static const char *const ids[] = {"[5, 0, 2147483647]", "[[5, 0, 2147483647]]"};
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		char body[128];
		snprintf(body, sizeof body, "{\"model\": \"m\", \"prompt\": %s}", ids[i]);
		struct openai_request r = parse_ok(OPENAI_COMPLETION, body);
		assert_null(r.prompt);
		assert_int_equal(r.n_prompt_ids, 3);
		assert_int_equal(r.prompt_ids[0], 5);
		assert_int_equal(r.prompt_ids[2], INT32_MAX);
		openai_request_deinit(&r);
	}
	struct openai_request r = parse_ok(OPENAI_COMPLETION, "{\"model\": \"m\", \"prompt\": [\"x\\u0000y\"]}");
	assert_int_equal(r.prompt_len, 3);
	openai_request_deinit(&r);
}

static void a_wrong_prompt_is_named(void **state)
{
	(void)state;
	static const char *const cases[][3] = {
		{"[]", "invalid_value", "prompt"},
		{"[[]]", "invalid_type", "prompt[0]"},
		{"[[[1]]]", "invalid_type", "prompt[0]"},
		{"[\"a\", \"b\"]", "unsupported_value", "prompt"},
		{"[[1], [2]]", "unsupported_value", "prompt"},
		{"[1, \"a\"]", "invalid_type", "prompt[1]"},
		{"[1, 2.0]", "invalid_type", "prompt[1]"},
		{"[-1]", "invalid_value", "prompt[0]"},
		{"[2147483648]", "invalid_value", "prompt[0]"},
		{"{}", "invalid_type", "prompt"},
		{"1", "invalid_type", "prompt"},
		{"null", "missing_required_parameter", "prompt"},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char body[128];
		snprintf(body, sizeof body, "{\"model\": \"m\", \"prompt\": %s}", cases[i][0]);
		expect(OPENAI_COMPLETION, body, cases[i][1], cases[i][2]);
	}
}

static void a_wrong_message_is_named(void **state)
{
	(void)state;
	static const char *const cases[][3] = {
		{"{}", "invalid_type", "messages"},
		{"[]", "invalid_value", "messages"},
		{"[1]", "invalid_type", "messages[0]"},
		{"[{\"content\": \"a\"}]", "missing_required_parameter", "messages[0].role"},
		{"[{\"role\": 1, \"content\": \"a\"}]", "invalid_type", "messages[0].role"},
		{"[{\"role\": \"tool\", \"content\": \"a\"}]", "unsupported_value", "messages[0].role"},
		{"[{\"role\": \"user\\u0000\", \"content\": \"a\"}]", "invalid_value", "messages[0].role"},
		{"[{\"role\": \"user\"}]", "missing_required_parameter", "messages[0].content"},
		{"[{\"role\": \"user\", \"content\": null}]", "invalid_type", "messages[0].content"},
		{"[{\"role\": \"user\", \"content\": 5}]", "invalid_type", "messages[0].content"},
		{"[{\"role\": \"user\", \"content\": []}]", "invalid_value", "messages[0].content"},
		{"[{\"role\": \"user\", \"content\": [\"a\"]}]", "invalid_type", "messages[0].content[0]"},
		{"[{\"role\": \"user\", \"content\": [{\"text\": \"a\"}]}]", "missing_required_parameter", "messages[0].content[0].type"},
		{"[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]", "unsupported_value", "messages[0].content[0].type"},
		{"[{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]", "missing_required_parameter", "messages[0].content[0].text"},
		{"[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": 1}]}]", "invalid_type", "messages[0].content[0].text"},
		{"[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"\", \"x\": 1}]}]", "unknown_parameter", "messages[0].content[0]"},
		{"[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"a\", \"name\": \"n\"}]", "unsupported_parameter", "messages[1].name"},
		{"[{\"role\": \"user\", \"content\": \"a\", \"weight\": null}]", "unknown_parameter", "messages[0].weight"},
		{"[{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [{}]}]", "unsupported_parameter", "messages[0].tool_calls"},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char body[256];
		snprintf(body, sizeof body, "{\"model\": \"m\", \"messages\": %s}", cases[i][0]);
		expect(OPENAI_CHAT, body, cases[i][1], cases[i][2]);
	}
}

static void what_would_change_the_answer_is_refused_by_name(void **state)
{
	(void)state;
	static const char *const chat[][3] = {
		{"\"n\": 2", "unsupported_value", "n"},
		{"\"frequency_penalty\": 0.1", "unsupported_value", "frequency_penalty"},
		{"\"presence_penalty\": -1", "unsupported_value", "presence_penalty"},
		{"\"logit_bias\": {\"5\": 1}", "unsupported_parameter", "logit_bias"},
		{"\"logprobs\": true", "unsupported_value", "logprobs"},
		{"\"top_logprobs\": 2", "unsupported_value", "top_logprobs"},
		{"\"tools\": [{}]", "unsupported_parameter", "tools"},
		{"\"tools\": 1", "unsupported_parameter", "tools"},
		{"\"tool_choice\": \"required\"", "unsupported_value", "tool_choice"},
		{"\"tool_choice\": {}", "unsupported_value", "tool_choice"},
		{"\"functions\": [1]", "unsupported_parameter", "functions"},
		{"\"response_format\": {\"type\": \"json_object\"}", "unsupported_value", "response_format"},
		{"\"response_format\": 3", "unsupported_value", "response_format"},
		{"\"modalities\": [\"text\", \"audio\"]", "unsupported_value", "modalities"},
		{"\"audio\": {}", "unsupported_parameter", "audio"},
		{"\"reasoning_effort\": \"low\"", "unsupported_parameter", "reasoning_effort"},
		{"\"store\": true", "unsupported_value", "store"},
		{"\"service_tier\": \"flex\"", "unsupported_value", "service_tier"},
		{"\"stream_options\": {\"include_obfuscation\": true}", "unsupported_parameter", "stream_options.include_obfuscation"},
		{"\"repetition_penalty\": 1.0", "unknown_parameter", "repetition_penalty"},
		{"\"max_token\": null", "unknown_parameter", "max_token"},
		{"\"prompt\": \"a\"", "unknown_parameter", "prompt"},
		{"\"hearth\": {\"hash\": true}", "unknown_parameter", "hearth.hash"},
		{"\"stream_options\": {\"usage\": true}", "unknown_parameter", "stream_options.usage"},
	};
	static const char *const text[][3] = {
		{"\"best_of\": 2", "unsupported_value", "best_of"},
		{"\"echo\": true", "unsupported_value", "echo"},
		{"\"suffix\": \"x\"", "unsupported_parameter", "suffix"},
		{"\"logprobs\": 0", "unsupported_parameter", "logprobs"},
		{"\"messages\": []", "unknown_parameter", "messages"},
	};
	for (size_t i = 0; i < ARRAY_LEN(chat); i++)
		expect_field(OPENAI_CHAT, chat[i][0], chat[i][1], chat[i][2]);
	for (size_t i = 0; i < ARRAY_LEN(text); i++)
		expect_field(OPENAI_COMPLETION, text[i][0], text[i][1], text[i][2]);
}

static void values_that_change_nothing_are_taken(void **state)
{
	(void)state;
	static const char *const chat[] = {"\"n\": 1", "\"n\": null", "\"frequency_penalty\": 0", "\"presence_penalty\": 0.0", "\"logit_bias\": {}",
		"\"logprobs\": false", "\"logprobs\": null", "\"top_logprobs\": 0", "\"tools\": []", "\"tools\": null", "\"tool_choice\": \"none\"",
		"\"tool_choice\": \"auto\"", "\"response_format\": {\"type\": \"text\"}", "\"modalities\": [\"text\"]", "\"audio\": null", "\"store\": false",
		"\"service_tier\": \"auto\"", "\"user\": \"me\"", "\"metadata\": {\"a\": \"b\"}", "\"parallel_tool_calls\": true", "\"stop\": null", "\"stop\": []",
		"\"seed\": null", "\"hearth\": null", "\"hearth\": {\"logits_hash\": null}", "\"max_tokens\": 5, \"max_completion_tokens\": 5",
		"\"stream\": null, \"stream_options\": null", "\"stream\": true, \"stream_options\": {\"include_obfuscation\": false}"};
	static const char *const text[] = {"\"best_of\": 1", "\"echo\": false", "\"suffix\": null", "\"logprobs\": null"};
	for (size_t i = 0; i < ARRAY_LEN(chat); i++)
		accept_field(OPENAI_CHAT, chat[i]);
	for (size_t i = 0; i < ARRAY_LEN(text); i++)
		accept_field(OPENAI_COMPLETION, text[i]);
}

static void mistyped_and_out_of_range_values_are_named(void **state)
{
	(void)state;
	static const char *const cases[][3] = {
		{"\"temperature\": \"1\"", "invalid_type", "temperature"},
		{"\"temperature\": -0.1", "invalid_value", "temperature"},
		{"\"temperature\": 1e300", "invalid_value", "temperature"},
		{"\"temperature\": 101", "invalid_value", "temperature"},
		{"\"top_p\": 0", "invalid_value", "top_p"},
		{"\"top_p\": 1.01", "invalid_value", "top_p"},
		{"\"top_p\": true", "invalid_type", "top_p"},
		{"\"min_p\": 1.5", "invalid_value", "min_p"},
		{"\"top_k\": -1", "invalid_value", "top_k"},
		{"\"top_k\": 1.5", "invalid_type", "top_k"},
		{"\"max_tokens\": 0", "invalid_value", "max_tokens"},
		{"\"max_tokens\": -1", "invalid_value", "max_tokens"},
		{"\"max_tokens\": 2147483648", "invalid_value", "max_tokens"},
		{"\"max_tokens\": \"many\"", "invalid_type", "max_tokens"},
		{"\"max_tokens\": 5, \"max_completion_tokens\": 6", "invalid_value", "max_completion_tokens"},
		{"\"seed\": 1.5", "invalid_type", "seed"},
		{"\"seed\": \"5\"", "invalid_type", "seed"},
		{"\"stop\": 5", "invalid_type", "stop"},
		{"\"stop\": \"\"", "invalid_value", "stop"},
		{"\"stop\": [\"a\", \"b\", \"c\", \"d\", \"e\"]", "invalid_value", "stop"},
		{"\"stop\": [\"a\", null]", "invalid_type", "stop"},
		{"\"stop\": \"a\\u0000b\"", "invalid_value", "stop"},
		{"\"stream\": 1", "invalid_type", "stream"},
		{"\"stream\": true, \"stream_options\": []", "invalid_type", "stream_options"},
		{"\"stream_options\": {}", "invalid_value", "stream_options"},
		{"\"stream\": true, \"stream_options\": {\"include_usage\": 1}", "invalid_type", "stream_options.include_usage"},
		{"\"hearth\": true", "invalid_type", "hearth"},
		{"\"hearth\": {\"logits_hash\": 1}", "invalid_type", "hearth.logits_hash"},
		{"\"n\": \"1\"", "invalid_type", "n"},
		{"\"user\": 1", "invalid_type", "user"},
		{"\"model\": \"again\"", "invalid_json", ""}, // a duplicate key
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		expect_field(OPENAI_CHAT, cases[i][0], cases[i][1], cases[i][2]);
}

static void what_must_be_there_is_missed_by_name(void **state)
{
	(void)state;
	expect(OPENAI_CHAT, "{}", "missing_required_parameter", "model");
	expect(OPENAI_CHAT, "{\"model\": null, \"messages\": [{\"role\": \"user\", \"content\": \"\"}]}", "missing_required_parameter", "model");
	expect(OPENAI_CHAT, "{\"model\": \"m\"}", "missing_required_parameter", "messages");
	expect(OPENAI_COMPLETION, "{\"model\": \"m\"}", "missing_required_parameter", "prompt");
	expect(OPENAI_CHAT, "{\"model\": 5}", "invalid_type", "model");
}

static void a_stop_string_of_255_bytes_passes_and_one_of_256_does_not(void **state)
{
	(void)state;
	char text[STOP_STRING_CAP + 1], field[512];
	memset(text, 'x', sizeof text);
	text[STOP_STRING_CAP] = '\0';
	snprintf(field, sizeof field, "\"stop\": \"%s\"", text);
	expect_field(OPENAI_CHAT, field, "invalid_value", "stop");
	snprintf(field, sizeof field, "\"stop\": \"%s\"", text + 1);
	accept_field(OPENAI_CHAT, field);
}

static void what_is_no_json_object_is_refused(void **state)
{
	(void)state;
	static const char *const cases[] = {"", " ", "x", "{", "[]", "1", "null", "\"a\"", "{}x", "{\"a\":NaN}", "{\"a\":Infinity}", "{\"a\":1e999}",
		"{\"a\":01}", "{\"a\":99999999999999999999}", "{'a':1}", "{\"a\":1,}", "{\"a\":1,\"a\":1}", "{\"a\":\"\xff\"}", "{\"a\":\"\\ud800\"}",
		"{\"a\\u0000b\":1}", "{\"a\":\"\n\"}", "\xef\xbb\xbf{}", "{\"a\":\"unfinished\\"};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		expect(OPENAI_CHAT, cases[i], "invalid_json", "");
	expect_bytes(OPENAI_CHAT, "{}\0", 3, "invalid_json", "");
}

static char *repeated(const char *head, const char *part, size_t n, const char *tail)
{
	size_t part_len = strlen(part);
	char *text = malloc(strlen(head) + n * part_len + strlen(tail) + 1);
	assert_non_null(text);
	char *at = stpcpy(text, head);
	for (size_t i = 0; i < n; i++)
		at = stpcpy(at, part);
	strcpy(at, tail);
	return text;
}

static void expect_repeated(const char *head, const char *part, size_t n, const char *tail, const char *code, const char *param)
{
	char *body = repeated(head, part, n, tail);
	expect(OPENAI_CHAT, body, code, param);
	free(body);
}

static void depth_is_bounded_on_both_sides(void **state)
{
	(void)state;
	expect_repeated("{\"x\":", "[", 10000, "", "invalid_json", "");
	expect_repeated("", "{\"a\":", 10000, "", "invalid_json", "");
	expect_repeated("{\"x\":", "[", 64, "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}", "invalid_json", "");
	expect_repeated("{\"x\":", "[", 63, "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}", "unknown_parameter", "x");
	expect_repeated("{\"user\":\"\\\"", "[", 1000, "\"}", "missing_required_parameter", "model"); // in a string they are text
}

static void the_number_of_values_is_bounded_on_both_sides(void **state)
{
	(void)state;
	expect_repeated("{\"x\":[0", ",0", OPENAI_VALUES_MAX - 3, "]}", "unknown_parameter", "x");
	expect_repeated("{\"x\":[0", ",0", OPENAI_VALUES_MAX, "]}", "invalid_json", "");
	expect_repeated("{\"x\":[[]", ",[]", OPENAI_CONTAINERS_MAX - 3, "]}", "unknown_parameter", "x");
	expect_repeated("{\"x\":[[]", ",{}", OPENAI_CONTAINERS_MAX, "]}", "invalid_json", "");
}

static void a_strange_name_is_shown_without_its_control_characters(void **state)
{
	(void)state;
	expect_field(OPENAI_CHAT, "\"a\\u001b[31m\\u202e\": 1", "unknown_parameter", "a?[31m?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_openais),
		cmocka_unit_test(every_parameter_arrives),
		cmocka_unit_test(seeds_reach_both_ends_of_64_bits),
		cmocka_unit_test(contents_may_be_text_parts),
		cmocka_unit_test(a_prompt_may_be_text_or_ids_alone_in_an_array),
		cmocka_unit_test(a_wrong_prompt_is_named),
		cmocka_unit_test(a_wrong_message_is_named),
		cmocka_unit_test(what_would_change_the_answer_is_refused_by_name),
		cmocka_unit_test(values_that_change_nothing_are_taken),
		cmocka_unit_test(mistyped_and_out_of_range_values_are_named),
		cmocka_unit_test(what_must_be_there_is_missed_by_name),
		cmocka_unit_test(a_stop_string_of_255_bytes_passes_and_one_of_256_does_not),
		cmocka_unit_test(what_is_no_json_object_is_refused),
		cmocka_unit_test(depth_is_bounded_on_both_sides),
		cmocka_unit_test(the_number_of_values_is_bounded_on_both_sides),
		cmocka_unit_test(a_strange_name_is_shown_without_its_control_characters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
