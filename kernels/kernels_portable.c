// The portable table: the rules of canonical.h written down as C, one rule per function, in the order of the rules.
#include "kernels/kernels_impl.h"

#include "base/fmath.h"

#define TILE 8 // tokens that share the unpacking of a weight block

static void quantise_block(const float *x, int32_t block_len, int8_t *q, float *d)
{
	uint32_t m = 0;
	for (int32_t i = 0; i < block_len; i++) {
		uint32_t magnitude = fmath_bits(x[i]) & 0x7fffffff;
		m = magnitude > m ? magnitude : m;
	}
	if (m >= 0x7f800000 || m < 0x21800000) {
		*d = m >= 0x7f800000 ? fmath_from_bits(0x7fc00000) : 0.0f;
		memset(q, 0, (size_t)block_len);
		return;
	}
	float amax = fmath_from_bits(m);
	float inverse = 127.0f / amax;
	*d = amax / 127.0f;
	for (int32_t i = 0; i < block_len; i++)
		q[i] = (int8_t)fmath_round_int(x[i] * inverse);
}

static int32_t sum_of(const int8_t *q, int n)
{
	int32_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += q[i];
	return sum;
}

static void quantise(const struct acts *a, int32_t t)
{
	const size_t cols = (size_t)a->cols, block_len = a->kind == ACT_A256 ? SUPER_LEN : BLOCK_LEN, at = (size_t)t * cols;
	int8_t *q = a->q + at;
	for (size_t b = 0; b < cols / block_len; b++)
		quantise_block(a->x + at + b * block_len, (int32_t)block_len, q + b * block_len, a->d + at / block_len + b);
	if (a->kind == ACT_A32) {
		for (size_t s = 0; s < cols / 32; s++)
			a->qsum[at / 32 + s] = sum_of(q + 32 * s, 32);
		return;
	}
	for (size_t s = 0; s < cols / 16; s++)
		a->sum16[at / 16 + s] = (int16_t)sum_of(q + 16 * s, 16);
	for (size_t s = 0; s < cols / 32; s++)
		a->sum32[at / 32 + s] = (int16_t)sum_of(q + 32 * s, 32);
}

static int32_t dot_ints(const int8_t *w, const int8_t *q, int n)
{
	int32_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += (int32_t)w[i] * q[i];
	return sum;
}

// Rule 5 for row r and up to TILE tokens.
static void dot_quant(const struct weight *w, int32_t r, const struct acts *a, int32_t t0, int32_t n, const struct nodes_sink *to)
{
	const uint8_t *row = weight_row(w, r);
	float lanes[TILE][QUANT_LANES] = {{0}};
	uint32_t bytes = dtype_find((uint32_t)w->type)->block_bytes;
	bool has_min = type_has_min(w->type);
	for (int32_t b = 0, l = 0; b < w->cols / BLOCK_LEN; b++, l = l + 1 == to->n_lanes ? 0 : l + 1) {
		struct block32 block;
		block32_unpack(w->type, row + (size_t)b * bytes, &block);
		for (int32_t t = 0; t < n; t++) {
			float dx = acts_d(a, t0 + t)[b];
			float *lane = &lanes[t][l];
			float f = (float)dot_ints(block.q, acts_q(a, t0 + t) + (size_t)b * BLOCK_LEN, BLOCK_LEN);
			float c = block.scale * dx;
			*lane = fmaf(f, c, *lane);
			if (has_min)
				*lane = fmaf((float)acts_qsum(a, t0 + t)[b], block.min * dx, *lane);
		}
	}
	for (int32_t t = 0; t < n; t++)
		sink_lanes(to, t0 + t, r, lanes[t]);
}

// Rules 6 and 7: one super-block with the activations of one token, before their scale.
static float dot_super(enum dtype type, const struct block256 *block, const int8_t *q, const int16_t *sum32)
{
	int32_t s = 0, m = 0;
	for (int j = 0; j < SUPER_LEN / 16; j++)
		s += block->scale[j] * dot_ints(block->q + 16 * j, q + 16 * j, 16);
	if (!type_has_min(type))
		return (float)s * block->d;
	for (int j = 0; j < SUPER_LEN / 32; j++)
		m += block->min[j] * sum32[j];
	float u = (float)m * block->dmin;
	return fmaf((float)s, block->d, -u);
}

// Rules 6 and 7 for row r and up to TILE tokens.
static void dot_k_quant(const struct weight *w, int32_t r, const struct acts *a, int32_t t0, int32_t n, const struct nodes_sink *to)
{
	const uint8_t *row = weight_row(w, r);
	float lanes[TILE][SUPER_LANES] = {{0}};
	uint32_t bytes = dtype_find((uint32_t)w->type)->block_bytes;
	for (int32_t b = 0, l = 0; b < w->cols / SUPER_LEN; b++, l = l + 1 == to->n_lanes ? 0 : l + 1) {
		struct block256 block;
		block256_unpack(w->type, row + (size_t)b * bytes, &block);
		for (int32_t t = 0; t < n; t++) {
			const int16_t *sums = acts_sum32(a, t0 + t) + (size_t)b * (SUPER_LEN / 32);
			float s = dot_super(w->type, &block, acts_q(a, t0 + t) + (size_t)b * SUPER_LEN, sums);
			lanes[t][l] = fmaf(s, acts_d(a, t0 + t)[b], lanes[t][l]);
		}
	}
	for (int32_t t = 0; t < n; t++)
		sink_lanes(to, t0 + t, r, lanes[t]);
}

// Rule 8 for row r and token t.
static void dot_float(const struct weight *w, int32_t r, const struct acts *a, int32_t t, const struct nodes_sink *to)
{
	const uint8_t *row = weight_row(w, r);
	const float *x = a->x + (size_t)t * (size_t)a->cols;
	float lanes[FLOAT_LANES] = {0};
	for (int32_t i = 0, l = 0; i < w->cols; i++, l = l + 1 == to->n_lanes ? 0 : l + 1)
		lanes[l] = fmaf(weight_at(w->type, row, i), x[i], lanes[l]);
	sink_lanes(to, t, r, lanes);
}

static void matmul(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	for (int32_t r = row_begin; r < row_end; r++) {
		for (int32_t t = 0; a->kind == ACT_F32 && t < a->n; t++)
			dot_float(w, r, a, t, to);
		for (int32_t t = 0; a->kind != ACT_F32 && t < a->n; t += TILE)
			(a->kind == ACT_A256 ? dot_k_quant : dot_quant)(w, r, a, t, a->n - t < TILE ? a->n - t : TILE, to);
	}
}

static void rmsnorm(const float *x, const float *w, int32_t n, float eps, float *y)
{
	float lanes[FLOAT_LANES] = {0};
	for (int32_t i = 0; i < n; i++)
		lanes[i % FLOAT_LANES] = fmaf(x[i], x[i], lanes[i % FLOAT_LANES]);
	float ss = tree(lanes, FLOAT_LANES);
	float r = 1.0f / sqrtf(ss / (float)n + eps);
	for (int32_t i = 0; i < n; i++)
		y[i] = (x[i] * r) * w[i];
}

static void swiglu(const float *gate, const float *up, int32_t n, float *y)
{
	for (int32_t i = 0; i < n; i++)
		y[i] = fmath_silu(gate[i]) * up[i];
}

static void add(float *y, const float *x, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		y[i] += x[i];
}

static void add_scaled(float *y, float w, const float *x, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		y[i] = fmaf(w, x[i], y[i]);
}

static void f32_to_f16(const float *x, int32_t n, uint16_t *out)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = fmath_f32_to_f16(x[i]);
}

static void f16_to_f32(const uint16_t *x, int32_t n, float *out)
{
	for (int32_t i = 0; i < n; i++)
		out[i] = fmath_f16_to_f32(x[i]);
}

static bool all_finite(const float *x, int32_t n)
{
	uint32_t m = 0;
	for (int32_t i = 0; i < n; i++) {
		uint32_t magnitude = fmath_bits(x[i]) & 0x7fffffff;
		m = magnitude > m ? magnitude : m;
	}
	return m < 0x7f800000;
}

static void rope_pairs(float *x, int32_t n_pairs, const float *cos_in, const float *sin_in)
{
	for (int32_t i = 0; i < n_pairs; i++) {
		float x0 = x[2 * i], x1 = x[2 * i + 1];
		x[2 * i] = fmaf(x0, cos_in[i], -(x1 * sin_in[i]));
		x[2 * i + 1] = fmaf(x0, sin_in[i], x1 * cos_in[i]);
	}
}

static void rope_halves(float *x, int32_t n_pairs, const float *cos_in, const float *sin_in)
{
	for (int32_t i = 0; i < n_pairs; i++) {
		float x0 = x[i], x1 = x[n_pairs + i];
		x[i] = fmaf(x0, cos_in[i], -(x1 * sin_in[i]));
		x[n_pairs + i] = fmaf(x0, sin_in[i], x1 * cos_in[i]);
	}
}

// One chunk of rule 13: fills out[0 .. head_dim) with o_c, and *m_c, *l_c.
static void attend_chunk(const struct attention *a, int32_t begin, int32_t end, float *scores, float *m_c, float *l_c, float *out)
{
	float scale = 1.0f / sqrtf((float)a->head_dim);
	for (int32_t p = begin; p < end; p++) {
		const uint16_t *k = a->k + (size_t)p * a->stride;
		float acc = 0.0f;
		for (int32_t d = 0; d < a->head_dim; d++)
			acc = fmaf(a->q[d], fmath_f16_to_f32(k[d]), acc);
		scores[p - begin] = scale * acc;
	}
	float m = scores[0];
	for (int32_t i = 1; i < end - begin; i++)
		m = scores[i] > m ? scores[i] : m;
	float lanes[SOFTMAX_LANES] = {0};
	memset(out, 0, (size_t)a->head_dim * sizeof(float));
	for (int32_t p = begin; p < end; p++) {
		const uint16_t *v = a->v + (size_t)p * a->stride;
		float e = fmath_exp(scores[p - begin] - m);
		lanes[(p - begin) % SOFTMAX_LANES] += e;
		for (int32_t i = 0; i < a->head_dim; i++)
			out[i] = fmaf(e, fmath_f16_to_f32(v[i]), out[i]);
	}
	*m_c = m;
	*l_c = tree(lanes, SOFTMAX_LANES);
}

static void attention(const struct attention *a, float *scratch, float *out)
{
	float *scores = scratch, *chunks = scratch + CHUNK_LEN; // per chunk: m_c, l_c, o_c
	size_t chunk_floats = (size_t)a->head_dim + 2;
	int32_t n_chunks = (a->n_pos + CHUNK_LEN - 1) / CHUNK_LEN;
	for (int32_t c = 0; c < n_chunks; c++) {
		int32_t begin = c * CHUNK_LEN, end = a->n_pos - begin < CHUNK_LEN ? a->n_pos : begin + CHUNK_LEN;
		float *chunk = chunks + (size_t)c * chunk_floats;
		attend_chunk(a, begin, end, scores, chunk, chunk + 1, chunk + 2);
	}
	float g = chunks[0];
	for (int32_t c = 1; c < n_chunks; c++)
		g = chunks[(size_t)c * chunk_floats] > g ? chunks[(size_t)c * chunk_floats] : g;
	float l = 0.0f;
	memset(out, 0, (size_t)a->head_dim * sizeof(float));
	for (int32_t c = 0; c < n_chunks; c++) {
		const float *chunk = chunks + (size_t)c * chunk_floats;
		float w = fmath_exp(chunk[0] - g);
		l = fmaf(w, chunk[1], l);
		for (int32_t i = 0; i < a->head_dim; i++)
			out[i] = fmaf(w, chunk[2 + i], out[i]);
	}
	float r = 1.0f / l;
	for (int32_t i = 0; i < a->head_dim; i++)
		out[i] = out[i] * r;
}

static void attention_group(const struct attention_group *g, float *scratch)
{
	for (int32_t t = 0; t < g->n_tokens; t++) {
		for (int32_t h = 0; h < g->n_heads; h++) {
			size_t at = (size_t)h * (size_t)g->head_dim;
			struct attention a = {
				.q = g->q + (size_t)t * g->q_stride + at,
				.k = g->k,
				.v = g->v,
				.stride = g->stride,
				.n_pos = g->n_pos + t,
				.head_dim = g->head_dim,
			};
			attention(&a, scratch, g->out + (size_t)t * g->out_stride + at);
		}
	}
}

const struct kernels *kernels_portable(void)
{
	static const struct kernels table = {
		.name = "portable",
		.quantise = quantise,
		.matmul = matmul,
		.rmsnorm = rmsnorm,
		.swiglu = swiglu,
		.add = add,
		.add_scaled = add_scaled,
		.f32_to_f16 = f32_to_f16,
		.f16_to_f32 = f16_to_f32,
		.all_finite = all_finite,
		.rope_pairs = rope_pairs,
		.rope_halves = rope_halves,
		.attention_group = attention_group,
	};
	return &table;
}
