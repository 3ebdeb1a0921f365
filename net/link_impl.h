// What link.c and link_listener.c share: the inside of a link. Nobody else includes this.
//
// A link of a listener lives in one of the listener's slots until its peer has authenticated: until then `owner` is set, the host
// has never seen it, and its end goes to the owner. Afterwards it stands alone and frees itself.
#ifndef HEARTH_NET_LINK_IMPL_H
#define HEARTH_NET_LINK_IMPL_H

#include "net/link.h"

#define LINK_URL_CAP 320
#define LINK_TEXT_CAP 192

enum link_state {
	LINK_IDLE,       // a free slot of a listener
	LINK_CONNECTING, // client
	LINK_WAITING,    // server: not started yet, its address failed too often
	LINK_HANDSHAKE,
	LINK_JUDGED, // server, join: the host writes the binding
	LINK_UP,
	LINK_CLOSING, // our TAG_FINAL is queued
	LINK_ENDED,   // on_down comes next
};

// What happens when the handshake message under way is in the kernel.
enum link_after { LINK_AFTER_READ, LINK_AFTER_UP, LINK_AFTER_REJECT };

struct link_owner {
	void *ctx;
	void (*on_authenticated)(void *ctx, struct link *link); // the link leaves its slot now; link->info is filled in
	void (*on_failed)(
		void *ctx, struct link *link, const struct link_down *down, bool blames_invite, const uint8_t *token_id);
};

struct link {
	struct loop *loop;
	const struct link_limits *limits;
	struct link_callbacks callbacks;
	void *user;
	const struct link_owner *owner; // NULL: stands alone
	enum link_state state;
	enum link_after after;
	bool is_dialled;
	bool was_up;
	bool was_full;    // on_writable is owed
	bool peer_closed; // its TAG_FINAL came
	bool has_dropped; // a frame that matters could not be sent
	bool is_in_down;
	bool *gone; // where a call under way learns that the host aborted the link inside it
	struct stream stream;
	struct loop_resident resident;    // once it stands alone
	struct loop_timer deadline;       // of the handshake, then of closing
	struct loop_task end_task;        // on_down of an end that was decided inside a call of the host
	struct lnk1_client_params params; // client, until connected
	union {
		struct lnk1_client client;
		struct lnk1_server server;
	} handshake;
	struct lnk1_link keys;
	struct stream_chunk small; // a handshake message, or TAG_FINAL: never queued twice at once
	uint8_t final_record[LNK1_RECORD_EXTRA];
	uint8_t *rx; // (rx_cap), owned; NULL before the peer authenticated
	size_t rx_cap, rx_have;
	size_t body_len; // of the record whose head was taken; 0: a head is awaited
	struct link_info info;
	struct link_stats stats;
	struct link_down down;
	char text[LINK_TEXT_CAP];
};

// link_serve takes a connection into a slot, WAITING; on failure the slot is as before and the connection is closed.
MUST_USE enum err link_serve(struct link *link, struct loop *loop, nng_stream *conn, const struct link_limits *limits,
	const struct link_callbacks *callbacks, const struct link_owner *owner);
// link_start begins the handshake of a WAITING link. The deadline that link_serve set stands.
void link_start(struct link *link, const struct lnk1_server_config *cfg);
// link_reset closes and wipes what a slot holds, without a word to anybody.
void link_reset(struct link *link);

#endif
