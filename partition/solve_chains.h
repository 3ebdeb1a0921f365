// Chains: several rings over one set of machines, each holding every layer, so that a swarm answers several people at once and outlives
// losses. Members are divided among the chains; each chain is then solved for itself (partition/solve.h). Pure, as that.
//
// The aim is the least mean time per token over the chains, one stream in each. The division is a rule, not an optimum: the gap to the bound
// says how much a better one could gain at most. That all chains share the head's own work is left out.
#ifndef HEARTH_PARTITION_SOLVE_CHAINS_H
#define HEARTH_PARTITION_SOLVE_CHAINS_H

#include "partition/solve.h"

struct solve_chains_result {
	struct cost_plan *plans; // (n_chains), the caller's, set before the call
	double *token_s;         // (n_chains), likewise: each chain's time per token
	double mean_s;           // of these
	double bound;            // no division into so many chains has a smaller mean
	double gap;              // mean_s / bound - 1
	int32_t n_used;          // devices that hold layers
};

// solve_chains_scratch_bytes is what the arena must have free. 0: the wants are out of range.
size_t solve_chains_scratch_bytes(const struct solve_want *w, int32_t n_chains);
// solve_chains divides the wants' devices into n_chains rings, 1 to CHAINS_MAX. Goal, order and incumbent are not read, and no device may be
// one that must be used. Errors as solve; ERR_NOT_FOUND also where only fewer chains are possible, which the message says.
MUST_USE enum err solve_chains(
	const struct solve_want *w, int32_t n_chains, struct arena *scratch, struct solve_chains_result *out, struct errmsg *em);

#endif
