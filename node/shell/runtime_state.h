// What the files of the node's host share: node_runtime.c (the core's steps, opening), runtime_forward.c (computing), runtime_load.c (stages come and go),
// runtime_weights.c (what their weights may take). Private to them.
#ifndef HEARTH_NODE_SHELL_RUNTIME_STATE_H
#define HEARTH_NODE_SHELL_RUNTIME_STATE_H

#include "engine/stage_work.h"
#include "node/shell/kept_disk.h"
#include "node/shell/kept_store.h"
#include "node/shell/node_link_host.h"
#include "node/shell/node_runtime.h"

// Of the weights of a stage, and of what the coordinator plans with beside them.
struct stage_size {
	uint64_t whole, least, rest;
};

// A task for the worker and its way back.
struct rt_job {
	struct worker_job job;
	struct loop_task task;
	struct node_runtime *rt;
	uint32_t id;
	enum err err;
	struct errmsg em;
	bool is_busy;
	// FORWARD
	int32_t layer_begin, layer_end;
	int32_t n_items;
	struct stage_item items[NODE_ITEMS_MAX];
	enum err errs[NODE_ITEMS_MAX];
	const char *texts[NODE_ITEMS_MAX];
	int64_t begin_ns, end_ns, stall_ns; // on the worker, with its rest
	int32_t which;          // CONTINUE: part buffers with what the others contribute
	struct stage_turn turn; // of a group
	// LOAD
	struct engine_config config;
	struct stage_work *old, *work;
	bool has_lost_kv;
	struct tensor_split split; // config points to it
	uint8_t *bufs, *parts;
	size_t bufs_bytes, part_bytes;
	struct stage_size size;
	struct residency_limits limits; // of the weights while nobody else needs memory
	uint64_t hold;                  // what they may take now
	// STORE
	struct member_epoch epoch;
};

_Static_assert(NODE_FORWARDS_MAX == MEMBER_FORWARDS_MAX, "a place of the core is one of the engine");

struct node_runtime {
	struct node_runtime_params p;
	struct node *core;
	struct node_effects *fx;
	bool is_stepping, is_closing;
	struct errmsg fault; // why it leaves by itself; "": it does not

	struct node_link_host *links;
	struct loop_timer timer;

	struct stage_work *work;
	uint8_t *bufs; // n_bufs of buf_bytes
	size_t buf_bytes, row_bytes, new_buf_bytes;
	uint8_t *parts; // of a group: node_part_bufs of part_bytes
	size_t part_bytes;
	int32_t member, n_members; // n_members 0: no group
	struct kept_store kept;
	struct kept_disk *kept_disk; // NULL: nothing is kept on disk
	const struct kept_disk_done *fetched; // of the event being handled
	struct rt_job forwards[NODE_FORWARDS_MAX], load, store;
	// What weights may take while other programs are short of memory. A HOLD drops a stage's weights and loads them within other limits; forwards wait behind
	// it, and so does a LOAD.
	struct rt_job holding;
	uint64_t hold;                  // what was asked for; UINT64_MAX: no limit
	uint64_t held;                  // what the present stage's weights were loaded with
	struct stage_size size;         // of the present stage
	struct residency_limits limits; // likewise
	struct residency_stats before;  // while one is under way
	struct stage_work *unloaded;    // closed when it ends
	bool load_waits, load_stops;
	struct device_profile profile;  // of this machine, as measured; n_threads 0: not known
	uint64_t *layer_bytes, *layer_flop; // (n_layers + 1) of one token in the layers before
	struct background_probe *probe; // NULL: it does not measure
	uint32_t prepare_id;
	bool is_preparing;
	struct loop_task prepare_task; // tells prepare_err
	enum err prepare_err;
	struct errmsg prepare_em;
};

// node_runtime.c
void runtime_step(struct node_runtime *rt, struct node_event *ev);
void runtime_job_start(struct node_runtime *rt, struct rt_job *j, void (*run)(struct worker_job *));
// runtime_leave_if_changed: with another model file than the cluster's this machine can compute nothing any more. It goes in order, so that the others
// make their plan without it.
void runtime_leave_if_changed(struct node_runtime *rt, enum err err);

// runtime_forward.c
void runtime_fx_forward(struct node_runtime *rt, const struct node_effect *f);
void runtime_fx_continue(struct node_runtime *rt, const struct node_effect *f);
bool runtime_is_computing(const struct node_runtime *rt);
// runtime_on_forward and its like: a job (rt_job, or node_runtime) is done.
void runtime_on_forward(void *ctx);

// runtime_load.c
void runtime_fx_load(struct node_runtime *rt, const struct node_effect *f);
void runtime_fx_stop_load(struct node_runtime *rt);
void runtime_fx_prepare(struct node_runtime *rt, const struct node_effect *f);
void runtime_fx_unload(struct node_runtime *rt);
void runtime_on_load(void *ctx);
void runtime_on_unprepared(void *ctx);
// runtime_resume_load: a LOAD that waited for the weights of the stage before goes on, or ends where nobody wants it any more.
void runtime_resume_load(struct node_runtime *rt);

// runtime_weights.c
struct msg_weight_report runtime_weight_report(const struct node_runtime *rt);
void runtime_say_loaded(struct node_runtime *rt);
// runtime_limits_within returns what weights may take: what they may take anyway, at most so many bytes.
struct residency_limits runtime_limits_within(const struct node_runtime *rt, const struct residency_limits *l, const struct stage_size *size, uint64_t bytes);
// runtime_pump_hold loads the weights within other limits when that makes a difference and nothing else is done with the stage.
void runtime_pump_hold(struct node_runtime *rt);
void runtime_on_hold(void *ctx);
void runtime_on_probed(void *ctx, enum err err, const char *text, const struct device_profile *profile);

#endif
