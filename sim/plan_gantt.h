// A few tokens of a plan as the exact judge sees them, for a picture: who computes, reads and sends when. Mean delays, one stream, full windows.
#ifndef HEARTH_SIM_PLAN_GANTT_H
#define HEARTH_SIM_PLAN_GANTT_H

#include "partition/cost.h"
#include "sim/report.h"

// plan_gantt_open fills a report whose device i is stage i of the plan, and behind them the head's device when it holds no layers. The case
// passed cost_check. ERR_NOMEM. The caller closes the report.
MUST_USE enum err plan_gantt_open(const struct cost_case *c, int32_t n_tokens, struct report *out, struct errmsg *em);

#endif
