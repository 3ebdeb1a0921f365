// The bytes in which a group's sums travel (kernels/lanes.h): nodes, and what they were joined to.
//
// REDUCE_F32 keeps every bit, and so a group's answers those of one machine. The others are an explicit, lossy option of a plan, never a
// default: rule 21 of kernels/canonical.h. What they give is still the same on every machine, on two conditions that are the caller's:
// - whoever joins takes the decoded form of every member's nodes, also of its own: a value that was encoded, decoded and encoded
//   again may change once more, and members that keep their own exact would differ from each other;
// - who encodes what does not depend on who is fast: a hop of a ring encodes sums that hold encoded ones, so the plan's form is part
//   of the result.
//
// Layouts, little-endian, n values: f32 4 n bytes; bf16 2 n; q8 for each 32 values an f32 scale, then a byte for each, the last block as many
// as are left.
#ifndef HEARTH_KERNELS_REDUCE_PAYLOAD_H
#define HEARTH_KERNELS_REDUCE_PAYLOAD_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum reduce_payload { REDUCE_F32, REDUCE_BF16, REDUCE_Q8 }; // ids travel in plans

#define N_REDUCE_PAYLOADS 3

// reduce_payload_find reads "f32", "bf16" or "q8"; ERR_RANGE otherwise.
MUST_USE enum err reduce_payload_find(const char *name, enum reduce_payload *out);
const char *reduce_payload_name(enum reduce_payload p);
// reduce_payload_bytes returns the bytes of n values.
size_t reduce_payload_bytes(enum reduce_payload p, int32_t n);
// reduce_payload_encode writes them. ERR_NON_FINITE: a value is not finite, or is too great for this form (rule 3); out is anything then.
MUST_USE enum err reduce_payload_encode(enum reduce_payload p, const float *x, int32_t n, uint8_t *out);
// reduce_payload_decode reads n values from the bytes of another machine. ERR_NON_FINITE: one is not finite. ERR_FORMAT: a q8 block that no
// encoder writes, with a negative scale or a value of -128. out is anything then.
MUST_USE enum err reduce_payload_decode(enum reduce_payload p, const uint8_t *in, int32_t n, float *out);

#endif
