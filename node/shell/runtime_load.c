// Stages come and go: their blocks are fetched, the engine opened within the node's memory, what it computed before taken over.
#include "node/shell/runtime_state.h"

#include "base/assert.h"
#include "node/shell/part_blocks.h"
#include "node/shell/stage_memory.h"

#include <stdlib.h>

static int32_t n_members_of(const struct rt_job *j)
{
	return j->config.split == &j->split ? j->split.n_members : 0;
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
		.stream_share = j->config.weights.stream_share, .log = j->rt->p.log};
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
	j->config.weights = runtime_limits_within(j->rt, &j->limits, &j->size, j->hold);
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

void runtime_on_load(void *ctx)
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
	j->bufs = j->parts = NULL;
	j->work = NULL;
	struct node_event ev = {.type = NODE_EV_LOADED};
	ev.u.loaded.id = j->id;
	ev.u.loaded.err = j->err;
	ev.u.loaded.lost_kv = j->has_lost_kv;
	ev.u.loaded.text = j->err == OK ? "" : j->em.text;
	ev.u.loaded.weights = runtime_weight_report(rt);
	ev.u.loaded.part_bytes = rt->part_bytes;
	runtime_say_loaded(rt);
	runtime_step(rt, &ev);
	runtime_leave_if_changed(rt, j->err);
	runtime_pump_hold(rt);
}

// on_blocks_here: the layers' blocks are here, or will not be. What the engine before this one has computed stays with it until one is opened.
static void on_blocks_here(void *ctx, enum err err, const char *text)
{
	struct node_runtime *rt = ctx;
	struct rt_job *j = &rt->load;
	j->is_busy = false;
	j->hold = rt->hold;
	if (err == OK && !rt->is_closing) {
		runtime_job_start(rt, j, run_load);
		return;
	}
	j->err = errmsg_fail(&j->em, err, "%s", text);
	j->has_lost_kv = true;
	stage_work_close(j->old);
	j->old = NULL;
	if (!rt->is_closing)
		runtime_on_load(j);
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
		runtime_job_start(rt, j, run_load);
	}
}

void runtime_fx_load(struct node_runtime *rt, const struct node_effect *f)
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
		.weights.stream_share = f->u.load.stream_share,
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

void runtime_fx_stop_load(struct node_runtime *rt)
{
	rt->load_stops = rt->load_waits;
	if (rt->p.is_cached && !rt->load_waits)
		node_blocks_stop_load(rt->p.blocks);
}

void runtime_resume_load(struct node_runtime *rt)
{
	rt->load_waits = false;
	if (rt->is_closing || rt->load_stops)
		on_blocks_here(rt, ERR_CANCELLED, "another plan has come");
	else
		start_load(rt);
}

static void on_prepared(void *ctx, enum err err, const char *text)
{
	struct node_runtime *rt = ctx;
	struct node_event ev = {.type = NODE_EV_PREPARED};
	rt->is_preparing = false;
	ev.u.prepared.id = rt->prepare_id;
	ev.u.prepared.err = err;
	ev.u.prepared.text = text;
	runtime_step(rt, &ev);
}

// runtime_on_unprepared: it cannot even begin.
void runtime_on_unprepared(void *ctx)
{
	struct node_runtime *rt = ctx;
	on_prepared(rt, rt->prepare_err, rt->prepare_em.text);
}

void runtime_fx_prepare(struct node_runtime *rt, const struct node_effect *f)
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
	want.has_output = f->u.prepare.has_output;
	if (e == OK)
		e = part_blocks_load(rt->p.blocks, &want, true, on_prepared, rt, &rt->prepare_em);
	rt->prepare_err = e;
	if (e != OK)
		loop_task_post(rt->p.loop, &rt->prepare_task);
}

// runtime_fx_unload: the core asks for it only while the worker does nothing for this node.
void runtime_fx_unload(struct node_runtime *rt)
{
	ASSERT(!runtime_is_computing(rt));
	ASSERT(!rt->load.is_busy);
	if (rt->holding.is_busy)
		rt->unloaded = rt->work;
	else
		stage_work_close(rt->work);
	rt->work = NULL;
	free(rt->bufs);
	rt->bufs = NULL;
	free(rt->parts);
	rt->parts = NULL;
}
