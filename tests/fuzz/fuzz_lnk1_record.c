// The receiving end of a link given arbitrary bytes as records; and records whose plaintexts are arbitrary, sealed and opened.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "tests/support/fuzz.h"
#include "tests/support/lnk1_fixture.h"

#define RECORD_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// receive reads records from the stream until one closes the link.
static void receive(struct lnk1_stream *rx, struct reader r)
{
	uint8_t plain[RECORD_MAX];
	while (r.left >= LNK1_RECORD_HEAD) {
		size_t body_len;
		uint32_t len;
		if (lnk1_open_head(rx, reader_take(&r, LNK1_RECORD_HEAD), &body_len) != OK)
			break;
		require(body_len <= RECORD_MAX + 17);
		const uint8_t *body = reader_take(&r, body_len);
		if (!body || lnk1_open_body(rx, body, plain, &len) != OK)
			break;
		require(len <= RECORD_MAX);
	}
}

// round_trip seals pieces of the input and opens them, with a tag to rekey at odd places.
static void round_trip(struct lnk1_stream *tx, struct lnk1_stream *rx, struct reader r)
{
	uint8_t record[RECORD_MAX + LNK1_RECORD_EXTRA], plain[RECORD_MAX];
	tx->rekey_records = 1 + reader_u8(&r) % 8;
	tx->rekey_bytes = 1 + reader_u16(&r);
	while (r.left > 0 && reader_ok(&r)) {
		size_t body_len;
		uint32_t len = reader_u8(&r), opened_len;
		len = len < r.left ? len : (uint32_t)r.left;
		const uint8_t *piece = reader_take(&r, len);
		if (len == 0)
			continue;
		require(lnk1_seal(tx, piece, len, record) == OK);
		require(lnk1_open_head(rx, record, &body_len) == OK && body_len == len + 17);
		require(lnk1_open_body(rx, record + LNK1_RECORD_HEAD, plain, &opened_len) == OK);
		require(opened_len == len && memcmp(plain, piece, len) == 0);
	}
	size_t body_len;
	uint32_t len;
	require(lnk1_seal_final(tx, record) == OK);
	require(lnk1_open_head(rx, record, &body_len) == OK);
	require(lnk1_open_body(rx, record + LNK1_RECORD_HEAD, plain, &len) == OK && len == 0 && lnk1_ended_well(rx));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lnk1_fixture f;
	struct lnk1_talk t;
	struct reader r = reader_init(data, size);
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	f.cfg.record_max[LNK1_DATA] = RECORD_MAX;
	lnk1_talk_whole(&t, &f, 0);
	if (reader_u8(&r) & 1)
		receive(&t.server_link.rx, r);
	else
		round_trip(&t.client_link.tx, &t.server_link.rx, r);
	return 0;
}
