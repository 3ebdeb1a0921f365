// What `hearth serve` and `hearth run` have in common: a loop, a worker, a model, the coordinator, and the node on this machine beside it.
// The one place that knows both cores' hosts (DESIGN.md 1).
#ifndef HEARTH_CLI_CLUSTER_HOST_H
#define HEARTH_CLI_CLUSTER_HOST_H

#include "base/err.h"
#include "base/log.h"
#include "cli/host_budget.h"
#include "cli/host_profile.h"
#include "cli/options.h"
#include "cli/placement_words.h"
#include "coordinator/shell/coord_runtime.h"
#include "engine/worker.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "net/loop.h"
#include "node/shell/node_runtime.h"

struct cluster_host {
	struct loop loop;
	const struct log *log;
	struct model *model;
	struct tokenizer *tokenizer;
	struct worker *worker;
	struct local_link *local_control, *local_data;
	struct node_runtime *node;   // NULL with --no-node
	struct coord_runtime *coord;
	struct placement_words *placement; // owned; NULL without --place
	struct tensor_split tp;      // n_members 0 without --tp
	struct host_budget budget;   // zero without --mem
	struct host_profile profile; // of serve
	int64_t load_ns;             // what opening took
	int signo;                   // the signal that stopped it; 0: none came
};

// What only serve has; all zero for run.
struct cluster_host_serve {
	const struct lnk1_keypair *keys;
	const char *store_path;
	const char *state_dir;     // where kept states go, unless --keep-dir says where
	const char *listen;
	const char *known_dir; // where what is known of model files is kept; NULL: nowhere
	uint64_t upload_max;
	const char *name;
	struct address_list addresses; // for those who join
};

// cluster_host_open_model begins: loop with SIGINT and SIGTERM, model, tokenizer, worker. Before any thread is made.
MUST_USE enum err cluster_host_open_model(struct cluster_host *h, const struct options *o, const struct log *log, struct errmsg *em);
// cluster_host_open_cluster adds the coordinator and, unless --no-node, the node. n_slots: requests computed at once.
MUST_USE enum err cluster_host_open_cluster(struct cluster_host *h, const struct options *o, int32_t n_slots, const struct cluster_host_serve *serve,
	struct errmsg *em);
// cluster_host_close_cluster ends coordinator and node: every request gets its end.
void cluster_host_close_cluster(struct cluster_host *h);
// cluster_host_close ends everything in order; safe on zeroed memory.
void cluster_host_close(struct cluster_host *h);

#endif
