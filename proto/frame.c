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
	if (wire >= N_WIRE_TYPES || reply > REPLY_ALL || (out->flags & ~STEP_FIRST) != 0)
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
