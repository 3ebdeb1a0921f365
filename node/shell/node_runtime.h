// The node's host: carries out what the node core wants (links, engine, disk) and feeds it what happens. No policy lives here.
//
// Two ways to run: as a member of a remote coordinator (dials it, listens for its neighbours), or local, beside the coordinator in one
// process over in-memory links. Thread rule: everything belongs to the loop's thread; computing runs on the worker.
#ifndef HEARTH_NODE_SHELL_NODE_RUNTIME_H
#define HEARTH_NODE_SHELL_NODE_RUNTIME_H

#include "base/err.h"
#include "base/log.h"
#include "engine/residency.h"
#include "engine/tensor_group.h"
#include "engine/worker.h"
#include "model/model.h"
#include "node/shell/node_blocks.h"
#include "net/local_link.h"
#include "net/loop.h"
#include "node/node.h"
#include "node/shell/background_probe.h"
#include "proto/lnk1.h"

struct node_runtime;

// What a stage may take: KV cache, activations, buffers and weights. All zero: no cap.
struct node_memory {
	bool is_capped;
	uint64_t bytes;
	uint64_t anon_bytes;     // of it, memory that is no file's
	enum weight_way reader; // of weights that do not fit
};

struct node_runtime_params {
	struct loop *loop;         // borrowed, like all pointers here
	const struct log *log;
	struct worker *worker;
	const struct model *model;
	struct node_blocks *blocks; // NULL: a local node, or one that neither fetches nor gives
	bool is_cached;             // the model is the blocks' file: layers are fetched before they are loaded
	struct node_config core;   // port is filled in from the listener
	struct node_memory memory;
	const struct tensor_split *split; // NULL; else layers are computed by a group of threads in this process (engine/tensor_group.h)
	const char *keep_dir;      // where kept states go that pass memory; not looked at when core.keep_disk_bytes is 0
	const struct device_profile *profile; // of this machine, measured before; NULL: it is not known. Copied
	const struct background_probe_params *probe; // how to measure it, when core.may_probe; loop, worker and on_done are filled in. Copied

	// Local only: the two links to the coordinator, of which this is end 1.
	struct local_link *local_control, *local_data;

	// Remote only.
	const struct lnk1_keypair *keys;
	const char *listen;        // "0.0.0.0:7434", for neighbours; NULL: do not listen
	uint8_t coordinator_pk[KEY_BYTES];
	uint8_t cluster_id[CLUSTER_ID_BYTES];
	uint8_t psk[KEY_BYTES];
	struct address_list addresses; // of the coordinator
	const struct address_list *found; // more of them, tried behind; borrowed, may change on the loop's thread; NULL: none
	uint8_t boot_id[LNK1_BOOT_ID_LEN];
	const struct link_limits *limits;
	// keep_epoch writes the member_epoch durably; on the worker's thread.
	enum err (*keep_epoch)(void *ctx, struct member_epoch e);
	void *ctx;

	// on_exit: the node is done (err OK: an orderly leave). The host stops the loop; node_runtime_close comes later.
	void (*on_exit)(void *ctx, enum err err, const char *text);
};

MUST_USE enum err node_runtime_open(const struct node_runtime_params *p, struct node_runtime **out, struct errmsg *em);
// node_runtime_close ends every link and waits for the worker. NULL is allowed.
void node_runtime_close(struct node_runtime *rt);
// node_runtime_leave asks the core to go in order; on_exit follows.
void node_runtime_leave(struct node_runtime *rt);

// node_runtime_weight_stats tells where the weights are; false while it holds no layers.
bool node_runtime_weight_stats(const struct node_runtime *rt, struct residency_stats *out);

// node_runtime_weights tells what the weights of the stage may take while nobody else needs memory, and the least that serves; 0 while it holds no layers.
void node_runtime_weights(const struct node_runtime *rt, uint64_t *full, uint64_t *least);
// node_runtime_hold limits what they take (UINT64_MAX: not at all), between two turns of computing; what does not fit is streamed. The coordinator is told a cap that
// leaves no more.
void node_runtime_hold(struct node_runtime *rt, uint64_t bytes);

// node_runtime_group_stats tells what the members of a group in this process have sent each other; false: there is none.
bool node_runtime_group_stats(const struct node_runtime *rt, struct tensor_group_stats *out);

#endif
