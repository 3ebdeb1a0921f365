// --mem for `hearth run`, `hearth serve` and `hearth join`: measures what each part of the process takes and parts the cap
// (engine/memory_budget.h), before anything is loaded.
#ifndef HEARTH_CLI_HOST_BUDGET_H
#define HEARTH_CLI_HOST_BUDGET_H

#include "base/err.h"
#include "cli/options.h"
#include "coordinator/coordinator.h"
#include "engine/memory_budget.h"
#include "engine/worker.h"
#include "model/model.h"
#include "node/shell/node_runtime.h"

struct host_budget {
	struct memory_budget budget;    // zero without --mem
	struct residency_limits head;   // zero likewise
	struct node_memory node;
	uint64_t keep_bytes;            // of states for a lost neighbour
};

// Whose memory is parted. All borrowed.
struct host_budget_ask {
	const struct options *options;
	const struct model *model;
	struct worker *worker;
	bool is_alone;                    // `hearth run`
	const struct tensor_split *split; // NULL; or layers are computed by this group in one process
	const struct log *log;
};

// host_budget_coordinator chooses context and chunk of *c (which holds the defaults, or what was asked for) and what head and node may take.
// Without --mem it only fills keep_bytes. ERR_LIMIT: what was asked for does not fit, with the arithmetic.
MUST_USE enum err host_budget_coordinator(const struct host_budget_ask *a, struct coordinator_config *c, struct host_budget *out, struct errmsg *em);
// host_budget_node is for a joined node, whose context the coordinator chooses.
MUST_USE enum err host_budget_node(const struct options *o, const struct model *model, struct host_budget *out, struct errmsg *em);

#endif
