#include "base/sys_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/fake_tree.h"
#include "tests/support/scratch.h"

static int open_tree(void **state)
{
	static char dir[SCRATCH_CAP];
	*state = dir;
	return scratch_open(dir) ? 0 : -1;
}

static int close_tree(void **state)
{
	return scratch_remove(*state);
}

static void a_file_is_read_up_to_its_limit_and_ends_with_a_nul(void **state)
{
	const char *root = *state;
	char out[5];
	size_t len;
	fake_tree_put(root, "/proc/x", "123456789");
	assert_int_equal(sys_file_read(root, "/proc/x", out, sizeof out, &len), OK);
	assert_int_equal(len, 4);
	assert_string_equal(out, "1234");
}

static void a_nul_inside_a_file_hides_nothing_behind_it(void **state)
{
	const char *root = *state;
	char out[16];
	fake_tree_put_bytes(root, "/proc/x", "a\0b\0c", 5);
	assert_int_equal(sys_file_read(root, "/proc/x", out, sizeof out, NULL), OK);
	assert_string_equal(out, "a?b?c");
}

static void what_is_no_file_is_not_found_and_not_waited_for(void **state)
{
	const char *root = *state;
	char out[16] = "old", path[128], long_path[SYS_PATH_CAP + 1];
	fake_tree_put(root, "/proc/x", "");
	snprintf(path, sizeof path, "%s/proc/fifo", root);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(sys_file_read(root, "/proc/fifo", out, sizeof out, NULL), ERR_NOT_FOUND);
	assert_string_equal(out, "");
	assert_int_equal(sys_file_read(root, "/proc", out, sizeof out, NULL), ERR_NOT_FOUND);
	assert_int_equal(sys_file_read(root, "/proc/none", out, sizeof out, NULL), ERR_NOT_FOUND);
	memset(long_path, 'x', SYS_PATH_CAP);
	long_path[0] = '/';
	long_path[SYS_PATH_CAP] = '\0';
	assert_int_equal(sys_file_read(root, long_path, out, sizeof out, NULL), ERR_NOT_FOUND);
}

static void a_word_ends_where_white_space_or_the_room_does(void **state)
{
	const char *root = *state;
	char out[6];
	fake_tree_put(root, "/sys/word", "  powersave\n");
	assert_true(sys_file_word(root, "/sys/word", out, sizeof out));
	assert_string_equal(out, "power");
	fake_tree_put(root, "/sys/word", " \n");
	assert_false(sys_file_word(root, "/sys/word", out, sizeof out));
	assert_string_equal(out, "");
}

static void a_number_that_is_none_or_does_not_fit_is_not_there(void **state)
{
	const char *root = *state;
	uint64_t v;
	fake_tree_put(root, "/sys/n", "18446744073709551615\n");
	assert_true(sys_file_u64(root, "/sys/n", &v));
	assert_true(v == UINT64_MAX);
	const char *const bad[] = {"18446744073709551616", "99999999999999999999999", "-1", "max", "", "nan"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		fake_tree_put(root, "/sys/n", bad[i]);
		assert_false(sys_file_u64(root, "/sys/n", &v));
		assert_true(v == 0);
	}
}

static void a_directory_is_listed_in_order_and_up_to_a_limit(void **state)
{
	const char *root = *state;
	char names[2][SYS_NAME_CAP], path[96];
	snprintf(path, sizeof path, "/sys/class/%064d", 0);
	fake_tree_put(root, path, "");
	fake_tree_put(root, "/sys/class/.hidden", "");
	assert_int_equal(sys_file_list(root, "/sys/class", names, 2), 0);
	fake_tree_put(root, "/sys/class/b", "");
	fake_tree_put(root, "/sys/class/a", "");
	assert_int_equal(sys_file_list(root, "/sys/class", names, 2), 2);
	assert_string_equal(names[0], "a");
	assert_string_equal(names[1], "b");
	assert_int_equal(sys_file_list(root, "/sys/class", names, 1), 1);
	assert_int_equal(sys_file_list(root, "/sys/none", names, 2), 0);
}

static void a_key_is_found_at_the_beginning_of_a_line_only(void **state)
{
	(void)state;
	assert_string_equal(sys_text_find("xkey: 1\nkey: 2\n", "key:"), " 2\n");
	assert_null(sys_text_find("xkey: 1", "key:"));
	assert_null(sys_text_find("", "key:"));
}

static void pressure_is_read_in_hundredths_of_a_per_cent(void **state)
{
	(void)state;
	assert_int_equal(sys_text_pressure("some avg10=12.34 avg60=0.00\nfull avg10=99.00\n"), 1234);
	assert_int_equal(sys_text_pressure("full avg10=99.00\n"), -1);
	assert_int_equal(sys_text_pressure("some avg10=101.00"), -1);
	assert_int_equal(sys_text_pressure("some avg10=x"), -1);
	assert_int_equal(sys_text_pressure("some avg10=7"), 700);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_tree, close_tree)
	const struct CMUnitTest tests[] = {
		T(a_file_is_read_up_to_its_limit_and_ends_with_a_nul),
		T(a_nul_inside_a_file_hides_nothing_behind_it),
		T(what_is_no_file_is_not_found_and_not_waited_for),
		T(a_word_ends_where_white_space_or_the_room_does),
		T(a_number_that_is_none_or_does_not_fit_is_not_there),
		T(a_directory_is_listed_in_order_and_up_to_a_limit),
		cmocka_unit_test(a_key_is_found_at_the_beginning_of_a_line_only),
		cmocka_unit_test(pressure_is_read_in_hundredths_of_a_per_cent),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
