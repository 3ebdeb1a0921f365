// Ids as one-field structs, so that the compiler refuses a swap.
#ifndef HEARTH_BASE_IDS_H
#define HEARTH_BASE_IDS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define NODE_ID_BYTES 32 // BLAKE2b-256 of the public key
#define KEY_BYTES 32     // X25519 key, psk, token secret

struct node_id {
	uint8_t b[NODE_ID_BYTES];
};
struct session_id {
	uint64_t v; // never 0, never used twice by one coordinator run
};
struct plan_epoch {
	uint64_t v; // grows with each plan; 0: no plan
};
struct member_epoch {
	uint64_t v; // grows on revocation and key rotation only
};

static inline bool node_id_is(struct node_id a, struct node_id b)
{
	return memcmp(a.b, b.b, NODE_ID_BYTES) == 0;
}

#endif
