#include "cli/inspection.h"

#include "tests/support/gguf_build.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// shown parses b, inspects it, and returns what is printed, which the caller frees; b is freed.
static char *shown(struct gguf_build *b, const char *path, bool as_json, bool tensors)
{
	struct gguf g;
	struct errmsg em;
	if (gguf_parse(b->data, b->len, &g, &em) != OK)
		fail_msg("%s", em.text);
	struct inspection *in = malloc(sizeof *in);
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);
	assert_non_null(in);
	assert_non_null(to);
	inspection_fill(&g, path, in);
	if (as_json)
		assert_int_equal(inspect_print_json(to, in, path, tensors), OK);
	else
		inspect_print(to, in, path, tensors);
	assert_int_equal(fclose(to), 0);
	free(in);
	gguf_deinit(&g);
	gguf_build_free(b);
	return text;
}

static void has(const char *text, const char *part)
{
	if (strstr(text, part) == NULL)
		fail_msg("\"%s\" is not in:\n%s", part, text);
}

static void has_not(const char *text, const char *part)
{
	if (strstr(text, part) != NULL)
		fail_msg("\"%s\" is in:\n%s", part, text);
}

static void a_model_hearth_runs_is_described(void **state)
{
	(void)state;
	struct tiny_llama t = tiny_llama_default(1);
	struct gguf_build b;
	gguf_build_tiny_llama(&b, &t);
	char *text = shown(&b, "dir/tiny.gguf", false, false);
	has(text, "dir/tiny.gguf\n  name             tiny llama\n  architecture     llama\n");
	has(text, "  n_layers         4\n");
	has(text, "  hidden_dim       64\n");
	has(text, "  head_dim         16\n"); // not in the file
	has(text, "  norm_eps         1.525879e-05\n");
	has(text, "  q4_1                 28 tensors");
	has(text, "  layers 0 to 3    ");
	has(text, "  kind             gpt2, smollm\n  vocabulary       320 tokens, 61 merges\n");
	has(text, "  bos              1, not put before a prompt\n");
	has(text, "\nHearth can run it.\n");
	has_not(text, "\nTensors ");
	has_not(text, "blk.0");
	free(text);
	gguf_build_tiny_llama(&b, &t);
	text = shown(&b, "tiny.gguf", false, true);
	has(text, "\nTensors (columns x rows)\n");
	has(text, "  blk.3.ffn_down.weight        q4_1     160 x 64  ");
	free(text);
}

static void json_has_the_same_numbers(void **state)
{
	(void)state;
	struct tiny_llama t = tiny_llama_default(1);
	struct gguf_build b;
	gguf_build_tiny_llama(&b, &t);
	uint64_t bytes = b.len, header = b.data_at;
	char *text = shown(&b, "tiny.gguf", true, true);
	json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(j);
	assert_string_equal(json_string_value(json_object_get(j, "name")), "tiny llama");
	assert_int_equal(json_integer_value(json_object_get(j, "bytes")), bytes);
	assert_int_equal(json_integer_value(json_object_get(j, "header_bytes")), header);
	assert_int_equal(json_integer_value(json_object_get(j, "n_tensors")), 38);
	assert_true(json_is_true(json_object_get(j, "runs")));
	assert_int_equal(json_array_size(json_object_get(j, "problems")), 0);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "hparams"), "n_kv_heads")), 2);
	assert_int_equal(json_array_size(json_object_get(j, "layer_bytes")), 4);
	assert_int_equal(json_array_size(json_object_get(j, "tensors")), 38);
	uint64_t sum = (uint64_t)json_integer_value(json_object_get(j, "other_bytes")), by_type = 0;
	size_t i;
	json_t *v;
	json_array_foreach(json_object_get(j, "layer_bytes"), i, v)
		sum += (uint64_t)json_integer_value(v);
	json_array_foreach(json_object_get(j, "types"), i, v)
		by_type += (uint64_t)json_integer_value(json_object_get(v, "bytes"));
	assert_int_equal(sum, by_type);
	assert_int_equal(sum, bytes - header); // every tensor here is a multiple of the alignment
	// 320 x 64 embedding, per layer 2 norms, q k v o, gate up down, and the last norm
	assert_int_equal(json_integer_value(json_object_get(j, "parameters")), 320 * 64 + 4 * (128 + 64 * (64 + 32 + 32 + 64) + 3 * 64 * 160) + 64);
	json_decref(j);
	free(text);
}

static void another_architecture_is_described_and_each_reason_named(void **state)
{
	(void)state;
	struct gguf_build b;
	gguf_build_begin(&b, 2);
	gguf_build_kv_str(&b, "general.architecture", "qwen3moe");
	gguf_build_kv_u32(&b, "qwen3moe.block_count", 2);
	gguf_build_kv_i32s(&b, "qwen3moe.attention.head_count_kv", (const int32_t[]){4, 8}, 2);
	gguf_build_kv_u32(&b, "qwen3moe.expert_count", 128);
	gguf_build_kv_str(&b, "tokenizer.ggml.model", "t5");
	gguf_build_kv_u32(&b, "split.count", 3);
	gguf_build_tensor(&b, "blk.0.a", DTYPE_IQ1_M, 256, 2);
	gguf_build_tensor(&b, "blk.1.a", DTYPE_IQ1_M, 256, 2);
	gguf_build_tensor(&b, "blk.1.b", DTYPE_Q2_K, 256, 3);
	gguf_build_begin_data(&b);
	gguf_build_zeros(&b);
	gguf_build_finish(&b);
	char *text = shown(&b, "/models/x/some.gguf", false, false);
	has(text, "  name             some.gguf\n  architecture     qwen3moe\n");
	has(text, "  n_layers         2\n");
	has(text, "  n_kv_heads       4 to 8, by layer\n");
	has(text, "  n_experts        128\n");
	has(text, "  layer 0          112 bytes\n  layer 1          364 bytes\n  outside layers   0 bytes\n");
	has(text, "\nHearth cannot run it:\n");
	has(text, "  - one part of a model split into 3 files");
	has(text, "  - key qwen3moe.embedding_length is missing");
	has(text, "  - type iq1_m has no kernel (2 tensors, the first is blk.0.a)");
	has(text, "  - type q2_k has no kernel (1 tensors, the first is blk.1.b)");
	has(text, "  - tokenizer");
	free(text);
}

static void a_llama_with_several_unsupported_features_names_all(void **state)
{
	(void)state;
	struct gguf_build b;
	gguf_build_begin(&b, 3);
	gguf_build_kv_str(&b, "general.architecture", "llama");
	gguf_build_kv_u32(&b, "llama.expert_shared_count", 1);
	gguf_build_kv_str(&b, "llama.rope.scaling.type", "yarn");
	gguf_build_tensor(&b, "rope_freqs.weight", DTYPE_F32, 32, 1);
	gguf_build_begin_data(&b);
	gguf_build_zeros(&b);
	gguf_build_finish(&b);
	char *text = shown(&b, "x", true, false);
	json_t *j = json_loads(text, 0, NULL);
	assert_true(json_is_false(json_object_get(j, "runs")));
	const json_t *problems = json_object_get(j, "problems");
	assert_int_equal(json_array_size(problems), 4); // and no tokenizer
	has(json_string_value(json_array_get(problems, 0)), "experts with llama.expert_shared_count 1");
	has(json_string_value(json_array_get(problems, 1)), "RoPE scaling \"yarn\"");
	has(json_string_value(json_array_get(problems, 2)), "rope_freqs.weight");
	json_decref(j);
	free(text);
}

static void nothing_a_file_says_reaches_the_terminal_raw(void **state)
{
	(void)state;
	for (int as_json = 0; as_json <= 1; as_json++) {
		struct gguf_build b;
		gguf_build_begin(&b, 3);
		gguf_build_kv_str(&b, "general.architecture", "\033]0;evil\a\xff");
		gguf_build_kv_str(&b, "general.name", "\033[2J\xc2\x9bname\xe2\x80\xae");
		gguf_build_kv_str(&b, "tokenizer.ggml.model", "m\033[1m");
		gguf_build_kv_str(&b, "tokenizer.ggml.pre", "p\033[1m");
		gguf_build_tensor(&b, "blk.0.\033[31m\xff", DTYPE_IQ1_M, 256, 2);
		gguf_build_begin_data(&b);
		gguf_build_zeros(&b);
		gguf_build_finish(&b);
		char *text = shown(&b, "a\033file", as_json, true);
		for (const char *c = text; *c != '\0'; c++)
			if (((unsigned char)*c < 0x20 && *c != '\n') || (unsigned char)*c >= 0x7f)
				fail_msg("byte %02x at %td:\n%s", (unsigned char)*c, c - text, text);
		has(text, "?[2J?name?");
		has(text, "blk.0.?[31m?");
		if (as_json) {
			json_t *j = json_loads(text, 0, NULL);
			assert_non_null(j);
			json_decref(j);
		}
		free(text);
	}
}

static void odd_containers_are_described_too(void **state)
{
	(void)state;
	struct gguf_build b;
	gguf_build_begin(&b, 3);
	gguf_build_begin_data(&b);
	gguf_build_finish(&b);
	char *text = shown(&b, "empty", false, true);
	has(text, "  architecture     not said\n");
	has(text, "Tokenizer\n  none\n");
	has(text, "  - key general.architecture is missing, wanted a string\n");
	free(text);

	for (int as_json = 0; as_json <= 1; as_json++) {
		gguf_build_begin(&b, 3);
		gguf_build_kv_str(&b, "general.architecture", "odd");
		gguf_build_key(&b, "odd.rope.freq_base", GGUF_F32);
		gguf_build_u32(&b, 0x7fc00000); // NaN
		gguf_build_kv_u32(&b, "odd.embedding_length", 10);
		gguf_build_kv_u32(&b, "odd.attention.head_count", 0);
		gguf_build_kv_str(&b, "odd.block_count", "many");
		gguf_build_tensor(&b, "blk.99999999999999999999.a", DTYPE_F32, 4, 1);
		gguf_build_tensor(&b, "blk.1024.a", DTYPE_F32, 4, 1);
		gguf_build_tensor(&b, "blk..a", DTYPE_F32, 4, 1);
		gguf_build_tensor(&b, "blk.7", DTYPE_F32, 4, 1);
		gguf_build_tensor(&b, "blk.1023.a", DTYPE_F32, 4, 1);
		gguf_build_begin_data(&b);
		gguf_build_zeros(&b);
		gguf_build_finish(&b);
		text = shown(&b, "odd", as_json, false);
		if (as_json) {
			json_t *j = json_loads(text, 0, NULL);
			assert_non_null(j);
			assert_true(json_is_null(json_object_get(json_object_get(j, "hparams"), "rope_theta")));
			assert_int_equal(json_integer_value(json_object_get(j, "other_bytes")), 64);
			json_decref(j);
		} else {
			has(text, "  rope_theta       nan\n");
			has(text, "  layers 0 to 1022 0 bytes each\n  layer 1023       16 bytes\n  outside layers   64 bytes\n");
		}
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_model_hearth_runs_is_described),
		cmocka_unit_test(json_has_the_same_numbers),
		cmocka_unit_test(another_architecture_is_described_and_each_reason_named),
		cmocka_unit_test(a_llama_with_several_unsupported_features_names_all),
		cmocka_unit_test(nothing_a_file_says_reaches_the_terminal_raw),
		cmocka_unit_test(odd_containers_are_described_too),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
