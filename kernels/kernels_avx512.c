// The AVX-512 table. What is missing in the other *_avx512.c files is AVX2's: it is bound by memory, or takes too little time to matter.
#include "kernels/simd_avx512.h"

static void matmul(const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, const struct nodes_sink *to)
{
	if (a->kind == ACT_F32)
		avx512_matmul_float(w, a, row_begin, row_end, to);
	else if (a->n <= ROWS_TOKENS_MAX)
		(a->kind == ACT_A256 ? avx512_matmul_k_rows : avx512_matmul_rows)(w, a, row_begin, row_end, to);
	else
		(a->kind == ACT_A256 ? avx512_matmul_k_tiles : avx512_matmul_tiles)(w, a, row_begin, row_end, to);
}

const struct kernels *kernels_avx512(void)
{
	static const struct kernels table = {
		.name = "avx512",
		.quantise = avx2_quantise,
		.matmul = matmul,
		.rmsnorm = avx2_rmsnorm,
		.swiglu = avx512_swiglu,
		.add = avx2_add,
		.add_scaled = avx2_add_scaled,
		.f32_to_f16 = avx2_f32_to_f16,
		.f16_to_f32 = avx2_f16_to_f32,
		.all_finite = avx2_all_finite,
		.rope_pairs = avx2_rope_pairs,
		.rope_halves = avx2_rope_halves,
		.attention_group = avx512_attention_group,
	};
	return &table;
}
