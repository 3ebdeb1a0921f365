#include "base/rng.h"
#include "base/utf8.h"
#include "model/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT_CAP 64

// decode_in_pieces pushes text in pieces of lengths drawn from r (1 at a time when NULL), each output whole characters, and finishes.
static size_t decode_in_pieces(const char *text, size_t len, struct rng *r, char *out)
{
	struct stream_decoder d = {0};
	size_t n = 0, part;
	for (size_t i = 0; i < len; i += part) {
		part = r ? (size_t)rng_below(r, 6) : 1; // 0 too: a control token says nothing
		if (part > len - i)
			part = len - i;
		char now[STREAM_DECODER_OUT(8)];
		size_t n_now = stream_decoder_push(&d, text + i, part, now);
		assert_true(n_now <= STREAM_DECODER_OUT(part));
		assert_true(utf8_valid(now, n_now));
		memcpy(out + n, now, n_now);
		n += n_now;
	}
	size_t n_last = stream_decoder_finish(&d, out + n);
	assert_true(utf8_valid(out + n, n_last));
	return n + n_last;
}

static void expect(const char *text, size_t len, const char *want)
{
	char out[3 * TEXT_CAP + 16];
	size_t n = decode_in_pieces(text, len, NULL, out);
	assert_int_equal(n, strlen(want));
	assert_memory_equal(out, want, n);
}

static void characters_come_out_when_their_last_byte_does(void **state)
{
	(void)state;
	struct stream_decoder d = {0};
	char out[STREAM_DECODER_OUT(8)];
	assert_int_equal(stream_decoder_push(&d, "a\xf0", 2, out), 1);
	assert_int_equal(out[0], 'a');
	assert_int_equal(stream_decoder_push(&d, "\x9f", 1, out), 0);
	assert_int_equal(stream_decoder_push(&d, "\x8e", 1, out), 0);
	assert_int_equal(stream_decoder_push(&d, "\x89!", 2, out), 5);
	assert_memory_equal(out, "\xf0\x9f\x8e\x89!", 5);
	assert_int_equal(stream_decoder_finish(&d, out), 0);
}

#define R "\xef\xbf\xbd"

// One U+FFFD for each longest start of a character, as the Unicode standard (chapter 3, "U+FFFD substitution of maximal subparts") and web
// browsers have it.
static void what_is_no_character_becomes_one_replacement_per_start(void **state)
{
	(void)state;
	expect("\x80", 1, R);
	expect("\xff\xfe", 2, R R);
	expect("\xc0\x80", 2, R R);
	expect("\xe2\x82", 2, R);
	expect("\xe2\x82"
	       "a",
		3, R "a");
	expect("\xe2\x28\xa1", 3, R "(" R);
	expect("\xed\xa0\x80", 3, R R R);
	expect("\xf0\x9f\x8e"
	       "x",
		4, R "x");
	expect("\xf0\x80\x80\x80", 4, R R R R);
	expect("\xf4\x90\x80\x80", 4, R R R R);
	expect("\xf1\x80\x80\xe1\x80\xc2"
	       "b\x80"
	       "c",
		9, R R R "b" R "c");
	expect("\xf0\x9f\xf0\x9f\x8e\x89", 6, R "\xf0\x9f\x8e\x89");
}

static void nul_passes(void **state)
{
	(void)state;
	char out[16];
	assert_int_equal(decode_in_pieces("a\0b", 3, NULL, out), 3);
	assert_memory_equal(out, "a\0b", 3);
}

static void any_split_gives_the_same_text(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 11);
	static const char *const parts[] = {
		"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8e\x89", "\x80", "\xff", "\xe2\x82", "\xf0\x9f", "\xed\xa0", "\n"};
	for (int round = 0; round < 20000; round++) {
		char text[TEXT_CAP], one[3 * TEXT_CAP + 16], other[3 * TEXT_CAP + 16];
		size_t len = 0;
		while (len + 4 <= sizeof text && rng_below(&r, 16) > 0) {
			const char *part = parts[rng_below(&r, sizeof parts / sizeof parts[0])];
			memcpy(text + len, part, strlen(part));
			len += strlen(part);
		}
		size_t n = decode_in_pieces(text, len, NULL, one);
		assert_int_equal(decode_in_pieces(text, len, &r, other), n);
		assert_memory_equal(one, other, n);
		if (utf8_valid(text, len)) {
			assert_int_equal(n, len);
			assert_memory_equal(one, text, len);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(characters_come_out_when_their_last_byte_does),
		cmocka_unit_test(what_is_no_character_becomes_one_replacement_per_start),
		cmocka_unit_test(nul_passes),
		cmocka_unit_test(any_split_gives_the_same_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
