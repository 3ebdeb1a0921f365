// The engine with a cap on its weights: the same bits as without, however they are cut, read and chunked; and a step whose weights cannot be
// read fails by itself.
#include "engine/engine.h"

#include "base/rng.h"
#include "base/window_layout.h"
#include "tests/support/gguf_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N_TOKENS 40
#define PATH "build/capped-engine.gguf" // /tmp may have no O_DIRECT

struct world {
	struct model *model;
	struct pool *pools[5]; // [n_threads]
	int32_t n_layers, hidden_dim, vocab_size;
	int32_t tokens[N_TOKENS];
	float *want; // (N_TOKENS, vocab_size)
	uint64_t matrix_bytes;
};

// How to compute; zeroes: no cap, one thread, one chunk.
struct way {
	uint64_t cap;
	enum weight_way reader;
	int threads;
	int32_t chunk;
	uint32_t stream_share;
};

static struct engine *open_engine(const struct world *w, const struct way *way)
{
	const struct engine_config c = {
		.model = w->model, .kernels = kernels_find(NULL, NULL), .pool = w->pools[way->threads ? way->threads : 1],
		.layers = layer_spans_one(0, w->n_layers), .has_head = true, .n_slots = 1, .ctx_len = N_TOKENS, .batch_max = N_TOKENS,
		.weights = {.is_capped = way->cap > 0, .bytes = way->cap, .anon_bytes = way->cap, .reader = way->reader, .stream_share = way->stream_share},
	};
	struct engine *e;
	struct errmsg em = {{0}};
	if (engine_open(&c, &e, &em) != OK)
		fail_msg("%s", em.text);
	return e;
}

static enum err feed(struct engine *e, const struct world *w, int32_t pos, int32_t n, float *hidden, struct errmsg *em)
{
	struct engine_item it = {.pos_begin = pos, .n_tokens = n, .tokens = w->tokens + pos, .hidden = hidden};
	enum err err = engine_embed(e, &it, 1, em);
	return err == OK ? engine_forward(e, &it, 1, em) : err;
}

static float *compute(struct engine *e, const struct world *w, int32_t chunk)
{
	float *hidden = calloc((size_t)N_TOKENS * (size_t)w->hidden_dim, sizeof *hidden);
	float *logits = calloc((size_t)N_TOKENS * (size_t)w->vocab_size, sizeof *logits);
	struct errmsg em = {{0}};
	for (int32_t pos = 0; pos < N_TOKENS; pos += chunk) {
		int32_t n = N_TOKENS - pos < chunk ? N_TOKENS - pos : chunk;
		if (feed(e, w, pos, n, hidden, &em) != OK || engine_logits(e, hidden, n, logits + (size_t)pos * (size_t)w->vocab_size, &em) != OK)
			fail_msg("%s", em.text);
	}
	free(hidden);
	return logits;
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	struct tiny_llama t = tiny_llama_default(5);
	t.hidden_dim = 256;
	t.ffn_dim = 704;
	t.n_heads = 8;
	t.vocab_size = 2048;
	t.untied = true;
	t.biases = true;
	t.n_types = 3;
	const enum dtype types[] = {DTYPE_Q4_0, DTYPE_Q8_0, DTYPE_F16};
	memcpy(t.types, types, sizeof types);
	gguf_build_tiny_llama_file(PATH, &t);
	struct errmsg em = {{0}};
	if (model_open(PATH, &w->model, &em) != OK)
		fail_msg("%s", em.text);
	const struct hparams *hp = model_hparams(w->model);
	w->n_layers = hp->n_layers;
	w->hidden_dim = hp->hidden_dim;
	w->vocab_size = hp->vocab_size;
	w->matrix_bytes = model_file_bytes(w->model) - (uint64_t)hp->vocab_size * model_token_embd(w->model).row_bytes;
	for (int n = 1; n <= 4; n *= 2)
		assert_int_equal(pool_open(n, &w->pools[n]), OK);
	struct rng r;
	rng_init(&r, 1);
	for (int i = 0; i < N_TOKENS; i++)
		w->tokens[i] = (int32_t)rng_below(&r, (uint64_t)w->vocab_size);
	kernels_thread_init();
	struct engine *e = open_engine(w, &(struct way){0});
	w->want = compute(e, w, N_TOKENS);
	engine_close(e);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	for (int n = 1; n <= 4; n *= 2)
		pool_close(w->pools[n]);
	model_close(w->model);
	unlink(PATH);
	free(w->want);
	free(w);
	return 0;
}

static void a_cap_changes_no_bit(void **state)
{
	const struct world *w = *state;
	const struct way ways[] = {
		{.cap = w->matrix_bytes / 6, .reader = READER_MMAP}, {.cap = w->matrix_bytes / 6, .reader = READER_DIRECT, .threads = 2, .chunk = 7},
		{.cap = w->matrix_bytes / 4, .reader = READER_MMAP, .threads = 4, .chunk = 1}, {.cap = w->matrix_bytes / 4, .reader = READER_DIRECT, .chunk = 1},
		{.cap = w->matrix_bytes / 2, .reader = READER_MMAP, .threads = 2, .chunk = 13, .stream_share = 40000},
		{.cap = w->matrix_bytes / 2, .reader = READER_DIRECT, .chunk = 5, .stream_share = 50000}, {.cap = w->matrix_bytes * 2, .reader = READER_MMAP, .stream_share = 50000},
		{.cap = w->matrix_bytes * 3 / 4, .reader = READER_AUTO, .threads = 2}, {.cap = w->matrix_bytes * 2, .reader = READER_MMAP, .threads = 2},
		{.cap = w->matrix_bytes * 2, .reader = READER_DIRECT}, {.cap = w->matrix_bytes * 2, .reader = READER_AUTO, .chunk = 3},
	};
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		struct engine *e = open_engine(w, &ways[i]);
		int32_t chunk = ways[i].chunk ? ways[i].chunk : N_TOKENS, n_steps = (N_TOKENS + chunk - 1) / chunk;
		float *got = compute(e, w, chunk);
		assert_memory_equal(got, w->want, (size_t)N_TOKENS * (size_t)w->vocab_size * sizeof *got);
		free(got);
		struct residency_stats s;
		engine_weight_stats(e, &s);
		assert_true(s.pinned_bytes + s.window_bytes <= ways[i].cap);
		assert_int_equal(s.wasted_bytes, 0);
		assert_int_equal(s.n_streamed == 0, ways[i].cap > w->matrix_bytes);
		// Each streamed unit once in a chunk, and what is read ahead.
		assert_true(s.read_bytes <= (uint64_t)n_steps * s.streamed_bytes + s.window_bytes);
		engine_close(e);
	}
}

static void a_step_without_its_weights_fails_and_the_next_goes_on(void **state)
{
	const struct world *w = *state;
	const struct way way = {.cap = w->matrix_bytes / 4, .reader = READER_DIRECT, .threads = 2, .stream_share = WINDOW_SHARE_WHOLE};
	size_t file_bytes = (size_t)model_file_bytes(w->model), cut = file_bytes * 2 / 3;
	uint8_t *tail = malloc(file_bytes - cut);
	FILE *f = fopen(PATH, "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, (long)cut, SEEK_SET), 0);
	assert_int_equal(fread(tail, 1, file_bytes - cut, f), file_bytes - cut);

	struct engine *e = open_engine(w, &way);
	float *hidden = calloc((size_t)N_TOKENS * (size_t)w->hidden_dim, sizeof *hidden);
	struct errmsg em = {{0}};
	assert_int_equal(feed(e, w, 0, 3, hidden, &em), OK);
	assert_int_equal(ftruncate(fileno(f), (off_t)cut), 0);
	enum err err = OK;
	int32_t n_tries = 0;
	while (err == OK && n_tries++ < 5)
		err = feed(e, w, 3, 4, hidden, &em);
	assert_int_equal(err, ERR_IO);
	assert_non_null(strstr(em.text, PATH));
	assert_non_null(strstr(em.text, "offset"));
	assert_int_equal(fseek(f, (long)cut, SEEK_SET), 0);
	assert_int_equal(fwrite(tail, 1, file_bytes - cut, f), file_bytes - cut);
	assert_int_equal(fflush(f), 0);
	for (n_tries = 0, err = ERR_IO; err != OK && n_tries < 5; n_tries++) // some of the window was read from what is gone
		err = feed(e, w, 3, 4, hidden, &em);
	assert_int_equal(err, OK);
	float *got = compute(e, w, N_TOKENS);
	assert_memory_equal(got, w->want, (size_t)N_TOKENS * (size_t)w->vocab_size * sizeof *got);
	engine_close(e);
	fclose(f);
	free(got);
	free(hidden);
	free(tail);
}

static void some_layers_can_be_computed_again_under_a_cap(void **state)
{
	const struct world *w = *state;
	for (int32_t reader = READER_MMAP; reader <= READER_DIRECT; reader++) {
		const struct way way = {.cap = w->matrix_bytes / 4, .reader = (enum weight_way)reader, .threads = 2};
		struct engine *e = open_engine(w, &way), *plain = open_engine(w, &(struct way){0});
		size_t n = (size_t)N_TOKENS * (size_t)w->hidden_dim;
		float *hidden = calloc(n, sizeof *hidden), *want = calloc(n, sizeof *want);
		struct engine *both[] = {plain, e};
		float *outs[] = {want, hidden};
		for (int i = 0; i < 2; i++) {
			struct engine_item it = {.n_tokens = N_TOKENS, .tokens = w->tokens, .hidden = outs[i]};
			assert_int_equal(engine_embed(both[i], &it, 1, NULL), OK);
			assert_int_equal(engine_forward_layers(both[i], 0, 3, &it, 1, NULL), OK);
			assert_int_equal(engine_forward_layers(both[i], 1, 2, &it, 1, NULL), OK);
			assert_int_equal(engine_forward_layers(both[i], 2, w->n_layers, &it, 1, NULL), OK);
		}
		assert_memory_equal(hidden, want, n * sizeof *want);
		engine_close(e);
		engine_close(plain);
		free(hidden);
		free(want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cap_changes_no_bit),
		cmocka_unit_test(a_step_without_its_weights_fails_and_the_next_goes_on),
		cmocka_unit_test(some_layers_can_be_computed_again_under_a_cap),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
