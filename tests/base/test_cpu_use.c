#include "base/cpu_use.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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

// put_stat: two processors, of which `user` ticks were worked and `idle` were not.
static void put_stat(const char *root, unsigned user, unsigned idle)
{
	char text[256];
	snprintf(text, sizeof text, "cpu  %u 10 20 %u 5 6 7 8 0 0\ncpu0 1 2 3 4\ncpu1 1 2 3 4\nintr 12345 0 0\nctxt 1\n", user, idle);
	fake_tree_put(root, "/proc/stat", text);
}

static void put_process(const char *root, int pid, const char *name, unsigned user, unsigned system)
{
	char path[64], text[256];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	snprintf(text, sizeof text, "%d (%s) S 1 1 1 0 -1 4194560 100 200 0 0 %u %u 7 8 20 0 1 0 30 1000 10\n", pid, name, user, system);
	fake_tree_put(root, path, text);
}

static struct cpu_use use_of(const char *root)
{
	struct cpu_use u;
	assert_int_equal(cpu_use_read(root, "hearth", &u), OK);
	return u;
}

static void time_of_our_own_name_is_counted_apart(void **state)
{
	const char *root = *state;
	struct cpu_use u;
	assert_int_equal(cpu_use_read(root, "hearth", &u), ERR_NOT_FOUND);
	put_stat(root, 1000, 5000);
	put_process(root, 10, "hearth", 100, 11);
	put_process(root, 11, "hearth", 200, 22);
	put_process(root, 12, "hearths", 1000, 1000);
	put_process(root, 13, "a (hearth) b", 1000, 1000);
	put_process(root, 14, "he) R 1 2 3 4 5 6 7 8 9 10 11 12 9 9", 1000, 1000);
	u = use_of(root);
	assert_int_equal(u.n_cpus, 2);
	assert_int_equal(u.busy, 1000 + 10 + 20 + 6 + 7 + 8);
	assert_int_equal(u.total, u.busy + 5000 + 5);
	assert_int_equal(u.own, 333);
}

static void others_use_what_is_neither_idle_nor_ours(void **state)
{
	const char *root = *state;
	put_stat(root, 1000, 5000);
	put_process(root, 10, "hearth", 100, 0);
	struct cpu_use before = use_of(root);
	put_stat(root, 1300, 5100); // 400 ticks of two processors: 200 have passed
	put_process(root, 10, "hearth", 150, 50);
	struct cpu_use after = use_of(root);
	assert_true(fabs(cpu_use_by_others(&before, &after) - 1.0) < 1e-9);
	assert_true(cpu_use_by_others(&before, &before) < 0);
	assert_true(cpu_use_by_others(&after, &before) < 0);
	after.own = 1 << 20; // more than there was
	assert_true(cpu_use_by_others(&before, &after) == 0);
	after.own = 0; // a process has ended
	assert_true(fabs(cpu_use_by_others(&before, &after) - 1.5) < 1e-9);
}

static void what_is_no_stat_file_tells_nothing(void **state)
{
	const char *root = *state;
	static const char *const texts[] = {"", "cpu", "cpu \n", "cpu  1 2 3\n", "cpu  x\n", "cpuu  1 2 3 4 5\n", "cpu  99999999999999999999999 1 1 1 1\n"};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct cpu_use u;
		fake_tree_put(root, "/proc/stat", texts[i]);
		assert_int_equal(cpu_use_read(root, "hearth", &u), ERR_NOT_FOUND);
	}
	fake_tree_put(root, "/proc/stat", "cpu  1 2 3 4\n"); // as kernels told long ago, and no processor of its own
	struct cpu_use u = use_of(root);
	assert_int_equal(u.n_cpus, 0);
	assert_true(cpu_use_by_others(&u, &u) < 0);
	fake_tree_put(root, "/proc/20/stat", "20 (hearth) S 1");
	fake_tree_put(root, "/proc/21/stat", ") 21 (");
	assert_int_equal(use_of(root).own, 0);
}

static void this_machine_tells(void **state)
{
	(void)state;
	struct cpu_use u;
	assert_int_equal(cpu_use_read("", "no such program", &u), OK);
	assert_true(u.n_cpus >= 1);
	assert_true(u.total >= u.busy);
	assert_int_equal(u.own, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(time_of_our_own_name_is_counted_apart, open_tree, close_tree),
		cmocka_unit_test_setup_teardown(others_use_what_is_neither_idle_nor_ours, open_tree, close_tree),
		cmocka_unit_test_setup_teardown(what_is_no_stat_file_tells_nothing, open_tree, close_tree),
		cmocka_unit_test(this_machine_tells),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
