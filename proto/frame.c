#include "proto/frame.h"

#include "base/bytes.h"
#include "base/limits.h"

void step_encode(const struct step *s, uint8_t out[FRAME_STEP_BYTES])
{
	out[0] = FRAME_STEP;
	out[1] = (uint8_t)s->wire;
	out[2] = (uint8_t)s->reply;
	out[3] = s->flags;
	store_u16(out + 4, s->src_span);
	store_u16(out + 6, s->dst_span);
	store_u64(out + 8, s->epoch.v);
	store_u64(out + 16, s->session.v);
	store_u32(out + 24, s->seq);
	store_u32(out + 28, s->slot);
	store_u32(out + 32, s->pos);
	store_u32(out + 36, s->n_tokens);
	store_u32(out + 40, s->payload_len);
	store_u16(out + 44, s->layer_begin);
	store_u16(out + 46, s->layer_end);
}

static bool is_span(uint16_t s)
{
	return s < SPANS_MAX || s == SPAN_HEAD;
}

enum err step_decode(const uint8_t *frame, size_t len, struct step *out)
{
	struct reader r = reader_init(frame, len);
	uint8_t type = reader_u8(&r), wire = reader_u8(&r), reply = reader_u8(&r);
	*out = (struct step){.flags = reader_u8(&r)};
	out->src_span = reader_u16(&r);
	out->dst_span = reader_u16(&r);
	out->epoch.v = reader_u64(&r);
	out->session.v = reader_u64(&r);
	out->seq = reader_u32(&r);
	out->slot = reader_u32(&r);
	out->pos = reader_u32(&r);
	out->n_tokens = reader_u32(&r);
	out->payload_len = reader_u32(&r);
	out->layer_begin = reader_u16(&r);
	out->layer_end = reader_u16(&r);
	if (!reader_ok(&r) || type != FRAME_STEP)
		return ERR_FORMAT;
	if (wire >= N_WIRE_TYPES || reply > REPLY_LOGITS || (out->flags & ~STEP_FIRST) != 0)
		return ERR_FORMAT;
	out->wire = (enum wire_type)wire;
	out->reply = (enum step_reply)reply;
	if (!is_span(out->src_span) || !is_span(out->dst_span) || out->src_span == out->dst_span)
		return ERR_FORMAT;
	if (out->session.v == 0 || out->n_tokens == 0 || out->n_tokens > CHUNK_TOKENS_MAX || out->payload_len != r.left)
		return ERR_FORMAT;
	if (out->pos > INT32_MAX - out->n_tokens || out->slot > INT32_MAX)
		return ERR_FORMAT;
	if (out->layer_end > LAYERS_MAX || (out->layer_begin >= out->layer_end && out->layer_end + out->layer_begin != 0))
		return ERR_FORMAT;
	if (out->layer_end != 0 && out->reply != REPLY_NONE)
		return ERR_FORMAT;
	return OK;
}

void credit_encode(const struct credit *c, uint8_t out[FRAME_CREDIT_BYTES])
{
	out[0] = FRAME_CREDIT;
	out[1] = 0;
	store_u16(out + 2, c->n);
	store_u16(out + 4, c->src_span);
	store_u16(out + 6, c->dst_span);
	store_u64(out + 8, c->epoch.v);
}

enum err credit_decode(const uint8_t *frame, size_t len, struct credit *out)
{
	struct reader r = reader_init(frame, len);
	uint8_t type = reader_u8(&r), zero = reader_u8(&r);
	*out = (struct credit){.n = reader_u16(&r)};
	out->src_span = reader_u16(&r);
	out->dst_span = reader_u16(&r);
	out->epoch.v = reader_u64(&r);
	if (!reader_ok(&r) || r.left != 0 || type != FRAME_CREDIT || zero != 0 || out->n == 0)
		return ERR_FORMAT;
	if (!is_span(out->src_span) || !is_span(out->dst_span) || out->src_span == out->dst_span)
		return ERR_FORMAT;
	return OK;
}

#define PART_STREAMS 1

void part_encode(const struct part *p, uint8_t out[FRAME_PART_BYTES])
{
	out[0] = FRAME_PART;
	out[1] = p->src;
	out[2] = p->dst;
	out[3] = p->streams ? PART_STREAMS : 0;
	store_u16(out + 4, p->stage);
	store_u16(out + 6, p->exchange);
	store_u64(out + 8, p->epoch.v);
	store_u64(out + 16, p->forward);
	store_u64(out + 24, p->failed);
	store_u32(out + 32, p->offset);
	store_u32(out + 36, p->total);
}

enum err part_decode(const uint8_t *frame, size_t len, struct part *out)
{
	struct reader r = reader_init(frame, len);
	uint8_t type = reader_u8(&r);
	*out = (struct part){.src = reader_u8(&r)};
	out->dst = reader_u8(&r);
	uint8_t flags = reader_u8(&r);
	out->streams = flags == PART_STREAMS;
	out->stage = reader_u16(&r);
	out->exchange = reader_u16(&r);
	out->epoch.v = reader_u64(&r);
	out->forward = reader_u64(&r);
	out->failed = reader_u64(&r);
	out->offset = reader_u32(&r);
	out->total = reader_u32(&r);
	out->payload_len = (uint32_t)r.left;
	if (!reader_ok(&r) || type != FRAME_PART || flags > PART_STREAMS)
		return ERR_FORMAT;
	if (out->src >= GROUP_MEMBERS_MAX || out->dst >= GROUP_MEMBERS_MAX || out->src == out->dst || out->stage >= STAGES_MAX)
		return ERR_FORMAT;
	if (out->forward == 0 || out->exchange > EXCHANGES_MAX || out->total > PART_BYTES_MAX)
		return ERR_FORMAT;
	if (out->offset > out->total || r.left > out->total - out->offset || (r.left == 0) != (out->total == 0))
		return ERR_FORMAT;
	return OK;
}

#define PART_ITEM_FIRST 1
#define PART_ITEM_BEST 2
#define PART_ITEM_LOGITS 4

void part_start_encode(const struct part_start *s, uint8_t out[PART_START_BYTES_MAX])
{
	store_u16(out, (uint16_t)s->layer_begin);
	store_u16(out + 2, (uint16_t)s->layer_end);
	out[4] = (uint8_t)s->wire;
	out[5] = 0;
	store_u16(out + 6, (uint16_t)s->n_items);
	for (int32_t i = 0; i < s->n_items; i++) {
		uint8_t *at = out + part_start_bytes(i);
		const struct part_item *it = &s->items[i];
		store_u64(at, it->session.v);
		store_u32(at + 8, (uint32_t)it->slot);
		store_u32(at + 12, (uint32_t)it->pos);
		store_u16(at + 16, (uint16_t)it->n_tokens);
		int flags = (it->is_first ? PART_ITEM_FIRST : 0) | (it->want == HEAD_BEST ? PART_ITEM_BEST : it->want == HEAD_LOGITS ? PART_ITEM_LOGITS : 0);
		store_u16(at + 18, (uint16_t)flags);
	}
}

static enum err part_item_decode(struct reader *r, struct part_item *out)
{
	out->session.v = reader_u64(r);
	uint32_t slot = reader_u32(r), pos = reader_u32(r), n_tokens = reader_u16(r), flags = reader_u16(r);
	if (!reader_ok(r) || out->session.v == 0 || slot >= SESSIONS_MAX || n_tokens == 0 || n_tokens > CHUNK_TOKENS_MAX || pos > INT32_MAX - n_tokens)
		return ERR_FORMAT;
	uint32_t want = flags & (PART_ITEM_BEST | PART_ITEM_LOGITS);
	bool is_first = (flags & PART_ITEM_FIRST) != 0;
	if ((flags & ~(uint32_t)PART_ITEM_FIRST) != want || want == (PART_ITEM_BEST | PART_ITEM_LOGITS) || (is_first && pos != 0))
		return ERR_FORMAT;
	out->slot = (int32_t)slot;
	out->pos = (int32_t)pos;
	out->n_tokens = (int32_t)n_tokens;
	out->is_first = is_first;
	out->want = want == PART_ITEM_BEST ? HEAD_BEST : want == PART_ITEM_LOGITS ? HEAD_LOGITS : HEAD_NOTHING;
	return OK;
}

enum err part_start_decode(const uint8_t *payload, size_t len, struct part_start *out)
{
	struct reader r = reader_init(payload, len);
	bool taken[SESSIONS_MAX] = {false};
	*out = (struct part_start){.layer_begin = reader_u16(&r)};
	out->layer_end = reader_u16(&r);
	uint8_t wire = reader_u8(&r), zero = reader_u8(&r);
	out->n_items = reader_u16(&r);
	if (!reader_ok(&r) || wire >= N_WIRE_TYPES || zero != 0 || out->n_items == 0 || out->n_items > PART_ITEMS_MAX)
		return ERR_FORMAT;
	if (out->layer_begin >= out->layer_end || out->layer_end > LAYERS_MAX)
		return ERR_FORMAT;
	out->wire = (enum wire_type)wire;
	for (int32_t i = 0; i < out->n_items; i++) {
		struct part_item *it = &out->items[i];
		if (part_item_decode(&r, it) != OK || taken[it->slot])
			return ERR_FORMAT;
		taken[it->slot] = true;
		out->n_tokens += it->n_tokens;
	}
	return out->n_tokens <= CHUNK_TOKENS_MAX ? OK : ERR_FORMAT;
}

void ping_encode(enum frame_type type, uint64_t cookie, uint8_t out[FRAME_PING_BYTES])
{
	out[0] = (uint8_t)type;
	store_u64(out + 1, cookie);
}

enum err ping_decode(const uint8_t *frame, size_t len, uint64_t *cookie)
{
	if (len != FRAME_PING_BYTES || (frame[0] != FRAME_PING && frame[0] != FRAME_PONG))
		return ERR_FORMAT;
	*cookie = load_u64(frame + 1);
	return OK;
}

void clock_encode(uint64_t unix_ms, uint8_t out[FRAME_CLOCK_BYTES])
{
	out[0] = FRAME_CLOCK;
	store_u64(out + 1, unix_ms);
}

enum err clock_decode(const uint8_t *frame, size_t len, uint64_t *unix_ms)
{
	if (len != FRAME_CLOCK_BYTES || frame[0] != FRAME_CLOCK)
		return ERR_FORMAT;
	*unix_ms = load_u64(frame + 1);
	return OK;
}
