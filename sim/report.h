// A record of who did what when, and what people ask of it: latencies, tokens per second, who was busy. Drawn as text, as a Gantt
// chart (SVG) and as a Chrome trace (chrome://tracing, ui.perfetto.dev).
//
// Whoever runs a scenario adds intervals and tokens as they happen; intervals of one device and kind come in the order of their
// beginnings. Sums count everything; for drawing the first `intervals_cap` are kept. Owns its memory. One thread.
#ifndef HEARTH_SIM_REPORT_H
#define HEARTH_SIM_REPORT_H

#include "base/err.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum report_kind { REPORT_COMPUTE, REPORT_HEAD, REPORT_DISK, REPORT_LINK };
#define REPORT_KINDS 4

struct report_interval {
	enum report_kind kind;
	int32_t device;
	int32_t peer;     // LINK: to whom; else -1
	int32_t n_tokens; // 0: not known
	int64_t begin_ns, end_ns;
};

struct report_device {
	char name[NAME_CAP];
	int64_t sum_ns[REPORT_KINDS]; // time in which at least one interval of the kind ran
	int64_t until_ns[REPORT_KINDS];
	int64_t stall_ns; // of computing: waiting for the disk
	uint64_t sent_bytes;
};

struct report_request {
	int64_t submit_ns, first_ns, last_ns; // first 0: no token yet
	int32_t n_prompt, n_tokens;
	bool failed;
};

struct report {
	int32_t n_devices, n_requests, requests_cap;
	size_t n_intervals, intervals_cap, n_dropped;
	size_t n_gaps, gaps_cap;
	struct report_device *devices;     // (n_devices)
	struct report_interval *intervals; // (intervals_cap)
	struct report_request *requests;   // (requests_cap)
	double *gaps;                      // (gaps_cap) seconds between two tokens of one answer
	int64_t begin_ns, end_ns;          // first request to last token
};

MUST_USE enum err report_open(int32_t n_devices, int32_t requests_cap, size_t intervals_cap, size_t gaps_cap, struct report *out);
void report_close(struct report *r); // safe on a zeroed struct

void report_add(struct report *r, const struct report_interval *i);
// report_submit returns the request's number, from 0; report_token and report_fail name it.
int32_t report_submit(struct report *r, int64_t at_ns, int32_t n_prompt);
void report_token(struct report *r, int32_t request, int64_t at_ns);
void report_fail(struct report *r, int32_t request);

// Seconds. NaN when there is nothing to count.
struct report_quantiles {
	size_t n;
	double p50, p90, p99, mean;
};
// report_quantiles_of sorts the values. Nearest rank.
struct report_quantiles report_quantiles_of(double *v, size_t n);

struct report_summary {
	struct report_quantiles ttft, tpot, gap; // tpot: of answers with two tokens or more; gap: between two tokens
	int64_t n_tokens;
	int32_t n_failed;
	double span_s;       // first request to last token
	double tokens_per_s; // all answers together
};

// report_summarise sorts the gaps. ERR_NOMEM.
MUST_USE enum err report_summarise(struct report *r, struct report_summary *out);

// Both write until `to` refuses; the caller looks at ferror. `title` is printed escaped.
void report_svg(const struct report *r, const char *title, FILE *to);
int report_svg_height(const struct report *r); // pixels
void report_chrome_trace(const struct report *r, FILE *to);

#endif
