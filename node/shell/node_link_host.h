// The node's links as its core sees them: handles of what it dials, of what its listener accepts, and of the two in-memory links to a
// coordinator in this process. Turns what happens on them into events, and carries out CONNECT, DISCONNECT, REFRESH, SEND and CLOSE.
//
// No policy: which link stays, and what a frame means, is the core's business. Thread rule: the loop's thread.
#ifndef HEARTH_NODE_SHELL_NODE_LINK_HOST_H
#define HEARTH_NODE_SHELL_NODE_LINK_HOST_H

#include "base/err.h"
#include "base/log.h"
#include "net/link.h"
#include "net/local_link.h"
#include "net/loop.h"
#include "node/node.h"
#include "node/shell/node_blocks.h"
#include "proto/lnk1.h"

struct node_link_host;

struct node_link_host_params {
	struct loop *loop; // borrowed, like all pointers here
	const struct log *log;
	const struct node *core;    // asked for psks and the member_epoch; initialised before anybody can connect
	struct node_blocks *blocks; // takes the links of its kind; NULL: they are refused
	struct node_id self, coordinator;
	struct local_link *local_control, *local_data; // end 1 is ours; NULL: the coordinator is another machine, and all that follows holds
	const struct lnk1_keypair *keys;
	uint8_t coordinator_pk[KEY_BYTES];
	uint8_t cluster_id[CLUSTER_ID_BYTES];
	uint8_t psk[KEY_BYTES];        // shared with the coordinator
	struct address_list addresses; // of the coordinator
	const struct address_list *found; // more of them, tried behind; borrowed, may change on the loop's thread; NULL: none
	uint8_t boot_id[LNK1_BOOT_ID_LEN];
	const struct link_limits *limits;
	void *ctx;
	void (*on_event)(void *ctx, struct node_event *ev); // LINK_UP, LINK_DOWN, MESSAGE
};

MUST_USE enum err node_link_host_open(const struct node_link_host_params *p, struct node_link_host **out, struct errmsg *em);
// node_link_host_close ends every link at once, without an event. NULL is allowed.
void node_link_host_close(struct node_link_host *h);
// node_link_host_listen accepts neighbours' links at `addr`; new ones learn this member_epoch. It returns the port.
MUST_USE enum err node_link_host_listen(
	struct node_link_host *h, const char *addr, struct member_epoch e, uint16_t *port, struct errmsg *em);
// node_link_host_start_local brings both local links up.
void node_link_host_start_local(struct node_link_host *h);

// node_link_host_message returns the frame whose event is being handled.
const uint8_t *node_link_host_message(const struct node_link_host *h, size_t *len);

// What the core wants. A handle that is gone is no error; a frame that does not go through ends its link.
void node_link_host_connect(struct node_link_host *h, struct node_id peer, enum node_link_kind kind, const struct msg_peer *who); // NULL: the coordinator
void node_link_host_disconnect(struct node_link_host *h, struct node_id peer, enum node_link_kind kind); // at once, without an event
void node_link_host_refresh(struct node_link_host *h, struct node_id peer, enum node_link_kind kind);
void node_link_host_send(
	struct node_link_host *h, uint32_t handle, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t len);
void node_link_host_end(struct node_link_host *h, uint32_t handle, bool orderly); // its LINK_DOWN comes from the loop

#endif
