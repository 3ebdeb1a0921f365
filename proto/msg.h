// Control messages as plain structs: decoding validates every field and gives fixed-size structs; nothing of protobuf-c is
// seen outside msg_decode.c and msg_encode.c; the decoder allocates from a bounded arena on the stack.
//
// Strings are checked: valid UTF-8 without NUL or control characters, within their capacity. Keys and hashes have their exact
// length. Numbers are within limits.h. Pure: no clock, no socket, nothing kept.
#ifndef HEARTH_PROTO_MSG_H
#define HEARTH_PROTO_MSG_H

#include "base/device_profile.h"
#include "base/err.h"
#include "base/ids.h"
#include "base/layer_part.h"
#include "base/layer_spans.h"
#include "base/limits.h"
#include "base/tensor_split.h"
#include "base/wire_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLUSTER_ID_BYTES 16
#define HASH_BYTES 32
#define SIMD_NAME_CAP 16

struct address_list {
	uint32_t n;
	char at[ADDRS_MAX][ADDR_CAP]; // host:port
};

struct msg_hello {
	char name[NAME_CAP];
	uint8_t model_hash[HASH_BYTES];
	uint32_t n_threads;
	char simd[SIMD_NAME_CAP];
	uint16_t port; // 0: does not listen
	struct address_list addresses;
	struct plan_epoch epoch;
	bool kept; // KV and sent states of its last plan are still there: the process did not end, no memory was let go
	int32_t layers_max; // it has memory for; 0: it does not say
	bool fetches;       // it has no model file: what a part needs is fetched first
	struct held_layers held; // layers whose blocks it has and has compared; empty unless it fetches
};

struct msg_peer {
	bool present;
	uint8_t public_key[KEY_BYTES];
	uint8_t psk[KEY_BYTES];
	struct address_list addresses;
	char name[NAME_CAP];
};

// Who computes a stage together. Its first member, the lead, is the stage for the ring.
struct msg_group {
	int32_t n_members; // 2 .. GROUP_MEMBERS_MAX; 0: this node alone is the stage, and the rest is zero
	int32_t self;      // this node's place
	enum split_mode mode;
	enum wire_type payload; // as struct tensor_split's
	int32_t hub;       // member that passes on what the others send; -1: each sends to each. 0 without a group
	uint32_t shares[GROUP_MEMBERS_MAX]; // in any unit, not all of them 0
	struct msg_peer members[GROUP_MEMBERS_MAX]; // not present: its own, and one that is on the coordinator's machine or is to be reached through it
};

struct msg_plan {
	struct plan_epoch epoch;
	int32_t n_stages, stage; // n_stages 0: the plan has no part for this node, which lets go of everything; the rest is zero
	struct layer_spans layers; // one span for each round; an empty one only where there are several
	enum wire_type wire;
	int32_t n_slots, ctx_len, chunk_max, hop_credits;
	bool has_output; // lm_head is the last stage's, not the head's
	uint32_t stream_share; // of this node's weights, as struct plan_stage's
	struct msg_peer prev, next; // absent for all but the lead of a group
	struct msg_group group;
};

struct msg_join_grant {
	uint8_t cluster_id[CLUSTER_ID_BYTES];
	uint8_t psk[KEY_BYTES];
	char name[NAME_CAP];
	struct member_epoch member_epoch;
	struct address_list addresses;
};

// STEP_WEIGHTS: the sender cannot read its weights any more; the error names file and offset.
enum step_failure { STEP_NON_FINITE = 1, STEP_OTHER = 2, STEP_NOT_KEPT = 3, STEP_WEIGHTS = 4 };

enum msg_type {
	MSG_HELLO = 1,
	MSG_WELCOME,
	MSG_REFUSED,
	MSG_PLAN,
	MSG_LOADED,
	MSG_CANCEL,
	MSG_STEP_FAILED,
	MSG_PEER_LINK,
	MSG_REVOKED,
	MSG_LEAVING,
	MSG_BYE,
	MSG_JOIN_GRANT,
	MSG_JOIN_ACK,
	MSG_LINK_RTT,
	MSG_NODE_REPORT,
	MSG_PROFILE,
	MSG_PREPARE,
	MSG_PREPARED,
};

// Counts of one process of a node, each below 2^62.
struct msg_weight_report {
	uint32_t reader; // 1: mmap, 2: direct; 0: no memory cap, and nothing else is set
	bool locked;
	uint64_t pinned, streamed, window; // bytes
	uint64_t read, read_us, stall_us;  // since the layers were loaded
	uint64_t steps;
	uint64_t withheld; // bytes that they would take, too, were other programs not short of memory
};

// What a member of groups has sent to the others, each below 2^62.
struct msg_group_report {
	uint64_t n_forwards, n_tokens, n_exchanges;
	uint64_t start_bytes, part_bytes; // payload: what to compute, with its hidden states; contributions
	uint64_t n_frames, overhead;      // overhead: bytes of frames' headers, and of records around them
};

struct msg_node_report {
	uint64_t disk_written, disk_read; // bytes of kept states
	uint64_t n_tokens;                // that passed its layers
	uint64_t next_heard, next_late;   // frames on the direct link to the next stage; those that were late for it
	struct msg_weight_report weights;
	uint64_t decode_bytes, decode_us, n_visits; // visits of one token: weights read, computing without waiting for the disk
	uint64_t prefill_flop, prefill_us;          // visits of many tokens
	struct msg_group_report group;              // all zero: it never was in one
};

// What one end knows of its way to another (flow/link_stats): of recent round trips, and of frames of the sizes that were sent.
struct link_figures {
	uint64_t n;                              // round trips measured so far; 0: nothing is known
	int32_t p50_us, p90_us, p99_us, mean_us; // 0 to LINK_RTT_MAX_US
	uint64_t rate_bps;                       // bytes/s towards the peer; 0: not known
	uint64_t rate_least_bps;                 // it is at least this; 0: nothing was sent that would tell
};

struct msg {
	enum msg_type type;
	union {
		struct msg_hello hello;
		struct {
			char name[NAME_CAP];
			struct member_epoch member_epoch;
		} welcome;
		struct {
			char reason[REASON_CAP];
		} refused;
		struct msg_plan plan;
		struct {
			struct plan_epoch epoch;
			char error[REASON_CAP]; // "": ready
		} loaded;
		struct {
			struct plan_epoch epoch;
			struct session_id session;
		} cancel;
		struct {
			struct plan_epoch epoch;
			struct session_id session;
			enum step_failure code;
			char error[REASON_CAP];
		} step_failed;
		struct {
			struct plan_epoch epoch;
			bool direct, broken;
		} peer_link;
		struct {
			struct member_epoch member_epoch;
			struct node_id node;
		} revoked;
		struct msg_join_grant join_grant;
		struct {
			struct node_id peer;
			int32_t rtt_us; // 0 to LINK_RTT_MAX_US
			struct link_figures figures;
		} link_rtt;
		struct msg_node_report node_report;
		struct device_profile profile;
		struct {
			uint64_t serial; // not 0
			struct layer_spans layers; // n 0: nothing is to be fetched any more
			struct layer_part part;    // of each of them
			bool has_output;           // and of the output head
		} prepare;
		struct {
			uint64_t serial;
			char error[REASON_CAP]; // "": they are here
		} prepared;
	} u;
};

#define LINK_RTT_MAX_US 60000000 // a minute
#define MSG_ENCODED_MAX 24576 // a Plan with two neighbours and 15 members, of ADDRS_MAX addresses each, takes 21 KiB

// msg_encode writes a whole FRAME_CONTROL frame (type byte first) and returns its length. What does not fit its field is our bug.
size_t msg_encode(const struct msg *m, uint8_t out[MSG_ENCODED_MAX]);
// msg_decode reads a whole FRAME_CONTROL frame. ERR_FORMAT (em names message and field) on anything that breaks a rule.
MUST_USE enum err msg_decode(const uint8_t *frame, size_t len, struct msg *out, struct errmsg *em);
// msg_name returns "Hello", "Plan", ...
const char *msg_name(enum msg_type t);

// text_copy copies what fits of a NUL-terminated text, cutting before a UTF-8 character that does not fit.
void text_copy(char *out, size_t cap, const char *text);
// text_is_plain tells whether text is valid UTF-8 without control characters.
bool text_is_plain(const char *text, size_t len);

#endif
