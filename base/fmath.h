// Elementary functions with the same bits on every machine: rules 10 and 14 to 17 of kernels/canonical.h.
//
// Nothing here comes from libm but fmaf, which IEEE 754 defines to the last bit. Functions of float inputs are inline, so that
// a vector kernel can use them for its tail; a vector version of one must give exactly these bits. NaN in gives NaN out.
#ifndef HEARTH_BASE_FMATH_H
#define HEARTH_BASE_FMATH_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if !defined(FLT_EVAL_METHOD) || FLT_EVAL_METHOD != 0
#error "float operations must round to float (FLT_EVAL_METHOD == 0): use -msse2 -mfpmath=sse on 32-bit x86"
#endif

static inline uint32_t fmath_bits(float x)
{
	uint32_t u;
	memcpy(&u, &x, sizeof(u));
	return u;
}

static inline float fmath_from_bits(uint32_t u)
{
	float x;
	memcpy(&x, &u, sizeof(x));
	return x;
}

static inline int fmath_is_finite(float x)
{
	return (fmath_bits(x) & 0x7fffffff) < 0x7f800000;
}

// fmath_round_int rounds to the nearest integer, ties to even. |x| < 2^22.
static inline int32_t fmath_round_int(float x)
{
	return (int32_t)(fmath_bits(x + 12582912.0f) - 0x4b400000);
}

// Rule 10. f32 -> f16 and bf16 round to nearest even, produce subnormals, and overflow to infinity; the way back is exact.
static inline uint16_t fmath_f32_to_f16(float x)
{
	uint32_t sign = (fmath_bits(x) >> 16) & 0x8000, a = fmath_bits(x) & 0x7fffffff;
	if (a > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (a >= 0x477ff000) // 65,520, from where on the nearest f16 is infinity
		return (uint16_t)(sign | 0x7c00);
	if (a < 0x38800000) // below 2^-14: the sum's last place is 2^-24, that of an f16 subnormal
		return (uint16_t)(sign | (fmath_bits(fmath_from_bits(a) + 0.5f) - 0x3f000000));
	return (uint16_t)(sign | ((a + 0xfff + ((a >> 13) & 1) - 0x38000000) >> 13));
}

static inline float fmath_f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, frac = h & 0x3ff;
	if (exp == 31)
		return fmath_from_bits(sign | 0x7f800000 | frac << 13);
	if (exp == 0)
		return fmath_from_bits(sign | fmath_bits((float)frac * 0x1p-24f));
	return fmath_from_bits(sign | (exp + 112) << 23 | frac << 13);
}

static inline uint16_t fmath_f32_to_bf16(float x)
{
	uint32_t u = fmath_bits(x);
	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

static inline float fmath_bf16_to_f32(uint16_t h)
{
	return fmath_from_bits((uint32_t)h << 16);
}

// Rule 14: e^x. Below -87 it is +0, above 88 it is EXP(88): a softmax and a sigmoid need no more.
static inline float fmath_exp(float x)
{
	float y = x < -87.0f ? -87.0f : x;
	y = y > 88.0f ? 88.0f : y;
	float t = fmaf(y, 0x1.715476p+0f, 12582912.0f);
	float n = t - 12582912.0f;
	float r = fmaf(n, -0x1.62e4p-1f, y);
	r = fmaf(n, -0x1.7f7d1cp-20f, r);
	float g = fmaf(0x1.6d10fcp-10f, r, 0x1.120b62p-7f);
	g = fmaf(g, r, 0x1.55551ap-5f);
	g = fmaf(g, r, 0x1.5554dep-3f);
	g = fmaf(g, r, 0.5f);
	g = fmaf(g, r * r, r) + 1.0f;
	return x < -87.0f ? 0.0f : g * fmath_from_bits((fmath_bits(t) - 0x4b400000 + 127) << 23);
}

// Rule 15.
static inline float fmath_sigmoid(float x)
{
	return 1.0f / (1.0f + fmath_exp(-x));
}

static inline float fmath_silu(float x)
{
	return x / (1.0f + fmath_exp(-x));
}

static inline float fmath_gelu_tanh(float x)
{
	float u = fmaf(x * x, 0x1.2444f2p-4f, 0x1.988454p+0f);
	return x / (1.0f + fmath_exp(-(x * u)));
}

static inline float fmath_copysign(float magnitude, float sign)
{
	return fmath_from_bits((fmath_bits(magnitude) & 0x7fffffff) | (fmath_bits(sign) & 0x80000000));
}

static inline float fmath_tanh(float x)
{
	float a = fmath_from_bits(fmath_bits(x) & 0x7fffffff);
	float z = x * x;
	if (a < 0.625f) {
		float p = fmaf(-0x1.8c2d0ap-8f, z, 0x1.576e30p-6f);
		p = fmaf(p, z, -0x1.b91582p-5f);
		p = fmaf(p, z, 0x1.110dd8p-3f);
		p = fmaf(p, z, -0x1.555552p-2f);
		return fmaf(p * z, x, x);
	}
	return fmath_copysign(1.0f - 2.0f / (fmath_exp(a + a) + 1.0f), x);
}

float fmath_erf(float x);

static inline float fmath_gelu_erf(float x)
{
	return (0.5f * x) * (1.0f + fmath_erf(x * 0x1.6a09e6p-1f));
}

// fmath_softcap returns cap * TANH(s / cap).
static inline float fmath_softcap(float s, float cap)
{
	return cap * fmath_tanh(s / cap);
}

// Rule 16. |a| <= 2^21.
void fmath_sincos(double a, double *sin_out, double *cos_out);
// Rule 17. e^x for -708 <= x <= 709; natural logarithm of a positive finite x, subnormals among them.
double fmath_expd(double x);
double fmath_logd(double x);

#endif
