// What a probe learns of its machine, over trees that stand for machines.
#include "engine/probe_machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

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

static void put_cache(const char *root, int cpu, int index, const char *level, const char *size, const char *shared)
{
	char path[128];
	snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/level", cpu, index);
	fake_tree_put(root, path, level);
	snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/size", cpu, index);
	fake_tree_put(root, path, size);
	snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, index);
	fake_tree_put(root, path, shared);
}

static void nothing_told_is_all_zeroes(void **state)
{
	struct probe_machine m;
	struct device_conditions c;
	probe_machine_read(*state, &m);
	probe_machine_conditions(*state, &c);
	assert_string_equal(m.cpu, "");
	assert_true(m.memory_bytes == 0 && m.cache_bytes == 0);
	assert_int_equal(c.has, 0);
}

static void a_laptop_is_read(void **state)
{
	const char *root = *state;
	struct probe_machine m;
	fake_tree_put(root, "/proc/cpuinfo", "processor\t: 0\nmodel\t\t: 7\nmodel name\t: Imaginary(R)  Core\x1b i9 \nflags\t\t: fma\n");
	fake_tree_put(root, "/proc/sys/kernel/osrelease", "6.12.3-amd64\n");
	fake_tree_put(root, "/proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 9000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n");
	put_cache(root, 0, 0, "1\n", "48K\n", "0\n");
	put_cache(root, 0, 1, "2\n", "1280K\n", "0\n");
	put_cache(root, 0, 2, "3\n", "12288K\n", "0-1\n");
	put_cache(root, 1, 2, "3\n", "12288K\n", "0-1\n");
	put_cache(root, 2, 2, "3\n", "8192K\n", "2\n");
	probe_machine_read(root, &m);
	assert_string_equal(m.cpu, "Imaginary(R) Core i9");
	assert_string_equal(m.system, "6.12.3-amd64");
	assert_true(m.memory_bytes == UINT64_C(16000000) * 1024 && m.available_bytes == UINT64_C(9000000) * 1024);
	assert_true(m.cache_bytes == (12288 + 8192) * 1024); // what two share counts once
}

static void a_board_without_a_name_of_its_processor_says_its_own(void **state)
{
	const char *root = *state;
	struct probe_machine m;
	fake_tree_put(root, "/proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 108.00\n");
	fake_tree_put(root, "/proc/device-tree/model", "Raspberry Pi 5");
	probe_machine_read(root, &m);
	assert_string_equal(m.cpu, "Raspberry Pi 5");
	fake_tree_put(root, "/proc/cpuinfo", "processor\t: 0\nHardware\t: BCM2835\nModel\t\t: Raspberry Pi 4\n");
	probe_machine_read(root, &m);
	assert_string_equal(m.cpu, "Raspberry Pi 4");
}

static void lies_about_caches_are_not_believed(void **state)
{
	const char *root = *state;
	struct probe_machine m;
	put_cache(root, 0, 0, "1\n", "99999999999999K\n", "0\n");
	put_cache(root, 0, 1, "-3\n", "64K\n", "0\n");
	put_cache(root, 0, 2, "2\n", "K\n", "0\n");
	probe_machine_read(root, &m);
	assert_true(m.cache_bytes == 0);
}

static void conditions_are_those_of_the_moment(void **state)
{
	const char *root = *state;
	struct device_conditions c;
	fake_tree_put(root, "/sys/class/power_supply/BAT0/type", "Battery\n");
	fake_tree_put(root, "/sys/class/power_supply/BAT0/status", "Discharging\n");
	fake_tree_put(root, "/sys/class/power_supply/BAT0/capacity", "43\n");
	fake_tree_put(root, "/sys/class/thermal/thermal_zone0/temp", "41000\n");
	fake_tree_put(root, "/sys/class/thermal/thermal_zone1/temp", "67250\n");
	fake_tree_put(root, "/proc/loadavg", "1.25 0.80 0.70 2/300 1000\n");
	fake_tree_put(root, "/proc/pressure/cpu", "some avg10=3.10 avg60=0.00 avg300=0.00 total=1\n");
	fake_tree_put(root, "/proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 9000000 kB\n");
	fake_tree_put(root, "/proc/pressure/memory", "some avg10=0.07 avg60=0.00 avg300=0.00 total=1\n");
	probe_machine_conditions(root, &c);
	assert_int_equal(c.has, PROFILE_CONDITIONS);
	assert_true(c.on_battery);
	assert_int_equal(c.battery_percent, 43);
	assert_int_equal(c.heat_mc, 67250);
	assert_int_equal(c.load_milli, 1250);
	assert_int_equal(c.cpu_pressure, 310);
	assert_int_equal(c.memory_pressure, 7);
	struct device_profile p = {.at = c};
	assert_int_equal(device_profile_check(&p, NULL), OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nothing_told_is_all_zeroes, open_tree, close_tree),
		cmocka_unit_test_setup_teardown(a_laptop_is_read, open_tree, close_tree),
		cmocka_unit_test_setup_teardown(a_board_without_a_name_of_its_processor_says_its_own, open_tree, close_tree),
		cmocka_unit_test_setup_teardown(lies_about_caches_are_not_believed, open_tree, close_tree),
		cmocka_unit_test_setup_teardown(conditions_are_those_of_the_moment, open_tree, close_tree),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
