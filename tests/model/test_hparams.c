// Hyper-parameters of files whose container is valid: both sides of each limit.
#include "model/hparams.h"

#include "base/limits.h"
#include "model/gguf.h"
#include "tests/support/gguf_build.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum kind { DROP, U32, I32, F32, STR, I32S, TOKENS };

// One key of the file: its type and value. In a list of changes, it replaces the key of that name.
struct key {
	const char *name;
	enum kind kind;
	double number;       // of tokens for TOKENS
	const char *text;
	const int32_t *list; // (n)
	size_t n;
};

static const struct key defaults[] = {
	{.name = "general.architecture", .kind = STR, .text = "llama"},
	{.name = "llama.block_count", .kind = U32, .number = 3},
	{.name = "llama.context_length", .kind = U32, .number = 256},
	{.name = "llama.embedding_length", .kind = U32, .number = 64},
	{.name = "llama.feed_forward_length", .kind = U32, .number = 160},
	{.name = "llama.attention.head_count", .kind = U32, .number = 4},
	{.name = "llama.attention.head_count_kv", .kind = U32, .number = 2},
	{.name = "llama.rope.freq_base", .kind = F32, .number = 100000},
	{.name = "llama.attention.layer_norm_rms_epsilon", .kind = F32, .number = 0.0009765625},
	{.name = "tokenizer.ggml.tokens", .kind = TOKENS, .number = 300},
};

static void put_key(struct gguf_build *b, const struct key *k)
{
	switch (k->kind) {
	case DROP: break;
	case U32: gguf_build_kv_u32(b, k->name, (uint32_t)k->number); break;
	case I32:
		gguf_build_key(b, k->name, GGUF_I32);
		gguf_build_u32(b, (uint32_t)(int32_t)k->number);
		break;
	case F32: gguf_build_kv_f32(b, k->name, (float)k->number); break;
	case STR: gguf_build_kv_str(b, k->name, k->text); break;
	case I32S: gguf_build_kv_i32s(b, k->name, k->list, k->n); break;
	case TOKENS:
		gguf_build_key(b, k->name, GGUF_ARRAY);
		gguf_build_u32(b, GGUF_STRING);
		gguf_build_u64(b, (uint64_t)k->number);
		for (int i = 0; i < (int)k->number; i++)
			gguf_build_string(b, "", 0);
	}
}

// read_changed builds the default file with n changes (and one more tensor when `tensor` is given) and reads its hyper-parameters.
static enum err read_changed(const struct key *changes, size_t n, const char *tensor, struct hparams *hp, struct errmsg *em)
{
	struct gguf_build b;
	gguf_build_begin(&b, 3);
	for (size_t i = 0; i < ARRAY_LEN(defaults); i++) {
		const struct key *k = &defaults[i];
		for (size_t c = 0; c < n; c++)
			if (strcmp(changes[c].name, k->name) == 0)
				k = &changes[c];
		put_key(&b, k);
	}
	for (size_t c = 0; c < n; c++) {
		bool is_default = false;
		for (size_t i = 0; i < ARRAY_LEN(defaults); i++)
			is_default = is_default || strcmp(changes[c].name, defaults[i].name) == 0;
		if (!is_default)
			put_key(&b, &changes[c]);
	}
	if (tensor != NULL)
		gguf_build_tensor(&b, tensor, DTYPE_F32, 8, 1);
	gguf_build_begin_data(&b);
	gguf_build_zeros(&b);
	gguf_build_finish(&b);

	struct gguf g;
	em->text[0] = '\0';
	enum err e = gguf_parse(b.data, b.len, &g, em);
	assert_int_equal(e, OK);
	memset(hp, 0x55, sizeof *hp);
	e = hparams_read(&g, hp, em);
	gguf_deinit(&g);
	gguf_build_free(&b);
	return e;
}

static void refuse(struct key change, enum err want, const char *text)
{
	struct hparams hp;
	struct errmsg em;
	enum err e = read_changed(&change, 1, NULL, &hp, &em);
	if (e != want || strcmp(em.text, text) != 0)
		fail_msg("%s: error %d \"%s\", wanted %d \"%s\"", change.name, (int)e, em.text, (int)want, text);
	assert_int_equal(hp.n_layers, 0); // nothing half-read goes out
}

static struct hparams accept(const struct key *changes, size_t n)
{
	struct hparams hp;
	struct errmsg em;
	if (read_changed(changes, n, NULL, &hp, &em) != OK)
		fail_msg("refused: %s", em.text);
	return hp;
}

static struct hparams accept_one(struct key change)
{
	return accept(&change, 1);
}

static void a_plain_file_gives_our_names(void **state)
{
	(void)state;
	struct hparams hp = accept(NULL, 0);
	assert_int_equal(hp.arch, ARCH_LLAMA);
	assert_int_equal(hp.n_layers, 3);
	assert_int_equal(hp.hidden_dim, 64);
	assert_int_equal(hp.ffn_dim, 160);
	assert_int_equal(hp.n_heads, 4);
	assert_int_equal(hp.n_kv_heads, 2);
	assert_int_equal(hp.head_dim, 16);
	assert_int_equal(hp.rope_dim, 16);
	assert_int_equal(hp.vocab_size, 300);
	assert_int_equal(hp.ctx_len_train, 256);
	assert_true(hp.norm_eps == 0.0009765625f);
	assert_true(hp.rope_theta == 100000.0);
	assert_true(hp.tied_embeddings);
	struct errmsg em;
	assert_int_equal(read_changed(NULL, 0, "output.weight", &hp, &em), OK);
	assert_false(hp.tied_embeddings);
	assert_string_equal(arch_name(ARCH_LLAMA), "llama");
}

static void optional_keys_have_defaults(void **state)
{
	(void)state;
	struct hparams hp = accept_one((struct key){.name = "llama.attention.head_count_kv"});
	assert_int_equal(hp.n_kv_heads, 4); // as many as heads
	hp = accept_one((struct key){.name = "llama.rope.freq_base"});
	assert_true(hp.rope_theta == 10000.0);
	hp = accept_one((struct key){"llama.rope.dimension_count", U32, .number = 8});
	assert_int_equal(hp.rope_dim, 8);
	const struct key wide[] = {{"llama.attention.key_length", U32, .number = 24}, {"llama.attention.value_length", U32, .number = 24},
		{"llama.embedding_length", U32, .number = 70}};
	hp = accept(wide, 3); // heads need not divide the hidden width then
	assert_int_equal(hp.head_dim, 24);
	assert_int_equal(hp.rope_dim, 24);
	hp = accept_one((struct key){"llama.block_count", I32, .number = 7}); // any integer type serves
	assert_int_equal(hp.n_layers, 7);
}

static void the_architecture_is_named(void **state)
{
	(void)state;
	const char *key = "general.architecture";
	refuse((struct key){key, DROP, .number = 0}, ERR_NOT_FOUND, "key general.architecture is missing, wanted a string");
	refuse((struct key){key, U32, .number = 1}, ERR_FORMAT, "key general.architecture has type u32, wanted string");
	refuse((struct key){key, STR, .text = "qwen2"}, ERR_UNSUPPORTED, "architecture \"qwen2\" is not supported (this program runs llama and qwen3moe)");
	refuse((struct key){key, STR, .text = "llama\n"}, ERR_UNSUPPORTED, "architecture \"llama?\" is not supported (this program runs llama and qwen3moe)");
	refuse((struct key){key, STR, .text = ""}, ERR_UNSUPPORTED, "architecture \"\" is not supported (this program runs llama and qwen3moe)");
}

static void sizes_have_both_limits(void **state)
{
	(void)state;
	refuse((struct key){"llama.block_count", U32, .number = 0}, ERR_FORMAT, "key llama.block_count is 0, wanted 1 to 1024");
	refuse((struct key){"llama.block_count", U32, .number = 1025}, ERR_LIMIT, "key llama.block_count is 1025, wanted 1 to 1024");
	refuse((struct key){"llama.block_count", U32, .number = 65536}, ERR_LIMIT, "key llama.block_count is 65536, wanted 1 to 1024");
	refuse((struct key){"llama.block_count", I32, .number = -1}, ERR_FORMAT,
		"key llama.block_count has type i32 and is negative, wanted an integer of 0 or more");
	assert_int_equal(accept_one((struct key){"llama.block_count", U32, .number = 1}).n_layers, 1);
	assert_int_equal(accept_one((struct key){"llama.block_count", U32, .number = LAYERS_MAX}).n_layers, LAYERS_MAX);
	refuse((struct key){"llama.embedding_length", U32, .number = 0}, ERR_FORMAT, "key llama.embedding_length is 0, wanted 1 to 1048576");
	refuse((struct key){"llama.embedding_length", U32, .number = 4294967295}, ERR_LIMIT,
		"key llama.embedding_length is 4294967295, wanted 1 to 1048576");
	refuse((struct key){"llama.embedding_length", DROP, .number = 0}, ERR_NOT_FOUND, "key llama.embedding_length is missing, wanted an integer");
	refuse((struct key){"llama.feed_forward_length", U32, .number = 0}, ERR_FORMAT, "key llama.feed_forward_length is 0, wanted 1 to 1048576");
	refuse((struct key){"llama.context_length", U32, .number = 0}, ERR_FORMAT, "key llama.context_length is 0, wanted 1 to 268435456");
	refuse((struct key){"llama.context_length", U32, .number = 4294967295}, ERR_LIMIT,
		"key llama.context_length is 4294967295, wanted 1 to 268435456");
	assert_int_equal(accept_one((struct key){"llama.context_length", U32, .number = CTX_LEN_TRAIN_MAX}).ctx_len_train, CTX_LEN_TRAIN_MAX);
}

static void heads_fit_each_other(void **state)
{
	(void)state;
	refuse((struct key){"llama.attention.head_count", U32, .number = 0}, ERR_FORMAT, "key llama.attention.head_count is 0, wanted 1 to 4096");
	refuse((struct key){"llama.attention.head_count_kv", U32, .number = 0}, ERR_FORMAT,
		"key llama.attention.head_count_kv is 0, wanted 1 to 4096");
	refuse((struct key){"llama.attention.head_count_kv", U32, .number = 5}, ERR_FORMAT,
		"5 kv heads for 4 heads, wanted a divisor of the heads");
	refuse((struct key){"llama.attention.head_count_kv", U32, .number = 8}, ERR_FORMAT,
		"8 kv heads for 4 heads, wanted a divisor of the heads");
	refuse((struct key){"llama.attention.head_count_kv", U32, .number = 3}, ERR_FORMAT,
		"3 kv heads for 4 heads, wanted a divisor of the heads");
	assert_int_equal(accept_one((struct key){"llama.attention.head_count_kv", U32, .number = 4}).n_kv_heads, 4);
	assert_int_equal(accept_one((struct key){"llama.attention.head_count_kv", U32, .number = 1}).n_kv_heads, 1);
	refuse((struct key){"llama.embedding_length", U32, .number = 66}, ERR_FORMAT,
		"key llama.embedding_length is 66, wanted a multiple of the 4 heads, since llama.attention.key_length is missing");
	refuse((struct key){"llama.embedding_length", U32, .number = 48}, ERR_UNSUPPORTED, "head width is 12, wanted a multiple of 8");
	refuse((struct key){"llama.attention.key_length", U32, .number = 520}, ERR_LIMIT, "key llama.attention.key_length is 520, wanted 1 to 512");
	refuse((struct key){"llama.attention.value_length", U32, .number = 8}, ERR_UNSUPPORTED,
		"key llama.attention.value_length is 8, wanted 16 as for keys: heads of two sizes are not supported");
	const struct key big[] = {{"llama.attention.head_count", U32, .number = 4096}, {"llama.attention.key_length", U32, .number = 512},
		{"llama.attention.head_count_kv", DROP, .number = 0}};
	struct hparams hp;
	struct errmsg em;
	assert_int_equal(read_changed(big, 3, NULL, &hp, &em), ERR_LIMIT);
	assert_string_equal(em.text, "4096 heads of 512 are over the width limit 1048576");
}

static void per_layer_values_must_be_as_many_as_layers_and_equal(void **state)
{
	(void)state;
	static const int32_t same[] = {2, 2, 2}, differ[] = {2, 4, 2}, few[] = {2, 2}, minus[] = {2, -2, 2}, zero[] = {0, 0, 0}, four[] = {2, 2, 2, 2};
	const char *key = "llama.attention.head_count_kv";
	assert_int_equal(accept_one((struct key){key, I32S, .list = same, .n = 3}).n_kv_heads, 2);
	refuse((struct key){key, I32S, .list = differ, .n = 3}, ERR_UNSUPPORTED,
		"key llama.attention.head_count_kv differs between layers (2 in layer 0, 4 in layer 1): not supported");
	refuse((struct key){key, I32S, .list = few, .n = 2}, ERR_FORMAT,
		"key llama.attention.head_count_kv has 2 values, wanted one for each of 3 layers");
	refuse((struct key){key, I32S, .list = four, .n = 4}, ERR_FORMAT,
		"key llama.attention.head_count_kv has 4 values, wanted one for each of 3 layers");
	refuse((struct key){key, I32S, .list = NULL, .n = 0}, ERR_FORMAT,
		"key llama.attention.head_count_kv has 0 values, wanted one for each of 3 layers");
	refuse((struct key){key, I32S, .list = minus, .n = 3}, ERR_FORMAT,
		"key llama.attention.head_count_kv is an array of i32 and has a negative value, wanted integers of 0 or more");
	refuse((struct key){key, I32S, .list = zero, .n = 3}, ERR_FORMAT, "key llama.attention.head_count_kv is 0, wanted 1 to 4096");
	refuse((struct key){"llama.block_count", I32S, .list = same, .n = 3}, ERR_FORMAT, "key llama.block_count is an array, wanted an integer");
}

static void rope_is_even_and_fits_the_head(void **state)
{
	(void)state;
	const char *key = "llama.rope.dimension_count";
	refuse((struct key){key, U32, .number = 15}, ERR_FORMAT, "RoPE dimension is 15, wanted an even number from 2 to the head width 16");
	refuse((struct key){key, U32, .number = 18}, ERR_FORMAT, "RoPE dimension is 18, wanted an even number from 2 to the head width 16");
	refuse((struct key){key, U32, .number = 0}, ERR_FORMAT, "key llama.rope.dimension_count is 0, wanted 1 to 512");
	assert_int_equal(accept_one((struct key){key, U32, .number = 16}).rope_dim, 16);
	assert_int_equal(accept_one((struct key){key, U32, .number = 2}).rope_dim, 2);
	key = "llama.rope.freq_base";
	refuse((struct key){key, F32, .number = 0}, ERR_FORMAT, "RoPE base is 0, wanted 1 to 1e12");
	refuse((struct key){key, F32, .number = (double)NAN}, ERR_FORMAT, "RoPE base is nan, wanted 1 to 1e12");
	refuse((struct key){key, F32, .number = (double)INFINITY}, ERR_FORMAT, "RoPE base is inf, wanted 1 to 1e12");
	refuse((struct key){key, F32, .number = -10000}, ERR_FORMAT, "RoPE base is -10000, wanted 1 to 1e12");
	refuse((struct key){key, U32, .number = 10000}, ERR_FORMAT, "key llama.rope.freq_base has type u32, wanted f32 or f64");
}

static void epsilon_is_a_small_number(void **state)
{
	(void)state;
	const char *key = "llama.attention.layer_norm_rms_epsilon";
	refuse((struct key){key, F32, .number = (double)NAN}, ERR_FORMAT, "norm epsilon is nan, wanted 0 to 1");
	refuse((struct key){key, F32, .number = -0.5}, ERR_FORMAT, "norm epsilon is -0.5, wanted 0 to 1");
	refuse((struct key){key, F32, .number = 2}, ERR_FORMAT, "norm epsilon is 2, wanted 0 to 1");
	refuse((struct key){key, DROP, .number = 0}, ERR_NOT_FOUND, "key llama.attention.layer_norm_rms_epsilon is missing, wanted a float");
	accept_one((struct key){key, F32, .number = 0});
	accept_one((struct key){key, F32, .number = 1});
}

static void the_vocabulary_agrees_with_itself(void **state)
{
	(void)state;
	const char *key = "tokenizer.ggml.tokens";
	refuse((struct key){key, TOKENS, .number = 0}, ERR_FORMAT, "tokenizer.ggml.tokens has 0 tokens, wanted 1 to 4194304");
	refuse((struct key){key, U32, .number = 300}, ERR_FORMAT, "key tokenizer.ggml.tokens is u32, wanted an array of strings");
	refuse((struct key){key, DROP, .number = 0}, ERR_NOT_FOUND, "key llama.vocab_size is missing, wanted an integer");
	refuse((struct key){"llama.vocab_size", U32, .number = 301}, ERR_FORMAT,
		"key llama.vocab_size is 301, wanted 300, the number of tokenizer.ggml.tokens");
	const struct key without[] = {{"tokenizer.ggml.tokens", DROP, .number = 0}, {"llama.vocab_size", U32, .number = 77}};
	assert_int_equal(accept(without, 2).vocab_size, 77);
}

static void what_is_not_computed_is_refused_not_ignored(void **state)
{
	(void)state;
	struct hparams hp;
	struct errmsg em;
	refuse((struct key){"llama.expert_shared_count", U32, .number = 1}, ERR_UNSUPPORTED, "experts with llama.expert_shared_count 1 are not supported");
	refuse((struct key){"llama.expert_gating_func", U32, .number = 2}, ERR_UNSUPPORTED, "experts with llama.expert_gating_func 2 are not supported");
	refuse((struct key){"llama.expert_weights_scale", F32, .number = 2.5}, ERR_UNSUPPORTED,
		"experts with llama.expert_weights_scale 2.5 are not supported");
	refuse((struct key){"llama.expert_weights_scale", STR, .text = "1"}, ERR_FORMAT, "key llama.expert_weights_scale has type string, wanted a number");
	refuse((struct key){"llama.leading_dense_block_count", U32, .number = 1}, ERR_UNSUPPORTED,
		"experts with llama.leading_dense_block_count 1 are not supported");
	accept_one((struct key){"llama.expert_weights_scale", F32, .number = 1});

	const char *key = "llama.rope.scaling.type";
	refuse((struct key){key, STR, .text = "linear"}, ERR_UNSUPPORTED, "RoPE scaling \"linear\" (llama.rope.scaling.type) is not supported");
	refuse((struct key){key, STR, .text = "yarn"}, ERR_UNSUPPORTED, "RoPE scaling \"yarn\" (llama.rope.scaling.type) is not supported");
	refuse((struct key){key, U32, .number = 1}, ERR_FORMAT, "key llama.rope.scaling.type has type u32, wanted string");
	accept_one((struct key){key, STR, .text = "none"});
	refuse((struct key){"llama.rope.scale_linear", F32, .number = 4}, ERR_UNSUPPORTED,
		"linear RoPE scaling by 4 (llama.rope.scale_linear) is not supported");
	accept_one((struct key){"llama.rope.scale_linear", F32, .number = 1});
	assert_int_equal(read_changed(NULL, 0, "rope_freqs.weight", &hp, &em), ERR_UNSUPPORTED);
	assert_string_equal(em.text, "RoPE frequency factors (tensor rope_freqs.weight) are not supported");
}

static void experts_are_counted_and_used_within_their_number(void **state)
{
	(void)state;
	struct hparams hp = accept_one((struct key){"llama.expert_count", U32, .number = 0});
	assert_int_equal(hp.n_experts, 0);
	assert_int_equal(hp.n_experts_used, 0);
	const struct key good[] = {{"llama.expert_count", U32, .number = 8}, {"llama.expert_used_count", U32, .number = 2}};
	hp = accept(good, 2);
	assert_int_equal(hp.n_experts, 8);
	assert_int_equal(hp.n_experts_used, 2);
	assert_int_equal(hp.ffn_dim, 160);
	refuse((struct key){"llama.expert_count", U32, .number = 8}, ERR_NOT_FOUND, "key llama.expert_used_count is missing, wanted an integer");
	refuse((struct key){"llama.expert_count", U32, .number = EXPERTS_MAX + 1}, ERR_LIMIT, "key llama.expert_count is 1025, wanted at most 1024");
	refuse((struct key){"llama.expert_count", I32, .number = -1}, ERR_FORMAT, "key llama.expert_count has type i32 and is negative, wanted an integer of 0 or more");
	struct errmsg em;
	const struct key many[] = {{"llama.expert_count", U32, .number = 2}, {"llama.expert_used_count", U32, .number = 3}};
	assert_int_equal(read_changed(many, 2, NULL, &hp, &em), ERR_FORMAT);
	assert_string_equal(em.text, "key llama.expert_used_count is 3, wanted at most 2 (llama.expert_count)");
	const struct key none[] = {{"llama.expert_count", U32, .number = 2}, {"llama.expert_used_count", U32, .number = 0}};
	assert_int_equal(read_changed(none, 2, NULL, &hp, &em), ERR_FORMAT);
	assert_string_equal(em.text, "key llama.expert_used_count is 0, wanted 1 to 1024");
}

#define QWEN(suffix, value) {"qwen3moe." suffix, U32, .number = value}

static void qwen3moe_has_its_own_keys_and_always_experts(void **state)
{
	(void)state;
	struct hparams hp;
	struct errmsg em;
	const struct key keys[] = {
		{"general.architecture", STR, .text = "qwen3moe"}, QWEN("block_count", 5), QWEN("context_length", 512), QWEN("embedding_length", 64),
		QWEN("attention.head_count", 4), QWEN("attention.head_count_kv", 2), QWEN("attention.key_length", 32), QWEN("attention.value_length", 32),
		{"qwen3moe.attention.layer_norm_rms_epsilon", F32, .number = 1e-6}, QWEN("expert_feed_forward_length", 96), QWEN("feed_forward_length", 999),
		QWEN("expert_count", 16), QWEN("expert_used_count", 4),
	};
	hp = accept(keys, ARRAY_LEN(keys));
	assert_int_equal(hp.arch, ARCH_QWEN3MOE);
	assert_int_equal(hp.n_layers, 5);
	assert_int_equal(hp.head_dim, 32);
	assert_int_equal(hp.ffn_dim, 96);
	assert_true(arch_has_qk_norm(hp.arch) && arch_rope_is_halves(hp.arch));
	assert_false(arch_has_qk_norm(ARCH_LLAMA) || arch_rope_is_halves(ARCH_LLAMA));
	assert_int_equal(read_changed(keys, ARRAY_LEN(keys) - 2, NULL, &hp, &em), ERR_FORMAT);
	assert_string_equal(em.text, "key qwen3moe.expert_count is missing or 0, wanted 1 to 1024");
	assert_int_equal(read_changed(keys, 9, NULL, &hp, &em), ERR_NOT_FOUND);
	assert_string_equal(em.text, "key qwen3moe.expert_feed_forward_length is missing, wanted an integer");
}

static void check_refuses_what_a_peer_could_say(void **state)
{
	(void)state;
	struct hparams good = accept(NULL, 0);
	struct errmsg em;
	assert_int_equal(hparams_check(&good, &em), OK);
	static const size_t fields[] = {offsetof(struct hparams, n_layers), offsetof(struct hparams, hidden_dim), offsetof(struct hparams, ffn_dim),
		offsetof(struct hparams, n_heads), offsetof(struct hparams, n_kv_heads), offsetof(struct hparams, head_dim),
		offsetof(struct hparams, rope_dim), offsetof(struct hparams, vocab_size), offsetof(struct hparams, ctx_len_train)};
	static const int32_t wrong[] = {0, -1, INT32_MIN, INT32_MAX};
	for (size_t f = 0; f < ARRAY_LEN(fields); f++)
		for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
			struct hparams hp = good;
			memcpy((char *)&hp + fields[f], &wrong[i], sizeof wrong[i]);
			assert_int_not_equal(hparams_check(&hp, &em), OK);
		}
	struct hparams hp = good;
	hp.arch = (enum arch)99;
	assert_int_equal(hparams_check(&hp, &em), ERR_UNSUPPORTED);
	static const int32_t experts[][2] = {{4, 0}, {0, 4}, {4, 5}, {-1, -1}, {-1, 0}, {INT32_MAX, 2}, {4, -1}};
	for (size_t i = 0; i < ARRAY_LEN(experts); i++) {
		hp = good;
		hp.n_experts = experts[i][0];
		hp.n_experts_used = experts[i][1];
		assert_int_equal(hparams_check(&hp, &em), ERR_FORMAT);
	}
	hp = good;
	hp.norm_eps = NAN;
	assert_int_equal(hparams_check(&hp, NULL), ERR_FORMAT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plain_file_gives_our_names),
		cmocka_unit_test(optional_keys_have_defaults),
		cmocka_unit_test(the_architecture_is_named),
		cmocka_unit_test(sizes_have_both_limits),
		cmocka_unit_test(heads_fit_each_other),
		cmocka_unit_test(per_layer_values_must_be_as_many_as_layers_and_equal),
		cmocka_unit_test(rope_is_even_and_fits_the_head),
		cmocka_unit_test(epsilon_is_a_small_number),
		cmocka_unit_test(the_vocabulary_agrees_with_itself),
		cmocka_unit_test(what_is_not_computed_is_refused_not_ignored),
		cmocka_unit_test(experts_are_counted_and_used_within_their_number),
		cmocka_unit_test(qwen3moe_has_its_own_keys_and_always_experts),
		cmocka_unit_test(check_refuses_what_a_peer_could_say),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
