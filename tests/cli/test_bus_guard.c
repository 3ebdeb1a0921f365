#include "cli/bus_guard.h"

#include "base/thread.h"
#include "cli/command.h"
#include "model/mapped_file.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define FILE_BYTES 100000

// child runs fn with its standard error in a pipe, and returns its wait status and what it said.
static int child(void (*fn)(const char *path), const char *path, char *said, size_t cap)
{
	int fds[2], status;
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fds[1], STDERR_FILENO);
		fn(path);
		_exit(77);
	}
	close(fds[1]);
	size_t len = 0;
	for (ssize_t n; (n = read(fds[0], said + len, cap - 1 - len)) > 0;)
		len += (size_t)n;
	said[len] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void make_file(char path[32])
{
	static const uint8_t bytes[FILE_BYTES] = {1};
	strcpy(path, "/tmp/hearth-bus-XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
	close(fd);
}

static void *touch(void *data)
{
	const volatile uint8_t *bytes = data;
	return bytes[FILE_BYTES - 1] ? data : NULL;
}

// cut_and_touch maps the file, cuts it, and touches what is gone in several threads at once, started as those that compute are.
static void cut_and_touch(const char *path)
{
	struct mapped_file f;
	pthread_t threads[4];
	bus_guard_install("serve", path);
	if (mapped_file_open(path, &f, NULL) != OK || truncate(path, 4096) != 0)
		_exit(78);
	for (size_t i = 0; i < 4; i++)
		if (!thread_start(&threads[i], touch, (void *)(uintptr_t)f.data))
			_exit(79);
	for (size_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static void a_file_cut_while_mapped_ends_with_one_line_and_code_1(void **state)
{
	(void)state;
	char path[32], said[1000], want[300];
	make_file(path);
	int status = child(cut_and_touch, path, said, sizeof said);
	unlink(path);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), EXIT_ERROR);
	snprintf(want, sizeof want, "hearth serve: %s changed while in use: ", path);
	assert_memory_equal(said, want, strlen(want));
	assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
}

static void killed_by_hand(const char *path)
{
	bus_guard_install("serve", path);
	raise(SIGBUS);
}

static void a_signal_from_elsewhere_is_not_explained_away(void **state)
{
	(void)state;
	char said[4000];
	int status = child(killed_by_hand, "/tmp/no-such-model", said, sizeof said);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
	assert_null(strstr(said, "changed while in use"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_cut_while_mapped_ends_with_one_line_and_code_1),
		cmocka_unit_test(a_signal_from_elsewhere_is_not_explained_away),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
