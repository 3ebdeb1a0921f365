// What a plan makes of the node core's links and keys: neighbours that change, revocations, plans without a part. The ring as a whole is in
// tests/sim/.
#include "tests/support/node_host.h"

static void revoked(struct host *h, int32_t machine, uint64_t member_epoch)
{
	struct msg m = {.type = MSG_REVOKED, .u.revoked = {.member_epoch = {member_epoch}, .node = h->ids[machine]}};
	control_on(h, h->control, &m);
}

static bool has_fx_for(struct host *h, enum node_effect_type type, int32_t machine)
{
	for (int32_t i = 0; i < h->fx->n; i++)
		if (h->fx->at[i].type == type && node_id_is(h->fx->at[i].u.connect.peer, h->ids[machine]))
			return true;
	return false;
}

static bool dials(struct host *h, int32_t machine)
{
	return has_fx_for(h, NODE_FX_CONNECT, machine);
}

static bool parts_from(struct host *h, int32_t machine)
{
	return has_fx_for(h, NODE_FX_DISCONNECT, machine);
}

// knows tells whether the core would let this machine's handshake through.
static bool knows(struct host *h, int32_t machine)
{
	uint8_t psk[KEY_BYTES];
	return node_find_psk(h->n, h->pk[machine], psk);
}

// holds_key tells whether the core's memory has this neighbour's key anywhere.
static bool holds_key(struct host *h, int32_t machine)
{
	struct msg_peer p = peer(h, machine);
	return memmem(h->n, node_size(), p.psk, sizeof p.psk) != NULL;
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
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	send_step(&h, prev, 1, 7, 0); // the engine is busy
	uint32_t id = forward_id(&h);
	plan(&h, 2, 1, 3);
	revoked(&h, 3, 2);
	forward_done(&h, id);
	assert_int_equal(count_fx(&h, NODE_FX_CONNECT), 0);
	assert_false(knows(&h, 3));
	stop(&h);
}

// ---- keys

static void a_revoked_neighbour_is_parted_from_and_its_key_wiped(void **state)
{
	(void)state;
	struct host h;
	start(&h);
	plan(&h, 1, 1, 2);
	loaded(&h, OK);
	up(&h, 2, NODE_LINK_DATA);
	assert_true(knows(&h, 2));
	assert_true(holds_key(&h, 2));

	revoked(&h, 2, 7);
	assert_true(parts_from(&h, 2));
	assert_false(parts_from(&h, 1));
	assert_int_equal(find_fx(&h, NODE_FX_STORE, 0)->u.store.member_epoch.v, 7);
	assert_string_equal(find_fx(&h, NODE_FX_LOG, 0)->u.log.text, "neighbour node2 was revoked: its link is closed");
	assert_false(knows(&h, 2));
	assert_false(holds_key(&h, 2));
	assert_true(knows(&h, 1));

	// A link whose handshake was under way comes too late.
	uint32_t late = up(&h, 2, NODE_LINK_DATA);
	assert_int_equal(find_fx(&h, NODE_FX_CLOSE, 0)->u.close.link, late);
	stop(&h);
}

static void a_neighbour_of_a_plan_that_waits_for_the_engine_is_revoked_as_well(void **state)
{
	(void)state;
	struct host h;
	start(&h);
	plan(&h, 1, 1, 0);
	uint32_t id = load_id(&h);
	plan(&h, 2, 1, 2); // must wait: the engine loads
	assert_true(holds_key(&h, 2));
	revoked(&h, 2, 7);
	assert_false(holds_key(&h, 2));
	load_done(&h, id, OK);
	assert_false(dials(&h, 2));
	assert_false(knows(&h, 2));

	// The plan without it comes as any other.
	plan(&h, 3, 1, 0);
	assert_true(knows(&h, 1));
	assert_int_equal(status(&h).epoch.v, 3);
	assert_true(status(&h).loaded);
	stop(&h);
}

static void keys_of_a_former_neighbour_are_not_kept(void **state)
{
	(void)state;
	struct host h;
	start(&h);
	plan(&h, 1, 1, 0);
	uint32_t id = load_id(&h);
	plan(&h, 2, 1, 2);
	load_done(&h, id, OK);
	assert_true(dials(&h, 2));
	plan(&h, 3, 1, 0);
	assert_true(parts_from(&h, 2));
	assert_false(holds_key(&h, 2));
	assert_true(holds_key(&h, 1));
	stop(&h);
}

// ---- without a part

static void a_node_without_a_part_lets_go_of_everything(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	assert_true(knows(&h, 1));
	no_part(&h, 2);
	assert_int_equal(count_fx(&h, NODE_FX_DISCONNECT), 2);
	assert_int_equal(count_fx(&h, NODE_FX_UNLOAD), 1);
	assert_false(knows(&h, 1));
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
	uint32_t id = forward_id(&h);
	no_part(&h, 2);
	assert_int_equal(count_fx(&h, NODE_FX_UNLOAD), 0);
	forward_done(&h, id);
	assert_int_equal(count_fx(&h, NODE_FX_UNLOAD), 1);
	stop(&h);
}

// ---- round trips

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

// ---- failures

static void each_step_of_a_batch_that_fails_is_told_with_its_own_words(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, next;
	join_ring(&h, &prev, &next);
	send_step(&h, prev, 1, 6, 0);
	uint32_t id = forward_id(&h);
	send_step(&h, prev, 1, 7, 0); // these two wait for the engine, and make a batch
	send_step(&h, prev, 1, 8, 0);
	forward_done(&h, id);
	assert_int_equal(find_fx(&h, NODE_FX_FORWARD, 0)->u.forward.n_items, 2);
	struct node_event ev = {.type = NODE_EV_FORWARD_DONE, .u.forward_done.id = forward_id(&h)};
	ev.u.forward_done.errs = (const enum err[]){ERR_NON_FINITE, ERR_IO};
	ev.u.forward_done.texts = (const char *const[]){"layer 3, position 0: not finite", ""};
	step(&h, &ev);
	static const struct {
		uint64_t session;
		const char *text;
		enum step_failure code;
	} want[] = {{7, "layer 3, position 0: not finite", STEP_NON_FINITE}, {8, "input or output failed", STEP_WEIGHTS}};
	size_t n = 0;
	for (int32_t i = 0; i < h.fx->n; i++) {
		struct msg m;
		struct errmsg em;
		const struct node_effect *f = &h.fx->at[i];
		if (f->type != NODE_FX_SEND || f->u.send.head[0] != FRAME_CONTROL || msg_decode(f->u.send.head, f->u.send.head_len, &m, &em) != OK ||
			m.type != MSG_STEP_FAILED)
			continue;
		assert_true(n < ARRAY_LEN(want));
		assert_int_equal(m.u.step_failed.session.v, want[n].session);
		assert_string_equal(m.u.step_failed.error, want[n].text);
		assert_int_equal(m.u.step_failed.code, want[n].code);
		n++;
	}
	assert_int_equal(n, ARRAY_LEN(want));
	stop(&h);
}

static void what_a_step_failed_of_decides_what_the_coordinator_does(void **state)
{
	(void)state;
	static const struct {
		enum err err;
		enum step_failure code;
	} of[] = {{ERR_IO, STEP_WEIGHTS}, {ERR_STATE, STEP_WEIGHTS}, {ERR_RANGE, STEP_NOT_KEPT}, {ERR_NON_FINITE, STEP_NON_FINITE}, {ERR_NOMEM, STEP_OTHER}};
	for (size_t i = 0; i < ARRAY_LEN(of); i++) {
		struct host h;
		struct msg m;
		uint32_t prev, next;
		join_ring(&h, &prev, &next);
		send_step(&h, prev, 1, 6, 0);
		struct node_event ev = {.type = NODE_EV_FORWARD_DONE, .u.forward_done.id = forward_id(&h)};
		ev.u.forward_done.errs = &of[i].err;
		step(&h, &ev);
		assert_true(sent(&h, MSG_STEP_FAILED, &m));
		assert_int_equal(m.u.step_failed.code, of[i].code);
		assert_int_equal(status(&h).n_bufs_used, 0);
		stop(&h);
	}
}

// begin_with_output gives this machine the last stage of two, with lm_head, and sends it a step that wants candidates and names layers.
static void begin_with_output(struct host *h, uint16_t layer_begin, uint16_t layer_end)
{
	struct msg m = {.type = MSG_PLAN};
	uint8_t bytes[FRAME_STEP_BYTES + HIDDEN * 4] = {0};
	start(h);
	m.u.plan = (struct msg_plan){.epoch = {1}, .n_stages = 2, .stage = 1, .layers = {1, {{2, 4}}}, .n_slots = 2, .ctx_len = 16, .chunk_max = 4,
		.hop_credits = CREDITS, .has_output = true, .prev = peer(h, 1)};
	control_on(h, h->control, &m);
	loaded(h, OK);
	uint32_t prev = up(h, 1, NODE_LINK_DATA);
	bool has_rows = layer_begin <= 2 && (layer_end == 0 || layer_end > 2);
	struct step s = {.reply = REPLY_BEST, .flags = STEP_FIRST, .src_span = 0, .dst_span = 1, .epoch = {1}, .session = {7}, .slot = 1, .n_tokens = 1,
		.layer_begin = layer_begin, .layer_end = layer_end, .payload_len = has_rows ? HIDDEN * 4 : 0};
	step_encode(&s, bytes);
	frame(h, prev, bytes, FRAME_STEP_BYTES + s.payload_len);
}

static void logits_are_of_the_last_layer_or_of_nothing(void **state)
{
	(void)state;
	struct host h;
	begin_with_output(&h, 0, 0);
	assert_int_equal(find_fx(&h, NODE_FX_FORWARD, 0)->u.forward.items[0].want, HEAD_BEST);
	stop(&h);
	static const uint16_t bad[][2] = {{0, 3}, {0, 2}, {4, 8}, {3, 3}};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		begin_with_output(&h, bad[i][0], bad[i][1]);
		assert_int_equal(count_fx(&h, NODE_FX_FORWARD) + count_fx(&h, NODE_FX_FETCH), 0);
		assert_int_equal(count_fx(&h, NODE_FX_CLOSE), 1);
		assert_int_equal(status(&h).n_bufs_used, 0);
		stop(&h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(neighbours_that_change_sides_keep_their_links),
		cmocka_unit_test(two_machines_that_change_places_keep_their_link),
		cmocka_unit_test(one_neighbour_on_both_sides_is_dialled_once),
		cmocka_unit_test(a_plan_that_waits_for_the_engine_dies_with_a_revoked_neighbour),
		cmocka_unit_test(a_revoked_neighbour_is_parted_from_and_its_key_wiped),
		cmocka_unit_test(a_neighbour_of_a_plan_that_waits_for_the_engine_is_revoked_as_well),
		cmocka_unit_test(keys_of_a_former_neighbour_are_not_kept),
		cmocka_unit_test(a_node_without_a_part_lets_go_of_everything),
		cmocka_unit_test(the_engine_is_let_go_of_when_it_is_free),
		cmocka_unit_test(round_trips_to_neighbours_are_told_to_the_coordinator),
		cmocka_unit_test(each_step_of_a_batch_that_fails_is_told_with_its_own_words),
		cmocka_unit_test(what_a_step_failed_of_decides_what_the_coordinator_does),
		cmocka_unit_test(logits_are_of_the_last_layer_or_of_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
