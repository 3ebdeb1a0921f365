// Where the cache of model blocks is: --cache, else $XDG_CACHE_HOME/hearth, else ~/.cache/hearth.
#ifndef HEARTH_CLI_CACHE_DIR_H
#define HEARTH_CLI_CACHE_DIR_H

#include "base/err.h"
#include "blocks/shell/block_cache.h"
#include "cli/options.h"

// cache_dir_open opens it as the options say, and makes it where it is missing.
MUST_USE enum err cache_dir_open(const struct options *o, struct block_cache *c, struct errmsg *em);

#endif
