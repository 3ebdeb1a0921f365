// The public functions: they check the caller's arguments once and go through the table.
#include "kernels/kernels_impl.h"

#include "base/assert.h"

#include <stdio.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#define STORAGE_ALIGN 64 // a cache line, and what the widest vector load likes

// Every table of this build, the fastest first, with what it needs of the processor.
static const struct candidate {
	const char *name;
	uint32_t needs; // bits of enum cpu_feature
	const struct kernels *(*table)(void);
	const char *lacks; // what a processor without them is told
} candidates[] = {
#ifdef __x86_64__
	{"avx512", CPU_AVX2 | CPU_AVX512, kernels_avx512, "AVX-512 with VNNI"},
	{"avx2", CPU_AVX2, kernels_avx2, "AVX2, FMA or F16C"},
#endif
	{"portable", 0, kernels_portable, ""},
};

// __builtin_cpu_supports also asks whether the system saves the wide registers.
static uint32_t cpu_features(void)
{
	uint32_t features = 0;
#ifdef __x86_64__
	unsigned a, b, c, d;
	bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
	if (has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		features |= CPU_AVX2;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
		__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni"))
		features |= CPU_AVX512;
#endif
	return features;
}

const struct kernels *kernels_fastest(uint32_t features)
{
	size_t i = 0;
	while ((candidates[i].needs & ~features) != 0)
		i++;
	return candidates[i].table();
}

const char *kernels_known(size_t i)
{
	return i < ARRAY_LEN(candidates) ? candidates[i].name : NULL;
}

static const struct kernels *fail_unknown(const char *name, struct errmsg *em)
{
	char list[64] = "";
	for (size_t i = 0, n = 0; i < ARRAY_LEN(candidates) && n < sizeof list; i++)
		n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? ", " : "", candidates[i].name);
	(void)errmsg_fail(em, ERR_NOT_FOUND, "kernels \"%s\" do not exist here (want one of %s)", name, list);
	return NULL;
}

const struct kernels *kernels_find(const char *name, struct errmsg *em)
{
	uint32_t features = cpu_features();
	if (name == NULL)
		return kernels_fastest(features);
	size_t i = 0;
	while (i < ARRAY_LEN(candidates) && strcmp(candidates[i].name, name) != 0)
		i++;
	if (i == ARRAY_LEN(candidates))
		return fail_unknown(name, em);
	if ((candidates[i].needs & ~features) == 0)
		return candidates[i].table();
	(void)errmsg_fail(em, ERR_UNSUPPORTED, "kernels \"%s\": this processor lacks %s (it could use \"%s\")", name, candidates[i].lacks,
		kernels_fastest(features)->name);
	return NULL;
}

const char *kernels_name(const struct kernels *k)
{
	return k->name;
}

bool kernels_has_type(enum dtype type)
{
	switch (type) {
	case DTYPE_F32:
	case DTYPE_F16:
	case DTYPE_BF16:
	case DTYPE_Q8_0:
	case DTYPE_Q4_0:
	case DTYPE_Q4_1:
	case DTYPE_Q5_0:
	case DTYPE_Q5_1:
	case DTYPE_Q3_K:
	case DTYPE_Q4_K:
	case DTYPE_Q5_K:
	case DTYPE_Q6_K: return true;
	default: return false;
	}
}

enum act_kind kernels_act_kind(enum dtype type)
{
	ASSERT(kernels_has_type(type));
	switch (dtype_find((uint32_t)type)->block_len) {
	case 1: return ACT_F32;
	case BLOCK_LEN: return ACT_A32;
	default: return ACT_A256;
	}
}

void kernels_thread_init(void)
{
#if defined(__x86_64__)
	_mm_setcsr(0x1f80);
#elif defined(__aarch64__)
	uint64_t zero = 0;
	__asm__ volatile("msr fpcr, %0" : : "r"(zero));
#else
#error "say here how the floating-point environment of rule 1 is set"
#endif
}

static int32_t block_len_of(enum act_kind kind)
{
	return kind == ACT_A256 ? SUPER_LEN : BLOCK_LEN;
}

size_t acts_bytes(enum act_kind kind, int32_t n_cap, int32_t cols)
{
	if (kind == ACT_F32)
		return 0;
	size_t n = (size_t)n_cap * (size_t)cols, sums = kind == ACT_A256 ? n / 16 * sizeof(int16_t) + n / 32 * sizeof(int16_t) : n / 32 * sizeof(int32_t);
	return STORAGE_ALIGN + n + n / (size_t)block_len_of(kind) * sizeof(float) + sums;
}

void acts_init(struct acts *a, enum act_kind kind, int32_t n_cap, int32_t cols, void *storage)
{
	ASSERT(n_cap > 0);
	ASSERT(cols > 0);
	*a = (struct acts){.kind = kind, .n_cap = n_cap, .cols = cols};
	if (kind == ACT_F32)
		return;
	ASSERT(cols % block_len_of(kind) == 0);
	size_t n = (size_t)n_cap * (size_t)cols;
	uintptr_t at = ((uintptr_t)storage + STORAGE_ALIGN - 1) & ~(uintptr_t)(STORAGE_ALIGN - 1);
	a->q = (int8_t *)at;
	a->d = (float *)(at + n);
	uintptr_t sums = at + n + n / (size_t)block_len_of(kind) * sizeof(float);
	if (kind == ACT_A32) {
		a->qsum = (int32_t *)sums;
	} else {
		a->sum16 = (int16_t *)sums;
		a->sum32 = a->sum16 + n / 16;
	}
}

void acts_set(struct acts *a, const float *x, int32_t n)
{
	ASSERT(n >= 0);
	ASSERT(n <= a->n_cap);
	a->x = x;
	a->n = n;
}

void acts_quantise(const struct kernels *k, struct acts *a, int32_t begin, int32_t end)
{
	ASSERT(begin >= 0);
	ASSERT(end <= a->n);
	if (a->kind == ACT_F32 || begin >= end)
		return;
	for (int32_t t = begin; t < end; t++)
		k->quantise(a, t);
}

int32_t acts_block_len(enum act_kind kind)
{
	return kind == ACT_F32 ? 1 : block_len_of(kind);
}

// blocks_of gives some blocks of one token as activations of their own.
static struct acts blocks_of(const struct acts *a, int32_t token, int32_t block_begin, int32_t block_end)
{
	int32_t len = block_len_of(a->kind);
	ASSERT(a->kind != ACT_F32);
	ASSERT(token >= 0);
	ASSERT(token < a->n);
	ASSERT(block_begin >= 0);
	ASSERT(block_begin <= block_end);
	ASSERT(block_end <= a->cols / len);
	struct acts p = acts_part(a, token, token + 1);
	size_t skip = (size_t)block_begin * (size_t)len;
	p.cols = (block_end - block_begin) * len;
	p.x += skip;
	p.q += skip;
	p.d += block_begin;
	if (a->kind == ACT_A32) {
		p.qsum += block_begin;
	} else {
		p.sum16 += skip / 16;
		p.sum32 += skip / 32;
	}
	return p;
}

void acts_quantise_blocks(const struct kernels *k, const struct acts *a, int32_t token, int32_t block_begin, int32_t block_end)
{
	struct acts p = blocks_of(a, token, block_begin, block_end);
	if (block_begin < block_end)
		k->quantise(&p, 0);
}

void acts_sum_blocks(const struct acts *a, int32_t token, int32_t block_begin, int32_t block_end)
{
	struct acts p = blocks_of(a, token, block_begin, block_end);
	for (int32_t i = 0; i < p.cols; i += 16) {
		int32_t sum = 0;
		for (int32_t j = i; j < i + 16; j++)
			sum += p.q[j];
		if (a->kind == ACT_A32) {
			p.qsum[i / 32] = i % 32 == 0 ? sum : p.qsum[i / 32] + sum;
		} else {
			p.sum16[i / 16] = (int16_t)sum;
			p.sum32[i / 32] = (int16_t)(i % 32 == 0 ? sum : p.sum32[i / 32] + sum);
		}
	}
}

struct acts acts_part(const struct acts *a, int32_t begin, int32_t end)
{
	ASSERT(begin >= 0);
	ASSERT(begin <= end);
	ASSERT(end <= a->n);
	struct acts p = *a;
	size_t skip = (size_t)begin * (size_t)a->cols;
	p.n = p.n_cap = end - begin;
	p.x += skip;
	if (a->kind == ACT_F32)
		return p;
	p.q += skip;
	p.d += skip / (size_t)block_len_of(a->kind);
	if (a->kind == ACT_A32) {
		p.qsum += skip / 32;
	} else {
		p.sum16 += skip / 16;
		p.sum32 += skip / 32;
	}
	return p;
}

void kernels_matmul(const struct kernels *k, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end,
	float *y, size_t y_stride)
{
	ASSERT(a->kind == kernels_act_kind(w->type));
	ASSERT(a->cols == w->cols);
	ASSERT(row_begin >= 0);
	ASSERT(row_end <= w->rows);
	const struct nodes_sink to = sink_whole(kernels_lanes(w->type), y, y_stride);
	if (row_begin < row_end && a->n > 0)
		k->matmul(w, a, row_begin, row_end, &to);
}

void kernels_rmsnorm(const struct kernels *k, const float *x, const float *w, int32_t n, float eps, float *y)
{
	ASSERT(n > 0);
	k->rmsnorm(x, w, n, eps, y);
}

void kernels_swiglu(const struct kernels *k, const float *gate, const float *up, int32_t n, float *y)
{
	k->swiglu(gate, up, n, y);
}

void kernels_add(const struct kernels *k, float *y, const float *x, int32_t n)
{
	k->add(y, x, n);
}

void kernels_add_scaled(const struct kernels *k, float *y, float w, const float *x, int32_t n)
{
	k->add_scaled(y, w, x, n);
}

void kernels_f32_to_f16(const struct kernels *k, const float *x, int32_t n, uint16_t *out)
{
	k->f32_to_f16(x, n, out);
}

void kernels_f16_to_f32(const struct kernels *k, const uint16_t *x, int32_t n, float *out)
{
	k->f16_to_f32(x, n, out);
}

bool kernels_all_finite(const struct kernels *k, const float *x, int32_t n)
{
	return k->all_finite(x, n);
}

void kernels_rope_pairs(const struct kernels *k, float *x, int32_t n_pairs, const float *cos_in, const float *sin_in)
{
	k->rope_pairs(x, n_pairs, cos_in, sin_in);
}

void kernels_rope_halves(const struct kernels *k, float *x, int32_t n_pairs, const float *cos_in, const float *sin_in)
{
	k->rope_halves(x, n_pairs, cos_in, sin_in);
}

size_t kernels_attention_group_scratch(int32_t n_pos, int32_t head_dim, int32_t n_queries)
{
	size_t n_chunks = ((size_t)n_pos + CHUNK_LEN - 1) / CHUNK_LEN, head = (size_t)head_dim;
	return PANEL_LEN * head + (size_t)n_queries * (CHUNK_LEN + n_chunks * (head + 2));
}

void kernels_attention_group(const struct kernels *k, const struct attention_group *g, float *scratch)
{
	ASSERT(g->n_tokens >= 1);
	ASSERT(g->n_heads >= 1);
	ASSERT(g->n_pos >= 1);
	ASSERT(g->head_dim >= 8);
	ASSERT(g->head_dim % 8 == 0);
	ASSERT(g->head_dim <= HEAD_DIM_MAX);
	k->attention_group(g, scratch);
}

size_t kernels_attention_scratch(int32_t n_pos, int32_t head_dim)
{
	return kernels_attention_group_scratch(n_pos, head_dim, 1);
}

void kernels_attention(const struct kernels *k, const struct attention *a, float *scratch, float *out)
{
	struct attention_group g = {
		.q = a->q,
		.k = a->k,
		.v = a->v,
		.stride = a->stride,
		.n_tokens = 1,
		.n_heads = 1,
		.n_pos = a->n_pos,
		.head_dim = a->head_dim,
		.out = out,
	};
	kernels_attention_group(k, &g, scratch);
}
