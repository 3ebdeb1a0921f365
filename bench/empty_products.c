// Matrix products that compute nothing, linked in the place of the kernels' (-Wl,--wrap): a hearth with which bench/groups_bench.py measures what the
// exchanges of a group take. Every frame of a forward travels as always, and what is in it means nothing.
#include "base/tensor_split.h"
#include "kernels/kernels.h"
#include "kernels/lanes.h"

#include <stddef.h>

void __wrap_kernels_matmul(const struct kernels *k, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y,
	size_t y_stride);
void __wrap_kernels_matmul_nodes(const struct kernels *k, const struct weight *w, uint32_t mask, const struct acts *a, int32_t row_begin,
	int32_t row_end, float *y, size_t token_stride, size_t node_stride);

static void zero(float *y, int32_t row_begin, int32_t row_end)
{
	for (int32_t r = row_begin; r < row_end; r++)
		y[r] = 0;
}

void __wrap_kernels_matmul(const struct kernels *k, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end, float *y,
	size_t y_stride)
{
	(void)k;
	(void)w;
	for (int32_t t = 0; t < a->n; t++)
		zero(y + (size_t)t * y_stride, row_begin, row_end);
}

void __wrap_kernels_matmul_nodes(const struct kernels *k, const struct weight *w, uint32_t mask, const struct acts *a, int32_t row_begin,
	int32_t row_end, float *y, size_t token_stride, size_t node_stride)
{
	(void)k;
	int32_t n_nodes = split_nodes(kernels_lanes(w->type), mask);
	for (int32_t t = 0; t < a->n; t++)
		for (int32_t j = 0; j < n_nodes; j++)
			zero(y + (size_t)t * token_stride + (size_t)j * node_stride, row_begin, row_end);
}
