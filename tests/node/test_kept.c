// States that are kept of what was sent: what the core says of them (node/kept.c), and the memory behind them (node/shell/kept_store.c).
#include "node/node_state.h"
#include "node/shell/kept_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROW 8

struct fixture {
	struct node *n;
	struct node_effects *fx;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	assert_non_null(f);
	f->n = calloc(1, sizeof *f->n);
	f->fx = calloc(1, sizeof *f->fx);
	assert_non_null(f->n);
	assert_non_null(f->fx);
	f->n->config.keep_bytes = 40 * ROW;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	free(f->n);
	free(f->fx);
	free(f);
	return 0;
}

static struct step a_step(uint64_t session, uint32_t slot, uint32_t pos, uint32_t n)
{
	return (struct step){.session = {session}, .slot = slot, .pos = pos, .n_tokens = n};
}

// put keeps a step's states and returns the effect that says so, if any.
static int put(struct fixture *f, struct step s, int32_t layer)
{
	f->fx->n = 0;
	f->n->plan.layers = layer_spans_one(0, layer);
	kept_put(f->n, &s, 0, 3, ROW, f->fx);
	return f->fx->n == 0 ? -1 : (int)f->fx->at[f->fx->n - 1].type;
}

static bool has(struct fixture *f, struct step s, int32_t layer)
{
	s.layer_begin = (uint16_t)layer;
	return kept_has(f->n, &s);
}

static void what_was_sent_without_a_gap_is_kept(void **state)
{
	struct fixture *f = *state;
	assert_int_equal(put(f, a_step(7, 1, 0, 10), 5), NODE_FX_KEEP);
	assert_int_equal(put(f, a_step(7, 1, 10, 4), 5), NODE_FX_KEEP);
	assert_int_equal(put(f, a_step(7, 1, 20, 4), 5), -1); // 14 to 19 never came
	assert_true(has(f, a_step(7, 1, 0, 14), 5));
	assert_false(has(f, a_step(7, 1, 0, 15), 5));
	assert_false(has(f, a_step(7, 1, 0, 4), 6));
	assert_false(has(f, a_step(8, 1, 0, 4), 5));
	assert_int_equal(put(f, a_step(7, 1, 4, 4), 5), -1); // the very same rows
	assert_true(has(f, a_step(7, 1, 0, 14), 5));
	assert_int_equal(f->n->kept_bytes, 14 * ROW);
}

static void each_round_keeps_its_own_and_any_of_them_is_found(void **state)
{
	struct fixture *f = *state;
	struct step s = a_step(7, 1, 0, 4);
	f->fx->n = 0;
	f->n->plan.layers = (struct layer_spans){2, {{0, 3}, {6, 9}}};
	kept_put(f->n, &s, 0, 3, ROW, f->fx);
	kept_put(f->n, &s, 1, 3, ROW, f->fx);
	assert_int_equal(f->fx->n, 2);
	assert_int_not_equal(f->fx->at[0].u.keep.entry, f->fx->at[1].u.keep.entry);
	assert_true(has(f, s, 3));
	assert_true(has(f, s, 9));
	assert_false(has(f, s, 6)); // that came in, it was not sent
	s.layer_begin = 9;
	kept_fetch(f->n, &s, 3, ROW, f->fx);
	assert_int_equal(f->fx->at[2].type, NODE_FX_FETCH);
	assert_int_equal(f->fx->at[2].u.keep.entry, f->fx->at[1].u.keep.entry);
	assert_int_equal(f->n->kept_bytes, 8 * ROW);
}

static void a_slot_of_another_session_forgets_the_old_one(void **state)
{
	struct fixture *f = *state;
	put(f, a_step(7, 1, 0, 10), 5);
	assert_int_equal(put(f, a_step(8, 1, 4, 4), 5), -1); // not from its first position on
	assert_int_equal(put(f, a_step(8, 1, 0, 4), 5), NODE_FX_KEEP);
	assert_int_equal(f->fx->at[0].type, NODE_FX_DROP);
	assert_false(has(f, a_step(7, 1, 0, 4), 5));
	assert_int_equal(f->n->kept_bytes, 4 * ROW);
}

static void rows_of_another_last_layer_replace_the_old_ones_in_place(void **state)
{
	struct fixture *f = *state;
	put(f, a_step(7, 1, 0, 20), 5);
	assert_int_equal(put(f, a_step(7, 1, 0, 8), 9), NODE_FX_KEEP);
	assert_true(has(f, a_step(7, 1, 0, 8), 9));
	assert_false(has(f, a_step(7, 1, 0, 8), 5)); // overwritten
	assert_true(has(f, a_step(7, 1, 8, 12), 5)); // not yet
	assert_false(has(f, a_step(7, 1, 7, 4), 5));
	assert_int_equal(put(f, a_step(7, 1, 8, 16), 9), NODE_FX_KEEP);
	assert_false(has(f, a_step(7, 1, 19, 1), 5));
	assert_true(has(f, a_step(7, 1, 0, 24), 9));
	assert_int_equal(f->n->kept_bytes, 24 * ROW);
}

static void memory_is_bounded_and_given_back(void **state)
{
	struct fixture *f = *state;
	put(f, a_step(7, 1, 0, 30), 5);
	assert_int_equal(put(f, a_step(8, 2, 0, 11), 5), -1); // 41 rows
	assert_int_equal(put(f, a_step(8, 2, 0, 10), 5), NODE_FX_KEEP);
	assert_int_equal(put(f, a_step(8, 2, 10, 1), 5), NODE_FX_DROP); // half a session is of no use
	assert_false(has(f, a_step(8, 2, 0, 1), 5));
	assert_true(has(f, a_step(7, 1, 0, 30), 5));
	assert_int_equal(f->n->kept_bytes, 30 * ROW);
	f->fx->n = 0;
	kept_forget(f->n, f->fx);
	assert_int_equal(f->fx->n, 1);
	assert_int_equal(f->n->kept_bytes, 0);
}

static void the_store_gives_back_what_it_got(void **state)
{
	(void)state;
	struct kept_store k = {0};
	uint8_t *in = malloc(200000), *out = malloc(200000);
	assert_non_null(in);
	assert_non_null(out);
	for (size_t i = 0; i < 200000; i++)
		in[i] = (uint8_t)(i * 7 >> 3);
	for (size_t at = 0; at < 200000; at += 5000)
		kept_store_put(&k, 3, at, in + at, 5000);
	kept_store_get(&k, 3, 0, out, 200000);
	assert_memory_equal(in, out, 200000);
	kept_store_put(&k, 3, 100, in, 50);
	kept_store_get(&k, 3, 100, out, 60);
	assert_memory_equal(out, in, 50);
	assert_memory_equal(out + 50, in + 150, 10);
	kept_store_close(&k);
	free(in);
	free(out);
}

static void what_the_store_does_not_have_is_no_finite_state(void **state)
{
	(void)state;
	struct kept_store k = {0};
	uint8_t row[8] = {0};
	float x;
	kept_store_put(&k, 0, 8, row, 8); // beyond the end: a gap
	kept_store_get(&k, 0, 8, row, 8);
	memcpy(&x, row, sizeof x);
	assert_true(x != x);
	kept_store_drop(&k, 0);
	kept_store_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_was_sent_without_a_gap_is_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(each_round_keeps_its_own_and_any_of_them_is_found, setup, teardown),
		cmocka_unit_test_setup_teardown(a_slot_of_another_session_forgets_the_old_one, setup, teardown),
		cmocka_unit_test_setup_teardown(rows_of_another_last_layer_replace_the_old_ones_in_place, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_is_bounded_and_given_back, setup, teardown),
		cmocka_unit_test(the_store_gives_back_what_it_got),
		cmocka_unit_test(what_the_store_does_not_have_is_no_finite_state),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
