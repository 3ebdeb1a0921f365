#include "base/sys_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES_MAX 4096 // looked at in one directory

static bool join(const char *root, const char *path, char full[SYS_PATH_CAP])
{
	int n = snprintf(full, SYS_PATH_CAP, "%s%s", root, path);
	return n > 0 && n < SYS_PATH_CAP;
}

static int open_regular(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
		close(fd);
		return -1;
	}
	return fd;
}

enum err sys_file_read(const char *root, const char *path, char *out, size_t cap, size_t *len)
{
	char full[SYS_PATH_CAP];
	size_t n = 0;
	out[0] = '\0';
	if (len != NULL)
		*len = 0;
	int fd = join(root, path, full) ? open_regular(full) : -1;
	if (fd < 0)
		return ERR_NOT_FOUND;
	ssize_t got = 0;
	while (n < cap - 1 && ((got = read(fd, out + n, cap - 1 - n)) > 0 || (got < 0 && errno == EINTR)))
		n += got > 0 ? (size_t)got : 0;
	close(fd);
	out[n] = '\0';
	for (char *nul = out; n > 0 && (nul = memchr(nul, '\0', n - (size_t)(nul - out))) != NULL;)
		*nul = '?';
	if (len != NULL)
		*len = n;
	return got < 0 && n == 0 ? ERR_NOT_FOUND : OK; // some files of /sys open and cannot be read
}

bool sys_file_word(const char *root, const char *path, char *out, size_t cap)
{
	char text[256];
	enum err e = sys_file_read(root, path, text, sizeof text, NULL);
	const char *word = text + strspn(text, " \t\n");
	size_t n = strcspn(word, " \t\n");
	n = n < cap ? n : cap - 1;
	memcpy(out, word, n);
	out[n] = '\0';
	return e == OK && n > 0;
}

bool sys_file_u64(const char *root, const char *path, uint64_t *out)
{
	char text[64];
	*out = 0;
	return sys_file_read(root, path, text, sizeof text, NULL) == OK && sys_text_u64(text, out, NULL);
}

bool sys_file_exists(const char *root, const char *path)
{
	char full[SYS_PATH_CAP];
	return join(root, path, full) && access(full, F_OK) == 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

size_t sys_file_list(const char *root, const char *path, char (*names)[SYS_NAME_CAP], size_t cap)
{
	char full[SYS_PATH_CAP];
	size_t n = 0;
	DIR *dir = join(root, path, full) ? opendir(full) : NULL;
	if (dir == NULL)
		return 0;
	const struct dirent *d;
	for (int seen = 0; seen < ENTRIES_MAX && n < cap && (d = readdir(dir)) != NULL; seen++)
		if (d->d_name[0] != '.' && strlen(d->d_name) < SYS_NAME_CAP)
			memcpy(names[n++], d->d_name, strlen(d->d_name) + 1);
	closedir(dir);
	if (n > 0)
		qsort(names, n, SYS_NAME_CAP, by_name);
	return n;
}

bool sys_text_u64(const char *at, uint64_t *out, const char **end)
{
	uint64_t v = 0;
	at += strspn(at, " \t");
	const char *first = at;
	bool fits = true;
	for (; *at >= '0' && *at <= '9'; at++)
		fits = fits && !__builtin_mul_overflow(v, UINT64_C(10), &v) && !__builtin_add_overflow(v, (uint64_t)(*at - '0'), &v);
	if (end != NULL)
		*end = at;
	bool is_number = at > first && fits;
	*out = is_number ? v : 0;
	return is_number;
}

const char *sys_text_find(const char *text, const char *key)
{
	size_t n = strlen(key);
	for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (strncmp(line, key, n) == 0)
			return line + n;
	return NULL;
}

int32_t sys_text_pressure(const char *text)
{
	uint64_t whole, part = 0;
	const char *at = sys_text_find(text, "some avg10=");
	if (at == NULL || !sys_text_u64(at, &whole, &at) || whole > 100)
		return -1;
	if (at[0] == '.' && at[1] >= '0' && at[1] <= '9' && at[2] >= '0' && at[2] <= '9')
		part = (uint64_t)(at[1] - '0') * 10 + (uint64_t)(at[2] - '0');
	return (int32_t)(whole * 100 + part);
}
