// The node core by itself: what its host sees of it. The ring as a whole is in tests/sim/.
#include "node/node.h"
#include "proto/lnk1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CONTROL 1 // links
#define DATA 2
#define DIRECT 3

struct fixture {
	struct node *node;
	struct node_effects *fx;
	struct msg_peer a, b; // neighbours
	struct node_id a_id, b_id;
	int64_t now_ns;
};

static struct node_event event(struct fixture *f, enum node_event_type type)
{
	f->now_ns += 1000000;
	return (struct node_event){.type = type, .now_ns = f->now_ns};
}

static void step(struct fixture *f, struct node_event *ev)
{
	node_step(f->node, ev, f->fx);
	node_check(f->node);
}

static void tell(struct fixture *f, const struct msg *m)
{
	uint8_t frame[MSG_ENCODED_MAX];
	struct node_event ev = event(f, NODE_EV_MESSAGE);
	ev.u.message.link = CONTROL;
	ev.u.message.data = frame;
	ev.u.message.len = msg_encode(m, frame);
	step(f, &ev);
}

static void link_up(struct fixture *f, uint32_t link, struct node_id peer, enum node_link_kind kind)
{
	struct node_event ev = event(f, NODE_EV_LINK_UP);
	ev.u.link_up.link = link;
	ev.u.link_up.peer = peer;
	ev.u.link_up.kind = kind;
	step(f, &ev);
}

// tell_plan gives the node the middle layer of three, between two neighbours.
static void tell_plan(struct fixture *f, uint64_t epoch, const struct msg_peer *prev, const struct msg_peer *next)
{
	struct msg m = {.type = MSG_PLAN};
	m.u.plan = (struct msg_plan){.epoch = {epoch}, .n_stages = 3, .stage = 1, .layer_begin = 1, .layer_end = 2, .n_slots = 1, .ctx_len = 16,
		.chunk_max = 4, .hop_credits = 2, .prev = *prev, .next = *next};
	tell(f, &m);
}

static void tell_loaded(struct fixture *f, uint32_t id)
{
	struct node_event ev = event(f, NODE_EV_LOADED);
	ev.u.loaded.id = id;
	step(f, &ev);
}

static void tell_revoked(struct fixture *f, struct node_id who, uint64_t epoch)
{
	struct msg m = {.type = MSG_REVOKED};
	m.u.revoked.node = who;
	m.u.revoked.member_epoch.v = epoch;
	tell(f, &m);
}

// find returns the first effect of a type, for this peer when it is not NULL.
static const struct node_effect *find(const struct fixture *f, enum node_effect_type type, const struct node_id *peer)
{
	for (int32_t i = 0; i < f->fx->n; i++)
		if (f->fx->at[i].type == type && (peer == NULL || node_id_is(f->fx->at[i].u.connect.peer, *peer)))
			return &f->fx->at[i];
	return NULL;
}

static struct msg_peer peer(const char *name, uint8_t byte, struct node_id *id)
{
	struct msg_peer p = {.present = true};
	text_copy(p.name, sizeof p.name, name);
	memset(p.public_key, byte, sizeof p.public_key);
	memset(p.psk, byte ^ 0x5a, sizeof p.psk);
	p.addresses.n = 1;
	text_copy(p.addresses.at[0], ADDR_CAP, "10.0.0.1:7434");
	lnk1_node_id(p.public_key, id->b);
	return p;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	f->node = malloc(node_size());
	f->fx = calloc(1, sizeof *f->fx);
	f->a = peer("a", 0x11, &f->a_id);
	f->b = peer("b", 0x22, &f->b_id);
	struct node_config c = {.self = {{1}}, .coordinator = {{2}}, .name = "self", .n_layers = 3, .hidden_dim = 2, .n_threads = 1, .simd = "portable",
		.liveness = liveness_defaults, .link_age_ns = INT64_MAX};
	node_init(f->node, &c);
	struct node_event ev = event(f, NODE_EV_START);
	step(f, &ev);
	link_up(f, DATA, c.coordinator, NODE_LINK_DATA);
	link_up(f, CONTROL, c.coordinator, NODE_LINK_CONTROL);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	free(f->node);
	free(f->fx);
	free(f);
	return 0;
}

// holds_key tells whether the core's memory has this neighbour's key anywhere.
static bool holds_key(const struct fixture *f, const struct msg_peer *p)
{
	return memmem(f->node, node_size(), p->psk, sizeof p->psk) != NULL;
}

static void a_revoked_neighbour_is_parted_from_and_its_key_wiped(void **state)
{
	struct fixture *f = *state;
	uint8_t psk[KEY_BYTES];
	tell_plan(f, 1, &f->a, &f->b);
	tell_loaded(f, find(f, NODE_FX_LOAD, NULL)->u.load.id);
	link_up(f, DIRECT, f->b_id, NODE_LINK_DATA);
	assert_true(node_find_psk(f->node, f->b.public_key, psk));
	assert_true(holds_key(f, &f->b));

	tell_revoked(f, f->b_id, 7);
	assert_non_null(find(f, NODE_FX_DISCONNECT, &f->b_id));
	assert_null(find(f, NODE_FX_DISCONNECT, &f->a_id));
	assert_int_equal(find(f, NODE_FX_STORE, NULL)->u.store.member_epoch.v, 7);
	assert_string_equal(find(f, NODE_FX_LOG, NULL)->u.log.text, "neighbour b was revoked: its link is closed");
	assert_false(node_find_psk(f->node, f->b.public_key, psk));
	assert_false(holds_key(f, &f->b));
	assert_true(node_find_psk(f->node, f->a.public_key, psk));

	// A link whose handshake was under way comes too late.
	link_up(f, DIRECT + 1, f->b_id, NODE_LINK_DATA);
	assert_int_equal(find(f, NODE_FX_CLOSE, NULL)->u.close.link, DIRECT + 1);
}

static void a_neighbour_of_a_plan_that_waits_for_the_engine_is_revoked_as_well(void **state)
{
	struct fixture *f = *state;
	uint8_t psk[KEY_BYTES];
	tell_plan(f, 1, &f->a, &(struct msg_peer){0});
	uint32_t id = find(f, NODE_FX_LOAD, NULL)->u.load.id;
	tell_plan(f, 2, &f->a, &f->b); // must wait: the engine loads
	assert_true(holds_key(f, &f->b));
	tell_revoked(f, f->b_id, 7);
	assert_false(holds_key(f, &f->b));
	tell_loaded(f, id);
	assert_null(find(f, NODE_FX_CONNECT, &f->b_id));
	assert_false(node_find_psk(f->node, f->b.public_key, psk));

	// The plan without it comes as any other.
	tell_plan(f, 3, &f->a, &(struct msg_peer){0});
	assert_true(node_find_psk(f->node, f->a.public_key, psk));
	struct node_status s;
	node_status_get(f->node, &s);
	assert_int_equal(s.epoch.v, 3);
	assert_true(s.loaded);
}

static void keys_of_a_former_neighbour_are_not_kept(void **state)
{
	struct fixture *f = *state;
	tell_plan(f, 1, &f->a, &(struct msg_peer){0});
	uint32_t id = find(f, NODE_FX_LOAD, NULL)->u.load.id;
	tell_plan(f, 2, &f->a, &f->b);
	tell_loaded(f, id);
	assert_non_null(find(f, NODE_FX_CONNECT, &f->b_id));
	tell_plan(f, 3, &f->a, &(struct msg_peer){0});
	assert_non_null(find(f, NODE_FX_DISCONNECT, &f->b_id));
	assert_false(holds_key(f, &f->b));
	assert_true(holds_key(f, &f->a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_revoked_neighbour_is_parted_from_and_its_key_wiped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_neighbour_of_a_plan_that_waits_for_the_engine_is_revoked_as_well, set_up, tear_down),
		cmocka_unit_test_setup_teardown(keys_of_a_former_neighbour_are_not_kept, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
