// The network of the simulator and of `hearth emulate`: when does a message arrive, if at all?
//
// Machines stand at an access point or at a wire. Two machines share one *link*, and any number of *flows* on it: a flow is one
// TCP connection (control, data, blocks). A message passes, in this order: every rate on its way (queued first in, first out), the
// sender's own leg (its air), the link's delay, the receiver's leg. A machine's leg stands for its radio or its last wire; the link for
// what lies between, and for pairs described as a whole (a measured trace, a testbed's `tc`).
//
// What holds:
// - Inside one direction of a flow nothing is reordered: arrivals never decrease. Equal arrivals are in the order of sending.
// - Rates are exact: bytes over time in whole nanoseconds, with the remainder carried. All stations of an access point share its air;
//   station to station costs its air twice. A wired leg and a link have their rate in each direction.
// - A delay drawn or measured as a round trip is half of it one way. A draw holds for as long as it lasts, in both directions, so that a
//   request and its answer make one round trip of it (sim/profiles.h).
// - A tail event, a power-save sleep, a scan or an outage *blocks* the leg or link: what comes meanwhile arrives together when it ends.
//   NETWORK_TAIL_SHARED of the tail events of a station hit its whole access point.
// - A lost packet makes its flow wait (and no other): one round trip when three packets follow it in the message, else the
//   retransmission timeout, 200 ms and a round trip, doubled each time. What follows on that flow arrives with it.
// - A fault decides about messages sent after it. What is already under way arrives as it was told.
//
// Deterministic: the same seed and the same calls give the same arrivals on every machine. Nothing here knows whether `now_ns` is a
// clock or an event's time; it never decreases. Nothing is allocated after network_init. Pure; one thread per network.
// Profiles and traces that parameters point to are borrowed for the network's life.
#ifndef HEARTH_SIM_NETWORK_H
#define HEARTH_SIM_NETWORK_H

#include "base/arena.h"
#include "base/err.h"
#include "base/rng.h"
#include "sim/profiles.h"
#include "sim/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NETWORK_WIRED (-1)                 // access_point of a machine that is at none
#define NETWORK_ALL (-1)                   // as the second machine of a fault: everything that passes the first one's leg
#define NETWORK_MESSAGE_MAX (1 << 30)      // bytes of one message: times 8e9 it fits 64 bits
#define NETWORK_RATE_MIN 1000                // bits/s
#define NETWORK_RATE_MAX (UINT64_C(1) << 40)
#define NETWORK_PACKET_BYTES 1448          // of payload in one TCP segment on Ethernet, with time stamps
#define NETWORK_TAIL_SHARED 0.3            // assumption of the profiles: part of the tail events that hit all stations of the access point
#define NETWORK_FACTOR_MAX 1000.0          // of slowness
#define NETWORK_DELAY_MAX_NS INT64_C(3600000000000) // of any one delay, an hour

struct network_limits {
	int32_t machines_max;
	int32_t access_points_max;
	int32_t links_max; // pairs that ever have a link, a flow or a fault of their own
	int32_t flows_max; // open at a time
};

enum network_delay_kind {
	NETWORK_DELAY_NONE,
	NETWORK_DELAY_PROFILE, // draws round trips
	NETWORK_DELAY_TRACE,   // a TRACE_DELAY by the time of sending, repeated for ever; a lost sample loses what is sent during it, and a
			       // link takes the rates it knows
	NETWORK_DELAY_TABLE,   // a TRACE_TABLE: draws `spread_ns` times the table's sigmas one way, as tc-netem does (base_ns is its mean)
};

struct network_delay {
	enum network_delay_kind kind;
	const struct profile *profile;
	const struct trace *trace;
	int64_t offset_ns; // TRACE: what time of the trace the network's time 0 is
	int64_t spread_ns; // TABLE
};

struct network_station_params {
	int32_t access_point; // NETWORK_WIRED, or [0, access_points_max)
	struct network_delay delay;
	uint64_t air_bps;  // goodput of one air transit; 0: no limit
	uint64_t up_bps;   // wired rates; 0: no limit
	uint64_t down_bps;
};

struct network_link_params {
	int64_t base_ns; // one way
	struct network_delay delay;
	uint64_t rate_bps;      // from the first machine to the second; 0: no limit
	uint64_t rate_back_bps; // the other way
	const struct trace *deliveries;      // a TRACE_DELIVERIES instead of rate_bps, or NULL
	const struct trace *deliveries_back;
	double loss; // chance of each packet to be lost, [0, 1)
};

enum network_direction {
	NETWORK_FORWARD, // from the machine that was named first in network_open_flow
	NETWORK_BACK,
};

enum network_fate {
	NETWORK_ARRIVES,   // whole, at the time given
	NETWORK_SWALLOWED, // not as things are: the sender's TCP keeps it and tries again, see network_retransmit. Also after 15
			   // retransmissions that were lost: a trace without an answer for a quarter of an hour
	NETWORK_RESET,     // the connection is gone, for both sides, now
};

enum network_cut {
	NETWORK_CUT_RESET,      // flows end with a reset; new ones are refused
	NETWORK_CUT_BLACK_HOLE, // silence both ways
	NETWORK_CUT_ONE_WAY,    // silence from the first machine to the second; with NETWORK_ALL: nothing leaves the first machine
};

struct network_stats {
	uint64_t n_sent;      // calls of network_send
	uint64_t n_swallowed; // of those
	uint64_t n_reset;
	uint64_t n_lost;      // of those that arrive: late by a retransmission
	uint64_t n_blocked;   // late because a leg or a link was blocked
	uint64_t bytes;       // of those that arrive
};

struct network_machine;
struct network_access_point;
struct network_link;
struct network_flow;

struct network {
	struct network_limits limits;
	uint64_t seed;
	int64_t now_ns;
	struct network_stats stats;
	struct network_link_params default_link;
	struct network_machine *machines;           // (machines_max)
	struct network_access_point *access_points; // (access_points_max)
	struct network_link *links;                 // (links_max), the first n_links in use
	int32_t n_links;
	int32_t *link_table; // (link_table_size) open addressing by pair, -1 free
	uint32_t link_table_size;
	struct network_flow *flows; // (flows_max)
	int32_t free_flow;          // head of the list of free ones, -1 none
};

// network_arena_bytes returns what network_init takes from its arena: about 370 bytes a machine, 410 a link, 90 a flow.
size_t network_arena_bytes(const struct network_limits *limits);
// network_init makes a network in which everything is wired, without delay or limit. ERR_LIMIT: the arena is too small.
MUST_USE enum err network_init(struct network *n, struct arena *a, const struct network_limits *limits, uint64_t seed);

// network_station says where a machine stands. Before its first message, or later: what is under way is not touched.
// ERR_RANGE: a number outside its range, or a trace of the wrong kind.
MUST_USE enum err network_station(struct network *n, int32_t machine, const struct network_station_params *p, struct errmsg *em);
// network_default_link sets what pairs without a link of their own get, from their first flow or fault on (both rates as seen from the
// lower machine number).
MUST_USE enum err network_default_link(struct network *n, const struct network_link_params *p, struct errmsg *em);
// network_link sets the path between two machines, or changes it. ERR_LIMIT: links_max pairs exist already.
MUST_USE enum err network_link(struct network *n, int32_t a, int32_t b, const struct network_link_params *p, struct errmsg *em);

// network_open_flow gives a connection of its own order. It costs no message: who wants a handshake's time sends one of 0 bytes
// each way. ERR_LIMIT: flows_max are open, or links_max pairs exist. a != b.
MUST_USE enum err network_open_flow(struct network *n, int32_t a, int32_t b, int32_t *flow);
// network_close_flow forgets the flow; its number is used again.
void network_close_flow(struct network *n, int32_t flow);
// network_send sends one message of up to NETWORK_MESSAGE_MAX bytes at now_ns. After NETWORK_SWALLOWED every message that follows in this
// direction is swallowed too, as it stands behind it in the sender's queue, until network_retransmit says when they arrive.
// NETWORK_RESET is for ever: open another flow.
MUST_USE enum network_fate network_send(struct network *n, int32_t flow, enum network_direction d, size_t bytes, int64_t now_ns,
	int64_t *arrival_ns);
// network_retransmit asks after a heal when everything swallowed so far in this direction arrives: together, at the next
// retransmission (they double from the first swallowed message, up to 120 s apart). NETWORK_SWALLOWED: the path is still cut.
// Not asking is right for whoever closes the flow. The flow has something swallowed (network_is_held).
MUST_USE enum network_fate network_retransmit(struct network *n, int32_t flow, enum network_direction d, int64_t now_ns, int64_t *arrival_ns);
bool network_is_held(const struct network *n, int32_t flow, enum network_direction d);

// Faults, from now on. The second machine may be NETWORK_ALL. ERR_LIMIT: the pair would be one more than links_max.
MUST_USE enum err network_cut(struct network *n, int32_t a, int32_t b, enum network_cut kind);
// network_heal ends cuts and slowness of this pair (of the first machine's leg with NETWORK_ALL; not those of its pairs).
MUST_USE enum err network_heal(struct network *n, int32_t a, int32_t b);
// network_set_group puts a machine into a partition, 0 at first: machines of different groups do not hear each other.
void network_set_group(struct network *n, int32_t machine, int32_t group);
// network_slow multiplies rates and added delays of what is sent from now on. Factors in (0, NETWORK_FACTOR_MAX]; 1 and 1 as before.
MUST_USE enum err network_slow(struct network *n, int32_t a, int32_t b, double rate_factor, double delay_factor);
// network_stall blocks until `until_ns`: what is sent before arrives then, together.
MUST_USE enum err network_stall(struct network *n, int32_t a, int32_t b, int64_t until_ns);

// What the functions above have made of exactly this pair, or (with NETWORK_ALL) of the leg of the first machine, seen from there.
struct network_fault {
	bool is_reset, is_silent_out, is_silent_in;
	double rate_factor, delay_factor; // 1: not slow
	int64_t stall_until_ns;           // 0: never stalled
};
struct network_fault network_fault_of(const struct network *n, int32_t a, int32_t b);

#endif
