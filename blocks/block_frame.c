#include "blocks/block_frame.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <string.h>

// ---- encoding

static void put_text(struct writer *w, const char *text)
{
	size_t len = strlen(text);
	ASSERT(len <= UINT8_MAX);
	writer_u8(w, (uint8_t)len);
	writer_bytes(w, text, len);
}

static void put_peer(struct writer *w, const struct msg_peer *p)
{
	writer_bytes(w, p->public_key, KEY_BYTES);
	writer_bytes(w, p->psk, KEY_BYTES);
	writer_u8(w, (uint8_t)(1 + p->addresses.n));
	put_text(w, p->name);
	for (uint32_t i = 0; i < p->addresses.n; i++)
		put_text(w, p->addresses.at[i]);
}

static void put_progress(struct writer *w, const struct block_progress *p)
{
	writer_u8(w, (uint8_t)p->state);
	writer_u16(w, 0);
	writer_u64(w, p->bytes_total);
	writer_u64(w, p->bytes_done);
	writer_u64(w, p->rate);
	writer_u32(w, p->left_ms);
	writer_u64(w, p->bytes_fetched);
}

static void put_head(struct writer *w, uint8_t first, uint16_t second)
{
	writer_u8(w, first);
	writer_u16(w, second);
}

size_t block_frame_encode(const struct block_frame *f, uint8_t out[BLOCK_FRAME_SMALL_MAX])
{
	struct writer w = writer_init(out, BLOCK_FRAME_SMALL_MAX);
	writer_u8(&w, (uint8_t)f->type);
	switch (f->type) {
	case BLOCK_FRAME_HELLO: writer_bytes(&w, f->u.hello, BLOCK_HASH_BYTES); break;
	case BLOCK_FRAME_MANIFEST_GET:
		put_head(&w, 0, 0);
		writer_u32(&w, f->u.manifest_offset);
		break;
	case BLOCK_FRAME_MANIFEST_PART:
		put_head(&w, (uint8_t)f->u.part.state, 0);
		writer_u32(&w, f->u.part.total);
		writer_u32(&w, f->u.part.offset);
		break;
	case BLOCK_FRAME_HAVE: put_head(&w, 0, 0); break;
	case BLOCK_FRAME_GET:
		put_head(&w, 0, f->u.get.n);
		for (size_t i = 0; i < f->u.get.n; i++)
			writer_u32(&w, f->u.get.blocks[i]);
		break;
	case BLOCK_FRAME_BLOCK:
		put_head(&w, (uint8_t)f->u.block.form, 0);
		writer_u32(&w, f->u.block.block);
		break;
	case BLOCK_FRAME_REFUSE:
		put_head(&w, (uint8_t)f->u.refuse.reason, 0);
		writer_u32(&w, f->u.refuse.block);
		break;
	case BLOCK_FRAME_PEER:
		put_head(&w, f->u.peer.who.present, f->u.peer.slot);
		if (f->u.peer.who.present)
			put_peer(&w, &f->u.peer.who);
		break;
	case BLOCK_FRAME_PEER_HAVE: put_head(&w, 0, f->u.have.slot); break;
	case BLOCK_FRAME_PROGRESS: put_progress(&w, &f->u.progress); break;
	}
	ASSERT(!w.failed);
	return w.len;
}

// ---- decoding

static bool take_text(struct reader *r, char *out, size_t cap)
{
	size_t len = reader_u8(r);
	const uint8_t *text = reader_take(r, len);
	if (text == NULL || len >= cap || !text_is_plain((const char *)text, len))
		return false;
	memcpy(out, text, len);
	out[len] = '\0';
	return true;
}

static bool take_peer(struct reader *r, struct msg_peer *p)
{
	p->present = true;
	const uint8_t *pk = reader_take(r, KEY_BYTES), *psk = reader_take(r, KEY_BYTES);
	uint8_t n = reader_u8(r);
	if (!reader_ok(r) || n < 1 || n > 1 + ADDRS_MAX)
		return false;
	memcpy(p->public_key, pk, KEY_BYTES);
	memcpy(p->psk, psk, KEY_BYTES);
	p->addresses.n = n - 1u;
	bool ok = take_text(r, p->name, sizeof p->name);
	for (uint32_t i = 0; i < p->addresses.n && ok; i++)
		ok = take_text(r, p->addresses.at[i], sizeof p->addresses.at[i]);
	return ok;
}

static bool take_progress(struct reader *r, uint8_t state, uint16_t zero, struct block_progress *p)
{
	*p = (struct block_progress){.state = (enum block_progress_state)state};
	p->bytes_total = reader_u64(r);
	p->bytes_done = reader_u64(r);
	p->rate = reader_u64(r);
	p->left_ms = reader_u32(r);
	p->bytes_fetched = reader_u64(r);
	return state <= BLOCK_PROGRESS_FAILED && zero == 0 && p->bytes_done <= p->bytes_total;
}

static bool take_get(struct reader *r, uint16_t n, struct block_frame *f)
{
	f->u.get.n = n;
	if (n < 1 || n > BLOCK_FRAME_GET_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		f->u.get.blocks[i] = reader_u32(r);
	return true;
}

static bool take_part(struct reader *r, uint8_t state, uint16_t zero, struct block_frame *f)
{
	f->u.part.state = (enum block_part_state)state;
	f->u.part.total = reader_u32(r);
	f->u.part.offset = reader_u32(r);
	f->u.part.len = r->left;
	f->u.part.data = reader_take(r, r->left);
	if (state == BLOCK_PART_NOT_READY)
		return zero == 0 && f->u.part.len == 0 && f->u.part.total == 0 && f->u.part.offset == 0;
	return state == BLOCK_PART_OK && zero == 0 && f->u.part.len >= 1 && f->u.part.len <= BLOCK_FRAME_PART_MAX && f->u.part.total <= MANIFEST_BYTES_MAX &&
		f->u.part.offset <= f->u.part.total && f->u.part.len <= f->u.part.total - f->u.part.offset;
}

static bool take_have(struct reader *r, struct block_frame *f)
{
	f->u.have.len = r->left;
	f->u.have.set = reader_take(r, r->left);
	return f->u.have.len >= 1;
}

static bool take_block(struct reader *r, uint8_t form, uint16_t zero, struct block_frame *f)
{
	f->u.block.form = (enum block_form)form;
	f->u.block.block = reader_u32(r);
	f->u.block.len = r->left;
	f->u.block.data = reader_take(r, r->left);
	return form <= BLOCK_FORM_ZSTD && zero == 0 && reader_ok(r) && f->u.block.len >= 1 && f->u.block.len <= BLOCK_BYTES_MAX;
}

static bool take_refuse(struct reader *r, uint8_t reason, uint16_t zero, struct block_frame *f)
{
	f->u.refuse.reason = (enum fetch_refusal)reason;
	f->u.refuse.block = reader_u32(r);
	return reason >= FETCH_REFUSED_ABSENT && reason <= FETCH_REFUSED_FOREIGN && zero == 0;
}

static bool take_slot(uint16_t slot, uint16_t *out)
{
	*out = slot;
	return slot < BLOCK_FRAME_PEERS_MAX;
}

static bool take_hello(struct reader *r, struct block_frame *f)
{
	const uint8_t *hash = reader_take(r, BLOCK_HASH_BYTES);
	if (hash != NULL)
		memcpy(f->u.hello, hash, BLOCK_HASH_BYTES);
	return hash != NULL;
}

// take_rest reads what follows the first four bytes of every type but hello.
static bool take_rest(struct reader *r, struct block_frame *f)
{
	uint8_t first = reader_u8(r);
	uint16_t second = reader_u16(r);
	bool is_zero = first == 0 && second == 0;
	switch (f->type) {
	case BLOCK_FRAME_HELLO: return false;
	case BLOCK_FRAME_MANIFEST_GET: f->u.manifest_offset = reader_u32(r); return is_zero;
	case BLOCK_FRAME_MANIFEST_PART: return take_part(r, first, second, f);
	case BLOCK_FRAME_HAVE: return is_zero && take_have(r, f);
	case BLOCK_FRAME_GET: return first == 0 && take_get(r, second, f);
	case BLOCK_FRAME_BLOCK: return take_block(r, first, second, f);
	case BLOCK_FRAME_REFUSE: return take_refuse(r, first, second, f);
	case BLOCK_FRAME_PEER: return first <= 1 && take_slot(second, &f->u.peer.slot) && (first == 0 || take_peer(r, &f->u.peer.who));
	case BLOCK_FRAME_PEER_HAVE: return first == 0 && take_slot(second, &f->u.have.slot) && take_have(r, f);
	case BLOCK_FRAME_PROGRESS: return take_progress(r, first, second, &f->u.progress);
	}
	return false;
}

enum err block_frame_decode(const uint8_t *frame, size_t len, struct block_frame *out)
{
	struct reader r = reader_init(frame, len);
	memset(out, 0, sizeof *out);
	uint8_t type = reader_u8(&r);
	if (!reader_ok(&r) || type < BLOCK_FRAME_HELLO || type > BLOCK_FRAME_PROGRESS)
		return ERR_FORMAT;
	out->type = (enum block_frame_type)type;
	bool ok = out->type == BLOCK_FRAME_HELLO ? take_hello(&r, out) : take_rest(&r, out);
	return ok && reader_ok(&r) && r.left == 0 ? OK : ERR_FORMAT;
}
