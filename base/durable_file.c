#include "base/durable_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_CAP 1100

static enum err io_fail(struct errmsg *em, const char *path)
{
	return errmsg_fail(em, ERR_IO, "%s: %s", path, strerror(errno));
}

static bool write_all(int fd, const uint8_t *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

static enum err sync_directory(const char *path, struct errmsg *em)
{
	char dir[PATH_CAP];
	snprintf(dir, sizeof dir, "%s", path);
	char *slash = strrchr(dir, '/');
	if (slash == NULL)
		snprintf(dir, sizeof dir, ".");
	else
		slash[slash == dir] = '\0';
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return io_fail(em, dir);
	enum err e = fsync(fd) == 0 ? OK : io_fail(em, dir);
	close(fd);
	return e;
}

enum err durable_file_publish(const char *temp, const char *path, struct errmsg *em)
{
	return rename(temp, path) == 0 ? sync_directory(path, em) : io_fail(em, path);
}

enum err durable_file_write(const char *path, const void *data, size_t len, struct errmsg *em)
{
	char temp[PATH_CAP];
	if (snprintf(temp, sizeof temp, "%s.new", path) >= (int)sizeof temp)
		return errmsg_fail(em, ERR_LIMIT, "%s: the name is too long", path);
	if (unlink(temp) != 0 && errno != ENOENT) // what a crash left
		return io_fail(em, temp);
	int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return io_fail(em, temp);
	bool ok = write_all(fd, data, len) && fsync(fd) == 0;
	enum err e = ok ? OK : io_fail(em, temp);
	if (close(fd) != 0 && e == OK)
		e = io_fail(em, temp);
	if (e == OK)
		e = durable_file_publish(temp, path, em);
	if (e != OK)
		unlink(temp);
	return e;
}

static enum err check_private(int fd, const char *path, struct errmsg *em)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return io_fail(em, path);
	if (!S_ISREG(st.st_mode))
		return errmsg_fail(em, ERR_FORMAT, "%s: not a regular file", path);
	if (st.st_uid != geteuid())
		return errmsg_fail(em, ERR_AUTH, "%s: belongs to user %u (want %u)", path, st.st_uid, geteuid());
	if ((st.st_mode & 0177) != 0)
		return errmsg_fail(em, ERR_AUTH, "%s: mode %04o lets others at its secrets (want 0600)", path, st.st_mode & 07777);
	return OK;
}

enum err durable_file_open(const char *path, int *fd, struct errmsg *em)
{
	*fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0)
		return errmsg_fail(em, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(errno));
	enum err e = check_private(*fd, path, em);
	if (e != OK) {
		close(*fd);
		*fd = -1;
	}
	return e;
}

static enum err read_all(int fd, const char *path, uint8_t *data, size_t cap, size_t *len, struct errmsg *em)
{
	for (;;) {
		uint8_t more;
		ssize_t n = *len < cap ? read(fd, data + *len, cap - *len) : read(fd, &more, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return io_fail(em, path);
		if (n == 0)
			return OK;
		if (*len == cap)
			return errmsg_fail(em, ERR_LIMIT, "%s: longer than %zu bytes", path, cap);
		*len += (size_t)n;
	}
}

enum err durable_file_read(const char *path, void *data, size_t cap, size_t *len, struct errmsg *em)
{
	int fd;
	*len = 0;
	enum err e = durable_file_open(path, &fd, em);
	if (e != OK)
		return e;
	e = read_all(fd, path, data, cap, len, em);
	close(fd);
	return e;
}

static enum err load(int fd, const char *path, size_t max, uint8_t **data, size_t *len, struct errmsg *em)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return io_fail(em, path);
	if (st.st_size < 0 || (uintmax_t)st.st_size > max)
		return errmsg_fail(em, ERR_LIMIT, "%s: longer than %zu bytes", path, max);
	*data = malloc((size_t)st.st_size + 1);
	if (*data == NULL)
		return errmsg_fail(em, ERR_NOMEM, "%s: no memory for its %zu bytes", path, (size_t)st.st_size);
	return read_all(fd, path, *data, (size_t)st.st_size, len, em);
}

enum err durable_file_load(const char *path, size_t max, uint8_t **data, size_t *len, struct errmsg *em)
{
	int fd;
	*data = NULL;
	*len = 0;
	enum err e = durable_file_open(path, &fd, em);
	if (e != OK)
		return e;
	e = load(fd, path, max, data, len, em);
	close(fd);
	if (e != OK && *data != NULL) {
		explicit_bzero(*data, *len);
		free(*data);
		*data = NULL;
		*len = 0;
	}
	return e;
}
