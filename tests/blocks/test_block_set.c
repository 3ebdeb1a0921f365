#include "blocks/block_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_MAX 1000

struct pair {
	uint64_t words[2][(N_MAX + 63) / 64];
	struct block_set a, b;
	uint8_t bytes[N_MAX];
};

static void make(struct pair *p, uint32_t n)
{
	block_set_init(&p->a, p->words[0], n);
	block_set_init(&p->b, p->words[1], n);
}

static bool same(const struct block_set *a, const struct block_set *b)
{
	for (uint32_t i = 0; i < a->n; i++)
		if (block_set_has(a, i) != block_set_has(b, i))
			return false;
	return a->n == b->n;
}

static size_t travels(struct pair *p)
{
	size_t len = block_set_encode(&p->a, p->bytes);
	assert_true(len <= block_set_encoded_max(p->a.n));
	assert_int_equal(block_set_decode(p->bytes, len, &p->b), OK);
	assert_true(same(&p->a, &p->b));
	return len;
}

static void a_range_holds_its_blocks_and_no_other(void **state)
{
	(void)state;
	struct pair p;
	static const uint32_t ranges[][2] = {{0, 0}, {0, 1}, {0, 64}, {63, 65}, {1, 200}, {64, 192}, {70, 300}, {0, 300}, {299, 300}};
	for (size_t k = 0; k < sizeof ranges / sizeof ranges[0]; k++) {
		make(&p, 300);
		block_set_add_range(&p.a, ranges[k][0], ranges[k][1]);
		for (uint32_t i = 0; i < 300; i++)
			assert_int_equal(block_set_has(&p.a, i), i >= ranges[k][0] && i < ranges[k][1]);
		assert_int_equal(block_set_count(&p.a), ranges[k][1] - ranges[k][0]);
		travels(&p);
	}
}

static void next_finds_each_block_once_and_then_the_end(void **state)
{
	(void)state;
	struct pair p;
	make(&p, 200);
	static const uint32_t in[] = {0, 5, 63, 64, 127, 199};
	for (size_t i = 0; i < 6; i++)
		block_set_add(&p.a, in[i]);
	uint32_t at = 0;
	for (size_t i = 0; i < 6; i++) {
		at = block_set_next(&p.a, at);
		assert_int_equal(at++, in[i]);
	}
	assert_int_equal(block_set_next(&p.a, at), 200);
	block_set_remove(&p.a, 199);
	assert_int_equal(block_set_next(&p.a, 128), 200);
	assert_int_equal(block_set_next(&p.a, 200), 200);
}

static void whole_layers_travel_in_a_few_bytes(void **state)
{
	(void)state;
	uint32_t n = 160000;
	uint64_t *words = calloc(2 * block_set_words(n), sizeof *words);
	uint8_t *bytes = malloc(block_set_encoded_max(n));
	struct block_set a, b;
	block_set_init(&a, words, n);
	block_set_init(&b, words + block_set_words(n), n);
	block_set_add_range(&a, 0, 20);
	block_set_add_range(&a, 40000, 80000);
	size_t len = block_set_encode(&a, bytes);
	assert_in_range(len, 1, 16);
	assert_int_equal(block_set_decode(bytes, len, &b), OK);
	assert_int_equal(block_set_count(&b), 40020);
	assert_int_equal(block_set_common(&a, &b), 40020);
	free(bytes);
	free(words);
}

static void any_set_of_any_size_comes_back(void **state)
{
	(void)state;
	struct pair p;
	uint32_t x = 1;
	for (uint32_t n = 0; n < 300; n++) {
		make(&p, n);
		for (uint32_t i = 0; i < n; i++) {
			x = x * 1664525 + 1013904223;
			if (x >> 28 < n % 17)
				block_set_add(&p.a, i);
		}
		travels(&p);
	}
	make(&p, N_MAX);
	for (uint32_t i = 0; i < N_MAX; i += 2)
		block_set_add(&p.a, i);
	assert_int_equal(travels(&p), 1 + N_MAX / 8); // as bits: runs of one would take more
}

static void what_breaks_a_rule_is_refused_and_leaves_nothing(void **state)
{
	(void)state;
	struct pair p;
	static const struct {
		size_t len;
		uint8_t bytes[16];
	} bad[] = {
		{0, {0}},
		{1, {2}},
		{2, {0, 5}},                                     // a run of what is not there, at the end
		{3, {0, 10, 1}},                                 // past the end
		{2, {0, 11}},
		{3, {0, 0, 11}},
		{4, {0, 3, 0, 2}},                               // an empty run
		{4, {0, 1, 1, 0}},
		{3, {0, 0x80, 0x80}},                            // cut
		{4, {0, 0x81, 0x00, 1}},                         // 1 in two bytes
		{7, {0, 0xff, 0xff, 0xff, 0xff, 0x7f, 1}},       // beyond 32 bits
		{8, {0, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 1}},
		{2, {1, 0}},                                     // bits: too short
		{4, {1, 0, 0, 0}},
		{3, {1, 0, 4}},                                  // a bit past the end
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		make(&p, 10);
		block_set_add(&p.b, 1);
		assert_int_equal(block_set_decode(bad[i].bytes, bad[i].len, &p.b), ERR_FORMAT);
		assert_int_equal(block_set_count(&p.b), 0);
	}
	make(&p, 10);
	assert_int_equal(block_set_decode((const uint8_t[]){0, 0, 10}, 3, &p.b), OK);
	assert_int_equal(block_set_count(&p.b), 10);
	assert_int_equal(block_set_decode((const uint8_t[]){1, 0xff, 3}, 3, &p.b), OK);
	assert_int_equal(block_set_count(&p.b), 10);
	assert_int_equal(block_set_decode((const uint8_t[]){0}, 1, &p.b), OK);
	assert_int_equal(block_set_count(&p.b), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_range_holds_its_blocks_and_no_other),
		cmocka_unit_test(next_finds_each_block_once_and_then_the_end),
		cmocka_unit_test(whole_layers_travel_in_a_few_bytes),
		cmocka_unit_test(any_set_of_any_size_comes_back),
		cmocka_unit_test(what_breaks_a_rule_is_refused_and_leaves_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
