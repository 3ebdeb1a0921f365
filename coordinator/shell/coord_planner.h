// The solver for the coordinator's host: COORD_FX_PLAN is solved on a thread of its own, which lives as long as one plan takes; PLANNED comes
// back from the loop. One plan at a time; what is asked meanwhile waits, of each chain the newest question only: one that it overtakes is never answered.
// A question that is no news (plan_solve_is_news) has the answer that its chain had before.
//
// Thread rule: the loop's thread.
#ifndef HEARTH_COORDINATOR_SHELL_COORD_PLANNER_H
#define HEARTH_COORDINATOR_SHELL_COORD_PLANNER_H

#include "base/err.h"
#include "coordinator/coordinator.h"
#include "model/model.h"
#include "net/loop.h"

struct coord_planner;

struct coord_planner_params {
	struct loop *loop; // borrowed, like all pointers here
	const struct coordinator *core;
	const struct coordinator_config *config;
	const struct model *model;
	void *ctx;
	void (*on_event)(void *ctx, struct coord_event *ev); // PLANNED
};

MUST_USE enum err coord_planner_open(const struct coord_planner_params *p, struct coord_planner **out, struct errmsg *em);
// coord_planner_close waits for the plan under way; nothing comes back of it. NULL is allowed.
void coord_planner_close(struct coord_planner *pl);
void coord_planner_ask(struct coord_planner *pl, const struct coord_effect *f); // COORD_FX_PLAN

#endif
