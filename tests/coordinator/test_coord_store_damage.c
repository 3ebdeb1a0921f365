// The cluster file damaged, foreign, locked, on a full disk, and after a crash.
#include "coordinator/shell/coord_store.h"

#include "tests/support/store_place.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// refused: the error has this code, and a text that names the file and says this. A regular file is as it was.
static void refused(struct place *p, enum err want, const char *words)
{
	struct stat st;
	bool is_file = lstat(p->path, &st) == 0 && S_ISREG(st.st_mode);
	size_t before_len = 0, after_len;
	uint8_t *before = is_file ? scratch_read(p->path, &before_len) : NULL;
	enum err e = try_open(p);
	if (e != want || strstr(p->em.text, words) == NULL)
		print_message("%s\n", p->em.text);
	assert_int_equal(e, want);
	assert_non_null(strstr(p->em.text, p->path));
	assert_non_null(strstr(p->em.text, words));
	p->store = NULL;
	if (is_file) {
		uint8_t *after = scratch_read(p->path, &after_len);
		assert_int_equal(after_len, before_len);
		assert_memory_equal(after, before, before_len);
		free(after);
		free(before);
	}
}

static void sql(const char *path, const char *text)
{
	sqlite3 *db;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

// ---- damage

static void a_file_cut_at_any_length_is_refused_and_left_alone(void **state)
{
	struct place *p = *state;
	filled(p, 3);
	size_t file_len;
	uint8_t *file = scratch_read(p->path, &file_len);
	for (size_t len = 0; len < file_len; len += len < 200 ? 1 : 411) {
		scratch_write(p->path, file, len);
		refused(p, ERR_FORMAT, "");
	}
	scratch_write(p->path, file, 0);
	refused(p, ERR_FORMAT, "empty");
	scratch_write(p->path, file, file_len);
	opened(p);
	still_filled(p, 3);
	free(file);
}

// Every 53rd bit, and all of the first bytes: found, or without meaning.
static void a_flipped_bit_is_found_or_means_nothing(void **state)
{
	struct place *p = *state;
	size_t n_refused = 0;
	filled(p, 3);
	size_t file_len;
	uint8_t *file = scratch_read(p->path, &file_len);
	for (size_t bit = 0; bit < 8 * file_len; bit += bit < 8 * 100 ? 1 : 53) {
		file[bit / 8] ^= (uint8_t)(1 << bit % 8);
		scratch_write(p->path, file, file_len);
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
		file[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_true(n_refused > 50);
	free(file);
}

static void a_flipped_bit_in_a_key_is_found(void **state)
{
	struct place *p = *state;
	filled(p, 3);
	size_t file_len;
	uint8_t *file = scratch_read(p->path, &file_len);
	struct member_record m = member(2);
	struct invite_record inv = invite(100);
	const uint8_t *const secrets[] = {m.psk, m.public_key, inv.secret};
	for (size_t i = 0; i < 3; i++) {
		uint8_t *at = memmem(file, file_len, secrets[i], KEY_BYTES);
		assert_non_null(at);
		at[9] ^= 4;
		scratch_write(p->path, file, file_len);
		refused(p, ERR_FORMAT, "damaged");
		at[9] ^= 4;
	}
	free(file);
}

static void what_is_no_cluster_file_is_refused(void **state)
{
	struct place *p = *state;
	char other[128];
	scratch_write(p->path, "this is a shopping list, and no database: eggs, milk", 52);
	refused(p, ERR_FORMAT, "not a cluster file");
	uint8_t *noise = malloc(20000);
	fill(noise, 20000, 1, 'n');
	scratch_write(p->path, noise, 20000);
	refused(p, ERR_FORMAT, "not a cluster file");
	free(noise);
	unlink(p->path);
	sql(p->path, "CREATE TABLE pictures (id); INSERT INTO pictures VALUES (1)");
	assert_int_equal(chmod(p->path, 0600), 0);
	refused(p, ERR_FORMAT, "not a cluster file of hearth");
	unlink(p->path);
	sql(p->path, "PRAGMA journal_mode = WAL; CREATE TABLE pictures (id)");
	assert_int_equal(chmod(p->path, 0600), 0);
	refused(p, ERR_FORMAT, "not a cluster file of hearth"); // not even its journal mode changes
	unlink(p->path);
	assert_int_equal(mkdir(p->path, 0700), 0);
	refused(p, ERR_FORMAT, "not a regular file");
	rmdir(p->path);
	assert_int_equal(mkfifo(p->path, 0600), 0);
	refused(p, ERR_FORMAT, "not a regular file"); // and no waiting
	unlink(p->path);
	snprintf(other, sizeof other, "%s/other", p->dir);
	scratch_write(other, "", 0);
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
		refused(p, cases[i].err, cases[i].words);
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
	size_t file_len;
	uint8_t *file = scratch_read(p->path, &file_len);
	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		scratch_write(p->path, file, file_len);
		sql(p->path, changes[i]);
		enum err e = try_open(p);
		assert_true(e == ERR_FORMAT || e == ERR_IO);
		assert_non_null(strstr(p->em.text, p->path));
	}
	free(file);
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
		scratch_write(path, noise, 5000);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
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
