// How home links delay: the profiles W0 to W9, each a mixture of round trips and of things that happen at their own time.
//
// A profile draws round trips between a station and a wired machine. A draw is *held* for as long as it lasts: whoever asks within that
// time gets the same one, so that a request and its answer share it, and a busy link does not meet rare events more often than
// one that asks once per round trip. Where draws stand further apart than they last, they follow the mixture exactly.
//
// Two components, the base and the middle, are *regimes* that dwell (exponentially, 2 s and 0.5 s on average). Tail events and power-save
// sleeps come with their weight at each draw, in any regime, and block. Power save takes only a link that was idle for more than 100 ms; a
// link in use gets the base in its place. Scans, outages and restarts come at their own times, and block too; a restart swallows
// packets instead.
//
// Deterministic: base/rng and base/fmath only. Pure.
#ifndef HEARTH_SIM_PROFILES_H
#define HEARTH_SIM_PROFILES_H

#include "base/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROFILE_IDLE_NS INT64_C(100000000) // power save takes a link idle for longer
#define PROFILE_OUTAGES_MAX 4

enum profile_shape {
	PROFILE_NONE,
	PROFILE_LOGNORMAL, // a: median ms, b: shape
	PROFILE_UNIFORM,   // from a to b ms
	PROFILE_PARETO,    // from a ms, exponent b, at most `cap` ms
};

struct profile_component {
	double weight;
	enum profile_shape shape;
	double a, b, cap;
};

struct profile_outage {
	double weight;
	double from_s, to_s; // uniform
};

struct profile {
	const char *name;
	const char *words; // one line for people
	struct profile_component base, middle, sleep, tail; // weights add up to 1; one that is missing has weight 0
	double base_dwell_s, middle_dwell_s;
	// Blocks at their own times
	double scan_period_s;   // 0: none. Give or take 10 %.
	double scan_stall_part; // of the scans: one stall of 2 to 7 s instead of 8 to 12 gaps of 60 to 120 ms within 1.5 s
	double outage_period_s; // mean, exponential; 0: none
	struct profile_outage outages[PROFILE_OUTAGES_MAX]; // weights add up to 1
	bool restarts; // the access point restarts once, 10 to 60 s after the start: silence for 45 to 120 s
	const char *straggler; // station 0 has this profile instead (W9)
};

// The table: profile_at(0) to profile_at(n_profiles() - 1).
size_t n_profiles(void);
const struct profile *profile_at(size_t i);
// profile_find returns the profile of that name ("W5b", any case), or NULL.
const struct profile *profile_find(const char *name);
// profile_of_station returns what station `station` of a home has: p itself, but for W9.
const struct profile *profile_of_station(const struct profile *p, int32_t station);

struct profile_draw {
	int64_t start_ns; // when it was drawn
	int64_t rtt_ns;   // held until start + rtt
	bool blocks;      // a tail event or a sleep: nothing passes until half of it, and then until its end
	bool is_new_tail; // this call drew it, and it is a tail event
	int64_t blocked_until_ns; // a scan's gap or an outage: nothing passes before; <= now: none
	int64_t silent_until_ns;  // a restart: packets are lost before; <= now: none
};

// One link's state. Its fields are profiles.c's.
struct profile_state {
	const struct profile *p;
	struct rng draws;
	struct profile_draw last;
	int64_t regime_until_ns;
	bool in_middle;
	struct rng events;
	int64_t event_from_ns, event_until_ns; // the scan or outage at hand or to come
	uint64_t event_seed;                   // of the scan's gaps
	bool event_has_gaps;
	int64_t silent_from_ns, silent_until_ns;
};

// profile_init starts a link at start_ns. Links with one `shared_seed` (an access point's) share its restart.
void profile_init(struct profile_state *s, const struct profile *p, uint64_t seed, uint64_t shared_seed, int64_t start_ns);
// profile_draw gives what a packet meets at now_ns, which never decreases, on a link without traffic for idle_ns.
struct profile_draw profile_draw(struct profile_state *s, int64_t now_ns, int64_t idle_ns);
// profile_gate returns when what comes at t_ns passes a draw that blocks: at its half, or at its end, or at once.
int64_t profile_gate(int64_t start_ns, int64_t rtt_ns, int64_t t_ns);

#endif
