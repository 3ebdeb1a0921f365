// Private to the *_tiles_*.c files: how a product of several tokens walks its weights, for any type of blocks and any width of vectors.
//
// TILE_ROWS rows lie across the lanes of a vector, so that the canonical lanes are vectors and neither a block's sum nor the TREE needs a
// horizontal step. A tile holds these rows over up to TILE_BLOCKS blocks, unpacked and re-arranged: a vector of it holds four neighbouring
// elements of each row. It is made once and used by up to TILE_TOKENS tokens; the lanes of a (token, rows) pair wait in memory between
// tiles.
//
// quant_tiles.h and k_tiles.h include this in their middle: the walk needs their struct tile (TILE_BLOCKS blocks of TILE_ROWS rows), struct
// tokens (the activations of the tokens a micro kernel works on, from a tile's first block on), TILE_BLOCK_LEN (elements of a block) and
// TILE_LANES (of the rule). A .c file defines TILE_BLOCKS and MICRO (tokens a micro kernel takes: 4 or 8) and includes tiles_avx2.h or
// tiles_avx512.h before either.
#ifndef HEARTH_KERNELS_TILES_H
#define HEARTH_KERNELS_TILES_H

#define TILE_TOKENS 64

// unpack_block fills block b of the tile from offset `at` of each row.
INLINE void unpack_block(enum dtype type, const uint8_t *const rows[TILE_ROWS], size_t at, struct tile *tile, int32_t b);
// tokens_at returns the activations of token t and those after it, from block b on.
INLINE struct tokens tokens_at(const struct acts *a, int32_t t, int32_t b);
// micro does n_blocks blocks, which lie on n_lanes lanes in turn from lane 0 on, for n tokens. lanes: (TILE_LANES, MICRO).
INLINE void micro(enum dtype type, int32_t n_lanes, int n, const struct tile *tile, int32_t n_blocks, const struct tokens *k,
	tile_floats (*lanes)[MICRO]);

// next_lane returns the lane of block b, that of the block before being l.
INLINE int32_t next_lane(int32_t n_lanes, int32_t b, int32_t l)
{
	if (n_lanes == TILE_LANES)
		return b % TILE_LANES;
	return l + 1 == n_lanes ? 0 : l + 1;
}

// load_tile unpacks blocks [b0, b0 + n), and asks for the same part of the rows after these: eight streams at once are more than the
// processor foresees (batches of 4 from memory: 1.4 times as fast). Asking past a tensor's end is harmless.
INLINE void load_tile(enum dtype type, const uint8_t *const rows[TILE_ROWS], size_t row_bytes, int32_t b0, int32_t n, struct tile *tile)
{
	for (int32_t b = 0; b < n; b++) {
		size_t at = (size_t)(b0 + b) * block_bytes(type);
		for (int r = 0; r < TILE_ROWS; r++) {
			for (size_t line = 0; line < block_bytes(type); line += CACHE_LINE)
				_mm_prefetch((const char *)((uintptr_t)rows[r] + TILE_ROWS * row_bytes + at + line), _MM_HINT_T0);
		}
		unpack_block(type, rows, at, tile, b);
	}
}

// tile_times_tokens adds the tile's part of the product to the lanes of tokens [begin, begin + n).
INLINE void tile_times_tokens(enum dtype type, int32_t n_lanes, const struct tile *tile, int32_t b0, int32_t n_blocks, const struct acts *a,
	int32_t begin, int32_t n, tile_floats (*lanes)[TILE_LANES][MICRO])
{
	for (; n >= MICRO; n -= MICRO, begin += MICRO, lanes++) {
		struct tokens k = tokens_at(a, begin, b0);
		micro(type, n_lanes, MICRO, tile, n_blocks, &k, *lanes);
	}
	struct tokens k = tokens_at(a, begin, b0);
	switch (n) {
#if MICRO > 4
	case 7: micro(type, n_lanes, 7, tile, n_blocks, &k, *lanes); break;
	case 6: micro(type, n_lanes, 6, tile, n_blocks, &k, *lanes); break;
	case 5: micro(type, n_lanes, 5, tile, n_blocks, &k, *lanes); break;
	case 4: micro(type, n_lanes, 4, tile, n_blocks, &k, *lanes); break;
#endif
	case 3: micro(type, n_lanes, 3, tile, n_blocks, &k, *lanes); break;
	case 2: micro(type, n_lanes, 2, tile, n_blocks, &k, *lanes); break;
	case 1: micro(type, n_lanes, 1, tile, n_blocks, &k, *lanes); break;
	default: break;
	}
}

// tree_of returns TREE of token t of a micro kernel's, for all rows.
INLINE tile_floats tree_of(tile_floats (*l)[MICRO], int32_t t)
{
	tile_floats first = (l[0][t] + l[1][t]) + (l[2][t] + l[3][t]);
#if TILE_LANES == 4
	return first;
#else
	return first + ((l[4][t] + l[5][t]) + (l[6][t] + l[7][t]));
#endif
}

// node_of returns the TREE of lanes [first, first + len), len 1, 2 or 4, of token t of a micro kernel's, for all rows.
INLINE tile_floats node_of(tile_floats (*l)[MICRO], int first, int len, int32_t t)
{
	tile_floats v = l[first][t];
	if (len > 1)
		v = v + l[first + 1][t];
	if (len > 2)
		v = v + (l[first + 2][t] + l[first + 3][t]);
	return v;
}

// store_nodes writes n_rows outputs of one token.
INLINE void store_nodes(int32_t n_lanes, const struct nodes_sink *to, int32_t row, int32_t n_rows, int32_t token,
	tile_floats (*l)[MICRO], int32_t t)
{
	float *y = to->y + (size_t)token * to->token_stride + row;
	if (n_lanes == TILE_LANES) {
		store_rows(y, n_rows, tree_of(l, t));
		return;
	}
	for (int32_t j = 0; j < to->n_nodes; j++)
		store_rows(y + (size_t)j * to->node_stride, n_rows, node_of(l, to->node[j].first, to->node[j].len, t));
}

// tile_rows computes n_rows (1 to TILE_ROWS) outputs of tokens [begin, begin + n). Rows past the last repeat it and are not written.
// Each tile begins in lane 0.
INLINE void tile_rows(enum dtype type, int32_t n_lanes, const struct weight *w, const struct acts *a, int32_t row, int32_t n_rows,
	int32_t begin, int32_t n, const struct nodes_sink *to)
{
	struct tile tile;
	tile_floats lanes[TILE_TOKENS / MICRO][TILE_LANES][MICRO];
	const uint8_t *rows[TILE_ROWS];
	for (int r = 0; r < TILE_ROWS; r++)
		rows[r] = weight_row(w, row + (r < n_rows ? r : n_rows - 1));
	memset(lanes, 0, (size_t)((n + MICRO - 1) / MICRO) * sizeof(lanes[0]));
	const int32_t n_blocks = w->cols / TILE_BLOCK_LEN, tile_blocks = TILE_BLOCKS - TILE_BLOCKS % n_lanes;
	for (int32_t b0 = 0; b0 < n_blocks; b0 += tile_blocks) {
		int32_t n_here = n_blocks - b0 < tile_blocks ? n_blocks - b0 : tile_blocks;
		load_tile(type, rows, w->row_bytes, b0, n_here, &tile);
		tile_times_tokens(type, n_lanes, &tile, b0, n_here, a, begin, n, lanes);
	}
	for (int32_t t = 0; t < n; t++)
		store_nodes(n_lanes, to, row, n_rows, begin + t, lanes[t / MICRO], t % MICRO);
}

INLINE void matmul_tiles(enum dtype type, int32_t n_lanes, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end,
	const struct nodes_sink *to)
{
	for (int32_t begin = 0; begin < a->n; begin += TILE_TOKENS) {
		int32_t n = a->n - begin < TILE_TOKENS ? a->n - begin : TILE_TOKENS;
		for (int32_t r = row_begin; r < row_end; r += TILE_ROWS)
			tile_rows(type, n_lanes, w, a, r, row_end - r < TILE_ROWS ? row_end - r : TILE_ROWS, begin, n, to);
	}
}

#endif
