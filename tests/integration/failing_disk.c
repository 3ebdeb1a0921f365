// A disk that fails on command, for test_weights_lost.py: preloaded, it lets reads of a file whose name ends in FAILING_DISK_NAME fail with EIO while
// the file FAILING_DISK_WHEN is there. Populating a mapping fails too, as the kernel's own reading would.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

static bool fails(void)
{
	const char *when = getenv("FAILING_DISK_WHEN");
	return when != NULL && access(when, F_OK) == 0;
}

static bool is_on_it(int fd)
{
	char link[64], path[4096];
	const char *name = getenv("FAILING_DISK_NAME");
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof path);
	size_t len = name != NULL ? strlen(name) : 0;
	return len > 0 && n >= (ssize_t)len && memcmp(path + n - len, name, len) == 0;
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
	ssize_t (*next)(int, void *, size_t, off_t) = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
	if (!fails() || !is_on_it(fd))
		return next(fd, to, n, at);
	errno = EIO;
	return -1;
}

ssize_t pread64(int fd, void *to, size_t n, off_t at)
{
	return pread(fd, to, n, at);
}

int madvise(void *at, size_t n, int advice)
{
	int (*next)(void *, size_t, int) = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
	if (advice != MADV_POPULATE_READ || !fails())
		return next(at, n, advice);
	errno = EFAULT; // what the kernel says of a page that it could not read
	return -1;
}
