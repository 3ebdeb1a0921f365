#include "kernels/reduce_payload.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/fmath.h"

#include <stdbool.h>
#include <string.h>

#define BLOCK 32
#define MAGNITUDE 0x7fffffff
#define INFINITE 0x7f800000
#define LEAST 0x21800000 // 2^-60: below it a block is zero, as in rule 4

static const char *const names[N_REDUCE_PAYLOADS] = {"f32", "bf16", "q8"};

enum err reduce_payload_find(const char *name, enum reduce_payload *out)
{
	for (int i = 0; i < N_REDUCE_PAYLOADS; i++) {
		if (strcmp(name, names[i]) == 0) {
			*out = (enum reduce_payload)i;
			return OK;
		}
	}
	return ERR_RANGE;
}

const char *reduce_payload_name(enum reduce_payload p)
{
	ASSERT((unsigned)p < N_REDUCE_PAYLOADS);
	return names[p];
}

size_t reduce_payload_bytes(enum reduce_payload p, int32_t n)
{
	ASSERT(n >= 0);
	size_t values = (size_t)n;
	switch (p) {
	case REDUCE_F32: return values * 4;
	case REDUCE_BF16: return values * 2;
	case REDUCE_Q8: return values + (values + BLOCK - 1) / BLOCK * 4;
	}
	ASSERT(!"a payload");
	return 0;
}

// greatest returns the greatest magnitude of n values, as float bits.
static uint32_t greatest(const float *x, int32_t n)
{
	uint32_t m = 0;
	for (int32_t i = 0; i < n; i++) {
		uint32_t magnitude = fmath_bits(x[i]) & MAGNITUDE;
		m = magnitude > m ? magnitude : m;
	}
	return m;
}

// encode_block writes one block of q8 and tells whether its values can be carried.
static bool encode_block(const float *x, int32_t n, uint8_t *out)
{
	const uint32_t m = greatest(x, n);
	if (m < LEAST) {
		memset(out, 0, 4 + (size_t)n);
		return true;
	}
	const float amax = fmath_from_bits(m), d = amax / 127.0f, inverse = 127.0f / amax;
	if (m >= INFINITE || !fmath_is_finite(127.0f * d))
		return false;
	store_u32(out, fmath_bits(d));
	for (int32_t i = 0; i < n; i++)
		out[4 + i] = (uint8_t)fmath_round_int(x[i] * inverse);
	return true;
}

static enum err encode_q8(const float *x, int32_t n, uint8_t *out)
{
	bool good = true;
	for (int32_t i = 0; i < n; i += BLOCK, out += 4 + BLOCK)
		good &= encode_block(x + i, n - i < BLOCK ? n - i : BLOCK, out);
	return good ? OK : ERR_NON_FINITE;
}

static enum err encode_bf16(const float *x, int32_t n, uint8_t *out)
{
	uint16_t m = 0;
	for (int32_t i = 0; i < n; i++) {
		uint16_t h = fmath_f32_to_bf16(x[i]), magnitude = h & 0x7fff;
		store_u16(out + 2 * (size_t)i, h);
		m = magnitude > m ? magnitude : m;
	}
	return m < INFINITE >> 16 ? OK : ERR_NON_FINITE;
}

enum err reduce_payload_encode(enum reduce_payload p, const float *x, int32_t n, uint8_t *out)
{
	ASSERT(n >= 0);
	switch (p) {
	case REDUCE_F32:
		for (int32_t i = 0; i < n; i++)
			store_u32(out + 4 * (size_t)i, fmath_bits(x[i]));
		return greatest(x, n) < INFINITE ? OK : ERR_NON_FINITE;
	case REDUCE_BF16: return encode_bf16(x, n, out);
	case REDUCE_Q8: return encode_q8(x, n, out);
	}
	ASSERT(!"a payload");
	return ERR_RANGE;
}

static enum err decode_q8(const uint8_t *in, int32_t n, float *out)
{
	bool good = true;
	for (int32_t i = 0; i < n; i += BLOCK, in += 4 + BLOCK) {
		const uint32_t bits = load_u32(in);
		const float d = fmath_from_bits(bits);
		good &= bits <= MAGNITUDE;
		for (int32_t j = 0; j < BLOCK && i + j < n; j++) {
			out[i + j] = (float)(int8_t)in[4 + j] * d;
			good &= in[4 + j] != 0x80;
		}
	}
	return good ? OK : ERR_FORMAT;
}

enum err reduce_payload_decode(enum reduce_payload p, const uint8_t *in, int32_t n, float *out)
{
	enum err e = OK;
	ASSERT(n >= 0);
	switch (p) {
	case REDUCE_F32:
		for (int32_t i = 0; i < n; i++)
			out[i] = fmath_from_bits(load_u32(in + 4 * (size_t)i));
		break;
	case REDUCE_BF16:
		for (int32_t i = 0; i < n; i++)
			out[i] = fmath_bf16_to_f32(load_u16(in + 2 * (size_t)i));
		break;
	case REDUCE_Q8: e = decode_q8(in, n, out); break;
	}
	return e == OK && greatest(out, n) >= INFINITE ? ERR_NON_FINITE : e;
}
