// Links of the node core, and what a plan makes of them: successors, who may send what, neighbours that change, plans without a part.
// The test plays the coordinator, the neighbours and the host.
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
#define CREDITS 4
#define N_MACHINES 4 // 0: the coordinator

struct host {
	struct node *n;
	struct node_effects *fx;
	int64_t now;
	uint32_t next_link, control, data;
	uint8_t pk[N_MACHINES][KEY_BYTES];
	struct node_id ids[N_MACHINES];
};

static void step(struct host *h, struct node_event *ev)
{
	ev->now_ns = h->now;
	node_step(h->n, ev, h->fx);
	node_check(h->n);
}

static struct node_effect *find_fx(struct host *h, enum node_effect_type type, int32_t nth)
{
	for (int32_t i = 0; i < h->fx->n; i++)
		if (h->fx->at[i].type == type && nth-- == 0)
			return &h->fx->at[i];
	return NULL;
}

static int32_t count_fx(struct host *h, enum node_effect_type type)
{
	int32_t n = 0;
	while (find_fx(h, type, n) != NULL)
		n++;
	return n;
}

// sent finds a control message of this step.
static bool sent(struct host *h, enum msg_type type, struct msg *out)
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
static int32_t n_frames(struct host *h, enum frame_type type, uint32_t link)
{
	int32_t n = 0;
	for (int32_t i = 0; i < h->fx->n; i++) {
		const struct node_effect *f = &h->fx->at[i];
		n += f->type == NODE_FX_SEND && f->u.send.head[0] == type && (link == 0 || f->u.send.link == link);
	}
	return n;
}

static bool says_broken(struct host *h)
{
	struct msg m;
	return sent(h, MSG_PEER_LINK, &m) && m.u.peer_link.broken;
}

static void tick(struct host *h)
{
	struct node_event ev = {.type = NODE_EV_TICK};
	step(h, &ev);
}

static uint32_t up(struct host *h, int32_t machine, enum node_link_kind kind)
{
	struct node_event ev = {.type = NODE_EV_LINK_UP};
	ev.u.link_up.link = ++h->next_link;
	ev.u.link_up.peer = h->ids[machine];
	ev.u.link_up.kind = kind;
	step(h, &ev);
	return h->next_link;
}

static uint32_t up_spare(struct host *h, int32_t machine)
{
	struct node_event ev = {.type = NODE_EV_LINK_UP};
	ev.u.link_up.link = ++h->next_link;
	ev.u.link_up.peer = h->ids[machine];
	ev.u.link_up.kind = NODE_LINK_DATA;
	ev.u.link_up.spare = true;
	step(h, &ev);
	return h->next_link;
}

static void down(struct host *h, uint32_t link, bool orderly)
{
	struct node_event ev = {.type = NODE_EV_LINK_DOWN};
	ev.u.link_down.link = link;
	ev.u.link_down.orderly = orderly;
	ev.u.link_down.reason = "gone";
	step(h, &ev);
}

static void frame(struct host *h, uint32_t link, const uint8_t *bytes, size_t len)
{
	struct node_event ev = {.type = NODE_EV_MESSAGE};
	ev.u.message.link = link;
	ev.u.message.data = bytes;
	ev.u.message.len = len;
	step(h, &ev);
}

static void control_on(struct host *h, uint32_t link, const struct msg *m)
{
	uint8_t bytes[MSG_ENCODED_MAX];
	frame(h, link, bytes, msg_encode(m, bytes));
}

static void start(struct host *h)
{
	*h = (struct host){.now = S};
	h->n = calloc(1, node_size());
	h->fx = malloc(sizeof *h->fx);
	for (int32_t i = 0; i < N_MACHINES; i++) {
		memset(h->pk[i], i + 1, KEY_BYTES);
		lnk1_node_id(h->pk[i], h->ids[i].b);
	}
	struct node_config c = {.coordinator = h->ids[0], .name = "here", .n_layers = 8, .hidden_dim = HIDDEN, .n_threads = 1,
		.liveness = liveness_defaults, .link_age_ns = 3600 * S};
	node_init(h->n, &c);
	struct node_event ev = {.type = NODE_EV_START};
	step(h, &ev);
	h->control = up(h, 0, NODE_LINK_CONTROL);
	h->data = up(h, 0, NODE_LINK_DATA);
}

static void stop(struct host *h)
{
	free(h->n);
	free(h->fx);
}

static void fill_peer(struct host *h, int32_t machine, struct msg_peer *out)
{
	*out = (struct msg_peer){.present = machine != 0};
	memcpy(out->public_key, h->pk[machine], KEY_BYTES);
	memset(out->psk, machine, KEY_BYTES);
}

// plan sends stage 1 of 3 between machines `prev` and `next`; 0: none.
static void plan(struct host *h, uint64_t epoch, int32_t prev, int32_t next)
{
	struct msg m = {.type = MSG_PLAN};
	m.u.plan = (struct msg_plan){.epoch = {epoch}, .n_stages = 3, .stage = 1, .layer_begin = 2, .layer_end = 4, .n_slots = 2, .ctx_len = 16,
		.chunk_max = 4, .hop_credits = CREDITS};
	fill_peer(h, prev, &m.u.plan.prev);
	fill_peer(h, next, &m.u.plan.next);
	control_on(h, h->control, &m);
}

static void no_part(struct host *h, uint64_t epoch)
{
	struct msg m = {.type = MSG_PLAN, .u.plan.epoch = {epoch}};
	control_on(h, h->control, &m);
}

static void loaded(struct host *h, enum err err)
{
	struct node_effect *f = find_fx(h, NODE_FX_LOAD, 0);
	assert_non_null(f);
	struct node_event ev = {.type = NODE_EV_LOADED};
	ev.u.loaded.id = f->u.load.id;
	ev.u.loaded.err = err;
	ev.u.loaded.text = "no memory";
	step(h, &ev);
}

static void send_step(struct host *h, uint32_t link, uint64_t epoch, uint64_t session, uint32_t seq)
{
	uint8_t bytes[FRAME_STEP_BYTES + HIDDEN * 4] = {0};
	struct step s = {.reply = REPLY_LAST, .flags = seq == 0 ? STEP_FIRST : 0, .src_stage = 0, .dst_stage = 1, .epoch = {epoch}, .session = {session},
		.seq = seq, .slot = (uint32_t)(session % 2), .pos = seq, .n_tokens = 1, .payload_len = HIDDEN * 4};
	step_encode(&s, bytes);
	frame(h, link, bytes, sizeof bytes);
}

static void send_credit(struct host *h, uint32_t link, uint64_t epoch, uint16_t n)
{
	uint8_t bytes[FRAME_CREDIT_BYTES];
	struct credit c = {.n = n, .src_stage = 2, .dst_stage = 1, .epoch = {epoch}};
	credit_encode(&c, bytes);
	frame(h, link, bytes, sizeof bytes);
}

static void forwarded(struct host *h)
{
	static const enum err errs[NODE_ITEMS_MAX] = {OK};
	struct node_effect *f = find_fx(h, NODE_FX_FORWARD, 0);
	assert_non_null(f);
	struct node_event ev = {.type = NODE_EV_FORWARD_DONE};
	ev.u.forward_done.id = f->u.forward.id;
	ev.u.forward_done.errs = errs;
	ev.u.forward_done.text = "";
	step(h, &ev);
}

// join_ring is in plan 1 between machines 1 and 2, with a direct link to each.
static void join_ring(struct host *h, uint32_t *prev, uint32_t *next)
{
	start(h);
	plan(h, 1, 1, 2);
	loaded(h, OK);
	*prev = up(h, 1, NODE_LINK_DATA);
	*next = up(h, 2, NODE_LINK_DATA);
}

// ---- links with successors

static void frames_on_a_link_that_has_a_successor_still_count(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	uint32_t prev2 = up(&h, 1, NODE_LINK_DATA);
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0); // the far end may not know the new one yet
	send_step(&h, prev, 1, 7, 0);
	assert_int_equal(count_fx(&h, NODE_FX_TAKE), 1);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, next), 1);
	assert_int_equal(n_frames(&h, FRAME_CREDIT, prev2), 1); // and is answered on the newest
	uint32_t control2 = up(&h, 0, NODE_LINK_CONTROL);
	assert_int_equal(n_frames(&h, FRAME_CONTROL, control2), 1);
	no_part(&h, 2); // on the old control link
	struct node_status st;
	node_status_get(h.n, &st);
	assert_int_equal(st.n_stages, 0);
	stop(&h);
}

// Both ends dialled. The neighbour may have used the link that goes for as long as it did not know of the one that stays.
static void a_spare_link_is_received_from_and_never_sent_on(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	uint32_t spare_prev = up_spare(&h, 1), spare_next = up_spare(&h, 2);
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0);
	send_step(&h, spare_prev, 1, 7, 0);
	assert_int_equal(count_fx(&h, NODE_FX_TAKE), 1);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, next), 1);
	assert_int_equal(n_frames(&h, FRAME_CREDIT, prev), 1);
	send_credit(&h, spare_next, 1, 1);
	down(&h, spare_next, true);
	assert_false(says_broken(&h)); // all of it has arrived
	int64_t begin = h.now;
	while (count_fx(&h, NODE_FX_CLOSE) == 0 && h.now - begin < 7 * S) {
		h.now += S / 10;
		tick(&h);
	}
	assert_int_equal(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.link, spare_prev);
	assert_true(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.orderly);
	stop(&h);
}

static void a_spare_link_takes_the_place_of_one_that_breaks(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	uint32_t spare = up_spare(&h, 2);
	down(&h, next, false);
	assert_true(says_broken(&h));
	plan(&h, 2, 1, 2);
	send_step(&h, prev, 2, 7, 0);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, spare), 1);
	stop(&h);
}

static void a_hop_with_steps_on_an_old_link_waits_for_their_credits(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	send_step(&h, prev, 1, 7, 0);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, next), 1);
	uint32_t next2 = up(&h, 2, NODE_LINK_DATA);
	send_step(&h, prev, 1, 7, 1);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, 0), 0); // it could overtake the one before
	send_credit(&h, next, 1, 1);
	assert_int_equal(n_frames(&h, FRAME_STEP, next2), 1);
	send_credit(&h, next2, 1, 1);
	down(&h, next, true);
	assert_false(says_broken(&h)); // all of it has arrived
	stop(&h);
}

static void an_old_link_that_breaks_with_steps_of_the_plan_is_reported(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	send_step(&h, prev, 1, 7, 0);
	forwarded(&h);
	up(&h, 2, NODE_LINK_DATA);
	assert_false(says_broken(&h));
	down(&h, next, false);
	assert_true(says_broken(&h));
	// The other neighbour's: the credit that went back on it.
	up(&h, 1, NODE_LINK_DATA);
	down(&h, prev, false);
	assert_true(says_broken(&h));
	stop(&h);
}

static void an_old_link_that_carried_nothing_of_the_plan_may_break(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	struct msg m;
	join_ring(&h, &prev, &next);
	send_step(&h, prev, 1, 7, 0);
	forwarded(&h);
	up(&h, 2, NODE_LINK_DATA);
	uint32_t data2 = up(&h, 0, NODE_LINK_DATA);
	h.now += 6 * S; // by now the far ends know the new links
	plan(&h, 2, 1, 2);
	down(&h, next, false);
	assert_false(says_broken(&h));
	down(&h, h.data, false);
	assert_false(sent(&h, MSG_HELLO, &m));
	down(&h, data2, true); // the newest: whatever its end is called
	assert_true(sent(&h, MSG_HELLO, &m));
	assert_int_equal(m.u.hello.epoch.v, 0);
	stop(&h);
}

// The far end learns of the successor later: what it sent on the old link until then may be lost with it.
static void an_old_link_that_breaks_may_have_carried_what_its_far_end_sent(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	struct msg m;
	join_ring(&h, &prev, &next);
	up(&h, 1, NODE_LINK_DATA);
	down(&h, prev, false); // nothing was sent on it from here
	assert_true(says_broken(&h));
	up(&h, 0, NODE_LINK_DATA);
	down(&h, h.data, false);
	assert_true(sent(&h, MSG_HELLO, &m));
	assert_int_equal(m.u.hello.epoch.v, 0);
	stop(&h);
}

static void an_old_control_link_that_breaks_takes_the_plan_along(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	struct msg m;
	join_ring(&h, &prev, &next);
	up(&h, 0, NODE_LINK_CONTROL);
	assert_true(sent(&h, MSG_HELLO, &m));
	assert_int_equal(m.u.hello.epoch.v, 1);
	down(&h, h.control, false);
	assert_true(sent(&h, MSG_HELLO, &m));
	assert_int_equal(m.u.hello.epoch.v, 0);
	stop(&h);
}

static void an_old_link_is_closed_in_order_after_a_while(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	up(&h, 2, NODE_LINK_DATA);
	int64_t begin = h.now;
	while (count_fx(&h, NODE_FX_CLOSE) == 0 && h.now - begin < 7 * S) {
		assert_true(node_deadline_ns(h.n) > h.now);
		h.now = node_deadline_ns(h.n);
		tick(&h);
	}
	assert_int_equal(h.now - begin, 5 * S);
	assert_int_equal(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.link, next);
	assert_true(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.orderly);
	stop(&h);
}

static void the_link_before_is_used_again_when_its_successor_is_lost(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	uint32_t next2 = up(&h, 2, NODE_LINK_DATA);
	down(&h, next2, false);
	assert_true(says_broken(&h));
	plan(&h, 2, 1, 2);
	send_step(&h, prev, 2, 7, 0);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, next), 1);
	h.now += 6 * S;
	tick(&h);
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0); // it has no successor any more
	stop(&h);
}

static void a_link_without_a_place_ends_the_oldest_of_its_kind(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	const int n_free = NODE_LINKS_MAX - 4; // two to the coordinator, one to each neighbour
	for (int i = 0; i < n_free + 20; i++) {
		up(&h, 2, NODE_LINK_DATA);
		assert_int_equal(count_fx(&h, NODE_FX_CLOSE), i >= n_free);
		if (i >= n_free)
			assert_int_equal(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.link, next + (uint32_t)(i - n_free));
	}
	stop(&h);
}

static void an_older_plan_on_an_old_link_changes_nothing(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	struct node_status st;
	join_ring(&h, &prev, &next);
	uint32_t old = h.control;
	h.control = up(&h, 0, NODE_LINK_CONTROL);
	plan(&h, 3, 1, 2);
	send_step(&h, prev, 3, 7, 0); // the engine is busy
	plan(&h, 5, 1, 2);            // and waits for it
	h.control = old;
	plan(&h, 4, 2, 1);
	assert_int_equal(h.fx->n, 0);
	struct node_event ev = {.type = NODE_EV_TICK};
	step(&h, &ev);
	node_status_get(h.n, &st);
	assert_int_equal(st.epoch.v, 0);
	stop(&h);
}

// ---- who may send what

static void frames_of_the_wrong_neighbour_are_ignored_and_said_once(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	for (int i = 0; i < 3; i++) {
		send_step(&h, next, 1, 7, 0);
		assert_int_equal(count_fx(&h, NODE_FX_TAKE), 0);
		assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0);
		assert_int_equal(count_fx(&h, NODE_FX_LOG), i == 0);
	}
	send_step(&h, prev, 1, 7, 0);
	forwarded(&h);
	for (int i = 0; i < 3; i++) {
		send_credit(&h, prev, 1, 1);
		assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0);
		assert_int_equal(count_fx(&h, NODE_FX_LOG), i == 0);
	}
	send_credit(&h, next, 1, 1);
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 0);
	send_credit(&h, next, 1, 1); // its first was taken: this one was not owed
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 1);
	stop(&h);
}

static void a_credit_goes_back_the_way_its_step_came(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	send_step(&h, h.data, 1, 7, 0); // relayed: its session began before the direct link was up
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_CREDIT, h.data), 1);
	send_step(&h, prev, 1, 8, 0);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_CREDIT, prev), 1);
	stop(&h);
}

static void only_the_coordinator_has_a_control_link(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	uint32_t l = up(&h, 1, NODE_LINK_CONTROL);
	assert_int_equal(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.link, l);
	stop(&h);
}

// ---- neighbours

static void neighbours_that_change_sides_keep_their_links(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	plan(&h, 2, 2, 1);
	assert_int_equal(count_fx(&h, NODE_FX_DISCONNECT), 0);
	assert_int_equal(count_fx(&h, NODE_FX_CONNECT), 0);
	send_step(&h, next, 2, 7, 0);
	forwarded(&h);
	assert_int_equal(n_frames(&h, FRAME_STEP, prev), 1);
	// One goes, one comes, one changes sides.
	plan(&h, 3, 1, 3);
	assert_int_equal(count_fx(&h, NODE_FX_DISCONNECT), 1);
	assert_memory_equal(find_fx(&h, NODE_FX_DISCONNECT, 0)->u.connect.peer.b, h.ids[2].b, NODE_ID_BYTES);
	assert_int_equal(count_fx(&h, NODE_FX_CONNECT), 1);
	assert_memory_equal(find_fx(&h, NODE_FX_CONNECT, 0)->u.connect.peer.b, h.ids[3].b, NODE_ID_BYTES);
	assert_memory_equal(find_fx(&h, NODE_FX_CONNECT, 0)->u.connect.who->public_key, h.pk[3], KEY_BYTES);
	stop(&h);
}

static void two_machines_that_change_places_keep_their_link(void **state)
{
	(void)state;
	struct host h;
	start(&h);
	plan(&h, 1, 0, 2); // first of two
	loaded(&h, OK);
	uint32_t link = up(&h, 2, NODE_LINK_DATA);
	plan(&h, 2, 2, 0); // second of two
	assert_int_equal(count_fx(&h, NODE_FX_DISCONNECT), 0);
	assert_int_equal(count_fx(&h, NODE_FX_CONNECT), 0);
	send_step(&h, link, 2, 7, 0);
	assert_int_equal(count_fx(&h, NODE_FX_TAKE), 1);
	stop(&h);
}

static void one_neighbour_on_both_sides_is_dialled_once(void **state)
{
	(void)state;
	struct host h;
	start(&h);
	plan(&h, 1, 2, 2);
	assert_int_equal(count_fx(&h, NODE_FX_CONNECT), 1);
	loaded(&h, OK);
	plan(&h, 2, 1, 3);
	assert_int_equal(count_fx(&h, NODE_FX_DISCONNECT), 1);
	assert_int_equal(count_fx(&h, NODE_FX_CONNECT), 2);
	stop(&h);
}

static void a_plan_that_waits_for_the_engine_dies_with_a_revoked_neighbour(void **state)
{
	(void)state;
	struct host h;
	uint8_t psk[KEY_BYTES];
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	send_step(&h, prev, 1, 7, 0); // the engine is busy
	struct node_effects *busy = malloc(sizeof *busy);
	*busy = *h.fx;
	plan(&h, 2, 1, 3);
	struct msg m = {.type = MSG_REVOKED, .u.revoked = {.member_epoch = {2}, .node = h.ids[3]}};
	control_on(&h, h.control, &m);
	*h.fx = *busy;
	forwarded(&h);
	assert_int_equal(count_fx(&h, NODE_FX_CONNECT), 0);
	assert_false(node_find_psk(h.n, h.pk[3], psk));
	free(busy);
	stop(&h);
}

// ---- without a part

static void a_node_without_a_part_lets_go_of_everything(void **state)
{
	(void)state;
	struct host h;
	uint8_t psk[KEY_BYTES];
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	assert_true(node_find_psk(h.n, h.pk[1], psk));
	no_part(&h, 2);
	assert_int_equal(count_fx(&h, NODE_FX_DISCONNECT), 2);
	assert_int_equal(count_fx(&h, NODE_FX_UNLOAD), 1);
	assert_false(node_find_psk(h.n, h.pk[1], psk));
	up(&h, 1, NODE_LINK_DATA);
	assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 1);
	no_part(&h, 3);
	assert_int_equal(count_fx(&h, NODE_FX_UNLOAD), 0);
	plan(&h, 4, 1, 2); // and takes part again
	assert_int_equal(count_fx(&h, NODE_FX_CONNECT), 2);
	assert_int_equal(count_fx(&h, NODE_FX_LOAD), 1);
	loaded(&h, ERR_NOMEM);
	no_part(&h, 5); // buffers of a load that failed, too
	assert_int_equal(count_fx(&h, NODE_FX_UNLOAD), 1);
	stop(&h);
}

static void the_engine_is_let_go_of_when_it_is_free(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	send_step(&h, prev, 1, 7, 0);
	struct node_effects *busy = malloc(sizeof *busy);
	*busy = *h.fx;
	no_part(&h, 2);
	assert_int_equal(count_fx(&h, NODE_FX_UNLOAD), 0);
	*h.fx = *busy;
	forwarded(&h);
	assert_int_equal(count_fx(&h, NODE_FX_UNLOAD), 1);
	free(busy);
	stop(&h);
}

static void pong(struct host *h, uint32_t link, uint64_t cookie)
{
	uint8_t bytes[FRAME_PING_BYTES];
	ping_encode(FRAME_PONG, cookie, bytes);
	frame(h, link, bytes, sizeof bytes);
}

static void round_trips_to_neighbours_are_told_to_the_coordinator(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start(&h);
	plan(&h, 1, 1, 2);
	loaded(&h, OK);
	uint32_t next = up(&h, 2, NODE_LINK_DATA);
	h.now += S;
	pong(&h, next, (uint64_t)(h.now - 4200000));
	assert_true(sent(&h, MSG_LINK_RTT, &m));
	assert_true(node_id_is(m.u.link_rtt.peer, h.ids[2]));
	assert_int_equal(m.u.link_rtt.rtt_us, 4200);
	pong(&h, next, (uint64_t)h.now + 1); // of no ping
	assert_false(sent(&h, MSG_LINK_RTT, &m));
	pong(&h, h.data, (uint64_t)(h.now - 4200000)); // the coordinator measures its links itself
	assert_false(sent(&h, MSG_LINK_RTT, &m));
	pong(&h, h.control, (uint64_t)(h.now - 4200000));
	assert_false(sent(&h, MSG_LINK_RTT, &m));
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_on_a_link_that_has_a_successor_still_count),
		cmocka_unit_test(a_spare_link_is_received_from_and_never_sent_on),
		cmocka_unit_test(a_spare_link_takes_the_place_of_one_that_breaks),
		cmocka_unit_test(a_hop_with_steps_on_an_old_link_waits_for_their_credits),
		cmocka_unit_test(an_old_link_that_breaks_with_steps_of_the_plan_is_reported),
		cmocka_unit_test(an_old_link_that_carried_nothing_of_the_plan_may_break),
		cmocka_unit_test(an_old_link_that_breaks_may_have_carried_what_its_far_end_sent),
		cmocka_unit_test(an_old_control_link_that_breaks_takes_the_plan_along),
		cmocka_unit_test(an_old_link_is_closed_in_order_after_a_while),
		cmocka_unit_test(the_link_before_is_used_again_when_its_successor_is_lost),
		cmocka_unit_test(a_link_without_a_place_ends_the_oldest_of_its_kind),
		cmocka_unit_test(an_older_plan_on_an_old_link_changes_nothing),
		cmocka_unit_test(frames_of_the_wrong_neighbour_are_ignored_and_said_once),
		cmocka_unit_test(a_credit_goes_back_the_way_its_step_came),
		cmocka_unit_test(only_the_coordinator_has_a_control_link),
		cmocka_unit_test(neighbours_that_change_sides_keep_their_links),
		cmocka_unit_test(two_machines_that_change_places_keep_their_link),
		cmocka_unit_test(one_neighbour_on_both_sides_is_dialled_once),
		cmocka_unit_test(a_plan_that_waits_for_the_engine_dies_with_a_revoked_neighbour),
		cmocka_unit_test(a_node_without_a_part_lets_go_of_everything),
		cmocka_unit_test(round_trips_to_neighbours_are_told_to_the_coordinator),
		cmocka_unit_test(the_engine_is_let_go_of_when_it_is_free),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
