#include "node/shell/node_runtime.h"

#include "base/assert.h"
#include "engine/probe_stage.h"
#include "engine/stage_work.h"
#include "node/shell/kept_disk.h"
#include "node/shell/kept_store.h"
#include "node/shell/node_link_host.h"
#include "node/shell/part_blocks.h"
#include "node/shell/stage_memory.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS_LEAST_SHARE 8 // of a stage's weights: with a smaller window the disk is not kept busy

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
	struct stage_size { // of the weights of the stage, and of what the coordinator plans with beside them
		uint64_t whole, least, rest;
	} size;
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
	bool in_turns;                  // a group's forward has begun and not ended
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

static void step(struct node_runtime *rt, struct node_event *ev);
static void pump_hold(struct node_runtime *rt);

// ---- the engine

static void job_done(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
	j->end_ns = loop_clock_ns();
	loop_task_post(j->rt->p.loop, &j->task);
}

static void job_start(struct node_runtime *rt, struct rt_job *j, void (*run)(struct worker_job *))
{
	ASSERT(!j->is_busy);
	j->is_busy = true;
	j->job.run = run;
	j->job.done = job_done;
	worker_submit(rt->p.worker, &j->job);
}

// leave_if_changed: with another model file than the cluster's this machine can compute nothing any more. It goes in order, so that the others
// make their plan without it.
static void leave_if_changed(struct node_runtime *rt, enum err err)
{
	struct errmsg em;
	if (err != ERR_STATE || rt->p.core.local || rt->fault.text[0] != '\0' || model_check_unchanged(rt->p.model, &em) == OK)
		return;
	rt->fault = em;
	log_line(rt->p.log, LOG_ERROR, "%s: leaving the cluster", em.text);
	node_runtime_leave(rt);
}

static struct msg_weight_report weight_report(const struct node_runtime *rt)
{
	struct residency_stats s;
	if (!node_runtime_weight_stats(rt, &s) || s.reader == READER_AUTO)
		return (struct msg_weight_report){0};
	return (struct msg_weight_report){.reader = s.reader == READER_MMAP ? 1 : 2, .locked = s.is_locked, .pinned = s.pinned_bytes, .streamed = s.streamed_bytes,
		.window = s.window_bytes, .read = s.read_bytes, .read_us = (uint64_t)s.read_ns / 1000, .stall_us = (uint64_t)s.stall_ns / 1000,
		.withheld = rt->held < rt->size.whole ? rt->size.whole - rt->held : 0};
}

static bool is_computing(const struct node_runtime *rt)
{
	for (int32_t i = 0; i < NODE_FORWARDS_MAX; i++)
		if (rt->forwards[i].is_busy)
			return true;
	return false;
}

// stalls returns for how long computing has waited for the disk so far. On the worker, like the two below.
static int64_t stalls(const struct node_runtime *rt)
{
	struct residency_stats s;
	stage_work_weight_stats(rt->work, &s);
	return s.stall_ns;
}

// has_weights: a HOLD may have failed to read them, which every item says then.
static bool has_weights(struct rt_job *j)
{
	const struct rt_job *h = &j->rt->holding;
	for (int32_t i = 0; h->err != OK && i < j->n_items; i++)
		j->items[i].err = errmsg_fail(&j->items[i].em, h->err, "%s", h->em.text);
	return h->err == OK;
}

static void run_forward(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
	j->begin_ns = loop_clock_ns();
	j->stall_ns = 0;
	if (!has_weights(j))
		return;
	int64_t stall_ns = stalls(j->rt);
	stage_work_forward(j->rt->work, j->layer_begin, j->layer_end, j->items, j->n_items);
	j->stall_ns = stalls(j->rt) - stall_ns;
}

// run_turn computes as far as the next exchange of a group: the first, or the one behind that whose contributions are here.
static void run_turn(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
	struct node_runtime *rt = j->rt;
	const uint8_t *parts[GROUP_MEMBERS_MAX];
	uint8_t *own = rt->parts + (size_t)node_part_buf(rt->n_members, rt->member, j->turn.forward, 0) * rt->part_bytes;
	if (!has_weights(j)) {
		j->turn = (struct stage_turn){.forward = j->turn.forward, .is_behind = j->turn.is_behind, .was_cut = true};
		return;
	}
	for (int32_t i = 0; i < rt->n_members; i++)
		parts[i] = rt->parts + (size_t)node_part_buf(rt->n_members, i, j->turn.forward, j->which < 0 ? 0 : j->which) * rt->part_bytes;
	if (j->which < 0)
		stage_work_member_begin(rt->work, j->layer_begin, j->layer_end, j->items, j->n_items, own, &j->turn);
	else
		stage_work_member_continue(rt->work, parts, own, &j->turn);
}

// cost_of says what a batch took, in the terms of a device's profile.
static struct node_cost cost_of(const struct rt_job *j)
{
	const struct node_runtime *rt = j->rt;
	const struct hparams *hp = model_hparams(rt->p.model);
	uint64_t n_layers = (uint64_t)(j->layer_end - j->layer_begin), row = (uint64_t)hp->n_kv_heads * (uint64_t)hp->head_dim * 2 * sizeof(uint16_t);
	int64_t ns = j->end_ns - j->begin_ns - j->stall_ns;
	return (struct node_cost){
		.compute_ns = ns > 0 ? (uint64_t)ns : 0,
		.weight_bytes = rt->layer_bytes[j->layer_end] - rt->layer_bytes[j->layer_begin] + n_layers * row * ((uint64_t)j->items[0].pos + 1),
		.token_flop = rt->layer_flop[j->layer_end] - rt->layer_flop[j->layer_begin],
	};
}

static void on_forward(void *ctx)
{
	struct rt_job *j = ctx;
	j->is_busy = false;
	if (j->rt->n_members > 0 && j->turn.waits) {
		struct node_event ev = {.type = NODE_EV_EXCHANGE};
		ev.u.exchange.id = j->id;
		ev.u.exchange.bytes = j->turn.bytes;
		ev.u.exchange.to = j->turn.to;
		ev.u.exchange.failed = j->turn.failed;
		step(j->rt, &ev);
		return;
	}
	j->rt->in_turns = false;
	for (int32_t i = 0; i < j->n_items; i++) {
		j->errs[i] = j->items[i].err;
		j->texts[i] = j->items[i].em.text;
	}
	struct node_event ev = {.type = NODE_EV_FORWARD_DONE};
	ev.u.forward_done.id = j->id;
	ev.u.forward_done.errs = j->errs;
	ev.u.forward_done.texts = j->texts;
	ev.u.forward_done.weights = weight_report(j->rt);
	if (j->rt->n_members == 0)
		ev.u.forward_done.cost = cost_of(j);
	ev.u.forward_done.was_cut = j->rt->n_members > 0 && j->turn.was_cut;
	step(j->rt, &ev);
	leave_if_changed(j->rt, j->errs[0]);
	pump_hold(j->rt);
}

static void fx_forward(struct node_runtime *rt, const struct node_effect *f)
{
	struct rt_job *j = &rt->forwards[f->u.forward.forward];
	if (rt->p.blocks != NULL)
		node_blocks_note_work(rt->p.blocks);
	j->id = f->u.forward.id;
	j->layer_begin = f->u.forward.layer_begin;
	j->layer_end = f->u.forward.layer_end;
	j->n_items = f->u.forward.n_items;
	for (int32_t i = 0; i < j->n_items; i++) {
		const struct node_forward_item *it = &f->u.forward.items[i];
		j->items[i] = (struct stage_item){
			.wire = rt->bufs + (size_t)it->buf * rt->buf_bytes + (size_t)it->row * rt->row_bytes, .slot = it->slot, .pos = it->pos, .n_tokens = it->n_tokens,
			.want = it->want};
	}
	j->which = -1;
	j->turn.forward = f->u.forward.forward;
	j->turn.is_behind = f->u.forward.is_behind;
	rt->in_turns = rt->n_members > 0;
	job_start(rt, j, rt->n_members > 0 ? run_turn : run_forward);
}

static void fx_continue(struct node_runtime *rt, const struct node_effect *f)
{
	struct rt_job *j = &rt->forwards[f->u.resume.forward];
	ASSERT(j->id == f->u.resume.id);
	j->which = f->u.resume.which;
	job_start(rt, j, run_turn);
}

static int32_t n_members_of(const struct rt_job *j)
{
	return j->config.split == &j->split ? j->split.n_members : 0;
}

// limits_within returns what weights may take: what they may take anyway, at most so many bytes.
static struct residency_limits limits_within(const struct node_runtime *rt, const struct residency_limits *l, const struct stage_size *size, uint64_t bytes)
{
	struct residency_limits out = *l;
	uint64_t most = bytes > size->least ? bytes : size->least;
	if (bytes >= size->whole)
		return out;
	if (!out.is_capped) // of a file that is mapped as a whole
		out = (struct residency_limits){.is_capped = true, .bytes = UINT64_MAX, .anon_bytes = UINT64_MAX, .reader = READER_MMAP, .log = rt->p.log};
	out.bytes = most < out.bytes ? most : out.bytes;
	out.anon_bytes = most < out.anon_bytes ? most : out.anon_bytes;
	return out;
}

// set_limits parts the stage's memory: what it needs beside its weights, and the rest for them. ERR_LIMIT: it does not fit.
static enum err set_limits(struct rt_job *j, uint64_t *stage_bytes)
{
	const struct node_memory *m = &j->rt->p.memory;
	struct engine_size size;
	enum err e = stage_work_measure(&j->config, &size, &j->em);
	if (e != OK)
		return e;
	// As much may wait in links as lies in buffers; and of a group's parts, to each member the last one and the next of each forward.
	uint64_t frames = 2 * ((uint64_t)j->bufs_bytes + (uint64_t)node_part_bufs(j->split.mode, n_members_of(j)) * size.part_bytes);
	uint64_t to_disk = j->rt->kept_disk != NULL ? kept_disk_bytes(j->rt->new_buf_bytes) : 0;
	uint64_t bytes = size.bytes + frames + to_disk;
	j->size = (struct stage_size){.whole = size.weight_bytes, .least = size.weight_least, .rest = size.kv_bytes + frames};
	if (!m->is_capped)
		return OK;
	*stage_bytes = bytes + size.weight_least;
	if (*stage_bytes > m->bytes || bytes > m->anon_bytes)
		return stage_memory_refuse(m, &j->config, &(struct stage_needs){&size, frames, to_disk}, &j->em);
	j->config.weights = (struct residency_limits){.is_capped = true, .bytes = m->bytes - bytes, .anon_bytes = m->anon_bytes - bytes, .reader = m->reader,
		.log = j->rt->p.log};
	return OK;
}

// make_room gives the old stage's weights back, and all of it when its cache does not fit beside the new stage.
static void make_room(struct rt_job *j, uint64_t stage_bytes)
{
	if (j->old == NULL || !j->rt->p.memory.is_capped)
		return;
	stage_work_drop_weights(j->old);
	if (stage_work_bytes(j->old) + stage_bytes <= j->rt->p.memory.bytes)
		return;
	stage_work_close(j->old);
	j->old = NULL;
	j->has_lost_kv = true;
}

// open_parts: of a length that no contribution passes.
static enum err open_parts(struct rt_job *j)
{
	j->part_bytes = n_members_of(j) > 0 ? stage_work_part_bytes(j->work) : 0;
	if (j->part_bytes > PART_BYTES_MAX)
		return errmsg_fail(&j->em, ERR_LIMIT, "members of a group would send each other up to %zu MiB at once (at most %d): a smaller --prefill-chunk on the coordinator helps",
			j->part_bytes >> 20, PART_BYTES_MAX >> 20);
	if (j->part_bytes == 0)
		return OK;
	j->parts = malloc((size_t)node_part_bufs(j->split.mode, n_members_of(j)) * j->part_bytes);
	return j->parts != NULL ? OK : errmsg_fail(&j->em, ERR_NOMEM, "no memory for what members of a group send each other");
}

static enum err open_stage(struct rt_job *j)
{
	uint64_t stage_bytes = 0;
	enum err e = set_limits(j, &stage_bytes);
	if (e != OK)
		return e;
	j->limits = j->config.weights;
	j->config.weights = limits_within(j->rt, &j->limits, &j->size, j->hold);
	j->config.defer_weights = j->config.weights.is_capped; // until the old stage's are gone
	make_room(j, stage_bytes);
	j->bufs = malloc(j->bufs_bytes);
	if (j->bufs == NULL)
		return errmsg_fail(&j->em, ERR_NOMEM, "no memory for %zu MiB of buffers", j->bufs_bytes >> 20);
	e = stage_work_open(&j->config, &j->work, &j->em);
	if (e == OK && j->old != NULL)
		stage_work_take_kv(j->work, j->old);
	else if (e != OK)
		j->has_lost_kv = true;
	stage_work_close(j->old);
	j->old = NULL;
	if (e == ERR_NOMEM) // both at once did not fit
		e = stage_work_open(&j->config, &j->work, &j->em);
	if (e == OK)
		e = open_parts(j);
	if (e == OK && j->config.defer_weights)
		e = stage_work_load_weights(j->work, &j->config.weights, &j->em);
	return e;
}

static void run_load(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
	j->work = NULL;
	j->bufs = j->parts = NULL;
	j->has_lost_kv = false;
	j->err = open_stage(j);
	if (j->err == OK)
		return;
	stage_work_close(j->old);
	stage_work_close(j->work);
	j->old = j->work = NULL;
	j->has_lost_kv = true;
}

static void say_loaded(struct node_runtime *rt)
{
	struct residency_stats s;
	char text[RESIDENCY_TEXT_CAP];
	if (!node_runtime_weight_stats(rt, &s) || s.reader == READER_AUTO)
		return;
	residency_describe(&s, text);
	log_line(rt->p.log, LOG_INFO, "weights: %s", text);
}

static void on_load(void *ctx)
{
	struct rt_job *j = ctx;
	struct node_runtime *rt = j->rt;
	j->is_busy = false;
	free(rt->bufs);
	free(rt->parts);
	rt->bufs = j->bufs;
	rt->parts = j->parts;
	rt->part_bytes = j->part_bytes;
	rt->n_members = n_members_of(j);
	rt->member = j->config.member;
	rt->buf_bytes = rt->new_buf_bytes;
	rt->row_bytes = wire_bytes(j->config.wire, model_hparams(rt->p.model)->hidden_dim);
	rt->work = j->work;
	rt->size = j->size;
	rt->limits = j->limits;
	rt->held = j->hold;
	rt->holding.err = OK;
	rt->in_turns = false;
	j->bufs = j->parts = NULL;
	j->work = NULL;
	struct node_event ev = {.type = NODE_EV_LOADED};
	ev.u.loaded.id = j->id;
	ev.u.loaded.err = j->err;
	ev.u.loaded.lost_kv = j->has_lost_kv;
	ev.u.loaded.text = j->err == OK ? "" : j->em.text;
	ev.u.loaded.weights = weight_report(rt);
	ev.u.loaded.part_bytes = rt->part_bytes;
	say_loaded(rt);
	step(rt, &ev);
	leave_if_changed(rt, j->err);
	pump_hold(rt);
}

// on_blocks_here: the layers' blocks are here, or will not be. What the engine before this one has computed stays with it until one is opened.
static void on_blocks_here(void *ctx, enum err err, const char *text)
{
	struct node_runtime *rt = ctx;
	struct rt_job *j = &rt->load;
	j->is_busy = false;
	j->hold = rt->hold;
	if (err == OK && !rt->is_closing) {
		job_start(rt, j, run_load);
		return;
	}
	j->err = errmsg_fail(&j->em, err, "%s", text);
	j->has_lost_kv = true;
	stage_work_close(j->old);
	j->old = NULL;
	if (!rt->is_closing)
		on_load(j);
}

// set_split: this member's part of the layers, when it is one of a group.
static enum err set_split(struct rt_job *j, const struct msg_group *g)
{
	if (g->n_members == 0)
		return OK;
	struct split_shape shape = engine_split_shape(j->rt->p.model);
	j->config.split = &j->split;
	j->config.member = g->self;
	j->config.n_forwards = NODE_FORWARDS_MAX;
	enum err e = tensor_split_make(&shape, g->mode, g->shares, g->n_members, &j->split, &j->em);
	j->split.payload = g->payload;
	return e;
}

static struct part_blocks blocks_of(const struct node_runtime *rt, const struct layer_spans *layers, const struct tensor_split *split, int32_t member)
{
	return (struct part_blocks){.model = rt->p.model, .kernels = worker_kernels(rt->p.worker), .pool = worker_pool(rt->p.worker), .layers = layers,
		.split = split, .member = member};
}

// start_load: nothing else touches the stage before.
static void start_load(struct node_runtime *rt)
{
	struct rt_job *j = &rt->load;
	j->hold = rt->hold;
	j->is_busy = j->err == OK && rt->p.is_cached; // until the blocks are here, and then until the engine is
	struct part_blocks want = blocks_of(rt, &j->config.layers, n_members_of(j) > 0 ? &j->split : NULL, j->config.member);
	want.has_output = j->config.has_output;
	if (j->is_busy)
		j->err = part_blocks_load(rt->p.blocks, &want, false, on_blocks_here, rt, &j->em);
	if (j->err != OK) {
		j->is_busy = true;
		j->has_lost_kv = true;
		stage_work_close(j->old);
		j->old = NULL;
		loop_task_post(rt->p.loop, &j->task);
	} else if (!rt->p.is_cached) {
		job_start(rt, j, run_load);
	}
}

static void fx_load(struct node_runtime *rt, const struct node_effect *f)
{
	struct rt_job *j = &rt->load;
	j->id = f->u.load.id;
	j->config = (struct engine_config){
		.model = rt->p.model,
		.kernels = worker_kernels(rt->p.worker),
		.pool = worker_pool(rt->p.worker),
		.layers = f->u.load.layers,
		.n_slots = f->u.load.n_slots,
		.ctx_len = f->u.load.ctx_len,
		.batch_max = f->u.load.chunk_max,
		.wire = f->u.load.wire,
		.has_output = f->u.load.has_output,
		.split = rt->p.split,
		.member = MEMBER_EACH,
	};
	j->err = set_split(j, f->u.load.group);
	j->bufs_bytes = (size_t)f->u.load.n_bufs * f->u.load.buf_bytes;
	rt->new_buf_bytes = f->u.load.buf_bytes;
	j->old = rt->work;
	rt->work = NULL;
	char layers[LAYER_SPANS_CAP];
	layer_spans_print(&f->u.load.layers, layers);
	log_line(rt->p.log, LOG_INFO, "loading %slayers %s of %s", n_members_of(j) > 0 ? "a part of " : "", layers, model_name(rt->p.model));
	rt->load_waits = rt->holding.is_busy;
	rt->load_stops = false;
	if (!rt->load_waits)
		start_load(rt);
}

static void fx_stop_load(struct node_runtime *rt)
{
	rt->load_stops = rt->load_waits;
	if (rt->p.is_cached && !rt->load_waits)
		node_blocks_stop_load(rt->p.blocks);
}

static void on_prepared(void *ctx, enum err err, const char *text)
{
	struct node_runtime *rt = ctx;
	struct node_event ev = {.type = NODE_EV_PREPARED};
	rt->is_preparing = false;
	ev.u.prepared.id = rt->prepare_id;
	ev.u.prepared.err = err;
	ev.u.prepared.text = text;
	step(rt, &ev);
}

// on_unprepared: it cannot even begin.
static void on_unprepared(void *ctx)
{
	struct node_runtime *rt = ctx;
	on_prepared(rt, rt->prepare_err, rt->prepare_em.text);
}

static void fx_prepare(struct node_runtime *rt, const struct node_effect *f)
{
	const struct layer_part *part = &f->u.prepare.part;
	bool is_part = part->n > 0;
	struct tensor_split split;
	char layers[LAYER_SPANS_CAP];
	ASSERT(rt->p.is_cached);
	layer_spans_print(&f->u.prepare.layers, layers);
	log_line(rt->p.log, LOG_INFO, "fetching %slayers %s of %s, to take them over when they are here", is_part ? "a part of " : "", layers,
		model_name(rt->p.model));
	rt->prepare_id = f->u.prepare.id;
	rt->is_preparing = true;
	struct split_shape shape = engine_split_shape(rt->p.model);
	enum err e = is_part ? tensor_split_make(&shape, part->mode, part->shares, part->n, &split, &rt->prepare_em) : OK;
	struct part_blocks want = blocks_of(rt, &f->u.prepare.layers, is_part ? &split : NULL, part->place);
	if (e == OK)
		e = part_blocks_load(rt->p.blocks, &want, true, on_prepared, rt, &rt->prepare_em);
	rt->prepare_err = e;
	if (e != OK)
		loop_task_post(rt->p.loop, &rt->prepare_task);
}

// fx_unload: the core asks for it only while the worker does nothing for this node.
static void fx_unload(struct node_runtime *rt)
{
	ASSERT(!is_computing(rt));
	ASSERT(!rt->load.is_busy);
	if (rt->holding.is_busy)
		rt->unloaded = rt->work;
	else
		stage_work_close(rt->work);
	rt->work = NULL;
	rt->in_turns = false;
	free(rt->bufs);
	rt->bufs = NULL;
	free(rt->parts);
	rt->parts = NULL;
}

static void fx_kept(struct node_runtime *rt, const struct node_effect *f)
{
	if (f->type == NODE_FX_DROP) {
		kept_store_drop(&rt->kept, f->u.keep.entry);
		return;
	}
	uint8_t *buf = rt->bufs + (size_t)f->u.keep.buf * rt->buf_bytes;
	size_t off = (size_t)f->u.keep.pos * f->u.keep.row_bytes, len = (size_t)f->u.keep.n_tokens * f->u.keep.row_bytes;
	ASSERT(len <= rt->buf_bytes);
	if (f->type == NODE_FX_KEEP)
		kept_store_put(&rt->kept, f->u.keep.entry, off, buf, len);
	else
		kept_store_get(&rt->kept, f->u.keep.entry, off, buf, len);
}

// on_kept_disk: a write or a read of kept states is done.
static void on_kept_disk(void *ctx, const struct kept_disk_done *done)
{
	struct node_runtime *rt = ctx;
	struct node_event ev = {.type = done->is_read ? NODE_EV_FETCHED : NODE_EV_KEPT};
	ev.u.disk.id = done->id;
	ev.u.disk.err = done->err;
	ev.u.disk.text = done->text;
	rt->fetched = done;
	step(rt, &ev);
	rt->fetched = NULL;
}

static void fx_keep_disk(struct node_runtime *rt, const struct node_effect *f)
{
	size_t off = (size_t)f->u.disk.row * f->u.disk.row_bytes;
	ASSERT(off + (size_t)f->u.disk.n_tokens * f->u.disk.row_bytes <= rt->buf_bytes);
	kept_disk_write(rt->kept_disk, f, rt->bufs + (size_t)f->u.disk.buf * rt->buf_bytes + off);
}

static void fx_take_fetched(struct node_runtime *rt, const struct node_effect *f)
{
	const struct kept_disk_done *d = rt->fetched;
	ASSERT(d != NULL);
	ASSERT(d->buf == f->u.keep.buf);
	ASSERT(d->off + d->len <= rt->buf_bytes);
	memcpy(rt->bufs + (size_t)d->buf * rt->buf_bytes + d->off, d->rows, d->len);
}

static void run_store(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
	j->err = j->rt->p.keep_epoch(j->rt->p.ctx, j->epoch);
}

static void on_store(void *ctx)
{
	struct rt_job *j = ctx;
	j->is_busy = false;
	if (j->epoch.v < node_member_epoch(j->rt->core).v) { // a newer one came meanwhile
		j->epoch = node_member_epoch(j->rt->core);
		job_start(j->rt, j, run_store);
	}
	struct node_event ev = {.type = NODE_EV_STORED};
	ev.u.stored.id = j->id;
	ev.u.stored.err = j->err;
	step(j->rt, &ev);
}

static void fx_store(struct node_runtime *rt, const struct node_effect *f)
{
	if (rt->p.core.local || rt->store.is_busy)
		return; // local: the coordinator's own store has it
	rt->store.id = f->u.store.id;
	rt->store.epoch = f->u.store.member_epoch;
	job_start(rt, &rt->store, run_store);
}

// ---- giving way to programs that are short of memory

// fit_profile: what the coordinator plans with while weights may not take all that the cap leaves them.
static struct device_profile fit_profile(const struct node_runtime *rt)
{
	struct device_profile p = rt->profile;
	uint64_t cap = rt->hold < UINT64_MAX ? p.reserved_bytes + rt->size.rest + rt->hold : UINT64_MAX; // those moved away stay away
	if (cap < (p.cap_bytes > 0 ? p.cap_bytes : p.available_bytes))
		p.cap_bytes = cap;
	return p;
}

static void on_probed(void *ctx, enum err err, const char *text, const struct device_profile *profile)
{
	struct node_runtime *rt = ctx;
	struct node_event ev = {.type = NODE_EV_PROBED};
	struct device_profile p = {.n_threads = 0};
	if (err == OK) {
		rt->profile = *profile;
		p = fit_profile(rt);
	}
	ev.u.probed.err = err;
	ev.u.probed.text = text;
	ev.u.probed.profile = &p;
	step(rt, &ev);
}

// run_hold reads what stays anew: that which lies between streamed units lies elsewhere than before.
static void run_hold(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
	const struct node_runtime *rt = j->rt;
	struct residency_limits l = limits_within(rt, &j->limits, &j->size, j->hold);
	if (j->hold < j->size.whole && rt->before.reader != READER_AUTO)
		l.reader = rt->before.reader; // it is no time to try both
	stage_work_drop_weights(j->work);
	j->err = stage_work_load_weights(j->work, &l, &j->em);
	if (j->err == OK)
		return;
	log_line(rt->p.log, LOG_WARNING, "weights cannot be kept in less memory: %s", j->em.text);
	stage_work_drop_weights(j->work);
	j->err = stage_work_load_weights(j->work, &j->limits, &j->em);
	if (j->err != OK && j->err != ERR_STATE)
		j->err = ERR_IO; // as what cannot be read: the others go on without this machine
}

static void on_hold(void *ctx)
{
	struct rt_job *j = ctx;
	struct node_runtime *rt = j->rt;
	j->is_busy = false;
	j->work = NULL;
	stage_work_close(rt->unloaded);
	rt->unloaded = NULL;
	rt->held = j->hold;
	if (rt->load_waits) {
		rt->load_waits = false;
		if (rt->is_closing || rt->load_stops)
			on_blocks_here(rt, ERR_CANCELLED, "another plan has come");
		else
			start_load(rt);
		return;
	}
	struct node_event ev = {.type = NODE_EV_WEIGHTS};
	ev.u.weights = weight_report(rt);
	say_loaded(rt);
	step(rt, &ev);
	pump_hold(rt);
}

// pump_hold loads the weights within other limits when that makes a difference and nothing else is done with the stage. Between the exchanges of a group's
// forward it is in use.
static void pump_hold(struct node_runtime *rt)
{
	struct rt_job *j = &rt->holding;
	bool is_other = rt->hold != rt->held && (rt->hold < rt->size.whole || rt->held < rt->size.whole);
	if (!is_other || rt->work == NULL || j->is_busy || rt->load.is_busy || rt->in_turns || j->err != OK || rt->is_closing)
		return;
	(void)node_runtime_weight_stats(rt, &rt->before);
	j->work = rt->work;
	j->limits = rt->limits;
	j->size = rt->size;
	j->hold = rt->hold;
	job_start(rt, j, run_hold);
}

void node_runtime_hold(struct node_runtime *rt, uint64_t bytes)
{
	rt->hold = bytes;
	if (rt->profile.n_threads > 0) {
		struct device_profile p = rt->profile;
		on_probed(rt, OK, "", &p);
	}
	pump_hold(rt);
}

void node_runtime_weights(const struct node_runtime *rt, uint64_t *full, uint64_t *least)
{
	const struct residency_limits *l = &rt->limits;
	uint64_t room = !l->is_capped ? UINT64_MAX : l->reader == READER_DIRECT && l->anon_bytes < l->bytes ? l->anon_bytes : l->bytes;
	*full = rt->work == NULL ? 0 : rt->size.whole < room ? rt->size.whole : room;
	*least = rt->work == NULL ? 0 : rt->size.least > *full / WEIGHTS_LEAST_SHARE ? rt->size.least : *full / WEIGHTS_LEAST_SHARE;
}

// ---- the core

static uint8_t *buf_at(const struct node_runtime *rt, enum node_pool pool, int32_t buf, size_t *bytes)
{
	*bytes = pool == NODE_PARTS ? rt->part_bytes : rt->buf_bytes;
	return (pool == NODE_PARTS ? rt->parts : rt->bufs) + (size_t)buf * *bytes;
}

static void fx_send(struct node_runtime *rt, const struct node_effect *f)
{
	size_t bytes;
	const uint8_t *payload = f->u.send.buf >= 0 ? buf_at(rt, f->u.send.pool, f->u.send.buf, &bytes) + f->u.send.off : NULL;
	node_link_host_send(rt->links, f->u.send.link, f->u.send.head, f->u.send.head_len, payload, f->u.send.len);
}

static void fx_take(struct node_runtime *rt, const struct node_effect *f)
{
	size_t len, bytes;
	const uint8_t *message = node_link_host_message(rt->links, &len);
	uint8_t *buf = buf_at(rt, f->u.take.pool, f->u.take.buf, &bytes);
	ASSERT(f->u.take.msg_off + f->u.take.len <= len);
	ASSERT(f->u.take.off + f->u.take.len <= bytes);
	memcpy(buf + f->u.take.off, message + f->u.take.msg_off, f->u.take.len);
}

static void fx_exit(struct node_runtime *rt, const struct node_effect *f)
{
	bool by_itself = f->u.exit.err == OK && rt->fault.text[0] != '\0';
	rt->p.on_exit(rt->p.ctx, by_itself ? ERR_STATE : f->u.exit.err, by_itself ? rt->fault.text : f->u.exit.text);
}

static void carry_out(struct node_runtime *rt, const struct node_effect *f)
{
	switch (f->type) {
	case NODE_FX_CONNECT: node_link_host_connect(rt->links, f->u.connect.peer, f->u.connect.kind, f->u.connect.who); break;
	case NODE_FX_DISCONNECT: node_link_host_disconnect(rt->links, f->u.connect.peer, f->u.connect.kind); break;
	case NODE_FX_REFRESH: node_link_host_refresh(rt->links, f->u.connect.peer, f->u.connect.kind); break;
	case NODE_FX_CLOSE: node_link_host_end(rt->links, f->u.close.link, f->u.close.orderly); break;
	case NODE_FX_SEND: fx_send(rt, f); break;
	case NODE_FX_TAKE: fx_take(rt, f); break;
	case NODE_FX_LOAD: fx_load(rt, f); break;
	case NODE_FX_STOP_LOAD:
	case NODE_FX_STOP_PREPARE: fx_stop_load(rt); break;
	case NODE_FX_PREPARE: fx_prepare(rt, f); break;
	case NODE_FX_UNLOAD: fx_unload(rt); break;
	case NODE_FX_FORWARD: fx_forward(rt, f); break;
	case NODE_FX_CONTINUE: fx_continue(rt, f); break;
	case NODE_FX_KEEP:
	case NODE_FX_FETCH:
	case NODE_FX_DROP: fx_kept(rt, f); break;
	case NODE_FX_KEEP_DISK: fx_keep_disk(rt, f); break;
	case NODE_FX_FETCH_DISK: kept_disk_read(rt->kept_disk, f); break;
	case NODE_FX_TAKE_FETCHED: fx_take_fetched(rt, f); break;
	case NODE_FX_STORE: fx_store(rt, f); break;
	case NODE_FX_PROBE: background_probe_start(rt->probe); break;
	case NODE_FX_STOP_PROBE: background_probe_stop(rt->probe); break;
	case NODE_FX_LOG: log_line(rt->p.log, (enum log_level)f->u.log.level, "%s", f->u.log.text); break;
	case NODE_FX_EXIT: fx_exit(rt, f); break;
	}
}

static void step(struct node_runtime *rt, struct node_event *ev)
{
	if (rt->is_closing)
		return;
	// Nothing an effect does calls back from inside: links and jobs answer from the loop.
	ASSERT(!rt->is_stepping);
	rt->is_stepping = true;
	ev->now_ns = loop_clock_ns();
	node_step(rt->core, ev, rt->fx);
	for (int32_t i = 0; i < rt->fx->n; i++)
		carry_out(rt, &rt->fx->at[i]);
	rt->is_stepping = false;
	if (rt->p.blocks != NULL)
		node_blocks_set_epoch(rt->p.blocks, node_member_epoch(rt->core));
	int64_t deadline = node_deadline_ns(rt->core);
	if (deadline != INT64_MAX)
		loop_timer_set(rt->p.loop, &rt->timer, deadline);
}

static void on_event(void *ctx, struct node_event *ev)
{
	step(ctx, ev);
}

static void on_timer(void *ctx)
{
	struct node_event ev = {.type = NODE_EV_TICK};
	step(ctx, &ev);
}

// ---- opening

static enum err open_links(struct node_runtime *rt, struct errmsg *em)
{
	struct node_link_host_params p = {
		.loop = rt->p.loop,
		.log = rt->p.log,
		.core = rt->core,
		.blocks = rt->p.blocks,
		.self = rt->p.core.self,
		.coordinator = rt->p.core.coordinator,
		.keys = rt->p.keys,
		.addresses = rt->p.addresses,
		.found = rt->p.found,
		.limits = rt->p.limits,
		.ctx = rt,
		.on_event = on_event,
	};
	if (rt->p.core.local) {
		p.local_control = rt->p.local_control;
		p.local_data = rt->p.local_data;
	}
	memcpy(p.coordinator_pk, rt->p.coordinator_pk, KEY_BYTES);
	memcpy(p.cluster_id, rt->p.cluster_id, CLUSTER_ID_BYTES);
	memcpy(p.psk, rt->p.psk, KEY_BYTES);
	memcpy(p.boot_id, rt->p.boot_id, LNK1_BOOT_ID_LEN);
	enum err e = node_link_host_open(&p, &rt->links, em);
	sodium_memzero(&p, sizeof p);
	if (e == OK && rt->p.listen != NULL && !rt->p.core.local)
		e = node_link_host_listen(rt->links, rt->p.listen, rt->p.core.member_epoch, &rt->p.core.port, em);
	return e;
}

// count_layers prepares what cost_of asks for.
static enum err count_layers(struct node_runtime *rt, struct errmsg *em)
{
	int32_t n = model_hparams(rt->p.model)->n_layers;
	rt->layer_bytes = calloc((size_t)n + 1, sizeof *rt->layer_bytes);
	rt->layer_flop = calloc((size_t)n + 1, sizeof *rt->layer_flop);
	if (rt->layer_bytes == NULL || rt->layer_flop == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the node");
	for (int32_t i = 0; i < n; i++) {
		rt->layer_bytes[i + 1] = rt->layer_bytes[i] + probe_stage_layer_bytes(rt->p.model, i, NULL);
		rt->layer_flop[i + 1] = rt->layer_flop[i] + probe_stage_layer_flop(rt->p.model, i);
	}
	return OK;
}

static enum err open_probe(struct node_runtime *rt, struct errmsg *em)
{
	if (!rt->p.core.may_probe)
		return OK;
	struct background_probe_params p = *rt->p.probe;
	p.loop = rt->p.loop;
	p.worker = rt->p.worker;
	p.on_done = on_probed;
	p.done_ctx = rt;
	return background_probe_open(&p, &rt->probe, em);
}

enum err node_runtime_open(const struct node_runtime_params *p, struct node_runtime **out, struct errmsg *em)
{
	struct node_runtime *rt = calloc(1, sizeof *rt);
	if (rt == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the node");
	rt->p = *p;
	rt->hold = rt->held = UINT64_MAX;
	rt->core = calloc(1, node_size());
	rt->fx = calloc(1, sizeof *rt->fx);
	loop_timer_init(&rt->timer, on_timer, rt);
	loop_task_init(&rt->prepare_task, on_unprepared, rt);
	struct rt_job *jobs[] = {&rt->forwards[0], &rt->forwards[1], &rt->load, &rt->store, &rt->holding};
	const loop_fn dones[] = {on_forward, on_forward, on_load, on_store, on_hold};
	for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
		jobs[i]->rt = rt;
		loop_task_init(&jobs[i]->task, dones[i], jobs[i]);
	}
	enum err e = rt->core && rt->fx ? OK : errmsg_fail(em, ERR_NOMEM, "no memory for the node");
	if (e == OK && p->core.keep_disk_bytes > 0)
		e = kept_disk_open(p->keep_dir, p->loop, on_kept_disk, rt, &rt->kept_disk, em);
	if (e == OK)
		e = count_layers(rt, em);
	if (e == OK)
		e = open_probe(rt, em);
	if (e == OK)
		e = open_links(rt, em);
	if (e != OK) {
		node_runtime_close(rt);
		return e;
	}
	node_init(rt->core, &rt->p.core);
	struct node_event ev = {.type = NODE_EV_START};
	step(rt, &ev);
	if (p->profile != NULL)
		on_probed(rt, OK, "", p->profile);
	if (p->core.local)
		node_link_host_start_local(rt->links);
	*out = rt;
	return OK;
}

static bool jobs_are_done(void *ctx)
{
	struct node_runtime *rt = ctx;
	return !is_computing(rt) && !rt->load.is_busy && !rt->store.is_busy && !rt->holding.is_busy && !rt->is_preparing;
}

void node_runtime_close(struct node_runtime *rt)
{
	if (rt == NULL)
		return;
	rt->is_closing = true;
	if (rt->p.is_cached)
		node_blocks_stop_load(rt->p.blocks);
	node_link_host_close(rt->links);
	loop_timer_clear(rt->p.loop, &rt->timer);
	loop_finish(rt->p.loop, jobs_are_done, rt); // a batch under way ends within seconds
	background_probe_close(rt->probe);
	stage_work_close(rt->work);
	stage_work_close(rt->load.work);
	kept_store_close(&rt->kept);
	kept_disk_close(rt->kept_disk);
	free(rt->bufs);
	free(rt->parts);
	free(rt->layer_bytes);
	free(rt->layer_flop);
	free(rt->core);
	free(rt->fx);
	sodium_memzero(rt, sizeof *rt);
	free(rt);
}

void node_runtime_leave(struct node_runtime *rt)
{
	struct node_event ev = {.type = NODE_EV_LEAVE};
	step(rt, &ev);
}

bool node_runtime_weight_stats(const struct node_runtime *rt, struct residency_stats *out)
{
	if (rt->work == NULL)
		return false;
	if (rt->holding.is_busy)
		*out = rt->before;
	else
		stage_work_weight_stats(rt->work, out);
	return true;
}

bool node_runtime_group_stats(const struct node_runtime *rt, struct tensor_group_stats *out)
{
	return rt->work != NULL && stage_work_group_stats(rt->work, out);
}
