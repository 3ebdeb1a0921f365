// `hearth sim check`: many seeds on all cores, each core in a process of its own, so that an assertion in a core costs one seed and not the run.
//
// Workers take the next seed from shared memory and add what they saw to a summary of their own there; the parent watches them, starts
// another for one that died, kills one that hangs, and adds the summaries up. One seed in CHECK_TWICE_EVERY is run twice and must give the
// same history. Thread rule: the caller has no threads (it forks).
#ifndef HEARTH_SIM_SHELL_CHECK_RUN_H
#define HEARTH_SIM_SHELL_CHECK_RUN_H

#include "base/err.h"
#include "sim/trial.h"

#include <stdbool.h>
#include <stdint.h>

#define CHECK_JOBS_MAX 256
#define CHECK_FAILURES_MAX 32 // told; more are counted
#define CHECK_TWICE_EVERY 100
#define CHECK_HANG_S 120      // of real time; a seed takes milliseconds

struct check_failure {
	uint64_t seed;
	int64_t at_ns; // virtual time; -1: its process died
	char text[SIM_TEXT_CAP];
};

// Sums over seeds.
struct check_summary {
	uint64_t n_seeds, n_failed, n_encrypted, n_twice;
	uint64_t n_requests;
	int64_t virtual_ns;
	uint64_t histories; // mix of all histories, whatever the order of the seeds
	uint64_t drawn[SIM_N_FAULTS], done[SIM_N_FAULTS]; // seeds in which a class was drawn, and in which it had something to work on
	uint64_t seeds_with_double_loss, seeds_with_recovery, seeds_with_replan;
	uint64_t seeds_by_cost, seeds_with_better; // the planner was asked; a better plan was moved to
	uint64_t seeds_with_groups; // machines that share layers, as a placement says
	uint64_t seeds_may_group;   // as the planner says
	uint64_t seeds_with_chains, seeds_with_move; // several chains; an answer that went on in another one
	struct sim_counts counts;
	uint32_t n_failures;
	struct check_failure failures[CHECK_FAILURES_MAX]; // by seed
};

struct check_params {
	uint64_t first, last;     // seeds, both included
	int32_t n_jobs;
	struct trial_params trial; // its seed is not used
	// on_progress is called about four times a second; may be NULL.
	void (*on_progress)(void *ctx, uint64_t n_done, uint64_t n_failed);
	void *ctx;
};

// check_run: ERR_IO when no process can be started. Failed seeds are no error of it.
MUST_USE enum err check_run(const struct check_params *p, struct check_summary *out, struct errmsg *em);

// check_one runs one seed in a process of its own.
MUST_USE enum err check_one(const struct trial_params *p, struct trial_result *r, struct errmsg *em);

struct shrink_result {
	uint32_t classes;          // that are left
	int64_t from_ns, until_ns; // the narrowed window
	struct trial_result last;  // of the smallest run that still fails
	int32_t n_runs;
};

// check_shrink leaves out fault classes one by one, then cuts the window from both ends, as long as the seed still fails. ERR_STATE: it does
// not fail as it is.
MUST_USE enum err check_shrink(const struct trial_params *p, struct shrink_result *out, struct errmsg *em);

#endif
