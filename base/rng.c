#include "base/rng.h"

#include "base/assert.h"

#define PHILOX_ROUNDS 10

void rng_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
	uint32_t k0 = key[0], k1 = key[1];
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
	for (int round = 0; round < PHILOX_ROUNDS; round++) {
		uint64_t p0 = (uint64_t)0xd2511f53 * c0, p1 = (uint64_t)0xcd9e8d57 * c2;
		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c1 = (uint32_t)p1;
		c3 = (uint32_t)p0;
		k0 += 0x9e3779b9;
		k1 += 0xbb67ae85;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

double rng_philox_u01(uint64_t seed, uint64_t position)
{
	uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0}, out[4];
	rng_philox(key, counter, out);
	return (double)(((uint64_t)out[1] << 32 | out[0]) >> 11) * 0x1p-53;
}

void rng_init(struct rng *r, uint64_t seed)
{
	r->state = seed;
}

uint64_t rng_u64(struct rng *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

uint32_t rng_u32(struct rng *r)
{
	return (uint32_t)(rng_u64(r) >> 32);
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
	ASSERT(n >= 1);
	uint64_t reject = -n % n; // 2^64 mod n values at the bottom would be drawn once too often
	uint64_t v;
	do {
		v = rng_u64(r);
	} while (v < reject);
	return v % n;
}

double rng_u01(struct rng *r)
{
	return (double)(rng_u64(r) >> 11) * 0x1p-53;
}
