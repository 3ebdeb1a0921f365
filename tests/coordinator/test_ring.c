// One coordinator core and some node cores in virtual time: messages and completions come after seeded delays, faults from a seed.
//
// The engine is a chain of hashes: a hidden state is 8 bytes that depend on the token, its position, every layer it went through and every
// position before it in the same slot. A step computed twice, skipped, out of order or in another slot changes the tokens, and the
// expected tokens are computed directly.
#include "base/rng.h"
#include "coordinator/coordinator.h"
#include "node/node.h"
#include "proto/lnk1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_NODES 3
#define N_LAYERS 7
#define HIDDEN 2 // f32 values: one 8-byte hash
#define VOCAB 50
#define CTX 48
#define CHUNK 4
#define SLOTS 3
#define CREDITS 4
#define MS INT64_C(1000000)
#define N_REQS 12
#define HEAD (-1)

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x = a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2));
	x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 29);
}

// ---- the queue

enum what { DELIVER, LINK_UP_AT, LINK_DOWN_AT, EMBEDDED, SAMPLED_AT, STORED_AT, RANDOM_AT, FORWARDED, LOADED_AT, RESTART, FINISH };

struct ev {
	int64_t at;
	uint64_t order;
	enum what what;
	int32_t who; // HEAD or a node
	uint32_t link, id;
	uint32_t life; // of the node when it was queued: a crashed one's completions are void
	int kind;
	int32_t peer;
	size_t len;
	uint8_t *data;
};

struct fake_node {
	struct node *core;
	struct node_effects *fx;
	bool is_up;
	bool exits; // in order: its program ends, and is started again later
	uint32_t life;
	uint8_t pk[KEY_BYTES];
	struct node_id id;
	uint8_t bufs[CREDITS][CHUNK * 8];
	uint64_t kv[SLOTS][N_LAYERS][CTX];
	int32_t n_done[SLOTS][N_LAYERS];
	uint8_t sent[SLOTS][CTX * 8];
	int32_t layer_begin, layer_end;
	enum err errs[NODE_ITEMS_MAX];
	const struct node_forward_item *items;
	int32_t n_items;
	bool wants[N_NODES]; // direct links it asks for
	const uint8_t *message;
};

struct request {
	bool submitted, ended;
	enum coord_end end;
	int32_t prompt[CTX], n_prompt, n_predict;
	int32_t got[CTX], n_got, expected[CTX];
};

struct sim {
	struct rng rng;
	int64_t now;
	uint64_t n_ev_made;
	struct ev evs[4096];
	int32_t n_evs;
	struct coordinator *coord;
	struct coord_effects *fx;
	int32_t *tokens;
	uint8_t head_bufs[2 * CREDITS + SLOTS][CHUNK * 8];
	const uint8_t *message;
	size_t message_len;
	struct coord_effect sample;
	struct fake_node nodes[N_NODES];
	struct request reqs[N_REQS + 1];
	int64_t fifo[4096];   // last delivery per link end
	uint32_t next_link;
	struct { uint32_t handle; int32_t a, b; int kind; bool is_up, has_dropped; } links[1024]; // a: HEAD or a node; has_dropped: a frame is lost
	int32_t n_links;
	uint64_t keep_bytes;
	int32_t n_forward_batched;
	int32_t n_partial; // batches that ran fewer layers than the stage has
	int32_t n_fetched;
};

static void step_coord(struct sim *s, struct coord_event *ev);
static void crash(struct sim *s, int32_t i);
static void step_node(struct sim *s, int32_t i, struct node_event *ev);

static struct ev *push(struct sim *s, int64_t delay, enum what what, int32_t who)
{
	assert_true(s->n_evs < 4096);
	struct ev *e = &s->evs[s->n_evs++];
	*e = (struct ev){.at = s->now + delay, .order = s->n_ev_made++, .what = what, .who = who, .life = who >= 0 ? s->nodes[who].life : 0};
	return e;
}

static int64_t delay(struct sim *s)
{
	return (int64_t)(1 + rng_below(&s->rng, 20)) * MS;
}

// ---- links

static int32_t find_link(struct sim *s, uint32_t handle)
{
	for (int32_t i = 0; i < s->n_links; i++)
		if (s->links[i].handle == handle)
			return i;
	return -1;
}

static void link_up(struct sim *s, int32_t a, int32_t b, int kind)
{
	assert_true(s->n_links < 1024);
	s->links[s->n_links].handle = ++s->next_link;
	s->links[s->n_links].a = a;
	s->links[s->n_links].b = b;
	s->links[s->n_links].kind = kind;
	s->links[s->n_links++].is_up = true;
	int64_t d = delay(s);
	for (int side = 0; side < 2; side++) {
		struct ev *e = push(s, d, LINK_UP_AT, side == 0 ? a : b);
		e->link = s->next_link;
		e->kind = kind;
		e->peer = side == 0 ? b : a;
	}
}

// drop_link_up: an end that has not heard of the link never will.
static bool drop_link_up(struct sim *s, uint32_t handle, int32_t who)
{
	for (int32_t k = 0; k < s->n_evs; k++) {
		if (s->evs[k].what == LINK_UP_AT && s->evs[k].link == handle && s->evs[k].who == who) {
			s->evs[k] = s->evs[--s->n_evs];
			return true;
		}
	}
	return false;
}

// link_cut: both ends hear of it, each in its own time; what is under way is lost.
static void link_cut(struct sim *s, int32_t i)
{
	if (!s->links[i].is_up)
		return;
	s->links[i].is_up = false;
	s->links[i].has_dropped = true;
	int32_t ends[] = {s->links[i].a, s->links[i].b};
	for (int side = 0; side < 2; side++)
		if (!drop_link_up(s, s->links[i].handle, ends[side]))
			push(s, delay(s), LINK_DOWN_AT, ends[side])->link = s->links[i].handle;
	for (int32_t k = 0; k < s->n_evs; k++)
		if (s->evs[k].what == DELIVER && s->evs[k].link == s->links[i].handle)
			s->evs[k].kind = -1;
}

// link_finish ends a link in order: what is under way arrives first.
static void link_finish(struct sim *s, int32_t i)
{
	if (!s->links[i].is_up)
		return;
	s->links[i].is_up = false;
	int32_t ends[] = {s->links[i].a, s->links[i].b};
	for (int side = 0; side < 2; side++) {
		if (drop_link_up(s, s->links[i].handle, ends[side])) {
			s->links[i].has_dropped = true;
			continue;
		}
		int64_t at = s->now + delay(s), last = s->fifo[2 * i + (side == 0)];
		push(s, (at > last ? at : last + 1) - s->now, LINK_DOWN_AT, ends[side])->link = s->links[i].handle;
	}
}

static void close_link(struct sim *s, uint32_t handle, bool orderly)
{
	int32_t i = find_link(s, handle);
	if (i >= 0 && orderly)
		link_finish(s, i);
	else if (i >= 0)
		link_cut(s, i);
}

static void send(struct sim *s, int32_t from, uint32_t handle, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t len)
{
	int32_t i = find_link(s, handle);
	if (i < 0 || !s->links[i].is_up) {
		if (i >= 0 && !frame_is_ping(head))
			s->links[i].has_dropped = true;
		return;
	}
	int32_t to = s->links[i].a == from ? s->links[i].b : s->links[i].a;
	int64_t at = s->now + delay(s), *last = &s->fifo[2 * i + (to == s->links[i].a)];
	at = at > *last ? at : *last + 1;
	*last = at;
	struct ev *e = push(s, at - s->now, DELIVER, to);
	e->link = handle;
	e->len = head_len + len;
	e->data = malloc(e->len);
	memcpy(e->data, head, head_len);
	if (len > 0)
		memcpy(e->data + head_len, payload, len);
}

static int32_t node_of(struct sim *s, struct node_id id)
{
	for (int32_t i = 0; i < N_NODES; i++)
		if (node_id_is(s->nodes[i].id, id))
			return i;
	return HEAD;
}

static bool is_joined(struct sim *s, int32_t a, int32_t b, int kind)
{
	for (int32_t i = 0; i < s->n_links; i++)
		if (s->links[i].is_up && s->links[i].kind == kind &&
			((s->links[i].a == a && s->links[i].b == b) || (s->links[i].a == b && s->links[i].b == a)))
			return true;
	return false;
}

// hears_of_loss: the end of a lost link to `peer` has yet to be told. Who dials, dials after that.
static bool hears_of_loss(struct sim *s, int32_t who, int32_t peer)
{
	for (int32_t k = 0; k < s->n_evs; k++) {
		int32_t l = s->evs[k].what == LINK_DOWN_AT && s->evs[k].who == who ? find_link(s, s->evs[k].link) : -1;
		if (l >= 0 && (s->links[l].a == peer || s->links[l].b == peer))
			return true;
	}
	return false;
}

// dial does what dialers do: links that are wanted and down come up.
static void dial(struct sim *s)
{
	for (int32_t i = 0; i < N_NODES; i++) {
		struct fake_node *n = &s->nodes[i];
		for (int kind = 0; n->is_up && kind < 2; kind++)
			if (!is_joined(s, HEAD, i, kind) && !hears_of_loss(s, i, HEAD))
				link_up(s, HEAD, i, kind);
		for (int32_t k = i + 1; n->is_up && k < N_NODES; k++)
			if (s->nodes[k].is_up && n->wants[k] && s->nodes[k].wants[i] && !is_joined(s, i, k, 1) && !hears_of_loss(s, i, k))
				link_up(s, i, k, 1);
	}
}

// ---- effects of a node

static void fx_forward(struct sim *s, int32_t i, const struct node_effect *f)
{
	struct fake_node *n = &s->nodes[i];
	n->items = f->u.forward.items;
	n->n_items = f->u.forward.n_items;
	int32_t begin = f->u.forward.layer_begin, end = f->u.forward.layer_end;
	assert_true(n->layer_begin <= begin && begin < end && end <= n->layer_end);
	s->n_forward_batched += n->n_items > 1;
	s->n_partial += end - begin < n->layer_end - n->layer_begin;
	for (int32_t k = 0; k < n->n_items; k++) {
		const struct node_forward_item *it = &n->items[k];
		n->errs[k] = OK;
		for (int32_t t = 0; t < it->n_tokens; t++) {
			uint64_t h;
			memcpy(&h, n->bufs[it->buf] + 8 * t, 8);
			for (int32_t l = begin; l < end; l++) {
				int32_t pos = it->pos + t;
				assert_true(pos <= n->n_done[it->slot][l]);
				n->n_done[it->slot][l] = pos + 1;
				h = mix(mix(h, (uint64_t)l), pos > 0 ? n->kv[it->slot][l][pos - 1] : 77);
				n->kv[it->slot][l][pos] = h;
			}
			memcpy(n->bufs[it->buf] + 8 * t, &h, 8);
		}
	}
	push(s, delay(s), FORWARDED, i)->id = f->u.forward.id;
}

static void node_effect(struct sim *s, int32_t i, const struct node_effect *f)
{
	struct fake_node *n = &s->nodes[i];
	switch (f->type) {
	case NODE_FX_CONNECT:
		if (node_of(s, f->u.connect.peer) != HEAD)
			n->wants[node_of(s, f->u.connect.peer)] = true;
		break;
	case NODE_FX_DISCONNECT: {
		int32_t k = node_of(s, f->u.connect.peer);
		n->wants[k] = false;
		for (int32_t l = 0; l < s->n_links; l++)
			if (s->links[l].is_up && s->links[l].a != HEAD && ((s->links[l].a == i && s->links[l].b == k) || (s->links[l].a == k && s->links[l].b == i)))
				link_cut(s, l);
		break;
	}
	case NODE_FX_CLOSE: close_link(s, f->u.close.link, f->u.close.orderly); break;
	case NODE_FX_SEND:
		send(s, i, f->u.send.link, f->u.send.head, f->u.send.head_len, f->u.send.buf >= 0 ? n->bufs[f->u.send.buf] + f->u.send.off : NULL, f->u.send.len);
		break;
	case NODE_FX_TAKE: memcpy(n->bufs[f->u.take.buf], n->message + f->u.take.msg_off, f->u.take.len); break;
	case NODE_FX_LOAD:
		for (int32_t l = 0; l < N_LAYERS; l++)
			for (int32_t k = 0; k < SLOTS && (l < f->u.load.layer_begin || l >= f->u.load.layer_end); k++)
				n->n_done[k][l] = 0; // let go
		n->layer_begin = f->u.load.layer_begin;
		n->layer_end = f->u.load.layer_end;
		push(s, delay(s), LOADED_AT, i)->id = f->u.load.id;
		break;
	case NODE_FX_FORWARD: fx_forward(s, i, f); break;
	case NODE_FX_STORE: push(s, delay(s), STORED_AT, i)->id = f->u.store.id; break;
	case NODE_FX_EXIT: n->exits = true; break;
	case NODE_FX_KEEP: memcpy(n->sent[f->u.keep.slot] + 8 * f->u.keep.pos, n->bufs[f->u.keep.buf], 8 * (size_t)f->u.keep.n_tokens); break;
	case NODE_FX_FETCH:
		s->n_fetched++;
		memcpy(n->bufs[f->u.keep.buf], n->sent[f->u.keep.slot] + 8 * f->u.keep.pos, 8 * (size_t)f->u.keep.n_tokens);
		break;
	case NODE_FX_DROP: memset(n->sent[f->u.keep.slot], 0xee, sizeof n->sent[0]); break;
	case NODE_FX_UNLOAD: memset(n->n_done, 0, sizeof n->n_done); break;
	case NODE_FX_REFRESH:
	case NODE_FX_LOG: break;
	}
}

static void step_node(struct sim *s, int32_t i, struct node_event *ev)
{
	struct fake_node *n = &s->nodes[i];
	ev->now_ns = s->now;
	node_step(n->core, ev, n->fx);
	for (int32_t k = 0; k < n->fx->n; k++)
		node_effect(s, i, &n->fx->at[k]);
	node_check(n->core);
	if (n->exits)
		crash(s, i);
}

// ---- effects of the coordinator

static void on_end(struct sim *s, const struct coord_effect *f)
{
	struct request *r = &s->reqs[f->u.end.req];
	assert_false(r->ended);
	r->ended = true;
	r->end = f->u.end.end;
}

static void on_emit(struct sim *s, const struct coord_effect *f)
{
	struct request *r = &s->reqs[f->u.emit.req];
	assert_false(r->ended);
	assert_int_equal(f->u.emit.pos, r->n_prompt + r->n_got);
	assert_int_equal(f->u.emit.token, r->expected[r->n_got]);
	r->got[r->n_got++] = f->u.emit.token;
}

static void coord_effect(struct sim *s, const struct coord_effect *f)
{
	switch (f->type) {
	case COORD_FX_SEND:
		send(s, HEAD, f->u.send.link, f->u.send.head, f->u.send.head_len, f->u.send.buf >= 0 ? s->head_bufs[f->u.send.buf] + f->u.send.off : NULL,
			f->u.send.len);
		break;
	case COORD_FX_RELAY:
		assert_true(s->message != NULL);
		send(s, HEAD, f->u.close.link, s->message, s->message_len, NULL, 0);
		break;
	case COORD_FX_TAKE: memcpy(s->head_bufs[f->u.take.buf], s->message + f->u.take.msg_off, f->u.take.len); break;
	case COORD_FX_CLOSE: close_link(s, f->u.close.link, f->u.close.orderly); break;
	case COORD_FX_FORWARD:
		for (int32_t i = 0; i < f->u.forward.n_items; i++) {
			const struct coord_embed_item *it = &f->u.forward.items[i];
			for (int32_t t = 0; t < it->n_tokens; t++) {
				uint64_t h = mix((uint64_t)it->tokens[t], 5);
				memcpy(s->head_bufs[it->buf] + 8 * t, &h, 8);
			}
		}
		push(s, delay(s), EMBEDDED, HEAD)->id = f->u.forward.id;
		break;
	case COORD_FX_SAMPLE:
		s->sample = *f;
		push(s, delay(s), SAMPLED_AT, HEAD)->id = f->u.sample.id;
		break;
	case COORD_FX_EMIT: on_emit(s, f); break;
	case COORD_FX_END: on_end(s, f); break;
	case COORD_FX_STORE: push(s, delay(s), STORED_AT, HEAD)->id = f->u.store.id; break;
	case COORD_FX_NEED_RANDOM: push(s, delay(s), RANDOM_AT, HEAD); break;
	case COORD_FX_ACCEPT:
	case COORD_FX_REFUSE:
	case COORD_FX_ANSWER:
	case COORD_FX_LOG: break;
	}
}

static void step_coord(struct sim *s, struct coord_event *ev)
{
	ev->now_ns = s->now;
	ev->wall_s = 1000 + s->now / 1000000000;
	coordinator_step(s->coord, ev, s->fx);
	// Effects may need the same array again only after the next step: carry out from a place that stays.
	for (int32_t k = 0; k < s->fx->n; k++)
		coord_effect(s, &s->fx->at[k]);
	coordinator_check(s->coord);
}

// ---- events

static void on_sampled(struct sim *s, uint32_t id)
{
	struct coord_sampled out[COORD_ITEMS_MAX];
	for (int32_t i = 0; i < s->sample.u.sample.n_items; i++) {
		const struct coord_sample_item *it = &s->sample.u.sample.items[i];
		uint64_t h;
		memcpy(&h, s->head_bufs[it->buf] + 8 * (it->n_rows - 1), 8);
		out[i] = (struct coord_sampled){.token = (int32_t)(h % VOCAB)};
	}
	struct coord_event ev = {.type = COORD_EV_SAMPLED};
	ev.u.sampled.id = id;
	ev.u.sampled.items = out;
	ev.u.sampled.text = "";
	step_coord(s, &ev);
}

static void at_head(struct sim *s, const struct ev *e)
{
	struct coord_event ev = {0};
	switch (e->what) {
	case DELIVER:
		ev.type = COORD_EV_MESSAGE;
		ev.u.message.link = e->link;
		ev.u.message.data = s->message = e->data;
		ev.u.message.len = s->message_len = e->len;
		step_coord(s, &ev);
		s->message = NULL;
		return;
	case LINK_UP_AT:
		ev.type = COORD_EV_LINK_UP;
		ev.u.link_up.link = e->link;
		ev.u.link_up.peer = s->nodes[e->peer].id;
		ev.u.link_up.kind = e->kind == 0 ? COORD_LINK_CONTROL : COORD_LINK_DATA;
		ev.u.link_up.remote = "10.0.0.1";
		break;
	case LINK_DOWN_AT:
		ev.type = COORD_EV_LINK_DOWN;
		ev.u.link_down.link = e->link;
		ev.u.link_down.orderly = !s->links[find_link(s, e->link)].has_dropped;
		ev.u.link_down.reason = "cut";
		break;
	case EMBEDDED:
		ev.type = COORD_EV_FORWARD_DONE;
		ev.u.forward_done.id = e->id;
		break;
	case SAMPLED_AT: on_sampled(s, e->id); return;
	case STORED_AT:
		ev.type = COORD_EV_STORED;
		ev.u.stored.id = e->id;
		break;
	default:
		ev.type = COORD_EV_RANDOM;
		memset(ev.u.random.bytes, (int)rng_below(&s->rng, 256), KEY_BYTES);
		break;
	}
	step_coord(s, &ev);
}

static void start_node(struct sim *s, int32_t i)
{
	struct fake_node *n = &s->nodes[i];
	struct node_config c = {.self = n->id, .n_layers = N_LAYERS, .hidden_dim = HIDDEN, .n_threads = 1, .port = 7434, .liveness = liveness_defaults,
		.link_age_ns = INT64_MAX, .keep_bytes = s->keep_bytes};
	memset(c.coordinator.b, 0xcc, NODE_ID_BYTES);
	snprintf(c.name, sizeof c.name, "n%d", (int)i);
	n->is_up = true;
	n->exits = false;
	memset(n->n_done, 0, sizeof n->n_done);
	node_init(n->core, &c);
	struct node_event ev = {.type = NODE_EV_START};
	step_node(s, i, &ev);
}

static void at_node(struct sim *s, const struct ev *e)
{
	struct fake_node *n = &s->nodes[e->who];
	struct node_event ev = {0};
	if (e->what == RESTART) {
		start_node(s, e->who);
		return;
	}
	if (!n->is_up || (e->life != n->life && e->what != DELIVER))
		return;
	switch (e->what) {
	case DELIVER:
		ev.type = NODE_EV_MESSAGE;
		ev.u.message.link = e->link;
		ev.u.message.data = n->message = e->data;
		ev.u.message.len = e->len;
		break;
	case LINK_UP_AT:
		ev.type = NODE_EV_LINK_UP;
		ev.u.link_up.link = e->link;
		if (e->peer == HEAD)
			memset(ev.u.link_up.peer.b, 0xcc, NODE_ID_BYTES);
		else
			ev.u.link_up.peer = s->nodes[e->peer].id;
		ev.u.link_up.kind = e->kind == 0 ? NODE_LINK_CONTROL : NODE_LINK_DATA;
		break;
	case LINK_DOWN_AT:
		ev.type = NODE_EV_LINK_DOWN;
		ev.u.link_down.link = e->link;
		ev.u.link_down.orderly = !s->links[find_link(s, e->link)].has_dropped;
		ev.u.link_down.reason = "cut";
		break;
	case FORWARDED:
		ev.type = NODE_EV_FORWARD_DONE;
		ev.u.forward_done.id = e->id;
		ev.u.forward_done.errs = n->errs;
		ev.u.forward_done.text = "";
		break;
	case LOADED_AT:
		ev.type = NODE_EV_LOADED;
		ev.u.loaded.id = e->id;
		ev.u.loaded.text = "";
		break;
	default:
		ev.type = NODE_EV_STORED;
		ev.u.stored.id = e->id;
		break;
	}
	step_node(s, e->who, &ev);
}

static void ticks(struct sim *s)
{
	if (coordinator_deadline_ns(s->coord) <= s->now) {
		struct coord_event ev = {.type = COORD_EV_TICK};
		step_coord(s, &ev);
	}
	for (int32_t i = 0; i < N_NODES; i++) {
		if (s->nodes[i].is_up && node_deadline_ns(s->nodes[i].core) <= s->now) {
			struct node_event ev = {.type = NODE_EV_TICK};
			step_node(s, i, &ev);
		}
	}
}

static int64_t next_tick(struct sim *s)
{
	int64_t t = coordinator_deadline_ns(s->coord);
	for (int32_t i = 0; i < N_NODES; i++)
		if (s->nodes[i].is_up && node_deadline_ns(s->nodes[i].core) < t)
			t = node_deadline_ns(s->nodes[i].core);
	return t;
}

// run_until runs the world until `end`.
static void run_until(struct sim *s, int64_t end)
{
	while (s->now < end) {
		dial(s);
		int32_t best = -1;
		for (int32_t i = 0; i < s->n_evs; i++)
			if (best < 0 || s->evs[i].at < s->evs[best].at || (s->evs[i].at == s->evs[best].at && s->evs[i].order < s->evs[best].order))
				best = i;
		int64_t tick = next_tick(s);
		if (best < 0 || s->evs[best].at > tick) {
			s->now = tick > s->now ? (tick < end ? tick : end) : s->now;
			ticks(s);
			if (best < 0 && tick > end)
				s->now = end;
			continue;
		}
		if (s->evs[best].at > end) {
			s->now = end;
			return;
		}
		struct ev e = s->evs[best];
		s->evs[best] = s->evs[--s->n_evs];
		s->now = e.at > s->now ? e.at : s->now;
		if (e.what == FINISH) {
			link_finish(s, find_link(s, e.link));
		} else if (e.what != DELIVER || e.kind != -1) {
			if (e.who == HEAD)
				at_head(s, &e);
			else
				at_node(s, &e);
		}
		free(e.data);
	}
}

// ---- the world

static void expect(struct request *r)
{
	uint64_t kv[N_LAYERS] = {0};
	int32_t tokens[CTX], n = r->n_prompt;
	memcpy(tokens, r->prompt, sizeof tokens);
	for (int32_t pos = 0; pos < r->n_prompt + r->n_predict - 1; pos++) {
		uint64_t h = mix((uint64_t)tokens[pos], 5);
		for (int32_t l = 0; l < N_LAYERS; l++) {
			h = mix(mix(h, (uint64_t)l), pos > 0 ? kv[l] : 77);
			kv[l] = h;
		}
		if (pos + 1 < n)
			continue;
		tokens[n++] = (int32_t)(h % VOCAB);
		r->expected[n - 1 - r->n_prompt] = tokens[n - 1];
	}
}

static void submit(struct sim *s, uint64_t req)
{
	struct request *r = &s->reqs[req];
	r->submitted = true;
	r->n_prompt = 1 + (int32_t)rng_below(&s->rng, 20);
	r->n_predict = 1 + (int32_t)rng_below(&s->rng, 20);
	for (int32_t i = 0; i < r->n_prompt; i++)
		r->prompt[i] = (int32_t)rng_below(&s->rng, VOCAB);
	expect(r);
	struct coord_event ev = {.type = COORD_EV_SUBMIT};
	ev.u.submit.req = req;
	ev.u.submit.tokens = r->prompt;
	ev.u.submit.n_tokens = r->n_prompt;
	ev.u.submit.n_predict = r->n_predict;
	ev.u.submit.hash_logits = rng_below(&s->rng, 3) == 0;
	step_coord(s, &ev);
}

static struct sim *sim_open(uint64_t seed)
{
	struct sim *s = calloc(1, sizeof *s);
	rng_init(&s->rng, seed);
	s->keep_bytes = seed % 4 == 0 ? rng_below(&s->rng, 512) : 1 << 20;
	s->coord = calloc(1, coordinator_size());
	s->fx = calloc(1, sizeof *s->fx);
	s->tokens = calloc((size_t)SESSIONS_MAX * CTX, sizeof *s->tokens);
	struct coordinator_config c = {.n_layers = N_LAYERS, .hidden_dim = HIDDEN, .vocab_size = VOCAB, .n_slots = SLOTS, .ctx_len = CTX, .chunk_max = CHUNK,
		.hop_credits = CREDITS, .n_nodes_min = N_NODES, .liveness = liveness_defaults, .session_wait_ns = INT64_C(150000000000)};
	memset(c.self.b, 0xcc, NODE_ID_BYTES);
	struct member_record members[N_NODES];
	memset(members, 0, sizeof members);
	for (int32_t i = 0; i < N_NODES; i++) {
		struct fake_node *n = &s->nodes[i];
		n->core = calloc(1, node_size());
		n->fx = calloc(1, sizeof *n->fx);
		memset(n->pk, i + 1, KEY_BYTES);
		lnk1_node_id(n->pk, n->id.b);
		members[i].id = n->id;
		memcpy(members[i].public_key, n->pk, KEY_BYTES);
		snprintf(members[i].name, NAME_CAP, "n%d", (int)i);
	}
	coordinator_init(s->coord, &c, s->tokens);
	struct coord_event ev = {.type = COORD_EV_RESTORED};
	ev.u.restored.members = members;
	ev.u.restored.n_members = N_NODES;
	step_coord(s, &ev);
	for (int32_t i = 0; i < N_NODES; i++)
		start_node(s, i);
	return s;
}

static void sim_close(struct sim *s)
{
	for (int32_t i = 0; i < s->n_evs; i++)
		free(s->evs[i].data);
	for (int32_t i = 0; i < N_NODES; i++) {
		free(s->nodes[i].core);
		free(s->nodes[i].fx);
	}
	free(s->coord);
	free(s->fx);
	free(s->tokens);
	free(s);
}

static void crash(struct sim *s, int32_t i)
{
	s->nodes[i].is_up = false;
	s->nodes[i].life++;
	memset(s->nodes[i].wants, 0, sizeof s->nodes[i].wants);
	for (int32_t l = 0; l < s->n_links; l++)
		if (s->links[l].a == i || s->links[l].b == i)
			link_cut(s, l);
	push(s, 2000 * MS, RESTART, i);
}

// expect_idle returns how many answers went on after a loss.
static uint64_t expect_idle(struct sim *s)
{
	struct coord_status *st = calloc(1, sizeof *st);
	coordinator_status(s->coord, st);
	assert_true(st->ready);
	assert_int_equal(st->n_active, 0);
	assert_int_equal(st->n_waiting, 0);
	assert_int_equal(st->n_bufs_used, 0);
	uint64_t n_recovered = st->n_recovered;
	free(st);
	for (int32_t i = 0; i < N_NODES; i++) {
		struct node_status n;
		node_status_get(s->nodes[i].core, &n);
		assert_int_equal(n.n_bufs_used, 0);
	}
	return n_recovered;
}

static void answers_are_those_of_one_machine(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct sim *s = sim_open(seed);
		run_until(s, 1000 * MS);
		for (uint64_t r = 1; r <= N_REQS; r++)
			submit(s, r);
		run_until(s, 60000 * MS);
		for (uint64_t r = 1; r <= N_REQS; r++) {
			assert_true(s->reqs[r].ended);
			assert_int_equal(s->reqs[r].end, COORD_END_LENGTH);
			assert_int_equal(s->reqs[r].n_got, s->reqs[r].n_predict);
		}
		assert_true(s->n_forward_batched > 0);
		expect_idle(s);
		sim_close(s);
	}
}

// renew makes a second link beside one that is up, as a dialler does every hour and two diallers do at once. The old one is ended by
// the dialler when the new one is up at both ends, or it is left to the cores.
static int32_t renew(struct sim *s)
{
	int32_t i = s->n_links > 0 ? (int32_t)rng_below(&s->rng, (uint64_t)s->n_links) : 0;
	if (s->n_links == 0 || !s->links[i].is_up)
		return -1;
	for (int32_t k = 0; k < s->n_links; k++)
		if (k != i && s->links[k].is_up && s->links[k].kind == s->links[i].kind && s->links[k].a == s->links[i].a && s->links[k].b == s->links[i].b)
			return -1; // two already
	link_up(s, s->links[i].a, s->links[i].b, s->links[i].kind);
	if (rng_below(&s->rng, 2) == 0)
		push(s, (int64_t)(21 + rng_below(&s->rng, 20)) * MS, FINISH, HEAD)->link = s->links[i].handle;
	return i;
}

static void fault(struct sim *s)
{
	int32_t renewed = rng_below(&s->rng, 3) == 0 ? renew(s) : -1;
	if (renewed >= 0 && rng_below(&s->rng, 2) == 0) { // in the middle of it
		run_until(s, s->now + (int64_t)rng_below(&s->rng, 60) * MS);
		link_cut(s, rng_below(&s->rng, 2) == 0 ? renewed : s->n_links - 1);
	}
	int32_t i = (int32_t)rng_below(&s->rng, N_NODES);
	switch (rng_below(&s->rng, 5)) {
	case 0:
		if (s->nodes[i].is_up)
			crash(s, i);
		break;
	case 1:
		if (s->nodes[i].is_up) {
			struct node_event ev = {.type = NODE_EV_LEAVE};
			step_node(s, i, &ev);
		}
		break;
	case 2:
	case 3:
		if (s->n_links > 0)
			link_cut(s, (int32_t)rng_below(&s->rng, (uint64_t)s->n_links));
		break;
	default: {
		struct coord_event ev = {.type = COORD_EV_CANCEL};
		ev.u.cancel.req = 1 + rng_below(&s->rng, N_REQS);
		step_coord(s, &ev);
		break;
	}
	}
}

static void renewed_links_lose_nothing(void **state)
{
	(void)state;
	int32_t n_renewed = 0;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct sim *s = sim_open(seed);
		run_until(s, 1000 * MS);
		for (uint64_t r = 1; r <= N_REQS; r++) {
			submit(s, r);
			for (int k = 0; k < 3; k++) {
				n_renewed += renew(s) >= 0;
				run_until(s, s->now + (int64_t)rng_below(&s->rng, 200) * MS);
			}
		}
		run_until(s, s->now + 60000 * MS);
		for (uint64_t r = 1; r <= N_REQS; r++) {
			if (!s->reqs[r].ended || s->reqs[r].end != COORD_END_LENGTH)
				fail_msg("seed %d: request %d ended with %d", (int)seed, (int)r, s->reqs[r].ended ? (int)s->reqs[r].end : -1);
			assert_int_equal(s->reqs[r].n_got, s->reqs[r].n_predict);
		}
		expect_idle(s);
		sim_close(s);
	}
	assert_true(n_renewed > 500);
}

static void answers_survive_faults_to_the_token(void **state)
{
	(void)state;
	int32_t n_good = 0;
	uint64_t n_recovered = 0, n_partial = 0, n_fetched = 0;
	for (uint64_t seed = 1; seed <= 150; seed++) {
		struct sim *s = sim_open(seed);
		run_until(s, (int64_t)rng_below(&s->rng, 300) * MS);
		for (uint64_t r = 1; r <= N_REQS; r++) {
			submit(s, r);
			run_until(s, s->now + (int64_t)rng_below(&s->rng, 400) * MS);
			if (rng_below(&s->rng, 2) == 0)
				fault(s);
		}
		run_until(s, s->now + 60000 * MS); // no fault any more: all must be served in bounded time
		for (uint64_t r = 1; r <= N_REQS; r++) {
			if (!s->reqs[r].ended)
				fail_msg("seed %d: request %d never ended", (int)seed, (int)r);
			n_good += s->reqs[r].end == COORD_END_LENGTH;
			assert_int_not_equal(s->reqs[r].end, COORD_END_ERROR);
			if (s->reqs[r].end == COORD_END_LENGTH)
				assert_int_equal(s->reqs[r].n_got, s->reqs[r].n_predict);
		}
		n_recovered += expect_idle(s);
		n_partial += (uint64_t)s->n_partial;
		n_fetched += (uint64_t)s->n_fetched;
		sim_close(s);
	}
	assert_true(n_good > 100);
	assert_true(n_recovered > 100);
	assert_true(n_partial > 50);
	assert_true(n_fetched > 50);
	print_message("%llu answers recovered, %llu batches of lost layers, %llu fetched\n", (unsigned long long)n_recovered, (unsigned long long)n_partial,
		(unsigned long long)n_fetched);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_are_those_of_one_machine),
		cmocka_unit_test(renewed_links_lose_nothing),
		cmocka_unit_test(answers_survive_faults_to_the_token),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
