// Inside the relay: what emulate.c (listeners, time, status), emulate_conn.c (connections) and emulate_fault.c share. Nobody else includes it.
#ifndef HEARTH_SIM_SHELL_EMULATE_STATE_H
#define HEARTH_SIM_SHELL_EMULATE_STATE_H

#include "sim/shell/awake.h"
#include "sim/shell/emulate.h"
#include "sim/shell/relay_queue.h"

#define LATE_BUCKET_NS 1000 // a microsecond
#define LATE_BUCKETS 8192   // the last one is "or more"

enum conn_state {
	CONN_FREE,
	CONN_KNOCKING,   // its SYN is under way
	CONN_CONNECTING, // the kernel connects to the device's own address
	CONN_OPENING,    // the answer to the SYN is under way; the other side may speak
	CONN_OPEN,
	CONN_DEAD, // until the batch of events is over
};

// Side 0 is the device that connected, side 1 the other. Queue i holds what side i sent.
struct conn_side {
	struct watch watch;
	struct conn *conn;
	bool has_ended;  // nothing more comes from it
	bool is_gone;    // its connection is broken: nothing can be written to it
	bool is_half_closed; // before the connection was open: it will say no more, and is read later
	bool is_blocked; // it does not read: its kernel's buffer is full
	bool is_unread;  // the relay has not read all the time: what comes next may have waited for that
	uint64_t bytes;  // that it sent and that left here
};

struct conn {
	struct emulate *e;
	enum conn_state state;
	int32_t from, to;
	int32_t flow;
	uint64_t number;
	int64_t syn_due_ns; // of the SYN, then of its answer; RELAY_HELD while swallowed
	struct conn_side sides[2];
	struct relay_queue queues[2];
};

struct relay_listener {
	struct watch watch;
	struct emulate *e;
	int32_t from, to; // from -1: by the source address
};

struct emulate {
	const struct topology *t;
	struct emulate_callbacks callbacks;
	struct poller poller;
	struct network network;
	struct arena arena; // the network's
	struct awake awake;
	int64_t start_ns, now_ns;
	struct relay_listener *listeners;
	int32_t n_listeners;
	struct conn *conns;  // (EMULATE_CONNECTIONS_MAX)
	int32_t n_conns_used; // places below this were ever used
	uint64_t n_conns;     // ever
	int64_t retry_ns;     // when something held is tried again; RELAY_HELD: nothing is held
	struct emulate_pair_stats *pairs; // (n_devices, n_devices) from, to; n_open and n_held are counted when asked for
	uint64_t late[LATE_BUCKETS];
	uint64_t n_late;
	int64_t late_max_ns;
};

// emulate_clock brings now_ns up to date and returns it.
int64_t emulate_clock(struct emulate *e);
void emulate_tell(struct emulate *e, struct emulate_event ev);

// conn_start takes over an accepted socket.
void conn_start(struct emulate *e, int32_t from, int32_t to, int fd);
// conn_step does what is due and returns when it wants to be called again.
int64_t conn_step(struct conn *c);
// conn_reset ends both sides with a reset; the place is free after the batch.
void conn_reset(struct conn *c, const char *why);
// conn_retry asks the network for what was swallowed.
void conn_retry(struct conn *c);
bool conn_is_held(const struct conn *c);
// conn_free gives the place of a dead one back.
void conn_free(struct conn *c);
// reset_socket closes a socket so that the other end sees a reset.
void reset_socket(int fd);

#endif
