// A file mapped read-only, and whether it is still the file that was mapped.
//
// The mapping is shared with the page cache. A file that somebody makes shorter while it is mapped kills the process (SIGBUS)
// when a lost page is touched, and one written in place changes what is read: mapped_file_check_unchanged tells, and is meant to be
// asked before work begins (it costs one fstat, under a microsecond); for what changes after that, cli/bus_guard names the file on the way
// out. A file replaced by rename is harmless: the mapping keeps the old one.
#ifndef HEARTH_MODEL_MAPPED_FILE_H
#define HEARTH_MODEL_MAPPED_FILE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define MAPPED_FILE_ANY_TIME INT64_MIN // of mtime_ns: not compared

struct mapped_file {
	const void *data; // (bytes), NULL when nothing is mapped
	size_t bytes;
	int fd;           // stays open, for whoever checks or advises the kernel
	int64_t mtime_ns; // when it was opened
};

// mapped_file_open maps a regular file that is not empty: ERR_NOT_FOUND, ERR_IO, or ERR_FORMAT when it is something else. The message does not
// name the file. On failure the caller owes nothing.
MUST_USE enum err mapped_file_open(const char *path, struct mapped_file *f, struct errmsg *em);
void mapped_file_close(struct mapped_file *f); // safe on a zeroed struct and after a failed open
// mapped_file_check_unchanged compares size and time of change with those at open; ERR_STATE names the difference.
MUST_USE enum err mapped_file_check_unchanged(const struct mapped_file *f, struct errmsg *em);

#endif
