// The arithmetic of a memory cap: what is chosen keeps it, a larger choice would not, and a refusal says what would fit.
#include "engine/memory_budget.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

// A machine whose needs are linear, as they nearly are.
struct shape {
	uint64_t program, kept, blocks;
	uint64_t frames_per_token, compute_per_token; // of the chunk
	uint64_t kv_per_token;                        // of the context
	uint64_t head, layers, least;
};

static enum err linear(void *ctx, int32_t ctx_len, int32_t chunk, struct memory_needs *out, struct errmsg *em)
{
	const struct shape *s = ctx;
	(void)em;
	*out = (struct memory_needs){
		.program_anon = s->program / 2, .program_file = s->program - s->program / 2, .kept = s->kept, .blocks = s->blocks,
		.frames = s->frames_per_token * (uint64_t)chunk, .compute = s->compute_per_token * (uint64_t)chunk, .kv = s->kv_per_token * (uint64_t)ctx_len,
		.head_whole = s->head, .head_least = s->head < s->least ? s->head : s->least,
		.layers_whole = s->layers, .layers_least = s->layers < s->least ? s->layers : s->least,
	};
	return OK;
}

static const struct shape small = {.program = 20 * MIB, .frames_per_token = 20000, .compute_per_token = 30000, .kv_per_token = 46080,
	.head = 30 * MIB, .layers = 60 * MIB, .least = MIB};

static struct memory_request ask(const struct shape *s, uint64_t cap)
{
	static struct shape copy;
	copy = *s;
	return (struct memory_request){.cap = cap, .ctx_default = 4096, .chunk_default = 512, .measure = linear, .ctx = &copy};
}

static void assert_keeps_the_cap(const struct memory_budget *b)
{
	uint64_t rest = memory_needs_rest(&b->needs), anon = memory_needs_anon(&b->needs);
	assert_true(rest + b->head.bytes + b->layers.bytes <= b->cap);
	assert_true(anon + MEMORY_ANON_ROOM <= b->cap);
	assert_true(b->head.anon_bytes <= b->head.bytes || b->head.bytes == 0 || b->head.anon_bytes + b->layers.anon_bytes + anon + MEMORY_ANON_ROOM <= b->cap);
	assert_true(anon + b->head.anon_bytes + b->layers.anon_bytes + MEMORY_ANON_ROOM <= b->cap || b->head.anon_bytes + b->layers.anon_bytes == 0);
	assert_true(b->layers.anon_bytes <= b->layers.bytes);
}

static void with_room_for_all_the_defaults_are_taken(void **state)
{
	(void)state;
	struct memory_request q = ask(&small, 2048 * MIB);
	struct memory_budget b;
	assert_int_equal(memory_budget_make(&q, &b, NULL), OK);
	assert_int_equal(b.ctx_len, 4096);
	assert_int_equal(b.chunk, 512);
	assert_int_equal(b.head.bytes, 34 * MIB); // and the edges of its huge pages
	assert_true(b.layers.bytes >= 60 * MIB);
	assert_true(b.layers.anon_bytes >= 60 * MIB);
	assert_keeps_the_cap(&b);
}

static void a_small_cap_shortens_chunk_and_context(void **state)
{
	(void)state;
	struct memory_request q = ask(&small, 90 * MIB);
	struct memory_budget b;
	assert_int_equal(memory_budget_make(&q, &b, NULL), OK);
	assert_keeps_the_cap(&b);
	assert_true(b.chunk < 512 && b.chunk >= MEMORY_CHUNK_LEAST);
	assert_true(b.ctx_len < 4096);
	assert_int_equal(b.ctx_len % MEMORY_CTX_STEP, 0);
	assert_true(b.needs.kv <= b.layers.bytes + b.head.bytes);
	// One step more would take more than a quarter.
	struct memory_needs n;
	assert_int_equal(linear(q.ctx, b.ctx_len + MEMORY_CTX_STEP, b.chunk, &n, NULL), OK);
	uint64_t left = q.cap - memory_needs_anon(&n) - MEMORY_ANON_ROOM;
	assert_true(n.kv > (left + n.kv) / 4);
}

static void a_given_context_is_kept_or_refused_with_every_part(void **state)
{
	(void)state;
	struct memory_request q = ask(&small, 90 * MIB);
	struct memory_budget b;
	struct errmsg em = {{0}};
	q.ctx_given = 700;
	q.chunk_given = 32;
	assert_int_equal(memory_budget_make(&q, &b, &em), OK);
	assert_int_equal(b.ctx_len, 700);
	assert_int_equal(b.chunk, 32);
	assert_keeps_the_cap(&b);
	q.ctx_given = 4096;
	assert_int_equal(memory_budget_make(&q, &b, &em), ERR_LIMIT);
	const char *wanted[] = {"--mem of 90.0 MiB", "context of 4096 tokens", "program 20.0 MiB", "frames 0.6", "kept states 0.0", "computing 0.9",
		"KV cache 180.0", "weights at least 2.0", "together 203.5 MiB", "tokens would fit"};
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		if (strstr(em.text, wanted[i]) == NULL)
			fail_msg("\"%s\" is not in \"%s\"", wanted[i], em.text);
	int most = 0;
	assert_int_equal(sscanf(strstr(em.text, "; a context of"), "; a context of %d", &most), 1);
	q.ctx_given = most;
	assert_int_equal(memory_budget_make(&q, &b, &em), OK);
	q.ctx_given = most + MEMORY_CTX_STEP;
	assert_int_equal(memory_budget_make(&q, &b, &em), ERR_LIMIT);
}

static void a_cap_below_everything_is_refused(void **state)
{
	(void)state;
	struct memory_request q = ask(&small, 40 * MIB);
	struct memory_budget b;
	struct errmsg em = {{0}};
	assert_int_equal(memory_budget_make(&q, &b, &em), ERR_LIMIT);
	assert_non_null(strstr(em.text, "must stay 32 MiB below the cap"));
	double cap = 0;
	assert_non_null(strstr(em.text, "not even 64 tokens would fit"));
	assert_int_equal(sscanf(strstr(em.text, "takes a cap of"), "takes a cap of %lf MiB", &cap), 1);
	q.chunk_given = b.chunk;
	q.cap = (uint64_t)((cap + 0.05) * MIB); // it is written with one digit
	assert_int_equal(memory_budget_make(&q, &b, &em), OK);
	q.cap = (uint64_t)((cap - 0.05) * MIB);
	assert_int_equal(memory_budget_make(&q, &b, &em), ERR_LIMIT);
}

static void a_machine_without_layers_gives_the_head_everything(void **state)
{
	(void)state;
	struct shape s = small;
	s.layers = 0;
	s.kv_per_token = 0;
	struct memory_request q = ask(&s, 200 * MIB);
	struct memory_budget b;
	assert_int_equal(memory_budget_make(&q, &b, NULL), OK);
	assert_int_equal(b.layers.bytes, 0);
	assert_true(b.head.bytes >= s.head);
}

static void a_head_larger_than_half_is_streamed_in_proportion(void **state)
{
	(void)state;
	struct shape s = small;
	s.head = 500 * MIB;
	s.layers = 1500 * MIB;
	struct memory_request q = ask(&s, 400 * MIB);
	struct memory_budget b;
	assert_int_equal(memory_budget_make(&q, &b, NULL), OK);
	assert_keeps_the_cap(&b);
	assert_true(b.head.bytes < s.head);
	double ratio = (double)b.head.bytes / (double)(b.head.bytes + b.layers.bytes);
	assert_true(ratio > 0.24 && ratio < 0.26);
}

static void blocks_for_others_leave_less_for_weights(void **state)
{
	(void)state;
	struct shape s = small;
	s.layers = 400 * MIB;
	struct memory_request q = ask(&s, 200 * MIB);
	struct memory_budget without, with;
	struct errmsg em = {{0}};
	q.ctx_given = 64;
	q.chunk_given = 16;
	assert_int_equal(memory_budget_make(&q, &without, &em), OK);
	s.blocks = 14 * MIB;
	struct memory_request more = ask(&s, 200 * MIB);
	more.ctx_given = 64;
	more.chunk_given = 16;
	assert_int_equal(memory_budget_make(&more, &with, &em), OK);
	assert_keeps_the_cap(&with);
	assert_int_equal(without.head.bytes + without.layers.bytes - with.head.bytes - with.layers.bytes, 14 * MIB);
	more.ctx_given = 16384;
	assert_int_equal(memory_budget_make(&more, &with, &em), ERR_LIMIT);
	assert_non_null(strstr(em.text, "kept states 0.0, blocks for others 14.0, computing "));
}

static void any_shape_keeps_the_cap(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 9);
	int n_fit = 0;
	for (int i = 0; i < 5000; i++) {
		struct shape s = {.program = rng_below(&r, 60) * MIB, .kept = rng_below(&r, 3) * 20 * MIB, .blocks = rng_below(&r, 3) * 8 * MIB, .frames_per_token = rng_below(&r, 400000),
			.compute_per_token = rng_below(&r, 400000), .kv_per_token = 1 + rng_below(&r, 400000), .head = rng_below(&r, 900) * MIB,
			.layers = rng_below(&r, 40000) * MIB, .least = rng_below(&r, 8) * MIB};
		struct memory_request q = ask(&s, (33 + rng_below(&r, 4000)) * MIB);
		q.ctx_given = rng_below(&r, 3) == 0 ? 1 + (int32_t)rng_below(&r, 9000) : 0;
		struct memory_budget b;
		struct errmsg em = {{0}};
		enum err e = memory_budget_make(&q, &b, &em);
		if (e != OK) {
			assert_int_equal(e, ERR_LIMIT);
			assert_true(strlen(em.text) < ERRMSG_CAP - 1); // not cut
			continue;
		}
		n_fit++;
		assert_keeps_the_cap(&b);
		assert_true(b.layers.bytes >= b.needs.layers_least);
		assert_true(b.head.bytes >= b.needs.head_least);
		assert_true(q.ctx_given == 0 ? b.ctx_len >= 1 && b.ctx_len <= 4096 : b.ctx_len == q.ctx_given);
	}
	assert_in_range(n_fit, 1000, 4900);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(with_room_for_all_the_defaults_are_taken),
		cmocka_unit_test(a_small_cap_shortens_chunk_and_context),
		cmocka_unit_test(a_given_context_is_kept_or_refused_with_every_part),
		cmocka_unit_test(a_cap_below_everything_is_refused),
		cmocka_unit_test(a_machine_without_layers_gives_the_head_everything),
		cmocka_unit_test(a_head_larger_than_half_is_streamed_in_proportion),
		cmocka_unit_test(blocks_for_others_leave_less_for_weights),
		cmocka_unit_test(any_shape_keeps_the_cap),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
