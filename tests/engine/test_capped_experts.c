// Experts under a cap: the same bits as without, only what a router chose is read, and what was read ahead in vain counts apart.
#include "engine/engine.h"
#include "engine/engine_state.h"
#include "engine/expert_ffn.h"
#include "tests/support/made_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N_TOKENS 24
#define SHAPE "arch=qwen3moe,layers=4,hidden=256,heads=4,kv_heads=2,head_dim=64,ffn=256,experts=32,experts_used=3"
#define N_EXPERTS 32
#define N_USED 3
#define N_LAYERS 4
#define EXPERT_PLACE (3 * (uint64_t)(9 + 2) * 4096) // above what one takes in memory: 256 x 256 Q4_0 is 9 pages, wherever it begins

struct world {
	char dir[SCRATCH_CAP], path[MADE_PATH_CAP];
	struct model *model;
	struct pool *pool;
	int32_t tokens[N_TOKENS];
	size_t hidden_dim, vocab_size;
	uint64_t expert_bytes;
};

static int open_world(void **state)
{
	static struct world w;
	struct errmsg em;
	struct layer_weights l;
	if (!scratch_open(w.dir))
		return -1;
	made_model(w.dir, SHAPE, "Q4_0", "", w.path);
	if (model_open(w.path, &w.model, &em) != OK || pool_open(2, &w.pool) != OK) {
		fprintf(stderr, "%s\n", em.text);
		return -1;
	}
	w.hidden_dim = (size_t)model_hparams(w.model)->hidden_dim;
	w.vocab_size = (size_t)model_hparams(w.model)->vocab_size;
	for (int32_t i = 0; i < N_TOKENS; i++)
		w.tokens[i] = (i * 41 + 5) % (int32_t)w.vocab_size;
	model_layer(w.model, 0, &l);
	w.expert_bytes = ((uint64_t)l.experts[0].gate.rows * l.experts[0].gate.row_bytes + (uint64_t)l.experts[0].up.rows * l.experts[0].up.row_bytes +
		(uint64_t)l.experts[0].down.rows * l.experts[0].down.row_bytes);
	kernels_thread_init();
	*state = &w;
	return 0;
}

static int close_world(void **state)
{
	struct world *w = *state;
	model_close(w->model);
	pool_close(w->pool);
	return scratch_remove(w->dir);
}

static struct engine *open_engine(const struct world *w, uint64_t cap, enum weight_way reader)
{
	const struct engine_config c = {.model = w->model, .kernels = kernels_find(NULL, NULL), .pool = w->pool, .layers = layer_spans_one(0, N_LAYERS),
		.has_head = true, .n_slots = 1, .ctx_len = N_TOKENS, .batch_max = N_TOKENS,
		.weights = {.is_capped = cap > 0, .bytes = cap, .anon_bytes = cap, .reader = reader}};
	struct engine *e;
	struct errmsg em = {{0}};
	if (engine_open(&c, &e, &em) != OK)
		fail_msg("%s", em.text);
	return e;
}

static void feed(struct engine *e, const struct world *w, int32_t pos, int32_t n, float *logits)
{
	float *hidden = malloc((size_t)n * w->hidden_dim * sizeof *hidden);
	struct errmsg em = {{0}};
	struct engine_item it = {.pos_begin = pos, .n_tokens = n, .tokens = w->tokens + pos, .hidden = hidden};
	if (engine_embed(e, &it, 1, &em) != OK || engine_forward(e, &it, 1, &em) != OK || engine_logits(e, hidden, n, logits, &em) != OK)
		fail_msg("%s", em.text);
	free(hidden);
}

// compute returns the logits of all tokens, which the caller frees, and the stats at the end.
static float *compute(const struct world *w, uint64_t cap, enum weight_way reader, int32_t chunk, struct expert_cache_stats *stats)
{
	struct engine *e = open_engine(w, cap, reader);
	float *logits = malloc(N_TOKENS * w->vocab_size * sizeof *logits);
	assert_non_null(logits);
	for (int32_t pos = 0; pos < N_TOKENS; pos += chunk)
		feed(e, w, pos, N_TOKENS - pos < chunk ? N_TOKENS - pos : chunk, logits + (size_t)pos * w->vocab_size);
	assert_true(engine_expert_stats(e, stats) == (cap > 0));
	engine_close(e);
	return logits;
}

// everything_else returns what weights without experts take: the cap of a cache is beyond it.
static uint64_t everything_else(const struct world *w)
{
	struct engine *e = open_engine(w, 0, READER_AUTO);
	uint64_t bytes = residency_whole(&e->units);
	engine_close(e);
	return bytes;
}

static void a_cap_changes_no_bit_whatever_reads(void **state)
{
	const struct world *w = *state;
	struct expert_cache_stats stats;
	float *want = compute(w, 0, READER_AUTO, 1, &stats);
	uint64_t rest = everything_else(w);
	static const enum weight_way readers[] = {READER_MMAP, READER_DIRECT};
	static const int32_t slots[] = {2 * N_USED, 20, N_LAYERS * N_EXPERTS};
	for (size_t r = 0; r < 2; r++)
		for (size_t s = 0; s < 3; s++)
			for (int32_t chunk = 1; chunk <= N_TOKENS; chunk += 11) {
				float *got = compute(w, rest + (uint64_t)slots[s] * EXPERT_PLACE, readers[r], chunk, &stats);
				assert_memory_equal(got, want, N_TOKENS * w->vocab_size * sizeof *got);
				assert_in_range(stats.n_slots, slots[s], N_LAYERS * N_EXPERTS);
				free(got);
			}
	free(want);
}

// chosen_bytes computes a token and returns the bytes of the experts that its routers chose, by the choices themselves.
static uint64_t chosen_bytes(struct engine *e, const struct world *w, int32_t pos, bool seen[N_LAYERS][N_EXPERTS], float *logits)
{
	float *hidden = malloc(w->hidden_dim * sizeof *hidden);
	struct engine_item it = {.pos_begin = pos, .n_tokens = 1, .tokens = w->tokens + pos, .hidden = hidden};
	uint64_t bytes = 0;
	assert_int_equal(engine_embed(e, &it, 1, NULL), OK);
	for (int32_t layer = 0; layer < N_LAYERS; layer++) {
		assert_int_equal(engine_forward_layers(e, layer, layer + 1, &it, 1, NULL), OK);
		for (int32_t i = 0; i < N_USED; i++) {
			bool *s = &seen[layer][e->choices[i].expert];
			bytes += *s ? 0 : w->expert_bytes;
			*s = true;
		}
	}
	assert_int_equal(engine_logits(e, hidden, 1, logits, NULL), OK);
	free(hidden);
	return bytes;
}

static void a_token_reads_only_the_experts_its_routers_chose(void **state)
{
	const struct world *w = *state;
	// All fit: what was read once is never read again, so all that is read was either chosen, or read ahead.
	struct engine *e = open_engine(w, everything_else(w) + N_LAYERS * N_EXPERTS * EXPERT_PLACE, READER_MMAP);
	bool seen[N_LAYERS][N_EXPERTS] = {{false}};
	float *logits = malloc(w->vocab_size * sizeof *logits);
	uint64_t chosen = 0;
	struct expert_cache_stats stats;
	for (int32_t pos = 0; pos < N_TOKENS; pos++)
		chosen += chosen_bytes(e, w, pos, seen, logits);
	expert_cache_settle(e->expert_cache);
	assert_true(engine_expert_stats(e, &stats));
	assert_int_equal(stats.acquired_bytes, (uint64_t)N_TOKENS * N_LAYERS * N_USED * w->expert_bytes);
	assert_int_equal(stats.wasted_bytes, 0); // nothing had to go
	assert_int_equal(stats.read_bytes, chosen + stats.unused_bytes);
	assert_true(stats.ahead_bytes > stats.unused_bytes); // some of it was what the router chose then
	assert_true(stats.read_bytes < (uint64_t)N_LAYERS * N_EXPERTS * w->expert_bytes);
	struct residency_stats all; // who asks for weights hears of experts, too: what was waited for was not computed
	engine_weight_stats(e, &all);
	assert_true(all.read_bytes >= stats.read_bytes && all.stall_ns >= stats.stall_ns && stats.stall_ns > 0);
	assert_true(all.read_ns >= stats.read_ns && stats.read_ns > 0); // of the disk's time, also that in which nobody waited
	free(logits);
	engine_close(e);
}

static void what_was_read_ahead_in_vain_counts_apart(void **state)
{
	const struct world *w = *state;
	struct engine *e = open_engine(w, everything_else(w) + 8 * EXPERT_PLACE, READER_DIRECT);
	struct expert_cache *c = e->expert_cache;
	struct expert_cache_stats stats;
	int32_t n_slots = expert_cache_n_slots(c), others[N_EXPERTS];
	uint64_t n = (uint64_t)n_slots;
	expert_cache_expect(c, (const int32_t[]){5, 6, 7}, 3);
	expert_cache_settle(c);
	expert_cache_get_stats(c, &stats);
	assert_int_equal(stats.unused_bytes, 3 * w->expert_bytes);
	assert_int_equal(expert_cache_acquire(c, &(int32_t){6}, 1, NULL), OK); // a good guess
	expert_cache_release(c, &(int32_t){6}, 1);
	expert_cache_get_stats(c, &stats);
	assert_int_equal(stats.read_bytes, 3 * w->expert_bytes);
	assert_int_equal(stats.unused_bytes, 2 * w->expert_bytes);
	for (int32_t i = 0; i < n_slots; i++)
		others[i] = 64 + i;
	assert_int_equal(expert_cache_acquire(c, others, n_slots, NULL), OK); // takes every place
	expert_cache_release(c, others, n_slots);
	expert_cache_get_stats(c, &stats);
	assert_int_equal(stats.acquired_bytes, (n + 1) * w->expert_bytes);
	assert_int_equal(stats.read_bytes, (n + 3) * w->expert_bytes);
	assert_int_equal(stats.ahead_bytes, 3 * w->expert_bytes);
	assert_int_equal(stats.wasted_bytes, 2 * w->expert_bytes);
	assert_int_equal(stats.unused_bytes, 0);
	engine_close(e);
}

static void the_most_used_experts_stay(void **state)
{
	const struct world *w = *state;
	struct engine *e = open_engine(w, everything_else(w) + 8 * EXPERT_PLACE, READER_MMAP);
	struct expert_cache *c = e->expert_cache;
	struct expert_cache_stats before, after;
	int32_t often[] = {3, 70}, n_slots = expert_cache_n_slots(c);
	for (int32_t round = 0; round < 20; round++) {
		assert_int_equal(expert_cache_acquire(c, often, 2, NULL), OK);
		expert_cache_release(c, often, 2);
	}
	for (int32_t i = 0; i < n_slots - 2; i++) { // each of these once, and more recently
		assert_int_equal(expert_cache_acquire(c, &(int32_t){80 + i}, 1, NULL), OK);
		expert_cache_release(c, &(int32_t){80 + i}, 1);
	}
	assert_int_equal(expert_cache_acquire(c, &(int32_t){40}, 1, NULL), OK); // takes the place of one of those
	expert_cache_release(c, &(int32_t){40}, 1);
	expert_cache_get_stats(c, &before);
	assert_int_equal(expert_cache_acquire(c, often, 2, NULL), OK);
	expert_cache_release(c, often, 2);
	expert_cache_get_stats(c, &after);
	assert_int_equal(after.read_bytes, before.read_bytes);
	engine_close(e);
}

static void an_expert_that_cannot_be_read_fails_the_step_and_no_more(void **state)
{
	const struct world *w = *state;
	static const enum weight_way readers[] = {READER_MMAP, READER_DIRECT};
	struct errmsg em;
	struct layer_weights l;
	size_t len;
	uint8_t *whole = scratch_read(w->path, &len);
	char path[SCRATCH_CAP + 32];
	snprintf(path, sizeof path, "%s/short.gguf", w->dir);
	for (size_t r = 0; r < 2; r++) {
		struct world short_world = *w;
		float *hidden = malloc(w->hidden_dim * sizeof *hidden);
		scratch_write(path, whole, len);
		assert_int_equal(model_open(path, &short_world.model, NULL), OK);
		struct engine *e = open_engine(&short_world, everything_else(w) + 20 * EXPERT_PLACE, readers[r]);
		model_layer(short_world.model, 1, &l);
		assert_int_equal(truncate(path, (off_t)l.experts[0].gate.at), 0);
		for (int i = 0; i < 2; i++) {
			struct engine_item it = {.n_tokens = 1, .tokens = w->tokens, .hidden = hidden};
			assert_int_equal(engine_embed(e, &it, 1, NULL), OK);
			assert_int_equal(engine_forward_layers(e, 0, 1, &it, 1, NULL), OK);
			assert_int_equal(engine_forward_layers(e, 1, 2, &it, 1, &em), ERR_IO);
			assert_non_null(strstr(em.text, "short.gguf"));
			assert_non_null(strstr(em.text, "offset"));
		}
		engine_close(e);
		model_close(short_world.model);
		free(hidden);
	}
	free(whole);
}

static void a_cap_that_holds_no_tokens_experts_is_refused_with_the_arithmetic(void **state)
{
	const struct world *w = *state;
	struct engine_config c = {.model = w->model, .kernels = kernels_find(NULL, NULL), .pool = w->pool, .layers = layer_spans_one(0, N_LAYERS),
		.n_slots = 1, .ctx_len = N_TOKENS, .batch_max = N_TOKENS};
	struct engine_size size;
	struct engine *e;
	struct errmsg em;
	assert_int_equal(engine_measure(&c, &size, NULL), OK);
	assert_true(size.weight_bytes > (uint64_t)N_LAYERS * N_EXPERTS * w->expert_bytes);
	assert_true(size.weight_least > 2 * N_USED * w->expert_bytes);
	c.weights = (struct residency_limits){.is_capped = true, .bytes = N_USED * w->expert_bytes, .anon_bytes = N_USED * w->expert_bytes, .reader = READER_MMAP};
	assert_int_equal(engine_open(&c, &e, &em), ERR_LIMIT);
	assert_non_null(strstr(em.text, "MiB"));
	c.weights.bytes = c.weights.anon_bytes = size.weight_least; // as small as it can be
	assert_int_equal(engine_open(&c, &e, &em), OK);
	engine_close(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cap_changes_no_bit_whatever_reads),
		cmocka_unit_test(a_token_reads_only_the_experts_its_routers_chose),
		cmocka_unit_test(what_was_read_ahead_in_vain_counts_apart),
		cmocka_unit_test(the_most_used_experts_stay),
		cmocka_unit_test(an_expert_that_cannot_be_read_fails_the_step_and_no_more),
		cmocka_unit_test(a_cap_that_holds_no_tokens_experts_is_refused_with_the_arithmetic),
	};
	return cmocka_run_group_tests(tests, open_world, close_world);
}
