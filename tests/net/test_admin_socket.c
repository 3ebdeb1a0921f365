#include "net/admin_socket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/sockets.h"

#define S INT64_C(1000000000)
#define MS INT64_C(1000000)
#define PATIENCE (20 * S)

// A server that answers, by the first word: echo LINE; count N (N lines, then done); big (one line of the largest size); quit.
struct admin {
	struct loop loop;
	struct admin_server *server;
	char dir[64];
	int n_lines, n_gone;
	size_t last_len;
	bool close_server;
};

static void send_text(struct admin_client *c, const char *text)
{
	assert_int_equal(admin_send(c, text, strlen(text)), OK);
}

static void on_line(void *ctx, struct admin_client *c, const char *line, size_t len)
{
	struct admin *a = ctx;
	a->n_lines++;
	a->last_len = len;
	char text[64];
	if (a->close_server) {
		admin_server_close(a->server);
		a->server = NULL;
	} else if (strncmp(line, "echo ", 5) == 0) {
		send_text(c, line + 5);
	} else if (strncmp(line, "count ", 6) == 0) {
		for (int i = 0; i < atoi(line + 6); i++) {
			snprintf(text, sizeof text, "line %d", i);
			if (admin_send(c, text, strlen(text)) != OK)
				return;
		}
		send_text(c, "done");
	} else if (strcmp(line, "big") == 0) {
		char *big = malloc(ADMIN_LINE_MAX + 1);
		memset(big, 'b', ADMIN_LINE_MAX + 1);
		assert_int_equal(admin_send(c, big, ADMIN_LINE_MAX + 1), ERR_LIMIT);
		assert_int_equal(admin_send(c, big, ADMIN_LINE_MAX), OK);
		free(big);
	} else if (strcmp(line, "quit") == 0) {
		send_text(c, "bye");
		admin_finish(c);
		assert_int_equal(admin_send(c, "x", 1), ERR_CLOSED);
	} else if (strcmp(line, "hang up") == 0) {
		admin_finish(c);
	}
}

static void on_gone(void *ctx, struct admin_client *c)
{
	(void)c;
	((struct admin *)ctx)->n_gone++;
}

static enum err open_server(struct admin *a, struct admin_server **out, struct errmsg *em)
{
	const struct admin_callbacks callbacks = {a, on_line, on_gone};
	return admin_server_open(out, &a->loop, a->dir, &callbacks, em);
}

static int setup(void **state)
{
	struct admin *a = calloc(1, sizeof *a);
	*state = a;
	strcpy(a->dir, "/tmp/hearth-admin-XXXXXX");
	if (mkdtemp(a->dir) == NULL || loop_open(&a->loop, NULL) != OK)
		return -1;
	return open_server(a, &a->server, NULL) != OK;
}

static int teardown(void **state)
{
	struct admin *a = *state;
	admin_server_close(a->server);
	loop_close(&a->loop);
	char path[128];
	snprintf(path, sizeof path, "%s/%s", a->dir, ADMIN_SOCKET_NAME);
	assert_int_equal(access(path, F_OK), -1); // the server took it away
	snprintf(path, sizeof path, "%s/admin.lock", a->dir);
	unlink(path);
	assert_int_equal(rmdir(a->dir), 0);
	free(a);
	return 0;
}

// ---- The blocking client runs on a thread of its own, the loop on the test's ----

struct job {
	struct admin *a;
	int (*run)(struct job *j, struct admin_conn *c); // 0: well
	int rc;
	atomic_bool done;
};

static void *run_job(void *ctx)
{
	struct job *j = ctx;
	struct admin_conn c;
	struct errmsg em;
	j->rc = -1;
	if (admin_connect(&c, j->a->dir, &em) == OK) {
		j->rc = j->run(j, &c);
		admin_disconnect(&c);
	}
	atomic_store(&j->done, true);
	return NULL;
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

static void run_for(struct admin *a, int64_t ns)
{
	(void)loop_run_until(&a->loop, never, NULL, loop_clock_ns() + ns);
}

static void wait_jobs(struct admin *a, struct job *jobs, int n)
{
	int64_t end_ns = loop_clock_ns() + PATIENCE;
	for (int i = 0; i < n; i++)
		while (!atomic_load(&jobs[i].done) && loop_clock_ns() < end_ns)
			run_for(a, MS);
}

static void run_jobs(struct admin *a, int n, int (*run)(struct job *j, struct admin_conn *c))
{
	struct job *jobs = calloc((size_t)n, sizeof *jobs);
	pthread_t *threads = calloc((size_t)n, sizeof *threads);
	for (int i = 0; i < n; i++) {
		jobs[i] = (struct job){.a = a, .run = run};
		assert_int_equal(pthread_create(&threads[i], NULL, run_job, &jobs[i]), 0);
	}
	wait_jobs(a, jobs, n);
	for (int i = 0; i < n; i++) {
		assert_true(atomic_load(&jobs[i].done));
		pthread_join(threads[i], NULL);
		assert_int_equal(jobs[i].rc, 0);
	}
	free(threads);
	free(jobs);
}

static int echo_some(struct job *j, struct admin_conn *c)
{
	(void)j;
	for (int i = 0; i < 50; i++) {
		char text[64];
		const char *line;
		size_t len;
		snprintf(text, sizeof text, "echo {\"n\":%d}", i);
		if (admin_write_line(c, text, NULL) != OK || admin_read_line(c, 20000, &line, &len, NULL) != OK ||
			strcmp(line, text + 5) != 0)
			return 1;
	}
	return 0;
}

static void eight_clients_at_once_get_their_own_answers(void **state)
{
	run_jobs(*state, 8, echo_some);
}

static int count_lines(struct job *j, struct admin_conn *c)
{
	(void)j;
	if (admin_write_line(c, "count 900", NULL) != OK)
		return 1;
	for (int i = 0;; i++) {
		const char *line;
		size_t len;
		char want[32];
		if (admin_read_line(c, 20000, &line, &len, NULL) != OK)
			return 2;
		if (i == 900)
			return strcmp(line, "done") != 0;
		snprintf(want, sizeof want, "line %d", i);
		if (strcmp(line, want) != 0 || len != strlen(want))
			return 3;
	}
}

static void a_stream_of_lines_arrives_in_order(void **state)
{
	run_jobs(*state, 2, count_lines);
}

static int read_big(struct job *j, struct admin_conn *c)
{
	(void)j;
	const char *line;
	size_t len;
	if (admin_write_line(c, "big", NULL) != OK || admin_read_line(c, 20000, &line, &len, NULL) != OK)
		return 1;
	return len != ADMIN_LINE_MAX || line[0] != 'b' || line[len - 1] != 'b' || line[len] != '\0';
}

static void a_line_of_the_largest_size_passes(void **state)
{
	run_jobs(*state, 2, read_big);
}

static int quit_politely(struct job *j, struct admin_conn *c)
{
	(void)j;
	const char *line;
	size_t len;
	if (admin_write_line(c, "quit", NULL) != OK || admin_read_line(c, 20000, &line, &len, NULL) != OK ||
		strcmp(line, "bye") != 0)
		return 1;
	return admin_read_line(c, 20000, &line, &len, NULL) != ERR_CLOSED;
}

static void the_server_may_end_a_connection_after_its_answer(void **state)
{
	struct admin *a = *state;
	run_jobs(a, 3, quit_politely);
	assert_int_equal(a->n_gone, 3);
	assert_int_equal(admin_server_n_clients(a->server), 0);
}

static int wait_in_vain(struct job *j, struct admin_conn *c)
{
	(void)j;
	const char *line;
	size_t len;
	struct errmsg em;
	return admin_read_line(c, 50, &line, &len, &em) != ERR_TIMEOUT;
}

static void a_client_that_waits_in_vain_times_out(void **state)
{
	run_jobs(*state, 1, wait_in_vain);
}

// ---- Clients by hand ----

static int raw_connect(struct admin *a)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	snprintf(sun.sun_path, sizeof sun.sun_path, "%s/%s", a->dir, ADMIN_SOCKET_NAME);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sun, sizeof sun), 0);
	return fd;
}

struct count_wanted {
	const int *count;
	int n;
};

static bool count_reached(void *ctx)
{
	struct count_wanted *x = ctx;
	return *x->count >= x->n;
}

static void wait_count(struct admin *a, const int *count, int n)
{
	assert_true(loop_run_until(&a->loop, count_reached, &(struct count_wanted){count, n}, loop_clock_ns() + PATIENCE));
}

static void wait_closed(struct admin *a, int fd)
{
	int64_t end_ns = loop_clock_ns() + PATIENCE;
	bool closed = false;
	while (!(closed = socket_is_closed(fd)) && loop_clock_ns() < end_ns)
		run_for(a, MS);
	assert_true(closed);
	close(fd);
}

static void lines_may_come_in_any_pieces(void **state)
{
	struct admin *a = *state;
	int fd = raw_connect(a);
	socket_send(fd, "one\ntwo\nthr", 11);
	wait_count(a, &a->n_lines, 2);
	for (const char *p = "ee\n"; *p != '\0'; p++) {
		assert_int_equal(a->n_lines, 2);
		socket_send(fd, p, 1);
		run_for(a, MS);
	}
	wait_count(a, &a->n_lines, 3);
	assert_int_equal(a->last_len, 5);
	socket_send(fd, "\n\n", 2); // empty lines are lines
	wait_count(a, &a->n_lines, 5);
	close(fd);
	wait_count(a, &a->n_gone, 1);
}

static void a_line_without_end_is_cut_off_at_its_limit(void **state)
{
	struct admin *a = *state;
	char *junk = malloc(ADMIN_LINE_MAX + 1);
	memset(junk, 'x', ADMIN_LINE_MAX + 1);
	int fd = raw_connect(a);
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	size_t sent = 0;
	int64_t end_ns = loop_clock_ns() + PATIENCE;
	while (sent < ADMIN_LINE_MAX + 1 && loop_clock_ns() < end_ns) {
		ssize_t n = send(fd, junk + sent, ADMIN_LINE_MAX + 1 - sent, MSG_NOSIGNAL);
		if (n > 0)
			sent += (size_t)n;
		run_for(a, MS);
	}
	assert_int_equal(sent, ADMIN_LINE_MAX + 1);
	wait_closed(a, fd);
	assert_int_equal(a->n_lines + a->n_gone, 0);
	free(junk);
}

static void a_client_that_does_not_read_is_cut_off(void **state)
{
	struct admin *a = *state;
	int fd = raw_connect(a);
	for (int i = 0; i < 40 && a->n_gone == 0; i++) {
		socket_send(fd, "count 1000000\n", 14);
		run_for(a, MS);
	}
	wait_count(a, &a->n_gone, 1);
	wait_closed(a, fd);
	run_jobs(a, 1, echo_some); // the others are served
}

static void a_seventeenth_client_is_turned_away(void **state)
{
	struct admin *a = *state;
	int fds[ADMIN_CLIENTS_MAX];
	for (int i = 0; i < ADMIN_CLIENTS_MAX; i++)
		fds[i] = raw_connect(a);
	run_for(a, 20 * MS);
	int one_more = raw_connect(a);
	wait_closed(a, one_more);
	assert_int_equal(admin_server_n_clients(a->server), ADMIN_CLIENTS_MAX);
	for (int i = 0; i < ADMIN_CLIENTS_MAX; i++)
		close(fds[i]);
	while (admin_server_n_clients(a->server) > 0)
		run_for(a, MS);
	run_jobs(a, 1, echo_some);
}

static void the_server_may_be_closed_inside_on_line(void **state)
{
	struct admin *a = *state;
	a->close_server = true;
	int fd = raw_connect(a);
	socket_send(fd, "one\ntwo\n", 8);
	wait_count(a, &a->n_lines, 1);
	assert_null(a->server);
	wait_closed(a, fd);
	assert_int_equal(a->n_lines, 1);
}

// ---- Who serves a directory ----

static void a_second_server_is_told_that_one_runs_already(void **state)
{
	struct admin *a = *state;
	struct admin_server *second;
	struct errmsg em;
	assert_int_equal(open_server(a, &second, &em), ERR_EXISTS);
	assert_null(second);
	assert_non_null(strstr(em.text, "already running"));
	assert_non_null(strstr(em.text, a->dir));
	run_jobs(a, 1, echo_some); // and the first one was not harmed
}

static void the_socket_and_the_lock_are_for_their_owner_only(void **state)
{
	struct admin *a = *state;
	char path[128];
	struct stat st;
	snprintf(path, sizeof path, "%s/%s", a->dir, ADMIN_SOCKET_NAME);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	snprintf(path, sizeof path, "%s/admin.lock", a->dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void a_socket_file_of_a_dead_process_is_replaced(void **state)
{
	struct admin *a = *state;
	admin_server_close(a->server);
	a->server = NULL;
	char path[128];
	snprintf(path, sizeof path, "%s/%s", a->dir, ADMIN_SOCKET_NAME);
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	snprintf(sun.sun_path, sizeof sun.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof sun), 0);
	close(fd); // the file stays, as after kill -9
	struct admin_conn c;
	struct errmsg em;
	assert_int_equal(admin_connect(&c, a->dir, &em), ERR_NOT_FOUND);
	assert_int_equal(open_server(a, &a->server, &em), OK);
	run_jobs(a, 1, echo_some);
}

static void without_a_coordinator_the_error_says_what_to_do(void **state)
{
	(void)state;
	struct admin_conn c;
	struct errmsg em;
	assert_int_equal(admin_connect(&c, "/tmp/no-such-hearth-directory", &em), ERR_NOT_FOUND);
	assert_string_equal(em.text,
		"no coordinator is running with state directory /tmp/no-such-hearth-directory: start it with hearth serve");
}

static void a_path_too_long_for_a_socket_is_said_to_be(void **state)
{
	struct admin *a = *state;
	char dir[200];
	memset(dir, 'd', sizeof dir - 1);
	dir[0] = '/';
	dir[sizeof dir - 1] = '\0';
	struct errmsg em;
	struct admin_conn c;
	struct admin_server *s;
	const struct admin_callbacks callbacks = {a, on_line, on_gone};
	assert_int_equal(admin_connect(&c, dir, &em), ERR_LIMIT);
	assert_non_null(strstr(em.text, "--state"));
	assert_int_equal(admin_server_open(&s, &a->loop, dir, &callbacks, &em), ERR_LIMIT);
	assert_non_null(strstr(em.text, "at most 96"));
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(eight_clients_at_once_get_their_own_answers),
		WITH(a_stream_of_lines_arrives_in_order),
		WITH(a_line_of_the_largest_size_passes),
		WITH(the_server_may_end_a_connection_after_its_answer),
		WITH(a_client_that_waits_in_vain_times_out),
		WITH(lines_may_come_in_any_pieces),
		WITH(a_line_without_end_is_cut_off_at_its_limit),
		WITH(a_client_that_does_not_read_is_cut_off),
		WITH(a_seventeenth_client_is_turned_away),
		WITH(the_server_may_be_closed_inside_on_line),
		WITH(a_second_server_is_told_that_one_runs_already),
		WITH(the_socket_and_the_lock_are_for_their_owner_only),
		WITH(a_socket_file_of_a_dead_process_is_replaced),
		cmocka_unit_test(without_a_coordinator_the_error_says_what_to_do),
		WITH(a_path_too_long_for_a_socket_is_said_to_be),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
