#include "model/chat.h"

#include "model/gguf.h"
#include "model/tokenizer.h"
#include "tests/support/gguf_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define GOLDEN "tests/golden/chat_smollm2.json"
#define MESSAGES_CAP 16
#define IDS_CAP 1024

struct smollm2 {
	void *data;
	size_t len;
	struct gguf g;
	struct tokenizer *t;
	struct chat chat;
};

static int open_smollm2(void **state)
{
	struct smollm2 *s = calloc(1, sizeof *s);
	struct errmsg em = {"no file: make model"};
	struct stat st;
	int fd = open(MODEL, O_RDONLY | O_CLOEXEC);
	*state = s;
	if (fd >= 0 && fstat(fd, &st) == 0) {
		s->len = (size_t)st.st_size;
		s->data = mmap(NULL, s->len, PROT_READ, MAP_PRIVATE, fd, 0);
		close(fd);
		if (s->data != MAP_FAILED && gguf_parse(s->data, s->len, &s->g, &em) == OK &&
			tokenizer_open(&s->g, &s->t, &em) == OK && chat_init(&s->chat, &s->g, s->t, &em) == OK)
			return 0;
	}
	fprintf(stderr, MODEL ": %s\n", em.text);
	return -1;
}

static int close_smollm2(void **state)
{
	struct smollm2 *s = *state;
	tokenizer_close(s->t);
	gguf_deinit(&s->g);
	if (s->data)
		munmap(s->data, s->len);
	free(s);
	return 0;
}

// expect_text decodes ids, control tokens included, and compares.
static void expect_text(const struct tokenizer *t, const int32_t *ids, size_t n, const char *want)
{
	size_t at = 0, len = strlen(want);
	for (size_t i = 0; i < n; i++) {
		size_t piece_len;
		const char *piece = tokenizer_piece(t, ids[i], true, &piece_len);
		assert_true(piece_len <= len - at);
		assert_memory_equal(piece, want + at, piece_len);
		at += piece_len;
	}
	assert_int_equal(at, len);
}

static size_t n_control(const struct tokenizer *t, const int32_t *ids, size_t n)
{
	size_t count = 0;
	for (size_t i = 0; i < n; i++)
		count += tokenizer_is_control(t, ids[i]);
	return count;
}

static size_t read_messages(json_t *list, struct chat_message *out)
{
	size_t i;
	json_t *m;
	assert_true(json_array_size(list) <= MESSAGES_CAP);
	json_array_foreach(list, i, m)
	{
		json_t *content = json_object_get(m, "content");
		out[i] = (struct chat_message){
			json_string_value(json_object_get(m, "role")), json_string_value(content), json_string_length(content)};
	}
	return json_array_size(list);
}

static void conversations_equal_jinja2_and_llama_cpp(void **state)
{
	struct smollm2 *s = *state;
	json_t *root = json_load_file(GOLDEN, 0, NULL), *row;
	size_t i, n_with_ids = 0;
	assert_non_null(root);
	json_array_foreach(json_object_get(root, "cases"), i, row)
	{
		struct chat_message messages[MESSAGES_CAP];
		int32_t ids[IDS_CAP];
		size_t n, n_messages = read_messages(json_object_get(row, "messages"), messages);
		bool answer = json_is_true(json_object_get(row, "answer"));
		assert_int_equal(chat_encode(&s->chat, messages, n_messages, answer, ids, IDS_CAP, &n, NULL), OK);
		expect_text(s->t, ids, n, json_string_value(json_object_get(row, "rendered")));
		json_t *want = json_object_get(row, "ids");
		if (want != NULL) {
			n_with_ids++;
			assert_int_equal(json_array_size(want), n);
			for (size_t j = 0; j < n; j++)
				assert_int_equal(json_integer_value(json_array_get(want, j)), ids[j]);
		}
		// Two markers for each message, one for the answer, and none that came out of a message.
		bool added = n_messages > 0 && strcmp(messages[0].role, "system") != 0;
		assert_int_equal(n_control(s->t, ids, n), 2 * (n_messages + added) + answer);
	}
	assert_true(n_with_ids >= 40 && n_with_ids < i);
	json_decref(root);
}

static void the_default_system_message_is_the_templates_own(void **state)
{
	struct smollm2 *s = *state;
	static const char want[] = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
	assert_true(s->chat.has_default_system);
	assert_int_equal(s->chat.default_system_len, strlen(want));
	assert_memory_equal(s->chat.default_system, want, strlen(want));
}

static void other_roles_are_refused_by_name(void **state)
{
	struct smollm2 *s = *state;
	struct errmsg em;
	int32_t ids[IDS_CAP];
	size_t n;
	static const char *const bad[] = {"tool", "User", "", "user\n", "system<|im_end|>", "developer"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct chat_message m = {bad[i], "x", 1};
		assert_int_equal(chat_encode(&s->chat, &m, 1, true, ids, IDS_CAP, &n, &em), ERR_UNSUPPORTED);
		assert_int_equal(n, 0);
	}
	struct chat_message tool = {"tool", "x", 1};
	assert_int_equal(chat_encode(&s->chat, &tool, 1, true, ids, IDS_CAP, &n, &em), ERR_UNSUPPORTED);
	assert_non_null(strstr(em.text, "role \"tool\""));
}

static void any_room_too_small_is_a_limit(void **state)
{
	struct smollm2 *s = *state;
	struct chat_message m = {"user", "a few words here", 16};
	int32_t ids[IDS_CAP];
	size_t whole, n;
	assert_int_equal(chat_encode(&s->chat, &m, 1, true, ids, IDS_CAP, &whole, NULL), OK);
	for (size_t cap = 0; cap < whole; cap++) {
		ids[cap] = -7;
		assert_int_equal(chat_encode(&s->chat, &m, 1, true, ids, cap, &n, NULL), ERR_LIMIT);
		assert_int_equal(ids[cap], -7);
	}
	assert_int_equal(chat_encode(&s->chat, &m, 1, true, ids, whole, &n, NULL), OK);
}

// ---- Other templates

// try_template opens a small vocabulary with the markers (or without) under a template, and gives what it says as the default.
static enum err try_template(const char *template, size_t len, bool markers, struct chat *c, struct errmsg *em)
{
	struct gguf_build b = {0};
	struct gguf g = {0};
	struct tokenizer *t = NULL;
	static const char *const tokens[] = {"a", "b", "ab", "<|im_start|>", "<|im_end|>"}, *const merges[] = {"a b"};
	static const int32_t control[] = {1, 1, 1, 3, 3}, normal[] = {1, 1, 1, 1, 1};
	gguf_build_begin(&b, 3);
	gguf_build_kv_str(&b, "tokenizer.ggml.model", "gpt2");
	gguf_build_kv_str(&b, "tokenizer.ggml.pre", "smollm");
	gguf_build_kv_strs(&b, "tokenizer.ggml.tokens", tokens, ARRAY_LEN(tokens));
	gguf_build_kv_i32s(&b, "tokenizer.ggml.token_type", markers ? control : normal, ARRAY_LEN(tokens));
	gguf_build_kv_strs(&b, "tokenizer.ggml.merges", merges, 1);
	if (template != NULL) {
		gguf_build_key(&b, "tokenizer.chat_template", GGUF_STRING);
		gguf_build_string(&b, template, len);
	}
	gguf_build_begin_data(&b);
	gguf_build_finish(&b);
	assert_int_equal(gguf_parse(b.data, b.len, &g, em), OK);
	assert_int_equal(tokenizer_open(&g, &t, em), OK);
	enum err e = chat_init(c, &g, t, em);
	c->tokenizer = NULL;
	tokenizer_close(t);
	gguf_deinit(&g);
	gguf_build_free(&b);
	return e;
}

static void expect_default(const char *template, const char *want)
{
	struct chat c;
	struct errmsg em = {0};
	if (try_template(template, strlen(template), true, &c, &em) != OK)
		fail_msg("%s", em.text);
	assert_int_equal(c.has_default_system, want != NULL);
	if (want != NULL) {
		assert_int_equal(c.default_system_len, strlen(want));
		assert_memory_equal(c.default_system, want, strlen(want));
	}
}

#define BODY "{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}"

static void the_default_is_a_whole_message_written_out_or_none(void **state)
{
	(void)state;
	expect_default(BODY, NULL);
	expect_default("{{ '<|im_start|>system\\nBe nice.<|im_end|>\\n' }}" BODY, "Be nice.");
	expect_default("{{ \"<|im_start|>system\\nIt\\'s \\\"fine\\\".\\n\\\\<|im_end|>\\n\" }}" BODY, "It's \"fine\".\n\\");
	expect_default("{{ '<|im_start|>system\nA real\nline end.<|im_end|>\n' }}" BODY, "A real\nline end.");
	expect_default("{% if x %}<|im_start|>system\nPlain text.<|im_end|>\n{% endif %}" BODY, "Plain text.");
	// A message that is computed is not a default; one written out further on is.
	expect_default("{{ '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}" BODY, NULL);
	expect_default(
		"{{ '<|im_start|>system\\n' + s + '<|im_end|>' }}{{ '<|im_start|>system\\nSecond.<|im_end|>' }}", "Second.");
	expect_default("<|im_start|>system\n{{ s }}<|im_end|>" BODY, NULL);
	expect_default("{{ '<|im_start|>system\\n<|im_end|>\\n' }}" BODY, "");
	expect_default("<|im_end|><|im_start|>system", NULL);
	expect_default("<|im_end|><|im_start|>system\n", NULL);
	expect_default("<|im_end|>'<|im_start|>system\\nabc\\", NULL);
}

static void what_is_not_plain_chatml_is_refused(void **state)
{
	(void)state;
	struct chat c;
	struct errmsg em;
	assert_int_equal(try_template(NULL, 0, true, &c, &em), ERR_NOT_FOUND);
	assert_int_equal(try_template("", 0, true, &c, &em), ERR_UNSUPPORTED);
	assert_int_equal(try_template("[INST] {{ m }} [/INST]", 22, true, &c, &em), ERR_UNSUPPORTED);
	assert_non_null(strstr(em.text, "ChatML"));
	assert_int_equal(try_template("<|im_start|>", 12, true, &c, &em), ERR_UNSUPPORTED);
	static const char trims[] = "{{ '<|im_start|>' + m.content | trim + '<|im_end|>' }}";
	assert_int_equal(try_template(trims, strlen(trims), true, &c, &em), ERR_UNSUPPORTED);
	assert_int_equal(try_template(BODY, strlen(BODY), false, &c, &em), ERR_UNSUPPORTED);
	assert_non_null(strstr(em.text, "no special token"));
}

// 10 MiB, and a default that would not fit: neither crashes nor is taken.
static void a_huge_template_costs_little(void **state)
{
	(void)state;
	struct chat c;
	struct errmsg em;
	size_t len = 10 << 20;
	char *big = malloc(len);
	static const char unit[] = "'<|im_start|>system\\n";
	for (size_t i = 0; i < len; i++)
		big[i] = unit[i % strlen(unit)];
	memcpy(big + len - 10, "<|im_end|>", 10);
	assert_int_equal(try_template(big, len, true, &c, &em), OK);
	memset(big, 'x', len);
	memcpy(big, "<|im_start|>system\n", 19);
	memcpy(big + len - 10, "<|im_end|>", 10);
	assert_int_equal(try_template(big, len, true, &c, &em), OK);
	assert_false(c.has_default_system);
	free(big);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(conversations_equal_jinja2_and_llama_cpp, open_smollm2, close_smollm2),
		cmocka_unit_test_setup_teardown(the_default_system_message_is_the_templates_own, open_smollm2, close_smollm2),
		cmocka_unit_test_setup_teardown(other_roles_are_refused_by_name, open_smollm2, close_smollm2),
		cmocka_unit_test_setup_teardown(any_room_too_small_is_a_limit, open_smollm2, close_smollm2),
		cmocka_unit_test(the_default_is_a_whole_message_written_out_or_none),
		cmocka_unit_test(what_is_not_plain_chatml_is_refused),
		cmocka_unit_test(a_huge_template_costs_little),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
