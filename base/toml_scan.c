#include "base/toml_parser.h"

#include "base/printable.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

// Each value follows one of these, each table that a key makes follows a '.' or a bracket; the same characters inside strings
// only make the bound larger. One more is the root.
static bool may_begin_value(char c)
{
	return c == '=' || c == ',' || c == '[' || c == '{' || c == '.';
}

struct toml_counts toml_count(const char *text, size_t len)
{
	struct toml_counts n = {.values = 1, .pool_bytes = len + 1, .index_slots = 16};
	for (size_t i = 0; i < len; i++)
		n.values += may_begin_value(text[i]);
	while (n.index_slots < 2 * n.values)
		n.index_slots *= 2;
	return n;
}

size_t toml_arena_bytes(const char *text, size_t len)
{
	if (len > TOML_BYTES_MAX)
		return 0;
	struct toml_counts n = toml_count(text, len);
	size_t rounding = 3 * 64; // arena_alloc gives whole cache lines
	return n.values * sizeof(struct toml_value) + n.pool_bytes + n.index_slots * sizeof(struct toml_value *) + rounding;
}

enum err toml_fail(const struct toml_parser *p, enum err e, const char *at, const char *fmt, ...)
{
	char text[ERRMSG_CAP];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	int line = 1, column = 1;
	for (const char *c = p->text; c < at; c++) {
		if (*c == '\n') {
			line++;
			column = 1;
		} else if (((unsigned char)*c & 0xc0) != 0x80) { // a character counts at its first byte
			column++;
		}
	}
	return errmsg_fail(p->em, e, "%.200s:%d:%d: %s", p->name, line, column, text);
}

enum err toml_fail_got(const struct toml_parser *p, const char *want)
{
	uint32_t cp;
	size_t n = p->at < p->end ? utf8_decode(p->at, (size_t)(p->end - p->at), &cp) : 0;
	char got[8];
	if (n == 0)
		return toml_fail(p, ERR_FORMAT, p->at, "got the end of the file, want %s", want);
	if (p->at[0] == '\n' || p->at[0] == '\r')
		return toml_fail(p, ERR_FORMAT, p->at, "got the end of the line, want %s", want);
	return toml_fail(p, ERR_FORMAT, p->at, "got '%s', want %s", printable_copy(p->at, n, got, sizeof got), want);
}

// A carriage return may only stand before a line feed.
static bool is_allowed_control(const struct toml_parser *p, const char *c)
{
	return *c == '\t' || *c == '\n' || (*c == '\r' && c + 1 < p->end && c[1] == '\n');
}

enum err toml_check_bytes(const struct toml_parser *p)
{
	for (const char *c = p->text; c < p->end;) {
		uint32_t cp;
		size_t n = utf8_decode(c, (size_t)(p->end - c), &cp);
		if (n == 0)
			return toml_fail(p, ERR_FORMAT, c, "byte 0x%02x is not UTF-8", (unsigned char)*c);
		if ((cp < 0x20 && !is_allowed_control(p, c)) || cp == 0x7f)
			return toml_fail(p, ERR_FORMAT, c, "control character 0x%02x, which must be written as an escape in a string", (unsigned)cp);
		if (cp == 0xfeff && c == p->text)
			return toml_fail(p, ERR_FORMAT, c, "the file begins with a byte order mark, save it as UTF-8 without one");
		c += n;
	}
	return OK;
}

int32_t toml_line(struct toml_parser *p)
{
	for (; p->marked < p->at; p->marked++)
		p->marked_line += *p->marked == '\n';
	return p->marked_line;
}

void toml_skip_blanks(struct toml_parser *p)
{
	while (toml_peek(p, 0) == ' ' || toml_peek(p, 0) == '\t')
		p->at++;
}

void toml_skip_empty(struct toml_parser *p)
{
	for (;;) {
		toml_skip_blanks(p);
		int c = toml_peek(p, 0);
		if (c == '#')
			while (toml_peek(p, 0) != '\n' && toml_peek(p, 0) != -1)
				p->at++;
		else if (c == '\n' || c == '\r')
			p->at++;
		else
			return;
	}
}
