// LNK1 in the simulator: the handshake of a connection and its records, really encrypted or as messages of the same sizes with the same
// decisions. Keys and randomness come from the world's seed. Private to sim/*.c.
#ifndef HEARTH_SIM_SIM_CRYPTO_H
#define HEARTH_SIM_SIM_CRYPTO_H

#include "base/err.h"
#include "base/ids.h"
#include "proto/lnk1.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_world;
struct sim_conn;
struct sim_lnk1;

// What the client brings and the server finds out.
struct sim_shake {
	int32_t client; // the node that dials
	uint8_t server_pk[KEY_BYTES], psk[KEY_BYTES];
	uint8_t token_id[LNK1_TOKEN_ID_LEN], token_secret[KEY_BYTES];
	uint64_t member_epoch;
	struct sim_lnk1 *lnk1; // NULL unless really encrypted
};

// Each takes the message that came (NULL: nothing yet) and makes the answer in out. False: the connection closes without a word.
struct sim_shake_message {
	uint8_t bytes[LNK1_MSG_MAX];
	size_t len;
};
bool sim_shake_m1(struct sim_world *w, struct sim_conn *c, struct sim_shake_message *out);
bool sim_shake_m2(struct sim_world *w, struct sim_conn *c, const uint8_t *m1, struct sim_shake_message *out);
bool sim_shake_m3(struct sim_world *w, struct sim_conn *c, const uint8_t *m2, struct sim_shake_message *out);
// sim_shake_judge takes M3: true when the node has proved what it claims. *blames: the failure counts against the invite.
bool sim_shake_judge(struct sim_world *w, struct sim_conn *c, const uint8_t *m3, bool *blames);
void sim_shake_m4(struct sim_world *w, struct sim_conn *c, struct sim_shake_message *out);
bool sim_shake_done(struct sim_world *w, struct sim_conn *c, const uint8_t *m4);
void sim_shake_deinit(struct sim_shake *s);

// Records of end `e`, only when really encrypted. `plain` and `out` do not overlap; `out` takes len + LNK1_RECORD_EXTRA.
void sim_crypto_seal(struct sim_world *w, struct sim_conn *c, int e, const uint8_t *plain, uint32_t len, uint8_t *out);
void sim_crypto_seal_final(struct sim_world *w, struct sim_conn *c, int e, uint8_t *out);
// sim_crypto_open opens what arrived at end `e` in place; *len is 0 for the orderly end. False: altered.
MUST_USE bool sim_crypto_open(struct sim_conn *c, int e, uint8_t *record, size_t record_len, uint32_t *len);

// Every (key, nonce) pair that was ever used to seal, as 64-bit mixes.
struct sim_nonces {
	uint64_t *at;
	uint32_t cap, n;
};
void sim_nonces_deinit(struct sim_nonces *s);

void sim_random(struct sim_world *w, void *out, size_t len);

#endif
