// Small files that must survive a crash whole: written under another name, fsynced, renamed, the directory fsynced. Mode 0600 from the first
// byte: most of them hold secrets. Any thread.
#ifndef HEARTH_BASE_DURABLE_FILE_H
#define HEARTH_BASE_DURABLE_FILE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

// durable_file_write replaces `path`. Afterwards it holds either all of the old content or all of the new, whatever happens.
MUST_USE enum err durable_file_write(const char *path, const void *data, size_t len, struct errmsg *em);
// durable_file_read reads a file of at most cap bytes. ERR_NOT_FOUND; ERR_AUTH when others may read it or it is not a plain file of ours;
// ERR_LIMIT when it is longer.
MUST_USE enum err durable_file_read(const char *path, void *data, size_t cap, size_t *len, struct errmsg *em);

#endif
