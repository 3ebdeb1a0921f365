// Two hosts on one loop for tests of links: a listener with the tables of lnk1_fixture, and clients that dial it.
#ifndef HEARTH_TESTS_SUPPORT_LINK_WORLD_H
#define HEARTH_TESTS_SUPPORT_LINK_WORLD_H

#include "net/link.h"
#include "net/link_listener.h"
#include "net/loop.h"
#include "tests/support/lnk1_fixture.h"

#define WORLD_S INT64_C(1000000000)
#define WORLD_PATIENCE (20 * WORLD_S)

// What a host heard from its links. Counters only grow.
struct world_host {
	int n_up, n_frames, n_down, n_writable;
	struct link *up;       // the last one that came up; NULL once it is down
	struct link *live[64]; // all that are up
	struct link_info info;
	struct link_down down; // text: see down_text
	char down_text[256];
	uint8_t *frames; // (frames_cap) all frames joined, when not NULL
	size_t frames_len, frames_cap;
	size_t last_len;
	bool abort_on_up, abort_on_frame, close_on_up, close_on_frame, cut_on_up, cut_on_frame, echo;
};

struct world {
	struct loop loop;
	struct lnk1_fixture fix; // client side: member, data link
	struct link_limits limits;
	struct link_listener *listener;
	char addr[32]; // "127.0.0.1:port"
	struct world_host server, client;
	// Joins at the server
	int n_joins, n_invite_failed;
	struct link *joining;
	struct link_info join_info;
	uint8_t failed_token[LNK1_TOKEN_ID_LEN];
};

// world_open: a listener on a free port of 127.0.0.1. `limits` NULL: link_limits_default.
struct world *world_open(enum lnk1_mode mode, enum lnk1_kind kind, const struct link_limits *limits);
// world_close aborts the client's last link and all of the server's.
void world_close(struct world *w);
// world_abort aborts h->up.
void world_abort(struct world_host *h);
struct link_callbacks world_callbacks(struct world_host *h);
// world_dial dials `addr` (NULL: the listener) with the fixture's client side.
struct link *world_dial(struct world *w, const char *addr);
// world_run runs the loop until done(ctx), and says whether it came to that in time.
bool world_run(struct world *w, bool (*done)(void *ctx), void *ctx);
// world_run_for runs the loop for a while: for what must not happen.
void world_run_for(struct world *w, int64_t ns);
// world_up brings one link up: both hosts have theirs.
void world_up(struct world *w);

bool world_both_up(void *ctx);     // struct world
bool world_both_down(void *ctx);   // as many down as up, at both
bool world_client_down(void *ctx); // at least one
bool world_server_down(void *ctx);

// A client that speaks LNK1 by hand over a plain socket. world_raw_handshake does it whole; the loop runs meanwhile.
void world_raw_handshake(struct world *w, int fd, struct lnk1_link *out);
// world_raw_recv takes exactly `len` bytes, the loop running meanwhile; false: the other side closed first.
bool world_raw_recv(struct world *w, int fd, uint8_t *buf, size_t len);
bool world_raw_closed(struct world *w, int fd);

#endif
