// The picture's figures are the judge's.
#include "sim/plan_gantt.h"

#include "tests/support/cost_fixture.h"

#include <math.h>
#include <stdlib.h>

#define TOKENS 6

static struct report open_it(const struct fixture *f)
{
	struct report r;
	struct errmsg em = {""};
	if (cost_check(&f->c, &em) != OK || plan_gantt_open(&f->c, TOKENS, &r, &em) != OK)
		fail_msg("%s", em.text);
	return r;
}

static void assert_about(double got, double want)
{
	if (!(fabs(got - want) <= 1e-6 + 1e-3 * want))
		fail_msg("got %g, want %g", got, want);
}

static void a_token_takes_what_the_judge_says(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, 2);
	f.devices[0].cap_bytes = 3500000000;
	f.devices[0].disk_rate = 2e9;
	add_stage(&f, 0, 4, COST_STREAM_LEAST);
	add_stage(&f, 1, 4, 0);
	struct report r = open_it(&f);
	struct cost_verdict v = judge(&f);
	assert_int_equal(r.requests[0].n_tokens, TOKENS);
	assert_about((double)r.end_ns / 1e9 / TOKENS, v.token_s);
	double read_s = (double)r.devices[0].sum_ns[REPORT_DISK] / 1e9 / TOKENS; // less what was read ahead before the picture begins
	assert_true(read_s > 0.9 * v.stages[0].read_s && read_s < 1.001 * v.stages[0].read_s);
	assert_about((double)r.devices[1].sum_ns[REPORT_COMPUTE] / 1e9 / TOKENS, v.stages[1].busy_s);
	assert_about((double)(r.devices[0].sum_ns[REPORT_LINK] + r.devices[1].sum_ns[REPORT_LINK]) / 1e9 / TOKENS, v.hop_s);
	report_close(&r);
}

static void a_head_without_layers_has_a_row_of_its_own(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, 2);
	f.shape.head_bytes = 100000000;
	add_stage(&f, 1, 8, 0);
	struct report r = open_it(&f);
	assert_int_equal(r.n_devices, 2);
	assert_string_equal(r.devices[0].name, "m1");
	assert_string_equal(r.devices[1].name, "m0");
	assert_true(r.devices[1].sum_ns[REPORT_HEAD] > 0 && r.devices[0].sum_ns[REPORT_HEAD] == 0);
	report_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_takes_what_the_judge_says),
		cmocka_unit_test(a_head_without_layers_has_a_row_of_its_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
