// How much memory this machine has, and what of it this process may take: /proc/meminfo, the control groups it is in, its limits, pressure.
// `root` is explained in base/sys_file.h. Any thread.
#ifndef HEARTH_BASE_MEMORY_FACTS_H
#define HEARTH_BASE_MEMORY_FACTS_H

#include "base/err.h"

#include <stdint.h>

#define MEMORY_UNLIMITED UINT64_MAX

struct memory_facts {
	uint64_t total_bytes;
	uint64_t available_bytes; // the kernel's guess of what programs can still take without swapping
	uint64_t swap_total_bytes, swap_free_bytes;
	uint64_t group_limit_bytes; // the tightest of this process's control groups; MEMORY_UNLIMITED: none is set
	uint64_t group_used_bytes;  // taken in that group, page cache included
	uint64_t memlock_bytes;     // what mlock may lock (RLIMIT_MEMLOCK, soft); MEMORY_UNLIMITED
	int32_t pressure;           // hundredths of a per cent of the last 10 s in which somebody waited for memory; -1: the kernel does not tell
};

// memory_facts_read: ERR_NOT_FOUND without /proc/meminfo; what else is missing has the value that stands for it.
MUST_USE enum err memory_facts_read(const char *root, struct memory_facts *out);
// memory_facts_room returns what this process can take: what is available, and what its control group leaves.
uint64_t memory_facts_room(const struct memory_facts *m);

#endif
