#include "blocks/manifest.h"

#include "tests/support/block_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEADER 5000
#define TENSOR 3000
#define LAYERS 6

static void a_manifest_tells_what_it_was_made_of(void **state)
{
	(void)state;
	struct block_model b;
	block_model_open(&b, 1, LAYERS, HEADER, TENSOR, 100);
	assert_int_equal(b.m.file_bytes, HEADER + 2 * LAYERS * TENSOR + 100);
	assert_int_equal(b.m.header_bytes, HEADER);
	assert_int_equal(b.m.n_blocks, (b.m.file_bytes + MODEL_BLOCK - 1) / MODEL_BLOCK);
	assert_int_equal(b.m.n_tensors, 2 * LAYERS);
	assert_string_equal(b.m.name, "made.gguf");
	struct manifest_walk walk = {0};
	struct manifest_tensor t;
	uint32_t n = 0;
	while (manifest_next_tensor(&b.m, &walk, &t)) {
		assert_int_equal(t.offset, HEADER + n * TENSOR);
		assert_int_equal(t.bytes, TENSOR);
		assert_int_equal(t.name_len, 7);
		assert_memory_equal(t.name, "blk.", 4);
		n++;
	}
	assert_int_equal(n, 2 * LAYERS);
	block_model_close(&b);
}

static void a_block_matches_only_its_own_bytes(void **state)
{
	(void)state;
	struct block_model b;
	block_model_open(&b, 2, LAYERS, HEADER, TENSOR, 100);
	for (uint32_t i = 0; i < b.m.n_blocks; i++) {
		size_t len = manifest_block_bytes(&b.m, i);
		uint8_t copy[MODEL_BLOCK];
		memcpy(copy, block_model_block(&b, i), len);
		assert_true(manifest_block_matches(&b.m, i, copy, len));
		assert_false(manifest_block_matches(&b.m, (i + 1) % b.m.n_blocks, copy, len));
		assert_false(manifest_block_matches(&b.m, i, copy, len - 1));
		copy[len * i / b.m.n_blocks] ^= 1;
		assert_false(manifest_block_matches(&b.m, i, copy, len));
	}
	assert_false(manifest_block_matches(&b.m, b.m.n_blocks, b.bytes, MODEL_BLOCK));
	block_model_close(&b);
}

// Each byte of the layers, and only blocks that hold one of them.
static void layers_lie_in_the_blocks_that_hold_their_bytes(void **state)
{
	(void)state;
	struct block_model b;
	block_model_open(&b, 3, LAYERS, HEADER, TENSOR, 100);
	uint64_t words[4];
	for (int32_t begin = 0; begin <= LAYERS; begin++) {
		for (int32_t end = begin; end <= LAYERS; end++) {
			struct block_set set;
			block_set_init(&set, words, b.m.n_blocks);
			manifest_add_layers(&b.m, begin, end, &set);
			uint64_t from = HEADER + 2 * (uint64_t)begin * TENSOR, to = HEADER + 2 * (uint64_t)end * TENSOR;
			for (uint32_t i = 0; i < b.m.n_blocks; i++) {
				uint64_t at = (uint64_t)i * MODEL_BLOCK;
				assert_int_equal(block_set_has(&set, i), from < to && at < to && at + MODEL_BLOCK > from);
			}
		}
	}
	struct block_set set;
	block_set_init(&set, words, b.m.n_blocks);
	manifest_add_header(&b.m, &set);
	assert_int_equal(block_set_count(&set), 2);
	assert_int_equal(manifest_set_bytes(&b.m, &set), 2 * MODEL_BLOCK);
	block_set_add_range(&set, 0, set.n);
	assert_int_equal(manifest_set_bytes(&b.m, &set), b.m.file_bytes);
	block_model_close(&b);
}

static void a_manifest_cut_anywhere_is_refused(void **state)
{
	(void)state;
	struct block_model b;
	block_model_open(&b, 4, LAYERS, HEADER, TENSOR, 0);
	struct manifest m;
	struct errmsg em;
	for (size_t len = 0; len < b.manifest_len; len++) {
		uint8_t *copy = malloc(len > 0 ? len : 1);
		memcpy(copy, b.manifest, len);
		enum err e = manifest_parse(copy, len, &m, &em);
		assert_true(e == ERR_FORMAT || e == ERR_LIMIT);
		assert_int_equal(strncmp(em.text, "manifest: ", 10), 0);
		free(copy);
	}
	uint8_t *longer = malloc(b.manifest_len + 1);
	memcpy(longer, b.manifest, b.manifest_len);
	longer[b.manifest_len] = 0;
	assert_int_equal(manifest_parse(longer, b.manifest_len + 1, &m, &em), ERR_FORMAT);
	free(longer);
	block_model_close(&b);
}

static void parses(const struct block_model *b, size_t at, const void *bytes, size_t len, enum err want)
{
	struct manifest m;
	struct errmsg em;
	uint8_t *copy = malloc(b->manifest_len);
	memcpy(copy, b->manifest, b->manifest_len);
	memcpy(copy + at, bytes, len);
	assert_int_equal(manifest_parse(copy, b->manifest_len, &m, &em), want);
	if (want == OK)
		assert_memory_not_equal(m.hash, b->m.hash, BLOCK_HASH_BYTES);
	free(copy);
}

static void put_u64(uint8_t out[8], uint64_t v)
{
	store_u64(out, v);
}

static void numbers_out_of_range_are_refused(void **state)
{
	(void)state;
	struct block_model b;
	uint8_t v[8];
	block_model_open(&b, 5, LAYERS, HEADER, TENSOR, 0);
	static const uint64_t files[] = {0, 1, UINT64_MAX, UINT64_C(1) << 62, (uint64_t)BLOCKS_MAX * MODEL_BLOCK + 1};
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		put_u64(v, files[i]);
		parses(&b, 40, v, 8, files[i] == 1 ? ERR_FORMAT : ERR_LIMIT);
	}
	put_u64(v, b.m.file_bytes + 1); // header beyond the file
	parses(&b, 48, v, 8, ERR_FORMAT);
	put_u64(v, UINT64_MAX);
	parses(&b, 48, v, 8, ERR_FORMAT);
	static const uint32_t blocks[] = {0, 1, 4095, 4097, 2048, 6144, BLOCK_BYTES_MAX * 2u, UINT32_MAX, 0x80000000u};
	for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
		store_u32(v, blocks[i]);
		parses(&b, 56, v, 4, ERR_FORMAT);
	}
	static const uint32_t tensors[] = {2 * LAYERS + 1, 2 * LAYERS - 1, 0};
	for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
		store_u32(v, tensors[i]);
		parses(&b, 60, v, 4, ERR_FORMAT);
	}
	store_u32(v, UINT32_MAX);
	parses(&b, 60, v, 4, ERR_LIMIT);
	parses(&b, 64, "\x80", 1, ERR_FORMAT); // name of 128 bytes
	parses(&b, 0, "X", 1, ERR_FORMAT);
	parses(&b, 65, "x", 1, OK); // another name is another manifest
	block_model_close(&b);
}

static void tensors_that_overlap_or_leave_the_file_are_refused(void **state)
{
	(void)state;
	struct block_model b;
	uint8_t v[8];
	block_model_open(&b, 6, LAYERS, HEADER, TENSOR, 0);
	size_t first = (size_t)(b.m.tensors - b.manifest), second = first + 17 + 7;
	static const uint64_t offsets[] = {0, HEADER - 1, UINT64_MAX, UINT64_MAX - TENSOR + 1, HEADER + TENSOR};
	for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
		put_u64(v, offsets[i]);
		parses(&b, first, v, 8, ERR_FORMAT); // the last one: the second begins before the first ends
	}
	put_u64(v, HEADER + TENSOR - 1);
	parses(&b, second, v, 8, ERR_FORMAT);
	put_u64(v, UINT64_MAX);
	parses(&b, first + 8, v, 8, ERR_FORMAT);
	put_u64(v, TENSOR + 1);
	parses(&b, first + 8, v, 8, ERR_FORMAT);
	put_u64(v, TENSOR - 1);
	parses(&b, first + 8, v, 8, OK); // a gap is fine
	parses(&b, first + 16, "\0", 1, ERR_FORMAT);
	parses(&b, first + 16, "\x40", 1, ERR_FORMAT);
	parses(&b, first + 18, "\0", 1, ERR_FORMAT);
	block_model_close(&b);
}

static void every_flipped_bit_is_refused_or_another_manifest(void **state)
{
	(void)state;
	struct block_model b;
	block_model_open(&b, 7, 2, 100, 300, 0);
	struct manifest m;
	struct errmsg em;
	for (size_t bit = 0; bit < 8 * b.manifest_len; bit++) {
		uint8_t *copy = malloc(b.manifest_len);
		memcpy(copy, b.manifest, b.manifest_len);
		copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (manifest_parse(copy, b.manifest_len, &m, &em) == OK)
			assert_memory_not_equal(m.hash, b.m.hash, BLOCK_HASH_BYTES);
		free(copy);
	}
	block_model_close(&b);
}

static void names_that_only_look_like_a_layer_are_none(void **state)
{
	(void)state;
	static const char *const names[] = {"blk.", "blk..a", "blk.1", "blk.x.a", "blk.-1.a", "Blk.1.a", "blk.99999999999.a", "output", "blk.1x.a"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		uint8_t hash[BLOCK_HASH_BYTES] = {0}, data[512];
		struct manifest_facts f = {.model_hash = hash, .file_bytes = 10000, .header_bytes = 10, .block_bytes = 4096, .name = "n", .n_tensors = 1,
			.tensor_names_len = strlen(names[i])};
		struct writer w = writer_init(data, manifest_size(&f));
		memset(manifest_write(&f, &w), 0, 3 * BLOCK_HASH_BYTES);
		manifest_put_tensor(&w, &(struct manifest_tensor){.offset = 100, .bytes = 9000, .name = names[i], .name_len = strlen(names[i])});
		struct manifest m;
		struct errmsg em;
		assert_int_equal(manifest_parse(data, w.len, &m, &em), OK);
		uint64_t word;
		struct block_set set;
		block_set_init(&set, &word, m.n_blocks);
		manifest_add_layers(&m, 0, INT32_MAX, &set);
		assert_int_equal(block_set_count(&set), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_manifest_tells_what_it_was_made_of),
		cmocka_unit_test(a_block_matches_only_its_own_bytes),
		cmocka_unit_test(layers_lie_in_the_blocks_that_hold_their_bytes),
		cmocka_unit_test(a_manifest_cut_anywhere_is_refused),
		cmocka_unit_test(numbers_out_of_range_are_refused),
		cmocka_unit_test(tensors_that_overlap_or_leave_the_file_are_refused),
		cmocka_unit_test(every_flipped_bit_is_refused_or_another_manifest),
		cmocka_unit_test(names_that_only_look_like_a_layer_are_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
