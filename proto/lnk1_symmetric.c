// The transcript of LNK1: mixing, sealing, key exchange. Each step is written as the specification writes it.
#include "proto/lnk1_symmetric.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

static const char protocol_name[] = "LNK1 XK X25519 BLAKE2b XSalsa20Poly1305";

_Static_assert(crypto_kx_SESSIONKEYBYTES == LNK1_KEY_LEN, "one half of DH");
_Static_assert(crypto_secretbox_KEYBYTES == LNK1_KEY_LEN, "key of a sealed field");
_Static_assert(crypto_generichash_BYTES == LNK1_KEY_LEN, "a hash is a key");

// The one-shot of several parts. BLAKE2b itself cannot fail; the return codes say that the lengths are in its range.
struct part {
	const void *data;
	size_t len;
};

static void blake2b(uint8_t out[LNK1_KEY_LEN], const uint8_t *key, const struct part *parts, size_t n_parts)
{
	crypto_generichash_state st;
	int rc = crypto_generichash_init(&st, key, key ? LNK1_KEY_LEN : 0, LNK1_KEY_LEN);
	for (size_t i = 0; i < n_parts; i++)
		rc |= crypto_generichash_update(&st, parts[i].data, parts[i].len);
	rc |= crypto_generichash_final(&st, out, LNK1_KEY_LEN);
	ASSERT(rc == 0);
	sodium_memzero(&st, sizeof st);
}

void lnk1_symmetric_start(struct lnk1_symmetric *sym, const uint8_t server_pk[LNK1_KEY_LEN])
{
	struct part parts[] = {{protocol_name, sizeof protocol_name - 1}, {server_pk, LNK1_KEY_LEN}};
	blake2b(sym->h, NULL, parts, ARRAY_LEN(parts));
	memcpy(sym->ck, sym->h, LNK1_KEY_LEN);
}

void lnk1_mix_hash(struct lnk1_symmetric *sym, const uint8_t *data, uint32_t len)
{
	uint8_t lens[8];
	store_u32(lens, LNK1_KEY_LEN);
	store_u32(lens + 4, len);
	struct part parts[] = {{"h", 1}, {lens, sizeof lens}, {sym->h, LNK1_KEY_LEN}, {data, len}};
	blake2b(sym->h, NULL, parts, ARRAY_LEN(parts));
}

void lnk1_mix_key(struct lnk1_symmetric *sym, const uint8_t *data, uint32_t len)
{
	uint8_t len_bytes[4];
	store_u32(len_bytes, len);
	struct part parts[] = {{"ck", 2}, {len_bytes, sizeof len_bytes}, {data, len}};
	blake2b(sym->ck, sym->ck, parts, ARRAY_LEN(parts));
}

void lnk1_derive(const struct lnk1_symmetric *sym, const char *label, uint8_t key[LNK1_KEY_LEN])
{
	struct part parts[] = {{label, strlen(label)}, {sym->h, LNK1_KEY_LEN}};
	blake2b(key, sym->ck, parts, ARRAY_LEN(parts));
}

// Every K is used once, so the nonce may be zero.
static const uint8_t zero_nonce[crypto_secretbox_NONCEBYTES];

void lnk1_seal_field(struct lnk1_symmetric *sym, const char *label, const uint8_t *plain, uint32_t len, uint8_t *out)
{
	uint8_t key[LNK1_KEY_LEN];
	lnk1_derive(sym, label, key);
	int rc = crypto_secretbox_easy(out, plain, len, zero_nonce, key);
	ASSERT(rc == 0);
	sodium_memzero(key, sizeof key);
	lnk1_mix_hash(sym, out, LNK1_SEAL_EXTRA + len);
}

bool lnk1_open_field(struct lnk1_symmetric *sym, const char *label, const uint8_t *sealed, uint32_t len, uint8_t *plain)
{
	uint8_t key[LNK1_KEY_LEN];
	lnk1_derive(sym, label, key);
	bool opened = crypto_secretbox_open_easy(plain, sealed, LNK1_SEAL_EXTRA + len, zero_nonce, key) == 0;
	sodium_memzero(key, sizeof key);
	if (opened)
		lnk1_mix_hash(sym, sealed, LNK1_SEAL_EXTRA + len);
	return opened;
}

bool lnk1_point_in_range(const uint8_t pk[LNK1_KEY_LEN])
{
	return (pk[LNK1_KEY_LEN - 1] & 0x80) == 0;
}

// DH is tx | rx of the client, which is rx | tx of the server.
bool lnk1_mix_dh_client(struct lnk1_symmetric *sym, struct lnk1_exchange x)
{
	uint8_t dh[2 * LNK1_KEY_LEN];
	bool ok = lnk1_point_in_range(x.peer_pk) &&
		crypto_kx_client_session_keys(dh + LNK1_KEY_LEN, dh, x.own_pk, x.own_sk, x.peer_pk) == 0;
	if (ok)
		lnk1_mix_key(sym, dh, sizeof dh);
	sodium_memzero(dh, sizeof dh);
	return ok;
}

bool lnk1_mix_dh_server(struct lnk1_symmetric *sym, struct lnk1_exchange x)
{
	uint8_t dh[2 * LNK1_KEY_LEN];
	bool ok = lnk1_point_in_range(x.peer_pk) &&
		crypto_kx_server_session_keys(dh, dh + LNK1_KEY_LEN, x.own_pk, x.own_sk, x.peer_pk) == 0;
	if (ok)
		lnk1_mix_key(sym, dh, sizeof dh);
	sodium_memzero(dh, sizeof dh);
	return ok;
}

void lnk1_join_psk(const uint8_t token_id[LNK1_TOKEN_ID_LEN], const uint8_t secret[LNK1_KEY_LEN], uint8_t psk[LNK1_KEY_LEN])
{
	struct part parts[] = {{"join", 4}, {token_id, LNK1_TOKEN_ID_LEN}};
	blake2b(psk, secret, parts, ARRAY_LEN(parts));
}

void lnk1_node_id(const uint8_t pk[LNK1_KEY_LEN], uint8_t id[LNK1_KEY_LEN])
{
	struct part parts[] = {{pk, LNK1_KEY_LEN}};
	blake2b(id, NULL, parts, ARRAY_LEN(parts));
}

const char *lnk1_failure_words(enum lnk1_failure f)
{
	static const char *const words[] = {
#define X(name, text) [name] = text,
		LNK1_FAILURE_TABLE(X)
#undef X
	};
	return (size_t)f < ARRAY_LEN(words) ? words[f] : "unknown failure";
}
