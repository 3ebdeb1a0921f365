#include "model/file_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES (1024 * 1024)
#define PROGRESS_BYTES (4 * 1024 * 1024)
#define LINE_CAP 160 // four numbers of 20 digits, 64 hex digits, spaces
#define CACHE_BYTES_MAX ((FILE_HASH_CACHE_MAX + 1) * LINE_CAP) // what is read of a cache file
#define HEADING "hearth-file-hash-1\n"

struct file_id {
	uint64_t device, inode, size, mtime_ns;
};

struct entry {
	struct file_id id;
	uint8_t hash[FILE_HASH_BYTES];
};

struct cache {
	struct entry entries[FILE_HASH_CACHE_MAX]; // oldest first
	size_t n;
};

static struct file_id id_of(const struct stat *st)
{
	return (struct file_id){(uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_size,
		(uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec};
}

static bool same_id(struct file_id a, struct file_id b)
{
	return a.device == b.device && a.inode == b.inode && a.size == b.size && a.mtime_ns == b.mtime_ns;
}

static enum err open_file(const char *path, int *fd, struct stat *st, struct errmsg *em)
{
	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe must not make us wait
	if (*fd < 0)
		return errmsg_fail(em, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: cannot open: %s", path, strerror(errno));
	enum err e = OK;
	if (fstat(*fd, st) != 0)
		e = errmsg_fail(em, ERR_IO, "%s: cannot stat: %s", path, strerror(errno));
	else if (!S_ISREG(st->st_mode))
		e = errmsg_fail(em, ERR_IO, "%s: is not a regular file", path);
	if (e != OK)
		close(*fd);
	return e;
}

struct run {
	const char *path;
	int fd;
	uint64_t total;
	file_hash_progress_fn progress;
	void *ctx;
};

static enum err hash_loop(const struct run *r, uint8_t *buf, crypto_generichash_state *st, struct errmsg *em)
{
	uint64_t done = 0, told = 0;
	for (;;) {
		ssize_t n = read(r->fd, buf, READ_BYTES);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errmsg_fail(em, ERR_IO, "%s: cannot read at byte %" PRIu64 ": %s", r->path, done, strerror(errno));
		crypto_generichash_update(st, buf, (unsigned long long)n);
		done += (uint64_t)n;
		if (r->progress != NULL && (n == 0 || done - told >= PROGRESS_BYTES)) {
			told = done;
			if (!r->progress(r->ctx, done, r->total))
				return errmsg_fail(em, ERR_CANCELLED, "%s: hashing was stopped at byte %" PRIu64, r->path, done);
		}
		if (n == 0)
			return OK;
	}
}

// hash_fd hashes an open file and checks that it is still what it was.
static enum err hash_fd(const struct run *r, struct file_id before, uint8_t out[FILE_HASH_BYTES], struct errmsg *em)
{
	uint8_t *buf = malloc(READ_BYTES);
	if (buf == NULL)
		return errmsg_fail(em, ERR_NOMEM, "%s: no memory to read it", r->path);
	crypto_generichash_state st;
	crypto_generichash_init(&st, NULL, 0, FILE_HASH_BYTES);
	enum err e = hash_loop(r, buf, &st, em);
	crypto_generichash_final(&st, out, FILE_HASH_BYTES);
	free(buf);
	struct stat after;
	if (e == OK && (fstat(r->fd, &after) != 0 || !same_id(before, id_of(&after))))
		e = errmsg_fail(em, ERR_STATE, "%s: changed while it was hashed", r->path);
	return e;
}

enum err file_hash(const char *path, file_hash_progress_fn progress, void *ctx, uint8_t out[FILE_HASH_BYTES], struct errmsg *em)
{
	int fd;
	struct stat st;
	enum err e = open_file(path, &fd, &st, em);
	if (e != OK)
		return e;
	struct run r = {path, fd, (uint64_t)st.st_size, progress, ctx};
	e = hash_fd(&r, id_of(&st), out, em);
	close(fd);
	return e;
}

// read_number reads decimal digits and the one character behind them.
static bool read_number(const char **at, char behind, uint64_t *out)
{
	char *end;
	if (**at < '0' || **at > '9')
		return false;
	errno = 0;
	*out = strtoull(*at, &end, 10);
	if (errno != 0 || *end != behind)
		return false;
	*at = end + 1;
	return true;
}

// read_line parses one line (NUL-terminated, without its newline).
static bool read_line(const char *line, struct entry *e)
{
	const char *at = line;
	size_t n = 0;
	return read_number(&at, ' ', &e->id.device) && read_number(&at, ' ', &e->id.inode) && read_number(&at, ' ', &e->id.size) &&
		read_number(&at, ' ', &e->id.mtime_ns) && strlen(at) == (size_t)2 * FILE_HASH_BYTES &&
		sodium_hex2bin(e->hash, sizeof e->hash, at, strlen(at), NULL, &n, NULL) == 0 && n == sizeof e->hash;
}

static void cache_add(struct cache *c, const struct entry *e)
{
	if (c->n == FILE_HASH_CACHE_MAX) {
		memmove(c->entries, c->entries + 1, (FILE_HASH_CACHE_MAX - 1) * sizeof c->entries[0]);
		c->n--;
	}
	c->entries[c->n++] = *e;
}

// cache_read keeps the lines that are well formed. Another heading means another format: nothing is kept.
static void cache_read(const char *path, struct cache *c)
{
	c->n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // no waiting for the other end if somebody put a pipe there
	if (fd < 0)
		return;
	char text[CACHE_BYTES_MAX + 1];
	size_t len = 0;
	ssize_t n;
	while (len < CACHE_BYTES_MAX && (n = read(fd, text + len, CACHE_BYTES_MAX - len)) > 0)
		len += (size_t)n;
	close(fd);
	text[len] = '\0';
	if (strncmp(text, HEADING, strlen(HEADING)) != 0)
		return;
	char *line = text + strlen(HEADING);
	for (char *nl = strchr(line, '\n'); nl != NULL; line = nl + 1, nl = strchr(line, '\n')) {
		struct entry e;
		*nl = '\0';
		if (read_line(line, &e))
			cache_add(c, &e);
	}
}

static const struct entry *cache_find(const struct cache *c, struct file_id id)
{
	for (size_t i = c->n; i > 0; i--)
		if (same_id(c->entries[i - 1].id, id))
			return &c->entries[i - 1];
	return NULL;
}

static bool write_entries(FILE *f, const struct cache *c)
{
	bool ok = fputs(HEADING, f) >= 0;
	for (size_t i = 0; i < c->n; i++) {
		const struct entry *e = &c->entries[i];
		char hex[2 * FILE_HASH_BYTES + 1];
		sodium_bin2hex(hex, sizeof hex, e->hash, sizeof e->hash);
		ok = ok && fprintf(f, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n", e->id.device, e->id.inode, e->id.size,
			e->id.mtime_ns, hex) > 0;
	}
	return ok;
}

// cache_write replaces the file by rename. What fails leaves the old one.
static void cache_write(const char *path, const struct cache *c)
{
	char temp[PATH_MAX];
	if ((size_t)snprintf(temp, sizeof temp, "%s.XXXXXX", path) >= sizeof temp)
		return;
	int fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0)
		return;
	FILE *f = fdopen(fd, "w");
	if (f == NULL) {
		close(fd);
		unlink(temp);
		return;
	}
	bool ok = write_entries(f, c);
	ok = fflush(f) == 0 && ok;
	ok = fclose(f) == 0 && ok;
	if (!ok || rename(temp, path) != 0)
		unlink(temp);
}

enum err file_hash_cached(const char *path, const char *cache_path, file_hash_progress_fn progress, void *ctx,
	uint8_t out[FILE_HASH_BYTES], struct errmsg *em)
{
	int fd;
	struct stat st;
	enum err e = open_file(path, &fd, &st, em);
	if (e != OK)
		return e;
	struct cache c;
	struct entry mine = {.id = id_of(&st)};
	cache_read(cache_path, &c);
	const struct entry *known = cache_find(&c, mine.id);
	if (known != NULL) {
		memcpy(out, known->hash, FILE_HASH_BYTES);
		close(fd);
		return OK;
	}
	struct run r = {path, fd, mine.id.size, progress, ctx};
	e = hash_fd(&r, mine.id, mine.hash, em);
	close(fd);
	if (e != OK)
		return e;
	memcpy(out, mine.hash, FILE_HASH_BYTES);
	// Read again: another process may have added a line while this one was hashing.
	cache_read(cache_path, &c);
	cache_add(&c, &mine);
	cache_write(cache_path, &c);
	return OK;
}
