#include "base/printable.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void shows(const char *src, size_t len, const char *want)
{
	char out[64];
	assert_string_equal(printable_copy(src, len, out, sizeof out), want);
}

static void harmless_text_stays_as_it_is(void **state)
{
	(void)state;
	shows("", 0, "");
	shows("blk.0.attn_q", 12, "blk.0.attn_q");
	shows("gr\xc3\xbc\xc3\x9f \xe4\xbd\xa0 \xf0\x9f\x98\x80", 15, "gr\xc3\xbc\xc3\x9f \xe4\xbd\xa0 \xf0\x9f\x98\x80");
}

static void control_characters_become_question_marks(void **state)
{
	(void)state;
	shows("a\033[2J\n\t\x7f", 8, "a?[2J???");
	shows("a\0b", 3, "a?b");
	shows("\xc2\x9b" "31m", 5, "?31m");             // C1: another escape
	shows("\xe2\x80\xae" "evil", 7, "?evil");       // right-to-left override
	shows("\xe2\x80\xa8|\xef\xbb\xbf", 7, "?|?");   // line separator, byte order mark
}

static void bytes_that_are_no_utf8_become_question_marks(void **state)
{
	(void)state;
	shows("\xff\xfe", 2, "??");
	shows("\xc3", 1, "?");             // cut
	shows("\xc0\xaf", 2, "??");        // overlong
	shows("\xed\xa0\x80", 3, "???");   // surrogate
	shows("\xf4\x90\x80\x80", 4, "????");
	shows("\x80z", 2, "?z");
}

static void long_text_is_cut_at_a_character(void **state)
{
	(void)state;
	char out[10];
	assert_string_equal(printable_copy("123456789", 9, out, sizeof out), "123456789");
	assert_string_equal(printable_copy("1234567890", 10, out, sizeof out), "123456...");
	assert_string_equal(printable_copy("12345\xc3\xbc" "7890", 11, out, sizeof out), "12345...");
	for (size_t cap = 1; cap <= sizeof out; cap++) {
		memset(out, 'x', sizeof out);
		printable_copy("\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80", 12, out, cap);
		size_t len = strlen(out);
		assert_true(len < cap);
		assert_true(len == 0 || len == 4 || len == 3 || len == 7 || len == 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(harmless_text_stays_as_it_is),
		cmocka_unit_test(control_characters_become_question_marks),
		cmocka_unit_test(bytes_that_are_no_utf8_become_question_marks),
		cmocka_unit_test(long_text_is_cut_at_a_character),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
