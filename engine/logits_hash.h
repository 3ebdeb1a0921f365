// logits_hash: BLAKE2b-256 of the f32 logits, little-endian, before the sampler, positions ascending from the first prompt token. Two
// runs with the same hash computed the same bits everywhere.
#ifndef HEARTH_ENGINE_LOGITS_HASH_H
#define HEARTH_ENGINE_LOGITS_HASH_H

#include <sodium.h>
#include <stdint.h>

#define LOGITS_HASH_BYTES 32

struct logits_hash {
	crypto_generichash_state state;
};

void logits_hash_init(struct logits_hash *h);
// logits_hash_push adds one position's logits (n). They are finite: a NaN has no canonical bits.
void logits_hash_push(struct logits_hash *h, const float *logits, int32_t n);
// logits_hash_hex writes the hash of what was pushed so far as hexadecimal text; more may be pushed afterwards.
void logits_hash_hex(const struct logits_hash *h, char out[2 * LOGITS_HASH_BYTES + 1]);

#endif
