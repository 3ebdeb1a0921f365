// `hearth emulate`: the links of sim/network put between real processes of one machine, in real time.
//
// The relay listens on the addresses of the topology (sim/shell/topology.h) and passes what it reads on to the device's own address, each piece at the
// time that the network gives it: in order, bounded, with the network's resets, silences and stalls. Every connection is a flow of its own; its first
// and last words (SYN, FIN, RST) travel through the network as messages of no bytes.
//
// What differs from a real network, because the kernel is on both sides of the relay:
// - connect() succeeds at once. What a real one would have waited is waited before the first byte passes; a connection that would have been
//   refused is reset.
// - Behind a black hole nothing is lost for good: as with TCP, it comes when the cut is healed, at the next retransmission.
// - A read of up to EMULATE_READ_BYTES is one message of the model: it arrives whole, when its last bit does.
//
// Time is CLOCK_MONOTONIC; the network's time 0 is emulate_open. How late each piece left, measured against the time the network gave it, is
// kept and reported: on a machine too busy for the emulation, that shows.
// Ownership: the topology is borrowed. Thread rule: one thread, the one that calls emulate_run.
#ifndef HEARTH_SIM_SHELL_EMULATE_H
#define HEARTH_SIM_SHELL_EMULATE_H

#include "base/err.h"
#include "sim/network.h"
#include "sim/shell/poller.h"
#include "sim/shell/topology.h"

#include <stdbool.h>
#include <stdint.h>

#define EMULATE_READ_BYTES (64u << 10)
#define EMULATE_CONNECTIONS_MAX 512 // at once; three between each pair of a home of 16
#define EMULATE_ALL NETWORK_ALL
#define EMULATE_FREEZE_MAX_S 3600.0

struct emulate; // from emulate_open

enum emulate_event_type {
	EMULATE_CONNECTED, // the way there and back is open
	EMULATE_CLOSED,
	EMULATE_REFUSED, // not relayed: `text` says why
	EMULATE_FAULT,   // a command was carried out: `text` says which
};

struct emulate_event {
	enum emulate_event_type type;
	int64_t at_ns;       // since emulate_open
	int32_t from, to;    // devices; -1: unknown. `from` connected.
	uint64_t connection; // counted from 1; 0: none
	uint64_t bytes[2];   // CLOSED: that left here, from `from` and back
	const char *text;    // for a person; valid during the call
};

struct emulate_callbacks {
	void *ctx;
	void (*on_event)(void *ctx, const struct emulate_event *ev); // may be NULL
};

// emulate_open listens. ERR_EXISTS: somebody has one of the addresses; ERR_IO, ERR_NOMEM, ERR_LIMIT (descriptors).
MUST_USE enum err emulate_open(struct emulate **out, const struct topology *t, const struct emulate_callbacks *callbacks, struct errmsg *em);
// emulate_close ends every connection with a reset. NULL is fine.
void emulate_close(struct emulate *e);
// emulate_run relays until poller_stop, or a signal if the poller has been told so.
MUST_USE enum err emulate_run(struct emulate *e, struct errmsg *em);
// emulate_poller: for the descriptors of a control socket.
struct poller *emulate_poller(struct emulate *e);
const struct topology *emulate_topology(const struct emulate *e);
int64_t emulate_now_ns(struct emulate *e); // since emulate_open

// Faults, from now on; what is under way arrives as it was told, except that a reset ends its connections. The second device may be EMULATE_ALL:
// everything that passes the first one. Each returns how many connections it touched.
int32_t emulate_cut(struct emulate *e, int32_t a, int32_t b, enum network_cut kind);
// emulate_heal ends the cuts and the slowness of exactly this pair, or of exactly this device.
int32_t emulate_heal(struct emulate *e, int32_t a, int32_t b);
// emulate_slow divides rates and multiplies delays; 1 is as before. From 1 / NETWORK_FACTOR_MAX to NETWORK_FACTOR_MAX.
int32_t emulate_slow(struct emulate *e, int32_t a, int32_t b, double factor);
// emulate_freeze lets nothing arrive for so long that was sent from now on, then all of it together.
int32_t emulate_freeze(struct emulate *e, int32_t a, int32_t b, double seconds);

// emulate_note makes an EMULATE_FAULT event of a command that was carried out.
void emulate_note(struct emulate *e, const char *text);

// emulate_fault_of: what stands between two devices, or at one, as told by the functions above.
struct network_fault emulate_fault_of(const struct emulate *e, int32_t a, int32_t b);

struct emulate_pair_stats { // of connections from one device to another
	int32_t n_open;
	uint64_t n_connections; // ever relayed
	uint64_t bytes_there, bytes_back; // that left here
	int32_t n_held; // open ones of which something waits behind a cut
};
struct emulate_pair_stats emulate_pair_stats_of(const struct emulate *e, int32_t from, int32_t to);

// How late pieces left: what the relay adds to the model.
struct emulate_lateness {
	uint64_t n; // pieces; those that a slow reader kept waiting are not counted
	int64_t p50_ns, p90_ns, p99_ns, max_ns;
};
struct emulate_lateness emulate_lateness_of(const struct emulate *e);

#endif
