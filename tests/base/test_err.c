#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void prefix_goes_before_the_text(void **state)
{
	(void)state;
	struct errmsg em;
	assert_int_equal(errmsg_fail(&em, ERR_FORMAT, "type %s", "iq1_m"), ERR_FORMAT);
	assert_int_equal(errmsg_prefix(&em, ERR_FORMAT, "model.gguf"), ERR_FORMAT);
	assert_string_equal(em.text, "model.gguf: type iq1_m");
}

static void a_long_message_is_cut_not_overrun(void **state)
{
	(void)state;
	struct errmsg em;
	char big[2 * ERRMSG_CAP];
	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = '\0';
	assert_int_equal(errmsg_fail(&em, ERR_IO, "%s", big), ERR_IO);
	assert_int_equal(strlen(em.text), ERRMSG_CAP - 1);
	assert_int_equal(errmsg_prefix(&em, ERR_IO, "%s", big), ERR_IO);
	assert_int_equal(strlen(em.text), ERRMSG_CAP - 1);
}

static void no_errmsg_is_allowed(void **state)
{
	(void)state;
	assert_int_equal(errmsg_fail(NULL, ERR_LIMIT, "x"), ERR_LIMIT);
	assert_int_equal(errmsg_prefix(NULL, ERR_LIMIT, "x"), ERR_LIMIT);
}

static void every_code_has_words(void **state)
{
	(void)state;
	for (int e = OK; e <= ERR_USAGE; e++)
		assert_string_not_equal(err_words((enum err)e), "unknown error");
	assert_string_equal(err_words((enum err)999), "unknown error");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prefix_goes_before_the_text),
		cmocka_unit_test(a_long_message_is_cut_not_overrun),
		cmocka_unit_test(no_errmsg_is_allowed),
		cmocka_unit_test(every_code_has_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
