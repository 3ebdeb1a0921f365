#include "sim/plan_model.h"

#include "engine/engine.h"
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

static struct plan_model named(const char *name, const char *type)
{
	struct plan_model m;
	struct errmsg em = {""};
	if (plan_model_of_name(name, type, WIRE_F32, &m, &em) != OK)
		fail_msg("%s", em.text);
	return m;
}

static void every_known_name_has_a_shape(void **state)
{
	(void)state;
	for (size_t i = 0; i < n_plan_models(); i++) {
		struct plan_model m = named(plan_model_name(i), NULL);
		assert_true(m.shape.n_layers > 0 && m.shape.layer_bytes > 0 && m.shape.kv_bytes > 0);
		plan_model_close(&m);
	}
}

// 16.06 GB in bf16 less the embedding, which the planner does not count: 128,256 rows of 4,096.
static void sizes_are_those_of_the_real_files(void **state)
{
	(void)state;
	struct plan_model m = named("8B", "bf16");
	assert_string_equal(m.name, "llama-3.1-8b-bf16");
	double total = (double)model_shape_total_bytes(&m.shape) + 128256.0 * 4096 * 2;
	assert_true(total > 16.05e9 && total < 16.07e9);
	assert_int_equal(m.shape.hop_bytes, 4096 * 4);
	plan_model_close(&m);
}

static void the_usual_weights_are_q4_k_with_a_finer_head(void **state)
{
	(void)state;
	struct plan_model m = named("llama-3.3-70b", NULL);
	assert_int_equal(m.shape.type, DTYPE_Q4_K);
	assert_int_equal(m.shape.head_bytes, UINT64_C(128256) * (8192 / 256 * 210));
	plan_model_close(&m);
	m = named("smollm2-135m", NULL); // rows of 576 are no whole blocks of 256
	assert_int_equal(m.shape.type, DTYPE_Q4_0);
	plan_model_close(&m);
}

static void a_wrong_name_or_type_gets_the_nearest_or_the_list(void **state)
{
	(void)state;
	struct plan_model m;
	struct errmsg em = {""};
	assert_int_equal(plan_model_of_name("llama-3.1-7b", NULL, WIRE_F32, &m, &em), ERR_NOT_FOUND);
	assert_non_null(strstr(em.text, "llama-3.1-7b is no file and no known model, did you mean llama-"));
	assert_int_equal(plan_model_of_name("nothing-like-it", NULL, WIRE_F32, &m, &em), ERR_NOT_FOUND);
	assert_non_null(strstr(em.text, "want a GGUF file or one of smollm2-135m, "));
	assert_int_equal(plan_model_of_name("8B", "q9", WIRE_F32, &m, &em), ERR_NOT_FOUND);
	assert_non_null(strstr(em.text, "no weight type q9, want one of f32, f16, q4_0"));
	assert_int_equal(plan_model_of_name("135M", "q4_k", WIRE_F32, &m, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "no whole blocks of q4_k"));
}

static void other_weights_scale_what_was_given_in_bytes(void **state)
{
	(void)state;
	static const char text[] = "name = 'x'\n[model]\nname = 'm'\nlayers = 8\nhidden = 256\nweights = 'q4_k'\nlayer_bytes = '144 MB'\nhead_bytes = '0 B'\n"
				   "[[device]]\nname = 'a'\nmemory = '16 GiB'\ncpu_read = '10 GB/s'\n";
	struct scenario s;
	struct plan_model m;
	struct model_shape q8;
	struct errmsg em = {""};
	assert_int_equal(scenario_open_cluster("x", text, strlen(text), NULL, &s, &em), OK);
	assert_int_equal(plan_model_of_scenario(&s, &m, &em), OK);
	scenario_close(&s);
	assert_int_equal(plan_model_in_type(&m, DTYPE_Q8_0, &q8, &em), OK);
	assert_int_equal(q8.layer_bytes, 144000000 / 4.5 * 8.5); // bits per weight
	assert_true(model_shape_layer_flops(&q8, 0) == model_shape_layer_flops(&m.shape, 0));
	plan_model_close(&m);
}

static void a_scenario_without_a_model_is_no_model(void **state)
{
	(void)state;
	static const char text[] = "[[device]]\nname = 'a'\nmemory = '16 GiB'\ncpu_read = '10 GB/s'\n";
	struct scenario s;
	struct plan_model m;
	struct errmsg em = {""};
	assert_int_equal(scenario_open_cluster("x", text, strlen(text), NULL, &s, &em), OK);
	assert_int_equal(plan_model_of_scenario(&s, &m, &em), ERR_NOT_FOUND);
	assert_string_equal(em.text, "the file has no [model]");
	scenario_close(&s);
}

// What a file's layers are made of decides how members share them, and the planner has to count what they do.
static void a_file_is_shared_in_a_plan_as_members_share_it(void **state)
{
	(void)state;
	static const enum dtype types[][3] = {{DTYPE_Q4_K, DTYPE_Q4_0, DTYPE_Q6_K}, {DTYPE_Q4_K, DTYPE_Q8_0, DTYPE_F32}, {DTYPE_Q4_0, DTYPE_Q8_0, DTYPE_Q4_1},
		{DTYPE_F16, DTYPE_F32, DTYPE_BF16}};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		char dir[SCRATCH_CAP], path[SCRATCH_CAP + 32];
		struct tiny_llama t = tiny_llama_default(i + 1);
		struct plan_model p;
		struct model *m;
		struct errmsg em = {""};
		t.n_layers = 3;
		t.hidden_dim = 256;
		t.ffn_dim = 768;
		t.n_heads = 8;
		t.n_kv_heads = 2;
		t.n_types = 3;
		memcpy(t.types, types[i], sizeof types[i]);
		assert_true(scratch_open(dir));
		snprintf(path, sizeof path, "%s/tiny.gguf", dir);
		gguf_build_tiny_llama_file(path, &t);
		if (model_open(path, &m, &em) != OK || plan_model_of_gguf("tiny", model_gguf(m), WIRE_F32, &p, &em) != OK)
			fail_msg("%s", em.text);
		struct split_shape members = engine_split_shape(m);
		members.vocab_size = 0; // a plan leaves the output head to the coordinator
		assert_memory_equal(&p.shape.split, &members, sizeof members);
		plan_model_close(&p);
		model_close(m);
		scratch_remove(dir);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_known_name_has_a_shape),
		cmocka_unit_test(sizes_are_those_of_the_real_files),
		cmocka_unit_test(the_usual_weights_are_q4_k_with_a_finer_head),
		cmocka_unit_test(a_wrong_name_or_type_gets_the_nearest_or_the_list),
		cmocka_unit_test(other_weights_scale_what_was_given_in_bytes),
		cmocka_unit_test(a_scenario_without_a_model_is_no_model),
		cmocka_unit_test(a_file_is_shared_in_a_plan_as_members_share_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
