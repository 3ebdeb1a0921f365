// What the readers of trace formats share: lines of hostile text, exact decimals, and a sink that counts in the first pass and
// stores in the second. Inside of sim/trace: nobody else includes it.
#ifndef HEARTH_SIM_TRACE_PARSER_H
#define HEARTH_SIM_TRACE_PARSER_H

#include "sim/trace.h"

// A piece of the text, half open.
struct trace_text {
	const char *at;
	const char *end;
};

struct trace_parser {
	const char *name;
	struct trace_text rest;
	int64_t line; // number of the line taken last, from 1
	struct errmsg *em;
	enum trace_kind kind;
	size_t n;                   // entries so far, in either pass
	struct trace_sample *samples; // where they go; NULL in the first pass
	uint32_t *opportunities_ms;
	int16_t *table;
	size_t n_duplicates;
};

// trace_next_line takes a line, without its end and the blanks round it. False: the text is used up.
bool trace_next_line(struct trace_parser *p, struct trace_text *line);
static inline bool trace_is_empty(struct trace_text t)
{
	return t.at == t.end;
}
// trace_starts tells whether `t` begins with `word`; trace_find returns where `word` stands in it, or NULL.
bool trace_starts(struct trace_text t, const char *word);
const char *trace_find(struct trace_text t, const char *word);
// trace_split takes what stands before the next `separator` off *rest, blanks round it removed. False: *rest was used up (its `at` is NULL).
bool trace_split(struct trace_text *rest, char separator, struct trace_text *field);
// trace_bad makes "name:line: <text>" and returns `e`.
enum err trace_bad(const struct trace_parser *p, enum err e, const char *fmt, ...) PRINTF_LIKE(3, 4);

// trace_decimal reads all of `t`, "12", "0.25" or "1.5e-3", as a number of 10^-scale, to the nearest. NULL, or what is wrong with it.
const char *trace_decimal(struct trace_text t, int scale, int64_t max, int64_t *out);
// trace_add_sample appends, with its time as it is; lost ones too. ERR_LIMIT past TRACE_SAMPLES_MAX.
MUST_USE enum err trace_add_sample(struct trace_parser *p, int64_t t_ns, int64_t rtt_ns, uint64_t rate_bps);

// The readers: everything in p->rest, which is the whole text. They leave p->n at least 1, times as they stand in the text.
MUST_USE enum err trace_read_csv(struct trace_parser *p);
MUST_USE enum err trace_read_ping(struct trace_parser *p);
MUST_USE enum err trace_read_mahimahi(struct trace_parser *p);
MUST_USE enum err trace_read_netem(struct trace_parser *p);

#endif
