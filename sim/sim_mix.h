// A fast 64-bit mix: history hashes, sub-seeds and the chain of hashes that stands for a model. Not for keys, not against malice.
#ifndef HEARTH_SIM_SIM_MIX_H
#define HEARTH_SIM_SIM_MIX_H

#include "base/bytes.h"

#include <stddef.h>
#include <stdint.h>

static inline uint64_t sim_mix(uint64_t a, uint64_t b)
{
	uint64_t x = a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2));
	x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 29);
}

static inline uint64_t sim_mix_bytes(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;
	h = sim_mix(h, len);
	for (; len >= 8; p += 8, len -= 8)
		h = sim_mix(h, load_u64(p));
	uint8_t tail[8] = {0};
	if (len > 0)
		memcpy(tail, p, len);
	return len > 0 ? sim_mix(h, load_u64(tail)) : h;
}

#endif
