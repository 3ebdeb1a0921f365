#include "base/private_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum err make_dirs(const char *path, struct errmsg *em)
{
	char part[PATH_MAX];
	size_t len = strlen(path);
	if (len >= sizeof part)
		return errmsg_fail(em, ERR_IO, "%s: %s", path, strerror(ENAMETOOLONG));
	for (size_t n = 1; n <= len; n++) {
		if (path[n] != '/' && path[n] != '\0')
			continue;
		memcpy(part, path, n);
		part[n] = '\0';
		if (mkdir(part, 0700) != 0 && errno != EEXIST)
			return errmsg_fail(em, ERR_IO, "%s: cannot make the directory: %s", part, strerror(errno));
	}
	return OK;
}

static enum err check(const char *path, int fd, struct errmsg *em)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return errmsg_fail(em, ERR_IO, "%s: %s", path, strerror(errno));
	if (st.st_uid != geteuid())
		return errmsg_fail(em, ERR_AUTH, "%s: belongs to user %u, want user %u, who runs this program", path, (unsigned)st.st_uid, (unsigned)geteuid());
	if ((st.st_mode & 077) != 0)
		return errmsg_fail(em, ERR_AUTH, "%s: mode %04o lets other users in, want 0700 (chmod 700 makes it so)", path, (unsigned)st.st_mode & 07777u);
	return OK;
}

enum err private_dir_open(const char *path, int *fd, struct errmsg *em)
{
	*fd = -1;
	enum err e = make_dirs(path, em);
	if (e != OK)
		return e;
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return errmsg_fail(em, ERR_IO, "%s: cannot open the directory: %s", path, strerror(errno));
	e = check(path, dir, em);
	if (e != OK)
		close(dir);
	else
		*fd = dir;
	return e;
}
