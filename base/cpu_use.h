// How much processor time was used on this machine since it started, by whom: by programs of our own name, and by all others. For a program
// that wants to keep out of the way of others: two readings tell who used what between them.
// `root` is explained in base/sys_file.h. Any thread.
#ifndef HEARTH_BASE_CPU_USE_H
#define HEARTH_BASE_CPU_USE_H

#include "base/err.h"

#include <stdint.h>

struct cpu_use {
	uint64_t busy;  // ticks of all processors together that were not idle
	uint64_t total; // ticks of all processors together
	uint64_t own;   // ticks of the programs called `name` that run now
	int32_t n_cpus;
};

// cpu_use_read: name as in /proc/PID/stat, at most 15 bytes of it. ERR_NOT_FOUND without /proc/stat.
MUST_USE enum err cpu_use_read(const char *root, const char *name, struct cpu_use *out);
// cpu_use_by_others returns how many processors' worth of time others used between two readings; -1: no time has passed, or a counter went back.
double cpu_use_by_others(const struct cpu_use *before, const struct cpu_use *after);

#endif
