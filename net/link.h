// One LNK1 link: a stream, the handshake with its absolute deadline, then records. What a frame means is the host's business.
//
// A link the host sees ends in one of two ways: on_down says it ended (once; afterwards the pointer is dead), or the host
// called link_abort (no on_down; the pointer is dead at once). Both may happen inside any callback of the link.
// A link that is still there when the loop is closed ends with it, without on_down.
// Large buffers are allocated only after the peer has authenticated. A record that does not open closes the link without a
// reply. An end of stream without the peer's TAG_FINAL is a failure (LINK_DOWN_LOST), never an orderly end.
// Renewing a link (every hour, or when member_epoch grows) is the host's decision: a second link comes up before the first is
// given to link_close; frames under way on the first still arrive until its on_down. node/shell/dialer does that on the dialling side.
//
// Any received byte is a heartbeat: link_get_stats gives the time of the last one. Silence is judged by flow/liveness, not here.
// Thread rule: the loop's thread only. A worker that wants to send posts a task to the loop.
#ifndef HEARTH_NET_LINK_H
#define HEARTH_NET_LINK_H

#include "base/err.h"
#include "base/ids.h"
#include "net/loop.h"
#include "net/stream.h"
#include "proto/lnk1.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct link; // from link_dial or a link_listener

// X(name, words)
#define LINK_DOWN_TABLE(X) \
	X(LINK_DOWN_CLOSED, "closed by this side") \
	X(LINK_DOWN_PEER_CLOSED, "closed by the other side") \
	X(LINK_DOWN_LOST, "connection lost") \
	X(LINK_DOWN_NO_CONNECTION, "no connection") \
	X(LINK_DOWN_HANDSHAKE_TIMEOUT, "the handshake did not finish in time") \
	X(LINK_DOWN_HANDSHAKE, "handshake failed") \
	X(LINK_DOWN_RECORD, "a record that does not open") \
	X(LINK_DOWN_NOMEM, "out of memory")

enum link_down_reason {
#define X(name, words) name,
	LINK_DOWN_TABLE(X)
#undef X
};

const char *link_down_words(enum link_down_reason r);

struct link_down {
	enum link_down_reason reason;
	enum lnk1_failure handshake; // with LINK_DOWN_HANDSHAKE
	enum stream_end stream;      // with LINK_DOWN_LOST and LINK_DOWN_NO_CONNECTION
	bool was_up;                 // on_up was called
	bool is_orderly;             // both ends closed it, and link_send_or_end lost nothing; false when in doubt
	const char *text;            // for a person; valid during the call
};

struct link_info {
	struct node_id peer; // NodeID of peer_pk
	uint8_t peer_pk[LNK1_KEY_LEN];
	enum lnk1_kind kind;
	enum lnk1_mode mode;
	bool is_dialled; // this side opened the connection
	uint8_t session_id[LNK1_SESSION_ID_LEN];
	uint8_t token_id[LNK1_TOKEN_ID_LEN];     // join mode
	uint8_t boot_id[LNK1_BOOT_ID_LEN];       // the client's
	struct member_epoch member_epoch;        // the server's
	struct member_epoch client_member_epoch; // the client's last stored
	uint16_t version;
	uint32_t record_max;     // bytes of one frame, both ways
	struct stream_peer addr; // dialled: of the address that answered, when it is numeric
};

struct link_callbacks {
	void *ctx;
	void (*on_up)(void *ctx, struct link *link, const struct link_info *info);
	void (*on_frame)(void *ctx, struct link *link, const uint8_t *frame, size_t len); // bytes valid during the call; len >= 1
	void (*on_down)(void *ctx, struct link *link, const struct link_down *down);
	void (*on_writable)(void *ctx, struct link *link); // may be NULL. A queue that was full is empty again
};

#define LINK_SOURCE_CAP 46 // an IPv6 address with its NUL

// Deadlines and bounds of links, and where they come from; tests and `--test-limits` give their own.
struct link_limits {
	char source[LINK_SOURCE_CAP]; // address of this machine that dialled connections come from; "": the kernel chooses
	int64_t connect_ns;     // to an open connection
	int64_t handshake_ns;   // absolute, for the whole handshake
	int64_t close_ns;       // how long link_close waits for the other side's TAG_FINAL
	uint32_t queued_frames; // per link
	size_t queued_bytes[LNK1_N_KINDS];
	// Before authentication, per listener:
	uint32_t unauth_max;          // connections
	uint32_t unauth_per_addr_max; // from one address (IPv6: one /64)
	uint32_t failed_per_s;        // failed handshakes of one address
	uint32_t failed_burst;
	uint32_t addrs_max; // addresses remembered
	uint32_t log_lines_per_s;
};

extern const struct link_limits link_limits_default;
// link_record_max returns the bytes of the longest frame on a link of that kind.
uint32_t link_record_max(enum lnk1_kind kind);

// What a client side needs. params is copied and wiped at the end of the handshake; params.self stays the host's.
// ERR_FORMAT: no such address ("host:port", or a URL of stream_connect). Nothing is called back from inside.
MUST_USE enum err link_dial(struct loop *loop, const char *addr, const struct lnk1_client_params *params,
	const struct link_limits *limits, const struct link_callbacks *callbacks, struct link **out, struct errmsg *em);

// link_send queues a frame of 1 to record_max bytes: copied once, encrypted now. ERR_RANGE: its length; ERR_LIMIT: the queue is full
// (the peer does not keep up: nothing was queued); ERR_CLOSED: not up, or closing.
MUST_USE enum err link_send(struct link *link, const uint8_t *frame, size_t len);
// link_send2 sends head and payload as one frame, without joining them first.
MUST_USE enum err link_send2(struct link *link, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t payload_len);
// link_send_or_end is link_send2 for frames of which none may be lost in the middle: when it fails, the link is closed (link_close). It then does
// not end in order, unless that frame was a PING or PONG, which nobody misses. head_len >= 1.
MUST_USE enum err link_send_or_end(struct link *link, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t payload_len);
bool link_is_full(const struct link *link);
// link_want_writable: on_writable comes when all that is queued now has left, also when the queue is not full. Not while it is empty.
void link_want_writable(struct link *link);

// link_close ends in order: what is queued, then TAG_FINAL. Frames of the other side still arrive until on_down. A link that is not
// up yet is ended without more ado. Always followed by on_down, later, from the loop.
void link_close(struct link *link);
// link_cut ends at once, with all that is on its way: no frame comes after it, and the other side sees a lost connection. Always followed by
// on_down, later, from the loop; it is not orderly. For a peer that is silent, or says what it has no business to say: link_close would wait for it.
void link_cut(struct link *link);
// link_abort ends at once and frees: no on_down, the pointer is dead. The other side sees a lost connection.
void link_abort(struct link *link);

// A join: the listener's on_join gave the link; the binding is on disk now (accept), or the invite no longer stands (refuse: closed
// without a reply, on_down follows later). The link may have gone down meanwhile: on_down said so, and the pointer is dead.
void link_accept(struct link *link);
void link_refuse(struct link *link);

// link_info returns what on_up told. Valid once up.
const struct link_info *link_get_info(const struct link *link);
bool link_is_up(const struct link *link);

// One pointer for the host.
void link_set_user(struct link *link, void *user);
void *link_user(const struct link *link);
// link_set_callbacks hands the link to another owner (a listener's links begin with the listener's).
void link_set_callbacks(struct link *link, const struct link_callbacks *callbacks);

struct link_stats {
	uint64_t bytes_in, bytes_out; // on the wire, handshake included
	uint64_t frames_in, frames_out;
	int64_t up_ns;       // when it came up
	int64_t heard_ns;    // last byte in
	size_t queued_bytes; // waiting to be sent
	uint32_t queued_frames;
};
struct link_stats link_get_stats(const struct link *link);

#endif
