#include "cli/cache_dir.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static enum err write_path(char path[BLOCK_CACHE_PATH_CAP], const char *head, const char *tail, struct errmsg *em)
{
	int n = snprintf(path, BLOCK_CACHE_PATH_CAP, "%s%s", head, tail);
	if (n >= BLOCK_CACHE_PATH_CAP)
		return errmsg_fail(em, ERR_LIMIT, "cache: path of %d bytes, want at most %d", n, BLOCK_CACHE_PATH_CAP - 1);
	return OK;
}

enum err cache_dir_resolve(const char *flag, char path[BLOCK_CACHE_PATH_CAP], struct errmsg *em)
{
	if (flag)
		return write_path(path, flag, "", em);
	// The XDG specification says that a relative path is invalid and is to be ignored.
	const char *xdg = getenv("XDG_CACHE_HOME");
	if (xdg && xdg[0] == '/')
		return write_path(path, xdg, "/hearth", em);
	const char *home = getenv("HOME");
	if (home && home[0] == '/')
		return write_path(path, home, "/.cache/hearth", em);
	const struct passwd *user = getpwuid(geteuid());
	if (user && user->pw_dir && user->pw_dir[0] == '/')
		return write_path(path, user->pw_dir, "/.cache/hearth", em);
	return errmsg_fail(em, ERR_NOT_FOUND, "no home directory found for the cache, give one with --cache DIR");
}

enum err cache_dir_open(const struct options *o, struct block_cache *c, struct errmsg *em)
{
	char path[BLOCK_CACHE_PATH_CAP];
	enum err e = cache_dir_resolve(o->cache, path, em);
	return e == OK ? block_cache_open(path, o->cache_max, c, em) : e;
}
