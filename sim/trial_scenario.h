// The machines, links and model of a scenario as the world of a seed: how the cluster that somebody has would fare under faults.
//
// Durations follow the cost model for what fits in memory (bytes over read rate, flops over rate, a fixed cost per visit), whatever layers
// a machine is given after a loss; streaming from disk is left out. Private to sim/trial*.c.
#ifndef HEARTH_SIM_TRIAL_SCENARIO_H
#define HEARTH_SIM_TRIAL_SCENARIO_H

#include "base/arena.h"
#include "sim/network.h"
#include "sim/scenario.h"
#include "sim/world.h"

// trial_scenario fills what the scenario says; the coordinator's device becomes machine 0. `machines` has SIM_MACHINES_MAX places.
void trial_scenario(const struct scenario *s, struct sim_config *c, struct sim_machine *machines, int32_t *devices);
// trial_scenario_network makes its network with another seed; opens the arena.
MUST_USE enum err trial_scenario_network(const struct scenario *s, uint64_t seed, const int32_t *devices, int32_t n, struct arena *a,
	struct network *out, struct errmsg *em);

#endif
