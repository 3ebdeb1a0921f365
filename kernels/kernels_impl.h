// Private to kernels/: the table behind `struct kernels`, and the scalar pieces every implementation uses for its tails.
//
// An implementation fills every entry. Arguments were checked by the public functions in kernels.c; entries never check again.
#ifndef HEARTH_KERNELS_KERNELS_IMPL_H
#define HEARTH_KERNELS_KERNELS_IMPL_H

#include "kernels/kernels.h"
#include "kernels/lanes.h"

#include <string.h>

#define BLOCK_LEN 32     // elements of a block of the 32-block types and of ACT_A32
#define SUPER_LEN 256    // elements of a super-block of the K-quants and of ACT_A256
#define QUANT_LANES 8    // rule 5
#define SUPER_LANES 4    // rules 6 and 7
#define FLOAT_LANES 32   // rule 8
#define CHUNK_LEN 256    // rule 13: positions of one chunk
#define SOFTMAX_LANES 16 // rule 13
#define HEAD_DIM_MAX 512
#define PANEL_LEN 16      // positions whose K or V an implementation may hold as f32 in scratch

// Where a product goes, and of which lanes it is made: all, or those of a mask (kernels/lanes.h).
struct nodes_sink {
	int32_t n_lanes; // block b lies on lane b mod n_lanes
	int32_t n_nodes;
	struct {
		uint8_t first, len;
	} node[LANE_NODES_MAX]; // node j is the TREE of lanes [first, first + len)
	float *y;          // node j of row r and token t at y[t * token_stride + j * node_stride + r]
	size_t token_stride, node_stride;
};

struct kernels {
	const char *name;
	// Rule 4 for token t, and its sums.
	void (*quantise)(const struct acts *a, int32_t t);
	// Rules 5 to 8; w has at least one column.
	void (*matmul)(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to);
	void (*rmsnorm)(const float *x, const float *w, int32_t n, float eps, float *y);
	void (*swiglu)(const float *gate, const float *up, int32_t n, float *y);
	void (*add)(float *y, const float *x, int32_t n);
	void (*add_scaled)(float *y, float w, const float *x, int32_t n);
	void (*f32_to_f16)(const float *x, int32_t n, uint16_t *out);
	void (*f16_to_f32)(const uint16_t *x, int32_t n, float *out);
	bool (*all_finite)(const float *x, int32_t n);
	void (*rope_pairs)(float *x, int32_t n_pairs, const float *cos_in, const float *sin_in);
	void (*rope_halves)(float *x, int32_t n_pairs, const float *cos_in, const float *sin_in);
	void (*attention_group)(const struct attention_group *g, float *scratch);
};

// What a table may need of a processor beyond its architecture's baseline.
enum cpu_feature {
	CPU_AVX2 = 1,   // AVX2, FMA, F16C
	CPU_AVX512 = 2, // AVX-512 F, BW, VL, DQ, VNNI
};

// kernels_fastest returns the fastest table that needs no more than these features.
const struct kernels *kernels_fastest(uint32_t features);

const struct kernels *kernels_portable(void);
#ifdef __x86_64__
const struct kernels *kernels_avx2(void);
const struct kernels *kernels_avx512(void);
#endif

// One block of a 32-block type, taken apart: value = scale * q[i], or scale * q[i] + min.
struct block32 {
	int8_t q[BLOCK_LEN];
	float scale;
	float min; // 0 for types without one
};

// One super-block of a K-quant, taken apart: value = d * scale[i / 16] * q[i] - dmin * min[i / 32].
struct block256 {
	int8_t q[SUPER_LEN];
	int8_t scale[SUPER_LEN / 16]; // types with a scale per 32 have each twice
	uint8_t min[SUPER_LEN / 32];  // 0 for types without
	float d;
	float dmin; // 0 for types without
};

// block32_unpack reads the block at p of a type with blocks of 32, block256_unpack that of a K-quant.
void block32_unpack(enum dtype type, const uint8_t *p, struct block32 *out);
void block256_unpack(enum dtype type, const uint8_t *p, struct block256 *out);
// type_has_min tells whether rule 5's second fma, or rule 6 rather than rule 7, applies.
static inline bool type_has_min(enum dtype type)
{
	return type == DTYPE_Q4_1 || type == DTYPE_Q5_1 || type == DTYPE_Q4_K || type == DTYPE_Q5_K;
}

// weight_at returns element i of a row of f32, f16 or bf16, as f32.
float weight_at(enum dtype type, const uint8_t *row, int32_t i);

// tree reduces n lanes (a power of two) by rule 2; lanes is overwritten.
static inline float tree(float *lanes, int n)
{
	for (; n > 1; n /= 2) {
		for (int i = 0; i < n / 2; i++)
			lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
	}
	return lanes[0];
}

// sink_whole returns where a product over all lanes goes.
static inline struct nodes_sink sink_whole(int32_t n_lanes, float *y, size_t y_stride)
{
	return (struct nodes_sink){.n_lanes = n_lanes, .n_nodes = 1, .node = {{0, (uint8_t)n_lanes}}, .y = y, .token_stride = y_stride};
}

// sink_lanes stores the nodes of one row and token; the lanes are used up.
static inline void sink_lanes(const struct nodes_sink *to, int32_t t, int32_t row, float *lanes)
{
	float *y = to->y + (size_t)t * to->token_stride + row;
	for (int32_t j = 0; j < to->n_nodes; j++)
		y[(size_t)j * to->node_stride] = tree(lanes + to->node[j].first, to->node[j].len);
}

static inline const uint8_t *weight_row(const struct weight *w, int32_t row)
{
	return (const uint8_t *)w->data + (size_t)row * w->row_bytes;
}

// The tokens of acts.
static inline const int8_t *acts_q(const struct acts *a, int32_t t)
{
	return a->q + (size_t)t * (size_t)a->cols;
}

static inline const float *acts_d(const struct acts *a, int32_t t)
{
	return a->d + (size_t)t * (size_t)(a->cols / (a->kind == ACT_A256 ? SUPER_LEN : BLOCK_LEN));
}

static inline const int32_t *acts_qsum(const struct acts *a, int32_t t)
{
	return a->qsum + (size_t)t * (size_t)(a->cols / BLOCK_LEN);
}

static inline const int16_t *acts_sum16(const struct acts *a, int32_t t)
{
	return a->sum16 + (size_t)t * (size_t)(a->cols / 16);
}

static inline const int16_t *acts_sum32(const struct acts *a, int32_t t)
{
	return a->sum32 + (size_t)t * (size_t)(a->cols / 32);
}

#endif
