// The codec of what a group's members send of sums, nodes and completed ones: rounding to the payload of a split (base/tensor_split.h), and the bytes.
//
// f32 and bf16: as hidden states (engine/wire.h). q8 (rule 21): per 16 values a scale d that is a bf16, q = RNE(x / d). Hidden states have a power of
// two for a scale, one byte for 32 of them: less, but up to twice as coarse, and sums are rounded in every layer. As d has 8
// significant bits, q * d is exact, and encoding a rounded sum loses nothing.
#ifndef HEARTH_ENGINE_SUM_CODEC_H
#define HEARTH_ENGINE_SUM_CODEC_H

#include "base/wire_type.h"

// sum_round rounds n values in place. ERR_NON_FINITE: *bad is the index of the first value that cannot be carried (in q8 beyond 127 * 2^120); x is
// untouched then.
MUST_USE enum err sum_round(enum wire_type t, float *x, int32_t n, int32_t *bad);
// sum_encode writes split_payload_bytes(t, n) bytes of rounded values; sum_decode reads them back. Decoding refuses (ERR_NON_FINITE) what is not
// finite and (ERR_FORMAT) a block that no encoder writes: values have one encoding.
void sum_encode(enum wire_type t, const float *x, int32_t n, uint8_t *out);
MUST_USE enum err sum_decode(enum wire_type t, const uint8_t *in, int32_t n, float *out);

#endif
