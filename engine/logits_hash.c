#include "engine/logits_hash.h"

#include "base/bytes.h"
#include "base/fmath.h"

#define CHUNK 256 // values laid out at once

void logits_hash_init(struct logits_hash *h)
{
	crypto_generichash_init(&h->state, NULL, 0, LOGITS_HASH_BYTES);
}

void logits_hash_push(struct logits_hash *h, const float *logits, int32_t n)
{
	uint8_t bytes[4 * CHUNK];
	for (int32_t i = 0; i < n;) {
		size_t len = 0;
		for (; i < n && len < sizeof bytes; i++, len += 4)
			store_u32(bytes + len, fmath_bits(logits[i]));
		crypto_generichash_update(&h->state, bytes, len);
	}
}

void logits_hash_hex(const struct logits_hash *h, char out[2 * LOGITS_HASH_BYTES + 1])
{
	crypto_generichash_state state = h->state;
	uint8_t hash[LOGITS_HASH_BYTES];
	crypto_generichash_final(&state, hash, sizeof hash);
	sodium_bin2hex(out, 2 * LOGITS_HASH_BYTES + 1, hash, sizeof hash);
}
