// The coordinator's links for its host: the listener, the table of links by handle, and the in-memory links to the node of this machine. What
// happens on them comes as events; a frame's bytes are valid while its event is handled (coord_link_host_message).
//
// No policy: which link stays, and what a frame means, is the core's business. Thread rule: the loop's thread.
#ifndef HEARTH_COORDINATOR_SHELL_COORD_LINK_HOST_H
#define HEARTH_COORDINATOR_SHELL_COORD_LINK_HOST_H

#include "base/err.h"
#include "base/log.h"
#include "coordinator/coordinator.h"
#include "net/link.h"
#include "net/local_link.h"
#include "net/loop.h"
#include "proto/lnk1.h"

struct coord_link_host;

struct coord_link_host_params {
	struct loop *loop; // borrowed, like all pointers here
	const struct log *log;
	const struct coordinator *core;     // asked for psks and tokens; initialised before anybody can connect
	struct local_link *local_control, *local_data; // end 0 is ours; NULL: no node on this machine
	void *ctx;
	void (*on_blocks)(void *ctx, struct link *link, const struct link_info *info); // a blocks link came up: somebody else's from now on; NULL: refused
	void (*on_event)(void *ctx, struct coord_event *ev); // LINK_UP, LINK_DOWN, MESSAGE, JOIN, JOIN_FAILED
};

MUST_USE enum err coord_link_host_open(const struct coord_link_host_params *p, struct coord_link_host **out, struct errmsg *em);
// coord_link_host_close ends every link at once, without an event. NULL is allowed.
void coord_link_host_close(struct coord_link_host *l);

struct coord_link_host_listen {
	const char *addr; // "0.0.0.0:7433"
	const struct lnk1_keypair *keys;
	const struct link_limits *limits;
	uint8_t cluster_id[CLUSTER_ID_BYTES];
};
MUST_USE enum err coord_link_host_listen(struct coord_link_host *l, const struct coord_link_host_listen *p, struct errmsg *em);
uint16_t coord_link_host_port(const struct coord_link_host *l); // 0: does not listen
// coord_link_host_set_epoch: new links learn this member_epoch.
void coord_link_host_set_epoch(struct coord_link_host *l, struct member_epoch e);
// coord_link_host_start_local brings both local links up, as links of `self`.
void coord_link_host_start_local(struct coord_link_host *l, struct node_id self);

// coord_link_host_message returns the frame whose event is being handled.
const uint8_t *coord_link_host_message(const struct coord_link_host *l, size_t *len);
// coord_link_host_send: a frame that does not go through ends its link. A handle that is gone is no error.
void coord_link_host_send(struct coord_link_host *l, uint32_t handle, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t len);
void coord_link_host_end(struct coord_link_host *l, uint32_t handle, bool orderly); // its LINK_DOWN comes from the loop
// coord_link_host_disconnect ends every link of a node at once, without an event.
void coord_link_host_disconnect(struct coord_link_host *l, struct node_id node);
void coord_link_host_judge(struct coord_link_host *l, uint32_t handle, bool accept); // of a join

#endif
