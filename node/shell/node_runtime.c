#include "node/shell/node_runtime.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "engine/stage_work.h"
#include "flow/dup_link.h"
#include "kernels/canonical.h"
#include "net/link_listener.h"
#include "net/link_params.h"
#include "node/shell/kept_disk.h"
#include "node/shell/kept_store.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define DIALERS_MAX 4 // coordinator control and data, two neighbours
#define LOCAL_CONTROL 1 // handles of the local links
#define LOCAL_DATA 2

struct rt_dialer {
	struct node_runtime *rt;
	struct dialer *dialer; // NULL: free
	struct node_id peer;
	enum node_link_kind kind;
	bool is_coordinator;
	struct msg_peer who; // a neighbour
	bool is_quiet;       // failures were reported once already
};

struct rt_link {
	uint32_t handle; // 0: free
	struct link *link;
	struct node_id peer;
	bool by_us;
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
	// LOAD
	struct engine_config config;
	struct stage_work *old, *work;
	bool has_lost_kv;
	uint8_t *bufs;
	size_t bufs_bytes;
	// STORE
	struct member_epoch epoch;
};

struct node_runtime {
	struct node_runtime_params p;
	struct node *core;
	struct node_effects *fx;
	bool is_stepping, is_closing;
	struct errmsg fault; // why it leaves by itself; "": it does not

	struct lnk1_server_config server;
	struct link_listener *listener;
	struct rt_dialer dialers[DIALERS_MAX];
	struct rt_link links[NODE_LINKS_MAX];
	uint32_t last_handle;
	struct loop_timer timer;
	const uint8_t *message; // the frame being handled
	size_t message_len;

	struct stage_work *work;
	uint8_t *bufs; // n_bufs of buf_bytes
	size_t buf_bytes, new_buf_bytes;
	struct kept_store kept;
	struct kept_disk *kept_disk; // NULL: nothing is kept on disk
	const struct kept_disk_done *fetched; // of the event being handled
	struct rt_job forward, load, store;
};

static void step(struct node_runtime *rt, struct node_event *ev);

// ---- links

static struct rt_link *find_link(struct node_runtime *rt, uint32_t handle)
{
	for (size_t i = 0; i < ARRAY_LEN(rt->links); i++)
		if (rt->links[i].handle == handle && handle != 0)
			return &rt->links[i];
	return NULL;
}

static struct rt_link *find_by_link(struct node_runtime *rt, const struct link *link)
{
	for (size_t i = 0; i < ARRAY_LEN(rt->links); i++)
		if (rt->links[i].handle != 0 && rt->links[i].link == link)
			return &rt->links[i];
	return NULL;
}

static bool find_member(void *ctx, enum lnk1_kind kind, const uint8_t node_pk[LNK1_KEY_LEN], uint8_t psk[LNK1_KEY_LEN])
{
	struct node_runtime *rt = ctx;
	if (kind == LNK1_BLOCKS)
		return rt->p.blocks != NULL && node_blocks_find_psk(rt->p.blocks, node_pk, psk);
	return node_find_psk(rt->core, node_pk, psk);
}

static void fill_client(struct node_runtime *rt, enum node_link_kind kind, struct lnk1_client_params *out)
{
	link_params_client(out, rt->p.keys, LNK1_MEMBER, kind == NODE_LINK_CONTROL ? LNK1_CONTROL : LNK1_DATA, rt->p.boot_id, CANON_VERSION);
	memcpy(out->cluster_id, rt->p.cluster_id, CLUSTER_ID_BYTES);
	out->member_epoch = node_member_epoch(rt->core).v;
}

static bool coordinator_params(void *ctx, struct lnk1_client_params *out)
{
	struct rt_dialer *d = ctx;
	fill_client(d->rt, d->kind, out);
	memcpy(out->server_pk, d->rt->p.coordinator_pk, KEY_BYTES);
	memcpy(out->psk, d->rt->p.psk, KEY_BYTES);
	return true;
}

static bool neighbour_params(void *ctx, struct lnk1_client_params *out)
{
	struct rt_dialer *d = ctx;
	for (size_t i = 0; i < ARRAY_LEN(d->rt->links); i++)
		if (d->rt->links[i].handle != 0 && node_id_is(d->rt->links[i].peer, d->peer) && !d->rt->links[i].by_us)
			return false; // the neighbour's own dialling has brought a link already
	fill_client(d->rt, d->kind, out);
	memcpy(out->server_pk, d->who.public_key, KEY_BYTES);
	memcpy(out->psk, d->who.psk, KEY_BYTES);
	return true;
}

// on_up takes a link of any origin. Of two with one neighbour both sides keep the same one (flow/dup_link), and the core closes the other when
// nothing can be on its way there any more; with the coordinator, who never dials, the newest stays.
static void on_up(struct node_runtime *rt, struct link *link, const struct link_info *info)
{
	bool is_coordinator = node_id_is(info->peer, rt->p.core.coordinator);
	struct rt_link *free_place = NULL;
	bool is_spare = false;
	for (size_t i = 0; i < ARRAY_LEN(rt->links); i++) {
		struct rt_link *l = &rt->links[i];
		if (l->handle == 0) {
			free_place = free_place ? free_place : l;
			continue;
		}
		is_spare = is_spare || (!is_coordinator && node_id_is(l->peer, info->peer) &&
			dup_link_decide(rt->p.core.self, info->peer, l->by_us, info->is_dialled) == DUP_LINK_KEEP_OLD);
	}
	if (free_place == NULL) {
		link_cut(link);
		return;
	}
	*free_place = (struct rt_link){.handle = ++rt->last_handle, .link = link, .peer = info->peer, .by_us = info->is_dialled};
	struct node_event ev = {.type = NODE_EV_LINK_UP};
	ev.u.link_up.link = free_place->handle;
	ev.u.link_up.peer = info->peer;
	ev.u.link_up.kind = info->kind == LNK1_CONTROL ? NODE_LINK_CONTROL : NODE_LINK_DATA;
	ev.u.link_up.spare = is_spare;
	step(rt, &ev);
}

static void on_dialled_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct rt_dialer *d = ctx;
	d->is_quiet = false;
	on_up(d->rt, link, info);
}

static void on_accepted_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct node_runtime *rt = ctx;
	uint8_t psk[KEY_BYTES];
	bool is_peer = info->kind == LNK1_BLOCKS && find_member(rt, LNK1_BLOCKS, info->peer_pk, psk); // else none any more since its handshake
	sodium_memzero(psk, sizeof psk);
	if (info->kind != LNK1_BLOCKS)
		on_up(rt, link, info);
	else if (is_peer)
		node_blocks_take(rt->p.blocks, link, info);
	else
		link_cut(link);
}

static void on_frame(struct node_runtime *rt, struct link *link, const uint8_t *frame, size_t len)
{
	struct rt_link *l = find_by_link(rt, link);
	if (l == NULL)
		return;
	rt->message = frame;
	rt->message_len = len;
	struct node_event ev = {.type = NODE_EV_MESSAGE};
	ev.u.message.link = l->handle;
	ev.u.message.data = frame;
	ev.u.message.len = len;
	step(rt, &ev);
	rt->message = NULL;
}

static void on_dialled_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	on_frame(((struct rt_dialer *)ctx)->rt, link, frame, len);
}

static void on_accepted_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	on_frame(ctx, link, frame, len);
}

static void on_down(struct node_runtime *rt, struct link *link, const struct link_down *down)
{
	struct rt_link *l = find_by_link(rt, link);
	if (l == NULL)
		return;
	struct node_event ev = {.type = NODE_EV_LINK_DOWN};
	ev.u.link_down.link = l->handle;
	ev.u.link_down.orderly = down->is_orderly;
	ev.u.link_down.reason = down->text;
	l->handle = 0;
	step(rt, &ev);
}

static void on_dialled_down(void *ctx, struct link *link, const struct link_down *down)
{
	on_down(((struct rt_dialer *)ctx)->rt, link, down);
}

static void on_accepted_down(void *ctx, struct link *link, const struct link_down *down)
{
	on_down(ctx, link, down);
}

// A machine that is off is tried for ever; a person wants to read that once, not every second.
static void on_dial_failed(void *ctx, const char *addr, const struct link_down *down, int64_t next_ns)
{
	struct rt_dialer *d = ctx;
	(void)next_ns;
	const char *who = d->is_coordinator ? "the coordinator" : d->who.name;
	bool is_refusal = down->reason == LINK_DOWN_LOST; // during the handshake; a handshake that fails at this end says why itself
	log_line(d->rt->p.log, d->is_quiet ? LOG_DEBUG : LOG_WARNING, "cannot reach %s at %s: %s%s; trying again", who, addr, down->text,
		d->is_coordinator && is_refusal ? " (is this machine still a member? hearth status on the coordinator tells)" : "");
	d->is_quiet = true;
}

static void fx_connect(struct node_runtime *rt, const struct node_effect *f)
{
	struct rt_dialer *d = NULL;
	for (size_t i = 0; d == NULL && i < DIALERS_MAX; i++)
		if (rt->dialers[i].dialer == NULL)
			d = &rt->dialers[i];
	ASSERT(d != NULL);
	*d = (struct rt_dialer){.rt = rt, .peer = f->u.connect.peer, .kind = f->u.connect.kind, .is_coordinator = f->u.connect.who == NULL};
	struct dialer_params p = {
		.callbacks = {.ctx = d, .on_up = on_dialled_up, .on_frame = on_dialled_frame, .on_down = on_dialled_down},
		.ctx = d,
		.params = d->is_coordinator ? coordinator_params : neighbour_params,
		.on_failed = on_dial_failed,
		.limits = rt->p.limits,
		.backoff = &backoff_defaults,
		.seed = load_u64(rt->p.boot_id) + (uint64_t)(d - rt->dialers),
	};
	if (!d->is_coordinator)
		d->who = *f->u.connect.who;
	const struct address_list *list = d->is_coordinator ? &rt->p.addresses : &d->who.addresses;
	p.n_addrs = list->n;
	memcpy(p.addrs, list->at, sizeof p.addrs);
	struct errmsg em;
	if (list->n == 0)
		return; // it dials us, or steps go through the coordinator
	if (dialer_open(&d->dialer, rt->p.loop, &p, &em) != OK)
		log_line(rt->p.log, LOG_ERROR, "cannot dial %s: %s", d->is_coordinator ? "the coordinator" : d->who.name, em.text);
}

static void fx_disconnect(struct node_runtime *rt, const struct node_effect *f)
{
	for (size_t i = 0; i < DIALERS_MAX; i++) {
		struct rt_dialer *d = &rt->dialers[i];
		if (d->dialer == NULL || d->kind != f->u.connect.kind || !node_id_is(d->peer, f->u.connect.peer))
			continue;
		struct rt_link *l = dialer_link(d->dialer) ? find_by_link(rt, dialer_link(d->dialer)) : NULL;
		if (l != NULL)
			l->handle = 0;
		dialer_close(d->dialer, false);
		sodium_memzero(d, sizeof *d);
	}
	for (size_t i = 0; i < ARRAY_LEN(rt->links); i++) {
		struct rt_link *l = &rt->links[i];
		if (l->handle == 0 || !node_id_is(l->peer, f->u.connect.peer))
			continue;
		struct link *link = l->link;
		l->handle = 0;
		link_abort(link);
	}
}

static void fx_refresh(struct node_runtime *rt, const struct node_effect *f)
{
	for (size_t i = 0; i < DIALERS_MAX; i++)
		if (rt->dialers[i].dialer && rt->dialers[i].kind == f->u.connect.kind && node_id_is(rt->dialers[i].peer, f->u.connect.peer))
			dialer_renew(rt->dialers[i].dialer);
}

static void fx_close(struct node_runtime *rt, const struct node_effect *f)
{
	struct rt_link *l = find_link(rt, f->u.close.link);
	if (l == NULL)
		return;
	// Its on_down comes from the loop.
	if (f->u.close.orderly)
		link_close(l->link);
	else
		link_cut(l->link);
}

static void fx_send(struct node_runtime *rt, const struct node_effect *f)
{
	uint8_t *payload = f->u.send.buf >= 0 ? rt->bufs + (size_t)f->u.send.buf * rt->buf_bytes + f->u.send.off : NULL;
	enum err e;
	if (rt->p.core.local) {
		struct local_link *to = f->u.send.link == LOCAL_CONTROL ? rt->p.local_control : rt->p.local_data;
		e = local_link_send(to, 1, f->u.send.head, f->u.send.head_len, payload, f->u.send.len);
	} else {
		struct rt_link *l = find_link(rt, f->u.send.link);
		if (l == NULL)
			return;
		e = link_send_or_end(l->link, f->u.send.head, f->u.send.head_len, payload, f->u.send.len);
	}
	if (e != OK && e != ERR_CLOSED)
		log_line(rt->p.log, LOG_ERROR, "a frame could not be sent: %s", err_words(e));
}

// ---- the engine

static void job_done(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
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
		.window = s.window_bytes, .read = s.read_bytes, .read_us = (uint64_t)s.read_ns / 1000, .stall_us = (uint64_t)s.stall_ns / 1000};
}

static void run_forward(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
	stage_work_forward(j->rt->work, j->layer_begin, j->layer_end, j->items, j->n_items);
}

static void on_forward(void *ctx)
{
	struct rt_job *j = ctx;
	j->is_busy = false;
	for (int32_t i = 0; i < j->n_items; i++) {
		j->errs[i] = j->items[i].err;
		j->texts[i] = j->items[i].em.text;
	}
	struct node_event ev = {.type = NODE_EV_FORWARD_DONE};
	ev.u.forward_done.id = j->id;
	ev.u.forward_done.errs = j->errs;
	ev.u.forward_done.texts = j->texts;
	ev.u.forward_done.weights = weight_report(j->rt);
	step(j->rt, &ev);
	leave_if_changed(j->rt, j->errs[0]);
}

static void fx_forward(struct node_runtime *rt, const struct node_effect *f)
{
	struct rt_job *j = &rt->forward;
	if (rt->p.blocks != NULL)
		node_blocks_note_work(rt->p.blocks);
	j->id = f->u.forward.id;
	j->layer_begin = f->u.forward.layer_begin;
	j->layer_end = f->u.forward.layer_end;
	j->n_items = f->u.forward.n_items;
	for (int32_t i = 0; i < j->n_items; i++) {
		const struct node_forward_item *it = &f->u.forward.items[i];
		j->items[i] = (struct stage_item){
			.wire = rt->bufs + (size_t)it->buf * rt->buf_bytes, .slot = it->slot, .pos = it->pos, .n_tokens = it->n_tokens};
	}
	job_start(rt, j, run_forward);
}

// set_limits parts the stage's memory: what it needs beside its weights, and the rest for them. ERR_LIMIT: it does not fit.
static enum err set_limits(struct rt_job *j, uint64_t *stage_bytes)
{
	const struct node_memory *m = &j->rt->p.memory;
	struct engine_size size;
	enum err e = stage_work_measure(&j->config, &size, &j->em);
	if (e != OK)
		return e;
	uint64_t bytes = size.bytes + 2 * (uint64_t)j->bufs_bytes; // as much may wait in links as lies in buffers
	*stage_bytes = bytes + size.weight_least;
	if (*stage_bytes > m->bytes || bytes > m->anon_bytes)
		return errmsg_fail(&j->em, ERR_LIMIT, "--mem leaves %.1f MiB for a stage (%.1f of it no file's): KV cache %.1f MiB for %d slots of %d tokens, computing "
			"%.1f, buffers %.1f, weights at least %.1f; use fewer slots or a shorter context on the coordinator", (double)m->bytes / 1048576,
			(double)m->anon_bytes / 1048576, (double)size.kv_bytes / 1048576, j->config.n_slots, j->config.ctx_len,
			(double)(size.bytes - size.kv_bytes) / 1048576, 2 * (double)j->bufs_bytes / 1048576, (double)size.weight_least / 1048576);
	j->config.weights = (struct residency_limits){.is_capped = true, .bytes = m->bytes - bytes, .anon_bytes = m->anon_bytes - bytes, .reader = m->reader,
		.log = j->rt->p.log};
	j->config.defer_weights = true; // until the old stage's are gone
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

static enum err open_stage(struct rt_job *j)
{
	uint64_t stage_bytes = 0;
	enum err e = j->rt->p.memory.is_capped ? set_limits(j, &stage_bytes) : OK;
	if (e != OK)
		return e;
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
	if (e == OK && j->config.defer_weights)
		e = stage_work_load_weights(j->work, &j->config.weights, &j->em);
	return e;
}

static void run_load(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
	j->work = NULL;
	j->bufs = NULL;
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
	rt->bufs = j->bufs;
	rt->buf_bytes = rt->new_buf_bytes;
	rt->work = j->work;
	j->bufs = NULL;
	j->work = NULL;
	struct node_event ev = {.type = NODE_EV_LOADED};
	ev.u.loaded.id = j->id;
	ev.u.loaded.err = j->err;
	ev.u.loaded.lost_kv = j->has_lost_kv;
	ev.u.loaded.text = j->err == OK ? "" : j->em.text;
	ev.u.loaded.weights = weight_report(rt);
	say_loaded(rt);
	step(rt, &ev);
	leave_if_changed(rt, j->err);
}

// on_blocks_here: the layers' blocks are here, or will not be. What the engine before this one has computed stays with it until one is opened.
static void on_blocks_here(void *ctx, enum err err, const char *text)
{
	struct node_runtime *rt = ctx;
	struct rt_job *j = &rt->load;
	j->is_busy = false;
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
	};
	j->bufs_bytes = (size_t)f->u.load.n_bufs * f->u.load.buf_bytes;
	rt->new_buf_bytes = f->u.load.buf_bytes;
	j->old = rt->work;
	rt->work = NULL;
	char layers[LAYER_SPANS_CAP];
	layer_spans_print(&f->u.load.layers, layers);
	log_line(rt->p.log, LOG_INFO, "loading layers %s of %s", layers, model_name(rt->p.model));
	if (rt->p.is_cached) {
		j->is_busy = true;
		node_blocks_load(rt->p.blocks, &f->u.load.layers, on_blocks_here, rt);
	} else {
		job_start(rt, j, run_load);
	}
}

static void fx_stop_load(struct node_runtime *rt)
{
	if (rt->p.is_cached)
		node_blocks_stop_load(rt->p.blocks);
}

// fx_unload: the core asks for it only while the worker does nothing for this node.
static void fx_unload(struct node_runtime *rt)
{
	ASSERT(!rt->forward.is_busy);
	ASSERT(!rt->load.is_busy);
	stage_work_close(rt->work);
	rt->work = NULL;
	free(rt->bufs);
	rt->bufs = NULL;
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

// ---- the core

static void fx_exit(struct node_runtime *rt, const struct node_effect *f)
{
	bool by_itself = f->u.exit.err == OK && rt->fault.text[0] != '\0';
	rt->p.on_exit(rt->p.ctx, by_itself ? ERR_STATE : f->u.exit.err, by_itself ? rt->fault.text : f->u.exit.text);
}

static void carry_out(struct node_runtime *rt, const struct node_effect *f)
{
	switch (f->type) {
	case NODE_FX_CONNECT: fx_connect(rt, f); break;
	case NODE_FX_DISCONNECT: fx_disconnect(rt, f); break;
	case NODE_FX_REFRESH: fx_refresh(rt, f); break;
	case NODE_FX_CLOSE: fx_close(rt, f); break;
	case NODE_FX_SEND: fx_send(rt, f); break;
	case NODE_FX_TAKE:
		ASSERT(rt->message != NULL);
		ASSERT(f->u.take.msg_off + f->u.take.len <= rt->message_len);
		ASSERT(f->u.take.len <= rt->buf_bytes);
		memcpy(rt->bufs + (size_t)f->u.take.buf * rt->buf_bytes, rt->message + f->u.take.msg_off, f->u.take.len);
		break;
	case NODE_FX_LOAD: fx_load(rt, f); break;
	case NODE_FX_STOP_LOAD: fx_stop_load(rt); break;
	case NODE_FX_UNLOAD: fx_unload(rt); break;
	case NODE_FX_FORWARD: fx_forward(rt, f); break;
	case NODE_FX_KEEP:
	case NODE_FX_FETCH:
	case NODE_FX_DROP: fx_kept(rt, f); break;
	case NODE_FX_KEEP_DISK: fx_keep_disk(rt, f); break;
	case NODE_FX_FETCH_DISK: kept_disk_read(rt->kept_disk, f); break;
	case NODE_FX_TAKE_FETCHED: fx_take_fetched(rt, f); break;
	case NODE_FX_STORE: fx_store(rt, f); break;
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

static void on_timer(void *ctx)
{
	struct node_event ev = {.type = NODE_EV_TICK};
	step(ctx, &ev);
}

static void on_local_frame(struct node_runtime *rt, uint32_t handle, const uint8_t *frame, size_t len)
{
	rt->message = frame;
	rt->message_len = len;
	struct node_event ev = {.type = NODE_EV_MESSAGE};
	ev.u.message.link = handle;
	ev.u.message.data = frame;
	ev.u.message.len = len;
	step(rt, &ev);
	rt->message = NULL;
}

static void on_local_control(void *ctx, uint32_t end, const uint8_t *frame, size_t len)
{
	(void)end;
	on_local_frame(ctx, LOCAL_CONTROL, frame, len);
}

static void on_local_data(void *ctx, uint32_t end, const uint8_t *frame, size_t len)
{
	(void)end;
	on_local_frame(ctx, LOCAL_DATA, frame, len);
}

static void start_local(struct node_runtime *rt)
{
	static const enum node_link_kind kinds[] = {NODE_LINK_DATA, NODE_LINK_CONTROL};
	static const uint32_t handles[] = {LOCAL_DATA, LOCAL_CONTROL};
	local_link_attach(rt->p.local_control, 1, &(struct local_callbacks){.ctx = rt, .on_frame = on_local_control});
	local_link_attach(rt->p.local_data, 1, &(struct local_callbacks){.ctx = rt, .on_frame = on_local_data});
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct node_event ev = {.type = NODE_EV_LINK_UP};
		ev.u.link_up.link = handles[i];
		ev.u.link_up.peer = rt->p.core.coordinator;
		ev.u.link_up.kind = kinds[i];
		step(rt, &ev);
	}
}

// ---- opening

static enum err open_listener(struct node_runtime *rt, struct errmsg *em)
{
	link_params_server(&rt->server, rt->p.keys, rt->p.cluster_id, CANON_VERSION);
	rt->server.lookup = (struct lnk1_lookup){.ctx = rt, .member = find_member};
	rt->server.is_node = true;
	rt->server.member_epoch = rt->p.core.member_epoch.v;
	struct link_listener_params lp = {
		.addr = rt->p.listen,
		.cfg = &rt->server,
		.limits = rt->p.limits,
		.log = rt->p.log,
		.callbacks = {.ctx = rt, .on_up = on_accepted_up, .on_frame = on_accepted_frame, .on_down = on_accepted_down},
		.ctx = rt,
	};
	return link_listener_open(&rt->listener, rt->p.loop, &lp, em);
}

enum err node_runtime_open(const struct node_runtime_params *p, struct node_runtime **out, struct errmsg *em)
{
	struct node_runtime *rt = calloc(1, sizeof *rt);
	if (rt == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the node");
	rt->p = *p;
	rt->core = calloc(1, node_size());
	rt->fx = calloc(1, sizeof *rt->fx);
	rt->last_handle = LOCAL_DATA;
	loop_timer_init(&rt->timer, on_timer, rt);
	struct rt_job *jobs[] = {&rt->forward, &rt->load, &rt->store};
	const loop_fn dones[] = {on_forward, on_load, on_store};
	for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
		jobs[i]->rt = rt;
		loop_task_init(&jobs[i]->task, dones[i], jobs[i]);
	}
	enum err e = rt->core && rt->fx ? OK : errmsg_fail(em, ERR_NOMEM, "no memory for the node");
	if (e == OK && p->core.keep_disk_bytes > 0)
		e = kept_disk_open(p->keep_dir, p->loop, on_kept_disk, rt, &rt->kept_disk, em);
	if (e == OK && p->listen != NULL && !p->core.local)
		e = open_listener(rt, em);
	if (e != OK) {
		node_runtime_close(rt);
		return e;
	}
	if (rt->listener)
		rt->p.core.port = link_listener_port(rt->listener);
	node_init(rt->core, &rt->p.core);
	struct node_event ev = {.type = NODE_EV_START};
	step(rt, &ev);
	if (p->core.local)
		start_local(rt);
	*out = rt;
	return OK;
}

static bool jobs_are_done(void *ctx)
{
	struct node_runtime *rt = ctx;
	return !rt->forward.is_busy && !rt->load.is_busy && !rt->store.is_busy;
}

void node_runtime_close(struct node_runtime *rt)
{
	if (rt == NULL)
		return;
	rt->is_closing = true;
	if (rt->p.is_cached)
		node_blocks_stop_load(rt->p.blocks);
	local_link_detach(rt->p.local_control, 1);
	local_link_detach(rt->p.local_data, 1);
	for (size_t i = 0; i < DIALERS_MAX; i++)
		dialer_close(rt->dialers[i].dialer, false);
	for (size_t i = 0; i < ARRAY_LEN(rt->links); i++)
		if (rt->links[i].handle != 0 && !rt->links[i].by_us)
			link_abort(rt->links[i].link);
	link_listener_close(rt->listener);
	loop_timer_clear(rt->p.loop, &rt->timer);
	loop_run_until(rt->p.loop, jobs_are_done, rt, INT64_MAX); // a batch under way ends within seconds
	stage_work_close(rt->work);
	stage_work_close(rt->load.work);
	kept_store_close(&rt->kept);
	kept_disk_close(rt->kept_disk);
	free(rt->bufs);
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
	stage_work_weight_stats(rt->work, out);
	return true;
}
