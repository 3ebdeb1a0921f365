#include "cli/qr.h"

#include <errno.h>
#include <qrencode.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/bytes.h"

// Colours 16 and 231 of the 256 are black and white under every theme; the first eight are not.
#define COLOURS "\x1b[38;5;16;48;5;231m"
#define PLAIN "\x1b[0m\n"

_Static_assert(sizeof COLOURS + sizeof PLAIN + 3 * (QR_SIDE_MAX + 2 * QR_QUIET) <= QR_LINE_CAP, "the longest line fits");

enum err qr_encode(struct qr *qr, const char *text, struct errmsg *em)
{
	memset(qr, 0, sizeof *qr);
	if (text[0] == '\0')
		return errmsg_fail(em, ERR_RANGE, "qr code: no text");
	// Level L: a screen has no stains, and the smaller code fits more windows.
	QRcode *code = QRcode_encodeString8bit(text, 0, QR_ECLEVEL_L);
	if (!code && errno == ENOMEM)
		return errmsg_fail(em, ERR_NOMEM, "qr code: no memory");
	if (!code)
		return errmsg_fail(em, ERR_LIMIT, "qr code: %zu bytes are too many", strlen(text));
	size_t n = (size_t)code->width * (size_t)code->width;
	qr->side = code->width;
	for (size_t i = 0; i < n; i++)
		qr->dark[i] = code->data[i] & 1;
	sodium_memzero(code->data, n);
	QRcode_free(code);
	return OK;
}

int32_t qr_n_columns(const struct qr *qr)
{
	return qr->side + 2 * QR_QUIET;
}

int32_t qr_n_lines(const struct qr *qr)
{
	return (qr_n_columns(qr) + 1) / 2;
}

// at: is this place of the drawing dark? White outside the code.
static int at(const struct qr *qr, int32_t row, int32_t column)
{
	row -= QR_QUIET;
	column -= QR_QUIET;
	if (row < 0 || row >= qr->side || column < 0 || column >= qr->side)
		return 0;
	return qr->dark[row * qr->side + column];
}

size_t qr_line(const struct qr *qr, int32_t i, char out[QR_LINE_CAP])
{
	// Index: upper half dark, plus 2 for the lower half dark.
	static const char *const cells[] = {" ", "\xe2\x96\x80", "\xe2\x96\x84", "\xe2\x96\x88"};
	struct writer w = writer_init(out, QR_LINE_CAP);
	writer_bytes(&w, COLOURS, sizeof COLOURS - 1);
	for (int32_t column = 0; column < qr_n_columns(qr); column++) {
		const char *cell = cells[at(qr, 2 * i, column) + 2 * at(qr, 2 * i + 1, column)];
		writer_bytes(&w, cell, strlen(cell));
	}
	writer_bytes(&w, PLAIN, sizeof PLAIN);
	return w.len - 1;
}

static bool can_draw(int fd, const char *term)
{
	return isatty(fd) == 1 && term && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

static bool is_wide_enough(int fd, int32_t columns)
{
	struct winsize size;
	// A terminal that does not know its size (0 columns, as some serial lines) is believed to be wide.
	return ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_col >= columns;
}

static bool write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

bool qr_print(int fd, const char *term, const char *text)
{
	struct qr qr;
	char line[QR_LINE_CAP];
	if (!can_draw(fd, term))
		return false;
	bool drawn = qr_encode(&qr, text, NULL) == OK && is_wide_enough(fd, qr_n_columns(&qr));
	for (int32_t i = 0; drawn && i < qr_n_lines(&qr); i++)
		drawn = write_all(fd, line, qr_line(&qr, i, line));
	qr_wipe(&qr);
	sodium_memzero(line, sizeof line);
	return drawn;
}

void qr_wipe(struct qr *qr)
{
	sodium_memzero(qr, sizeof *qr);
}
