#include "tests/support/lnk1_fixture.h"

#include <string.h>

#include "base/assert.h"

void lnk1_fill(uint8_t *out, size_t n, unsigned a)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)(a + 7 * i);
}

static bool look_up_token(void *ctx, const uint8_t token_id[LNK1_TOKEN_ID_LEN], uint8_t secret[LNK1_KEY_LEN])
{
	struct lnk1_fixture *f = ctx;
	f->n_token_asked++;
	if (!f->has_token || memcmp(token_id, f->token_id, sizeof f->token_id) != 0)
		return false;
	memcpy(secret, f->token_secret, LNK1_KEY_LEN);
	return true;
}

static bool look_up_member(void *ctx, enum lnk1_kind kind, const uint8_t node_pk[LNK1_KEY_LEN], uint8_t psk[LNK1_KEY_LEN])
{
	(void)kind;
	struct lnk1_fixture *f = ctx;
	f->n_member_asked++;
	if (!f->has_member || memcmp(node_pk, f->member_pk, sizeof f->member_pk) != 0)
		return false;
	memcpy(psk, f->member_psk, LNK1_KEY_LEN);
	return true;
}

static void make_pair(struct lnk1_keypair *pair, unsigned a)
{
	lnk1_fill(pair->sk, sizeof pair->sk, a);
	int rc = crypto_scalarmult_base(pair->pk, pair->sk);
	ASSERT(rc == 0);
}

static void make_client(struct lnk1_fixture *f, enum lnk1_mode mode, enum lnk1_kind kind)
{
	f->client = (struct lnk1_client_params){
		.self = &f->node_keys,
		.mode = mode,
		.kind = kind,
		.member_epoch = UINT64_C(0x0102030405060707),
		.protocol_min = 1,
		.protocol_max = 3,
		.canon_version = 1,
		.record_max = 0x40000,
	};
	memcpy(f->client.server_pk, f->server_keys.pk, LNK1_KEY_LEN);
	memcpy(f->client.psk, f->member_psk, LNK1_KEY_LEN);
	memcpy(f->client.token_id, f->token_id, LNK1_TOKEN_ID_LEN);
	memcpy(f->client.token_secret, f->token_secret, LNK1_KEY_LEN);
	lnk1_fill(f->client.cluster_id, LNK1_CLUSTER_ID_LEN, 6);
	lnk1_fill(f->client.boot_id, LNK1_BOOT_ID_LEN, 10);
}

void lnk1_fixture_init(struct lnk1_fixture *f, enum lnk1_mode mode, enum lnk1_kind kind)
{
	int rc = sodium_init();
	ASSERT(rc >= 0);
	memset(f, 0, sizeof *f);
	make_pair(&f->server_keys, 1);
	make_pair(&f->node_keys, 2);
	memcpy(f->member_pk, f->node_keys.pk, LNK1_KEY_LEN);
	lnk1_fill(f->member_psk, sizeof f->member_psk, 5);
	lnk1_fill(f->token_id, sizeof f->token_id, 7);
	lnk1_fill(f->token_secret, sizeof f->token_secret, 8);
	f->has_member = true;
	f->has_token = true;
	make_client(f, mode, kind);
	f->cfg = (struct lnk1_server_config){
		.self = &f->server_keys,
		.lookup = {.ctx = f, .token = look_up_token, .member = look_up_member},
		.member_epoch = UINT64_C(0x0102030405060708),
		.protocol_min = 1,
		.protocol_max = 2,
		.canon_version = 1,
		.record_max = {0x40000, 0x40000, 0x40000},
	};
	memcpy(f->cfg.cluster_id, f->client.cluster_id, LNK1_CLUSTER_ID_LEN);
}

struct lnk1_client_random lnk1_client_randomness(unsigned salt)
{
	struct lnk1_client_random rnd;
	lnk1_fill(rnd.e_sk, sizeof rnd.e_sk, 3 + 16 * salt);
	lnk1_fill(rnd.header, sizeof rnd.header, 11 + 16 * salt);
	return rnd;
}

struct lnk1_server_random lnk1_server_randomness(unsigned salt)
{
	struct lnk1_server_random rnd;
	lnk1_fill(rnd.e_sk, sizeof rnd.e_sk, 4 + 16 * salt);
	lnk1_fill(rnd.session_id, sizeof rnd.session_id, 9 + 16 * salt);
	lnk1_fill(rnd.header, sizeof rnd.header, 12 + 16 * salt);
	lnk1_fill(rnd.decoy_psk, sizeof rnd.decoy_psk, 200 + 16 * salt);
	return rnd;
}

enum lnk1_step lnk1_feed_server(struct lnk1_server *s, const uint8_t *msg, size_t len)
{
	size_t room_len;
	uint8_t *room = lnk1_server_room(s, &room_len);
	ASSERT(len <= room_len);
	memcpy(room, msg, len);
	return lnk1_server_received(s, len);
}

enum lnk1_step lnk1_feed_client(struct lnk1_client *c, const uint8_t *msg, size_t len)
{
	size_t room_len;
	uint8_t *room = lnk1_client_room(c, &room_len);
	ASSERT(len <= room_len);
	memcpy(room, msg, len);
	return lnk1_client_received(c, len);
}

static void keep_server_out(const struct lnk1_server *s, uint8_t *msg, size_t want)
{
	size_t len;
	const uint8_t *out = lnk1_server_out(s, &len);
	ASSERT(len == want);
	memcpy(msg, out, len);
}

static void keep_client_out(const struct lnk1_client *c, uint8_t *msg, size_t want)
{
	size_t len;
	const uint8_t *out = lnk1_client_out(c, &len);
	ASSERT(len == want);
	memcpy(msg, out, len);
}

void lnk1_talk_begin(struct lnk1_talk *t, struct lnk1_fixture *f, unsigned salt)
{
	struct lnk1_client_random c_rnd = lnk1_client_randomness(salt);
	struct lnk1_server_random s_rnd = lnk1_server_randomness(salt);
	enum lnk1_step step = lnk1_client_init(&t->client, &f->client, &c_rnd);
	ASSERT(step == LNK1_SEND);
	keep_client_out(&t->client, t->m1, sizeof t->m1);
	lnk1_server_init(&t->server, &f->cfg, &s_rnd);
}

void lnk1_talk_to_m2(struct lnk1_talk *t, struct lnk1_fixture *f, unsigned salt)
{
	lnk1_talk_begin(t, f, salt);
	enum lnk1_step step = lnk1_feed_server(&t->server, t->m1, sizeof t->m1);
	ASSERT(step == LNK1_SEND);
	keep_server_out(&t->server, t->m2, sizeof t->m2);
}

void lnk1_talk_to_m3(struct lnk1_talk *t, struct lnk1_fixture *f, unsigned salt)
{
	lnk1_talk_to_m2(t, f, salt);
	enum lnk1_step step = lnk1_feed_client(&t->client, t->m2, sizeof t->m2);
	ASSERT(step == LNK1_SEND);
	keep_client_out(&t->client, t->m3, sizeof t->m3);
}

void lnk1_talk_to_m4(struct lnk1_talk *t, struct lnk1_fixture *f, unsigned salt)
{
	lnk1_talk_to_m3(t, f, salt);
	enum lnk1_step step = lnk1_feed_server(&t->server, t->m3, sizeof t->m3);
	ASSERT(step == LNK1_JUDGE);
	step = lnk1_server_accept(&t->server);
	ASSERT(step == LNK1_DONE);
	keep_server_out(&t->server, t->m4, sizeof t->m4);
}

void lnk1_talk_whole(struct lnk1_talk *t, struct lnk1_fixture *f, unsigned salt)
{
	lnk1_talk_to_m4(t, f, salt);
	enum lnk1_step step = lnk1_feed_client(&t->client, t->m4, sizeof t->m4);
	ASSERT(step == LNK1_DONE);
	lnk1_client_finish(&t->client, &t->client_link);
	lnk1_server_finish(&t->server, &t->server_link);
}

void lnk1_assert_server_failed(const struct lnk1_server *s, enum lnk1_failure why)
{
	struct lnk1_server left = *s;
	ASSERT(left.failure == why);
	left.failure = 0;
	left.stage = 0;
	if (left.blames_invite)
		memset(left.token_id, 0, sizeof left.token_id);
	left.blames_invite = false;
	ASSERT(sodium_is_zero((const uint8_t *)&left, sizeof left));
}

void lnk1_assert_client_failed(const struct lnk1_client *c, enum lnk1_failure why)
{
	struct lnk1_client left = *c;
	ASSERT(left.failure == why);
	left.failure = 0;
	left.stage = 0;
	ASSERT(sodium_is_zero((const uint8_t *)&left, sizeof left));
}

enum lnk1_failure lnk1_answer_to(const struct lnk1_fixture *f, const uint8_t m1[LNK1_M1_LEN])
{
	struct lnk1_server s;
	struct lnk1_server_random rnd = lnk1_server_randomness(0);
	lnk1_server_init(&s, &f->cfg, &rnd);
	enum lnk1_step step = lnk1_feed_server(&s, m1, LNK1_M1_LEN);
	ASSERT(step == LNK1_SEND || step == LNK1_FAILED);
	enum lnk1_failure why = s.failure;
	if (step == LNK1_FAILED)
		lnk1_assert_server_failed(&s, why);
	lnk1_server_deinit(&s);
	return why;
}
