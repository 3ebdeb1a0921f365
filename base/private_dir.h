// Directories of one user: made with mode 0700, parents too, as the XDG specification wants, and refused when another owns them or may enter.
// Any thread.
#ifndef HEARTH_BASE_PRIVATE_DIR_H
#define HEARTH_BASE_PRIVATE_DIR_H

#include "base/err.h"

// private_dir_open makes the directory where it is missing and opens it; *fd is to be closed. ERR_AUTH: another user's, or open to others; ERR_IO.
MUST_USE enum err private_dir_open(const char *path, int *fd, struct errmsg *em);

#endif
