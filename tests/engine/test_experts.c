// Layers with experts: the router's rule, and the same bits whatever the batch, the threads and the kernels. Their numbers: test_expert_logits.c.
#include "engine/expert_ffn.h"
#include "tests/support/made_logits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

// ---- the router

static void the_router_takes_the_likeliest_and_of_equal_ones_the_first(void **state)
{
	(void)state;
	float logits[] = {1, 3, 2, 3, -100, 3};
	struct expert_choice c[3];
	expert_route(logits, 6, 2, c);
	assert_int_equal(c[0].expert, 1);
	assert_int_equal(c[1].expert, 3);
	assert_true(c[0].weight == 0.5f && c[1].weight == 0.5f);
	float few[] = {0.5f, -2, 4};
	expert_route(few, 3, 3, c);
	for (int32_t i = 0; i < 3; i++)
		assert_int_equal(c[i].expert, i); // ascending, whatever their weights
	assert_true(c[2].weight > c[0].weight && c[0].weight > c[1].weight);
	assert_true(fabsf(c[0].weight + c[1].weight + c[2].weight - 1) < 1e-6f);
	float far[] = {-3e38f, 3e38f};
	expert_route(far, 2, 2, c);
	assert_true(c[0].weight == 0 && c[1].weight == 1);
}

// ---- bits

#define SHAPE_LLAMA "layers=3,hidden=256,heads=4,kv_heads=2,ffn=256,experts=5,experts_used=2"
#define SHAPE_QWEN "arch=qwen3moe,layers=3,hidden=256,heads=4,kv_heads=2,head_dim=64,ffn=256,experts=24,experts_used=5"

static void fill_ids(struct made *m, int32_t n)
{
	m->n_ids = n;
	for (int32_t i = 0; i < n; i++)
		m->ids[i] = (i * 37 + 11) % m->vocab_size;
}

static void same_whatever_way(const char *shape, const char *type)
{
	static const struct {
		int32_t chunk, threads;
		const char *simd;
	} ways[] = {{MADE_IDS_MAX, 1, NULL}, {7, 2, NULL}, {2, 3, NULL}, {MADE_IDS_MAX, 4, NULL}, {5, 1, "portable"}};
	struct made m = made_open(shape, type, "");
	fill_ids(&m, 33);
	float *want = made_logits(&m, 1, 1, NULL);
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		float *got = made_logits(&m, ways[i].chunk, ways[i].threads, ways[i].simd);
		assert_memory_equal(got, want, (size_t)m.n_ids * (size_t)m.vocab_size * sizeof *got);
		free(got);
	}
	free(want);
	made_close(&m);
}

static void batches_threads_and_kernels_give_the_bits_of_single_tokens(void **state)
{
	(void)state;
	same_whatever_way(SHAPE_LLAMA, "Q4_0");
	same_whatever_way(SHAPE_QWEN, "Q4_K_M");
	same_whatever_way(SHAPE_QWEN, "F16");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_router_takes_the_likeliest_and_of_equal_ones_the_first),
		cmocka_unit_test(batches_threads_and_kernels_give_the_bits_of_single_tokens),
	};
	kernels_thread_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
