#include "base/toml_parser.h"

#include <errno.h>
#include <stdlib.h>

static int digit_value(int c)
{
	if (toml_is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 16;
}

// skip_digits passes one digit or more, underscores between them allowed. False when none stands there.
static bool skip_digits(struct toml_parser *p, int base)
{
	if (digit_value(toml_peek(p, 0)) >= base)
		return false;
	p->at++;
	for (;;) {
		size_t underscore = toml_peek(p, 0) == '_';
		if (digit_value(toml_peek(p, underscore)) >= base)
			return true;
		p->at += underscore + 1;
	}
}

static enum err read_special(struct toml_parser *p, struct toml_value *v, const char *start, bool negative)
{
	bool inf = toml_starts(p, "inf");
	if (!inf && !toml_starts(p, "nan"))
		return toml_fail(p, ERR_FORMAT, start, "want a number after the sign, or inf or nan (a text stands in quotes)");
	p->at += 3;
	v->type = TOML_FLOAT;
	v->f = inf ? __builtin_inf() : __builtin_nan("");
	if (negative)
		v->f = -v->f;
	return OK;
}

// clean copies a number without its underscores, NUL-terminated, into the pool's free end, where it may be overwritten.
static const char *clean(struct toml_parser *p, const char *start)
{
	char *text = p->pool + p->pool_len;
	size_t n = 0;
	for (const char *c = start; c < p->at; c++)
		if (*c != '_')
			text[n++] = *c;
	text[n] = '\0';
	return text;
}

static enum err set_int(struct toml_parser *p, struct toml_value *v, const char *start, const char *digits, int base)
{
	v->type = TOML_INT;
	errno = 0;
	v->i = strtoll(digits, NULL, base);
	if (errno != 0)
		return toml_fail(p, ERR_FORMAT, start, "an integer that does not fit 64 bits");
	return OK;
}

// 0xff, 0o755, 0b1010: no sign.
static enum err read_prefixed(struct toml_parser *p, struct toml_value *v, int base)
{
	const char *start = p->at;
	p->at += 2;
	if (!skip_digits(p, base))
		return toml_fail_got(p, base == 16 ? "a hexadecimal digit" : base == 8 ? "an octal digit" : "a binary digit");
	return set_int(p, v, start, clean(p, start) + 2, base);
}

// skip_fraction, skip_exponent pass ".5", "e-3" where one stands, and fail on one that is begun and not ended.
static enum err skip_fraction(struct toml_parser *p, bool *is_float)
{
	if (toml_peek(p, 0) != '.')
		return OK;
	*is_float = true;
	p->at++;
	return skip_digits(p, 10) ? OK : toml_fail_got(p, "a digit after the point");
}

static enum err skip_exponent(struct toml_parser *p, bool *is_float)
{
	if (toml_peek(p, 0) != 'e' && toml_peek(p, 0) != 'E')
		return OK;
	*is_float = true;
	p->at++;
	if (toml_peek(p, 0) == '+' || toml_peek(p, 0) == '-')
		p->at++;
	return skip_digits(p, 10) ? OK : toml_fail_got(p, "a digit of the exponent");
}

static enum err read_decimal(struct toml_parser *p, struct toml_value *v, const char *start)
{
	bool is_float = false;
	if (toml_peek(p, 0) == '0' && (toml_is_digit(toml_peek(p, 1)) || toml_peek(p, 1) == '_'))
		return toml_fail(p, ERR_FORMAT, p->at, "a number that begins with 0 (octal is written 0o...)");
	if (!skip_digits(p, 10))
		return toml_fail_got(p, "a digit");
	enum err e = skip_fraction(p, &is_float);
	if (e == OK)
		e = skip_exponent(p, &is_float);
	if (e != OK)
		return e;
	if (!is_float)
		return set_int(p, v, start, clean(p, start), 10);
	v->type = TOML_FLOAT;
	v->f = strtod(clean(p, start), NULL);
	return OK;
}

enum err toml_read_number(struct toml_parser *p, struct toml_value *v)
{
	if (toml_starts(p, "0x"))
		return read_prefixed(p, v, 16);
	if (toml_starts(p, "0o"))
		return read_prefixed(p, v, 8);
	if (toml_starts(p, "0b"))
		return read_prefixed(p, v, 2);
	const char *start = p->at;
	bool negative = toml_peek(p, 0) == '-';
	if (negative || toml_peek(p, 0) == '+')
		p->at++;
	if (!toml_is_digit(toml_peek(p, 0)))
		return read_special(p, v, start, negative);
	return read_decimal(p, v, start);
}
