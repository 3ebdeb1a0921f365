#include "blocks/shell/block_cache.h"

#include "base/private_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define HEX_LEN ((size_t)2 * BLOCK_HASH_BYTES)
#define RESERVE_MAX (UINT64_C(256) << 20) // of the disk, for everybody else: a full disk stops more than a model
#define RESERVE_PART 50                   // or a fiftieth of a small one

static enum err io_fail(struct errmsg *em, const char *path)
{
	return errmsg_fail(em, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(errno));
}

enum err block_cache_open(const char *path, uint64_t bytes_max, struct block_cache *c, struct errmsg *em)
{
	*c = (struct block_cache){.bytes_max = bytes_max};
	if (strlen(path) >= sizeof c->path)
		return errmsg_fail(em, ERR_LIMIT, "cache: a path of %zu bytes, want at most %zu", strlen(path), sizeof c->path - 1);
	memcpy(c->path, path, strlen(path) + 1);
	int fd;
	enum err e = private_dir_open(path, &fd, em);
	if (e == OK)
		close(fd);
	return e;
}

enum err block_cache_lock(const struct block_cache *c, int *fd, struct errmsg *em)
{
	char path[BLOCK_CACHE_FILE_CAP];
	snprintf(path, sizeof path, "%s/lock", c->path);
	*fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (*fd < 0)
		return io_fail(em, path);
	int rc;
	do
		rc = flock(*fd, LOCK_EX);
	while (rc != 0 && errno == EINTR);
	if (rc == 0)
		return OK;
	enum err e = io_fail(em, path);
	close(*fd);
	return e;
}

void block_cache_file(const struct block_cache *c, const uint8_t manifest_hash[BLOCK_HASH_BYTES], const char *name, char path[BLOCK_CACHE_FILE_CAP])
{
	char hex[HEX_LEN + 1];
	sodium_bin2hex(hex, sizeof hex, manifest_hash, BLOCK_HASH_BYTES);
	snprintf(path, BLOCK_CACHE_FILE_CAP, "%s/%s%s%s", c->path, hex, name[0] ? "/" : "", name);
}

// ---- looking

static bool read_name(const char *name, uint8_t hash[BLOCK_HASH_BYTES])
{
	size_t n = 0;
	return strlen(name) == HEX_LEN && sodium_hex2bin(hash, BLOCK_HASH_BYTES, name, HEX_LEN, NULL, &n, NULL) == 0 && n == BLOCK_HASH_BYTES;
}

// is_used tells whether a process holds the model's lock: the attempt to take it alone fails. Under the cache's lock nobody takes it meanwhile.
static bool is_used(const char *lock_path)
{
	int fd = open(lock_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	bool used = flock(fd, LOCK_EX | LOCK_NB) != 0;
	close(fd);
	return used;
}

static void look_at(const struct block_cache *c, struct block_cache_model *m)
{
	static const char *const files[] = {"weights", "manifest"};
	char path[BLOCK_CACHE_FILE_CAP];
	struct stat st;
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		block_cache_file(c, m->manifest_hash, files[i], path);
		if (lstat(path, &st) == 0)
			m->bytes += (uint64_t)st.st_blocks * 512;
	}
	block_cache_file(c, m->manifest_hash, "lock", path);
	if (lstat(path, &st) == 0)
		m->used_s = st.st_mtim.tv_sec;
	m->is_in_use = is_used(path);
}

static int by_use(const void *a, const void *b)
{
	const struct block_cache_model *x = a, *y = b;
	return x->used_s != y->used_s ? (x->used_s > y->used_s ? 1 : -1) : memcmp(x->manifest_hash, y->manifest_hash, BLOCK_HASH_BYTES);
}

enum err block_cache_list(const struct block_cache *c, struct block_cache_model *models, size_t cap, size_t *n, struct errmsg *em)
{
	*n = 0;
	DIR *d = opendir(c->path);
	if (d == NULL)
		return io_fail(em, c->path);
	for (struct dirent *entry = readdir(d); entry != NULL && *n < cap; entry = readdir(d)) {
		struct block_cache_model m = {0};
		if (!read_name(entry->d_name, m.manifest_hash))
			continue; // none of ours
		look_at(c, &m);
		models[(*n)++] = m;
	}
	closedir(d);
	qsort(models, *n, sizeof *models, by_use);
	return OK;
}

// ---- room

enum err block_cache_remove(const struct block_cache *c, const uint8_t manifest_hash[BLOCK_HASH_BYTES], struct errmsg *em)
{
	static const char *const files[] = {"weights", "manifest", "manifest.new", "lock"};
	char path[BLOCK_CACHE_FILE_CAP];
	block_cache_file(c, manifest_hash, "lock", path);
	if (is_used(path))
		return errmsg_fail(em, ERR_BUSY, "%s: in use", path);
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		block_cache_file(c, manifest_hash, files[i], path);
		if (unlink(path) != 0 && errno != ENOENT)
			return io_fail(em, path);
	}
	block_cache_file(c, manifest_hash, "", path);
	return rmdir(path) == 0 || errno == ENOENT ? OK : io_fail(em, path);
}

static enum err disk_room(const struct block_cache *c, uint64_t *room, struct errmsg *em)
{
	struct statvfs st;
	if (statvfs(c->path, &st) != 0)
		return io_fail(em, c->path);
	uint64_t unit = st.f_frsize, part = (uint64_t)st.f_blocks * unit / RESERVE_PART, left = (uint64_t)st.f_bavail * unit;
	uint64_t reserve = part < RESERVE_MAX ? part : RESERVE_MAX;
	*room = left > reserve ? left - reserve : 0;
	return OK;
}

enum err block_cache_missing(const struct block_cache *c, uint64_t bytes, uint64_t *missing, struct errmsg *em)
{
	uint64_t room = 0, used = 0;
	*missing = 0;
	enum err e = disk_room(c, &room, em);
	if (e != OK)
		return e;
	if (bytes > room)
		*missing = bytes - room;
	if (c->bytes_max == 0)
		return OK;
	size_t n;
	struct block_cache_model *models = calloc(BLOCK_CACHE_MODELS_MAX, sizeof *models);
	if (models == NULL)
		return errmsg_fail(em, ERR_NOMEM, "%s: no memory to look at the cache", c->path);
	e = block_cache_list(c, models, BLOCK_CACHE_MODELS_MAX, &n, em);
	for (size_t i = 0; e == OK && i < n; i++)
		used += models[i].bytes;
	free(models);
	uint64_t want = used + bytes;
	if (e == OK && want > c->bytes_max && want - c->bytes_max > *missing)
		*missing = want - c->bytes_max;
	return e;
}
