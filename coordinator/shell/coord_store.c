#include "coordinator/shell/coord_store.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCHEMA_VERSION 1
#define QUEUE_MAX 64
#define APPLICATION_ID 0x48727468 // "Hrth"

struct store_done {
	uint32_t id;
	enum err err;
};

struct coord_store {
	sqlite3 *db;
	struct loop *loop;
	coord_store_done done;
	void *ctx;
	struct loop_task task; // runs completions

	pthread_t thread;
	pthread_mutex_t mutex; // guards what follows
	pthread_cond_t wake;
	bool is_stopping;
	struct coord_write queue[QUEUE_MAX];
	uint32_t n_queued;
	struct store_done dones[2 * QUEUE_MAX];
	uint32_t n_dones;
};

// ---- SQLite in short

static enum err db_fail(sqlite3 *db, const char *what, struct errmsg *em)
{
	return errmsg_fail(em, ERR_IO, "%s: %s", what, db ? sqlite3_errmsg(db) : "out of memory");
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

static enum err finish(sqlite3 *db, sqlite3_stmt *st)
{
	if (st == NULL)
		return ERR_IO;
	int rc = sqlite3_step(st);
	(void)db;
	sqlite3_finalize(st);
	return rc == SQLITE_DONE ? OK : ERR_IO;
}

static void bind_bytes(sqlite3_stmt *st, int i, const uint8_t *data, size_t len)
{
	if (st)
		sqlite3_bind_blob(st, i, data, (int)len, SQLITE_STATIC);
}

static bool column_bytes(sqlite3_stmt *st, int i, uint8_t *out, size_t len)
{
	if (sqlite3_column_bytes(st, i) != (int)len)
		return false;
	memcpy(out, sqlite3_column_blob(st, i), len);
	return true;
}

// ---- writes

static enum err put_invite(sqlite3 *db, const struct invite_record *r)
{
	sqlite3_stmt *st = prepare(db,
		"INSERT OR REPLACE INTO invites (token_id, secret, expires_s, n_failures, bound_to) VALUES (?1, ?2, ?3, ?4, ?5)");
	if (st == NULL)
		return ERR_IO;
	bind_bytes(st, 1, r->token_id, TOKEN_ID_BYTES);
	bind_bytes(st, 2, r->secret, KEY_BYTES);
	sqlite3_bind_int64(st, 3, r->expires_s);
	sqlite3_bind_int(st, 4, r->n_failures);
	if (r->bound)
		bind_bytes(st, 5, r->bound_to.b, NODE_ID_BYTES);
	return finish(db, st);
}

static enum err put_member(sqlite3 *db, const struct member_record *r)
{
	sqlite3_stmt *st = prepare(db, "INSERT OR REPLACE INTO members (id, public_key, psk, name) VALUES (?1, ?2, ?3, ?4)");
	if (st == NULL)
		return ERR_IO;
	bind_bytes(st, 1, r->id.b, NODE_ID_BYTES);
	bind_bytes(st, 2, r->public_key, KEY_BYTES);
	bind_bytes(st, 3, r->psk, KEY_BYTES);
	sqlite3_bind_text(st, 4, r->name, -1, SQLITE_STATIC);
	return finish(db, st);
}

static enum err delete_by_bytes(sqlite3 *db, const char *sql, const uint8_t *key, size_t len)
{
	sqlite3_stmt *st = prepare(db, sql);
	bind_bytes(st, 1, key, len);
	return finish(db, st);
}

static enum err put_epoch(sqlite3 *db, struct member_epoch e)
{
	sqlite3_stmt *st = prepare(db, "UPDATE meta SET member_epoch = ?1");
	if (st)
		sqlite3_bind_int64(st, 1, (sqlite3_int64)e.v);
	return finish(db, st);
}

static enum err write_all(sqlite3 *db, const struct coord_write *w)
{
	enum err e = ERR_STATE;
	switch (w->op) {
	case STORE_INVITE: return put_invite(db, &w->invite);
	case STORE_BIND:
		e = put_member(db, &w->member);
		return e == OK ? put_invite(db, &w->invite) : e;
	case STORE_INVITE_DELETE: return delete_by_bytes(db, "DELETE FROM invites WHERE token_id = ?1", w->invite.token_id, TOKEN_ID_BYTES);
	case STORE_REVOKE:
		e = delete_by_bytes(db, "DELETE FROM members WHERE id = ?1", w->member.id.b, NODE_ID_BYTES);
		if (e == OK)
			e = delete_by_bytes(db, "DELETE FROM invites WHERE bound_to = ?1", w->member.id.b, NODE_ID_BYTES);
		return e == OK ? put_epoch(db, w->member_epoch) : e;
	}
	return e;
}

static enum err write_one(sqlite3 *db, const struct coord_write *w)
{
	enum err e = run(db, "BEGIN IMMEDIATE", NULL);
	if (e != OK)
		return e;
	e = write_all(db, w);
	if (e == OK)
		e = run(db, "COMMIT", NULL);
	if (e != OK)
		(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return e;
}

// ---- the thread

static void *store_thread(void *ctx)
{
	struct coord_store *s = ctx;
	pthread_mutex_lock(&s->mutex);
	for (;;) {
		while (s->n_queued == 0 && !s->is_stopping)
			pthread_cond_wait(&s->wake, &s->mutex);
		if (s->n_queued == 0)
			break;
		struct coord_write w = s->queue[0];
		memmove(s->queue, s->queue + 1, (size_t)(--s->n_queued) * sizeof s->queue[0]);
		sodium_memzero(&s->queue[s->n_queued], sizeof s->queue[0]);
		pthread_mutex_unlock(&s->mutex);

		enum err e = write_one(s->db, &w);

		pthread_mutex_lock(&s->mutex);
		ASSERT(s->n_dones < ARRAY_LEN(s->dones));
		s->dones[s->n_dones++] = (struct store_done){.id = w.id, .err = e};
		sodium_memzero(&w, sizeof w);
		loop_task_post(s->loop, &s->task);
	}
	pthread_mutex_unlock(&s->mutex);
	return NULL;
}

static void on_dones(void *ctx)
{
	struct coord_store *s = ctx;
	struct store_done dones[ARRAY_LEN(s->dones)];
	pthread_mutex_lock(&s->mutex);
	uint32_t n = s->n_dones;
	memcpy(dones, s->dones, n * sizeof dones[0]);
	s->n_dones = 0;
	pthread_mutex_unlock(&s->mutex);
	for (uint32_t i = 0; i < n; i++)
		s->done(s->ctx, dones[i].id, dones[i].err);
}

void coord_store_submit(struct coord_store *s, const struct coord_write *w)
{
	pthread_mutex_lock(&s->mutex);
	// Places are kept for the completions of all that is queued and of the one being written.
	bool has_room = s->n_queued + s->n_dones + 2 < QUEUE_MAX;
	if (has_room) {
		s->queue[s->n_queued++] = *w;
		pthread_cond_signal(&s->wake);
	} else {
		ASSERT(s->n_dones < ARRAY_LEN(s->dones));
		s->dones[s->n_dones++] = (struct store_done){.id = w->id, .err = ERR_BUSY};
		loop_task_post(s->loop, &s->task);
	}
	pthread_mutex_unlock(&s->mutex);
}

// ---- opening

// SQLite makes its files with the process's umask: the file exists with mode 0600 before SQLite sees it, and its journal inherits that.
static enum err make_private(const char *path, struct errmsg *em)
{
	int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return errmsg_fail(em, ERR_IO, "%s: %s", path, strerror(errno));
	struct stat st;
	enum err e = OK;
	if (fstat(fd, &st) != 0)
		e = errmsg_fail(em, ERR_IO, "%s: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		e = errmsg_fail(em, ERR_AUTH, "%s: others may read it, or it is not a plain file of yours (want mode 0600)", path);
	close(fd);
	return e;
}

static int32_t pragma_int(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *st = prepare(db, sql);
	int32_t v = -1;
	if (st && sqlite3_step(st) == SQLITE_ROW)
		v = sqlite3_column_int(st, 0);
	sqlite3_finalize(st);
	return v;
}

static enum err make_schema(sqlite3 *db, const uint8_t cluster_id[CLUSTER_ID_BYTES], struct errmsg *em)
{
	static const char sql[] = "CREATE TABLE meta (cluster_id BLOB NOT NULL, member_epoch INTEGER NOT NULL);"
							  "CREATE TABLE members (id BLOB PRIMARY KEY, public_key BLOB NOT NULL, psk BLOB NOT NULL, name TEXT NOT NULL);"
							  "CREATE TABLE invites (token_id BLOB PRIMARY KEY, secret BLOB NOT NULL, expires_s INTEGER NOT NULL,"
							  "  n_failures INTEGER NOT NULL, bound_to BLOB);"
							  "PRAGMA application_id = 1215460456; PRAGMA user_version = 1;";
	_Static_assert(APPLICATION_ID == 1215460456 && SCHEMA_VERSION == 1, "the text above says the same");
	enum err e = run(db, "BEGIN IMMEDIATE", em);
	if (e == OK)
		e = run(db, sql, em);
	if (e == OK) {
		sqlite3_stmt *st = prepare(db, "INSERT INTO meta (cluster_id, member_epoch) VALUES (?1, 1)");
		bind_bytes(st, 1, cluster_id, CLUSTER_ID_BYTES);
		e = finish(db, st);
		if (e != OK)
			e = db_fail(db, "write", em);
	}
	return e == OK ? run(db, "COMMIT", em) : e;
}

static enum err check_schema(sqlite3 *db, const uint8_t cluster_id[CLUSTER_ID_BYTES], struct errmsg *em)
{
	int32_t id = pragma_int(db, "PRAGMA application_id"), version = pragma_int(db, "PRAGMA user_version");
	if (id < 0)
		return db_fail(db, "read", em);
	if (id == 0 && version == 0 && pragma_int(db, "SELECT count(*) FROM sqlite_master") == 0)
		return make_schema(db, cluster_id, em);
	if (id != APPLICATION_ID)
		return errmsg_fail(em, ERR_FORMAT, "not a Hearth cluster file");
	if (version != SCHEMA_VERSION)
		return errmsg_fail(em, ERR_UNSUPPORTED, "version %d of the cluster file: this program knows version %d", version, SCHEMA_VERSION);
	return OK;
}

static enum err load_meta(sqlite3 *db, struct coord_restored *out, struct errmsg *em)
{
	sqlite3_stmt *st = prepare(db, "SELECT cluster_id, member_epoch FROM meta");
	bool ok = st && sqlite3_step(st) == SQLITE_ROW && column_bytes(st, 0, out->cluster_id, CLUSTER_ID_BYTES);
	if (ok)
		out->member_epoch.v = (uint64_t)sqlite3_column_int64(st, 1);
	sqlite3_finalize(st);
	return ok ? OK : errmsg_fail(em, ERR_FORMAT, "damaged: no cluster id");
}

static enum err load_members(sqlite3 *db, struct coord_restored *out, struct errmsg *em)
{
	sqlite3_stmt *st = prepare(db, "SELECT id, public_key, psk, name FROM members ORDER BY rowid");
	if (st == NULL)
		return db_fail(db, "read", em);
	enum err e = OK;
	int rc;
	while ((rc = sqlite3_step(st)) == SQLITE_ROW && e == OK) {
		const char *name = (const char *)sqlite3_column_text(st, 3);
		struct member_record *r = &out->members[out->n_members];
		if (out->n_members == NODES_MAX || name == NULL || !column_bytes(st, 0, r->id.b, NODE_ID_BYTES) ||
			!column_bytes(st, 1, r->public_key, KEY_BYTES) || !column_bytes(st, 2, r->psk, KEY_BYTES)) {
			e = errmsg_fail(em, ERR_FORMAT, "damaged: a member that cannot be read, or more than %d", NODES_MAX);
			break;
		}
		text_copy(r->name, sizeof r->name, name);
		out->n_members++;
	}
	sqlite3_finalize(st);
	return e != OK || rc == SQLITE_DONE ? e : db_fail(db, "read", em);
}

static enum err load_invites(sqlite3 *db, struct coord_restored *out, struct errmsg *em)
{
	sqlite3_stmt *st = prepare(db, "SELECT token_id, secret, expires_s, n_failures, bound_to FROM invites");
	if (st == NULL)
		return db_fail(db, "read", em);
	while (sqlite3_step(st) == SQLITE_ROW && out->n_invites < INVITES_MAX) {
		struct invite_record *r = &out->invites[out->n_invites];
		if (!column_bytes(st, 0, r->token_id, TOKEN_ID_BYTES) || !column_bytes(st, 1, r->secret, KEY_BYTES))
			continue; // an invite lost costs a new one
		r->expires_s = sqlite3_column_int64(st, 2);
		r->n_failures = sqlite3_column_int(st, 3);
		r->bound = column_bytes(st, 4, r->bound_to.b, NODE_ID_BYTES);
		out->n_invites++;
	}
	sqlite3_finalize(st);
	return OK;
}

static enum err open_db(const char *path, const uint8_t cluster_id[CLUSTER_ID_BYTES], sqlite3 **db, struct coord_restored *out, struct errmsg *em)
{
	enum err e = make_private(path, em);
	if (e != OK)
		return e;
	if (sqlite3_open_v2(path, db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_NOFOLLOW, NULL) != SQLITE_OK)
		e = db_fail(*db, "open", em);
	// EXCLUSIVE: one coordinator per state directory. A rollback journal, not WAL: one file fewer that holds secrets.
	if (e == OK)
		e = run(*db, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON", em);
	if (e == OK)
		e = check_schema(*db, cluster_id, em);
	if (e == OK)
		e = load_meta(*db, out, em);
	if (e == OK)
		e = load_members(*db, out, em);
	if (e == OK)
		e = load_invites(*db, out, em);
	return e == OK ? OK : errmsg_prefix(em, e, "%s", path);
}

enum err coord_store_open(const char *path, const uint8_t new_cluster_id[CLUSTER_ID_BYTES], struct loop *loop, coord_store_done done, void *ctx,
	struct coord_store **store, struct coord_restored *out, struct errmsg *em)
{
	memset(out, 0, sizeof *out);
	struct coord_store *s = calloc(1, sizeof *s);
	if (s == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the cluster store");
	s->loop = loop;
	s->done = done;
	s->ctx = ctx;
	loop_task_init(&s->task, on_dones, s);
	enum err e = open_db(path, new_cluster_id, &s->db, out, em);
	if (e != OK)
		goto fail;
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->wake, NULL);
	if (pthread_create(&s->thread, NULL, store_thread, s) != 0) {
		e = errmsg_fail(em, ERR_NOMEM, "cannot start the store's thread");
		pthread_cond_destroy(&s->wake);
		pthread_mutex_destroy(&s->mutex);
		goto fail;
	}
	*store = s;
	return OK;
fail:
	sqlite3_close(s->db);
	free(s);
	return e;
}

void coord_store_close(struct coord_store *s)
{
	if (s == NULL)
		return;
	pthread_mutex_lock(&s->mutex);
	s->is_stopping = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->mutex);
	pthread_join(s->thread, NULL);
	loop_task_cancel(s->loop, &s->task);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->mutex);
	sqlite3_close(s->db);
	sodium_memzero(s, sizeof *s);
	free(s);
}
