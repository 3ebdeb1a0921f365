// Topology files: what they mean, and what is said about those that are wrong.
#include "sim/shell/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS INT64_C(1000000)
#define TWO "[[device]]\nname = \"ada\"\nat = \"127.0.0.1:7433\"\n[[device]]\nname = \"bob\"\nat = \"127.0.0.2:7434\"\n"

static struct topology topo;
static struct errmsg em;

static enum err load_trace(void *ctx, const char *path, const char **text, size_t *len, struct errmsg *why)
{
	(void)ctx;
	*text = strcmp(path, "home.csv") == 0 ? "t_s,rtt_ms\n0,4\n1,6\n" : strcmp(path, "lte") == 0 ? "1\n2\n3\n" : strcmp(path, "normal.dist") == 0 ? "-8192 0 8192\n" : NULL;
	*len = *text ? strlen(*text) : 0;
	return *text ? OK : errmsg_fail(why, ERR_IO, "%s: no such file", path);
}

static enum err parse(const char *text)
{
	const struct trace_loader loader = {.load = load_trace};
	topology_close(&topo);
	em.text[0] = '\0';
	return topology_parse("t.toml", text, strlen(text), &loader, &topo, &em);
}

static void assert_refused(const char *text, const char *message)
{
	assert_int_not_equal(parse(text), OK);
	assert_string_equal(em.text, message);
}

static void a_home_is_read_whole(void **state)
{
	(void)state;
	assert_int_equal(parse("seed = 7\nsubnet = 9\n[network]\ndelay = \"1 ms\"\nrate = \"100 Mbit/s\"\n"
		"[[access_point]]\nname = \"ap\"\nrate = \"300 Mbit/s\"\n"
		"[[device]]\nname = \"hub\"\nat = \"127.0.0.1:7433\"\nrate = \"1 Gbit/s\"\n"
		"[[device]]\nname = \"pi\"\nat = \"127.9.255.1:7434\"\naccess_point = \"ap\"\nprofile = \"w3\"\ndelay = \"2 ms\"\n"
		"[[device]]\nname = \"far\"\nat = \"127.9.255.2:7434\"\ntrace = \"home.csv\"\noffset = \"1 s\"\n"
		"[[link]]\nbetween = [\"far\", \"hub\"]\ndelay = \"40 ms\"\nrate = \"20 Mbit/s\"\nrate_back = \"5 Mbit/s\"\nloss = 0.01\n"
		"[[link]]\nbetween = [\"pi\", \"far\"]\ntrace = \"normal.dist\"\nspread = \"3 ms\"\ndelay = \"10 ms\"\n"), OK);
	assert_int_equal(topo.seed, 7);
	assert_int_equal(topo.n_devices, 3);
	assert_int_equal(topo.devices[1].station.access_point, 0);
	assert_true(topo.devices[1].station.air_bps == 300000000);
	assert_true(topo.devices[0].station.up_bps == 1000000000 && topo.devices[0].station.down_bps == 1000000000);
	assert_string_equal(topo.devices[1].station.delay.profile->name, "W3");
	assert_int_equal(topo.devices[2].station.delay.kind, NETWORK_DELAY_TRACE);
	assert_true(topo.devices[2].station.delay.offset_ns == 1000 * MS);
	struct network_link_params p = topology_link_of(&topo, 0, 1);
	assert_true(p.base_ns == 3 * MS && p.rate_bps == 100000000 && p.rate_back_bps == 100000000); // the default, and the pi's own 2 ms
	p = topology_link_of(&topo, 0, 2);
	assert_true(p.base_ns == 40 * MS && p.rate_bps == 5000000 && p.rate_back_bps == 20000000); // described from the other end
	assert_true(p.loss == 0.01);
	p = topology_link_of(&topo, 2, 0);
	assert_true(p.rate_bps == 20000000 && p.rate_back_bps == 5000000);
	p = topology_link_of(&topo, 1, 2);
	assert_int_equal(p.delay.kind, NETWORK_DELAY_TABLE);
	assert_true(p.base_ns == 12 * MS && p.delay.spread_ns == 3 * MS && p.rate_bps == 0);
}

static void addresses_name_devices_and_pairs(void **state)
{
	(void)state;
	assert_int_equal(parse("subnet = 9\n" TWO), OK);
	assert_int_equal(topology_device_ip(&topo, 1), 0x7f090002);
	assert_int_equal(topology_pair_ip(&topo, 0, 1), 0x7f090102);
	assert_int_equal(topology_pair_ip(&topo, 1, 0), 0x7f090201);
	assert_int_equal(topology_find(&topo, "bob"), 1);
	assert_int_equal(topology_find(&topo, "eve"), -1);
}

static void deliveries_and_a_profile_go_together(void **state)
{
	(void)state;
	assert_int_equal(parse(TWO "[[link]]\nbetween = [\"ada\", \"bob\"]\ntrace = \"lte\"\nprofile = \"W1\"\n"), OK);
	struct network_link_params p = topology_link_of(&topo, 0, 1);
	assert_int_equal(p.delay.kind, NETWORK_DELAY_PROFILE);
	assert_ptr_equal(p.deliveries, &topo.traces.traces[0]);
	assert_ptr_equal(p.deliveries_back, &topo.traces.traces[0]);
}

static void a_home_of_w9_has_one_straggler(void **state)
{
	(void)state;
	assert_int_equal(parse("[[device]]\nname = \"a\"\nat = \"127.0.0.1:1\"\nprofile = \"W9\"\n[[device]]\nname = \"b\"\nat = \"127.0.0.1:2\"\nprofile = \"W9\"\n"), OK);
	assert_string_equal(topo.devices[0].station.delay.profile->name, "W5");
	assert_string_equal(topo.devices[1].station.delay.profile->name, "W1");
}

static void a_trace_named_twice_is_read_once(void **state)
{
	(void)state;
	assert_int_equal(parse("[[device]]\nname = \"a\"\nat = \"127.0.0.1:1\"\ntrace = \"home.csv\"\n[[device]]\nname = \"b\"\nat = \"127.0.0.1:2\"\ntrace = \"home.csv\"\n"), OK);
	assert_int_equal(topo.traces.n, 1);
	assert_ptr_equal(topo.devices[0].station.delay.trace, topo.devices[1].station.delay.trace);
}

static void slips_are_told_with_file_and_line(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
		{"sed = 1\n", "t.toml:1: topology: unknown key sed, did you mean seed?"},
		{"seed = 1\n", "t.toml:1: topology: device is missing"},
		{"seed = -1\n", "t.toml:1: topology.seed: got -1, want 0 to 9.3e+18"},
		{"subnet = 255\n" TWO, "t.toml:1: topology.subnet: got 255, want 1 to 254"},
		{"[[device]]\nname = \"a\"\nat = \"127.0.0.1:1\"\n", "t.toml:1: device: 1 of them, want at least 2"},
		{"[device]\nname = \"a\"\n", "t.toml:1: device: got a table, want tables: [[device]]"},
		{"[[device]]\nat = \"127.0.0.1:1\"\n", "t.toml:1: device: name is missing"},
		{"[[device]]\nname = \"a b\"\n", "t.toml:2: device.name: want 1 to 63 letters, digits, '.', '_' or '-'"},
		{"[[device]]\nname = \"a\"\nat = \"127.0.0.1\"\n", "t.toml:3: device.at: want an IPv4 address and a port, such as \"127.0.0.1:7433\""},
		{"[[device]]\nname = \"a\"\nat = \"127.0.0.1:70000\"\n", "t.toml:3: device.at: want an IPv4 address and a port, such as \"127.0.0.1:7433\""},
		{"[[device]]\nname = \"a\"\nat = \"192.168.1.1:80\"\n", "t.toml:3: device.at: 192.168.1.1 is not of this machine: want 127.x.x.x"},
		{"[[device]]\nname = \"a\"\nat = \"127.77.0.1:80\"\n", "t.toml:1: device.at: 127.77.x.x is for the relay, but for 127.77.255.x"},
		{TWO "[[device]]\nname = \"ada\"\nat = \"127.0.0.3:1\"\n", "t.toml:7: device: two are called ada"},
		{TWO "[[device]]\nname = \"c\"\nat = \"127.0.0.1:7433\"\n", "t.toml:7: device.at: ada and c are at the same address"},
		{TWO "[[device]]\nname = \"c\"\nat = \"127.0.0.3:1\"\naccess_point = \"ap\"\n", "t.toml:7: device.access_point: there is no access point ap"},
		{"[[access_point]]\nname = \"ap\"\n[[device]]\nname = \"c\"\nat = \"127.0.0.3:1\"\naccess_point = \"ap\"\nrate = \"1 MB/s\"\n",
			"t.toml:3: device.rate: c is at an access point, whose rate it shares"},
		{TWO "[[device]]\nname = \"c\"\nat = \"127.0.0.3:1\"\nprofile = \"W11\"\n", "t.toml:10: device.profile: there is no profile W11, did you mean W1?"},
		{TWO "[[device]]\nname = \"c\"\nat = \"127.0.0.3:1\"\nprofile = \"W1\"\ntrace = \"home.csv\"\n",
			"t.toml:7: device: profile and trace both give the delay: want one of them"},
		{TWO "[[device]]\nname = \"c\"\nat = \"127.0.0.3:1\"\ntrace = \"lte\"\n", "t.toml:7: device.trace: want a trace of delays; others are for links"},
		{TWO "[[device]]\nname = \"c\"\nat = \"127.0.0.3:1\"\ntrace = \"gone\"\n", "t.toml:10: device.trace: gone: no such file"},
		{TWO "[[device]]\nname = \"c\"\nat = \"127.0.0.3:1\"\noffset = \"1 s\"\n", "t.toml:7: device: offset goes with a trace of delays"},
		{TWO "[[link]]\nbetween = [\"ada\", \"bop\"]\n", "t.toml:8: link.between: there is no device bop, did you mean bob?"},
		{TWO "[[link]]\nbetween = [\"ada\", \"ada\"]\n", "t.toml:8: link.between: want two different devices"},
		{TWO "[[link]]\nbetween = [\"ada\"]\n", "t.toml:8: link.between: want the names of two devices: [\"a\", \"b\"]"},
		{TWO "[[link]]\nbetween = [\"ada\", \"bob\"]\n[[link]]\nbetween = [\"bob\", \"ada\"]\n", "t.toml:10: link.between: this pair has a link already"},
		{TWO "[[link]]\nbetween = [\"ada\", \"bob\"]\nloss = 1\n", "t.toml:9: link.loss: got 1, want 0 to 0.9"},
		{TWO "[[link]]\nbetween = [\"ada\", \"bob\"]\nspread = \"1 ms\"\n", "t.toml:7: link: spread goes with a distribution table"},
		{TWO "[[link]]\nbetween = [\"ada\", \"bob\"]\ntrace = \"normal.dist\"\n", "t.toml:7: link: a distribution table needs a spread, the sigma of the delay"},
		{TWO "[[link]]\nbetween = [\"ada\", \"bob\"]\ntrace = \"lte\"\nrate = \"1 MB/s\"\n",
			"t.toml:7: link: rate and a trace of deliveries both give the rate: want one of them"},
		{TWO "[[link]]\nbetween = [\"ada\", \"bob\"]\nprofile = \"W9\"\n", "t.toml:7: link: W9 is a home's profile: give it to the devices"},
		{TWO "[network]\nrate = 5\n", "t.toml:8: network.rate: got an integer, want a string with a number and one of B/s, kB/s, MB/s, GB/s, TB/s, MiB/s, GiB/s, bit/s, kbit/s, "
			"Mbit/s, Gbit/s"},
		{TWO "[network]\nrate = \"8 bit/s\"\n", "t.toml:8: network.rate: got 1 B/s, want 125 B/s to 137 GB/s"},
		{TWO "[network]\ndelay = \"2 h\"\n", "t.toml:8: network.delay: got 7200 s, want 0 ms to 3600 s"},
		{TWO "[network]\nbetween = 1\n", "t.toml:8: network: unknown key between"},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_refused(cases[i][0], cases[i][1]);
}

static void without_a_loader_traces_are_refused(void **state)
{
	(void)state;
	static const char text[] = TWO "[network]\ntrace = \"home.csv\"\n";
	topology_close(&topo);
	assert_int_equal(topology_parse("t.toml", text, sizeof text - 1, NULL, &topo, &em), ERR_FORMAT);
	assert_string_equal(em.text, "t.toml:8: network.trace: files cannot be read here");
}

static void sixty_four_devices_fit_and_no_more(void **state)
{
	(void)state;
	char *text = calloc(66, 64);
	for (int n = 64; n <= 65; n++) {
		size_t len = 0;
		for (int i = 0; i < n; i++)
			len += (size_t)sprintf(text + len, "[[device]]\nname = \"d%d\"\nat = \"127.0.1.%d:7\"\n", i, i + 1);
		if (n == 64)
			assert_int_equal(parse(text), OK);
		else
			assert_refused(text, "t.toml:1: device: 65 of them, want at most 64");
	}
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_home_is_read_whole),
		cmocka_unit_test(addresses_name_devices_and_pairs),
		cmocka_unit_test(deliveries_and_a_profile_go_together),
		cmocka_unit_test(a_home_of_w9_has_one_straggler),
		cmocka_unit_test(a_trace_named_twice_is_read_once),
		cmocka_unit_test(slips_are_told_with_file_and_line),
		cmocka_unit_test(without_a_loader_traces_are_refused),
		cmocka_unit_test(sixty_four_devices_fit_and_no_more),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	topology_close(&topo);
	return failed;
}
