// Wire types: what hidden states are rounded to at every layer boundary (DESIGN.md 6). The codec is engine/wire.h.
#ifndef HEARTH_BASE_WIRE_TYPE_H
#define HEARTH_BASE_WIRE_TYPE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum wire_type { WIRE_F32, WIRE_BF16, WIRE_F16, WIRE_Q8 }; // ids travel in frames and plans

#define N_WIRE_TYPES 4

// wire_type_find reads "f32", "bf16", "f16" or "q8"; ERR_RANGE otherwise.
MUST_USE enum err wire_type_find(const char *name, enum wire_type *out);
const char *wire_type_name(enum wire_type t);
// wire_bytes returns the bytes of one token's n values; q8 rounds n up to whole blocks of 32.
size_t wire_bytes(enum wire_type t, int32_t n);

#endif
