// The host of the simulated coordinator: what coordinator/shell/coord_runtime does, in virtual time.
#include "sim/world_state.h"

#include "base/assert.h"

#include <sodium.h>
#include <stdio.h>

int64_t sim_wall_s(const struct sim_world *w)
{
	return SIM_WALL_START_S + w->now_ns / 1000000000 + w->head.clock_step_s;
}

static void set_tick(struct sim_world *w, struct sim_head *h)
{
	int64_t at_ns = coordinator_deadline_ns(h->core);
	if (sim_timer_is_set(&h->tick) && h->tick_ns <= at_ns)
		return; // comes early and looks again
	sim_cancel(w, &h->tick);
	if (at_ns == INT64_MAX)
		return;
	sim_set_timer(w, at_ns, EV_TICK, SIM_HEAD, &h->tick);
	h->tick_ns = at_ns;
}

// ---- buffers and the head's engine

static uint8_t *buf_at(struct sim_head *h, int32_t buf)
{
	ASSERT(buf >= 0 && buf < coordinator_n_bufs(&h->config));
	return h->bufs + (size_t)buf * h->buf_kept;
}

static size_t kept(const struct sim_world *w, size_t real)
{
	return real / w->model.row_real * w->model.row_kept;
}

static void check_free(struct sim_world *w, const struct sim_head_job *j, int32_t buf)
{
	for (int32_t i = 0; j->is_busy && i < j->n; i++)
		if ((j->is_embed ? j->embed[i].buf : j->sample[i].buf) == buf)
			sim_world_fail(w, "the head takes a hidden state into buffer %d, which its engine works on", buf);
}

static void fx_take(struct sim_world *w, const struct coord_effect *f)
{
	struct sim_head *h = &w->head;
	ASSERT(w->message != NULL);
	size_t len = sim_is_reply(w->message) ? CHAIN_ROW : kept(w, f->u.take.len);
	ASSERT(f->u.take.msg_off + len <= w->message_stored);
	ASSERT(len <= h->buf_kept);
	check_free(w, &h->embed, f->u.take.buf);
	check_free(w, &h->sample, f->u.take.buf);
	memcpy(buf_at(h, f->u.take.buf), w->message + f->u.take.msg_off, len);
}

static void fx_forward(struct sim_world *w, const struct coord_effect *f)
{
	struct sim_head_job *j = &w->head.embed;
	struct sim_work work = {.kind = SIM_EMBED, .n_items = f->u.forward.n_items};
	if (j->is_busy)
		sim_world_fail(w, "the head embeds twice at once");
	*j = (struct sim_head_job){.is_busy = true, .is_embed = true, .id = f->u.forward.id, .n = f->u.forward.n_items};
	memcpy(j->embed, f->u.forward.items, (size_t)j->n * sizeof j->embed[0]);
	for (int32_t i = 0; i < j->n; i++)
		work.n_tokens += j->embed[i].n_tokens;
	sim_at(w, w->now_ns + sim_duration(w, &work), EV_EMBEDDED, SIM_HEAD)->id = j->id;
}

static void on_embedded(struct sim_world *w)
{
	struct sim_head *h = &w->head;
	struct sim_head_job *j = &h->embed;
	j->is_busy = false;
	for (int32_t i = 0; i < j->n; i++)
		sim_engine_embed(h->engine, j->embed[i].tokens, j->embed[i].n_tokens, buf_at(h, j->embed[i].buf));
	struct coord_event ev = {.type = COORD_EV_FORWARD_DONE};
	ev.u.forward_done.id = j->id;
	sim_head_step(w, &ev);
}

static uint64_t digest(struct sim_world *w, const struct coord_sample_item *it)
{
	return sim_mix_bytes(0, buf_at(&w->head, it->buf), (size_t)it->n_rows * w->model.row_kept);
}

static void fx_sample(struct sim_world *w, const struct coord_effect *f)
{
	struct sim_head_job *j = &w->head.sample;
	struct sim_work work = {.kind = SIM_SAMPLE, .n_items = f->u.sample.n_items};
	if (j->is_busy)
		sim_world_fail(w, "the head samples twice at once");
	*j = (struct sim_head_job){.is_busy = true, .id = f->u.sample.id, .n = f->u.sample.n_items};
	memcpy(j->sample, f->u.sample.items, (size_t)j->n * sizeof j->sample[0]);
	for (int32_t i = 0; i < j->n; i++) {
		j->digests[i] = digest(w, &j->sample[i]);
		work.n_tokens += j->sample[i].hash ? j->sample[i].n_rows : j->sample[i].draw;
	}
	sim_at(w, w->now_ns + sim_duration(w, &work), EV_SAMPLED, SIM_HEAD)->id = j->id;
}

static void on_sampled(struct sim_world *w)
{
	struct sim_head *h = &w->head;
	struct sim_head_job *j = &h->sample;
	struct sim_draw draws[COORD_ITEMS_MAX];
	struct coord_sampled out[COORD_ITEMS_MAX];
	j->is_busy = false;
	for (int32_t i = 0; i < j->n; i++) {
		const struct coord_sample_item *it = &j->sample[i];
		if (digest(w, it) != j->digests[i])
			sim_world_fail(w, "the head's buffer %d changed while the engine worked on it", it->buf);
		draws[i] = (struct sim_draw){.data = buf_at(h, it->buf), .n_rows = it->n_rows, .want = it->want, .slot = it->slot, .pos = it->pos, .hash = it->hash,
			.first = it->first, .draw = it->draw, .sampling = it->sampling};
	}
	sim_engine_sample(h->engine, draws, j->n);
	for (int32_t i = 0; i < j->n; i++)
		out[i] = (struct coord_sampled){.token = draws[i].token, .err = draws[i].err};
	struct coord_event ev = {.type = COORD_EV_SAMPLED};
	ev.u.sampled.id = j->id;
	ev.u.sampled.items = out;
	sim_head_step(w, &ev);
}

// ---- the disk

static void fx_store(struct sim_world *w, const struct coord_effect *f)
{
	struct sim_head *h = &w->head;
	struct sim_work work = {.kind = SIM_STORE};
	if (h->n_writes == SIM_WRITES_MAX) {
		sim_world_fail(w, "the coordinator has more than %d writes under way", SIM_WRITES_MAX);
		return;
	}
	h->writes[h->n_writes++] = (struct sim_db_write){.id = f->u.store.id, .op = f->u.store.op, .member = f->u.store.member,
		.invite = f->u.store.invite, .member_epoch = f->u.store.member_epoch};
	int64_t begin_ns = h->write_free_ns > w->now_ns ? h->write_free_ns : w->now_ns; // one after the other
	h->write_free_ns = begin_ns + sim_duration(w, &work) + 1;
	sim_at(w, h->write_free_ns, EV_STORED, SIM_HEAD);
}

// write_now puts a write on the disk, as well as the disk can.
static enum err write_now(struct sim_world *w, const struct sim_db_write *d)
{
	struct sim_db *db = &w->head.db;
	switch (w->hosts[0].disk) {
	case SIM_DISK_FULL: return ERR_IO;
	case SIM_DISK_EIO: // known after a restart only: the page may have reached the disk although the call failed
		if (rng_below(&w->rng_fault, 2) == 0) {
			sim_db_apply(&db->disk, d);
			sim_db_apply(&db->synced, d);
		}
		return ERR_IO;
	case SIM_DISK_LOST_SYNC: sim_db_apply(&db->disk, d); return OK;
	case SIM_DISK_OK: break;
	}
	sim_db_apply(&db->disk, d);
	sim_db_apply(&db->synced, d);
	return OK;
}

static void on_stored(struct sim_world *w)
{
	struct sim_head *h = &w->head;
	struct sim_db_write d = h->writes[0];
	if (w->hosts[0].tear_next) {
		w->hosts[0].tear_next = false;
		sim_world_crash(w, 0, true); // the write under way is whole or not there
		return;
	}
	memmove(h->writes, h->writes + 1, (size_t)--h->n_writes * sizeof h->writes[0]);
	struct coord_event ev = {.type = COORD_EV_STORED};
	ev.u.stored.id = d.id;
	ev.u.stored.err = write_now(w, &d);
	sim_head_step(w, &ev);
}

// finish_writes: what was under way when the process died reached the disk up to some point.
static void finish_writes(struct sim_world *w)
{
	struct sim_head *h = &w->head;
	int32_t n = h->n_writes > 0 ? (int32_t)rng_below(&w->rng_fault, (uint64_t)h->n_writes + 1) : 0;
	for (int32_t i = 0; i < n; i++)
		(void)write_now(w, &h->writes[i]);
	h->n_writes = 0;
}

// ---- effects

static void send_on(struct sim_world *w, uint32_t link, const struct sim_send *s)
{
	if (link == SIM_LOCAL_CONTROL || link == SIM_LOCAL_DATA)
		sim_local_send(w, 0, link, s);
	else
		sim_link_send(w, SIM_HEAD, link, s);
}

// see_plan tells the ledger of a plan that goes out.
static void see_plan(struct sim_world *w, uint32_t link, const struct sim_send *s)
{
	struct msg m;
	struct errmsg em;
	if (s->head[0] != FRAME_CONTROL || msg_decode(s->head, s->head_len, &m, &em) != OK || m.type != MSG_PLAN)
		return;
	const struct sim_conn *c = sim_conn_find(w, link);
	checks_on_plan(w, c != NULL ? c->end[0].party : 0, &m.u.plan);
}

static void fx_send(struct sim_world *w, const struct coord_effect *f)
{
	struct sim_send s = {.head = f->u.send.head, .head_len = f->u.send.head_len, .rows_real = f->u.send.len, .rows_kept = kept(w, f->u.send.len)};
	if (f->u.send.buf >= 0)
		s.rows = buf_at(&w->head, f->u.send.buf) + kept(w, f->u.send.off);
	sim_note(w, f->u.send.link, sim_mix_bytes(0, s.head, s.head_len));
	see_plan(w, f->u.send.link, &s);
	checks_on_sent(w, s.head, s.head_len);
	send_on(w, f->u.send.link, &s);
}

static void fx_relay(struct sim_world *w, const struct coord_effect *f)
{
	ASSERT(w->message != NULL);
	struct sim_send s = {.head = w->message, .head_len = FRAME_STEP_BYTES < w->message_stored ? FRAME_STEP_BYTES : w->message_stored};
	s.rows = w->message + s.head_len;
	s.rows_kept = w->message_stored - s.head_len;
	s.rows_real = w->message_len - s.head_len;
	send_on(w, f->u.close.link, &s);
}

static void fx_answer(struct sim_world *w, const struct coord_effect *f)
{
	struct sim_ticket *t = &w->head.tickets[f->u.answer.ticket % SIM_TICKETS_MAX];
	if (t->ticket != f->u.answer.ticket) {
		sim_world_fail(w, "the coordinator answers ticket %llu, which nobody drew or which was answered", (unsigned long long)f->u.answer.ticket);
		return;
	}
	t->ticket = 0;
	struct sim_node *n = &w->nodes[t->machine];
	if (f->u.answer.err != OK)
		return;
	if (t->is_revoke) {
		checks_on_revoke_answered(w, n);
		n->was_revoked = w->hosts[0].disk != SIM_DISK_LOST_SYNC && !w->lied_sync; // a disk that lies may forget it
		return;
	}
	n->has_invite = true;
	memcpy(n->token_id, t->token_id, TOKEN_ID_BYTES);
	memcpy(n->token_secret, t->secret, KEY_BYTES);
	if (!n->is_running && w->hosts[n->machine].is_on)
		sim_join_try(w, n);
}

static void carry_out(struct sim_world *w, const struct coord_effect *f)
{
	sim_note(w, 40 + (uint64_t)f->type, 0);
	switch (f->type) {
	case COORD_FX_SEND: fx_send(w, f); break;
	case COORD_FX_RELAY: fx_relay(w, f); break;
	case COORD_FX_TAKE: fx_take(w, f); break;
	case COORD_FX_CLOSE: (f->u.close.orderly ? sim_link_close : sim_link_cut)(w, SIM_HEAD, f->u.close.link); break;
	case COORD_FX_ACCEPT: sim_judge_later(w, f->u.close.link, true); break;
	case COORD_FX_REFUSE: sim_judge_later(w, f->u.close.link, false); break;
	case COORD_FX_FORWARD: fx_forward(w, f); break;
	case COORD_FX_SAMPLE: fx_sample(w, f); break;
	case COORD_FX_EMIT:
		sim_note(w, f->u.emit.req, (uint64_t)(uint32_t)f->u.emit.token);
		sim_client_on_emit(w, f->u.emit.req, f->u.emit.token, f->u.emit.pos);
		break;
	case COORD_FX_END: sim_client_on_end(w, f); break;
	case COORD_FX_STORE: fx_store(w, f); break;
	case COORD_FX_ANSWER: fx_answer(w, f); break;
	case COORD_FX_NEED_RANDOM: sim_at(w, w->now_ns, EV_RANDOM, SIM_HEAD); break;
	case COORD_FX_PLAN: sim_planner_ask(w, f); break;
	case COORD_FX_LOG: sim_log(w, SIM_HEAD, f->u.log.text); break;
	case COORD_FX_DISCONNECT: sim_head_disconnect(w, f->u.disconnect.node); break;
	}
}

void sim_head_step(struct sim_world *w, struct coord_event *ev)
{
	struct sim_head *h = &w->head;
	struct coord_effects *fx = w->coord_fx;
	ASSERT(!h->is_stepping); // effects answer from the queue
	h->is_stepping = true;
	ev->now_ns = w->now_ns;
	ev->wall_s = sim_wall_s(w);
	w->counts.n_steps_of_cores++;
	coordinator_step(h->core, ev, fx);
	for (int32_t i = 0; i < fx->n; i++)
		carry_out(w, &fx->at[i]);
	h->is_stepping = false;
	if (w->config.check_each)
		coordinator_check(h->core);
	set_tick(w, h);
}

// ---- links

void sim_head_on_up(struct sim_world *w, struct sim_conn *c)
{
	char remote[ADDR_CAP];
	int32_t node = c->end[0].party;
	snprintf(remote, sizeof remote, "10.0.%d.%d", node / 256, node % 256);
	struct coord_event ev = {.type = COORD_EV_LINK_UP};
	ev.u.link_up.link = c->serial;
	ev.u.link_up.peer = w->nodes[node].id;
	ev.u.link_up.kind = c->mode == LNK1_JOIN ? COORD_LINK_JOIN : c->kind == LNK1_CONTROL ? COORD_LINK_CONTROL : COORD_LINK_DATA;
	ev.u.link_up.remote = remote;
	sim_head_step(w, &ev);
}

void sim_head_on_join(struct sim_world *w, struct sim_conn *c, int32_t node)
{
	struct coord_event ev = {.type = COORD_EV_JOIN};
	ev.u.join.link = c->serial;
	ev.u.join.id = w->nodes[node].id;
	memcpy(ev.u.join.token_id, c->shake.token_id, TOKEN_ID_BYTES);
	memcpy(ev.u.join.public_key, w->nodes[node].keys.pk, KEY_BYTES);
	sim_random(w, ev.u.join.random, KEY_BYTES);
	sim_head_step(w, &ev);
}

void sim_head_on_down(struct sim_world *w, uint32_t serial, enum sim_down why)
{
	struct coord_event ev = {.type = COORD_EV_LINK_DOWN};
	ev.u.link_down.link = serial;
	ev.u.link_down.orderly = why == SIM_DOWN_CLOSED || why == SIM_DOWN_PEER_CLOSED;
	ev.u.link_down.reason = sim_down_words(why);
	sim_head_step(w, &ev);
}

// n_of_frame counts what a frame may have caused. An embedding that begins, or a line of the log, was due anyway.
static int32_t n_of_frame(const struct coord_effects *fx)
{
	int32_t n = 0;
	for (int32_t i = 0; i < fx->n; i++)
		n += fx->at[i].type != COORD_FX_FORWARD && fx->at[i].type != COORD_FX_LOG;
	return n;
}

void sim_head_on_frame(struct sim_world *w, uint32_t link, const struct sim_packet *p, const uint8_t *frame)
{
	bool is_data = p->stored > 0 && (frame[0] == FRAME_STEP || frame[0] == FRAME_CREDIT || frame[0] == FRAME_PART);
	const struct sim_conn *c = sim_conn_find(w, link);
	uint64_t epoch = is_data ? checks_epoch_of(w, c != NULL ? c->end[0].party : 0) : 0;
	w->message = frame;
	w->message_stored = p->stored;
	w->message_len = p->frame_len;
	struct coord_event ev = {.type = COORD_EV_MESSAGE};
	ev.u.message.link = link;
	ev.u.message.data = frame;
	ev.u.message.len = p->frame_len;
	sim_head_step(w, &ev);
	w->message = NULL;
	if (is_data)
		checks_on_stale(w, SIM_HEAD, epoch, frame, p->stored, n_of_frame(w->coord_fx));
}

void sim_head_on_event(struct sim_world *w, struct sim_event *ev)
{
	struct sim_head *h = &w->head;
	struct coord_event out = {.type = COORD_EV_TICK};
	switch (ev->type) {
	case EV_TICK:
		if (coordinator_deadline_ns(h->core) <= w->now_ns)
			sim_head_step(w, &out);
		else
			set_tick(w, h);
		return;
	case EV_EMBEDDED: on_embedded(w); return;
	case EV_SAMPLED: on_sampled(w); return;
	case EV_STORED: on_stored(w); return;
	case EV_LOCAL:
		checks_on_come(w, SIM_HEAD, ev->packet->data, ev->packet->stored);
		sim_head_on_frame(w, ev->id, ev->packet, ev->packet->data);
		return;
	case EV_RANDOM:
		out.type = COORD_EV_RANDOM;
		sim_random(w, out.u.random.bytes, KEY_BYTES);
		sim_head_step(w, &out);
		return;
	case EV_PLANNED: sim_planner_answer(w, ev->id); return;
	case EV_CANCEL:
		if (w->reqs[ev->arg].state != SIM_REQ_OPEN)
			return;
		w->reqs[ev->arg].is_cancelled = true;
		out.type = COORD_EV_CANCEL;
		out.u.cancel.req = (uint64_t)ev->arg + 1;
		sim_head_step(w, &out);
		return;
	case EV_JUDGE: sim_link_judge(w, ev->id, ev->arg != 0); return;
	default: ASSERT(!"no event of the coordinator");
	}
}

// ---- the operator

static struct sim_ticket *draw_ticket(struct sim_world *w, int32_t machine, bool is_revoke)
{
	uint64_t ticket = ++w->head.last_ticket;
	struct sim_ticket *t = &w->head.tickets[ticket % SIM_TICKETS_MAX];
	*t = (struct sim_ticket){.ticket = ticket, .machine = machine, .is_revoke = is_revoke};
	return t;
}

void sim_world_invite(struct sim_world *w, int32_t machine)
{
	if (!sim_world_is_up(w, 0) || machine < 1 || w->nodes[machine].disk.is_member)
		return;
	struct sim_ticket *t = draw_ticket(w, machine, false);
	sim_random(w, t->token_id, TOKEN_ID_BYTES);
	sim_random(w, t->secret, KEY_BYTES);
	w->hosts[machine].is_on = true;
	struct coord_event ev = {.type = COORD_EV_INVITE};
	ev.u.invite.ticket = t->ticket;
	memcpy(ev.u.invite.token_id, t->token_id, TOKEN_ID_BYTES);
	memcpy(ev.u.invite.secret, t->secret, KEY_BYTES);
	ev.u.invite.ttl_s = SIM_INVITE_TTL_S;
	sim_head_step(w, &ev);
}

void sim_world_revoke(struct sim_world *w, int32_t machine)
{
	if (!sim_world_is_up(w, 0) || machine < 1)
		return;
	char hex[2 * NODE_ID_BYTES + 1];
	sodium_bin2hex(hex, sizeof hex, w->nodes[machine].id.b, NODE_ID_BYTES);
	w->had_fault = true; // a node of the ring may go
	struct coord_event ev = {.type = COORD_EV_REVOKE};
	ev.u.revoke.ticket = draw_ticket(w, machine, true)->ticket;
	ev.u.revoke.who = hex;
	sim_head_step(w, &ev);
}

// ---- the process

static void start_local(struct sim_world *w)
{
	static const enum coord_link_kind kinds[] = {COORD_LINK_DATA, COORD_LINK_CONTROL};
	static const uint32_t handles[] = {SIM_LOCAL_DATA, SIM_LOCAL_CONTROL};
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct coord_event ev = {.type = COORD_EV_LINK_UP};
		ev.u.link_up.link = handles[i];
		ev.u.link_up.peer = w->head.id;
		ev.u.link_up.kind = kinds[i];
		ev.u.link_up.remote = "";
		sim_head_step(w, &ev);
	}
}

void sim_head_start(struct sim_world *w)
{
	struct sim_head *h = &w->head;
	const struct sim_db_image *d = &h->db.disk;
	checks_on_head_start(w);
	coordinator_init(h->core, &h->config, h->tokens);
	h->is_running = true;
	h->write_free_ns = w->now_ns;
	struct coord_event ev = {.type = COORD_EV_RESTORED};
	ev.u.restored.member_epoch = d->member_epoch;
	ev.u.restored.members = d->members;
	ev.u.restored.n_members = d->n_members;
	ev.u.restored.invites = d->invites;
	ev.u.restored.n_invites = d->n_invites;
	sim_head_step(w, &ev);
	if (w->config.has_local_node) {
		start_local(w);
		sim_node_start(w, &w->nodes[0]);
	}
	sim_client_take_up(w);
}

void sim_head_stop(struct sim_world *w, bool power)
{
	struct sim_head *h = &w->head;
	if (h->is_running) {
		w->counts.n_moved += coordinator_n_moved(h->core);
		w->counts.n_better += coordinator_n_better(h->core);
		finish_writes(w);
	}
	if (power)
		h->db.disk = h->db.synced;
	h->is_running = false;
	h->is_stepping = false;
	sim_cancel(w, &h->tick);
	h->embed.is_busy = h->sample.is_busy = false;
	memset(h->tickets, 0, sizeof h->tickets);
	sim_client_lose_all(w);
}
