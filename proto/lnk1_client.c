// The client's part of LNK1: M1 out, M2 in, M3 out, M4 in.
#include "proto/lnk1_symmetric.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

enum stage { AWAITS_M2 = 1, AWAITS_M4, ESTABLISHED, OVER };

// fail wipes everything but the reason.
static enum lnk1_step fail(struct lnk1_client *c, enum lnk1_failure why)
{
	sodium_memzero(c, sizeof *c);
	c->stage = OVER;
	c->failure = (uint8_t)why;
	return LNK1_FAILED;
}

static enum lnk1_step send(struct lnk1_client *c, enum stage next, uint8_t out_len, uint8_t want)
{
	c->stage = (uint8_t)next;
	c->out_len = out_len;
	c->have = 0;
	c->want = want;
	return LNK1_SEND;
}

static enum lnk1_step make_m1(struct lnk1_client *c, const uint8_t hello[16])
{
	struct writer w = writer_init(c->buf, LNK1_M1_LEN);
	writer_bytes(&w, "LNK1\x01\x01", 6);
	writer_u8(&w, c->mode);
	writer_u8(&w, c->kind);
	writer_bytes(&w, c->e_pk, LNK1_KEY_LEN);
	lnk1_mix_hash(&c->sym, c->buf, (uint32_t)w.len);
	if (!lnk1_mix_dh_client(&c->sym, (struct lnk1_exchange){c->e_pk, c->e_sk, c->server_pk}))
		return fail(c, LNK1_BAD_POINT);
	lnk1_seal_field(&c->sym, "m1", hello, 16, c->buf + w.len);
	return send(c, AWAITS_M2, LNK1_M1_LEN, LNK1_M2_LEN);
}

enum lnk1_step lnk1_client_init(struct lnk1_client *c, const struct lnk1_client_params *p, struct lnk1_client_random *rnd)
{
	ASSERT(p->mode == LNK1_MEMBER || p->kind == LNK1_CONTROL);
	*c = (struct lnk1_client){
		.self = p->self,
		.member_epoch = p->member_epoch,
		.mode = (uint8_t)p->mode,
		.kind = (uint8_t)p->kind,
		.protocol_min = p->protocol_min,
		.protocol_max = p->protocol_max,
		.canon_version = p->canon_version,
		.record_max = p->record_max,
	};
	memcpy(c->server_pk, p->server_pk, LNK1_KEY_LEN);
	memcpy(c->boot_id, p->boot_id, LNK1_BOOT_ID_LEN);
	memcpy(c->e_sk, rnd->e_sk, LNK1_KEY_LEN);
	memcpy(c->header_c2s, rnd->header, LNK1_HEADER_LEN);
	sodium_memzero(rnd, sizeof *rnd);
	// The base point is of prime order, so this cannot give zero.
	int rc = crypto_scalarmult_base(c->e_pk, c->e_sk);
	ASSERT(rc == 0);

	uint8_t hello[16] = {0};
	if (p->mode == LNK1_JOIN) {
		memcpy(hello, p->token_id, LNK1_TOKEN_ID_LEN);
		memcpy(c->psk_id, p->token_id, LNK1_TOKEN_ID_LEN);
		lnk1_join_psk(p->token_id, p->token_secret, c->psk);
	} else {
		memcpy(hello, p->cluster_id, LNK1_CLUSTER_ID_LEN);
		memcpy(c->psk, p->psk, LNK1_KEY_LEN);
	}
	lnk1_symmetric_start(&c->sym, c->server_pk);
	return make_m1(c, hello);
}

static enum lnk1_step make_m3(struct lnk1_client *c, const uint8_t server_e_pk[LNK1_KEY_LEN])
{
	uint8_t who[LNK1_KEY_LEN + LNK1_TOKEN_ID_LEN];
	memcpy(who, c->self->pk, LNK1_KEY_LEN);
	memcpy(who + LNK1_KEY_LEN, c->psk_id, LNK1_TOKEN_ID_LEN);
	lnk1_seal_field(&c->sym, "m3s", who, sizeof who, c->buf);
	if (!lnk1_mix_dh_client(&c->sym, (struct lnk1_exchange){c->self->pk, c->self->sk, server_e_pk}))
		return fail(c, LNK1_BAD_POINT);
	lnk1_mix_key(&c->sym, c->psk, LNK1_KEY_LEN);

	uint8_t proof[64] = {0};
	struct writer w = writer_init(proof, sizeof proof);
	writer_bytes(&w, c->boot_id, LNK1_BOOT_ID_LEN);
	writer_u64(&w, c->member_epoch);
	writer_u16(&w, c->protocol_min);
	writer_u16(&w, c->protocol_max);
	writer_u32(&w, c->canon_version);
	writer_bytes(&w, c->header_c2s, LNK1_HEADER_LEN);
	lnk1_seal_field(&c->sym, "m3p", proof, sizeof proof, c->buf + LNK1_SEAL_EXTRA + sizeof who);

	sodium_memzero(proof, sizeof proof);
	sodium_memzero(c->psk, sizeof c->psk);
	sodium_memzero(c->e_sk, sizeof c->e_sk);
	return send(c, AWAITS_M4, LNK1_M3_LEN, LNK1_M4_LEN);
}

static enum lnk1_step on_m2(struct lnk1_client *c)
{
	uint8_t e_pk[LNK1_KEY_LEN], plain[32];
	memcpy(e_pk, c->buf, LNK1_KEY_LEN);
	lnk1_mix_hash(&c->sym, e_pk, LNK1_KEY_LEN);
	if (!lnk1_mix_dh_client(&c->sym, (struct lnk1_exchange){c->e_pk, c->e_sk, e_pk}))
		return fail(c, LNK1_BAD_POINT);
	if (!lnk1_open_field(&c->sym, "m2", c->buf + LNK1_KEY_LEN, sizeof plain, plain))
		return fail(c, LNK1_BAD_SEAL);
	if (!sodium_is_zero(plain + LNK1_SESSION_ID_LEN, sizeof plain - LNK1_SESSION_ID_LEN))
		return fail(c, LNK1_BAD_FIELD);
	memcpy(c->session_id, plain, LNK1_SESSION_ID_LEN);
	return make_m3(c, e_pk);
}

static enum lnk1_step judge_m4(struct lnk1_client *c, const uint8_t plain[64])
{
	struct reader r = reader_init(plain, 64);
	uint16_t status = reader_u16(&r);
	c->version = reader_u16(&r);
	uint32_t record_max = reader_u32(&r);
	c->server_epoch = reader_u64(&r);
	memcpy(c->header_s2c, reader_take(&r, LNK1_HEADER_LEN), LNK1_HEADER_LEN);
	if (!sodium_is_zero(r.at, r.left) || status > LNK1_STATUS_CANON)
		return fail(c, LNK1_BAD_FIELD);
	if (status != LNK1_STATUS_OK)
		return fail(c, status == LNK1_STATUS_VERSION ? LNK1_NO_VERSION : LNK1_OTHER_CANON);
	if (c->version < c->protocol_min || c->version > c->protocol_max || record_max > c->record_max)
		return fail(c, LNK1_BAD_FIELD);
	if (c->kind == LNK1_CONTROL && c->server_epoch < c->member_epoch)
		return fail(c, LNK1_OLD_EPOCH);
	c->record_max = record_max;
	c->stage = ESTABLISHED;
	c->want = 0;
	return LNK1_DONE;
}

static enum lnk1_step on_m4(struct lnk1_client *c)
{
	uint8_t plain[64];
	if (!lnk1_open_field(&c->sym, "m4", c->buf, sizeof plain, plain))
		return fail(c, LNK1_BAD_SEAL);
	enum lnk1_step step = judge_m4(c, plain);
	sodium_memzero(plain, sizeof plain);
	return step;
}

uint8_t *lnk1_client_room(struct lnk1_client *c, size_t *len)
{
	ASSERT(c->want > c->have);
	c->out_len = 0;
	*len = (size_t)(c->want - c->have);
	return c->buf + c->have;
}

enum lnk1_step lnk1_client_received(struct lnk1_client *c, size_t n)
{
	ASSERT(n <= (size_t)(c->want - c->have));
	c->have = (uint8_t)(c->have + n);
	if (c->have < c->want)
		return LNK1_MORE;
	if (c->stage == AWAITS_M2)
		return on_m2(c);
	ASSERT(c->stage == AWAITS_M4);
	return on_m4(c);
}

const uint8_t *lnk1_client_out(const struct lnk1_client *c, size_t *len)
{
	*len = c->out_len;
	return c->buf;
}

void lnk1_client_finish(struct lnk1_client *c, struct lnk1_link *link)
{
	ASSERT(c->stage == ESTABLISHED);
	memset(link, 0, sizeof *link);
	link->mode = c->mode;
	link->kind = c->kind;
	link->member_epoch = c->server_epoch;
	link->client_member_epoch = c->member_epoch;
	link->record_max = c->record_max;
	link->version = c->version;
	memcpy(link->peer_pk, c->server_pk, LNK1_KEY_LEN);
	memcpy(link->session_id, c->session_id, LNK1_SESSION_ID_LEN);
	memcpy(link->token_id, c->psk_id, LNK1_TOKEN_ID_LEN);
	memcpy(link->boot_id, c->boot_id, LNK1_BOOT_ID_LEN);
	lnk1_transport_init(link,
		(struct lnk1_transport_setup){
			.sym = &c->sym,
			.session_id = c->session_id,
			.header_c2s = c->header_c2s,
			.header_s2c = c->header_s2c,
			.kind = c->kind,
			.record_max = c->record_max,
			.is_client = true,
		});
	lnk1_client_deinit(c);
}

void lnk1_client_deinit(struct lnk1_client *c)
{
	sodium_memzero(c, sizeof *c);
}
