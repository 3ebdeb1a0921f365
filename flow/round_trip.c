#include "flow/round_trip.h"

bool round_trip_measure(struct round_trip *r, uint64_t cookie, int64_t now_ns)
{
	if (cookie > (uint64_t)now_ns || (uint64_t)now_ns - cookie > (uint64_t)ROUND_TRIP_MAX_NS)
		return false;
	round_trip_note(r, now_ns - (int64_t)cookie);
	return true;
}

void round_trip_note(struct round_trip *r, int64_t ns)
{
	r->n++;
	r->last_ns = ns;
}
