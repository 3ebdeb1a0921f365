// The host of a simulated node: what node/shell/node_runtime does, in virtual time.
#include "sim/world_state.h"

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

static void set_tick(struct sim_world *w, struct sim_node *n)
{
	int64_t at_ns = node_deadline_ns(n->core);
	if (sim_timer_is_set(&n->tick) && n->tick_ns <= at_ns)
		return; // comes early and looks again
	sim_cancel(w, &n->tick);
	if (at_ns == INT64_MAX)
		return;
	sim_set_timer(w, at_ns, EV_TICK, n->machine, &n->tick);
	n->tick_ns = at_ns;
}

// ---- effects

uint8_t *sim_node_buf(struct sim_node *n, int32_t buf)
{
	ASSERT(buf >= 0 && buf < n->n_bufs);
	return n->bufs + (size_t)buf * n->buf_kept;
}

static size_t kept(const struct sim_world *w, size_t real)
{
	return real / w->model.row_real * w->model.row_kept;
}

void sim_local_send(struct sim_world *w, int32_t to, uint32_t link, const struct sim_send *s)
{
	int64_t *last_ns = &w->local_ns[to != SIM_HEAD], at_ns = w->now_ns + SIM_LOCAL_NS;
	at_ns = at_ns > *last_ns ? at_ns : *last_ns + 1;
	*last_ns = at_ns;
	struct sim_event *ev = sim_at(w, at_ns, EV_LOCAL, to);
	ev->id = link;
	ev->packet = sim_packet_new(PK_FRAME, s);
}

static void fx_send(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	bool is_part = f->u.send.pool == NODE_PARTS; // which are whole here, too
	bool is_reply = f->u.send.len > 0 && sim_is_reply(f->u.send.head);
	struct sim_send s = {.head = f->u.send.head, .head_len = f->u.send.head_len, .rows_real = f->u.send.len,
		.rows_kept = is_part ? f->u.send.len : is_reply ? CHAIN_ROW : kept(w, f->u.send.len)};
	if (f->u.send.buf >= 0)
		s.rows = is_part ? sim_node_part(n, f->u.send.buf) + f->u.send.off : sim_node_buf(n, f->u.send.buf) + kept(w, f->u.send.off);
	sim_note(w, f->u.send.link, sim_mix_bytes(0, s.head, s.head_len));
	checks_on_sent(w, s.head, s.head_len);
	if (n->machine > 0) {
		sim_link_send(w, n->machine, f->u.send.link, &s);
		return;
	}
	sim_local_send(w, SIM_HEAD, f->u.send.link, &s);
}

static void fx_take(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	ASSERT(w->message != NULL);
	if (f->u.take.pool == NODE_PARTS) {
		sim_forward_take_part(w, n, f);
		return;
	}
	size_t len = kept(w, f->u.take.len), off = kept(w, f->u.take.off);
	ASSERT(f->u.take.msg_off + len <= w->message_stored);
	ASSERT(off + len <= n->buf_kept);
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
		for (int32_t i = 0; i < n->forwards[k].n && n->forwards[k].is_busy; i++)
			if (n->forwards[k].items[i].buf == f->u.take.buf)
			sim_world_fail(w, "node %d takes a step into buffer %d, which its engine works on", n->machine, f->u.take.buf);
	memcpy(sim_node_buf(n, f->u.take.buf) + off, w->message + f->u.take.msg_off, len);
}

// ---- blocks. A layer's are in 32 pieces, of which a member of a group needs those that its share of the whole touches.

#define PIECES 32

static uint32_t pieces_of(const struct layer_part *part)
{
	uint64_t before = 0, all = 0;
	if (part->n == 0)
		return UINT32_MAX;
	for (int32_t i = 0; i < part->n; i++) {
		before += i < part->place ? part->shares[i] : 0;
		all += part->shares[i];
	}
	uint64_t begin = before * PIECES / all, end = ((before + part->shares[part->place]) * PIECES + all - 1) / all;
	return (uint32_t)((UINT64_C(1) << end) - (UINT64_C(1) << begin));
}

static struct layer_part part_of(const struct msg_group *g)
{
	return layer_part_of(g->n_members, g->self, g->mode, g->shares);
}

// take_pieces puts up to n_max missing pieces of these layers on the disk, if `takes`; returns how many were missing, n_max at most.
static int64_t take_pieces(struct sim_node *n, const struct layer_spans *layers, const struct layer_part *part, int64_t n_max, bool takes)
{
	int64_t n_taken = 0;
	for (int32_t i = 0; i < layers->n; i++) {
		for (int32_t layer = layers->at[i].begin; layer < layers->at[i].end; layer++) {
			for (uint32_t left = pieces_of(part) & ~n->blocks[layer]; left != 0 && n_taken < n_max; left &= left - 1, n_taken++)
				n->blocks[layer] |= takes ? left & -left : 0;
		}
	}
	return n_taken;
}

int64_t sim_node_missing(struct sim_node *n, const struct layer_spans *layers, const struct layer_part *part)
{
	return take_pieces(n, layers, part, INT64_MAX, false);
}

// fetch_ns: how long the blocks that are missing take.
static int64_t fetch_ns(const struct sim_world *w, struct sim_node *n, const struct layer_spans *layers, const struct layer_part *part)
{
	return sim_node_missing(n, layers, part) * w->machines[n->machine].fetch_layer_ns / PIECES;
}

static void fx_prepare(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	if (n->prepares || w->machines[n->machine].fetch_layer_ns == 0)
		sim_world_fail(w, "node %d fetches %s", n->machine, n->prepares ? "twice at once" : "what it has");
	n->prepare = *f;
	n->prepare_ns = w->now_ns;
	n->prepares = true;
	sim_at(w, w->now_ns + fetch_ns(w, n, &f->u.prepare.layers, &f->u.prepare.part), EV_PREPARED, n->machine)->id = f->u.prepare.id;
}

// end_prepare keeps what came by now, piece by piece. True: all of it.
static bool end_prepare(const struct sim_world *w, struct sim_node *n)
{
	const struct layer_spans *layers = &n->prepare.u.prepare.layers;
	const struct layer_part *part = &n->prepare.u.prepare.part;
	int64_t layer_ns = w->machines[n->machine].fetch_layer_ns;
	n->prepares = false;
	(void)take_pieces(n, layers, part, ((w->now_ns - n->prepare_ns) * PIECES + PIECES - 1) / (layer_ns > 0 ? layer_ns : 1), true);
	return sim_node_missing(n, layers, part) == 0;
}

static void on_prepared(struct sim_world *w, struct sim_node *n, uint32_t id)
{
	struct node_event ev = {.type = NODE_EV_PREPARED};
	if (!n->prepares || n->prepare.u.prepare.id != id)
		return;
	bool is_full = w->hosts[n->machine].disk == SIM_DISK_FULL;
	ev.u.prepared.id = id;
	ev.u.prepared.text = is_full ? "the disk is full" : "it was stopped";
	if (is_full) {
		n->prepares = false;
		ev.u.prepared.err = ERR_LIMIT;
	} else if (!end_prepare(w, n)) {
		ev.u.prepared.err = ERR_CANCELLED;
	}
	w->counts.n_prepared += ev.u.prepared.err == OK;
	sim_node_step(w, n, &ev);
}

static void fx_stop_prepare(struct sim_world *w, struct sim_node *n)
{
	sim_at(w, w->now_ns + SIM_LOCAL_NS, EV_PREPARED, n->machine)->id = n->prepare.u.prepare.id;
}

static void fx_load(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	const struct layer_spans *layers = &f->u.load.layers;
	struct sim_work work = {.kind = SIM_LOAD, .machine = n->machine, .layer_begin = layers->at[0].begin,
		.layer_end = layers->at[0].begin + layer_spans_count(layers), .stream_share = f->u.load.stream_share};
	if (sim_forward_is_busy(n))
		sim_world_fail(w, "node %d loads while its engine computes", n->machine);
	if (n->prepares)
		sim_world_fail(w, "node %d loads while it fetches other layers", n->machine);
	struct layer_part part = part_of(f->u.load.group);
	int64_t wait_ns = fetch_ns(w, n, layers, &part);
	w->counts.n_waited += wait_ns > 0;
	n->load = *f;
	n->load_group = *f->u.load.group;
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
		n->forwards[k].is_waiting = false; // given up
	sim_at(w, w->now_ns + wait_ns + sim_duration(w, &work), EV_LOADED, n->machine)->id = f->u.load.id;
}

static void fx_unload(struct sim_world *w, struct sim_node *n)
{
	if (sim_forward_is_busy(n))
		sim_world_fail(w, "node %d unloads while its engine computes", n->machine);
	sim_engine_close(n->engine);
	n->engine = NULL;
	free(n->bufs);
	n->bufs = NULL;
	n->n_bufs = 0;
	sim_forward_set_group(w, n, NULL);
}

static void start_store(struct sim_world *w, struct sim_node *n, uint64_t epoch)
{
	struct sim_work work = {.kind = SIM_STORE, .machine = n->machine};
	n->store_is_busy = true;
	n->store_epoch = epoch;
	sim_at(w, w->now_ns + sim_duration(w, &work), EV_STORED, n->machine);
}

static void fx_store(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	if (n->machine == 0 || n->store_is_busy)
		return; // the coordinator's own store has it; the newest is written when this write is done
	n->store_id = f->u.store.id;
	start_store(w, n, f->u.store.member_epoch.v);
}

static void fx_exit(struct sim_world *w, struct sim_node *n)
{
	sim_log(w, n->machine, "ends");
	sim_node_stop(w, n);
	sim_link_drop_all(w, n->machine, false);
	w->hosts[n->machine].life++;
}

static void carry_out(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	sim_note(w, 20 + (uint64_t)f->type, (uint64_t)(uint32_t)n->machine);
	switch (f->type) {
	case NODE_FX_CONNECT: sim_dial_connect(w, n, f); break;
	case NODE_FX_DISCONNECT: sim_dial_disconnect(w, n, f); break;
	case NODE_FX_REFRESH: sim_dial_refresh(w, n, f); break;
	case NODE_FX_CLOSE: (f->u.close.orderly ? sim_link_close : sim_link_cut)(w, n->machine, f->u.close.link); break;
	case NODE_FX_SEND: fx_send(w, n, f); break;
	case NODE_FX_TAKE: fx_take(w, n, f); break;
	case NODE_FX_LOAD: fx_load(w, n, f); break;
	case NODE_FX_STOP_LOAD: break; // it ends when it would have
	case NODE_FX_PREPARE: fx_prepare(w, n, f); break;
	case NODE_FX_STOP_PREPARE: fx_stop_prepare(w, n); break;
	case NODE_FX_UNLOAD: fx_unload(w, n); break;
	case NODE_FX_FORWARD: sim_forward_begin(w, n, f); break;
	case NODE_FX_CONTINUE: sim_forward_continue(w, n, f); break;
	case NODE_FX_KEEP:
	case NODE_FX_FETCH:
	case NODE_FX_DROP:
	case NODE_FX_KEEP_DISK:
	case NODE_FX_FETCH_DISK:
	case NODE_FX_TAKE_FETCHED: sim_kept_carry_out(w, n, f); break;
	case NODE_FX_STORE: fx_store(w, n, f); break;
	case NODE_FX_PROBE:
	case NODE_FX_STOP_PROBE: break; // a simulated machine knows what it can do
	case NODE_FX_LOG: sim_log(w, n->machine, f->u.log.text); break;
	case NODE_FX_EXIT: fx_exit(w, n); break;
	}
}

void sim_node_step(struct sim_world *w, struct sim_node *n, struct node_event *ev)
{
	struct node_effects *fx = w->node_fx;
	ev->now_ns = w->now_ns;
	w->counts.n_steps_of_cores++;
	node_step(n->core, ev, fx);
	for (int32_t i = 0; i < fx->n && n->is_running; i++)
		carry_out(w, n, &fx->at[i]);
	if (!n->is_running)
		return;
	if (w->config.check_each)
		node_check(n->core);
	set_tick(w, n);
}

// ---- links

void sim_node_on_up(struct sim_world *w, struct sim_node *n, struct sim_conn *c, bool by_us)
{
	if (c->mode == LNK1_JOIN) {
		ASSERT(c->serial == n->join_conn);
		return; // its grant comes as a frame
	}
	if (by_us)
		sim_dial_on_up(w, n, c);
	int32_t peer = sim_link_peer(c, n->machine);
	uint32_t *place = NULL;
	bool is_spare = false;
	for (size_t i = 0; i < ARRAY_LEN(n->links); i++) {
		const struct sim_conn *old = sim_conn_find(w, n->links[i]);
		if (old == NULL) {
			place = place ? place : &n->links[i];
			continue;
		}
		if (peer == SIM_HEAD || sim_link_peer(old, n->machine) != peer)
			continue;
		bool old_by_us = old->end[0].party == n->machine;
		is_spare = is_spare || dup_link_decide(n->id, w->nodes[peer].id, old_by_us, by_us) == DUP_LINK_KEEP_OLD;
	}
	if (place == NULL) {
		sim_link_cut(w, n->machine, c->serial);
		return;
	}
	*place = c->serial;
	struct node_event ev = {.type = NODE_EV_LINK_UP};
	ev.u.link_up.link = c->serial;
	ev.u.link_up.peer = peer == SIM_HEAD ? w->head.id : w->nodes[peer].id;
	ev.u.link_up.kind = c->kind == LNK1_CONTROL ? NODE_LINK_CONTROL : NODE_LINK_DATA;
	ev.u.link_up.spare = is_spare;
	sim_node_step(w, n, &ev);
}

void sim_node_on_down(struct sim_world *w, struct sim_node *n, uint32_t serial, enum sim_down why)
{
	if (serial == n->join_conn) {
		sim_join_over(w, n);
		return;
	}
	if (!sim_dial_on_down(w, n, serial))
		return;
	for (size_t i = 0; i < ARRAY_LEN(n->links); i++) {
		if (n->links[i] != serial)
			continue;
		n->links[i] = 0;
		struct node_event ev = {.type = NODE_EV_LINK_DOWN};
		ev.u.link_down.link = serial;
		ev.u.link_down.orderly = why == SIM_DOWN_CLOSED || why == SIM_DOWN_PEER_CLOSED;
		ev.u.link_down.reason = sim_down_words(why);
		sim_node_step(w, n, &ev);
		return;
	}
}

// after_message looks whether a member did at once what a revocation wants.
static void after_message(struct sim_world *w, struct sim_node *n, const uint8_t *frame, size_t len)
{
	struct msg m;
	struct errmsg em;
	if (len > 0 && frame[0] == FRAME_CONTROL && msg_decode(frame, len, &m, &em) == OK && m.type == MSG_REVOKED)
		checks_on_revoked(w, n->machine, m.u.revoked.node);
}

// n_of_frame counts what a frame may have caused: a report on what was heard so far was due, whatever the frame says.
static int32_t n_of_frame(const struct node_effects *fx)
{
	struct msg m;
	struct errmsg em;
	int32_t n = 0;
	for (int32_t i = 0; i < fx->n; i++) {
		const struct node_effect *f = &fx->at[i];
		bool is_report = f->type == NODE_FX_SEND && f->u.send.head_len > 0 && f->u.send.head[0] == FRAME_CONTROL &&
			msg_decode(f->u.send.head, f->u.send.head_len, &m, &em) == OK && m.type == MSG_NODE_REPORT;
		n += !is_report;
	}
	return n;
}

void sim_node_on_frame(struct sim_world *w, struct sim_node *n, uint32_t link, const struct sim_packet *p, const uint8_t *frame)
{
	if (link == n->join_conn && link != 0) {
		sim_join_on_frame(w, n, frame, p->stored);
		return;
	}
	bool is_known = n->machine == 0;
	for (size_t i = 0; i < ARRAY_LEN(n->links); i++)
		is_known = is_known || n->links[i] == link;
	if (!is_known)
		return;
	struct node_status before;
	bool is_data = p->stored > 0 && (frame[0] == FRAME_STEP || frame[0] == FRAME_CREDIT || frame[0] == FRAME_PART);
	if (is_data)
		node_status_get(n->core, &before);
	w->message = frame;
	w->message_stored = p->stored;
	struct node_event ev = {.type = NODE_EV_MESSAGE};
	ev.u.message.link = link;
	ev.u.message.data = frame;
	ev.u.message.len = p->frame_len;
	sim_node_step(w, n, &ev);
	w->message = NULL;
	if (is_data)
		checks_on_stale(w, n->machine, before.epoch.v, frame, p->stored, n_of_frame(w->node_fx));
	else if (n->is_running)
		after_message(w, n, frame, p->stored);
}

// ---- completions

static void on_loaded(struct sim_world *w, struct sim_node *n)
{
	const struct node_effect *f = &n->load;
	struct errmsg em = {""};
	enum err e = w->hosts[n->machine].out_of_memory ? errmsg_fail(&em, ERR_NOMEM, "no memory for its layers") : OK;
	free(n->bufs);
	n->n_bufs = f->u.load.n_bufs;
	n->buf_kept = kept(w, f->u.load.buf_bytes);
	n->bufs = malloc((size_t)n->n_bufs * n->buf_kept);
	if (e == OK && n->bufs == NULL)
		e = errmsg_fail(&em, ERR_NOMEM, "no memory for buffers");
	struct sim_engine *old = n->engine;
	n->engine = NULL;
	if (e == OK)
		e = sim_engine_open(&w->model, &f->u.load.layers, f->u.load.n_slots, &n->engine, &em);
	enum err shared = sim_forward_set_group(w, n, &em);
	e = e == OK ? shared : e;
	if (e == OK && old != NULL)
		sim_engine_take_kv(n->engine, old);
	sim_engine_close(old);
	struct layer_part part = part_of(&n->load_group);
	(void)take_pieces(n, &f->u.load.layers, &part, INT64_MAX, true);
	struct node_event ev = {.type = NODE_EV_LOADED};
	ev.u.loaded.id = f->u.load.id;
	ev.u.loaded.err = e;
	ev.u.loaded.text = em.text;
	ev.u.loaded.part_bytes = n->part_bytes;
	sim_node_step(w, n, &ev);
}

// keep writes the node's membership; false: the disk refuses.
static enum err keep(struct sim_world *w, struct sim_node *n, const struct sim_membership *m)
{
	struct sim_host *h = &w->hosts[n->machine];
	if (h->disk == SIM_DISK_FULL || h->disk == SIM_DISK_EIO)
		return ERR_IO; // the old file stays: a new one is renamed over it when it is whole
	n->disk = *m;
	if (h->disk != SIM_DISK_LOST_SYNC)
		n->synced = *m;
	return OK;
}

enum err sim_node_keep(struct sim_world *w, struct sim_node *n, const struct sim_membership *m)
{
	if (!w->hosts[n->machine].tear_next)
		return keep(w, n, m);
	w->hosts[n->machine].tear_next = false;
	if (rng_below(&w->rng_fault, 2) == 0)
		(void)keep(w, n, m);
	sim_world_crash(w, n->machine, true);
	return ERR_IO;
}

static void on_stored(struct sim_world *w, struct sim_node *n)
{
	struct sim_membership m = n->own;
	m.member_epoch = n->store_epoch;
	n->store_is_busy = false;
	enum err e = sim_node_keep(w, n, &m);
	if (!n->is_running)
		return;
	if (n->store_epoch < node_member_epoch(n->core).v)
		start_store(w, n, node_member_epoch(n->core).v);
	struct node_event ev = {.type = NODE_EV_STORED};
	ev.u.stored.id = n->store_id;
	ev.u.stored.err = e;
	sim_node_step(w, n, &ev);
}

void sim_node_on_event(struct sim_world *w, struct sim_event *ev)
{
	struct sim_node *n = &w->nodes[ev->who];
	struct node_event tick = {.type = NODE_EV_TICK};
	switch (ev->type) {
	case EV_JOIN: sim_join_try(w, n); return;
	case EV_JOIN_PATIENCE: sim_join_on_patience(w, n); return;
	case EV_TICK:
		if (node_deadline_ns(n->core) <= w->now_ns)
			sim_node_step(w, n, &tick);
		else
			set_tick(w, n);
		return;
	case EV_DIAL: sim_dial_attempt(w, n, &n->dialers[ev->arg]); return;
	case EV_FORWARDED: sim_forward_on_done(w, n, ev->id); return;
	case EV_LOADED: on_loaded(w, n); return;
	case EV_PREPARED: on_prepared(w, n, ev->id); return;
	case EV_STORED: on_stored(w, n); return;
	case EV_KEPT: sim_kept_on_done(w, n); return;
	case EV_LOCAL:
		checks_on_come(w, n->machine, ev->packet->data, ev->packet->stored);
		sim_node_on_frame(w, n, ev->id, ev->packet, ev->packet->data);
		return;
	default: ASSERT(!"no event of a node");
	}
}

// ---- the process

static void start_local(struct sim_world *w, struct sim_node *n)
{
	static const enum node_link_kind kinds[] = {NODE_LINK_DATA, NODE_LINK_CONTROL};
	static const uint32_t handles[] = {SIM_LOCAL_DATA, SIM_LOCAL_CONTROL};
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct node_event ev = {.type = NODE_EV_LINK_UP};
		ev.u.link_up.link = handles[i];
		ev.u.link_up.peer = w->head.id;
		ev.u.link_up.kind = kinds[i];
		sim_node_step(w, n, &ev);
	}
}

void sim_node_start(struct sim_world *w, struct sim_node *n)
{
	if (n->machine > 0 && !n->disk.is_member) {
		sim_join_try(w, n);
		return;
	}
	struct node_config c = {.self = n->id, .coordinator = w->head.id, .n_layers = w->model.config.n_layers, .hidden_dim = w->model.config.hidden_dim,
		.vocab_size = w->model.config.vocab_size,
		.n_threads = 1, .port = SIM_PORT, .member_epoch = {n->disk.member_epoch}, .local = n->machine == 0,
		.liveness = w->head.config.liveness, .link_age_ns = w->config.link_age_ns > 0 ? w->config.link_age_ns : INT64_C(3600000000000),
		.keep_bytes = w->config.keep_bytes, .keep_disk_bytes = w->config.keep_disk_bytes, .layers_max = w->machines[n->machine].layers_max,
		.fetches = w->machines[n->machine].fetch_layer_ns > 0};
	snprintf(c.name, sizeof c.name, "%s", n->name);
	n->own = n->disk;
	n->boot++;
	n->is_running = true;
	node_init(n->core, &c);
	struct node_event ev = {.type = NODE_EV_START};
	sim_node_step(w, n, &ev);
	struct node_event probed = {.type = NODE_EV_PROBED, .u.probed.profile = &w->machines[n->machine].profile};
	if (w->machines[n->machine].profile.n_threads > 0)
		sim_node_step(w, n, &probed);
	if (n->machine == 0)
		start_local(w, n);
}

void sim_node_stop(struct sim_world *w, struct sim_node *n)
{
	n->is_running = false;
	sim_cancel(w, &n->tick);
	sim_dial_stop(w, n);
	sim_join_stop(w, n);
	memset(n->links, 0, sizeof n->links);
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
		n->forwards[k].is_busy = n->forwards[k].is_waiting = false;
	n->free_ns = 0;
	n->store_is_busy = false;
	if (n->prepares)
		(void)end_prepare(w, n);
	sim_kept_stop(n);
	sim_engine_close(n->engine);
	n->engine = NULL;
	(void)sim_forward_set_group(w, n, NULL);
}
