// The server's part of LNK1: M1 in, M2 out, M3 in, a pause for the host's judgement, M4 out.
//
// What a stranger can make us do is ordered by cost: the prefix is compared before any arithmetic, one key exchange comes
// before anything else, and the reply's two only for who knows our public key and a cluster_id or an outstanding token_id.
#include "proto/lnk1_symmetric.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

enum stage { AWAITS_M1 = 1, AWAITS_M3, AT_JUDGE, ESTABLISHED, OVER };

// fail wipes everything but the reason.
static enum lnk1_step fail(struct lnk1_server *s, enum lnk1_failure why)
{
	sodium_memzero(s, sizeof *s);
	s->stage = OVER;
	s->failure = (uint8_t)why;
	return LNK1_FAILED;
}

// fail_proof: m3s opened and m3p did not, for whatever reason; in join mode that counts against the invite.
static enum lnk1_step fail_proof(struct lnk1_server *s)
{
	bool is_join = s->mode == LNK1_JOIN;
	uint8_t token_id[LNK1_TOKEN_ID_LEN];
	memcpy(token_id, s->token_id, sizeof token_id);
	fail(s, LNK1_BAD_PEER);
	if (is_join) {
		s->blames_invite = true;
		memcpy(s->token_id, token_id, sizeof token_id);
	}
	return LNK1_FAILED;
}

static enum lnk1_step send(struct lnk1_server *s, enum stage next, uint8_t out_len, uint8_t want)
{
	s->stage = (uint8_t)next;
	s->out_len = out_len;
	s->have = 0;
	s->want = want;
	return LNK1_SEND;
}

void lnk1_server_init(struct lnk1_server *s, const struct lnk1_server_config *cfg, struct lnk1_server_random *rnd)
{
	*s = (struct lnk1_server){.cfg = cfg, .stage = AWAITS_M1, .want = LNK1_M1_LEN};
	memcpy(s->e_sk, rnd->e_sk, LNK1_KEY_LEN);
	memcpy(s->session_id, rnd->session_id, LNK1_SESSION_ID_LEN);
	memcpy(s->header_s2c, rnd->header, LNK1_HEADER_LEN);
	memcpy(s->psk, rnd->decoy_psk, LNK1_KEY_LEN);
	sodium_memzero(rnd, sizeof *rnd);
}

static bool takes_prefix(const struct lnk1_server *s, const uint8_t *m1)
{
	if (memcmp(m1, "LNK1\x01\x01", 6) != 0)
		return false;
	uint8_t mode = m1[6], kind = m1[7];
	if (mode > LNK1_JOIN || kind >= LNK1_N_KINDS)
		return false;
	if (mode == LNK1_JOIN && kind != LNK1_CONTROL)
		return false;
	return !s->cfg->is_node || (mode == LNK1_MEMBER && kind != LNK1_CONTROL);
}

// take_token: the invite must be outstanding; its psk replaces the decoy.
static bool take_token(struct lnk1_server *s, const uint8_t hello[16])
{
	memcpy(s->token_id, hello, LNK1_TOKEN_ID_LEN);
	if (sodium_is_zero(s->token_id, LNK1_TOKEN_ID_LEN) || !s->cfg->lookup.token)
		return false;
	uint8_t secret[LNK1_KEY_LEN];
	bool found = s->cfg->lookup.token(s->cfg->lookup.ctx, s->token_id, secret);
	if (found)
		lnk1_join_psk(s->token_id, secret, s->psk);
	sodium_memzero(secret, sizeof secret);
	return found;
}

static enum lnk1_step make_m2(struct lnk1_server *s, const uint8_t client_e_pk[LNK1_KEY_LEN])
{
	int rc = crypto_scalarmult_base(s->e_pk, s->e_sk);
	ASSERT(rc == 0);
	memcpy(s->buf, s->e_pk, LNK1_KEY_LEN);
	lnk1_mix_hash(&s->sym, s->e_pk, LNK1_KEY_LEN);
	if (!lnk1_mix_dh_server(&s->sym, (struct lnk1_exchange){s->e_pk, s->e_sk, client_e_pk}))
		return fail(s, LNK1_BAD_POINT);
	uint8_t plain[32] = {0};
	memcpy(plain, s->session_id, LNK1_SESSION_ID_LEN);
	lnk1_seal_field(&s->sym, "m2", plain, sizeof plain, s->buf + LNK1_KEY_LEN);
	return send(s, AWAITS_M3, LNK1_M2_LEN, LNK1_M3_LEN);
}

static enum lnk1_step on_m1(struct lnk1_server *s)
{
	if (!takes_prefix(s, s->buf))
		return fail(s, LNK1_NOT_LNK1);
	s->mode = s->buf[6];
	s->kind = s->buf[7];
	uint8_t e_pk[LNK1_KEY_LEN], hello[16];
	memcpy(e_pk, s->buf + LNK1_PREFIX_LEN, LNK1_KEY_LEN);
	const struct lnk1_keypair *self = s->cfg->self;
	lnk1_symmetric_start(&s->sym, self->pk);
	lnk1_mix_hash(&s->sym, s->buf, LNK1_PREFIX_LEN + LNK1_KEY_LEN);
	if (!lnk1_mix_dh_server(&s->sym, (struct lnk1_exchange){self->pk, self->sk, e_pk}))
		return fail(s, LNK1_BAD_POINT);
	if (!lnk1_open_field(&s->sym, "m1", s->buf + LNK1_PREFIX_LEN + LNK1_KEY_LEN, sizeof hello, hello))
		return fail(s, LNK1_BAD_SEAL);
	if (s->mode == LNK1_MEMBER) {
		if (sodium_memcmp(hello, s->cfg->cluster_id, LNK1_CLUSTER_ID_LEN) != 0)
			return fail(s, LNK1_BAD_CLUSTER);
	} else {
		if (!sodium_is_zero(hello + LNK1_TOKEN_ID_LEN, sizeof hello - LNK1_TOKEN_ID_LEN))
			return fail(s, LNK1_BAD_FIELD);
		if (!take_token(s, hello))
			return fail(s, LNK1_BAD_TOKEN);
	}
	return make_m2(s, e_pk);
}

// find_psk leaves the psk to go on with in s->psk. A key that is no member, and our own, goes on with the decoy.
static void find_psk(struct lnk1_server *s)
{
	if (s->mode == LNK1_JOIN)
		return;
	uint8_t psk[LNK1_KEY_LEN] = {0};
	bool found = s->cfg->lookup.member(s->cfg->lookup.ctx, (enum lnk1_kind)s->kind, s->node_pk, psk);
	uint8_t mask = (uint8_t) - (int)found;
	for (size_t i = 0; i < LNK1_KEY_LEN; i++)
		s->psk[i] = (uint8_t)((psk[i] & mask) | (s->psk[i] & ~mask));
	sodium_memzero(psk, sizeof psk);
}

static enum lnk1_step make_m4(struct lnk1_server *s, enum lnk1_status status);

// decide answers the claims of an authenticated peer. Without a common version there is an M4 that says so, and no binding.
static enum lnk1_step decide(struct lnk1_server *s, const uint8_t proof[64])
{
	struct reader r = reader_init(proof, 64);
	memcpy(s->boot_id, reader_take(&r, LNK1_BOOT_ID_LEN), LNK1_BOOT_ID_LEN);
	s->client_epoch = reader_u64(&r);
	uint16_t min = reader_u16(&r);
	uint16_t max = reader_u16(&r);
	uint32_t canon_version = reader_u32(&r);
	memcpy(s->header_c2s, reader_take(&r, LNK1_HEADER_LEN), LNK1_HEADER_LEN);
	const struct lnk1_server_config *cfg = s->cfg;
	if (!sodium_is_zero(r.at, r.left) || min > max || memcmp(s->node_pk, cfg->self->pk, LNK1_KEY_LEN) == 0)
		return fail(s, LNK1_BAD_FIELD);
	s->version = max < cfg->protocol_max ? max : cfg->protocol_max;
	if (s->version < min || s->version < cfg->protocol_min)
		return make_m4(s, LNK1_STATUS_VERSION);
	if (canon_version != cfg->canon_version)
		return make_m4(s, LNK1_STATUS_CANON);
	s->stage = AT_JUDGE;
	s->want = 0;
	return LNK1_JUDGE;
}

static enum lnk1_step on_m3(struct lnk1_server *s)
{
	uint8_t who[LNK1_KEY_LEN + LNK1_TOKEN_ID_LEN], proof[64];
	if (!lnk1_open_field(&s->sym, "m3s", s->buf, sizeof who, who))
		return fail(s, LNK1_BAD_SEAL);
	memcpy(s->node_pk, who, LNK1_KEY_LEN);
	// token_id is zero in member mode, as psk_id must be there.
	if (memcmp(who + LNK1_KEY_LEN, s->token_id, LNK1_TOKEN_ID_LEN) != 0)
		return fail_proof(s);
	find_psk(s);
	bool opened = lnk1_mix_dh_server(&s->sym, (struct lnk1_exchange){s->e_pk, s->e_sk, s->node_pk});
	if (opened) {
		lnk1_mix_key(&s->sym, s->psk, LNK1_KEY_LEN);
		opened = lnk1_open_field(&s->sym, "m3p", s->buf + LNK1_SEAL_EXTRA + sizeof who, sizeof proof, proof);
	}
	if (!opened)
		return fail_proof(s);
	sodium_memzero(s->psk, sizeof s->psk);
	sodium_memzero(s->e_sk, sizeof s->e_sk);
	enum lnk1_step step = decide(s, proof);
	sodium_memzero(proof, sizeof proof);
	return step;
}

static enum lnk1_step make_m4(struct lnk1_server *s, enum lnk1_status status)
{
	uint8_t plain[64] = {0};
	s->member_epoch = s->cfg->member_epoch;
	s->record_max = s->cfg->record_max[s->kind];
	struct writer w = writer_init(plain, sizeof plain);
	writer_u16(&w, (uint16_t)status);
	writer_u16(&w, s->version);
	writer_u32(&w, s->record_max);
	writer_u64(&w, s->member_epoch);
	writer_bytes(&w, s->header_s2c, LNK1_HEADER_LEN);
	lnk1_seal_field(&s->sym, "m4", plain, sizeof plain, s->buf);
	sodium_memzero(plain, sizeof plain);
	if (status == LNK1_STATUS_OK) {
		send(s, ESTABLISHED, LNK1_M4_LEN, 0);
		return LNK1_DONE;
	}
	// Nothing follows this M4, so nothing that could make a key stays.
	sodium_memzero(&s->sym, sizeof s->sym);
	s->failure = status == LNK1_STATUS_VERSION ? LNK1_NO_VERSION : LNK1_OTHER_CANON;
	send(s, OVER, LNK1_M4_LEN, 0);
	return LNK1_REJECT;
}

enum lnk1_step lnk1_server_accept(struct lnk1_server *s)
{
	ASSERT(s->stage == AT_JUDGE);
	return make_m4(s, LNK1_STATUS_OK);
}

enum lnk1_step lnk1_server_refuse(struct lnk1_server *s)
{
	ASSERT(s->stage == AT_JUDGE);
	return fail(s, LNK1_REFUSED);
}

uint8_t *lnk1_server_room(struct lnk1_server *s, size_t *len)
{
	ASSERT(s->want > s->have);
	s->out_len = 0;
	*len = (size_t)(s->want - s->have);
	return s->buf + s->have;
}

enum lnk1_step lnk1_server_received(struct lnk1_server *s, size_t n)
{
	ASSERT(n <= (size_t)(s->want - s->have));
	s->have = (uint8_t)(s->have + n);
	if (s->have < s->want)
		return LNK1_MORE;
	if (s->stage == AWAITS_M1)
		return on_m1(s);
	ASSERT(s->stage == AWAITS_M3);
	return on_m3(s);
}

const uint8_t *lnk1_server_out(const struct lnk1_server *s, size_t *len)
{
	*len = s->out_len;
	return s->buf;
}

void lnk1_server_finish(struct lnk1_server *s, struct lnk1_link *link)
{
	ASSERT(s->stage == ESTABLISHED);
	memset(link, 0, sizeof *link);
	link->mode = s->mode;
	link->kind = s->kind;
	link->member_epoch = s->member_epoch;
	link->client_member_epoch = s->client_epoch;
	link->record_max = s->record_max;
	link->version = s->version;
	memcpy(link->peer_pk, s->node_pk, LNK1_KEY_LEN);
	memcpy(link->session_id, s->session_id, LNK1_SESSION_ID_LEN);
	memcpy(link->token_id, s->token_id, LNK1_TOKEN_ID_LEN);
	memcpy(link->boot_id, s->boot_id, LNK1_BOOT_ID_LEN);
	lnk1_transport_init(link,
		(struct lnk1_transport_setup){
			.sym = &s->sym,
			.session_id = s->session_id,
			.header_c2s = s->header_c2s,
			.header_s2c = s->header_s2c,
			.kind = s->kind,
			.record_max = s->record_max,
			.is_client = false,
		});
	lnk1_server_deinit(s);
}

void lnk1_server_deinit(struct lnk1_server *s)
{
	sodium_memzero(s, sizeof *s);
}
