// Sums from a member of a group: the first byte says which payload. What decodes is finite and encodes to the same bytes.
#include "base/assert.h"
#include "base/tensor_split.h"
#include "engine/sum_codec.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define N_MAX 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const enum wire_type payloads[] = {WIRE_F32, WIRE_BF16, WIRE_Q8};
	float x[N_MAX];
	uint8_t again[4 * N_MAX];
	int32_t n = N_MAX, bad;
	if (len < 2)
		return 0;
	enum wire_type t = payloads[data[0] % 3];
	while (n > 0 && split_payload_bytes(t, n) > len - 1)
		n--;
	if (n == 0 || sum_decode(t, data + 1, n, x) != OK)
		return 0;
	ASSERT(sum_round(t, x, n, &bad) == OK);
	sum_encode(t, x, n, again);
	ASSERT(memcmp(data + 1, again, split_payload_bytes(t, n)) == 0);
	return 0;
}
