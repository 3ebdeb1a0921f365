// base/memory_facts, base/power_facts and base/disk_facts over trees that stand for machines.
#include "base/disk_facts.h"
#include "base/memory_facts.h"
#include "base/power_facts.h"

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

#define MIB (UINT64_C(1) << 20)
#define MEMINFO "MemTotal:        8000000 kB\nMemFree:          100 kB\nMemAvailable:    4000000 kB\nSwapTotal:       1024 kB\nSwapFree:        512 kB\n"

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

// ---- memory

static struct memory_facts memory_of(const char *root)
{
	struct memory_facts m;
	assert_int_equal(memory_facts_read(root, &m), OK);
	return m;
}

static void memory_is_what_meminfo_and_limits_say(void **state)
{
	const char *root = *state;
	struct memory_facts m;
	assert_int_equal(memory_facts_read(root, &m), ERR_NOT_FOUND);
	fake_tree_put(root, "/proc/meminfo", MEMINFO);
	fake_tree_put(root, "/proc/self/limits", "Limit    Soft Limit  Hard Limit Units\nMax locked memory         8388608     8388608   bytes\n");
	fake_tree_put(root, "/proc/pressure/memory", "some avg10=1.50 avg60=0.00 avg300=0.00 total=1\n");
	m = memory_of(root);
	assert_true(m.total_bytes == UINT64_C(8192000000) && m.available_bytes == UINT64_C(4096000000));
	assert_true(m.swap_total_bytes == MIB && m.swap_free_bytes == MIB / 2);
	assert_true(m.memlock_bytes == 8 * MIB && m.pressure == 150);
	assert_true(m.group_limit_bytes == MEMORY_UNLIMITED && memory_facts_room(&m) == m.available_bytes);
	fake_tree_put(root, "/proc/self/limits", "Max locked memory         unlimited     unlimited   bytes\n");
	assert_true(memory_of(root).memlock_bytes == MEMORY_UNLIMITED);
}

static void the_tightest_control_group_above_the_process_limits_it(void **state)
{
	const char *root = *state;
	fake_tree_put(root, "/proc/meminfo", MEMINFO);
	fake_tree_put(root, "/proc/self/cgroup", "0::/user.slice/user-1000.slice/app\n");
	fake_tree_put(root, "/sys/fs/cgroup/user.slice/user-1000.slice/app/memory.max", "max\n");
	fake_tree_put(root, "/sys/fs/cgroup/user.slice/user-1000.slice/memory.max", "2097152000\n");
	fake_tree_put(root, "/sys/fs/cgroup/user.slice/user-1000.slice/memory.current", "1048576000\n");
	fake_tree_put(root, "/sys/fs/cgroup/user.slice/memory.max", "4194304000\n");
	struct memory_facts m = memory_of(root);
	assert_true(m.group_limit_bytes == 2000 * MIB && m.group_used_bytes == 1000 * MIB && memory_facts_room(&m) == 1000 * MIB);
	fake_tree_put(root, "/sys/fs/cgroup/user.slice/user-1000.slice/memory.current", "9999999999\n");
	m = memory_of(root);
	assert_true(memory_facts_room(&m) == 0);
}

static void control_groups_of_version_one_limit_too(void **state)
{
	const char *root = *state;
	fake_tree_put(root, "/proc/meminfo", MEMINFO);
	fake_tree_put(root, "/proc/self/cgroup", "9:cpu:/a\n8:memory:/docker/../..\n0::/\n");
	fake_tree_put(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	assert_true(memory_of(root).group_limit_bytes == MEMORY_UNLIMITED);
	fake_tree_put(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
	fake_tree_put(root, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "1048576\n");
	assert_true(memory_of(root).group_limit_bytes == 512 * MIB);
	assert_true(memory_of(root).group_used_bytes == MIB);
}

static void numbers_of_memory_that_wrap_are_not_there(void **state)
{
	const char *root = *state;
	fake_tree_put(root, "/proc/meminfo", "MemTotal: 18446744073709551615 kB\nMemAvailable: 99999999999999999999999 kB\n");
	struct memory_facts m = memory_of(root);
	assert_true(m.total_bytes == 0 && m.available_bytes == 0);
}

// ---- power

static struct power_facts power_of(const char *root)
{
	struct power_facts p;
	power_facts_read(root, &p);
	return p;
}

static void the_governor_powersave_holds_low_but_for_drivers_that_mean_something_else(void **state)
{
	const char *root = *state;
	assert_int_equal(power_of(root).n_governed, 0);
	for (int i = 0; i < 2; i++) {
		char path[96];
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", i);
		fake_tree_put(root, path, "powersave\n");
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_driver", i);
		fake_tree_put(root, path, i == 0 ? "cpufreq-dt\n" : "intel_pstate\n");
	}
	fake_tree_put(root, "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "1800000\n");
	fake_tree_put(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "600000\n");
	struct power_facts p = power_of(root);
	assert_int_equal(p.n_governed, 2);
	assert_int_equal(p.n_held_low, 1);
	assert_string_equal(p.governor, "powersave");
	assert_string_equal(p.driver, "cpufreq-dt");
	assert_true(p.max_khz == 1800000 && p.allowed_khz == 600000);
}

static void a_battery_of_the_machine_counts_and_that_of_a_mouse_does_not(void **state)
{
	const char *root = *state;
	fake_tree_put(root, "/sys/class/power_supply/hidpp_battery_0/type", "Battery\n");
	fake_tree_put(root, "/sys/class/power_supply/hidpp_battery_0/scope", "Device\n");
	fake_tree_put(root, "/sys/class/power_supply/hidpp_battery_0/status", "Discharging\n");
	assert_false(power_of(root).has_battery);
	fake_tree_put(root, "/sys/class/power_supply/BAT0/type", "Battery\n");
	fake_tree_put(root, "/sys/class/power_supply/BAT0/status", "Charging\n");
	fake_tree_put(root, "/sys/class/power_supply/BAT0/capacity", "41\n");
	assert_true(power_of(root).has_battery && !power_of(root).is_on_battery);
	fake_tree_put(root, "/sys/class/power_supply/BAT0/status", "Discharging\n");
	assert_true(power_of(root).is_on_battery && power_of(root).battery_percent == 41);
	fake_tree_put(root, "/sys/class/power_supply/BAT0/capacity", "4100\n");
	assert_int_equal(power_of(root).battery_percent, -1);
}

static void heat_and_load_are_read_and_broken_sensors_are_not(void **state)
{
	const char *root = *state;
	assert_true(power_of(root).load == -1 && power_of(root).hottest_millidegrees == INT32_MIN && power_of(root).cpu_pressure == -1);
	fake_tree_put(root, "/proc/loadavg", "12.34 0.5 0.1 1/2 3\n");
	fake_tree_put(root, "/proc/pressure/cpu", "some avg10=3.21 avg60=0.00\n");
	fake_tree_put(root, "/sys/class/thermal/thermal_zone0/temp", "54321\n");
	fake_tree_put(root, "/sys/class/thermal/thermal_zone2/temp", "4294967295\n");
	struct power_facts p = power_of(root);
	assert_true(p.load == 1234 && p.hottest_millidegrees == 54321 && p.cpu_pressure == 321);
}

// ---- disk

static struct disk_facts disk_of(const char *root, const char *mountinfo)
{
	struct disk_facts d;
	fake_tree_put(root, "/proc/self/mountinfo", mountinfo);
	assert_int_equal(disk_facts_read(root, root, &d), OK);
	assert_true(d.total_bytes >= d.free_bytes && d.total_bytes > 0);
	return d;
}

static void a_partition_is_of_the_kind_of_its_disk(void **state)
{
	const char *root = *state;
	fake_tree_put(root, "/sys/dev/block/8:1/partition", "1\n");
	fake_tree_put(root, "/sys/dev/block/8:1/uevent", "MAJOR=8\nDEVNAME=sda1\n");
	fake_tree_put(root, "/sys/dev/block/queue/rotational", "1\n");
	struct disk_facts d = disk_of(root, "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n");
	assert_int_equal(d.kind, DISK_ROTATING);
	assert_string_equal(d.device, "sda1");
	assert_string_equal(d.fs, "ext4");
	fake_tree_put(root, "/sys/dev/block/queue/rotational", "0\n");
	assert_int_equal(disk_of(root, "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n").kind, DISK_SOLID);
	fake_tree_put(root, "/sys/dev/block/removable", "1\n");
	assert_int_equal(disk_of(root, "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n").kind, DISK_REMOVABLE);
	fake_tree_put(root, "/sys/dev/block/device/type", "SD\n");
	assert_int_equal(disk_of(root, "1 0 8:1 / / rw - ext4 /dev/root rw\n").kind, DISK_SD_CARD);
	fake_tree_put(root, "/sys/dev/block/device/type", "MMC\n");
	assert_int_equal(disk_of(root, "1 0 8:1 / / rw - ext4 /dev/root rw\n").kind, DISK_FLASH);
}

static void a_file_system_with_a_number_of_its_own_is_found_by_its_source(void **state)
{
	const char *root = *state;
	fake_tree_put(root, "/sys/class/block/nvme0n1p2/queue/rotational", "0\n");
	struct disk_facts d = disk_of(root, "1 0 0:30 /@ / rw - btrfs /dev/nvme0n1p2 rw\n");
	assert_int_equal(d.kind, DISK_SOLID);
	assert_string_equal(d.device, "nvme0n1p2");
	assert_int_equal(disk_of(root, "1 0 0:30 / / rw - overlay overlay rw\n").kind, DISK_UNKNOWN);
	assert_int_equal(disk_of(root, "1 0 0:30 / / rw - btrfs /dev/.. rw\n").kind, DISK_UNKNOWN);
}

static void the_longest_mount_point_above_a_path_counts(void **state)
{
	const char *root = *state;
	char text[512];
	snprintf(text, sizeof text, "1 0 0:5 / / rw - tmpfs tmpfs rw\n2 1 0:9 / %s rw - nfs4 server:/home rw\n3 1 0:10 / %sx rw - ramfs none rw\n", root, root);
	assert_int_equal(disk_of(root, text).kind, DISK_NETWORK);
	assert_int_equal(disk_of(root, "1 0 0:5 / / rw - tmpfs tmpfs rw\n").kind, DISK_MEMORY);
	// A name with a space, as mountinfo writes it.
	char spaced[128];
	struct disk_facts d;
	snprintf(spaced, sizeof spaced, "%s/a b", root);
	assert_int_equal(mkdir(spaced, 0700), 0);
	snprintf(text, sizeof text, "1 0 0:5 / / rw - tmpfs tmpfs rw\n2 1 0:9 / %s/a\\040b rw - cifs //server/x rw\n", root);
	fake_tree_put(root, "/proc/self/mountinfo", text);
	assert_int_equal(disk_facts_read(root, spaced, &d), OK);
	assert_int_equal(d.kind, DISK_NETWORK);
}

static void mount_lines_that_are_none_are_passed_over(void **state)
{
	const char *root = *state;
	const char *const bad[] = {"", "\n\n", "1", "1 2 3", "1 2 3:x / / rw - ext4 a b", "1 2 3:4 / / rw ext4", "1 2 3:4 / relative rw - tmpfs t rw",
		"99999999999999999999999 2 3:4 / / rw - tmpfs t rw"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(disk_of(root, bad[i]).kind, DISK_UNKNOWN);
	struct disk_facts d;
	assert_int_equal(disk_facts_read(root, "/no/such/path", &d), ERR_NOT_FOUND);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_tree, close_tree)
	const struct CMUnitTest tests[] = {
		T(memory_is_what_meminfo_and_limits_say),
		T(the_tightest_control_group_above_the_process_limits_it),
		T(control_groups_of_version_one_limit_too),
		T(numbers_of_memory_that_wrap_are_not_there),
		T(the_governor_powersave_holds_low_but_for_drivers_that_mean_something_else),
		T(a_battery_of_the_machine_counts_and_that_of_a_mouse_does_not),
		T(heat_and_load_are_read_and_broken_sensors_are_not),
		T(a_partition_is_of_the_kind_of_its_disk),
		T(a_file_system_with_a_number_of_its_own_is_found_by_its_source),
		T(the_longest_mount_point_above_a_path_counts),
		T(mount_lines_that_are_none_are_passed_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
