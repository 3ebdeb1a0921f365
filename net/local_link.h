// An in-memory link between two machines of one process: the same frames as a secure link of that kind, in order, on the loop's thread.
//
// Frames are copied when sent and arrive in a later task of the loop, never inside the sender's call. Lengths and queues have the limits of
// a secure link, so that what works here works between two machines. An end that was detached hears no more, and neither does the other.
// Both ends close together. Thread rule: the loop's thread only.
#ifndef HEARTH_NET_LOCAL_LINK_H
#define HEARTH_NET_LOCAL_LINK_H

#include "base/err.h"
#include "net/link.h"
#include "net/loop.h"

#include <stddef.h>
#include <stdint.h>

struct local_link;

struct local_callbacks {
	void *ctx;
	void (*on_frame)(void *ctx, uint32_t end, const uint8_t *frame, size_t len); // bytes valid during the call
};

// local_link_open makes a link whose ends are 0 and 1.
MUST_USE enum err local_link_open(struct loop *loop, enum lnk1_kind kind, const struct link_limits *limits, struct local_link **out,
	struct errmsg *em);
// local_link_close: fine inside on_frame. What has not arrived is dropped. NULL is allowed.
void local_link_close(struct local_link *l);
// local_link_attach says who receives at `end`. Frames wait until both ends are attached.
void local_link_attach(struct local_link *l, uint32_t end, const struct local_callbacks *callbacks);
// local_link_detach: fine inside on_frame; what has not arrived at either end is dropped. NULL is allowed.
void local_link_detach(struct local_link *l, uint32_t end);
// local_link_send sends from `end` to the other, as link_send2 does. ERR_RANGE: its length; ERR_LIMIT: the queue is full, nothing was queued;
// ERR_CLOSED: an end was detached; ERR_NOMEM.
MUST_USE enum err local_link_send(struct local_link *l, uint32_t end, const uint8_t *head, size_t head_len, const uint8_t *payload,
	size_t payload_len);

#endif
