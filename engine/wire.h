// The codec of wire types (base/wire_type.h): rounding at layer boundaries, and the bytes on a link.
//
// Rounding is idempotent and encoding a rounded state loses nothing, so a result does not depend on where a plan cuts.
// f32: as is. bf16, f16: RNE (rule 10); f16 refuses a value beyond 65,504. q8 (rule 19): per 32 values the smallest
// power of two d with max|x| / d <= 127, q = RNE(x / d); 33 bytes, the exponent byte (e of 2^(e - 127); 0 with all q 0) first. A power of two, because
// only then q * d is exact and rounding it again gives the same q and d. d is never below 2^-126, so that it is a normal number; a zero
// comes back as +0; the last block is filled up with zeros.
#ifndef HEARTH_ENGINE_WIRE_H
#define HEARTH_ENGINE_WIRE_H

#include "base/wire_type.h"

// wire_round rounds n values of one token in place. ERR_NON_FINITE: *bad is the index of the first value that cannot be carried; x is untouched
// then.
MUST_USE enum err wire_round(enum wire_type t, float *x, int32_t n, int32_t *bad);
// wire_encode writes wire_bytes(t, n) bytes of one token's rounded state; wire_decode reads them back. Decoding refuses (ERR_NON_FINITE) what
// is not finite and (ERR_FORMAT) a q8 block that no encoder writes: a state has one encoding.
void wire_encode(enum wire_type t, const float *x, int32_t n, uint8_t *out);
MUST_USE enum err wire_decode(enum wire_type t, const uint8_t *in, int32_t n, float *out);
// wire_first_above returns the index of the first value whose magnitude is beyond `last` (float bits), or n.
int32_t wire_first_above(const float *x, int32_t n, uint32_t last);

#endif
