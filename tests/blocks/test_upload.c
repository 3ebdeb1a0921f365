#include "blocks/upload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S INT64_C(1000000000)
#define BLOCK (256u * 1024)

struct world {
	struct upload u;
	struct upload_effects fx;
	int64_t now_ns;
	uint32_t reading[64]; // client of each READ not done
	int32_t n_reading;
	uint64_t n_read[UPLOAD_CLIENTS_MAX + 8]; // blocks of each client
	int32_t n_refused;
};

static void step(struct world *w, enum upload_event_type type, uint32_t client, uint32_t block)
{
	struct upload_event ev = {.type = type, .now_ns = w->now_ns, .client = client, .block = block, .bytes = BLOCK};
	upload_step(&w->u, &ev, &w->fx);
	upload_check(&w->u);
	for (int32_t i = 0; i < w->fx.n; i++) {
		if (w->fx.at[i].type == UPLOAD_FX_REFUSE) {
			w->n_refused++;
			continue;
		}
		w->reading[w->n_reading++] = w->fx.at[i].client;
		w->n_read[w->fx.at[i].client]++;
	}
}

static int make_world(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	w->now_ns = 1000 * S;
	upload_init(&w->u, &upload_limits_default, w->now_ns);
	*state = w;
	return 0;
}

static int drop_world(void **state)
{
	free(*state);
	return 0;
}

static void finish(struct world *w)
{
	uint32_t client = w->reading[0];
	memmove(w->reading, w->reading + 1, (size_t)--w->n_reading * sizeof w->reading[0]);
	step(w, UPLOAD_EV_DONE, client, 0);
}

static uint64_t total(const struct world *w)
{
	uint64_t n = 0;
	for (size_t i = 0; i < sizeof w->n_read / sizeof w->n_read[0]; i++)
		n += w->n_read[i];
	return n;
}

static void a_client_gets_its_blocks_in_order_a_few_at_once(void **state)
{
	struct world *w = *state;
	step(w, UPLOAD_EV_CLIENT_UP, 5, 0);
	for (uint32_t i = 0; i < 10; i++)
		step(w, UPLOAD_EV_ASKED, 5, i);
	assert_int_equal(w->n_reading, upload_limits_default.reads_max);
	while (w->n_reading > 0)
		finish(w);
	assert_int_equal(w->n_read[5], 10);
	assert_int_equal(w->n_refused, 0);
	assert_int_equal(upload_deadline_ns(&w->u), INT64_MAX);
}

static void who_asks_for_more_gets_no_more_than_its_turn(void **state)
{
	struct world *w = *state;
	for (uint32_t c = 1; c <= 3; c++)
		step(w, UPLOAD_EV_CLIENT_UP, c, 0);
	for (uint32_t i = 0; i < 60; i++)
		step(w, UPLOAD_EV_ASKED, 1, i);
	for (uint32_t i = 0; i < 10; i++) {
		step(w, UPLOAD_EV_ASKED, 2, i);
		step(w, UPLOAD_EV_ASKED, 3, i);
	}
	for (int i = 0; i < 26; i++)
		finish(w);
	assert_in_range(w->n_read[2], 8, 10);
	assert_in_range(w->n_read[3], 8, 10);
	assert_in_range(w->n_read[1], 8, 14);
}

static void one_request_too_many_is_refused_and_the_rest_served(void **state)
{
	struct world *w = *state;
	step(w, UPLOAD_EV_CLIENT_UP, 1, 0);
	for (uint32_t i = 0; i < UPLOAD_QUEUE_MAX + upload_limits_default.reads_max + 7u; i++)
		step(w, UPLOAD_EV_ASKED, 1, i);
	assert_int_equal(w->n_refused, 7);
	step(w, UPLOAD_EV_ASKED, 44, 1); // who never came
	assert_int_equal(w->n_refused, 8);
	while (w->n_reading > 0)
		finish(w);
	assert_int_equal(w->n_read[1], UPLOAD_QUEUE_MAX + upload_limits_default.reads_max);
}

static void a_client_that_left_costs_no_more_reads(void **state)
{
	struct world *w = *state;
	step(w, UPLOAD_EV_CLIENT_UP, 1, 0);
	for (uint32_t i = 0; i < 20; i++)
		step(w, UPLOAD_EV_ASKED, 1, i);
	step(w, UPLOAD_EV_CLIENT_DOWN, 1, 0);
	while (w->n_reading > 0)
		finish(w);
	assert_int_equal(total(w), upload_limits_default.reads_max);
}

static void a_client_whose_link_is_full_waits_and_the_others_do_not(void **state)
{
	struct world *w = *state;
	step(w, UPLOAD_EV_CLIENT_UP, 1, 0);
	step(w, UPLOAD_EV_CLIENT_UP, 2, 0);
	step(w, UPLOAD_EV_BLOCKED, 1, 0);
	for (uint32_t i = 0; i < 8; i++) {
		step(w, UPLOAD_EV_ASKED, 1, i);
		step(w, UPLOAD_EV_ASKED, 2, i);
	}
	while (w->n_reading > 0)
		finish(w);
	assert_int_equal(w->n_read[1], 0);
	assert_int_equal(w->n_read[2], 8);
	step(w, UPLOAD_EV_WRITABLE, 1, 0);
	while (w->n_reading > 0)
		finish(w);
	assert_int_equal(w->n_read[1], 8);
}

// serve lets the machine send at `rate` blocks per second for some seconds; the client always has more to ask for.
static uint64_t serve(struct world *w, int32_t rate, int64_t seconds, bool works)
{
	uint64_t before = total(w);
	int64_t end = w->now_ns + seconds * S, next_work = w->now_ns;
	while (w->now_ns < end) {
		while (w->u.clients[0].n_waiting < UPLOAD_QUEUE_MAX / 2)
			step(w, UPLOAD_EV_ASKED, 1, 0);
		if (works && w->now_ns >= next_work) {
			step(w, UPLOAD_EV_WORK, 0, 0);
			next_work = w->now_ns + S / 10;
		}
		w->now_ns += S / rate;
		if (w->n_reading > 0)
			finish(w);
		else
			step(w, UPLOAD_EV_TICK, 0, 0);
	}
	return total(w) - before;
}

static void while_the_machine_works_a_quarter_of_the_best_rate_is_used(void **state)
{
	struct world *w = *state;
	step(w, UPLOAD_EV_CLIENT_UP, 1, 0);
	uint64_t alone = serve(w, 400, 10, false); // 100 MiB/s
	assert_in_range(alone, 3900, 4100);
	uint64_t working = serve(w, 400, 10, true);
	assert_in_range(working, 900, 1100);
	w->now_ns += 2 * S; // the answer has ended
	uint64_t after = serve(w, 400, 10, false);
	assert_in_range(after, 3900, 4100);
}

static void a_slow_link_keeps_the_least_rate(void **state)
{
	struct world *w = *state;
	step(w, UPLOAD_EV_CLIENT_UP, 1, 0);
	uint64_t working = serve(w, 400, 10, true); // no rate was seen yet
	uint64_t least = upload_limits_default.busy_rate_min / BLOCK * 10;
	assert_in_range(working, least - 2, least + 8);
}

static void an_operators_limit_holds_always(void **state)
{
	struct world *w = *state;
	struct upload_limits l = upload_limits_default;
	l.rate_max = 10u << 20;
	l.busy_rate = 5u << 20;
	upload_init(&w->u, &l, w->now_ns);
	step(w, UPLOAD_EV_CLIENT_UP, 1, 0);
	assert_in_range(serve(w, 400, 10, false), 395, 410); // 40 blocks a second
	assert_in_range(serve(w, 400, 10, true), 195, 210);
	assert_true(upload_deadline_ns(&w->u) <= w->now_ns + S);
}

static void a_limit_is_not_passed_after_a_long_rest(void **state)
{
	struct world *w = *state;
	struct upload_limits l = upload_limits_default;
	l.rate_max = 10u << 20;
	upload_init(&w->u, &l, w->now_ns);
	step(w, UPLOAD_EV_CLIENT_UP, 1, 0);
	w->now_ns += 3600 * S;
	assert_in_range(serve(w, 400, 1, false), 38, 44);
}

static void what_is_owed_stays_owed_when_work_begins(void **state)
{
	struct world *w = *state;
	struct upload_limits l = upload_limits_default;
	l.rate_max = 1u << 20; // four blocks a second
	upload_init(&w->u, &l, w->now_ns);
	step(w, UPLOAD_EV_CLIENT_UP, 1, 0);
	for (uint32_t i = 0; i < UPLOAD_QUEUE_MAX; i++)
		step(w, UPLOAD_EV_ASKED, 1, i);
	uint64_t begin = total(w);
	for (int second = 0; second < 20; second++) { // a short answer every other second
		if (second % 2 == 0)
			step(w, UPLOAD_EV_WORK, 0, 0);
		for (int i = 0; i < 10; i++) {
			w->now_ns += S / 10;
			step(w, UPLOAD_EV_TICK, 0, 0);
			while (w->n_reading > 0)
				finish(w);
			step(w, UPLOAD_EV_ASKED, 1, 0);
		}
	}
	assert_in_range(total(w) - begin, 70, 82); // 80, and a burst
}

static void uploads_go_on_as_soon_as_the_work_is_over(void **state)
{
	struct world *w = *state;
	struct upload_limits l = upload_limits_default;
	l.busy_rate = 1000; // a block in four minutes
	upload_init(&w->u, &l, w->now_ns);
	step(w, UPLOAD_EV_CLIENT_UP, 1, 0);
	step(w, UPLOAD_EV_WORK, 0, 0);
	w->now_ns += S / 2;
	for (uint32_t i = 0; i < 3; i++)
		step(w, UPLOAD_EV_ASKED, 1, i);
	finish(w);
	assert_int_equal(w->n_reading, 0);
	w->now_ns = upload_deadline_ns(&w->u);
	assert_in_range(w->now_ns, 1001 * S, 1001 * S + 10);
	step(w, UPLOAD_EV_TICK, 0, 0);
	assert_int_equal(w->n_reading, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_world, drop_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_client_gets_its_blocks_in_order_a_few_at_once),
		TEST(who_asks_for_more_gets_no_more_than_its_turn),
		TEST(one_request_too_many_is_refused_and_the_rest_served),
		TEST(a_client_that_left_costs_no_more_reads),
		TEST(a_client_whose_link_is_full_waits_and_the_others_do_not),
		TEST(while_the_machine_works_a_quarter_of_the_best_rate_is_used),
		TEST(a_slow_link_keeps_the_least_rate),
		TEST(an_operators_limit_holds_always),
		TEST(a_limit_is_not_passed_after_a_long_rest),
		TEST(what_is_owed_stays_owed_when_work_begins),
		TEST(uploads_go_on_as_soon_as_the_work_is_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
