// Private to the quant_tiles_*.c files: rule 5 for several tokens, but for the products themselves. tiles.h says how and what is defined
// before.
#ifndef HEARTH_KERNELS_QUANT_TILES_H
#define HEARTH_KERNELS_QUANT_TILES_H

#define TILE_BLOCK_LEN BLOCK_LEN
#define TILE_LANES QUANT_LANES
#define GROUPS 8 // vectors of one block: 32 elements, 4 per row and vector

struct tile {
	tile_ints w[TILE_BLOCKS][GROUPS]; // without its offset; q8_0: what weights_of_q8 makes of it
	tile_floats d[TILE_BLOCKS];
	tile_floats m[TILE_BLOCKS]; // for types with a min
};

struct tokens {
	const int8_t *q;
	const float *d;
	const int32_t *qsum;
	size_t q_stride; // from one token to the next
	size_t d_stride; // likewise for d and qsum
};

#include "kernels/tiles.h"

// add_fifth_bits adds 16 to the elements of group g whose bit among bits 4g to 4g + 3 of each row's dword is set.
INLINE tile_ints add_fifth_bits(tile_ints w, tile_ints high, int g);
// weights_of_q8 returns signed bytes as the products of this width take them.
INLINE tile_ints weights_of_q8(tile_ints w);

INLINE struct tokens tokens_at(const struct acts *a, int32_t t, int32_t b)
{
	return (struct tokens){
		.q = acts_q(a, t) + (size_t)b * BLOCK_LEN,
		.d = acts_d(a, t) + b,
		.qsum = acts_qsum(a, t) + b,
		.q_stride = (size_t)a->cols,
		.d_stride = (size_t)(a->cols / BLOCK_LEN),
	};
}

INLINE void unpack_block(enum dtype type, const uint8_t *const rows[TILE_ROWS], size_t at, struct tile *tile, int32_t b)
{
	tile_ints head = load_dwords(rows, at), v[GROUPS];
	tile->d[b] = low_halves(head);
	if (type_has_min(type))
		tile->m[b] = high_halves(head);
	if (type == DTYPE_Q8_0) {
		load_transposed(rows, at + 2, v);
		load_transposed(rows, at + 18, v + 4);
		for (int g = 0; g < GROUPS; g++)
			tile->w[b][g] = weights_of_q8(v[g]);
		return;
	}
	size_t high_at = at + (type_has_min(type) ? 4 : 2);
	load_transposed(rows, high_at + (type_has_fifth_bit(type) ? 4 : 0), v);
	for (int g = 0; g < 4; g++) {
		v[g + 4] = byte_bits(v[g], 4, 15);
		v[g] = byte_bits(v[g], 0, 15);
	}
	if (type_has_fifth_bit(type)) {
		tile_ints high = load_dwords(rows, high_at);
#pragma GCC unroll 8
		for (int g = 0; g < GROUPS; g++)
			v[g] = add_fifth_bits(v[g], high, g);
	}
	for (int g = 0; g < GROUPS; g++)
		tile->w[b][g] = v[g];
}

// matmul_quant is the whole of rule 5, each type with code of its own.
INLINE void matmul_quant(int32_t n_lanes, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end,
	const struct nodes_sink *to)
{
	switch (w->type) {
	case DTYPE_Q4_0: matmul_tiles(DTYPE_Q4_0, n_lanes, w, a, row_begin, row_end, to); break;
	case DTYPE_Q4_1: matmul_tiles(DTYPE_Q4_1, n_lanes, w, a, row_begin, row_end, to); break;
	case DTYPE_Q5_0: matmul_tiles(DTYPE_Q5_0, n_lanes, w, a, row_begin, row_end, to); break;
	case DTYPE_Q5_1: matmul_tiles(DTYPE_Q5_1, n_lanes, w, a, row_begin, row_end, to); break;
	default: matmul_tiles(DTYPE_Q8_0, n_lanes, w, a, row_begin, row_end, to); break;
	}
}

#endif
