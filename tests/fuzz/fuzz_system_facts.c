// Any bytes as the files of /proc and /sys: facts within their limits, whatever they say.
//
// Input: files one after the other, each a byte that picks it, a byte of length, and its text.
#include "base/cpu_use.h"
#include "base/disk_facts.h"
#include "base/memory_facts.h"
#include "base/network_facts.h"
#include "base/power_facts.h"

#include "tests/support/fake_tree.h"
#include "tests/support/fuzz.h"
#include "tests/support/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES_MAX 24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const files[] = {
	"/proc/meminfo", "/proc/self/cgroup", "/proc/self/limits", "/proc/self/mountinfo", "/proc/pressure/memory", "/proc/pressure/cpu", "/proc/loadavg",
	"/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/a/memory.current", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
	"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver",
	"/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "/sys/class/power_supply/BAT0/type", "/sys/class/power_supply/BAT0/status",
	"/sys/class/power_supply/BAT0/capacity", "/sys/class/thermal/thermal_zone0/temp", "/sys/dev/block/8:1/uevent", "/sys/dev/block/8:1/removable",
	"/sys/dev/block/8:1/queue/rotational", "/sys/dev/block/8:1/device/type", "/sys/class/block/sda1/queue/rotational", "/proc/stat", "/proc/7/stat",
	"/proc/net/wireless", "/proc/net/tcp", "/proc/net/tcp6", "/proc/net/arp", "/proc/modules", "/proc/7/comm", "/etc/ufw/ufw.conf",
	"/sys/class/net/eth0/operstate", "/sys/class/net/eth0/device/x", "/sys/class/net/eth0/speed", "/sys/class/net/eth0/duplex",
	"/sys/class/net/wlan0/operstate", "/sys/class/net/wlan0/wireless/x",
};

static void check_text(const char *text, size_t cap)
{
	require(memchr(text, '\0', cap) != NULL);
}

static void look_at_network(const char *root)
{
	struct network_facts f;
	network_facts_read(root, &f);
	require(f.n >= 0 && f.n <= NETWORK_INTERFACES_MAX);
	for (int32_t i = 0; i < f.n; i++) {
		check_text(f.at[i].name, sizeof f.at[i].name);
		require(f.at[i].mbit >= 0 && f.at[i].signal_dbm <= 0 && f.at[i].signal_dbm > -200);
	}
	(void)network_listens(root, 7433);
	(void)network_neighbour_of(root, "10.0.0.1");
}

static void look(const char *root)
{
	struct memory_facts m;
	struct power_facts p;
	struct disk_facts d;
	if (memory_facts_read(root, &m) == OK) {
		require(memory_facts_room(&m) <= m.available_bytes);
		require(m.pressure >= -1 && m.pressure <= 10099);
	}
	struct cpu_use u;
	if (cpu_use_read(root, "hearth", &u) == OK) {
		struct cpu_use none = {.n_cpus = 1};
		require(u.n_cpus >= 0 && cpu_use_by_others(&none, &u) >= -1);
	}
	power_facts_read(root, &p);
	require(p.battery_percent >= -1 && p.battery_percent <= 100 && p.load >= -1 && p.n_held_low <= p.n_governed);
	check_text(p.governor, sizeof p.governor);
	require(disk_facts_read(root, root, &d) == OK);
	require(disk_kind_words(d.kind) != NULL);
	check_text(d.device, sizeof d.device);
	check_text(d.fs, sizeof d.fs);
	look_at_network(root);
}

// One tree for all inputs: making directories again and again would be most of the time. Nothing of an input is left in it for the next.
static char root[SCRATCH_CAP];

static void remove_root(void)
{
	scratch_remove(root);
}

static void empty_files(void)
{
	char path[256];
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		snprintf(path, sizeof path, "%s%s", root, files[i]);
		unlink(path);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t text[FUZZ_RAW_MAX];
	struct reader r = reader_init(data, size);
	if (root[0] == '\0') {
		require(scratch_open(root));
		atexit(remove_root);
	}
	for (int i = 0; i < FILES_MAX && r.left > 0; i++) {
		const char *path = files[reader_u8(&r) % ARRAY_LEN(files)];
		size_t len = take_raw(&r, text);
		fake_tree_put_bytes(root, path, text, len);
	}
	look(root);
	empty_files();
	return 0;
}
