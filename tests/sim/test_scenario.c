#include "sim/scenario.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/network.h"
#include "sim/quantity.h"

#define MODEL "[model]\nname = 'm'\nlayers = 8\nhidden = 100\nlayer_bytes = '1 GB'\nhead_bytes = '0.5 GB'\n"
#define DEVICE(name) "[[device]]\nname = '" name "'\nmemory = '16 GiB'\ncpu_read = '10 GB/s'\n"
#define HOME "name = 'home'\n" MODEL DEVICE("a") DEVICE("b")

static enum err load(void *ctx, const char *path, const char **text, size_t *len, struct errmsg *em)
{
	(void)ctx;
	if (strcmp(path, "home.csv") != 0)
		return errmsg_fail(em, ERR_IO, "%s: cannot open: No such file or directory", path);
	*text = "t_s,rtt_ms\n0,4\n1,8\n";
	*len = strlen(*text);
	return OK;
}

static const struct trace_loader loader = {.load = load};

static struct scenario open_it(const char *text)
{
	struct scenario s;
	struct errmsg em = {""};
	if (scenario_open("x.toml", text, strlen(text), &loader, &s, &em) != OK)
		fail_msg("%s", em.text);
	return s;
}

static void assert_refused(const char *text, const char *words)
{
	struct scenario s;
	struct errmsg em = {""};
	if (scenario_open("x.toml", text, strlen(text), &loader, &s, &em) == OK)
		fail_msg("accepted: want \"%s\"", words);
	if (strncmp(em.text, "x.toml", 6) != 0 || strstr(em.text, words) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", em.text, words);
	assert_null(s.arena.data);
}

static void a_small_scenario_gets_what_it_left_out(void **state)
{
	(void)state;
	struct scenario s = open_it(HOME);
	assert_string_equal(s.name, "home");
	assert_int_equal(s.seed, 1);
	assert_int_equal(s.shape.n_layers, 8);
	assert_int_equal(s.shape.layer_bytes, 1000000000);
	assert_int_equal(s.shape.hop_bytes, 400);
	assert_int_equal(s.n_devices, 2);
	assert_int_equal(s.devices[1].cap_bytes, UINT64_C(16) << 30);
	assert_true(s.devices[0].cpu_rate == 10e9);
	assert_int_equal(s.plan.head, 0);
	assert_int_equal(s.plan.n_stages, 2);
	assert_int_equal(s.plan.stages[0].n_layers, 4);
	assert_true(s.is_even);
	assert_int_equal(s.n_requests, 1);
	assert_int_equal(s.params.kv_alloc, 4096);
	assert_int_equal(s.n_derived, 0);
	scenario_close(&s);
}

static void an_even_split_starts_with_the_coordinator_or_leaves_it_out(void **state)
{
	(void)state;
	struct scenario s = open_it(HOME DEVICE("c") "[plan]\ncoordinator = 'c'\n");
	assert_int_equal(s.plan.head, 2);
	assert_int_equal(s.plan.stages[0].device, 2);
	assert_int_equal(s.plan.stages[0].n_layers, 3);
	assert_int_equal(s.plan.stages[1].device, 0);
	assert_int_equal(s.plan.stages[2].n_layers, 2);
	scenario_close(&s);
	s = open_it(HOME DEVICE("c") "[plan]\ncoordinator = 'c'\ncoordinator_only = true\n");
	assert_int_equal(s.plan.n_stages, 2);
	assert_int_equal(s.plan.stages[0].device, 0);
	assert_int_equal(s.plan.stages[1].n_layers, 4);
	scenario_close(&s);
}

static void a_given_plan_is_in_the_order_it_is_written(void **state)
{
	(void)state;
	struct scenario s = open_it(HOME DEVICE("c") "[plan]\nrounds = 2\nlayers = { a = 2, c = 5, b = 1 }\n");
	assert_int_equal(s.plan.n_rounds, 2);
	assert_int_equal(s.plan.stages[1].device, 2);
	assert_int_equal(s.plan.stages[1].n_layers, 5);
	assert_int_equal(s.plan.stages[2].device, 1);
	assert_false(s.is_even);
	scenario_close(&s);
}

static void derived_figures_are_listed_with_their_reasons(void **state)
{
	(void)state;
	struct scenario s = open_it(
		"name = 'home'\n" MODEL
		"[[device]]\nname = 'a'\nmemory = '16 GiB'\ncpu_read = { value = '10 GB/s', derived = 'a guess' }\n"
		"visit = { value = '1 ms', derived = true }\ndisk_read = { value = '1 GB/s', derived = false }\n");
	assert_int_equal(s.n_derived, 2);
	assert_string_equal(s.derived[0].name, "a.cpu_read");
	assert_string_equal(s.derived[0].value, "10 GB/s");
	assert_string_equal(s.derived[0].why, "a guess");
	assert_string_equal(s.derived[1].name, "a.visit");
	assert_int_equal(s.devices[0].derived, CLUSTER_CPU_RATE | CLUSTER_VISIT);
	scenario_close(&s);
}

static void dimensions_give_bytes(void **state)
{
	(void)state;
	struct scenario s = open_it("name = 'x'\n[model]\nname = 'm'\nlayers = 2\nhidden = 512\nffn = 1024\nheads = 8\nkv_heads "
				    "= 2\nvocab = 1000\nweights = 'q4_0'\n"
				    "head_weights = 'f16'\nwire = 'f16'\n" DEVICE("a"));
	// q and o 512 x 512, k and v 128 x 512, three of 1024 x 512: 18 bytes for 32 weights; two norms of f32
	assert_int_equal(s.shape.layer_bytes, (2 * 512 * 512 + 2 * 128 * 512 + 3 * 1024 * 512) / 32 * 18 + 2 * 512 * 4);
	assert_int_equal(s.shape.head_bytes, 1000 * 512 * 2);
	assert_int_equal(s.shape.hop_bytes, 1024);
	assert_int_equal(s.shape.kv_bytes, 2 * 128 * 2);
	scenario_close(&s);
}

static void hops_are_two_legs_and_what_lies_between(void **state)
{
	(void)state;
	struct scenario s = open_it(
		"name = 'x'\n" MODEL "[[access_point]]\nname = 'hall'\nrate = '80 Mbit/s'\n[network]\ndelay = '1 ms'\n" DEVICE(
			"a") "rate = '8 Mbit/s'\ndelay = '2 ms'\n" DEVICE("b") "access_point = 'hall'\ntrace = "
									       "'home.csv'\n" DEVICE("c") "access_point = "
													  "'hall'\nprofile = "
													  "'w1'\n[[link]]"
													  "\nbetween = ['b', "
													  "'c']\ndelay = '10 "
													  "ms'\n");
	double hop;
	assert_true(cluster_hop(&s.cluster, 0, 1, 1000, &hop)); // 2 + 1 + 3 ms, and 1,000 bytes through 1 MB/s and 10 MB/s
	assert_true(fabs(hop - (0.006 + 0.001 + 0.0001)) < 1e-12);
	assert_true(cluster_hop(&s.cluster, 1, 2, 0, &hop));
	double w1 = (0.96 * 2 * exp(0.08) + 0.035 * 6 * exp(0.125) + 0.005 * (15 + (15 - 15 * pow(15.0 / 120, 0.3)) / 0.3)) /
		2000;
	assert_true(fabs(hop - (0.003 + 0.010 + w1)) < 1e-9);
	scenario_close(&s);
}

static void what_does_not_reach_each_other_passes_the_coordinator(void **state)
{
	(void)state;
	struct scenario s = open_it("name = 'x'\n" MODEL "[network]\ndelay = '1 ms'\nrate = '8 Mbit/s'\n" DEVICE("a") DEVICE("b") "delay = '2 ms'\n" DEVICE(
		"c") "[[link]]\nbetween = ['b', 'c']\ncut = true\n");
	double hop;
	assert_true(cluster_hop(&s.cluster, 1, 2, 1000, &hop));
	assert_true(fabs(hop - (0.003 + 0.001 + 2 * 0.001)) < 1e-12); // b to a, a to c, and 1,000 bytes through 1 MB/s twice
	assert_true(cluster_hop(&s.cluster, 2, 1, 1000, &hop));
	assert_true(fabs(hop - 0.006) < 1e-12);
	scenario_close(&s);
}

static void a_trace_stands_at_its_offset_when_the_cluster_is_ready(void **state)
{
	(void)state;
	struct scenario s = open_it(HOME "trace = 'home.csv'\noffset = '1 s'\n" DEVICE("c")); // b's; 4 ms, from 1 s on 8 ms, then again
	const int32_t machines[] = {1, 0};
	struct network n;
	struct arena a;
	struct errmsg em;
	int64_t at_ns;
	int32_t flow;
	assert_int_equal(arena_open(scenario_network_bytes(2), &a), OK);
	assert_int_equal(scenario_network(&s, machines, 2, &a, &n, &em), OK);
	assert_int_equal(network_open_flow(&n, 0, 1, &flow), OK);
	assert_int_equal(network_send(&n, flow, NETWORK_FORWARD, 0, INT64_C(700000000), &at_ns), NETWORK_ARRIVES);
	assert_int_equal(at_ns - INT64_C(700000000), 4000000);
	assert_int_equal(scenario_network_ready(&s, machines, 2, INT64_C(1700000000), &n, &em), OK);
	assert_int_equal(network_send(&n, flow, NETWORK_FORWARD, 0, INT64_C(1700000000), &at_ns), NETWORK_ARRIVES);
	assert_int_equal(at_ns - INT64_C(1700000000), 4000000);
	assert_int_equal(network_send(&n, flow, NETWORK_FORWARD, 0, INT64_C(2800000000), &at_ns), NETWORK_ARRIVES);
	assert_int_equal(at_ns - INT64_C(2800000000), 2000000);
	arena_close(&a);
	scenario_close(&s);
}

static void a_network_has_the_scenarios_delays_and_rates(void **state)
{
	(void)state;
	struct scenario s = open_it(
		"name = 'x'\n" MODEL "[network]\ndelay = '1 ms'\nrate = '8 Mbit/s'\n" DEVICE("a") "delay = '2 ms'\n" DEVICE("b"));
	struct arena a;
	struct network n;
	int32_t machines[2] = {1, 0}, flow;
	int64_t arrival_ns;
	assert_int_equal(arena_open(scenario_network_bytes(2), &a), OK);
	assert_int_equal(scenario_network(&s, machines, 2, &a, &n, NULL), OK);
	assert_int_equal(network_open_flow(&n, 0, 1, &flow), OK);
	assert_int_equal(network_send(&n, flow, NETWORK_FORWARD, 1000, 5, &arrival_ns), NETWORK_ARRIVES);
	assert_int_equal(arrival_ns, 5 + 1000000 + 3000000);
	arena_close(&a);
	scenario_close(&s);
}

static void requests_repeat(void **state)
{
	(void)state;
	struct scenario s = open_it(HOME
		"[serving]\nctx = 100\nslots = 3\n[[request]]\nprompt = 10\npredict = 20\n[[request]]\nat = '1 min'\nprompt = 5\n"
		"predict = 6\ncount = 3\nevery = '500 ms'\n");
	assert_int_equal(s.n_requests, 4);
	assert_true(s.requests[3].at_s == 61);
	assert_int_equal(s.requests[3].n_prompt, 5);
	assert_int_equal(s.params.kv_alloc, 300);
	assert_int_equal(s.params.kv_read, 20);
	scenario_close(&s);
}

static void mistakes_are_named_with_their_line(void **state)
{
	(void)state;
	assert_refused("", "scenario: name is missing");
	assert_refused("name = 'x'\n" MODEL, "device is missing");
	assert_refused("name = 'x'\n" DEVICE("a"), "model is missing");
	assert_refused("name = 'x'\nmodle = 1\n", "x.toml:2: scenario: unknown key modle, did you mean model?");
	assert_refused("name = 'x'\ndevice = []\n" MODEL, "no devices");
	assert_refused("name = 'x'\ndevice = [1]\n" MODEL, "want tables: [[device]]");
	assert_refused("name = 'x'\ndevice = 3\n" MODEL, "got an integer, want tables: [[device]]");
	assert_refused("name = 'x'\n[model]\nname = 'm'\nhidden = 3\n" DEVICE("a"), "model: layers is missing");
	assert_refused("name = 'x'\n[model]\nname = 'm'\ngguf = 'no.gguf'\n" DEVICE("a"), "model.gguf: no.gguf: cannot open");
	assert_refused("name = 'x'\n[model]\nname = 'm'\ngguf = 'home.csv'\n" DEVICE("a"), "model.gguf: ");
	assert_refused(HOME "memroy = '1 GB'\n", "x.toml:16: device: unknown key memroy, did you mean memory?");
	assert_refused(HOME "visit = 3\n", "device.visit: got an integer, want a string with a number and one of ns, us, ms");
	assert_refused(HOME "visit = '3 parsec'\n", "device.visit: got \"3 parsec\", want a number and one of");
	assert_refused(HOME "visit = '-3 ms'\n", "got \"-3 ms\"");
	assert_refused(HOME "visit = '1e3 ms'\n", "got \"1e3 ms\"");
	assert_refused(HOME "visit = '1.2.3 ms'\n", "got \"1.2.3 ms\"");
	assert_refused(HOME "visit = '2 min'\n", "device.visit: got 120 s, want 0 ms to 60 s");
	assert_refused(HOME "visit = { value = '1 ms', derive = true }\n", "unknown key derive, did you mean derived?");
	assert_refused(HOME "visit = { derived = true }\n", "a table without `value`");
	assert_refused(HOME "visit = { value = '1 ms', derived = 3 }\n", "want true, or a string");
	assert_refused(HOME "cpu_read_of = { q4k = '1 GB/s' }\n", "device.cpu_read_of: unknown key q4k, did you mean q4_k?");
	assert_refused(HOME "accelerator = '1 GiB'\n", "accelerator_read is missing");
	assert_refused(HOME "profile = 'W1x'\n", "device.profile: there is no profile W1x, did you mean W1?");
	assert_refused(HOME "profile = 'W1'\ntrace = 'home.csv'\n", "not both");
	assert_refused(HOME "trace = 'no.csv'\n", "no.csv: cannot open");
	assert_refused(HOME "offset = '1 s'\n", "offset goes with a trace");
	assert_refused(HOME "[[link]]\nbetween = ['a', 'b']\ncut = true\n", "link.cut: a and b: nobody relays what goes to the coordinator");
	assert_refused(HOME DEVICE("c") "[[link]]\nbetween = ['c', 'b']\ncut = true\n[group]\nexchange = 'star'\n", "the exchanges of a group");
	assert_refused(HOME "[network]\ncut = true\n", "network: unknown key cut");
	assert_refused(HOME "access_point = 'hal'\n", "there is no access point hal");
	assert_refused(HOME DEVICE("a"), "two are called a");
	assert_refused(HOME "[[link]]\nbetween = ['a', 'bb']\n", "link.between: there is no device bb, did you mean b?");
	assert_refused(HOME "[[link]]\nbetween = ['a', 'a']\n", "two different devices");
	assert_refused(HOME "[[link]]\nbetween = ['a', 'b']\n[[link]]\nbetween = ['b', 'a']\n", "has a link already");
	assert_refused(HOME "[[link]]\n", "between is missing");
	assert_refused(HOME "[network]\nbetween = ['a', 'b']\n", "network: unknown key between");
	assert_refused(HOME "[network]\nloss = 1.5\n", "network.loss: got 1.5, want 0 to 0.9");
	assert_refused(HOME "[plan]\ncoordinator = 'c'\n", "plan.coordinator: there is no device c");
	assert_refused(HOME "[plan]\nlayers = { a = 4, c = 4 }\n", "plan.layers: there is no device c");
	assert_refused(HOME "[plan]\nlayers = { b = 4, a = 4 }\n", "a is the coordinator: it comes first");
	assert_refused(HOME "[plan]\nlayers = { a = 4, b = 5 }\n", "2 stages hold 9 layers, the model has 8");
	assert_refused(HOME "[plan]\nlayers = { a = 0, b = 8 }\n", "a: want 1 to 1024 layers");
	assert_refused(HOME "[plan]\nlayers = {}\n", "want 1 to 64 devices");
	assert_refused(HOME "[plan]\npolicy = 'lur'\n", "plan.policy: got \"lur\", did you mean \"lru\"?");
	assert_refused(HOME "[plan]\nstreamed = { c = 1 }\n", "there is no device c");
	assert_refused(HOME "[plan]\nlayers = { a = 8 }\nstreamed = { b = 1 }\n", "b has no layers");
	assert_refused(HOME "[serving]\nctx = 64\n[[request]]\nprompt = 60\npredict = 5\n", "more than serving.ctx, 64");
	assert_refused(HOME "[[request]]\nprompt = 6\n", "predict is missing");
	assert_refused(HOME "[[request]]\nprompt = 6\npredict = 6\ncount = 1024\n[[request]]\nprompt = 1\npredict = 1\n",
		"more than 1024 requests");
	assert_refused(HOME "[group]\n", "exchange is missing");
	assert_refused(HOME DEVICE("c") "[group]\nexchange = 'pair'\n", "3 devices, and a pair has two");
	assert_refused(HOME "[published]\ntpot = '1 ms'\n", "source is missing");
	assert_refused("name = 'x'\nname = 'y'\n", "x.toml:2");
}

static void a_device_that_cannot_hold_its_part_is_told_with_the_arithmetic(void **state)
{
	(void)state;
	assert_refused("name = 'x'\n" MODEL "[[device]]\nname = 'a'\nmemory = '5 GB'\ncpu_read = '1 GB/s'\n",
		"a: its layers in memory are 8.000 GB, 4.500 GB fit, and it has no disk");
}

static void quantities_have_units(void **state)
{
	(void)state;
	double v;
	assert_int_equal(quantity_parse(QUANTITY_RATE, "300 Mbit/s", &v, NULL), OK);
	assert_true(v == 37.5e6);
	assert_int_equal(quantity_parse(QUANTITY_BYTES, "9.5GiB", &v, NULL), OK);
	assert_true(v == 9.5 * 1073741824);
	assert_int_equal(quantity_parse(QUANTITY_BYTES, "9 gib", &v, NULL), ERR_FORMAT);
	assert_int_equal(quantity_parse(QUANTITY_BYTES, "", &v, NULL), ERR_FORMAT);
	assert_int_equal(quantity_parse(QUANTITY_BYTES, "GiB", &v, NULL), ERR_FORMAT);
	assert_int_equal(quantity_parse(QUANTITY_BYTES, "0x10 B", &v, NULL), ERR_FORMAT);
	assert_int_equal(quantity_parse(QUANTITY_TIME, ". s", &v, NULL), ERR_FORMAT);
	assert_string_equal(quantity_print(QUANTITY_TIME, 0.00317).text, "3.17 ms");
	assert_string_equal(quantity_print(QUANTITY_TIME, 0).text, "0 ms");
	assert_string_equal(quantity_print(QUANTITY_TIME, 0.9999).text, "1.00 s");
	assert_string_equal(quantity_print(QUANTITY_BYTES, 42520000000).text, "42.5 GB");
	assert_string_equal(quantity_print(QUANTITY_FLOPS, 2e12).text, "2 TFLOP/s");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_small_scenario_gets_what_it_left_out),
		cmocka_unit_test(an_even_split_starts_with_the_coordinator_or_leaves_it_out),
		cmocka_unit_test(a_given_plan_is_in_the_order_it_is_written),
		cmocka_unit_test(derived_figures_are_listed_with_their_reasons),
		cmocka_unit_test(dimensions_give_bytes),
		cmocka_unit_test(hops_are_two_legs_and_what_lies_between),
		cmocka_unit_test(what_does_not_reach_each_other_passes_the_coordinator),
		cmocka_unit_test(a_trace_stands_at_its_offset_when_the_cluster_is_ready),
		cmocka_unit_test(a_network_has_the_scenarios_delays_and_rates),
		cmocka_unit_test(requests_repeat),
		cmocka_unit_test(mistakes_are_named_with_their_line),
		cmocka_unit_test(a_device_that_cannot_hold_its_part_is_told_with_the_arithmetic),
		cmocka_unit_test(quantities_have_units),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
