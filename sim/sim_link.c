// Connections of the simulated world: TCP's manners (a reset from a machine whose process is gone, silence from one without power) and
// the life of an LNK1 link over it, as net/link.c leads it.
#include "sim/world_state.h"

#include "base/assert.h"

#include <stdlib.h>

#define TCP_HEADERS 52 // of each message: what a segment adds

const char *sim_down_words(enum sim_down d)
{
	switch (d) {
	case SIM_DOWN_CLOSED: return "closed by this side";
	case SIM_DOWN_PEER_CLOSED: return "closed by the other side";
	case SIM_DOWN_LOST: return "connection lost";
	case SIM_DOWN_TIMEOUT: return "timed out";
	case SIM_DOWN_REFUSED: return "handshake failed";
	case SIM_DOWN_RECORD: return "a record that does not open";
	case SIM_DOWN_DROPPED: return "closed, with a frame that could not be sent";
	}
	return "";
}

struct sim_conn *sim_conn_find(struct sim_world *w, uint32_t serial)
{
	struct sim_conn *c = &w->conns[serial & (w->conns_cap - 1)];
	return serial != 0 && c->serial == serial ? c : NULL;
}

static int end_of(const struct sim_conn *c, int32_t party)
{
	return c->end[0].party == party ? 0 : 1;
}

int32_t sim_link_peer(const struct sim_conn *c, int32_t party)
{
	return c->end[!end_of(c, party)].party;
}

static bool listens(const struct sim_world *w, int32_t party)
{
	return party == SIM_HEAD ? w->head.is_running : w->nodes[party].is_running;
}

static bool has_process(const struct sim_world *w, int32_t party)
{
	return listens(w, party) || (party != SIM_HEAD && w->nodes[party].is_joining);
}

// ---- packets

struct sim_packet *sim_packet_new(enum sim_packet_kind kind, const struct sim_send *s)
{
	size_t kept = s->head_len + s->rows_kept;
	struct sim_packet *p = malloc(sizeof *p + kept);
	if (p == NULL)
		abort(); // some KiB: nothing works any more
	*p = (struct sim_packet){.kind = kind, .stored = (uint32_t)kept, .frame_len = (uint32_t)(s->head_len + s->rows_real)};
	if (s->head_len > 0)
		memcpy(p->data, s->head, s->head_len);
	if (s->rows_kept > 0)
		memcpy(p->data + s->head_len, s->rows, s->rows_kept);
	p->is_step = kind == PK_FRAME && s->head_len > 0 && s->head[0] == FRAME_STEP;
	p->is_data = p->is_step || (kind == PK_FRAME && s->head_len > 0 && (s->head[0] == FRAME_CREDIT || s->head[0] == FRAME_PART));
	return p;
}

static void arrive(struct sim_world *w, struct sim_conn *c, int e, struct sim_packet *p, int64_t at_ns)
{
	struct sim_end *from = &c->end[e];
	at_ns = at_ns > from->last_arrival_ns ? at_ns : from->last_arrival_ns + 1; // equal arrivals keep their order
	from->last_arrival_ns = at_ns;
	struct sim_event *ev = sim_at(w, at_ns, EV_PACKET, c->end[!e].party);
	ev->id = c->serial;
	ev->arg = !e;
	ev->packet = p;
	c->n_in_flight++;
	w->n_data_in_flight += p->is_data;
}

static void hold(struct sim_end *from, struct sim_packet *p)
{
	if (from->held == NULL)
		from->held_last = &from->held;
	p->next = NULL;
	*from->held_last = p;
	from->held_last = &p->next;
}

static void drop_held(struct sim_end *from)
{
	for (struct sim_packet *p = from->held, *next; p != NULL; p = next) {
		next = p->next;
		free(p);
	}
	from->held = NULL;
}

// transmit gives a packet of end e to the network.
static void transmit(struct sim_world *w, struct sim_conn *c, int e, struct sim_packet *p)
{
	int64_t arrival_ns = INT64_MAX;
	uint64_t bytes = TCP_HEADERS + (p->kind == PK_FRAME ? p->frame_len + LNK1_RECORD_EXTRA : p->frame_len);
	enum network_fate fate = network_send(w->config.network, c->flow, e == 0 ? NETWORK_FORWARD : NETWORK_BACK, bytes, w->now_ns, &arrival_ns);
	struct sim_record r = {.type = SIM_REC_SEND, .begin_ns = w->now_ns, .end_ns = fate == NETWORK_ARRIVES ? arrival_ns : INT64_MAX,
		.machine = sim_machine_of(c->end[e].party), .peer = sim_machine_of(c->end[!e].party), .is_head = c->end[e].party == SIM_HEAD, .bytes = bytes,
		.is_step = p->is_step, .request = -1};
	sim_tell(w, &r);
	switch (fate) {
	case NETWORK_ARRIVES: arrive(w, c, e, p, arrival_ns); break;
	case NETWORK_SWALLOWED: hold(&c->end[e], p); break;
	case NETWORK_RESET: {
		free(p);
		struct sim_packet *rst = sim_packet_new(PK_RST, &(struct sim_send){0});
		arrive(w, c, !e, rst, w->now_ns); // its own kernel tells it
		break;
	}
	}
}

static void send_plain(struct sim_world *w, struct sim_conn *c, int e, enum sim_packet_kind kind, const uint8_t *bytes, size_t len)
{
	transmit(w, c, e, sim_packet_new(kind, &(struct sim_send){.head = bytes, .head_len = len}));
}

void sim_world_healed(struct sim_world *w)
{
	for (uint32_t i = 0; i < w->conns_cap; i++) {
		struct sim_conn *c = &w->conns[i];
		for (int e = 0; e < 2 && c->serial != 0; e++) {
			struct sim_end *from = &c->end[e];
			int64_t arrival_ns;
			if (from->held == NULL)
				continue;
			enum network_direction d = e == 0 ? NETWORK_FORWARD : NETWORK_BACK;
			if (network_retransmit(w->config.network, c->flow, d, w->now_ns, &arrival_ns) != NETWORK_ARRIVES)
				continue;
			struct sim_packet *p = from->held;
			from->held = NULL;
			for (struct sim_packet *next; p != NULL; p = next) {
				next = p->next;
				arrive(w, c, e, p, arrival_ns);
			}
		}
	}
}

// ---- the end

static void release_if_done(struct sim_world *w, struct sim_conn *c)
{
	bool is_dead = (c->end[0].state == END_DEAD) && (c->end[1].state == END_DEAD || c->end[1].state == END_NONE);
	if (!is_dead || c->n_in_flight > 0)
		return;
	network_close_flow(w->config.network, c->flow);
	for (int e = 0; e < 2; e++)
		drop_held(&c->end[e]);
	sim_shake_deinit(&c->shake);
	c->serial = 0;
}

// die ends one side without a word to its host. `reset`: its kernel tells the other side.
static void die(struct sim_world *w, struct sim_conn *c, int e, bool reset)
{
	struct sim_end *end = &c->end[e];
	sim_cancel(w, &end->timer);
	end->state = END_DEAD;
	if (reset && w->hosts[sim_machine_of(end->party)].is_on && c->end[!e].state != END_DEAD)
		send_plain(w, c, e, PK_RST, NULL, 0);
	else
		drop_held(end);
	release_if_done(w, c);
}

static void tell_link(struct sim_world *w, int32_t party, int32_t peer, uint32_t serial, const char *text)
{
	struct sim_record r = {.type = SIM_REC_LINK, .begin_ns = w->now_ns, .end_ns = w->now_ns, .machine = sim_machine_of(party),
		.peer = sim_machine_of(peer), .is_head = party == SIM_HEAD, .index = (int32_t)serial, .text = text};
	sim_tell(w, &r);
}

static void tell_host(struct sim_world *w, int32_t party, uint32_t serial, enum sim_down why)
{
	w->counts.n_links_lost += why != SIM_DOWN_CLOSED;
	if (party == SIM_HEAD)
		sim_head_on_down(w, serial, why);
	else
		sim_node_on_down(w, &w->nodes[party], serial, why);
}

static void end_now(struct sim_world *w, struct sim_conn *c, int e, enum sim_down why, bool reset)
{
	struct sim_end *end = &c->end[e];
	int32_t party = end->party, peer = c->end[!e].party;
	uint32_t serial = c->serial;
	bool tells = e == 0 || end->was_told; // who dials hears of every end
	if (end->has_dropped && (why == SIM_DOWN_CLOSED || why == SIM_DOWN_PEER_CLOSED))
		why = SIM_DOWN_DROPPED;
	die(w, c, e, reset);
	if (!tells || !has_process(w, party))
		return;
	tell_link(w, party, peer, serial, sim_down_words(why));
	tell_host(w, party, serial, why);
}

static void set_timer(struct sim_world *w, struct sim_conn *c, int e, int64_t after_ns)
{
	struct sim_end *end = &c->end[e];
	sim_cancel(w, &end->timer);
	struct sim_event *ev = sim_set_timer(w, w->now_ns + after_ns, EV_END_TIMER, end->party, &end->timer);
	ev->id = c->serial;
	ev->arg = e;
}

void sim_link_on_timer(struct sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = sim_conn_find(w, ev->id);
	if (c == NULL || c->end[ev->arg].state == END_DEAD || c->end[ev->arg].state == END_UP)
		return;
	end_now(w, c, ev->arg, c->end[ev->arg].state == END_CLOSING ? SIM_DOWN_LOST : SIM_DOWN_TIMEOUT, true);
}

// ---- coming up

uint32_t sim_link_dial(struct sim_world *w, const struct sim_dial *d)
{
	uint32_t serial = w->last_serial, n_tried = 0;
	do {
		serial = serial == UINT32_MAX ? SIM_FIRST_SERIAL : serial + 1;
		if (n_tried++ == w->conns_cap) {
			sim_world_fail(w, "more than %u connections", w->conns_cap);
			return 0;
		}
	} while (w->conns[serial & (w->conns_cap - 1)].serial != 0);
	struct sim_conn *c = &w->conns[serial & (w->conns_cap - 1)];
	int32_t flow;
	if (network_open_flow(w->config.network, d->node, d->machine, &flow) != OK) {
		sim_world_fail(w, "the simulated network has no more flows");
		return 0;
	}
	w->last_serial = serial;
	*c = (struct sim_conn){.serial = serial, .kind = d->kind, .mode = d->mode, .flow = flow};
	c->end[0] = (struct sim_end){.state = END_CONNECTING, .party = d->node};
	c->end[1] = (struct sim_end){.state = END_NONE, .party = d->machine == 0 ? SIM_HEAD : d->machine};
	c->shake = (struct sim_shake){.client = d->node, .member_epoch = d->member_epoch};
	memcpy(c->shake.server_pk, d->server_pk, KEY_BYTES);
	if (d->psk != NULL)
		memcpy(c->shake.psk, d->psk, KEY_BYTES);
	if (d->token_id != NULL) {
		memcpy(c->shake.token_id, d->token_id, TOKEN_ID_BYTES);
		memcpy(c->shake.token_secret, d->token_secret, KEY_BYTES);
	}
	set_timer(w, c, 0, SIM_CONNECT_NS);
	send_plain(w, c, 0, PK_SYN, NULL, 0);
	return serial;
}

static void come_up(struct sim_world *w, struct sim_conn *c, int e)
{
	struct sim_end *end = &c->end[e];
	sim_cancel(w, &end->timer);
	end->state = END_UP;
	end->was_told = true;
	w->counts.n_handshakes += e == 1;
	tell_link(w, end->party, c->end[!e].party, c->serial, e == 0 ? "dialled" : "accepted");
	if (end->party == SIM_HEAD)
		sim_head_on_up(w, c);
	else
		sim_node_on_up(w, &w->nodes[end->party], c, e == 0);
}

// finish_server: M4 goes out and the link is up on this side.
static void finish_server(struct sim_world *w, struct sim_conn *c)
{
	struct sim_shake_message m;
	checks_on_session(w, c->end[1].party, &w->nodes[c->shake.client]);
	sim_shake_m4(w, c, &m);
	send_plain(w, c, 1, PK_M4, m.bytes, m.len);
	come_up(w, c, 1);
}

void sim_link_judge(struct sim_world *w, uint32_t serial, bool accept)
{
	struct sim_conn *c = sim_conn_find(w, serial);
	if (c == NULL || c->end[1].state != END_JUDGED)
		return;
	if (accept) {
		finish_server(w, c);
		return;
	}
	struct sim_event *ev = sim_at(w, w->now_ns, EV_TELL_END, c->end[1].party); // link_refuse: on_down from the loop
	ev->id = serial;
	ev->arg = 1;
}

void sim_judge_later(struct sim_world *w, uint32_t serial, bool accept)
{
	struct sim_event *ev = sim_at(w, w->now_ns, EV_JUDGE, SIM_HEAD);
	ev->id = serial;
	ev->arg = accept;
}

void sim_link_tell_end(struct sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = sim_conn_find(w, ev->id);
	if (c != NULL && c->end[ev->arg].state != END_DEAD)
		end_now(w, c, ev->arg, c->end[ev->arg].state == END_JUDGED ? SIM_DOWN_REFUSED : SIM_DOWN_CLOSED, true);
}

static void on_m3(struct sim_world *w, struct sim_conn *c, const uint8_t *m3)
{
	bool blames;
	if (!sim_shake_judge(w, c, m3, &blames)) {
		uint8_t token_id[TOKEN_ID_BYTES];
		memcpy(token_id, c->shake.token_id, sizeof token_id);
		end_now(w, c, 1, SIM_DOWN_REFUSED, true);
		if (blames) {
			struct coord_event ev = {.type = COORD_EV_JOIN_FAILED};
			memcpy(ev.u.join_failed.token_id, token_id, TOKEN_ID_BYTES);
			sim_head_step(w, &ev);
		}
		return;
	}
	c->end[1].state = END_JUDGED;
	if (c->mode != LNK1_JOIN) {
		finish_server(w, c);
		return;
	}
	sim_cancel(w, &c->end[1].timer); // it proved who it is: the disk may take its time
	c->end[1].was_told = true;
	sim_head_on_join(w, c, c->shake.client);
}

static void on_shake(struct sim_world *w, struct sim_conn *c, int e, const struct sim_packet *p)
{
	struct sim_shake_message m;
	switch (p->kind) {
	case PK_SYN:
		if (!listens(w, c->end[1].party)) {
			die(w, c, 1, true);
			return;
		}
		c->end[1].state = END_SHAKING;
		set_timer(w, c, 1, SIM_HANDSHAKE_NS);
		send_plain(w, c, 1, PK_SYNACK, NULL, 0);
		return;
	case PK_SYNACK:
		c->end[0].state = END_SHAKING;
		set_timer(w, c, 0, SIM_HANDSHAKE_NS);
		if (sim_shake_m1(w, c, &m)) {
			send_plain(w, c, 0, PK_M1, m.bytes, m.len);
			return;
		}
		break;
	case PK_M1:
		if (sim_shake_m2(w, c, p->data, &m)) {
			send_plain(w, c, 1, PK_M2, m.bytes, m.len);
			return;
		}
		break;
	case PK_M2:
		if (sim_shake_m3(w, c, p->data, &m)) {
			send_plain(w, c, 0, PK_M3, m.bytes, m.len);
			return;
		}
		break;
	case PK_M3: on_m3(w, c, p->data); return;
	default: // M4
		if (sim_shake_done(w, c, p->data)) {
			come_up(w, c, 0);
			return;
		}
		break;
	}
	end_now(w, c, e, SIM_DOWN_REFUSED, true);
}

// ---- frames

// frame_of opens what arrived, in place; NULL when it does not open. *len: as the core sees it.
static uint8_t *frame_of(struct sim_world *w, struct sim_conn *c, int e, struct sim_packet *p)
{
	uint32_t len;
	if (!w->config.encrypt)
		return p->is_flipped ? NULL : p->data;
	if (!sim_crypto_open(c, e, p->data, p->stored, &len))
		return NULL;
	p->stored = len;
	return p->data + LNK1_RECORD_PLAIN_AT;
}

static void on_final(struct sim_world *w, struct sim_conn *c, int e)
{
	if (c->end[e].state == END_CLOSING) {
		end_now(w, c, e, SIM_DOWN_CLOSED, false);
		return;
	}
	uint8_t record[LNK1_RECORD_EXTRA] = {0};
	if (w->config.encrypt)
		sim_crypto_seal_final(w, c, e, record);
	send_plain(w, c, e, PK_FINAL, record, sizeof record);
	end_now(w, c, e, SIM_DOWN_PEER_CLOSED, false);
}

static void on_record(struct sim_world *w, struct sim_conn *c, int e, struct sim_packet *p)
{
	uint8_t *frame = frame_of(w, c, e, p);
	if (frame == NULL) {
		end_now(w, c, e, SIM_DOWN_RECORD, true);
		return;
	}
	if (p->kind == PK_FINAL) {
		on_final(w, c, e);
		return;
	}
	w->counts.n_frames++;
	int32_t party = c->end[e].party;
	checks_on_come(w, party, frame, p->stored);
	if (party == SIM_HEAD)
		sim_head_on_frame(w, c->serial, p, frame);
	else
		sim_node_on_frame(w, &w->nodes[party], c->serial, p, frame);
}

void sim_link_on_packet(struct sim_world *w, struct sim_event *ev)
{
	struct sim_conn *c = sim_conn_find(w, ev->id);
	struct sim_packet *p = ev->packet;
	int e = ev->arg;
	ASSERT(c != NULL); // it is not released while something is under way
	c->n_in_flight--;
	w->n_data_in_flight -= p->is_data;
	struct sim_end *end = &c->end[e];
	bool has_power = w->hosts[sim_machine_of(end->party)].is_on;
	if (has_power && end->state == END_CUT)
		return; // its reset goes out in this moment
	if (!has_power || end->state == END_DEAD) {
		// A machine that runs, and knows nothing of the connection, says so.
		bool answers = has_power && p->kind != PK_RST && c->end[!e].state != END_DEAD;
		if (end->state == END_NONE)
			end->state = END_DEAD;
		if (answers)
			send_plain(w, c, e, PK_RST, NULL, 0);
		release_if_done(w, c);
		return;
	}
	if (p->kind == PK_RST)
		end_now(w, c, e, SIM_DOWN_LOST, false);
	else if (p->kind == PK_FRAME || p->kind == PK_FINAL)
		on_record(w, c, e, p);
	else
		on_shake(w, c, e, p);
}

// ---- what hosts ask for

static void push_record(struct sim_world *w, struct sim_conn *c, int e, const struct sim_send *s)
{
	struct sim_packet *p = sim_packet_new(PK_FRAME, s);
	if (w->config.encrypt) {
		struct sim_packet *sealed = malloc(sizeof *sealed + p->stored + LNK1_RECORD_EXTRA);
		if (sealed == NULL)
			abort(); // some KiB: nothing works any more
		*sealed = *p;
		sealed->stored = p->stored + LNK1_RECORD_EXTRA;
		sim_crypto_seal(w, c, e, p->data, p->stored, sealed->data);
		free(p);
		p = sealed;
	}
	if (c->end[e].flip_next) {
		c->end[e].flip_next = false;
		p->is_flipped = true;
		if (w->config.encrypt)
			p->data[LNK1_RECORD_HEAD + rng_below(&w->rng_fault, p->stored - LNK1_RECORD_HEAD)] ^= (uint8_t)(1u << rng_below(&w->rng_fault, 8));
	}
	transmit(w, c, e, p);
}

void sim_link_send(struct sim_world *w, int32_t party, uint32_t serial, const struct sim_send *s)
{
	struct sim_conn *c = sim_conn_find(w, serial);
	if (c == NULL)
		return;
	struct sim_end *end = &c->end[end_of(c, party)];
	if (end->state == END_UP)
		push_record(w, c, end_of(c, party), s);
	else
		end->has_dropped = true;
}

// tell_end_later: a host is not called back from inside its own call.
static void tell_end_later(struct sim_world *w, const struct sim_conn *c, int e)
{
	struct sim_event *ev = sim_at(w, w->now_ns, EV_TELL_END, c->end[e].party);
	ev->id = c->serial;
	ev->arg = e;
}

void sim_link_close(struct sim_world *w, int32_t party, uint32_t serial)
{
	struct sim_conn *c = sim_conn_find(w, serial);
	if (c == NULL)
		return;
	int e = end_of(c, party);
	struct sim_end *end = &c->end[e];
	if (end->state == END_UP) {
		uint8_t record[LNK1_RECORD_EXTRA] = {0};
		if (w->config.encrypt)
			sim_crypto_seal_final(w, c, e, record);
		end->state = END_CLOSING;
		set_timer(w, c, e, SIM_CLOSE_NS);
		send_plain(w, c, e, PK_FINAL, record, sizeof record);
	} else if (end->state < END_UP) {
		tell_end_later(w, c, e);
	}
}

void sim_link_cut(struct sim_world *w, int32_t party, uint32_t serial)
{
	struct sim_conn *c = sim_conn_find(w, serial);
	int e = c != NULL ? end_of(c, party) : 0;
	if (c == NULL || c->end[e].state >= END_CUT)
		return;
	sim_cancel(w, &c->end[e].timer);
	c->end[e].state = END_CUT;
	c->end[e].has_dropped = true;
	tell_end_later(w, c, e);
}

void sim_link_abort(struct sim_world *w, int32_t party, uint32_t serial)
{
	struct sim_conn *c = sim_conn_find(w, serial);
	if (c != NULL && c->end[end_of(c, party)].state != END_DEAD)
		die(w, c, end_of(c, party), true);
}

void sim_head_disconnect(struct sim_world *w, struct node_id node)
{
	for (uint32_t i = 0; i < w->conns_cap; i++) {
		struct sim_conn *c = &w->conns[i];
		bool is_judged = c->serial != 0 && c->end[1].party == SIM_HEAD && c->end[1].state >= END_JUDGED && c->end[1].state != END_DEAD;
		if (is_judged && node_id_is(w->nodes[c->end[0].party].id, node))
			die(w, c, 1, true);
	}
}

void sim_link_drop_all(struct sim_world *w, int32_t party, bool power)
{
	for (uint32_t i = 0; i < w->conns_cap; i++) {
		struct sim_conn *c = &w->conns[i];
		for (int e = 0; e < 2 && c->serial != 0; e++)
			if (c->end[e].party == party && c->end[e].state != END_DEAD && c->end[e].state != END_NONE)
				die(w, c, e, !power);
	}
}

// ---- faults of one connection

// pick returns one of a machine's connections that are up, or NULL.
static struct sim_conn *pick(struct sim_world *w, int32_t machine, uint64_t draw)
{
	struct sim_conn *found = NULL;
	uint64_t n = 0;
	for (int pass = 0; pass < 2; pass++) {
		uint64_t k = 0;
		for (uint32_t i = 0; i < w->conns_cap; i++) {
			struct sim_conn *c = &w->conns[i];
			bool touches = sim_machine_of(c->end[0].party) == machine || sim_machine_of(c->end[1].party) == machine;
			if (c->serial == 0 || !touches || c->end[0].state != END_UP || c->end[1].state != END_UP)
				continue;
			if (pass == 1 && k == draw % n)
				found = c;
			k++;
		}
		n = k;
		if (n == 0)
			return NULL;
	}
	return found;
}

void sim_world_flip(struct sim_world *w, int32_t machine, uint64_t draw)
{
	struct sim_conn *c = pick(w, machine, draw >> 1);
	w->had_fault = true;
	if (c != NULL)
		c->end[draw & 1].flip_next = true;
}

void sim_world_reset(struct sim_world *w, int32_t machine, uint64_t draw)
{
	struct sim_conn *c = pick(w, machine, draw);
	w->had_fault = true;
	for (int e = 0; e < 2 && c != NULL; e++) {
		struct sim_packet *rst = sim_packet_new(PK_RST, &(struct sim_send){0});
		arrive(w, c, e, rst, w->now_ns + (int64_t)rng_below(&w->rng_fault, 50000000));
	}
}

void sim_world_stall(struct sim_world *w, int32_t machine, uint64_t draw, int64_t for_ns)
{
	struct sim_conn *c = pick(w, machine, draw >> 1);
	w->had_fault = true;
	if (c == NULL)
		return;
	struct sim_end *from = &c->end[draw & 1];
	if (from->last_arrival_ns < w->now_ns + for_ns)
		from->last_arrival_ns = w->now_ns + for_ns; // what follows arrives behind it
}
