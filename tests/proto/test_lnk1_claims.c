// The handshake with a peer that holds one wrong secret, or claims what it should not. test_lnk1_hostile.c has who owns the wire.
#include "proto/lnk1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/lnk1_symmetric.h"
#include "tests/support/lnk1_fixture.h"

struct shape {
	enum lnk1_mode mode;
	enum lnk1_kind kind;
};

static const struct shape both_modes[] = {{LNK1_MEMBER, LNK1_DATA}, {LNK1_JOIN, LNK1_CONTROL}};

// ---- One wrong secret ----

static void a_wrong_pin_gets_no_answer(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	memcpy(f.client.server_pk, f.node_keys.pk, LNK1_KEY_LEN);
	lnk1_talk_begin(&t, &f, 0);
	assert_int_equal(lnk1_answer_to(&f, t.m1), LNK1_BAD_SEAL);
}

static void a_server_without_the_pinned_secret_cannot_answer(void **state)
{
	(void)state;
	struct lnk1_fixture f, impostor;
	struct lnk1_talk t;
	uint8_t m2[LNK1_M2_LEN];
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	lnk1_fixture_init(&impostor, LNK1_MEMBER, LNK1_DATA);
	lnk1_talk_begin(&t, &f, 0);
	// It knows all but the secret half of S, and makes the best M2 it can: with another DH(e_c, S).
	struct lnk1_symmetric sym;
	struct lnk1_server_random rnd = lnk1_server_randomness(0);
	const uint8_t *e_c = t.m1 + LNK1_PREFIX_LEN;
	lnk1_symmetric_start(&sym, f.server_keys.pk);
	lnk1_mix_hash(&sym, t.m1, LNK1_PREFIX_LEN + LNK1_KEY_LEN);
	assert_true(lnk1_mix_dh_server(&sym, (struct lnk1_exchange){f.server_keys.pk, impostor.node_keys.sk, e_c}));
	lnk1_mix_hash(&sym, t.m1 + LNK1_PREFIX_LEN + LNK1_KEY_LEN, 32);
	crypto_scalarmult_base(m2, rnd.e_sk);
	lnk1_mix_hash(&sym, m2, LNK1_KEY_LEN);
	assert_true(lnk1_mix_dh_server(&sym, (struct lnk1_exchange){m2, rnd.e_sk, e_c}));
	uint8_t plain[32] = {0};
	lnk1_seal_field(&sym, "m2", plain, sizeof plain, m2 + LNK1_KEY_LEN);
	assert_int_equal(lnk1_feed_client(&t.client, m2, LNK1_M2_LEN), LNK1_FAILED);
	lnk1_assert_client_failed(&t.client, LNK1_BAD_SEAL);
}

static void another_cluster_gets_no_answer(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	f.client.cluster_id[15] ^= 1;
	lnk1_talk_begin(&t, &f, 0);
	assert_int_equal(lnk1_answer_to(&f, t.m1), LNK1_BAD_CLUSTER);
}

static void another_token_id_gets_no_answer(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	f.client.token_id[0] ^= 1;
	lnk1_talk_begin(&t, &f, 0);
	assert_int_equal(lnk1_answer_to(&f, t.m1), LNK1_BAD_TOKEN);
	assert_int_equal(f.n_token_asked, 1);
}

// assert_m3_fails: M3 of the fixture's client, as it now is, closes with the one failure that unknown, revoked and wrong share.
static void assert_m3_fails(struct lnk1_fixture *f, bool blames_invite)
{
	struct lnk1_talk t;
	lnk1_talk_to_m3(&t, f, 0);
	assert_int_equal(lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_FAILED);
	assert_int_equal(t.server.blames_invite, blames_invite);
	if (blames_invite)
		assert_memory_equal(t.server.token_id, f->token_id, LNK1_TOKEN_ID_LEN);
	lnk1_assert_server_failed(&t.server, LNK1_BAD_PEER);
}

static void unknown_revoked_wrong_psk_and_wrong_secret_look_alike(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	f.client.psk[31] ^= 1;
	assert_m3_fails(&f, false);
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	f.has_member = false;
	assert_m3_fails(&f, false);
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	f.member_pk[3] ^= 1;
	assert_m3_fails(&f, false);
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	f.node_keys.sk[3] ^= 1; // claims the member's public key without its secret
	assert_m3_fails(&f, false);
}

// A member who guessed the decoy would pass: it must be fresh, and it is never the zero psk.
static void an_unknown_key_cannot_use_a_zero_psk(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	f.has_member = false;
	memset(f.client.psk, 0, LNK1_KEY_LEN);
	assert_m3_fails(&f, false);
}

static void a_wrong_token_secret_counts_against_the_invite(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	f.client.token_secret[0] ^= 1;
	assert_m3_fails(&f, true);
	assert_int_equal(f.n_member_asked, 0);
}

static void a_join_with_anothers_key_counts_against_the_invite(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	f.node_keys.sk[3] ^= 1;
	assert_m3_fails(&f, true);
}

static void a_torn_m3_does_not_count_against_the_invite(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	lnk1_talk_to_m3(&t, &f, 0);
	t.m3[5] ^= 1;
	struct lnk1_server s = t.server;
	assert_int_equal(lnk1_feed_server(&s, t.m3, LNK1_M3_LEN), LNK1_FAILED);
	assert_false(s.blames_invite);
	lnk1_assert_server_failed(&s, LNK1_BAD_SEAL);
	t.m3[5] ^= 1;
	t.m3[60] ^= 1; // m3p
	assert_int_equal(lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_FAILED);
	assert_true(t.server.blames_invite);
}

// The psk_id is zero for a member and the token's for a join: a program of another mind is closed.
static void another_psk_id_closes(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(both_modes); i++) {
		for (size_t at = 0; at < LNK1_TOKEN_ID_LEN; at++) {
			struct lnk1_fixture f;
			struct lnk1_talk t;
			lnk1_fixture_init(&f, both_modes[i].mode, both_modes[i].kind);
			lnk1_talk_to_m2(&t, &f, 0);
			t.client.psk_id[at] ^= 0x10;
			assert_int_equal(lnk1_feed_client(&t.client, t.m2, LNK1_M2_LEN), LNK1_SEND);
			size_t len;
			const uint8_t *m3 = lnk1_client_out(&t.client, &len);
			assert_int_equal(lnk1_feed_server(&t.server, m3, len), LNK1_FAILED);
			lnk1_assert_server_failed(&t.server, LNK1_BAD_PEER);
		}
	}
}

static void a_peer_with_the_servers_own_key_is_closed(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	f.client.self = &f.server_keys;
	memcpy(f.member_pk, f.server_keys.pk, LNK1_KEY_LEN);
	lnk1_talk_to_m3(&t, &f, 0);
	assert_int_equal(lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_FAILED);
	lnk1_assert_server_failed(&t.server, LNK1_BAD_FIELD);
}

// ---- What an authenticated peer may claim ----

struct versions {
	uint16_t client_min, client_max, server_min, server_max;
	int chosen; // -1: status 1
};

static const struct versions version_cases[] = {
	{1, 3, 1, 2, 2},
	{1, 1, 1, 2, 1},
	{2, 9, 1, 2, 2},
	{3, 9, 1, 2, -1},
	{1, 1, 2, 3, -1},
	{0, 0, 0, 0, 0},
	{0, 65535, 65535, 65535, 65535},
	{0, 65534, 65535, 65535, -1},
	{2, 2, 2, 2, 2},
};

static void the_version_is_the_lower_of_the_two_maxima(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(version_cases); i++) {
		const struct versions *v = &version_cases[i];
		struct lnk1_fixture f;
		struct lnk1_talk t;
		lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
		f.client.protocol_min = v->client_min;
		f.client.protocol_max = v->client_max;
		f.cfg.protocol_min = v->server_min;
		f.cfg.protocol_max = v->server_max;
		if (v->chosen >= 0) {
			lnk1_talk_whole(&t, &f, 0);
			assert_int_equal(t.client_link.version, v->chosen);
			assert_int_equal(t.server_link.version, v->chosen);
			continue;
		}
		lnk1_talk_to_m3(&t, &f, 0);
		assert_int_equal(
			lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_REJECT); // the host is not asked: nothing is bound
		assert_int_equal(t.server.failure, LNK1_NO_VERSION);
		size_t len;
		const uint8_t *m4 = lnk1_server_out(&t.server, &len);
		assert_int_equal(lnk1_feed_client(&t.client, m4, len), LNK1_FAILED);
		lnk1_assert_client_failed(&t.client, LNK1_NO_VERSION);
	}
}

static void another_canonical_arithmetic_is_told_so(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_CONTROL);
	f.client.canon_version = 2;
	lnk1_talk_to_m3(&t, &f, 0);
	assert_int_equal(lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_REJECT);
	assert_int_equal(t.server.failure, LNK1_OTHER_CANON);
	assert_true(sodium_is_zero((const uint8_t *)&t.server.sym, sizeof t.server.sym));
	size_t len;
	const uint8_t *m4 = lnk1_server_out(&t.server, &len);
	assert_int_equal(lnk1_feed_client(&t.client, m4, len), LNK1_FAILED);
	lnk1_assert_client_failed(&t.client, LNK1_OTHER_CANON);
}

static void a_minimum_above_the_maximum_closes(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	f.client.protocol_min = 2;
	f.client.protocol_max = 1;
	lnk1_talk_to_m3(&t, &f, 0);
	assert_int_equal(lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_FAILED);
	lnk1_assert_server_failed(&t.server, LNK1_BAD_FIELD);
	assert_false(t.server.blames_invite); // m3p opened
}

// m4_with answers M3 with any 64 bytes: a server with the right keys and another program.
static enum lnk1_failure client_on_m4(struct lnk1_fixture *f, const uint8_t plain[64])
{
	struct lnk1_talk t;
	uint8_t m4[LNK1_M4_LEN];
	lnk1_talk_to_m3(&t, f, 0);
	assert_int_equal(lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_JUDGE);
	lnk1_seal_field(&t.server.sym, "m4", plain, 64, m4);
	enum lnk1_step step = lnk1_feed_client(&t.client, m4, sizeof m4);
	enum lnk1_failure why = t.client.failure;
	assert_int_equal(step, why == LNK1_OK ? LNK1_DONE : LNK1_FAILED);
	if (why != LNK1_OK)
		lnk1_assert_client_failed(&t.client, why);
	return why;
}

// Offsets in M4's plaintext: status 0, version 2, record_max 4, member_epoch 8, header 16, zero 40.
static void good_m4(uint8_t plain[64])
{
	memset(plain, 0, 64);
	plain[2] = 2;
	plain[6] = 4; // 0x40000
	memcpy(plain + 8, "\x08\x07\x06\x05\x04\x03\x02\x01", 8);
}

static void the_client_checks_each_field_of_m4(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	uint8_t plain[64];
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_CONTROL);
	good_m4(plain);
	assert_int_equal(client_on_m4(&f, plain), LNK1_OK);
	for (unsigned status = 1; status < 65536; status = status < 4 ? status + 1 : status * 2) {
		plain[0] = (uint8_t)status;
		plain[1] = (uint8_t)(status >> 8);
		assert_int_equal(client_on_m4(&f, plain),
			status == 1           ? LNK1_NO_VERSION
				: status == 2 ? LNK1_OTHER_CANON
					      : LNK1_BAD_FIELD);
	}
	for (unsigned version = 0; version < 6; version++) {
		good_m4(plain);
		plain[2] = (uint8_t)version;
		assert_int_equal(client_on_m4(&f, plain), version >= 1 && version <= 3 ? LNK1_OK : LNK1_BAD_FIELD);
	}
	good_m4(plain);
	plain[4] = 1; // one byte over its own limit
	assert_int_equal(client_on_m4(&f, plain), LNK1_BAD_FIELD);
	for (size_t i = 40; i < 64; i++) {
		good_m4(plain);
		plain[i] = 0x80;
		assert_int_equal(client_on_m4(&f, plain), LNK1_BAD_FIELD);
	}
}

static void an_older_member_epoch_closes_a_control_link_only(void **state)
{
	(void)state;
	for (int kind = 0; kind < LNK1_N_KINDS; kind++) {
		struct lnk1_fixture f;
		uint8_t plain[64];
		lnk1_fixture_init(&f, LNK1_MEMBER, (enum lnk1_kind)kind);
		good_m4(plain);
		plain[8] = 7; // as stored
		assert_int_equal(client_on_m4(&f, plain), LNK1_OK);
		plain[8] = 6;
		assert_int_equal(client_on_m4(&f, plain), kind == LNK1_CONTROL ? LNK1_OLD_EPOCH : LNK1_OK);
	}
}

static void a_non_zero_byte_in_m2_closes(void **state)
{
	(void)state;
	for (size_t at = 16; at < 32; at++) {
		struct lnk1_fixture f;
		struct lnk1_talk t;
		uint8_t m2[LNK1_M2_LEN], plain[32] = {0};
		lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
		lnk1_talk_begin(&t, &f, 0);
		struct lnk1_symmetric sym = t.client.sym;
		struct lnk1_server_random rnd = lnk1_server_randomness(0);
		crypto_scalarmult_base(m2, rnd.e_sk);
		lnk1_mix_hash(&sym, m2, LNK1_KEY_LEN);
		assert_true(lnk1_mix_dh_server(&sym, (struct lnk1_exchange){m2, rnd.e_sk, t.m1 + LNK1_PREFIX_LEN}));
		plain[at] = 1;
		lnk1_seal_field(&sym, "m2", plain, sizeof plain, m2 + LNK1_KEY_LEN);
		assert_int_equal(lnk1_feed_client(&t.client, m2, LNK1_M2_LEN), LNK1_FAILED);
		lnk1_assert_client_failed(&t.client, LNK1_BAD_FIELD);
	}
}

static void a_non_zero_byte_in_m3_closes(void **state)
{
	(void)state;
	for (size_t at = 48; at < 64; at++) {
		struct lnk1_fixture f;
		struct lnk1_talk t;
		uint8_t m3[LNK1_M3_LEN], e_s[LNK1_KEY_LEN], plain[64] = {0}, who[40] = {0};
		lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
		lnk1_talk_to_m2(&t, &f, 0);
		memcpy(e_s, t.m2, LNK1_KEY_LEN);
		struct lnk1_symmetric sym = t.server.sym;
		memcpy(who, f.node_keys.pk, LNK1_KEY_LEN);
		lnk1_seal_field(&sym, "m3s", who, sizeof who, m3);
		assert_true(lnk1_mix_dh_client(&sym, (struct lnk1_exchange){f.node_keys.pk, f.node_keys.sk, e_s}));
		lnk1_mix_key(&sym, f.client.psk, LNK1_KEY_LEN);
		plain[16] = plain[18] = plain[20] = 1; // versions 1 to 1, arithmetic 1
		plain[at] = 1;
		lnk1_seal_field(&sym, "m3p", plain, sizeof plain, m3 + 56);
		assert_int_equal(lnk1_feed_server(&t.server, m3, LNK1_M3_LEN), LNK1_FAILED);
		lnk1_assert_server_failed(&t.server, LNK1_BAD_FIELD);
	}
}

// ---- The host's side ----

static void a_refusal_says_nothing_and_leaves_nothing(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	size_t len;
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	lnk1_talk_to_m3(&t, &f, 0);
	assert_int_equal(lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_JUDGE);
	assert_memory_equal(t.server.node_pk, f.node_keys.pk, LNK1_KEY_LEN);
	assert_memory_equal(t.server.token_id, f.token_id, LNK1_TOKEN_ID_LEN);
	assert_int_equal(lnk1_server_refuse(&t.server), LNK1_FAILED);
	lnk1_server_out(&t.server, &len);
	assert_int_equal(len, 0);
	lnk1_assert_server_failed(&t.server, LNK1_REFUSED);
}

// The binding is written between M3 and M4: nothing may leave before the host has said so.
static void nothing_is_sent_before_the_host_accepts(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	size_t len;
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	lnk1_talk_to_m3(&t, &f, 0);
	assert_int_equal(lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_JUDGE);
	lnk1_server_out(&t.server, &len);
	assert_int_equal(len, 0);
	f.cfg.member_epoch++; // a revocation in between: M4 tells the newest
	assert_int_equal(lnk1_server_accept(&t.server), LNK1_DONE);
	const uint8_t *m4 = lnk1_server_out(&t.server, &len);
	assert_int_equal(lnk1_feed_client(&t.client, m4, len), LNK1_DONE);
	assert_true(t.client.server_epoch == UINT64_C(0x0102030405060709));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wrong_pin_gets_no_answer),
		cmocka_unit_test(a_server_without_the_pinned_secret_cannot_answer),
		cmocka_unit_test(another_cluster_gets_no_answer),
		cmocka_unit_test(another_token_id_gets_no_answer),
		cmocka_unit_test(unknown_revoked_wrong_psk_and_wrong_secret_look_alike),
		cmocka_unit_test(an_unknown_key_cannot_use_a_zero_psk),
		cmocka_unit_test(a_wrong_token_secret_counts_against_the_invite),
		cmocka_unit_test(a_join_with_anothers_key_counts_against_the_invite),
		cmocka_unit_test(a_torn_m3_does_not_count_against_the_invite),
		cmocka_unit_test(another_psk_id_closes),
		cmocka_unit_test(a_peer_with_the_servers_own_key_is_closed),
		cmocka_unit_test(the_version_is_the_lower_of_the_two_maxima),
		cmocka_unit_test(another_canonical_arithmetic_is_told_so),
		cmocka_unit_test(a_minimum_above_the_maximum_closes),
		cmocka_unit_test(the_client_checks_each_field_of_m4),
		cmocka_unit_test(an_older_member_epoch_closes_a_control_link_only),
		cmocka_unit_test(a_non_zero_byte_in_m2_closes),
		cmocka_unit_test(a_non_zero_byte_in_m3_closes),
		cmocka_unit_test(a_refusal_says_nothing_and_leaves_nothing),
		cmocka_unit_test(nothing_is_sent_before_the_host_accepts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
