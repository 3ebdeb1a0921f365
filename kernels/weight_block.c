// How the bytes of each weight type are read. Layouts: the GGUF specification's block structures; all little-endian.
//
//   q8_0: f16 d; int8 q[32]                      q4_0: f16 d; nibbles[16]          q4_1: f16 d; f16 m; nibbles[16]
//   q5_0: f16 d; u32 high bits; nibbles[16]      q5_1: f16 d; f16 m; u32 high bits; nibbles[16]
// Nibbles: byte i holds element i in its low half and element i + 16 in its high half. Bit i of the high bits is bit 4 of
// element i. q4_0 subtracts 8, q5_0 subtracts 16.
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
	uint32_t bytes = dtype_find((uint32_t)w->type)->block_bytes;
	for (int32_t b = 0; b < w->cols / BLOCK_LEN; b++, p += bytes, out += BLOCK_LEN) {
		struct block32 block;
		block32_unpack(w->type, p, &block);
		for (int i = 0; i < BLOCK_LEN; i++)
			out[i] = type_has_min(w->type) ? fmaf((float)block.q[i], block.scale, block.min) : (float)block.q[i] * block.scale;
	}
}
