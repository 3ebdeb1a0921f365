#include "sim/trace_parser.h"

#include "base/printable.h"

#include <stdio.h>
#include <string.h>

#define DIGITS_KEPT 19 // of a decimal: nanoseconds since 1970, and all that fit 64 bits
#define EXPONENT_MAX 1000 // what a mantissa of our length cannot bring back into range

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static struct trace_text trimmed(struct trace_text t)
{
	while (t.at < t.end && is_blank(*t.at))
		t.at++;
	while (t.at < t.end && is_blank(t.end[-1]))
		t.end--;
	return t;
}

bool trace_next_line(struct trace_parser *p, struct trace_text *line)
{
	if (trace_is_empty(p->rest))
		return false;
	const char *end = memchr(p->rest.at, '\n', (size_t)(p->rest.end - p->rest.at));
	*line = trimmed((struct trace_text){p->rest.at, end ? end : p->rest.end});
	p->rest.at = end ? end + 1 : p->rest.end;
	p->line++;
	return true;
}

bool trace_starts(struct trace_text t, const char *word)
{
	size_t len = strlen(word);
	return (size_t)(t.end - t.at) >= len && memcmp(t.at, word, len) == 0;
}

const char *trace_find(struct trace_text t, const char *word)
{
	return trace_is_empty(t) ? NULL : memmem(t.at, (size_t)(t.end - t.at), word, strlen(word));
}

bool trace_split(struct trace_text *rest, char separator, struct trace_text *field)
{
	if (rest->at == NULL)
		return false;
	const char *end = trace_is_empty(*rest) ? NULL : memchr(rest->at, separator, (size_t)(rest->end - rest->at));
	*field = trimmed((struct trace_text){rest->at, end ? end : rest->end});
	rest->at = end ? end + 1 : NULL;
	return true;
}

enum err trace_bad(const struct trace_parser *p, enum err e, const char *fmt, ...)
{
	char text[ERRMSG_CAP];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return errmsg_fail(p->em, e, "%s:%lld: %s", p->name, (long long)p->line, text);
}

// Digits with at most one point. `exponent` is that of the last digit kept; digits past DIGITS_KEPT only count.
static const char *read_mantissa(struct trace_text *t, uint64_t *mantissa, int *exponent)
{
	int n_digits = 0, n_kept = 0;
	bool has_point = false;
	*mantissa = 0;
	*exponent = 0;
	for (; t->at < t->end && (is_digit(*t->at) || (*t->at == '.' && !has_point)); t->at++) {
		if (*t->at == '.') {
			has_point = true;
			continue;
		}
		n_digits = 1;
		if (n_kept < DIGITS_KEPT) {
			*mantissa = *mantissa * 10 + (uint64_t)(*t->at - '0');
			n_kept += *mantissa > 0;
			*exponent -= has_point;
		} else if (*exponent < EXPONENT_MAX) {
			*exponent += !has_point;
		}
	}
	return n_digits > 0 ? NULL : "is not a number";
}

static const char *read_exponent(struct trace_text *t, int *exponent)
{
	if (trace_is_empty(*t) || (*t->at != 'e' && *t->at != 'E'))
		return NULL;
	t->at++;
	bool is_negative = t->at < t->end && *t->at == '-';
	if (t->at < t->end && (*t->at == '-' || *t->at == '+'))
		t->at++;
	if (trace_is_empty(*t))
		return "is not a number";
	int e = 0;
	for (; t->at < t->end && is_digit(*t->at); t->at++)
		e = e < EXPONENT_MAX ? e * 10 + (*t->at - '0') : e;
	*exponent += is_negative ? -e : e;
	return NULL;
}

const char *trace_decimal(struct trace_text t, int scale, int64_t max, int64_t *out)
{
	uint64_t v;
	int exponent;
	if (trace_is_empty(t))
		return "is missing";
	if (*t.at == '-')
		return "is negative";
	const char *wrong = read_mantissa(&t, &v, &exponent);
	if (wrong == NULL)
		wrong = read_exponent(&t, &exponent);
	if (wrong != NULL || !trace_is_empty(t))
		return "is not a number";
	exponent += scale;
	for (; exponent > 0 && v > 0 && v <= (uint64_t)max; exponent--)
		if (__builtin_mul_overflow(v, 10, &v))
			return "is too large";
	bool rounds_up = false;
	for (; exponent < 0 && v > 0; exponent++) {
		rounds_up = v % 10 >= 5;
		v /= 10;
	}
	// A digit that fell out at the end, not one before it: with v == 0 and places left the rest is below a half.
	v += rounds_up && exponent == 0;
	if (v > (uint64_t)max)
		return "is too large";
	*out = (int64_t)v;
	return NULL;
}

enum err trace_add_sample(struct trace_parser *p, int64_t t_ns, int64_t rtt_ns, uint64_t rate_bps)
{
	if (p->n == TRACE_SAMPLES_MAX)
		return trace_bad(p, ERR_LIMIT, "more than %d samples", TRACE_SAMPLES_MAX);
	if (p->samples != NULL)
		p->samples[p->n] = (struct trace_sample){t_ns, rtt_ns, rate_bps};
	p->n++;
	return OK;
}
