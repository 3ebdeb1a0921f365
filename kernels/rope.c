// Rule 12: angles in binary64, so that a position's table is the same on every machine.
#include "kernels/kernels.h"

#include "base/fmath.h"

void rope_freqs(double theta, int32_t rope_dim, float *freq)
{
	double log_theta = fmath_logd(theta);
	for (int32_t i = 0; i < rope_dim / 2; i++)
		freq[i] = (float)fmath_expd(-(2.0 * i / (double)rope_dim) * log_theta);
}

void rope_table(const float *freq, int32_t n_pairs, int32_t pos, float *cos_out, float *sin_out)
{
	for (int32_t i = 0; i < n_pairs; i++) {
		double s, c;
		fmath_sincos((double)pos * (double)freq[i], &s, &c);
		cos_out[i] = (float)c;
		sin_out[i] = (float)s;
	}
}
