// What a probe wants to know of its machine beside what it measures: processor, memory, caches; and how the machine is now. From base's readers of
// /proc and /sys, which explain `root`. What is not told stays 0; nothing here fails. Any thread.
#ifndef HEARTH_ENGINE_PROBE_MACHINE_H
#define HEARTH_ENGINE_PROBE_MACHINE_H

#include "base/device_profile.h"

#include <stdint.h>

#define PROBE_SYSTEM_CAP 72

struct probe_machine {
	char cpu[PROFILE_CPU_CAP];      // the processor's name, or the board's where it has none; printable ASCII
	char system[PROBE_SYSTEM_CAP];  // the operating system's kernel, as uname -r prints it
	uint64_t memory_bytes, available_bytes; // a control group's limit counts, too
	uint64_t cache_bytes;           // of all caches of the last level together
};

void probe_machine_read(const char *root, struct probe_machine *out);
void probe_machine_conditions(const char *root, struct device_conditions *out);

#endif
