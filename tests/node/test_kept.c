// States that are kept of what was sent: what the core says of them (node/kept.c), and the memory behind them (node/shell/kept_store.c).
#include "base/rng.h"
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
	f->n->config.hidden_dim = 2; // f32: rows of 8 bytes
	f->n->plan.chunk_max = 16;
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
	f->fx->n_bytes = 0;
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
	assert_false(kept_fetch(f->n, &s, 3, f->fx));
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

// ---- on disk

#define FRAME (ROW + NODE_KEPT_FRAME_EXTRA)

// last returns the last effect of a type; NULL: there is none.
static const struct node_effect *last(const struct fixture *f, enum node_effect_type type)
{
	for (int32_t i = f->fx->n - 1; i >= 0; i--)
		if (f->fx->at[i].type == type)
			return &f->fx->at[i];
	return NULL;
}

static void disk_done(struct fixture *f, uint32_t id, enum err err)
{
	struct node_event ev = {.type = NODE_EV_KEPT, .u.disk = {.id = id, .err = err, .text = "no space left on device"}};
	f->fx->n = 0;
	f->fx->n_bytes = 0;
	kept_on_written(f->n, &ev, f->fx);
}

// written keeps a step's states, some of them on disk, and says that they are there.
static void written(struct fixture *f, struct step s)
{
	put(f, s, 5);
	const struct node_effect *e = last(f, NODE_FX_KEEP_DISK);
	assert_non_null(e);
	disk_done(f, e->u.disk.id, OK);
}

static int32_t n_rows_of(const struct node_effect *e)
{
	int32_t n = 0;
	for (int32_t i = 0; i < e->u.disk.n_runs; i++)
		n += e->u.disk.runs[i].n_rows;
	return n;
}

static void what_passes_memory_goes_to_disk_and_is_fetched_from_both(void **state)
{
	struct fixture *f = *state;
	f->n->config.keep_disk_bytes = 100 * FRAME;
	put(f, a_step(7, 1, 0, 16), 5);
	put(f, a_step(7, 1, 16, 16), 5);
	assert_null(last(f, NODE_FX_KEEP_DISK));
	put(f, a_step(7, 1, 32, 16), 5); // eight rows more than there is memory
	const struct node_effect *keep = last(f, NODE_FX_KEEP), *disk = last(f, NODE_FX_KEEP_DISK);
	assert_int_equal(keep->u.keep.pos, 32);
	assert_int_equal(keep->u.keep.n_tokens, 8);
	assert_int_equal(disk->u.disk.pos, 40);
	assert_int_equal(disk->u.disk.n_tokens, 8);
	assert_int_equal(disk->u.disk.row, 8);
	assert_int_equal(disk->u.disk.session.v, 7);
	assert_int_equal(disk->u.disk.layer, 5);
	assert_int_equal(n_rows_of(disk), 8);
	assert_int_equal(f->n->report.disk_written, 8 * FRAME);
	assert_int_equal(put(f, a_step(7, 1, 48, 1), 5), NODE_FX_KEEP_DISK); // from here on all of it
	assert_null(last(f, NODE_FX_KEEP));
	assert_true(has(f, a_step(7, 1, 0, 49), 5));
	struct step s = a_step(7, 1, 36, 10);
	s.layer_begin = 5;
	f->fx->n = 0;
	assert_true(kept_fetch(f->n, &s, 2, f->fx));
	assert_int_equal(last(f, NODE_FX_FETCH)->u.keep.n_tokens, 4);
	assert_int_not_equal(kept_read(f->n, &s, 2, f->fx), 0);
	disk = last(f, NODE_FX_FETCH_DISK);
	assert_int_equal(disk->u.disk.pos, 40);
	assert_int_equal(disk->u.disk.n_tokens, 6);
	assert_int_equal(disk->u.disk.row, 4);
	assert_int_equal(f->n->report.disk_read, 6 * FRAME);
	s.n_tokens = 4;
	assert_false(kept_fetch(f->n, &s, 2, f->fx)); // in memory
}

static void the_disk_is_bounded_and_given_back(void **state)
{
	struct fixture *f = *state;
	f->n->config.keep_bytes = 0;
	f->n->config.keep_disk_bytes = 20 * FRAME;
	written(f, a_step(7, 1, 0, 16));
	put(f, a_step(8, 2, 0, 5), 5); // 21 rows
	assert_null(last(f, NODE_FX_KEEP_DISK));
	assert_false(has(f, a_step(8, 2, 0, 1), 5));
	written(f, a_step(9, 3, 0, 4));
	assert_true(has(f, a_step(7, 1, 0, 16), 5));
	assert_int_equal(f->n->blocks.n_used, 20);
	kept_end(f->n, (struct session_id){7}, f->fx); // its answer is over
	assert_false(has(f, a_step(7, 1, 0, 1), 5));
	assert_true(has(f, a_step(9, 3, 0, 4), 5));
	written(f, a_step(10, 1, 0, 16));
	kept_forget(f->n, f->fx);
	assert_int_equal(f->n->blocks.n_used, 0);
}

static void what_nobody_will_ask_for_is_dropped_first_the_oldest_of_it(void **state)
{
	struct fixture *f = *state;
	for (uint32_t i = 0; i < 4; i++) { // ten rows each: memory is full
		f->n->now_ns = i * INT64_C(1000000000);
		put(f, a_step(10 + i, i, 0, 10), 5);
	}
	f->n->slots[0].session.v = 10; // the first one's answer goes on
	f->n->now_ns = INT64_C(170000000000);
	assert_int_equal(put(f, a_step(20, 9, 0, 4), 5), -1); // nobody has waited for three minutes yet
	f->n->now_ns = INT64_C(190000000000);
	assert_int_equal(put(f, a_step(20, 9, 0, 4), 5), NODE_FX_KEEP);
	assert_true(has(f, a_step(10, 0, 0, 10), 5));
	assert_false(has(f, a_step(11, 1, 0, 10), 5));
	assert_true(has(f, a_step(12, 2, 0, 10), 5));
	assert_true(has(f, a_step(13, 3, 0, 10), 5));
	assert_int_equal(put(f, a_step(20, 9, 4, 16), 5), NODE_FX_KEEP);
	assert_false(has(f, a_step(12, 2, 0, 10), 5));
	assert_true(has(f, a_step(13, 3, 0, 10), 5)); // as little as is needed
	assert_int_equal(f->n->kept_bytes, 40 * ROW);
}

static void a_write_that_fails_gives_up_its_answer_and_is_told_once(void **state)
{
	struct fixture *f = *state;
	f->n->config.keep_bytes = 0;
	f->n->config.keep_disk_bytes = 100 * FRAME;
	written(f, a_step(7, 1, 0, 4));
	put(f, a_step(7, 1, 4, 4), 5);
	uint32_t first = last(f, NODE_FX_KEEP_DISK)->u.disk.id;
	put(f, a_step(7, 1, 8, 4), 5);
	uint32_t second = last(f, NODE_FX_KEEP_DISK)->u.disk.id;
	put(f, a_step(8, 2, 0, 4), 5);
	uint32_t others = last(f, NODE_FX_KEEP_DISK)->u.disk.id;
	disk_done(f, first, ERR_IO);
	assert_non_null(strstr(last(f, NODE_FX_LOG)->u.log.text, "no space left on device"));
	assert_false(has(f, a_step(7, 1, 0, 1), 5));
	disk_done(f, second, ERR_IO);
	assert_null(last(f, NODE_FX_LOG));
	disk_done(f, others, OK);
	assert_true(has(f, a_step(8, 2, 0, 4), 5));
	assert_int_equal(f->n->writing_bytes, 0);
	put(f, a_step(8, 2, 4, 4), 5);
	disk_done(f, last(f, NODE_FX_KEEP_DISK)->u.disk.id, ERR_IO);
	assert_non_null(last(f, NODE_FX_LOG)); // it had worked in between
	disk_done(f, others, ERR_IO);          // an answer to nothing
}

static void a_disk_that_does_not_keep_up_gets_no_more(void **state)
{
	struct fixture *f = *state;
	f->n->config.keep_bytes = 0;
	f->n->config.keep_disk_bytes = 1000 * FRAME;
	uint32_t ids[NODE_KEPT_WRITING_BUFS];
	for (uint32_t i = 0; i < NODE_KEPT_WRITING_BUFS; i++) {
		assert_int_equal(put(f, a_step(7, 1, 16 * i, 16), 5), NODE_FX_KEEP_DISK);
		ids[i] = f->fx->at[f->fx->n - 1].u.disk.id;
	}
	put(f, a_step(7, 1, 16 * NODE_KEPT_WRITING_BUFS, 1), 5);
	assert_null(last(f, NODE_FX_KEEP_DISK));
	assert_false(has(f, a_step(7, 1, 0, 1), 5));
	disk_done(f, ids[2], OK);
	assert_int_equal(put(f, a_step(8, 2, 0, 16), 5), NODE_FX_KEEP_DISK);
}

static void rows_of_another_size_begin_anew(void **state)
{
	struct fixture *f = *state;
	f->n->config.keep_disk_bytes = 100 * FRAME;
	f->n->config.keep_bytes = 0;
	written(f, a_step(7, 1, 0, 4));
	f->fx->n = 0;
	struct step s = a_step(8, 2, 0, 4);
	kept_put(f->n, &s, 0, 3, 2 * ROW, f->fx);
	assert_false(has(f, a_step(7, 1, 0, 4), 5));
	assert_true(has(f, s, 5));
	assert_int_equal(f->n->blocks.frame_bytes, FRAME + ROW);
}

// Ten thousand draws: no two entries ever have one frame, a run lies in the file, and what is taken and given back agrees.
static void no_frame_belongs_to_two(void **state)
{
	(void)state;
	static struct kept_blocks b;
	static struct node_disk_run runs[KEPT_BLOCKS_MAX];
	static int32_t owner[5000];
	int32_t end[6] = {0};
	struct rng r;
	rng_init(&r, 5);
	kept_blocks_lay_out(&b, 5000 * (uint64_t)FRAME + 7, ROW);
	assert_true(b.n * b.rows <= 5000 && b.n <= KEPT_BLOCKS_MAX && b.n * b.rows > 4900);
	memset(owner, 0xff, sizeof owner);
	for (int i = 0; i < 10000; i++) {
		int32_t e = (int32_t)rng_below(&r, 6), more = 1 + (int32_t)rng_below(&r, 400);
		if (rng_below(&r, 9) == 0 || !kept_blocks_reserve(&b, e, end[e], end[e] + more)) {
			kept_blocks_free(&b, e);
			end[e] = 0;
			for (int32_t k = 0; k < 5000; k++)
				owner[k] = owner[k] == e ? -1 : owner[k];
			continue;
		}
		end[e] += more;
		int32_t n = kept_blocks_runs(&b, e, 0, end[e], runs), n_rows = 0;
		for (int32_t k = 0; k < n; k++) {
			n_rows += runs[k].n_rows;
			for (int32_t t = 0; t < runs[k].n_rows; t++) {
				uint32_t at = runs[k].frame + (uint32_t)t;
				assert_true(at < 5000 && (owner[at] == -1 || owner[at] == e));
				owner[at] = e;
			}
		}
		assert_int_equal(n_rows, end[e]);
	}
	for (int32_t e = 0; e < 6; e++)
		kept_blocks_free(&b, e);
	assert_int_equal(b.n_used, 0);
	kept_blocks_lay_out(&b, FRAME - 1, ROW); // not one row
	assert_false(kept_blocks_reserve(&b, 0, 0, 1));
	assert_true(kept_blocks_reserve(&b, 0, 3, 3));
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
		cmocka_unit_test_setup_teardown(what_passes_memory_goes_to_disk_and_is_fetched_from_both, setup, teardown),
		cmocka_unit_test_setup_teardown(the_disk_is_bounded_and_given_back, setup, teardown),
		cmocka_unit_test_setup_teardown(what_nobody_will_ask_for_is_dropped_first_the_oldest_of_it, setup, teardown),
		cmocka_unit_test_setup_teardown(a_write_that_fails_gives_up_its_answer_and_is_told_once, setup, teardown),
		cmocka_unit_test_setup_teardown(a_disk_that_does_not_keep_up_gets_no_more, setup, teardown),
		cmocka_unit_test_setup_teardown(rows_of_another_size_begin_anew, setup, teardown),
		cmocka_unit_test(no_frame_belongs_to_two),
		cmocka_unit_test(the_store_gives_back_what_it_got),
		cmocka_unit_test(what_the_store_does_not_have_is_no_finite_state),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
