// The pause before the next attempt: doubles from `first_ns` to `max_ns`, spread by jitter so that a cluster that lost its
// coordinator does not come back all at once. Pure: no clock, the randomness from a seed.
#ifndef HEARTH_FLOW_BACKOFF_H
#define HEARTH_FLOW_BACKOFF_H

#include "base/rng.h"

#include <stdint.h>

struct backoff_limits {
	int64_t first_ns;  // 100 ms: a node that restarts is back within a second
	int64_t max_ns;    // 30 s: a machine that sleeps costs little; one that wakes is back soon
	int64_t steady_ns; // what came up and stayed up for this long starts again from first_ns
};

extern const struct backoff_limits backoff_defaults;

struct backoff {
	const struct backoff_limits *limits; // borrowed
	struct rng rng;
	uint32_t n_failed; // in a row
};

void backoff_init(struct backoff *b, const struct backoff_limits *limits, uint64_t seed);
// backoff_next_ns counts a failure and returns the pause to make: between half and all of first_ns * 2^(failures before), at most max_ns.
int64_t backoff_next_ns(struct backoff *b);
// backoff_ended tells that something that was up for `up_ns` ended: a long life forgives all failures, a short one is none and forgives none.
void backoff_ended(struct backoff *b, int64_t up_ns);
// backoff_reset forgives all failures.
void backoff_reset(struct backoff *b);

#endif
