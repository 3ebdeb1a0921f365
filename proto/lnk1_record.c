// The record layer: one crypto_secretstream per direction, the length authenticated as associated data.
#include "proto/lnk1_symmetric.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

#define ABYTES crypto_secretstream_xchacha20poly1305_ABYTES
#define TAG_MESSAGE crypto_secretstream_xchacha20poly1305_TAG_MESSAGE
#define TAG_REKEY crypto_secretstream_xchacha20poly1305_TAG_REKEY
#define TAG_FINAL crypto_secretstream_xchacha20poly1305_TAG_FINAL

_Static_assert(LNK1_RECORD_EXTRA == LNK1_RECORD_HEAD + ABYTES, "the 17 of the specification");
_Static_assert(LNK1_HEADER_LEN == crypto_secretstream_xchacha20poly1305_HEADERBYTES, "a header is given randomness");

// A stream's nonce is a counter inside it, so two calls at once would use one nonce twice. One relaxed flag per record
// is a cheap way to notice that bug of the host before a byte leaves.
static void enter(struct lnk1_stream *s)
{
	bool was_busy = atomic_exchange_explicit(&s->busy, true, memory_order_acquire);
	ASSERT(!was_busy);
}

static void leave(struct lnk1_stream *s)
{
	atomic_store_explicit(&s->busy, false, memory_order_release);
}

void lnk1_stream_init(struct lnk1_stream *s, struct lnk1_stream_setup setup)
{
	memset(s, 0, sizeof *s);
	int rc = crypto_secretstream_xchacha20poly1305_init_pull(&s->secret, setup.header, setup.key);
	ASSERT(rc == 0);
	s->ad[LNK1_RECORD_HEAD] = (uint8_t)setup.kind;
	s->ad[LNK1_RECORD_HEAD + 1] = (uint8_t)setup.direction;
	memcpy(s->ad + LNK1_RECORD_HEAD + 2, setup.session_id, LNK1_SESSION_ID_LEN);
	s->state = LNK1_STREAM_OPEN;
	s->record_max = setup.record_max;
	s->rekey_records = LNK1_REKEY_RECORDS;
	s->rekey_bytes = LNK1_REKEY_BYTES;
}

void lnk1_transport_init(struct lnk1_link *link, struct lnk1_transport_setup t)
{
	static const char *const label[] = {[LNK1_C2S] = "c2s", [LNK1_S2C] = "s2c"};
	const uint8_t *header[] = {[LNK1_C2S] = t.header_c2s, [LNK1_S2C] = t.header_s2c};
	for (enum lnk1_direction dir = LNK1_C2S; dir <= LNK1_S2C; dir++) {
		uint8_t key[LNK1_KEY_LEN];
		lnk1_derive(t.sym, label[dir], key);
		bool sends = t.is_client == (dir == LNK1_C2S);
		lnk1_stream_init(sends ? &link->tx : &link->rx,
			(struct lnk1_stream_setup){
				.key = key,
				.header = header[dir],
				.session_id = t.session_id,
				.kind = t.kind,
				.direction = dir,
				.record_max = t.record_max,
			});
		sodium_memzero(key, sizeof key);
	}
}

// The caller has checked state and length.
static void push(struct lnk1_stream *tx, const uint8_t *plain, uint32_t len, uint8_t tag, uint8_t *out)
{
	store_u32(tx->ad, len);
	int rc = crypto_secretstream_xchacha20poly1305_push(
		&tx->secret, out + LNK1_RECORD_HEAD, NULL, plain, len, tx->ad, sizeof tx->ad, tag);
	ASSERT(rc == 0);
	memcpy(out, tx->ad, LNK1_RECORD_HEAD);
}

// next_tag counts a record of `len` bytes and says which tag it carries.
static uint8_t next_tag(struct lnk1_stream *tx, uint32_t len)
{
	tx->n_records++;
	tx->n_bytes += len;
	if (tx->n_records < tx->rekey_records && tx->n_bytes < tx->rekey_bytes)
		return TAG_MESSAGE;
	tx->n_records = 0;
	tx->n_bytes = 0;
	return TAG_REKEY;
}

enum err lnk1_seal(struct lnk1_stream *tx, const uint8_t *plain, uint32_t len, uint8_t *out)
{
	enter(tx);
	enum err e = OK;
	if (tx->state != LNK1_STREAM_OPEN)
		e = ERR_CLOSED;
	else if (len == 0 || len > tx->record_max)
		e = ERR_RANGE;
	else
		push(tx, plain, len, next_tag(tx, len), out);
	leave(tx);
	return e;
}

enum err lnk1_seal_final(struct lnk1_stream *tx, uint8_t out[LNK1_RECORD_EXTRA])
{
	enter(tx);
	enum err e = OK;
	if (tx->state != LNK1_STREAM_OPEN) {
		e = ERR_CLOSED;
	} else {
		push(tx, out, 0, TAG_FINAL, out);
		sodium_memzero(&tx->secret, sizeof tx->secret);
		tx->state = LNK1_STREAM_FINAL;
	}
	leave(tx);
	return e;
}

// fail leaves nothing to decrypt with: a link that failed once never opens another record.
static enum err fail(struct lnk1_stream *rx, enum err e)
{
	sodium_memzero(&rx->secret, sizeof rx->secret);
	rx->state = LNK1_STREAM_DEAD;
	return e;
}

static enum err take_head(struct lnk1_stream *rx, const uint8_t *head, size_t *body_len)
{
	// A byte after TAG_FINAL is an error of the peer, but the end that FINAL announced stays an orderly one.
	if (rx->state == LNK1_STREAM_FINAL)
		return ERR_CLOSED;
	if (rx->state != LNK1_STREAM_OPEN)
		return fail(rx, ERR_CLOSED);
	uint32_t len = load_u32(head);
	if (len > rx->record_max)
		return fail(rx, ERR_LIMIT);
	memcpy(rx->ad, head, LNK1_RECORD_HEAD);
	rx->body_len = len;
	rx->state = LNK1_STREAM_BODY;
	*body_len = (size_t)len + ABYTES;
	return OK;
}

enum err lnk1_open_head(struct lnk1_stream *rx, const uint8_t head[LNK1_RECORD_HEAD], size_t *body_len)
{
	*body_len = 0;
	enter(rx);
	enum err e = take_head(rx, head, body_len);
	leave(rx);
	return e;
}

static enum err open_body(struct lnk1_stream *rx, const uint8_t *body, uint8_t *plain)
{
	if (rx->state != LNK1_STREAM_BODY)
		return fail(rx, ERR_CLOSED);
	uint8_t tag;
	if (crypto_secretstream_xchacha20poly1305_pull(
		    &rx->secret, plain, NULL, &tag, body, (size_t)rx->body_len + ABYTES, rx->ad, sizeof rx->ad) != 0)
		return fail(rx, ERR_AUTH);
	bool is_end = tag == TAG_FINAL && rx->body_len == 0;
	bool is_record = (tag == TAG_MESSAGE || tag == TAG_REKEY) && rx->body_len > 0;
	if (!is_end && !is_record) {
		sodium_memzero(plain, rx->body_len);
		return fail(rx, ERR_AUTH);
	}
	if (is_end)
		sodium_memzero(&rx->secret, sizeof rx->secret);
	rx->state = is_end ? LNK1_STREAM_FINAL : LNK1_STREAM_OPEN;
	return OK;
}

enum err lnk1_open_body(struct lnk1_stream *rx, const uint8_t *body, uint8_t *plain, uint32_t *len)
{
	*len = 0;
	enter(rx);
	enum err e = open_body(rx, body, plain);
	if (e == OK)
		*len = rx->body_len;
	leave(rx);
	return e;
}

bool lnk1_ended_well(const struct lnk1_stream *rx)
{
	return rx->state == LNK1_STREAM_FINAL;
}

void lnk1_stream_deinit(struct lnk1_stream *s)
{
	sodium_memzero(s, sizeof *s);
}
