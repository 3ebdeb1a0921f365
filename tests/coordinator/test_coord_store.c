#include "coordinator/shell/coord_store.h"

#include "proto/lnk1.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_NS INT64_C(20000000000)
#define DONES_MAX 256

struct place {
	char dir[64], path[96];
	struct loop loop;
	struct coord_store *store;
	struct coord_restored restored;
	struct errmsg em;
	int n_dones;
	uint32_t ids[DONES_MAX];
	enum err errs[DONES_MAX];
	char text[ERRMSG_CAP]; // of the last
	int n_wanted;
};

static const uint8_t cluster_id[CLUSTER_ID_BYTES] = "a cluster's name";

static void on_done(void *ctx, uint32_t id, enum err err, const char *text)
{
	struct place *p = ctx;
	assert_true(p->n_dones < DONES_MAX);
	p->ids[p->n_dones] = id;
	p->errs[p->n_dones++] = err;
	snprintf(p->text, sizeof p->text, "%s", text);
}

static int make_place(void **state)
{
	struct place *p = calloc(1, sizeof *p);
	if (p == NULL || sodium_init() < 0 || loop_open(&p->loop, NULL) != OK)
		return -1;
	snprintf(p->dir, sizeof p->dir, "/tmp/hearth-store-XXXXXX");
	if (mkdtemp(p->dir) == NULL)
		return -1;
	snprintf(p->path, sizeof p->path, "%s/cluster.db", p->dir);
	*state = p;
	return 0;
}

static int drop_place(void **state)
{
	struct place *p = *state;
	char command[128];
	coord_store_close(p->store);
	loop_close(&p->loop);
	snprintf(command, sizeof command, "rm -rf '%s'", p->dir);
	free(p);
	return system(command);
}

static enum err try_open(struct place *p)
{
	memset(&p->em, 0, sizeof p->em);
	return coord_store_open(p->path, cluster_id, &p->loop, on_done, p, &p->store, &p->restored, &p->em);
}

static void opened(struct place *p)
{
	enum err e = try_open(p);
	if (e != OK)
		print_message("%s\n", p->em.text);
	assert_int_equal(e, OK);
	assert_memory_equal(p->restored.cluster_id, cluster_id, CLUSTER_ID_BYTES);
}

static void closed(struct place *p)
{
	coord_store_close(p->store);
	p->store = NULL;
}

// refused: the error has this code, and a text that names the file and says this. The file is as it was.
static void refused(struct place *p, enum err want, const char *words)
{
	enum err e = try_open(p);
	if (e != want || strstr(p->em.text, words) == NULL)
		print_message("%s\n", p->em.text);
	assert_int_equal(e, want);
	assert_non_null(strstr(p->em.text, p->path));
	assert_non_null(strstr(p->em.text, words));
	p->store = NULL;
}

static bool has_dones(void *ctx)
{
	struct place *p = ctx;
	return p->n_dones >= p->n_wanted;
}

static void wait_dones(struct place *p, int n)
{
	p->n_wanted = n;
	assert_true(loop_run_until(&p->loop, has_dones, p, loop_clock_ns() + PATIENCE_NS));
}

static enum err written(struct place *p, const struct coord_write *w)
{
	int n = p->n_dones;
	coord_store_submit(p->store, w);
	wait_dones(p, n + 1);
	assert_int_equal(p->ids[n], w->id);
	return p->errs[n];
}

// ---- records

static void fill(uint8_t *out, size_t len, uint32_t seed, uint8_t what)
{
	for (size_t i = 0; i < len; i += 32) {
		uint8_t block[32], key[5] = {(uint8_t)seed, (uint8_t)(seed >> 8), (uint8_t)(seed >> 16), what, (uint8_t)i};
		crypto_generichash(block, sizeof block, key, sizeof key, NULL, 0);
		memcpy(out + i, block, len - i < 32 ? len - i : 32);
	}
}

static struct member_record member(uint32_t n)
{
	struct member_record r = {0};
	fill(r.public_key, KEY_BYTES, n, 'k');
	fill(r.psk, KEY_BYTES, n, 'p');
	lnk1_node_id(r.public_key, r.id.b);
	snprintf(r.name, sizeof r.name, "k\xc3\xbc" "che-%u", n);
	return r;
}

static struct invite_record invite(uint32_t n)
{
	struct invite_record r = {.expires_s = 1700000000 + n, .n_failures = (int32_t)(n % 5)};
	fill(r.token_id, TOKEN_ID_BYTES, n, 't');
	fill(r.secret, KEY_BYTES, n, 's');
	return r;
}

static struct coord_write put_invite(uint32_t id, struct invite_record r)
{
	return (struct coord_write){.id = id, .op = STORE_INVITE, .invite = r};
}

// bind makes member n by invite n.
static struct coord_write bind_to(uint32_t id, uint32_t n)
{
	struct coord_write w = {.id = id, .op = STORE_BIND, .member = member(n), .invite = invite(n)};
	w.invite.bound = true;
	w.invite.bound_to = w.member.id;
	return w;
}

static struct coord_write used_up(uint32_t id, uint32_t n)
{
	return (struct coord_write){.id = id, .op = STORE_INVITE_DELETE, .invite = invite(n)};
}

static struct coord_write revocation(uint32_t id, uint32_t n, uint64_t epoch)
{
	return (struct coord_write){.id = id, .op = STORE_REVOKE, .member = {.id = member(n).id}, .member_epoch = {epoch}};
}

static void same_member(const struct member_record *a, const struct member_record *b)
{
	assert_memory_equal(a->id.b, b->id.b, NODE_ID_BYTES);
	assert_memory_equal(a->public_key, b->public_key, KEY_BYTES);
	assert_memory_equal(a->psk, b->psk, KEY_BYTES);
	assert_string_equal(a->name, b->name);
}

static const struct invite_record *find_invite(const struct coord_restored *r, const struct invite_record *want)
{
	for (int32_t i = 0; i < r->n_invites; i++)
		if (memcmp(r->invites[i].token_id, want->token_id, TOKEN_ID_BYTES) == 0)
			return &r->invites[i];
	return NULL;
}

static void same_invite(const struct coord_restored *r, const struct invite_record *want)
{
	const struct invite_record *got = find_invite(r, want);
	assert_non_null(got);
	assert_memory_equal(got->secret, want->secret, KEY_BYTES);
	assert_int_equal(got->expires_s, want->expires_s);
	assert_int_equal(got->n_failures, want->n_failures);
	assert_int_equal(got->bound, want->bound);
	assert_memory_equal(got->bound_to.b, want->bound_to.b, NODE_ID_BYTES);
}

// filled makes a file with members 1 to n, and invites 100 and 101, closed.
static void filled(struct place *p, uint32_t n)
{
	opened(p);
	for (uint32_t i = 1; i <= n; i++) {
		struct coord_write w = bind_to(i, i), u = used_up(i, i);
		assert_int_equal(written(p, &w), OK);
		assert_int_equal(written(p, &u), OK);
	}
	struct coord_write a = put_invite(100, invite(100)), b = put_invite(101, invite(101));
	assert_int_equal(written(p, &a), OK);
	assert_int_equal(written(p, &b), OK);
	closed(p);
}

static void still_filled(struct place *p, uint32_t n)
{
	assert_int_equal(p->restored.n_members, n);
	for (uint32_t i = 1; i <= n; i++) {
		struct member_record want = member(i);
		same_member(&p->restored.members[i - 1], &want);
	}
	assert_int_equal(p->restored.n_invites, 2);
	struct invite_record a = invite(100), b = invite(101);
	same_invite(&p->restored, &a);
	same_invite(&p->restored, &b);
}

// ---- files

struct bytes {
	uint8_t *data;
	size_t len;
};

static struct bytes read_file(const char *path)
{
	struct bytes b = {malloc(1 << 20), 0};
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	b.len = fread(b.data, 1, 1 << 20, f);
	fclose(f);
	return b;
}

static void write_file(const char *path, const uint8_t *data, size_t len)
{
	unlink(path);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	close(fd);
}

// occurs looks for a secret in every file of the directory.
static bool occurs(struct place *p, const uint8_t *secret)
{
	DIR *d = opendir(p->dir);
	bool found = false;
	for (struct dirent *e; (e = readdir(d));) {
		char path[400];
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s", p->dir, e->d_name);
		struct bytes b = read_file(path);
		found = found || memmem(b.data, b.len, secret, KEY_BYTES) != NULL;
		free(b.data);
	}
	closedir(d);
	return found;
}

static void sql(const char *path, const char *text)
{
	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

// ---- round trips

static void a_new_file_is_empty_private_and_has_the_cluster_id_given(void **state)
{
	struct place *p = *state;
	struct stat st;
	mode_t old = umask(0);
	opened(p);
	umask(old);
	assert_int_equal(p->restored.member_epoch.v, 1);
	assert_int_equal(p->restored.n_members + p->restored.n_invites, 0);
	assert_int_equal(stat(p->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	struct coord_write w = put_invite(1, invite(1)); // while the journal is there
	assert_int_equal(written(p, &w), OK);
	DIR *d = opendir(p->dir);
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.') {
			assert_int_equal(fstatat(dirfd(d), e->d_name, &st, 0), 0);
			assert_int_equal(st.st_mode & 07777, 0600);
		}
	closedir(d);
	closed(p);
	static const uint8_t other[CLUSTER_ID_BYTES] = "another cluster";
	assert_int_equal(coord_store_open(p->path, other, &p->loop, on_done, p, &p->store, &p->restored, &p->em), OK);
	assert_memory_equal(p->restored.cluster_id, cluster_id, CLUSTER_ID_BYTES);
}

static void what_was_written_is_there_after_close_and_open(void **state)
{
	struct place *p = *state;
	filled(p, 3);
	opened(p);
	still_filled(p, 3);
	assert_int_equal(p->restored.member_epoch.v, 1);
	closed(p);
	opened(p);
	still_filled(p, 3);
}

static void an_invite_is_replaced_bound_and_used_up(void **state)
{
	struct place *p = *state;
	struct coord_write w = put_invite(1, invite(7));
	opened(p);
	assert_int_equal(written(p, &w), OK);
	w.invite.n_failures = 4;
	assert_int_equal(written(p, &w), OK);
	closed(p);
	opened(p);
	assert_int_equal(p->restored.n_invites, 1);
	same_invite(&p->restored, &w.invite);
	w = bind_to(2, 7);
	assert_int_equal(written(p, &w), OK);
	assert_int_equal(written(p, &w), OK); // it asks again: the same member
	closed(p);
	opened(p);
	assert_int_equal(p->restored.n_members, 1);
	same_member(&p->restored.members[0], &w.member);
	same_invite(&p->restored, &w.invite);
	w = used_up(3, 7);
	assert_int_equal(written(p, &w), OK);
	assert_int_equal(written(p, &w), OK); // of what is not there: no error
	closed(p);
	opened(p);
	assert_int_equal(p->restored.n_invites, 0);
	assert_int_equal(p->restored.n_members, 1);
}

static void a_revocation_takes_the_member_its_invites_and_the_old_epoch(void **state)
{
	struct place *p = *state;
	filled(p, 2);
	opened(p);
	struct coord_write w = bind_to(1, 3);
	assert_int_equal(written(p, &w), OK); // its invite is still there
	w = revocation(2, 3, 9);
	assert_int_equal(written(p, &w), OK);
	closed(p);
	opened(p);
	still_filled(p, 2);
	assert_int_equal(p->restored.member_epoch.v, 9);
	w = revocation(3, 1, UINT64_C(1) << 62);
	assert_int_equal(written(p, &w), OK);
	closed(p);
	opened(p);
	assert_int_equal(p->restored.n_members, 1);
	struct member_record left = member(2);
	same_member(&p->restored.members[0], &left);
	assert_int_equal(p->restored.member_epoch.v, UINT64_C(1) << 62);
}

static void as_many_members_as_a_cluster_has_fit_in_order(void **state)
{
	struct place *p = *state;
	filled(p, NODES_MAX);
	opened(p);
	still_filled(p, NODES_MAX);
}

static void of_too_many_invites_the_newest_are_read(void **state)
{
	struct place *p = *state;
	opened(p);
	for (uint32_t i = 1; i <= INVITES_MAX + 3; i++) {
		struct coord_write w = put_invite(i, invite(i));
		assert_int_equal(written(p, &w), OK);
	}
	closed(p);
	opened(p);
	assert_int_equal(p->restored.n_invites, INVITES_MAX);
	for (uint32_t i = 1; i <= INVITES_MAX + 3; i++) {
		struct invite_record want = invite(i);
		assert_int_equal(find_invite(&p->restored, &want) != NULL, i > 3);
	}
}

static void closing_finishes_what_is_queued_and_tells_nobody(void **state)
{
	struct place *p = *state;
	opened(p);
	for (uint32_t i = 1; i <= 20; i++) {
		struct coord_write w = bind_to(i, i);
		coord_store_submit(p->store, &w);
	}
	closed(p);
	p->n_wanted = 1;
	assert_false(loop_run_until(&p->loop, has_dones, p, loop_clock_ns() + 5000000));
	assert_int_equal(p->n_dones, 0);
	opened(p);
	assert_int_equal(p->restored.n_members, 20);
}

static void more_than_can_wait_is_refused_and_each_is_told_once(void **state)
{
	struct place *p = *state;
	int n = 3 * COORD_STORE_QUEUE_MAX, n_ok = 0;
	opened(p);
	for (int i = 0; i < n; i++) {
		struct coord_write w = {.id = (uint32_t)i + 1, .op = STORE_REVOKE, .member_epoch = {(uint64_t)i + 2}};
		coord_store_submit(p->store, &w);
	}
	wait_dones(p, n);
	uint64_t last = 1;
	bool told[3 * COORD_STORE_QUEUE_MAX] = {false};
	for (int i = 0; i < n; i++) {
		assert_false(told[p->ids[i] - 1]);
		told[p->ids[i] - 1] = true;
		assert_true(p->errs[i] == OK || p->errs[i] == ERR_BUSY);
		if (p->errs[i] != OK)
			continue;
		assert_true(p->ids[i] + 1 > last); // in order
		last = p->ids[i] + 1;
		n_ok++;
	}
	assert_true(n_ok >= COORD_STORE_QUEUE_MAX);
	closed(p);
	opened(p);
	assert_int_equal(p->restored.member_epoch.v, last);
}

// ---- what must not be left

static void no_secret_outlives_its_revocation_or_use(void **state)
{
	struct place *p = *state;
	enum { N = 40 };
	filled(p, N);
	opened(p);
	for (uint32_t i = 1; i <= N; i++) {
		uint32_t n = 1 + (i * 17) % N; // in another order than they came
		struct member_record m = member(n);
		struct invite_record inv = invite(n);
		assert_true(occurs(p, m.psk)); // the search can find
		assert_false(occurs(p, inv.secret));
		struct coord_write w = revocation(i, n, i + 1);
		assert_int_equal(written(p, &w), OK);
		assert_false(occurs(p, m.psk));
		if (i % 4)
			continue;
		w = put_invite(i, invite(1000 + i));
		assert_int_equal(written(p, &w), OK);
		assert_true(occurs(p, w.invite.secret));
		uint8_t secret[KEY_BYTES];
		memcpy(secret, w.invite.secret, KEY_BYTES);
		w = used_up(i, 1000 + i);
		assert_int_equal(written(p, &w), OK);
		assert_false(occurs(p, secret));
	}
	closed(p);
	for (uint32_t n = 1; n <= N; n++) {
		struct member_record m = member(n);
		struct invite_record inv = invite(n), later = invite(1000 + n);
		assert_false(occurs(p, m.psk));
		assert_false(occurs(p, inv.secret));
		assert_false(occurs(p, later.secret));
	}
}

// ---- damage

static void a_file_cut_at_any_length_is_refused_and_left_alone(void **state)
{
	struct place *p = *state;
	filled(p, 3);
	struct bytes b = read_file(p->path);
	for (size_t len = 0; len < b.len; len += len < 200 ? 1 : 411) {
		write_file(p->path, b.data, len);
		refused(p, ERR_FORMAT, "");
		struct bytes after = read_file(p->path);
		assert_int_equal(after.len, len);
		assert_memory_equal(after.data, b.data, len);
		free(after.data);
	}
	write_file(p->path, b.data, 0);
	refused(p, ERR_FORMAT, "empty");
	write_file(p->path, b.data, b.len);
	opened(p);
	still_filled(p, 3);
	free(b.data);
}

// Every 53rd bit, and all of the first bytes: found, or without meaning.
static void a_flipped_bit_is_found_or_means_nothing(void **state)
{
	struct place *p = *state;
	size_t n_refused = 0;
	filled(p, 3);
	struct bytes b = read_file(p->path);
	for (size_t bit = 0; bit < 8 * b.len; bit += bit < 8 * 100 ? 1 : 53) {
		b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		write_file(p->path, b.data, b.len);
		enum err e = try_open(p);
		if (e == OK) {
			still_filled(p, 3);
			assert_int_equal(p->restored.member_epoch.v, 1);
			closed(p);
		} else {
			assert_true(e == ERR_FORMAT || e == ERR_UNSUPPORTED || e == ERR_IO);
			assert_non_null(strstr(p->em.text, p->path));
			assert_null(p->store);
			n_refused++;
		}
		b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_true(n_refused > 50);
	free(b.data);
}

static void a_flipped_bit_in_a_key_is_found(void **state)
{
	struct place *p = *state;
	filled(p, 3);
	struct bytes b = read_file(p->path);
	struct member_record m = member(2);
	struct invite_record inv = invite(100);
	const uint8_t *const secrets[] = {m.psk, m.public_key, inv.secret};
	for (size_t i = 0; i < 3; i++) {
		uint8_t *at = memmem(b.data, b.len, secrets[i], KEY_BYTES);
		assert_non_null(at);
		at[9] ^= 4;
		write_file(p->path, b.data, b.len);
		refused(p, ERR_FORMAT, "damaged");
		at[9] ^= 4;
	}
	free(b.data);
}

static void what_is_no_cluster_file_is_refused(void **state)
{
	struct place *p = *state;
	char other[128];
	write_file(p->path, (const uint8_t *)"this is a shopping list, and no database: eggs, milk", 52);
	refused(p, ERR_FORMAT, "not a cluster file");
	uint8_t *noise = malloc(20000);
	fill(noise, 20000, 1, 'n');
	write_file(p->path, noise, 20000);
	refused(p, ERR_FORMAT, "not a cluster file");
	free(noise);
	unlink(p->path);
	sql(p->path, "CREATE TABLE pictures (id); INSERT INTO pictures VALUES (1)");
	assert_int_equal(chmod(p->path, 0600), 0);
	refused(p, ERR_FORMAT, "not a cluster file of hearth");
	unlink(p->path);
	sql(p->path, "PRAGMA journal_mode = WAL; CREATE TABLE pictures (id)");
	assert_int_equal(chmod(p->path, 0600), 0);
	struct bytes before = read_file(p->path);
	refused(p, ERR_FORMAT, "not a cluster file of hearth");
	struct bytes after = read_file(p->path);
	assert_int_equal(before.len, after.len);
	assert_memory_equal(before.data, after.data, before.len); // not even its journal mode
	free(before.data);
	free(after.data);
	unlink(p->path);
	assert_int_equal(mkdir(p->path, 0700), 0);
	refused(p, ERR_FORMAT, "not a regular file");
	rmdir(p->path);
	assert_int_equal(mkfifo(p->path, 0600), 0);
	refused(p, ERR_FORMAT, "not a regular file"); // and no waiting
	unlink(p->path);
	snprintf(other, sizeof other, "%s/other", p->dir);
	write_file(other, (const uint8_t *)"", 0);
	assert_int_equal(symlink(other, p->path), 0);
	refused(p, ERR_IO, "symbolic link");
	unlink(p->path);
	snprintf(p->path, sizeof p->path, "%s/no/such/dir.db", p->dir);
	refused(p, ERR_IO, "No such file");
}

static void another_version_or_program_is_refused_and_not_touched(void **state)
{
	struct place *p = *state;
	filled(p, 1);
	static const struct {
		const char *sql, *words;
		enum err err;
	} cases[] = {
		{"PRAGMA user_version = 3", "version 3 of the cluster file: this program knows version 2", ERR_UNSUPPORTED},
		{"PRAGMA user_version = 1", "version 1", ERR_UNSUPPORTED},
		{"PRAGMA user_version = 0", "version 0", ERR_UNSUPPORTED},
		{"PRAGMA user_version = 2; PRAGMA application_id = 0", "not a cluster file of hearth", ERR_FORMAT},
		{"PRAGMA application_id = -5", "not a cluster file of hearth", ERR_FORMAT},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		sql(p->path, cases[i].sql);
		struct bytes before = read_file(p->path);
		refused(p, cases[i].err, cases[i].words);
		struct bytes after = read_file(p->path);
		assert_int_equal(before.len, after.len);
		assert_memory_equal(before.data, after.data, before.len);
		free(before.data);
		free(after.data);
	}
	sql(p->path, "PRAGMA application_id = 1215460456; PRAGMA user_version = 2");
	opened(p);
	still_filled(p, 1);
}

static void rows_that_another_program_changed_are_refused(void **state)
{
	struct place *p = *state;
	static const char *const changes[] = {
		"DELETE FROM meta", "UPDATE meta SET member_epoch = 7", "UPDATE meta SET cluster_id = x'00'", "UPDATE meta SET digest = 5",
		"DELETE FROM members", "UPDATE members SET name = 'x'", "UPDATE invites SET n_failures = 0", "UPDATE invites SET bound_to = x'01'",
		"DROP TABLE members", "DROP TABLE meta", "INSERT INTO meta VALUES (x'00', 1, x'00')",
	};
	filled(p, 2);
	struct bytes b = read_file(p->path);
	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		write_file(p->path, b.data, b.len);
		sql(p->path, changes[i]);
		enum err e = try_open(p);
		assert_true(e == ERR_FORMAT || e == ERR_IO);
		assert_non_null(strstr(p->em.text, p->path));
	}
	free(b.data);
}

static void a_file_that_others_may_read_is_refused(void **state)
{
	struct place *p = *state;
	filled(p, 1);
	static const mode_t modes[] = {0640, 0604, 0660, 0666, 0644, 0700, 0620};
	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		assert_int_equal(chmod(p->path, modes[i]), 0);
		refused(p, ERR_AUTH, "want 0600");
	}
	assert_int_equal(chmod(p->path, 0600), 0);
	opened(p);
	still_filled(p, 1);
}

static void a_state_directory_behind_a_link_is_fine(void **state)
{
	struct place *p = *state;
	char link[96];
	filled(p, 1);
	snprintf(link, sizeof link, "%s/l", p->dir);
	assert_int_equal(symlink(p->dir, link), 0);
	snprintf(p->path, sizeof p->path, "%s/cluster.db", link);
	opened(p);
	still_filled(p, 1);
	unlink(link);
}

static void leftovers_of_a_crash_or_of_another_file_do_no_harm(void **state)
{
	struct place *p = *state;
	static const char *const names[] = {".new", ".new-journal", "-journal"};
	uint8_t *noise = malloc(5000);
	fill(noise, 5000, 1, 'n');
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char path[128];
		snprintf(path, sizeof path, "%s%s", p->path, names[i]);
		write_file(path, noise, 5000);
	}
	free(noise);
	filled(p, 2);
	opened(p);
	still_filled(p, 2);
}

// ---- the disk, other programs, crashes

static void a_write_that_fails_changes_nothing_and_says_why(void **state)
{
	struct place *p = *state;
	struct rlimit old, tight;
	filled(p, 2);
	opened(p);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	tight = old;
	tight.rlim_cur = 600; // not even a journal's first page
	const struct coord_write writes[] = {bind_to(50, 50), put_invite(51, invite(51)), used_up(52, 100), revocation(53, 1, 5)};
	for (size_t i = 0; i < ARRAY_LEN(writes); i++) {
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
		enum err e = written(p, &writes[i]);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
		assert_int_equal(e, ERR_IO);
		assert_non_null(strstr(p->text, "write: "));
	}
	closed(p);
	opened(p);
	still_filled(p, 2);
	assert_int_equal(p->restored.member_epoch.v, 1);
	assert_int_equal(written(p, &writes[3]), OK); // the disk has room again
	closed(p);
	opened(p);
	assert_int_equal(p->restored.n_members, 1);
	assert_int_equal(p->restored.member_epoch.v, 5);
}

static void say(int fd)
{
	char c = 1;
	ssize_t n = write(fd, &c, 1);
	(void)n;
}

static bool hear(int fd)
{
	char c;
	return read(fd, &c, 1) == 1;
}

static void a_file_locked_by_another_program_is_refused_until_it_lets_go(void **state)
{
	struct place *p = *state;
	static const char *const locks[] = {"BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "BEGIN; SELECT * FROM meta"};
	filled(p, 2);
	for (size_t i = 0; i < ARRAY_LEN(locks); i++) {
		int up[2], down[2];
		assert_int_equal(pipe(up), 0);
		assert_int_equal(pipe(down), 0);
		pid_t child = fork(); // no store is open here: the child has locks of its own
		if (child == 0) {
			sqlite3 *db;
			int rc = sqlite3_open(p->path, &db) == SQLITE_OK ? sqlite3_exec(db, locks[i], NULL, NULL, NULL) : 1;
			if (rc == SQLITE_OK)
				say(up[1]);
			(void)hear(down[0]);
			_exit(rc);
		}
		assert_true(hear(up[0]));
		refused(p, ERR_BUSY, "in use by another program");
		say(down[1]);
		int status;
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		opened(p);
		still_filled(p, 2);
		closed(p);
		for (int k = 0; k < 2; k++) {
			close(up[k]);
			close(down[k]);
		}
	}
}

static void nobody_else_opens_the_file_while_the_store_has_it(void **state)
{
	struct place *p = *state;
	int up[2], down[2];
	filled(p, 1);
	assert_int_equal(pipe(up), 0);
	assert_int_equal(pipe(down), 0);
	pid_t child = fork(); // before the store is opened, so that it knows nothing of its locks
	if (child == 0) {
		(void)hear(down[0]);
		enum err e = try_open(p);
		sqlite3 *db;
		int rc = sqlite3_open(p->path, &db) == SQLITE_OK ? sqlite3_exec(db, "SELECT * FROM members", NULL, NULL, NULL) : 0;
		_exit(e == ERR_BUSY && rc == SQLITE_BUSY ? 0 : 1);
	}
	opened(p); // it has written nothing yet
	say(down[1]);
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	struct coord_write w = bind_to(2, 2), u = used_up(3, 2);
	assert_int_equal(written(p, &w), OK);
	assert_int_equal(written(p, &u), OK);
	closed(p);
	opened(p);
	still_filled(p, 2);
	for (int k = 0; k < 2; k++) {
		close(up[k]);
		close(down[k]);
	}
}

struct crasher {
	struct place *p;
	int fd;
};

static void on_crasher_done(void *ctx, uint32_t id, enum err err, const char *text)
{
	struct crasher *c = ctx;
	(void)text;
	if (err != OK)
		_exit(2);
	if (write(c->fd, &id, sizeof id) != sizeof id)
		_exit(3);
	struct coord_write w = id % 2 ? used_up(id + 1, id) : bind_to(id + 1, id + 1);
	if (id < 2 * NODES_MAX - 2)
		coord_store_submit(c->p->store, &w);
}

// A child binds member 1, 3, 5, ... and takes their invites away again; killed somewhere, what it was told is done is on disk.
static void a_killed_coordinator_loses_nothing_it_was_told_is_written(void **state)
{
	struct place *p = *state;
	for (uint32_t kill_at = 1; kill_at <= 61; kill_at += 15) {
		int up[2];
		unlink(p->path);
		assert_int_equal(pipe(up), 0);
		pid_t child = fork();
		if (child == 0) {
			struct crasher c = {p, up[1]};
			if (coord_store_open(p->path, cluster_id, &p->loop, on_crasher_done, &c, &p->store, &p->restored, NULL) != OK)
				_exit(4);
			struct coord_write w = bind_to(1, 1);
			coord_store_submit(p->store, &w);
			loop_run(&p->loop);
			_exit(5);
		}
		close(up[1]);
		uint32_t last = 0;
		while (last < kill_at)
			assert_int_equal(read(up[0], &last, sizeof last), sizeof last);
		kill(child, SIGKILL);
		int status;
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status));
		while (read(up[0], &last, sizeof last) == sizeof last)
			continue;
		close(up[0]);
		opened(p);
		int32_t told = (int32_t)(last + 1) / 2; // bindings that were told
		assert_in_range(p->restored.n_members, told, told + 1); // one more may be on disk untold
		for (int32_t i = 0; i < p->restored.n_members; i++) {
			struct member_record want = member(2 * (uint32_t)i + 1);
			same_member(&p->restored.members[i], &want);
		}
		assert_in_range(p->restored.n_invites, 0, 1);
		closed(p);
	}
}

#define IN_PLACE(f) cmocka_unit_test_setup_teardown(f, make_place, drop_place)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_PLACE(a_new_file_is_empty_private_and_has_the_cluster_id_given),
		IN_PLACE(what_was_written_is_there_after_close_and_open),
		IN_PLACE(an_invite_is_replaced_bound_and_used_up),
		IN_PLACE(a_revocation_takes_the_member_its_invites_and_the_old_epoch),
		IN_PLACE(as_many_members_as_a_cluster_has_fit_in_order),
		IN_PLACE(of_too_many_invites_the_newest_are_read),
		IN_PLACE(closing_finishes_what_is_queued_and_tells_nobody),
		IN_PLACE(more_than_can_wait_is_refused_and_each_is_told_once),
		IN_PLACE(no_secret_outlives_its_revocation_or_use),
		IN_PLACE(a_file_cut_at_any_length_is_refused_and_left_alone),
		IN_PLACE(a_flipped_bit_is_found_or_means_nothing),
		IN_PLACE(a_flipped_bit_in_a_key_is_found),
		IN_PLACE(what_is_no_cluster_file_is_refused),
		IN_PLACE(another_version_or_program_is_refused_and_not_touched),
		IN_PLACE(rows_that_another_program_changed_are_refused),
		IN_PLACE(a_file_that_others_may_read_is_refused),
		IN_PLACE(a_state_directory_behind_a_link_is_fine),
		IN_PLACE(leftovers_of_a_crash_or_of_another_file_do_no_harm),
		IN_PLACE(a_write_that_fails_changes_nothing_and_says_why),
		IN_PLACE(a_file_locked_by_another_program_is_refused_until_it_lets_go),
		IN_PLACE(nobody_else_opens_the_file_while_the_store_has_it),
		IN_PLACE(a_killed_coordinator_loses_nothing_it_was_told_is_written),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
