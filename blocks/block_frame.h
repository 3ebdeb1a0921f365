// Frames of a blocks link (LNK1 kind 2): what one record carries. The first byte is the type; integers are little-endian; zeros are checked.
//
//   hello         0 type | 1 manifest hash 32          from the dialler, first: the model it will ask for. Nothing else is served
//   manifest get  0 type | 1 zero 3 | 4 offset u32     to the coordinator, by who does not know the model yet
//   manifest part 0 type | 1 state u8 (0 a part, 1 not ready) | 2 zero u16 | 4 total u32 | 8 offset u32 | bytes, at most BLOCK_FRAME_PART_MAX
//   have          0 type | 1 zero 3 | a block set      from a member to the coordinator: what it holds
//   get           0 type | 1 zero | 2 n u16 | blocks u32 each, 1 to BLOCK_FRAME_GET_MAX
//   block         0 type | 1 form u8 (0 as it is, 1 zstd) | 2 zero u16 | 4 block u32 | bytes
//   refuse        0 type | 1 reason u8 (enum fetch_refusal) | 2 zero u16 | 4 block u32 (all ones: everything)
//   peer          0 type | 1 present u8 | 2 slot u16 | public key 32 | psk 32 | name and addresses: count u8 of them, each length u8, text
//                 from the coordinator to a member: another one; present 0 ends after the slot: it is gone
//   peer have     0 type | 1 zero | 2 slot u16 | a block set: what that one holds
//   progress      0 type | 1 state u8 | 2 zero u16 | 4 total u64 | 12 done u64 | 20 bytes per second u64 | 28 left ms u32 (all ones: no telling) |
//                 32 fetched u64          from a member to the coordinator, for whoever looks at the cluster
//
// FRAME_PING, FRAME_PONG and FRAME_CLOCK (proto/frame.h) are allowed as well; who serves blocks answers the clock, for `hearth doctor`. Pure; nothing is allocated.
#ifndef HEARTH_BLOCKS_BLOCK_FRAME_H
#define HEARTH_BLOCKS_BLOCK_FRAME_H

#include "base/err.h"
#include "blocks/fetch.h"
#include "proto/msg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum block_frame_type {
	BLOCK_FRAME_HELLO = 48,
	BLOCK_FRAME_MANIFEST_GET,
	BLOCK_FRAME_MANIFEST_PART,
	BLOCK_FRAME_HAVE,
	BLOCK_FRAME_GET,
	BLOCK_FRAME_BLOCK,
	BLOCK_FRAME_REFUSE,
	BLOCK_FRAME_PEER,
	BLOCK_FRAME_PEER_HAVE,
	BLOCK_FRAME_PROGRESS,
};

enum block_form { BLOCK_FORM_RAW = 0, BLOCK_FORM_ZSTD = 1 };
enum block_part_state { BLOCK_PART_OK = 0, BLOCK_PART_NOT_READY = 1 };
enum block_progress_state { BLOCK_PROGRESS_IDLE = 0, BLOCK_PROGRESS_FETCHING = 1, BLOCK_PROGRESS_FAILED = 2 };

#define BLOCK_FRAME_HEAD_BYTES 8           // of a block, before its bytes
#define BLOCK_FRAME_PART_MAX (256 * 1024)
#define BLOCK_FRAME_GET_MAX 64
#define BLOCK_FRAME_PEERS_MAX 64           // slots
#define BLOCK_FRAME_ALL UINT32_MAX         // of a refusal: whatever is asked for
#define BLOCK_FRAME_SMALL_MAX 2048         // the longest frame without blocks, sets or parts: a peer

struct block_progress {
	enum block_progress_state state;
	uint64_t bytes_total, bytes_done, rate; // of what is wanted now; bytes per second
	uint32_t left_ms;                       // UINT32_MAX: no telling
	uint64_t bytes_fetched;                 // since the node began
};

struct block_frame {
	enum block_frame_type type;
	union {
		uint8_t hello[BLOCK_HASH_BYTES];
		uint32_t manifest_offset;
		struct {
			enum block_part_state state;
			uint32_t total, offset;
			const uint8_t *data; // borrowed, like all pointers here
			size_t len;
		} part;
		struct {
			uint16_t slot; // PEER_HAVE
			const uint8_t *set; // encoded
			size_t len;
		} have;
		struct {
			uint16_t n;
			uint32_t blocks[BLOCK_FRAME_GET_MAX];
		} get;
		struct {
			enum block_form form;
			uint32_t block;
			const uint8_t *data;
			size_t len;
		} block;
		struct {
			enum fetch_refusal reason;
			uint32_t block;
		} refuse;
		struct {
			uint16_t slot;
			struct msg_peer who; // present: false when it is gone
		} peer;
		struct block_progress progress;
	} u;
};

// block_frame_encode writes a whole frame but for borrowed bytes, which are to be sent behind it, and returns its length.
size_t block_frame_encode(const struct block_frame *f, uint8_t out[BLOCK_FRAME_SMALL_MAX]);
// block_frame_decode reads a whole frame. ERR_FORMAT on anything that breaks a rule: the link is to be closed.
MUST_USE enum err block_frame_decode(const uint8_t *frame, size_t len, struct block_frame *out);

#endif
