#include "engine/probe_machine.h"

#include "base/memory_facts.h"
#include "base/power_facts.h"
#include "base/sys_file.h"

#include <stdio.h>
#include <string.h>

#define CACHE_INDICES 8
#define CPUS_LOOKED_AT 256

// copy_plain copies a line's text; what is no printable ASCII becomes a space, and spaces never stand side by side.
static void copy_plain(const char *from, char *out, size_t cap)
{
	size_t n = 0;
	for (; *from != '\0' && *from != '\n' && n + 1 < cap; from++) {
		char c = *from > ' ' && *from < 0x7f ? *from : ' ';
		if (c != ' ' || (n > 0 && out[n - 1] != ' '))
			out[n++] = c;
	}
	while (n > 0 && out[n - 1] == ' ')
		n--;
	out[n] = '\0';
}

static void read_cpu(const char *root, char out[PROFILE_CPU_CAP])
{
	static const char *const keys[] = {"model name", "Model", "Hardware", "cpu model"};
	char text[SYS_TEXT_CAP];
	out[0] = '\0';
	(void)!sys_file_read(root, "/proc/cpuinfo", text, sizeof text, NULL);
	for (size_t i = 0; i < ARRAY_LEN(keys) && out[0] == '\0'; i++) {
		const char *at = sys_text_find(text, keys[i]);
		if (at != NULL)
			copy_plain(at + strspn(at, " \t:"), out, PROFILE_CPU_CAP);
	}
	if (out[0] == '\0' && sys_file_read(root, "/proc/device-tree/model", text, sizeof text, NULL) == OK)
		copy_plain(text, out, PROFILE_CPU_CAP);
}

static uint64_t bounded(uint64_t bytes)
{
	return bytes <= PROFILE_BYTES_MAX ? bytes : 0;
}

// cache_of returns the bytes of one CPU's cache of the highest level; *first_cpu is the first of those that share it.
static uint64_t cache_of(const char *root, int cpu, uint64_t *first_cpu)
{
	uint64_t best = 0, best_level = 0;
	for (int i = 0; i < CACHE_INDICES; i++) {
		char path[SYS_PATH_CAP];
		uint64_t level, kib, first;
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/level", cpu, i);
		if (!sys_file_u64(root, path, &level) || level < best_level)
			continue;
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/size", cpu, i); // "12288K"
		if (!sys_file_u64(root, path, &kib) || kib > UINT64_C(1) << 30)
			continue;
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, i);
		*first_cpu = sys_file_u64(root, path, &first) ? first : (uint64_t)cpu;
		best_level = level;
		best = kib << 10;
	}
	return best;
}

static uint64_t read_caches(const char *root)
{
	uint64_t sum = 0;
	for (int cpu = 0; cpu < CPUS_LOOKED_AT; cpu++) {
		uint64_t first = (uint64_t)cpu, bytes = cache_of(root, cpu, &first);
		if (bytes == 0)
			break;
		sum += first == (uint64_t)cpu ? bytes : 0;
	}
	return sum;
}

void probe_machine_read(const char *root, struct probe_machine *out)
{
	char text[256];
	struct memory_facts m;
	*out = (struct probe_machine){.memory_bytes = 0};
	read_cpu(root, out->cpu);
	if (sys_file_read(root, "/proc/sys/kernel/osrelease", text, sizeof text, NULL) == OK)
		copy_plain(text, out->system, sizeof out->system);
	if (memory_facts_read(root, &m) == OK) {
		out->memory_bytes = bounded(m.group_limit_bytes < m.total_bytes ? m.group_limit_bytes : m.total_bytes);
		out->available_bytes = bounded(memory_facts_room(&m));
	}
	out->cache_bytes = read_caches(root);
}

void probe_machine_conditions(const char *root, struct device_conditions *out)
{
	struct power_facts p;
	struct memory_facts m;
	power_facts_read(root, &p);
	*out = (struct device_conditions){.has = 0};
	if (p.has_battery) {
		out->has |= PROFILE_HAS_BATTERY;
		out->on_battery = p.is_on_battery;
		out->battery_percent = p.battery_percent > 0 ? (uint32_t)p.battery_percent : 0;
	}
	if (p.hottest_millidegrees > 0) {
		out->has |= PROFILE_HAS_HEAT;
		out->heat_mc = (uint32_t)p.hottest_millidegrees;
	}
	if (p.load >= 0) {
		out->has |= PROFILE_HAS_LOAD;
		out->load_milli = (uint32_t)p.load * 10 < PROFILE_LOAD_MAX ? (uint32_t)p.load * 10 : PROFILE_LOAD_MAX;
	}
	if (p.cpu_pressure >= 0 && p.cpu_pressure <= 10000) {
		out->has |= PROFILE_HAS_PRESSURE;
		out->cpu_pressure = (uint32_t)p.cpu_pressure;
		if (memory_facts_read(root, &m) == OK && m.pressure > 0 && m.pressure <= 10000)
			out->memory_pressure = (uint32_t)m.pressure;
	}
}
