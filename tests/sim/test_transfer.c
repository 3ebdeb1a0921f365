#include "sim/transfer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sodium.h>

#include <cmocka.h>

#define SEEDS 1500

static void every_machine_gets_its_blocks_whatever_happens_and_none_that_is_wrong(void **state)
{
	(void)state;
	struct transfer_result sum = {0}, r;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		assert_int_equal(transfer_run(seed, &r), OK);
		if (r.failed)
			fail_msg("seed %llu at %.3f s: %s", (unsigned long long)seed, (double)r.failed_ns / 1e9, r.failure);
		for (int i = 0; i < TRANSFER_N_FAULTS; i++)
			sum.faults[i] += r.faults[i];
		sum.n_stored += r.n_stored;
		sum.n_wrong += r.n_wrong;
		sum.n_refused += r.n_refused;
		sum.n_silent += r.n_silent;
		sum.n_full += r.n_full;
	}
	print_message("%llu blocks stored, %llu wrong, %llu refused, %llu silences, %llu times no room\n", (unsigned long long)sum.n_stored,
		(unsigned long long)sum.n_wrong, (unsigned long long)sum.n_refused, (unsigned long long)sum.n_silent, (unsigned long long)sum.n_full);
	// The faults reached what they are about.
	for (int i = 0; i < TRANSFER_N_FAULTS; i++)
		assert_true(sum.faults[i] > SEEDS / 4);
	assert_true(sum.n_stored > 10 * SEEDS && sum.n_wrong > SEEDS / 15 && sum.n_refused > SEEDS / 10 && sum.n_silent > SEEDS / 50 && sum.n_full > SEEDS / 10);
}

static void the_same_seed_gives_the_same_history(void **state)
{
	(void)state;
	struct transfer_result a, b;
	for (uint64_t seed = 1; seed <= 50; seed++) {
		assert_int_equal(transfer_run(seed, &a), OK);
		assert_int_equal(transfer_run(seed, &b), OK);
		assert_true(a.history == b.history && a.end_ns == b.end_ns);
	}
}

static int begin(void **state)
{
	(void)state;
	return sodium_init() < 0 ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_machine_gets_its_blocks_whatever_happens_and_none_that_is_wrong),
		cmocka_unit_test(the_same_seed_gives_the_same_history),
	};
	return cmocka_run_group_tests(tests, begin, NULL);
}
