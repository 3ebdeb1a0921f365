// Layers with experts against llama.cpp's logits (tests/golden/llama_experts*.json, tools/oracle/expert_reference.py).
//
// Decided: how quantised experts are held to llama.cpp. Both round activations to 8 bits, each in its own way, and where two experts nearly tie the
// rounding decides which is computed. Then logits differ at once, and neither side's are the right ones. So the bound on the divergence between the two,
// 1e-3, is for models whose routers choose clearly. For any model, whatever its seed, what is right are the logits with every weight dequantised to f32:
// with such weights, where only the graph can differ, ours are llama.cpp's; with quantised ones ours are no farther from them than
// llama.cpp's own are, neither at most positions (the median) nor in how often another expert was taken.
#include "tests/support/made_logits.h"

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
#define GOLDEN_EXACT "tests/golden/llama_experts_exact.json"
#define POSITIONS_MAX 512
#define OTHER_EXPERT 2e-2 // a divergence that no rounding of activations reaches

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

// open_golden makes the model of a golden entry, with its ids.
static struct made open_golden(const json_t *golden)
{
	const json_t *ids = json_object_get(golden, "ids");
	char seed[32];
	snprintf(seed, sizeof seed, "--seed %d", (int)json_integer_value(json_object_get(golden, "seed")));
	struct made m = made_open(json_string_value(json_object_get(golden, "shape")), json_string_value(json_object_get(golden, "type")), seed);
	m.n_ids = (int32_t)json_array_size(ids);
	assert_in_range(m.n_ids, 8, MADE_IDS_MAX);
	for (int32_t i = 0; i < m.n_ids; i++)
		m.ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
	return m;
}

static void compare(const json_t *golden)
{
	const char *shape = json_string_value(json_object_get(golden, "shape")), *type = json_string_value(json_object_get(golden, "type"));
	const json_t *rows = json_object_get(golden, "logits");
	struct made m = open_golden(golden);
	float *logits = made_logits(&m, 1, 1, NULL);
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
	made_close(&m);
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

// Divergences from the exact logits, position by position.
struct divergences {
	int32_t n;
	double ours[POSITIONS_MAX], theirs[POSITIONS_MAX];
};

static void diverge(const json_t *golden, struct divergences *d)
{
	const json_t *rows = json_object_get(golden, "thousandths"), *theirs = json_object_get(golden, "kl_of_llama_cpp");
	struct made m = open_golden(golden);
	float *logits = made_logits(&m, 1, 1, NULL);
	double *exact = calloc((size_t)m.vocab_size, sizeof *exact);
	assert_non_null(exact);
	assert_in_range(d->n, 0, POSITIONS_MAX - m.n_ids);
	for (int32_t i = 0; i < m.n_ids; i++, d->n++) {
		const json_t *row = json_array_get(rows, (size_t)i);
		assert_int_equal(json_array_size(row), m.vocab_size);
		for (int32_t j = 0; j < m.vocab_size; j++)
			exact[j] = (double)json_integer_value(json_array_get(row, (size_t)j)) / 1e3;
		d->ours[d->n] = kl(exact, logits + (size_t)i * (size_t)m.vocab_size, m.vocab_size);
		d->theirs[d->n] = json_number_value(json_array_get(theirs, (size_t)i));
	}
	free(exact);
	free(logits);
	made_close(&m);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

// sum_up sorts, and returns how many say that another expert was taken.
static int32_t sum_up(double *x, int32_t n, double *median)
{
	int32_t n_other = 0;
	qsort(x, (size_t)n, sizeof *x, by_value);
	for (int32_t i = 0; i < n; i++)
		n_other += x[i] > OTHER_EXPERT;
	*median = x[n / 2];
	return n_other;
}

static void with_any_router_logits_are_as_near_to_the_exact_ones_as_those_of_llama_cpp(void **state)
{
	(void)state;
	json_error_t je;
	json_t *golden = json_load_file(GOLDEN_EXACT, 0, &je);
	assert_non_null(golden);
	const json_t *models = json_object_get(golden, "models");
	struct divergences f32 = {0}, quantised = {0};
	assert_int_equal(json_array_size(models), 24);
	for (size_t i = 0; i < json_array_size(models); i++) {
		const json_t *g = json_array_get(models, i);
		diverge(g, strcmp(json_string_value(json_object_get(g, "type")), "F32") == 0 ? &f32 : &quantised);
	}
	double graph, ours, theirs;
	int32_t n_graph = sum_up(f32.ours, f32.n, &graph), n_ours = sum_up(quantised.ours, quantised.n, &ours), n_theirs = sum_up(quantised.theirs, quantised.n, &theirs);
	print_message("  f32: median KL %.1e, another expert at %d of %d positions; quantised: ours %.1e and %d of %d, llama.cpp's %.1e and %d\n", graph, (int)n_graph, (int)f32.n,
		ours, (int)n_ours, (int)quantised.n, theirs, (int)n_theirs);
	assert_true(graph <= 1e-5 && n_graph <= f32.n / 20);
	assert_true(ours <= 1.25 * theirs && n_ours <= n_theirs + quantised.n / 20);
	json_decref(golden);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logits_are_those_of_llama_cpp),
		cmocka_unit_test(with_any_router_logits_are_as_near_to_the_exact_ones_as_those_of_llama_cpp),
	};
	kernels_thread_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
