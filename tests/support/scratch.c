#include "tests/support/scratch.h"

#include "base/assert.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DESCRIPTORS 8 // of nftw(): deeper directories are opened again

bool scratch_open(char dir[SCRATCH_CAP])
{
	snprintf(dir, SCRATCH_CAP, "/tmp/hearth-test-XXXXXX");
	return mkdtemp(dir) != NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

int scratch_remove(const char *dir)
{
	return nftw(dir, remove_one, DESCRIPTORS, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : -1;
}

void scratch_write(const char *path, const void *data, size_t len)
{
	unlink(path);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ASSERT(fd >= 0);
	ssize_t n = write(fd, data, len);
	ASSERT(n == (ssize_t)len);
	close(fd);
}

uint8_t *scratch_read(const char *path, size_t *len)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT(fd >= 0);
	int rc = fstat(fd, &st);
	ASSERT(rc == 0);
	*len = (size_t)st.st_size;
	uint8_t *data = malloc(*len + 1);
	ASSERT(data != NULL);
	ssize_t n = read(fd, data, *len);
	ASSERT(n == st.st_size);
	close(fd);
	return data;
}
