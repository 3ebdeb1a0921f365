// The coordinator core, event by event: the test plays the host, the disk and the nodes. What needs a whole ring is in tests/sim/.
#include "base/log.h"
#include "tests/support/coord_host.h"

// ---- invites

static void ask_invite(struct host *h, uint8_t token)
{
	struct coord_event ev = {.type = COORD_EV_INVITE};
	ev.u.invite.ticket = token;
	ev.u.invite.token_id[0] = token;
	ev.u.invite.secret[0] = token;
	ev.u.invite.ttl_s = 600;
	step(h, &ev);
}

static void make_invite(struct host *h, uint8_t token)
{
	ask_invite(h, token);
	stored(h, store_id(h, STORE_INVITE), OK);
	assert_int_equal(find_fx(h, COORD_FX_ANSWER, 0)->u.answer.err, OK);
}

static bool has_token(struct host *h, uint8_t token)
{
	uint8_t id[TOKEN_ID_BYTES] = {token}, secret[KEY_BYTES];
	return coordinator_find_token(h->c, id, h->wall, secret);
}

static bool has_psk(struct host *h, int32_t i, uint8_t psk[KEY_BYTES])
{
	return coordinator_find_psk(h->c, record(i).public_key, psk);
}

static void join(struct host *h, uint32_t link, uint8_t token, int32_t i)
{
	struct coord_event ev = {.type = COORD_EV_JOIN};
	ev.u.join.link = link;
	ev.u.join.token_id[0] = token;
	ev.u.join.id = record(i).id;
	memcpy(ev.u.join.public_key, record(i).public_key, KEY_BYTES);
	ev.u.join.random[0] = (uint8_t)(100 + link);
	step(h, &ev);
}

static void eight_invites_are_outstanding_and_no_more(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 0);
	for (uint8_t t = 1; t <= INVITES_MAX; t++)
		make_invite(&h, t);
	ask_invite(&h, 99);
	assert_null(find_fx(&h, COORD_FX_STORE, 0));
	assert_int_equal(find_fx(&h, COORD_FX_ANSWER, 0)->u.answer.err, ERR_LIMIT);
	h.wall += 601;
	make_invite(&h, 99); // the old ones have expired
	assert_true(has_token(&h, 99));
	assert_false(has_token(&h, 1));
	stop(&h);
}

static void an_invite_serves_only_when_it_is_on_disk(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 0);
	ask_invite(&h, 1);
	uint32_t id = store_id(&h, STORE_INVITE);
	assert_false(has_token(&h, 1));
	join(&h, 50, 1, 5);
	assert_non_null(find_fx(&h, COORD_FX_REFUSE, 0));
	stored(&h, id, ERR_IO);
	assert_int_equal(find_fx(&h, COORD_FX_ANSWER, 0)->u.answer.err, ERR_IO);
	assert_false(has_token(&h, 1));
	stop(&h);
}

static void an_invite_expires(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 0);
	make_invite(&h, 1);
	h.wall += 600;
	assert_true(has_token(&h, 1));
	h.wall++;
	assert_false(has_token(&h, 1));
	join(&h, 50, 1, 5);
	assert_non_null(find_fx(&h, COORD_FX_REFUSE, 0));
	tick(&h);
	assert_int_equal(find_fx(&h, COORD_FX_STORE, 0)->u.store.invite.token_id[0], 1);
	stored(&h, store_id(&h, STORE_INVITE_DELETE), OK);
	stop(&h);
}

static bool memory_holds(const struct host *h, const uint8_t secret[KEY_BYTES])
{
	const uint8_t *p = (const uint8_t *)h->c;
	for (size_t i = 0; i + KEY_BYTES <= coordinator_size(); i++)
		if (memcmp(p + i, secret, KEY_BYTES) == 0)
			return true;
	return false;
}

static void the_secret_of_an_invite_is_wiped_when_it_expires(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 0);
	assert_true(coordinator_deadline_ns(h.c) == INT64_MAX);
	struct coord_event ev = {.type = COORD_EV_INVITE, .u.invite = {.token_id = {1}, .ttl_s = 600}};
	memset(ev.u.invite.secret, 0x5a, KEY_BYTES);
	step(&h, &ev);
	stored(&h, store_id(&h, STORE_INVITE), OK);
	assert_true(memory_holds(&h, ev.u.invite.secret));
	int64_t begin = h.now;
	for (int i = 0; i < 10 && memory_holds(&h, ev.u.invite.secret); i++) { // nothing else happens: no link is up, no request comes
		int64_t deadline = coordinator_deadline_ns(h.c);
		assert_true(deadline > h.now && deadline - begin <= 601 * S);
		h.wall += (deadline - h.now) / S;
		h.now = deadline;
		tick(&h);
	}
	assert_int_equal(h.now - begin, 601 * S);
	assert_int_equal(find_fx(&h, COORD_FX_STORE, 0)->u.store.op, STORE_INVITE_DELETE);
	assert_true(coordinator_deadline_ns(h.c) == INT64_MAX);
	stop(&h);
}

static void a_clock_that_is_set_forward_ends_an_invite_at_once(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 0);
	make_invite(&h, 1);
	h.wall += 10000;
	submit(&h, 1, 0, 1); // any event
	assert_false(has_token(&h, 1));
	assert_int_equal(coordinator_deadline_ns(h.c), h.now);
	tick(&h);
	assert_true(coordinator_deadline_ns(h.c) == INT64_MAX);
	h.wall -= 10000; // and back: what has expired does not live again
	assert_false(has_token(&h, 1));
	stop(&h);
}

static void the_fifth_failure_voids_an_invite(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 0);
	make_invite(&h, 1);
	struct coord_event ev = {.type = COORD_EV_JOIN_FAILED, .u.join_failed.token_id = {1}};
	for (int i = 1; i <= 4; i++) {
		step(&h, &ev);
		assert_int_equal(find_fx(&h, COORD_FX_STORE, 0)->u.store.invite.n_failures, i);
		assert_true(has_token(&h, 1));
	}
	step(&h, &ev);
	assert_int_equal(find_fx(&h, COORD_FX_STORE, 0)->u.store.op, STORE_INVITE_DELETE);
	assert_false(has_token(&h, 1));
	stop(&h);
}

static void a_join_is_accepted_when_its_binding_is_on_disk(void **state)
{
	(void)state;
	struct host h;
	uint8_t psk[KEY_BYTES], again[KEY_BYTES];
	struct coordinator_config config = base_config();
	start(&h, &config, 0);
	make_invite(&h, 1);
	join(&h, 50, 1, 5);
	assert_null(find_fx(&h, COORD_FX_ACCEPT, 0));
	assert_false(has_psk(&h, 5, psk));
	stored(&h, store_id(&h, STORE_BIND), OK);
	assert_int_equal(find_fx(&h, COORD_FX_ACCEPT, 0)->u.close.link, 50);
	assert_true(has_psk(&h, 5, psk));
	// The same key again: the same grant, no write. Another key: refused.
	join(&h, 51, 1, 5);
	assert_int_equal(find_fx(&h, COORD_FX_ACCEPT, 0)->u.close.link, 51);
	assert_null(find_fx(&h, COORD_FX_STORE, 0));
	assert_true(has_psk(&h, 5, again));
	assert_memory_equal(psk, again, KEY_BYTES);
	join(&h, 52, 1, 6);
	assert_int_equal(find_fx(&h, COORD_FX_REFUSE, 0)->u.close.link, 52);
	// The grant, its JoinAck, the end of the invite.
	struct msg m;
	uint32_t l = link_up(&h, record(5).id, COORD_LINK_JOIN);
	assert_true(sent(&h, l, MSG_JOIN_GRANT, &m));
	assert_memory_equal(m.u.join_grant.psk, psk, KEY_BYTES);
	message(&h, l, &(struct msg){.type = MSG_JOIN_ACK});
	stored(&h, store_id(&h, STORE_INVITE_DELETE), OK);
	assert_int_equal(find_fx(&h, COORD_FX_CLOSE, 0)->u.close.link, l);
	assert_false(has_token(&h, 1));
	join(&h, 53, 1, 5);
	assert_non_null(find_fx(&h, COORD_FX_REFUSE, 0));
	stop(&h);
}

static void a_bound_invite_survives_a_crash(void **state)
{
	(void)state;
	struct host h;
	uint8_t psk[KEY_BYTES];
	struct coordinator_config config = base_config();
	start(&h, &config, 0);
	stop(&h);
	h.c = calloc(1, coordinator_size());
	h.fx = malloc(sizeof *h.fx);
	h.tokens = malloc(sizeof(int32_t) * SESSIONS_MAX * CTX);
	coordinator_init(h.c, &config, h.tokens);
	struct member_record five = record(5);
	struct invite_record inv = {
		.token_id = {1}, .secret = {1}, .expires_s = h.wall + 100, .bound = true, .bound_to = record(5).id};
	struct coord_event ev = {.type = COORD_EV_RESTORED};
	ev.u.restored.members = &five;
	ev.u.restored.n_members = 1;
	ev.u.restored.invites = &inv;
	ev.u.restored.n_invites = 1;
	step(&h, &ev);
	join(&h, 50, 1, 5);
	assert_non_null(find_fx(&h, COORD_FX_ACCEPT, 0));
	assert_true(has_psk(&h, 5, psk));
	assert_memory_equal(psk, five.psk, KEY_BYTES);
	join(&h, 51, 1, 6);
	assert_non_null(find_fx(&h, COORD_FX_REFUSE, 0));
	stop(&h);
}

static void a_failed_binding_binds_nobody(void **state)
{
	(void)state;
	struct host h;
	uint8_t psk[KEY_BYTES];
	struct coordinator_config config = base_config();
	start(&h, &config, 0);
	make_invite(&h, 1);
	join(&h, 50, 1, 5);
	stored(&h, store_id(&h, STORE_BIND), ERR_IO);
	assert_non_null(find_fx(&h, COORD_FX_REFUSE, 0));
	assert_false(has_psk(&h, 5, psk));
	join(&h, 51, 1, 6);
	stored(&h, store_id(&h, STORE_BIND), OK);
	assert_non_null(find_fx(&h, COORD_FX_ACCEPT, 0));
	stop(&h);
}

static void one_failed_write_of_two_leaves_an_invite_bound(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 0);
	make_invite(&h, 1);
	join(&h, 50, 1, 5);
	uint32_t first = store_id(&h, STORE_BIND);
	join(&h, 51, 1, 5); // it lost its connection and came again at once
	uint32_t second = store_id(&h, STORE_BIND);
	stored(&h, first, ERR_IO);
	join(&h, 52, 1, 6);
	assert_non_null(find_fx(&h, COORD_FX_REFUSE, 0));
	stored(&h, second, OK);
	assert_int_equal(find_fx(&h, COORD_FX_ACCEPT, 0)->u.close.link, 51);
	join(&h, 53, 1, 6);
	assert_non_null(find_fx(&h, COORD_FX_REFUSE, 0));
	stop(&h);
}

// ---- revoking

static uint32_t revoke(struct host *h, const char *who)
{
	struct coord_event ev = {.type = COORD_EV_REVOKE};
	ev.u.revoke.ticket = 9;
	ev.u.revoke.who = who;
	step(h, &ev);
	return store_id(h, STORE_REVOKE);
}

static void a_revoked_node_is_gone_and_the_others_are_told(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	uint8_t psk[KEY_BYTES];
	struct coordinator_config config = base_config();
	start(&h, &config, 3);
	for (int32_t i = 1; i <= 3; i++)
		arrive(&h, i);
	be_ready(&h, 3);
	submit(&h, 1, 3, 3);
	uint32_t id = revoke(&h, "node2");
	assert_int_equal(find_fx(&h, COORD_FX_STORE, 0)->u.store.member_epoch.v, 2);
	assert_true(has_psk(&h, 2, psk));
	stored(&h, id, OK);
	assert_false(has_psk(&h, 2, psk));
	assert_int_equal(coordinator_member_epoch(h.c).v, 2);
	assert_int_equal(count_fx(&h, COORD_FX_CLOSE), 2);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0); // the answer goes on without it
	for (int32_t i = 1; i <= 3; i += 2) {
		assert_true(sent(&h, h.control[i], MSG_REVOKED, &m));
		assert_int_equal(m.u.revoked.member_epoch.v, 2);
		assert_memory_equal(m.u.revoked.node.b, record(2).id.b, NODE_ID_BYTES);
	}
	assert_false(sent(&h, h.control[2], MSG_REVOKED, &m));
	be_ready(&h, 3);
	link_up(&h, record(2).id, COORD_LINK_CONTROL);
	assert_int_equal(count_fx(&h, COORD_FX_CLOSE), 1);
	stop(&h);
}

static void a_node_is_revoked_while_keys_are_drawn(void **state)
{
	(void)state;
	struct host h;
	struct coord_status st;
	struct coordinator_config config = base_config();
	start(&h, &config, 2);
	arrive(&h, 1);
	be_ready(&h, 1);
	arrive(&h, 2);
	assert_int_equal(count_fx(&h, COORD_FX_NEED_RANDOM), 1);
	stored(&h, revoke(&h, "node2"), OK);
	random_bytes(&h);
	be_ready(&h, 1);
	coordinator_status(h.c, &st);
	assert_int_equal(st.members[0].layer_end, 6);
	stop(&h);
}

static void two_revocations_at_once_have_two_epochs(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 3);
	uint32_t a = revoke(&h, "node1");
	assert_int_equal(find_fx(&h, COORD_FX_STORE, 0)->u.store.member_epoch.v, 2);
	uint32_t b = revoke(&h, "node2");
	assert_int_equal(find_fx(&h, COORD_FX_STORE, 0)->u.store.member_epoch.v, 3);
	stored(&h, a, OK);
	assert_int_equal(coordinator_member_epoch(h.c).v, 2);
	stored(&h, b, OK);
	assert_int_equal(coordinator_member_epoch(h.c).v, 3);
	// A failed one in between: what is on disk and what is in memory stay the same number.
	a = revoke(&h, "node3");
	stored(&h, a, ERR_IO);
	assert_int_equal(find_fx(&h, COORD_FX_ANSWER, 0)->u.answer.err, ERR_IO);
	assert_int_equal(coordinator_member_epoch(h.c).v, 3);
	stop(&h);
}

static void a_revoked_key_does_not_come_back_by_a_join_behind_the_revocation(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 1);
	make_invite(&h, 1);
	uint32_t id = revoke(&h, "node1");
	join(&h, 50, 1, 1); // its binding would be written after the revocation
	assert_non_null(find_fx(&h, COORD_FX_REFUSE, 0));
	assert_null(find_fx(&h, COORD_FX_STORE, 0));
	stored(&h, id, OK);
	stop(&h);
}

// ---- plans, losses, time

static void a_node_with_another_model_is_refused(void **state)
{
	(void)state;
	struct host h;
	struct msg m = {.type = MSG_HELLO, .u.hello = {.name = "node1", .n_threads = 1, .model_hash = {1}}}, out;
	struct coordinator_config config = base_config();
	start(&h, &config, 1);
	h.control[1] = link_up(&h, record(1).id, COORD_LINK_CONTROL);
	message(&h, h.control[1], &m);
	assert_true(sent(&h, h.control[1], MSG_REFUSED, &out));
	assert_non_null(strstr(out.u.refused.reason, "hash"));
	stop(&h);
}

static void an_empty_stage_is_refused_by_name(void **state)
{
	(void)state;
	struct host h;
	struct coord_status st;
	struct coordinator_config config = base_config();
	config.n_split = 2;
	config.split[0] = 6;
	start(&h, &config, 2);
	arrive(&h, 1);
	arrive(&h, 2);
	coordinator_status(h.c, &st);
	assert_false(st.ready);
	assert_non_null(strstr(st.waiting_for, "node2"));
	stop(&h);
}

static void sixty_four_nodes_and_sessions_fit_the_effects(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	config.n_layers = NODES_MAX;
	config.n_slots = SESSIONS_MAX;
	config.hop_credits = HOP_CREDITS_MAX;
	start(&h, &config, NODES_MAX);
	for (int32_t i = 1; i <= NODES_MAX; i++)
		arrive(&h, i);
	be_ready(&h, NODES_MAX);
	for (uint64_t r = 1; r <= SESSIONS_MAX; r++)
		submit(&h, r, 4, 4);
	for (int round = 0; round < 2 * SESSIONS_MAX; round++) {
		struct coord_effect *f = find_fx(&h, COORD_FX_FORWARD, 0);
		struct coord_event ev = {.type = COORD_EV_FORWARD_DONE};
		ev.u.forward_done.id = f ? f->u.forward.id : (uint32_t)round;
		step(&h, &ev);
	}
	struct coord_status st;
	coordinator_status(h.c, &st);
	assert_int_equal(st.n_active, SESSIONS_MAX);
	struct coord_event ev = {.type = COORD_EV_LINK_DOWN};
	ev.u.link_down.link = h.control[7];
	ev.u.link_down.reason = "reset";
	step(&h, &ev);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	coordinator_status(h.c, &st);
	assert_int_equal(st.n_active, SESSIONS_MAX);
	assert_non_null(strstr(st.waiting_for, "node7"));
	h.now += config.liveness.rejoin_ns;
	tick(&h); // 63 nodes get parts of a new plan, and never say that they are ready
	h.now += 150 * S;
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_END), SESSIONS_MAX);
	stop(&h);
}

static void silence_of_eight_seconds_loses_a_node(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 1);
	arrive(&h, 1);
	be_ready(&h, 1);
	submit(&h, 1, 3, 3);
	int64_t begin = h.now;
	struct coord_status st = {.ready = true};
	while (st.ready) {
		assert_true(coordinator_deadline_ns(h.c) > h.now);
		h.now = coordinator_deadline_ns(h.c);
		tick(&h);
		coordinator_status(h.c, &st);
	}
	assert_int_equal(h.now - begin, 8 * S);
	assert_non_null(strstr(st.members[0].detail, "silent for 8000 ms"));
	assert_int_equal(st.n_active, 1);
	stop(&h);
}

static void a_suspect_gets_no_new_answer_until_it_is_heard(void **state)
{
	(void)state;
	struct host h;
	struct coord_status st;
	struct coordinator_config config = base_config();
	start(&h, &config, 1);
	arrive(&h, 1);
	be_ready(&h, 1);
	h.now += 14 * S / 10;
	submit(&h, 1, 3, 3);
	assert_int_equal(count_fx(&h, COORD_FX_FORWARD), 1);
	h.now += 2 * S / 10;
	submit(&h, 2, 3, 3);
	coordinator_status(h.c, &st);
	assert_int_equal(st.n_active, 1);
	assert_int_equal(st.n_waiting, 1);
	assert_string_equal(st.members[0].state, "suspect");
	struct msg m = {.type = MSG_PEER_LINK, .u.peer_link = {.epoch = st.plan_epoch}};
	message(&h, h.control[1], &m);
	coordinator_status(h.c, &st);
	assert_int_equal(st.n_active, 1); // its data link is as silent as before
	uint8_t pong[FRAME_PING_BYTES];
	ping_encode(FRAME_PONG, 1, pong);
	struct coord_event ev = {.type = COORD_EV_MESSAGE, .u.message = {.link = h.data[1], .data = pong, .len = sizeof pong}};
	step(&h, &ev);
	coordinator_status(h.c, &st);
	assert_int_equal(st.n_active, 2);
	assert_string_equal(st.members[0].state, "ready");
	stop(&h);
}

static void silence_while_this_machine_slept_is_forgiven_whatever_event_wakes_it(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 1);
	arrive(&h, 1);
	be_ready(&h, 1);
	h.now += 60 * S;
	submit(&h, 1, 3, 3); // the first event after the sleep is a request
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	assert_int_equal(count_fx(&h, COORD_FX_CLOSE), 0);
	stop(&h);
}

static void session_wait_counts_from_the_loss_not_from_the_request(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	config.n_slots = 1;
	config.liveness.dead_after_ns = 100000 * S;
	start(&h, &config, 1);
	arrive(&h, 1);
	be_ready(&h, 1);
	submit(&h, 1, 3, 3);
	submit(&h, 2, 3, 3); // waits for the one slot, longer than session_wait
	h.now += 200 * S;
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	struct coord_event ev = {.type = COORD_EV_LINK_DOWN};
	ev.u.link_down.link = h.control[1];
	ev.u.link_down.reason = "reset";
	step(&h, &ev);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	h.now += 150 * S - 1;
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	h.now++;
	assert_true(coordinator_deadline_ns(h.c) <= h.now);
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_END), 2);
	assert_int_equal(find_fx(&h, COORD_FX_END, 0)->u.end.err, ERR_TIMEOUT);
	stop(&h);
}

static void a_join_link_carries_no_pings(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 1);
	link_up(&h, record(1).id, COORD_LINK_JOIN);
	for (int i = 0; i < 7; i++) {
		h.now += S;
		tick(&h);
		assert_int_equal(count_fx(&h, COORD_FX_SEND), 0);
	}
	h.now += S;
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_CLOSE), 1);
	stop(&h);
}

static int32_t n_warnings(struct host *h)
{
	int32_t n = 0;
	struct coord_effect *f;
	for (int32_t i = 0; (f = find_fx(h, COORD_FX_LOG, i)) != NULL; i++)
		n += f->u.log.level <= LOG_WARNING;
	return n;
}

static void a_start_warns_only_when_nobody_is_there_to_come(void **state)
{
	(void)state;
	struct coord_status st;
	for (int32_t local = 0; local < 2; local++) {
		struct host h;
		struct coordinator_config config = base_config();
		config.self = record(NODES_MAX).id;
		config.has_local_node = local == 1;
		start(&h, &config, 0);
		assert_int_equal(n_warnings(&h), 1 - local);
		coordinator_status(h.c, &st);
		assert_string_equal(st.waiting_for,
			local ? "the node on this machine is not ready" : "no node has joined, and this machine holds no layers (--no-node)");
		stop(&h);
	}
}

static void requests_that_cannot_be_are_ended_at_once(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	start(&h, &config, 0);
	submit(&h, 1, 0, 1);
	assert_int_equal(find_fx(&h, COORD_FX_END, 0)->u.end.err, ERR_RANGE);
	submit(&h, 2, 1, 0);
	assert_int_equal(find_fx(&h, COORD_FX_END, 0)->u.end.err, ERR_RANGE);
	submit(&h, 3, CTX, 1);
	assert_int_equal(find_fx(&h, COORD_FX_END, 0)->u.end.err, ERR_LIMIT);
	for (uint64_t r = 0; r < SESSIONS_MAX; r++) {
		submit(&h, 10 + r, CTX - 1, 1);
		assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	}
	submit(&h, 4, 1, 1);
	assert_int_equal(find_fx(&h, COORD_FX_END, 0)->u.end.err, ERR_BUSY);
	stop(&h);
}

static void plan_epochs_grow_over_restarts(void **state)
{
	(void)state;
	struct host h;
	struct coord_status before, after;
	struct coordinator_config config = base_config();
	start(&h, &config, 1);
	arrive(&h, 1);
	be_ready(&h, 1);
	coordinator_status(h.c, &before);
	stop(&h);
	start(&h, &config, 0);
	stop(&h);
	start(&h, &config, 1);
	h.wall++;
	struct coord_event ev = {.type = COORD_EV_RESTORED};
	struct member_record one = record(1);
	ev.u.restored.members = &one;
	ev.u.restored.n_members = 1;
	step(&h, &ev);
	arrive(&h, 1);
	coordinator_status(h.c, &after);
	assert_true(after.plan_epoch.v > before.plan_epoch.v);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(eight_invites_are_outstanding_and_no_more),
		cmocka_unit_test(an_invite_serves_only_when_it_is_on_disk),
		cmocka_unit_test(an_invite_expires),
		cmocka_unit_test(the_secret_of_an_invite_is_wiped_when_it_expires),
		cmocka_unit_test(a_clock_that_is_set_forward_ends_an_invite_at_once),
		cmocka_unit_test(the_fifth_failure_voids_an_invite),
		cmocka_unit_test(a_join_is_accepted_when_its_binding_is_on_disk),
		cmocka_unit_test(a_bound_invite_survives_a_crash),
		cmocka_unit_test(a_failed_binding_binds_nobody),
		cmocka_unit_test(one_failed_write_of_two_leaves_an_invite_bound),
		cmocka_unit_test(a_revoked_node_is_gone_and_the_others_are_told),
		cmocka_unit_test(a_node_is_revoked_while_keys_are_drawn),
		cmocka_unit_test(two_revocations_at_once_have_two_epochs),
		cmocka_unit_test(a_revoked_key_does_not_come_back_by_a_join_behind_the_revocation),
		cmocka_unit_test(a_node_with_another_model_is_refused),
		cmocka_unit_test(an_empty_stage_is_refused_by_name),
		cmocka_unit_test(sixty_four_nodes_and_sessions_fit_the_effects),
		cmocka_unit_test(silence_of_eight_seconds_loses_a_node),
		cmocka_unit_test(a_suspect_gets_no_new_answer_until_it_is_heard),
		cmocka_unit_test(silence_while_this_machine_slept_is_forgiven_whatever_event_wakes_it),
		cmocka_unit_test(session_wait_counts_from_the_loss_not_from_the_request),
		cmocka_unit_test(a_join_link_carries_no_pings),
		cmocka_unit_test(a_start_warns_only_when_nobody_is_there_to_come),
		cmocka_unit_test(requests_that_cannot_be_are_ended_at_once),
		cmocka_unit_test(plan_epochs_grow_over_restarts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
