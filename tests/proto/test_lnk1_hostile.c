// The handshake under an enemy who owns the wire: bits, prefixes, points, replays. test_lnk1_claims.c has who runs a program of its own.
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

static const struct shape shapes[] = {
	{LNK1_MEMBER, LNK1_CONTROL},
	{LNK1_MEMBER, LNK1_DATA},
	{LNK1_MEMBER, LNK1_BLOCKS},
	{LNK1_JOIN, LNK1_CONTROL},
};
static const struct shape both_modes[] = {{LNK1_MEMBER, LNK1_DATA}, {LNK1_JOIN, LNK1_CONTROL}};

static enum lnk1_step feed_server(struct lnk1_server s, const uint8_t *msg, size_t len)
{
	return lnk1_feed_server(&s, msg, len);
}

static enum lnk1_step feed_client(struct lnk1_client c, const uint8_t *msg, size_t len)
{
	return lnk1_feed_client(&c, msg, len);
}

static int flip_server(const struct lnk1_server *s, uint8_t *msg, size_t len)
{
	int n_refused = 0;
	for (size_t bit = 0; bit < 8 * len; bit++) {
		msg[bit / 8] ^= (uint8_t)(1 << (bit % 8));
		n_refused += feed_server(*s, msg, len) == LNK1_FAILED;
		msg[bit / 8] ^= (uint8_t)(1 << (bit % 8));
	}
	return n_refused;
}

static int flip_client(const struct lnk1_client *c, uint8_t *msg, size_t len)
{
	int n_refused = 0;
	for (size_t bit = 0; bit < 8 * len; bit++) {
		msg[bit / 8] ^= (uint8_t)(1 << (bit % 8));
		n_refused += feed_client(*c, msg, len) == LNK1_FAILED;
		msg[bit / 8] ^= (uint8_t)(1 << (bit % 8));
	}
	return n_refused;
}

static void every_flipped_bit_closes(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
		struct lnk1_fixture f;
		struct lnk1_talk t;
		int n_refused = 0;
		lnk1_fixture_init(&f, shapes[i].mode, shapes[i].kind);
		lnk1_talk_begin(&t, &f, 0);
		n_refused += flip_server(&t.server, t.m1, LNK1_M1_LEN);
		struct lnk1_client before_m2 = t.client;
		lnk1_talk_to_m2(&t, &f, 0);
		n_refused += flip_client(&before_m2, t.m2, LNK1_M2_LEN);
		struct lnk1_server before_m3 = t.server;
		lnk1_talk_to_m3(&t, &f, 0);
		n_refused += flip_server(&before_m3, t.m3, LNK1_M3_LEN);
		struct lnk1_client before_m4 = t.client;
		lnk1_talk_to_m4(&t, &f, 0);
		n_refused += flip_client(&before_m4, t.m4, LNK1_M4_LEN);
		assert_int_equal(n_refused, 2944);
		// The unflipped messages still pass, so the refusals were for the bits.
		assert_int_equal(feed_server(before_m3, t.m3, LNK1_M3_LEN), LNK1_JUDGE);
		assert_int_equal(feed_client(before_m4, t.m4, LNK1_M4_LEN), LNK1_DONE);
	}
}

// Every other mode and kind byte in a captured M1, all 65,535 pairs, for a coordinator and for a node.
static void every_other_kind_and_mode_in_an_m1_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
		struct lnk1_fixture f;
		struct lnk1_talk t;
		lnk1_fixture_init(&f, shapes[i].mode, shapes[i].kind);
		lnk1_talk_begin(&t, &f, 0);
		for (unsigned mode = 0; mode < 256; mode++) {
			for (unsigned kind = 0; kind < 256; kind++) {
				if (mode == (unsigned)shapes[i].mode && kind == (unsigned)shapes[i].kind)
					continue;
				t.m1[6] = (uint8_t)mode;
				t.m1[7] = (uint8_t)kind;
				assert_int_equal(feed_server(t.server, t.m1, LNK1_M1_LEN), LNK1_FAILED);
			}
		}
		assert_int_equal(f.n_token_asked + f.n_member_asked, 0);
	}
}

// make_m1_with writes an M1 that opens: what an enemy who knows S (or runs another program) may send.
static void make_m1_with(
	const struct lnk1_fixture *f, const uint8_t prefix[LNK1_PREFIX_LEN], const uint8_t hello[16], uint8_t m1[LNK1_M1_LEN])
{
	struct lnk1_symmetric sym;
	struct lnk1_client_random rnd = lnk1_client_randomness(0);
	memcpy(m1, prefix, LNK1_PREFIX_LEN);
	crypto_scalarmult_base(m1 + LNK1_PREFIX_LEN, rnd.e_sk);
	lnk1_symmetric_start(&sym, f->server_keys.pk);
	lnk1_mix_hash(&sym, m1, LNK1_PREFIX_LEN + LNK1_KEY_LEN);
	assert_true(lnk1_mix_dh_client(&sym, (struct lnk1_exchange){m1 + LNK1_PREFIX_LEN, rnd.e_sk, f->server_keys.pk}));
	lnk1_seal_field(&sym, "m1", hello, 16, m1 + LNK1_PREFIX_LEN + LNK1_KEY_LEN);
}

static void only_our_prefix_is_answered(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	for (size_t at = 0; at < LNK1_PREFIX_LEN; at++) {
		for (unsigned value = 0; value < 256; value++) {
			uint8_t m1[LNK1_M1_LEN], prefix[] = "LNK1\x01\x01\x00\x01";
			prefix[at] = (uint8_t)value;
			make_m1_with(&f, prefix, f.cfg.cluster_id, m1);
			bool ours = memcmp(prefix, "LNK1\x01\x01\x00", 7) == 0 && prefix[7] < LNK1_N_KINDS;
			assert_int_equal(lnk1_answer_to(&f, m1), ours ? LNK1_OK : LNK1_NOT_LNK1);
		}
	}
}

static void a_join_is_a_control_link(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	for (uint8_t kind = 0; kind < LNK1_N_KINDS; kind++) {
		uint8_t m1[LNK1_M1_LEN], hello[16] = {0};
		const uint8_t prefix[] = {'L', 'N', 'K', '1', 1, 1, LNK1_JOIN, kind};
		memcpy(hello, f.token_id, LNK1_TOKEN_ID_LEN);
		make_m1_with(&f, prefix, hello, m1);
		assert_int_equal(lnk1_answer_to(&f, m1), kind == LNK1_CONTROL ? LNK1_OK : LNK1_NOT_LNK1);
	}
}

static void a_node_takes_neither_joins_nor_control_links(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
		struct lnk1_fixture f;
		struct lnk1_talk t;
		lnk1_fixture_init(&f, shapes[i].mode, shapes[i].kind);
		f.cfg.is_node = true;
		lnk1_talk_begin(&t, &f, 0);
		bool takes = shapes[i].mode == LNK1_MEMBER && shapes[i].kind != LNK1_CONTROL;
		assert_int_equal(lnk1_answer_to(&f, t.m1), takes ? LNK1_OK : LNK1_NOT_LNK1);
		assert_int_equal(f.n_token_asked, 0);
	}
}

static void no_invite_outstanding_no_answer(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	lnk1_talk_begin(&t, &f, 0);
	f.has_token = false;
	assert_int_equal(lnk1_answer_to(&f, t.m1), LNK1_BAD_TOKEN);
	f.cfg.lookup.token = NULL;
	assert_int_equal(lnk1_answer_to(&f, t.m1), LNK1_BAD_TOKEN);
}

static void a_token_id_of_zeros_is_never_looked_up(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	uint8_t m1[LNK1_M1_LEN], hello[16] = {0};
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	memset(f.token_id, 0, sizeof f.token_id);
	make_m1_with(&f, (const uint8_t *)"LNK1\x01\x01\x01", hello, m1);
	assert_int_equal(lnk1_answer_to(&f, m1), LNK1_BAD_TOKEN);
	assert_int_equal(f.n_token_asked, 0);
}

static void a_token_id_with_a_tail_is_refused(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	for (size_t i = LNK1_TOKEN_ID_LEN; i < 16; i++) {
		uint8_t m1[LNK1_M1_LEN], hello[16] = {0};
		memcpy(hello, f.token_id, LNK1_TOKEN_ID_LEN);
		hello[i] = 1;
		make_m1_with(&f, (const uint8_t *)"LNK1\x01\x01\x01", hello, m1);
		assert_int_equal(lnk1_answer_to(&f, m1), LNK1_BAD_FIELD);
	}
	assert_int_equal(f.n_token_asked, 0);
}

// ---- Points ----

// The points of small order, and their other spelling below 2^255; all but the first two are on no list one would guess.
static const uint8_t low_order[7][LNK1_KEY_LEN] = {
	{0},
	{1},
	{0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09, 0x8d, 0xeb,
		0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00},
	{0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b, 0x04, 0x44, 0x5c, 0xc4,
		0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57},
	{0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
	{0xed, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
	{0xee, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
};

static void a_low_order_e_c_gets_no_answer(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	lnk1_talk_begin(&t, &f, 0);
	for (size_t i = 0; i < ARRAY_LEN(low_order); i++) {
		memcpy(t.m1 + LNK1_PREFIX_LEN, low_order[i], LNK1_KEY_LEN);
		assert_int_equal(lnk1_answer_to(&f, t.m1), LNK1_BAD_POINT);
		t.m1[LNK1_PREFIX_LEN + 31] |= 0x80;
		assert_int_equal(lnk1_answer_to(&f, t.m1), LNK1_BAD_POINT);
	}
}

static void a_low_order_e_s_ends_the_client(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	lnk1_talk_to_m2(&t, &f, 0);
	for (size_t i = 0; i < ARRAY_LEN(low_order); i++) {
		struct lnk1_client c = t.client;
		memcpy(t.m2, low_order[i], LNK1_KEY_LEN);
		assert_int_equal(lnk1_feed_client(&c, t.m2, LNK1_M2_LEN), LNK1_FAILED);
		lnk1_assert_client_failed(&c, LNK1_BAD_POINT);
	}
}

static void a_low_order_pin_is_never_dialled(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL); // an invite's S comes from outside
	for (size_t i = 0; i < ARRAY_LEN(low_order); i++) {
		struct lnk1_client c;
		struct lnk1_client_random rnd = lnk1_client_randomness(0);
		memcpy(f.client.server_pk, low_order[i], LNK1_KEY_LEN);
		assert_int_equal(lnk1_client_init(&c, &f.client, &rnd), LNK1_FAILED);
		lnk1_assert_client_failed(&c, LNK1_BAD_POINT);
	}
}

// make_m3_as lets a client whose M1 was answered claim any key: node_pk by its public half only.
static void make_m3_as(struct lnk1_talk *t, struct lnk1_fixture *f, const uint8_t node_pk[LNK1_KEY_LEN])
{
	struct lnk1_keypair liar = f->node_keys;
	memcpy(liar.pk, node_pk, LNK1_KEY_LEN);
	f->client.self = &liar;
	lnk1_talk_to_m3(t, f, 0);
	f->client.self = &f->node_keys;
	t->client.self = &f->node_keys;
}

static void a_low_order_node_key_does_not_pass(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(low_order); i++) {
		struct lnk1_fixture f;
		struct lnk1_talk t;
		lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
		memcpy(f.member_pk, low_order[i], LNK1_KEY_LEN); // even were it a member
		make_m3_as(&t, &f, low_order[i]);
		assert_int_equal(lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_FAILED);
		lnk1_assert_server_failed(&t.server, LNK1_BAD_PEER);
	}
}

// With its top bit set a key is another spelling of the same point: the exchange itself would succeed.
static void the_top_bit_of_a_key_is_refused(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	uint8_t high[LNK1_KEY_LEN];
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);

	lnk1_talk_to_m2(&t, &f, 0);
	t.m1[LNK1_PREFIX_LEN + 31] |= 0x80;
	assert_int_equal(lnk1_answer_to(&f, t.m1), LNK1_BAD_POINT);
	t.m2[31] |= 0x80;
	assert_int_equal(lnk1_feed_client(&t.client, t.m2, LNK1_M2_LEN), LNK1_FAILED);
	lnk1_assert_client_failed(&t.client, LNK1_BAD_POINT);

	memcpy(high, f.node_keys.pk, LNK1_KEY_LEN);
	high[31] |= 0x80;
	memcpy(f.member_pk, high, LNK1_KEY_LEN);
	make_m3_as(&t, &f, high);
	assert_int_equal(lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_FAILED);
	lnk1_assert_server_failed(&t.server, LNK1_BAD_PEER);

	struct lnk1_client_random rnd = lnk1_client_randomness(0);
	f.client.server_pk[31] |= 0x80;
	assert_int_equal(lnk1_client_init(&t.client, &f.client, &rnd), LNK1_FAILED);
	lnk1_assert_client_failed(&t.client, LNK1_BAD_POINT);
}

// ---- Replays and mirrors ----

static void a_replayed_m1_gets_an_answer_that_leads_nowhere(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(both_modes); i++) {
		struct lnk1_fixture f;
		struct lnk1_talk first, again;
		lnk1_fixture_init(&f, both_modes[i].mode, both_modes[i].kind);
		lnk1_talk_to_m4(&first, &f, 0);
		lnk1_talk_begin(&again, &f, 1); // a server with fresh randomness
		assert_int_equal(lnk1_feed_server(&again.server, first.m1, LNK1_M1_LEN), LNK1_SEND);
		size_t len;
		const uint8_t *m2 = lnk1_server_out(&again.server, &len);
		assert_memory_not_equal(m2, first.m2, LNK1_M2_LEN);
		assert_int_equal(lnk1_feed_server(&again.server, first.m3, LNK1_M3_LEN), LNK1_FAILED);
		lnk1_assert_server_failed(&again.server, LNK1_BAD_SEAL);
		assert_false(again.server.blames_invite); // a replay voids no invite
	}
}

static void a_replayed_m2_m3_or_m4_closes(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(both_modes); i++) {
		struct lnk1_fixture f;
		struct lnk1_talk first, again;
		lnk1_fixture_init(&f, both_modes[i].mode, both_modes[i].kind);
		lnk1_talk_to_m4(&first, &f, 0);
		lnk1_talk_begin(&again, &f, 1);
		assert_int_equal(lnk1_feed_client(&again.client, first.m2, LNK1_M2_LEN), LNK1_FAILED);
		lnk1_talk_to_m3(&again, &f, 1);
		assert_int_equal(feed_client(again.client, first.m4, LNK1_M4_LEN), LNK1_FAILED);
		assert_int_equal(lnk1_feed_server(&again.server, first.m3, LNK1_M3_LEN), LNK1_FAILED);
	}
}

static void a_clients_own_m1_sent_back_closes(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	uint8_t mirror[LNK1_M2_LEN] = {0};
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	lnk1_talk_begin(&t, &f, 0);
	memcpy(mirror, t.m1, LNK1_M1_LEN);
	assert_int_equal(feed_client(t.client, mirror, LNK1_M2_LEN), LNK1_FAILED);
	// Its parts where M2 has them: e_c as e_s, the seal as the seal.
	memcpy(mirror, t.m1 + LNK1_PREFIX_LEN, LNK1_M1_LEN - LNK1_PREFIX_LEN);
	assert_int_equal(lnk1_feed_client(&t.client, mirror, LNK1_M2_LEN), LNK1_FAILED);
	lnk1_assert_client_failed(&t.client, LNK1_BAD_SEAL);
}

static void two_clients_cannot_talk_to_each_other(void **state)
{
	(void)state;
	struct lnk1_fixture a, b;
	struct lnk1_talk ta, tb;
	uint8_t as_m2[LNK1_M2_LEN] = {0};
	lnk1_fixture_init(&a, LNK1_MEMBER, LNK1_DATA);
	lnk1_fixture_init(&b, LNK1_MEMBER, LNK1_DATA);
	// Each has the other's key pinned and they share the psk: as two nodes that both dial.
	b.client.self = &b.server_keys;
	memcpy(b.client.server_pk, a.node_keys.pk, LNK1_KEY_LEN);
	lnk1_talk_begin(&ta, &a, 0);
	lnk1_talk_begin(&tb, &b, 1);
	memcpy(as_m2, tb.m1, LNK1_M1_LEN);
	assert_int_equal(lnk1_feed_client(&ta.client, as_m2, LNK1_M2_LEN), LNK1_FAILED);
	memcpy(as_m2, ta.m1, LNK1_M1_LEN);
	assert_int_equal(lnk1_feed_client(&tb.client, as_m2, LNK1_M2_LEN), LNK1_FAILED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_flipped_bit_closes),
		cmocka_unit_test(every_other_kind_and_mode_in_an_m1_is_refused),
		cmocka_unit_test(only_our_prefix_is_answered),
		cmocka_unit_test(a_join_is_a_control_link),
		cmocka_unit_test(a_node_takes_neither_joins_nor_control_links),
		cmocka_unit_test(no_invite_outstanding_no_answer),
		cmocka_unit_test(a_token_id_of_zeros_is_never_looked_up),
		cmocka_unit_test(a_token_id_with_a_tail_is_refused),
		cmocka_unit_test(a_low_order_e_c_gets_no_answer),
		cmocka_unit_test(a_low_order_e_s_ends_the_client),
		cmocka_unit_test(a_low_order_pin_is_never_dialled),
		cmocka_unit_test(a_low_order_node_key_does_not_pass),
		cmocka_unit_test(the_top_bit_of_a_key_is_refused),
		cmocka_unit_test(a_replayed_m1_gets_an_answer_that_leads_nowhere),
		cmocka_unit_test(a_replayed_m2_m3_or_m4_closes),
		cmocka_unit_test(a_clients_own_m1_sent_back_closes),
		cmocka_unit_test(two_clients_cannot_talk_to_each_other),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
