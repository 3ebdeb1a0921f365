// Dates and times, RFC 3339 as TOML takes it: 1979-05-27T07:32:00.5-07:00 and its parts.
#include "base/toml_parser.h"

// is_digits tells whether `n` digits and then the byte `then` stand `ahead` of the cursor.
static bool is_digits(const struct toml_parser *p, size_t ahead, size_t n, int then)
{
	for (size_t i = 0; i < n; i++)
		if (!toml_is_digit(toml_peek(p, ahead + i)))
			return false;
	return toml_peek(p, ahead + n) == then;
}

static bool is_date(const struct toml_parser *p)
{
	return is_digits(p, 0, 4, '-');
}

static bool is_clock(const struct toml_parser *p, size_t ahead)
{
	return is_digits(p, ahead, 2, ':');
}

bool toml_is_time(const struct toml_parser *p)
{
	return is_date(p) || is_clock(p, 0);
}

// read_field reads two digits in [min, max].
static enum err read_field(struct toml_parser *p, int min, int max, const char *what, uint8_t *out)
{
	if (!toml_is_digit(toml_peek(p, 0)) || !toml_is_digit(toml_peek(p, 1)))
		return toml_fail(p, ERR_FORMAT, p->at, "want two digits for the %s", what);
	int v = (toml_peek(p, 0) - '0') * 10 + toml_peek(p, 1) - '0';
	if (v < min || v > max)
		return toml_fail(p, ERR_FORMAT, p->at, "got %d for the %s, want %d to %d", v, what, min, max);
	*out = (uint8_t)v;
	p->at += 2;
	return OK;
}

static enum err skip_char(struct toml_parser *p, char c, const char *want)
{
	if (toml_peek(p, 0) != c)
		return toml_fail_got(p, want);
	p->at++;
	return OK;
}

static int days_in(int year, int month)
{
	static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
	return month == 2 && leap ? 29 : days[month - 1];
}

static enum err read_date(struct toml_parser *p, struct toml_time *t)
{
	for (int i = 0; i < 4; i++)
		t->year = (int16_t)(t->year * 10 + (*p->at++ - '0'));
	p->at++;
	enum err e = read_field(p, 1, 12, "month", &t->month);
	if (e == OK)
		e = skip_char(p, '-', "'-' between month and day");
	if (e == OK)
		e = read_field(p, 1, days_in(t->year, t->month), "day", &t->day);
	return e;
}

static enum err read_fraction(struct toml_parser *p, struct toml_time *t)
{
	if (toml_peek(p, 0) != '.')
		return OK;
	p->at++;
	if (!toml_is_digit(toml_peek(p, 0)))
		return toml_fail_got(p, "a digit of the second's fraction");
	uint32_t unit = 100000000;
	for (; toml_is_digit(toml_peek(p, 0)); p->at++, unit /= 10)
		t->ns += (uint32_t)(*p->at - '0') * unit;
	return OK;
}

static enum err read_clock(struct toml_parser *p, struct toml_time *t)
{
	enum err e = read_field(p, 0, 23, "hour", &t->hour);
	if (e == OK)
		e = skip_char(p, ':', "':' after the hour");
	if (e == OK)
		e = read_field(p, 0, 59, "minute", &t->minute);
	if (e == OK)
		e = skip_char(p, ':', "':' and the seconds");
	if (e == OK)
		e = read_field(p, 0, 59, "second", &t->second);
	return e == OK ? read_fraction(p, t) : e;
}

static enum err read_offset(struct toml_parser *p, struct toml_value *v)
{
	int c = toml_peek(p, 0);
	if (c != 'Z' && c != 'z' && c != '+' && c != '-')
		return OK;
	v->type = TOML_OFFSET_DATETIME;
	p->at++;
	if (c == 'Z' || c == 'z')
		return OK;
	uint8_t hours = 0, minutes = 0;
	enum err e = read_field(p, 0, 23, "hours of the offset", &hours);
	if (e == OK)
		e = skip_char(p, ':', "':' in the offset");
	if (e == OK)
		e = read_field(p, 0, 59, "minutes of the offset", &minutes);
	int total = hours * 60 + minutes;
	v->time.offset_minutes = (int16_t)(c == '-' ? -total : total);
	return e;
}

enum err toml_read_time(struct toml_parser *p, struct toml_value *v)
{
	v->time = (struct toml_time){0};
	v->type = TOML_LOCAL_TIME;
	if (!is_date(p))
		return read_clock(p, &v->time);
	v->type = TOML_LOCAL_DATE;
	enum err e = read_date(p, &v->time);
	if (e != OK)
		return e;
	// A blank may stand for the T, but a date may also be followed by blanks and a comment.
	int c = toml_peek(p, 0);
	if (c != 'T' && c != 't' && !(c == ' ' && is_clock(p, 1)))
		return OK;
	p->at++;
	v->type = TOML_LOCAL_DATETIME;
	e = read_clock(p, &v->time);
	return e == OK ? read_offset(p, v) : e;
}
