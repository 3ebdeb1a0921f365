#include "sim/faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define S INT64_C(1000000000)

static struct fault_params params(uint64_t seed, uint32_t classes)
{
	return (struct fault_params){
		.seed = seed, .classes = classes, .from_ns = S, .until_ns = 30 * S, .n_machines = 5, .n_strangers = 1, .n_faults = 6};
}

static void faults_are_in_range_and_by_time(void **state)
{
	(void)state;
	uint32_t n_of[SIM_N_FAULTS] = {0};
	for (uint64_t seed = 1; seed <= 1000; seed++) {
		struct fault_params k = params(seed, SIM_ALL_FAULTS);
		struct sim_fault_plan p;
		faults_draw(&p, &k);
		assert_true(p.n >= 6);
		for (int32_t i = 0; i < p.n; i++) {
			const struct sim_fault *f = &p.at[i];
			assert_true(f->machine >= 0 && f->machine < 5);
			assert_true(f->other == NETWORK_ALL || (f->other >= 0 && f->other < 5 && f->other != f->machine));
			assert_true(f->at_ns >= S);
			assert_true(f->for_ns > 0);
			assert_true(i == 0 || f->at_ns >= p.at[i - 1].at_ns);
			assert_true((f->kind == FAULT_HEAD_CRASH) <= (f->machine == 0));
			n_of[f->kind]++;
		}
	}
	for (int i = 0; i < SIM_N_FAULTS; i++)
		assert_true(n_of[i] > 100); // of some 7,000: none is rare
}

static void leaving_out_a_class_moves_no_other_fault(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 200; seed++) {
		for (int without = 0; without < SIM_N_FAULTS; without++) {
			struct fault_params all = params(seed, SIM_ALL_FAULTS), less = params(seed, SIM_ALL_FAULTS & ~(UINT32_C(1) << without));
			struct sim_fault_plan a, b;
			faults_draw(&a, &all);
			faults_draw(&b, &less);
			int32_t k = 0;
			for (int32_t i = 0; i < a.n; i++) {
				if (a.at[i].kind == (enum sim_fault_class)without)
					continue;
				assert_true(k < b.n);
				assert_int_equal(a.at[i].kind, b.at[k].kind);
				assert_int_equal(a.at[i].at_ns, b.at[k].at_ns);
				assert_int_equal(a.at[i].machine, b.at[k].machine);
				assert_int_equal(a.at[i].draw, b.at[k].draw);
				k++;
			}
			assert_int_equal(k, b.n);
		}
	}
}

static void every_class_has_a_word_that_finds_it(void **state)
{
	(void)state;
	for (int i = 0; i < SIM_N_FAULTS; i++) {
		const char *word = fault_word((enum sim_fault_class)i);
		assert_int_equal(fault_find(word, strlen(word)), i);
		assert_true(strlen(fault_words((enum sim_fault_class)i)) > 10);
	}
	assert_int_equal(fault_find("crash ", 6), SIM_N_FAULTS);
	assert_int_equal(fault_find("", 0), SIM_N_FAULTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(faults_are_in_range_and_by_time),
		cmocka_unit_test(leaving_out_a_class_moves_no_other_fault),
		cmocka_unit_test(every_class_has_a_word_that_finds_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
