// How peers read what does not fit: only in their turn, or ahead through a page cache.
#include "tests/support/cost_fixture.h"

#include <math.h>
#include <stdlib.h>

#define P 0.0125    // seconds of computing a unit: an eighth of 1 GB at 10 GB/s
#define RHO 0.125   // of reading it at 1 GB/s
#define HOP 0.00101
#define OTHER 0.4   // the other machine's four layers

static void assert_near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-9 * want))
		fail_msg("got %.12g, want %.12g", got, want);
}

// Two machines with four layers each, 32 units; the first has room for `slots` of its own.
static void two_machines(struct fixture *f, int32_t slots, enum cost_policy policy)
{
	fixture_init(f, 2);
	f->devices[0].cap_bytes = (uint64_t)slots * 125000000;
	f->devices[0].disk_rate = 1e9;
	f->c.params.policy = policy;
	add_stage(f, 0, 4, COST_STREAM_LEAST);
	add_stage(f, 1, 4, 0);
}

static void what_fits_is_read_once_by_every_policy(void **state)
{
	(void)state;
	for (enum cost_policy p = COST_WINDOW; p <= COST_LRU_AHEAD; p++) {
		struct fixture f;
		two_machines(&f, 32, p);
		struct cost_verdict v = judge(&f);
		assert_near(v.token_s, 2 * OTHER + 2 * HOP);
		assert_true(v.stages[0].read_s == 0);
	}
}

// Three too many: window of two, five streamed. On demand each is read when its turn has come.
static void on_demand_nothing_is_read_before_it_is_needed(void **state)
{
	(void)state;
	struct fixture f;
	two_machines(&f, 29, COST_DEMAND);
	struct cost_verdict v = judge(&f);
	assert_near(v.stages[0].read_s, 5 * RHO);
	assert_near(v.stages[0].stall_s, 5 * (RHO - P));
	assert_near(v.token_s, 2 * OTHER + 5 * (RHO - P) + 2 * HOP);
	struct cost_closed closed;
	cost_closed(&f.c, &closed);
	assert_near(closed.token_s, v.token_s);
	f.devices[0].disk_rate = 100e9; // faster than the computing: nothing is lost
	assert_near(judge(&f).token_s, 2 * OTHER + 2 * HOP);
	two_machines(&f, 29, COST_WINDOW);
	assert_true(judge(&f).token_s < v.token_s - RHO);
}

// One unit too many: the first unit is asked for while the other machine computes; its read evicts the second, and so on.
static void reading_ahead_through_a_full_page_cache_hides_only_the_first_unit(void **state)
{
	(void)state;
	struct fixture f;
	two_machines(&f, 31, COST_LRU);
	double demand = judge(&f).token_s;
	assert_near(demand, 32 * RHO + P + OTHER + 2 * HOP);
	two_machines(&f, 31, COST_LRU_AHEAD);
	struct cost_verdict v = judge(&f);
	assert_near(v.token_s, 31 * RHO + P + OTHER + 2 * HOP);
	assert_near(v.stages[0].read_s, 32 * RHO);
}

// Half fits: 16 of 32. What is asked for is read while the other computes, as much as that takes: three units.
static void reading_ahead_reads_as_much_as_others_give_time_for(void **state)
{
	(void)state;
	struct fixture f;
	two_machines(&f, 16, COST_LRU_AHEAD);
	struct cost_verdict v = judge(&f);
	assert_near(v.stages[0].read_s, 32 * RHO);
	assert_near(v.token_s, 32 * RHO + P); // the disk never rests but for the last unit's computing
}

static void the_closed_form_and_the_bound_are_not_above_the_judge(void **state)
{
	(void)state;
	for (enum cost_policy p = COST_LRU; p <= COST_LRU_AHEAD; p++) {
		for (int32_t slots = 4; slots <= 33; slots++) {
			struct fixture f;
			struct cost_closed closed;
			two_machines(&f, slots, p);
			f.plan.n_rounds = 1 + slots % 3;
			double t = judge(&f).token_s;
			cost_closed(&f.c, &closed);
			assert_true(closed.token_s <= t * (1 + 1e-9));
			assert_true(cost_bound(&f.c) <= t * (1 + 1e-9));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_fits_is_read_once_by_every_policy),
		cmocka_unit_test(on_demand_nothing_is_read_before_it_is_needed),
		cmocka_unit_test(reading_ahead_through_a_full_page_cache_hides_only_the_first_unit),
		cmocka_unit_test(reading_ahead_reads_as_much_as_others_give_time_for),
		cmocka_unit_test(the_closed_form_and_the_bound_are_not_above_the_judge),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
