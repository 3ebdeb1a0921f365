// Traces of links: what was measured, and what other tools wrote, read from text in memory; and our own CSV written.
//
// Formats (docs/traces.md has examples):
// - CSV, ours: comment lines (#), a line of column names, then a line per sample. Columns in any order, others are ignored: `t_s` (seconds, not
//   decreasing), `rtt_ms` or `oneway_ms`, `rate_mbit` (optional, may be empty: not known), `lost` (optional, 0 or 1; with 1 the delay may be
//   empty). Numbers are decimal, with an exponent if one likes.
// - Output of `ping -D` of iputils. Gaps in icmp_seq, "no answer yet" and "From ..." lines are losses; a late reply fills its gap;
//   duplicates are passed over. The time of a sample is that of sending.
// - mahimahi packet-delivery traces: a millisecond a line, each an opportunity to deliver 1,500 bytes; the last one is the period.
// - tc-netem distribution tables (*.dist): signed 16-bit numbers in units of sigma/8192, # comments.
//
// Text is hostile: an error names file and line, and memory is what a first pass over the text counts. sim/trace_set.h opens traces.
// Pure; the caller holds all memory; one thread per trace while parsing, any number reading it afterwards.
#ifndef HEARTH_SIM_TRACE_H
#define HEARTH_SIM_TRACE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_BYTES_MAX (256 * 1024 * 1024) // of one file: a day of pings, 20 a second, is 140 MB
#define TRACE_SAMPLES_MAX (8 * 1024 * 1024) // lost ones counted: 200 MB in memory
#define TRACE_TABLE_MAX 16384               // numbers of a distribution table, as tc has it
#define TRACE_TABLE_SIGMA 8192              // one sigma
#define TRACE_OPPORTUNITY_BYTES 1500
#define TRACE_DELAY_MAX_NS INT64_C(600000000000) // of one sample, ten minutes: sums of all samples fit 64 bits
#define TRACE_CSV_LINE_CAP 128

enum trace_format { TRACE_AUTO, TRACE_CSV, TRACE_PING, TRACE_MAHIMAHI, TRACE_NETEM };

enum trace_kind {
	TRACE_DELAY,      // samples
	TRACE_DELIVERIES, // opportunities
	TRACE_TABLE,      // table
};

struct trace_sample {
	int64_t t_ns;     // since the first sample's time, not decreasing
	int64_t rtt_ns;   // round trip; a one-way measurement doubled; -1: lost
	uint64_t rate_bps; // 0: not known
};

struct trace {
	enum trace_kind kind;
	enum trace_format format;
	size_t n; // entries of the one array that is not NULL, at least 1
	const struct trace_sample *samples;
	const uint32_t *opportunities_ms; // not decreasing, the last one > 0
	const int16_t *table;
	int64_t period_ns; // after which it repeats; a table has none
	size_t n_lost;
	double mean_rtt_ns;  // of a TRACE_DELAY, over the samples that were not lost; 0 when all were
	size_t n_duplicates; // ping
};

struct trace_summary {
	size_t n, n_lost;
	int64_t duration_ns;
	// Round trips of samples that were not lost: nearest rank. 0 when there are none.
	int64_t min_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns, mean_ns;
	uint64_t mean_bps; // deliveries: bytes over the period; delays: mean of the known rates, 0 when none is
};

// trace_format_name returns "hearth CSV", "ping -D output", ...
const char *trace_format_name(enum trace_format f);
// trace_count checks the whole text and counts its entries; TRACE_AUTO becomes the format found. `name` stands before messages:
// "home.csv:12: ...". ERR_FORMAT: not such a trace, or (with TRACE_AUTO) none we know. ERR_LIMIT: over a maximum.
MUST_USE enum err trace_count(const char *name, const char *text, size_t len, enum trace_format *f, size_t *n, struct errmsg *em);
size_t trace_entry_bytes(enum trace_format f);
// trace_read reads the text that trace_count took, with what it gave, into `entries`: zeroed, n of trace_entry_bytes(f), borrowed by the trace.
void trace_read(const char *text, size_t len, enum trace_format f, size_t n, void *entries, struct trace *t);

// trace_sample_at returns the sample of a TRACE_DELAY that holds at a time >= 0: the last one not after it, repeated with the period.
const struct trace_sample *trace_sample_at(const struct trace *t, int64_t at_ns);
// trace_opportunity_ns returns when opportunity k of a TRACE_DELIVERIES comes, repeated with the period.
int64_t trace_opportunity_ns(const struct trace *t, uint64_t k);
// trace_opportunity_from returns the first opportunity at or after a time >= 0.
uint64_t trace_opportunity_from(const struct trace *t, int64_t at_ns);

// trace_summarise needs `scratch` of t->n numbers for a TRACE_DELAY; NULL for the others.
void trace_summarise(const struct trace *t, int64_t *scratch, struct trace_summary *out);

// The CSV writer: a header, then samples one by one. Each puts a NUL-terminated line into `line` and returns its length.
size_t trace_csv_header(bool with_rate, char line[TRACE_CSV_LINE_CAP]);
size_t trace_csv_line(const struct trace_sample *s, bool with_rate, char line[TRACE_CSV_LINE_CAP]);

#endif
