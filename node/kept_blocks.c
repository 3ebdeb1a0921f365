// Where rows of kept states are on disk. See node_state.h.
#include "node/node_state.h"

#include "base/assert.h"

void kept_blocks_lay_out(struct kept_blocks *b, uint64_t bytes, size_t row_bytes)
{
	*b = (struct kept_blocks){.frame_bytes = row_bytes + NODE_KEPT_FRAME_EXTRA};
	uint64_t n_rows = bytes / b->frame_bytes;
	n_rows = n_rows > INT32_MAX ? INT32_MAX : n_rows;
	if (n_rows == 0)
		return;
	b->rows = (int32_t)((n_rows + KEPT_BLOCKS_MAX - 1) / KEPT_BLOCKS_MAX);
	b->n = (int32_t)n_rows / b->rows;
	for (int32_t i = 0; i < b->n; i++)
		b->at[i].entry = -1;
}

static int32_t find(const struct kept_blocks *b, int32_t entry, int32_t index)
{
	for (int32_t i = 0; i < b->n; i++)
		if (b->at[i].entry == entry && b->at[i].index == index)
			return i;
	return -1;
}

bool kept_blocks_reserve(struct kept_blocks *b, int32_t entry, int32_t begin, int32_t end)
{
	if (begin >= end)
		return true;
	if (b->n == 0)
		return false;
	int32_t first = begin / b->rows, last = (end - 1) / b->rows, n_missing = 0;
	for (int32_t i = first; i <= last; i++)
		n_missing += find(b, entry, i) < 0;
	if (n_missing > b->n - b->n_used)
		return false;
	for (int32_t i = first, at = 0; i <= last && n_missing > 0; i++) {
		if (find(b, entry, i) >= 0)
			continue;
		while (b->at[at].entry >= 0)
			at++;
		b->at[at] = (struct kept_block){.entry = entry, .index = i};
		b->n_used++;
		n_missing--;
	}
	return true;
}

int32_t kept_blocks_runs(const struct kept_blocks *b, int32_t entry, int32_t begin, int32_t end, struct node_disk_run runs[KEPT_BLOCKS_MAX])
{
	int32_t n = 0;
	for (int32_t pos = begin; pos < end;) {
		int32_t block = find(b, entry, pos / b->rows), in_block = pos % b->rows;
		ASSERT(block >= 0 && n < KEPT_BLOCKS_MAX);
		int32_t n_rows = b->rows - in_block < end - pos ? b->rows - in_block : end - pos;
		runs[n++] = (struct node_disk_run){.frame = (uint32_t)block * (uint32_t)b->rows + (uint32_t)in_block, .n_rows = n_rows};
		pos += n_rows;
	}
	return n;
}

void kept_blocks_free(struct kept_blocks *b, int32_t entry)
{
	for (int32_t i = 0; i < b->n && b->n_used > 0; i++) {
		if (b->at[i].entry != entry)
			continue;
		b->at[i].entry = -1;
		b->n_used--;
	}
}
