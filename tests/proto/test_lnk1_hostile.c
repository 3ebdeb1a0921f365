// The handshake under an enemy who owns the wire, holds one wrong secret, or runs another program.
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

// A failed machine holds nothing but why.
static void assert_server_failed(const struct lnk1_server *s, enum lnk1_failure why)
{
	struct lnk1_server left = *s;
	assert_int_equal(left.failure, why);
	left.failure = 0;
	left.stage = 0;
	if (left.blames_invite)
		memset(left.token_id, 0, sizeof left.token_id);
	left.blames_invite = false;
	assert_true(sodium_is_zero((const uint8_t *)&left, sizeof left));
}

static void assert_client_failed(const struct lnk1_client *c, enum lnk1_failure why)
{
	struct lnk1_client left = *c;
	assert_int_equal(left.failure, why);
	left.failure = 0;
	left.stage = 0;
	assert_true(sodium_is_zero((const uint8_t *)&left, sizeof left));
}

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

static enum lnk1_failure answer_to(const struct lnk1_fixture *f, const uint8_t m1[LNK1_M1_LEN])
{
	struct lnk1_server s;
	struct lnk1_server_random rnd = lnk1_server_randomness(0);
	lnk1_server_init(&s, &f->cfg, &rnd);
	enum lnk1_step step = lnk1_feed_server(&s, m1, LNK1_M1_LEN);
	assert_true(step == LNK1_SEND || step == LNK1_FAILED);
	enum lnk1_failure why = s.failure;
	if (step == LNK1_FAILED)
		assert_server_failed(&s, why);
	lnk1_server_deinit(&s);
	return why;
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
			assert_int_equal(answer_to(&f, m1), ours ? LNK1_OK : LNK1_NOT_LNK1);
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
		assert_int_equal(answer_to(&f, m1), kind == LNK1_CONTROL ? LNK1_OK : LNK1_NOT_LNK1);
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
		assert_int_equal(answer_to(&f, t.m1), takes ? LNK1_OK : LNK1_NOT_LNK1);
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
	assert_int_equal(answer_to(&f, t.m1), LNK1_BAD_TOKEN);
	f.cfg.lookup.token = NULL;
	assert_int_equal(answer_to(&f, t.m1), LNK1_BAD_TOKEN);
}

static void a_token_id_of_zeros_is_never_looked_up(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	uint8_t m1[LNK1_M1_LEN], hello[16] = {0};
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	memset(f.token_id, 0, sizeof f.token_id);
	make_m1_with(&f, (const uint8_t *)"LNK1\x01\x01\x01", hello, m1);
	assert_int_equal(answer_to(&f, m1), LNK1_BAD_TOKEN);
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
		assert_int_equal(answer_to(&f, m1), LNK1_BAD_FIELD);
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
		assert_int_equal(answer_to(&f, t.m1), LNK1_BAD_POINT);
		t.m1[LNK1_PREFIX_LEN + 31] |= 0x80;
		assert_int_equal(answer_to(&f, t.m1), LNK1_BAD_POINT);
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
		assert_client_failed(&c, LNK1_BAD_POINT);
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
		assert_client_failed(&c, LNK1_BAD_POINT);
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
		assert_server_failed(&t.server, LNK1_BAD_PEER);
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
	assert_int_equal(answer_to(&f, t.m1), LNK1_BAD_POINT);
	t.m2[31] |= 0x80;
	assert_int_equal(lnk1_feed_client(&t.client, t.m2, LNK1_M2_LEN), LNK1_FAILED);
	assert_client_failed(&t.client, LNK1_BAD_POINT);

	memcpy(high, f.node_keys.pk, LNK1_KEY_LEN);
	high[31] |= 0x80;
	memcpy(f.member_pk, high, LNK1_KEY_LEN);
	make_m3_as(&t, &f, high);
	assert_int_equal(lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_FAILED);
	assert_server_failed(&t.server, LNK1_BAD_PEER);

	struct lnk1_client_random rnd = lnk1_client_randomness(0);
	f.client.server_pk[31] |= 0x80;
	assert_int_equal(lnk1_client_init(&t.client, &f.client, &rnd), LNK1_FAILED);
	assert_client_failed(&t.client, LNK1_BAD_POINT);
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
		assert_server_failed(&again.server, LNK1_BAD_SEAL);
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
	assert_client_failed(&t.client, LNK1_BAD_SEAL);
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

// ---- One wrong secret ----

static void a_wrong_pin_gets_no_answer(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	memcpy(f.client.server_pk, f.node_keys.pk, LNK1_KEY_LEN);
	lnk1_talk_begin(&t, &f, 0);
	assert_int_equal(answer_to(&f, t.m1), LNK1_BAD_SEAL);
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
	assert_client_failed(&t.client, LNK1_BAD_SEAL);
}

static void another_cluster_gets_no_answer(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	f.client.cluster_id[15] ^= 1;
	lnk1_talk_begin(&t, &f, 0);
	assert_int_equal(answer_to(&f, t.m1), LNK1_BAD_CLUSTER);
}

static void another_token_id_gets_no_answer(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_JOIN, LNK1_CONTROL);
	f.client.token_id[0] ^= 1;
	lnk1_talk_begin(&t, &f, 0);
	assert_int_equal(answer_to(&f, t.m1), LNK1_BAD_TOKEN);
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
	assert_server_failed(&t.server, LNK1_BAD_PEER);
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
	assert_server_failed(&s, LNK1_BAD_SEAL);
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
			assert_server_failed(&t.server, LNK1_BAD_PEER);
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
	assert_server_failed(&t.server, LNK1_BAD_FIELD);
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
		assert_client_failed(&t.client, LNK1_NO_VERSION);
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
	assert_client_failed(&t.client, LNK1_OTHER_CANON);
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
	assert_server_failed(&t.server, LNK1_BAD_FIELD);
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
		assert_client_failed(&t.client, why);
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
		assert_client_failed(&t.client, LNK1_BAD_FIELD);
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
		assert_server_failed(&t.server, LNK1_BAD_FIELD);
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
	assert_server_failed(&t.server, LNK1_REFUSED);
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
