#include "node/shell/node_runtime.h"

#include "base/assert.h"
#include "engine/probe_stage.h"
#include "node/shell/runtime_state.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

// ---- jobs and the disk

static void job_done(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
	j->end_ns = loop_clock_ns();
	loop_task_post(j->rt->p.loop, &j->task);
}

void runtime_job_start(struct node_runtime *rt, struct rt_job *j, void (*run)(struct worker_job *))
{
	ASSERT(!j->is_busy);
	j->is_busy = true;
	j->job.run = run;
	j->job.done = job_done;
	worker_submit(rt->p.worker, &j->job);
}

void runtime_leave_if_changed(struct node_runtime *rt, enum err err)
{
	struct errmsg em;
	if (err != ERR_STATE || rt->p.core.local || rt->fault.text[0] != '\0' || model_check_unchanged(rt->p.model, &em) == OK)
		return;
	rt->fault = em;
	log_line(rt->p.log, LOG_ERROR, "%s: leaving the cluster", em.text);
	node_runtime_leave(rt);
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
	runtime_step(rt, &ev);
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
		runtime_job_start(j->rt, j, run_store);
	}
	struct node_event ev = {.type = NODE_EV_STORED};
	ev.u.stored.id = j->id;
	ev.u.stored.err = j->err;
	runtime_step(j->rt, &ev);
}

static void fx_store(struct node_runtime *rt, const struct node_effect *f)
{
	if (rt->p.core.local || rt->store.is_busy)
		return; // local: the coordinator's own store has it
	rt->store.id = f->u.store.id;
	rt->store.epoch = f->u.store.member_epoch;
	runtime_job_start(rt, &rt->store, run_store);
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
	case NODE_FX_LOAD: runtime_fx_load(rt, f); break;
	case NODE_FX_STOP_LOAD:
	case NODE_FX_STOP_PREPARE: runtime_fx_stop_load(rt); break;
	case NODE_FX_PREPARE: runtime_fx_prepare(rt, f); break;
	case NODE_FX_UNLOAD: runtime_fx_unload(rt); break;
	case NODE_FX_FORWARD: runtime_fx_forward(rt, f); break;
	case NODE_FX_CONTINUE: runtime_fx_continue(rt, f); break;
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

void runtime_step(struct node_runtime *rt, struct node_event *ev)
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
	runtime_step(ctx, ev);
}

static void on_timer(void *ctx)
{
	struct node_event ev = {.type = NODE_EV_TICK};
	runtime_step(ctx, &ev);
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
	p.on_done = runtime_on_probed;
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
	loop_task_init(&rt->prepare_task, runtime_on_unprepared, rt);
	struct rt_job *jobs[] = {&rt->forwards[0], &rt->forwards[1], &rt->load, &rt->store, &rt->holding};
	const loop_fn dones[] = {runtime_on_forward, runtime_on_forward, runtime_on_load, on_store, runtime_on_hold};
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
	runtime_step(rt, &ev);
	if (p->profile != NULL)
		runtime_on_probed(rt, OK, "", p->profile);
	if (p->core.local)
		node_link_host_start_local(rt->links);
	*out = rt;
	return OK;
}

static bool jobs_are_done(void *ctx)
{
	struct node_runtime *rt = ctx;
	return !runtime_is_computing(rt) && !rt->load.is_busy && !rt->store.is_busy && !rt->holding.is_busy && !rt->is_preparing;
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
	runtime_step(rt, &ev);
}

bool node_runtime_group_stats(const struct node_runtime *rt, struct tensor_group_stats *out)
{
	return rt->work != NULL && stage_work_group_stats(rt->work, out);
}
