// Where a kind of files lies by default: a flag, else the XDG specification's variable, else below the home directory.
#ifndef HEARTH_CLI_HOME_DIR_H
#define HEARTH_CLI_HOME_DIR_H

#include "base/err.h"

#include <stddef.h>

struct home_dir_kind {
	const char *what; // "cache", for messages
	const char *flag_name; // "--cache"
	const char *xdg_name;  // "XDG_CACHE_HOME"
	const char *below_home; // "/.cache/hearth"
};

// home_dir_resolve writes the directory's path without touching it. `flag` is the flag's value or NULL.
MUST_USE enum err home_dir_resolve(const struct home_dir_kind *k, const char *flag, char *path, size_t cap, struct errmsg *em);

#endif
