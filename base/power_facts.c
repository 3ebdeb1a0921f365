#include "base/power_facts.h"

#include "base/sys_file.h"

#include <stdio.h>
#include <string.h>

#define SUPPLIES_MAX 32
#define ZONES_MAX 64
#define DEGREES_MAX 200000 // of a thousandth: a sensor that says more is broken

// The drivers whose "powersave" follows the load like everybody's default; elsewhere the word means the lowest clock, always.
static bool is_held_low(const char *governor, const char *driver)
{
	return strcmp(governor, "powersave") == 0 && strcmp(driver, "intel_pstate") != 0 && strcmp(driver, "amd-pstate-epp") != 0;
}

static void read_governors(const char *root, struct power_facts *p)
{
	char path[SYS_PATH_CAP], governor[POWER_NAME_CAP], driver[POWER_NAME_CAP];
	for (int i = 0; i < POWER_CPUS_MAX; i++) {
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", i);
		if (!sys_file_word(root, path, governor, sizeof governor))
			continue;
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_driver", i);
		(void)sys_file_word(root, path, driver, sizeof driver);
		p->n_held_low += is_held_low(governor, driver);
		if (p->n_governed++ > 0)
			continue;
		memcpy(p->governor, governor, sizeof governor);
		memcpy(p->driver, driver, sizeof driver);
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq", i);
		(void)sys_file_u64(root, path, &p->max_khz);
		snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_max_freq", i);
		(void)sys_file_u64(root, path, &p->allowed_khz);
	}
}

static bool supply_says(const char *root, const char *supply, const char *file, const char *word)
{
	char path[SYS_PATH_CAP], got[POWER_NAME_CAP];
	snprintf(path, sizeof path, "/sys/class/power_supply/%s/%s", supply, file);
	return sys_file_word(root, path, got, sizeof got) && strcmp(got, word) == 0;
}

static void read_batteries(const char *root, struct power_facts *p)
{
	char names[SUPPLIES_MAX][SYS_NAME_CAP], path[SYS_PATH_CAP];
	size_t n = sys_file_list(root, "/sys/class/power_supply", names, SUPPLIES_MAX);
	for (size_t i = 0; i < n; i++) {
		uint64_t percent;
		if (!supply_says(root, names[i], "type", "Battery") || supply_says(root, names[i], "scope", "Device"))
			continue;
		p->has_battery = true;
		if (!supply_says(root, names[i], "status", "Discharging"))
			continue;
		p->is_on_battery = true;
		snprintf(path, sizeof path, "/sys/class/power_supply/%s/capacity", names[i]);
		if (sys_file_u64(root, path, &percent) && percent <= 100)
			p->battery_percent = (int32_t)percent;
	}
}

static void read_heat(const char *root, struct power_facts *p)
{
	char path[SYS_PATH_CAP];
	for (int i = 0; i < ZONES_MAX; i++) {
		uint64_t heat;
		snprintf(path, sizeof path, "/sys/class/thermal/thermal_zone%d/temp", i);
		if (sys_file_u64(root, path, &heat) && heat <= DEGREES_MAX && (int32_t)heat > p->hottest_millidegrees)
			p->hottest_millidegrees = (int32_t)heat;
	}
}

// "0.52 0.58 0.59 1/389 12345"
static int32_t read_load(const char *root)
{
	char text[64];
	uint64_t whole, part = 0;
	const char *at;
	if (sys_file_read(root, "/proc/loadavg", text, sizeof text, NULL) != OK || !sys_text_u64(text, &whole, &at) || whole > 100000)
		return -1;
	if (at[0] == '.' && at[1] >= '0' && at[1] <= '9' && at[2] >= '0' && at[2] <= '9')
		part = (uint64_t)(at[1] - '0') * 10 + (uint64_t)(at[2] - '0');
	return (int32_t)(whole * 100 + part);
}

void power_facts_read(const char *root, struct power_facts *out)
{
	char text[512];
	*out = (struct power_facts){.battery_percent = -1, .hottest_millidegrees = INT32_MIN, .cpu_pressure = -1};
	read_governors(root, out);
	read_batteries(root, out);
	read_heat(root, out);
	out->load = read_load(root);
	if (sys_file_read(root, "/proc/pressure/cpu", text, sizeof text, NULL) == OK)
		out->cpu_pressure = sys_text_pressure(text);
}
