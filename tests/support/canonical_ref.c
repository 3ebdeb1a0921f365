#include "tests/support/canonical_ref.h"

#include "base/assert.h"

#include <string.h>

static uint32_t bits32(float x)
{
	uint32_t u;
	memcpy(&u, &x, 4);
	return u;
}

static float float_of(uint32_t u)
{
	float x;
	memcpy(&x, &u, 4);
	return x;
}

// The product of two floats is exact in binary64. The sum is rounded to odd there, so that rounding it again to float is as if
// it had been rounded once. Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
float ref_fma(float a, float b, float c)
{
	double p = (double)a * (double)b, z = (double)c;
	double s = p + z;
	double zz = s - p;
	double err = (p - (s - zz)) + (z - zz);
	uint64_t u;
	memcpy(&u, &s, 8);
	if (err == err && err != 0.0 && s - s == 0.0 && (u & 1) == 0) {
		u += (err > 0.0) == (s > 0.0) ? 1 : (uint64_t)-1;
		memcpy(&s, &u, 8);
	}
	return (float)s;
}

float ref_half(uint16_t h)
{
	int e = h >> 10 & 31;
	double v = e == 0 ? (h & 1023) * 0x1p-24 : (1024 + (h & 1023)) * 0x1p-25;
	for (int i = 1; i <= e; i++)
		v *= 2.0;
	if (e == 31)
		v = (h & 1023) ? (double)float_of(0x7fc00000) : (double)float_of(0x7f800000);
	return h & 0x8000 ? (float)-v : (float)v;
}

// ref_to_half looks for the nearest of all halves of x's sign; between two equally near the even one.
uint16_t ref_to_half(float x)
{
	uint16_t sign = bits32(x) >> 31 ? 0x8000 : 0;
	double a = (double)float_of(bits32(x) & 0x7fffffff);
	if (a != a)
		return (uint16_t)(sign | 0x7e00);
	if (a >= 65520.0)
		return (uint16_t)(sign | 0x7c00);
	uint16_t low = 0, high = 0x7bff; // the greatest half not above a
	while (low < high) {
		uint16_t mid = (uint16_t)((low + high + 1) / 2);
		if ((double)ref_half(mid) <= a)
			low = mid;
		else
			high = (uint16_t)(mid - 1);
	}
	double below = a - (double)ref_half(low), next = low == 0x7bff ? 65536.0 : (double)ref_half((uint16_t)(low + 1));
	if (next - a < below || (next - a == below && (low & 1)))
		low++;
	return (uint16_t)(sign | low);
}

float ref_exp(float x)
{
	if (x != x)
		return x;
	float y = x;
	if (x < -87.0f)
		return 0.0f;
	if (y > 88.0f)
		y = 88.0f;
	float n = ref_fma(y, 0x1.715476p+0f, 12582912.0f) - 12582912.0f;
	float r = ref_fma(n, -0x1.7f7d1cp-20f, ref_fma(n, -0x1.62e4p-1f, y));
	static const float poly[] = {0x1.120b62p-7f, 0x1.55551ap-5f, 0x1.5554dep-3f, 0.5f};
	float g = 0x1.6d10fcp-10f;
	for (int i = 0; i < 4; i++)
		g = ref_fma(g, r, poly[i]);
	g = ref_fma(g, r * r, r) + 1.0f;
	double scale = 1.0;
	for (int k = (int)n; k > 0; k--)
		scale *= 2.0;
	for (int k = (int)n; k < 0; k++)
		scale *= 0.5;
	return (float)((double)g * scale);
}

float ref_tree(const float *lanes, int n)
{
	return n == 1 ? lanes[0] : ref_tree(lanes, n / 2) + ref_tree(lanes + n / 2, n / 2);
}

void ref_quantise(const float *x, int n, int8_t *q, float *d)
{
	uint32_t m = 0;
	for (int i = 0; i < n; i++) {
		q[i] = 0;
		if ((bits32(x[i]) & 0x7fffffff) > m)
			m = bits32(x[i]) & 0x7fffffff;
	}
	float amax = float_of(m);
	*d = 0.0f;
	if (m >= 0x7f800000)
		*d = float_of(0x7fc00000);
	else if (amax >= 0x1p-60f) {
		*d = amax / 127.0f;
		float id = 127.0f / amax;
		for (int i = 0; i < n; i++) {
			double v = (double)(x[i] * id), down = (double)(int)v;
			if (down > v)
				down -= 1.0;
			double rest = v - down;
			if (rest > 0.5 || (rest == 0.5 && ((int)down & 1)))
				down += 1.0;
			q[i] = (int8_t)down;
		}
	}
}

// quant_at reads element i of a row of a 32-block type: scale, min (or 0) and integer.
static int quant_at(enum dtype type, const uint8_t *row, int32_t i, float *scale, float *min)
{
	static const int sizes[] = {[DTYPE_Q4_0] = 18, [DTYPE_Q4_1] = 20, [DTYPE_Q5_0] = 22, [DTYPE_Q5_1] = 24, [DTYPE_Q8_0] = 34};
	const uint8_t *p = row + (size_t)(i / 32) * (size_t)sizes[type];
	int e = i % 32;
	bool has_min = type == DTYPE_Q4_1 || type == DTYPE_Q5_1;
	*scale = ref_half((uint16_t)(p[0] + 256 * p[1]));
	*min = has_min ? ref_half((uint16_t)(p[2] + 256 * p[3])) : 0.0f;
	p += has_min ? 4 : 2;
	if (type == DTYPE_Q8_0)
		return p[e] < 128 ? p[e] : p[e] - 256;
	int fifth = 0;
	if (type == DTYPE_Q5_0 || type == DTYPE_Q5_1) {
		fifth = (p[e / 8] >> (e % 8) & 1) * 16;
		p += 4;
	}
	int nibble = e < 16 ? p[e] % 16 : p[e - 16] / 16;
	return nibble + fifth - (type == DTYPE_Q4_0 ? 8 : type == DTYPE_Q5_0 ? 16 : 0);
}

static bool is_k(enum dtype type)
{
	return type == DTYPE_Q3_K || type == DTYPE_Q4_K || type == DTYPE_Q5_K || type == DTYPE_Q6_K;
}

// One element of a K-quant: d * scale * w - dmin * min.
struct k_element {
	float d, dmin;
	int scale, min, w;
};

static float half_at(const uint8_t *p)
{
	return ref_half((uint16_t)(p[0] + 256 * p[1]));
}

// q4_k, q5_k: scale or min number j of the twelve bytes at p; `first` is 0 for scales and 4 for mins.
static int six_bits(const uint8_t *p, int j, int first)
{
	if (j < 4)
		return p[first + j] % 64;
	int four = first == 0 ? p[4 + j] % 16 : p[4 + j] / 16;
	return four + p[first + j - 4] / 64 * 16;
}

static void k_with_min(enum dtype type, const uint8_t *p, int e, struct k_element *k)
{
	int sub = e / 32, at = sub / 2 * 32 + e % 32;
	const uint8_t *nibbles = p + (type == DTYPE_Q4_K ? 16 : 48);
	k->d = half_at(p);
	k->dmin = half_at(p + 2);
	k->scale = six_bits(p + 4, sub, 0);
	k->min = six_bits(p + 4, sub, 4);
	k->w = sub % 2 ? nibbles[at] / 16 : nibbles[at] % 16;
	if (type == DTYPE_Q5_K)
		k->w += (p[16 + e % 32] >> sub & 1) * 16;
}

static void k_q6(const uint8_t *p, int e, struct k_element *k)
{
	int half = e / 128, in = e % 128, byte = p[64 * half + in % 64];
	k->d = half_at(p + 208);
	k->scale = p[192 + e / 16] < 128 ? p[192 + e / 16] : p[192 + e / 16] - 256;
	k->w = (in < 64 ? byte % 16 : byte / 16) + 16 * (p[128 + 32 * half + e % 32] >> (in / 32 * 2) & 3) - 32;
}

static void k_q3(const uint8_t *p, int e, struct k_element *k)
{
	int half = e / 128, in = e % 128, g = e / 16;
	const uint8_t *s = p + 96;
	k->d = half_at(p + 108);
	k->scale = (g < 8 ? s[g] % 16 : s[g - 8] / 16) + 16 * (s[8 + g % 4] >> (g / 4 * 2) & 3) - 32;
	k->w = (p[32 + 32 * half + e % 32] >> (in / 32 * 2) & 3) - ((p[e % 32] >> (e / 32) & 1) ? 0 : 4);
}

static struct k_element k_at(enum dtype type, const uint8_t *row, int32_t i)
{
	struct k_element k = {0};
	const uint8_t *p = row + (size_t)(i / 256) * dtype_find((uint32_t)type)->block_bytes;
	if (type == DTYPE_Q6_K)
		k_q6(p, i % 256, &k);
	else if (type == DTYPE_Q3_K)
		k_q3(p, i % 256, &k);
	else
		k_with_min(type, p, i % 256, &k);
	return k;
}

// Products of a half and small integers are exact in binary64.
static float k_value(struct k_element k)
{
	return (float)((double)k.d * k.scale * k.w - (double)k.dmin * k.min);
}

float ref_value(enum dtype type, const uint8_t *row, int32_t i)
{
	if (is_k(type))
		return k_value(k_at(type, row, i));
	if (type == DTYPE_F32) {
		float x;
		memcpy(&x, row + 4 * (size_t)i, 4);
		return x;
	}
	if (type == DTYPE_F16 || type == DTYPE_BF16) {
		uint16_t h = (uint16_t)(row[2 * (size_t)i] + 256 * row[2 * (size_t)i + 1]);
		return type == DTYPE_F16 ? ref_half(h) : float_of((uint32_t)h << 16);
	}
	float scale, min;
	int q = quant_at(type, row, i, &scale, &min);
	float v = (float)q * scale;
	return type == DTYPE_Q4_1 || type == DTYPE_Q5_1 ? v + min : v;
}

static float k_dot(enum dtype type, const uint8_t *row, const float *x, int32_t n)
{
	float lanes[4] = {0};
	for (int32_t b = 0; b < n / 256; b++) {
		int8_t q[256];
		float dx;
		ref_quantise(x + 256 * (size_t)b, 256, q, &dx);
		long s = 0, m = 0;
		struct k_element k = {0};
		for (int i = 0; i < 256; i++) {
			k = k_at(type, row, 256 * b + i);
			s += (long)k.scale * k.w * q[i];
			m += (long)k.min * q[i];
		}
		float t = (float)s * k.d;
		if (type == DTYPE_Q4_K || type == DTYPE_Q5_K)
			t = ref_fma((float)s, k.d, -((float)m * k.dmin));
		lanes[b % 4] = ref_fma(t, dx, lanes[b % 4]);
	}
	return ref_tree(lanes, 4);
}

float ref_dot(enum dtype type, const uint8_t *row, const float *x, int32_t n)
{
	if (is_k(type))
		return k_dot(type, row, x, n);
	float lanes[32] = {0};
	if (type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16) {
		for (int32_t i = 0; i < n; i++)
			lanes[i % 32] = ref_fma(ref_value(type, row, i), x[i], lanes[i % 32]);
		return ref_tree(lanes, 32);
	}
	for (int32_t b = 0; b < n / 32; b++) {
		int8_t q[32];
		float dx, dw = 0.0f, mw = 0.0f;
		ref_quantise(x + 32 * (size_t)b, 32, q, &dx);
		long sum = 0, sum_q = 0;
		for (int i = 0; i < 32; i++) {
			sum += (long)quant_at(type, row, 32 * b + i, &dw, &mw) * q[i];
			sum_q += q[i];
		}
		lanes[b % 8] = ref_fma((float)sum, dw * dx, lanes[b % 8]);
		if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1)
			lanes[b % 8] = ref_fma((float)sum_q, mw * dx, lanes[b % 8]);
	}
	return ref_tree(lanes, 8);
}

static float root(float x)
{
	return __builtin_sqrtf(x);
}

void ref_rmsnorm(const float *x, const float *w, int32_t n, float eps, float *y)
{
	float lanes[32] = {0};
	for (int32_t i = 0; i < n; i++)
		lanes[i % 32] = ref_fma(x[i], x[i], lanes[i % 32]);
	float r = 1.0f / root(ref_tree(lanes, 32) / (float)n + eps);
	for (int32_t i = 0; i < n; i++)
		y[i] = (x[i] * r) * w[i];
}

float ref_silu(float x)
{
	return x / (1.0f + ref_exp(-x));
}

void ref_attention(const struct attention *a, float *out)
{
	enum { CHUNKS_MAX = 16 };
	float m[CHUNKS_MAX] = {0}, l[CHUNKS_MAX], o[CHUNKS_MAX][512], scale = 1.0f / root((float)a->head_dim);
	int n_chunks = 0;
	for (int32_t begin = 0; begin < a->n_pos; begin += 256) {
		float score[256], lanes[16] = {0};
		int32_t n = a->n_pos - begin < 256 ? a->n_pos - begin : 256;
		int c = n_chunks++;
		ASSERT(c < CHUNKS_MAX);
		memset(o[c], 0, sizeof(o[c]));
		for (int32_t p = 0; p < n; p++) {
			float acc = 0.0f;
			for (int32_t d = 0; d < a->head_dim; d++)
				acc = ref_fma(a->q[d], ref_half(a->k[(size_t)(begin + p) * a->stride + (size_t)d]), acc);
			score[p] = scale * acc;
			m[c] = p == 0 || score[p] > m[c] ? score[p] : m[c];
		}
		for (int32_t p = 0; p < n; p++) {
			float e = ref_exp(score[p] - m[c]);
			lanes[p % 16] += e;
			for (int32_t i = 0; i < a->head_dim; i++)
				o[c][i] = ref_fma(e, ref_half(a->v[(size_t)(begin + p) * a->stride + (size_t)i]), o[c][i]);
		}
		l[c] = ref_tree(lanes, 16);
	}
	float top = m[0], sum = 0.0f;
	for (int c = 1; c < n_chunks; c++)
		top = m[c] > top ? m[c] : top;
	for (int c = 0; c < n_chunks; c++)
		sum = ref_fma(ref_exp(m[c] - top), l[c], sum);
	for (int32_t i = 0; i < a->head_dim; i++) {
		float acc = 0.0f;
		for (int c = 0; c < n_chunks; c++)
			acc = ref_fma(ref_exp(m[c] - top), o[c][i], acc);
		out[i] = acc * (1.0f / sum);
	}
}

static float plain(struct rng *r)
{
	return (float)((rng_u01(r) + rng_u01(r) + rng_u01(r) + rng_u01(r) - 2.0) * 2.0);
}

void ref_fill(struct rng *r, enum ref_input kind, float *x, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t u = rng_u32(r);
		x[i] = plain(r);
		switch (kind) {
		case REF_PLAIN: break;
		case REF_OUTLIERS: x[i] *= u % 37 == 0 ? 1000.0f : 1.0f; break;
		// Runs of 32 share a magnitude: zero, subnormal, just below, around and just above 2^-60.
		case REF_TINY: {
			static const float scales[] = {0.0f, 0x1p-140f, 0x1p-127f, 0x1p-64f, 0x1p-62f, 0x1p-60f, 0x1p-58f};
			x[i] *= scales[i / 32 % 7];
			if (u % 64 == 0)
				x[i] = float_of((0x21800000 - 1 + u / 64 % 3) | (u & 0x80000000));
			break;
		}
		// Whole blocks of the greatest magnitude, with one sign or with two: q is 127 or -127 throughout.
		case REF_FLAT: x[i] = (i / 256 % 3 == 2 ? u % 2 : i / 256 % 3) ? -3.0f : 3.0f; break;
		case REF_HUGE: x[i] = float_of((u & 0x80ffffff) | 0x7e000000); break;
		case REF_NON_FINITE:
			if (u % 97 == 0)
				x[i] = float_of(0x7f800000 | (u & 0x80000000) | (u % 2 ? u >> 9 & 0xff : 0));
			break;
		}
	}
}

void ref_fill_halves(struct rng *r, uint16_t *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = ref_to_half(plain(r));
}

static void put_half(uint8_t *p, uint16_t h)
{
	p[0] = (uint8_t)h;
	p[1] = (uint8_t)(h >> 8);
}

void ref_fill_weights(struct rng *r, enum dtype type, bool hostile, uint8_t *out, int32_t n_rows, int32_t cols)
{
	const struct dtype_info *info = dtype_find((uint32_t)type);
	size_t n_blocks = (size_t)n_rows * (size_t)cols / info->block_len;
	for (size_t b = 0; b < n_blocks; b++) {
		uint8_t *p = out + b * info->block_bytes;
		for (uint32_t i = 0; i < info->block_bytes; i++)
			p[i] = (uint8_t)rng_u32(r);
		float v = plain(r);
		uint16_t h = ref_to_half(v * 0.01f), m = ref_to_half(plain(r) * 0.1f);
		if (hostile && rng_below(r, 8) == 0)
			h = (uint16_t)rng_u32(r);
		if (is_k(type) && hostile && rng_below(r, 4) == 0) // every weight and scale the greatest or the least
			memset(p, rng_below(r, 2) ? 0xff : rng_below(r, 2) ? 0x00 : 0x7f, info->block_bytes);
		if (is_k(type)) {
			put_half(p + (type == DTYPE_Q6_K ? 208 : type == DTYPE_Q3_K ? 108 : 0), h);
			if (type == DTYPE_Q4_K || type == DTYPE_Q5_K)
				put_half(p + 2, m);
			continue;
		}
		if (type == DTYPE_F32)
			memcpy(p, &v, 4);
		else
			put_half(p, type == DTYPE_BF16 ? (uint16_t)(bits32(v) >> 16) : type == DTYPE_F16 ? ref_to_half(v) : h);
		if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1)
			put_half(p + 2, m);
	}
}

bool ref_same(const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (bits32(a[i]) != bits32(b[i]) && (a[i] == a[i] || b[i] == b[i]))
			return false;
	}
	return true;
}
