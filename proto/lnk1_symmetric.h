// What client, server and record layer of LNK1 share; for proto/lnk1_*.c and their tests only.
#ifndef HEARTH_PROTO_LNK1_SYMMETRIC_H
#define HEARTH_PROTO_LNK1_SYMMETRIC_H

#include "proto/lnk1.h"

#define LNK1_PREFIX_LEN 8 // magic, version, suite, mode, kind
#define LNK1_SEAL_EXTRA crypto_secretbox_MACBYTES

enum lnk1_direction { LNK1_C2S = 0, LNK1_S2C = 1 };

void lnk1_symmetric_start(struct lnk1_symmetric *sym, const uint8_t server_pk[LNK1_KEY_LEN]);
void lnk1_mix_hash(struct lnk1_symmetric *sym, const uint8_t *data, uint32_t len);
void lnk1_mix_key(struct lnk1_symmetric *sym, const uint8_t *data, uint32_t len);

// lnk1_derive puts K(label) into `key`.
void lnk1_derive(const struct lnk1_symmetric *sym, const char *label, uint8_t key[LNK1_KEY_LEN]);

// lnk1_seal_field writes LNK1_SEAL_EXTRA + len bytes and mixes them in.
void lnk1_seal_field(struct lnk1_symmetric *sym, const char *label, const uint8_t *plain, uint32_t len, uint8_t *out);

// lnk1_open_field opens LNK1_SEAL_EXTRA + len bytes and mixes them in; false leaves `sym` and `plain` as they were.
MUST_USE bool lnk1_open_field(struct lnk1_symmetric *sym, const char *label, const uint8_t *sealed, uint32_t len, uint8_t *plain);

// The two halves of one exchange: mix DH in. False: the peer's point is of low order, or has the top bit of byte 31 set.
struct lnk1_exchange {
	const uint8_t *own_pk, *own_sk, *peer_pk; // the keys of this step
};
MUST_USE bool lnk1_mix_dh_client(struct lnk1_symmetric *sym, struct lnk1_exchange x);
MUST_USE bool lnk1_mix_dh_server(struct lnk1_symmetric *sym, struct lnk1_exchange x);

// lnk1_point_in_range: the top bit of byte 31 is clear, so that each point has one spelling in the transcript.
bool lnk1_point_in_range(const uint8_t pk[LNK1_KEY_LEN]);

// lnk1_join_psk puts BLAKE2b(key = token_secret, "join" | token_id) into `psk`.
void lnk1_join_psk(const uint8_t token_id[LNK1_TOKEN_ID_LEN], const uint8_t secret[LNK1_KEY_LEN], uint8_t psk[LNK1_KEY_LEN]);

struct lnk1_stream_setup {
	const uint8_t *key, *header, *session_id;
	enum lnk1_kind kind;
	enum lnk1_direction direction;
	uint32_t record_max;
};

// lnk1_stream_init sets up one direction, the sending end like the receiving one.
void lnk1_stream_init(struct lnk1_stream *s, struct lnk1_stream_setup setup);

struct lnk1_transport_setup {
	const struct lnk1_symmetric *sym;
	const uint8_t *session_id, *header_c2s, *header_s2c;
	enum lnk1_kind kind;
	uint32_t record_max;
	bool is_client;
};

// lnk1_transport_init sets up both directions of a link from the transcript after M4.
void lnk1_transport_init(struct lnk1_link *link, struct lnk1_transport_setup setup);

#endif
