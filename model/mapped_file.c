#include "model/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t mtime_ns(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static enum err map_fd(int fd, struct mapped_file *f, struct errmsg *em)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return errmsg_fail(em, ERR_IO, "cannot stat: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return errmsg_fail(em, ERR_FORMAT, "is %s, wanted a regular file", S_ISDIR(st.st_mode) ? "a folder" : "a special file");
	if (st.st_size == 0)
		return errmsg_fail(em, ERR_FORMAT, "is empty");
	void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return errmsg_fail(em, ERR_IO, "cannot map %jd bytes: %s", (intmax_t)st.st_size, strerror(errno));
	*f = (struct mapped_file){map, (size_t)st.st_size, fd, mtime_ns(&st)};
	return OK;
}

enum err mapped_file_open(const char *path, struct mapped_file *f, struct errmsg *em)
{
	*f = (struct mapped_file){0};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe must not make us wait for its writer
	if (fd < 0)
		return errmsg_fail(em, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "cannot open: %s", strerror(errno));
	enum err e = map_fd(fd, f, em);
	if (e != OK)
		close(fd);
	return e;
}

void mapped_file_close(struct mapped_file *f)
{
	if (f->data != NULL) {
		munmap((void *)(uintptr_t)f->data, f->bytes);
		close(f->fd);
	}
	*f = (struct mapped_file){0};
}

enum err mapped_file_check_unchanged(const struct mapped_file *f, struct errmsg *em)
{
	struct stat now;
	if (fstat(f->fd, &now) != 0)
		return errmsg_fail(em, ERR_IO, "cannot stat: %s", strerror(errno));
	if ((uintmax_t)now.st_size != f->bytes)
		return errmsg_fail(em, ERR_STATE, "has %jd bytes, had %zu when it was opened", (intmax_t)now.st_size, f->bytes);
	if (f->mtime_ns != MAPPED_FILE_ANY_TIME && mtime_ns(&now) != f->mtime_ns)
		return errmsg_fail(em, ERR_STATE, "was written to since it was opened");
	return OK;
}
