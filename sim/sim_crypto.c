#include "sim/sim_crypto.h"

#include "base/assert.h"
#include "kernels/canonical.h"
#include "sim/world_state.h"

#include <stdlib.h>

struct sim_lookup_ctx {
	struct sim_world *w;
	int32_t party;
};

struct sim_lnk1 {
	struct lnk1_client client;
	struct lnk1_server server;
	struct lnk1_server_config server_config;
	struct sim_lookup_ctx lookup;
	struct lnk1_link link[2];
	bool has_link[2];
};

void sim_random(struct sim_world *w, void *out, size_t len)
{
	uint8_t *p = out;
	for (size_t i = 0; i < len; i += 8) {
		uint8_t eight[8];
		store_u64(eight, rng_u64(&w->rng_crypto));
		memcpy(p + i, eight, len - i < 8 ? len - i : 8);
	}
}

// ---- nonces

void sim_nonces_deinit(struct sim_nonces *s)
{
	free(s->at);
	*s = (struct sim_nonces){0};
}

static bool nonce_put(struct sim_nonces *s, uint64_t v)
{
	uint32_t i = (uint32_t)(v >> 32) & (s->cap - 1);
	while (s->at[i] != 0 && s->at[i] != v)
		i = (i + 1) & (s->cap - 1);
	bool is_new = s->at[i] == 0;
	s->at[i] = v;
	s->n += is_new;
	return is_new;
}

static void nonces_grow(struct sim_nonces *s)
{
	struct sim_nonces bigger = {.cap = s->cap ? 2 * s->cap : 1024};
	bigger.at = calloc(bigger.cap, sizeof *bigger.at);
	if (bigger.at == NULL)
		abort(); // some KiB: nothing works any more
	for (uint32_t i = 0; i < s->cap; i++)
		if (s->at[i] != 0)
			nonce_put(&bigger, s->at[i]);
	free(s->at);
	*s = bigger;
}

// use_once demands that a secret (with its nonce) was never used before.
static void use_once(struct sim_world *w, uint64_t mix, const char *what)
{
	struct sim_nonces *s = &w->nonces;
	if (2 * (s->n + 1) > s->cap)
		nonces_grow(s);
	if (!nonce_put(s, mix | 1))
		sim_world_fail(w, "%s was used twice", what);
}

static void use_stream(struct sim_world *w, const struct lnk1_stream *tx)
{
	use_once(w, sim_mix_bytes(sim_mix_bytes(1, tx->secret.k, sizeof tx->secret.k), tx->secret.nonce, sizeof tx->secret.nonce),
		"a (key, nonce) pair");
}

// ---- who is known to whom

static bool find_member(void *ctx, enum lnk1_kind kind, const uint8_t node_pk[LNK1_KEY_LEN], uint8_t psk[LNK1_KEY_LEN])
{
	(void)kind;
	const struct sim_lookup_ctx *l = ctx;
	if (l->party == SIM_HEAD)
		return coordinator_find_psk(l->w->head.core, node_pk, psk);
	return node_find_psk(l->w->nodes[l->party].core, node_pk, psk);
}

static bool find_token(void *ctx, const uint8_t token_id[LNK1_TOKEN_ID_LEN], uint8_t secret[LNK1_KEY_LEN])
{
	const struct sim_lookup_ctx *l = ctx;
	return l->party == SIM_HEAD && coordinator_find_token(l->w->head.core, token_id, sim_wall_s(l->w), secret);
}

static const struct lnk1_keypair *keys_of(struct sim_world *w, int32_t party)
{
	return party == SIM_HEAD ? &w->head.keys : &w->nodes[party].keys;
}

static uint64_t server_epoch(struct sim_world *w, int32_t party)
{
	return party == SIM_HEAD ? coordinator_member_epoch(w->head.core).v : w->nodes[party].own.member_epoch;
}

static uint32_t record_max(enum lnk1_kind kind)
{
	return kind == LNK1_CONTROL ? CONTROL_RECORD_MAX : DATA_RECORD_MAX;
}

// ---- M1 to M4

static void blank(struct sim_shake_message *m, size_t len)
{
	memset(m->bytes, 0, sizeof m->bytes);
	m->len = len;
}

static void take_out(struct sim_shake_message *m, const uint8_t *bytes, size_t len)
{
	memcpy(m->bytes, bytes, len);
	m->len = len;
}

bool sim_shake_m1(struct sim_world *w, struct sim_conn *c, struct sim_shake_message *out)
{
	struct sim_shake *s = &c->shake;
	blank(out, LNK1_M1_LEN);
	if (!w->config.encrypt)
		return true;
	s->lnk1 = calloc(1, sizeof *s->lnk1);
	if (s->lnk1 == NULL)
		return false;
	struct lnk1_client_params p = {.self = keys_of(w, s->client), .mode = c->mode, .kind = c->kind, .member_epoch = s->member_epoch,
		.protocol_min = PROTOCOL_VERSION, .protocol_max = PROTOCOL_VERSION, .canon_version = CANON_VERSION, .record_max = record_max(c->kind)};
	memcpy(p.server_pk, s->server_pk, KEY_BYTES);
	memcpy(p.psk, s->psk, KEY_BYTES);
	memcpy(p.token_id, s->token_id, sizeof p.token_id);
	memcpy(p.token_secret, s->token_secret, KEY_BYTES);
	memcpy(p.cluster_id, w->head.config.cluster_id, CLUSTER_ID_BYTES);
	store_u64(p.boot_id, w->nodes[s->client].boot);
	struct lnk1_client_random rnd;
	sim_random(w, &rnd, sizeof rnd);
	use_once(w, sim_mix_bytes(2, rnd.e_sk, sizeof rnd.e_sk), "an ephemeral secret");
	if (lnk1_client_init(&s->lnk1->client, &p, &rnd) != LNK1_SEND)
		return false;
	size_t len;
	const uint8_t *bytes = lnk1_client_out(&s->lnk1->client, &len);
	take_out(out, bytes, len);
	return true;
}

static void server_init(struct sim_world *w, struct sim_conn *c)
{
	struct sim_lnk1 *l = c->shake.lnk1;
	int32_t party = c->end[1].party;
	l->lookup = (struct sim_lookup_ctx){.w = w, .party = party};
	l->server_config = (struct lnk1_server_config){.self = keys_of(w, party), .lookup = {.ctx = &l->lookup, .token = find_token, .member = find_member},
		.is_node = party != SIM_HEAD, .member_epoch = server_epoch(w, party), .protocol_min = PROTOCOL_VERSION, .protocol_max = PROTOCOL_VERSION,
		.canon_version = CANON_VERSION, .record_max = {CONTROL_RECORD_MAX, DATA_RECORD_MAX, DATA_RECORD_MAX}};
	memcpy(l->server_config.cluster_id, w->head.config.cluster_id, CLUSTER_ID_BYTES);
	struct lnk1_server_random rnd;
	sim_random(w, &rnd, sizeof rnd);
	use_once(w, sim_mix_bytes(2, rnd.e_sk, sizeof rnd.e_sk), "an ephemeral secret");
	lnk1_server_init(&l->server, &l->server_config, &rnd);
}

static enum lnk1_step feed_server(struct lnk1_server *s, const uint8_t *bytes, size_t len)
{
	enum lnk1_step step = LNK1_MORE;
	for (size_t at = 0; at < len && step == LNK1_MORE;) {
		size_t room;
		uint8_t *to = lnk1_server_room(s, &room);
		room = room < len - at ? room : len - at;
		memcpy(to, bytes + at, room);
		at += room;
		step = lnk1_server_received(s, room);
	}
	return step;
}

static enum lnk1_step feed_client(struct lnk1_client *s, const uint8_t *bytes, size_t len)
{
	enum lnk1_step step = LNK1_MORE;
	for (size_t at = 0; at < len && step == LNK1_MORE;) {
		size_t room;
		uint8_t *to = lnk1_client_room(s, &room);
		room = room < len - at ? room : len - at;
		memcpy(to, bytes + at, room);
		at += room;
		step = lnk1_client_received(s, room);
	}
	return step;
}

bool sim_shake_m2(struct sim_world *w, struct sim_conn *c, const uint8_t *m1, struct sim_shake_message *out)
{
	struct sim_shake *s = &c->shake;
	blank(out, LNK1_M2_LEN);
	if (!w->config.encrypt) {
		bool is_node = c->end[1].party != SIM_HEAD;
		if (memcmp(s->server_pk, keys_of(w, c->end[1].party)->pk, KEY_BYTES) != 0 || (is_node && (c->mode == LNK1_JOIN || c->kind == LNK1_CONTROL)))
			return false;
		uint8_t secret[KEY_BYTES];
		struct sim_lookup_ctx l = {.w = w, .party = c->end[1].party};
		return c->mode != LNK1_JOIN || find_token(&l, s->token_id, secret);
	}
	server_init(w, c);
	if (feed_server(&s->lnk1->server, m1, LNK1_M1_LEN) != LNK1_SEND)
		return false;
	size_t len;
	const uint8_t *bytes = lnk1_server_out(&s->lnk1->server, &len);
	take_out(out, bytes, len);
	return true;
}

bool sim_shake_m3(struct sim_world *w, struct sim_conn *c, const uint8_t *m2, struct sim_shake_message *out)
{
	struct sim_shake *s = &c->shake;
	blank(out, LNK1_M3_LEN);
	if (!w->config.encrypt)
		return true;
	if (feed_client(&s->lnk1->client, m2, LNK1_M2_LEN) != LNK1_SEND)
		return false;
	size_t len;
	const uint8_t *bytes = lnk1_client_out(&s->lnk1->client, &len);
	take_out(out, bytes, len);
	return true;
}

bool sim_shake_judge(struct sim_world *w, struct sim_conn *c, const uint8_t *m3, bool *blames)
{
	struct sim_shake *s = &c->shake;
	*blames = false;
	if (w->config.encrypt) {
		bool good = feed_server(&s->lnk1->server, m3, LNK1_M3_LEN) == LNK1_JUDGE;
		*blames = s->lnk1->server.blames_invite;
		ASSERT(!good || memcmp(s->lnk1->server.node_pk, keys_of(w, s->client)->pk, KEY_BYTES) == 0);
		return good;
	}
	struct sim_lookup_ctx l = {.w = w, .party = c->end[1].party};
	uint8_t secret[KEY_BYTES];
	if (c->mode == LNK1_MEMBER)
		return find_member(&l, LNK1_CONTROL, keys_of(w, s->client)->pk, secret) && memcmp(secret, s->psk, KEY_BYTES) == 0;
	bool good = find_token(&l, s->token_id, secret) && memcmp(secret, s->token_secret, KEY_BYTES) == 0;
	*blames = !good;
	return good;
}

void sim_shake_m4(struct sim_world *w, struct sim_conn *c, struct sim_shake_message *out)
{
	struct sim_shake *s = &c->shake;
	blank(out, LNK1_M4_LEN);
	if (!w->config.encrypt) {
		store_u64(out->bytes, server_epoch(w, c->end[1].party));
		return;
	}
	struct sim_lnk1 *l = s->lnk1;
	l->server_config.member_epoch = server_epoch(w, c->end[1].party);
	enum lnk1_step step = lnk1_server_accept(&l->server);
	ASSERT(step == LNK1_DONE);
	size_t len;
	const uint8_t *bytes = lnk1_server_out(&l->server, &len);
	take_out(out, bytes, len);
	lnk1_server_finish(&l->server, &l->link[1]);
	l->has_link[1] = true;
}

bool sim_shake_done(struct sim_world *w, struct sim_conn *c, const uint8_t *m4)
{
	struct sim_shake *s = &c->shake;
	if (!w->config.encrypt)
		return c->kind != LNK1_CONTROL || load_u64(m4) >= s->member_epoch;
	if (feed_client(&s->lnk1->client, m4, LNK1_M4_LEN) != LNK1_DONE)
		return false;
	lnk1_client_finish(&s->lnk1->client, &s->lnk1->link[0]);
	s->lnk1->has_link[0] = true;
	return true;
}

void sim_shake_deinit(struct sim_shake *s)
{
	if (s->lnk1 == NULL)
		return;
	lnk1_client_deinit(&s->lnk1->client);
	lnk1_server_deinit(&s->lnk1->server);
	free(s->lnk1);
	s->lnk1 = NULL;
}

// ---- records

void sim_crypto_seal(struct sim_world *w, struct sim_conn *c, int e, const uint8_t *plain, uint32_t len, uint8_t *out)
{
	struct lnk1_stream *tx = &c->shake.lnk1->link[e].tx;
	use_stream(w, tx);
	enum err err = lnk1_seal(tx, plain, len, out);
	ASSERT(err == OK); // the cores keep within the link's maximum, and nothing is sent after FINAL
}

void sim_crypto_seal_final(struct sim_world *w, struct sim_conn *c, int e, uint8_t *out)
{
	struct lnk1_stream *tx = &c->shake.lnk1->link[e].tx;
	use_stream(w, tx);
	enum err err = lnk1_seal_final(tx, out);
	ASSERT(err == OK);
}

bool sim_crypto_open(struct sim_conn *c, int e, uint8_t *record, size_t record_len, uint32_t *len)
{
	struct lnk1_stream *rx = &c->shake.lnk1->link[e].rx;
	size_t body_len;
	if (lnk1_open_head(rx, record, &body_len) != OK || body_len != record_len - LNK1_RECORD_HEAD)
		return false;
	uint8_t *body = record + LNK1_RECORD_HEAD;
	return lnk1_open_body(rx, body, body + 1, len) == OK;
}
