// How a token is drawn (engine/sampler.h does it); travels with a request through the coordinator.
#ifndef HEARTH_BASE_SAMPLING_H
#define HEARTH_BASE_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

struct sampling {
	float temperature; // 0: greedy
	int32_t top_k;     // 0: all
	float top_p;       // 1: all
	float min_p;       // 0: all
	uint64_t seed;     // counter-based: (seed, position) gives the random number
};

#define SAMPLING_BEST_MAX 64 // candidates that are enough for the usual top_k (20 to 50), in half a KiB

// sampling_takes_best tells whether the SAMPLING_BEST_MAX best logits give the token that all of them give: nothing is divided by the sum of all.
static inline bool sampling_takes_best(const struct sampling *s)
{
	return s->temperature == 0 || (s->top_k >= 1 && s->top_k <= SAMPLING_BEST_MAX);
}

#endif
