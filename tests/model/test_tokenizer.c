#include "model/tokenizer.h"

#include "base/limits.h"
#include "base/rng.h"
#include "model/gguf.h"
#include "model/model.h"
#include "model/vocab.h"
#include "tests/support/gguf_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SMOLLM2_GOLDEN "tests/golden/tokenizer_smollm2.json"
#define OTHERS_DIR "build/oracle/golden"

// ---- Files of llama.cpp's ids

struct mapped {
	void *data;
	size_t len;
	struct gguf g;
};

static void open_vocab(const char *path, struct mapped *m, struct tokenizer **t)
{
	struct errmsg em = {0};
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail_msg("%s is missing: make model", path);
	assert_int_equal(fstat(fd, &st), 0);
	m->len = (size_t)st.st_size;
	m->data = mmap(NULL, m->len, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(m->data != MAP_FAILED);
	close(fd);
	if (gguf_parse(m->data, m->len, &m->g, &em) != OK || tokenizer_open(&m->g, t, &em) != OK)
		fail_msg("%s: %s", path, em.text);
}

static void close_vocab(struct mapped *m, struct tokenizer *t)
{
	tokenizer_close(t);
	gguf_deinit(&m->g);
	munmap(m->data, m->len);
}

static void expect_ids(const char *where, size_t line, const char *text, json_t *want, const int32_t *got, size_t n)
{
	bool same = json_array_size(want) == n;
	for (size_t i = 0; same && i < n; i++)
		same = json_integer_value(json_array_get(want, i)) == got[i];
	if (same)
		return;
	fprintf(stderr, "%s line %zu: \"%s\"\n  want", where, line, text);
	for (size_t i = 0; i < json_array_size(want); i++)
		fprintf(stderr, " %d", (int)json_integer_value(json_array_get(want, i)));
	fprintf(stderr, "\n  got ");
	for (size_t i = 0; i < n; i++)
		fprintf(stderr, " %d", (int)got[i]);
	fprintf(stderr, "\n");
	fail_msg("ids differ from llama.cpp's");
}

static size_t compare_with(const char *path)
{
	json_error_t je;
	json_t *root = json_load_file(path, JSON_ALLOW_NUL, &je);
	if (root == NULL)
		fail_msg("%s: %s", path, je.text);
	struct mapped m;
	struct tokenizer *t;
	open_vocab(json_string_value(json_object_get(root, "model")), &m, &t);
	size_t i;
	json_t *row, *lines = json_object_get(root, "lines");
	json_array_foreach(lines, i, row)
	{
		json_t *text = json_object_get(row, "text"), *special = json_object_get(row, "special_ids");
		size_t len = json_string_length(text), cap = TOKENIZE_IDS_MAX(len), n;
		int32_t *ids = malloc(cap * sizeof *ids);
		for (int parse = 0; parse < 2; parse++) {
			struct tokenize_options o = {.add_bos = true, .parse_special = parse};
			assert_int_equal(tokenizer_encode(t, json_string_value(text), len, o, ids, cap, &n, NULL), OK);
			expect_ids(path, i, json_string_value(text), parse && special ? special : json_object_get(row, "ids"),
				ids, n);
		}
		free(ids);
	}
	size_t n_lines = json_array_size(lines);
	close_vocab(&m, t);
	json_decref(root);
	return n_lines;
}

static void smollm2_gives_the_ids_of_llama_cpp(void **state)
{
	(void)state;
	assert_true(compare_with(SMOLLM2_GOLDEN) > 400);
}

// The other vocabularies are not ours to commit: `make oracle` fetches them.
static void other_vocabularies_give_the_ids_of_llama_cpp_where_the_oracle_is_set_up(void **state)
{
	(void)state;
	DIR *d = opendir(OTHERS_DIR);
	if (d == NULL) {
		print_message("skip: no %s (make oracle)\n", OTHERS_DIR);
		skip();
	}
	size_t n_files = 0;
	for (struct dirent *e; (e = readdir(d)) != NULL;) {
		char path[512];
		if (strncmp(e->d_name, "tokenizer_", 10) != 0)
			continue;
		snprintf(path, sizeof path, OTHERS_DIR "/%s", e->d_name);
		assert_true(compare_with(path) > 400);
		n_files++;
	}
	closedir(d);
	assert_true(n_files >= 8);
}

// ---- The tiny vocabulary: every byte has a token

struct tiny {
	struct gguf_build b;
	struct gguf g;
	struct tokenizer *t;
};

static int open_tiny(void **state)
{
	struct tiny *tiny = calloc(1, sizeof *tiny);
	struct tiny_llama shape = tiny_llama_default(1);
	struct errmsg em = {0};
	gguf_build_tiny_llama(&tiny->b, &shape);
	if (gguf_parse(tiny->b.data, tiny->b.len, &tiny->g, &em) != OK || tokenizer_open(&tiny->g, &tiny->t, &em) != OK) {
		fprintf(stderr, "%s\n", em.text);
		return -1;
	}
	*state = tiny;
	return 0;
}

static int close_tiny(void **state)
{
	struct tiny *tiny = *state;
	tokenizer_close(tiny->t);
	gguf_deinit(&tiny->g);
	gguf_build_free(&tiny->b);
	free(tiny);
	return 0;
}

static size_t encode(const struct tokenizer *t, const char *text, size_t len, bool special, int32_t *ids, size_t cap)
{
	size_t n = 0;
	struct errmsg em = {0};
	if (tokenizer_encode(t, text, len, (struct tokenize_options){.parse_special = special}, ids, cap, &n, &em) != OK)
		fail_msg("%s", em.text);
	return n;
}

// expect_back decodes ids and compares with the text they came from.
static void expect_back(const struct tokenizer *t, const char *text, size_t len, const int32_t *ids, size_t n)
{
	size_t at = 0;
	for (size_t i = 0; i < n; i++) {
		size_t piece_len;
		const char *piece = tokenizer_piece(t, ids[i], true, &piece_len);
		assert_true(piece_len <= len - at);
		assert_memory_equal(piece, text + at, piece_len);
		at += piece_len;
	}
	assert_int_equal(at, len);
}

static void any_bytes_come_back_from_their_tokens(void **state)
{
	struct tiny *tiny = *state;
	char text[64];
	int32_t ids[TOKENIZE_IDS_MAX(sizeof text)];
	struct rng r;
	rng_init(&r, 7);
	for (int round = 0; round < 20000; round++) {
		size_t len = (size_t)rng_below(&r, sizeof text + 1);
		for (size_t i = 0; i < len; i++) {
			uint64_t kind = rng_below(&r, 3), byte = rng_below(&r, 256);
			text[i] = kind == 0 ? (char)byte : kind == 1 ? (char)(0x80 | byte) : "the and in\n 12 <|>"[byte % 18];
		}
		expect_back(tiny->t, text, len, ids, encode(tiny->t, text, len, round & 1, ids, ARRAY_LEN(ids)));
	}
}

static void bytes_that_are_no_utf8_become_their_byte_tokens(void **state)
{
	struct tiny *tiny = *state;
	int32_t ids[32];
	assert_int_equal(encode(tiny->t, "a\xff\0\xc3", 4, false, ids, 32), 4);
	const int32_t want[] = {3 + 'a', 3 + 0xff, 3, 3 + 0xc3};
	assert_memory_equal(ids, want, sizeof want);
}

static void merges_apply_by_rank_not_from_the_left(void **state)
{
	struct tiny *tiny = *state;
	int32_t ids[8];
	// "Ġ t" comes before "h e", and "Ġt he" joins both.
	assert_int_equal(encode(tiny->t, " the", 4, false, ids, 8), 1);
	size_t len;
	const char *piece = tokenizer_piece(tiny->t, ids[0], false, &len);
	assert_int_equal(len, 4);
	assert_memory_equal(piece, " the", 4);
}

static void special_text_is_a_control_token_only_when_asked_for(void **state)
{
	struct tiny *tiny = *state;
	static const char text[] = "a<|im_start|><|im_end|>b<|im_start";
	int32_t ids[64];
	size_t len, n = encode(tiny->t, text, strlen(text), true, ids, 64);
	assert_int_equal(ids[0], 3 + 'a');
	assert_int_equal(ids[1], 1);
	assert_int_equal(ids[2], 2);
	assert_int_equal(ids[3], 3 + 'b');
	expect_back(tiny->t, text, strlen(text), ids, n);
	tokenizer_piece(tiny->t, 1, false, &len);
	assert_int_equal(len, 0);
	n = encode(tiny->t, text, strlen(text), false, ids, 64);
	for (size_t i = 0; i < n; i++)
		assert_false(tokenizer_is_control(tiny->t, ids[i]));
	expect_back(tiny->t, text, strlen(text), ids, n);
}

static void eos_and_named_end_markers_stop_an_answer(void **state)
{
	struct tiny *tiny = *state;
	assert_true(tokenizer_is_stop(tiny->t, 0));  // <|endoftext|>
	assert_true(tokenizer_is_stop(tiny->t, 2));  // <|im_end|>, eos
	assert_false(tokenizer_is_stop(tiny->t, 1)); // <|im_start|>
	assert_false(tokenizer_is_stop(tiny->t, 3 + 'a'));
	assert_int_equal(tokenizer_eos(tiny->t), 2);
	assert_int_equal(tokenizer_bos(tiny->t), 1);
	assert_int_equal(tokenizer_find(tiny->t, "<|im_end|>", 10), 2);
	assert_int_equal(tokenizer_find(tiny->t, "<|im_end|", 9), -1);
}

static void a_full_output_is_a_limit_and_never_overrun(void **state)
{
	struct tiny *tiny = *state;
	int32_t ids[4] = {-7, -7, -7, -7};
	size_t n;
	struct errmsg em;
	assert_int_equal(tokenizer_encode(tiny->t, "xyz", 3, (struct tokenize_options){0}, ids, 2, &n, &em), ERR_LIMIT);
	assert_int_equal(n, 0);
	assert_int_equal(ids[2], -7);
	assert_int_equal(tokenizer_encode(tiny->t, "xyz", 3, (struct tokenize_options){0}, ids, 3, &n, &em), OK);
	assert_int_equal(n, 3);
	assert_int_equal(
		tokenizer_encode(tiny->t, "", (size_t)TOKENIZE_TEXT_MAX + 1, (struct tokenize_options){0}, ids, 3, &n, &em),
		ERR_LIMIT);
}

// One piece of many bytes: n log n, not n * n. A quadratic merge loop needs minutes for this.
static void a_long_piece_takes_little_time(void **state)
{
	struct tiny *tiny = *state;
	size_t len = 1 << 20, cap = TOKENIZE_IDS_MAX(len), n;
	char *text = malloc(len);
	int32_t *ids = malloc(cap * sizeof *ids);
	static const char *const kinds[] = {"a", " ", "in", "\n", "<", "\xff", " \n", "'s", "7", "\xc3\xa9"};
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		size_t unit = strlen(kinds[k]);
		for (size_t i = 0; i < len; i++)
			text[i] = kinds[k][i % unit];
		clock_t start = clock();
		n = encode(tiny->t, text, len, true, ids, cap);
		assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 20);
		expect_back(tiny->t, text, len, ids, n);
	}
	free(ids);
	free(text);
}

// ---- Vocabularies that break the rules

struct odd_vocab {
	const char *model, *pre; // NULL: gpt2, smollm
	const char *extra;       // one more token, its length in extra_len, its type in extra_type
	size_t extra_len;
	int32_t extra_type;
	const char *merge; // one more merge
	const char *key;   // a u32 key
	uint32_t value;
	bool no_merges, no_types, short_types, no_tokens;
};

static const char *byte_text(int b, char out[4])
{
	int n_shifted = 0;
	uint32_t c = 0;
	for (int i = 0; i <= b; i++) {
		bool self = (i > 0x20 && i < 0x7f) || (i > 0xa0 && i != 0xad);
		c = self ? (uint32_t)i : 0x100u + (uint32_t)n_shifted++;
	}
	size_t n = 0;
	if (c >= 0x80)
		out[n++] = (char)(0xc0 | c >> 6);
	out[n++] = (char)(c >= 0x80 ? 0x80 | (c & 0x3f) : c);
	out[n] = '\0';
	return out;
}

// 256 byte tokens, then "ab", then the odd one.
static void build_odd(struct gguf_build *b, const struct odd_vocab *o)
{
	gguf_build_begin(b, 3);
	gguf_build_kv_str(b, "tokenizer.ggml.model", o->model ? o->model : "gpt2");
	gguf_build_kv_str(b, "tokenizer.ggml.pre", o->pre ? o->pre : "smollm");
	uint64_t n = o->no_tokens ? 0 : 257 + (o->extra != NULL);
	gguf_build_key(b, "tokenizer.ggml.tokens", GGUF_ARRAY);
	gguf_build_u32(b, GGUF_STRING);
	gguf_build_u64(b, n);
	for (int i = 0; i < 256 && n > 0; i++) {
		char text[4];
		byte_text(i, text);
		gguf_build_string(b, text, strlen(text));
	}
	if (n > 0)
		gguf_build_string(b, "ab", 2);
	if (n > 257)
		gguf_build_string(b, o->extra, o->extra_len);
	int32_t types[258];
	for (int i = 0; i < 258; i++)
		types[i] = i == 257 ? o->extra_type : 1;
	if (!o->no_types)
		gguf_build_kv_i32s(b, "tokenizer.ggml.token_type", types, (size_t)n - o->short_types);
	const char *merges[] = {"a b", o->merge};
	if (!o->no_merges)
		gguf_build_kv_strs(b, "tokenizer.ggml.merges", merges, o->merge ? 2 : 1);
	if (o->key)
		gguf_build_kv_u32(b, o->key, o->value);
	gguf_build_begin_data(b);
	gguf_build_finish(b);
}

// try_odd opens it and gives what `text` becomes as a string of ids, or the error.
static enum err try_odd(const struct odd_vocab *o, const char *text, char *result, size_t cap)
{
	struct gguf_build b = {0};
	struct gguf g = {0};
	struct tokenizer *t = NULL;
	struct errmsg em = {0};
	build_odd(&b, o);
	assert_int_equal(gguf_parse(b.data, b.len, &g, &em), OK);
	enum err e = tokenizer_open(&g, &t, &em);
	if (e != OK) {
		snprintf(result, cap, "%s", em.text);
	} else {
		int32_t ids[64];
		size_t n = encode(t, text, strlen(text), false, ids, 64), at = 0;
		result[0] = '\0';
		for (size_t i = 0; i < n; i++)
			at += (size_t)snprintf(result + at, cap - at, "%s%d", i > 0 ? " " : "", (int)ids[i]);
	}
	tokenizer_close(t);
	gguf_deinit(&g);
	gguf_build_free(&b);
	return e;
}

static void expect_refused(struct odd_vocab o, enum err want, const char *words)
{
	char result[ERRMSG_CAP];
	assert_int_equal(try_odd(&o, "", result, sizeof result), want);
	if (strstr(result, words) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", result, words);
}

static void expect_taken(struct odd_vocab o, const char *text, const char *ids)
{
	char result[ERRMSG_CAP];
	enum err e = try_odd(&o, text, result, sizeof result);
	if (e != OK)
		fail_msg("refused: %s", result);
	assert_string_equal(result, ids);
}

static void vocabularies_that_break_the_rules_are_refused_by_id(void **state)
{
	(void)state;
	expect_refused((struct odd_vocab){.model = "llama"}, ERR_UNSUPPORTED, "tokenizer \"llama\"");
	expect_refused((struct odd_vocab){.pre = "tekken"}, ERR_UNSUPPORTED, "pre-tokenizer \"tekken\"");
	expect_refused((struct odd_vocab){.pre = "smollm\x1b"}, ERR_UNSUPPORTED, "pre-tokenizer \"smollm?\"");
	expect_refused((struct odd_vocab){.no_tokens = true, .no_types = true}, ERR_FORMAT, "has 0 tokens");
	expect_refused((struct odd_vocab){.no_merges = true}, ERR_NOT_FOUND, "tokenizer.ggml.merges");
	expect_refused((struct odd_vocab){.short_types = true}, ERR_FORMAT, "has 256 values, wanted one for each of 257 tokens");
	expect_refused((struct odd_vocab){.extra = "x\xc3", .extra_len = 2, .extra_type = 1}, ERR_FORMAT,
		"token 257 \"x?\" is not UTF-8");
	expect_refused((struct odd_vocab){.extra = "zz", .extra_len = 2, .extra_type = 7}, ERR_FORMAT, "token 257");
	expect_refused((struct odd_vocab){.extra = "zz", .extra_len = 2, .extra_type = -1}, ERR_FORMAT, "token 257");
	expect_refused((struct odd_vocab){.merge = "abc"}, ERR_FORMAT, "merge 1 \"abc\"");
	expect_refused((struct odd_vocab){.merge = ""}, ERR_FORMAT, "merge 1 \"\"");
	expect_refused((struct odd_vocab){.merge = " "}, ERR_FORMAT, "merge 1 \" \"");
	expect_refused((struct odd_vocab){.merge = "a "}, ERR_FORMAT, "merge 1 \"a \"");
	expect_refused((struct odd_vocab){.merge = "q b"}, ERR_FORMAT, "the result is not in the vocabulary");
	expect_refused((struct odd_vocab){.merge = "qq b"}, ERR_FORMAT, "the left part is not in the vocabulary");
	expect_refused((struct odd_vocab){.merge = "a bb"}, ERR_FORMAT, "the right part is not in the vocabulary");
	expect_refused((struct odd_vocab){.key = "tokenizer.ggml.bos_token_id", .value = 257}, ERR_FORMAT,
		"bos_token_id is 257, wanted a token id from 0 to 256");
	expect_refused((struct odd_vocab){.key = "tokenizer.ggml.eos_token_id", .value = 1u << 31}, ERR_FORMAT, "eos_token_id");
	expect_refused((struct odd_vocab){.key = "tokenizer.ggml.eot_token_id", .value = 999}, ERR_FORMAT, "eot_token_id");
}

static void what_real_files_hold_is_taken(void **state)
{
	(void)state;
	expect_taken((struct odd_vocab){0}, "abq", "256 113");
	expect_taken((struct odd_vocab){.no_types = true}, "ab", "256");
	expect_taken((struct odd_vocab){.extra = "", .extra_len = 0, .extra_type = 1}, "ab", "256"); // a hole in the id space
	expect_taken((struct odd_vocab){.extra = "", .extra_len = 0, .extra_type = 3}, "ab", "256");
	expect_taken(
		(struct odd_vocab){.extra = "ab", .extra_len = 2, .extra_type = 1}, "ab", "257"); // the later of two equal ones
	expect_taken((struct odd_vocab){.merge = "a b"}, "ab", "256");                            // a rule twice
	expect_taken((struct odd_vocab){.extra = "\xe2\x82\xac", .extra_len = 3, .extra_type = 1}, "ab",
		"256"); // no text of the byte alphabet
	expect_taken((struct odd_vocab){.extra = "bab", .extra_len = 3, .extra_type = 4}, "ababab",
		"97 257 256"); // user-defined: always found
	expect_taken((struct odd_vocab){.extra = "bab", .extra_len = 3, .extra_type = 3}, "babab",
		"98 256 256"); // control: only when asked
	expect_taken((struct odd_vocab){.key = "tokenizer.ggml.bos_token_id", .value = UINT32_MAX}, "ab", "256"); // "none"
	expect_taken((struct odd_vocab){.pre = "gpt-2"}, "12", "49 50");
}

static void every_piece_of_the_byte_alphabet_is_its_byte(void **state)
{
	(void)state;
	struct gguf_build b = {0};
	struct gguf g;
	struct tokenizer *t;
	struct odd_vocab o = {0};
	build_odd(&b, &o);
	assert_int_equal(gguf_parse(b.data, b.len, &g, NULL), OK);
	assert_int_equal(tokenizer_open(&g, &t, NULL), OK);
	for (int32_t i = 0; i < 256; i++) {
		size_t len;
		const char *piece = tokenizer_piece(t, i, false, &len);
		assert_int_equal(len, 1);
		assert_int_equal((uint8_t)piece[0], i);
	}
	size_t len = 1;
	assert_string_equal(tokenizer_piece(t, 257, true, &len), "");
	assert_int_equal(len, 0);
	tokenizer_piece(t, -1, true, &len);
	assert_int_equal(len, 0);
	tokenizer_close(t);
	gguf_deinit(&g);
	gguf_build_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(smollm2_gives_the_ids_of_llama_cpp),
		cmocka_unit_test(other_vocabularies_give_the_ids_of_llama_cpp_where_the_oracle_is_set_up),
		cmocka_unit_test_setup_teardown(any_bytes_come_back_from_their_tokens, open_tiny, close_tiny),
		cmocka_unit_test_setup_teardown(bytes_that_are_no_utf8_become_their_byte_tokens, open_tiny, close_tiny),
		cmocka_unit_test_setup_teardown(merges_apply_by_rank_not_from_the_left, open_tiny, close_tiny),
		cmocka_unit_test_setup_teardown(special_text_is_a_control_token_only_when_asked_for, open_tiny, close_tiny),
		cmocka_unit_test_setup_teardown(eos_and_named_end_markers_stop_an_answer, open_tiny, close_tiny),
		cmocka_unit_test_setup_teardown(a_full_output_is_a_limit_and_never_overrun, open_tiny, close_tiny),
		cmocka_unit_test_setup_teardown(a_long_piece_takes_little_time, open_tiny, close_tiny),
		cmocka_unit_test(vocabularies_that_break_the_rules_are_refused_by_id),
		cmocka_unit_test(what_real_files_hold_is_taken),
		cmocka_unit_test(every_piece_of_the_byte_alphabet_is_its_byte),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
