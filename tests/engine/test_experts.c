// Layers with experts: llama.cpp's logits (tests/golden/llama_experts.json, tools/oracle/expert_reference.py), the router's rule, and the same
// bits whatever the batch, the threads and the kernels.
#include "engine/engine.h"
#include "engine/expert_ffn.h"
#include "tests/support/made_model.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GOLDEN "tests/golden/llama_experts.json"
#define IDS_MAX 64

struct made {
	char dir[SCRATCH_CAP], path[MADE_PATH_CAP];
	struct model *model;
	int32_t ids[IDS_MAX], n_ids, vocab_size, hidden_dim;
};

static struct made open_made(const char *shape, const char *type, const char *more)
{
	struct made m = {0};
	struct errmsg em;
	assert_true(scratch_open(m.dir));
	made_model(m.dir, shape, type, more, m.path);
	if (model_open(m.path, &m.model, &em) != OK)
		fail_msg("%s", em.text);
	m.vocab_size = model_hparams(m.model)->vocab_size;
	m.hidden_dim = model_hparams(m.model)->hidden_dim;
	return m;
}

static void close_made(struct made *m)
{
	model_close(m->model);
	scratch_remove(m->dir);
}

// compute returns all logits (n_ids, vocab_size), which the caller frees: fed in chunks, by so many threads.
static float *compute(const struct made *m, int32_t chunk, int32_t n_threads, const char *simd)
{
	struct pool *pool;
	struct engine *e;
	struct errmsg em = {{0}};
	float *hidden = malloc((size_t)IDS_MAX * (size_t)m->hidden_dim * sizeof *hidden);
	float *logits = malloc((size_t)IDS_MAX * (size_t)m->vocab_size * sizeof *logits);
	assert_true(hidden != NULL && logits != NULL);
	assert_int_equal(pool_open(n_threads, &pool), OK);
	const struct engine_config c = {.model = m->model, .kernels = kernels_find(simd, NULL), .pool = pool,
		.layers = layer_spans_one(0, model_hparams(m->model)->n_layers), .has_head = true, .n_slots = 1, .ctx_len = IDS_MAX, .batch_max = chunk};
	if (engine_open(&c, &e, &em) != OK)
		fail_msg("%s", em.text);
	for (int32_t pos = 0; pos < m->n_ids; pos += chunk) {
		int32_t n = m->n_ids - pos < chunk ? m->n_ids - pos : chunk;
		struct engine_item it = {.pos_begin = pos, .n_tokens = n, .tokens = m->ids + pos, .hidden = hidden};
		if (engine_embed(e, &it, 1, &em) != OK || engine_forward(e, &it, 1, &em) != OK ||
			engine_logits(e, hidden, n, logits + (size_t)pos * (size_t)m->vocab_size, &em) != OK)
			fail_msg("%s", em.text);
	}
	engine_close(e);
	pool_close(pool);
	free(hidden);
	return logits;
}

// ---- llama.cpp

static double kl(const double *theirs, const float *ours, int32_t n)
{
	double max_t = theirs[0], max_o = (double)ours[0], sum_t = 0, sum_o = 0, out = 0;
	for (int32_t i = 1; i < n; i++) {
		max_t = fmax(max_t, theirs[i]);
		max_o = fmax(max_o, (double)ours[i]);
	}
	for (int32_t i = 0; i < n; i++) {
		sum_t += exp(theirs[i] - max_t);
		sum_o += exp((double)ours[i] - max_o);
	}
	for (int32_t i = 0; i < n; i++) {
		double log_t = theirs[i] - max_t - log(sum_t), log_o = (double)ours[i] - max_o - log(sum_o);
		out += exp(log_t) * (log_t - log_o);
	}
	return out;
}

static void compare(const json_t *golden)
{
	const char *shape = json_string_value(json_object_get(golden, "shape")), *type = json_string_value(json_object_get(golden, "type"));
	const json_t *ids = json_object_get(golden, "ids"), *rows = json_object_get(golden, "logits");
	char seed[32];
	snprintf(seed, sizeof seed, "--seed %d", (int)json_integer_value(json_object_get(golden, "seed")));
	struct made m = open_made(shape, type, seed);
	m.n_ids = (int32_t)json_array_size(ids);
	assert_in_range(m.n_ids, 8, IDS_MAX);
	for (int32_t i = 0; i < m.n_ids; i++)
		m.ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
	float *logits = compute(&m, 1, 1, NULL);
	double difference = 0, largest = 0, sum = 0, *theirs = calloc((size_t)m.vocab_size, sizeof *theirs);
	assert_non_null(theirs);
	for (int32_t i = 0; i < m.n_ids; i++) {
		const float *ours = logits + (size_t)i * (size_t)m.vocab_size;
		const json_t *row = json_array_get(rows, (size_t)i);
		assert_int_equal(json_array_size(row), m.vocab_size);
		for (int32_t j = 0; j < m.vocab_size; j++) {
			theirs[j] = json_number_value(json_array_get(row, (size_t)j));
			difference = fmax(difference, fabs(theirs[j] - (double)ours[j]));
			largest = fmax(largest, fabs(theirs[j]));
		}
		sum += kl(theirs, ours, m.vocab_size);
	}
	print_message("  %s, %s: largest difference %.1e of the largest logit, mean KL %.1e\n", shape, type, difference / largest, sum / m.n_ids);
	if (strcmp(type, "F32") == 0)
		assert_true(difference <= 1e-3 * largest);
	assert_true(sum / m.n_ids <= 1e-3);
	free(theirs);
	free(logits);
	close_made(&m);
}

static void logits_are_those_of_llama_cpp(void **state)
{
	(void)state;
	json_error_t je;
	json_t *golden = json_load_file(GOLDEN, 0, &je);
	assert_non_null(golden);
	const json_t *models = json_object_get(golden, "models");
	assert_int_equal(json_array_size(models), 8);
	for (size_t i = 0; i < json_array_size(models); i++)
		compare(json_array_get(models, i));
	json_decref(golden);
}

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
	} ways[] = {{IDS_MAX, 1, NULL}, {7, 2, NULL}, {2, 3, NULL}, {IDS_MAX, 4, NULL}, {5, 1, "portable"}};
	struct made m = open_made(shape, type, "");
	fill_ids(&m, 33);
	float *want = compute(&m, 1, 1, NULL);
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		float *got = compute(&m, ways[i].chunk, ways[i].threads, ways[i].simd);
		assert_memory_equal(got, want, (size_t)m.n_ids * (size_t)m.vocab_size * sizeof *got);
		free(got);
	}
	free(want);
	close_made(&m);
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
		cmocka_unit_test(logits_are_those_of_llama_cpp),
	};
	kernels_thread_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
