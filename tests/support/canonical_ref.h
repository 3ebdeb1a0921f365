// A second writing of kernels/canonical.h, for tests: scalar, slow, from the rules alone. It shares no code with kernels/ and
// base/fmath, and does fma without libm. Also seeded inputs, ordinary and hostile ones.
#ifndef HEARTH_TESTS_SUPPORT_CANONICAL_REF_H
#define HEARTH_TESTS_SUPPORT_CANONICAL_REF_H

#include "base/rng.h"
#include "kernels/kernels.h"

float ref_fma(float a, float b, float c);
float ref_half(uint16_t h);
uint16_t ref_to_half(float x);
float ref_exp(float x);
float ref_tree(const float *lanes, int n);
// ref_quantise does one block of rule 4.
void ref_quantise(const float *x, int n, int8_t *q, float *d);
// ref_value reads element i of a row (rule 20); ref_dot is one output of rules 5 to 8.
float ref_value(enum dtype type, const uint8_t *row, int32_t i);
float ref_dot(enum dtype type, const uint8_t *row, const float *x, int32_t n);
void ref_rmsnorm(const float *x, const float *w, int32_t n, float eps, float *y);
float ref_silu(float x);
void ref_attention(const struct attention *a, float *out);

enum ref_input {
	REF_PLAIN,     // about -4 to 4
	REF_OUTLIERS,  // some a thousand times greater
	REF_TINY,      // around rule 4's 2^-60, subnormals, zeros of both signs
	REF_HUGE,      // up to the greatest float
	REF_NON_FINITE, // some NaN and infinities
	REF_FLAT       // one magnitude: the greatest integer sums
};
#define N_REF_INPUTS 6

void ref_fill(struct rng *r, enum ref_input kind, float *x, size_t n);
// ref_fill_weights writes n_rows rows of `cols` weights; hostile: any scale at all, NaN among them.
void ref_fill_weights(struct rng *r, enum dtype type, bool hostile, uint8_t *out, int32_t n_rows, int32_t cols);
void ref_fill_halves(struct rng *r, uint16_t *out, size_t n);

// ref_same tells whether all n floats have equal bits, or are both NaN.
bool ref_same(const float *a, const float *b, size_t n);

#endif
