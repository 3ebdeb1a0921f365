// What of an answer is shown: here, for programs (--json).
#include "cli/answer_print.h"
#include "cli/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void tokens_without_text_come_first(void **state)
{
	struct options o = {.json = true};
	struct answer_print p = {.opts = &o};
	(void)state;
	answer_print_text(&p, 7, "", 0); // the first byte of a character
	assert_int_equal(p.n_output, 1);
	assert_int_equal(p.text_len, 0);
	answer_print_text(&p, 8, "\xc3\xa9", 2);
	assert_int_equal(p.n_output, 2);
	assert_int_equal(p.text_len, 2);
	assert_memory_equal(p.text, "\xc3\xa9", 2);
	answer_print_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens_without_text_come_first),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
