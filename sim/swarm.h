// A swarm on the virtual world: the real cores of a coordinator and of up to a thousand volunteers, who come and go while requests arrive.
//
// The scenario's placement says who begins in which chain; the others stand by. How long a machine computes comes from its rates (weights read once
// per batch, arithmetic per token; keys and values are not counted). Everything drawn follows from the scenario's seed. One thread.
#ifndef HEARTH_SIM_SWARM_H
#define HEARTH_SIM_SWARM_H

#include "base/err.h"
#include "sim/report.h"
#include "sim/scenario.h"
#include "sim/world.h"

struct swarm_chain {
	int32_t n_stages;    // at the beginning
	double n_active;     // sessions, mean over time
	double ready;        // part of the time
	uint64_t n_tokens;
};

struct swarm_result {
	int32_t n_chains, n_standing_by; // at the beginning
	struct swarm_chain chains[CHAINS_MAX];
	double ready_s;                  // until all chains were
	int32_t n_requests, n_answered, n_failed, n_open; // open: when time was over
	double oldest_open_s;                             // since the first of the open ones was asked for; 0: none is open
	struct report_quantiles ttft, tpot, e2e, longest_gap; // 0 without an answer; gap: the longest time between two tokens of one
	int32_t n_left, n_left_orderly, n_returned;       // volunteers
	uint64_t n_recovered, n_moved; // answers that went on under a new plan of their chain; in another chain
	struct sim_counts counts;
	uint64_t history;
};

// swarm_run: ERR_NOMEM, ERR_RANGE (the members do not hold the model as often as it says), or ERR_STATE when the world failed, which is a bug of ours.
MUST_USE enum err swarm_run(const struct scenario *s, struct swarm_result *out, struct errmsg *em);

#endif
