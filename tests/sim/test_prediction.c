// What is predicted agrees with itself: the cost model, and the program's cores over a network without jitter.
#include "sim/prediction.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOP \
	"name = 'x'\n[model]\nname = 'm'\nlayers = 12\nhidden = 1024\nlayer_bytes = '100 MB'\nhead_bytes = '50 MB'\nkv_bytes = " \
	"'1 kB'\nlayer_work = '400 MFLOP'\n"
#define DEVICE(name, more) \
	"[[device]]\nname = '" name "'\nmemory = '8 GB'\ncpu_read = '10 GB/s'\ncpu_flops = '200 GFLOP/s'\nvisit = '1 ms'\n" more
#define LINKS "[network]\ndelay = '3 ms'\nrate = '100 Mbit/s'\n"
#define REQUEST "[serving]\nctx = 512\nchunk = 64\n[[request]]\nprompt = 100\npredict = 40\n"

static struct prediction predict(const char *text, struct scenario *s)
{
	struct prediction p;
	struct errmsg em = {""};
	if (scenario_open("x", text, strlen(text), NULL, s, &em) != OK)
		fail_msg("%s", em.text);
	if (prediction_run(s, &p, &em) != OK)
		fail_msg("%s", em.text);
	return p;
}

static void finish(struct prediction *p, struct scenario *s)
{
	prediction_close(p);
	scenario_close(s);
}

static void assert_within(double got, double want, double part)
{
	if (!(fabs(got / want - 1) <= part))
		fail_msg("got %g, want %g within %g %%", got, want, part * 100);
}

static void the_cores_take_what_the_cost_model_says(void **state)
{
	(void)state;
	struct scenario s;
	struct prediction p = predict(TOP LINKS DEVICE("a", "") DEVICE("b", "") DEVICE("c", "") REQUEST, &s);
	assert_int_equal(p.host, PREDICTION_WORLD);
	assert_false(p.timed_out);
	assert_int_equal(p.summary.n_tokens, 40);
	assert_int_equal(p.summary.n_failed, 0);
	assert_within(p.tpot_s, 12 * 0.01 + 3 * 0.001 + 3 * 0.0033 + 0.005, 0.01);
	assert_within(p.summary.tpot.p50, p.tpot_s, 0.01);
	assert_within(p.summary.ttft.p50, p.ttft_s, 0.03);
	for (int32_t i = 0; i < 3; i++)
		assert_true(p.report.devices[i].sum_ns[REPORT_COMPUTE] > 0 && p.report.devices[i].sum_ns[REPORT_LINK] > 0);
	assert_true(p.report.devices[0].sum_ns[REPORT_HEAD] > 0);
	assert_true(p.report.devices[1].sum_ns[REPORT_HEAD] == 0);
	finish(&p, &s);
}

static void a_coordinator_without_layers_pays_both_ways(void **state)
{
	(void)state;
	struct scenario s;
	struct prediction p = predict(TOP LINKS DEVICE("a", "") DEVICE("b", "")
					      DEVICE("c", "") "[plan]\ncoordinator = 'c'\ncoordinator_only = true\n" REQUEST,
		&s);
	assert_within(p.tpot_s, 12 * 0.01 + 2 * 0.001 + 3 * 0.0033 + 0.005, 0.01);
	assert_within(p.summary.tpot.p50, p.tpot_s, 0.01);
	assert_true(p.report.devices[2].sum_ns[REPORT_COMPUTE] == 0);
	finish(&p, &s);
}

static void nodes_that_do_not_reach_each_other_pay_two_hops(void **state)
{
	(void)state;
	struct scenario s;
	struct prediction p = predict(TOP LINKS DEVICE("a", "") DEVICE("b", "") DEVICE("c", "") "[[link]]\nbetween = ['b', 'c']\ncut = true\n"
				      "delay = '1 ms'\n" REQUEST, &s); // the delay of a path that nobody takes
	assert_within(p.tpot_s, 12 * 0.01 + 3 * 0.001 + 4 * 0.0033 + 0.005, 0.01);
	assert_within(p.summary.tpot.p50, p.tpot_s, 0.01);
	finish(&p, &s);
}

static enum err load_steps(void *ctx, const char *path, const char **text, size_t *len, struct errmsg *em)
{
	(void)ctx;
	(void)path;
	(void)em;
	*text = "t_s,rtt_ms\n0,20\n20,80\n40,80\n";
	*len = strlen(*text);
	return OK;
}

// A trace of 20 s with 10 ms one way and 40 s with 40 ms: a request of 40 tokens meets one of them, by when it comes and where the trace begins.
static void requests_meet_the_times_of_a_trace(void **state)
{
	(void)state;
	const struct trace_loader loader = {.load = load_steps};
	const char text[] = TOP DEVICE("a", "") DEVICE("b", "trace = 'steps'\noffset = '30 s'\n")
		"[[request]]\nprompt = 1\npredict = 40\n[[request]]\nat = '31 s'\nprompt = 1\npredict = 40\n";
	struct scenario s;
	struct prediction p;
	struct errmsg em = {""};
	assert_int_equal(scenario_open("x", text, strlen(text), &loader, &s, &em), OK);
	assert_int_equal(prediction_run(&s, &p, &em), OK);
	double rest_s = 12 * 0.01 + 2 * 0.001 + 0.005;
	for (int32_t i = 0; i < 2; i++) {
		const struct report_request *q = &p.report.requests[i];
		assert_within((double)(q->last_ns - q->first_ns) / 1e9 / 39, rest_s + 2 * (i == 0 ? 0.040 : 0.010), 0.01);
	}
	finish(&p, &s);
}

static void a_device_that_streams_waits_for_its_disk(void **state)
{
	(void)state;
	struct scenario s;
	struct prediction p = predict(
		TOP LINKS DEVICE(
			"a", "") "[[device]]\nname = 'b'\nmemory = '400 MB'\ncpu_read = '10 GB/s'\ncpu_flops = '200 GFLOP/s'\n"
				 "disk_read = '1 GB/s'\n[plan]\nlayers = { a = 6, b = 6 }\n" REQUEST,
		&s);
	assert_true(p.layouts[1].n_streamed >= 17);
	assert_within(p.summary.tpot.p50, p.tpot_s, 0.01);
	assert_true(p.tpot_s > 0.2); // more than 200 MB are read for each token
	assert_true(p.report.devices[1].stall_ns > 0);
	assert_within(
		(double)p.report.devices[1].sum_ns[REPORT_DISK] / 1e9, (double)p.layouts[1].streamed_bytes / 1e9 * 41, 0.05);
	finish(&p, &s);
}

static void several_rounds_run_on_the_world_too(void **state)
{
	(void)state;
	struct scenario s;
	struct prediction p = predict(TOP LINKS DEVICE("a", "") DEVICE("b", "") "[plan]\nrounds = 2\n" REQUEST, &s);
	assert_int_equal(p.host, PREDICTION_WORLD);
	assert_within(p.summary.tpot.p50, p.tpot_s, 0.01);
	finish(&p, &s);
	p = predict(TOP LINKS DEVICE("a", "") "[[device]]\nname = 'b'\nmemory = '400 MB'\ncpu_read = '10 GB/s'\ncpu_flops = '200 GFLOP/s'\n"
			"disk_read = '1 GB/s'\n[plan]\nrounds = 5\nlayers = { a = 6, b = 6 }\n" REQUEST, &s); // rounds that do not divide, and a disk
	assert_int_equal(p.host, PREDICTION_WORLD);
	assert_within(p.summary.tpot.p50, p.tpot_s, 0.01);
	assert_true(p.report.devices[1].stall_ns > 0);
	finish(&p, &s);
}

static void a_group_pays_its_exchanges_in_each_layer(void **state)
{
	(void)state;
	struct scenario s;
	struct prediction p = predict(TOP LINKS DEVICE("a", "") DEVICE("b", "") DEVICE("c", "") DEVICE("d",
					      "") "[group]\nexchange = 'star'\nbytes = '4096 B'\nsoftware = '0.5 ms'\n" REQUEST,
		&s);
	assert_int_equal(p.host, PREDICTION_GROUP);
	double exchange = 2 * (0.003 + 4096 / 12.5e6 + 0.0005);
	assert_within(p.exchange_s, exchange, 1e-6);
	assert_within(p.tpot_s, 12 * (0.0025 + 2 * 0.001 + 2 * exchange) + 0.005, 0.01);
	assert_within(p.summary.tpot.p50, p.tpot_s, 0.01);
	finish(&p, &s);
}

static void a_group_that_streams_is_as_slow_as_its_disks(void **state)
{
	(void)state;
	struct scenario s;
	struct prediction p = predict(TOP LINKS DEVICE("a", "disk_read = '100 MB/s'\n") DEVICE("b",
					      "disk_read = '100 MB/s'\n") "[group]\nexchange = 'pair'\nstreamed = 1\n" REQUEST,
		&s);
	assert_within(p.tpot_s, 6.005, 0.01);
	assert_within(p.summary.tpot.p50, 6.0, 0.01);
	finish(&p, &s);
}

static void the_same_scenario_gives_the_same_history(void **state)
{
	(void)state;
	static const char text[] = TOP "[[access_point]]\nname = 'h'\nrate = '100 Mbit/s'\n" DEVICE(
		"a", "access_point = 'h'\nprofile = 'W2'\n") DEVICE("b", "access_point = 'h'\nprofile = 'W1'\n") REQUEST;
	struct scenario s, t;
	struct prediction p = predict(text, &s), q = predict(text, &t);
	assert_true(p.history == q.history && p.history != 0);
	assert_true(p.summary.tpot.p50 == q.summary.tpot.p50);
	finish(&p, &s);
	finish(&q, &t);
	char other[sizeof text + 10];
	snprintf(other, sizeof other, "seed = 2\n%s", text);
	q = predict(other, &t);
	assert_true(p.history != q.history);
	finish(&q, &t);
}

static void an_answer_that_takes_too_long_is_told(void **state)
{
	(void)state;
	struct scenario s;
	struct prediction p = predict("duration = '4 s'\n" TOP DEVICE("a", "") REQUEST, &s);
	assert_true(p.timed_out);
	assert_true(p.summary.n_tokens > 0 && p.summary.n_tokens < 40);
	finish(&p, &s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_cores_take_what_the_cost_model_says),
		cmocka_unit_test(a_coordinator_without_layers_pays_both_ways),
		cmocka_unit_test(nodes_that_do_not_reach_each_other_pay_two_hops),
		cmocka_unit_test(requests_meet_the_times_of_a_trace),
		cmocka_unit_test(a_device_that_streams_waits_for_its_disk),
		cmocka_unit_test(several_rounds_run_on_the_world_too),
		cmocka_unit_test(a_group_pays_its_exchanges_in_each_layer),
		cmocka_unit_test(a_group_that_streams_is_as_slow_as_its_disks),
		cmocka_unit_test(the_same_scenario_gives_the_same_history),
		cmocka_unit_test(an_answer_that_takes_too_long_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
