// A host of the coordinator core for tests: it plays the links, the disk and the nodes, event by event. Unprefixed and inline: a test file
// includes it once and reads as if it were its own.
#ifndef HEARTH_TESTS_SUPPORT_COORD_HOST_H
#define HEARTH_TESTS_SUPPORT_COORD_HOST_H

#include "coordinator/coordinator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CTX 64
#define S INT64_C(1000000000)

struct host {
	struct coordinator *c;
	struct coord_effects *fx;
	int32_t *tokens;
	int64_t now, wall;
	uint32_t next_link;
	uint32_t control[NODES_MAX + 1], data[NODES_MAX + 1];
};

static inline void step(struct host *h, struct coord_event *ev)
{
	ev->now_ns = h->now;
	ev->wall_s = h->wall;
	coordinator_step(h->c, ev, h->fx);
	coordinator_check(h->c);
}

static inline struct coord_effect *find_fx(struct host *h, enum coord_effect_type type, int32_t nth)
{
	for (int32_t i = 0; i < h->fx->n; i++)
		if (h->fx->at[i].type == type && nth-- == 0)
			return &h->fx->at[i];
	return NULL;
}

static inline int32_t count_fx(struct host *h, enum coord_effect_type type)
{
	int32_t n = 0;
	for (int32_t i = 0; i < h->fx->n; i++)
		n += h->fx->at[i].type == type;
	return n;
}

// sent finds a control message of this step; link 0: on any link.
static inline bool sent(struct host *h, uint32_t link, enum msg_type type, struct msg *out)
{
	struct errmsg em;
	for (int32_t i = 0; i < h->fx->n; i++) {
		const struct coord_effect *f = &h->fx->at[i];
		if (f->type == COORD_FX_SEND && (link == 0 || f->u.send.link == link) && f->u.send.head[0] == FRAME_CONTROL &&
			msg_decode(f->u.send.head, f->u.send.head_len, out, &em) == OK && out->type == type)
			return true;
	}
	return false;
}

static inline struct coordinator_config base_config(void)
{
	return (struct coordinator_config){.n_layers = 6,
		.hidden_dim = 2,
		.vocab_size = 50,
		.wire = WIRE_F32,
		.n_slots = 2,
		.ctx_len = CTX,
		.chunk_max = 4,
		.hop_credits = 4,
		.stop_ids = {49},
		.n_stop_ids = 1,
		.liveness = liveness_defaults,
		.session_wait_ns = 150 * S,
		.stall_ns = 60 * S};
}

static inline struct member_record record(int32_t i)
{
	struct member_record r = {.id = {{(uint8_t)i}}, .public_key = {(uint8_t)i, 1}, .psk = {(uint8_t)i, 2}};
	snprintf(r.name, sizeof r.name, "node%d", i);
	return r;
}

static inline void start(struct host *h, const struct coordinator_config *config, int32_t n_members)
{
	struct member_record members[NODES_MAX];
	*h = (struct host){.now = S, .wall = 1000000};
	h->c = calloc(1, coordinator_size());
	h->fx = malloc(sizeof *h->fx);
	h->tokens = malloc(sizeof(int32_t) * SESSIONS_MAX * CTX);
	coordinator_init(h->c, config, h->tokens);
	for (int32_t i = 0; i < n_members; i++)
		members[i] = record(i + 1);
	struct coord_event ev = {.type = COORD_EV_RESTORED};
	ev.u.restored.member_epoch.v = 1;
	ev.u.restored.members = members;
	ev.u.restored.n_members = n_members;
	step(h, &ev);
}

static inline void stop(struct host *h)
{
	free(h->c);
	free(h->fx);
	free(h->tokens);
}

static inline void tick(struct host *h)
{
	struct coord_event ev = {.type = COORD_EV_TICK};
	step(h, &ev);
}

static inline uint32_t link_up(struct host *h, struct node_id peer, enum coord_link_kind kind)
{
	struct coord_event ev = {.type = COORD_EV_LINK_UP};
	ev.u.link_up.link = ++h->next_link;
	ev.u.link_up.peer = peer;
	ev.u.link_up.kind = kind;
	ev.u.link_up.remote = "10.0.0.1";
	step(h, &ev);
	return h->next_link;
}

static inline void message(struct host *h, uint32_t link, const struct msg *m)
{
	static uint8_t frame[MSG_ENCODED_MAX];
	struct coord_event ev = {.type = COORD_EV_MESSAGE};
	ev.u.message.link = link;
	ev.u.message.data = frame;
	ev.u.message.len = msg_encode(m, frame);
	step(h, &ev);
}

static inline void hello(struct host *h, int32_t i)
{
	struct msg m = {.type = MSG_HELLO, .u.hello = {.n_threads = 1, .port = 7434}};
	snprintf(m.u.hello.name, NAME_CAP, "node%d", i);
	message(h, h->control[i], &m);
}

static inline void arrive(struct host *h, int32_t i)
{
	h->data[i] = link_up(h, record(i).id, COORD_LINK_DATA);
	h->control[i] = link_up(h, record(i).id, COORD_LINK_CONTROL);
	hello(h, i);
}

static inline void random_bytes(struct host *h)
{
	struct coord_event ev = {.type = COORD_EV_RANDOM, .u.random.bytes = {(uint8_t)++h->next_link}};
	step(h, &ev);
}

// be_ready gives what a plan asks for until it is ready; every node loads without fault.
static inline void be_ready(struct host *h, int32_t n)
{
	struct coord_status st;
	for (int32_t round = 0; round < 200; round++) {
		coordinator_status(h->c, &st);
		if (st.ready)
			return;
		random_bytes(h); // asked for in some step before, or not: one too many does no harm
		for (int32_t i = 1; i <= n; i++) {
			struct msg m = {.type = MSG_LOADED, .u.loaded.epoch = st.plan_epoch};
			message(h, h->control[i], &m);
		}
	}
	fail();
}

static inline void submit(struct host *h, uint64_t req, int32_t n_tokens, int32_t n_predict)
{
	int32_t tokens[CTX] = {0};
	struct coord_event ev = {.type = COORD_EV_SUBMIT};
	ev.u.submit.req = req;
	ev.u.submit.tokens = tokens;
	ev.u.submit.n_tokens = n_tokens;
	ev.u.submit.n_predict = n_predict;
	step(h, &ev);
}

static inline void stored(struct host *h, uint32_t id, enum err err)
{
	struct coord_event ev = {.type = COORD_EV_STORED};
	ev.u.stored.id = id;
	ev.u.stored.err = err;
	step(h, &ev);
}

static inline uint32_t store_id(struct host *h, enum coord_store_op op)
{
	struct coord_effect *f;
	for (int32_t i = 0; (f = find_fx(h, COORD_FX_STORE, i)) != NULL; i++)
		if (f->u.store.op == op)
			return f->u.store.id;
	fail();
	return 0;
}

#endif
