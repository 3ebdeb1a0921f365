// What tools/make_model writes computes sanely: hidden states stay small over many positions, and the likeliest token wanders.
#include "engine/engine.h"
#include "tests/support/made_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define N_POS 200
#define HIDDEN 256
#define VOCAB 320
#define SHAPE "hidden=256,heads=4,kv_heads=2,ffn=512"

struct walk {
	float largest;      // of |hidden| after any layer
	double final_rms;   // largest root mean square of a final hidden state
	int n_distinct;     // tokens
	int longest_run;    // of one token
};

static int32_t argmax(const float *x, int32_t n)
{
	int32_t best = 0;
	for (int32_t i = 1; i < n; i++)
		best = x[i] > x[best] ? i : best;
	return best;
}

// step feeds one token, layer by layer, and returns the likeliest next one.
static int32_t step(struct engine *e, int32_t token, int32_t pos, struct walk *w)
{
	float hidden[HIDDEN], logits[VOCAB];
	struct engine_item it = {.pos_begin = pos, .n_tokens = 1, .tokens = &token, .hidden = hidden};
	double sum = 0;
	assert_int_equal(engine_embed(e, &it, 1, NULL), OK);
	for (int32_t layer = 0; layer < engine_hparams(e)->n_layers; layer++) {
		assert_int_equal(engine_forward_layers(e, layer, layer + 1, &it, 1, NULL), OK);
		for (int i = 0; i < HIDDEN; i++)
			w->largest = fmaxf(w->largest, fabsf(hidden[i]));
	}
	for (int i = 0; i < HIDDEN; i++)
		sum += (double)hidden[i] * (double)hidden[i];
	w->final_rms = fmax(w->final_rms, sqrt(sum / HIDDEN));
	assert_int_equal(engine_logits(e, hidden, 1, logits, NULL), OK);
	return argmax(logits, VOCAB);
}

static struct walk walk(const char *path)
{
	struct model *m;
	struct pool *pool;
	struct engine *e;
	struct walk w = {0};
	bool seen[VOCAB] = {false};
	struct errmsg em;
	if (model_open(path, &m, &em) != OK)
		fail_msg("%s", em.text);
	assert_int_equal(pool_open(1, &pool), OK);
	const struct engine_config c = {.model = m, .kernels = kernels_find(NULL, NULL), .pool = pool, .layers = {1, {{0, model_hparams(m)->n_layers}}},
		.has_head = true, .n_slots = 1, .ctx_len = N_POS, .batch_max = 1};
	if (engine_open(&c, &e, &em) != OK)
		fail_msg("%s", em.text);
	int32_t token = 40, run = 0;
	for (int32_t pos = 0; pos < N_POS; pos++) {
		int32_t next = step(e, token, pos, &w);
		run = next == token ? run + 1 : 1;
		w.longest_run = run > w.longest_run ? run : w.longest_run;
		w.n_distinct += !seen[next];
		seen[next] = true;
		token = next;
	}
	engine_close(e);
	pool_close(pool);
	model_close(m);
	return w;
}

static void check(const char *shape, const char *type)
{
	char dir[SCRATCH_CAP], path[MADE_PATH_CAP];
	assert_true(scratch_open(dir));
	made_model(dir, shape, type, "", path);
	struct walk w = walk(path);
	print_message("  %s %s: largest %.1f, final rms %.2f, %d tokens, %d in a row\n", shape, type, (double)w.largest, w.final_rms, w.n_distinct,
		w.longest_run);
	assert_true(w.largest > 1 && w.largest < 40);
	assert_true(w.final_rms > 1.5 && w.final_rms < 6);
	assert_in_range(w.n_distinct, 60, VOCAB);
	assert_in_range(w.longest_run, 1, 12);
	scratch_remove(dir);
}

static void hidden_states_stay_small_and_answers_wander_with_each_type(void **state)
{
	(void)state;
	static const char *const types[] = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "Q4_K_M"};
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		check("layers=4," SHAPE, types[i]);
}

static void they_stay_small_whatever_the_number_of_layers(void **state)
{
	(void)state;
	check("layers=1," SHAPE, "Q4_0");
	check("layers=24," SHAPE, "Q4_0");
	check("layers=80," SHAPE, "Q4_0");
}

static void a_tied_head_wanders_too(void **state)
{
	(void)state;
	check("layers=8,tied=1," SHAPE, "Q4_0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hidden_states_stay_small_and_answers_wander_with_each_type),
		cmocka_unit_test(they_stay_small_whatever_the_number_of_layers),
		cmocka_unit_test(a_tied_head_wanders_too),
	};
	kernels_thread_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
