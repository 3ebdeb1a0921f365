// How a token is drawn (engine/sampler.h does it); travels with a request through the coordinator.
#ifndef HEARTH_BASE_SAMPLING_H
#define HEARTH_BASE_SAMPLING_H

#include <stdint.h>

struct sampling {
	float temperature; // 0: greedy
	int32_t top_k;     // 0: all
	float top_p;       // 1: all
	float min_p;       // 0: all
	uint64_t seed;     // counter-based: (seed, position) gives the random number
};

#endif
