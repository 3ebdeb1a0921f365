// The container's head: what it gives back, versions, counts and keys, on both sides of each limit (hostile inputs: GGUF container).
#include "model/gguf.h"

#include "base/bytes.h"
#include "base/limits.h"
#include "tests/support/gguf_check.h"
#include "tests/support/gguf_exercise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const words[] = {"one", "", "three"};

static void check_scalars(const struct gguf *g)
{
	uint64_t u;
	double d;
	bool flag;
	struct gguf_str s;
	struct errmsg em;
	assert_int_equal(gguf_get_u64(g, "a.u32", &u, &em), OK);
	assert_int_equal(u, 4000000000u);
	assert_int_equal(gguf_get_f64(g, "a.f32", &d, &em), OK);
	assert_true(d == 1.5);
	assert_int_equal(gguf_get_bool(g, "a.bool", &flag, &em), OK);
	assert_true(flag);
	assert_int_equal(gguf_get_str(g, "a.str", &s, &em), OK);
	assert_int_equal(s.len, 5);
	assert_memory_equal(s.data, "hello", 5);
	assert_null(gguf_find(g, "a."));
	assert_null(gguf_find(g, ""));
}

static void check_arrays(const struct gguf *g)
{
	uint64_t u;
	double d;
	struct gguf_str s;
	struct gguf_strings it;
	struct errmsg em;
	assert_int_equal(gguf_strings_init(g, "a.strs", &it, &em), OK);
	for (int i = 0; i < 3; i++) {
		assert_true(gguf_strings_next(&it, &s));
		assert_int_equal(s.len, strlen(words[i]));
		assert_memory_equal(s.data, words[i], s.len);
	}
	assert_false(gguf_strings_next(&it, &s));
	const struct gguf_kv *kv = gguf_find(g, "a.i32s");
	assert_non_null(kv);
	assert_true(gguf_elem_u64(kv, 0, &u));
	assert_int_equal(u, 5);
	assert_false(gguf_elem_u64(kv, 1, &u)); // negative
	assert_false(gguf_elem_u64(kv, 3, &u)); // past the end
	assert_false(gguf_elem_f64(kv, 0, &d));
}

static void check_tensors(const struct gguf *g, const uint8_t *data)
{
	const struct gguf_tensor *t = gguf_find_tensor(g, "t.one");
	assert_non_null(t);
	assert_int_equal(t->bytes, 3 * 2 * 18);
	assert_int_equal(t->dims[0], 64);
	assert_int_equal(t->dims[1], 3);
	assert_int_equal(t->dims[2], 1);
	assert_ptr_equal(t->data, data);
	t = gguf_find_tensor(g, "t.two");
	assert_non_null(t);
	assert_int_equal(t->bytes, 20);
	assert_ptr_equal(t->data, data + 128);
	assert_null(gguf_find_tensor(g, "t.three"));
}

static void both_versions_give_back_what_was_written(void **state)
{
	(void)state;
	static const int32_t numbers[] = {5, -6, 7};
	for (uint32_t version = 2; version <= 3; version++) {
		struct gguf_build b;
		gguf_build_begin(&b, version);
		gguf_build_kv_u32(&b, "a.u32", 4000000000u);
		gguf_build_kv_f32(&b, "a.f32", 1.5f);
		gguf_build_kv_bool(&b, "a.bool", true);
		gguf_build_kv_str(&b, "a.str", "hello");
		gguf_build_kv_strs(&b, "a.strs", words, 3);
		gguf_build_kv_i32s(&b, "a.i32s", numbers, 3);
		gguf_build_tensor(&b, "t.one", DTYPE_Q4_0, 64, 3);
		gguf_build_tensor(&b, "t.two", DTYPE_F32, 5, 1);
		gguf_check_end(&b);

		struct gguf g;
		struct errmsg em;
		assert_int_equal(gguf_parse(b.data, b.len, &g, &em), OK);
		assert_int_equal(g.version, version);
		assert_int_equal(g.alignment, 32);
		assert_int_equal(g.n_kv, 6);
		assert_int_equal(g.n_tensors, 2);
		assert_int_equal(g.data_offset, b.data_at);
		assert_int_equal(g.file_bytes, b.len);
		check_scalars(&g);
		check_arrays(&g);
		check_tensors(&g, b.data + b.data_at);
		gguf_deinit(&g);
		gguf_deinit(&g);
		gguf_build_free(&b);
	}
}

static void typed_reads_say_what_is_wrong(void **state)
{
	(void)state;
	struct gguf_build b = gguf_check_begin();
	gguf_build_kv_f32(&b, "f", 1.0f);
	gguf_build_kv_u32(&b, "u", 1);
	gguf_build_kv_i32s(&b, "list", (const int32_t[]){1}, 1);
	gguf_build_key(&b, "minus", GGUF_I64);
	gguf_build_u64(&b, (uint64_t)-1);
	gguf_check_end(&b);
	struct gguf g;
	struct errmsg em;
	assert_int_equal(gguf_parse(b.data, b.len, &g, &em), OK);
	uint64_t u;
	double d;
	bool flag;
	struct gguf_str s;
	struct gguf_strings it;
	assert_int_equal(gguf_get_u64(&g, "missing", &u, &em), ERR_NOT_FOUND);
	assert_string_equal(em.text, "key missing is missing, wanted an integer");
	assert_int_equal(gguf_get_u64(&g, "f", &u, &em), ERR_FORMAT);
	assert_string_equal(em.text, "key f has type f32, wanted an integer of 0 or more");
	assert_int_equal(gguf_get_u64(&g, "minus", &u, &em), ERR_FORMAT);
	assert_string_equal(em.text, "key minus has type i64 and is negative, wanted an integer of 0 or more");
	assert_int_equal(gguf_get_u64(&g, "list", &u, &em), ERR_FORMAT);
	assert_string_equal(em.text, "key list is an array, wanted an integer");
	assert_int_equal(gguf_get_f64(&g, "u", &d, &em), ERR_FORMAT);
	assert_string_equal(em.text, "key u has type u32, wanted f32 or f64");
	assert_int_equal(gguf_get_bool(&g, "u", &flag, &em), ERR_FORMAT);
	assert_int_equal(gguf_get_str(&g, "u", &s, &em), ERR_FORMAT);
	assert_int_equal(gguf_strings_init(&g, "u", &it, &em), ERR_FORMAT);
	assert_int_equal(gguf_strings_init(&g, "list", &it, &em), ERR_FORMAT);
	assert_string_equal(em.text, "key list is an array of i32, wanted an array of strings");
	gguf_deinit(&g);
	gguf_build_free(&b);
}

static void an_empty_file_and_a_cut_magic_are_refused(void **state)
{
	(void)state;
	struct gguf g;
	struct errmsg em;
	assert_int_equal(gguf_parse(NULL, 0, &g, &em), ERR_FORMAT);
	assert_string_equal(em.text, "not a GGUF file: byte 0: magic wants 4 bytes, the file has 0 left");
	assert_int_equal(gguf_parse("GGU", 3, &g, &em), ERR_FORMAT);
	assert_int_equal(gguf_parse("GGML1234", 8, &g, &em), ERR_FORMAT);
	assert_non_null(strstr(em.text, "byte 0: magic is 47 47 4d 4c, wanted 47 47 55 46"));
	assert_int_equal(gguf_parse("GGU", 3, &g, NULL), ERR_FORMAT);
}

static void only_versions_two_and_three_are_read(void **state)
{
	(void)state;
	static const struct {
		uint32_t version;
		const char *word;
	} cases[] = {
		{0, "byte 4: version is 0, wanted 2 or 3"}, {1, "version is 1"}, {4, "version is 4"}, {UINT32_MAX, "version is 4294967295"},
		{3u << 24, "version is 50331648 (a big-endian file), wanted 2 or 3"},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct gguf_build b;
		gguf_build_begin(&b, cases[i].version);
		gguf_check_end(&b);
		gguf_check_refuse(&b, ERR_UNSUPPORTED, cases[i].word);
	}
	struct gguf_build b = gguf_check_begin();
	gguf_check_end(&b);
	gguf_check_accept(&b); // no key, no tensor
}

static void counts_are_bounded_by_what_is_left(void **state)
{
	(void)state;
	static const uint64_t counts[] = {UINT64_MAX, 1000000000, (uint64_t)1 << 62, (uint64_t)1 << 63, 2};
	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		struct gguf_build b = gguf_check_begin();
		gguf_build_kv_u32(&b, "k", 1);
		gguf_build_tensor(&b, "t", DTYPE_F32, 1, 1);
		gguf_check_end(&b);
		store_u64(b.data + 8, counts[i]);
		gguf_check_refuse(&b, ERR_FORMAT, counts[i] == 2 ? "tensor 2 of 2: byte" : "byte 8: tensor count is");
		b = gguf_check_begin();
		gguf_build_kv_u32(&b, "k", 1);
		gguf_check_end(&b);
		store_u64(b.data + 16, counts[i]);
		gguf_check_refuse(&b, ERR_FORMAT, counts[i] == 2 ? "byte" : "byte 16: key count is");
	}
}

static void counts_have_a_constant_limit_too(void **state)
{
	(void)state;
	struct gguf_build b = gguf_check_begin();
	void *zeros = calloc(1, 40 * 1024 * 1024);
	assert_non_null(zeros);
	gguf_build_bytes(&b, zeros, 40 * 1024 * 1024);
	free(zeros);
	store_u64(b.data + 8, GGUF_TENSORS_MAX + 1);
	struct errmsg em;
	assert_int_equal(gguf_exercise(b.data, b.len, &em), ERR_LIMIT);
	assert_string_equal(em.text, "byte 8: tensor count is 1048577, at most 1048576 are read");
	store_u64(b.data + 8, 0);
	store_u64(b.data + 16, GGUF_KVS_MAX + 1);
	assert_int_equal(gguf_exercise(b.data, b.len, &em), ERR_LIMIT);
	store_u64(b.data + 16, GGUF_KVS_MAX); // passes the count, and stops at the first key: it is empty
	assert_int_equal(gguf_exercise(b.data, b.len, &em), ERR_FORMAT);
	assert_string_equal(em.text, "key 1 of 1048576: byte 24: key is empty, wanted 1 to 65535 bytes");
	gguf_build_free(&b);
}

static struct gguf_build with_key_len(uint64_t len)
{
	struct gguf_build b = gguf_check_begin();
	gguf_build_kv_u32(&b, "key", 1);
	gguf_check_end(&b);
	store_u64(b.data + 24, len);
	return b;
}

static void keys_have_1_to_65535_bytes(void **state)
{
	(void)state;
	struct gguf_build b = with_key_len(UINT64_MAX);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 24: key is 18446744073709551615 bytes long, the file has 32 left");
	b = with_key_len((uint64_t)1 << 40);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 24: key is 1099511627776 bytes long");
	b = with_key_len(0);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 24: key is empty");
	for (size_t len = GGUF_KEY_MAX; len <= GGUF_KEY_MAX + 1; len++) {
		char *key = malloc(len + 1);
		assert_non_null(key);
		memset(key, 'k', len);
		key[len] = '\0';
		b = gguf_check_begin();
		gguf_build_kv_u32(&b, key, 1);
		gguf_check_end(&b);
		free(key);
		if (len == GGUF_KEY_MAX)
			gguf_check_accept(&b);
		else
			gguf_check_refuse(&b, ERR_LIMIT, "byte 24: key is 65536 bytes long, at most 65535 are read");
	}
}

static void a_key_is_there_once(void **state)
{
	(void)state;
	struct gguf_build b = gguf_check_begin();
	gguf_build_kv_u32(&b, "same", 1);
	gguf_build_kv_u32(&b, "other", 1);
	gguf_build_kv_str(&b, "same", "x");
	gguf_check_end(&b);
	gguf_check_refuse(&b, ERR_FORMAT, "key \"same\" is there twice, wanted once (key 1 and key 3)");
	b = gguf_check_begin();
	gguf_build_kv_u32(&b, "same", 1);
	gguf_build_kv_u32(&b, "sam", 1);
	gguf_build_kv_u32(&b, "Same", 1);
	gguf_check_end(&b);
	gguf_check_accept(&b);
	b = gguf_check_begin();
	gguf_build_kv_u32(&b, "k?x", 1);
	gguf_check_end(&b);
	b.data[33] = '\0';
	gguf_check_refuse(&b, ERR_FORMAT, "byte 24: key \"k?x\" contains a NUL byte");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_versions_give_back_what_was_written),
		cmocka_unit_test(typed_reads_say_what_is_wrong),
		cmocka_unit_test(an_empty_file_and_a_cut_magic_are_refused),
		cmocka_unit_test(only_versions_two_and_three_are_read),
		cmocka_unit_test(counts_are_bounded_by_what_is_left),
		cmocka_unit_test(counts_have_a_constant_limit_too),
		cmocka_unit_test(keys_have_1_to_65535_bytes),
		cmocka_unit_test(a_key_is_there_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
