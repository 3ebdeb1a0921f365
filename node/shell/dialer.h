// A dialer keeps one link of one kind to one peer up, for ever: the peer's addresses in turn, then a pause that grows
// (flow/backoff), again and again. It also renews the link on demand: the new one is up before the old one is closed.
//
// The host's callbacks are those of a link, with the dialer's rule: on_down of an attempt that never came up goes to on_failed
// instead, and after a renewal on_up comes for the new link before on_down of the old one. The host never keeps count of attempts.
// Thread rule: the loop's thread only.
#ifndef HEARTH_NODE_SHELL_DIALER_H
#define HEARTH_NODE_SHELL_DIALER_H

#include "base/err.h"
#include "base/limits.h"
#include "flow/backoff.h"
#include "net/link.h"
#include "proto/msg.h"

struct dialer; // from dialer_open

struct dialer_params {
	struct link_callbacks callbacks; // links that came up
	void *ctx;
	// params fills in the client's side for one attempt: keys, psk and member_epoch as they are now. false: no attempt now; ask again
	// after the pause.
	bool (*params)(void *ctx, struct lnk1_client_params *out);
	// on_failed: an attempt did not come up; `next_ns` is when the next one begins. May be NULL.
	void (*on_failed)(void *ctx, const char *addr, const struct link_down *down, int64_t next_ns);
	const struct link_limits *limits;     // borrowed
	const struct backoff_limits *backoff; // borrowed; backoff_defaults
	uint64_t seed;                        // of the jitter
	uint32_t n_addrs;
	char addrs[ADDRS_MAX][ADDR_CAP]; // "host:port"
	const struct address_list *more; // tried behind those; borrowed, and may change at any time on the loop's thread; NULL: none
};

// dialer_open makes the first attempt from the loop, soon. ERR_RANGE: no address; ERR_NOMEM.
MUST_USE enum err dialer_open(struct dialer **out, struct loop *loop, const struct dialer_params *params, struct errmsg *em);
// dialer_close stops dialling and closes the link: in order (TAG_FINAL) when `orderly`, and then on_down still comes for a link that was up;
// else it is aborted, without on_down. The pointer is dead. NULL is fine.
void dialer_close(struct dialer *d, bool orderly);

// dialer_renew makes a whole new handshake beside the link that is up, and closes that one when the new one is up.
void dialer_renew(struct dialer *d);
// dialer_link returns the link that is up, or NULL. The host never calls link_abort on it; link_close and link_cut are fine, and means a new link after a
// pause.
struct link *dialer_link(const struct dialer *d);

#endif
