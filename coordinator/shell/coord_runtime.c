#include "coordinator/shell/coord_runtime.h"

#include "base/assert.h"
#include "coordinator/cluster_view.h"
#include "coordinator/shell/coord_blocks.h"
#include "coordinator/shell/coord_head.h"
#include "coordinator/shell/coord_link_host.h"
#include "coordinator/shell/coord_planner.h"
#include "coordinator/shell/coord_store.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define INVITE_TTL_S 600

struct rt_request {
	uint64_t req; // 0: free
	struct coord_request r;
};

struct coord_runtime {
	struct coord_runtime_params p;
	struct coordinator *core;
	struct coord_effects *fx;
	int32_t *tokens;
	bool is_stepping, is_closing;

	struct coord_store *store;
	struct coord_link_host *links;
	struct coord_blocks *blocks; // NULL: members have the model themselves
	struct coord_head *head;
	struct coord_planner *planner; // NULL: plans are not made by cost
	struct loop_timer timer;
	struct loop_task random_task;
	struct loop_task queue_task; // carries out what was asked for while the core was stepping, or from inside submit
	struct queued *queued, **queued_last;

	struct rt_request requests[2 * SESSIONS_MAX];
	uint64_t last_req;
	struct coord_tickets tickets;
};

// An event that waits for the loop: submit and friends are called from anywhere on the loop's thread, also from a request's own callback.
struct queued {
	struct queued *next;
	struct coord_event ev;
	int32_t *tokens; // owned, SUBMIT
	char *who;       // owned, REVOKE and DRAIN
};

static void step(struct coord_runtime *rt, struct coord_event *ev);

// ---- requests and operators

static void on_queue(void *ctx)
{
	struct coord_runtime *rt = ctx;
	while (rt->queued != NULL) {
		struct queued *q = rt->queued;
		rt->queued = q->next;
		if (rt->queued == NULL)
			rt->queued_last = &rt->queued;
		step(rt, &q->ev);
		free(q->tokens);
		free(q->who);
		sodium_memzero(q, sizeof *q);
		free(q);
	}
}

static struct queued *enqueue(struct coord_runtime *rt, enum coord_event_type type)
{
	struct queued *q = calloc(1, sizeof *q);
	if (q == NULL)
		abort(); // a few hundred bytes: nothing works any more
	q->ev.type = type;
	*rt->queued_last = q;
	rt->queued_last = &q->next;
	loop_task_post(rt->p.loop, &rt->queue_task);
	return q;
}

static struct rt_request *find_request(struct coord_runtime *rt, uint64_t req)
{
	for (size_t i = 0; i < ARRAY_LEN(rt->requests); i++)
		if (rt->requests[i].req == req)
			return &rt->requests[i];
	return NULL;
}

uint64_t coord_runtime_submit(struct coord_runtime *rt, const struct coord_request *r)
{
	struct rt_request *place = find_request(rt, 0);
	ASSERT(place != NULL); // twice what the core takes; callers end with their on_end
	*place = (struct rt_request){.req = ++rt->last_req, .r = *r};
	struct queued *q = enqueue(rt, COORD_EV_SUBMIT);
	q->tokens = malloc((size_t)(r->n_tokens > 0 ? r->n_tokens : 1) * sizeof *q->tokens);
	if (q->tokens == NULL)
		abort();
	memcpy(q->tokens, r->tokens, (size_t)r->n_tokens * sizeof *q->tokens);
	q->ev.u.submit.req = place->req;
	q->ev.u.submit.tokens = q->tokens;
	q->ev.u.submit.n_tokens = r->n_tokens;
	q->ev.u.submit.n_predict = r->n_predict;
	q->ev.u.submit.sampling = r->sampling;
	q->ev.u.submit.hash_logits = r->hash_logits;
	q->ev.u.submit.ignore_stop = r->ignore_stop;
	return place->req;
}

bool coord_runtime_has_room(const struct coord_runtime *rt)
{
	for (size_t i = 0; i < ARRAY_LEN(rt->requests); i++)
		if (rt->requests[i].req == 0)
			return true;
	return false;
}

void coord_runtime_cancel(struct coord_runtime *rt, uint64_t req)
{
	enqueue(rt, COORD_EV_CANCEL)->ev.u.cancel.req = req;
}

void coord_runtime_invite(struct coord_runtime *rt, coord_invited done, void *ctx)
{
	struct coord_ticket *t = coord_tickets_invite(&rt->tickets, rt->p.keys->pk, INVITE_TTL_S, done, ctx);
	if (t == NULL)
		return;
	struct coord_event *ev = &enqueue(rt, COORD_EV_INVITE)->ev;
	ev->u.invite.ticket = t->ticket;
	memcpy(ev->u.invite.token_id, t->invite.token_id, TOKEN_ID_BYTES);
	memcpy(ev->u.invite.secret, t->invite.token_secret, KEY_BYTES);
	ev->u.invite.ttl_s = INVITE_TTL_S;
}

static void about_member(struct coord_runtime *rt, enum coord_event_type type, const char *who, bool undo, coord_answered done, void *ctx)
{
	struct coord_ticket *t = coord_tickets_plain(&rt->tickets, done, ctx);
	if (t == NULL)
		return;
	struct queued *q = enqueue(rt, type);
	q->who = strdup(who);
	if (q->who == NULL)
		abort();
	q->ev.u.revoke.ticket = t->ticket;
	q->ev.u.revoke.who = q->who;
	q->ev.u.revoke.undo = undo;
}

void coord_runtime_revoke(struct coord_runtime *rt, const char *who, coord_answered done, void *ctx)
{
	about_member(rt, COORD_EV_REVOKE, who, false, done, ctx);
}

void coord_runtime_drain(struct coord_runtime *rt, const char *who, bool undo, coord_answered done, void *ctx)
{
	about_member(rt, COORD_EV_DRAIN, who, undo, done, ctx);
}

static void fx_emit(struct coord_runtime *rt, const struct coord_effect *f)
{
	struct rt_request *q = find_request(rt, f->u.emit.req);
	ASSERT(q != NULL);
	q->r.on_token(q->r.ctx, f->u.emit.token, f->u.emit.pos);
}

static void fx_end(struct coord_runtime *rt, const struct coord_effect *f)
{
	struct rt_request *q = find_request(rt, f->u.end.req);
	ASSERT(q != NULL);
	struct coord_request r = q->r;
	char hash[2 * LOGITS_HASH_BYTES + 1] = "";
	if (r.hash_logits && f->u.end.end != COORD_END_ERROR && f->u.end.end != COORD_END_CANCELLED && f->u.end.slot >= 0)
		coord_head_hash(rt->head, f->u.end.slot, hash);
	q->req = 0;
	r.on_end(r.ctx, f->u.end.end, f->u.end.err, f->u.end.text, hash);
}

// ---- the core

static void on_stored(void *ctx, uint32_t id, enum err err, const char *text)
{
	struct coord_runtime *rt = ctx;
	if (err != OK)
		log_line(rt->p.log, LOG_ERROR, "%s: %s", rt->p.store_path, text);
	struct coord_event ev = {.type = COORD_EV_STORED};
	ev.u.stored.id = id;
	ev.u.stored.err = err;
	step(rt, &ev);
}

static void fx_store(struct coord_runtime *rt, const struct coord_effect *f)
{
	struct coord_write w = {
		.id = f->u.store.id,
		.op = f->u.store.op,
		.member = f->u.store.member,
		.invite = f->u.store.invite,
		.member_epoch = f->u.store.member_epoch,
	};
	ASSERT(rt->store != NULL);
	coord_store_submit(rt->store, &w);
	sodium_memzero(&w, sizeof w);
}

static void on_random(void *ctx)
{
	struct coord_event ev = {.type = COORD_EV_RANDOM};
	randombytes_buf(ev.u.random.bytes, KEY_BYTES);
	step(ctx, &ev);
	sodium_memzero(&ev, sizeof ev);
}

static void fx_send(struct coord_runtime *rt, const struct coord_effect *f)
{
	const uint8_t *payload = f->u.send.buf >= 0 ? coord_head_bytes(rt->head, f->u.send.buf, f->u.send.off, f->u.send.len) : NULL;
	coord_link_host_send(rt->links, f->u.send.link, f->u.send.head, f->u.send.head_len, payload, f->u.send.len);
}

static void fx_relay(struct coord_runtime *rt, const struct coord_effect *f)
{
	size_t len;
	const uint8_t *frame = coord_link_host_message(rt->links, &len);
	coord_link_host_send(rt->links, f->u.close.link, frame, len, NULL, 0);
}

static void fx_take(struct coord_runtime *rt, const struct coord_effect *f)
{
	size_t len;
	const uint8_t *frame = coord_link_host_message(rt->links, &len);
	ASSERT(f->u.take.msg_off <= len && f->u.take.len <= len - f->u.take.msg_off);
	memcpy(coord_head_bytes(rt->head, f->u.take.buf, 0, f->u.take.len), frame + f->u.take.msg_off, f->u.take.len);
}

static void fx_disconnect(struct coord_runtime *rt, struct node_id node)
{
	coord_link_host_disconnect(rt->links, node);
	if (rt->blocks != NULL)
		coord_blocks_disconnect(rt->blocks, node);
}

static void carry_out(struct coord_runtime *rt, const struct coord_effect *f)
{
	switch (f->type) {
	case COORD_FX_SEND: fx_send(rt, f); break;
	case COORD_FX_RELAY: fx_relay(rt, f); break;
	case COORD_FX_TAKE: fx_take(rt, f); break;
	case COORD_FX_CLOSE: coord_link_host_end(rt->links, f->u.close.link, f->u.close.orderly); break;
	case COORD_FX_DISCONNECT: fx_disconnect(rt, f->u.disconnect.node); break;
	case COORD_FX_ACCEPT: coord_link_host_judge(rt->links, f->u.close.link, true); break;
	case COORD_FX_REFUSE: coord_link_host_judge(rt->links, f->u.close.link, false); break;
	case COORD_FX_FORWARD:
		if (rt->blocks != NULL)
			coord_blocks_note_work(rt->blocks);
		coord_head_forward(rt->head, f);
		break;
	case COORD_FX_SAMPLE: coord_head_sample(rt->head, f); break;
	case COORD_FX_EMIT: fx_emit(rt, f); break;
	case COORD_FX_END: fx_end(rt, f); break;
	case COORD_FX_STORE: fx_store(rt, f); break;
	case COORD_FX_ANSWER: coord_tickets_answer(&rt->tickets, f->u.answer.ticket, f->u.answer.err, f->u.answer.text); break;
	case COORD_FX_NEED_RANDOM: loop_task_post(rt->p.loop, &rt->random_task); break;
	case COORD_FX_PLAN: coord_planner_ask(rt->planner, f); break;
	case COORD_FX_LOG: log_line(rt->p.log, (enum log_level)f->u.log.level, "%s", f->u.log.text); break;
	}
}

static void step(struct coord_runtime *rt, struct coord_event *ev)
{
	if (rt->is_closing)
		return;
	ASSERT(!rt->is_stepping); // effects answer from the loop; requests and operators queue
	rt->is_stepping = true;
	ev->now_ns = loop_clock_ns();
	ev->wall_s = time(NULL);
	coordinator_step(rt->core, ev, rt->fx);
	for (int32_t i = 0; i < rt->fx->n; i++)
		carry_out(rt, &rt->fx->at[i]);
	coord_link_host_set_epoch(rt->links, coordinator_member_epoch(rt->core));
	rt->is_stepping = false;
	int64_t deadline = coordinator_deadline_ns(rt->core);
	if (deadline != INT64_MAX)
		loop_timer_set(rt->p.loop, &rt->timer, deadline);
}

static void on_event(void *ctx, struct coord_event *ev)
{
	step(ctx, ev);
}

static void on_timer(void *ctx)
{
	struct coord_event ev = {.type = COORD_EV_TICK};
	step(ctx, &ev);
}

static void on_blocks(void *ctx, struct link *link, const struct link_info *info)
{
	struct coord_runtime *rt = ctx;
	if (rt->blocks != NULL)
		coord_blocks_take(rt->blocks, link, info);
	else
		link_close(link);
}

// ---- opening

static enum err open_links(struct coord_runtime *rt, struct errmsg *em)
{
	struct coord_link_host_params p = {
		.loop = rt->p.loop,
		.log = rt->p.log,
		.core = rt->core,
		.local_control = rt->p.local_control,
		.local_data = rt->p.local_data,
		.ctx = rt,
		.on_blocks = on_blocks,
		.on_event = on_event,
	};
	return coord_link_host_open(&p, &rt->links, em);
}

static enum err listen_for_nodes(struct coord_runtime *rt, struct errmsg *em)
{
	struct coord_link_host_listen p = {.addr = rt->p.listen, .keys = rt->p.keys, .limits = rt->p.limits};
	memcpy(p.cluster_id, rt->p.core.cluster_id, CLUSTER_ID_BYTES);
	return coord_link_host_listen(rt->links, &p, em);
}

static enum err open_head(struct coord_runtime *rt, struct errmsg *em)
{
	struct coord_head_params p = {
		.loop = rt->p.loop,
		.log = rt->p.log,
		.worker = rt->p.worker,
		.model = rt->p.model,
		.core = &rt->p.core,
		.weights = rt->p.head_weights,
		.ctx = rt,
		.on_event = on_event,
	};
	return coord_head_open(&p, &rt->head, em);
}

// on_model_known: nodes that wait for it are looked at now.
static void on_model_known(void *ctx)
{
	struct coord_runtime *rt = ctx;
	struct coord_event ev = {.type = COORD_EV_MODEL};
	memcpy(ev.u.model.hash, coord_blocks_model_hash(rt->blocks), HASH_BYTES);
	memcpy(rt->p.core.model_hash, ev.u.model.hash, HASH_BYTES);
	rt->p.core.model_unknown = false;
	step(rt, &ev);
}

static enum err open_blocks(struct coord_runtime *rt, struct errmsg *em)
{
	struct coord_blocks_params p = {
		.loop = rt->p.loop,
		.log = rt->p.log,
		.core = rt->core,
		.model = rt->p.model,
		.known_dir = rt->p.known_dir,
		.upload_max = rt->p.upload_max,
		.ctx = rt,
		.on_known = on_model_known,
	};
	if (rt->p.listen == NULL)
		return OK; // no other machine ever takes part
	enum err e = coord_blocks_open(&p, &rt->blocks, em);
	if (e != OK)
		return e;
	const uint8_t *hash = coord_blocks_model_hash(rt->blocks);
	rt->p.core.model_unknown = hash == NULL;
	if (hash != NULL)
		memcpy(rt->p.core.model_hash, hash, HASH_BYTES);
	return OK;
}

static enum err open_planner(struct coord_runtime *rt, struct errmsg *em)
{
	struct coord_planner_params p = {
		.loop = rt->p.loop,
		.core = rt->core,
		.config = &rt->p.core,
		.model = rt->p.model,
		.ctx = rt,
		.on_event = on_event,
	};
	return rt->p.core.by_cost ? coord_planner_open(&p, &rt->planner, em) : OK;
}

static enum err allocate(struct coord_runtime *rt, struct errmsg *em)
{
	rt->core = calloc(1, coordinator_size(&rt->p.core));
	rt->fx = malloc(coordinator_effects_size(&rt->p.core));
	rt->tokens = malloc(coordinator_n_tokens(&rt->p.core) * sizeof *rt->tokens);
	if (!rt->core || !rt->fx || !rt->tokens)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the coordinator");
	coordinator_effects_init(&rt->p.core, rt->fx);
	return OK;
}

static enum err restore(struct coord_runtime *rt, struct coord_restored *r, struct errmsg *em)
{
	uint8_t cluster_id[CLUSTER_ID_BYTES];
	randombytes_buf(cluster_id, sizeof cluster_id);
	if (rt->p.store_path == NULL)
		return OK;
	enum err e = coord_store_open(rt->p.store_path, cluster_id, rt->p.loop, on_stored, rt, &rt->store, r, em);
	if (e == OK)
		memcpy(rt->p.core.cluster_id, r->cluster_id, CLUSTER_ID_BYTES);
	return e;
}

// name_port puts the port that the system chose into addresses that were given with port 0.
static void name_port(struct coord_runtime *rt)
{
	struct address_list *list = &rt->p.core.addresses;
	for (uint32_t i = 0; i < list->n; i++) {
		size_t len = strlen(list->at[i]);
		if (len > 2 && strcmp(list->at[i] + len - 2, ":0") == 0)
			snprintf(list->at[i] + len - 1, ADDR_CAP - len + 1, "%u", coord_runtime_port(rt));
	}
}

static enum err start(struct coord_runtime *rt, struct errmsg *em)
{
	struct coord_restored *r = calloc(1, sizeof *r);
	if (r == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory to read the cluster's state");
	enum err e = restore(rt, r, em);
	if (e == OK && rt->p.listen != NULL)
		e = listen_for_nodes(rt, em);
	if (e == OK) {
		name_port(rt);
		coordinator_init(rt->core, &rt->p.core, rt->tokens);
		struct coord_event ev = {.type = COORD_EV_RESTORED};
		ev.u.restored.member_epoch = r->member_epoch;
		ev.u.restored.members = r->members;
		ev.u.restored.n_members = r->n_members;
		ev.u.restored.invites = r->invites;
		ev.u.restored.n_invites = r->n_invites;
		step(rt, &ev);
		struct coord_event probed = {.type = COORD_EV_PROBED, .u.probed.profile = rt->p.profile};
		if (rt->p.profile != NULL)
			step(rt, &probed);
	}
	sodium_memzero(r, sizeof *r);
	free(r);
	return e;
}

enum err coord_runtime_open(const struct coord_runtime_params *p, struct coord_runtime **out, struct errmsg *em)
{
	struct coord_runtime *rt = calloc(1, sizeof *rt);
	if (rt == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the coordinator");
	rt->p = *p;
	rt->queued_last = &rt->queued;
	loop_timer_init(&rt->timer, on_timer, rt);
	loop_task_init(&rt->random_task, on_random, rt);
	loop_task_init(&rt->queue_task, on_queue, rt);
	if (p->keys != NULL)
		lnk1_node_id(p->keys->pk, rt->p.core.self.b);
	enum err e = allocate(rt, em);
	if (e == OK)
		e = open_links(rt, em);
	if (e == OK)
		e = open_head(rt, em);
	if (e == OK)
		e = open_blocks(rt, em);
	if (e == OK)
		e = open_planner(rt, em);
	if (e == OK)
		e = start(rt, em);
	if (e != OK) {
		coord_runtime_close(rt);
		return e;
	}
	if (rt->p.core.has_local_node)
		coord_link_host_start_local(rt->links, rt->p.core.self);
	*out = rt;
	return OK;
}

static void end_requests(struct coord_runtime *rt)
{
	for (size_t i = 0; i < ARRAY_LEN(rt->requests); i++) {
		struct rt_request q = rt->requests[i];
		rt->requests[i].req = 0;
		if (q.req != 0)
			q.r.on_end(q.r.ctx, COORD_END_ERROR, ERR_CLOSED, "the coordinator is stopping", "");
	}
}

void coord_runtime_close(struct coord_runtime *rt)
{
	if (rt == NULL)
		return;
	rt->is_closing = true;
	end_requests(rt);
	coord_tickets_end(&rt->tickets, "the coordinator is stopping");
	coord_link_host_close(rt->links);
	rt->links = NULL;
	loop_timer_clear(rt->p.loop, &rt->timer);
	loop_task_cancel(rt->p.loop, &rt->random_task);
	coord_planner_close(rt->planner);
	coord_blocks_close(rt->blocks);
	coord_head_close(rt->head);
	on_queue(rt); // frees what waits: a closing core takes no step
	loop_task_cancel(rt->p.loop, &rt->queue_task);
	coord_store_close(rt->store);
	free(rt->tokens);
	free(rt->fx);
	if (rt->core)
		sodium_memzero(rt->core, coordinator_size(&rt->p.core));
	free(rt->core);
	sodium_memzero(rt, sizeof *rt);
	free(rt);
}

uint16_t coord_runtime_port(const struct coord_runtime *rt)
{
	return coord_link_host_port(rt->links);
}

const struct coordinator_config *coord_runtime_config(const struct coord_runtime *rt)
{
	return &rt->p.core;
}

void coord_runtime_status(const struct coord_runtime *rt, struct coord_status *out)
{
	coordinator_status(rt->core, out);
}

enum err coord_runtime_view(const struct coord_runtime *rt, enum dtype type, struct cluster_view *out, struct errmsg *em)
{
	return coordinator_view(rt->core, type, out, em);
}

void coord_runtime_head_stats(const struct coord_runtime *rt, struct residency_stats *out)
{
	coord_head_weight_stats(rt->head, out);
}

bool coord_runtime_reading(const struct coord_runtime *rt, struct block_progress *out)
{
	return rt->blocks != NULL && coord_blocks_reading(rt->blocks, out);
}

bool coord_runtime_blocks(const struct coord_runtime *rt, struct node_id id, struct block_progress *out)
{
	return rt->blocks != NULL && coord_blocks_progress(rt->blocks, id, out);
}
