#include "blocks/zip_choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MB 1000000
#define BLOCK 262144

// learn measures a few blocks that shrink to ratio, compressed at zip_rate, on a link of link_rate bytes per second.
static struct zip_choice learn(double ratio, double zip_rate, double link_rate)
{
	struct zip_choice z = {0};
	for (int i = 0; i < ZIP_FIRST; i++) {
		assert_true(zip_choice_next(&z));
		zip_choice_note_zip(&z, BLOCK, (size_t)(ratio * BLOCK), (int64_t)(BLOCK / zip_rate * 1e9));
		zip_choice_note_link(&z, BLOCK, (int64_t)(BLOCK / link_rate * 1e9));
	}
	return z;
}

static void it_pays_where_the_link_is_slower_than_the_compressor(void **state)
{
	(void)state;
	static const struct {
		double ratio, zip_rate, link_rate;
		bool pays;
	} cases[] = {
		{0.90, 300e6, 1e6, true},     // poor Wi-Fi
		{0.90, 300e6, 12e6, true},    // 100 Mbit/s
		{0.90, 300e6, 117e6, true},   // gigabit: the compressor is still faster
		{0.90, 100e6, 117e6, false},  // a Pi's is not
		{0.90, 117e6, 117e6, false},
		{0.98, 300e6, 1e6, false},    // a saving that nobody notices
		{1.00, 300e6, 1e6, false},
		{0.50, 200e6, 150e6, true},   // the longer of the two counts
		{0.50, 150e6, 150e6, false},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct zip_choice z = learn(cases[i].ratio, cases[i].zip_rate, cases[i].link_rate);
		assert_int_equal(zip_choice_pays(&z), cases[i].pays);
		assert_int_equal(zip_choice_next(&z), cases[i].pays);
	}
}

static void nothing_pays_before_the_link_was_measured(void **state)
{
	(void)state;
	struct zip_choice z = {0};
	zip_choice_note_zip(&z, BLOCK, BLOCK / 2, 1000);
	assert_false(zip_choice_pays(&z));
	zip_choice_note_link(&z, 0, 1000);
	zip_choice_note_link(&z, 1000, 0);
	assert_false(zip_choice_pays(&z));
}

static void one_block_in_many_is_tried_again_and_a_change_is_noticed(void **state)
{
	(void)state;
	struct zip_choice z = learn(1.0, 300e6, 10e6);
	int tried = 0, until = -1;
	for (int i = 0; i < 2000 && until < 0; i++) {
		if (!zip_choice_next(&z))
			continue;
		tried++;
		zip_choice_note_zip(&z, BLOCK, BLOCK * 6 / 10, (int64_t)(BLOCK / 300e6 * 1e9)); // other tensors
		if (zip_choice_pays(&z))
			until = i;
	}
	assert_in_range(tried, 1, 3);
	assert_in_range(until, 1, 3 * ZIP_EVERY);
}

static void a_block_that_did_not_shrink_is_sent_as_it_is(void **state)
{
	(void)state;
	struct zip_choice z = {0};
	assert_false(zip_choice_note_zip(&z, BLOCK, BLOCK, 1000));
	assert_false(zip_choice_note_zip(&z, BLOCK, BLOCK * 98 / 100, 1000));
	assert_true(zip_choice_note_zip(&z, BLOCK, BLOCK * 9 / 10, 1000));
	assert_int_equal(z.n_zipped, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_pays_where_the_link_is_slower_than_the_compressor),
		cmocka_unit_test(nothing_pays_before_the_link_was_measured),
		cmocka_unit_test(one_block_in_many_is_tried_again_and_a_change_is_noticed),
		cmocka_unit_test(a_block_that_did_not_shrink_is_sent_as_it_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
