#include "cli/state_dir.h"

#include "base/private_dir.h"
#include "cli/home_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define LOCK_NAME "lock"

enum err state_dir_resolve(const char *flag, char path[STATE_PATH_CAP], struct errmsg *em)
{
	static const struct home_dir_kind kind = {"state directory", "--state", "XDG_STATE_HOME", "/.local/state/hearth"};
	return home_dir_resolve(&kind, flag, path, STATE_PATH_CAP, em);
}

enum err state_dir_open(const char *flag, struct state_dir *sd, struct errmsg *em)
{
	*sd = STATE_DIR_CLOSED;
	enum err e = state_dir_resolve(flag, sd->path, em);
	return e == OK ? private_dir_open(sd->path, &sd->fd, em) : e;
}

#define WAY_OUT ": stop that one, or give this one a directory of its own with --state"

static enum err refuse_locked(const struct state_dir *sd, int fd, struct errmsg *em)
{
	char text[24] = "";
	ssize_t n = pread(fd, text, sizeof text - 1, 0);
	long pid = n > 0 ? strtol(text, NULL, 10) : 0;
	if (pid > 0)
		return errmsg_fail(em, ERR_BUSY, "%s: already in use by process %ld" WAY_OUT, sd->path, pid);
	return errmsg_fail(em, ERR_BUSY, "%s: already in use by another process" WAY_OUT, sd->path);
}

static enum err write_pid(const struct state_dir *sd, int fd, struct errmsg *em)
{
	char text[24];
	int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
		return errmsg_fail(em, ERR_IO, "%s/%s: %s", sd->path, LOCK_NAME, strerror(errno));
	return OK;
}

enum err state_dir_lock(struct state_dir *sd, struct errmsg *em)
{
	int fd = openat(sd->fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return errmsg_fail(em, ERR_IO, "%s/%s: %s", sd->path, LOCK_NAME, strerror(errno));
	enum err e = OK;
	if (flock(fd, LOCK_EX | LOCK_NB) != 0)
		e = errno == EWOULDBLOCK ? refuse_locked(sd, fd, em)
					 : errmsg_fail(em, ERR_IO, "%s/%s: cannot lock: %s", sd->path, LOCK_NAME, strerror(errno));
	if (e == OK)
		e = write_pid(sd, fd, em);
	if (e != OK) {
		close(fd);
		return e;
	}
	sd->lock_fd = fd;
	return OK;
}

void state_dir_close(struct state_dir *sd)
{
	// The lock file stays: removing it would let two programs lock two files of one name.
	if (sd->lock_fd >= 0)
		close(sd->lock_fd);
	if (sd->fd >= 0)
		close(sd->fd);
	sd->fd = sd->lock_fd = -1;
}

enum err state_dir_path(const struct state_dir *sd, const char *name, char *path, size_t cap, struct errmsg *em)
{
	int n = snprintf(path, cap, "%s/%s", sd->path, name);
	if ((size_t)n >= cap)
		return errmsg_fail(em, ERR_LIMIT, "%s/%s: path of %d bytes, want at most %zu; choose a shorter --state", sd->path, name, n,
			cap - 1);
	return OK;
}
