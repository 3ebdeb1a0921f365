// lm_head shared by rows: candidates and logits of members joined, against one head with all rows. And what a member must not send.
#include "engine/head_rows.h"

#include "base/bytes.h"
#include "base/fmath.h"
#include "base/rng.h"
#include "engine/stage_work.h"
#include "tests/support/gguf_build.h"
#include "tests/support/instrumented.h"
#include "tests/support/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS_MAX 1000
#define BEST_BYTES (SAMPLING_BEST_MAX * HEAD_CANDIDATE_BYTES)

// ---- logits made up

struct joined {
	struct tensor_split split;
	float logits[ROWS_MAX];
	int32_t n;
	uint8_t parts[GROUP_MEMBERS_MAX][ROWS_MAX * HEAD_CANDIDATE_BYTES];
	uint8_t out[ROWS_MAX * HEAD_CANDIDATE_BYTES];
};

// cut gives each member some of n rows, or none.
static void cut(struct joined *j, struct rng *r, int32_t n)
{
	j->n = n;
	j->split.n_members = 1 + (int32_t)rng_below(r, GROUP_MEMBERS_MAX);
	for (int32_t i = 0, at = 0; i < j->split.n_members; i++) {
		int32_t left = n - at, take = i + 1 == j->split.n_members ? left : (int32_t)rng_below(r, (uint64_t)left + 1) / 2;
		j->split.parts[i].vocab_rows = (struct split_range){at, at + take};
		at += take;
	}
}

static enum err join(struct joined *j, enum head_want want)
{
	const uint8_t *parts[GROUP_MEMBERS_MAX];
	for (int32_t i = 0; i < j->split.n_members; i++) {
		struct split_range rows = j->split.parts[i].vocab_rows;
		(void)head_reply_choose(j->logits + rows.begin, rows.begin, split_len(rows), want, j->parts[i]);
		parts[i] = j->parts[i];
	}
	return head_reply_join(&j->split, parts, want, j->out, NULL);
}

static struct sampling draw_sampling(struct rng *r)
{
	static const int32_t top_ks[] = {1, 2, 7, 40, SAMPLING_BEST_MAX};
	return (struct sampling){.temperature = rng_below(r, 4) == 0 ? 0 : 0.1f + (float)rng_below(r, 30) / 10, .top_k = top_ks[rng_below(r, 5)],
		.top_p = rng_below(r, 2) == 0 ? 1 : 0.05f + (float)rng_below(r, 90) / 100, .min_p = rng_below(r, 2) == 0 ? 0 : (float)rng_below(r, 50) / 100,
		.seed = rng_below(r, UINT32_MAX)};
}

static void expect_same_token(struct joined *j, struct rng *r)
{
	struct candidate best[SAMPLING_BEST_MAX], scratch[SAMPLER_SCRATCH(ROWS_MAX)];
	struct sampling s = draw_sampling(r);
	int32_t want;
	uint64_t pos = rng_below(r, 1000);
	assert_true(sampling_takes_best(&s));
	assert_int_equal(head_reply_best(j->out, 0, j->n, best), OK);
	assert_int_equal(sampler_draw(&s, j->logits, j->n, pos, scratch, &want), OK);
	assert_int_equal(sampler_draw_best(&s, best, head_reply_n_best(j->n), pos), want);
}

static void joined_candidates_give_the_token_of_all_logits(void **state)
{
	struct joined *j = calloc(1, sizeof *j);
	struct rng r;
	(void)state;
	rng_init(&r, 11);
	for (int trial = 0; trial < 3000; trial++) {
		cut(j, &r, trial % 3 == 0 ? 1 + (int32_t)rng_below(&r, 90) : 100 + (int32_t)rng_below(&r, 900));
		int32_t n_values = trial % 2 == 0 ? 5 : 100000; // few: many are equal, within members and across
		for (int32_t i = 0; i < j->n; i++)
			j->logits[i] = ((float)rng_below(&r, (uint64_t)n_values) - (float)(n_values / 2)) * (n_values < 10 ? 1.0f : 1e-3f);
		if (trial % 5 == 0)
			j->logits[rng_below(&r, (uint64_t)j->n)] = -0.0f; // equal to 0
		assert_int_equal(join(j, HEAD_BEST), OK);
		expect_same_token(j, &r);
		assert_int_equal(join(j, HEAD_LOGITS), OK);
		for (int32_t i = 0; i < j->n; i++)
			assert_int_equal(load_u32(j->out + 4 * (size_t)i), fmath_bits(j->logits[i]));
	}
	free(j);
}

static void logits_that_rise_give_the_last_ids(void **state)
{
	float logits[ROWS_MAX];
	uint8_t out[BEST_BYTES];
	(void)state;
	for (int32_t i = 0; i < ROWS_MAX; i++)
		logits[i] = (float)i;
	assert_int_equal(head_reply_choose(logits, 500, ROWS_MAX, HEAD_BEST, out), OK);
	for (int32_t i = 0; i < SAMPLING_BEST_MAX; i++)
		assert_int_equal(load_u32(out + 8 * (size_t)i), 500 + ROWS_MAX - 1 - i);
}

static void a_value_that_is_not_finite_fails_the_token_wherever_it_is(void **state)
{
	struct joined *j = calloc(1, sizeof *j);
	struct candidate best[SAMPLING_BEST_MAX];
	const float bad[] = {NAN, INFINITY, -INFINITY};
	struct rng r;
	(void)state;
	rng_init(&r, 12);
	for (int trial = 0; trial < 300; trial++) {
		cut(j, &r, 1 + (int32_t)rng_below(&r, ROWS_MAX));
		for (int32_t i = 0; i < j->n; i++)
			j->logits[i] = (float)i;
		j->logits[rng_below(&r, (uint64_t)j->n)] = bad[trial % 3];
		assert_int_equal(join(j, HEAD_BEST), ERR_NON_FINITE);
		assert_int_equal(head_reply_best(j->out, 0, j->n, best), ERR_NON_FINITE); // and so it is told further on
		assert_int_equal(join(j, HEAD_LOGITS), ERR_NON_FINITE);
		assert_int_equal(head_reply_logits(j->out, j->n, j->logits), ERR_NON_FINITE);
	}
	free(j);
}

// ---- hostile

static void candidates_that_cannot_be_are_refused(void **state)
{
	float logits[200];
	uint8_t good[BEST_BYTES], bad[BEST_BYTES];
	struct candidate best[SAMPLING_BEST_MAX];
	(void)state;
	for (int32_t i = 0; i < 200; i++)
		logits[i] = (float)(i * 37 % 50);
	assert_int_equal(head_reply_choose(logits, 300, 200, HEAD_BEST, good), OK);
	assert_int_equal(head_reply_best(good, 300, 500, best), OK);
	const struct {
		const char *what;
		size_t at;
		uint32_t value;
	} cases[] = {
		{"an id before its rows", 0, 299}, {"an id behind them", 0, 500}, {"an id that is no number of a row", 0, 0x80000000}, {"the largest id", 0, UINT32_MAX},
		{"an id twice", 8, load_u32(good)}, {"a value above the one before it", 8 + 4, fmath_bits(1000.0f)},
		{"the first value below the second", 4, fmath_bits(-1000.0f)},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		memcpy(bad, good, sizeof bad);
		store_u32(bad + cases[i].at, cases[i].value);
		if (head_reply_best(bad, 300, 500, best) != ERR_FORMAT)
			fail_msg("%s was taken", cases[i].what);
	}
	memcpy(bad, good, 8); // equal values, ids descending
	memcpy(bad, good + 8, 8);
	memcpy(bad + 8, good, 8);
	assert_int_equal(head_reply_best(bad, 300, 500, best), ERR_FORMAT);
	memcpy(bad, good, sizeof bad);
	store_u32(bad, load_u32(good + 16)); // an id twice, with two values, in order
	store_u32(bad + 4, fmath_bits(1000.0f));
	assert_int_equal(head_reply_best(bad, 300, 500, best), ERR_FORMAT);
	memset(bad, 0, sizeof bad);
	assert_int_equal(head_reply_best(bad, 0, 500, best), ERR_FORMAT);
	struct rng r;
	rng_init(&r, 3);
	for (int trial = 0; trial < 20000; trial++) { // whatever comes, what is taken is in order and in range
		memcpy(bad, good, sizeof bad);
		for (int k = 0; k <= trial % 3; k++)
			bad[rng_below(&r, sizeof bad)] = (uint8_t)rng_below(&r, 256);
		if (head_reply_best(bad, 300, 500, best) != OK)
			continue;
		for (int32_t i = 0; i < SAMPLING_BEST_MAX; i++) {
			assert_in_range(best[i].id, 300, 499);
			assert_true(i == 0 || candidate_is_before(best[i - 1], best[i]));
		}
	}
}

static void a_member_that_sends_others_candidates_is_named(void **state)
{
	struct joined *j = calloc(1, sizeof *j);
	const uint8_t *parts[2];
	struct errmsg em = {{0}};
	(void)state;
	j->n = 100;
	j->split = (struct tensor_split){.n_members = 2};
	j->split.parts[0].vocab_rows = (struct split_range){0, 50};
	j->split.parts[1].vocab_rows = (struct split_range){50, 100};
	assert_int_equal(join(j, HEAD_BEST), OK);
	parts[0] = parts[1] = j->parts[0];
	assert_int_equal(head_reply_join(&j->split, parts, HEAD_BEST, j->out, &em), ERR_FORMAT);
	assert_non_null(strstr(em.text, "member 1 sent candidates"));
	free(j);
}

// ---- real rows: a whole stage with a head of its own, and groups whose members have rows of it

#define N_SLOTS 3
#define N_STEPS 3
#define CTX 16

struct world {
	char dir[SCRATCH_CAP], path[SCRATCH_CAP + 16];
	struct model *model;
	struct pool *pool;
	size_t row;
};

static void open_world(struct world *w, enum dtype type, bool untied)
{
	struct tiny_llama t = tiny_llama_default(5);
	struct errmsg em;
	*w = (struct world){.row = 256 * sizeof(float)};
	t.hidden_dim = t.ffn_dim = 256;
	t.n_layers = 1;
	t.embd_type = type;
	t.untied = untied;
	t.vocab_size = 333;
	assert_true(scratch_open(w->dir));
	snprintf(w->path, sizeof w->path, "%s/model.gguf", w->dir);
	gguf_build_tiny_llama_file(w->path, &t);
	if (model_open(w->path, &w->model, &em) != OK)
		fail_msg("%s", em.text);
	assert_int_equal(pool_open(2, &w->pool), OK);
	kernels_thread_init();
}

static void close_world(struct world *w)
{
	pool_close(w->pool);
	model_close(w->model);
	scratch_remove(w->dir);
}

static struct stage_work *open_work(struct world *w, struct engine_config c)
{
	struct stage_work *out = NULL;
	struct engine_size size;
	struct errmsg em;
	c.model = w->model;
	c.kernels = kernels_find(NULL, &em);
	c.pool = w->pool;
	c.n_slots = N_SLOTS;
	c.ctx_len = CTX;
	c.batch_max = 8;
	c.wire = WIRE_F32;
	if (stage_work_measure(&c, &size, &em) != OK || stage_work_open(&c, &out, &em) != OK)
		fail_msg("%s", em.text);
	assert_true(size.bytes >= stage_work_bytes(out));
	return out;
}

// A batch: what each slot wants of its step's last token.
struct batch {
	struct stage_item items[N_SLOTS];
	uint8_t *wire[N_SLOTS];
};

static const enum head_want wants[N_SLOTS] = {HEAD_BEST, HEAD_LOGITS, HEAD_NOTHING};

static void fill(const struct world *w, struct batch *b, int32_t step, bool wants_logits)
{
	struct rng r;
	rng_init(&r, (uint64_t)step + 1);
	for (int32_t i = 0; i < N_SLOTS; i++) {
		int32_t n = step == 0 ? 2 : 1;
		for (size_t k = 0; k < (size_t)n * 256; k++)
			store_u32(b->wire[i] + 4 * k, fmath_bits((float)(int32_t)rng_below(&r, 2001) / 1000.0f - 1.0f));
		b->items[i] = (struct stage_item){.wire = b->wire[i], .slot = i, .pos = step == 0 ? 0 : step + 1, .n_tokens = n,
			.want = wants_logits ? wants[i] : HEAD_NOTHING};
	}
	(void)w;
}

static void open_batch(struct batch *b)
{
	for (int32_t i = 0; i < N_SLOTS; i++)
		b->wire[i] = calloc(1, 8192);
}

static void close_batch(struct batch *b)
{
	for (int32_t i = 0; i < N_SLOTS; i++)
		free(b->wire[i]);
}

// expect_reply compares what a stage made of a token's logits with what the head makes of its hidden state.
static void expect_reply(struct stage_work *head, struct stage_work *embedder, const struct batch *want, const struct batch *got, size_t row)
{
	struct rng r;
	rng_init(&r, 9);
	for (int32_t i = 0; i < 2; i++) {
		struct logits_hash a, b;
		logits_hash_init(&a);
		logits_hash_init(&b);
		struct sampling s = draw_sampling(&r);
		struct sample_item local = {.wire = want->wire[i] + (size_t)(want->items[i].n_tokens - 1) * row, .n_rows = 1, .draw = true, .pos = 4, .sampling = s,
			.hash = wants[i] == HEAD_LOGITS ? &a : NULL};
		struct sample_item other = {.wire = got->wire[i], .n_rows = 1, .draw = true, .pos = 4, .sampling = s, .want = wants[i],
			.hash = wants[i] == HEAD_LOGITS ? &b : NULL};
		assert_int_equal(got->items[i].err, OK);
		stage_work_sample(head, &local, 1);
		stage_work_sample(embedder, &other, 1);
		assert_int_equal(local.err, OK);
		assert_int_equal(other.err, OK);
		assert_int_equal(local.token, other.token);
		char hex[2][2 * LOGITS_HASH_BYTES + 1];
		logits_hash_hex(&a, hex[0]);
		logits_hash_hex(&b, hex[1]);
		assert_string_equal(hex[0], hex[1]);
	}
	assert_memory_equal(want->wire[2], got->wire[2], row); // who wants nothing gets its state
}

// run_members goes through all exchanges of a batch, of which the last one is the head's.
static void run_members(struct stage_work **m, struct batch *b, int32_t n)
{
	static uint8_t own[GROUP_MEMBERS_MAX][65536], parts[GROUP_MEMBERS_MAX][GROUP_MEMBERS_MAX][65536];
	struct stage_turn turn[GROUP_MEMBERS_MAX] = {{0}};
	for (int32_t i = 0; i < n; i++) {
		assert_true(stage_work_part_bytes(m[i]) <= sizeof own[0]);
		stage_work_member_begin(m[i], 0, 1, b[i].items, N_SLOTS, own[i], &turn[i]);
	}
	while (turn[0].waits) {
		for (int32_t i = 0; i < n; i++) {
			for (int32_t k = 0; k < n; k++) {
				assert_int_equal(turn[i].to[k].len, k == i ? 0 : turn[k].bytes[i]);
				assert_true(turn[i].to[k].len <= stage_work_part_bytes(m[k]));
				memcpy(parts[k][i], own[i] + turn[i].to[k].at, turn[i].to[k].len);
			}
		}
		for (int32_t i = 0; i < n; i++) {
			const uint8_t *at[GROUP_MEMBERS_MAX];
			for (int32_t k = 0; k < n; k++)
				at[k] = parts[i][k];
			stage_work_member_continue(m[i], at, own[i], &turn[i]);
			assert_false(turn[i].was_cut);
		}
	}
}

static void compare(struct world *w, const uint32_t *shares, int32_t n)
{
	struct split_shape shape = engine_split_shape(w->model);
	struct tensor_split split;
	struct layer_spans layers = layer_spans_one(0, 1);
	assert_int_equal(tensor_split_make(&shape, SPLIT_GATHER, shares, n, &split, NULL), OK);
	struct stage_work *whole = open_work(w, (struct engine_config){.layers = layers}), *last = open_work(w, (struct engine_config){.layers = layers, .has_output = true});
	struct stage_work *group = open_work(w, (struct engine_config){.layers = layers, .has_output = true, .split = &split, .member = MEMBER_EACH});
	struct stage_work *head = open_work(w, (struct engine_config){.has_head = true}), *embedder = open_work(w, (struct engine_config){.has_head = true, .embeds_only = true});
	struct stage_work *members[GROUP_MEMBERS_MAX];
	struct batch b[3], of_members[GROUP_MEMBERS_MAX];
	for (int32_t i = 0; i < n; i++) {
		members[i] = open_work(w, (struct engine_config){.layers = layers, .has_output = true, .split = &split, .member = i});
		open_batch(&of_members[i]);
	}
	for (int32_t i = 0; i < 3; i++)
		open_batch(&b[i]);
	for (int32_t step = 0; step < N_STEPS; step++) {
		for (int32_t i = 0; i < 3; i++)
			fill(w, &b[i], step, i > 0);
		for (int32_t i = 0; i < n; i++)
			fill(w, &of_members[i], step, true);
		stage_work_forward(whole, 0, 1, b[0].items, N_SLOTS);
		stage_work_forward(last, 0, 1, b[1].items, N_SLOTS);
		stage_work_forward(group, 0, 1, b[2].items, N_SLOTS);
		expect_reply(head, embedder, &b[0], &b[1], w->row);
		expect_reply(head, embedder, &b[0], &b[2], w->row);
		if (n > 1) {
			run_members(members, of_members, n);
			expect_reply(head, embedder, &b[0], &of_members[0], w->row);
		}
	}
	struct tensor_group_stats stats;
	assert_true(stage_work_group_stats(group, &stats));
	size_t best = 0;
	for (int32_t i = 0; i < n; i++)
		best += head_reply_bytes(HEAD_BEST, split_len(split.parts[i].vocab_rows));
	assert_int_equal(stats.head_bytes, N_STEPS * (best + head_reply_bytes(HEAD_LOGITS, shape.vocab_size)));
	struct stage_work *all[] = {whole, last, group, head, embedder};
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		stage_work_close(all[i]);
	for (int32_t i = 0; i < n; i++) {
		stage_work_close(members[i]);
		close_batch(&of_members[i]);
	}
	for (int32_t i = 0; i < 3; i++)
		close_batch(&b[i]);
}

static void rows_of_every_type_give_the_head_s_tokens_and_logits(void **state)
{
	static const uint32_t shares[][GROUP_MEMBERS_MAX] = {{3, 2, 1}, {0, 1}, {1}, {5, 0, 0, 1}, {1, 1, 1, 1, 1, 1, 1, 1}};
	static const int32_t n_shares[] = {3, 2, 1, 4, 8};
	(void)state;
	int32_t n_types = 0;
	for (int type = 0; type <= DTYPE_ID_MAX; type++) {
		if (dtype_find((enum dtype)type) == NULL || !kernels_has_type((enum dtype)type))
			continue;
		struct world w;
		open_world(&w, (enum dtype)type, type % 2 == 0);
		for (size_t i = 0; i < ARRAY_LEN(shares); i++)
			if (!IS_INSTRUMENTED || (size_t)n_types % ARRAY_LEN(shares) == i)
				compare(&w, shares[i], n_shares[i]);
		close_world(&w);
		n_types++;
	}
	assert_true(n_types >= 8);
}

static void a_state_that_gives_no_logits_fails_its_token_alone(void **state)
{
	struct world w;
	struct batch b;
	(void)state;
	open_world(&w, DTYPE_F32, true);
	struct stage_work *last = open_work(&w, (struct engine_config){.layers = layer_spans_one(0, 1), .has_output = true});
	open_batch(&b);
	fill(&w, &b, 0, true);
	store_u32(b.wire[0] + w.row, fmath_bits(INFINITY));
	stage_work_forward(last, 0, 1, b.items, N_SLOTS);
	assert_int_equal(b.items[0].err, ERR_NON_FINITE);
	assert_int_equal(b.items[1].err, OK);
	assert_int_equal(b.items[2].err, OK);
	close_batch(&b);
	stage_work_close(last);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(joined_candidates_give_the_token_of_all_logits),
		cmocka_unit_test(logits_that_rise_give_the_last_ids),
		cmocka_unit_test(a_value_that_is_not_finite_fails_the_token_wherever_it_is),
		cmocka_unit_test(candidates_that_cannot_be_are_refused),
		cmocka_unit_test(a_member_that_sends_others_candidates_is_named),
		cmocka_unit_test(rows_of_every_type_give_the_head_s_tokens_and_logits),
		cmocka_unit_test(a_state_that_gives_no_logits_fails_its_token_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
