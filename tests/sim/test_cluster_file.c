// The machines and links of a file, without a plan: what `hearth plan` is given.
#include "sim/scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEVICE(name) "[[device]]\nname = '" name "'\nmemory = '16 GiB'\ncpu_read = '10 GB/s'\n"
#define MODEL "[model]\nname = 'm'\nlayers = 8\nhidden = 100\nlayer_bytes = '1 GB'\nhead_bytes = '0.5 GB'\n"
#define NETWORK "[network]\ndelay = '2 ms'\nrate = '80 Mbit/s'\n"

static struct scenario open_it(const char *text)
{
	struct scenario s;
	struct errmsg em = {""};
	if (scenario_open_cluster("x.toml", text, strlen(text), NULL, &s, &em) != OK)
		fail_msg("%s", em.text);
	return s;
}

static void assert_refused(const char *text, const char *words)
{
	struct scenario s;
	struct errmsg em = {""};
	if (scenario_open_cluster("x.toml", text, strlen(text), NULL, &s, &em) == OK)
		fail_msg("accepted: want \"%s\"", words);
	if (strncmp(em.text, "x.toml", 6) != 0 || strstr(em.text, words) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", em.text, words);
	if (strchr(em.text, '\n'))
		fail_msg("\"%s\" is more than one line", em.text);
	assert_null(s.arena.data);
}

static double hop_s(const struct scenario *s, int32_t from, int32_t to, double bytes)
{
	double t = -1;
	return cluster_hop(&s->cluster, from, to, bytes, &t) ? t : -1;
}

static void machines_alone_are_a_cluster(void **state)
{
	(void)state;
	struct scenario s = open_it(NETWORK DEVICE("a") DEVICE("b"));
	assert_int_equal(s.n_devices, 2);
	assert_int_equal(s.shape.n_layers, 0);
	assert_int_equal(s.ctx_len, 4096);
	assert_int_equal(s.plan.head, 0);
	assert_int_equal(s.params.units_per_layer, COST_UNITS_DEFAULT);
	scenario_close(&s);
	s = open_it(MODEL DEVICE("a"));
	assert_int_equal(s.shape.n_layers, 8);
	assert_string_equal(s.model_name, "m");
	scenario_close(&s);
}

// What a plan of the scenario would be refused for does not matter: the planner makes another one.
static void a_scenarios_plan_and_requests_are_not_looked_at(void **state)
{
	(void)state;
	struct scenario s = open_it(MODEL DEVICE("a") DEVICE("b") "[plan]\ncoordinator = 'b'\nlayers = { a = 700 }\n[serving]\nctx = 128\n"
								  "[[request]]\nprompt = 5000\npredict = 5000\n");
	assert_int_equal(s.plan.head, 1);
	assert_int_equal(s.ctx_len, 128);
	scenario_close(&s);
	assert_refused(DEVICE("a") "[plan]\ncoordinator = 'aa'\n", "plan.coordinator: there is no device aa, did you mean a?");
	assert_refused(DEVICE("a") "[plan]\nlayer = { a = 3 }\n", "unknown key layer, did you mean layers?");
}

static void hops_as_sums_are_the_hops_of_the_matrix(void **state)
{
	(void)state;
	static const char text[] = "[[access_point]]\nname = 'hall'\nrate = '100 Mbit/s'\n" NETWORK DEVICE("a") "access_point = 'hall'\nprofile = 'W1'\n" DEVICE(
		"b") "access_point = 'hall'\ndelay = '3 ms'\n" DEVICE("c") "rate = '1 Gbit/s'\n";
	struct scenario s = open_it(text);
	struct cluster_link matrix[9];
	struct cluster by_matrix = s.cluster;
	assert_non_null(s.cluster.attach);
	assert_null(s.cluster.links);
	scenario_means(&s, matrix);
	by_matrix.links = matrix;
	for (int32_t i = 0; i < 3; i++)
		for (int32_t j = 0; j < 3; j++) {
			double want = 0, got = hop_s(&s, i, j, 20000);
			assert_true(cluster_hop(&by_matrix, i, j, 20000, &want));
			assert_true(got >= want * (1 - 1e-12) && got <= want * (1 + 1e-12));
		}
	scenario_close(&s);
}

static void what_a_cut_pair_sends_goes_through_the_coordinator(void **state)
{
	(void)state;
	struct scenario s = open_it(NETWORK DEVICE("a") DEVICE("b") DEVICE("c") "[[link]]\nbetween = ['b', 'c']\ncut = true\n");
	assert_non_null(s.cluster.links);
	double direct = hop_s(&s, 0, 1, 1000), relayed = hop_s(&s, 1, 2, 1000);
	assert_true(relayed > direct * 2 * (1 - 1e-12) && relayed < direct * 2 * (1 + 1e-12));
	assert_int_equal(s.cluster.links[2 * 3 + 1].via, 1);
	assert_int_equal(s.cluster.links[2 * 3 + 0].via, 0);
	scenario_close(&s);
}

static void who_does_not_reach_the_coordinator_has_no_link(void **state)
{
	(void)state;
	struct scenario s = open_it(NETWORK DEVICE("a") DEVICE("b") DEVICE("c") "[[link]]\nbetween = ['a', 'c']\ncut = true\n"
									       "[[link]]\nbetween = ['c', 'b']\ncut = true\n");
	assert_true(hop_s(&s, 0, 1, 0) > 0);
	assert_true(hop_s(&s, 0, 2, 0) < 0);
	assert_true(hop_s(&s, 2, 1, 0) < 0);
	scenario_close(&s);
}

static void a_kind_of_disk_has_a_usual_rate_that_is_listed_as_assumed(void **state)
{
	(void)state;
	struct scenario s = open_it(DEVICE("pi") "disk = 'sd'\ntrusted = false\nbattery = true\n" DEVICE("pc") "disk = 'nvme'\ndisk_read = '3 GB/s'\n");
	assert_true(s.devices[0].disk_rate == 80e6);
	assert_true(s.devices[1].disk_rate == 3e9);
	assert_int_equal(s.devices[0].derived, CLUSTER_DISK_RATE);
	assert_int_equal(s.n_derived, 1);
	assert_string_equal(s.derived[0].name, "pi.disk_read");
	assert_string_equal(s.derived[0].value, "80 MB/s");
	assert_string_equal(scenario_disk_name(s.stations[0].disk), "an SD card");
	assert_true(s.stations[0].is_untrusted && s.stations[0].on_battery);
	assert_false(s.stations[1].is_untrusted || s.stations[1].on_battery);
	scenario_close(&s);
}

static void figures_that_no_machine_has_are_one_sentence(void **state)
{
	(void)state;
	assert_refused("", "device is missing");
	assert_refused("device = []\n", "no devices");
	assert_refused("[[device]]\nname = 'a'\nmemory = '0 B'\ncpu_read = '1 GB/s'\n", "device.memory: got 0 B, want 1 B to 1126 TB");
	assert_refused("[[device]]\nname = 'a'\nmemory = '1048576 TiB'\ncpu_read = '1 GB/s'\n", "device.memory: got 1152922 TB");
	assert_refused("[[device]]\nname = 'a'\nmemory = '1 GiB'\ncpu_read = 'nan GB/s'\n", "device.cpu_read: got \"nan GB/s\"");
	assert_refused("[[device]]\nname = 'a'\nmemory = '1 GiB'\ncpu_read = '0 GB/s'\n", "device.cpu_read: got 0 B/s, want 1 B/s");
	assert_refused("[[device]]\nname = 'a'\nmemory = '1 GiB'\ncpu_read = nan\n", "device.cpu_read: got a float, want a string");
	assert_refused("[[device]]\nname = 'a'\nmemory = '1 GiB'\nreserved = '1 GiB'\ncpu_read = '1 GB/s'\n", "leaves nothing for weights");
	assert_refused(DEVICE("a") DEVICE("a"), "two are called a");
	assert_refused(DEVICE("a") "disk = 'ssdd'\n", "got \"ssdd\", did you mean \"ssd\"?");
	assert_refused(DEVICE("a") "[placement]\nchains = 1\n", "a swarm has no plan of its own");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machines_alone_are_a_cluster),
		cmocka_unit_test(a_scenarios_plan_and_requests_are_not_looked_at),
		cmocka_unit_test(hops_as_sums_are_the_hops_of_the_matrix),
		cmocka_unit_test(what_a_cut_pair_sends_goes_through_the_coordinator),
		cmocka_unit_test(who_does_not_reach_the_coordinator_has_no_link),
		cmocka_unit_test(a_kind_of_disk_has_a_usual_rate_that_is_listed_as_assumed),
		cmocka_unit_test(figures_that_no_machine_has_are_one_sentence),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
