// Scripted exchanges over the simulated network against their formulas; TPI-LLM's published terms (arXiv 2410.00531) exactly.
#include "sim/exchange.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TAU INT64_C(1000000) // of one link
#define LINKS 4              // store-and-forward links between two devices of testbed K

struct fixture {
	struct arena arena;
	struct network network;
	struct exchange exchange;
};

static struct fixture *group_of(enum scenario_exchange kind, int32_t n, int64_t delay_ns, uint64_t rate_bps, int64_t software_ns)
{
	struct fixture *f = calloc(1, sizeof *f);
	struct network_limits limits = {.machines_max = n, .access_points_max = 1, .links_max = n * n, .flows_max = n * n};
	struct network_link_params link = {.base_ns = delay_ns, .rate_bps = rate_bps, .rate_back_bps = rate_bps};
	struct errmsg em = {""};
	assert_non_null(f);
	assert_int_equal(arena_open(network_arena_bytes(&limits), &f->arena), OK);
	assert_int_equal(network_init(&f->network, &f->arena, &limits, 1), OK);
	assert_int_equal(network_default_link(&f->network, &link, &em), OK);
	assert_int_equal(exchange_init(&f->exchange, &f->network, kind, n, software_ns, &em), OK);
	return f;
}

static void close_group(struct fixture *f)
{
	arena_close(&f->arena);
	free(f);
}

static int64_t time_of(enum scenario_exchange kind, int32_t n, int64_t delay_ns)
{
	struct fixture *f = group_of(kind, n, delay_ns, 0, 0);
	int64_t end_ns, again_ns;
	assert_int_equal(exchange_run(&f->exchange, 0, 7, &end_ns), OK);
	assert_int_equal(exchange_run(&f->exchange, 0, end_ns, &again_ns), OK);
	assert_int_equal(again_ns - end_ns, end_ns - 7);
	close_group(f);
	return end_ns - 7;
}

static void tpi_llms_terms_are_exact(void **state)
{
	(void)state;
	assert_int_equal(time_of(EXCHANGE_STAR, 8, LINKS * TAU), 8 * TAU);
	assert_int_equal(time_of(EXCHANGE_TREE, 8, LINKS * TAU), 16 * TAU);
	assert_int_equal(time_of(EXCHANGE_RING, 8, LINKS * TAU), 56 * TAU);
}

static void without_payload_every_kind_takes_its_hops(void **state)
{
	(void)state;
	assert_int_equal(time_of(EXCHANGE_PAIR, 2, TAU), TAU);
	for (int32_t n = 2; n <= 12; n++) {
		assert_int_equal(time_of(EXCHANGE_STAR, n, TAU), 2 * TAU);
		assert_int_equal(time_of(EXCHANGE_DIRECT, n, TAU), 2 * TAU);
		assert_int_equal(time_of(EXCHANGE_BROADCAST, n, TAU), TAU);
		assert_int_equal(time_of(EXCHANGE_RING, n, TAU), 2 * (n - 1) * TAU);
		assert_int_equal(time_of(EXCHANGE_TREE, n, TAU), n == 2 ? 2 * TAU : 4 * TAU);
	}
}

static void with_payload_it_is_the_formula(void **state)
{
	(void)state;
	static const enum scenario_exchange kinds[] = {
		EXCHANGE_PAIR, EXCHANGE_STAR, EXCHANGE_TREE, EXCHANGE_RING, EXCHANGE_DIRECT, EXCHANGE_BROADCAST};
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		int32_t n = kinds[i] == EXCHANGE_PAIR ? 2 : 8;
		struct fixture *f = group_of(kinds[i], n, TAU, 8000000, 300000); // 1 byte a microsecond
		int64_t end_ns;
		assert_int_equal(exchange_run(&f->exchange, 32000, 0, &end_ns), OK);
		double want = exchange_model_s(kinds[i], n, 0.001, 1e6, 0.0003, 32000);
		// Links are of pairs: what goes to several at once does not queue.
		if (kinds[i] == EXCHANGE_DIRECT)
			want = 2 * (0.001 + 0.004 + 0.0003);
		if (kinds[i] == EXCHANGE_BROADCAST)
			want = 0.001 + 0.032 + 0.0003;
		if (fabs((double)end_ns / 1e9 / want - 1) > 1e-6)
			fail_msg("%s: %lld ns, want %.6f s", scenario_exchange_name(kinds[i]), (long long)end_ns, want);
		close_group(f);
	}
}

static void a_member_does_not_wait_for_what_it_does_not_need(void **state)
{
	(void)state;
	struct fixture *f = group_of(EXCHANGE_STAR, 4, TAU, 0, 0);
	struct network_link_params slow = {.base_ns = 5 * TAU};
	int64_t end_ns;
	assert_int_equal(network_link(&f->network, 0, 3, &slow, NULL), OK);
	assert_int_equal(exchange_run(&f->exchange, 0, 0, &end_ns), OK);
	assert_int_equal(end_ns, 10 * TAU); // the slowest link, twice
	close_group(f);
	f = group_of(EXCHANGE_RING, 4, TAU, 0, 0);
	assert_int_equal(network_link(&f->network, 0, 1, &slow, NULL), OK);
	assert_int_equal(exchange_run(&f->exchange, 0, 0, &end_ns), OK);
	// What crossed the slow link goes on round, and meets it once more in six steps: 0 to 1 at 5, 1 to 0 at 8, 0 to 1 at 13.
	assert_int_equal(end_ns, 14 * TAU);
	close_group(f);
}

static void a_lost_message_is_told(void **state)
{
	(void)state;
	struct fixture *f = group_of(EXCHANGE_STAR, 3, TAU, 0, 0);
	int64_t end_ns;
	assert_int_equal(network_cut(&f->network, 0, 2, NETWORK_CUT_BLACK_HOLE), OK);
	assert_int_equal(exchange_run(&f->exchange, 0, 0, &end_ns), ERR_CLOSED);
	close_group(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tpi_llms_terms_are_exact),
		cmocka_unit_test(without_payload_every_kind_takes_its_hops),
		cmocka_unit_test(with_payload_it_is_the_formula),
		cmocka_unit_test(a_member_does_not_wait_for_what_it_does_not_need),
		cmocka_unit_test(a_lost_message_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
