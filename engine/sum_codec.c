#include "engine/sum_codec.h"

#include "base/bytes.h"
#include "base/fmath.h"
#include "base/tensor_split.h"
#include "engine/wire.h"

#include <string.h>

#define BLOCK SPLIT_Q8_BLOCK
#define Q_MAX 127
#define D_LEAST 0x1p-67f // as in rule 4, what is below 2^-60 counts as nothing
#define D_LAST 0x1p120f
#define LAST (Q_MAX * D_LAST)

static int32_t block_len(int32_t n, int32_t begin)
{
	return n - begin < BLOCK ? n - begin : BLOCK;
}

// scale_of returns d: 0, where all q are. Rounding moves it by 2^-8 at most, so that the largest value is between 126.5 and 127.5 d: its q is 127.
static uint16_t scale_of(const float *x, int32_t n)
{
	uint32_t m = 0;
	for (int32_t i = 0; i < n; i++) {
		uint32_t a = fmath_bits(x[i]) & 0x7fffffff;
		m = a > m ? a : m;
	}
	uint16_t d = fmath_f32_to_bf16(fmath_from_bits(m) / Q_MAX);
	return fmath_bf16_to_f32(d) < D_LEAST ? 0 : d;
}

static void quantise(uint16_t d, const float *x, int32_t n, int8_t *q)
{
	float inv = d != 0 ? 1.0f / fmath_bf16_to_f32(d) : 0;
	for (int32_t i = 0; i < n; i++)
		q[i] = (int8_t)fmath_round_int(x[i] * inv);
}

static void dequantise(uint16_t d, const int8_t *q, int32_t n, float *x)
{
	float scale = fmath_bf16_to_f32(d);
	for (int32_t i = 0; i < n; i++)
		x[i] = (float)q[i] * scale;
}

enum err sum_round(enum wire_type t, float *x, int32_t n, int32_t *bad)
{
	if (t != WIRE_Q8)
		return wire_round(t, x, n, bad);
	*bad = wire_first_above(x, n, fmath_bits(LAST));
	if (*bad < n)
		return ERR_NON_FINITE;
	for (int32_t i = 0; i < n; i += BLOCK) {
		int8_t q[BLOCK];
		int32_t len = block_len(n, i);
		uint16_t d = scale_of(x + i, len);
		quantise(d, x + i, len, q);
		dequantise(d, q, len, x + i);
	}
	return OK;
}

void sum_encode(enum wire_type t, const float *x, int32_t n, uint8_t *out)
{
	if (t != WIRE_Q8) {
		wire_encode(t, x, n, out);
		return;
	}
	for (int32_t i = 0; i < n; i += BLOCK) {
		int8_t q[BLOCK];
		int32_t len = block_len(n, i);
		uint16_t d = scale_of(x + i, len);
		quantise(d, x + i, len, q);
		store_u16(out, d);
		memcpy(out + 2, q, (size_t)len);
		out += 2 + len;
	}
}

// check tells whether an encoder writes this block.
static enum err check(uint16_t d, const int8_t *q, int32_t n)
{
	int32_t max = 0;
	float scale = fmath_bf16_to_f32(d);
	for (int32_t i = 0; i < n; i++) {
		int32_t a = q[i] < 0 ? -q[i] : q[i];
		max = a > max ? a : max;
	}
	if (!fmath_is_finite(scale))
		return ERR_NON_FINITE;
	if (d == 0)
		return max == 0 ? OK : ERR_FORMAT;
	return max == Q_MAX && scale >= D_LEAST && scale <= D_LAST ? OK : ERR_FORMAT;
}

enum err sum_decode(enum wire_type t, const uint8_t *in, int32_t n, float *out)
{
	if (t != WIRE_Q8)
		return wire_decode(t, in, n, out);
	for (int32_t i = 0; i < n; i += BLOCK) {
		int8_t q[BLOCK];
		int32_t len = block_len(n, i);
		uint16_t d = load_u16(in);
		memcpy(q, in + 2, (size_t)len);
		enum err err = check(d, q, len);
		if (err != OK)
			return err;
		dequantise(d, q, len, out + i);
		in += 2 + len;
	}
	return OK;
}
