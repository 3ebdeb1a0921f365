// Quantities with their unit, as people write them: "9.7 GiB", "300 Mbit/s", "2 ms", "1.5 TFLOP/s". Pure.
#ifndef HEARTH_SIM_QUANTITY_H
#define HEARTH_SIM_QUANTITY_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum quantity {
	QUANTITY_BYTES, // bytes
	QUANTITY_RATE,  // bytes/s; also written in bit/s
	QUANTITY_TIME,  // seconds
	QUANTITY_FLOPS, // FLOP/s
	QUANTITY_WORK,  // FLOP
};

// quantity_parse reads a number and a unit with or without a space between. ERR_FORMAT; the message says what is wanted.
MUST_USE enum err quantity_parse(enum quantity q, const char *text, double *out, struct errmsg *em);
// quantity_units lists the units: "B, kB, MB, ...".
const char *quantity_units(enum quantity q);

// What quantities are to a network: whole nanoseconds of a time, whole bits/s of a rate.
static inline int64_t quantity_ns(double seconds)
{
	return (int64_t)(seconds * 1e9 + 0.5);
}
static inline uint64_t quantity_bits(double bytes_per_s)
{
	return (uint64_t)(bytes_per_s * 8 + 0.5);
}

struct quantity_text {
	char text[32];
};
// quantity_print writes v with three or four digits and the unit that suits: "45.0 GB/s", "3.17 ms".
struct quantity_text quantity_print(enum quantity q, double v);

#endif
