// The container section of the list of hostile inputs: both sides of each limit, and sweeps over every byte, field and bit.
#include "model/gguf.h"

#include "base/bytes.h"
#include "base/limits.h"
#include "tests/support/gguf_build.h"
#include "tests/support/gguf_exercise.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

// exact copies to memory that ends where the file ends, so that a sanitizer sees one byte too many.
static uint8_t *exact(const struct gguf_build *b, size_t len)
{
	uint8_t *p = malloc(len > 0 ? len : 1);
	assert_non_null(p);
	if (len > 0)
		memcpy(p, b->data, len);
	return p;
}

// refuse parses b, frees it, and wants error `want` with `word` in its message.
static void refuse(struct gguf_build *b, enum err want, const char *word)
{
	struct errmsg em = {""};
	uint8_t *p = exact(b, b->len);
	enum err e = gguf_exercise(p, b->len, &em);
	if (e != want || strstr(em.text, word) == NULL)
		fail_msg("error %d \"%s\", wanted %d with \"%s\"", (int)e, em.text, (int)want, word);
	free(p);
	gguf_build_free(b);
}

static void accept(struct gguf_build *b)
{
	struct errmsg em = {""};
	uint8_t *p = exact(b, b->len);
	if (gguf_exercise(p, b->len, &em) != OK)
		fail_msg("refused: %s", em.text);
	free(p);
	gguf_build_free(b);
}

static void end(struct gguf_build *b)
{
	gguf_build_begin_data(b);
	gguf_build_zeros(b);
	gguf_build_finish(b);
}

static struct gguf_build begin(void)
{
	struct gguf_build b;
	gguf_build_begin(&b, 3);
	return b;
}

static void both_versions_give_back_what_was_written(void **state)
{
	(void)state;
	static const char *const words[] = {"one", "", "three"};
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
		end(&b);

		struct gguf g;
		struct errmsg em;
		assert_int_equal(gguf_parse(b.data, b.len, &g, &em), OK);
		assert_int_equal(g.version, version);
		assert_int_equal(g.alignment, 32);
		assert_int_equal(g.n_kv, 6);
		assert_int_equal(g.n_tensors, 2);
		assert_int_equal(g.data_offset, b.data_at);
		assert_int_equal(g.file_bytes, b.len);

		uint64_t u;
		double d;
		bool flag;
		struct gguf_str s;
		assert_int_equal(gguf_get_u64(&g, "a.u32", &u, &em), OK);
		assert_int_equal(u, 4000000000u);
		assert_int_equal(gguf_get_f64(&g, "a.f32", &d, &em), OK);
		assert_true(d == 1.5);
		assert_int_equal(gguf_get_bool(&g, "a.bool", &flag, &em), OK);
		assert_true(flag);
		assert_int_equal(gguf_get_str(&g, "a.str", &s, &em), OK);
		assert_int_equal(s.len, 5);
		assert_memory_equal(s.data, "hello", 5);

		struct gguf_strings it;
		assert_int_equal(gguf_strings_init(&g, "a.strs", &it, &em), OK);
		for (int i = 0; i < 3; i++) {
			assert_true(gguf_strings_next(&it, &s));
			assert_int_equal(s.len, strlen(words[i]));
			assert_memory_equal(s.data, words[i], s.len);
		}
		assert_false(gguf_strings_next(&it, &s));

		const struct gguf_kv *kv = gguf_find(&g, "a.i32s");
		assert_non_null(kv);
		assert_true(gguf_elem_u64(kv, 0, &u));
		assert_int_equal(u, 5);
		assert_false(gguf_elem_u64(kv, 1, &u)); // negative
		assert_false(gguf_elem_u64(kv, 3, &u)); // past the end
		assert_false(gguf_elem_f64(kv, 0, &d));

		const struct gguf_tensor *t = gguf_find_tensor(&g, "t.one");
		assert_non_null(t);
		assert_int_equal(t->bytes, 3 * 2 * 18);
		assert_int_equal(t->dims[0], 64);
		assert_int_equal(t->dims[1], 3);
		assert_int_equal(t->dims[2], 1);
		assert_ptr_equal(t->data, b.data + b.data_at);
		t = gguf_find_tensor(&g, "t.two");
		assert_non_null(t);
		assert_int_equal(t->bytes, 20);
		assert_ptr_equal(t->data, b.data + b.data_at + 128);
		assert_null(gguf_find_tensor(&g, "t.three"));
		assert_null(gguf_find(&g, "a."));
		assert_null(gguf_find(&g, ""));
		gguf_deinit(&g);
		gguf_deinit(&g);
		gguf_build_free(&b);
	}
}

static void typed_reads_say_what_is_wrong(void **state)
{
	(void)state;
	struct gguf_build b = begin();
	gguf_build_kv_f32(&b, "f", 1.0f);
	gguf_build_kv_u32(&b, "u", 1);
	gguf_build_kv_i32s(&b, "list", (const int32_t[]){1}, 1);
	gguf_build_key(&b, "minus", GGUF_I64);
	gguf_build_u64(&b, (uint64_t)-1);
	end(&b);
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
		end(&b);
		refuse(&b, ERR_UNSUPPORTED, cases[i].word);
	}
	struct gguf_build b = begin();
	end(&b);
	accept(&b); // no key, no tensor
}

static void counts_are_bounded_by_what_is_left(void **state)
{
	(void)state;
	static const uint64_t counts[] = {UINT64_MAX, 1000000000, (uint64_t)1 << 62, (uint64_t)1 << 63, 2};
	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		struct gguf_build b = begin();
		gguf_build_kv_u32(&b, "k", 1);
		gguf_build_tensor(&b, "t", DTYPE_F32, 1, 1);
		end(&b);
		store_u64(b.data + 8, counts[i]);
		refuse(&b, ERR_FORMAT, counts[i] == 2 ? "tensor 2 of 2: byte" : "byte 8: tensor count is");
		b = begin();
		gguf_build_kv_u32(&b, "k", 1);
		end(&b);
		store_u64(b.data + 16, counts[i]);
		refuse(&b, ERR_FORMAT, counts[i] == 2 ? "byte" : "byte 16: key count is");
	}
}

static void counts_have_a_constant_limit_too(void **state)
{
	(void)state;
	struct gguf_build b = begin();
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
	struct gguf_build b = begin();
	gguf_build_kv_u32(&b, "key", 1);
	end(&b);
	store_u64(b.data + 24, len);
	return b;
}

static void keys_have_1_to_65535_bytes(void **state)
{
	(void)state;
	struct gguf_build b = with_key_len(UINT64_MAX);
	refuse(&b, ERR_FORMAT, "byte 24: key is 18446744073709551615 bytes long, the file has 32 left");
	b = with_key_len((uint64_t)1 << 40);
	refuse(&b, ERR_FORMAT, "byte 24: key is 1099511627776 bytes long");
	b = with_key_len(0);
	refuse(&b, ERR_FORMAT, "byte 24: key is empty");
	for (size_t len = GGUF_KEY_MAX; len <= GGUF_KEY_MAX + 1; len++) {
		char *key = malloc(len + 1);
		assert_non_null(key);
		memset(key, 'k', len);
		key[len] = '\0';
		b = begin();
		gguf_build_kv_u32(&b, key, 1);
		end(&b);
		free(key);
		if (len == GGUF_KEY_MAX)
			accept(&b);
		else
			refuse(&b, ERR_LIMIT, "byte 24: key is 65536 bytes long, at most 65535 are read");
	}
}

static void a_key_is_there_once(void **state)
{
	(void)state;
	struct gguf_build b = begin();
	gguf_build_kv_u32(&b, "same", 1);
	gguf_build_kv_u32(&b, "other", 1);
	gguf_build_kv_str(&b, "same", "x");
	end(&b);
	refuse(&b, ERR_FORMAT, "key \"same\" is there twice, wanted once (key 1 and key 3)");
	b = begin();
	gguf_build_kv_u32(&b, "same", 1);
	gguf_build_kv_u32(&b, "sam", 1);
	gguf_build_kv_u32(&b, "Same", 1);
	end(&b);
	accept(&b);
	b = begin();
	gguf_build_kv_u32(&b, "k?x", 1);
	end(&b);
	b.data[33] = '\0';
	refuse(&b, ERR_FORMAT, "byte 24: key \"k?x\" contains a NUL byte");
}

static void value_types_end_at_12(void **state)
{
	(void)state;
	static const uint32_t wrong[] = {13, 255, 1u << 31, UINT32_MAX};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct gguf_build b = begin();
		gguf_build_key(&b, "k", wrong[i]);
		gguf_build_u64(&b, 0);
		end(&b);
		refuse(&b, ERR_FORMAT, "byte 33: value type of key \"k\" is");
		b = begin();
		gguf_build_key(&b, "k", GGUF_ARRAY);
		gguf_build_u32(&b, wrong[i]);
		gguf_build_u64(&b, 0);
		end(&b);
		refuse(&b, ERR_FORMAT, "byte 37: array element type of key \"k\" is");
	}
	for (uint32_t type = GGUF_U8; type <= GGUF_F64; type++) { // eight zero bytes are one value of each, and an empty string or array
		if (type == GGUF_ARRAY)
			continue;
		static const int bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
		struct gguf_build b = begin();
		gguf_build_key(&b, "k", type);
		gguf_build_bytes(&b, "\0\0\0\0\0\0\0", (size_t)bytes[type]);
		gguf_build_kv_u32(&b, "behind", 1);
		end(&b);
		accept(&b);
		b = begin();
		gguf_build_key(&b, "k", GGUF_ARRAY);
		gguf_build_u32(&b, type);
		gguf_build_u64(&b, 3);
		for (int i = 0; i < 3; i++)
			gguf_build_bytes(&b, "\0\0\0\0\0\0\0", (size_t)bytes[type]);
		gguf_build_kv_u32(&b, "behind", 1);
		end(&b);
		accept(&b);
	}
}

static void strings_end_inside_the_file(void **state)
{
	(void)state;
	static const uint64_t wrong[] = {UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63, 100};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct gguf_build b = begin();
		gguf_build_key(&b, "k", GGUF_STRING);
		gguf_build_u64(&b, wrong[i]);
		gguf_build_bytes(&b, "x", 1);
		gguf_build_finish(&b);
		refuse(&b, ERR_FORMAT, "byte 37: string is");
	}
}

static void a_string_has_at_most_64_mib(void **state)
{
	(void)state;
	struct gguf_build b = begin();
	gguf_build_key(&b, "k", GGUF_STRING);
	gguf_build_u64(&b, GGUF_STRING_MAX);
	void *zeros = calloc(1, GGUF_STRING_MAX + 1);
	assert_non_null(zeros);
	gguf_build_bytes(&b, zeros, GGUF_STRING_MAX + 1);
	free(zeros);
	gguf_build_finish(&b);
	struct errmsg em;
	assert_int_equal(gguf_exercise(b.data, b.len, &em), OK);
	store_u64(b.data + 37, GGUF_STRING_MAX + 1);
	assert_int_equal(gguf_exercise(b.data, b.len, &em), ERR_LIMIT);
	gguf_build_free(&b);
}

static void a_bool_is_0_or_1(void **state)
{
	(void)state;
	struct gguf_build b = begin();
	gguf_build_key(&b, "k", GGUF_BOOL);
	gguf_build_bytes(&b, "\2", 1);
	end(&b);
	refuse(&b, ERR_FORMAT, "byte 37: bool of key \"k\" is 2, wanted 0 or 1");
}

static struct gguf_build with_array(uint32_t type, uint64_t n)
{
	struct gguf_build b = begin();
	gguf_build_key(&b, "k", GGUF_ARRAY);
	gguf_build_u32(&b, type);
	gguf_build_u64(&b, n);
	gguf_build_bytes(&b, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
	gguf_build_finish(&b);
	return b;
}

static void arrays_are_bounded_by_what_is_left(void **state)
{
	(void)state;
	struct gguf_build b = with_array(GGUF_U64, (uint64_t)1 << 61);
	refuse(&b, ERR_FORMAT, "byte 41: array \"k\" has 2305843009213693952 elements of u64, the file has 16 bytes left");
	b = with_array(GGUF_U64, 3);
	refuse(&b, ERR_FORMAT, "byte 41: array \"k\" has 3 elements");
	b = with_array(GGUF_U64, 2);
	accept(&b);
	b = with_array(GGUF_U8, UINT64_MAX);
	refuse(&b, ERR_FORMAT, "byte 41");
	b = with_array(GGUF_STRING, 2);
	accept(&b);
	b = with_array(GGUF_STRING, 3);
	refuse(&b, ERR_FORMAT, "byte 41");
	b = with_array(GGUF_STRING, UINT64_MAX / 8 + 1);
	refuse(&b, ERR_FORMAT, "byte 41");
}

static void an_array_has_at_most_16_mi_elements(void **state)
{
	(void)state;
	struct gguf_build b = begin();
	gguf_build_key(&b, "k", GGUF_ARRAY);
	gguf_build_u32(&b, GGUF_U8);
	gguf_build_u64(&b, GGUF_ELEMS_MAX);
	void *zeros = calloc(1, GGUF_ELEMS_MAX + 1);
	assert_non_null(zeros);
	gguf_build_bytes(&b, zeros, GGUF_ELEMS_MAX + 1);
	free(zeros);
	gguf_build_finish(&b);
	struct errmsg em;
	assert_int_equal(gguf_exercise(b.data, b.len, &em), OK);
	store_u64(b.data + 41, GGUF_ELEMS_MAX + 1);
	assert_int_equal(gguf_exercise(b.data, b.len, &em), ERR_LIMIT);
	gguf_build_free(&b);
}

static void arrays_of_arrays_are_refused_at_any_depth(void **state)
{
	(void)state;
	for (int depth = 1; depth <= 10000; depth *= 10) {
		struct gguf_build b = begin();
		gguf_build_key(&b, "k", GGUF_ARRAY);
		for (int i = 0; i < depth; i++) {
			gguf_build_u32(&b, GGUF_ARRAY);
			gguf_build_u64(&b, 1);
		}
		gguf_build_u32(&b, GGUF_U8);
		gguf_build_u64(&b, 0);
		end(&b);
		refuse(&b, ERR_UNSUPPORTED, "byte 37: key \"k\" is an array of arrays");
	}
}

static void alignment_is_a_power_of_two_in_bounds(void **state)
{
	(void)state;
	static const uint32_t wrong[] = {0, 1, 4, 13, 24, 33, GGUF_ALIGNMENT_MAX * 2, 1u << 31, UINT32_MAX};
	static const uint32_t right[] = {8, 16, 32, 64, 4096, GGUF_ALIGNMENT_MAX};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct gguf_build b = begin();
		gguf_build_kv_u32(&b, "general.alignment", wrong[i]);
		gguf_build_tensor(&b, "t", DTYPE_F32, 1, 1);
		end(&b);
		refuse(&b, ERR_FORMAT, "byte 53: general.alignment is ");
	}
	for (size_t i = 0; i < ARRAY_LEN(right); i++) {
		struct gguf_build b = begin();
		b.alignment = right[i];
		gguf_build_kv_u32(&b, "general.alignment", right[i]);
		gguf_build_tensor(&b, "t", DTYPE_F32, 1, 1);
		gguf_build_tensor(&b, "u", DTYPE_F32, 1, 1);
		end(&b);
		struct gguf g;
		struct errmsg em;
		assert_int_equal(gguf_parse(b.data, b.len, &g, &em), OK);
		assert_int_equal(g.data_offset % right[i], 0);
		assert_int_equal(g.tensors[1].offset, right[i]);
		gguf_deinit(&g);
		accept(&b);
	}
	struct gguf_build b = begin();
	gguf_build_kv_bool(&b, "general.alignment", true);
	end(&b);
	refuse(&b, ERR_FORMAT, "general.alignment has type bool, wanted u32");
}

static struct gguf_build with_tensor(const char *name, size_t name_len, uint32_t n_dims, const uint64_t dims[8], uint32_t type, uint64_t offset,
	size_t data_bytes)
{
	struct gguf_build b = begin();
	gguf_build_tensor_raw(&b, name, name_len, n_dims, dims, type, offset);
	gguf_build_begin_data(&b);
	b.next_offset = data_bytes;
	gguf_build_zeros(&b);
	gguf_build_finish(&b);
	return b;
}

static void tensor_names_have_1_to_63_bytes_and_no_nul(void **state)
{
	(void)state;
	static const uint64_t dims[8] = {1};
	char name[65];
	memset(name, 'n', sizeof name);
	struct gguf_build b = with_tensor(name, 63, 1, dims, DTYPE_F32, 0, 4);
	accept(&b);
	b = with_tensor(name, 64, 1, dims, DTYPE_F32, 0, 4);
	refuse(&b, ERR_LIMIT, "tensor 1 of 1: byte 24: tensor name is 64 bytes long, at most 63 are read");
	b = with_tensor(name, 0, 1, dims, DTYPE_F32, 0, 4);
	refuse(&b, ERR_FORMAT, "byte 24: tensor name is empty");
	b = begin();
	gguf_build_tensor_raw(&b, "a\0x", 3, 1, dims, DTYPE_F32, 0);
	gguf_build_tensor_raw(&b, "a\0y", 3, 1, dims, DTYPE_F32, 32);
	b.next_offset = 64;
	end(&b);
	refuse(&b, ERR_FORMAT, "byte 24: tensor name \"a?x\" contains a NUL byte");
	b = begin();
	gguf_build_tensor(&b, "twin", DTYPE_F32, 1, 1);
	gguf_build_tensor(&b, "twin", DTYPE_F32, 2, 1);
	end(&b);
	refuse(&b, ERR_FORMAT, "tensor \"twin\" is there twice, wanted once (tensor 1 and tensor 2)");
	b = with_tensor("bad\033[2J\xff", 8, 1, dims, 4, 0, 4);
	refuse(&b, ERR_UNSUPPORTED, "tensor \"bad?[2J?\"");
}

static void tensors_have_1_to_4_dimensions(void **state)
{
	(void)state;
	static const uint64_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
	for (uint32_t n = 1; n <= 4; n++) {
		struct gguf_build b = with_tensor("t", 1, n, ones, DTYPE_F32, 0, 4);
		accept(&b);
	}
	static const uint32_t wrong[] = {0, 5, 1u << 31, UINT32_MAX};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct gguf_build b = with_tensor("t", 1, wrong[i], ones, DTYPE_F32, 0, 4);
		refuse(&b, ERR_FORMAT, "byte 33: tensor \"t\" has ");
	}
}

static void dimensions_are_positive_and_their_product_fits(void **state)
{
	(void)state;
	const uint64_t big = (uint64_t)1 << 32;
	static const struct {
		uint64_t dims[8];
		uint32_t type;
		const char *word;
	} cases[] = {
		{{UINT64_MAX, 1}, DTYPE_F32, "byte 37: dimension 0 of tensor \"t\" is -1, wanted at least 1"},
		{{1, UINT64_MAX}, DTYPE_I8, "byte 45: dimension 1 of tensor \"t\" is -1"},
		{{0, 1}, DTYPE_F32, "byte 37: dimension 0 of tensor \"t\" is 0"},
		{{1, 0}, DTYPE_F32, "byte 45: dimension 1 of tensor \"t\" is 0"},
		{{(uint64_t)1 << 63, 1}, DTYPE_I8, "byte 37: dimension 0"},
		{{big, big}, DTYPE_F32, "has more elements or bytes than 64 bits count"},
		{{big, big}, DTYPE_Q4_0, "has more elements or bytes than 64 bits count"},
		{{(uint64_t)1 << 31, (uint64_t)1 << 31}, DTYPE_F32, "has more elements or bytes than 64 bits count"}, // 2^62 elements, 2^64 bytes
		{{INT64_MAX, 2}, DTYPE_F64, "has more elements or bytes than 64 bits count"},
		{{INT64_MAX, 1}, DTYPE_I8, "the file is cut short or wrong"},
		{{big, 1u << 31}, DTYPE_I8, "the file is cut short or wrong"},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct gguf_build b = with_tensor("t", 1, 2, cases[i].dims, cases[i].type, 0, 64);
		refuse(&b, ERR_FORMAT, cases[i].word);
	}
}

static void known_types_pass_holes_and_newer_ones_do_not(void **state)
{
	(void)state;
	static const uint32_t holes[] = {4, 5, 31, 32, 33, 36, 37, 38};
	size_t n_known = 0;
	for (uint32_t id = 0; id <= DTYPE_ID_MAX; id++) {
		const struct dtype_info *info = dtype_find(id);
		if (info == NULL)
			continue;
		n_known++;
		const uint64_t dims[8] = {info->block_len, 2};
		struct gguf_build b = with_tensor("t", 1, 2, dims, id, 0, 2 * (size_t)info->block_bytes);
		accept(&b);
		b = with_tensor("t", 1, 2, dims, id, 0, 2 * (size_t)info->block_bytes - 1);
		refuse(&b, ERR_FORMAT, "the file is cut short or wrong");
		if (info->block_len > 1) {
			const uint64_t uneven[8] = {info->block_len + 1, 2};
			b = with_tensor("t", 1, 2, uneven, id, 0, 4 * (size_t)info->block_bytes);
			refuse(&b, ERR_FORMAT, "wants a multiple of");
		}
	}
	assert_int_equal(n_known, DTYPE_ID_MAX + 1 - ARRAY_LEN(holes));
	static const uint64_t dims[8] = {256};
	for (size_t i = 0; i < ARRAY_LEN(holes); i++) {
		struct gguf_build b = with_tensor("t", 1, 1, dims, holes[i], 0, 4096);
		refuse(&b, ERR_UNSUPPORTED, "byte 45: tensor \"t\" has the removed type ");
	}
	static const uint32_t newer[] = {43, 1u << 31, UINT32_MAX};
	for (size_t i = 0; i < ARRAY_LEN(newer); i++) {
		struct gguf_build b = with_tensor("t", 1, 1, dims, newer[i], 0, 4096);
		refuse(&b, ERR_UNSUPPORTED, "which is newer than this program (it knows 0 to 42)");
	}
}

static void a_q4_0_row_of_33_is_refused(void **state)
{
	(void)state;
	static const uint64_t dims[8] = {33};
	struct gguf_build b = with_tensor("t", 1, 1, dims, DTYPE_Q4_0, 0, 64);
	refuse(&b, ERR_FORMAT, "byte 24: tensor \"t\" has rows of 33 elements, q4_0 wants a multiple of 32");
}

static void offsets_are_aligned_and_inside(void **state)
{
	(void)state;
	static const uint64_t dims[8] = {8};
	struct gguf_build b = with_tensor("t", 1, 1, dims, DTYPE_F32, 1, 64);
	refuse(&b, ERR_FORMAT, "byte 49: offset of tensor \"t\" is 1, wanted a multiple of 32");
	b = with_tensor("t", 1, 1, dims, DTYPE_F32, UINT64_MAX, 64);
	refuse(&b, ERR_FORMAT, "byte 49: offset of tensor \"t\" is 18446744073709551615");
	b = with_tensor("t", 1, 1, dims, DTYPE_F32, UINT64_MAX - 31, 64); // aligned, and end wraps to 0
	refuse(&b, ERR_FORMAT, "the file is cut short or wrong");
	b = with_tensor("t", 1, 1, dims, DTYPE_F32, 32, 64);
	accept(&b); // a gap before it
	b = with_tensor("t", 1, 1, dims, DTYPE_F32, 64, 64);
	refuse(&b, ERR_FORMAT, "the file is cut short or wrong");
	b = with_tensor("t", 1, 1, dims, DTYPE_F32, 32, 63);
	refuse(&b, ERR_FORMAT, "tensor \"t\" has 32 bytes at data offset 32, the data section (from byte 64) has 63");
	b = with_tensor("t", 1, 1, dims, DTYPE_F32, 0, 1000);
	accept(&b); // bytes behind the last tensor
}

static struct gguf_build with_two(uint64_t first, uint64_t second)
{
	static const uint64_t dims[8] = {16}; // 64 bytes
	struct gguf_build b = begin();
	gguf_build_tensor_raw(&b, "a", 1, 1, dims, DTYPE_F32, first);
	gguf_build_tensor_raw(&b, "b", 1, 1, dims, DTYPE_F32, second);
	b.next_offset = 256;
	end(&b);
	return b;
}

static void tensors_may_lie_in_any_order_but_not_overlap(void **state)
{
	(void)state;
	struct gguf_build b = with_two(0, 64);
	accept(&b);
	b = with_two(64, 0);
	accept(&b);
	b = with_two(0, 96);
	accept(&b);
	b = with_two(0, 32);
	refuse(&b, ERR_FORMAT, "tensor \"b\" (data offset 32) overlaps \"a\" (offset 0 to 64)");
	b = with_two(32, 0);
	refuse(&b, ERR_FORMAT, "tensor \"a\" (data offset 32) overlaps \"b\" (offset 0 to 64)");
	b = with_two(0, 0);
	refuse(&b, ERR_FORMAT, "overlaps");
}

static void a_header_alone_can_be_parsed(void **state)
{
	(void)state;
	struct gguf_build b = with_two(0, 64);
	struct gguf g;
	struct errmsg em;
	assert_int_equal(gguf_parse_header(b.data, b.data_at, b.len, &g, &em), OK);
	assert_null(g.tensors[0].data);
	assert_int_equal(g.tensors[1].bytes, 64);
	assert_int_equal(g.data_offset, b.data_at);
	gguf_deinit(&g);
	assert_int_equal(gguf_parse_header(b.data, b.data_at, b.data_at + 127, &g, &em), ERR_FORMAT);
	gguf_build_free(&b);
}

struct cost {
	double seconds;
	size_t heap_bytes; // while the parsed struct lives
};

static struct cost measure(const struct gguf_build *b)
{
	struct gguf g;
	struct errmsg em = {""};
	struct timespec from, to;
	struct mallinfo2 before = mallinfo2();
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from); // whatever else the machine does
	if (gguf_parse(b->data, b->len, &g, &em) != OK)
		fail_msg("refused: %s", em.text);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
	struct mallinfo2 after = mallinfo2();
	gguf_deinit(&g);
	return (struct cost){
		.seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec),
		.heap_bytes = (after.uordblks + after.hblkhd) - (before.uordblks + before.hblkhd),
	};
}

static void check_cost(const char *what, const struct gguf_build *b)
{
	struct cost c = measure(b);
	size_t header = b->data_at;
	print_message("%s: header %zu bytes, %.3f s, heap %zu bytes (%.2f x header)\n", what, header, c.seconds, c.heap_bytes,
		(double)c.heap_bytes / (double)header);
	assert_true(c.seconds < 1.0);
	if (!SANITIZED) { // a sanitizer's malloc answers no questions
		assert_true(c.heap_bytes > 0);
		assert_true(c.heap_bytes < 6 * header + 1024 * 1024);
	}
}

static void two_hundred_thousand_keys_take_less_than_a_second(void **state)
{
	(void)state;
	struct gguf_build b = begin();
	for (int i = 0; i < 200000; i++) {
		char key[16];
		snprintf(key, sizeof key, "k%05x", i);
		gguf_build_key(&b, key, GGUF_U8);
		gguf_build_bytes(&b, "\1", 1);
	}
	end(&b);
	assert_in_range(b.len, 3700000, 3900000);
	check_cost("200,000 keys", &b);
	gguf_build_free(&b);
}

// The smallest records just above a power of two: the most heap per byte of header.
static void the_smallest_records_stay_within_the_heap_bound(void **state)
{
	(void)state;
	struct gguf_build b = begin();
	for (unsigned i = 0; i < 255; i++) {
		char key[2] = {(char)(i + 1), '\0'};
		gguf_build_key(&b, key, GGUF_U8);
		gguf_build_bytes(&b, "\1", 1);
	}
	end(&b);
	check_cost("255 keys of 14 bytes", &b);
	gguf_build_free(&b);
	b = begin();
	for (int i = 0; i < 87382; i++) { // 3/2 of it passes 2^17
		char key[16];
		snprintf(key, sizeof key, "%04x", i);
		gguf_build_key(&b, key, GGUF_U8);
		gguf_build_bytes(&b, "\1", 1);
	}
	end(&b);
	check_cost("87,382 keys of 17 bytes", &b);
	gguf_build_free(&b);
	b = begin();
	for (int i = 0; i < 100000; i++) {
		char name[16];
		snprintf(name, sizeof name, "%05x", 99999 - i);
		static const uint64_t dims[8] = {1};
		gguf_build_tensor_raw(&b, name, 5, 1, dims, DTYPE_I8, (uint64_t)(99999 - i) * 32); // backwards: they must be sorted
	}
	b.next_offset = 3200000;
	end(&b);
	check_cost("100,000 tensors", &b);
	gguf_build_free(&b);
}

static void a_million_empty_strings_take_no_memory(void **state)
{
	(void)state;
	struct gguf_build b = begin();
	gguf_build_key(&b, "k", GGUF_ARRAY);
	gguf_build_u32(&b, GGUF_STRING);
	gguf_build_u64(&b, 1000000);
	void *zeros = calloc(1000000, 8);
	assert_non_null(zeros);
	gguf_build_bytes(&b, zeros, 8000000);
	free(zeros);
	end(&b);
	check_cost("an array of 1,000,000 empty strings", &b);
	if (!SANITIZED)
		assert_true(measure(&b).heap_bytes < 4096);
	gguf_build_free(&b);
}

static struct gguf_build tiny(void)
{
	struct tiny_llama t = tiny_llama_default(1);
	t.n_layers = 1;
	t.hidden_dim = 32;
	t.ffn_dim = 32;
	t.n_heads = 2;
	t.n_kv_heads = 1;
	struct gguf_build b;
	gguf_build_tiny_llama(&b, &t);
	return b;
}

static void a_file_cut_at_any_byte_of_its_header_is_refused(void **state)
{
	(void)state;
	struct gguf_build b = tiny();
	for (size_t len = 0; len < b.data_at; len++) {
		struct errmsg em;
		uint8_t *p = exact(&b, len);
		enum err e = gguf_exercise(p, len, &em);
		free(p);
		if (e != ERR_FORMAT)
			fail_msg("cut at %zu of %zu: error %d (%s)", len, b.data_at, (int)e, em.text);
	}
	// And in the data, at every byte of the last block.
	for (size_t len = b.len - 40; len < b.len - 32; len++) {
		struct errmsg em;
		uint8_t *p = exact(&b, len);
		assert_int_equal(gguf_exercise(p, len, &em), ERR_FORMAT);
		free(p);
	}
	gguf_build_free(&b);
}

static void every_field_survives_every_hostile_value(void **state)
{
	(void)state;
	struct gguf_build b = tiny();
	uint8_t *p = exact(&b, b.len);
	size_t n_refused = 0, n_accepted = 0;
	for (size_t f = 0; f < b.n_fields; f++) {
		uint8_t *at = p + b.fields[f].at;
		bool is_u64 = b.fields[f].bytes == 8;
		uint64_t was = is_u64 ? load_u64(at) : load_u32(at);
		const uint64_t values[] = {0, 1, UINT64_MAX, UINT32_MAX, (uint64_t)1 << 31, (uint64_t)1 << 32, (uint64_t)1 << 63, was - 1, was + 1};
		for (size_t i = 0; i < ARRAY_LEN(values); i++) {
			struct errmsg em;
			if (is_u64)
				store_u64(at, values[i]);
			else
				store_u32(at, (uint32_t)values[i]);
			if (gguf_exercise(p, b.len, &em) == OK)
				n_accepted++;
			else
				n_refused++;
		}
		if (is_u64)
			store_u64(at, was);
		else
			store_u32(at, (uint32_t)was);
	}
	assert_memory_equal(p, b.data, b.len);
	print_message("%zu fields: %zu files refused, %zu accepted\n", b.n_fields, n_refused, n_accepted);
	assert_true(n_refused > 3 * b.n_fields); // the lengths alone
	assert_true(n_accepted > 0);
	free(p);
	gguf_build_free(&b);
}

static void every_flipped_bit_of_the_header_is_survived(void **state)
{
	(void)state;
	struct gguf_build b = tiny();
	uint8_t *p = exact(&b, b.len);
	size_t n_refused = 0;
	for (size_t i = 0; i < b.data_at; i++)
		for (int bit = 0; bit < 8; bit++) {
			struct errmsg em;
			p[i] ^= (uint8_t)(1 << bit);
			n_refused += gguf_exercise(p, b.len, &em) != OK;
			p[i] ^= (uint8_t)(1 << bit);
		}
	assert_memory_equal(p, b.data, b.len);
	print_message("%zu bits: %zu files refused\n", 8 * b.data_at, n_refused);
	assert_true(n_refused > b.data_at);
	free(p);
	gguf_build_free(&b);
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
		cmocka_unit_test(value_types_end_at_12),
		cmocka_unit_test(strings_end_inside_the_file),
		cmocka_unit_test(a_string_has_at_most_64_mib),
		cmocka_unit_test(a_bool_is_0_or_1),
		cmocka_unit_test(arrays_are_bounded_by_what_is_left),
		cmocka_unit_test(an_array_has_at_most_16_mi_elements),
		cmocka_unit_test(arrays_of_arrays_are_refused_at_any_depth),
		cmocka_unit_test(alignment_is_a_power_of_two_in_bounds),
		cmocka_unit_test(tensor_names_have_1_to_63_bytes_and_no_nul),
		cmocka_unit_test(tensors_have_1_to_4_dimensions),
		cmocka_unit_test(dimensions_are_positive_and_their_product_fits),
		cmocka_unit_test(known_types_pass_holes_and_newer_ones_do_not),
		cmocka_unit_test(a_q4_0_row_of_33_is_refused),
		cmocka_unit_test(offsets_are_aligned_and_inside),
		cmocka_unit_test(tensors_may_lie_in_any_order_but_not_overlap),
		cmocka_unit_test(a_header_alone_can_be_parsed),
		cmocka_unit_test(two_hundred_thousand_keys_take_less_than_a_second),
		cmocka_unit_test(the_smallest_records_stay_within_the_heap_bound),
		cmocka_unit_test(a_million_empty_strings_take_no_memory),
		cmocka_unit_test(a_file_cut_at_any_byte_of_its_header_is_refused),
		cmocka_unit_test(every_field_survives_every_hostile_value),
		cmocka_unit_test(every_flipped_bit_of_the_header_is_survived),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
