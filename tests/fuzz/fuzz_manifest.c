// Any bytes as a manifest, a block set and a frame of a blocks link: what is accepted keeps its promises.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "blocks/block_frame.h"
#include "blocks/manifest.h"
#include "tests/support/fuzz.h"

#define SET_BLOCKS 300

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_manifest(const uint8_t *data, size_t size)
{
	struct manifest m;
	struct errmsg em;
	em.text[0] = '\0';
	if (manifest_parse(data, size, &m, &em) != OK) {
		require(strncmp(em.text, "manifest: ", 10) == 0);
		return;
	}
	uint64_t *words = calloc(block_set_words(m.n_blocks), sizeof *words);
	require(words != NULL);
	struct block_set set;
	block_set_init(&set, words, m.n_blocks);
	manifest_add_header(&m, &set);
	manifest_add_layers(&m, 0, INT32_MAX, &set);
	require(manifest_set_bytes(&m, &set) <= m.file_bytes);
	struct manifest_walk walk = {0};
	struct manifest_tensor t;
	uint32_t n = 0;
	while (manifest_next_tensor(&m, &walk, &t)) {
		require(t.offset >= m.header_bytes && t.bytes <= m.file_bytes - t.offset);
		manifest_add_extent(&m, t.offset, t.bytes, &set);
		n++;
	}
	require(n == m.n_tensors);
	free(words);
}

static void try_set(const uint8_t *data, size_t size)
{
	uint64_t words[2][(SET_BLOCKS + 63) / 64];
	uint8_t bytes[1 + (SET_BLOCKS + 7) / 8];
	struct block_set a, b;
	block_set_init(&a, words[0], SET_BLOCKS);
	block_set_init(&b, words[1], SET_BLOCKS);
	if (block_set_decode(data, size, &a) != OK) {
		require(block_set_count(&a) == 0);
		return;
	}
	require(block_set_next(&a, SET_BLOCKS) == SET_BLOCKS);
	require(block_set_decode(bytes, block_set_encode(&a, bytes), &b) == OK);
	require(block_set_common(&a, &b) == block_set_count(&a) && block_set_count(&a) == block_set_count(&b));
}

static void try_frame(const uint8_t *data, size_t size)
{
	struct block_frame f;
	uint8_t out[BLOCK_FRAME_SMALL_MAX];
	if (block_frame_decode(data, size, &f) != OK)
		return;
	size_t len = block_frame_encode(&f, out);
	require(len <= size && memcmp(out, data, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	uint8_t *copy = exact_copy(data + 1, size - 1);
	switch (data[0] % 3) {
	case 0: try_manifest(copy, size - 1); break;
	case 1: try_set(copy, size - 1); break;
	case 2: try_frame(copy, size - 1); break;
	}
	free(copy);
	return 0;
}
