// What `hearth doctor` found, one finding after the other: what was looked at, how it is, and what to do about it. In words for a newcomer.
// One thread.
#ifndef HEARTH_CLI_DOCTOR_REPORT_H
#define HEARTH_CLI_DOCTOR_REPORT_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#define DOCTOR_FINDINGS_MAX 128 // a machine has some twenty; a cluster two or three for each of its nodes. More are counted, not shown
#define DOCTOR_CHECK_CAP 24
#define DOCTOR_TEXT_CAP 400

enum doctor_level {
	DOCTOR_OK,
	DOCTOR_WARNING, // works, but worse than it could
	DOCTOR_PROBLEM, // does not work, or will not
};

struct doctor_finding {
	enum doctor_level level;
	char check[DOCTOR_CHECK_CAP];
	char found[DOCTOR_TEXT_CAP];
	char advice[DOCTOR_TEXT_CAP]; // "": nothing to do
};

struct doctor_report {
	int32_t n, n_left_out;
	int32_t n_warnings, n_problems; // those left out included
	struct doctor_finding at[DOCTOR_FINDINGS_MAX];
};

// doctor_add appends a finding. What came from another machine is made fit for a terminal here; advice may be NULL.
void doctor_add(struct doctor_report *r, enum doctor_level level, const char *check, const char *advice, const char *fmt, ...) PRINTF_LIKE(5, 6);
void doctor_print(FILE *to, const struct doctor_report *r);
// doctor_json returns {"ok", "problems", "warnings", "findings": [{"check", "level", "found", "advice"}]}; NULL: no memory.
json_t *doctor_json(const struct doctor_report *r);

// doctor_bytes writes an amount as people say it: "7.6 GiB", "512 MiB".
const char *doctor_bytes(uint64_t bytes, char out[24]);

#endif
