// One seed of `hearth sim check`: a small world, a workload and a mixture of faults are drawn from it; while they happen, everything
// that must always hold is checked after every event; then all is healed that may heal, and the cluster must serve again, in
// bounded time.
//
// Sub-seeds: the shape of the world, its network, the faults, the workload, ties and keys are drawn apart, so that leaving out faults
// changes nothing else. Pure; owns what it allocates.
#ifndef HEARTH_SIM_TRIAL_H
#define HEARTH_SIM_TRIAL_H

#include "sim/faults.h"
#include "sim/scenario.h"
#include "sim/sim_model.h"
#include "sim/world.h"

#include <stdbool.h>
#include <stdint.h>

struct trial_params {
	uint64_t seed;
	uint32_t classes;            // of faults; SIM_ALL_FAULTS
	int64_t from_ns, until_ns;   // faults outside are left out; 0 and INT64_MAX
	bool recovery;               // the loss of a node ends no answer; with a journal (3 of 4 seeds), a crash of the coordinator neither
	const struct sim_model_config *model; // NULL: a chain of hashes
	const struct scenario *scenario;      // its machines, links and model instead of drawn ones; NULL: drawn
	struct sim_observer observer;
};

struct trial_result {
	bool failed;
	char failure[SIM_TEXT_CAP];
	int64_t failed_ns;           // virtual time of the failure
	int64_t end_ns;              // virtual time that passed
	uint64_t history;
	int32_t n_chains; // 0: one
	int32_t n_groups; // stages whose machines share layers, at the beginning
	bool by_cost;     // the planner was asked
	bool may_group;   // and its plans may have groups
	bool encrypted;
	uint32_t drawn[SIM_N_FAULTS], done[SIM_N_FAULTS]; // faults of each class; done: they had something to work on
	int32_t n_requests;
	struct sim_counts counts;
};

// trial_run: ERR_NOMEM, or a seed that makes no world (our bug, told in em). What the seed finds is in r.
MUST_USE enum err trial_run(const struct trial_params *p, struct trial_result *r, struct errmsg *em);

#endif
