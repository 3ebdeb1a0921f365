// The AVX2 table, and which of its two ways a quantised product goes.
#include "kernels/simd_avx2.h"

static void matmul(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	if (a->kind == ACT_F32)
		avx2_matmul_float(w, a, row_begin, row_end, to);
	else if (a->n <= ROWS_TOKENS_MAX)
		(a->kind == ACT_A256 ? avx2_matmul_k_rows : avx2_matmul_rows)(w, a, row_begin, row_end, to);
	else
		(a->kind == ACT_A256 ? avx2_matmul_k_tiles : avx2_matmul_tiles)(w, a, row_begin, row_end, to);
}

const struct kernels *kernels_avx2(void)
{
	static const struct kernels table = {
		.name = "avx2",
		.quantise = avx2_quantise,
		.matmul = matmul,
		.rmsnorm = avx2_rmsnorm,
		.swiglu = avx2_swiglu,
		.add = avx2_add,
		.add_scaled = avx2_add_scaled,
		.f32_to_f16 = avx2_f32_to_f16,
		.f16_to_f32 = avx2_f16_to_f32,
		.all_finite = avx2_all_finite,
		.rope_pairs = avx2_rope_pairs,
		.rope_halves = avx2_rope_halves,
		.attention_group = avx2_attention_group,
	};
	return &table;
}
