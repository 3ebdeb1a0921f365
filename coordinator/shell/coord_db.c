#include "coordinator/shell/coord_db.h"

#include "base/bytes.h"
#include "base/durable_file.h"
#include "proto/lnk1.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCHEMA_VERSION 2
#define APPLICATION_ID 0x48727468 // "Hrth"
#define VALUE_CAP 256

// ---- SQLite in short

// db_fail says what went wrong. The words are for a person who has never heard of SQLite.
static enum err db_fail(sqlite3 *db, const char *what, struct errmsg *em)
{
	switch (db ? sqlite3_errcode(db) : SQLITE_NOMEM) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED: return errmsg_fail(em, ERR_BUSY, "in use by another program");
	case SQLITE_NOTADB: return errmsg_fail(em, ERR_FORMAT, "not a cluster file, or damaged");
	case SQLITE_CORRUPT: return errmsg_fail(em, ERR_FORMAT, "damaged: %s", sqlite3_errmsg(db));
	case SQLITE_NOMEM: return errmsg_fail(em, ERR_NOMEM, "%s: out of memory", what);
	default: return errmsg_fail(em, ERR_IO, "%s: %s", what, sqlite3_errmsg(db));
	}
}

static enum err run(sqlite3 *db, const char *sql, struct errmsg *em)
{
	return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? OK : db_fail(db, "write", em);
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *st = NULL;
	return sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK ? st : NULL;
}

// finish runs a statement that gives no rows. NULL: it could not be prepared.
static enum err finish(sqlite3 *db, sqlite3_stmt *st, struct errmsg *em)
{
	enum err e = st != NULL && sqlite3_step(st) == SQLITE_DONE ? OK : db_fail(db, "write", em);
	sqlite3_finalize(st);
	return e;
}

static void bind_bytes(sqlite3_stmt *st, int i, const uint8_t *data, size_t len)
{
	if (st)
		sqlite3_bind_blob(st, i, data, (int)len, SQLITE_STATIC);
}

static bool column_bytes(sqlite3_stmt *st, int i, uint8_t *out, size_t len)
{
	if (sqlite3_column_type(st, i) != SQLITE_BLOB || sqlite3_column_bytes(st, i) != (int)len)
		return false;
	memcpy(out, sqlite3_column_blob(st, i), len);
	return true;
}

// value_of returns the first value that sql gives, as text; "" for none.
static enum err value_of(sqlite3 *db, const char *sql, char out[VALUE_CAP], struct errmsg *em)
{
	sqlite3_stmt *st = prepare(db, sql);
	int rc = st ? sqlite3_step(st) : SQLITE_ERROR;
	const unsigned char *text = rc == SQLITE_ROW ? sqlite3_column_text(st, 0) : NULL;
	snprintf(out, VALUE_CAP, "%s", text ? (const char *)text : "");
	enum err e = rc == SQLITE_ROW || rc == SQLITE_DONE ? OK : db_fail(db, "read", em);
	sqlite3_finalize(st);
	return e;
}

// ---- the digest over all rows

// Type, length and bytes of every value (a number's as its decimal digits), in a written order.
static enum err hash_rows(sqlite3 *db, const char *sql, crypto_generichash_state *h, struct errmsg *em)
{
	sqlite3_stmt *st = prepare(db, sql);
	int rc = SQLITE_ERROR;
	while (st != NULL && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		for (int i = 0; i < sqlite3_column_count(st); i++) {
			uint8_t head[5] = {(uint8_t)sqlite3_column_type(st, i)};
			const void *data = sqlite3_column_blob(st, i);
			int len = sqlite3_column_bytes(st, i);
			store_u32(head + 1, (uint32_t)len);
			crypto_generichash_update(h, head, sizeof head);
			if (len > 0)
				crypto_generichash_update(h, data, (unsigned long long)len);
		}
	}
	enum err e = rc == SQLITE_DONE ? OK : db_fail(db, "read", em);
	sqlite3_finalize(st);
	return e;
}

static enum err digest_all(sqlite3 *db, uint8_t digest[HASH_BYTES], struct errmsg *em)
{
	static const char *const tables[] = {
		"SELECT cluster_id, member_epoch FROM meta",
		"SELECT id, public_key, psk, name FROM members ORDER BY id",
		"SELECT token_id, secret, expires_s, n_failures, bound_to FROM invites ORDER BY token_id",
	};
	crypto_generichash_state h;
	enum err e = OK;
	crypto_generichash_init(&h, NULL, 0, HASH_BYTES);
	for (size_t i = 0; i < ARRAY_LEN(tables) && e == OK; i++) {
		crypto_generichash_update(&h, (const uint8_t *)"table", 5);
		e = hash_rows(db, tables[i], &h, em);
	}
	crypto_generichash_final(&h, digest, HASH_BYTES);
	sodium_memzero(&h, sizeof h);
	return e;
}

static enum err put_digest(sqlite3 *db, struct errmsg *em)
{
	uint8_t digest[HASH_BYTES];
	enum err e = digest_all(db, digest, em);
	if (e != OK)
		return e;
	sqlite3_stmt *st = prepare(db, "UPDATE meta SET digest = ?1");
	bind_bytes(st, 1, digest, sizeof digest);
	return finish(db, st, em);
}

// ---- writes

static enum err put_invite(sqlite3 *db, const struct invite_record *r, struct errmsg *em)
{
	sqlite3_stmt *st = prepare(db,
		"INSERT OR REPLACE INTO invites (token_id, secret, expires_s, n_failures, bound_to) VALUES (?1, ?2, ?3, ?4, ?5)");
	bind_bytes(st, 1, r->token_id, TOKEN_ID_BYTES);
	bind_bytes(st, 2, r->secret, KEY_BYTES);
	if (st) {
		sqlite3_bind_int64(st, 3, r->expires_s);
		sqlite3_bind_int(st, 4, r->n_failures);
	}
	if (r->bound)
		bind_bytes(st, 5, r->bound_to.b, NODE_ID_BYTES);
	return finish(db, st, em);
}

static enum err put_member(sqlite3 *db, const struct member_record *r, struct errmsg *em)
{
	sqlite3_stmt *st = prepare(db, "INSERT OR REPLACE INTO members (id, public_key, psk, name) VALUES (?1, ?2, ?3, ?4)");
	bind_bytes(st, 1, r->id.b, NODE_ID_BYTES);
	bind_bytes(st, 2, r->public_key, KEY_BYTES);
	bind_bytes(st, 3, r->psk, KEY_BYTES);
	if (st)
		sqlite3_bind_text(st, 4, r->name, -1, SQLITE_STATIC);
	return finish(db, st, em);
}

// put_name changes a row that is there: a member that was revoked meanwhile does not come back.
static enum err put_name(sqlite3 *db, const struct member_record *r, struct errmsg *em)
{
	sqlite3_stmt *st = prepare(db, "UPDATE members SET name = ?2 WHERE id = ?1");
	bind_bytes(st, 1, r->id.b, NODE_ID_BYTES);
	if (st)
		sqlite3_bind_text(st, 2, r->name, -1, SQLITE_STATIC);
	return finish(db, st, em);
}

static enum err delete_by_bytes(sqlite3 *db, const char *sql, const uint8_t *key, size_t len, struct errmsg *em)
{
	sqlite3_stmt *st = prepare(db, sql);
	bind_bytes(st, 1, key, len);
	return finish(db, st, em);
}

static enum err put_epoch(sqlite3 *db, struct member_epoch e, struct errmsg *em)
{
	sqlite3_stmt *st = prepare(db, "UPDATE meta SET member_epoch = ?1");
	if (st)
		sqlite3_bind_int64(st, 1, (sqlite3_int64)e.v);
	return finish(db, st, em);
}

static enum err write_rows(sqlite3 *db, const struct coord_write *w, struct errmsg *em)
{
	enum err e = ERR_STATE;
	switch (w->op) {
	case STORE_INVITE: return put_invite(db, &w->invite, em);
	case STORE_BIND:
		e = put_member(db, &w->member, em);
		return e == OK ? put_invite(db, &w->invite, em) : e;
	case STORE_INVITE_DELETE:
		return delete_by_bytes(db, "DELETE FROM invites WHERE token_id = ?1", w->invite.token_id, TOKEN_ID_BYTES, em);
	case STORE_NAME: return put_name(db, &w->member, em);
	case STORE_REVOKE:
		e = delete_by_bytes(db, "DELETE FROM members WHERE id = ?1", w->member.id.b, NODE_ID_BYTES, em);
		if (e == OK)
			e = delete_by_bytes(db, "DELETE FROM invites WHERE bound_to = ?1", w->member.id.b, NODE_ID_BYTES, em);
		return e == OK ? put_epoch(db, w->member_epoch, em) : e;
	}
	return e;
}

enum err coord_db_write(struct sqlite3 *db, const struct coord_write *w, struct errmsg *em)
{
	enum err e = run(db, "BEGIN IMMEDIATE", em);
	if (e != OK)
		return e;
	e = write_rows(db, w, em);
	if (e == OK)
		e = put_digest(db, em);
	if (e == OK)
		e = run(db, "COMMIT", em);
	if (e != OK)
		(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return e;
}

// ---- opening

static int64_t number(const char *text)
{
	return strtoll(text, NULL, 10);
}

static enum err make_schema(sqlite3 *db, const uint8_t cluster_id[CLUSTER_ID_BYTES], struct errmsg *em)
{
	static const char sql[] = "CREATE TABLE meta (cluster_id BLOB NOT NULL, member_epoch INTEGER NOT NULL, digest BLOB NOT NULL);"
							  "CREATE TABLE members (id BLOB PRIMARY KEY, public_key BLOB NOT NULL, psk BLOB NOT NULL, name TEXT NOT NULL);"
							  "CREATE TABLE invites (token_id BLOB PRIMARY KEY, secret BLOB NOT NULL, expires_s INTEGER NOT NULL,"
							  "  n_failures INTEGER NOT NULL, bound_to BLOB);"
							  "PRAGMA application_id = 1215460456; PRAGMA user_version = 2;";
	_Static_assert(APPLICATION_ID == 1215460456 && SCHEMA_VERSION == 2, "the text above says the same");
	enum err e = run(db, "BEGIN IMMEDIATE", em);
	if (e == OK)
		e = run(db, sql, em);
	if (e == OK) {
		sqlite3_stmt *st = prepare(db, "INSERT INTO meta (cluster_id, member_epoch, digest) VALUES (?1, 1, x'')");
		bind_bytes(st, 1, cluster_id, CLUSTER_ID_BYTES);
		e = finish(db, st, em);
	}
	if (e == OK)
		e = put_digest(db, em);
	return e == OK ? run(db, "COMMIT", em) : e;
}

// check_file refuses what is not ours, of another version, or damaged, before anything is written.
static enum err check_file(sqlite3 *db, struct errmsg *em)
{
	char id[VALUE_CAP], version[VALUE_CAP], integrity[VALUE_CAP];
	enum err e = value_of(db, "PRAGMA application_id", id, em);
	if (e == OK)
		e = value_of(db, "PRAGMA user_version", version, em);
	if (e == OK && number(id) != APPLICATION_ID)
		e = errmsg_fail(em, ERR_FORMAT, "not a cluster file of hearth");
	if (e == OK && number(version) != SCHEMA_VERSION)
		e = errmsg_fail(em, ERR_UNSUPPORTED, "version %s of the cluster file: this program knows version %d", version, SCHEMA_VERSION);
	if (e == OK) // rows and indexes agree: a revocation finds what it must delete
		e = value_of(db, "PRAGMA integrity_check(1)", integrity, em);
	if (e == OK && strcmp(integrity, "ok") != 0)
		e = errmsg_fail(em, ERR_FORMAT, "damaged: %s", integrity);
	return e;
}

// set_up makes SQLite keep what the header promises, and sees that it does: a build may know better.
static enum err set_up(sqlite3 *db, struct errmsg *em)
{
	static const struct {
		const char *set, *get, *want;
	} settings[] = {
		// TRUNCATE: under an exclusive lock DELETE only blanks the journal's head, and old rows, secrets too, would stay behind it.
		{"PRAGMA journal_mode = TRUNCATE", "PRAGMA journal_mode", "truncate"},
		{"PRAGMA synchronous = FULL", "PRAGMA synchronous", "2"},
		{"PRAGMA secure_delete = ON", "PRAGMA secure_delete", "1"},
		{"PRAGMA temp_store = MEMORY", "PRAGMA temp_store", "2"}, // no secrets in /tmp
	};
	for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
		char value[VALUE_CAP];
		enum err e = run(db, settings[i].set, em);
		if (e == OK)
			e = value_of(db, settings[i].get, value, em);
		if (e != OK)
			return e;
		if (strcmp(value, settings[i].want) != 0)
			return errmsg_fail(em, ERR_UNSUPPORTED, "this build of SQLite refuses %s", settings[i].set);
	}
	// The lock is kept from here on: one coordinator per state directory, and no write that finds the file locked later.
	return run(db, "BEGIN EXCLUSIVE; COMMIT", em);
}

static enum err load_meta(sqlite3 *db, struct coord_restored *out, struct errmsg *em)
{
	uint8_t digest[HASH_BYTES], want[HASH_BYTES];
	sqlite3_stmt *st = prepare(db, "SELECT cluster_id, member_epoch, digest FROM meta");
	if (st == NULL)
		return db_fail(db, "read", em);
	bool ok = sqlite3_step(st) == SQLITE_ROW && column_bytes(st, 0, out->cluster_id, CLUSTER_ID_BYTES) && column_bytes(st, 2, digest, HASH_BYTES);
	out->member_epoch.v = (uint64_t)sqlite3_column_int64(st, 1);
	sqlite3_finalize(st);
	enum err e = digest_all(db, want, em);
	if (e == OK && (!ok || memcmp(digest, want, HASH_BYTES) != 0))
		e = errmsg_fail(em, ERR_FORMAT, "damaged: its content is not what was written");
	return e;
}

static bool read_member(sqlite3_stmt *st, struct member_record *r)
{
	struct node_id id;
	const char *name = (const char *)sqlite3_column_text(st, 3);
	size_t name_len = (size_t)sqlite3_column_bytes(st, 3);
	if (name == NULL || name_len >= NAME_CAP || !text_is_plain(name, name_len) || !column_bytes(st, 0, r->id.b, NODE_ID_BYTES) ||
		!column_bytes(st, 1, r->public_key, KEY_BYTES) || !column_bytes(st, 2, r->psk, KEY_BYTES))
		return false;
	lnk1_node_id(r->public_key, id.b);
	text_copy(r->name, sizeof r->name, name);
	return node_id_is(id, r->id);
}

static enum err load_members(sqlite3 *db, struct coord_restored *out, struct errmsg *em)
{
	sqlite3_stmt *st = prepare(db, "SELECT id, public_key, psk, name FROM members ORDER BY rowid");
	int rc = SQLITE_ERROR;
	enum err e = OK;
	while (e == OK && st != NULL && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		if (out->n_members == SWARM_NODES_MAX || !read_member(st, &out->members[out->n_members]))
			e = errmsg_fail(em, ERR_FORMAT, "damaged: a member that cannot be read, or more than %d", SWARM_NODES_MAX);
		else
			out->n_members++;
	}
	if (e == OK && rc != SQLITE_DONE)
		e = db_fail(db, "read", em);
	sqlite3_finalize(st);
	return e;
}

static bool read_invite(sqlite3_stmt *st, struct invite_record *r)
{
	r->expires_s = sqlite3_column_int64(st, 2);
	r->n_failures = sqlite3_column_int(st, 3);
	r->bound = sqlite3_column_type(st, 4) != SQLITE_NULL;
	return column_bytes(st, 0, r->token_id, TOKEN_ID_BYTES) && column_bytes(st, 1, r->secret, KEY_BYTES) &&
		(!r->bound || column_bytes(st, 4, r->bound_to.b, NODE_ID_BYTES));
}

// The newest ones: what could not be deleted when it was used up or had expired may stand beside them.
static enum err load_invites(sqlite3 *db, struct coord_restored *out, struct errmsg *em)
{
	sqlite3_stmt *st = prepare(db, "SELECT token_id, secret, expires_s, n_failures, bound_to FROM invites ORDER BY expires_s DESC");
	int rc = SQLITE_ERROR;
	enum err e = OK;
	while (e == OK && st != NULL && (rc = sqlite3_step(st)) == SQLITE_ROW && out->n_invites < INVITES_MAX) {
		if (read_invite(st, &out->invites[out->n_invites]))
			out->n_invites++;
		else
			e = errmsg_fail(em, ERR_FORMAT, "damaged: an invite that cannot be read");
	}
	if (e == OK && rc != SQLITE_DONE && rc != SQLITE_ROW)
		e = db_fail(db, "read", em);
	sqlite3_finalize(st);
	return e;
}

static enum err open_sqlite(const char *path, sqlite3 **db, struct errmsg *em)
{
	enum err e = OK;
	if (sqlite3_open_v2(path, db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX, NULL) != SQLITE_OK)
		e = db_fail(*db, "open", em);
	return e == OK ? run(*db, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA cell_size_check = ON", em) : e;
}

// create makes the file under another name: under its own it is complete from its first byte, so an empty one is a damaged one.
static enum err create(const char *path, const uint8_t cluster_id[CLUSTER_ID_BYTES], struct errmsg *em)
{
	static const char *const stale[] = {".new", ".new-journal", "-journal", "-wal"}; // a crash's, or of a file that was removed by hand
	char temp[PATH_MAX];
	for (size_t i = 0; i < ARRAY_LEN(stale); i++) {
		if (snprintf(temp, sizeof temp, "%s%s", path, stale[i]) >= (int)sizeof temp)
			return errmsg_fail(em, ERR_LIMIT, "the name is too long");
		if (unlink(temp) != 0 && errno != ENOENT)
			return errmsg_fail(em, ERR_IO, "%s: %s", stale[i], strerror(errno));
	}
	snprintf(temp, sizeof temp, "%s.new", path);
	int fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600); // SQLite would use the process's umask; its journal inherits this mode
	if (fd < 0)
		return errmsg_fail(em, ERR_IO, "cannot be made: %s", strerror(errno));
	close(fd);
	sqlite3 *db = NULL;
	enum err e = open_sqlite(temp, &db, em);
	if (e == OK)
		e = set_up(db, em);
	if (e == OK)
		e = make_schema(db, cluster_id, em);
	sqlite3_close(db);
	if (e == OK)
		e = durable_file_publish(temp, path, em);
	if (e != OK)
		unlink(temp);
	return e;
}

enum err coord_db_open(const char *path, const uint8_t new_cluster_id[CLUSTER_ID_BYTES], struct sqlite3 **db, struct coord_restored *out,
	struct errmsg *em)
{
	*db = NULL;
	memset(out, 0, sizeof *out);
	int fd;
	struct stat st;
	enum err e = durable_file_open(path, &fd, em); // closed before SQLite opens it: a close would drop its locks
	if (e == ERR_NOT_FOUND) {
		e = create(path, new_cluster_id, em);
		if (e != OK)
			return errmsg_prefix(em, e, "%s", path);
		e = durable_file_open(path, &fd, em);
	}
	if (e != OK)
		return e;
	bool is_empty = fstat(fd, &st) != 0 || st.st_size == 0;
	close(fd);
	e = is_empty ? errmsg_fail(em, ERR_FORMAT, "damaged: it is empty") : open_sqlite(path, db, em);
	if (e == OK)
		e = check_file(*db, em);
	if (e == OK)
		e = set_up(*db, em);
	if (e == OK)
		e = load_meta(*db, out, em);
	if (e == OK)
		e = load_members(*db, out, em);
	if (e == OK)
		e = load_invites(*db, out, em);
	if (e == OK)
		return OK;
	sodium_memzero(out, sizeof *out);
	sqlite3_close(*db);
	*db = NULL;
	return errmsg_prefix(em, e, "%s", path);
}

void coord_db_close(struct sqlite3 *db)
{
	sqlite3_close(db);
}
