// How this machine runs: how its processors choose their clock, whether it has a battery and lives on it, how warm it is, how busy.
// `root` is explained in base/sys_file.h. Any thread.
#ifndef HEARTH_BASE_POWER_FACTS_H
#define HEARTH_BASE_POWER_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#define POWER_CPUS_MAX 256
#define POWER_NAME_CAP 32

struct power_facts {
	int32_t n_governed;           // processors that have a governor (cpufreq); 0: the system does not tell
	int32_t n_held_low;           // of them, those that never leave their lowest clock: governor "powersave" without a driver that means something else by it
	char governor[POWER_NAME_CAP]; // of the first processor; "": none
	char driver[POWER_NAME_CAP];
	uint64_t max_khz, allowed_khz; // of the first processor: what it could, what it may; 0: not told
	bool has_battery;              // of this machine, not of its mouse
	bool is_on_battery;            // discharging
	int32_t battery_percent;       // -1: not told
	int32_t hottest_millidegrees;  // of all thermal zones; INT32_MIN: none
	int32_t load;                  // hundredths of running programs, over the last minute; -1: not told
	int32_t cpu_pressure;          // as memory_facts.pressure, for processors
};

void power_facts_read(const char *root, struct power_facts *out);

#endif
