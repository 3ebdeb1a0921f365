// Private to the k_tiles_*.c files: rules 6 and 7 for several tokens, but for the products of a super-block. tiles.h says how and what is
// defined before.
#ifndef HEARTH_KERNELS_K_TILES_H
#define HEARTH_KERNELS_K_TILES_H

#include "kernels/k_scales.h"

#define TILE_BLOCK_LEN SUPER_LEN
#define TILE_LANES SUPER_LANES
#define SUPER_GROUPS 64 // vectors of one super-block: 256 elements, 4 per row and vector

struct super {
	tile_ints w[SUPER_GROUPS]; // without offset
	tile_ints scale[16];       // of 16 elements, or of 32: then only eight. As byte_scale makes them
	tile_ints pairs[8];        // q6_k, q3_k: scales 2k and 2k + 1 of a row side by side; q4_k, q5_k: the first four, mins likewise
	tile_floats d, dmin;
};

struct tile {
	struct super supers[TILE_BLOCKS];
};

struct tokens {
	const int8_t *q;
	const float *d;
	const int16_t *sum16, *sum32;
	size_t n_supers; // of a token: what lies from one to the next
};

#include "kernels/tiles.h"

// byte_scale returns byte i of each dword, with its sign, as the sums of a row are multiplied with it.
INLINE tile_ints byte_scale(tile_ints v, int i);
// byte_pair returns bytes i and i + 1 (i even) of each dword as two 16-bit integers with their signs.
INLINE tile_ints byte_pair(tile_ints v, int i);
// super_dots sets s to the sums of scale * w * q of one super-block for n tokens, for all rows each.
INLINE void super_dots(enum dtype type, int n, const struct super *p, const int8_t *q, size_t q_stride, tile_ints *s);

INLINE struct tokens tokens_at(const struct acts *a, int32_t t, int32_t b)
{
	return (struct tokens){
		.q = acts_q(a, t) + (size_t)b * SUPER_LEN,
		.d = acts_d(a, t) + b,
		.sum16 = acts_sum16(a, t) + (size_t)b * 16,
		.sum32 = acts_sum32(a, t) + (size_t)b * 8,
		.n_supers = (size_t)(a->cols / SUPER_LEN),
	};
}

// unpack_scales fills scale, pairs, d and dmin of the rows' blocks.
INLINE void unpack_scales(enum dtype type, const uint8_t *const rows[TILE_ROWS], size_t at, struct super *out)
{
	uint64_t packed[TILE_ROWS][2];
	const uint8_t *lines[TILE_ROWS];
	for (int r = 0; r < TILE_ROWS; r++) {
		lines[r] = (const uint8_t *)packed[r];
		if (type_has_min(type))
			k_scales_mins(rows[r] + at, &packed[r][0], &packed[r][1]);
		else if (type == DTYPE_Q3_K)
			k_q3_scales(rows[r] + at, packed[r]);
		else
			memcpy(packed[r], rows[r] + at + 192, 16);
	}
	tile_ints v[4], head = load_dwords(rows, at + k_header_at(type));
	load_transposed(lines, 0, v);
	if (type_has_min(type)) {
		for (int k = 0; k < 8; k++)
			out->scale[k] = byte_scale(v[k / 4], k % 4);
		for (int k = 0; k < 4; k++)
			out->pairs[k] = byte_pair(v[2 + k / 2], k % 2 * 2);
		out->d = low_halves(head);
		out->dmin = high_halves(head);
		return;
	}
	for (int k = 0; k < 4 && type == DTYPE_Q3_K; k++)
		v[k] = sub_bytes(v[k], 32);
	for (int k = 0; k < 16; k++)
		out->scale[k] = byte_scale(v[k / 4], k % 4);
	for (int k = 0; k < 8; k++)
		out->pairs[k] = byte_pair(v[k / 2], k % 2 * 2);
	out->d = high_halves(head);
}

// unpack_nibbles fills the 64 vectors of q4_k, and the low four bits of q5_k.
INLINE void unpack_nibbles(const uint8_t *const rows[TILE_ROWS], size_t at, tile_ints *w)
{
	for (int c = 0; c < 8; c++) { // 16 bytes: elements 64 (c / 2) + 16 (c % 2) on, and 32 further on
		tile_ints v[4], *out = w + c / 2 * 16 + c % 2 * 4;
		load_transposed(rows, at + 16 * (size_t)c, v);
		for (int g = 0; g < 4; g++) {
			out[g] = byte_bits(v[g], 0, 15);
			out[g + 8] = byte_bits(v[g], 4, 15);
		}
	}
}

INLINE void unpack_q5_k(const uint8_t *const rows[TILE_ROWS], size_t at, tile_ints *w)
{
	tile_ints high[8];
	unpack_nibbles(rows, at + 48, w);
	load_transposed(rows, at + 16, high);
	load_transposed(rows, at + 32, high + 4);
#pragma GCC unroll 8
	for (unsigned s = 0; s < 8; s++) {
		for (unsigned g = 0; g < 8; g++)
			w[8 * s + g] = or_bits(w[8 * s + g], high[g], s, 4, 16);
	}
}

INLINE void unpack_q6_k(const uint8_t *const rows[TILE_ROWS], size_t at, tile_ints *w)
{
	for (size_t half = 0; half < 2; half++, w += 32) {
		tile_ints low[16], pairs[8];
		for (size_t c = 0; c < 4; c++)
			load_transposed(rows, at + 64 * half + 16 * c, low + 4 * c);
		load_transposed(rows, at + 128 + 32 * half, pairs);
		load_transposed(rows, at + 144 + 32 * half, pairs + 4);
		for (int g = 0; g < 8; g++) {
			w[g] = or_bits(byte_bits(low[g], 0, 15), pairs[g], 0, 4, 48);
			w[g + 8] = or_bits(byte_bits(low[g + 8], 0, 15), pairs[g], 2, 4, 48);
			w[g + 16] = or_bits(byte_bits(low[g], 4, 15), pairs[g], 4, 4, 48);
			w[g + 24] = or_bits(byte_bits(low[g + 8], 4, 15), pairs[g], 6, 4, 48);
		}
	}
}

INLINE void unpack_q3_k(const uint8_t *const rows[TILE_ROWS], size_t at, tile_ints *w)
{
	tile_ints high[8];
	load_transposed(rows, at, high);
	load_transposed(rows, at + 16, high + 4);
	for (unsigned half = 0; half < 2; half++) {
		tile_ints pairs[8];
		load_transposed(rows, at + 32 + 32 * half, pairs);
		load_transposed(rows, at + 48 + 32 * half, pairs + 4);
#pragma GCC unroll 4
		for (unsigned s = 0; s < 4; s++) {
			for (unsigned g = 0; g < 8; g++) {
				tile_ints low = byte_bits(pairs[g], 2 * s, 3);
				w[32 * half + 8 * s + g] = half == 0 ? or_bits(low, high[g], s, 2, 4) : or_bits(low, high[g], s + 4, 2, 4);
			}
		}
	}
}

INLINE void unpack_block(enum dtype type, const uint8_t *const rows[TILE_ROWS], size_t at, struct tile *tile, int32_t b)
{
	struct super *p = &tile->supers[b];
	unpack_scales(type, rows, at, p);
	switch (type) {
	case DTYPE_Q4_K: unpack_nibbles(rows, at + 16, p->w); break;
	case DTYPE_Q5_K: unpack_q5_k(rows, at, p->w); break;
	case DTYPE_Q6_K: unpack_q6_k(rows, at, p->w); break;
	default: unpack_q3_k(rows, at, p->w); break;
	}
}

// pair_dots returns the sum of pairs[k] * two neighbouring sums of the activations, over n pairs.
INLINE tile_ints pair_dots(const tile_ints *pairs, int n, const int16_t *sums)
{
	tile_ints s = {0};
	for (int k = 0; k < n; k++)
		s = add_pair_dots(s, pairs[k], load_i32(sums + 2 * k));
	return s;
}

INLINE void micro(enum dtype type, int32_t n_lanes, int n, const struct tile *tile, int32_t n_supers, const struct tokens *k,
	tile_floats (*lanes)[MICRO])
{
	for (int32_t b = 0, l = 0; b < n_supers; b++, l = next_lane(n_lanes, b, l)) {
		const struct super *p = &tile->supers[b];
		tile_ints s[MICRO];
		super_dots(type, n, p, k->q + (size_t)b * SUPER_LEN, k->n_supers * SUPER_LEN, s);
		for (int t = 0; t < n; t++) {
			size_t at = (size_t)t * k->n_supers + (size_t)b;
			tile_floats *lane = &lanes[l][t], v;
			if (type_has_min(type)) {
				tile_floats m = to_floats(pair_dots(p->pairs, 4, k->sum32 + 8 * at));
				v = fused_sub(to_floats(s[t]), p->d, m * p->dmin);
			} else {
				tile_ints offset = pair_dots(p->pairs, 8, k->sum16 + 16 * at);
				v = to_floats(sub_shifted(s[t], offset, k_offset_shift(type))) * p->d;
			}
			*lane = fused_add(v, all_floats(k->d[at]), *lane);
		}
	}
}

// matmul_k is the whole of rules 6 and 7, each type with code of its own.
INLINE void matmul_k(int32_t n_lanes, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end,
	const struct nodes_sink *to)
{
	switch (w->type) {
	case DTYPE_Q4_K: matmul_tiles(DTYPE_Q4_K, n_lanes, w, a, row_begin, row_end, to); break;
	case DTYPE_Q5_K: matmul_tiles(DTYPE_Q5_K, n_lanes, w, a, row_begin, row_end, to); break;
	case DTYPE_Q6_K: matmul_tiles(DTYPE_Q6_K, n_lanes, w, a, row_begin, row_end, to); break;
	default: matmul_tiles(DTYPE_Q3_K, n_lanes, w, a, row_begin, row_end, to); break;
	}
}

#endif
