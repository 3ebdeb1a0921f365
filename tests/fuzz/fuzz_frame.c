// Any bytes as a frame: decoded only when encoding what was read gives the same bytes again.
#include "base/assert.h"
#include "base/limits.h"
#include "proto/frame.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_step(const uint8_t *data, size_t size)
{
	struct step s;
	uint8_t again[FRAME_STEP_BYTES];
	if (step_decode(data, size, &s) != OK)
		return;
	ASSERT(s.n_tokens >= 1 && s.n_tokens <= CHUNK_TOKENS_MAX);
	ASSERT(s.payload_len == size - FRAME_STEP_BYTES);
	ASSERT(s.pos + s.n_tokens <= INT32_MAX);
	step_encode(&s, again);
	ASSERT(memcmp(again, data, sizeof again) == 0);
}

static void try_credit(const uint8_t *data, size_t size)
{
	struct credit c;
	uint8_t again[FRAME_CREDIT_BYTES];
	if (credit_decode(data, size, &c) != OK)
		return;
	credit_encode(&c, again);
	ASSERT(size == sizeof again);
	ASSERT(memcmp(again, data, sizeof again) == 0);
}

static void try_part_start(const uint8_t *data, size_t size)
{
	struct part_start s;
	uint8_t again[PART_START_BYTES_MAX];
	if (part_start_decode(data, size, &s) != OK)
		return;
	ASSERT(s.n_items >= 1 && s.n_items <= PART_ITEMS_MAX);
	ASSERT(s.n_tokens >= s.n_items && s.n_tokens <= CHUNK_TOKENS_MAX);
	part_start_encode(&s, again);
	ASSERT(memcmp(again, data, part_start_bytes(s.n_items)) == 0);
}

static void try_part(const uint8_t *data, size_t size)
{
	struct part p;
	uint8_t again[FRAME_PART_BYTES];
	if (part_decode(data, size, &p) != OK)
		return;
	ASSERT(p.payload_len == size - FRAME_PART_BYTES);
	ASSERT(p.offset + p.payload_len <= p.total && p.total <= PART_BYTES_MAX);
	part_encode(&p, again);
	ASSERT(memcmp(again, data, sizeof again) == 0);
	try_part_start(data + FRAME_PART_BYTES, p.payload_len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t cookie;
	try_step(data, size);
	try_credit(data, size);
	try_part(data, size);
	try_part_start(data, size);
	if (ping_decode(data, size, &cookie) == OK) {
		uint8_t again[FRAME_PING_BYTES];
		ping_encode((enum frame_type)data[0], cookie, again);
		ASSERT(memcmp(again, data, sizeof again) == 0);
	}
	if (clock_decode(data, size, &cookie) == OK) {
		uint8_t again[FRAME_CLOCK_BYTES];
		clock_encode(cookie, again);
		ASSERT(memcmp(again, data, sizeof again) == 0);
	}
	return 0;
}
