// Inside the network: what network.c (who is there), network_path.c (a message's way) and network_fault.c share. Nobody else
// includes it.
#ifndef HEARTH_SIM_NETWORK_STATE_H
#define HEARTH_SIM_NETWORK_STATE_H

#include "sim/network.h"

#define FAR_NS (INT64_MAX / 4) // queues end here at the latest: sums still fit
#define LONG_AGO_NS (-FAR_NS)

struct network_queue {
	int64_t busy_ns;    // until then it sends what it has, less than a nanosecond more
	uint64_t remainder; // of busy_ns, in nanoseconds / rate
	uint64_t rate_bps;  // that counted it
	uint64_t next_opportunity; // with a delivery trace: the first one not touched
	uint64_t bytes_left;       // in the one before
};

struct network_delay_state {
	struct network_delay d;
	struct profile_state profile;
	struct rng table_draws;
};

struct network_machine {
	struct network_station_params p;
	struct network_delay_state delay;
	struct network_queue up, down;
	int64_t last_active_ns;
	int64_t stall_until_ns;
	double rate_factor, delay_factor;
	int32_t group;
	bool is_silent_out, is_silent_in, resets;
};

struct network_access_point {
	struct network_queue air;
	struct rng tails;
	int64_t tail_start_ns, tail_rtt_ns; // the shared event at hand or past
};

// One direction of a link.
struct network_way {
	uint64_t rate_bps;
	const struct trace *deliveries;
	struct network_queue queue;
	int64_t last_arrival_ns;
	bool is_silent;
};

struct network_link {
	int32_t lo, hi; // machines
	int64_t base_ns;
	double loss;
	struct network_delay_state delay;
	struct network_way ways[2]; // from lo, from hi
	int64_t last_active_ns;
	int64_t stall_until_ns;
	double rate_factor, delay_factor;
	uint64_t n_flows; // ever opened
	bool resets;
};

// One direction of a flow.
struct network_side {
	int64_t last_arrival_ns;
	int64_t held_since_ns;
	uint64_t held_bytes;
	bool is_held;
};

struct network_flow {
	int32_t link;
	int32_t from; // the machine named first
	int32_t next_free;
	bool is_open, is_reset;
	struct rng losses;
	struct network_side sides[2];
};

static inline int64_t network_later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

// network_get_link returns the pair's link, made from the default when there is none. ERR_LIMIT: links_max exist.
MUST_USE enum err network_get_link(struct network *n, int32_t a, int32_t b, struct network_link **out);
// network_find_link returns it or NULL.
const struct network_link *network_find_link(const struct network *n, int32_t a, int32_t b);
// network_get_flow asserts that it is open.
struct network_flow *network_get_flow(const struct network *n, int32_t flow);
// network_path_fate says what cuts and groups make of a message; `l` may be NULL.
enum network_fate network_path_fate(const struct network *n, const struct network_link *l, int32_t from, int32_t to);

#endif
