// What a machine really does per second of computing, from the counters that it reports now and then. Pure.
//
// A few seconds of computing count as much as all before them, so that a moment's disturbance changes little and a lasting one shows. Counters that fall
// are those of another process: it begins anew with them.
#ifndef HEARTH_FLOW_OBSERVED_RATE_H
#define HEARTH_FLOW_OBSERVED_RATE_H

#include <stdbool.h>
#include <stdint.h>

#define OBSERVED_LEAST_US 500000.0 // of computing, before there is anything to tell
#define OBSERVED_HELD_US 4000000.0 // when so much is remembered, all of it counts half

struct observed_rate {
	bool has_base;
	uint64_t last_units, last_us; // of the last report
	double units, us;             // remembered
};

// observed_rate_begin: the next report is only what later ones are compared with.
void observed_rate_begin(struct observed_rate *r);
// observed_rate_report takes counters since the process began: units (bytes, operations) done, and microseconds of doing them.
void observed_rate_report(struct observed_rate *r, uint64_t units, uint64_t us);
// observed_rate_per_s returns units per second; 0: too little was seen.
double observed_rate_per_s(const struct observed_rate *r);

#endif
