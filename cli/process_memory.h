// What this process takes now, as the kernel counts it: /proc/self/status.
#ifndef HEARTH_CLI_PROCESS_MEMORY_H
#define HEARTH_CLI_PROCESS_MEMORY_H

#include "base/err.h"

#include <stdint.h>

struct process_memory {
	uint64_t anon_bytes;    // resident memory that is no file's
	uint64_t file_bytes;    // resident pages of files: the program, its libraries, what is mapped
	uint64_t highest_bytes; // the most that was ever resident (VmHWM)
};

// process_memory_read: ERR_IO without /proc.
MUST_USE enum err process_memory_read(struct process_memory *out, struct errmsg *em);

#endif
