// What a host does about COORD_FX_PLAN: a copy of what was asked and of what members told, taken at once, and then solved, which may take
// seconds and happens on any thread. Pure; the copy is large (CLUSTER_VIEW_MAX squared links): not for a stack.
#ifndef HEARTH_COORDINATOR_PLAN_SOLVE_H
#define HEARTH_COORDINATOR_PLAN_SOLVE_H

#include "coordinator/cluster_view.h"
#include "partition/plan_best.h"

struct plan_solve {
	uint32_t id; // of the effect
	struct cluster_view view;
	struct node_id nodes[CLUSTER_VIEW_MAX];
	struct solve_limit limits[CLUSTER_VIEW_MAX];
	struct solve_device_fate fates[CLUSTER_VIEW_MAX];
	bool has_current;
	struct plan current;
	struct plan_ask ask; // points into this struct
};

// plan_solve_begin copies. The shape is borrowed until the plan is there. ERR_STATE: this machine has told no figures; ERR_LIMIT: too many members.
MUST_USE enum err plan_solve_begin(const struct coordinator *c, const struct coord_effect *f, const struct model_shape *shape, struct plan_solve *out,
	struct errmsg *em);
// plan_solve_is_news tells whether a later question, about the same model, may have another answer: somebody came, left or may hold something else, the
// current plan is another, or a figure has moved by more than such figures do by themselves.
bool plan_solve_is_news(const struct plan_solve *before, const struct plan_solve *now);
// plan_solve_scratch_bytes returns what the arena of plan_solve_run must hold.
size_t plan_solve_scratch_bytes(const struct plan_solve *s);
// plan_solve_run: errors are those of the solver (partition/solve.h).
MUST_USE enum err plan_solve_run(struct plan_solve *s, struct arena *scratch, struct plan_answer *out, struct errmsg *em);

#endif
