#include "cli/qr.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <qrencode.h>

#define URL \
	"hearth://192.168.1.10:7433/join/1/" \
	"AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09oCCRAXHiUsMwMKERgfJi00O0JJUFdeZWxzeoGIj5adpKuyucDHztXcAPFTZQAAAABOL6iE"

#define SIDE_MAX (QR_SIDE_MAX + 2 * QR_QUIET + 1)

// read_drawing turns the lines back into modules, as an eye would: a half block is dark above, below or both.
static void read_drawing(const struct qr *qr, uint8_t *seen)
{
	static const char *const blocks[] = {"\xe2\x96\x80", "\xe2\x96\x84", "\xe2\x96\x88"};
	char line[QR_LINE_CAP];
	memset(seen, 0, SIDE_MAX * SIDE_MAX);
	for (int32_t i = 0; i < qr_n_lines(qr); i++) {
		size_t len = qr_line(qr, i, line);
		assert_int_equal(len, strlen(line));
		assert_int_equal(line[len - 1], '\n');
		const char *at = strchr(line, 'm') + 1, *end = strrchr(line, '\x1b');
		int32_t column = 0;
		for (; at < end; column++) {
			int which = -1;
			for (int k = 0; k < 3; k++)
				which = memcmp(at, blocks[k], 3) == 0 ? k : which;
			assert_true(which >= 0 || *at == ' ');
			seen[2 * i * SIDE_MAX + column] = which == 0 || which == 2;
			seen[(2 * i + 1) * SIDE_MAX + column] = which == 1 || which == 2;
			at += which < 0 ? 1 : 3;
		}
		assert_int_equal(column, qr_n_columns(qr));
	}
}

static void check_text(const char *text)
{
	static struct qr qr;
	static uint8_t seen[SIDE_MAX * SIDE_MAX];
	assert_int_equal(qr_encode(&qr, text, NULL), OK);
	QRcode *want = QRcode_encodeString8bit(text, 0, QR_ECLEVEL_L);
	assert_non_null(want);
	assert_int_equal(qr.side, want->width);
	read_drawing(&qr, seen);
	for (int32_t row = 0; row < qr_n_columns(&qr) + 1; row++) {
		for (int32_t column = 0; column < qr_n_columns(&qr); column++) {
			int32_t y = row - QR_QUIET, x = column - QR_QUIET;
			bool inside = y >= 0 && y < want->width && x >= 0 && x < want->width;
			int dark = inside ? want->data[y * want->width + x] & 1 : 0;
			assert_int_equal(seen[row * SIDE_MAX + column], dark);
		}
	}
	QRcode_free(want);
}

static void the_drawing_shows_every_module_in_a_quiet_zone(void **state)
{
	(void)state;
	check_text(URL);
	check_text("x");
}

static void the_largest_code_fits_and_one_more_byte_does_not(void **state)
{
	(void)state;
	static char text[2955];
	static struct qr qr;
	struct errmsg em;
	memset(text, 'a', 2953);
	check_text(text);
	text[2953] = 'a';
	assert_int_equal(qr_encode(&qr, text, &em), ERR_LIMIT);
	assert_null(strstr(em.text, "aaa"));
	assert_int_equal(qr_encode(&qr, "", NULL), ERR_RANGE);
}

static void an_invite_fits_a_window_of_eighty_columns(void **state)
{
	(void)state;
	static struct qr qr;
	assert_int_equal(qr_encode(&qr, URL, NULL), OK);
	assert_true(qr_n_columns(&qr) <= 80);
	qr_wipe(&qr);
	assert_int_equal(qr.side, 0);
}

static void nothing_is_drawn_where_nobody_looks(void **state)
{
	(void)state;
	int fds[2];
	char byte;
	assert_int_equal(pipe(fds), 0);
	assert_false(qr_print(fds[1], "xterm", URL));
	close(fds[1]);
	assert_int_equal(read(fds[0], &byte, 1), 0);
	close(fds[0]);
}

// A pseudo terminal of `columns`: what was drawn on it, or -1 where the system gives us none.
static long drawn_on(unsigned short columns, const char *term, bool *drawn)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
		return -1;
	int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
	struct winsize size = {.ws_row = 24, .ws_col = columns};
	assert_true(slave >= 0);
	assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(master);
		bool ok = qr_print(slave, term, URL);
		_exit(write(slave, ok ? "T" : "F", 1) == 1 ? 0 : 1);
	}
	close(slave);
	char buf[4096];
	long total = 0;
	for (ssize_t n; (n = read(master, buf, sizeof buf)) > 0;) {
		total += n;
		*drawn = buf[n - 1] == 'T';
	}
	close(master);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return total - 1;
}

static void a_terminal_gets_it_when_it_is_wide_enough(void **state)
{
	(void)state;
	static struct qr qr;
	bool drawn = false;
	assert_int_equal(qr_encode(&qr, URL, NULL), OK);
	unsigned short need = (unsigned short)qr_n_columns(&qr);
	long len = drawn_on(need, "xterm", &drawn);
	if (len < 0)
		skip();
	assert_true(drawn);
	assert_true(len > 1000);
	assert_int_equal(drawn_on((unsigned short)(need - 1), "xterm", &drawn), 0);
	assert_false(drawn);
	assert_int_equal(drawn_on(200, "dumb", &drawn), 0);
	assert_int_equal(drawn_on(200, NULL, &drawn), 0);
	assert_true(drawn_on(0, "xterm", &drawn) > 1000); // a serial line that does not know its size
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_drawing_shows_every_module_in_a_quiet_zone),
		cmocka_unit_test(the_largest_code_fits_and_one_more_byte_does_not),
		cmocka_unit_test(an_invite_fits_a_window_of_eighty_columns),
		cmocka_unit_test(nothing_is_drawn_where_nobody_looks),
		cmocka_unit_test(a_terminal_gets_it_when_it_is_wide_enough),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
