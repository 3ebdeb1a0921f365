#include "sim/report.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS INT64_C(1000000)

static struct report two_devices(size_t intervals_cap)
{
	struct report r;
	assert_int_equal(report_open(2, 4, intervals_cap, 100, &r), OK);
	strcpy(r.devices[0].name, "desk");
	strcpy(r.devices[1].name, "attic");
	return r;
}

static void add(struct report *r, enum report_kind kind, int32_t device, int64_t begin_ms, int64_t end_ms)
{
	struct report_interval i = {.kind = kind,
		.device = device,
		.peer = kind == REPORT_LINK ? 1 - device : -1,
		.begin_ns = begin_ms * MS,
		.end_ns = end_ms * MS};
	report_add(r, &i);
}

static void latencies_are_those_of_the_definitions(void **state)
{
	(void)state;
	struct report r = two_devices(10);
	struct report_summary s;
	int32_t a = report_submit(&r, 100 * MS, 5), b = report_submit(&r, 200 * MS, 5);
	for (int i = 0; i < 5; i++)
		report_token(&r, a, (300 + 10 * i) * MS); // TTFT 200 ms, TPOT 10 ms
	report_token(&r, b, 1200 * MS);                   // TTFT 1 s, no TPOT
	report_fail(&r, b);
	assert_int_equal(report_summarise(&r, &s), OK);
	assert_int_equal(s.ttft.n, 2);
	assert_true(fabs(s.ttft.p50 - 0.2) < 1e-12);
	assert_true(fabs(s.ttft.p99 - 1.0) < 1e-12);
	assert_true(fabs(s.ttft.mean - 0.6) < 1e-12);
	assert_int_equal(s.tpot.n, 1);
	assert_true(fabs(s.tpot.p50 - 0.01) < 1e-12);
	assert_int_equal(s.gap.n, 4);
	assert_int_equal(s.n_tokens, 6);
	assert_int_equal(s.n_failed, 1);
	assert_true(fabs(s.span_s - 1.1) < 1e-12);
	assert_true(fabs(s.tokens_per_s - 6 / 1.1) < 1e-9);
	report_close(&r);
}

static void nothing_to_count_is_not_a_number(void **state)
{
	(void)state;
	struct report r = two_devices(10);
	struct report_summary s;
	report_submit(&r, 0, 5);
	assert_int_equal(report_summarise(&r, &s), OK);
	assert_true(isnan(s.ttft.p50) && isnan(s.tpot.mean) && isnan(s.tokens_per_s));
	report_close(&r);
}

static void time_that_overlaps_counts_once(void **state)
{
	(void)state;
	struct report r = two_devices(10);
	add(&r, REPORT_LINK, 0, 0, 10);
	add(&r, REPORT_LINK, 0, 5, 15);
	add(&r, REPORT_LINK, 0, 6, 9);
	add(&r, REPORT_LINK, 0, 20, 21);
	add(&r, REPORT_COMPUTE, 0, 0, 3);
	assert_int_equal(r.devices[0].sum_ns[REPORT_LINK], 16 * MS);
	assert_int_equal(r.devices[0].sum_ns[REPORT_COMPUTE], 3 * MS);
	assert_int_equal(r.devices[1].sum_ns[REPORT_LINK], 0);
	report_close(&r);
}

static void reads_that_follow_each_other_are_one_bar(void **state)
{
	(void)state;
	struct report r = two_devices(3);
	add(&r, REPORT_DISK, 0, 0, 10);
	add(&r, REPORT_DISK, 1, 0, 7);
	add(&r, REPORT_DISK, 0, 10, 20);
	add(&r, REPORT_DISK, 1, 8, 9);
	assert_int_equal(r.n_intervals, 3);
	assert_int_equal(r.intervals[0].end_ns, 20 * MS);
	add(&r, REPORT_COMPUTE, 0, 30, 40); // no room to draw it: counted all the same
	assert_int_equal(r.n_intervals, 3);
	assert_int_equal(r.n_dropped, 1);
	assert_int_equal(r.devices[0].sum_ns[REPORT_COMPUTE], 10 * MS);
	report_close(&r);
}

static char *drawn(const struct report *r, bool as_svg)
{
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);
	assert_non_null(to);
	if (as_svg)
		report_svg(r, "a <b> & \"c\"", to);
	else
		report_chrome_trace(r, to);
	assert_int_equal(ferror(to), 0);
	fclose(to);
	return text;
}

static struct report one_answer(void)
{
	struct report r = two_devices(100);
	int32_t q = report_submit(&r, 0, 3);
	for (int i = 0; i < 20; i++) {
		add(&r, REPORT_COMPUTE, 0, 100 * i, 100 * i + 40);
		add(&r, REPORT_LINK, 0, 100 * i + 40, 100 * i + 50);
		add(&r, REPORT_COMPUTE, 1, 100 * i + 50, 100 * i + 90);
		add(&r, REPORT_HEAD, 0, 100 * i + 95, 100 * i + 100);
		report_token(&r, q, (100 * i + 100) * MS);
	}
	return r;
}

static size_t count(const char *text, const char *word)
{
	size_t n = 0;
	for (; (text = strstr(text, word)) != NULL; text += strlen(word))
		n++;
	return n;
}

static void the_chart_shows_the_first_tokens_and_escapes_names(void **state)
{
	(void)state;
	struct report r = one_answer();
	char *svg = drawn(&r, true);
	assert_int_equal(strncmp(svg, "<svg ", 5), 0);
	assert_string_equal(svg + strlen(svg) - 7, "</svg>\n");
	assert_non_null(strstr(svg, "a &lt;b&gt; &amp; &quot;c&quot;"));
	assert_non_null(strstr(svg, ">desk compute, 40 ms from 0 ms</title>"));
	assert_non_null(strstr(svg, ">desk link to attic, 10 ms from 40 ms</title>"));
	assert_non_null(strstr(svg, "first token of request 0"));
	assert_null(strstr(svg, "from 1.90 s")); // the last token is not drawn
	size_t bars = count(svg, "<title>");
	assert_true(bars > 20 && bars < 40);
	free(svg);
	report_close(&r);
}

static void the_trace_is_json_with_every_interval(void **state)
{
	(void)state;
	struct report r = one_answer();
	char *text = drawn(&r, false);
	json_error_t error;
	json_t *root = json_loads(text, 0, &error);
	if (root == NULL)
		fail_msg("line %d: %s", error.line, error.text);
	json_t *events = json_object_get(root, "traceEvents");
	assert_int_equal(json_array_size(events), 2 * 5 + 80 + 1);
	json_t *first = json_array_get(events, 10);
	assert_string_equal(json_string_value(json_object_get(first, "ph")), "X");
	assert_true(json_number_value(json_object_get(first, "dur")) == 40000);
	json_decref(root);
	free(text);
	report_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(latencies_are_those_of_the_definitions),
		cmocka_unit_test(nothing_to_count_is_not_a_number),
		cmocka_unit_test(time_that_overlaps_counts_once),
		cmocka_unit_test(reads_that_follow_each_other_are_one_bar),
		cmocka_unit_test(the_chart_shows_the_first_tokens_and_escapes_names),
		cmocka_unit_test(the_trace_is_json_with_every_interval),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
