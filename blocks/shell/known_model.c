#include "blocks/shell/known_model.h"

#include "base/durable_file.h"
#include "base/private_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "HEARTHK1"
#define MAGIC_LEN 8
#define NAME_BYTES 16 // of the tag, in a file's name
#define NAME_LEN (2 * NAME_BYTES)
#define FILE_CAP (KNOWN_MODEL_PATH_CAP + NAME_LEN + 8)
#define SUM_BYTES 32
#define HEAD_MAX (MAGIC_LEN + KNOWN_MODEL_ID_BYTES + 2 + KNOWN_MODEL_PATH_CAP)
#define FILE_BYTES_MAX (MANIFEST_BYTES_MAX + HEAD_MAX + SUM_BYTES)

// ---- which file

static enum err read_id(const char *path, uint8_t id[KNOWN_MODEL_ID_BYTES], struct errmsg *em)
{
	struct stat st;
	if (stat(path, &st) != 0)
		return errmsg_fail(em, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: cannot stat: %s", path, strerror(errno));
	store_u64(id, (uint64_t)st.st_dev);
	store_u64(id + 8, (uint64_t)st.st_ino);
	store_u64(id + 16, (uint64_t)st.st_size);
	store_u64(id + 24, (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec);
	return OK;
}

static void tag_of(const uint8_t id[KNOWN_MODEL_ID_BYTES], uint8_t tag[KNOWN_MODEL_TAG_BYTES])
{
	crypto_generichash(tag, KNOWN_MODEL_TAG_BYTES, id, KNOWN_MODEL_ID_BYTES, (const uint8_t *)"hearth known model", 18);
}

enum err known_model_tag(const char *path, uint8_t tag[KNOWN_MODEL_TAG_BYTES], struct errmsg *em)
{
	uint8_t id[KNOWN_MODEL_ID_BYTES];
	enum err e = read_id(path, id, em);
	if (e == OK)
		tag_of(id, tag);
	return e;
}

static void name_file(const char *dir, const uint8_t id[KNOWN_MODEL_ID_BYTES], const char *end, char out[FILE_CAP])
{
	uint8_t tag[KNOWN_MODEL_TAG_BYTES];
	char hex[NAME_LEN + 1];
	tag_of(id, tag);
	sodium_bin2hex(hex, sizeof hex, tag, NAME_BYTES);
	snprintf(out, FILE_CAP, "%s/%s%s", dir, hex, end);
}

// ---- one file of the directory

bool known_model_parse(const uint8_t *data, size_t len, struct known_model *k)
{
	struct errmsg em;
	struct reader r = reader_init(data, len);
	const uint8_t *magic = reader_take(&r, MAGIC_LEN);
	k->id = reader_take(&r, KNOWN_MODEL_ID_BYTES);
	size_t path_len = reader_u16(&r);
	const uint8_t *path = reader_take(&r, path_len);
	if (!reader_ok(&r) || memcmp(magic, MAGIC, MAGIC_LEN) != 0 || path_len >= sizeof k->path || memchr(path, '\0', path_len) != NULL)
		return false;
	memcpy(k->path, path, path_len);
	k->path[path_len] = '\0';
	k->manifest_len = r.left;
	k->manifest = reader_take(&r, r.left);
	return manifest_parse(k->manifest, k->manifest_len, &k->m, &em) == OK && k->m.file_bytes == load_u64(k->id + 16);
}

// load reads one file; *data is the caller's to free, and what *k borrows.
static enum err load(const char *file, uint8_t **data, struct known_model *k, struct errmsg *em)
{
	uint8_t sum[SUM_BYTES];
	size_t len;
	enum err e = durable_file_load(file, FILE_BYTES_MAX, data, &len, em);
	if (e != OK)
		return e;
	size_t body = len < SUM_BYTES ? 0 : len - SUM_BYTES;
	crypto_generichash(sum, SUM_BYTES, *data, body, NULL, 0);
	if (len >= SUM_BYTES && memcmp(sum, *data + body, SUM_BYTES) == 0 && known_model_parse(*data, body, k))
		return OK;
	free(*data);
	*data = NULL;
	return errmsg_fail(em, ERR_NOT_FOUND, "%s: damaged", file);
}

static enum err find(const char *dir, const uint8_t id[KNOWN_MODEL_ID_BYTES], uint8_t **manifest, size_t *len, struct errmsg *em)
{
	char file[FILE_CAP];
	uint8_t *data;
	struct known_model k;
	name_file(dir, id, "", file);
	enum err e = load(file, &data, &k, em);
	if (e != OK)
		return e;
	if (memcmp(k.id, id, KNOWN_MODEL_ID_BYTES) != 0 || k.m.block_bytes != BLOCK_BYTES_DEFAULT) {
		free(data);
		return errmsg_fail(em, ERR_NOT_FOUND, "%s: of another file, or another version's", file);
	}
	*len = k.manifest_len;
	memmove(data, k.manifest, k.manifest_len);
	*manifest = data;
	return OK;
}

enum err known_model_find(const char *dir, const char *path, uint8_t **manifest, size_t *len, struct errmsg *em)
{
	uint8_t id[KNOWN_MODEL_ID_BYTES];
	*manifest = NULL;
	enum err e = read_id(path, id, em);
	if (e == OK && find(dir, id, manifest, len, em) != OK)
		e = errmsg_fail(em, ERR_NOT_FOUND, "%s: was not read yet", path);
	return e;
}

// ---- remembering

static bool is_name(const char *name)
{
	return strlen(name) == NAME_LEN && strspn(name, "0123456789abcdef") == NAME_LEN;
}

// forget_oldest leaves room for one more.
static void forget_oldest(const char *dir)
{
	char oldest[FILE_CAP] = "", file[FILE_CAP];
	struct timespec least = {0};
	int32_t n = 0;
	DIR *d = opendir(dir);
	for (struct dirent *entry = d != NULL ? readdir(d) : NULL; entry != NULL; entry = readdir(d)) {
		struct stat st;
		if (!is_name(entry->d_name))
			continue;
		snprintf(file, sizeof file, "%s/%.*s", dir, NAME_LEN, entry->d_name);
		if (stat(file, &st) != 0)
			continue;
		bool is_older = st.st_mtim.tv_sec < least.tv_sec || (st.st_mtim.tv_sec == least.tv_sec && st.st_mtim.tv_nsec < least.tv_nsec);
		if (n++ == 0 || is_older) {
			memcpy(oldest, file, sizeof oldest);
			least = st.st_mtim;
		}
	}
	if (d != NULL)
		closedir(d);
	if (n >= KNOWN_MODELS_MAX)
		(void)unlink(oldest);
}

static void remember(const char *dir, const uint8_t id[KNOWN_MODEL_ID_BYTES], const char *path, const uint8_t *manifest, size_t len)
{
	char file[FILE_CAP];
	struct errmsg em;
	size_t path_len = strlen(path) < KNOWN_MODEL_PATH_CAP ? strlen(path) : 0, size = MAGIC_LEN + KNOWN_MODEL_ID_BYTES + 2 + path_len + len + SUM_BYTES;
	uint8_t *data = malloc(size);
	if (data == NULL)
		return;
	struct writer w = writer_init(data, size);
	writer_bytes(&w, MAGIC, MAGIC_LEN);
	writer_bytes(&w, id, KNOWN_MODEL_ID_BYTES);
	writer_u16(&w, (uint16_t)path_len);
	writer_bytes(&w, path, path_len);
	writer_bytes(&w, manifest, len);
	crypto_generichash(writer_take(&w, SUM_BYTES), SUM_BYTES, data, size - SUM_BYTES, NULL, 0);
	forget_oldest(dir);
	name_file(dir, id, "", file);
	(void)!durable_file_write(file, data, size, &em); // else it is read again next time
	free(data);
}

// lock waits for whoever reads this file now, unless it is cancelled. -1: there is no directory to lock in.
static int lock(const char *dir, const uint8_t id[KNOWN_MODEL_ID_BYTES], const struct manifest_progress *p, char file[FILE_CAP])
{
	static const struct timespec pause = {.tv_nsec = 100000000};
	struct errmsg em;
	int dir_fd;
	if (private_dir_open(dir, &dir_fd, &em) != OK)
		return -1;
	close(dir_fd);
	name_file(dir, id, ".lock", file);
	int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && (errno == EINTR || errno == EWOULDBLOCK) && (p == NULL || !atomic_load(&p->is_cancelled)))
		nanosleep(&pause, NULL);
	return fd;
}

// real_path is how the file is found again from anywhere.
static char *real_path(const char *path)
{
	char *real = realpath(path, NULL);
	return real != NULL ? real : strdup(path);
}

enum err known_model_make(const char *dir, const struct manifest_source *s, uint8_t **manifest, size_t *len, struct errmsg *em)
{
	uint8_t id[KNOWN_MODEL_ID_BYTES], after[KNOWN_MODEL_ID_BYTES];
	char file[FILE_CAP];
	*manifest = NULL;
	enum err e = read_id(s->path, id, em);
	if (e != OK || dir == NULL)
		return e == OK ? manifest_build(s, manifest, len, em) : e;
	int fd = lock(dir, id, s->progress, file);
	if (fd < 0 || find(dir, id, manifest, len, em) != OK) {
		e = manifest_build(s, manifest, len, em);
		bool is_same = e == OK && read_id(s->path, after, em) == OK && memcmp(id, after, KNOWN_MODEL_ID_BYTES) == 0;
		char *path = fd >= 0 && is_same ? real_path(s->path) : NULL;
		if (path != NULL)
			remember(dir, id, path, *manifest, *len);
		free(path);
	}
	if (fd >= 0) {
		(void)unlink(file); // who waits for it finds what was remembered
		close(fd);
	}
	return e;
}

// ---- looking again

static void compare(const struct known_model *k, struct known_model_check *c)
{
	uint8_t *buf = malloc(k->m.block_bytes);
	int fd = open(k->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	for (uint32_t i = 0; fd >= 0 && buf != NULL && i < k->m.n_blocks; i++) {
		uint32_t want = manifest_block_bytes(&k->m, i);
		ssize_t n = pread(fd, buf, want, (off_t)((uint64_t)i * k->m.block_bytes));
		bool is_good = n == (ssize_t)want && manifest_block_matches(&k->m, i, buf, want);
		c->n_good += is_good;
		c->n_bad += !is_good;
	}
	if (fd >= 0)
		close(fd);
	free(buf);
}

static void verify_one(const char *file, void (*tell)(void *ctx, const struct known_model_check *c), void *ctx)
{
	uint8_t *data, id[KNOWN_MODEL_ID_BYTES];
	struct errmsg em;
	struct known_model k;
	struct known_model_check c = {.is_gone = false};
	enum err e = load(file, &data, &k, &em);
	if (e != OK && e != ERR_NOT_FOUND)
		return;
	if (e == OK) {
		memcpy(c.path, k.path, sizeof c.path);
		c.file_bytes = k.m.file_bytes;
		c.is_gone = read_id(k.path, id, &em) != OK || memcmp(id, k.id, KNOWN_MODEL_ID_BYTES) != 0;
		if (!c.is_gone)
			compare(&k, &c);
		tell(ctx, &c);
	}
	if (c.is_gone || c.n_bad > 0 || c.n_good == 0)
		(void)unlink(file);
	free(data);
}

enum err known_model_verify(const char *dir, void (*tell)(void *ctx, const struct known_model_check *c), void *ctx, struct errmsg *em)
{
	DIR *d = opendir(dir);
	if (d == NULL)
		return errno == ENOENT ? OK : errmsg_fail(em, ERR_IO, "%s: cannot read: %s", dir, strerror(errno));
	for (struct dirent *entry = readdir(d); entry != NULL; entry = readdir(d)) {
		char file[FILE_CAP];
		if (!is_name(entry->d_name))
			continue;
		snprintf(file, sizeof file, "%s/%.*s", dir, NAME_LEN, entry->d_name);
		verify_one(file, tell, ctx);
	}
	closedir(d);
	return OK;
}
