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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t cookie;
	try_step(data, size);
	try_credit(data, size);
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
