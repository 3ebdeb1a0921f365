// What a member of a group reads of a model file: with nothing else of it, and the rest spoilt, members compute the bits of one engine.
#include "engine/weight_ranges.h"

#include "base/rng.h"
#include "engine/member.h"
#include "tests/support/made_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_MEMBERS 2
#define N_TOKENS 3

struct member {
	struct model *model;
	struct engine *e;
	struct pool *pool;
	float *hidden;
	struct engine_item item;
	uint8_t *out;
	struct split_sent to[GROUP_MEMBERS_MAX];
	bool waits;
};

static void must(enum err err, const struct errmsg *em)
{
	if (err != OK)
		fail_msg("%s", em->text);
}

static struct engine_config config_of(const struct model *m, struct pool *pool, const struct tensor_split *split, int32_t member)
{
	return (struct engine_config){.model = m, .kernels = kernels_find(NULL, NULL), .pool = pool, .layers = layer_spans_one(0, model_hparams(m)->n_layers),
		.n_slots = 1, .ctx_len = 8, .batch_max = N_TOKENS, .wire = WIRE_F32, .split = split, .member = member};
}

static uint8_t *read_file(const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	*len = (size_t)ftell(f);
	rewind(f);
	uint8_t *bytes = malloc(*len);
	assert_int_equal(fread(bytes, 1, *len, f), *len);
	fclose(f);
	return bytes;
}

// list returns what an engine of that config reads, and counts its bytes.
static struct weight_ranges list(const struct engine_config *c, uint64_t *bytes)
{
	struct weight_ranges r = {0};
	struct errmsg em = {{0}};
	must(weight_ranges_list(c, &r, &em), &em);
	*bytes = 0;
	for (size_t i = 0; i < r.n; i++)
		*bytes += r.at[i].bytes;
	return r;
}

// write_part writes the file with all weights of layers spoilt but a member's.
static void write_part(const char *from, const char *to, const struct engine_config *c, uint64_t *bytes, uint64_t *whole_bytes)
{
	size_t len;
	uint8_t *good = read_file(from, &len), *file = malloc(len);
	struct engine_config all = *c;
	all.split = NULL;
	struct weight_ranges whole = list(&all, whole_bytes), part = list(c, bytes);
	memcpy(file, good, len);
	for (size_t i = 0; i < whole.n; i++)
		memset(file + whole.at[i].at, 0xff, whole.at[i].bytes);
	for (size_t i = 0; i < part.n; i++)
		memcpy(file + part.at[i].at, good + part.at[i].at, part.at[i].bytes);
	FILE *f = fopen(to, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(file, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
	weight_ranges_deinit(&whole);
	weight_ranges_deinit(&part);
	free(good);
	free(file);
}

static void make_states(float *hidden, int32_t dim)
{
	struct rng r;
	rng_init(&r, 5);
	for (int32_t i = 0; i < N_TOKENS * dim; i++)
		hidden[i] = (float)(int32_t)rng_below(&r, 2001) / 1000.0f - 1.0f;
}

static void open_member(struct member *m, const char *path, const struct tensor_split *split, int32_t member)
{
	struct errmsg em = {{0}};
	*m = (struct member){0};
	must(model_open(path, &m->model, &em), &em);
	assert_int_equal(pool_open(1, &m->pool), OK);
	struct engine_config c = config_of(m->model, m->pool, split, member);
	must(engine_open(&c, &m->e, &em), &em);
	int32_t dim = model_hparams(m->model)->hidden_dim;
	m->hidden = malloc(N_TOKENS * (size_t)dim * sizeof *m->hidden);
	make_states(m->hidden, dim);
	m->item = (struct engine_item){.n_tokens = N_TOKENS, .hidden = m->hidden};
	m->out = split != NULL ? malloc(member_bytes_max(m->e, N_TOKENS)) : NULL;
}

static void close_member(struct member *m)
{
	engine_close(m->e);
	pool_close(m->pool);
	model_close(m->model);
	free(m->hidden);
	free(m->out);
}

static void compute(struct member *m)
{
	struct member_exchange at;
	struct errmsg em = {{0}};
	must(member_compute(m->e, &m->waits, &at, &em), &em);
	if (m->waits)
		member_export(m->e, m->out, m->to);
}

static void exchange(struct member *to, int32_t self, const struct member *from, int32_t other)
{
	struct errmsg em = {{0}};
	size_t len = member_bytes(to->e, other, self);
	if (len > 0)
		must(member_import(to->e, other, from->out + from->to[self].at, len, &em), &em);
}

static void run_group(struct member m[N_MEMBERS], int32_t n_layers)
{
	struct errmsg em = {{0}};
	for (int32_t i = 0; i < N_MEMBERS; i++)
		must(member_begin(m[i].e, 0, n_layers, &m[i].item, 1, &em), &em);
	do {
		for (int32_t i = 0; i < N_MEMBERS; i++)
			compute(&m[i]);
		for (int32_t i = 0; i < N_MEMBERS && m[i].waits; i++)
			exchange(&m[i], i, &m[1 - i], 1 - i);
	} while (m[0].waits);
	assert_false(m[1].waits);
}

// check_split computes with two members' parts of the file alone, and returns the second one's share of the bytes in per cent.
static int check_split(const char *dir, const char *path, enum split_mode mode, const uint32_t *shares)
{
	struct member one, m[N_MEMBERS];
	struct errmsg em = {{0}};
	struct tensor_split split;
	uint64_t bytes = 0, whole = 0;
	open_member(&one, path, NULL, 0);
	struct split_shape shape = engine_split_shape(one.model);
	must(tensor_split_make(&shape, mode, shares, N_MEMBERS, &split, &em), &em);
	for (int32_t i = 0; i < N_MEMBERS; i++) {
		char part[MADE_PATH_CAP];
		struct engine_config c = config_of(one.model, one.pool, &split, i);
		snprintf(part, sizeof part, "%s/part%d.gguf", dir, (int)i);
		write_part(path, part, &c, &bytes, &whole);
		open_member(&m[i], part, &split, i);
	}
	int32_t n_layers = model_hparams(one.model)->n_layers;
	size_t len = N_TOKENS * (size_t)model_hparams(one.model)->hidden_dim * sizeof(float);
	must(engine_forward(one.e, &one.item, 1, &em), &em);
	run_group(m, n_layers);
	for (int32_t i = 0; i < N_MEMBERS; i++) {
		assert_memory_equal(m[i].hidden, one.hidden, len);
		close_member(&m[i]);
	}
	close_member(&one);
	return (int)(bytes * 100 / whole);
}

static void with_its_part_of_the_file_a_member_computes_the_same_bits(void **state)
{
	(void)state;
	static const struct {
		const char *shape;
		enum split_mode mode;
		uint32_t shares[N_MEMBERS];
		int least, most; // per cent of all that the second member reads
	} cases[] = {
		{"layers=2,hidden=256,heads=8,kv_heads=4,ffn=512", SPLIT_GATHER, {3, 1}, 24, 27},
		{"layers=2,hidden=256,heads=8,kv_heads=2,ffn=512", SPLIT_GATHER, {3, 1}, 15, 30}, // heads are whole units
		{"layers=2,hidden=256,heads=8,kv_heads=4,ffn=512", SPLIT_GATHER, {1, 0}, 0, 2},
		{"layers=2,hidden=256,heads=8,kv_heads=4,ffn=512", SPLIT_MIXED, {3, 1}, 40, 50}, // all of down
		{"layers=2,hidden=256,heads=8,kv_heads=4,ffn=512", SPLIT_REDUCE_SCATTER, {3, 1}, 45, 65}, // .. and of o
		{"layers=2,hidden=256,heads=4,kv_heads=2,ffn=256,experts=8,experts_used=2", SPLIT_GATHER, {3, 1}, 20, 27},
		{"arch=qwen3moe,layers=2,hidden=256,heads=4,kv_heads=2,head_dim=64,ffn=256,experts=24,experts_used=5", SPLIT_GATHER, {1, 1}, 49, 52},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char dir[SCRATCH_CAP], path[MADE_PATH_CAP];
		assert_true(scratch_open(dir));
		made_model(dir, cases[i].shape, "Q4_0", "", path);
		int percent = check_split(dir, path, cases[i].mode, cases[i].shares);
		if (percent < cases[i].least || percent > cases[i].most)
			fail_msg("case %d: %d %% of the bytes", (int)i, percent);
		scratch_remove(dir);
	}
}

static void an_output_head_is_listed_by_its_rows_and_what_cannot_be_opened_not_at_all(void **state)
{
	(void)state;
	char dir[SCRATCH_CAP], path[MADE_PATH_CAP];
	struct model *m;
	struct errmsg em = {{0}};
	struct weight_ranges r = {0};
	assert_true(scratch_open(dir));
	made_model(dir, "layers=1,hidden=256,heads=4,kv_heads=2,ffn=256", "Q4_0", "", path);
	must(model_open(path, &m, &em), &em);
	struct tensor_split split;
	struct split_shape shape = engine_split_shape(m);
	must(tensor_split_make(&shape, SPLIT_GATHER, (const uint32_t[]){1, 1}, 2, &split, &em), &em);
	struct engine_config c = config_of(m, NULL, &split, 1);
	uint64_t layers, both;
	r = list(&c, &layers);
	weight_ranges_deinit(&r);
	c.has_output = true;
	r = list(&c, &both);
	weight_ranges_deinit(&r);
	struct tensor_view output = model_output(m);
	assert_int_equal(both - layers, (uint64_t)split_len(split.parts[1].vocab_rows) * output.row_bytes + 256 * sizeof(float)); // and the last norm
	split.parts[1].down_rows.end--;
	assert_int_equal(weight_ranges_list(&c, &r, &em), ERR_RANGE);
	assert_int_equal(r.n, 0);
	weight_ranges_deinit(&r);
	model_close(m);
	scratch_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(with_its_part_of_the_file_a_member_computes_the_same_bits),
		cmocka_unit_test(an_output_head_is_listed_by_its_rows_and_what_cannot_be_opened_not_at_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
