#include "cli/state_dir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];
static struct errmsg em;

static int make_root(void **state)
{
	(void)state;
	strcpy(root, "/tmp/hearth-test-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

static const char *in_root(const char *name)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s", root, name);
	return path;
}

static unsigned mode_of(const char *path)
{
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777u;
}

static void the_directory_is_chosen_as_the_xdg_specification_says(void **state)
{
	(void)state;
	char path[STATE_PATH_CAP];
	setenv("HOME", "/home/a", 1);
	setenv("XDG_STATE_HOME", "/x/state", 1);
	assert_int_equal(state_dir_resolve(NULL, path, &em), OK);
	assert_string_equal(path, "/x/state/hearth");
	assert_int_equal(state_dir_resolve("here", path, &em), OK);
	assert_string_equal(path, "here");
	setenv("XDG_STATE_HOME", "relative", 1);
	assert_int_equal(state_dir_resolve(NULL, path, &em), OK);
	assert_string_equal(path, "/home/a/.local/state/hearth");
	unsetenv("XDG_STATE_HOME");
	assert_int_equal(state_dir_resolve(NULL, path, &em), OK);
	assert_string_equal(path, "/home/a/.local/state/hearth");
	unsetenv("HOME"); // then the user data base answers
	assert_int_equal(state_dir_resolve(NULL, path, &em), OK);
	assert_non_null(strstr(path, "/.local/state/hearth"));

	char longer[STATE_PATH_CAP + 1];
	memset(longer, 'a', sizeof longer);
	longer[STATE_PATH_CAP] = '\0';
	assert_int_equal(state_dir_resolve(longer, path, &em), ERR_LIMIT);
	longer[STATE_PATH_CAP - 1] = '\0';
	assert_int_equal(state_dir_resolve(longer, path, &em), OK);
}

static void missing_directories_are_made_for_the_owner_only(void **state)
{
	(void)state;
	struct state_dir sd;
	mode_t old = umask(0);
	assert_int_equal(state_dir_open(in_root("a/b/c"), &sd, &em), OK);
	umask(old);
	assert_int_equal(mode_of(in_root("a/b/c")), 0700);
	assert_int_equal(mode_of(in_root("a")), 0700);
	state_dir_close(&sd);
	assert_int_equal(state_dir_open(in_root("a/b/c/"), &sd, &em), OK);
	state_dir_close(&sd);
	state_dir_close(&sd); // twice is harmless
}

static void a_directory_that_others_may_enter_is_refused(void **state)
{
	(void)state;
	static const mode_t modes[] = {0755, 0750, 0701, 0702, 0704, 0777};
	struct state_dir sd;
	assert_int_equal(mkdir(in_root("open"), 0700), 0);
	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		assert_int_equal(chmod(in_root("open"), modes[i]), 0);
		assert_int_equal(state_dir_open(in_root("open"), &sd, &em), ERR_AUTH);
		assert_non_null(strstr(em.text, "lets other users in, want 0700 (chmod 700 makes it so)"));
		assert_int_equal(sd.fd, -1);
	}
	assert_int_equal(chmod(in_root("open"), 0700), 0);
	assert_int_equal(state_dir_open(in_root("open"), &sd, &em), OK);
	state_dir_close(&sd);
}

static void a_directory_of_another_user_is_refused(void **state)
{
	(void)state;
	if (geteuid() != 0) {
		print_message("skip: only root can give a directory away\n");
		skip();
	}
	struct state_dir sd;
	assert_int_equal(mkdir(in_root("foreign"), 0700), 0);
	assert_int_equal(chown(in_root("foreign"), 12345, 12345), 0);
	assert_int_equal(state_dir_open(in_root("foreign"), &sd, &em), ERR_AUTH);
	assert_non_null(strstr(em.text, "belongs to user 12345, want user 0, who runs this program"));
}

static void what_is_no_directory_is_refused(void **state)
{
	(void)state;
	struct state_dir sd;
	int fd = open(in_root("file"), O_CREAT | O_WRONLY, 0600);
	close(fd);
	assert_int_equal(state_dir_open(in_root("file"), &sd, &em), ERR_IO);
	assert_int_equal(state_dir_open(in_root("file/below"), &sd, &em), ERR_IO);
	assert_int_equal(state_dir_open("/proc/hearth", &sd, &em), ERR_IO);
}

static void one_program_at_a_time_uses_a_directory(void **state)
{
	(void)state;
	struct state_dir a, b;
	assert_int_equal(state_dir_open(in_root("s"), &a, &em), OK);
	assert_int_equal(state_dir_open(in_root("s"), &b, &em), OK);
	assert_int_equal(state_dir_lock(&a, &em), OK);
	assert_int_equal(mode_of(in_root("s/lock")), 0600);
	assert_int_equal(state_dir_lock(&b, &em), ERR_BUSY);
	char want[256];
	snprintf(want, sizeof want, "%s: already in use by process %ld: stop that one, or give this one a directory of its own with --state", in_root("s"), (long)getpid());
	assert_string_equal(em.text, want);
	assert_int_equal(b.lock_fd, -1);
	state_dir_close(&a);
	assert_int_equal(state_dir_lock(&b, &em), OK);
	state_dir_close(&b);
}

static void a_killed_program_leaves_no_lock_behind(void **state)
{
	(void)state;
	int ready[2];
	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	if (child == 0) {
		struct state_dir sd;
		char ok = state_dir_open(in_root("k"), &sd, NULL) == OK && state_dir_lock(&sd, NULL) == OK;
		if (write(ready[1], &ok, 1) == 1)
			pause();
		_exit(1);
	}
	char ok = 0;
	assert_int_equal(read(ready[0], &ok, 1), 1);
	assert_true(ok);
	struct state_dir sd;
	assert_int_equal(state_dir_open(in_root("k"), &sd, &em), OK);
	assert_int_equal(state_dir_lock(&sd, &em), ERR_BUSY);
	char want[256];
	snprintf(want, sizeof want, "%s: already in use by process %ld: stop that one, or give this one a directory of its own with --state", in_root("k"), (long)child);
	assert_string_equal(em.text, want);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(state_dir_lock(&sd, &em), OK);
	state_dir_close(&sd);
	close(ready[0]);
	close(ready[1]);
}

static void a_lock_that_is_a_link_is_not_followed(void **state)
{
	(void)state;
	struct state_dir sd;
	assert_int_equal(state_dir_open(in_root("l"), &sd, &em), OK);
	assert_int_equal(symlink("/tmp/hearth-test-elsewhere", in_root("l/lock")), 0);
	assert_int_equal(state_dir_lock(&sd, &em), ERR_IO);
	assert_int_equal(access("/tmp/hearth-test-elsewhere", F_OK), -1);
	state_dir_close(&sd);
}

static void paths_fit_or_are_refused(void **state)
{
	(void)state;
	struct state_dir sd = STATE_DIR_CLOSED;
	memset(sd.path, 'd', 100);
	char path[STATE_SOCKET_CAP];
	assert_int_equal(state_dir_path(&sd, "sock12", path, sizeof path, &em), OK);
	assert_int_equal(strlen(path), STATE_SOCKET_CAP - 1);
	assert_int_equal(state_dir_path(&sd, "sock123", path, sizeof path, &em), ERR_LIMIT);
	assert_non_null(strstr(em.text, "want at most 107; choose a shorter --state"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_directory_is_chosen_as_the_xdg_specification_says),
		cmocka_unit_test(missing_directories_are_made_for_the_owner_only),
		cmocka_unit_test(a_directory_that_others_may_enter_is_refused),
		cmocka_unit_test(a_directory_of_another_user_is_refused),
		cmocka_unit_test(what_is_no_directory_is_refused),
		cmocka_unit_test(one_program_at_a_time_uses_a_directory),
		cmocka_unit_test(a_killed_program_leaves_no_lock_behind),
		cmocka_unit_test(a_lock_that_is_a_link_is_not_followed),
		cmocka_unit_test(paths_fit_or_are_refused),
	};
	return cmocka_run_group_tests(tests, make_root, remove_root);
}
