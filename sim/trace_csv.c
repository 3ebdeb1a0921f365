// Our own CSV: the format is in sim/trace.h.
#include "sim/trace_parser.h"

#include "base/printable.h"

#include <stdio.h>
#include <string.h>

#define T_MAX_NS INT64_C(4000000000000000000) // 126 years: sums of two still fit
#define RATE_MAX_BPS (INT64_C(1) << 40)
#define SHOWN_CAP 64

enum column { COLUMN_T, COLUMN_RTT, COLUMN_ONEWAY, COLUMN_RATE, COLUMN_LOST, N_COLUMNS };

// A column's name, and the power of ten from its unit to ours.
static const struct {
	const char *name;
	int scale;
	int64_t max; // in our unit
} columns[N_COLUMNS] = {
	[COLUMN_T] = {"t_s", 9, T_MAX_NS},
	[COLUMN_RTT] = {"rtt_ms", 6, TRACE_DELAY_MAX_NS},
	[COLUMN_ONEWAY] = {"oneway_ms", 6, TRACE_DELAY_MAX_NS / 2},
	[COLUMN_RATE] = {"rate_mbit", 6, RATE_MAX_BPS},
	[COLUMN_LOST] = {"lost", 0, 1},
};

struct csv {
	struct trace_parser *p;
	int32_t place[N_COLUMNS]; // in a line, -1: not there
	int32_t n_fields;
	int64_t t_ns; // of the sample before
	bool has_delay;
};

static enum err read_header(struct csv *c, struct trace_text line)
{
	struct trace_text field;
	for (int i = 0; i < N_COLUMNS; i++)
		c->place[i] = -1;
	for (c->n_fields = 0; trace_split(&line, ',', &field); c->n_fields++)
		for (int i = 0; i < N_COLUMNS; i++) {
			if ((size_t)(field.end - field.at) != strlen(columns[i].name) || !trace_starts(field, columns[i].name))
				continue;
			if (c->place[i] >= 0)
				return trace_bad(c->p, ERR_FORMAT, "column %s stands here twice", columns[i].name);
			c->place[i] = c->n_fields;
		}
	if (c->place[COLUMN_T] < 0)
		return trace_bad(c->p, ERR_FORMAT, "no column t_s (want t_s, and rtt_ms or oneway_ms)");
	if ((c->place[COLUMN_RTT] < 0) == (c->place[COLUMN_ONEWAY] < 0))
		return trace_bad(c->p, ERR_FORMAT, "want one of the columns rtt_ms and oneway_ms, got %s", c->place[COLUMN_RTT] < 0 ? "neither" : "both");
	return OK;
}

// read_fields puts each column's value into `v`, -1 where the field is empty or the column missing.
static enum err read_fields(struct csv *c, struct trace_text line, int64_t v[N_COLUMNS])
{
	struct trace_text field;
	int32_t n = 0;
	for (int i = 0; i < N_COLUMNS; i++)
		v[i] = -1;
	for (; trace_split(&line, ',', &field); n++)
		for (int i = 0; i < N_COLUMNS; i++) {
			if (c->place[i] != n || trace_is_empty(field))
				continue;
			const char *wrong = trace_decimal(field, columns[i].scale, columns[i].max, &v[i]);
			char shown[SHOWN_CAP];
			if (wrong != NULL)
				return trace_bad(c->p, ERR_FORMAT, "%s \"%s\" %s", columns[i].name,
					printable_copy(field.at, (size_t)(field.end - field.at), shown, sizeof shown), wrong);
		}
	if (n != c->n_fields)
		return trace_bad(c->p, ERR_FORMAT, "%d field%s, want %d as in the header", (int)n, n == 1 ? "" : "s", (int)c->n_fields);
	return OK;
}

static enum err read_sample(struct csv *c, struct trace_text line)
{
	int64_t v[N_COLUMNS];
	enum err e = read_fields(c, line, v);
	if (e != OK)
		return e;
	if (v[COLUMN_T] < 0)
		return trace_bad(c->p, ERR_FORMAT, "t_s is missing");
	if (v[COLUMN_T] < c->t_ns)
		return trace_bad(c->p, ERR_FORMAT, "t_s goes back");
	c->t_ns = v[COLUMN_T];
	int64_t rtt_ns = c->place[COLUMN_RTT] >= 0 ? v[COLUMN_RTT] : v[COLUMN_ONEWAY] >= 0 ? 2 * v[COLUMN_ONEWAY] : -1;
	if (v[COLUMN_LOST] == 1)
		rtt_ns = -1;
	else if (rtt_ns < 0)
		return trace_bad(c->p, ERR_FORMAT, "no delay, and lost is not 1");
	c->has_delay |= rtt_ns >= 0;
	return trace_add_sample(c->p, c->t_ns, rtt_ns, v[COLUMN_RATE] > 0 ? (uint64_t)v[COLUMN_RATE] : 0);
}

enum err trace_read_csv(struct trace_parser *p)
{
	struct csv c = {.p = p};
	struct trace_text line;
	bool has_header = false;
	enum err e = OK;
	while (e == OK && trace_next_line(p, &line)) {
		if (trace_is_empty(line) || *line.at == '#')
			continue;
		e = has_header ? read_sample(&c, line) : read_header(&c, line);
		has_header = true;
	}
	if (e == OK && !has_header)
		return trace_bad(p, ERR_FORMAT, "no line of column names (want t_s, and rtt_ms or oneway_ms)");
	if (e == OK && !c.has_delay)
		return trace_bad(p, ERR_FORMAT, "no sample with a delay");
	return e;
}

// put_decimal writes v / 10^scale without zeros at its end.
static int put_decimal(char *to, size_t cap, int64_t v, int scale)
{
	int64_t unit = 1;
	for (int i = 0; i < scale; i++)
		unit *= 10;
	int n = snprintf(to, cap, "%lld.%0*lld", (long long)(v / unit), scale, (long long)(v % unit));
	while (to[n - 1] == '0')
		n--;
	n -= to[n - 1] == '.';
	to[n] = '\0';
	return n;
}

size_t trace_csv_header(bool with_rate, char line[TRACE_CSV_LINE_CAP])
{
	return (size_t)snprintf(line, TRACE_CSV_LINE_CAP, "t_s,rtt_ms,%slost\n", with_rate ? "rate_mbit," : "");
}

size_t trace_csv_line(const struct trace_sample *s, bool with_rate, char line[TRACE_CSV_LINE_CAP])
{
	int n = put_decimal(line, TRACE_CSV_LINE_CAP, s->t_ns, columns[COLUMN_T].scale);
	line[n++] = ',';
	if (s->rtt_ns >= 0)
		n += put_decimal(line + n, TRACE_CSV_LINE_CAP - (size_t)n, s->rtt_ns, columns[COLUMN_RTT].scale);
	line[n++] = ',';
	if (with_rate && s->rate_bps > 0)
		n += put_decimal(line + n, TRACE_CSV_LINE_CAP - (size_t)n, (int64_t)s->rate_bps, columns[COLUMN_RATE].scale);
	n += snprintf(line + n, TRACE_CSV_LINE_CAP - (size_t)n, "%s%d\n", with_rate ? "," : "", s->rtt_ns < 0);
	return (size_t)n;
}
