#include "blocks/shell/block_zip.h"

#include "blocks/manifest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include <cmocka.h>

struct place {
	struct block_zip *zip;
	uint8_t *plain, *packed, *back;
};

static int make_place(void **state)
{
	struct place *p = calloc(1, sizeof *p);
	p->plain = malloc(BLOCK_BYTES_MAX);
	p->packed = malloc(2 * BLOCK_BYTES_MAX);
	p->back = malloc(BLOCK_BYTES_MAX);
	for (uint32_t i = 0; i < BLOCK_BYTES_MAX; i++)
		p->plain[i] = (uint8_t)(i * 2654435761u >> 24 & 0x3f);
	*state = p;
	return block_zip_open(&p->zip, &(struct errmsg){{0}}) == OK ? 0 : -1;
}

static int drop_place(void **state)
{
	struct place *p = *state;
	block_zip_close(p->zip);
	free(p->plain);
	free(p->packed);
	free(p->back);
	free(p);
	return 0;
}

static void a_block_of_any_length_comes_back(void **state)
{
	struct place *p = *state;
	static const size_t lens[] = {1, 100, 4096, BLOCK_BYTES_DEFAULT - 1, BLOCK_BYTES_DEFAULT, BLOCK_BYTES_MAX};
	for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
		size_t n = block_zip_pack(p->zip, p->plain, lens[i], p->packed, 2 * BLOCK_BYTES_MAX);
		assert_true(n > 0);
		assert_int_equal(block_zip_unpack(p->zip, p->packed, n, p->back, lens[i]), OK);
		assert_memory_equal(p->back, p->plain, lens[i]);
	}
}

static void what_does_not_fit_is_not_packed(void **state)
{
	struct place *p = *state;
	assert_int_equal(block_zip_pack(p->zip, p->plain, 4096, p->packed, 10), 0);
}

static void another_length_than_the_blocks_is_refused(void **state)
{
	struct place *p = *state;
	size_t n = block_zip_pack(p->zip, p->plain, 4096, p->packed, 8192);
	assert_int_equal(block_zip_unpack(p->zip, p->packed, n, p->back, 4095), ERR_FORMAT);
	assert_int_equal(block_zip_unpack(p->zip, p->packed, n, p->back, 4097), ERR_FORMAT);
	for (size_t cut = 0; cut < n; cut += 7)
		assert_int_equal(block_zip_unpack(p->zip, p->packed, cut, p->back, 4096), ERR_FORMAT);
	p->packed[n] = 0;
	assert_int_equal(block_zip_unpack(p->zip, p->packed, n + 1, p->back, 4096), ERR_FORMAT);
}

// pack_with packs with parameters of a hostile sender's own.
static size_t pack_with(struct place *p, size_t len, int window_log, int has_size)
{
	ZSTD_CCtx *c = ZSTD_createCCtx();
	ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, window_log);
	ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, has_size);
	ZSTD_outBuffer out = {p->packed, 2 * BLOCK_BYTES_MAX, 0};
	ZSTD_inBuffer in = {p->plain, len, 0};
	while (ZSTD_compressStream2(c, &out, &in, ZSTD_e_end) != 0) {
	}
	ZSTD_freeCCtx(c);
	return out.pos;
}

static void a_frame_without_its_length_is_refused(void **state)
{
	struct place *p = *state;
	size_t n = pack_with(p, 4096, 12, 0);
	assert_int_equal(block_zip_unpack(p->zip, p->packed, n, p->back, 4096), ERR_FORMAT);
}

static void a_window_or_a_length_beyond_a_block_is_refused_without_memory(void **state)
{
	struct place *p = *state;
	// Magic, no single segment, a length of 8 bytes; a window of 2^31, then of 2^41; a length of 2^63.
	uint8_t head[] = {0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0xa8, 0, 0x10, 0, 0, 0, 0, 0, 0, 1, 0, 0};
	assert_int_equal(block_zip_unpack(p->zip, head, sizeof head, p->back, 4096), ERR_FORMAT);
	head[5] = 0xff;
	assert_int_equal(block_zip_unpack(p->zip, head, sizeof head, p->back, 4096), ERR_FORMAT);
	head[5] = 0x08;
	head[13] = 0x80;
	assert_int_equal(block_zip_unpack(p->zip, head, sizeof head, p->back, 4096), ERR_FORMAT);
}

// put_bomb writes a frame that says `says` bytes and makes 128 KiB of each of its `n` blocks of one repeated byte.
static size_t put_bomb(uint8_t *out, uint32_t says, size_t n)
{
	static const uint8_t head[] = {0x28, 0xb5, 0x2f, 0xfd, 0x80, 0x50}; // magic, a length of four bytes, a window of 2^20
	size_t len = sizeof head;
	memcpy(out, head, len);
	for (int i = 0; i < 4; i++)
		out[len++] = (uint8_t)(says >> 8 * i);
	for (size_t i = 0; i < n; i++) {
		const uint8_t block[] = {i + 1 == n ? 0x03 : 0x02, 0x00, 0x10, 0x55}; // last or not, repeated, 2^17 times
		memcpy(out + len, block, sizeof block);
		len += sizeof block;
	}
	return len;
}

static void a_kilobyte_that_becomes_megabytes_stays_within_its_block(void **state)
{
	struct place *p = *state;
	uint8_t *exact = malloc(4096); // the sanitizer looks behind it
	size_t n = put_bomb(p->packed, 4096, 250);
	assert_true(n < 1024 + 64);
	assert_int_equal(block_zip_unpack(p->zip, p->packed, n, exact, 4096), ERR_FORMAT);
	n = put_bomb(p->packed, 250u << 17, 250); // an honest one
	assert_int_equal(block_zip_unpack(p->zip, p->packed, n, exact, 4096), ERR_FORMAT);
	n = put_bomb(p->packed, BLOCK_BYTES_MAX, 8); // what a block may be
	assert_int_equal(block_zip_unpack(p->zip, p->packed, n, p->back, BLOCK_BYTES_MAX), OK);
	assert_int_equal(p->back[BLOCK_BYTES_MAX - 1], 0x55);
	n = put_bomb(p->packed, BLOCK_BYTES_MAX, 9);
	assert_int_equal(block_zip_unpack(p->zip, p->packed, n, p->back, BLOCK_BYTES_MAX), ERR_FORMAT);
	free(exact);
}

static void two_frames_or_one_to_be_skipped_are_refused(void **state)
{
	struct place *p = *state;
	static const uint8_t skipped[] = {0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0x7f, 0};
	size_t n = block_zip_pack(p->zip, p->plain, 4096, p->packed, 8192);
	memcpy(p->packed + n, p->packed, n);
	assert_int_equal(block_zip_unpack(p->zip, p->packed, 2 * n, p->back, 4096), ERR_FORMAT);
	assert_int_equal(block_zip_unpack(p->zip, skipped, sizeof skipped, p->back, 4096), ERR_FORMAT);
	assert_int_equal(block_zip_unpack(p->zip, p->packed, 0, p->back, 4096), ERR_FORMAT);
}

static void every_flipped_bit_gives_the_block_or_an_error(void **state)
{
	struct place *p = *state;
	size_t n = block_zip_pack(p->zip, p->plain, 512, p->packed, 8192);
	for (size_t bit = 0; bit < 8 * n; bit++) {
		uint8_t *copy = malloc(n);
		memcpy(copy, p->packed, n);
		copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
		enum err e = block_zip_unpack(p->zip, copy, n, p->back, 512);
		assert_true(e == OK || e == ERR_FORMAT);
		free(copy);
	}
	assert_int_equal(block_zip_unpack(p->zip, p->packed, n, p->back, 512), OK); // and the decompressor still works
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_place, drop_place)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_block_of_any_length_comes_back),
		TEST(what_does_not_fit_is_not_packed),
		TEST(another_length_than_the_blocks_is_refused),
		TEST(a_frame_without_its_length_is_refused),
		TEST(a_window_or_a_length_beyond_a_block_is_refused_without_memory),
		TEST(a_kilobyte_that_becomes_megabytes_stays_within_its_block),
		TEST(two_frames_or_one_to_be_skipped_are_refused),
		TEST(every_flipped_bit_gives_the_block_or_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
