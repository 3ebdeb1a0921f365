// Finding coordinators on the local network, and being found there: DNS-SD over mDNS (service_txt.h says what is told).
//
// The work is done by a backend on a thread of its own, because what it talks to (avahi-daemon, over D-Bus) may be missing, slow or stopped, and
// each call to it waits. The loop's thread never does: discovery_open starts the thread and returns, on_change comes as a task when there is
// something new, discovery_close leaves the thread to end by itself. Tests give a backend of their own.
//
// Discovery is not liveness and not trust. That a coordinator is announced says that somebody said so.
//
// Ownership: the object is shared with the thread and freed by the last of the two. Thread rule: discovery_* belong to the loop's thread,
// discovery_sink_* to the backend's.
#ifndef HEARTH_NET_DISCOVERY_H
#define HEARTH_NET_DISCOVERY_H

#include "base/err.h"
#include "net/found_list.h"
#include "net/loop.h"

#include <stdbool.h>

struct discovery;
struct discovery_sink; // the same object, as its backend sees it

enum discovery_state {
	DISCOVERY_STARTING, // nothing is known yet
	DISCOVERY_ON,       // announced, or browsing
	DISCOVERY_SETTLED,  // browsing, and whoever was there at the beginning has had the time to answer
	DISCOVERY_OFF,      // it does not work here now; the text says why, and it may come back
};

struct discovery_want {
	bool announce; // txt, port and interface are set
	struct service_txt txt;
	uint16_t port;
	int32_t interface; // only there; 0: everywhere
	bool only_ipv4;    // nobody listens on IPv6
	bool browse;
	bool is_pinned; // browse: only for the coordinator with this fingerprint
	struct node_id pinned;
};

struct discovery_backend {
	// run does what is wanted until discovery_sink_fd is readable, then returns. It may take its time to: nobody waits.
	void (*run)(const struct discovery_want *want, struct discovery_sink *sink, void *ctx);
	void *ctx;
};

// The one that asks avahi-daemon, through libavahi-client; that library is loaded when it is used, so that a machine without it lacks nothing else
// (linked, it and what it brings take 1.3 MB of every process).
extern const struct discovery_backend discovery_avahi;

struct discovery_params {
	struct loop *loop;
	const struct discovery_backend *backend; // borrowed for ever
	struct discovery_want want;
	void (*on_change)(void *ctx, struct discovery *d); // state, list or both; may close `d`. May be NULL
	void *ctx;
};

// discovery_open: ERR_LIMIT when the system gives no thread or descriptor; ERR_NOMEM. That nobody can be found is no error here: see the state.
MUST_USE enum err discovery_open(const struct discovery_params *p, struct discovery **out, struct errmsg *em);
// discovery_close: no on_change follows. NULL is fine. What was announced is taken back, soon.
void discovery_close(struct discovery *d);

// discovery_get_state writes a sentence for a person, without a full stop ("": none).
enum discovery_state discovery_get_state(const struct discovery *d, char text[ERRMSG_CAP]);
// discovery_get_list copies what is announced now.
void discovery_get_list(const struct discovery *d, struct found_list *out);

// ---- for backends

// discovery_sink_fd becomes readable when run must return.
int discovery_sink_fd(const struct discovery_sink *s);
bool discovery_sink_is_over(const struct discovery_sink *s);
void discovery_sink_state(struct discovery_sink *s, enum discovery_state state, const char *text);
// discovery_sink_found gives an announcement; another fingerprint than the pinned one is passed over.
void discovery_sink_found(struct discovery_sink *s, const struct found *f);
void discovery_sink_gone(struct discovery_sink *s, const struct found_key *key);
// discovery_sink_clear: the source has ended, and with it all it said.
void discovery_sink_clear(struct discovery_sink *s);

#endif
