#include "blocks/shell/block_store.h"

#include "base/assert.h"
#include "base/durable_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct block_store {
	const struct block_cache *cache;
	uint8_t *bytes; // of the manifest, owned
	size_t bytes_len;
	struct manifest manifest;
	int fd, lock_fd;
	char path[BLOCK_CACHE_FILE_CAP];
};

static enum err io_fail(struct errmsg *em, const char *path)
{
	return errmsg_fail(em, errno == ENOSPC || errno == EDQUOT ? ERR_LIMIT : ERR_IO, "%s: %s", path, strerror(errno));
}

// ---- opening

// take_lock says that this process uses the model, and when it began to. The cache's lock is held.
static enum err take_lock(struct block_store *s, bool is_use, struct errmsg *em)
{
	char path[BLOCK_CACHE_FILE_CAP];
	block_cache_file(s->cache, s->manifest.hash, "lock", path);
	s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock_fd < 0 || flock(s->lock_fd, LOCK_SH | LOCK_NB) != 0 || (is_use && futimens(s->lock_fd, NULL) != 0))
		return io_fail(em, path);
	return OK;
}

static enum err open_weights(struct block_store *s, struct errmsg *em)
{
	struct stat st;
	s->fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->fd < 0 || fstat(s->fd, &st) != 0)
		return io_fail(em, s->path);
	if (!S_ISREG(st.st_mode))
		return errmsg_fail(em, ERR_IO, "%s: not a regular file", s->path);
	// A shorter or longer one was cut by somebody; what is left of it proves itself.
	if ((uint64_t)st.st_size != s->manifest.file_bytes && ftruncate(s->fd, (off_t)s->manifest.file_bytes) != 0)
		return io_fail(em, s->path);
	return OK;
}

// has_manifest tells whether the folder holds this very manifest.
static bool has_manifest(const struct block_store *s, const char *path)
{
	uint8_t *data;
	size_t len;
	if (durable_file_load(path, MANIFEST_BYTES_MAX, &data, &len, NULL) != OK)
		return false;
	bool same = len == s->bytes_len && memcmp(data, s->bytes, len) == 0;
	free(data);
	return same;
}

static enum err open_folder(struct block_store *s, bool is_use, struct errmsg *em)
{
	char path[BLOCK_CACHE_FILE_CAP];
	block_cache_file(s->cache, s->manifest.hash, "", path);
	if (mkdir(path, 0700) != 0 && errno != EEXIST)
		return io_fail(em, path);
	enum err e = take_lock(s, is_use, em);
	block_cache_file(s->cache, s->manifest.hash, "manifest", path);
	if (e == OK && !has_manifest(s, path))
		e = durable_file_write(path, s->bytes, s->bytes_len, em);
	return e == OK ? open_weights(s, em) : e;
}

// open_bytes takes `bytes`, which is freed on failure, too.
static enum err open_bytes(const struct block_cache *c, uint8_t *bytes, size_t len, bool is_use, struct block_store **out, struct errmsg *em)
{
	int lock;
	struct block_store *s = calloc(1, sizeof *s);
	*out = NULL;
	if (s == NULL || bytes == NULL) {
		free(bytes);
		free(s);
		return errmsg_fail(em, ERR_NOMEM, "%s: no memory for a manifest of %zu bytes", c->path, len);
	}
	*s = (struct block_store){.cache = c, .bytes = bytes, .bytes_len = len, .fd = -1, .lock_fd = -1};
	enum err e = manifest_parse(bytes, len, &s->manifest, em);
	if (e == OK) {
		block_cache_file(c, s->manifest.hash, "weights", s->path);
		e = block_cache_lock(c, &lock, em);
	}
	if (e == OK) {
		e = open_folder(s, is_use, em);
		close(lock);
	}
	if (e != OK) {
		block_store_close(s);
		return e;
	}
	*out = s;
	return OK;
}

enum err block_store_open(const struct block_cache *c, const uint8_t *manifest, size_t len, struct block_store **out, struct errmsg *em)
{
	uint8_t *copy = malloc(len > 0 ? len : 1);
	if (copy != NULL && len > 0)
		memcpy(copy, manifest, len);
	return open_bytes(c, copy, len, true, out, em);
}

static enum err find(const struct block_cache *c, const uint8_t manifest_hash[BLOCK_HASH_BYTES], bool is_use, struct block_store **out, struct errmsg *em)
{
	char path[BLOCK_CACHE_FILE_CAP];
	uint8_t *bytes;
	size_t len;
	struct manifest m;
	*out = NULL;
	block_cache_file(c, manifest_hash, "manifest", path);
	enum err e = durable_file_load(path, MANIFEST_BYTES_MAX, &bytes, &len, em);
	if (e != OK)
		return e;
	e = manifest_parse(bytes, len, &m, em);
	if (e == OK && memcmp(m.hash, manifest_hash, BLOCK_HASH_BYTES) != 0)
		e = errmsg_fail(em, ERR_FORMAT, "its bytes do not match the folder's name");
	if (e != OK) {
		free(bytes);
		return errmsg_prefix(em, e, "%s", path);
	}
	return open_bytes(c, bytes, len, is_use, out, em);
}

enum err block_store_find(const struct block_cache *c, const uint8_t manifest_hash[BLOCK_HASH_BYTES], struct block_store **out, struct errmsg *em)
{
	return find(c, manifest_hash, true, out, em);
}

enum err block_store_peek(const struct block_cache *c, const uint8_t manifest_hash[BLOCK_HASH_BYTES], struct block_store **out, struct errmsg *em)
{
	return find(c, manifest_hash, false, out, em);
}

void block_store_close(struct block_store *s)
{
	if (s == NULL)
		return;
	if (s->fd >= 0)
		close(s->fd);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	free(s->bytes);
	free(s);
}

const struct manifest *block_store_manifest(const struct block_store *s)
{
	return &s->manifest;
}

const uint8_t *block_store_manifest_bytes(const struct block_store *s, size_t *len)
{
	*len = s->bytes_len;
	return s->bytes;
}

const char *block_store_path(const struct block_store *s)
{
	return s->path;
}

// ---- blocks

enum err block_store_present(const struct block_store *s, struct block_set *out, struct errmsg *em)
{
	uint64_t unit = s->manifest.block_bytes, end = s->manifest.file_bytes;
	ASSERT(out->n == s->manifest.n_blocks);
	for (uint64_t at = 0; at < end;) {
		off_t data = lseek(s->fd, (off_t)at, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			return OK; // holes to the end
		off_t hole = data < 0 ? -1 : lseek(s->fd, data, SEEK_HOLE);
		if (hole < 0)
			return io_fail(em, s->path);
		// Only blocks that are data from end to end.
		uint64_t first = ((uint64_t)data + unit - 1) / unit, last = (uint64_t)hole >= end ? s->manifest.n_blocks : (uint64_t)hole / unit;
		if (first < last)
			block_set_add_range(out, (uint32_t)first, (uint32_t)last);
		at = (uint64_t)hole > at ? (uint64_t)hole : end;
	}
	return OK;
}

enum err block_file_read(int fd, const char *path, const struct manifest *m, uint32_t block, uint8_t *buf, struct errmsg *em)
{
	uint64_t at = (uint64_t)block * m->block_bytes;
	size_t len = manifest_block_bytes(m, block), have = 0;
	while (have < len) {
		ssize_t n = pread(fd, buf + have, len - have, (off_t)(at + have));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errmsg_fail(em, ERR_IO, "%s: cannot read at byte %" PRIu64 ": %s", path, at + have, strerror(errno));
		if (n == 0)
			return errmsg_fail(em, ERR_IO, "%s: ends at byte %" PRIu64 ", has %" PRIu64, path, at + have, m->file_bytes);
		have += (size_t)n;
	}
	return OK;
}

enum err block_store_read(const struct block_store *s, uint32_t block, uint8_t *buf, struct errmsg *em)
{
	uint64_t at = (uint64_t)block * s->manifest.block_bytes;
	off_t data = lseek(s->fd, (off_t)at, SEEK_DATA);
	if (data < 0 ? errno == ENXIO : (uint64_t)data >= at + manifest_block_bytes(&s->manifest, block))
		return errmsg_fail(em, ERR_NOT_FOUND, "%s: block %" PRIu32 " is not here", s->path, block);
	enum err e = block_file_read(s->fd, s->path, &s->manifest, block, buf, em);
	size_t len = manifest_block_bytes(&s->manifest, block);
	if (e == OK && !manifest_block_matches(&s->manifest, block, buf, len))
		e = errmsg_fail(em, ERR_FORMAT, "%s: block %" PRIu32 " (%zu bytes at byte %" PRIu64 ") is damaged: its hash differs", s->path, block, len, at);
	return e;
}

enum err block_store_write(const struct block_store *s, uint32_t block, const uint8_t *data, struct errmsg *em)
{
	uint64_t at = (uint64_t)block * s->manifest.block_bytes;
	size_t len = manifest_block_bytes(&s->manifest, block), done = 0;
	while (done < len) {
		ssize_t n = pwrite(s->fd, data + done, len - done, (off_t)(at + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			enum err e = io_fail(em, s->path);
			return errmsg_prefix(em, e, "cannot store block %" PRIu32, block);
		}
		done += (size_t)n;
	}
	// Begin to write now: else the disk does nothing until much is dirty, and then everybody waits for it.
	(void)sync_file_range(s->fd, (off64_t)at, (off64_t)len, SYNC_FILE_RANGE_WRITE);
	return OK;
}

enum err block_store_sync(const struct block_store *s, struct errmsg *em)
{
	return fdatasync(s->fd) == 0 ? OK : io_fail(em, s->path);
}

// ---- room

// lock_alone takes the model's lock for this process only. The old lock is gone when that fails, so that it is taken again; the cache's lock,
// which the caller holds, keeps others out of the time between.
static enum err lock_alone(const struct block_store *s, struct errmsg *em)
{
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return OK;
	(void)flock(s->lock_fd, LOCK_SH | LOCK_NB);
	return errmsg_fail(em, ERR_BUSY, "%s: another process uses this model", s->path);
}

static enum err punch(const struct block_store *s, uint32_t begin, uint32_t end, struct errmsg *em)
{
	uint64_t at = (uint64_t)begin * s->manifest.block_bytes, to = (uint64_t)end * s->manifest.block_bytes;
	to = to < s->manifest.file_bytes ? to : s->manifest.file_bytes;
	if (fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)(to - at)) == 0)
		return OK;
	return errmsg_fail(em, ERR_IO, "%s: cannot free %" PRIu64 " bytes at byte %" PRIu64 ": %s", s->path, to - at, at, strerror(errno));
}

static enum err drop_locked(const struct block_store *s, const struct block_set *blocks, struct errmsg *em)
{
	enum err e = lock_alone(s, em);
	if (e != OK)
		return e;
	for (uint32_t i = block_set_next(blocks, 0); i < blocks->n && e == OK; i = block_set_next(blocks, i + 1))
		e = punch(s, i, i + 1, em);
	(void)flock(s->lock_fd, LOCK_SH | LOCK_NB);
	return e;
}

enum err block_store_drop(const struct block_store *s, const struct block_set *blocks, struct errmsg *em)
{
	int lock;
	enum err e = block_cache_lock(s->cache, &lock, em);
	if (e != OK)
		return e;
	e = drop_locked(s, blocks, em);
	close(lock);
	return e;
}

// remove_others removes models that nobody uses, the least recently used first, until nothing is missing.
static enum err remove_others(const struct block_store *s, uint64_t bytes, uint64_t *missing, struct errmsg *em)
{
	size_t n = 0;
	struct block_cache_model *models = calloc(BLOCK_CACHE_MODELS_MAX, sizeof *models);
	enum err e = models != NULL ? OK : errmsg_fail(em, ERR_NOMEM, "%s: no memory to look at the cache", s->cache->path);
	if (e == OK)
		e = block_cache_list(s->cache, models, BLOCK_CACHE_MODELS_MAX, &n, em);
	for (size_t i = 0; i < n && *missing > 0 && e == OK; i++) {
		bool is_own = memcmp(models[i].manifest_hash, s->manifest.hash, BLOCK_HASH_BYTES) == 0;
		if (is_own || models[i].is_in_use || models[i].bytes == 0 || block_cache_remove(s->cache, models[i].manifest_hash, em) != OK)
			continue;
		e = block_cache_missing(s->cache, bytes, missing, em);
	}
	free(models);
	return e;
}

// drop_own frees blocks of this model that are not to be kept, as many as are missing.
static enum err drop_own(const struct block_store *s, const struct block_set *keep, uint64_t *missing, struct errmsg *em)
{
	uint32_t n = s->manifest.n_blocks;
	struct block_set idle;
	uint64_t *words = calloc(block_set_words(n), sizeof *words);
	if (words == NULL)
		return errmsg_fail(em, ERR_NOMEM, "%s: no memory to look at the cache", s->cache->path);
	block_set_init(&idle, words, n);
	enum err e = block_store_present(s, &idle, em);
	uint64_t found = 0;
	for (uint32_t i = n; i > 0; i--) {
		bool is_free = block_set_has(&idle, i - 1) && !block_set_has(keep, i - 1) && found < *missing;
		if (!is_free)
			block_set_remove(&idle, i - 1);
		found += is_free ? manifest_block_bytes(&s->manifest, i - 1) : 0;
	}
	if (e == OK && found >= *missing && drop_locked(s, &idle, em) == OK)
		*missing = 0;
	free(words);
	return e;
}

enum err block_store_make_room(const struct block_store *s, const struct block_set *keep, uint64_t bytes, struct errmsg *em)
{
	int lock;
	uint64_t missing = 0;
	enum err e = block_cache_lock(s->cache, &lock, em);
	if (e != OK)
		return e;
	e = block_cache_missing(s->cache, bytes, &missing, em);
	if (e == OK && missing > 0)
		e = remove_others(s, bytes, &missing, em);
	if (e == OK && missing > 0)
		e = drop_own(s, keep, &missing, em);
	close(lock);
	if (e != OK || missing == 0)
		return e;
	return errmsg_fail(em, ERR_LIMIT, "%s: the cache is full: %" PRIu64 " MiB more are needed, %" PRIu64 " MiB too many for %s", s->cache->path, (bytes >> 20) + 1,
		(missing >> 20) + 1, s->cache->bytes_max != 0 ? "its quota (--cache-max) or the disk" : "the disk");
}
