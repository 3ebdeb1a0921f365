// Hidden states from a link: the first byte is the wire type. What decodes is finite and encodes to the same bytes.
#include "base/assert.h"
#include "engine/wire.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define N_MAX 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	float x[N_MAX];
	uint8_t again[4 * N_MAX + 64];
	int32_t n = N_MAX, bad;
	if (len < 2)
		return 0;
	enum wire_type t = (enum wire_type)(data[0] % N_WIRE_TYPES);
	while (n > 0 && wire_bytes(t, n) > len - 1)
		n--;
	if (n == 0 || wire_decode(t, data + 1, n, x) != OK)
		return 0;
	ASSERT(wire_round(t, x, n, &bad) == OK);
	wire_encode(t, x, n, again);
	ASSERT(memcmp(data + 1, again, wire_bytes(t, n)) == 0);
	return 0;
}
