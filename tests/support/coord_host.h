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
	struct coordinator_config config;
	struct coord_effects *fx;
	struct coord_member_status members[NODES_MAX + 1]; // of the last status()
	int32_t *tokens;
	int64_t now, wall;
	uint32_t next_link;
	int32_t n_ticks;
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
		.n_rounds = 1,
		.stop_ids = {49},
		.n_stop_ids = 1,
		.liveness = liveness_defaults,
		.session_wait_ns = 150 * S,
		.stall_ns = 60 * S};
}

// patient_config is that of a core which loses only what the test says is lost.
static inline struct coordinator_config patient_config(void)
{
	struct coordinator_config config = base_config();
	config.liveness.dead_after_ns = config.liveness.suspect_after_ns = 100000 * S;
	return config;
}

static inline struct member_record record(int32_t i)
{
	struct member_record r = {.id = {{(uint8_t)i}}, .public_key = {(uint8_t)i, 1}, .psk = {(uint8_t)i, 2}};
	snprintf(r.name, sizeof r.name, "node%d", i);
	return r;
}

// open_core makes a core that has not read its disk yet; config NULL: base_config().
static inline void open_core(struct host *h, const struct coordinator_config *config)
{
	*h = (struct host){.now = S, .wall = 1000000, .config = config ? *config : base_config()};
	h->c = calloc(1, coordinator_size(&h->config));
	h->fx = malloc(coordinator_effects_size(&h->config));
	h->tokens = malloc(sizeof(int32_t) * coordinator_n_tokens(&h->config));
	coordinator_init(h->c, &h->config, h->tokens);
	coordinator_effects_init(&h->config, h->fx);
}

// restore hands over what was on the disk.
static inline void restore(
	struct host *h, const struct member_record *members, int32_t n_members, const struct invite_record *invites, int32_t n_invites)
{
	struct coord_event ev = {.type = COORD_EV_RESTORED};
	ev.u.restored.member_epoch.v = 1;
	ev.u.restored.members = members;
	ev.u.restored.n_members = n_members;
	ev.u.restored.invites = invites;
	ev.u.restored.n_invites = n_invites;
	step(h, &ev);
}

// start is both, with the members record(1) to record(n).
static inline void start(struct host *h, const struct coordinator_config *config, int32_t n_members)
{
	struct member_record members[NODES_MAX];
	for (int32_t i = 0; i < n_members; i++)
		members[i] = record(i + 1);
	open_core(h, config);
	restore(h, members, n_members, NULL, 0);
}

static inline void stop(struct host *h)
{
	free(h->c);
	free(h->fx);
	free(h->tokens);
}

static inline struct coord_status status(struct host *h)
{
	struct coord_status st = {.members = h->members, .members_cap = ARRAY_LEN(h->members)};
	coordinator_status(h->c, &st);
	return st;
}

static inline uint64_t epoch_of(struct host *h)
{
	return status(h).plan_epoch.v;
}

static inline bool is_ready(struct host *h)
{
	return status(h).ready;
}

static inline void tick(struct host *h)
{
	struct coord_event ev = {.type = COORD_EV_TICK};
	h->n_ticks++;
	step(h, &ev);
}

// run_to lets time go from deadline to deadline until a tick has such an effect, and returns how long that took. Every deadline must lie
// ahead, none beyond the limit, and there may be no more of them than three a second: a core that wants ticks for nothing spins its host.
static inline int64_t run_to(struct host *h, enum coord_effect_type type, int64_t limit_ns)
{
	const int64_t begin = h->now;
	const int32_t n_ticks_max = h->n_ticks + 10 + (int32_t)(3 * limit_ns / S);
	do {
		int64_t deadline = coordinator_deadline_ns(h->c);
		assert_true(deadline > h->now);
		assert_true(deadline - begin <= limit_ns);
		assert_true(h->n_ticks < n_ticks_max);
		h->wall += deadline / S - h->now / S;
		h->now = deadline;
		tick(h);
	} while (find_fx(h, type, 0) == NULL);
	return h->now - begin;
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

static inline void down(struct host *h, uint32_t link, bool orderly)
{
	struct coord_event ev = {.type = COORD_EV_LINK_DOWN};
	ev.u.link_down.link = link;
	ev.u.link_down.orderly = orderly;
	ev.u.link_down.reason = "reset";
	step(h, &ev);
}

static inline void frame(struct host *h, uint32_t link, const uint8_t *bytes, size_t len)
{
	struct coord_event ev = {.type = COORD_EV_MESSAGE};
	ev.u.message.link = link;
	ev.u.message.data = bytes;
	ev.u.message.len = len;
	step(h, &ev);
}

static inline void message(struct host *h, uint32_t link, const struct msg *m)
{
	uint8_t bytes[MSG_ENCODED_MAX];
	frame(h, link, bytes, msg_encode(m, bytes));
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
	for (int32_t round = 0; round < 200; round++) {
		if (is_ready(h))
			return;
		uint64_t epoch = epoch_of(h);
		random_bytes(h); // asked for in some step before, or not: one too many does no harm
		for (int32_t i = 1; i <= n; i++) {
			struct msg m = {.type = MSG_LOADED, .u.loaded.epoch = {epoch}};
			message(h, h->control[i], &m);
		}
	}
	fail();
}

// start_ready: n members, all there and in the plan.
static inline void start_ready(struct host *h, const struct coordinator_config *config, int32_t n)
{
	start(h, config, n);
	for (int32_t i = 1; i <= n; i++)
		arrive(h, i);
	be_ready(h, n);
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

static inline void forward_done(struct host *h, uint32_t id)
{
	struct coord_event ev = {.type = COORD_EV_FORWARD_DONE, .u.forward_done.id = id};
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
