#include "sim/trace.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "sim/trace_parser.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_MS INT64_C(1000000)
#define LONE_SAMPLE_NS INT64_C(1000000000) // how long the one sample of a trace holds

static const char *const format_names[] = {
	[TRACE_AUTO] = "unknown format",
	[TRACE_CSV] = "hearth CSV",
	[TRACE_PING] = "ping -D output",
	[TRACE_MAHIMAHI] = "mahimahi delivery trace",
	[TRACE_NETEM] = "tc-netem distribution table",
};

const char *trace_format_name(enum trace_format f)
{
	return format_names[f];
}

static bool has_only(struct trace_text t, const char *allowed)
{
	for (const char *c = t.at; c < t.end; c++)
		if (*c == '\0' || strchr(allowed, *c) == NULL)
			return false;
	return true;
}

// detect looks at the first line that says something. A lone number is mahimahi's; a table has comments, several in a line, or a sign.
static enum trace_format detect(struct trace_parser p)
{
	struct trace_text line;
	bool has_comment = false;
	while (trace_next_line(&p, &line)) {
		if (!trace_is_empty(line) && *line.at == '#')
			has_comment = true;
		else if (!trace_is_empty(line))
			break;
	}
	if (p.line == 0 || trace_is_empty(line) || *line.at == '#')
		return TRACE_AUTO;
	if (trace_starts(line, "PING ") || *line.at == '[' || trace_find(line, "icmp_seq=") != NULL)
		return TRACE_PING;
	if (has_only(line, "0123456789") && !has_comment)
		return TRACE_MAHIMAHI;
	if (has_only(line, "0123456789- \t"))
		return TRACE_NETEM;
	return trace_find(line, ",") || trace_find(line, "t_s") || trace_find(line, "_ms") ? TRACE_CSV : TRACE_AUTO;
}

static enum err read_all(struct trace_parser *p, enum trace_format f)
{
	switch (f) {
	case TRACE_CSV:
		return trace_read_csv(p);
	case TRACE_PING:
		return trace_read_ping(p);
	case TRACE_MAHIMAHI:
		return trace_read_mahimahi(p);
	case TRACE_NETEM:
		return trace_read_netem(p);
	case TRACE_AUTO:
		break;
	}
	return errmsg_fail(p->em, ERR_FORMAT, "%s: no trace we know (want a CSV with columns t_s and rtt_ms, ping -D output, a mahimahi trace or a "
		"tc-netem table)", p->name);
}

size_t trace_entry_bytes(enum trace_format f)
{
	if (f == TRACE_MAHIMAHI)
		return sizeof(uint32_t);
	return f == TRACE_NETEM ? sizeof(int16_t) : sizeof(struct trace_sample);
}

static struct trace_parser parser_init(const char *name, const char *text, size_t len, struct errmsg *em)
{
	static const char nothing[1] = "";
	const char *at = len > 0 ? text : nothing;
	return (struct trace_parser){.name = name, .rest = {at, at + len}, .em = em};
}

enum err trace_count(const char *name, const char *text, size_t len, enum trace_format *f, size_t *n, struct errmsg *em)
{
	struct trace_parser p = parser_init(name, text, len, em);
	if (len > TRACE_BYTES_MAX)
		return errmsg_fail(em, ERR_LIMIT, "%s: %zu bytes, at most %d", name, len, TRACE_BYTES_MAX);
	if (*f == TRACE_AUTO)
		*f = detect(p);
	enum err e = read_all(&p, *f);
	*n = p.n;
	return e;
}

static int64_t period_of(const struct trace *t)
{
	if (t->kind == TRACE_DELIVERIES)
		return (int64_t)t->opportunities_ms[t->n - 1] * NS_PER_MS;
	if (t->kind == TRACE_TABLE)
		return 0;
	int64_t span_ns = t->samples[t->n - 1].t_ns;
	return span_ns > 0 ? span_ns + span_ns / (int64_t)(t->n - 1) : LONE_SAMPLE_NS; // the last sample holds as long as one does on average
}

static void finish_samples(struct trace *t, struct trace_sample *s)
{
	int64_t first_ns = s[0].t_ns;
	double sum_ns = 0;
	for (size_t i = 0; i < t->n; i++) {
		s[i].t_ns -= first_ns;
		t->n_lost += s[i].rtt_ns < 0;
		sum_ns += s[i].rtt_ns < 0 ? 0 : (double)s[i].rtt_ns;
	}
	t->mean_rtt_ns = t->n > t->n_lost ? sum_ns / (double)(t->n - t->n_lost) : 0;
}

void trace_read(const char *text, size_t len, enum trace_format f, size_t n, void *entries, struct trace *t)
{
	struct trace_parser p = parser_init("", text, len, NULL);
	*t = (struct trace){.format = f, .n = n};
	if (f == TRACE_MAHIMAHI) {
		t->kind = TRACE_DELIVERIES;
		t->opportunities_ms = p.opportunities_ms = entries;
	} else if (f == TRACE_NETEM) {
		t->kind = TRACE_TABLE;
		t->table = p.table = entries;
	} else {
		t->kind = TRACE_DELAY;
		t->samples = p.samples = entries;
	}
	enum err e = read_all(&p, f);
	ASSERT(e == OK && p.n == n); // the first pass read the same text
	t->n_duplicates = p.n_duplicates;
	if (t->kind == TRACE_DELAY)
		finish_samples(t, entries);
	t->period_ns = period_of(t);
}

// sample_index: the last sample not after a time within the period.
static size_t sample_index(const struct trace *t, int64_t within_ns)
{
	size_t from = 0, to = t->n; // samples[from] is not after it, samples[to] is
	while (to - from > 1) {
		size_t mid = from + (to - from) / 2;
		if (t->samples[mid].t_ns <= within_ns)
			from = mid;
		else
			to = mid;
	}
	return from;
}

const struct trace_sample *trace_sample_at(const struct trace *t, int64_t at_ns)
{
	ASSERT(t->kind == TRACE_DELAY);
	ASSERT(at_ns >= 0);
	return &t->samples[sample_index(t, at_ns % t->period_ns)];
}

int64_t trace_opportunity_ns(const struct trace *t, uint64_t k)
{
	ASSERT(t->kind == TRACE_DELIVERIES);
	return (int64_t)(k / t->n) * t->period_ns + (int64_t)t->opportunities_ms[k % t->n] * NS_PER_MS;
}

uint64_t trace_opportunity_from(const struct trace *t, int64_t at_ns)
{
	ASSERT(t->kind == TRACE_DELIVERIES);
	ASSERT(at_ns >= 0);
	if (at_ns == 0)
		return 0;
	// An opportunity at the very end of a round belongs to it, not to the next.
	uint64_t round = (uint64_t)((at_ns - 1) / t->period_ns);
	int64_t within_ns = at_ns - (int64_t)round * t->period_ns;
	size_t from = 0, to = t->n; // those before `from` are too early, `to` is not
	while (from < to) {
		size_t mid = from + (to - from) / 2;
		if ((int64_t)t->opportunities_ms[mid] * NS_PER_MS < within_ns)
			from = mid + 1;
		else
			to = mid;
	}
	return round * t->n + from;
}

static int compare_ns(const void *a, const void *b)
{
	int64_t x, y;
	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return (x > y) - (x < y);
}

// Nearest rank, in thousandths.
static int64_t quantile(const int64_t *sorted, size_t n, size_t thousandths)
{
	size_t rank = (n * thousandths + 999) / 1000;
	return sorted[rank > 0 ? rank - 1 : 0];
}

static void summarise_delays(const struct trace *t, int64_t *scratch, struct trace_summary *out)
{
	size_t n = 0, n_rates = 0;
	int64_t sum_ns = 0;
	uint64_t sum_bps = 0;
	for (size_t i = 0; i < t->n; i++) {
		n_rates += t->samples[i].rate_bps > 0;
		sum_bps += t->samples[i].rate_bps;
		if (t->samples[i].rtt_ns < 0)
			continue;
		sum_ns += t->samples[i].rtt_ns;
		scratch[n++] = t->samples[i].rtt_ns;
	}
	out->mean_bps = n_rates > 0 ? sum_bps / n_rates : 0;
	if (n == 0)
		return;
	qsort(scratch, n, sizeof *scratch, compare_ns);
	out->min_ns = scratch[0];
	out->p50_ns = quantile(scratch, n, 500);
	out->p90_ns = quantile(scratch, n, 900);
	out->p99_ns = quantile(scratch, n, 990);
	out->p999_ns = quantile(scratch, n, 999);
	out->max_ns = scratch[n - 1];
	out->mean_ns = sum_ns / (int64_t)n;
}

void trace_summarise(const struct trace *t, int64_t *scratch, struct trace_summary *out)
{
	*out = (struct trace_summary){.n = t->n, .n_lost = t->n_lost, .duration_ns = t->period_ns};
	if (t->kind == TRACE_DELAY)
		summarise_delays(t, scratch, out);
	else if (t->kind == TRACE_DELIVERIES)
		out->mean_bps = (uint64_t)t->n * TRACE_OPPORTUNITY_BYTES * 8 * 1000 / t->opportunities_ms[t->n - 1];
}
