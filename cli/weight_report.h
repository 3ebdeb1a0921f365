// What `hearth run --mem` tells of memory and disk: where the weights are, what was read for the prompt and for each token, how long
// computing waited for it.
#ifndef HEARTH_CLI_WEIGHT_REPORT_H
#define HEARTH_CLI_WEIGHT_REPORT_H

#include "cli/cluster_host.h"

#include <jansson.h>

// Of the layers and the output head together, since they were loaded.
struct weight_reading {
	uint64_t read_bytes, wasted_bytes;
	int64_t read_ns, stall_ns;
};

struct weight_report {
	const struct cluster_host *host;   // NULL: without --mem there is nothing to tell
	struct weight_reading begin, first, end; // at the request, at its first token, at its end
};

// weight_report_read adds up what has been read so far; nothing without a host.
void weight_report_read(const struct weight_report *w, struct weight_reading *out);
// weight_report_json returns the object "memory" of --json for an answer of n_tokens.
json_t *weight_report_json(const struct weight_report *w, int32_t n_tokens);
// weight_report_line prints one line for a person.
void weight_report_line(const struct weight_report *w, int32_t n_tokens, FILE *to);

#endif
