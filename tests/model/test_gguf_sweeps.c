// Sweeps over a container's header: cut at every byte, every field set to every hostile value, every bit flipped; and what the largest
// headers cost.
#include "model/gguf.h"

#include "base/bytes.h"
#include "tests/support/gguf_check.h"
#include "tests/support/gguf_exercise.h"
#include "tests/support/instrumented.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

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
	if (!IS_INSTRUMENTED) { // a sanitizer's malloc answers no questions
		assert_true(c.heap_bytes > 0);
		assert_true(c.heap_bytes < 6 * header + 1024 * 1024);
	}
}

static void two_hundred_thousand_keys_take_less_than_a_second(void **state)
{
	(void)state;
	struct gguf_build b = gguf_check_begin();
	for (int i = 0; i < 200000; i++) {
		char key[16];
		snprintf(key, sizeof key, "k%05x", i);
		gguf_build_key(&b, key, GGUF_U8);
		gguf_build_bytes(&b, "\1", 1);
	}
	gguf_check_end(&b);
	assert_in_range(b.len, 3700000, 3900000);
	check_cost("200,000 keys", &b);
	gguf_build_free(&b);
}

// The smallest records just above a power of two: the most heap per byte of header.
static void the_smallest_records_stay_within_the_heap_bound(void **state)
{
	(void)state;
	struct gguf_build b = gguf_check_begin();
	for (unsigned i = 0; i < 255; i++) {
		char key[2] = {(char)(i + 1), '\0'};
		gguf_build_key(&b, key, GGUF_U8);
		gguf_build_bytes(&b, "\1", 1);
	}
	gguf_check_end(&b);
	check_cost("255 keys of 14 bytes", &b);
	gguf_build_free(&b);
	b = gguf_check_begin();
	for (int i = 0; i < 87382; i++) { // 3/2 of it passes 2^17
		char key[16];
		snprintf(key, sizeof key, "%04x", i);
		gguf_build_key(&b, key, GGUF_U8);
		gguf_build_bytes(&b, "\1", 1);
	}
	gguf_check_end(&b);
	check_cost("87,382 keys of 17 bytes", &b);
	gguf_build_free(&b);
	b = gguf_check_begin();
	for (int i = 0; i < 100000; i++) {
		char name[16];
		snprintf(name, sizeof name, "%05x", 99999 - i);
		static const uint64_t dims[8] = {1};
		gguf_build_tensor_raw(&b, name, 5, 1, dims, DTYPE_I8, (uint64_t)(99999 - i) * 32); // backwards: they must be sorted
	}
	b.next_offset = 3200000;
	gguf_check_end(&b);
	check_cost("100,000 tensors", &b);
	gguf_build_free(&b);
}

static void a_million_empty_strings_take_no_memory(void **state)
{
	(void)state;
	struct gguf_build b = gguf_check_begin();
	gguf_build_key(&b, "k", GGUF_ARRAY);
	gguf_build_u32(&b, GGUF_STRING);
	gguf_build_u64(&b, 1000000);
	void *zeros = calloc(1000000, 8);
	assert_non_null(zeros);
	gguf_build_bytes(&b, zeros, 8000000);
	free(zeros);
	gguf_check_end(&b);
	check_cost("an array of 1,000,000 empty strings", &b);
	if (!IS_INSTRUMENTED)
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
		uint8_t *p = gguf_check_copy(&b, len);
		enum err e = gguf_exercise(p, len, &em);
		free(p);
		if (e != ERR_FORMAT)
			fail_msg("cut at %zu of %zu: error %d (%s)", len, b.data_at, (int)e, em.text);
	}
	// And in the data, at every byte of the last block.
	for (size_t len = b.len - 40; len < b.len - 32; len++) {
		struct errmsg em;
		uint8_t *p = gguf_check_copy(&b, len);
		assert_int_equal(gguf_exercise(p, len, &em), ERR_FORMAT);
		free(p);
	}
	gguf_build_free(&b);
}

static void every_field_survives_every_hostile_value(void **state)
{
	(void)state;
	struct gguf_build b = tiny();
	uint8_t *p = gguf_check_copy(&b, b.len);
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
	uint8_t *p = gguf_check_copy(&b, b.len);
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
		cmocka_unit_test(two_hundred_thousand_keys_take_less_than_a_second),
		cmocka_unit_test(the_smallest_records_stay_within_the_heap_bound),
		cmocka_unit_test(a_million_empty_strings_take_no_memory),
		cmocka_unit_test(a_file_cut_at_any_byte_of_its_header_is_refused),
		cmocka_unit_test(every_field_survives_every_hostile_value),
		cmocka_unit_test(every_flipped_bit_of_the_header_is_survived),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
