#include "cli/cache_dir.h"

#include "cli/home_dir.h"

enum err cache_dir_open(const struct options *o, struct block_cache *c, struct errmsg *em)
{
	static const struct home_dir_kind kind = {"cache", "--cache", "XDG_CACHE_HOME", "/.cache/hearth"};
	char path[BLOCK_CACHE_PATH_CAP];
	enum err e = home_dir_resolve(&kind, o->cache, path, sizeof path, em);
	return e == OK ? block_cache_open(path, o->cache_max, c, em) : e;
}
