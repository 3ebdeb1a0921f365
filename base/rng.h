// Random numbers that are functions of a seed: Philox4x32-10 (counter-based, rule 17a of kernels/canonical.h) and a small stream
// (splitmix64) for tests, the simulator and jitter. Neither is for keys: those come from libsodium.
#ifndef HEARTH_BASE_RNG_H
#define HEARTH_BASE_RNG_H

#include <stdint.h>

// rng_philox gives block `counter` of the stream `key` names.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, section 4.
void rng_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
// rng_philox_u01 gives the number in [0, 1) for one position: key = seed (low word first), counter = position (low word first,
// upper 64 bits 0), the upper 53 bits of (out[1] << 32 | out[0]) times 2^-53.
double rng_philox_u01(uint64_t seed, uint64_t position);

struct rng {
	uint64_t state;
};

void rng_init(struct rng *r, uint64_t seed);
uint64_t rng_u64(struct rng *r);
uint32_t rng_u32(struct rng *r);
// rng_below is uniform in [0, n), n >= 1, without bias.
uint64_t rng_below(struct rng *r, uint64_t n);
// rng_u01 is uniform in [0, 1), 53 bits.
double rng_u01(struct rng *r);

#endif
