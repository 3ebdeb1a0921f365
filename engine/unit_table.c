#include "engine/unit_table.h"

#include "base/assert.h"

#include <stdlib.h>

static int64_t n_tiles(const struct tensor_view *m)
{
	return ((int64_t)m->rows + UNIT_ROWS - 1) / UNIT_ROWS;
}

// block_rows returns the first row of block `i` of n: blocks differ by at most one tile.
static int32_t block_rows(const struct tensor_view *m, int64_t i, int64_t n)
{
	int64_t row = n_tiles(m) * i / n * UNIT_ROWS;
	return row < m->rows ? (int32_t)row : m->rows;
}

// largest_block bounds a block of n from above.
static uint64_t largest_block(const struct tensor_view *const *matrices, int32_t n_matrices, int64_t n)
{
	uint64_t bytes = 0;
	for (int32_t i = 0; i < n_matrices; i++) {
		int64_t rows = (n_tiles(matrices[i]) + n - 1) / n * UNIT_ROWS;
		bytes += (uint64_t)(rows < matrices[i]->rows ? rows : matrices[i]->rows) * matrices[i]->row_bytes;
	}
	return bytes;
}

static int64_t choose_blocks(const struct tensor_view *const *matrices, int32_t n_matrices, uint64_t bytes_max)
{
	int64_t most = 1, n = 1;
	for (int32_t i = 0; i < n_matrices; i++)
		most = n_tiles(matrices[i]) > most ? n_tiles(matrices[i]) : most;
	while (n < most && largest_block(matrices, n_matrices, n) > bytes_max)
		n++;
	return n;
}

static struct unit *append(struct unit_table *t)
{
	if (t->n == t->cap) {
		int32_t cap = t->cap > 0 ? 2 * t->cap : 64;
		struct unit *units = realloc(t->units, (size_t)cap * sizeof *units);
		if (units == NULL)
			return NULL;
		t->units = units;
		t->cap = cap;
	}
	return &t->units[t->n++];
}

enum err unit_table_add(struct unit_table *t, int32_t layer, enum unit_kind kind, const struct tensor_view *const *matrices,
	int32_t n_matrices, uint64_t bytes_max, struct unit_run *run)
{
	ASSERT(n_matrices >= 1);
	ASSERT(n_matrices <= UNIT_PARTS_MAX);
	int64_t n = choose_blocks(matrices, n_matrices, bytes_max);
	run->begin = t->n;
	for (int64_t i = 0; i < n; i++) {
		struct unit *u = append(t);
		if (u == NULL)
			return ERR_NOMEM;
		*u = (struct unit){.layer = layer, .kind = kind, .n_parts = n_matrices};
		for (int32_t p = 0; p < n_matrices; p++) {
			const struct tensor_view *m = matrices[p];
			struct unit_part *part = &u->parts[p];
			part->row_begin = block_rows(m, i, n);
			part->row_end = block_rows(m, i + 1, n);
			part->at = m->at + (uint64_t)part->row_begin * m->row_bytes;
			part->bytes = (uint64_t)(part->row_end - part->row_begin) * m->row_bytes;
			u->bytes += part->bytes;
		}
	}
	run->end = t->n;
	return OK;
}

uint64_t unit_table_bytes(const struct unit_table *t)
{
	uint64_t bytes = 0;
	for (int32_t i = 0; i < t->n; i++)
		bytes += t->units[i].bytes;
	return bytes;
}

void unit_table_deinit(struct unit_table *t)
{
	free(t->units);
	*t = (struct unit_table){0};
}
