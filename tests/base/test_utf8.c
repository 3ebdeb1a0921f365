#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void every_character_survives_the_round_trip(void **state)
{
	(void)state;
	for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
		if (!utf8_is_scalar(cp))
			continue;
		char s[UTF8_MAX];
		uint32_t back = 0;
		size_t n = utf8_encode(cp, s);
		assert_int_equal(utf8_decode(s, n, &back), n);
		assert_int_equal(back, cp);
		assert_int_equal(n > 1 ? utf8_decode(s, n - 1, &back) : 0, 0);
	}
}

static void what_is_no_character_is_refused(void **state)
{
	(void)state;
	static const char *const bad[] = {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x80\x80", "\xe0\x9f\xbf",
		"\xed\xa0\x80", "\xed\xbf\xbf", "\xe2\x82", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
		"\xf8\x88\x80\x80\x80", "\xfe", "\xff"};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		uint32_t cp = 7;
		assert_int_equal(utf8_decode(bad[i], strlen(bad[i]), &cp), 0);
		assert_int_equal(cp, 7);
	}
	assert_false(utf8_is_scalar(0xd800));
	assert_false(utf8_is_scalar(0x110000));
}

static void next_agrees_with_decode_and_tells_cut_from_bad(void **state)
{
	(void)state;
	// Sequences of three bytes, densely where a character may start; whether one is a start shows by trying every fourth byte.
	for (uint32_t v = 0; v < 1u << 24; v += v >> 16 < 0xc0 ? 4099 : 11) {
		const uint8_t s[3] = {(uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
		uint32_t cp;
		size_t want = utf8_decode(s, 3, &cp), n;
		enum utf8_kind kind = utf8_next(s, 3, &n);
		assert_int_equal(kind == UTF8_CHAR, want > 0);
		if (kind == UTF8_CHAR)
			assert_int_equal(n, want);
		bool can_end = false; // some last byte makes it a character of four
		for (uint32_t last = 0x80; last <= 0xbf; last++) {
			const uint8_t four[4] = {s[0], s[1], s[2], (uint8_t)last};
			can_end |= utf8_decode(four, 4, &cp) == 4;
		}
		assert_int_equal(kind == UTF8_CUT, can_end);
	}
	size_t n;
	assert_int_equal(utf8_next("\xe2\x82", 2, &n), UTF8_CUT);
	assert_int_equal(n, 2);
	assert_int_equal(utf8_next("\xf0\x9f(", 3, &n), UTF8_BAD);
	assert_int_equal(n, 2);
	assert_true(utf8_valid("a\xc3\xa9", 3));
	assert_false(utf8_valid("a\xc3", 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_character_survives_the_round_trip),
		cmocka_unit_test(what_is_no_character_is_refused),
		cmocka_unit_test(next_agrees_with_decode_and_tells_cut_from_bad),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
