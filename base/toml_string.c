// Strings. toml_check_bytes has passed: what is here is UTF-8 without control characters but tab and line ends.
#include "base/toml_parser.h"

#include "base/utf8.h"

static void put(struct toml_parser *p, char c)
{
	p->pool[p->pool_len++] = c;
}

static int hex_value(int c)
{
	if (toml_is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// put_unicode reads the digits of \uXXXX or \UXXXXXXXX. Its UTF-8 is shorter than the escape, as the pool wants.
static enum err put_unicode(struct toml_parser *p, const char *escape, int n_digits)
{
	uint32_t cp = 0;
	for (int i = 0; i < n_digits; i++, p->at++) {
		int digit = hex_value(toml_peek(p, 0));
		if (digit < 0)
			return toml_fail(p, ERR_FORMAT, p->at, "want %d hexadecimal digits after \\%c", n_digits, escape[1]);
		cp = cp << 4 | (uint32_t)digit;
	}
	if (!utf8_is_scalar(cp))
		return toml_fail(p, ERR_FORMAT, escape, "\\%c%0*x is no character", escape[1], n_digits, (unsigned)cp);
	p->pool_len += utf8_encode(cp, p->pool + p->pool_len);
	return OK;
}

static enum err put_escape(struct toml_parser *p)
{
	static const char letters[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\";
	const char *escape = p->at;
	int c = toml_peek(p, 1);
	const char *letter = c > 0 ? strchr(letters, c) : NULL;
	p->at++;
	if (letter) {
		put(p, values[letter - letters]);
		p->at++;
		return OK;
	}
	if (c != 'u' && c != 'U')
		return toml_fail_got(p, "one of b t n f r \" \\ u U after \\ (a text in '...' takes \\ as it is)");
	p->at++;
	return put_unicode(p, escape, c == 'u' ? 4 : 8);
}

static void begin(const struct toml_parser *p, struct toml_text *out)
{
	out->data = p->pool + p->pool_len;
}

// end_text adds the terminator, for which the quotes have left room.
static enum err end_text(struct toml_parser *p, struct toml_text *out)
{
	out->len = (size_t)(p->pool + p->pool_len - out->data);
	put(p, '\0');
	return OK;
}

enum err toml_read_line_string(struct toml_parser *p, struct toml_text *out)
{
	int quote = toml_peek(p, 0);
	const char *start = p->at++;
	begin(p, out);
	for (;;) {
		int c = toml_peek(p, 0);
		if (c == -1 || c == '\n' || c == '\r')
			return toml_fail(p, ERR_FORMAT, start, "a string that does not end on its line");
		if (c == quote) {
			p->at++;
			return end_text(p, out);
		}
		if (c == '\\' && quote == '"') {
			enum err e = put_escape(p);
			if (e != OK)
				return e;
			continue;
		}
		put(p, (char)c);
		p->at++;
	}
}

// skip_line_end passes one "\n" or "\r\n".
static bool skip_line_end(struct toml_parser *p)
{
	if (toml_peek(p, 0) == '\r')
		p->at++;
	if (toml_peek(p, 0) != '\n')
		return false;
	p->at++;
	return true;
}

// skip_folded passes a backslash at the end of a line, and all white space up to what stands next. False when it ends no line.
static bool skip_folded(struct toml_parser *p)
{
	const char *backslash = p->at++;
	toml_skip_blanks(p);
	if (!skip_line_end(p)) {
		p->at = backslash;
		return false;
	}
	do
		toml_skip_blanks(p);
	while (skip_line_end(p));
	return true;
}

// Up to two quotes may stand before the three that end it: they belong to the text.
static enum err end_multi_line(struct toml_parser *p, int quote, struct toml_text *out)
{
	p->at += 3;
	for (int i = 0; i < 2 && toml_peek(p, 0) == quote; i++, p->at++)
		put(p, (char)quote);
	return end_text(p, out);
}

static enum err read_multi_line_string(struct toml_parser *p, struct toml_text *out)
{
	int quote = toml_peek(p, 0);
	const char *start = p->at;
	p->at += 3;
	skip_line_end(p);
	begin(p, out);
	for (;;) {
		int c = toml_peek(p, 0);
		if (c == -1)
			return toml_fail(p, ERR_FORMAT, start, "a multi-line string that does not end");
		if (c == quote && toml_peek(p, 1) == quote && toml_peek(p, 2) == quote)
			return end_multi_line(p, quote, out);
		if (c == '\\' && quote == '"') {
			enum err e = skip_folded(p) ? OK : put_escape(p);
			if (e != OK)
				return e;
		} else if (skip_line_end(p)) {
			put(p, '\n');
		} else {
			put(p, (char)c);
			p->at++;
		}
	}
}

enum err toml_read_string(struct toml_parser *p, struct toml_text *out)
{
	bool is_multi_line = toml_starts(p, "\"\"\"") || toml_starts(p, "'''");
	return is_multi_line ? read_multi_line_string(p, out) : toml_read_line_string(p, out);
}
