#include "coordinator/shell/coord_runtime.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "coordinator/shell/coord_store.h"
#include "engine/stage_work.h"
#include "kernels/canonical.h"
#include "net/link_listener.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICKETS_MAX 16 // admin commands under way: one per client of the admin socket
#define INVITE_TTL_S 600
#define LOCAL_CONTROL 1 // handles of the local links
#define LOCAL_DATA 2
#define PLACES 512       // links and joins: more than the core takes, so that the core does the refusing

struct rt_link {
	uint32_t handle; // 0: free
	struct link *link;
	bool has_dropped; // a frame that matters could not be sent: it does not end in order
};

struct rt_request {
	uint64_t req; // 0: free
	struct coord_request r;
};

struct rt_ticket {
	uint64_t ticket; // 0: free
	coord_invited invited;
	coord_answered answered;
	void *ctx;
	struct invite invite;
};

struct head_job {
	struct worker_job job;
	struct loop_task task;
	struct coord_runtime *rt;
	uint32_t id;
	bool is_busy;
	int32_t n;
	enum err err;
	struct errmsg em;
	struct embed_item embed[COORD_ITEMS_MAX];
	struct sample_item sample[COORD_ITEMS_MAX];
	struct coord_sampled sampled[COORD_ITEMS_MAX];
};

struct coord_runtime {
	struct coord_runtime_params p;
	struct coordinator *core;
	struct coord_effects *fx;
	int32_t *tokens;
	bool is_stepping, is_closing;

	struct coord_store *store;
	struct lnk1_server_config server;
	struct link_listener *listener;
	struct rt_link links[PLACES];
	uint32_t last_handle;
	struct loop_timer timer;
	struct loop_task random_task;
	struct loop_task queue_task; // carries out what was asked for while the core was stepping, or from inside submit
	struct queued *queued, **queued_last;
	const uint8_t *message;
	size_t message_len;

	uint8_t *bufs;
	size_t buf_bytes;
	struct stage_work *head;
	struct head_job embed, sample;
	struct logits_hash *hashes; // (n_slots)

	struct rt_request requests[2 * SESSIONS_MAX];
	uint64_t last_req, last_ticket;
	struct rt_ticket tickets[TICKETS_MAX];
};

// An event that waits for the loop: submit and friends are called from anywhere on the loop's thread, also from a request's own callback.
struct queued {
	struct queued *next;
	struct coord_event ev;
	int32_t *tokens; // owned, SUBMIT
	char *who;       // owned, REVOKE
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

static struct rt_ticket *find_ticket(struct coord_runtime *rt, uint64_t ticket)
{
	for (size_t i = 0; i < TICKETS_MAX; i++)
		if (rt->tickets[i].ticket == ticket)
			return &rt->tickets[i];
	return NULL;
}

void coord_runtime_invite(struct coord_runtime *rt, coord_invited done, void *ctx)
{
	struct rt_ticket *t = find_ticket(rt, 0);
	if (t == NULL) {
		done(ctx, ERR_BUSY, "too many admin commands at once", NULL);
		return;
	}
	*t = (struct rt_ticket){.ticket = ++rt->last_ticket, .invited = done, .ctx = ctx};
	memcpy(t->invite.server_pk, rt->p.keys->pk, KEY_BYTES);
	do
		randombytes_buf(t->invite.token_id, TOKEN_ID_BYTES);
	while (sodium_is_zero(t->invite.token_id, TOKEN_ID_BYTES));
	randombytes_buf(t->invite.token_secret, KEY_BYTES);
	t->invite.expiry_s = (uint64_t)time(NULL) + INVITE_TTL_S;
	struct coord_event *ev = &enqueue(rt, COORD_EV_INVITE)->ev;
	ev->u.invite.ticket = t->ticket;
	memcpy(ev->u.invite.token_id, t->invite.token_id, TOKEN_ID_BYTES);
	memcpy(ev->u.invite.secret, t->invite.token_secret, KEY_BYTES);
	ev->u.invite.ttl_s = INVITE_TTL_S;
}

void coord_runtime_revoke(struct coord_runtime *rt, const char *who, coord_answered done, void *ctx)
{
	struct rt_ticket *t = find_ticket(rt, 0);
	if (t == NULL) {
		done(ctx, ERR_BUSY, "too many admin commands at once");
		return;
	}
	*t = (struct rt_ticket){.ticket = ++rt->last_ticket, .answered = done, .ctx = ctx};
	struct queued *q = enqueue(rt, COORD_EV_REVOKE);
	q->who = strdup(who);
	if (q->who == NULL)
		abort();
	q->ev.u.revoke.ticket = t->ticket;
	q->ev.u.revoke.who = q->who;
}

static void fx_answer(struct coord_runtime *rt, const struct coord_effect *f)
{
	struct rt_ticket *t = find_ticket(rt, f->u.answer.ticket);
	ASSERT(t != NULL);
	struct rt_ticket copy = *t;
	sodium_memzero(t, sizeof *t);
	if (copy.invited)
		copy.invited(copy.ctx, f->u.answer.err, f->u.answer.text, f->u.answer.err == OK ? &copy.invite : NULL);
	else
		copy.answered(copy.ctx, f->u.answer.err, f->u.answer.text);
	sodium_memzero(&copy, sizeof copy);
}

static void fx_end(struct coord_runtime *rt, const struct coord_effect *f)
{
	struct rt_request *q = find_request(rt, f->u.end.req);
	ASSERT(q != NULL);
	struct coord_request r = q->r;
	char hash[COORD_HASH_HEX_CAP] = "";
	if (r.hash_logits && f->u.end.end != COORD_END_ERROR && f->u.end.end != COORD_END_CANCELLED && f->u.end.slot >= 0)
		logits_hash_hex(&rt->hashes[f->u.end.slot], hash);
	q->req = 0;
	r.on_end(r.ctx, f->u.end.end, f->u.end.err, f->u.end.text, hash);
}

// ---- links

static struct rt_link *find_link(struct coord_runtime *rt, uint32_t handle)
{
	for (size_t i = 0; i < PLACES; i++)
		if (rt->links[i].handle == handle && handle != 0)
			return &rt->links[i];
	return NULL;
}

static struct rt_link *add_link(struct coord_runtime *rt, struct link *link)
{
	for (size_t i = 0; i < PLACES; i++) {
		if (rt->links[i].handle != 0)
			continue;
		rt->links[i] = (struct rt_link){.handle = ++rt->last_handle, .link = link};
		link_set_user(link, &rt->links[i]);
		return &rt->links[i];
	}
	return NULL;
}

static void on_join(void *ctx, struct link *link, const struct link_info *info)
{
	struct coord_runtime *rt = ctx;
	struct rt_link *l = add_link(rt, link);
	if (l == NULL) {
		link_refuse(link);
		return;
	}
	struct coord_event ev = {.type = COORD_EV_JOIN};
	ev.u.join.link = l->handle;
	ev.u.join.id = info->peer;
	memcpy(ev.u.join.token_id, info->token_id, TOKEN_ID_BYTES);
	memcpy(ev.u.join.public_key, info->peer_pk, KEY_BYTES);
	randombytes_buf(ev.u.join.random, KEY_BYTES);
	step(rt, &ev);
	sodium_memzero(&ev, sizeof ev);
}

static void on_invite_failed(void *ctx, const uint8_t token_id[LNK1_TOKEN_ID_LEN])
{
	struct coord_event ev = {.type = COORD_EV_JOIN_FAILED};
	memcpy(ev.u.join_failed.token_id, token_id, TOKEN_ID_BYTES);
	step(ctx, &ev);
}

static void on_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct coord_runtime *rt = ctx;
	struct rt_link *l = link_user(link); // a join's has one already
	if (l == NULL)
		l = add_link(rt, link);
	if (l == NULL) {
		link_close(link);
		return;
	}
	char remote[STREAM_PEER_TEXT];
	stream_peer_text(&info->addr, remote);
	char *colon = strrchr(remote, ':');
	if (colon != NULL)
		*colon = '\0';
	struct coord_event ev = {.type = COORD_EV_LINK_UP};
	ev.u.link_up.link = l->handle;
	ev.u.link_up.peer = info->peer;
	ev.u.link_up.kind = info->mode == LNK1_JOIN ? COORD_LINK_JOIN : info->kind == LNK1_CONTROL ? COORD_LINK_CONTROL : COORD_LINK_DATA;
	ev.u.link_up.remote = remote;
	step(rt, &ev);
}

static void on_message(struct coord_runtime *rt, uint32_t handle, const uint8_t *frame, size_t len)
{
	rt->message = frame;
	rt->message_len = len;
	struct coord_event ev = {.type = COORD_EV_MESSAGE};
	ev.u.message.link = handle;
	ev.u.message.data = frame;
	ev.u.message.len = len;
	step(rt, &ev);
	rt->message = NULL;
}

static void on_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	struct rt_link *l = link_user(link);
	if (l != NULL)
		on_message(ctx, l->handle, frame, len);
}

static void on_down(void *ctx, struct link *link, const struct link_down *down)
{
	struct rt_link *l = link_user(link);
	if (l == NULL)
		return;
	struct coord_event ev = {.type = COORD_EV_LINK_DOWN};
	ev.u.link_down.link = l->handle;
	ev.u.link_down.orderly = !l->has_dropped && (down->reason == LINK_DOWN_CLOSED || down->reason == LINK_DOWN_PEER_CLOSED);
	ev.u.link_down.reason = down->text;
	l->handle = 0;
	step(ctx, &ev);
}

static void send_on(struct coord_runtime *rt, uint32_t handle, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t len)
{
	enum err e;
	if (handle == LOCAL_CONTROL || handle == LOCAL_DATA) {
		e = local_link_send(handle == LOCAL_CONTROL ? rt->p.local_control : rt->p.local_data, 0, head, head_len, payload, len);
	} else {
		struct rt_link *l = find_link(rt, handle);
		if (l == NULL)
			return;
		e = link_send2(l->link, head, head_len, payload, len);
		l->has_dropped = l->has_dropped || (e != OK && !frame_is_ping(head));
		if (e != OK)
			link_close(l->link); // a frame must not be lost in the middle: the link ends instead
	}
	if (e != OK && e != ERR_CLOSED)
		log_line(rt->p.log, LOG_ERROR, "a frame could not be sent to a node: %s", err_words(e));
}

static void fx_close(struct coord_runtime *rt, const struct coord_effect *f)
{
	struct rt_link *l = find_link(rt, f->u.close.link);
	if (l != NULL)
		link_close(l->link); // its on_down comes from the loop
}

static void fx_judge(struct coord_runtime *rt, uint32_t handle, bool accept)
{
	struct rt_link *l = find_link(rt, handle);
	if (l == NULL)
		return;
	if (accept)
		link_accept(l->link);
	else
		link_refuse(l->link);
}

// ---- the head's engine

static void job_done(struct worker_job *job)
{
	struct head_job *j = (struct head_job *)job;
	loop_task_post(j->rt->p.loop, &j->task);
}

static void job_start(struct coord_runtime *rt, struct head_job *j, void (*run)(struct worker_job *))
{
	ASSERT(!j->is_busy);
	j->is_busy = true;
	j->job.run = run;
	j->job.done = job_done;
	worker_submit(rt->p.worker, &j->job);
}

static void run_embed(struct worker_job *job)
{
	struct head_job *j = (struct head_job *)job;
	j->err = stage_work_embed(j->rt->head, j->embed, j->n, &j->em);
}

static void on_embedded(void *ctx)
{
	struct head_job *j = ctx;
	j->is_busy = false;
	if (j->err != OK)
		log_line(j->rt->p.log, LOG_ERROR, "%s", j->em.text);
	struct coord_event ev = {.type = COORD_EV_FORWARD_DONE};
	ev.u.forward_done.id = j->id;
	ev.u.forward_done.err = j->err;
	step(j->rt, &ev);
}

static void fx_forward(struct coord_runtime *rt, const struct coord_effect *f)
{
	struct head_job *j = &rt->embed;
	j->id = f->u.forward.id;
	j->n = f->u.forward.n_items;
	for (int32_t i = 0; i < j->n; i++) {
		const struct coord_embed_item *it = &f->u.forward.items[i];
		j->embed[i] = (struct embed_item){.tokens = it->tokens, .n_tokens = it->n_tokens, .wire = rt->bufs + (size_t)it->buf * rt->buf_bytes};
	}
	job_start(rt, j, run_embed);
}

static void run_sample(struct worker_job *job)
{
	struct head_job *j = (struct head_job *)job;
	stage_work_sample(j->rt->head, j->sample, j->n, &j->em);
}

static void on_sampled(void *ctx)
{
	struct head_job *j = ctx;
	j->is_busy = false;
	for (int32_t i = 0; i < j->n; i++)
		j->sampled[i] = (struct coord_sampled){.token = j->sample[i].token, .err = j->sample[i].err};
	struct coord_event ev = {.type = COORD_EV_SAMPLED};
	ev.u.sampled.id = j->id;
	ev.u.sampled.items = j->sampled;
	ev.u.sampled.text = j->em.text;
	step(j->rt, &ev);
}

static void fx_sample(struct coord_runtime *rt, const struct coord_effect *f)
{
	struct head_job *j = &rt->sample;
	j->id = f->u.sample.id;
	j->n = f->u.sample.n_items;
	for (int32_t i = 0; i < j->n; i++) {
		const struct coord_sample_item *it = &f->u.sample.items[i];
		if (it->first)
			logits_hash_init(&rt->hashes[it->slot]); // one SAMPLE is under way at a time: the worker does not read it now
		j->sample[i] = (struct sample_item){
			.wire = rt->bufs + (size_t)it->buf * rt->buf_bytes,
			.n_rows = it->n_rows,
			.hash = it->hash ? &rt->hashes[it->slot] : NULL,
			.draw = it->draw,
			.pos = it->pos,
			.sampling = it->sampling,
		};
	}
	job_start(rt, j, run_sample);
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

static void carry_out(struct coord_runtime *rt, const struct coord_effect *f)
{
	switch (f->type) {
	case COORD_FX_SEND:
		send_on(rt, f->u.send.link, f->u.send.head, f->u.send.head_len,
			f->u.send.buf >= 0 ? rt->bufs + (size_t)f->u.send.buf * rt->buf_bytes + f->u.send.off : NULL, f->u.send.len);
		break;
	case COORD_FX_RELAY:
		ASSERT(rt->message != NULL);
		send_on(rt, f->u.close.link, rt->message, rt->message_len, NULL, 0);
		break;
	case COORD_FX_TAKE:
		ASSERT(rt->message != NULL);
		ASSERT(f->u.take.msg_off + f->u.take.len <= rt->message_len);
		ASSERT(f->u.take.len <= rt->buf_bytes);
		memcpy(rt->bufs + (size_t)f->u.take.buf * rt->buf_bytes, rt->message + f->u.take.msg_off, f->u.take.len);
		break;
	case COORD_FX_CLOSE: fx_close(rt, f); break;
	case COORD_FX_ACCEPT: fx_judge(rt, f->u.close.link, true); break;
	case COORD_FX_REFUSE: fx_judge(rt, f->u.close.link, false); break;
	case COORD_FX_FORWARD: fx_forward(rt, f); break;
	case COORD_FX_SAMPLE: fx_sample(rt, f); break;
	case COORD_FX_EMIT: {
		struct rt_request *q = find_request(rt, f->u.emit.req);
		ASSERT(q != NULL);
		q->r.on_token(q->r.ctx, f->u.emit.token, f->u.emit.pos);
		break;
	}
	case COORD_FX_END: fx_end(rt, f); break;
	case COORD_FX_STORE: fx_store(rt, f); break;
	case COORD_FX_ANSWER: fx_answer(rt, f); break;
	case COORD_FX_NEED_RANDOM: loop_task_post(rt->p.loop, &rt->random_task); break;
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
	rt->server.member_epoch = coordinator_member_epoch(rt->core).v;
	rt->is_stepping = false;
	int64_t deadline = coordinator_deadline_ns(rt->core);
	if (deadline != INT64_MAX)
		loop_timer_set(rt->p.loop, &rt->timer, deadline);
}

static void on_timer(void *ctx)
{
	struct coord_event ev = {.type = COORD_EV_TICK};
	step(ctx, &ev);
}

// ---- the node on this machine

static void on_local_control(void *ctx, uint32_t end, const uint8_t *frame, size_t len)
{
	(void)end;
	on_message(ctx, LOCAL_CONTROL, frame, len);
}

static void on_local_data(void *ctx, uint32_t end, const uint8_t *frame, size_t len)
{
	(void)end;
	on_message(ctx, LOCAL_DATA, frame, len);
}

static void start_local(struct coord_runtime *rt)
{
	static const enum coord_link_kind kinds[] = {COORD_LINK_DATA, COORD_LINK_CONTROL};
	static const uint32_t handles[] = {LOCAL_DATA, LOCAL_CONTROL};
	local_link_attach(rt->p.local_control, 0, &(struct local_callbacks){.ctx = rt, .on_frame = on_local_control});
	local_link_attach(rt->p.local_data, 0, &(struct local_callbacks){.ctx = rt, .on_frame = on_local_data});
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct coord_event ev = {.type = COORD_EV_LINK_UP};
		ev.u.link_up.link = handles[i];
		ev.u.link_up.peer = rt->p.core.self;
		ev.u.link_up.kind = kinds[i];
		ev.u.link_up.remote = "";
		step(rt, &ev);
	}
}

// ---- opening

static bool find_token(void *ctx, const uint8_t token_id[LNK1_TOKEN_ID_LEN], uint8_t secret[LNK1_KEY_LEN])
{
	return coordinator_find_token(((struct coord_runtime *)ctx)->core, token_id, time(NULL), secret);
}

static bool find_member(void *ctx, const uint8_t node_pk[LNK1_KEY_LEN], uint8_t psk[LNK1_KEY_LEN])
{
	return coordinator_find_psk(((struct coord_runtime *)ctx)->core, node_pk, psk);
}

static enum err open_listener(struct coord_runtime *rt, struct errmsg *em)
{
	rt->server = (struct lnk1_server_config){
		.self = rt->p.keys,
		.lookup = {.ctx = rt, .token = find_token, .member = find_member},
		.protocol_min = PROTOCOL_VERSION,
		.protocol_max = PROTOCOL_VERSION,
		.canon_version = CANON_VERSION,
		.record_max = {CONTROL_RECORD_MAX, DATA_RECORD_MAX, DATA_RECORD_MAX},
	};
	memcpy(rt->server.cluster_id, rt->p.core.cluster_id, CLUSTER_ID_BYTES);
	struct link_listener_params lp = {
		.addr = rt->p.listen,
		.cfg = &rt->server,
		.limits = rt->p.limits,
		.log = rt->p.log,
		.callbacks = {.ctx = rt, .on_up = on_up, .on_frame = on_frame, .on_down = on_down},
		.ctx = rt,
		.on_join = on_join,
		.on_invite_failed = on_invite_failed,
	};
	return link_listener_open(&rt->listener, rt->p.loop, &lp, em);
}

static enum err open_head(struct coord_runtime *rt, struct errmsg *em)
{
	struct engine_config c = {
		.model = rt->p.model,
		.kernels = worker_kernels(rt->p.worker),
		.pool = worker_pool(rt->p.worker),
		.has_head = true,
		.batch_max = rt->p.core.chunk_max,
		.wire = rt->p.core.wire,
	};
	return stage_work_open(&c, &rt->head, em);
}

static enum err allocate(struct coord_runtime *rt, struct errmsg *em)
{
	const struct coordinator_config *c = &rt->p.core;
	size_t n_bufs = (size_t)coordinator_n_bufs(c);
	rt->buf_bytes = coordinator_buf_bytes(c);
	rt->core = calloc(1, coordinator_size());
	rt->fx = calloc(1, sizeof *rt->fx);
	rt->tokens = malloc((size_t)SESSIONS_MAX * (size_t)c->ctx_len * sizeof *rt->tokens);
	rt->bufs = malloc(n_bufs * rt->buf_bytes);
	rt->hashes = calloc((size_t)c->n_slots, sizeof *rt->hashes);
	if (rt->core && rt->fx && rt->tokens && rt->bufs && rt->hashes)
		return OK;
	return errmsg_fail(em, ERR_NOMEM, "no memory for the coordinator (%zu MiB of buffers)", n_bufs * rt->buf_bytes >> 20);
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
		e = open_listener(rt, em);
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
	rt->last_handle = LOCAL_DATA;
	rt->queued_last = &rt->queued;
	loop_timer_init(&rt->timer, on_timer, rt);
	loop_task_init(&rt->random_task, on_random, rt);
	loop_task_init(&rt->queue_task, on_queue, rt);
	loop_task_init(&rt->embed.task, on_embedded, &rt->embed);
	loop_task_init(&rt->sample.task, on_sampled, &rt->sample);
	rt->embed.rt = rt->sample.rt = rt;
	if (p->keys != NULL)
		lnk1_node_id(p->keys->pk, rt->p.core.self.b);
	enum err e = allocate(rt, em);
	if (e == OK)
		e = open_head(rt, em);
	if (e == OK)
		e = start(rt, em);
	if (e != OK) {
		coord_runtime_close(rt);
		return e;
	}
	if (rt->p.core.has_local_node)
		start_local(rt);
	*out = rt;
	return OK;
}

static bool jobs_are_done(void *ctx)
{
	struct coord_runtime *rt = ctx;
	return !rt->embed.is_busy && !rt->sample.is_busy;
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

static void end_tickets(struct coord_runtime *rt)
{
	static const char why[] = "the coordinator is stopping";
	for (size_t i = 0; i < TICKETS_MAX; i++) {
		struct rt_ticket t = rt->tickets[i];
		sodium_memzero(&rt->tickets[i], sizeof rt->tickets[i]);
		if (t.ticket != 0 && t.invited)
			t.invited(t.ctx, ERR_CLOSED, why, NULL);
		else if (t.ticket != 0)
			t.answered(t.ctx, ERR_CLOSED, why);
	}
}

void coord_runtime_close(struct coord_runtime *rt)
{
	if (rt == NULL)
		return;
	rt->is_closing = true;
	end_requests(rt);
	end_tickets(rt);
	local_link_detach(rt->p.local_control, 0);
	local_link_detach(rt->p.local_data, 0);
	link_listener_close(rt->listener);
	for (size_t i = 0; i < PLACES; i++)
		if (rt->links[i].handle != 0)
			link_abort(rt->links[i].link);
	loop_timer_clear(rt->p.loop, &rt->timer);
	loop_task_cancel(rt->p.loop, &rt->random_task);
	loop_run_until(rt->p.loop, jobs_are_done, rt, INT64_MAX); // a batch under way ends within seconds
	on_queue(rt); // frees what waits: a closing core takes no step
	loop_task_cancel(rt->p.loop, &rt->queue_task);
	coord_store_close(rt->store);
	stage_work_close(rt->head);
	free(rt->hashes);
	free(rt->bufs);
	free(rt->tokens);
	free(rt->fx);
	if (rt->core)
		sodium_memzero(rt->core, coordinator_size());
	free(rt->core);
	sodium_memzero(rt, sizeof *rt);
	free(rt);
}

uint16_t coord_runtime_port(const struct coord_runtime *rt)
{
	return rt->listener ? link_listener_port(rt->listener) : 0;
}

const struct coordinator_config *coord_runtime_config(const struct coord_runtime *rt)
{
	return &rt->p.core;
}

void coord_runtime_status(const struct coord_runtime *rt, struct coord_status *out)
{
	coordinator_status(rt->core, out);
}
