// The real model: its logits against llama.cpp's.
//
// tests/golden/llama_smollm2_f32.json holds what llama.cpp computes in f32 from the dequantised file: its greedy answers and, at each
// position, its 8 largest logits. With the same weights and no quantised activations on either side only the graph can differ: this is the
// strict comparison. llama_smollm2.json holds what llama.cpp makes of the quantised file. There both sides quantise activations to 8 bits, and in
// this small model a difference of one rounding grows to a logit noise of 0.1 at the median: llama.cpp's own CPU back ends differ from
// each other by as much (noise_* in that file), and each from f32 (measured: the 99th percentile is 0.66 for ours, 0.67 for llama.cpp's).
// Either way the reference's own tokens are fed, so that one near-tie does not void what follows.
// `make model` brings the model; without it the tests are skipped.
#include "engine/engine.h"
#include "engine/engine_state.h"
#include "engine/generate.h"
#include "tests/support/instrumented.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define GOLDEN_F32 "tests/golden/llama_smollm2_f32.json"
#define GOLDEN_HASH "tests/golden/cross_hash.json"
#define GOLDEN_QUANTISED "tests/golden/llama_smollm2.json"
#define N_PROMPTS 20
#define N_PREDICT 64
#define TOP 8
#define IDS_MAX 512

// What a comparison is held to.
struct bounds {
	int differ_max;   // positions whose greedy id differs
	double gap_max;   // the reference's top-2 gap at each of them
	double p99_max;   // 99th percentile of |ours - theirs| over the reference's 8 largest logits
};

// 2 % of the positions may differ, and only where the reference itself nearly ties. Measured: none differs, p99 is 0.009.
static const struct bounds strict = {.differ_max = N_PROMPTS * N_PREDICT / 50, .gap_max = 0.25, .p99_max = 0.015};
// Our bits never change, and neither does the golden file: the figures are exactly 30 (2.3 %), 0.648 and 0.719. They are pinned a little above, as
// a change of the canonical arithmetic draws new ones from the same noise.
static const struct bounds quantised = {.differ_max = 40, .gap_max = 0.8, .p99_max = 0.77};

struct fixture {
	struct model *model;
	struct pool *pool;
	const struct kernels *kernels;
};

static int open_model(void **state)
{
	static struct fixture f;
	struct errmsg em;
	f = (struct fixture){0};
	*state = &f;
	if (access(MODEL, R_OK) != 0)
		return 0;
	if (model_open(MODEL, &f.model, &em) != OK || pool_open(2, &f.pool) != OK) {
		fprintf(stderr, "%s\n", em.text);
		return -1;
	}
	kernels_thread_init();
	f.kernels = kernels_find(NULL, NULL);
	return f.kernels == NULL ? -1 : 0;
}

static int close_model(void **state)
{
	struct fixture *f = *state;
	model_close(f->model);
	pool_close(f->pool);
	return 0;
}

static struct fixture *need_model(void **state)
{
	struct fixture *f = *state;
	if (f->model == NULL) {
		print_message("skipped: " MODEL " is missing (make model)\n");
		skip();
	}
	return f;
}

// A comparison computes 0.6 TFLOP; a sanitizer's build would take minutes for bits that do not depend on it.
static struct fixture *need_speed(void **state)
{
	struct fixture *f = need_model(state);
	if (IS_INSTRUMENTED || strcmp(kernels_name(f->kernels), "portable") == 0) {
		print_message("skipped: needs fast kernels and a build without sanitizer\n");
		skip();
	}
	return f;
}

static int32_t read_ids(const json_t *array, int32_t *ids, int32_t cap)
{
	size_t n = json_array_size(array);
	assert_in_range(n, 1, cap);
	for (size_t i = 0; i < n; i++)
		ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
	return (int32_t)n;
}

static int32_t argmax(const float *x, int32_t n)
{
	int32_t best = 0;
	for (int32_t i = 1; i < n; i++)
		best = x[i] > x[best] ? i : best;
	return best;
}

struct comparison {
	double noise[N_PROMPTS * N_PREDICT * TOP];
	size_t n_noise;
	int n_positions, n_differ;
	double widest; // of the reference's gaps where the ids differ
};

// compare_position looks at one position: ours against the reference's top logits.
static void compare_position(struct comparison *c, const json_t *prompt, size_t i, const float *logits, int32_t n)
{
	const json_t *top = json_array_get(json_object_get(prompt, "top"), i);
	const json_t *ids = json_array_get(top, 0), *values = json_array_get(top, 1);
	double gap = json_real_value(json_array_get(json_object_get(prompt, "gap"), i));
	for (size_t j = 0; j < json_array_size(ids); j++) {
		json_int_t id = json_integer_value(json_array_get(ids, j));
		assert_in_range(id, 0, n - 1);
		assert_true(c->n_noise < sizeof c->noise / sizeof c->noise[0]);
		c->noise[c->n_noise++] = fabs((double)logits[id] - json_number_value(json_array_get(values, j)));
	}
	c->n_positions++;
	int32_t want = (int32_t)json_integer_value(json_array_get(json_object_get(prompt, "output_ids"), i));
	int32_t got = argmax(logits, n);
	if (got == want)
		return;
	c->n_differ++;
	c->widest = gap > c->widest ? gap : c->widest;
	print_message("  %s, token %zu: ours %d, theirs %d, their gap %.3f\n", json_string_value(json_object_get(prompt, "name")), i, (int)got,
		(int)want, gap);
}

// compare_prompt feeds the prompt and the reference's answer in one go.
static void compare_prompt(struct comparison *c, struct engine *e, const json_t *prompt, float *hidden, float *logits)
{
	int32_t ids[IDS_MAX];
	int32_t n_prompt = read_ids(json_object_get(prompt, "prompt_ids"), ids, IDS_MAX - N_PREDICT);
	int32_t n_out = read_ids(json_object_get(prompt, "output_ids"), ids + n_prompt, N_PREDICT);
	int32_t hidden_dim = engine_hparams(e)->hidden_dim, vocab_size = engine_hparams(e)->vocab_size;
	struct engine_item item = {.n_tokens = n_prompt + n_out - 1, .tokens = ids, .hidden = hidden};
	assert_int_equal(engine_embed(e, &item, 1, NULL), OK);
	assert_int_equal(engine_forward(e, &item, 1, NULL), OK);
	assert_int_equal(engine_logits(e, hidden + (size_t)(n_prompt - 1) * (size_t)hidden_dim, n_out, logits, NULL), OK);
	for (int32_t i = 0; i < n_out; i++)
		compare_position(c, prompt, (size_t)i, logits + (size_t)i * (size_t)vocab_size, vocab_size);
}

static int by_value(const void *a, const void *b)
{
	double x, y;
	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return (x > y) - (x < y);
}

static void report(struct comparison *c, const struct bounds *b)
{
	qsort(c->noise, c->n_noise, sizeof c->noise[0], by_value);
	double p99 = c->noise[c->n_noise * 99 / 100];
	print_message("  %d positions, %d differ, their gap at most %.3f; |ours - theirs|: median %.4f, 99 %% %.4f, largest %.4f\n", c->n_positions,
		c->n_differ, c->widest, c->noise[c->n_noise / 2], p99, c->noise[c->n_noise - 1]);
	assert_int_equal(c->n_positions, N_PROMPTS * N_PREDICT);
	assert_in_range(c->n_differ, 0, b->differ_max);
	assert_true(c->widest < b->gap_max);
	assert_true(p99 < b->p99_max);
}

static void compare(struct engine *e, const char *path, const struct bounds *b)
{
	json_error_t je;
	json_t *golden = json_load_file(path, 0, &je);
	assert_non_null(golden);
	float *hidden = malloc((size_t)IDS_MAX * (size_t)engine_hparams(e)->hidden_dim * sizeof *hidden);
	float *logits = malloc((size_t)N_PREDICT * (size_t)engine_hparams(e)->vocab_size * sizeof *logits);
	struct comparison *c = calloc(1, sizeof *c);
	assert_true(hidden != NULL && logits != NULL && c != NULL);
	const json_t *prompts = json_object_get(golden, "prompts");
	assert_int_equal(json_array_size(prompts), N_PROMPTS);
	for (size_t i = 0; i < N_PROMPTS; i++)
		compare_prompt(c, e, json_array_get(prompts, i), hidden, logits);
	report(c, b);
	free(c);
	free(hidden);
	free(logits);
	json_decref(golden);
}

static struct engine *open_engine(const struct fixture *f)
{
	const struct engine_config ec = {.model = f->model, .kernels = f->kernels, .pool = f->pool, .layers = layer_spans_one(0, model_hparams(f->model)->n_layers),
		.has_head = true, .n_slots = 1, .ctx_len = IDS_MAX, .batch_max = IDS_MAX};
	struct engine *e;
	assert_int_equal(engine_open(&ec, &e, NULL), OK);
	return e;
}

// An engine's weights as f32, in memory of the test's own.
struct f32_weights {
	uint8_t *data;
	uint64_t used;
	struct weight_files files;
};

// dequantise gives matrix `part` of a unit, which is whole, its f32 values.
static void dequantise(struct engine *e, struct f32_weights *f, int32_t unit, int32_t part, struct weight *shape)
{
	struct unit_part *p = &e->units.units[unit].parts[part];
	struct weight from = *shape;
	from.data = residency_view(e->residency, unit, part);
	assert_int_equal(p->row_end - p->row_begin, shape->rows);
	*shape = (struct weight){.type = DTYPE_F32, .rows = from.rows, .cols = from.cols, .row_bytes = (size_t)from.cols * sizeof(float)};
	for (int32_t r = 0; r < from.rows; r++)
		kernels_row_to_f32(&from, r, (float *)(void *)(f->data + f->used) + (size_t)r * (size_t)from.cols);
	p->at = f->used;
	p->bytes = (uint64_t)shape->rows * shape->row_bytes;
	f->used += p->bytes;
}

static void dequantise_all(struct engine *e, struct f32_weights *f)
{
	size_t n = (size_t)e->output.rows * (size_t)e->output.cols;
	for (int32_t i = 0; i < e->hp.n_layers; i++) {
		const struct engine_layer *l = &e->layers[i];
		const struct weight *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
		for (size_t j = 0; j < ARRAY_LEN(all); j++)
			n += (size_t)all[j]->rows * (size_t)all[j]->cols;
	}
	*f = (struct f32_weights){.data = malloc(n * sizeof(float))};
	assert_non_null(f->data);
	for (int32_t i = 0; i < e->hp.n_layers; i++) {
		struct engine_layer *l = &e->layers[i];
		struct weight *qkv[] = {&l->q, &l->k, &l->v}, *gate_up[] = {&l->gate, &l->up};
		for (int32_t j = 0; j < 3; j++)
			dequantise(e, f, l->units[UNIT_QKV].begin, j, qkv[j]);
		dequantise(e, f, l->units[UNIT_O].begin, 0, &l->o);
		for (int32_t j = 0; j < 2; j++)
			dequantise(e, f, l->units[UNIT_GATE_UP].begin, j, gate_up[j]);
		dequantise(e, f, l->units[UNIT_DOWN].begin, 0, &l->down);
	}
	dequantise(e, f, e->output_units.begin, 0, &e->output);
	f->files = (struct weight_files){.map = f->data};
	residency_close(e->residency);
	const struct residency_config rc = {.files = &f->files, .units = &e->units};
	assert_int_equal(residency_open(&rc, &e->residency, NULL), OK);
}

static void in_f32_greedy_ids_and_logits_are_those_of_llama_cpp(void **state)
{
	struct engine *e = open_engine(need_speed(state));
	struct f32_weights f32;
	dequantise_all(e, &f32);
	struct engine_input *inputs[] = {&e->normed, &e->attended, &e->gated};
	void *storage = malloc(acts_bytes(ACT_F32, IDS_MAX, e->hp.ffn_dim) + 1);
	for (size_t i = 0; i < ARRAY_LEN(inputs); i++) {
		inputs[i]->used[ACT_F32] = true;
		acts_init(&inputs[i]->acts[ACT_F32], ACT_F32, IDS_MAX, inputs[i]->cols, storage);
	}
	compare(e, GOLDEN_F32, &strict);
	free(storage);
	engine_close(e);
	free(f32.data);
}

static void quantised_logits_are_within_the_noise_of_llama_cpp(void **state)
{
	struct engine *e = open_engine(need_speed(state));
	compare(e, GOLDEN_QUANTISED, &quantised);
	engine_close(e);
}

// hash_of_answer answers as hearth run does and returns the hash of all logits.
static void hash_of_answer(const struct fixture *f, const json_t *golden, struct pool *pool, const char *simd, int32_t chunk, char *hex)
{
	const int32_t prompt[] = {504, 3575, 282, 4649, 314}; // "The capital of France is"
	const struct generate_config c = {.model = f->model, .kernels = kernels_find(simd, NULL), .pool = pool, .ctx_len = 32, .prefill_chunk = chunk};
	const json_t *ids = json_object_get(golden, "output_ids");
	int32_t tokens[16];
	struct generate *g;
	assert_in_range(json_array_size(ids), 1, ARRAY_LEN(tokens));
	assert_int_equal(generate_open(&c, &g, NULL), OK);
	const struct generate_request q = {.prompt = prompt, .n_prompt = ARRAY_LEN(prompt), .max_tokens = (int32_t)json_array_size(ids),
		.sampling = {.top_p = 1}, .hash_logits = true};
	struct generate_result r = {.tokens = tokens};
	assert_int_equal(generate_run(g, &q, &r, NULL), OK);
	for (int32_t i = 0; i < q.max_tokens; i++)
		assert_int_equal(tokens[i], json_integer_value(json_array_get(ids, (size_t)i)));
	logits_hash_hex(&r.hash, hex);
	generate_close(g);
}

static void threads_chunks_and_instruction_sets_give_the_golden_hash(void **state)
{
	struct fixture *f = need_model(state);
	static const struct {
		int32_t threads, chunk;
		const char *simd;
	} ways[] = {{1, 512, NULL}, {2, 1, NULL}, {4, 7, NULL}, {2, 64, NULL}, {2, 512, "portable"}};
	json_error_t je;
	json_t *golden = json_load_file(GOLDEN_HASH, 0, &je);
	assert_non_null(golden);
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		struct pool *pool;
		char hex[2 * LOGITS_HASH_BYTES + 1];
		assert_int_equal(pool_open(ways[i].threads, &pool), OK);
		hash_of_answer(f, golden, pool, ways[i].simd, ways[i].chunk, hex);
		assert_string_equal(hex, json_string_value(json_object_get(golden, "logits_hash")));
		pool_close(pool);
	}
	json_decref(golden);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_chunks_and_instruction_sets_give_the_golden_hash),
		cmocka_unit_test(in_f32_greedy_ids_and_logits_are_those_of_llama_cpp),
		cmocka_unit_test(quantised_logits_are_within_the_noise_of_llama_cpp),
	};
	return cmocka_run_group_tests(tests, open_model, close_model);
}
