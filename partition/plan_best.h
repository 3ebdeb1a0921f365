// The fastest plan over a cluster's members, as the coordinator takes it: the solver's answer in node ids and spans of layers. Pure.
#ifndef HEARTH_PARTITION_PLAN_BEST_H
#define HEARTH_PARTITION_PLAN_BEST_H

#include "partition/plan.h"
#include "partition/solve.h"

struct plan_ask {
	struct solve_want want;      // its incumbent is set here
	const struct node_id *nodes; // (n_devices) who is which device
	const struct plan *current;  // the plan there is; NULL: none
};

struct plan_answer {
	struct plan plan; // without an epoch
	double token_s;   // predicted
	double current_s; // of the current plan; INFINITY: there is none, or it cannot be (somebody of it is no device of this cluster)
	double move_s;    // until each machine has read what it does not hold under the current plan
	char words[REASON_CAP]; // who is left out and why; "" when nobody is
	char groups[REASON_CAP]; // who shares layers and why, or why nobody does; "" when that is not asked, or nobody could
};

// plan_best_mode: what the cost model tells apart as mode and form of a sum, members know as one mode.
enum split_mode plan_best_mode(const struct cost_group *g);
// plan_best_stream_share is what the machine of a stage must be told so that its window is what was counted on (struct plan_stage); 0: nothing, it keeps the smallest by itself.
uint32_t plan_best_stream_share(const struct cost_case *c, int32_t stage);
// plan_best: `fates` has room for n_devices. Errors are those of solve, which says what the arena must have.
MUST_USE enum err plan_best(const struct plan_ask *ask, struct arena *scratch, struct solve_device_fate *fates, struct plan_answer *out, struct errmsg *em);

#endif
