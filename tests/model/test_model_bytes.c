#include "model/model_bytes.h"

#include "tests/support/gguf_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

// count reads the file and counts its bytes.
static struct model_bytes count(struct gguf_build *b, int32_t n_layers)
{
	struct model_bytes out;
	struct errmsg em;
	struct gguf g;
	gguf_check_end(b);
	assert_int_equal(gguf_parse(b->data, b->len, &g, &em), OK);
	model_bytes_of(&g, n_layers, &out);
	gguf_deinit(&g);
	gguf_build_free(b);
	return out;
}

static void every_tensor_counts_for_its_layer(void **state)
{
	(void)state;
	struct gguf_build b = gguf_check_begin();
	gguf_build_tensor(&b, "token_embd.weight", DTYPE_F32, 8, 3);
	gguf_build_tensor(&b, "blk.0.attn_q.weight", DTYPE_F32, 8, 2);
	gguf_build_tensor(&b, "blk.0.ffn_norm.weight", DTYPE_F32, 8, 1);
	gguf_build_tensor(&b, "blk.10.attn_q.weight", DTYPE_F16, 8, 40);
	gguf_build_tensor(&b, "blk.11.attn_q.weight", DTYPE_F32, 8, 2); // beyond the layers
	gguf_build_tensor(&b, "blk.3.attn_output.weight", DTYPE_Q8_0, 32, 1);
	gguf_build_tensor(&b, "blk.4.ffn_down.weight", DTYPE_Q4_0, 32, 1);
	gguf_build_tensor(&b, "blk.5.ffn_gate_exps.weight", DTYPE_F16, 8, 5);
	gguf_build_tensor(&b, "blk.5.ffn_gate_inp.weight", DTYPE_F16, 8, 7); // the router
	gguf_build_tensor(&b, "blk.6.ffn_down.17.weight", DTYPE_F16, 8, 4);
	gguf_build_tensor(&b, "output.weight", DTYPE_F16, 8, 3);
	struct model_bytes m = count(&b, 11);
	assert_int_equal(m.experts, (5 + 4) * 8 * 2);
	assert_int_equal(m.layers[5], (5 + 7) * 8 * 2);
	assert_int_equal(m.layers[0], 8 * 3 * 4);
	assert_int_equal(m.layers[1], 0);
	assert_int_equal(m.layers[10], 8 * 40 * 2);
	assert_int_equal(m.head, 8 * 3 * 2);
	assert_int_equal(m.type, DTYPE_F16);
	assert_int_equal(m.o[3], DTYPE_Q8_0);
	assert_int_equal(m.down[4], DTYPE_Q4_0);
	assert_int_equal(m.o[4], DTYPE_F32);
	assert_int_equal(m.down[3], DTYPE_F32);
}

static void tied_embeddings_are_the_head(void **state)
{
	(void)state;
	struct gguf_build b = gguf_check_begin();
	gguf_build_tensor(&b, "token_embd.weight", DTYPE_F32, 8, 3);
	assert_int_equal(count(&b, 1).head, 8 * 3 * 4);
	b = gguf_check_begin();
	assert_int_equal(count(&b, 1).head, 0);
}

static void names_that_only_look_like_layers_count_nowhere(void **state)
{
	(void)state;
	static const char *const names[] = {"blk.", "blk..x", "blk.0", "blk.00000000000000000000000000000000009.x", "blk.-1.x", "blk.0x.w", "xblk.0.x", "blk.99999999999999.x"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct gguf_build b = gguf_check_begin();
		gguf_build_tensor(&b, names[i], DTYPE_F32, 8, 1);
		struct model_bytes m = count(&b, 4);
		for (int32_t layer = 0; layer < LAYERS_MAX; layer++)
			assert_int_equal(m.layers[layer], 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_tensor_counts_for_its_layer),
		cmocka_unit_test(tied_embeddings_are_the_head),
		cmocka_unit_test(names_that_only_look_like_layers_count_nowhere),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
