// A QR code on the terminal, for the invite: two modules per character cell, drawn with half blocks in fixed black on
// white whatever the terminal's colours, with the quiet zone that scanners need. libqrencode makes the code.
// The text is a secret: nothing of it stays in memory that is ours.
#ifndef HEARTH_CLI_QR_H
#define HEARTH_CLI_QR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define QR_SIDE_MAX 177 // modules, of the largest code (version 40)
#define QR_QUIET 4      // modules of white on each side (ISO/IEC 18004, 9.1)
#define QR_LINE_CAP 640 // a line: 185 cells of up to 3 bytes, colours, newline, NUL

struct qr {
	int32_t side;                            // modules
	uint8_t dark[QR_SIDE_MAX * QR_SIDE_MAX]; // (side, side), 0 or 1
};

// qr_encode: ERR_LIMIT when the text is too long for any code (2,953 bytes), ERR_RANGE when it is empty.
MUST_USE enum err qr_encode(struct qr *qr, const char *text, struct errmsg *em);

// Lines and columns of the drawing, quiet zone included.
int32_t qr_n_lines(const struct qr *qr);
int32_t qr_n_columns(const struct qr *qr);

// qr_line writes line `i` of the drawing with its newline and a NUL, and returns its length in bytes.
size_t qr_line(const struct qr *qr, int32_t i, char out[QR_LINE_CAP]);

// qr_print draws `text` on `fd` and returns true; or draws nothing and returns false when `fd` is no terminal, `term` (the
// TERM variable, or NULL) names none that draws, the window is too narrow or the text too long. A line cut in the middle
// cannot be scanned, so there is no smaller form: the caller has printed the text itself.
bool qr_print(int fd, const char *term, const char *text);

void qr_wipe(struct qr *qr);

#endif
