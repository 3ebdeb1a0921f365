#include "blocks/block_frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_SAMPLES 11

static void fill_sample(int i, struct block_frame *f)
{
	static const uint8_t bytes[] = "0123456789abcdef";
	memset(f, 0, sizeof *f);
	switch (i) {
	case 0:
		f->type = BLOCK_FRAME_HELLO;
		memset(f->u.hello, 7, sizeof f->u.hello);
		break;
	case 1:
		f->type = BLOCK_FRAME_MANIFEST_GET;
		f->u.manifest_offset = 262144;
		break;
	case 2:
		f->type = BLOCK_FRAME_MANIFEST_PART;
		f->u.part.total = 1000;
		f->u.part.offset = 984;
		f->u.part.data = bytes;
		f->u.part.len = 16;
		break;
	case 3:
		f->type = BLOCK_FRAME_MANIFEST_PART;
		f->u.part.state = BLOCK_PART_NOT_READY;
		break;
	case 4:
		f->type = BLOCK_FRAME_HAVE;
		f->u.have.set = bytes;
		f->u.have.len = 5;
		break;
	case 5:
		f->type = BLOCK_FRAME_GET;
		f->u.get.n = 3;
		f->u.get.blocks[2] = 77;
		break;
	case 6:
		f->type = BLOCK_FRAME_BLOCK;
		f->u.block.form = BLOCK_FORM_ZSTD;
		f->u.block.block = 12;
		f->u.block.data = bytes;
		f->u.block.len = 9;
		break;
	case 7:
		f->type = BLOCK_FRAME_REFUSE;
		f->u.refuse.reason = FETCH_REFUSED_BUSY;
		f->u.refuse.block = BLOCK_FRAME_ALL;
		break;
	case 8:
		f->type = BLOCK_FRAME_PEER;
		f->u.peer.slot = 63;
		f->u.peer.who.present = true;
		memset(f->u.peer.who.public_key, 1, KEY_BYTES);
		memset(f->u.peer.who.psk, 2, KEY_BYTES);
		text_copy(f->u.peer.who.name, NAME_CAP, "kitchen-pi");
		f->u.peer.who.addresses.n = ADDRS_MAX;
		for (int k = 0; k < ADDRS_MAX; k++) {
			memset(f->u.peer.who.addresses.at[k], 'a', ADDR_CAP - 1);
			f->u.peer.who.addresses.at[k][0] = (char)('0' + k);
		}
		break;
	case 9:
		f->type = BLOCK_FRAME_PEER_HAVE;
		f->u.have.slot = 3;
		f->u.have.set = bytes;
		f->u.have.len = 1;
		break;
	case 10:
		f->type = BLOCK_FRAME_PROGRESS;
		f->u.progress = (struct block_progress){BLOCK_PROGRESS_FETCHING, 1000, 400, 10, UINT32_MAX, 5000};
		break;
	}
}

// encode returns the whole frame, borrowed bytes behind its head.
static size_t encode(const struct block_frame *f, uint8_t *out)
{
	size_t len = block_frame_encode(f, out), more = 0;
	const uint8_t *data = NULL;
	if (f->type == BLOCK_FRAME_MANIFEST_PART) {
		data = f->u.part.data;
		more = f->u.part.len;
	} else if (f->type == BLOCK_FRAME_HAVE || f->type == BLOCK_FRAME_PEER_HAVE) {
		data = f->u.have.set;
		more = f->u.have.len;
	} else if (f->type == BLOCK_FRAME_BLOCK) {
		data = f->u.block.data;
		more = f->u.block.len;
	}
	if (more > 0)
		memcpy(out + len, data, more);
	return len + more;
}

static void every_frame_comes_back(void **state)
{
	(void)state;
	uint8_t one[BLOCK_FRAME_SMALL_MAX + 64], two[BLOCK_FRAME_SMALL_MAX + 64];
	for (int i = 0; i < N_SAMPLES; i++) {
		struct block_frame f, g;
		fill_sample(i, &f);
		size_t len = encode(&f, one);
		assert_int_equal(block_frame_decode(one, len, &g), OK);
		assert_int_equal(g.type, f.type);
		assert_int_equal(encode(&g, two), len);
		assert_memory_equal(one, two, len);
	}
}

static void a_frame_that_is_cut_or_longer_is_refused_or_has_fewer_bytes_to_borrow(void **state)
{
	(void)state;
	uint8_t frame[BLOCK_FRAME_SMALL_MAX + 64];
	for (int i = 0; i < N_SAMPLES; i++) {
		struct block_frame f, g;
		fill_sample(i, &f);
		size_t len = encode(&f, frame), head = block_frame_encode(&f, (uint8_t[BLOCK_FRAME_SMALL_MAX]){0});
		for (size_t cut = 0; cut < len; cut++) {
			uint8_t *copy = malloc(cut > 0 ? cut : 1);
			memcpy(copy, frame, cut);
			enum err e = block_frame_decode(copy, cut, &g);
			assert_int_equal(e, cut > head ? OK : ERR_FORMAT);
			free(copy);
		}
		frame[len] = 0;
		assert_int_equal(block_frame_decode(frame, len + 1, &g), i == 4 || i == 6 || i == 9 ? OK : ERR_FORMAT);
	}
}

static void refused(int sample, size_t at, uint8_t byte)
{
	uint8_t frame[BLOCK_FRAME_SMALL_MAX + 64];
	struct block_frame f, g;
	fill_sample(sample, &f);
	size_t len = encode(&f, frame);
	frame[at] = byte;
	assert_int_equal(block_frame_decode(frame, len, &g), ERR_FORMAT);
}

static void values_out_of_range_are_refused(void **state)
{
	(void)state;
	for (int i = 0; i < N_SAMPLES; i++) {
		refused(i, 0, 47);
		refused(i, 0, 58);
		refused(i, 0, 1);
	}
	refused(1, 1, 1); // zeros
	refused(1, 2, 1);
	refused(2, 2, 1);
	refused(2, 1, 2);
	refused(2, 8, 0xd9); // offset + len beyond total
	refused(2, 11, 0xff);
	refused(2, 7, 0xff); // a manifest of 4 GiB
	refused(3, 4, 1);
	refused(4, 1, 1);
	refused(5, 2, 0); // no block, or more than there are
	refused(5, 2, 4);
	refused(5, 2, 65);
	refused(6, 1, 2);
	refused(6, 3, 1);
	refused(7, 1, 0);
	refused(7, 1, 4);
	refused(8, 1, 2);
	refused(8, 2, 64); // slot
	refused(8, 3, 1);
	refused(8, 4 + 64, 0);
	refused(8, 4 + 64, ADDRS_MAX + 2);
	refused(8, 4 + 65, 64);       // a name that is too long
	refused(8, 4 + 66, '\n');     // a control character
	refused(8, 4 + 66, 0);
	refused(8, 4 + 66, 0xff);     // not UTF-8
	refused(9, 2, 64);
	refused(10, 1, 3);
	refused(10, 12 + 7, 0xff); // more done than there is
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_frame_comes_back),
		cmocka_unit_test(a_frame_that_is_cut_or_longer_is_refused_or_has_fewer_bytes_to_borrow),
		cmocka_unit_test(values_out_of_range_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
