#include "base/wire_type.h"

#include "base/assert.h"

#include <string.h>

#define Q8_BLOCK 32
#define Q8_BLOCK_BYTES 33 // one exponent byte and 32 values

static const char *const names[N_WIRE_TYPES] = {"f32", "bf16", "f16", "q8"};

enum err wire_type_find(const char *name, enum wire_type *out)
{
	for (int i = 0; i < N_WIRE_TYPES; i++) {
		if (strcmp(name, names[i]) == 0) {
			*out = (enum wire_type)i;
			return OK;
		}
	}
	return ERR_RANGE;
}

const char *wire_type_name(enum wire_type t)
{
	ASSERT((unsigned)t < N_WIRE_TYPES);
	return names[t];
}

size_t wire_bytes(enum wire_type t, int32_t n)
{
	ASSERT(n >= 0);
	switch (t) {
	case WIRE_F32: return (size_t)n * 4;
	case WIRE_BF16:
	case WIRE_F16: return (size_t)n * 2;
	case WIRE_Q8: return ((size_t)n + Q8_BLOCK - 1) / Q8_BLOCK * Q8_BLOCK_BYTES;
	}
	return 0;
}
