// Sums of a group from a link: the first byte is the payload. What decodes is finite and can be encoded again.
#include "base/assert.h"
#include "base/fmath.h"
#include "kernels/reduce_payload.h"

#include <stddef.h>
#include <stdint.h>

#define N_MAX 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	float x[N_MAX];
	uint8_t again[4 * N_MAX];
	int32_t n = N_MAX;
	if (len < 2)
		return 0;
	enum reduce_payload p = (enum reduce_payload)(data[0] % N_REDUCE_PAYLOADS);
	while (n > 0 && reduce_payload_bytes(p, n) > len - 1)
		n--;
	if (reduce_payload_decode(p, data + 1, n, x) != OK)
		return 0;
	for (int32_t i = 0; i < n; i++)
		ASSERT(fmath_is_finite(x[i]));
	enum err e = reduce_payload_encode(p, x, n, again);
	ASSERT(e == OK || p == REDUCE_Q8);
	return 0;
}
