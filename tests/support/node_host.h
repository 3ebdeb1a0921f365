// A host of the node core for tests: it plays the coordinator, the neighbours and the engine, event by event. Unprefixed and inline: a test
// file includes it once and reads as if it were its own.
#ifndef HEARTH_TESTS_SUPPORT_NODE_HOST_H
#define HEARTH_TESTS_SUPPORT_NODE_HOST_H

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

#define S INT64_C(1000000000)
#define HIDDEN 2
#define CREDITS 4
#define N_MACHINES 4 // 0: the coordinator

struct host {
	struct node *n;
	struct node_effects *fx;
	int64_t now;
	uint32_t next_link, control, data;
	int32_t n_ticks;
	uint8_t pk[N_MACHINES][KEY_BYTES];
	struct node_id ids[N_MACHINES];
};

static inline void step(struct host *h, struct node_event *ev)
{
	ev->now_ns = h->now;
	node_step(h->n, ev, h->fx);
	node_check(h->n);
}

static inline struct node_effect *find_fx(struct host *h, enum node_effect_type type, int32_t nth)
{
	for (int32_t i = 0; i < h->fx->n; i++)
		if (h->fx->at[i].type == type && nth-- == 0)
			return &h->fx->at[i];
	return NULL;
}

static inline int32_t count_fx(struct host *h, enum node_effect_type type)
{
	int32_t n = 0;
	while (find_fx(h, type, n) != NULL)
		n++;
	return n;
}

// sent finds a control message of this step.
static inline bool sent(struct host *h, enum msg_type type, struct msg *out)
{
	struct errmsg em;
	for (int32_t i = 0; i < h->fx->n; i++) {
		const struct node_effect *f = &h->fx->at[i];
		if (f->type == NODE_FX_SEND && f->u.send.head[0] == FRAME_CONTROL && msg_decode(f->u.send.head, f->u.send.head_len, out, &em) == OK &&
			out->type == type)
			return true;
	}
	return false;
}

// n_frames counts frames of a type on a link; link 0: on any.
static inline int32_t n_frames(struct host *h, enum frame_type type, uint32_t link)
{
	int32_t n = 0;
	for (int32_t i = 0; i < h->fx->n; i++) {
		const struct node_effect *f = &h->fx->at[i];
		n += f->type == NODE_FX_SEND && f->u.send.head[0] == type && (link == 0 || f->u.send.link == link);
	}
	return n;
}

static inline bool says_broken(struct host *h)
{
	struct msg m;
	return sent(h, MSG_PEER_LINK, &m) && m.u.peer_link.broken;
}

static inline void tick(struct host *h)
{
	struct node_event ev = {.type = NODE_EV_TICK};
	h->n_ticks++;
	step(h, &ev);
}

// run_to lets time go from deadline to deadline until a tick has such an effect, and returns how long that took. Every deadline must lie
// ahead, none beyond the limit, and there may be no more of them than three a second: a core that wants ticks for nothing spins its host.
static inline int64_t run_to(struct host *h, enum node_effect_type type, int64_t limit_ns)
{
	const int64_t begin = h->now;
	const int32_t n_ticks_max = h->n_ticks + 10 + (int32_t)(3 * limit_ns / S);
	do {
		int64_t deadline = node_deadline_ns(h->n);
		assert_true(deadline > h->now);
		assert_true(deadline - begin <= limit_ns);
		assert_true(h->n_ticks < n_ticks_max);
		h->now = deadline;
		tick(h);
	} while (find_fx(h, type, 0) == NULL);
	return h->now - begin;
}

static inline struct node_status status(struct host *h)
{
	struct node_status st;
	node_status_get(h->n, &st);
	return st;
}

static inline uint32_t up_as(struct host *h, int32_t machine, enum node_link_kind kind, bool spare)
{
	struct node_event ev = {.type = NODE_EV_LINK_UP};
	ev.u.link_up.link = ++h->next_link;
	ev.u.link_up.peer = h->ids[machine];
	ev.u.link_up.kind = kind;
	ev.u.link_up.spare = spare;
	step(h, &ev);
	return h->next_link;
}

static inline uint32_t up(struct host *h, int32_t machine, enum node_link_kind kind)
{
	return up_as(h, machine, kind, false);
}

static inline void down(struct host *h, uint32_t link, bool orderly)
{
	struct node_event ev = {.type = NODE_EV_LINK_DOWN};
	ev.u.link_down.link = link;
	ev.u.link_down.orderly = orderly;
	ev.u.link_down.reason = "gone";
	step(h, &ev);
}

static inline void frame(struct host *h, uint32_t link, const uint8_t *bytes, size_t len)
{
	struct node_event ev = {.type = NODE_EV_MESSAGE};
	ev.u.message.link = link;
	ev.u.message.data = bytes;
	ev.u.message.len = len;
	step(h, &ev);
}

static inline void control_on(struct host *h, uint32_t link, const struct msg *m)
{
	uint8_t bytes[MSG_ENCODED_MAX];
	frame(h, link, bytes, msg_encode(m, bytes));
}

// start_with begins with both links to the coordinator up; may_probe: it measures its machine.
static inline void start_with(struct host *h, bool may_probe, struct liveness_limits liveness)
{
	*h = (struct host){.now = S};
	h->n = malloc(node_size());
	h->fx = malloc(sizeof *h->fx);
	for (int32_t i = 0; i < N_MACHINES; i++) {
		memset(h->pk[i], i + 1, KEY_BYTES);
		lnk1_node_id(h->pk[i], h->ids[i].b);
	}
	struct node_config c = {.coordinator = h->ids[0], .name = "here", .n_layers = 8, .hidden_dim = HIDDEN, .n_threads = 1,
		.liveness = liveness, .link_age_ns = 3600 * S, .may_probe = may_probe};
	node_init(h->n, &c);
	struct node_event ev = {.type = NODE_EV_START};
	step(h, &ev);
	h->control = up(h, 0, NODE_LINK_CONTROL);
	h->data = up(h, 0, NODE_LINK_DATA);
}

static inline void start_as(struct host *h, bool may_probe)
{
	start_with(h, may_probe, liveness_defaults);
}

static inline void start(struct host *h)
{
	start_as(h, false);
}

static inline void stop(struct host *h)
{
	free(h->n);
	free(h->fx);
}

// peer is a neighbour as a plan describes it; 0: none. No key of one machine is another's.
static inline struct msg_peer peer(struct host *h, int32_t machine)
{
	struct msg_peer p = {.present = machine != 0};
	if (machine == 0)
		return p;
	snprintf(p.name, sizeof p.name, "node%d", machine);
	memcpy(p.public_key, h->pk[machine], KEY_BYTES);
	memset(p.psk, machine ^ 0x5a, KEY_BYTES);
	p.addresses.n = 1;
	text_copy(p.addresses.at[0], ADDR_CAP, "10.0.0.1:7434");
	return p;
}

// plan sends stage 1 of 3 between machines `prev` and `next`; 0: none.
static inline void plan(struct host *h, uint64_t epoch, int32_t prev, int32_t next)
{
	struct msg m = {.type = MSG_PLAN};
	m.u.plan = (struct msg_plan){.epoch = {epoch}, .n_stages = 3, .stage = 1, .layers = {1, {{2, 4}}}, .n_slots = 2, .ctx_len = 16,
		.chunk_max = 4, .hop_credits = CREDITS, .prev = peer(h, prev), .next = peer(h, next)};
	control_on(h, h->control, &m);
}

static inline void no_part(struct host *h, uint64_t epoch)
{
	struct msg m = {.type = MSG_PLAN, .u.plan.epoch = {epoch}};
	control_on(h, h->control, &m);
}

static inline uint32_t load_id(struct host *h)
{
	assert_non_null(find_fx(h, NODE_FX_LOAD, 0));
	return find_fx(h, NODE_FX_LOAD, 0)->u.load.id;
}

static inline void load_done(struct host *h, uint32_t id, enum err err)
{
	struct node_event ev = {.type = NODE_EV_LOADED};
	ev.u.loaded.id = id;
	ev.u.loaded.err = err;
	ev.u.loaded.text = "no memory";
	step(h, &ev);
}

static inline void loaded(struct host *h, enum err err)
{
	load_done(h, load_id(h), err);
}

static inline void send_step(struct host *h, uint32_t link, uint64_t epoch, uint64_t session, uint32_t seq)
{
	uint8_t bytes[FRAME_STEP_BYTES + HIDDEN * 4] = {0};
	struct step s = {.reply = REPLY_LAST, .flags = seq == 0 ? STEP_FIRST : 0, .src_span = 0, .dst_span = 1, .epoch = {epoch}, .session = {session},
		.seq = seq, .slot = (uint32_t)(session % 2), .pos = seq, .n_tokens = 1, .payload_len = HIDDEN * 4};
	step_encode(&s, bytes);
	frame(h, link, bytes, sizeof bytes);
}

static inline void send_credit(struct host *h, uint32_t link, uint64_t epoch, uint16_t n)
{
	uint8_t bytes[FRAME_CREDIT_BYTES];
	struct credit c = {.n = n, .src_span = 2, .dst_span = 1, .epoch = {epoch}};
	credit_encode(&c, bytes);
	frame(h, link, bytes, sizeof bytes);
}

static inline uint32_t forward_id(struct host *h)
{
	assert_non_null(find_fx(h, NODE_FX_FORWARD, 0));
	return find_fx(h, NODE_FX_FORWARD, 0)->u.forward.id;
}

static inline void forward_done(struct host *h, uint32_t id)
{
	static const enum err errs[NODE_ITEMS_MAX] = {OK};
	struct node_event ev = {.type = NODE_EV_FORWARD_DONE};
	ev.u.forward_done.id = id;
	ev.u.forward_done.errs = errs;
	step(h, &ev);
}

static inline void forwarded(struct host *h)
{
	forward_done(h, forward_id(h));
}

// join_ring is in plan 1 between machines 1 and 2, with a direct link to each.
static inline void join_ring(struct host *h, uint32_t *prev, uint32_t *next)
{
	start(h);
	plan(h, 1, 1, 2);
	loaded(h, OK);
	*prev = up(h, 1, NODE_LINK_DATA);
	*next = up(h, 2, NODE_LINK_DATA);
}

#endif
