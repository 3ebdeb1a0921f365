// The server side: accepts connections, holds strangers within limits, and gives the host the links that authenticated.
//
// Before authentication a peer costs a slot of a fixed pool (handshake state of at most 512 bytes, and a socket), one key
// exchange and nothing else. When the slots of an address or of all are taken, the oldest of them is closed. An address that fails too
// often is not refused: its next handshakes wait, in order, until its token bucket has filled. One absolute deadline covers accept,
// waiting and handshake. Nothing a stranger sends is answered unless it is a valid M1.
//
// Thread rule: the loop's thread only. All of the host's functions are called there.
#ifndef HEARTH_NET_LINK_LISTENER_H
#define HEARTH_NET_LINK_LISTENER_H

#include "base/err.h"
#include "base/log.h"
#include "net/link.h"
#include "proto/lnk1.h"

#include <stdint.h>

struct link_listener; // from link_listener_open

struct link_listener_params {
	const char *addr;                     // "0.0.0.0:7433"; port 0: any free one
	const struct lnk1_server_config *cfg; // borrowed; keys, look-ups, cluster_id, is_node; the host may raise member_epoch
	const struct link_limits *limits;     // borrowed; link_limits_default
	const struct log *log;                // borrowed; may be NULL
	struct link_callbacks callbacks;      // of every link that authenticates: on_up, on_frame, on_down
	void *ctx;
	// on_join: a stranger proved that it holds invite info->token_id and owns info->peer_pk. The host checks that the invite still stands
	// and is unbound or bound to this key, writes the binding (fsync), then calls link_accept or link_refuse, now or later.
	// NULL refuses all.
	void (*on_join)(void *ctx, struct link *link, const struct link_info *info);
	// on_invite_failed: a handshake that counts against this invite. May be NULL.
	void (*on_invite_failed)(void *ctx, const uint8_t token_id[LNK1_TOKEN_ID_LEN]);
};

// link_listener_open listens. ERR_EXISTS: the port is taken; ERR_FORMAT, ERR_IO, ERR_NOMEM.
MUST_USE enum err link_listener_open(
	struct link_listener **out, struct loop *loop, const struct link_listener_params *params, struct errmsg *em);
// link_listener_close stops listening and closes the half-open handshakes. Links that authenticated stay. NULL is fine.
void link_listener_close(struct link_listener *l);

uint16_t link_listener_port(const struct link_listener *l);

struct link_listener_stats {
	uint64_t n_accepted; // connections
	uint64_t n_up;       // handshakes completed
	uint64_t n_failed;   // handshakes failed, timeouts included
	uint64_t n_evicted;  // closed to make room
	uint32_t n_unauth;   // now
	uint32_t n_waiting;  // of these: waiting for their address's bucket
};
struct link_listener_stats link_listener_get_stats(const struct link_listener *l);

#endif
