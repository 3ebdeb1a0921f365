// Formats that are nothing but integers: mahimahi's delivery traces and tc-netem's distribution tables.
#include "sim/trace_parser.h"

#include "base/printable.h"

#define SHOWN_CAP 64

static enum err bad_number(const struct trace_parser *p, struct trace_text t, const char *wrong, const char *want)
{
	char shown[SHOWN_CAP];
	return trace_bad(p, ERR_FORMAT, "\"%s\" %s (want %s)", printable_copy(t.at, (size_t)(t.end - t.at), shown, sizeof shown), wrong, want);
}

static const char *whole_number(struct trace_text t, int64_t max, int64_t *out)
{
	for (const char *c = t.at; c < t.end; c++)
		if (*c < '0' || *c > '9')
			return "is no whole number";
	return trace_decimal(t, 0, max, out);
}

static enum err add_opportunity(struct trace_parser *p, int64_t ms)
{
	if (p->n == TRACE_SAMPLES_MAX)
		return trace_bad(p, ERR_LIMIT, "more than %d opportunities", TRACE_SAMPLES_MAX);
	if (p->opportunities_ms != NULL)
		p->opportunities_ms[p->n] = (uint32_t)ms;
	p->n++;
	return OK;
}

enum err trace_read_mahimahi(struct trace_parser *p)
{
	struct trace_text line;
	int64_t before = 0, ms;
	enum err e = OK;
	while (e == OK && trace_next_line(p, &line)) {
		if (trace_is_empty(line))
			continue;
		const char *wrong = whole_number(line, UINT32_MAX, &ms);
		if (wrong != NULL)
			return bad_number(p, line, wrong, "one millisecond a line, from 0 to 4294967295");
		if (ms < before)
			return trace_bad(p, ERR_FORMAT, "%lld ms after %lld ms: time goes back", (long long)ms, (long long)before);
		before = ms;
		e = add_opportunity(p, ms);
	}
	if (e == OK && before == 0)
		return trace_bad(p, ERR_FORMAT, p->n == 0 ? "no opportunity to deliver" : "the last opportunity, which is the period, comes at 0 ms");
	return e;
}

static enum err read_table_number(struct trace_parser *p, struct trace_text t)
{
	bool is_negative = *t.at == '-';
	struct trace_text digits = {t.at + is_negative, t.end};
	int64_t v;
	const char *wrong = whole_number(digits, is_negative ? -(int64_t)INT16_MIN : INT16_MAX, &v);
	if (wrong != NULL)
		return bad_number(p, t, wrong, "-32768 to 32767");
	if (p->n == TRACE_TABLE_MAX)
		return trace_bad(p, ERR_LIMIT, "more than %d numbers", TRACE_TABLE_MAX);
	if (p->table != NULL)
		p->table[p->n] = (int16_t)(is_negative ? -v : v);
	p->n++;
	return OK;
}

enum err trace_read_netem(struct trace_parser *p)
{
	struct trace_text line;
	enum err e = OK;
	while (e == OK && trace_next_line(p, &line)) {
		if (trace_is_empty(line) || *line.at == '#')
			continue;
		for (const char *at = line.at; e == OK && at < line.end;) {
			const char *end = at;
			while (end < line.end && *end != ' ' && *end != '\t')
				end++;
			if (end > at)
				e = read_table_number(p, (struct trace_text){at, end});
			at = end < line.end ? end + 1 : end;
		}
	}
	if (e == OK && p->n == 0)
		return trace_bad(p, ERR_FORMAT, "no number in this table");
	return e;
}
