// Values of a container's keys: types, strings, arrays, the alignment, on both sides of each limit.
#include "model/gguf.h"

#include "base/bytes.h"
#include "base/limits.h"
#include "tests/support/gguf_check.h"
#include "tests/support/gguf_exercise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void value_types_end_at_12(void **state)
{
	(void)state;
	static const uint32_t wrong[] = {13, 255, 1u << 31, UINT32_MAX};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct gguf_build b = gguf_check_begin();
		gguf_build_key(&b, "k", wrong[i]);
		gguf_build_u64(&b, 0);
		gguf_check_end(&b);
		gguf_check_refuse(&b, ERR_FORMAT, "byte 33: value type of key \"k\" is");
		b = gguf_check_begin();
		gguf_build_key(&b, "k", GGUF_ARRAY);
		gguf_build_u32(&b, wrong[i]);
		gguf_build_u64(&b, 0);
		gguf_check_end(&b);
		gguf_check_refuse(&b, ERR_FORMAT, "byte 37: array element type of key \"k\" is");
	}
	for (uint32_t type = GGUF_U8; type <= GGUF_F64; type++) { // eight zero bytes are one value of each, and an empty string or array
		if (type == GGUF_ARRAY)
			continue;
		static const int bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
		struct gguf_build b = gguf_check_begin();
		gguf_build_key(&b, "k", type);
		gguf_build_bytes(&b, "\0\0\0\0\0\0\0", (size_t)bytes[type]);
		gguf_build_kv_u32(&b, "behind", 1);
		gguf_check_end(&b);
		gguf_check_accept(&b);
		b = gguf_check_begin();
		gguf_build_key(&b, "k", GGUF_ARRAY);
		gguf_build_u32(&b, type);
		gguf_build_u64(&b, 3);
		for (int i = 0; i < 3; i++)
			gguf_build_bytes(&b, "\0\0\0\0\0\0\0", (size_t)bytes[type]);
		gguf_build_kv_u32(&b, "behind", 1);
		gguf_check_end(&b);
		gguf_check_accept(&b);
	}
}

static void strings_end_inside_the_file(void **state)
{
	(void)state;
	static const uint64_t wrong[] = {UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63, 100};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct gguf_build b = gguf_check_begin();
		gguf_build_key(&b, "k", GGUF_STRING);
		gguf_build_u64(&b, wrong[i]);
		gguf_build_bytes(&b, "x", 1);
		gguf_build_finish(&b);
		gguf_check_refuse(&b, ERR_FORMAT, "byte 37: string is");
	}
}

static void a_string_has_at_most_64_mib(void **state)
{
	(void)state;
	struct gguf_build b = gguf_check_begin();
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
	struct gguf_build b = gguf_check_begin();
	gguf_build_key(&b, "k", GGUF_BOOL);
	gguf_build_bytes(&b, "\2", 1);
	gguf_check_end(&b);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 37: bool of key \"k\" is 2, wanted 0 or 1");
}

static struct gguf_build with_array(uint32_t type, uint64_t n)
{
	struct gguf_build b = gguf_check_begin();
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
	gguf_check_refuse(&b, ERR_FORMAT, "byte 41: array \"k\" has 2305843009213693952 elements of u64, the file has 16 bytes left: it is cut short or wrong");
	b = with_array(GGUF_U64, 3);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 41: array \"k\" has 3 elements");
	b = with_array(GGUF_U64, 2);
	gguf_check_accept(&b);
	b = with_array(GGUF_U8, UINT64_MAX);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 41");
	b = with_array(GGUF_STRING, 2);
	gguf_check_accept(&b);
	b = with_array(GGUF_STRING, 3);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 41");
	b = with_array(GGUF_STRING, UINT64_MAX / 8 + 1);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 41");
}

static void an_array_has_at_most_16_mi_elements(void **state)
{
	(void)state;
	struct gguf_build b = gguf_check_begin();
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
		struct gguf_build b = gguf_check_begin();
		gguf_build_key(&b, "k", GGUF_ARRAY);
		for (int i = 0; i < depth; i++) {
			gguf_build_u32(&b, GGUF_ARRAY);
			gguf_build_u64(&b, 1);
		}
		gguf_build_u32(&b, GGUF_U8);
		gguf_build_u64(&b, 0);
		gguf_check_end(&b);
		gguf_check_refuse(&b, ERR_UNSUPPORTED, "byte 37: key \"k\" is an array of arrays");
	}
}

static void alignment_is_a_power_of_two_in_bounds(void **state)
{
	(void)state;
	static const uint32_t wrong[] = {0, 1, 4, 13, 24, 33, GGUF_ALIGNMENT_MAX * 2, 1u << 31, UINT32_MAX};
	static const uint32_t right[] = {8, 16, 32, 64, 4096, GGUF_ALIGNMENT_MAX};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct gguf_build b = gguf_check_begin();
		gguf_build_kv_u32(&b, "general.alignment", wrong[i]);
		gguf_build_tensor(&b, "t", DTYPE_F32, 1, 1);
		gguf_check_end(&b);
		gguf_check_refuse(&b, ERR_FORMAT, "byte 53: general.alignment is ");
	}
	for (size_t i = 0; i < ARRAY_LEN(right); i++) {
		struct gguf_build b = gguf_check_begin();
		b.alignment = right[i];
		gguf_build_kv_u32(&b, "general.alignment", right[i]);
		gguf_build_tensor(&b, "t", DTYPE_F32, 1, 1);
		gguf_build_tensor(&b, "u", DTYPE_F32, 1, 1);
		gguf_check_end(&b);
		struct gguf g;
		struct errmsg em;
		assert_int_equal(gguf_parse(b.data, b.len, &g, &em), OK);
		assert_int_equal(g.data_offset % right[i], 0);
		assert_int_equal(g.tensors[1].offset, right[i]);
		gguf_deinit(&g);
		gguf_check_accept(&b);
	}
	struct gguf_build b = gguf_check_begin();
	gguf_build_kv_bool(&b, "general.alignment", true);
	gguf_check_end(&b);
	gguf_check_refuse(&b, ERR_FORMAT, "general.alignment has type bool, wanted u32");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(value_types_end_at_12),
		cmocka_unit_test(strings_end_inside_the_file),
		cmocka_unit_test(a_string_has_at_most_64_mib),
		cmocka_unit_test(a_bool_is_0_or_1),
		cmocka_unit_test(arrays_are_bounded_by_what_is_left),
		cmocka_unit_test(an_array_has_at_most_16_mi_elements),
		cmocka_unit_test(arrays_of_arrays_are_refused_at_any_depth),
		cmocka_unit_test(alignment_is_a_power_of_two_in_bounds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
