// How the bytes of each weight type are read. Layouts: the GGUF specification's block structures; all little-endian.
//
//   q8_0: f16 d; int8 q[32]                      q4_0: f16 d; nibbles[16]          q4_1: f16 d; f16 m; nibbles[16]
//   q5_0: f16 d; u32 high bits; nibbles[16]      q5_1: f16 d; f16 m; u32 high bits; nibbles[16]
// Nibbles: byte i holds element i in its low half and element i + 16 in its high half. Bit i of the high bits is bit 4 of
// element i. q4_0 subtracts 8, q5_0 subtracts 16.
//
// K-quants, super-blocks of 256 elements:
//   q4_k: f16 d; f16 dmin; packed scales and mins[12]; nibbles[128]
//   q5_k: f16 d; f16 dmin; packed scales and mins[12]; high bits[32]; nibbles[128]
//   q6_k: nibbles[128]; high pairs of bits[64]; int8 scales[16]; f16 d
//   q3_k: high bits[32]; pairs of bits[64]; packed scales[12]; f16 d
// Nibbles of q4_k and q5_k: bytes 32j to 32j + 31 hold elements 64j to 64j + 31 in their low halves and the next 32 in their high
// halves. Bit s of high byte i is bit 4 of element 32s + i.
// q6_k and q3_k lie in two halves of 128 elements. Half h, q6_k: byte 64h + i (i < 64) of the nibbles holds element i in its low half and
// i + 64 in its high one; bits 2s and 2s + 1 of byte 32h + i of the pairs are bits 4 and 5 of element 32s + i. Minus 32.
// q3_k: bits 2s and 2s + 1 of byte 32h + i of the pairs are bits 0 and 1 of element 32s + i, bit 4h + s of high byte i is bit 2. Minus 4.
#include "kernels/kernels_impl.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/fmath.h"

static void unpack_nibbles(const uint8_t *p, int offset, int8_t *q)
{
	for (int i = 0; i < BLOCK_LEN / 2; i++) {
		q[i] = (int8_t)((p[i] & 15) - offset);
		q[i + 16] = (int8_t)((p[i] >> 4) - offset);
	}
}

static void unpack_five_bits(const uint8_t *p, int offset, int8_t *q)
{
	uint32_t high = load_u32(p);
	unpack_nibbles(p + 4, 0, q);
	for (int i = 0; i < BLOCK_LEN; i++)
		q[i] = (int8_t)((q[i] | (int)((high >> i) & 1) << 4) - offset);
}

void block32_unpack(enum dtype type, const uint8_t *p, struct block32 *out)
{
	out->scale = fmath_f16_to_f32(load_u16(p));
	out->min = type_has_min(type) ? fmath_f16_to_f32(load_u16(p + 2)) : 0.0f;
	switch (type) {
	case DTYPE_Q8_0: memcpy(out->q, p + 2, BLOCK_LEN); break;
	case DTYPE_Q4_0: unpack_nibbles(p + 2, 8, out->q); break;
	case DTYPE_Q4_1: unpack_nibbles(p + 4, 0, out->q); break;
	case DTYPE_Q5_0: unpack_five_bits(p + 2, 16, out->q); break;
	case DTYPE_Q5_1: unpack_five_bits(p + 4, 0, out->q); break;
	default: ASSERT(!"a type with blocks of 32");
	}
}

// unpack_scales_mins reads eight scales and eight mins of 6 bits. Bytes 0 to 3 and 4 to 7 begin with the low six bits of scales and mins
// 0 to 3; the low and high halves of bytes 8 to 11 are the low four bits of scales and mins 4 to 7, whose upper two are the
// upper two of bytes 0 to 3 and 4 to 7.
static void unpack_scales_mins(const uint8_t *p, struct block256 *out)
{
	for (int j = 0; j < 4; j++) {
		out->scale[2 * j] = (int8_t)(p[j] & 63);
		out->min[j] = p[j + 4] & 63;
		out->scale[2 * j + 8] = (int8_t)((p[j + 8] & 15) | p[j] >> 6 << 4);
		out->min[j + 4] = (uint8_t)(p[j + 8] >> 4 | p[j + 4] >> 6 << 4);
	}
	for (int j = 0; j < 8; j++)
		out->scale[2 * j + 1] = out->scale[2 * j];
}

// unpack_q3_scales reads sixteen scales of 6 bits, minus 32: the low four bits of scales j and j + 8 are the halves of byte j; bits 2k
// and 2k + 1 of byte 8 + j are the upper two of scale 4k + j.
static void unpack_q3_scales(const uint8_t *p, int8_t *scale)
{
	for (int j = 0; j < 16; j++) {
		int low = j < 8 ? p[j] & 15 : p[j - 8] >> 4, high = p[8 + j % 4] >> (2 * (j / 4)) & 3;
		scale[j] = (int8_t)((low | high << 4) - 32);
	}
}

static void unpack_super_nibbles(const uint8_t *p, int8_t *q)
{
	for (int j = 0; j < 4; j++) {
		for (int i = 0; i < 32; i++) {
			q[64 * j + i] = (int8_t)(p[32 * j + i] & 15);
			q[64 * j + i + 32] = (int8_t)(p[32 * j + i] >> 4);
		}
	}
}

static void unpack_q5_k(const uint8_t *p, int8_t *q)
{
	unpack_super_nibbles(p + 32, q);
	for (int s = 0; s < 8; s++) {
		for (int i = 0; i < 32; i++)
			q[32 * s + i] = (int8_t)(q[32 * s + i] | (p[i] >> s & 1) << 4);
	}
}

static void unpack_q6_k(const uint8_t *p, int8_t *q)
{
	for (int h = 0; h < 2; h++) {
		const uint8_t *pairs = p + 128 + 32 * h;
		for (int s = 0; s < 4; s++, q += 32) {
			const uint8_t *low = p + 64 * h + 32 * (s % 2);
			for (int i = 0; i < 32; i++)
				q[i] = (int8_t)(((low[i] >> (s / 2 * 4) & 15) | (pairs[i] >> (2 * s) & 3) << 4) - 32);
		}
	}
}

static void unpack_q3_k(const uint8_t *p, int8_t *q)
{
	for (int h = 0; h < 2; h++) {
		const uint8_t *pairs = p + 32 + 32 * h;
		for (int s = 0; s < 4; s++, q += 32) {
			for (int i = 0; i < 32; i++)
				q[i] = (int8_t)(((pairs[i] >> (2 * s) & 3) | (p[i] >> (4 * h + s) & 1) << 2) - 4);
		}
	}
}

void block256_unpack(enum dtype type, const uint8_t *p, struct block256 *out)
{
	if (type_has_min(type)) {
		out->d = fmath_f16_to_f32(load_u16(p));
		out->dmin = fmath_f16_to_f32(load_u16(p + 2));
		unpack_scales_mins(p + 4, out);
		(type == DTYPE_Q4_K ? unpack_super_nibbles : unpack_q5_k)(p + 16, out->q);
		return;
	}
	out->dmin = 0.0f;
	memset(out->min, 0, sizeof(out->min));
	if (type == DTYPE_Q6_K) {
		unpack_q6_k(p, out->q);
		memcpy(out->scale, p + 192, sizeof(out->scale));
		out->d = fmath_f16_to_f32(load_u16(p + 208));
		return;
	}
	ASSERT(type == DTYPE_Q3_K);
	unpack_q3_k(p, out->q);
	unpack_q3_scales(p + 96, out->scale);
	out->d = fmath_f16_to_f32(load_u16(p + 108));
}

float weight_at(enum dtype type, const uint8_t *row, int32_t i)
{
	switch (type) {
	case DTYPE_F32: return fmath_from_bits(load_u32(row + (size_t)i * 4));
	case DTYPE_F16: return fmath_f16_to_f32(load_u16(row + (size_t)i * 2));
	case DTYPE_BF16: return fmath_bf16_to_f32(load_u16(row + (size_t)i * 2));
	default: ASSERT(!"a float type");
	}
	return 0.0f;
}

static void block32_to_f32(enum dtype type, const uint8_t *p, float *out)
{
	struct block32 block;
	block32_unpack(type, p, &block);
	for (int i = 0; i < BLOCK_LEN; i++)
		out[i] = type_has_min(type) ? fmaf((float)block.q[i], block.scale, block.min) : (float)block.q[i] * block.scale;
}

static void block256_to_f32(enum dtype type, const uint8_t *p, float *out)
{
	struct block256 block;
	block256_unpack(type, p, &block);
	for (int i = 0; i < SUPER_LEN; i++) {
		float scale = block.d * (float)block.scale[i / 16], w = (float)block.q[i];
		out[i] = type_has_min(type) ? fmaf(w, scale, -(block.dmin * (float)block.min[i / 32])) : w * scale;
	}
}

void kernels_row_to_f32(const struct weight *w, int32_t row, float *out)
{
	ASSERT(row >= 0);
	ASSERT(row < w->rows);
	const uint8_t *p = weight_row(w, row);
	if (kernels_act_kind(w->type) == ACT_F32) {
		for (int32_t i = 0; i < w->cols; i++)
			out[i] = weight_at(w->type, p, i);
		return;
	}
	const struct dtype_info *info = dtype_find((uint32_t)w->type);
	bool is_super = info->block_len == SUPER_LEN;
	for (const float *end = out + w->cols; out < end; out += info->block_len, p += info->block_bytes)
		(is_super ? block256_to_f32 : block32_to_f32)(w->type, p, out);
}
