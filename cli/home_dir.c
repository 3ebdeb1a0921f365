#include "cli/home_dir.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum err home_dir_resolve(const struct home_dir_kind *k, const char *flag, char *path, size_t cap, struct errmsg *em)
{
	// The XDG specification says that a relative path is invalid and is to be ignored.
	const char *xdg = getenv(k->xdg_name), *home = getenv("HOME"), *head = flag, *tail = "";
	if (head == NULL && xdg && xdg[0] == '/') {
		head = xdg;
		tail = "/hearth";
	}
	if (head == NULL) {
		const struct passwd *user = home && home[0] == '/' ? NULL : getpwuid(geteuid());
		head = user ? user->pw_dir : home;
		tail = k->below_home;
		if (head == NULL || head[0] != '/')
			return errmsg_fail(em, ERR_NOT_FOUND, "no home directory found for the %s, give one with %s DIR", k->what, k->flag_name);
	}
	int n = snprintf(path, cap, "%s%s", head, tail);
	if (n < 0 || (size_t)n >= cap)
		return errmsg_fail(em, ERR_LIMIT, "%s: path of %d bytes, want at most %zu", k->what, n, cap - 1);
	return OK;
}
