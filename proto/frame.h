// Frames: what one LNK1 record carries once it is open. The first byte is the type.
//
//   control links   FRAME_CONTROL   type 1, then one protobuf Control message (proto/msg.h)
//   data links      FRAME_STEP      a header of FRAME_STEP_BYTES, then the hidden states of n_tokens tokens in the plan's wire type
//                   FRAME_CREDIT    a header of FRAME_CREDIT_BYTES
//                   FRAME_PART      a header of FRAME_PART_BYTES, then bytes of what one member of a tensor-parallel group owes the others
//   both            FRAME_PING, FRAME_PONG   type 1, u64 cookie
//   blocks links    those, and FRAME_CLOCK   type 1, u64 Unix time in ms; 0 asks, and the answer is never 0
//
// All integers little-endian; reserved bytes are zero and checked. A span is the layers that a stage runs in one round; spans are numbered from
// 0 along a step's road: stage i's of round r is r * n_stages + i (partition/plan.h). The head is SPAN_HEAD, both before span 0 and behind the
// last. A frame names both ends of its hop, so that the coordinator can pass on what two nodes cannot send each other directly.
//
//   step    0 type | 1 wire | 2 reply | 3 flags | 4 src_span u16 | 6 dst_span u16 | 8 plan_epoch u64 | 16 session u64 | 24 seq u32
//           28 slot u32 | 32 pos u32 | 36 n_tokens u32 | 40 payload bytes u32 | 44 layer_begin u16 | 46 layer_end u16
//   credit  0 type | 1 zero | 2 n u16 | 4 src_span u16 | 6 dst_span u16 | 8 plan_epoch u64
//
// A step with a layer range computes again, after a loss, what the layers of that range have forgotten. It goes round the ring like any other;
// a stage with no layer in the range passes it on without a hidden state. What enters layer_begin is the payload, or, where that is empty,
// what the stage that ends or lies there has kept of what it sent. It wants no reply but its empty self.
//
//   part    0 type | 1 src member | 2 dst member | 3 flags | 4 stage u16 | 6 exchange u16 | 8 plan_epoch u64 | 16 forward u64
//           24 failed u64 | 32 offset u32 | 36 total u32 | 40 payload
//
// A stage may be a group, whose members compute each forward (one batch) together. Forwards count from 1 under a plan_epoch; exchanges from 0 in
// a forward. Exchange 0 is the lead's, member 0: what is to be computed (part_start below), then the hidden states of its items in their order.
// In every later one each member's contribution goes to every other member, one of no bytes too, as an empty frame: so nobody is ever more than
// one exchange ahead of anybody. In a ring (base/tensor_split.h, split_is_hop) most go to the next member only, an empty one too. A contribution of `total` bytes travels in one or more frames in order, the payload at `offset`. src is the
// member whose it is, dst the one at this hop's end: where the plan names a hub, that passes on what the others send it. Where two members cannot reach
// each other, the coordinator passes on. `lost` has a bit for each item of the forward that the sender cannot compute, because what it builds
// on is not there: its contribution to them is of no use. Flag 1: not all of src's weights stay in its memory, so that it computes one forward at a time.
//
// Pure; encode and decode never allocate.
#ifndef HEARTH_PROTO_FRAME_H
#define HEARTH_PROTO_FRAME_H

#include "base/err.h"
#include "base/head_reply.h"
#include "base/ids.h"
#include "base/wire_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum frame_type { FRAME_CONTROL = 1, FRAME_PING = 2, FRAME_PONG = 3, FRAME_CLOCK = 4, FRAME_STEP = 16, FRAME_CREDIT = 17, FRAME_PART = 18 };

#define FRAME_STEP_BYTES 48
#define FRAME_CREDIT_BYTES 16
#define FRAME_PART_BYTES 40
#define FRAME_PING_BYTES 9
#define FRAME_CLOCK_BYTES 9
#define SPAN_HEAD 0xffff

// What the head wants back of a step: a chunk in the middle of a prompt needs no hidden state at the head at all.
// Where the plan gives lm_head to the last stage, it is asked for what its last token's logits give instead (base/head_reply.h).
enum step_reply { REPLY_NONE, REPLY_LAST, REPLY_ALL, REPLY_BEST, REPLY_LOGITS };

static inline enum head_want step_reply_want(enum step_reply r)
{
	return r == REPLY_BEST ? HEAD_BEST : r == REPLY_LOGITS ? HEAD_LOGITS : HEAD_NOTHING;
}

#define STEP_FIRST 1 // flag: the session's first step of this plan. At position 0 the stage binds the slot to it and forgets what was there
// .. further on the stage has computed all before it, under an earlier plan.

struct step {
	enum wire_type wire;
	enum step_reply reply;
	uint8_t flags;
	uint16_t src_span, dst_span;
	struct plan_epoch epoch;
	struct session_id session;
	uint32_t seq;         // steps of one session count from 0
	uint32_t slot;        // KV slot, the same on every stage
	uint32_t pos;         // of the first token
	uint32_t n_tokens;    // >= 1
	uint32_t payload_len; // bytes after the header
	uint16_t layer_begin, layer_end; // 0, 0: every layer
};

struct credit {
	uint16_t n;                    // steps the receiver of the credit may send more, >= 1
	uint16_t src_span, dst_span; // of the credit frame: from the receiver of steps to their sender
	struct plan_epoch epoch;
};

struct part {
	uint8_t src, dst;     // members of the group, not the same one
	uint16_t stage;       // of the group
	uint16_t exchange;
	bool streams;         // src reads weights again for each forward
	struct plan_epoch epoch;
	uint64_t forward;     // >= 1
	uint64_t failed;      // bit i: item i
	uint32_t offset, total;
	uint32_t payload_len; // bytes after the header; 0 only where total is
};

#define PART_ITEMS_MAX 64 // of one forward: a bit of `failed` each
#define PART_START_HEAD_BYTES 8
#define PART_ITEM_BYTES 20
#define PART_START_BYTES_MAX (PART_START_HEAD_BYTES + PART_ITEMS_MAX * PART_ITEM_BYTES)

// What exchange 0 begins with, whole in its first frame:
//   0 layer_begin u16 | 2 layer_end u16 | 4 wire u8 | 5 zero | 6 n_items u16
//   then for each item: 0 session u64 | 8 slot u32 | 12 pos u32 | 16 n_tokens u16 | 18 flags u16
struct part_item {
	struct session_id session;
	int32_t slot, pos, n_tokens;
	bool is_first; // flag 1: the slot is bound to this session anew; pos is 0
	enum head_want want; // flag 2: candidates, flag 4: all logits of its last token, in one more exchange: only the first member gets anything in it
};

struct part_start {
	int32_t layer_begin, layer_end; // not empty
	enum wire_type wire;
	int32_t n_items, n_tokens; // n_tokens: of all items
	struct part_item items[PART_ITEMS_MAX];
};

void step_encode(const struct step *s, uint8_t out[FRAME_STEP_BYTES]);
// step_decode checks everything that needs no plan: exact length, known values, zero bytes, bounds of limits.h.
MUST_USE enum err step_decode(const uint8_t *frame, size_t len, struct step *out);
void credit_encode(const struct credit *c, uint8_t out[FRAME_CREDIT_BYTES]);
MUST_USE enum err credit_decode(const uint8_t *frame, size_t len, struct credit *out);
void part_encode(const struct part *p, uint8_t out[FRAME_PART_BYTES]);
// part_decode checks everything that needs no plan, as step_decode does.
MUST_USE enum err part_decode(const uint8_t *frame, size_t len, struct part *out);
// part_start_bytes returns how many bytes part_start_encode writes.
static inline size_t part_start_bytes(int32_t n_items)
{
	return PART_START_HEAD_BYTES + (size_t)n_items * PART_ITEM_BYTES;
}
void part_start_encode(const struct part_start *s, uint8_t out[PART_START_BYTES_MAX]);
// part_start_decode reads the beginning of exchange 0; len may be more than that. It checks what needs no plan: no slot twice, at most CHUNK_TOKENS_MAX tokens.
MUST_USE enum err part_start_decode(const uint8_t *payload, size_t len, struct part_start *out);
// ping_encode writes FRAME_PING or FRAME_PONG.
void ping_encode(enum frame_type type, uint64_t cookie, uint8_t out[FRAME_PING_BYTES]);
// frame_is_ping tells whether a frame of at least one byte is a PING or PONG: nothing is missed when it is lost.
static inline bool frame_is_ping(const uint8_t *frame)
{
	return frame[0] == FRAME_PING || frame[0] == FRAME_PONG;
}
MUST_USE enum err ping_decode(const uint8_t *frame, size_t len, uint64_t *cookie);
void clock_encode(uint64_t unix_ms, uint8_t out[FRAME_CLOCK_BYTES]);
MUST_USE enum err clock_decode(const uint8_t *frame, size_t len, uint64_t *unix_ms);

#endif
