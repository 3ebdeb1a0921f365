// Groups of node cores computing together, in any order of events: what a single machine would compute, exactly once. The engine here is a hash
// of all that was ever contributed, so that a missing, stale or swapped contribution shows.
#include "base/rng.h"
#include "node/node.h"
#include "proto/lnk1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S INT64_C(1000000000)
#define HIDDEN 2
#define ROW (HIDDEN * 4)
#define CHUNK 6
#define N_LAYERS 3
#define PER_LAYER 2 // exchanges
#define PART_MAX 400
#define MEMBERS 4
#define PLACES (MEMBERS + 1) // the last one is the coordinator
#define PART_BUFS (NODE_FORWARDS_MAX * (MEMBERS + 1) * MEMBERS)
#define QUEUE 512
#define FRAME_CAP 1024

struct message {
	size_t len;
	uint8_t bytes[FRAME_CAP];
};

// What one end has sent to another on one kind of link.
struct queue {
	bool is_up;
	int32_t n;
	struct message at[QUEUE];
};

// A forward in the engine.
struct fake_forward {
	bool is_computing;
	uint64_t order; // of being given to the engine
	uint32_t id;
	int32_t n_items, exchange;
	struct node_forward_item items[NODE_ITEMS_MAX];
	uint64_t state;
	int32_t n_tokens;
	uint64_t failed;
	bool is_first; // FORWARD, not CONTINUE
	bool is_behind, is_over;
	int32_t which;
};

struct machine {
	struct node *core;
	uint8_t bufs[16 * CHUNK * ROW];
	uint8_t parts[PART_BUFS][PART_MAX];
	// The engine.
	bool is_loading;
	uint32_t load_id;
	struct fake_forward forwards[NODE_FORWARDS_MAX];
	uint64_t streamed; // bytes of its weights
	uint64_t n_given, n_behind;
	uint64_t n_forwards, n_broken, n_not_kept, n_non_finite;
};

struct world {
	int32_t n, hub;
	enum split_mode mode;
	int32_t n_exchanges, furthest; // how far a part was ahead of its receiver
	uint64_t epoch;
	struct rng rng;
	int64_t now;
	struct node_effects *fx;
	struct machine *m; // (n)
	struct queue (*data)[PLACES], (*control)[PLACES]; // [from][to]
	uint8_t pk[PLACES][KEY_BYTES];
	struct node_id ids[PLACES];
	int32_t n_replies, n_credits;
	uint64_t reply; // payload of the last one
	int32_t fail_member, refuse_member; // -1: none
	uint64_t n_part_bytes;
};

static uint64_t mix(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;
	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h ^ h >> 29;
}

static uint32_t part_bytes(int32_t member, int32_t exchange, int32_t n_tokens)
{
	int32_t each = (5 * member + 3 * exchange) % 7; // some have nothing to give
	return (uint32_t)(each * n_tokens);
}

// counts tells whether a member's part is in what another one computes, its own included.
static bool counts(const struct world *w, int32_t from, int32_t to, int32_t exchange)
{
	return from == to || !split_is_hop(w->mode, w->n, exchange) || from == split_before(to, 1, w->n);
}

static void fill_part(uint64_t state, int32_t member, int32_t exchange, uint8_t *out, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++) {
		const uint64_t words[] = {(uint64_t)member, (uint64_t)exchange, i};
		out[i] = (uint8_t)(mix(state, words, sizeof words) >> 11);
	}
}

// ---- the host

static struct queue *queue_of(struct world *w, int32_t from, int32_t to, bool is_control)
{
	return is_control ? &w->control[from][to] : &w->data[from][to];
}

// Handles: 1 + 2 * far end + whether it is the control link.
static uint32_t handle_of(int32_t to, bool is_control)
{
	return 1 + 2 * (uint32_t)to + is_control;
}

static void send_to(struct world *w, int32_t from, uint32_t handle, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t len)
{
	struct queue *q = queue_of(w, from, (int32_t)(handle - 1) / 2, (handle - 1) % 2 != 0);
	if (!q->is_up)
		return;
	assert_true(q->n < QUEUE && head_len + len <= FRAME_CAP);
	struct message *m = &q->at[q->n++];
	memcpy(m->bytes, head, head_len);
	if (len > 0)
		memcpy(m->bytes + head_len, payload, len);
	m->len = head_len + len;
}

static uint8_t *buf_at(struct machine *m, enum node_pool pool, int32_t buf)
{
	assert_true(pool == NODE_PARTS ? buf < PART_BUFS : buf < 16);
	return pool == NODE_PARTS ? m->parts[buf] : m->bufs + buf * CHUNK * ROW;
}

// next_of returns the forward that the engine computes; NULL: it has none.
static struct fake_forward *next_of(struct machine *m)
{
	struct fake_forward *next = NULL;
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
		if (m->forwards[k].is_computing && (next == NULL || m->forwards[k].order < next->order))
			next = &m->forwards[k];
	return next;
}

static void give(struct machine *m, int32_t k, bool is_first, uint32_t id)
{
	struct fake_forward *f = &m->forwards[k];
	assert_false(f->is_computing || m->is_loading);
	f->is_computing = true;
	f->is_first = is_first;
	f->order = ++m->n_given;
	f->id = id;
}

static void carry_out(struct world *w, int32_t place, const struct node_effect *f, const uint8_t *message)
{
	struct machine *m = &w->m[place];
	switch (f->type) {
	case NODE_FX_SEND: {
		const uint8_t *buf = f->u.send.buf >= 0 ? buf_at(m, f->u.send.pool, f->u.send.buf) + f->u.send.off : NULL;
		if (f->u.send.head[0] == FRAME_PART && f->u.send.pool == NODE_PARTS && (w->hub < 0 || w->hub != place))
			w->n_part_bytes += f->u.send.len;
		send_to(w, place, f->u.send.link, f->u.send.head, f->u.send.head_len, buf, f->u.send.len);
		return;
	}
	case NODE_FX_TAKE:
		assert_true(f->u.take.pool == NODE_PARTS ? f->u.take.off + f->u.take.len <= PART_MAX : f->u.take.off + f->u.take.len <= CHUNK * ROW);
		for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
			for (int32_t i = 0; m->forwards[k].is_computing && !m->forwards[k].is_first && f->u.take.pool == NODE_PARTS && i < w->n; i++)
				assert_int_not_equal(f->u.take.buf, node_part_buf(w->n, i, k, m->forwards[k].which)); // the engine reads it
		memcpy(buf_at(m, f->u.take.pool, f->u.take.buf) + f->u.take.off, message + f->u.take.msg_off, f->u.take.len);
		return;
	case NODE_FX_LOAD:
		assert_true(!m->is_loading && next_of(m) == NULL);
		assert_int_equal(f->u.load.group->n_members, w->n);
		assert_int_equal(f->u.load.group->self, place);
		m->is_loading = true;
		m->load_id = f->u.load.id;
		return;
	case NODE_FX_FORWARD:
		give(m, f->u.forward.forward, true, f->u.forward.id);
		m->n_behind += f->u.forward.is_behind;
		m->forwards[f->u.forward.forward].is_behind = f->u.forward.is_behind;
		m->forwards[f->u.forward.forward].is_over = false;
		m->forwards[1 - f->u.forward.forward].is_behind = false; // it is the older one now
		m->forwards[f->u.forward.forward].n_items = f->u.forward.n_items;
		memcpy(m->forwards[f->u.forward.forward].items, f->u.forward.items, (size_t)f->u.forward.n_items * sizeof *f->u.forward.items);
		return;
	case NODE_FX_CONTINUE:
		assert_int_equal(f->u.resume.id, m->forwards[f->u.resume.forward].id);
		give(m, f->u.resume.forward, false, f->u.resume.id);
		m->forwards[f->u.resume.forward].which = f->u.resume.which;
		return;
	default: return;
	}
}

static void step(struct world *w, int32_t place, struct node_event *ev)
{
	ev->now_ns = w->now;
	node_step(w->m[place].core, ev, w->fx);
	node_check(w->m[place].core);
	for (int32_t i = 0; i < w->fx->n; i++)
		carry_out(w, place, &w->fx->at[i], ev->type == NODE_EV_MESSAGE ? ev->u.message.data : NULL);
}

// ---- the engine

static void begin_forward(struct machine *m, struct fake_forward *f)
{
	f->state = 1;
	f->n_tokens = 0;
	f->exchange = 0;
	f->failed = 0;
	m->n_forwards++;
	for (int32_t i = 0; i < f->n_items; i++) {
		const struct node_forward_item *it = &f->items[i];
		const int32_t what[] = {it->slot, it->pos, it->n_tokens};
		f->state = mix(f->state, what, sizeof what);
		f->state = mix(f->state, m->bufs + it->buf * CHUNK * ROW + it->row * ROW, (size_t)it->n_tokens * ROW);
		f->n_tokens += it->n_tokens;
	}
}

static void end_forward(struct world *w, int32_t place, struct fake_forward *f, enum err all)
{
	struct machine *m = &w->m[place];
	enum err errs[NODE_ITEMS_MAX];
	for (int32_t i = 0; i < f->n_items; i++) {
		const struct node_forward_item *it = &f->items[i];
		errs[i] = all != OK ? all : (f->failed >> i & 1) != 0 ? ERR_NON_FINITE : OK;
		memcpy(m->bufs + it->buf * CHUNK * ROW + it->row * ROW, &f->state, sizeof f->state);
	}
	f->is_over = true;
	struct node_event ev = {.type = NODE_EV_FORWARD_DONE};
	ev.u.forward_done.id = f->id;
	ev.u.forward_done.errs = errs;
	ev.u.forward_done.was_cut = all != OK;
	ev.u.forward_done.weights.streamed = m->streamed;
	step(w, place, &ev);
}

static void run_engine(struct world *w, int32_t place)
{
	struct machine *m = &w->m[place];
	struct fake_forward *f = next_of(m);
	int32_t k = (int32_t)(f - m->forwards);
	uint32_t bytes[MEMBERS];
	f->is_computing = false;
	if (f->is_behind && !m->forwards[1 - k].is_over) // it has passed the exchange that this one computes towards
		assert_true(m->forwards[1 - k].exchange > (f->is_first ? 0 : f->exchange) + 1);
	if (f->is_first)
		begin_forward(m, f);
	else
		for (int32_t i = 0; i < w->n; i++) // everybody's, this one's too, as the others have it
			if (counts(w, i, place, f->exchange))
				f->state = mix(f->state, m->parts[node_part_buf(w->n, i, k, i == place ? 0 : f->which)], part_bytes(i, f->exchange, f->n_tokens));
	if (f->is_first && w->refuse_member == place) {
		w->refuse_member = -1;
		end_forward(w, place, f, ERR_RANGE);
		return;
	}
	if (f->exchange == w->n_exchanges) {
		end_forward(w, place, f, OK);
		return;
	}
	f->exchange++;
	if (w->fail_member == place && f->exchange == 3) {
		f->failed = 1;
		w->fail_member = -1;
	}
	for (int32_t i = 0; i < w->n; i++)
		bytes[i] = counts(w, i, place, f->exchange) ? part_bytes(i, f->exchange, f->n_tokens) : 0;
	fill_part(f->state, place, f->exchange, m->parts[node_part_buf(w->n, place, k, 0)], bytes[place]);
	struct node_event ev = {.type = NODE_EV_EXCHANGE};
	ev.u.exchange.id = f->id;
	ev.u.exchange.bytes = bytes;
	ev.u.exchange.failed = f->failed;
	step(w, place, &ev);
}

// alone returns what one machine would end with.
static uint64_t alone(const struct world *w, int32_t slot, int32_t pos, const uint8_t *rows, int32_t n_tokens)
{
	const int32_t what[] = {slot, pos, n_tokens};
	uint64_t states[MEMBERS];
	for (int32_t i = 0; i < w->n; i++)
		states[i] = mix(mix(1, what, sizeof what), rows, (size_t)n_tokens * ROW);
	for (int32_t x = 1; x <= w->n_exchanges; x++) {
		uint8_t part[MEMBERS][PART_MAX];
		for (int32_t i = 0; i < w->n; i++)
			fill_part(states[i], i, x, part[i], part_bytes(i, x, n_tokens));
		for (int32_t i = 0; i < w->n * w->n; i++)
			if (counts(w, i % w->n, i / w->n, x))
				states[i / w->n] = mix(states[i / w->n], part[i % w->n], part_bytes(i % w->n, x, n_tokens));
	}
	return states[0];
}

// ---- the coordinator

static void head_takes(struct world *w, int32_t from, const struct message *m, bool is_control)
{
	struct msg got;
	struct part p;
	struct step s;
	if (is_control && msg_decode(m->bytes, m->len, &got, NULL) == OK) {
		w->m[from].n_broken += got.type == MSG_PEER_LINK && got.u.peer_link.broken;
		w->m[from].n_not_kept += got.type == MSG_STEP_FAILED && got.u.step_failed.code == STEP_NOT_KEPT;
		w->m[from].n_non_finite += got.type == MSG_STEP_FAILED && got.u.step_failed.code == STEP_NON_FINITE;
	} else if (part_decode(m->bytes, m->len, &p) == OK) {
		send_to(w, MEMBERS, handle_of(p.dst, false), m->bytes, m->len, NULL, 0);
	} else if (step_decode(m->bytes, m->len, &s) == OK) {
		assert_int_equal(from, 0);
		w->n_replies++;
		memcpy(&w->reply, m->bytes + FRAME_STEP_BYTES, sizeof w->reply);
		uint8_t frame[FRAME_CREDIT_BYTES];
		struct credit c = {.n = 1, .src_span = SPAN_HEAD, .dst_span = 0, .epoch = {w->epoch}};
		credit_encode(&c, frame);
		send_to(w, MEMBERS, handle_of(0, false), frame, sizeof frame, NULL, 0);
	} else {
		w->n_credits += m->bytes[0] == FRAME_CREDIT;
	}
}

static void deliver(struct world *w, int32_t from, int32_t to, bool is_control)
{
	struct queue *q = queue_of(w, from, to, is_control);
	struct message m = q->at[0];
	memmove(q->at, q->at + 1, (size_t)--q->n * sizeof q->at[0]);
	if (to == MEMBERS) {
		head_takes(w, from, &m, is_control);
		return;
	}
	struct part p;
	if (part_decode(m.bytes, m.len, &p) == OK && p.exchange > 1 && !w->m[to].is_loading) { // in exchange 1 a forward may end before
		int32_t ahead = (int32_t)p.exchange - w->m[to].forwards[p.forward % NODE_FORWARDS_MAX].exchange; // of what that one has sent
		w->furthest = ahead > w->furthest ? ahead : w->furthest;
	}
	struct node_event ev = {.type = NODE_EV_MESSAGE};
	ev.u.message.link = handle_of(from, is_control);
	ev.u.message.data = m.bytes;
	ev.u.message.len = m.len;
	step(w, to, &ev);
}

// happen lets one of the things that could happen now happen. False: there is none.
static bool happen(struct world *w)
{
	struct {
		int32_t from, to;
	} can[2 * PLACES * PLACES + PLACES];
	int32_t n = 0;
	for (int32_t i = 0; i < PLACES; i++) {
		for (int32_t k = 0; k < PLACES; k++) {
			if (w->data[i][k].n > 0)
				can[n].from = i, can[n++].to = k;
			if (w->control[i][k].n > 0)
				can[n].from = i, can[n++].to = k + PLACES;
		}
		if (i < w->n && (w->m[i].is_loading || next_of(&w->m[i]) != NULL))
			can[n].from = i, can[n++].to = -1;
	}
	if (n == 0)
		return false;
	int32_t pick = (int32_t)rng_below(&w->rng, (uint64_t)n), from = can[pick].from, to = can[pick].to;
	w->now += 1000;
	if (to >= 0) {
		deliver(w, from, to % PLACES, to >= PLACES);
	} else if (w->m[from].is_loading) {
		struct node_event ev = {.type = NODE_EV_LOADED};
		ev.u.loaded.id = w->m[from].load_id;
		ev.u.loaded.part_bytes = PART_MAX;
		w->m[from].is_loading = false;
		step(w, from, &ev);
	} else {
		run_engine(w, from);
	}
	return true;
}

static void settle(struct world *w)
{
	for (int32_t i = 0; happen(w); i++)
		assert_true(i < 100000);
}

static void join(struct world *w, int32_t a, int32_t b, bool is_control)
{
	queue_of(w, a, b, is_control)->is_up = queue_of(w, b, a, is_control)->is_up = true;
	for (int32_t i = 0; i < 2; i++) {
		int32_t near = i == 0 ? a : b, far = i == 0 ? b : a;
		struct node_event ev = {.type = NODE_EV_LINK_UP};
		ev.u.link_up.link = handle_of(far, is_control);
		ev.u.link_up.peer = w->ids[far];
		ev.u.link_up.kind = is_control ? NODE_LINK_CONTROL : NODE_LINK_DATA;
		if (near < w->n)
			step(w, near, &ev);
	}
}

static void part_ways(struct world *w, int32_t a, int32_t b)
{
	w->data[a][b].is_up = w->data[b][a].is_up = false;
	w->data[a][b].n = w->data[b][a].n = 0;
	for (int32_t i = 0; i < 2; i++) {
		struct node_event ev = {.type = NODE_EV_LINK_DOWN};
		ev.u.link_down.link = handle_of(i == 0 ? b : a, false);
		ev.u.link_down.reason = "gone";
		step(w, i == 0 ? a : b, &ev);
	}
}

static struct msg_peer peer(struct world *w, int32_t place)
{
	struct msg_peer p = {.present = true, .name = "member"};
	memcpy(p.public_key, w->pk[place], KEY_BYTES);
	return p;
}

static void plan_shared(struct world *w, const uint32_t shares[MEMBERS], enum wire_type payload)
{
	w->epoch++;
	for (int32_t i = 0; i < w->n; i++) {
		struct msg m = {.type = MSG_PLAN};
		uint8_t bytes[MSG_ENCODED_MAX];
		m.u.plan = (struct msg_plan){.epoch = {w->epoch}, .n_stages = 1, .layers = layer_spans_one(0, N_LAYERS), .n_slots = 4, .ctx_len = 64,
			.chunk_max = CHUNK, .hop_credits = 4, .group = {.n_members = w->n, .self = i, .mode = w->mode, .payload = payload, .hub = w->hub}};
		for (int32_t k = 0; k < w->n; k++) {
			m.u.plan.group.shares[k] = shares[k];
			if (k != i)
				m.u.plan.group.members[k] = peer(w, k);
		}
		size_t len = msg_encode(&m, bytes);
		struct queue *q = queue_of(w, MEMBERS, i, true);
		assert_true(q->n < QUEUE && len <= FRAME_CAP);
		send_to(w, MEMBERS, handle_of(i, true), bytes, len, NULL, 0);
	}
	settle(w);
}

static void plan(struct world *w, uint32_t first_share)
{
	plan_shared(w, (const uint32_t[MEMBERS]){first_share, 1, 1, 1}, WIRE_F32);
}

static void start_as(struct world *w, enum split_mode mode, int32_t n, int32_t hub, uint64_t seed)
{
	*w = (struct world){.n = n, .mode = mode, .hub = hub, .now = S, .fail_member = -1, .refuse_member = -1};
	w->n_exchanges = N_LAYERS * (split_is_ring(mode) ? split_exchanges(mode, n, false) : PER_LAYER);
	rng_init(&w->rng, seed);
	w->fx = malloc(sizeof *w->fx);
	w->m = calloc((size_t)n, sizeof *w->m);
	w->data = calloc(PLACES, sizeof *w->data);
	w->control = calloc(PLACES, sizeof *w->control);
	for (int32_t i = 0; i < PLACES; i++) {
		memset(w->pk[i], i + 1, KEY_BYTES);
		lnk1_node_id(w->pk[i], w->ids[i].b);
	}
	for (int32_t i = 0; i < n; i++) {
		struct node_config c = {.self = w->ids[i], .coordinator = w->ids[MEMBERS], .name = "here", .n_layers = N_LAYERS, .hidden_dim = HIDDEN, .n_threads = 1,
			.liveness = liveness_defaults, .link_age_ns = 3600 * S, .keep_bytes = 1 << 16};
		w->m[i].core = malloc(node_size());
		node_init(w->m[i].core, &c);
		struct node_event ev = {.type = NODE_EV_START};
		step(w, i, &ev);
		join(w, i, MEMBERS, true);
		join(w, i, MEMBERS, false);
	}
	plan(w, 1);
	for (int32_t i = 0; i < n; i++) // some pairs have no direct link
		for (int32_t k = 0; k < i; k++)
			if (rng_below(&w->rng, 4) != 0)
				join(w, i, k, false);
}

static void start(struct world *w, int32_t n, int32_t hub, uint64_t seed)
{
	start_as(w, SPLIT_GATHER, n, hub, seed);
}

static void stop(struct world *w)
{
	for (int32_t i = 0; i < w->n; i++)
		free(w->m[i].core);
	free(w->m);
	free(w->data);
	free(w->control);
	free(w->fx);
}

// ask sends one step, and returns what comes back when one machine computes it.
static uint64_t ask(struct world *w, uint64_t session, uint32_t seq, uint32_t pos, int32_t n_tokens)
{
	uint8_t bytes[FRAME_STEP_BYTES + CHUNK * ROW];
	struct step s = {.reply = REPLY_ALL, .flags = seq == 0 ? STEP_FIRST : 0, .src_span = SPAN_HEAD, .epoch = {w->epoch}, .session = {session}, .seq = seq,
		.slot = (uint32_t)session % 4, .pos = pos, .n_tokens = (uint32_t)n_tokens, .payload_len = (uint32_t)(n_tokens * ROW)};
	for (int32_t i = 0; i < n_tokens * ROW; i++)
		bytes[FRAME_STEP_BYTES + i] = (uint8_t)rng_below(&w->rng, 256);
	step_encode(&s, bytes);
	send_to(w, MEMBERS, handle_of(0, false), bytes, FRAME_STEP_BYTES + s.payload_len, NULL, 0);
	return alone(w, (int32_t)s.slot, (int32_t)pos, bytes + FRAME_STEP_BYTES, n_tokens);
}

// ---- tests

// mode_of: a hub is only in worlds of a multiple of four.
static enum split_mode mode_of(uint64_t seed)
{
	static const enum split_mode modes[] = {SPLIT_GATHER, SPLIT_MIXED_RING, SPLIT_REDUCE_RING, SPLIT_MIXED_SCATTER};
	return modes[seed % 4];
}

static void any_order_of_events_gives_what_one_machine_computes(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 150; seed++) {
		struct world w;
		int32_t n = 2 + (int32_t)(seed % 3), hub = seed % 5 == 0 ? (int32_t)(seed % (uint64_t)n) : -1;
		start(&w, n, hub, seed);
		for (uint32_t seq = 0, pos = 0; seq < 6; seq++) {
			int32_t n_tokens = seq == 0 ? CHUNK : 1;
			uint64_t want = ask(&w, 9, seq, pos, n_tokens);
			settle(&w);
			assert_int_equal(w.n_replies, seq + 1);
			assert_int_equal(w.n_credits, seq + 1);
			assert_true(w.reply == want);
			pos += (uint32_t)n_tokens;
		}
		for (int32_t i = 0; i < n; i++)
			assert_int_equal(w.m[i].n_forwards, 6);
		stop(&w);
	}
}

static void a_ring_of_members_gives_what_one_machine_computes(void **state)
{
	(void)state;
	for (int32_t k = 0; k < 2 * 3; k++) {
		enum split_mode mode = k % 2 == 0 ? SPLIT_MIXED_RING : SPLIT_REDUCE_RING;
		int32_t n = 2 + k / 2, furthest = 0;
		for (uint64_t seed = 1; seed <= 60; seed++) {
			struct world w;
			start_as(&w, mode, n, -1, seed);
			for (uint32_t seq = 0, pos = 0; seq < 5; seq++) {
				int32_t n_tokens = seq == 0 ? CHUNK : 1;
				uint64_t want = ask(&w, 9, seq, pos, n_tokens);
				settle(&w);
				assert_int_equal(w.n_replies, seq + 1);
				assert_true(w.reply == want);
				pos += (uint32_t)n_tokens;
			}
			furthest = w.furthest > furthest ? w.furthest : furthest;
			stop(&w);
		}
		assert_int_equal(furthest, n - 1);
	}
}

static void forwards_of_a_ring_follow_each_other(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		struct world w;
		start_as(&w, seed % 2 == 0 ? SPLIT_MIXED_RING : SPLIT_REDUCE_RING, 2 + (int32_t)(seed % 3), -1, seed);
		for (int32_t i = 0; i < 4 * 5; i++) {
			while (i - w.n_credits >= 4)
				assert_true(happen(&w));
			ask(&w, 4 + (uint64_t)i % 4, (uint32_t)i / 4, (uint32_t)i / 4, 1);
			for (uint64_t k = 0; k < seed % 40 && happen(&w); k++) // the next one comes in the middle of a forward
				;
		}
		settle(&w);
		assert_int_equal(w.n_replies, 4 * 5);
		assert_true(w.m[0].n_forwards > 4 * 5 / 4);
		for (int32_t i = 0; i < w.n; i++)
			assert_int_equal(w.m[i].n_forwards, w.m[0].n_forwards);
		stop(&w);
	}
}

static void several_streams_are_computed_together(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct world w;
		start(&w, 3, -1, seed);
		for (uint32_t seq = 0; seq < 5; seq++) {
			for (uint64_t session = 4; session < 8; session++)
				ask(&w, session, seq, seq, 1);
			settle(&w);
			assert_int_equal(w.n_replies, 4 * ((int32_t)seq + 1));
		}
		assert_true(w.m[0].n_forwards < 20);
		for (int32_t i = 1; i < w.n; i++) {
			assert_int_equal(w.m[i].n_forwards, w.m[0].n_forwards);
			for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
				assert_true(w.m[i].forwards[k].state == w.m[0].forwards[k].state);
		}
		stop(&w);
	}
}

// The engine of each machine looks whether the one in front has passed what the next one computes towards.
static void chunks_of_a_prompt_are_under_way_behind_each_other(void **state)
{
	(void)state;
	uint64_t n_behind = 0;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct world w;
		uint64_t want = 0;
		start(&w, 2 + (int32_t)(seed % 3), seed % 4 == 0 ? 1 : -1, seed);
		for (uint32_t seq = 0; seq < 4; seq++)
			want = ask(&w, 9, seq, seq * CHUNK, CHUNK);
		settle(&w);
		assert_int_equal(w.n_replies, 4);
		assert_true(w.reply == want);
		n_behind += w.m[0].n_behind;
		for (int32_t i = 0; i < w.n; i++)
			assert_int_equal(w.m[i].n_forwards, 4);
		stop(&w);
	}
	assert_true(n_behind > 60);
}

static void stream(struct world *w, int32_t member, uint64_t bytes)
{
	w->m[member].streamed = bytes;
	struct node_event ev = {.type = NODE_EV_WEIGHTS, .u.weights = {.reader = 1, .streamed = bytes}};
	step(w, member, &ev);
}

// compute_chunks lets a session's prompt of 4 chunks be computed, and returns how many of them began behind another.
static uint64_t compute_chunks(struct world *w, uint64_t session)
{
	uint64_t want = 0, n_behind = w->m[0].n_behind;
	int32_t n_replies = w->n_replies;
	for (uint32_t seq = 0; seq < 4; seq++)
		want = ask(w, session, seq, seq * CHUNK, CHUNK);
	settle(w);
	assert_int_equal(w->n_replies, n_replies + 4);
	assert_true(w->reply == want);
	return w->m[0].n_behind - n_behind;
}

// Two at once would read each layer for one and let it go before the other needs it.
static void where_a_member_streams_there_is_one_forward_at_a_time(void **state)
{
	(void)state;
	uint64_t n_behind = 0;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct world w;
		int32_t n = 2 + (int32_t)(seed % 3), who = (int32_t)(seed / 3 % (uint64_t)n);
		enum split_mode mode = seed % 2 == 0 ? SPLIT_GATHER : SPLIT_MIXED_RING;
		start_as(&w, mode, n, mode == SPLIT_GATHER && seed % 8 == 0 ? 1 : -1, seed);
		stream(&w, who, 1);
		assert_int_equal(compute_chunks(&w, 8), 0);
		stream(&w, who, 0); // other programs need no memory any more
		n_behind += compute_chunks(&w, 9);
		stream(&w, who, 1);
		compute_chunks(&w, 10); // told with the first of them
		assert_int_equal(compute_chunks(&w, 11), 0);
		stop(&w);
	}
	assert_true(n_behind > 60);
}

static void bytes_sent_are_those_that_the_split_says(void **state)
{
	(void)state;
	struct world w;
	start(&w, 3, -1, 7);
	ask(&w, 9, 0, 0, 5);
	settle(&w);
	uint64_t want = 0;
	for (int32_t x = 1; x <= N_LAYERS * PER_LAYER; x++)
		for (int32_t i = 0; i < 3; i++)
			want += 2 * part_bytes(i, x, 5);
	assert_true(w.n_part_bytes == want);
	stop(&w);
}

static void an_item_that_fails_in_one_member_fails_and_no_other_does(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct world w;
		start_as(&w, mode_of(seed), 3, seed % 4 == 0 ? 1 : -1, seed);
		w.fail_member = (int32_t)(seed % 3);
		int32_t who = w.fail_member;
		ask(&w, 5, 0, 0, 2);
		settle(&w);
		assert_int_equal(w.n_replies, 0);
		assert_int_equal(w.n_credits, 1);
		assert_int_equal(w.m[who].n_non_finite, 1);
		uint64_t want = ask(&w, 6, 0, 0, 2);
		settle(&w);
		assert_int_equal(w.n_replies, 1);
		assert_true(w.reply == want);
		stop(&w);
	}
}

static void a_member_that_cannot_begin_voids_the_forward_for_all(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct world w;
		start_as(&w, mode_of(seed), 3, seed % 4 == 0 ? 2 : -1, seed);
		int32_t who = w.refuse_member = (int32_t)(seed % 3);
		ask(&w, 5, 0, 0, 2);
		settle(&w);
		assert_int_equal(w.n_replies, 0);
		assert_int_equal(w.n_credits, 1);
		assert_int_equal(w.m[who].n_not_kept, 1);
		assert_int_equal(w.m[0].n_broken + w.m[1].n_broken + w.m[2].n_broken, 0);
		uint64_t want = ask(&w, 6, 0, 0, 2);
		settle(&w);
		assert_int_equal(w.n_replies, 1);
		assert_true(w.reply == want);
		stop(&w);
	}
}

// A member that has not what an item builds on says so, and the others of the batch are computed all the same.
static void a_member_without_a_session_refuses_only_that_one(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct world w;
		start(&w, 2, -1, seed);
		ask(&w, 5, 0, 0, 2);
		settle(&w);
		plan(&w, 2); // other shares: keys and values of the old ones are void
		ask(&w, 5, 0, 2, 1); // goes on all the same
		uint64_t want = ask(&w, 6, 0, 0, 2);
		settle(&w);
		assert_int_equal(w.n_replies, 2);
		assert_true(w.reply == want);
		assert_int_equal(w.m[0].n_not_kept, 1);
		stop(&w);
	}
}

static void keys_and_values_of_the_same_part_stay(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct world w;
		start(&w, 2, -1, seed);
		ask(&w, 5, 0, 0, 2);
		settle(&w);
		plan_shared(&w, (const uint32_t[MEMBERS]){3, 3}, WIRE_F32); // halves, in another unit
		uint64_t want = ask(&w, 5, 0, 2, 1);
		settle(&w);
		assert_int_equal(w.n_replies, 2);
		assert_true(w.reply == want);
		stop(&w);
	}
}

// A coordinator that is started again may want sums rounded to something else, of members that have been there all the time.
static void another_payload_takes_another_engine(void **state)
{
	(void)state;
	struct world w;
	static const uint32_t halves[MEMBERS] = {1, 1};
	start_as(&w, SPLIT_MIXED, 2, -1, 1);
	uint32_t loads[] = {w.m[0].load_id, w.m[1].load_id};
	plan_shared(&w, halves, WIRE_F32);
	assert_true(w.m[0].load_id == loads[0] && w.m[1].load_id == loads[1]);
	ask(&w, 5, 0, 0, 2);
	settle(&w);
	plan_shared(&w, halves, WIRE_Q8);
	assert_true(w.m[0].load_id != loads[0] && w.m[1].load_id != loads[1]);
	ask(&w, 5, 0, 2, 1); // what was computed with the other one is void
	settle(&w);
	assert_int_equal(w.m[0].n_not_kept, 1);
	stop(&w);
}

static void a_lost_link_is_told_and_the_next_plan_begins_anew(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 120; seed++) {
		struct world w;
		start_as(&w, mode_of(seed), 3, -1, seed);
		if (!w.data[1][2].is_up)
			join(&w, 1, 2, false);
		ask(&w, 5, 0, 0, 3);
		for (uint64_t i = 0; i < seed % 50 && happen(&w); i++)
			;
		part_ways(&w, 1, 2);
		settle(&w);
		assert_true(w.m[1].n_broken > 0 && w.m[2].n_broken > 0);
		plan(&w, 1);
		int32_t before = w.n_replies;
		uint64_t want = ask(&w, 6, 0, 0, 3);
		settle(&w);
		assert_int_equal(w.n_replies, before + 1);
		assert_true(w.reply == want);
		stop(&w);
	}
}

static void a_plan_in_the_middle_of_a_forward_forgets_it(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 120; seed++) {
		struct world w;
		start_as(&w, mode_of(seed), 2 + (int32_t)(seed % 3), -1, seed);
		ask(&w, 5, 0, 0, 3);
		for (uint64_t i = 0; i < seed % 60 && happen(&w); i++)
			;
		plan(&w, (uint32_t)(seed % 2 + 1));
		int32_t before = w.n_replies;
		uint64_t want = ask(&w, 5, 0, 0, 3);
		settle(&w);
		assert_int_equal(w.n_replies, before + 1);
		assert_true(w.reply == want);
		for (int32_t i = 0; i < w.n; i++)
			assert_int_equal(w.m[i].n_broken, 0);
		stop(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_order_of_events_gives_what_one_machine_computes),
		cmocka_unit_test(a_ring_of_members_gives_what_one_machine_computes),
		cmocka_unit_test(forwards_of_a_ring_follow_each_other),
		cmocka_unit_test(several_streams_are_computed_together),
		cmocka_unit_test(chunks_of_a_prompt_are_under_way_behind_each_other),
		cmocka_unit_test(where_a_member_streams_there_is_one_forward_at_a_time),
		cmocka_unit_test(bytes_sent_are_those_that_the_split_says),
		cmocka_unit_test(an_item_that_fails_in_one_member_fails_and_no_other_does),
		cmocka_unit_test(a_member_that_cannot_begin_voids_the_forward_for_all),
		cmocka_unit_test(a_member_without_a_session_refuses_only_that_one),
		cmocka_unit_test(keys_and_values_of_the_same_part_stay),
		cmocka_unit_test(another_payload_takes_another_engine),
		cmocka_unit_test(a_lost_link_is_told_and_the_next_plan_begins_anew),
		cmocka_unit_test(a_plan_in_the_middle_of_a_forward_forgets_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
