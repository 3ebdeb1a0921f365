#include "net/keys.h"

#include "base/bytes.h"
#include "base/durable_file.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

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

static void encode(uint8_t file[KEYS_FILE_LEN])
{
	memset(file, 0, KEYS_FILE_LEN);
	memcpy(file, magic, sizeof magic);
	crypto_kx_keypair(file + PK_AT, file + SK_AT);
}

static enum err create(const char *path, struct errmsg *em)
{
	uint8_t *file = secret_buffer(em);
	if (!file)
		return ERR_NOMEM;
	encode(file);
	enum err e = durable_file_write(path, file, KEYS_FILE_LEN, em);
	sodium_free(file);
	return e;
}

static enum err read_file(const char *path, uint8_t *file, struct errmsg *em)
{
	size_t len;
	enum err e = durable_file_read(path, file, KEYS_FILE_LEN, &len, em);
	if (e == ERR_LIMIT || (e == OK && len != KEYS_FILE_LEN))
		return errmsg_fail(em, ERR_FORMAT, "%s: %s%zu bytes (want %d)", path, e == OK ? "" : "more than ", len, KEYS_FILE_LEN);
	return e;
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

enum err keys_load(struct keys *k, const char *path, struct errmsg *em)
{
	memset(k, 0, sizeof *k);
	uint8_t *file = secret_buffer(em);
	if (!file)
		return ERR_NOMEM;
	enum err e = read_file(path, file, em);
	if (e != OK)
		goto done;
	k->pair = sodium_malloc(sizeof *k->pair);
	e = k->pair ? decode(file, k->pair, path, em) : errmsg_fail(em, ERR_NOMEM, "no memory for the key");
	if (e == OK && sodium_mprotect_readonly(k->pair) != 0)
		e = errmsg_fail(em, ERR_NOMEM, "cannot protect the key's memory: %s", strerror(errno));
	if (e == OK)
		lnk1_node_id(k->pair->pk, k->node_id);
	else
		keys_close(k);
done:
	sodium_free(file);
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
