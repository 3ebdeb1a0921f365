#include "engine/wire.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/fmath.h"

#include <stdbool.h>

#define Q8_BLOCK 32
#define Q8_BLOCK_BYTES 33
#define Q8_MAX 127

// The largest magnitudes, as float bits, that can be carried: the next float rounds to infinity (in q8, 127 * 2^121 is the last one
// before q = 64 with d = 2^122).
#define F16_LAST 0x477fefffu
#define BF16_LAST 0x7f7f7fffu
#define Q8_LAST 0x7f7e0000u
#define F32_LAST 0x7f7fffffu

int32_t wire_first_above(const float *x, int32_t n, uint32_t last)
{
	// One pass without a branch finds out whether there is any: the usual answer is no.
	uint32_t any = 0;
	for (int32_t i = 0; i < n; i++)
		any |= (fmath_bits(x[i]) & 0x7fffffff) > last;
	if (!any)
		return n;
	int32_t i = 0;
	while ((fmath_bits(x[i]) & 0x7fffffff) <= last)
		i++;
	return i;
}

// q8_exponent returns e of the block's d = 2^(e - 127). 127 is 1.984375 * 2^6, hence the threshold on the fraction.
static uint32_t q8_exponent(const float *x, int32_t n)
{
	uint32_t m = 0;
	for (int32_t i = 0; i < n; i++) {
		uint32_t a = fmath_bits(x[i]) & 0x7fffffff;
		m = a > m ? a : m;
	}
	uint32_t k = (m >> 23) + ((m & 0x7fffff) > 0x7e0000);
	return k > 7 ? k - 6 : 1;
}

// q8_quantise writes the q of up to 32 values and returns the exponent byte.
static uint8_t q8_quantise(const float *x, int32_t n, int8_t q[Q8_BLOCK])
{
	uint32_t e = q8_exponent(x, n);
	float inv = fmath_from_bits((254 - e) << 23); // 2^(127 - e), a normal number for every e that occurs (1 .. 248)
	int32_t any = 0;
	for (int32_t i = 0; i < n; i++) {
		int32_t v = fmath_round_int(x[i] * inv);
		q[i] = (int8_t)v;
		any |= v;
	}
	return any != 0 ? (uint8_t)e : 0;
}

static void q8_dequantise(uint8_t e, const int8_t *q, int32_t n, float *x)
{
	float d = fmath_from_bits((uint32_t)e << 23);
	for (int32_t i = 0; i < n; i++)
		x[i] = (float)q[i] * d;
}

static void q8_round(float *x, int32_t n)
{
	int8_t q[Q8_BLOCK];
	for (int32_t i = 0; i < n; i += Q8_BLOCK) {
		int32_t len = n - i < Q8_BLOCK ? n - i : Q8_BLOCK;
		q8_dequantise(q8_quantise(x + i, len, q), q, len, x + i);
	}
}

enum err wire_round(enum wire_type t, float *x, int32_t n, int32_t *bad)
{
	static const uint32_t last[N_WIRE_TYPES] = {
		[WIRE_F32] = F32_LAST, [WIRE_BF16] = BF16_LAST, [WIRE_F16] = F16_LAST, [WIRE_Q8] = Q8_LAST};
	ASSERT((unsigned)t < N_WIRE_TYPES);
	*bad = wire_first_above(x, n, last[t]);
	if (*bad < n)
		return ERR_NON_FINITE;
	switch (t) {
	case WIRE_F32: break;
	case WIRE_BF16:
		for (int32_t i = 0; i < n; i++)
			x[i] = fmath_bf16_to_f32(fmath_f32_to_bf16(x[i]));
		break;
	case WIRE_F16:
		for (int32_t i = 0; i < n; i++)
			x[i] = fmath_f16_to_f32(fmath_f32_to_f16(x[i]));
		break;
	case WIRE_Q8: q8_round(x, n); break;
	}
	return OK;
}

static void q8_encode(const float *x, int32_t n, uint8_t *out)
{
	for (int32_t i = 0; i < n; i += Q8_BLOCK, out += Q8_BLOCK_BYTES) {
		int8_t q[Q8_BLOCK] = {0};
		out[0] = q8_quantise(x + i, n - i < Q8_BLOCK ? n - i : Q8_BLOCK, q);
		memcpy(out + 1, q, Q8_BLOCK);
	}
}

void wire_encode(enum wire_type t, const float *x, int32_t n, uint8_t *out)
{
	switch (t) {
	case WIRE_F32:
		for (int32_t i = 0; i < n; i++)
			store_u32(out + 4 * (size_t)i, fmath_bits(x[i]));
		break;
	case WIRE_BF16:
		for (int32_t i = 0; i < n; i++)
			store_u16(out + 2 * (size_t)i, fmath_f32_to_bf16(x[i]));
		break;
	case WIRE_F16:
		for (int32_t i = 0; i < n; i++)
			store_u16(out + 2 * (size_t)i, fmath_f32_to_f16(x[i]));
		break;
	case WIRE_Q8: q8_encode(x, n, out); break;
	}
}

// q8_check tells whether an encoder writes this block: the smallest exponent for its values, and nothing in the fill.
static enum err q8_check(uint8_t e, const int8_t q[Q8_BLOCK], int32_t n)
{
	int32_t max = 0, fill = 0;
	for (int32_t i = 0; i < Q8_BLOCK; i++) {
		int32_t a = q[i] < 0 ? -q[i] : q[i];
		max = a > max ? a : max;
		fill |= i >= n ? a : 0;
	}

	if (e == 255 || (float)max * fmath_from_bits((uint32_t)e << 23) > fmath_from_bits(F32_LAST))
		return ERR_NON_FINITE;
	if (fill != 0 || max > Q8_MAX || (e == 0) != (max == 0) || (e > 1 && max < 64))
		return ERR_FORMAT;
	return OK;
}

static enum err q8_decode(const uint8_t *in, int32_t n, float *out)
{
	for (int32_t i = 0; i < n; i += Q8_BLOCK, in += Q8_BLOCK_BYTES) {
		int32_t len = n - i < Q8_BLOCK ? n - i : Q8_BLOCK;
		int8_t q[Q8_BLOCK];
		memcpy(q, in + 1, Q8_BLOCK);
		enum err err = q8_check(in[0], q, len);
		if (err != OK)
			return err;
		q8_dequantise(in[0], q, len, out + i);
	}
	return OK;
}

enum err wire_decode(enum wire_type t, const uint8_t *in, int32_t n, float *out)
{
	switch (t) {
	case WIRE_F32:
		for (int32_t i = 0; i < n; i++)
			out[i] = fmath_from_bits(load_u32(in + 4 * (size_t)i));
		break;
	case WIRE_BF16:
		for (int32_t i = 0; i < n; i++)
			out[i] = fmath_bf16_to_f32(load_u16(in + 2 * (size_t)i));
		break;
	case WIRE_F16:
		for (int32_t i = 0; i < n; i++)
			out[i] = fmath_f16_to_f32(load_u16(in + 2 * (size_t)i));
		break;
	case WIRE_Q8: return q8_decode(in, n, out);
	}
	return wire_first_above(out, n, F32_LAST) < n ? ERR_NON_FINITE : OK;
}
