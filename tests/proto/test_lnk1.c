// LNK1 when both ends behave: the specification's vectors, what each end knows afterwards, bytes in any segments.
// What an enemy does is in test_lnk1_hostile.c, records in test_lnk1_record.c.
#include "proto/lnk1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/lnk1_symmetric.h"
#include "tests/support/lnk1_fixture.h"

static void assert_hex(const uint8_t *bytes, size_t len, const char *hex)
{
	char text[129];
	assert_true(2 * len < sizeof text);
	sodium_bin2hex(text, sizeof text, bytes, len);
	assert_string_equal(text, hex);
}

struct vector {
	enum lnk1_mode mode;
	enum lnk1_kind kind;
	const char *messages, *c2s, *s2c; // hex
};

static const struct vector vectors[] = {
	{LNK1_MEMBER, LNK1_DATA, "b9d85bb5cb5567c807fe4536000e793bc1fe6af6a0291b539b7e69a3fff3f178",
		"a4370be55961049901511f1e2f7f0c14c8f71a5efaaea77a2ade80e9c71cbc8d",
		"171aea841db1da15144e5ec4bcc3e9268de12b5ad60557790ca4b3863c04af17"},
	{LNK1_JOIN, LNK1_CONTROL, "14a39552bc07a44c225b8b130d2c709cb0b37651b0d8b9c74a3be61bc0509f3d",
		"1c8d6a382d0972bba95e04b44143ca9ecba0ba17ec54c84f3189d9404109e2b1",
		"cd5a76ef3ffb3f8c2cd1f86763b801a2c459265adf510b83b430289f347faae2"},
};

static void check_vector(const struct vector *v)
{
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, v->mode, v->kind);
	lnk1_talk_to_m4(&t, &f, 0);
	assert_int_equal(lnk1_feed_client(&t.client, t.m4, sizeof t.m4), LNK1_DONE);

	crypto_generichash_state st;
	uint8_t hash[32];
	crypto_generichash_init(&st, NULL, 0, sizeof hash);
	crypto_generichash_update(&st, t.m1, sizeof t.m1);
	crypto_generichash_update(&st, t.m2, sizeof t.m2);
	crypto_generichash_update(&st, t.m3, sizeof t.m3);
	crypto_generichash_update(&st, t.m4, sizeof t.m4);
	crypto_generichash_final(&st, hash, sizeof hash);
	assert_hex(hash, sizeof hash, v->messages);

	const struct lnk1_symmetric *ends[] = {&t.client.sym, &t.server.sym};
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		uint8_t key[LNK1_KEY_LEN];
		lnk1_derive(ends[i], "c2s", key);
		assert_hex(key, sizeof key, v->c2s);
		lnk1_derive(ends[i], "s2c", key);
		assert_hex(key, sizeof key, v->s2c);
	}
}

static void the_vectors_of_the_specification_come_out(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(vectors); i++)
		check_vector(&vectors[i]);
}

// The sending end is set up with init_pull as well; this holds only while both make the same 52 bytes.
static void init_pull_makes_the_state_of_init_push(void **state)
{
	(void)state;
	uint8_t key[crypto_secretstream_xchacha20poly1305_KEYBYTES];
	for (unsigned i = 0; i < 64; i++) {
		crypto_secretstream_xchacha20poly1305_state push, pull;
		uint8_t header[LNK1_HEADER_LEN];
		assert_int_equal(sizeof push, 52);
		lnk1_fill(key, sizeof key, i);
		memset(&push, 0xaa, sizeof push);
		memset(&pull, 0x55, sizeof pull);
		assert_int_equal(crypto_secretstream_xchacha20poly1305_init_push(&push, header, key), 0);
		assert_int_equal(crypto_secretstream_xchacha20poly1305_init_pull(&pull, header, key), 0);
		assert_memory_equal(&push, &pull, 52);
	}
}

static void both_ends_know_the_same_link(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
		struct lnk1_fixture f;
		struct lnk1_talk t;
		lnk1_fixture_init(&f, vectors[i].mode, vectors[i].kind);
		lnk1_talk_whole(&t, &f, 0);
		const struct lnk1_link *c = &t.client_link, *s = &t.server_link;
		assert_memory_equal(s->peer_pk, f.node_keys.pk, LNK1_KEY_LEN);
		assert_memory_equal(c->peer_pk, f.server_keys.pk, LNK1_KEY_LEN);
		assert_memory_equal(c->session_id, s->session_id, LNK1_SESSION_ID_LEN);
		assert_memory_equal(c->boot_id, s->boot_id, LNK1_BOOT_ID_LEN);
		assert_memory_equal(c->token_id, s->token_id, LNK1_TOKEN_ID_LEN);
		assert_int_equal(sodium_is_zero(s->token_id, LNK1_TOKEN_ID_LEN), vectors[i].mode == LNK1_MEMBER);
		const struct lnk1_link *ends[] = {c, s};
		for (size_t k = 0; k < 2; k++) {
			assert_int_equal(ends[k]->mode, vectors[i].mode);
			assert_int_equal(ends[k]->kind, vectors[i].kind);
			assert_int_equal(ends[k]->version, 2);
			assert_int_equal(ends[k]->record_max, 0x40000);
			assert_true(ends[k]->member_epoch == UINT64_C(0x0102030405060708));
			assert_true(ends[k]->client_member_epoch == UINT64_C(0x0102030405060707));
		}
		assert_memory_equal(&c->tx.secret, &s->rx.secret, sizeof c->tx.secret);
		assert_memory_equal(&c->rx.secret, &s->tx.secret, sizeof c->rx.secret);
	}
}

static void every_kind_works_in_member_mode(void **state)
{
	(void)state;
	for (int kind = 0; kind < LNK1_N_KINDS; kind++) {
		struct lnk1_fixture f;
		struct lnk1_talk t;
		lnk1_fixture_init(&f, LNK1_MEMBER, (enum lnk1_kind)kind);
		lnk1_talk_whole(&t, &f, 1);
		assert_int_equal(t.server_link.kind, kind);
	}
}

// Node to node: S is the dialled node's key, the psk is the pair's. No line of the machine knows the difference.
static void two_nodes_link_with_their_pairwise_psk(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	f.cfg.is_node = true;
	f.cfg.lookup.token = NULL;
	lnk1_fill(f.client.psk, LNK1_KEY_LEN, 77);
	lnk1_fill(f.member_psk, LNK1_KEY_LEN, 77);
	lnk1_talk_whole(&t, &f, 0);
	assert_int_equal(t.server_link.kind, LNK1_DATA);
	assert_int_equal(f.n_member_asked, 1);
}

static enum lnk1_step dribble_server(struct lnk1_server *s, const uint8_t *msg, size_t len)
{
	enum lnk1_step step = LNK1_MORE;
	for (size_t i = 0; i < len; i++) {
		assert_int_equal(step, LNK1_MORE);
		step = lnk1_feed_server(s, msg + i, 1);
	}
	return step;
}

static enum lnk1_step dribble_client(struct lnk1_client *c, const uint8_t *msg, size_t len)
{
	enum lnk1_step step = LNK1_MORE;
	for (size_t i = 0; i < len; i++) {
		assert_int_equal(step, LNK1_MORE);
		step = lnk1_feed_client(c, msg + i, 1);
	}
	return step;
}

static void one_byte_segments_make_the_same_link(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk whole, t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	lnk1_talk_to_m4(&whole, &f, 0);
	lnk1_talk_begin(&t, &f, 0);
	assert_int_equal(dribble_server(&t.server, whole.m1, LNK1_M1_LEN), LNK1_SEND);
	assert_int_equal(dribble_client(&t.client, whole.m2, LNK1_M2_LEN), LNK1_SEND);
	assert_int_equal(dribble_server(&t.server, whole.m3, LNK1_M3_LEN), LNK1_JUDGE);
	assert_int_equal(dribble_client(&t.client, whole.m4, LNK1_M4_LEN), LNK1_DONE);
}

static void room_never_asks_beyond_the_message(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	size_t len;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	lnk1_talk_begin(&t, &f, 0);
	lnk1_server_room(&t.server, &len);
	assert_int_equal(len, LNK1_M1_LEN);
	assert_int_equal(lnk1_feed_server(&t.server, t.m1, 70), LNK1_MORE);
	lnk1_server_room(&t.server, &len);
	assert_int_equal(len, 2);
	lnk1_talk_to_m3(&t, &f, 0);
	lnk1_server_room(&t.server, &len);
	assert_int_equal(len, LNK1_M3_LEN);
	lnk1_client_room(&t.client, &len);
	assert_int_equal(len, LNK1_M4_LEN);
}

static void randomness_is_used_once(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_client c;
	struct lnk1_server s;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	struct lnk1_client_random c_rnd = lnk1_client_randomness(0);
	struct lnk1_server_random s_rnd = lnk1_server_randomness(0);
	assert_int_equal(lnk1_client_init(&c, &f.client, &c_rnd), LNK1_SEND);
	lnk1_server_init(&s, &f.cfg, &s_rnd);
	assert_true(sodium_is_zero((const uint8_t *)&c_rnd, sizeof c_rnd));
	assert_true(sodium_is_zero((const uint8_t *)&s_rnd, sizeof s_rnd));
}

static bool contains(const void *hay, size_t hay_len, const void *needle, size_t len)
{
	return memmem(hay, hay_len, needle, len) != NULL;
}

static void secrets_are_gone_as_soon_as_they_served(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	struct lnk1_client_random c_rnd = lnk1_client_randomness(0);
	struct lnk1_server_random s_rnd = lnk1_server_randomness(0);
	lnk1_talk_to_m2(&t, &f, 0);
	assert_true(contains(&t.client, sizeof t.client, c_rnd.e_sk, LNK1_KEY_LEN));
	assert_true(contains(&t.server, sizeof t.server, s_rnd.e_sk, LNK1_KEY_LEN));
	lnk1_talk_to_m4(&t, &f, 0);
	assert_false(contains(&t.client, sizeof t.client, c_rnd.e_sk, LNK1_KEY_LEN));
	assert_false(contains(&t.client, sizeof t.client, f.client.psk, LNK1_KEY_LEN));
	assert_false(contains(&t.server, sizeof t.server, s_rnd.e_sk, LNK1_KEY_LEN));
	assert_false(contains(&t.server, sizeof t.server, f.member_psk, LNK1_KEY_LEN));
	assert_int_equal(lnk1_feed_client(&t.client, t.m4, sizeof t.m4), LNK1_DONE);
	lnk1_client_finish(&t.client, &t.client_link);
	lnk1_server_finish(&t.server, &t.server_link);
	assert_true(sodium_is_zero((const uint8_t *)&t.client, sizeof t.client));
	assert_true(sodium_is_zero((const uint8_t *)&t.server, sizeof t.server));
}

static void node_id_is_the_hash_of_the_public_key(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	uint8_t id[LNK1_KEY_LEN], hash[32];
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	lnk1_node_id(f.node_keys.pk, id);
	crypto_generichash(hash, sizeof hash, f.node_keys.pk, LNK1_KEY_LEN, NULL, 0);
	assert_memory_equal(id, hash, sizeof hash);
}

static void every_failure_has_words(void **state)
{
	(void)state;
	for (int i = LNK1_OK; i <= LNK1_REFUSED; i++)
		assert_string_not_equal(lnk1_failure_words((enum lnk1_failure)i), "unknown failure");
	assert_string_equal(lnk1_failure_words((enum lnk1_failure)200), "unknown failure");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_vectors_of_the_specification_come_out),
		cmocka_unit_test(init_pull_makes_the_state_of_init_push),
		cmocka_unit_test(both_ends_know_the_same_link),
		cmocka_unit_test(every_kind_works_in_member_mode),
		cmocka_unit_test(two_nodes_link_with_their_pairwise_psk),
		cmocka_unit_test(one_byte_segments_make_the_same_link),
		cmocka_unit_test(room_never_asks_beyond_the_message),
		cmocka_unit_test(randomness_is_used_once),
		cmocka_unit_test(secrets_are_gone_as_soon_as_they_served),
		cmocka_unit_test(node_id_is_the_hash_of_the_public_key),
		cmocka_unit_test(every_failure_has_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
