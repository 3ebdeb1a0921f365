// A server or a client of LNK1, in either mode, given arbitrary bytes in arbitrary segments.
//
// The first byte chooses the side, the shape, and whether a true first half of the handshake comes before; then, again and
// again: one byte of segment length, the segment. The randomness is fixed, so the corpus holds whole true handshakes.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "tests/support/fuzz.h"
#include "tests/support/lnk1_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_server(struct lnk1_server *s, struct reader *r)
{
	enum lnk1_step step = LNK1_MORE;
	while (r->left > 0 && (step == LNK1_MORE || step == LNK1_SEND)) {
		size_t room_len, len = reader_u8(r);
		uint8_t *room = lnk1_server_room(s, &room_len);
		require(room_len >= 1 && room_len <= LNK1_MSG_MAX);
		len = len < room_len ? len : room_len;
		len = len < r->left ? len : r->left;
		if (len == 0)
			continue;
		memcpy(room, reader_take(r, len), len);
		step = lnk1_server_received(s, len);
	}
	if (step == LNK1_JUDGE && lnk1_server_accept(s) == LNK1_DONE) {
		struct lnk1_link link;
		lnk1_server_finish(s, &link);
		require(link.record_max == 0x40000);
	}
	lnk1_server_deinit(s);
}

static void fuzz_client(struct lnk1_client *c, struct reader *r)
{
	enum lnk1_step step = LNK1_SEND;
	while (r->left > 0 && (step == LNK1_MORE || step == LNK1_SEND)) {
		size_t room_len, len = reader_u8(r);
		uint8_t *room = lnk1_client_room(c, &room_len);
		require(room_len >= 1 && room_len <= LNK1_M4_LEN);
		len = len < room_len ? len : room_len;
		len = len < r->left ? len : r->left;
		if (len == 0)
			continue;
		memcpy(room, reader_take(r, len), len);
		step = lnk1_client_received(c, len);
	}
	if (step == LNK1_DONE) {
		struct lnk1_link link;
		lnk1_client_finish(c, &link);
		require(link.version >= 1 && link.version <= 3 && link.record_max <= 0x40000);
	}
	lnk1_client_deinit(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct {
		enum lnk1_mode mode;
		enum lnk1_kind kind;
	} shapes[] = {
		{LNK1_MEMBER, LNK1_CONTROL}, {LNK1_MEMBER, LNK1_DATA}, {LNK1_MEMBER, LNK1_BLOCKS}, {LNK1_JOIN, LNK1_CONTROL}};
	struct lnk1_fixture f;
	struct lnk1_talk t;
	struct reader r = reader_init(data, size);
	uint8_t how = reader_u8(&r);
	lnk1_fixture_init(&f, shapes[how & 3].mode, shapes[how & 3].kind);
	f.cfg.is_node = how & 16;
	bool is_client = how & 4, is_second = (how & 8) && !f.cfg.is_node;
	if (!is_second)
		lnk1_talk_begin(&t, &f, 0);
	else if (is_client)
		lnk1_talk_to_m3(&t, &f, 0);
	else
		lnk1_talk_to_m2(&t, &f, 0);
	if (is_client)
		fuzz_client(&t.client, &r);
	else
		fuzz_server(&t.server, &r);
	return 0;
}
