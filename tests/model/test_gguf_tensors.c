// A container's tensors: names, dimensions, types, and where their data may lie.
#include "model/gguf.h"

#include "tests/support/gguf_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct gguf_build with_tensor(const char *name, size_t name_len, uint32_t n_dims, const uint64_t dims[8], uint32_t type, uint64_t offset,
	size_t data_bytes)
{
	struct gguf_build b = gguf_check_begin();
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
	gguf_check_accept(&b);
	b = with_tensor(name, 64, 1, dims, DTYPE_F32, 0, 4);
	gguf_check_refuse(&b, ERR_LIMIT, "tensor 1 of 1: byte 24: tensor name is 64 bytes long, at most 63 are read");
	b = with_tensor(name, 0, 1, dims, DTYPE_F32, 0, 4);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 24: tensor name is empty");
	b = gguf_check_begin();
	gguf_build_tensor_raw(&b, "a\0x", 3, 1, dims, DTYPE_F32, 0);
	gguf_build_tensor_raw(&b, "a\0y", 3, 1, dims, DTYPE_F32, 32);
	b.next_offset = 64;
	gguf_check_end(&b);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 24: tensor name \"a?x\" contains a NUL byte");
	b = gguf_check_begin();
	gguf_build_tensor(&b, "twin", DTYPE_F32, 1, 1);
	gguf_build_tensor(&b, "twin", DTYPE_F32, 2, 1);
	gguf_check_end(&b);
	gguf_check_refuse(&b, ERR_FORMAT, "tensor \"twin\" is there twice, wanted once (tensor 1 and tensor 2)");
	b = with_tensor("bad\033[2J\xff", 8, 1, dims, 4, 0, 4);
	gguf_check_refuse(&b, ERR_UNSUPPORTED, "tensor \"bad?[2J?\"");
}

static void tensors_have_1_to_4_dimensions(void **state)
{
	(void)state;
	static const uint64_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
	for (uint32_t n = 1; n <= 4; n++) {
		struct gguf_build b = with_tensor("t", 1, n, ones, DTYPE_F32, 0, 4);
		gguf_check_accept(&b);
	}
	static const uint32_t wrong[] = {0, 5, 1u << 31, UINT32_MAX};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct gguf_build b = with_tensor("t", 1, wrong[i], ones, DTYPE_F32, 0, 4);
		gguf_check_refuse(&b, ERR_FORMAT, "byte 33: tensor \"t\" has ");
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
		gguf_check_refuse(&b, ERR_FORMAT, cases[i].word);
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
		gguf_check_accept(&b);
		b = with_tensor("t", 1, 2, dims, id, 0, 2 * (size_t)info->block_bytes - 1);
		gguf_check_refuse(&b, ERR_FORMAT, "the file is cut short or wrong");
		if (info->block_len > 1) {
			const uint64_t uneven[8] = {info->block_len + 1, 2};
			b = with_tensor("t", 1, 2, uneven, id, 0, 4 * (size_t)info->block_bytes);
			gguf_check_refuse(&b, ERR_FORMAT, "wants a multiple of");
		}
	}
	assert_int_equal(n_known, DTYPE_ID_MAX + 1 - ARRAY_LEN(holes));
	static const uint64_t dims[8] = {256};
	for (size_t i = 0; i < ARRAY_LEN(holes); i++) {
		struct gguf_build b = with_tensor("t", 1, 1, dims, holes[i], 0, 4096);
		gguf_check_refuse(&b, ERR_UNSUPPORTED, "byte 45: tensor \"t\" has the removed type ");
	}
	static const uint32_t newer[] = {43, 1u << 31, UINT32_MAX};
	for (size_t i = 0; i < ARRAY_LEN(newer); i++) {
		struct gguf_build b = with_tensor("t", 1, 1, dims, newer[i], 0, 4096);
		gguf_check_refuse(&b, ERR_UNSUPPORTED, "which is newer than this program (it knows 0 to 42)");
	}
}

static void a_q4_0_row_of_33_is_refused(void **state)
{
	(void)state;
	static const uint64_t dims[8] = {33};
	struct gguf_build b = with_tensor("t", 1, 1, dims, DTYPE_Q4_0, 0, 64);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 24: tensor \"t\" has rows of 33 elements, q4_0 wants a multiple of 32");
}

static void offsets_are_aligned_and_inside(void **state)
{
	(void)state;
	static const uint64_t dims[8] = {8};
	struct gguf_build b = with_tensor("t", 1, 1, dims, DTYPE_F32, 1, 64);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 49: offset of tensor \"t\" is 1, wanted a multiple of 32");
	b = with_tensor("t", 1, 1, dims, DTYPE_F32, UINT64_MAX, 64);
	gguf_check_refuse(&b, ERR_FORMAT, "byte 49: offset of tensor \"t\" is 18446744073709551615");
	b = with_tensor("t", 1, 1, dims, DTYPE_F32, UINT64_MAX - 31, 64); // aligned, and end wraps to 0
	gguf_check_refuse(&b, ERR_FORMAT, "the file is cut short or wrong");
	b = with_tensor("t", 1, 1, dims, DTYPE_F32, 32, 64);
	gguf_check_accept(&b); // a gap before it
	b = with_tensor("t", 1, 1, dims, DTYPE_F32, 64, 64);
	gguf_check_refuse(&b, ERR_FORMAT, "the file is cut short or wrong");
	b = with_tensor("t", 1, 1, dims, DTYPE_F32, 32, 63);
	gguf_check_refuse(&b, ERR_FORMAT, "tensor \"t\" has 32 bytes at data offset 32, the data section (from byte 64) has 63");
	b = with_tensor("t", 1, 1, dims, DTYPE_F32, 0, 1000);
	gguf_check_accept(&b); // bytes behind the last tensor
}

static struct gguf_build with_two(uint64_t first, uint64_t second)
{
	static const uint64_t dims[8] = {16}; // 64 bytes
	struct gguf_build b = gguf_check_begin();
	gguf_build_tensor_raw(&b, "a", 1, 1, dims, DTYPE_F32, first);
	gguf_build_tensor_raw(&b, "b", 1, 1, dims, DTYPE_F32, second);
	b.next_offset = 256;
	gguf_check_end(&b);
	return b;
}

static void tensors_may_lie_in_any_order_but_not_overlap(void **state)
{
	(void)state;
	struct gguf_build b = with_two(0, 64);
	gguf_check_accept(&b);
	b = with_two(64, 0);
	gguf_check_accept(&b);
	b = with_two(0, 96);
	gguf_check_accept(&b);
	b = with_two(0, 32);
	gguf_check_refuse(&b, ERR_FORMAT, "tensor \"b\" (data offset 32) overlaps \"a\" (offset 0 to 64)");
	b = with_two(32, 0);
	gguf_check_refuse(&b, ERR_FORMAT, "tensor \"a\" (data offset 32) overlaps \"b\" (offset 0 to 64)");
	b = with_two(0, 0);
	gguf_check_refuse(&b, ERR_FORMAT, "overlaps");
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensor_names_have_1_to_63_bytes_and_no_nul),
		cmocka_unit_test(tensors_have_1_to_4_dimensions),
		cmocka_unit_test(dimensions_are_positive_and_their_product_fits),
		cmocka_unit_test(known_types_pass_holes_and_newer_ones_do_not),
		cmocka_unit_test(a_q4_0_row_of_33_is_refused),
		cmocka_unit_test(offsets_are_aligned_and_inside),
		cmocka_unit_test(tensors_may_lie_in_any_order_but_not_overlap),
		cmocka_unit_test(a_header_alone_can_be_parsed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
