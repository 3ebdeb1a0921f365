// Who belongs to the cluster, as the coordinator core keeps it: invites, joins, revocations. The test plays the host, the disk and the nodes.
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
	start(&h, NULL, 0);
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
	start(&h, NULL, 0);
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
	start(&h, NULL, 0);
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
	return memmem(h->c, coordinator_size(&h->config), secret, KEY_BYTES) != NULL;
}

static void the_secret_of_an_invite_is_wiped_when_it_expires(void **state)
{
	(void)state;
	struct host h;
	start(&h, NULL, 0);
	assert_true(coordinator_deadline_ns(h.c) == INT64_MAX);
	struct coord_event ev = {.type = COORD_EV_INVITE, .u.invite = {.token_id = {1}, .ttl_s = 600}};
	memset(ev.u.invite.secret, 0x5a, KEY_BYTES);
	step(&h, &ev);
	stored(&h, store_id(&h, STORE_INVITE), OK);
	assert_true(memory_holds(&h, ev.u.invite.secret));
	assert_int_equal(run_to(&h, COORD_FX_STORE, 601 * S), 601 * S); // nothing else happens: no link is up, no request comes
	assert_true(h.n_ticks <= 10);
	assert_false(memory_holds(&h, ev.u.invite.secret));
	assert_int_equal(find_fx(&h, COORD_FX_STORE, 0)->u.store.op, STORE_INVITE_DELETE);
	assert_true(coordinator_deadline_ns(h.c) == INT64_MAX);
	stop(&h);
}

static void a_clock_that_is_set_forward_ends_an_invite_at_once(void **state)
{
	(void)state;
	struct host h;
	start(&h, NULL, 0);
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
	start(&h, NULL, 0);
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
	start(&h, NULL, 0);
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
	open_core(&h, NULL);
	struct member_record five = record(5);
	struct invite_record inv = {
		.token_id = {1}, .secret = {1}, .expires_s = h.wall + 100, .bound = true, .bound_to = record(5).id};
	restore(&h, &five, 1, &inv, 1);
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
	start(&h, NULL, 0);
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
	start(&h, NULL, 0);
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

// ---- names

// said makes member 1 say Hello as `name`, and returns the write that keeps it; NULL: none.
static const struct coord_effect *said(struct host *h, const char *name)
{
	struct msg m = {.type = MSG_HELLO, .u.hello = {.n_threads = 1, .port = 7434}};
	snprintf(m.u.hello.name, NAME_CAP, "%s", name);
	message(h, h->control[1], &m);
	const struct coord_effect *f = find_fx(h, COORD_FX_STORE, 0);
	assert_true(f == NULL || f->u.store.op == STORE_NAME);
	assert_true(f == NULL || strcmp(f->u.store.member.name, name) == 0);
	return f;
}

static void a_new_name_is_written_once_and_again_if_that_failed(void **state)
{
	(void)state;
	struct host h;
	start(&h, NULL, 1);
	arrive(&h, 1);
	assert_null(find_fx(&h, COORD_FX_STORE, 0)); // it is called what the disk says
	const struct coord_effect *f = said(&h, "laptop-anna");
	assert_non_null(f);
	assert_memory_equal(f->u.store.member.id.b, record(1).id.b, NODE_ID_BYTES);
	stored(&h, f->u.store.id, OK);
	assert_null(said(&h, "laptop-anna"));
	f = said(&h, "laptop-ben");
	assert_non_null(f);
	stored(&h, f->u.store.id, ERR_IO);
	f = said(&h, "laptop-ben");
	assert_non_null(f);
	stored(&h, f->u.store.id, OK);
	assert_null(said(&h, "laptop-ben"));
	stop(&h);
}

static void an_absent_member_is_known_by_the_name_on_disk(void **state)
{
	(void)state;
	struct host h;
	open_core(&h, NULL);
	struct member_record anna = record(1);
	snprintf(anna.name, sizeof anna.name, "laptop-anna");
	restore(&h, &anna, 1, NULL, 0);
	assert_string_equal(status(&h).members[0].state, "absent");
	assert_string_equal(status(&h).members[0].name, "laptop-anna");
	struct coord_event ev = {.type = COORD_EV_DRAIN, .u.revoke = {.ticket = 9, .who = "laptop-anna"}};
	step(&h, &ev);
	assert_int_equal(find_fx(&h, COORD_FX_ANSWER, 0)->u.answer.err, OK);
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
	start_ready(&h, NULL, 3);
	submit(&h, 1, 3, 3);
	uint32_t id = revoke(&h, "node2");
	assert_int_equal(find_fx(&h, COORD_FX_STORE, 0)->u.store.member_epoch.v, 2);
	assert_true(has_psk(&h, 2, psk));
	stored(&h, id, OK);
	assert_false(has_psk(&h, 2, psk));
	assert_int_equal(coordinator_member_epoch(h.c).v, 2);
	assert_non_null(find_fx(&h, COORD_FX_DISCONNECT, 0));
	assert_memory_equal(find_fx(&h, COORD_FX_DISCONNECT, 0)->u.disconnect.node.b, record(2).id.b, NODE_ID_BYTES);
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
	assert_false(find_fx(&h, COORD_FX_CLOSE, 0)->u.close.orderly);
	stop(&h);
}

static void a_node_is_revoked_while_keys_are_drawn(void **state)
{
	(void)state;
	struct host h;
	start(&h, NULL, 2);
	arrive(&h, 1);
	be_ready(&h, 1);
	arrive(&h, 2);
	assert_int_equal(count_fx(&h, COORD_FX_NEED_RANDOM), 1);
	stored(&h, revoke(&h, "node2"), OK);
	random_bytes(&h);
	be_ready(&h, 1);
	assert_int_equal(status(&h).members[0].layers.at[0].end, 6);
	stop(&h);
}

static void two_revocations_at_once_have_two_epochs(void **state)
{
	(void)state;
	struct host h;
	start(&h, NULL, 3);
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
	start(&h, NULL, 1);
	make_invite(&h, 1);
	uint32_t id = revoke(&h, "node1");
	join(&h, 50, 1, 1); // its binding would be written after the revocation
	assert_non_null(find_fx(&h, COORD_FX_REFUSE, 0));
	assert_null(find_fx(&h, COORD_FX_STORE, 0));
	stored(&h, id, OK);
	stop(&h);
}

static void a_node_waits_until_our_own_file_was_read(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct coordinator_config config = patient_config();
	config.model_unknown = true;
	start(&h, &config, 2);
	h.data[1] = link_up(&h, record(1).id, COORD_LINK_DATA);
	h.control[1] = link_up(&h, record(1).id, COORD_LINK_CONTROL);
	hello(&h, 1);
	assert_false(sent(&h, h.control[1], MSG_WELCOME, &m) || sent(&h, h.control[1], MSG_REFUSED, &m));
	assert_non_null(strstr(status(&h).members[0].detail, "has read its model file"));
	arrive(&h, 2);
	down(&h, h.control[2], false); // and is gone before
	struct coord_event ev = {.type = COORD_EV_MODEL};
	step(&h, &ev);
	assert_true(sent(&h, h.control[1], MSG_WELCOME, &m));
	assert_false(sent(&h, h.control[2], MSG_WELCOME, &m));
	be_ready(&h, 1);
	assert_string_equal(status(&h).members[0].detail, "");
	stop(&h);
}

static void a_node_with_another_file_is_refused_when_ours_was_read(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct coordinator_config config = patient_config();
	config.model_unknown = true;
	start(&h, &config, 1);
	arrive(&h, 1);
	struct coord_event ev = {.type = COORD_EV_MODEL, .u.model.hash = {7}};
	step(&h, &ev);
	assert_true(sent(&h, h.control[1], MSG_REFUSED, &m));
	stop(&h);
}

// One that says it has kept its part, of another file than it had: what it computes is not the model's.
static void who_is_refused_has_no_part_any_more(void **state)
{
	(void)state;
	struct host h;
	start_ready(&h, NULL, 1);
	submit(&h, 1, 3, 3);
	struct msg m = {.type = MSG_HELLO, .u.hello = {.name = "node1", .n_threads = 1, .model_hash = {1}, .epoch = {epoch_of(&h)}}};
	message(&h, h.control[1], &m);
	assert_true(sent(&h, h.control[1], MSG_REFUSED, &m));
	assert_false(is_ready(&h));
	assert_int_equal(count_fx(&h, COORD_FX_END), 0); // the answer waits for another
	assert_string_equal(status(&h).members[0].state, "refused");
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_waits_until_our_own_file_was_read),
		cmocka_unit_test(a_node_with_another_file_is_refused_when_ours_was_read),
		cmocka_unit_test(who_is_refused_has_no_part_any_more),
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
		cmocka_unit_test(a_new_name_is_written_once_and_again_if_that_failed),
		cmocka_unit_test(an_absent_member_is_known_by_the_name_on_disk),
		cmocka_unit_test(a_revoked_node_is_gone_and_the_others_are_told),
		cmocka_unit_test(a_node_is_revoked_while_keys_are_drawn),
		cmocka_unit_test(two_revocations_at_once_have_two_epochs),
		cmocka_unit_test(a_revoked_key_does_not_come_back_by_a_join_behind_the_revocation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
