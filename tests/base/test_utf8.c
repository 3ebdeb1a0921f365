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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_character_survives_the_round_trip),
		cmocka_unit_test(what_is_no_character_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
