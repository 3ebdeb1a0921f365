// The engine on tiny random models: whatever the chunks, threads, instruction set, cut of the layers and company in a batch, the same bits.
#include "engine/engine.h"

#include "base/rng.h"
#include "engine/generate.h"
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

#define N_PROMPT 100
#define CTX 512

struct world {
	struct model *model;
	struct pool *pools[5]; // [n_threads]
	int32_t hidden_dim, vocab_size, n_layers;
	int32_t tokens[CTX];
};

static struct model *open_bytes(const uint8_t *data, size_t len)
{
	char path[] = "/tmp/hearth_test_engine_XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	close(fd);
	struct model *m = NULL;
	struct errmsg em = {{0}};
	enum err err = model_open(path, &m, &em);
	unlink(path);
	if (err != OK)
		fail_msg("%s", em.text);
	return m;
}

static struct model *open_tiny(const struct tiny_llama *t)
{
	struct gguf_build b;
	gguf_build_tiny_llama(&b, t);
	struct model *m = open_bytes(b.data, b.len);
	gguf_build_free(&b);
	return m;
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	struct tiny_llama t = tiny_llama_default(7);
	w->model = open_tiny(&t);
	const struct hparams *hp = model_hparams(w->model);
	w->hidden_dim = hp->hidden_dim;
	w->vocab_size = hp->vocab_size;
	w->n_layers = hp->n_layers;
	for (int n = 1; n <= 4; n *= 2)
		assert_int_equal(pool_open(n, &w->pools[n]), OK);
	struct rng r;
	rng_init(&r, 1);
	for (int i = 0; i < CTX; i++)
		w->tokens[i] = (int32_t)rng_below(&r, (uint64_t)w->vocab_size);
	kernels_thread_init();
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	for (int n = 1; n <= 4; n *= 2)
		pool_close(w->pools[n]);
	model_close(w->model);
	free(w);
	return 0;
}

// How to compute; zeroes mean the usual.
struct way {
	int threads;
	const char *simd;
	int32_t chunk;
	enum wire_type wire;
	int32_t layer_begin, layer_end; // 0, 0: all
	struct layer_spans spans;       // instead, when there are any
	int32_t n_slots;
	int32_t ctx;
	const struct model *model;
};

static enum err try_open(const struct world *w, struct way way, struct engine **out, struct errmsg *em)
{
	const struct model *m = way.model ? way.model : w->model;
	const struct kernels *k = kernels_find(way.simd, em);
	if (k == NULL)
		return ERR_NOT_FOUND;
	const struct engine_config c = {.model = m, .kernels = k, .pool = w->pools[way.threads ? way.threads : 1],
		.layers = way.spans.n ? way.spans : layer_spans_one(way.layer_begin, way.layer_end ? way.layer_end : model_hparams(m)->n_layers), .has_head = true,
		.n_slots = way.n_slots ? way.n_slots : 1, .ctx_len = way.ctx ? way.ctx : CTX, .batch_max = CTX, .wire = way.wire};
	return engine_open(&c, out, em);
}

static struct engine *open_engine(const struct world *w, struct way way)
{
	struct engine *e = NULL;
	struct errmsg em = {{0}};
	if (try_open(w, way, &e, &em) != OK)
		fail_msg("%s", em.text);
	return e;
}

static float *floats(size_t n)
{
	float *x = calloc(n, sizeof *x);
	assert_non_null(x);
	return x;
}

// compute returns the logits (n, vocab_size) of tokens [0, n), fed in chunks.
static float *compute(const struct world *w, struct way way, const int32_t *tokens, int32_t n)
{
	struct engine *e = open_engine(w, way);
	int32_t hidden_dim = engine_hparams(e)->hidden_dim, vocab_size = engine_hparams(e)->vocab_size;
	float *hidden = floats((size_t)n * (size_t)hidden_dim), *logits = floats((size_t)n * (size_t)vocab_size);
	int32_t chunk = way.chunk ? way.chunk : n;
	struct errmsg em = {{0}};
	for (int32_t pos = 0; pos < n; pos += chunk) {
		struct engine_item it = {.pos_begin = pos, .n_tokens = n - pos < chunk ? n - pos : chunk, .tokens = tokens + pos,
			.hidden = hidden + (size_t)pos * (size_t)hidden_dim};
		if (engine_embed(e, &it, 1, &em) != OK || engine_forward(e, &it, 1, &em) != OK)
			fail_msg("%s", em.text);
	}
	for (int32_t pos = 0; pos < n; pos += chunk)
		assert_int_equal(engine_logits(e, hidden + (size_t)pos * (size_t)hidden_dim, n - pos < chunk ? n - pos : chunk,
			logits + (size_t)pos * (size_t)vocab_size, &em), OK);
	free(hidden);
	engine_close(e);
	return logits;
}

static void expect_same(const float *want, float *got, size_t n)
{
	assert_memory_equal(want, got, n * sizeof *want);
	free(got);
}

static void chunks_threads_and_instruction_sets_give_the_same_logits(void **state)
{
	struct world *w = *state;
	static const int32_t chunks[] = {1, 7, 64, 512};
	static const int threads[] = {1, 2, 4};
	size_t n = (size_t)N_PROMPT * (size_t)w->vocab_size;
	float *want = compute(w, (struct way){.simd = "portable"}, w->tokens, N_PROMPT);
	for (size_t i = 1; i < n; i++)
		assert_true(want[i] - want[i] == 0);
	assert_memory_not_equal(want, want + w->vocab_size, (size_t)w->vocab_size * sizeof *want);
	for (size_t c = 0; c < ARRAY_LEN(chunks); c++) {
		for (size_t t = 0; t < ARRAY_LEN(threads); t++) {
			for (size_t i = 0; kernels_known(i) != NULL; i++) {
				struct way way = {.threads = threads[t], .simd = kernels_known(i), .chunk = chunks[c]};
				if (kernels_find(way.simd, NULL) != NULL)
					expect_same(want, compute(w, way, w->tokens, N_PROMPT), n);
			}
		}
	}
	free(want);
}

static void every_weight_type_and_shape_gives_the_same_logits(void **state)
{
	struct world *w = *state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct tiny_llama t = tiny_llama_default(seed);
		t.untied = seed % 2;
		t.biases = seed > 2;
		t.n_types = 5;
		const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1};
		memcpy(t.types, types, sizeof types);
		t.embd_type = types[seed % 5];
		t.n_kv_heads = seed % 2 ? 1 : 4;
		struct model *m = open_tiny(&t);
		size_t n = 40 * (size_t)t.vocab_size;
		float *want = compute(w, (struct way){.simd = "portable", .model = m}, w->tokens, 40);
		expect_same(want, compute(w, (struct way){.threads = 2, .chunk = 3, .model = m}, w->tokens, 40), n);
		expect_same(want, compute(w, (struct way){.threads = 4, .chunk = 17, .model = m}, w->tokens, 40), n);
		free(want);
		model_close(m);
	}
}

// chain computes tokens through two engines, [0, cut) and [cut, n_layers), with the wire's bytes between them.
static float *chain(const struct world *w, enum wire_type wire, int32_t cut, int32_t n)
{
	struct engine *a = open_engine(w, (struct way){.wire = wire, .layer_end = cut, .threads = 2});
	struct engine *b = open_engine(w, (struct way){.wire = wire, .layer_begin = cut});
	size_t hidden_dim = (size_t)w->hidden_dim, row = wire_bytes(wire, w->hidden_dim);
	float *hidden = floats((size_t)n * hidden_dim), *logits = floats((size_t)n * (size_t)w->vocab_size);
	uint8_t *bytes = malloc((size_t)n * row);
	assert_non_null(bytes);
	struct engine_item it = {.n_tokens = n, .tokens = w->tokens, .hidden = hidden};
	assert_int_equal(engine_embed(a, &it, 1, NULL), OK);
	assert_int_equal(engine_forward(a, &it, 1, NULL), OK);
	for (size_t t = 0; t < (size_t)n; t++)
		wire_encode(wire, hidden + t * hidden_dim, w->hidden_dim, bytes + t * row);
	memset(hidden, 0xff, (size_t)n * hidden_dim * sizeof *hidden);
	for (size_t t = 0; t < (size_t)n; t++)
		assert_int_equal(wire_decode(wire, bytes + t * row, w->hidden_dim, hidden + t * hidden_dim), OK);
	assert_int_equal(engine_forward(b, &it, 1, NULL), OK);
	assert_int_equal(engine_logits(b, hidden, n, logits, NULL), OK);
	free(bytes);
	free(hidden);
	engine_close(a);
	engine_close(b);
	return logits;
}

// in_turns computes tokens through two engines whose layers alternate: a has the even ones, b the odd ones, in chunks.
static float *in_turns(const struct world *w, int32_t n, int32_t chunk)
{
	struct layer_spans spans[2] = {{0}};
	for (int32_t l = 0; l < w->n_layers; l++)
		spans[l % 2].at[spans[l % 2].n++] = (struct layer_span){l, l + 1};
	struct engine *e[2] = {open_engine(w, (struct way){.spans = spans[0], .threads = 2}), open_engine(w, (struct way){.spans = spans[1]})};
	float *hidden = floats((size_t)n * (size_t)w->hidden_dim), *logits = floats((size_t)n * (size_t)w->vocab_size);
	for (int32_t pos = 0; pos < n; pos += chunk) {
		struct engine_item it = {.pos_begin = pos, .n_tokens = n - pos < chunk ? n - pos : chunk, .tokens = w->tokens + pos,
			.hidden = hidden + (size_t)pos * (size_t)w->hidden_dim};
		assert_int_equal(engine_embed(e[0], &it, 1, NULL), OK);
		for (int32_t l = 0; l < w->n_layers; l++)
			assert_int_equal(engine_forward_layers(e[l % 2], l, l + 1, &it, 1, NULL), OK);
		assert_int_equal(engine_logits(e[0], it.hidden, it.n_tokens, logits + (size_t)pos * (size_t)w->vocab_size, NULL), OK);
	}
	free(hidden);
	engine_close(e[0]);
	engine_close(e[1]);
	return logits;
}

static void layers_in_turns_on_two_engines_give_the_logits_of_one(void **state)
{
	struct world *w = *state;
	assert_true(w->n_layers >= 3);
	float *want = compute(w, (struct way){0}, w->tokens, 30);
	for (int32_t chunk = 1; chunk <= 30; chunk += 14) {
		float *got = in_turns(w, 30, chunk);
		assert_memory_equal(got, want, 30 * (size_t)w->vocab_size * sizeof *got);
		free(got);
	}
	free(want);
}

static void any_cut_of_the_layers_gives_the_logits_of_one_engine(void **state)
{
	struct world *w = *state;
	float *previous = NULL;
	size_t n = 30 * (size_t)w->vocab_size;
	for (int wire = 0; wire < N_WIRE_TYPES; wire++) {
		float *want = compute(w, (struct way){.wire = (enum wire_type)wire, .chunk = 4}, w->tokens, 30);
		for (int32_t cut = 1; cut < w->n_layers; cut++)
			expect_same(want, chain(w, (enum wire_type)wire, cut, 30), n);
		if (previous != NULL)
			assert_memory_not_equal(previous, want, n * sizeof *want); // the wire type does something
		free(previous);
		previous = want;
	}
	free(previous);
}

static void a_batch_of_sequences_gives_each_what_it_has_alone(void **state)
{
	struct world *w = *state;
	enum { SEQS = 5, LEN = 24 };
	struct engine *e = open_engine(w, (struct way){.n_slots = SEQS, .threads = 2});
	size_t hidden_dim = (size_t)w->hidden_dim, vocab = (size_t)w->vocab_size;
	float *hidden = floats(SEQS * LEN * hidden_dim), *logits = floats(vocab);
	int32_t at[SEQS] = {0};
	struct rng r;
	rng_init(&r, 9);
	for (int done = 0; done < SEQS;) {
		struct engine_item items[SEQS];
		int32_t n = 0;
		done = 0;
		for (int s = 0; s < SEQS; s++) {
			int32_t len = (int32_t)rng_below(&r, 6), left = LEN - at[s];
			len = len < left ? len : left;
			if (len > 0)
				items[n++] = (struct engine_item){.slot = s, .pos_begin = at[s], .n_tokens = len, .tokens = w->tokens + 40 * s + at[s],
					.hidden = hidden + ((size_t)s * LEN + (size_t)at[s]) * hidden_dim};
			at[s] += len;
			done += at[s] == LEN;
		}
		assert_int_equal(engine_embed(e, items, n, NULL), OK);
		assert_int_equal(engine_forward(e, items, n, NULL), OK);
	}
	for (int s = 0; s < SEQS; s++) {
		float *want = compute(w, (struct way){0}, w->tokens + 40 * s, LEN);
		for (size_t t = 0; t < LEN; t++) {
			assert_int_equal(engine_logits(e, hidden + ((size_t)s * LEN + t) * hidden_dim, 1, logits, NULL), OK);
			assert_memory_equal(want + t * vocab, logits, vocab * sizeof *logits);
		}
		free(want);
	}
	free(hidden);
	free(logits);
	engine_close(e);
}

static enum err feed(struct engine *e, int32_t slot, int32_t pos, const int32_t *tokens, int32_t n, float *hidden, struct errmsg *em)
{
	struct engine_item it = {.slot = slot, .pos_begin = pos, .n_tokens = n, .tokens = tokens, .hidden = hidden};
	enum err err = engine_embed(e, &it, 1, em);
	return err != OK ? err : engine_forward(e, &it, 1, em);
}

// A stage [0, 1) has kept its states, the stage behind it is lost: the first one takes a layer more, a third one the rest.
static void lost_layers_are_computed_again_from_kept_states(void **state)
{
	struct world *w = *state;
	enum { N = 40, MORE = 1 };
	assert_true(w->n_layers >= 3);
	size_t row = (size_t)w->hidden_dim;
	float *kept = floats(N * row), *hidden = floats(row), *logits = floats((size_t)w->vocab_size);
	struct errmsg em;
	struct engine *first = open_engine(w, (struct way){.layer_end = 1, .n_slots = 3});
	struct engine *last = open_engine(w, (struct way){.layer_begin = 2, .n_slots = 3});
	struct engine *lost = open_engine(w, (struct way){.layer_begin = 1, .layer_end = 2, .n_slots = 3});
	struct engine_item it = {.slot = 2, .n_tokens = N, .tokens = w->tokens, .hidden = kept};
	assert_int_equal(engine_embed(first, &it, 1, &em), OK);
	assert_int_equal(engine_forward(first, &it, 1, &em), OK);
	float *on = floats(N * row);
	memcpy(on, kept, N * row * sizeof *on);
	it.hidden = on;
	assert_int_equal(engine_forward(lost, &it, 1, &em), OK);
	assert_int_equal(engine_forward(last, &it, 1, &em), OK);
	engine_close(lost);

	struct engine *wider = open_engine(w, (struct way){.layer_end = 2, .n_slots = 3});
	engine_take_kv(wider, first);
	engine_close(first);
	struct engine_item next = {.slot = 2, .pos_begin = N, .n_tokens = MORE, .tokens = w->tokens + N, .hidden = hidden};
	assert_int_equal(engine_embed(wider, &next, 1, &em), OK);
	assert_int_equal(engine_forward(wider, &next, 1, &em), ERR_RANGE); // layer 1 has nothing yet
	assert_non_null(strstr(em.text, "layer 1 has computed only 0"));
	for (int32_t pos = 0; pos < N; pos += 16) {
		struct engine_item again = {.slot = 2, .pos_begin = pos, .n_tokens = N - pos < 16 ? N - pos : 16, .hidden = kept + (size_t)pos * row};
		assert_int_equal(engine_forward_layers(wider, 1, 2, &again, 1, &em), OK);
	}
	assert_int_equal(engine_forward(wider, &next, 1, &em), OK);
	assert_int_equal(engine_forward(last, &next, 1, &em), OK);
	assert_int_equal(engine_logits(last, hidden, MORE, logits, &em), OK);
	float *want = compute(w, (struct way){0}, w->tokens, N + MORE);
	assert_memory_equal(logits, want + (size_t)N * (size_t)w->vocab_size, (size_t)w->vocab_size * sizeof *logits);
	engine_close(wider);
	engine_close(last);
	free(kept);
	free(on);
	free(hidden);
	free(logits);
	free(want);
}

static void positions_can_be_computed_again_with_other_tokens(void **state)
{
	struct world *w = *state;
	struct engine *e = open_engine(w, (struct way){.n_slots = 2});
	size_t hidden_dim = (size_t)w->hidden_dim, vocab = (size_t)w->vocab_size;
	float *hidden = floats(CTX * hidden_dim), *logits = floats(vocab);
	struct errmsg em;
	assert_int_equal(feed(e, 1, 0, w->tokens + 200, 50, hidden, &em), OK);
	assert_int_equal(feed(e, 1, 0, w->tokens, 10, hidden, &em), OK);
	// What lay behind the ten is forgotten.
	assert_int_equal(feed(e, 1, 11, w->tokens + 11, 1, hidden, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "has computed only 10"));
	assert_int_equal(feed(e, 1, 10, w->tokens + 300, 20, hidden, &em), OK);
	assert_int_equal(feed(e, 1, 10, w->tokens + 10, 20, hidden, &em), OK);
	float *want = compute(w, (struct way){0}, w->tokens, 30);
	assert_int_equal(engine_logits(e, hidden + 19 * hidden_dim, 1, logits, &em), OK);
	assert_memory_equal(want + 29 * vocab, logits, vocab * sizeof *logits);
	free(want);
	free(hidden);
	free(logits);
	engine_close(e);
}

static void a_call_that_breaks_a_precondition_is_refused_whole(void **state)
{
	struct world *w = *state;
	struct engine *e = open_engine(w, (struct way){.n_slots = 2, .ctx = 20});
	float *hidden = floats((CTX + 1) * (size_t)w->hidden_dim);
	struct errmsg em;
	const int32_t bad_token[] = {1, w->vocab_size}, negative[] = {-1};
	assert_int_equal(feed(e, 0, 0, w->tokens, 21, hidden, &em), ERR_RANGE);
	assert_string_equal(em.text, "engine: 21 tokens at position 0 do not fit a context of 20");
	assert_int_equal(feed(e, 0, 0, w->tokens, 20, hidden, &em), OK);
	assert_int_equal(feed(e, 0, 20, w->tokens, 1, hidden, &em), ERR_RANGE);
	assert_int_equal(feed(e, 0, INT32_MAX, w->tokens, 1, hidden, &em), ERR_RANGE);
	assert_int_equal(feed(e, 0, -1, w->tokens, 1, hidden, &em), ERR_RANGE);
	assert_int_equal(feed(e, 2, 0, w->tokens, 1, hidden, &em), ERR_RANGE);
	assert_int_equal(feed(e, -1, 0, w->tokens, 1, hidden, &em), ERR_RANGE);
	assert_int_equal(feed(e, 1, 1, w->tokens, 1, hidden, &em), ERR_RANGE);
	assert_int_equal(feed(e, 0, 0, bad_token, 2, hidden, &em), ERR_RANGE);
	assert_int_equal(feed(e, 0, 0, negative, 1, hidden, &em), ERR_RANGE);
	assert_int_equal(engine_logits(e, hidden, CTX + 1, NULL, &em), ERR_RANGE);
	struct engine_item twice[2] = {{.slot = 1, .n_tokens = 1, .hidden = hidden}, {.slot = 1, .n_tokens = 1, .hidden = hidden}};
	assert_int_equal(engine_forward(e, twice, 2, &em), ERR_RANGE);
	assert_int_equal(engine_forward(e, twice, 0, &em), OK);
	engine_close(e);
	e = open_engine(w, (struct way){.n_slots = 2});
	struct engine_item many[2] = {{.slot = 0, .n_tokens = CTX, .hidden = hidden}, {.slot = 1, .n_tokens = 1, .hidden = hidden}};
	assert_int_equal(engine_forward(e, many, 2, &em), ERR_RANGE);
	engine_close(e);
	free(hidden);
}

// A sanitizer ends the program when asked for too much; here that is the test.
const char *__asan_default_options(void);
const char *__tsan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static void what_does_not_fit_in_memory_says_how_much(void **state)
{
	struct world *w = *state;
	struct engine *e;
	struct errmsg em;
	// 2 heads of 16 dimensions, 4 layers, f16 keys and values: 512 bytes a position, so 2^49 of them are 256 PiB.
	assert_int_equal(try_open(w, (struct way){.n_slots = 1 << 20, .ctx = 1 << 29}, &e, &em), ERR_NOMEM);
	assert_non_null(strstr(em.text, "cannot allocate 2748779"));
	assert_non_null(strstr(em.text, "MiB of it KV cache, 1048576 slots of 536870912 tokens"));
	assert_int_equal(try_open(w, (struct way){.n_slots = INT32_MAX, .ctx = INT32_MAX}, &e, &em), ERR_NOMEM);
	assert_non_null(strstr(em.text, "more memory than this machine can address"));
	struct engine *small = open_engine(w, (struct way){.ctx = 64, .n_slots = 3});
	assert_int_equal(engine_kv_bytes(small), 3 * 64 * 512);
	assert_true(engine_bytes(small) > engine_kv_bytes(small));
	engine_close(small);
}

static void a_value_beyond_f16_fails_its_item_alone_and_is_named(void **state)
{
	struct world *w = *state;
	struct engine *e = open_engine(w, (struct way){.n_slots = 3, .wire = WIRE_F16, .layer_begin = 1, .layer_end = 3, .threads = 2});
	size_t hidden_dim = (size_t)w->hidden_dim;
	float *hidden = floats(3 * 4 * hidden_dim), *solo = floats(4 * hidden_dim);
	for (size_t i = 0; i < 12 * hidden_dim; i++)
		hidden[i] = (float)((int)(i % 13) - 6) / 8;
	memcpy(solo, hidden + 8 * hidden_dim, 4 * hidden_dim * sizeof *solo);
	hidden[(4 + 2) * hidden_dim + 6] = -70000.0f;
	struct engine_item items[3];
	for (int i = 0; i < 3; i++)
		items[i] = (struct engine_item){.slot = i, .n_tokens = 4, .hidden = hidden + (size_t)i * 4 * hidden_dim};
	struct errmsg em;
	assert_int_equal(engine_forward(e, items, 3, &em), ERR_NON_FINITE);
	assert_non_null(strstr(em.text, "layer 1: output of position 2 is out of f16's range (got "));
	assert_int_equal(items[0].fault.err, OK);
	assert_int_equal(items[1].fault.err, ERR_NON_FINITE);
	assert_int_equal(items[1].fault.layer, 1);
	assert_int_equal(items[1].fault.pos, 2);
	assert_false(items[1].fault.in_kv);
	assert_true(items[1].fault.value > 65519.0f || items[1].fault.value < -65519.0f);
	assert_int_equal(items[2].fault.err, OK);
	struct engine_item alone = {.slot = 2, .n_tokens = 4, .hidden = solo};
	assert_int_equal(engine_forward(e, &alone, 1, &em), OK);
	assert_memory_equal(solo, items[2].hidden, 4 * hidden_dim * sizeof *solo);
	// The failed slot holds nothing, the others their four.
	struct engine_item next = {.slot = 1, .pos_begin = 1, .n_tokens = 1, .hidden = solo};
	assert_int_equal(engine_forward(e, &next, 1, &em), ERR_RANGE);
	next = (struct engine_item){.slot = 0, .pos_begin = 4, .n_tokens = 1, .hidden = solo};
	assert_int_equal(engine_forward(e, &next, 1, &em), OK);
	free(hidden);
	free(solo);
	engine_close(e);
}

// open_spoiled opens the default tiny model with bytes of one tensor overwritten.
static struct model *open_spoiled(const char *tensor, enum dtype embd_type, size_t at, const void *bytes, size_t n)
{
	struct tiny_llama t = tiny_llama_default(7);
	t.embd_type = embd_type;
	struct gguf_build b;
	struct gguf g = {0};
	gguf_build_tiny_llama(&b, &t);
	assert_int_equal(gguf_parse(b.data, b.len, &g, NULL), OK);
	const struct gguf_tensor *info = gguf_find_tensor(&g, tensor);
	assert_non_null(info);
	memcpy(b.data + (info->data - b.data) + at, bytes, n);
	struct model *m = open_bytes(b.data, b.len);
	gguf_deinit(&g);
	gguf_build_free(&b);
	return m;
}

static void an_embedding_beyond_f16_is_named(void **state)
{
	struct world *w = *state;
	float big = 70000.0f;
	struct model *m = open_spoiled("token_embd.weight", DTYPE_F32, ((size_t)9 * (size_t)w->hidden_dim + 3) * sizeof big, &big, sizeof big);
	float *hidden = floats(3 * (size_t)w->hidden_dim);
	const int32_t tokens[] = {8, 9, 10};
	struct errmsg em;
	struct engine *e = open_engine(w, (struct way){.model = m, .wire = WIRE_F16});
	assert_int_equal(feed(e, 0, 0, tokens, 3, hidden, &em), ERR_NON_FINITE);
	assert_string_equal(em.text, "embedding: output of position 1 is out of f16's range (got 70000, at most 65504): use another wire type");
	engine_close(e);
	e = open_engine(w, (struct way){.model = m});
	assert_int_equal(feed(e, 0, 0, tokens, 3, hidden, &em), OK);
	engine_close(e);
	model_close(m);
	free(hidden);
}

static void a_scale_that_is_no_number_is_caught_where_it_enters(void **state)
{
	struct world *w = *state;
	const uint8_t nan[2] = {0x00, 0x7e};
	static const struct {
		const char *tensor, *text;
	} cases[] = {
		{"blk.2.attn_k.weight", "layer 2: a key or value of position 0"},
		{"blk.1.attn_v.weight", "layer 1: a key or value of position 0"},
		{"blk.3.ffn_gate.weight", "layer 3: output of position 0 is not finite"},
		{"blk.0.attn_output.weight", "layer 0: output of position 0 is not finite"},
		{"blk.0.attn_q.weight", "layer 0: output of position 0 is not finite"},
	};
	float *hidden = floats(8 * (size_t)w->hidden_dim);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct errmsg em;
		struct model *m = open_spoiled(cases[i].tensor, DTYPE_Q8_0, 0, nan, sizeof nan);
		for (int threads = 1; threads <= 2; threads++) {
			struct engine *e = open_engine(w, (struct way){.model = m, .threads = threads});
			assert_int_equal(feed(e, 0, 0, w->tokens, 8, hidden, &em), ERR_NON_FINITE);
			assert_non_null(strstr(em.text, cases[i].text));
			engine_close(e);
		}
		model_close(m);
	}
	free(hidden);
}

static bool count_token(void *ctx, int32_t token)
{
	int *n = ctx;
	(void)token;
	return ++*n < 5;
}

static bool always(void *ctx)
{
	(void)ctx;
	return true;
}

static void generate_answers_the_same_in_every_way_and_says_why_it_ended(void **state)
{
	struct world *w = *state;
	char want[2 * LOGITS_HASH_BYTES + 1] = "", got[sizeof want];
	int32_t first[12], tokens[12];
	static const struct {
		int threads, chunk;
		const char *simd;
	} ways[] = {{1, 512, "portable"}, {2, 1, "portable"}, {4, 7, NULL}, {1, 64, NULL}};
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		const struct generate_config c = {.model = w->model, .kernels = kernels_find(ways[i].simd, NULL), .pool = w->pools[ways[i].threads],
			.ctx_len = 64, .prefill_chunk = ways[i].chunk};
		struct generate *g;
		struct errmsg em;
		assert_int_equal(generate_open(&c, &g, &em), OK);
		struct generate_request q = {.prompt = w->tokens, .n_prompt = 40, .max_tokens = 12, .hash_logits = true,
			.sampling = {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .min_p = 0.01f, .seed = 3}};
		struct generate_result r = {.tokens = tokens};
		assert_int_equal(generate_run(g, &q, &r, &em), OK);
		assert_int_equal(r.n_tokens, 12);
		assert_int_equal(r.n_fed, 51); // the last token is not fed
		assert_int_equal(r.stop, GENERATE_LENGTH);
		logits_hash_hex(&r.hash, got);
		if (i == 0) {
			memcpy(want, got, sizeof want);
			memcpy(first, tokens, sizeof first);
		}
		assert_string_equal(got, want);
		assert_memory_equal(tokens, first, sizeof first);

		int n = 0;
		q.on_token = count_token;
		q.ctx = &n;
		assert_int_equal(generate_run(g, &q, &r, &em), OK);
		assert_int_equal(r.stop, GENERATE_TOKEN);
		assert_int_equal(r.n_tokens, 5);
		assert_memory_equal(tokens, first, 5 * sizeof *first);
		q.on_token = NULL;
		q.n_prompt = 60;
		assert_int_equal(generate_run(g, &q, &r, &em), OK);
		assert_int_equal(r.stop, GENERATE_CTX);
		assert_int_equal(r.n_tokens, 5);
		q.n_prompt = 65;
		assert_int_equal(generate_run(g, &q, &r, &em), ERR_RANGE);
		assert_string_equal(em.text, "the prompt has 65 tokens, the context 64");
		q.n_prompt = 0;
		assert_int_equal(generate_run(g, &q, &r, &em), ERR_RANGE);
		q.n_prompt = 3;
		q.is_cancelled = always;
		assert_int_equal(generate_run(g, &q, &r, &em), ERR_CANCELLED);
		generate_close(g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_threads_and_instruction_sets_give_the_same_logits),
		cmocka_unit_test(every_weight_type_and_shape_gives_the_same_logits),
		cmocka_unit_test(any_cut_of_the_layers_gives_the_logits_of_one_engine),
		cmocka_unit_test(layers_in_turns_on_two_engines_give_the_logits_of_one),
		cmocka_unit_test(a_batch_of_sequences_gives_each_what_it_has_alone),
		cmocka_unit_test(lost_layers_are_computed_again_from_kept_states),
		cmocka_unit_test(positions_can_be_computed_again_with_other_tokens),
		cmocka_unit_test(a_call_that_breaks_a_precondition_is_refused_whole),
		cmocka_unit_test(what_does_not_fit_in_memory_says_how_much),
		cmocka_unit_test(a_value_beyond_f16_fails_its_item_alone_and_is_named),
		cmocka_unit_test(an_embedding_beyond_f16_is_named),
		cmocka_unit_test(a_scale_that_is_no_number_is_caught_where_it_enters),
		cmocka_unit_test(generate_answers_the_same_in_every_way_and_says_why_it_ended),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
