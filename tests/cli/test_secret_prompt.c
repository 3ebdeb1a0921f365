#include "cli/secret_prompt.h"

#include "tests/support/lnk1_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
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
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <cmocka.h>

#define PATIENCE_MS 20000
#define TEXT_MAX (2 * INVITE_URL_CAP) // what secret_prompt.c takes

static void make_url(char url[INVITE_URL_CAP])
{
	struct invite in = {.expiry_s = 1700000000, .n_addrs = 1};
	lnk1_fill(in.server_pk, sizeof in.server_pk, 1);
	in.server_pk[31] &= 0x7f;
	lnk1_fill(in.token_id, sizeof in.token_id, 2);
	lnk1_fill(in.token_secret, sizeof in.token_secret, 3);
	snprintf(in.addrs[0], ADDR_CAP, "192.168.1.10:7433");
	assert_int_equal(invite_encode(&in, url, NULL), OK);
}

static bool is_the_invite(const struct invite *in)
{
	uint8_t secret[LNK1_KEY_LEN];
	lnk1_fill(secret, sizeof secret, 3);
	return memcmp(secret, in->token_secret, sizeof secret) == 0 && strcmp(in->addrs[0], "192.168.1.10:7433") == 0;
}

// ---- `hearth join -`: a child writes into the pipe that is this process's standard input

static enum err piped(const void *data, size_t len, struct invite *out, struct errmsg *em)
{
	int fds[2], old = dup(STDIN_FILENO);
	assert_int_equal(pipe(fds), 0);
	pid_t child = fork();
	if (child == 0) {
		close(fds[0]);
		const char *at = data;
		for (size_t left = len; left > 0;) {
			ssize_t n = write(fds[1], at, left < 7 ? left : 7); // in pieces
			if (n < 0)
				break;
			at += n;
			left -= (size_t)n;
		}
		_exit(0);
	}
	close(fds[1]);
	assert_true(dup2(fds[0], STDIN_FILENO) >= 0);
	close(fds[0]);
	struct options o = {.invite_stdin = true};
	enum err e = secret_prompt_invite(&o, out, em);
	assert_true(dup2(old, STDIN_FILENO) >= 0); // the child's end breaks, should it still write
	close(old);
	assert_int_equal(waitpid(child, NULL, 0), child);
	return e;
}

static void an_invite_from_a_pipe_is_read_with_and_without_a_newline(void **state)
{
	(void)state;
	char url[INVITE_URL_CAP], text[INVITE_URL_CAP + 64];
	static const char *const forms[] = {"%s", "%s\n", "\n\n  %s\r\n", "%s\n\n\n"};
	make_url(url);
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		struct invite in;
		struct errmsg em;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(text, sizeof text, forms[i], url);
#pragma GCC diagnostic pop
		assert_int_equal(piped(text, strlen(text), &in, &em), OK);
		assert_true(is_the_invite(&in));
	}
}

static void an_end_without_an_invite_says_that_none_was_given(void **state)
{
	(void)state;
	static const char *const texts[] = {"", "\n", " \t\r\n\n"};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct invite in;
		struct errmsg em;
		assert_int_equal(piped(texts[i], strlen(texts[i]), &in, &em), ERR_FORMAT);
		assert_string_equal(em.text, "no invite was given");
	}
}

static void what_is_too_long_is_refused_and_never_repeated(void **state)
{
	(void)state;
	char url[INVITE_URL_CAP], text[TEXT_MAX + 1];
	struct invite in;
	struct errmsg em;
	make_url(url);
	memset(text, ' ', sizeof text);
	memcpy(text, url, strlen(url));
	assert_int_equal(piped(text, TEXT_MAX, &in, &em), OK); // as much white space as may be
	assert_int_equal(piped(text, TEXT_MAX + 1, &in, &em), ERR_LIMIT);
	assert_non_null(strstr(em.text, "more than 2560 bytes"));
	memset(text, 'S', sizeof text);
	assert_int_equal(piped(text, sizeof text, &in, &em), ERR_LIMIT);
	assert_null(strstr(em.text, "SSS"));
	assert_int_not_equal(piped(text, 300, &in, &em), OK);
	assert_null(strstr(em.text, "SSS"));
	assert_int_not_equal(piped("hearth://a:1/join/1/\0", 21, &in, &em), OK);
}

// ---- --invite-file

static void an_invite_file_is_read_and_a_missing_one_is_named(void **state)
{
	(void)state;
	char url[INVITE_URL_CAP], path[] = "/tmp/hearth-invite-XXXXXX";
	struct invite in;
	struct errmsg em;
	make_url(url);
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, url, strlen(url)), strlen(url));
	assert_int_equal(write(fd, "\n", 1), 1);
	close(fd);
	struct options o = {.invite_file = path};
	assert_int_equal(secret_prompt_invite(&o, &in, &em), OK);
	assert_true(is_the_invite(&in));
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(secret_prompt_invite(&o, &in, &em), ERR_FORMAT);
	assert_non_null(strstr(em.text, path));
	assert_non_null(strstr(em.text, ": no invite was given"));
	unlink(path);
	assert_int_equal(secret_prompt_invite(&o, &in, &em), ERR_IO);
	assert_non_null(strstr(em.text, path));
	o.invite_file = "/tmp";
	assert_int_equal(secret_prompt_invite(&o, &in, &em), ERR_IO);
}

// ---- at a terminal: a child on a terminal of its own, of which this process is the keyboard and the screen

struct person {
	pid_t child;
	int fd;
	struct termios before; // of the terminal, when the child did not exist yet
	char screen[4096];
	size_t n_screen;
};

// child_code turns what the child got into its exit code.
static int child_code(enum err e, const struct invite *in)
{
	return e == OK ? (is_the_invite(in) ? 0 : 100) : 1 + (int)e;
}

static void sit_down(struct person *p, struct options o)
{
	int slave;
	*p = (struct person){0};
	assert_int_equal(openpty(&p->fd, &slave, NULL, NULL, NULL), 0);
	assert_int_equal(tcgetattr(slave, &p->before), 0);
	p->child = fork();
	assert_true(p->child >= 0);
	if (p->child == 0) {
		close(p->fd);
		if (login_tty(slave) != 0) // the session's terminal, and all three standard files
			_exit(99);
		struct invite in;
		struct errmsg em;
		sigset_t set; // as loop_signals has it
		sigemptyset(&set);
		sigaddset(&set, SIGINT);
		sigprocmask(SIG_BLOCK, &set, NULL);
		_exit(child_code(secret_prompt_invite(&o, &in, &em), &in));
	}
	close(slave);
}

// watch reads the screen until it shows `words`, or to its end when NULL.
static void watch(struct person *p, const char *words)
{
	while (words == NULL || memmem(p->screen, p->n_screen, words, strlen(words)) == NULL) {
		struct pollfd pf = {.fd = p->fd, .events = POLLIN};
		assert_int_equal(poll(&pf, 1, PATIENCE_MS), 1);
		ssize_t n = read(p->fd, p->screen + p->n_screen, sizeof p->screen - p->n_screen);
		if (n <= 0) {
			assert_null(words);
			return;
		}
		p->n_screen += (size_t)n;
	}
}

static void type(struct person *p, const char *text)
{
	assert_int_equal(write(p->fd, text, strlen(text)), strlen(text));
}

static int stand_up(struct person *p)
{
	int status;
	watch(p, NULL);
	assert_int_equal(waitpid(p->child, &status, 0), p->child);
	close(p->fd);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void at_a_terminal_nothing_that_is_typed_is_shown(void **state)
{
	(void)state;
	char url[INVITE_URL_CAP];
	make_url(url);
	for (int dash = 0; dash < 2; dash++) { // with "-" too: standard input is the terminal
		struct person p;
		sit_down(&p, (struct options){.invite_stdin = dash});
		watch(&p, "invite (not shown): ");
		type(&p, "\n"); // an empty line is no answer
		type(&p, url);
		type(&p, "\n");
		assert_int_equal(stand_up(&p), 0);
		assert_null(memmem(p.screen, p.n_screen, "join", 4));
		assert_null(memmem(p.screen, p.n_screen, url + strlen(url) - 20, 20));
	}
}

static void the_terminal_is_as_before_afterwards(void **state)
{
	(void)state;
	static const char *const keys[] = {"nonsense\n", "\x03", "\x04"};
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		struct person p;
		struct termios during, after;
		sit_down(&p, (struct options){0});
		int slave = open(ptsname(p.fd), O_RDWR | O_NOCTTY); // keeps the terminal when the child is gone
		assert_true(slave >= 0);
		watch(&p, "): ");
		assert_int_equal(tcgetattr(slave, &during), 0);
		assert_int_equal(during.c_lflag & (ECHO | ICANON | ISIG), 0);
		assert_int_equal(p.before.c_lflag & (ECHO | ICANON | ISIG), ECHO | ICANON | ISIG);
		type(&p, keys[i]);
		int status;
		assert_int_equal(waitpid(p.child, &status, 0), p.child);
		assert_int_equal(tcgetattr(slave, &after), 0);
		assert_int_equal(after.c_iflag, p.before.c_iflag);
		assert_int_equal(after.c_oflag, p.before.c_oflag);
		assert_int_equal(after.c_cflag, p.before.c_cflag);
		assert_int_equal(after.c_lflag, p.before.c_lflag);
		assert_memory_equal(after.c_cc, p.before.c_cc, sizeof after.c_cc);
		assert_int_equal(WEXITSTATUS(status), 1 + (int)(i == 1 ? ERR_CANCELLED : ERR_FORMAT));
		close(slave);
		close(p.fd);
	}
}

static void keys_that_correct_a_line_do(void **state)
{
	(void)state;
	char url[INVITE_URL_CAP], text[2 * INVITE_URL_CAP];
	make_url(url);
	static const char *const forms[] = {"\x7f\x7fxy\x7f\x7f%s\n", "wrong\x15%s\n", "%sz\b\n", "%s\x04"};
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		struct person p;
		sit_down(&p, (struct options){0});
		watch(&p, "): ");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(text, sizeof text, forms[i], url);
#pragma GCC diagnostic pop
		type(&p, text);
		assert_int_equal(stand_up(&p), 0);
	}
}

static void a_line_without_end_is_refused(void **state)
{
	(void)state;
	struct person p;
	char text[1001];
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	sit_down(&p, (struct options){0});
	watch(&p, "): ");
	for (int i = 0; i < 3; i++)
		type(&p, text);
	assert_int_equal(stand_up(&p), 1 + ERR_LIMIT);
	assert_null(memmem(p.screen, p.n_screen, "xxx", 3));
}

static void without_a_terminal_it_says_what_else_there_is(void **state)
{
	(void)state;
	int up[2];
	char text[ERRMSG_CAP] = "";
	assert_int_equal(pipe(up), 0);
	pid_t child = fork();
	if (child == 0) {
		struct options o = {0};
		struct invite in;
		struct errmsg em;
		setsid(); // no terminal any more
		enum err e = secret_prompt_invite(&o, &in, &em);
		ssize_t n = write(up[1], em.text, strlen(em.text));
		_exit(e == ERR_NOT_FOUND && n > 0 ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(read(up[0], text, sizeof text - 1) > 0);
	assert_non_null(strstr(text, "--invite-file FILE, or hearth join - < FILE"));
	close(up[0]);
	close(up[1]);
}

static int prepare(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	return sodium_init() < 0 ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_invite_from_a_pipe_is_read_with_and_without_a_newline),
		cmocka_unit_test(an_end_without_an_invite_says_that_none_was_given),
		cmocka_unit_test(what_is_too_long_is_refused_and_never_repeated),
		cmocka_unit_test(an_invite_file_is_read_and_a_missing_one_is_named),
		cmocka_unit_test(at_a_terminal_nothing_that_is_typed_is_shown),
		cmocka_unit_test(the_terminal_is_as_before_afterwards),
		cmocka_unit_test(keys_that_correct_a_line_do),
		cmocka_unit_test(a_line_without_end_is_refused),
		cmocka_unit_test(without_a_terminal_it_says_what_else_there_is),
	};
	return cmocka_run_group_tests(tests, prepare, NULL);
}
