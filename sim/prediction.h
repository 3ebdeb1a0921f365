// What a scenario would do: the cost model's own figures, and its requests run through.
//
// A pipeline runs on the virtual world, with the real cores over the simulated network; how long each FORWARD takes is the cost model's (one
// cost_runner per machine). What the program does not do yet, groups that compute every layer together, is played on the cost model, with
// the exchanges over the simulated network. `host` says which.
// Deterministic: the same scenario gives the same figures on every machine. One thread.
#ifndef HEARTH_SIM_PREDICTION_H
#define HEARTH_SIM_PREDICTION_H

#include "partition/cost.h"
#include "sim/report.h"
#include "sim/scenario.h"

enum prediction_host { PREDICTION_WORLD, PREDICTION_GROUP };

struct prediction {
	enum prediction_host host;
	// The cost model, for the first request of an idle cluster with mean delays
	double tpot_s, ttft_s;
	struct cost_closed closed; // not of a group
	struct cost_verdict verdict;
	struct cost_layout layouts[STAGES_MAX];
	double exchange_s; // of a group: one exchange of one token
	// What ran
	struct report report;
	struct report_summary summary;
	uint64_t history; // WORLD
	bool timed_out;   // the scenario's duration ended first
};

// prediction_run: ERR_NOMEM, ERR_RANGE, or ERR_STATE when the world failed, which is a bug of ours, told in em.
MUST_USE enum err prediction_run(const struct scenario *s, struct prediction *out, struct errmsg *em);
void prediction_close(struct prediction *p); // safe on a zeroed struct

// How a device spent the time from the first request to the last token, without its waiting for the disk, which is in the computing of a pipeline's
// report and beside that of a group's.
struct device_times {
	int64_t busy_ns, idle_ns;
};

struct device_times prediction_device_times(const struct prediction *p, int32_t device);
const char *prediction_host_name(enum prediction_host h);

#endif
