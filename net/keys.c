#include "net/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"

static const char magic[8] = "HEARTHK1";

#define SK_AT 16
#define PK_AT (SK_AT + LNK1_KEY_LEN)

_Static_assert(PK_AT + LNK1_KEY_LEN == KEYS_FILE_LEN, "the format of keys.h");

// Bytes of the file, kept where the pair itself is kept.
static uint8_t *secret_buffer(struct errmsg *em)
{
	uint8_t *file = sodium_malloc(KEYS_FILE_LEN);
	if (!file)
		errmsg_fail(em, ERR_NOMEM, "no memory for the key");
	return file;
}

static enum err write_all(int fd, const uint8_t *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return ERR_IO;
		data += n;
		len -= (size_t)n;
	}
	return OK;
}

// read_all reads up to `len` bytes and puts how many there were into *got.
static enum err read_all(int fd, uint8_t *data, size_t len, size_t *got)
{
	*got = 0;
	while (*got < len) {
		ssize_t n = read(fd, data + *got, len - *got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ERR_IO;
		if (n == 0)
			break;
		*got += (size_t)n;
	}
	return OK;
}

static enum err sync_dir_of(const char *path)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');
	int len = slash ? snprintf(dir, sizeof dir, "%.*s/", (int)(slash - path), path) : snprintf(dir, sizeof dir, ".");
	if (len < 0 || (size_t)len >= sizeof dir)
		return ERR_LIMIT;
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return ERR_IO;
	enum err e = fsync(fd) == 0 ? OK : ERR_IO;
	close(fd);
	return e;
}

static void encode(uint8_t file[KEYS_FILE_LEN])
{
	memset(file, 0, KEYS_FILE_LEN);
	memcpy(file, magic, sizeof magic);
	crypto_kx_keypair(file + PK_AT, file + SK_AT);
}

// write_temp: the mode is part of the open, so that no other process ever sees the file wider than it is. A umask only narrows it.
static enum err write_temp(const char *temp, const uint8_t file[KEYS_FILE_LEN], struct errmsg *em)
{
	int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return errmsg_fail(em, ERR_IO, "%s: %s", temp, strerror(errno));
	enum err e = write_all(fd, file, KEYS_FILE_LEN);
	if (e == OK && fsync(fd) != 0)
		e = ERR_IO;
	int err_no = errno;
	if (close(fd) != 0 && e == OK) {
		err_no = errno;
		e = ERR_IO;
	}
	if (e != OK) {
		unlink(temp);
		errmsg_fail(em, e, "%s: %s", temp, strerror(err_no));
	}
	return e;
}

// publish gives the complete file its name, unless another process was faster: then that one's pair is the machine's.
static enum err publish(const char *temp, const char *path, struct errmsg *em)
{
	enum err e = OK;
	if (link(temp, path) != 0 && errno != EEXIST)
		e = errmsg_fail(em, ERR_IO, "%s: %s", path, strerror(errno));
	unlink(temp);
	if (e == OK && sync_dir_of(path) != OK)
		e = errmsg_fail(em, ERR_IO, "%s: cannot sync its directory: %s", path, strerror(errno));
	return e;
}

static enum err create(const char *path, struct errmsg *em)
{
	char temp[PATH_MAX];
	int len = snprintf(temp, sizeof temp, "%s.%08x.tmp", path, randombytes_random());
	if (len < 0 || (size_t)len >= sizeof temp)
		return errmsg_fail(em, ERR_LIMIT, "key file: the path is too long");
	uint8_t *file = secret_buffer(em);
	if (!file)
		return ERR_NOMEM;
	encode(file);
	enum err e = write_temp(temp, file, em);
	sodium_free(file);
	return e == OK ? publish(temp, path, em) : e;
}

static enum err check_file(int fd, const char *path, struct errmsg *em)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return errmsg_fail(em, ERR_IO, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return errmsg_fail(em, ERR_FORMAT, "%s: not a regular file", path);
	if (st.st_uid != geteuid())
		return errmsg_fail(em, ERR_AUTH, "%s: belongs to user %u (want %u)", path, st.st_uid, geteuid());
	if ((st.st_mode & 0177) != 0)
		return errmsg_fail(em, ERR_AUTH, "%s: mode %04o lets others at the key (want 0600)", path, st.st_mode & 07777);
	if (st.st_size != KEYS_FILE_LEN)
		return errmsg_fail(em, ERR_FORMAT, "%s: %lld bytes (want %d)", path, (long long)st.st_size, KEYS_FILE_LEN);
	return OK;
}

static enum err decode(const uint8_t file[KEYS_FILE_LEN], struct lnk1_keypair *pair, const char *path, struct errmsg *em)
{
	if (memcmp(file, magic, sizeof magic) != 0)
		return errmsg_fail(em, ERR_FORMAT, "%s: not a key file of hearth", path);
	if (load_u32(file + 8) != 0 || load_u32(file + 12) != 0)
		return errmsg_fail(em, ERR_UNSUPPORTED, "%s: made by a newer hearth", path);
	memcpy(pair->sk, file + SK_AT, LNK1_KEY_LEN);
	if (crypto_scalarmult_base(pair->pk, pair->sk) != 0 || memcmp(pair->pk, file + PK_AT, LNK1_KEY_LEN) != 0)
		return errmsg_fail(em, ERR_FORMAT, "%s: damaged: its two halves do not belong together", path);
	return OK;
}

static enum err load_fd(struct keys *k, int fd, const char *path, struct errmsg *em)
{
	enum err e = check_file(fd, path, em);
	if (e != OK)
		return e;
	uint8_t *file = secret_buffer(em);
	k->pair = sodium_malloc(sizeof *k->pair);
	if (!file || !k->pair) {
		e = errmsg_fail(em, ERR_NOMEM, "no memory for the key");
		goto done;
	}
	size_t got;
	if (read_all(fd, file, KEYS_FILE_LEN, &got) != OK)
		e = errmsg_fail(em, ERR_IO, "%s: %s", path, strerror(errno));
	else if (got != KEYS_FILE_LEN)
		e = errmsg_fail(em, ERR_FORMAT, "%s: %zu bytes (want %d)", path, got, KEYS_FILE_LEN);
	else
		e = decode(file, k->pair, path, em);
	if (e == OK && sodium_mprotect_readonly(k->pair) != 0)
		e = errmsg_fail(em, ERR_NOMEM, "cannot protect the key's memory: %s", strerror(errno));
done:
	sodium_free(file);
	return e;
}

enum err keys_load(struct keys *k, const char *path, struct errmsg *em)
{
	memset(k, 0, sizeof *k);
	// NONBLOCK: a fifo under this name is refused below instead of waited for.
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errmsg_fail(em, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", path, strerror(errno));
	enum err e = load_fd(k, fd, path, em);
	close(fd);
	if (e == OK)
		lnk1_node_id(k->pair->pk, k->node_id);
	else
		keys_close(k);
	return e;
}

enum err keys_open(struct keys *k, const char *path, struct errmsg *em)
{
	enum err e = keys_load(k, path, em);
	if (e != ERR_NOT_FOUND)
		return e;
	e = create(path, em);
	return e == OK ? keys_load(k, path, em) : e;
}

void keys_close(struct keys *k)
{
	sodium_free(k->pair);
	memset(k, 0, sizeof *k);
}

enum err keys_forbid_core_dumps(struct errmsg *em)
{
	// Not 0: Linux hands a dump to a piped handler whatever the limit, unless it is exactly 1. One byte is also less than any file.
	struct rlimit limit = {.rlim_cur = 1, .rlim_max = 1};
	if (setrlimit(RLIMIT_CORE, &limit) == 0)
		return OK;
	// A hard limit of 0 was set before us and cannot be raised. Undumpable also hides us from debuggers, hence only here.
	if (prctl(PR_SET_DUMPABLE, 0) == 0)
		return OK;
	return errmsg_fail(em, ERR_IO, "cannot forbid core dumps: %s", strerror(errno));
}
