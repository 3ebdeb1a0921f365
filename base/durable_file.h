// Small files that must survive a crash whole: written under another name, fsynced, renamed, the directory fsynced. Mode 0600 from the first
// byte: most of them hold secrets. Any thread, but one writer of a path at a time (a state directory's lock sees to that).
#ifndef HEARTH_BASE_DURABLE_FILE_H
#define HEARTH_BASE_DURABLE_FILE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

// durable_file_write replaces `path`. Afterwards it holds either all of the old content or all of the new, whatever happens.
MUST_USE enum err durable_file_write(const char *path, const void *data, size_t len, struct errmsg *em);
// durable_file_publish gives a complete file, itself on disk already, its name for good.
MUST_USE enum err durable_file_publish(const char *temp, const char *path, struct errmsg *em);

// durable_file_open opens a private file to read. ERR_NOT_FOUND; ERR_AUTH: of another user, or others may read it; ERR_FORMAT: not a
// regular file; ERR_IO, for a symbolic link too. Never waits (a fifo).
MUST_USE enum err durable_file_open(const char *path, int *fd, struct errmsg *em);
// durable_file_read reads a private file of at most cap bytes: errors as in durable_file_open; ERR_LIMIT when it is longer.
MUST_USE enum err durable_file_read(const char *path, void *data, size_t cap, size_t *len, struct errmsg *em);
// durable_file_load reads one of at most `max` bytes into memory of its own size, the caller's to free; NULL after an error: those of
// durable_file_read, and ERR_NOMEM.
MUST_USE enum err durable_file_load(const char *path, size_t max, uint8_t **data, size_t *len, struct errmsg *em);

#endif
