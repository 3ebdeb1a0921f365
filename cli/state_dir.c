#include "cli/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NAME "lock"

static enum err write_path(char path[STATE_PATH_CAP], const char *head, const char *tail, struct errmsg *em)
{
	int n = snprintf(path, STATE_PATH_CAP, "%s%s", head, tail);
	if (n >= STATE_PATH_CAP)
		return errmsg_fail(em, ERR_LIMIT, "state directory: path of %d bytes, want at most %d", n, STATE_PATH_CAP - 1);
	return OK;
}

enum err state_dir_resolve(const char *flag, char path[STATE_PATH_CAP], struct errmsg *em)
{
	if (flag)
		return write_path(path, flag, "", em);
	// The XDG specification says that a relative path is invalid and is to be ignored.
	const char *xdg = getenv("XDG_STATE_HOME");
	if (xdg && xdg[0] == '/')
		return write_path(path, xdg, "/hearth", em);
	const char *home = getenv("HOME");
	if (home && home[0] == '/')
		return write_path(path, home, "/.local/state/hearth", em);
	const struct passwd *user = getpwuid(geteuid());
	if (user && user->pw_dir && user->pw_dir[0] == '/')
		return write_path(path, user->pw_dir, "/.local/state/hearth", em);
	return errmsg_fail(em, ERR_NOT_FOUND, "no home directory found for the state directory, give one with --state DIR");
}

// make_dirs makes the directory and its missing parents, all 0700 as the XDG specification wants.
static enum err make_dirs(const char *path, struct errmsg *em)
{
	char part[STATE_PATH_CAP];
	size_t len = strlen(path);
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

static enum err check_private(const struct state_dir *sd, struct errmsg *em)
{
	struct stat st;
	if (fstat(sd->fd, &st) != 0)
		return errmsg_fail(em, ERR_IO, "%s: %s", sd->path, strerror(errno));
	if (st.st_uid != geteuid())
		return errmsg_fail(em, ERR_AUTH, "%s: belongs to user %u, want user %u, who runs this program", sd->path,
			(unsigned)st.st_uid, (unsigned)geteuid());
	if ((st.st_mode & 077) != 0)
		return errmsg_fail(em, ERR_AUTH, "%s: mode %04o lets other users in, want 0700 (chmod 700 makes it so)", sd->path,
			(unsigned)st.st_mode & 07777u);
	return OK;
}

enum err state_dir_open(const char *flag, struct state_dir *sd, struct errmsg *em)
{
	*sd = STATE_DIR_CLOSED;
	enum err e = state_dir_resolve(flag, sd->path, em);
	if (e == OK)
		e = make_dirs(sd->path, em);
	if (e != OK)
		return e;
	sd->fd = open(sd->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (sd->fd < 0)
		return errmsg_fail(em, ERR_IO, "%s: cannot open the directory: %s", sd->path, strerror(errno));
	e = check_private(sd, em);
	if (e != OK)
		state_dir_close(sd);
	return e;
}

static enum err refuse_locked(const struct state_dir *sd, int fd, struct errmsg *em)
{
	char text[24] = "";
	ssize_t n = pread(fd, text, sizeof text - 1, 0);
	long pid = n > 0 ? strtol(text, NULL, 10) : 0;
	if (pid > 0)
		return errmsg_fail(em, ERR_BUSY, "%s: already in use by process %ld", sd->path, pid);
	return errmsg_fail(em, ERR_BUSY, "%s: already in use by another process", sd->path);
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
