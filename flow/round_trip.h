// Round trips of one link, measured with the pings of flow/liveness: a PING carries the time it was sent, and the PONG brings that back.
// Pure. What a peer sends back is checked: a time that no ping of ours can have had is no measurement.
#ifndef HEARTH_FLOW_ROUND_TRIP_H
#define HEARTH_FLOW_ROUND_TRIP_H

#include <stdbool.h>
#include <stdint.h>

#define ROUND_TRIP_MAX_NS INT64_C(60000000000) // a link silent for that long is long dead

struct round_trip {
	uint64_t n; // measured so far
	int64_t last_ns;
};

// round_trip_measure takes the cookie of a PONG; false: it is not of ours.
bool round_trip_measure(struct round_trip *r, uint64_t cookie, int64_t now_ns);
// round_trip_note takes one that somebody else measured.
void round_trip_note(struct round_trip *r, int64_t ns);

#endif
