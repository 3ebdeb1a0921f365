#include "base/fmath.h"

// 1.5 * 2^52: adding it leaves the nearest integer in the low bits of the sum, ties to even.
#define ROUND_MAGIC 6755399441055744.0

static uint64_t bits64(double x)
{
	uint64_t u;
	memcpy(&u, &x, sizeof(u));
	return u;
}

static double from_bits64(uint64_t u)
{
	double x;
	memcpy(&x, &u, sizeof(x));
	return x;
}

static float horner(const float *coefficients, int n, float x)
{
	float p = coefficients[0];
	for (int i = 1; i < n; i++)
		p = fmaf(p, x, coefficients[i]);
	return p;
}

float fmath_erf(float x)
{
	static const float near_zero[] = {-0x1.445f48p-17f, 0x1.d88750p-14f, -0x1.bccf66p-11f, 0x1.562a60p-8f, -0x1.b829c8p-6f,
		0x1.ce2f08p-4f, -0x1.812746p-2f, 0x1.06eba8p-3f};
	static const float far[] = {0x1.b77830p-20f, -0x1.825ce4p-15f, 0x1.38e5e6p-11f, -0x1.37ecc6p-8f, 0x1.b0e246p-6f,
		-0x1.c2e356p-4f, -0x1.437eb4p-1f, -0x1.2156fap+0f, 0x1.4fb068p-12f};
	float a = fmath_from_bits(fmath_bits(x) & 0x7fffffff);
	if (a < 1.0f)
		return fmaf(horner(near_zero, 8, x * x), x, x);
	float b = a > 4.0f ? 4.0f : a;
	return fmath_copysign(1.0f - fmath_exp(horner(far, 9, b)), x);
}

void fmath_sincos(double a, double *sin_out, double *cos_out)
{
	double t = a * 0x1.45f306dc9c883p-1 + ROUND_MAGIC;
	double k = t - ROUND_MAGIC;
	double r = ((a - k * 0x1.921fb544p+0) - k * 0x1.0b4611a4p-34) - k * 0x1.13198a2e03707p-65;
	double z = r * r;
	double s = -1.0 / 1307674368000.0; // 1/15!
	s = s * z + 1.0 / 6227020800.0;
	s = s * z - 1.0 / 39916800.0;
	s = s * z + 1.0 / 362880.0;
	s = s * z - 1.0 / 5040.0;
	s = s * z + 1.0 / 120.0;
	s = s * z - 1.0 / 6.0;
	s = (s * z + 1.0) * r;
	double c = 1.0 / 20922789888000.0; // 1/16!
	c = c * z - 1.0 / 87178291200.0;
	c = c * z + 1.0 / 479001600.0;
	c = c * z - 1.0 / 3628800.0;
	c = c * z + 1.0 / 40320.0;
	c = c * z - 1.0 / 720.0;
	c = c * z + 1.0 / 24.0;
	c = c * z - 0.5;
	c = c * z + 1.0;
	unsigned quadrant = (unsigned)(bits64(t) & 3);
	double sine = quadrant & 1 ? c : s, cosine = quadrant & 1 ? s : c;
	*sin_out = quadrant & 2 ? -sine : sine;
	*cos_out = (quadrant + 1) & 2 ? -cosine : cosine;
}

double fmath_expd(double x)
{
	double n = (x * 0x1.71547652b82fep+0 + ROUND_MAGIC) - ROUND_MAGIC;
	double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
	double s = 1.0;
	for (int k = 18; k >= 1; k--)
		s = 1.0 + (s * r) / k;
	// Two factors, each a normal number, because 2^1023 times 2 is wanted at the upper end; both products are exact.
	int64_t half = (int64_t)n / 2, rest = (int64_t)n - half;
	return s * from_bits64((uint64_t)(half + 1023) << 52) * from_bits64((uint64_t)(rest + 1023) << 52);
}

double fmath_logd(double x)
{
	int64_t e = 0;
	if (x < 0x1p-1022) {
		x *= 0x1p+54;
		e = -54;
	}
	e += (int64_t)(bits64(x) >> 52) - 1023;
	double m = from_bits64((bits64(x) & 0xfffffffffffff) | (uint64_t)1023 << 52);
	if (m > 1.4142135623730951) {
		m *= 0.5;
		e += 1;
	}
	double s = (m - 1.0) / (m + 1.0);
	double z = s * s, t = 0.0;
	for (int k = 29; k >= 1; k -= 2)
		t = t * z + 1.0 / k;
	return (double)e * 0x1.62e42fefa39efp-1 + 2.0 * s * t;
}
