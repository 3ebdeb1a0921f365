// A stage's work on a tiny random model: that each item of a batch fails or succeeds by itself, and in its own words. What is computed is the
// engine's (test_engine.c).
#include "engine/stage_work.h"

#include "model/gguf.h"
#include "model/model.h"
#include "tests/support/gguf_build.h"
#include "tests/support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HIDDEN 64 // of tiny_llama_default

struct world {
	char dir[SCRATCH_CAP], path[SCRATCH_CAP + 16];
	struct model *model;
	struct pool *pool;
	struct stage_work *stage, *head;
};

static struct stage_work *opened_as(struct world *w, bool has_head, const struct tensor_split *split, int32_t member)
{
	struct stage_work *out = NULL;
	struct errmsg em;
	struct engine_config c = {.model = w->model, .kernels = kernels_find(NULL, &em), .pool = w->pool, .layers = layer_spans_one(0, has_head ? 0 : 4), .n_slots = 4,
		.ctx_len = 16, .has_head = has_head, .batch_max = 16, .wire = WIRE_F16, .split = split, .member = member, .n_forwards = 2};
	if (stage_work_open(&c, &out, &em) != OK)
		fail_msg("%s", em.text);
	return out;
}

static struct stage_work *opened(struct world *w, bool has_head)
{
	return opened_as(w, has_head, NULL, 0);
}

// write_model makes the embeddings of tokens 8 and 9 too large for f16.
static void write_model(const char *path)
{
	struct tiny_llama t = tiny_llama_default(7);
	struct gguf_build b;
	struct gguf g = {0};
	t.embd_type = DTYPE_F32;
	gguf_build_tiny_llama(&b, &t);
	assert_int_equal(gguf_parse(b.data, b.len, &g, NULL), OK);
	const struct gguf_tensor *info = gguf_find_tensor(&g, "token_embd.weight");
	assert_non_null(info);
	const float big = 70000.0f;
	for (size_t token = 8; token <= 9; token++)
		memcpy(b.data + (info->data - b.data) + token * HIDDEN * sizeof big, &big, sizeof big);
	scratch_write(path, b.data, b.len);
	gguf_deinit(&g);
	gguf_build_free(&b);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	struct errmsg em;
	assert_non_null(w);
	assert_true(scratch_open(w->dir));
	snprintf(w->path, sizeof w->path, "%s/model.gguf", w->dir);
	write_model(w->path);
	if (model_open(w->path, &w->model, &em) != OK)
		fail_msg("%s", em.text);
	assert_int_equal(pool_open(1, &w->pool), OK);
	kernels_thread_init();
	w->stage = opened(w, false);
	w->head = opened(w, true);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	stage_work_close(w->stage);
	stage_work_close(w->head);
	pool_close(w->pool);
	model_close(w->model);
	int failed = scratch_remove(w->dir);
	free(w);
	return failed;
}

static void each_prompt_is_embedded_or_fails_in_its_own_words(void **state)
{
	struct world *w = *state;
	const int32_t tokens[] = {8, 7, 9};
	uint16_t rows[3][HIDDEN];
	struct embed_item items[3];
	for (int32_t i = 0; i < 3; i++)
		items[i] = (struct embed_item){.tokens = &tokens[i], .n_tokens = 1, .pos = 10 + i, .wire = (uint8_t *)rows[i]};
	stage_work_embed(w->head, items, 3);
	assert_int_equal(items[0].err, ERR_NON_FINITE);
	assert_non_null(strstr(items[0].em.text, "output of position 10 is out of f16's range"));
	assert_int_equal(items[1].err, OK);
	assert_int_equal(items[2].err, ERR_NON_FINITE);
	assert_non_null(strstr(items[2].em.text, "output of position 12 is out of f16's range"));
}

static void each_step_of_a_batch_fails_alone(void **state)
{
	struct world *w = *state;
	uint16_t rows[3][HIDDEN];
	struct stage_item items[3];
	for (int32_t i = 0; i < 3; i++) {
		for (int32_t k = 0; k < HIDDEN; k++)
			rows[i][k] = (uint16_t)(0x3800 + k); // 0.5 and a little
		items[i] = (struct stage_item){.wire = (uint8_t *)rows[i], .slot = i, .n_tokens = 1};
	}
	rows[1][3] = 0x7c00; // infinite
	stage_work_forward(w->stage, 0, 4, items, 3);
	assert_int_equal(items[0].err, OK);
	assert_int_equal(items[1].err, ERR_NON_FINITE);
	assert_non_null(strstr(items[1].em.text, "a hidden state arrived that is not finite"));
	assert_int_equal(items[2].err, OK);
	assert_memory_equal(rows[0], rows[2], sizeof rows[0]);
}

// ---- a group, each member with what it was told and has got from the others

#define MEMBERS 3
#define PART_MAX 8192

struct member {
	struct stage_work *stage;
	uint16_t rows[2][2][HIDDEN]; // two items of two tokens
	struct stage_item items[2];
	struct stage_turn turn;
	uint8_t own[PART_MAX], parts[MEMBERS][PART_MAX];
};

static struct member *open_group(struct world *w, enum split_mode mode)
{
	struct member *m = calloc(MEMBERS, sizeof *m);
	struct split_shape shape = engine_split_shape(w->model);
	struct tensor_split split;
	assert_int_equal(tensor_split_make(&shape, mode, (const uint32_t[]){3, 2, 1}, MEMBERS, &split, NULL), OK);
	for (int32_t i = 0; i < MEMBERS; i++) {
		m[i].stage = opened_as(w, false, &split, i);
		assert_true(stage_work_part_bytes(m[i].stage) <= PART_MAX);
	}
	return m;
}

static void close_group(struct member *m)
{
	for (int32_t i = 0; i < MEMBERS; i++)
		stage_work_close(m[i].stage);
	free(m);
}

static void fill(uint16_t rows[2][2][HIDDEN], struct stage_item items[2], int32_t pos)
{
	for (int32_t i = 0; i < 2; i++) {
		for (int32_t k = 0; k < 2 * HIDDEN; k++)
			rows[i][k / HIDDEN][k % HIDDEN] = (uint16_t)(0x3800 + 7 * k % 97 + i);
		items[i] = (struct stage_item){.wire = (uint8_t *)rows[i], .slot = i, .pos = pos, .n_tokens = 2};
	}
}

// run_group returns the number of exchanges. Contributions go over in an order that is nobody's own.
static int32_t run_group(struct member *m)
{
	int32_t n = 0;
	for (int32_t i = 0; i < MEMBERS; i++)
		stage_work_member_begin(m[i].stage, 0, 4, m[i].items, 2, m[i].own, &m[i].turn);
	for (; m[0].turn.waits; n++) {
		for (int32_t i = 0; i < MEMBERS; i++) {
			assert_true(m[i].turn.waits);
			for (int32_t k = 0; k < MEMBERS; k++) {
				struct split_sent sent = m[i].turn.to[k];
				assert_int_equal(sent.len, k == i ? 0 : m[k].turn.bytes[i]);
				memcpy(m[k].parts[i], m[i].own + sent.at, sent.len);
			}
		}
		for (int32_t i = MEMBERS - 1; i >= 0; i--) {
			const uint8_t *parts[MEMBERS] = {m[i].parts[0], m[i].parts[1], m[i].parts[2]};
			stage_work_member_continue(m[i].stage, parts, m[i].own, &m[i].turn);
		}
	}
	return n;
}

static void compare_with_one_stage(struct world *w, enum split_mode mode)
{
	struct member *m = open_group(w, mode);
	uint16_t rows[2][2][HIDDEN];
	struct stage_item items[2];
	for (int32_t pos = 0; pos < 4; pos += 2) {
		fill(rows, items, pos);
		rows[1][1][3] = pos == 2 ? 0x7c00 : 0x3800; // infinite: that item fails at all of them, and never comes
		for (int32_t i = 0; i < MEMBERS; i++) {
			fill(m[i].rows, m[i].items, pos);
			memcpy(m[i].rows, rows, sizeof rows);
		}
		stage_work_forward(w->stage, 0, 4, items, 2);
		assert_int_equal(run_group(m), 4 * split_exchanges(mode, MEMBERS, false));
		for (int32_t i = 0; i < MEMBERS; i++) {
			assert_false(m[i].turn.was_cut);
			assert_int_equal(m[i].items[0].err, OK);
			assert_int_equal(m[i].items[1].err, items[1].err);
			assert_memory_equal(m[i].rows, rows, sizeof rows);
		}
	}
	close_group(m);
}

static void members_compute_what_one_stage_does(void **state)
{
	for (int mode = 0; mode < N_SPLIT_MODES; mode++)
		compare_with_one_stage(*state, (enum split_mode)mode);
}

// hand_over lets everybody have what everybody contributes.
static void hand_over(struct member *m)
{
	for (int32_t i = 0; i < MEMBERS; i++) {
		assert_true(m[i].turn.waits);
		for (int32_t k = 0; k < MEMBERS; k++)
			memcpy(m[k].parts[i], m[i].own + m[i].turn.to[k].at, m[i].turn.to[k].len);
	}
}

static void continue_all(struct member *m)
{
	hand_over(m);
	for (int32_t i = MEMBERS - 1; i >= 0; i--) {
		const uint8_t *parts[MEMBERS] = {m[i].parts[0], m[i].parts[1], m[i].parts[2]};
		stage_work_member_continue(m[i].stage, parts, m[i].own, &m[i].turn);
	}
}

static void begin_all(struct member *m, int32_t forward, bool is_behind, const uint16_t rows[2][2][HIDDEN], int32_t pos)
{
	for (int32_t i = 0; i < MEMBERS; i++) {
		fill(m[i].rows, m[i].items, pos);
		memcpy(m[i].rows, rows, sizeof m[i].rows);
		m[i].turn = (struct stage_turn){.forward = forward, .is_behind = is_behind};
		stage_work_member_begin(m[i].stage, 0, 4, m[i].items, 2, m[i].own, &m[i].turn);
	}
}

// compare_two_under_way: of two forwards, the second computes each layer after the first.
static void compare_two_under_way(struct world *w, enum split_mode mode)
{
	struct member *a = open_group(w, mode), *b = calloc(MEMBERS, sizeof *b);
	uint16_t rows[2][2][2][HIDDEN];
	struct stage_item items[2][2];
	for (int32_t k = 0; k < 2; k++) {
		fill(rows[k], items[k], 2 * k);
		rows[k][0][1][5] = (uint16_t)(0x3811 + k);
	}
	for (int32_t i = 0; i < MEMBERS; i++)
		b[i].stage = a[i].stage;
	begin_all(a, 0, false, (const uint16_t (*)[2][HIDDEN])rows[0], 0);
	continue_all(a);
	begin_all(b, 1, true, (const uint16_t (*)[2][HIDDEN])rows[1], 2);
	while (a[0].turn.waits) {
		continue_all(a);
		continue_all(b);
	}
	while (b[0].turn.waits)
		continue_all(b);
	stage_work_forward(w->stage, 0, 4, items[0], 2);
	stage_work_forward(w->stage, 0, 4, items[1], 2);
	for (int32_t i = 0; i < MEMBERS; i++) {
		assert_memory_equal(a[i].rows, rows[0], sizeof rows[0]);
		assert_memory_equal(b[i].rows, rows[1], sizeof rows[1]);
		for (int32_t k = 0; k < 2; k++) {
			assert_int_equal(a[i].items[k].err, OK);
			assert_int_equal(b[i].items[k].err, OK);
		}
	}
	free(b);
	close_group(a);
}

static void two_forwards_under_way_compute_what_one_after_the_other_does(void **state)
{
	for (int mode = 0; mode < N_SPLIT_MODES; mode++)
		compare_two_under_way(*state, (enum split_mode)mode);
}

// A forward that was given up counts for nothing, and neither does one that was behind it.
static void what_was_given_up_is_not_built_on(void **state)
{
	struct world *w = *state;
	struct member *a = open_group(w, SPLIT_GATHER), *b = calloc(MEMBERS, sizeof *b);
	uint16_t rows[2][2][HIDDEN];
	struct stage_item items[2];
	fill(rows, items, 0);
	for (int32_t i = 0; i < MEMBERS; i++)
		b[i].stage = a[i].stage;
	begin_all(a, 0, false, (const uint16_t (*)[2][HIDDEN])rows, 0);
	continue_all(a);
	begin_all(b, 1, true, (const uint16_t (*)[2][HIDDEN])rows, 2);
	assert_true(b[0].turn.waits);
	begin_all(b, 1, false, (const uint16_t (*)[2][HIDDEN])rows, 2);
	assert_true(b[0].turn.was_cut);
	assert_int_equal(b[0].items[0].err, ERR_RANGE);
	begin_all(b, 1, false, (const uint16_t (*)[2][HIDDEN])rows, 0);
	assert_true(b[0].turn.waits);
	free(b);
	close_group(a);
}

static void a_member_names_the_items_that_it_cannot_begin(void **state)
{
	struct world *w = *state;
	struct member *m = open_group(w, SPLIT_GATHER);
	fill(m[0].rows, m[0].items, 0);
	m[0].items[1].pos = 5; // nothing before it was computed
	stage_work_member_begin(m[0].stage, 0, 4, m[0].items, 2, m[0].own, &m[0].turn);
	assert_true(m[0].turn.was_cut);
	assert_false(m[0].turn.waits);
	assert_int_equal(m[0].items[0].err, OK);
	assert_int_equal(m[0].items[1].err, ERR_RANGE);
	assert_non_null(strstr(m[0].items[1].em.text, "position 5 of slot 1"));
	close_group(m);
}

static void a_contribution_that_is_none_cuts_the_batch(void **state)
{
	struct world *w = *state;
	struct member *m = open_group(w, SPLIT_GATHER);
	fill(m[0].rows, m[0].items, 0);
	stage_work_member_begin(m[0].stage, 0, 4, m[0].items, 2, m[0].own, &m[0].turn);
	assert_true(m[0].turn.waits);
	memset(m[0].parts, 0x80, sizeof m[0].parts); // int8 -128
	const uint8_t *parts[MEMBERS] = {m[0].parts[0], m[0].parts[1], m[0].parts[2]};
	stage_work_member_continue(m[0].stage, parts, m[0].own, &m[0].turn);
	if (!m[0].turn.was_cut) // floats may have any bits, and fail the items
		assert_true(m[0].turn.waits);
	close_group(m);
}

static void each_token_is_drawn_or_fails_alone(void **state)
{
	struct world *w = *state;
	uint16_t rows[2][HIDDEN];
	struct sample_item items[2];
	for (int32_t i = 0; i < 2; i++) {
		for (int32_t k = 0; k < HIDDEN; k++)
			rows[i][k] = 0x3800;
		items[i] = (struct sample_item){.wire = (const uint8_t *)rows[i], .n_rows = 1, .draw = true, .pos = 3, .sampling = {.top_p = 1}};
	}
	rows[0][3] = 0x7c00;
	stage_work_sample(w->head, items, 2);
	assert_int_equal(items[0].err, ERR_NON_FINITE);
	assert_non_null(strstr(items[0].em.text, "came back"));
	assert_int_equal(items[1].err, OK);
}

static void a_file_that_changed_fails_every_item(void **state)
{
	struct world *w = *state;
	const int32_t token = 3;
	uint16_t rows[2][HIDDEN];
	struct embed_item embeds[2];
	struct stage_item items[2];
	for (int32_t i = 0; i < 2; i++) {
		embeds[i] = (struct embed_item){.tokens = &token, .n_tokens = 1, .wire = (uint8_t *)rows[i]};
		items[i] = (struct stage_item){.wire = (uint8_t *)rows[i], .slot = i, .n_tokens = 1};
	}
	stage_work_embed(w->head, embeds, 2);
	assert_int_equal(embeds[0].err, OK);
	assert_int_equal(embeds[1].err, OK);
	FILE *f = fopen(w->path, "ab");
	assert_non_null(f);
	fputc(0, f);
	fclose(f);
	stage_work_embed(w->head, embeds, 2);
	stage_work_forward(w->stage, 0, 4, items, 2);
	for (int32_t i = 0; i < 2; i++) {
		assert_int_equal(embeds[i].err, ERR_STATE);
		assert_int_equal(items[i].err, ERR_STATE);
		assert_true(embeds[i].em.text[0] != '\0');
		assert_string_equal(embeds[i].em.text, items[i].em.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_prompt_is_embedded_or_fails_in_its_own_words, setup, teardown),
		cmocka_unit_test_setup_teardown(each_step_of_a_batch_fails_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(members_compute_what_one_stage_does, setup, teardown),
		cmocka_unit_test_setup_teardown(two_forwards_under_way_compute_what_one_after_the_other_does, setup, teardown),
		cmocka_unit_test_setup_teardown(what_was_given_up_is_not_built_on, setup, teardown),
		cmocka_unit_test_setup_teardown(a_member_names_the_items_that_it_cannot_begin, setup, teardown),
		cmocka_unit_test_setup_teardown(a_contribution_that_is_none_cuts_the_batch, setup, teardown),
		cmocka_unit_test_setup_teardown(each_token_is_drawn_or_fails_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(a_file_that_changed_fails_every_item, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
