// Units of weights: every row of every matrix is in exactly one unit, at its place in the file, and no unit is larger than asked for.
#include "engine/unit_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct tensor_view matrix(uint64_t at, int32_t rows, int32_t cols)
{
	return (struct tensor_view){.at = at, .type = DTYPE_Q4_0, .rows = rows, .cols = cols, .row_bytes = (size_t)cols / 32 * 18};
}

// assert_covers finds each matrix whole and in order in the run's parts, and returns the largest unit.
static uint64_t assert_covers(const struct unit_table *t, struct unit_run run, const struct tensor_view *const *m, int32_t n)
{
	uint64_t largest = 0;
	for (int32_t p = 0; p < n; p++) {
		int32_t row = 0;
		for (int32_t i = run.begin; i < run.end; i++) {
			const struct unit_part *part = &t->units[i].parts[p];
			assert_int_equal(part->row_begin, row);
			assert_true(part->row_end >= row);
			assert_int_equal(part->at, m[p]->at + (uint64_t)row * m[p]->row_bytes);
			assert_int_equal(part->bytes, (uint64_t)(part->row_end - row) * m[p]->row_bytes);
			assert_true(part->row_end == m[p]->rows || part->row_end % UNIT_ROWS == 0);
			row = part->row_end;
		}
		assert_int_equal(row, m[p]->rows);
	}
	for (int32_t i = run.begin; i < run.end; i++) {
		uint64_t bytes = 0;
		assert_int_equal(t->units[i].n_parts, n);
		for (int32_t p = 0; p < n; p++)
			bytes += t->units[i].parts[p].bytes;
		assert_int_equal(t->units[i].bytes, bytes);
		assert_true(bytes > 0);
		largest = bytes > largest ? bytes : largest;
	}
	return largest;
}

static void an_uncut_phase_is_one_unit(void **state)
{
	(void)state;
	struct unit_table t = {0};
	struct unit_run run, next;
	struct tensor_view q = matrix(4096, 576, 576), k = matrix(900000, 192, 576), v = matrix(1000000, 192, 576), o = matrix(77, 576, 576);
	const struct tensor_view *qkv[] = {&q, &k, &v}, *just_o[] = {&o};
	assert_int_equal(unit_table_add(&t, 3, UNIT_QKV, qkv, 3, UNIT_UNCUT, &run), OK);
	assert_int_equal(unit_table_add(&t, 3, UNIT_O, just_o, 1, UNIT_UNCUT, &next), OK);
	assert_int_equal(run.begin, 0);
	assert_int_equal(run.end, 1);
	assert_int_equal(next.begin, 1);
	assert_int_equal(next.end, 2);
	assert_covers(&t, run, qkv, 3);
	assert_covers(&t, next, just_o, 1);
	assert_int_equal(t.units[0].layer, 3);
	assert_int_equal(t.units[0].kind, UNIT_QKV);
	assert_int_equal(t.units[0].bytes, 960 * q.row_bytes);
	assert_int_equal(unit_table_bytes(&t), 1536 * q.row_bytes);
	unit_table_deinit(&t);
}

static void a_cut_phase_keeps_every_row_and_the_limit(void **state)
{
	(void)state;
	static const int32_t rows[][3] = {{576, 192, 192}, {8192, 1024, 1024}, {33, 32, 31}, {28672, 28672, 28672}, {1, 5000, 64}};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct tensor_view a = matrix(64, rows[i][0], 1024), b = matrix(UINT64_C(1) << 40, rows[i][1], 1024), c = matrix(7, rows[i][2], 1024);
		const struct tensor_view *all[] = {&a, &b, &c};
		uint64_t total = (uint64_t)(rows[i][0] + rows[i][1] + rows[i][2]) * a.row_bytes;
		uint64_t least = 3 * UNIT_ROWS * a.row_bytes; // a unit has at least one tile of each
		for (uint64_t max = total; max > 1000; max = max / 3 * 2) {
			struct unit_table t = {0};
			struct unit_run run;
			assert_int_equal(unit_table_add(&t, 0, UNIT_QKV, all, 3, max, &run), OK);
			uint64_t largest = assert_covers(&t, run, all, 3);
			assert_true(largest <= (max > least ? max : least));
			assert_int_equal(unit_table_bytes(&t), total);
			// Not cut more finely than needed: half as many could not keep the limit.
			if (run.end > 1 && max > 2 * least)
				assert_true(total / (uint64_t)run.end * 4 > max);
			unit_table_deinit(&t);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_uncut_phase_is_one_unit),
		cmocka_unit_test(a_cut_phase_keeps_every_row_and_the_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
