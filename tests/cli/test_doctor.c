// The checks of `hearth doctor`, shown machines, networks and clusters that a test makes up.
#include "cli/doctor_live.h"
#include "cli/doctor_machine.h"
#include "cli/doctor_network.h"
#include "cli/doctor_reach.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/fake_tree.h"
#include "tests/support/scratch.h"
#include "tests/support/sockets.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

static int setup(void **state)
{
	*state = calloc(1, sizeof(struct doctor_report));
	return *state != NULL ? 0 : -1;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

// find returns the finding about `check` whose text holds `part`; there must be one.
static const struct doctor_finding *find(const struct doctor_report *r, const char *check, const char *part)
{
	for (int32_t i = 0; i < r->n; i++)
		if (strcmp(r->at[i].check, check) == 0 && strstr(r->at[i].found, part) != NULL)
			return &r->at[i];
	doctor_print(stderr, r);
	fail_msg("no finding about %s with \"%s\"", check, part);
	return NULL;
}

static void expect(const struct doctor_report *r, enum doctor_level level, const char *check, const char *part, const char *advice)
{
	const struct doctor_finding *f = find(r, check, part);
	assert_int_equal(f->level, level);
	if (advice == NULL)
		assert_string_equal(f->advice, "");
	else if (strstr(f->advice, advice) == NULL)
		fail_msg("%s: the advice is \"%s\", without \"%s\"", check, f->advice, advice);
}

static struct memory_facts healthy(void)
{
	return (struct memory_facts){.total_bytes = 8 * GIB, .available_bytes = 6 * GIB, .group_limit_bytes = MEMORY_UNLIMITED, .memlock_bytes = MEMORY_UNLIMITED,
		.pressure = -1};
}

// ---- the report

static void findings_are_counted_and_bounded_and_fit_for_a_terminal(void **state)
{
	struct doctor_report *r = *state;
	for (int i = 0; i < 200; i++)
		doctor_add(r, DOCTOR_WARNING, "x", "a\x1b[2Jb", "name \x1b]0;evil\x07%d", i);
	doctor_add(r, DOCTOR_PROBLEM, "y", NULL, "late");
	assert_int_equal(r->n, DOCTOR_FINDINGS_MAX);
	assert_int_equal(r->n_left_out, 201 - DOCTOR_FINDINGS_MAX);
	assert_true(r->n_warnings == 200 && r->n_problems == 1);
	assert_string_equal(r->at[0].found, "name ?]0;evil?0");
	assert_string_equal(r->at[0].advice, "a?[2Jb");
	json_t *o = doctor_json(r);
	assert_true(json_is_false(json_object_get(o, "ok")) && json_array_size(json_object_get(o, "findings")) == DOCTOR_FINDINGS_MAX);
	assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(o, "findings"), 0), "level")), "warning");
	json_decref(o);
}

// ---- the machine

static void memory_is_enough_little_or_too_little(void **state)
{
	struct doctor_report *r = *state;
	struct memory_facts m = healthy();
	doctor_memory(&m, r);
	expect(r, DOCTOR_OK, "memory", "6.0 GiB of 8.0 GiB", NULL);
	m.available_bytes = 1 * GIB;
	doctor_memory(&m, r);
	expect(r, DOCTOR_WARNING, "memory", "1.0 GiB of", "close programs");
	m.available_bytes = 100 * MIB;
	doctor_memory(&m, r);
	expect(r, DOCTOR_PROBLEM, "memory", "100 MiB of", "too little");
}

static void limits_swap_and_pressure_are_said_with_a_way_out(void **state)
{
	struct doctor_report *r = *state;
	struct memory_facts m = healthy();
	m.group_limit_bytes = 3 * GIB;
	m.group_used_bytes = 1 * GIB;
	m.swap_total_bytes = 2 * GIB;
	m.swap_free_bytes = GIB / 2;
	m.memlock_bytes = 8 * MIB;
	m.pressure = 2500;
	doctor_memory(&m, r);
	expect(r, DOCTOR_OK, "memory", "2.0 GiB of", NULL);
	expect(r, DOCTOR_WARNING, "memory limit", "limits this program to 3.0 GiB", "--mem below this limit");
	expect(r, DOCTOR_WARNING, "swap", "1.5 GiB of 2.0 GiB", "--mem");
	expect(r, DOCTOR_WARNING, "memory pressure", "25 %", "--mem");
	expect(r, DOCTOR_OK, "locked memory", "may lock 8 MiB", NULL);
}

static void processors_that_are_held_back_hot_busy_or_on_battery_are_warned_of(void **state)
{
	struct doctor_report *r = *state;
	struct power_facts p = {.n_governed = 4, .n_held_low = 4, .max_khz = 1800000, .allowed_khz = 1800000, .has_battery = true, .is_on_battery = true,
		.battery_percent = 30, .hottest_millidegrees = 90000, .load = 390, .governor = "powersave"};
	doctor_power(&p, 4, "portable", r);
	expect(r, DOCTOR_WARNING, "processor", "portable code", "few layers");
	expect(r, DOCTOR_WARNING, "processor clock", "4 of 4", "scaling_governor");
	expect(r, DOCTOR_WARNING, "power", "30 %", "plug it in");
	expect(r, DOCTOR_WARNING, "heat", "90 degrees", "fewer threads");
	expect(r, DOCTOR_WARNING, "load", "3.9 programs", "other programs");
	*r = (struct doctor_report){0};
	p = (struct power_facts){.n_governed = 4, .max_khz = 4000000, .allowed_khz = 2000000, .has_battery = true, .battery_percent = -1, .hottest_millidegrees = INT32_MIN,
		.load = 10, .governor = "schedutil"};
	doctor_power(&p, 4, "avx2", r);
	expect(r, DOCTOR_WARNING, "processor clock", "2.0 of 4.0 GHz", "power profile");
	expect(r, DOCTOR_OK, "power", "plugged in", NULL);
	assert_int_equal(r->n_warnings, 1);
	*r = (struct doctor_report){0};
	p = (struct power_facts){.load = -1, .battery_percent = -1, .hottest_millidegrees = INT32_MIN}; // a virtual machine
	doctor_power(&p, 4, "avx2", r);
	assert_true(r->n == 1 && r->n_warnings == 0);
}

static void disks_are_judged_by_kind_room_and_rate(void **state)
{
	struct doctor_report *r = *state;
	struct disk_facts d = {.kind = DISK_SOLID, .free_bytes = 100 * GIB, .total_bytes = 200 * GIB};
	doctor_disk("cache", "/c", &d, 2e9, r);
	expect(r, DOCTOR_OK, "cache disk", "read at 2000 MB/s, 100.0 GiB free", NULL);
	doctor_disk("cache", "/slow", &d, 90e6, r);
	expect(r, DOCTOR_WARNING, "cache disk", "/slow", "fit into memory");
	const struct { enum disk_kind kind; const char *advice; } kinds[] = {{DISK_ROTATING, "fit into memory"}, {DISK_SD_CARD, "wears out"},
		{DISK_NETWORK, "on a disk of this machine"}, {DISK_MEMORY, "takes memory"}, {DISK_REMOVABLE, "do not pull"}};
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		d.kind = kinds[i].kind;
		*r = (struct doctor_report){0};
		doctor_disk("cache", "/k", &d, 0, r);
		expect(r, DOCTOR_WARNING, "cache disk", disk_kind_words(d.kind), kinds[i].advice);
	}
	d.kind = DISK_ROTATING; // a virtual machine's, which is fast; and the state, which is small
	*r = (struct doctor_report){0};
	doctor_disk("cache", "/v", &d, 1e9, r);
	doctor_disk("state", "/v", &d, 0, r);
	assert_true(r->n == 2 && r->n_warnings == 0);
	d = (struct disk_facts){.kind = DISK_SOLID, .free_bytes = 2 * GIB};
	doctor_disk("cache", "/small", &d, 0, r);
	expect(r, DOCTOR_WARNING, "cache disk", "/small", "make room");
	d.free_bytes = MIB;
	doctor_disk("state", "/full", &d, 0, r);
	expect(r, DOCTOR_PROBLEM, "state disk", "only 1 MiB", "make room");
}

static void a_directory_that_others_may_enter_is_a_problem_with_its_command(void **state)
{
	struct doctor_report *r = *state;
	char dir[SCRATCH_CAP], path[SCRATCH_CAP + 8];
	assert_true(scratch_open(dir));
	doctor_directory("state", dir, r);
	expect(r, DOCTOR_OK, "state directory", "yours alone", NULL);
	assert_int_equal(chmod(dir, 0755), 0);
	doctor_directory("state", dir, r);
	expect(r, DOCTOR_PROBLEM, "state directory", "mode 755", "chmod 700");
	snprintf(path, sizeof path, "%s/none", dir);
	doctor_directory("cache", path, r);
	expect(r, DOCTOR_OK, "cache directory", "will be made", NULL);
	scratch_write(path, "", 0);
	assert_null(strstr(find(r, "state directory", "mode 755")->advice, "keys")); // the cache holds none
	*r = (struct doctor_report){0};
	doctor_directory("cache", path, r);
	expect(r, DOCTOR_PROBLEM, "cache directory", "is no directory", "--cache");
	assert_int_equal(scratch_remove(dir), 0);
}

static void a_clock_that_nobody_sets_is_warned_of(void **state)
{
	struct doctor_report *r = *state;
	doctor_clock(true, r);
	expect(r, DOCTOR_OK, "clock", "set by the network", NULL);
	doctor_clock(false, r);
	expect(r, DOCTOR_WARNING, "clock", "not set", "timedatectl");
	doctor_clock_offset(-0.02, r);
	expect(r, DOCTOR_OK, "clock", "within 0.1 s of the coordinator's", NULL);
	doctor_clock_offset(61, r);
	expect(r, DOCTOR_WARNING, "clock", "61 s ahead of the coordinator's", "timedatectl");
	doctor_clock_offset(-4000, r);
	expect(r, DOCTOR_PROBLEM, "clock", "4000 s behind the coordinator's", "expired");
}

// ---- the network

static void slow_cables_and_sleeping_radios_are_warned_of(void **state)
{
	struct doctor_report *r = *state;
	struct network_facts f = {.n = 5, .at = {{.name = "eth0", .mbit = 100}, {.name = "eth1", .mbit = 1000}, {.name = "eth2", .mbit = 1000, .is_half_duplex = true},
		{.name = "wlan0", .is_wireless = true, .signal_dbm = -50}, {.name = "wlan1", .is_wireless = true, .signal_dbm = -80}}};
	enum doctor_saving saving[NETWORK_INTERFACES_MAX] = {[3] = SAVING_ON, [4] = SAVING_OFF};
	doctor_interfaces(&f, saving, r);
	expect(r, DOCTOR_WARNING, "eth0", "100 Mbit/s", "Cat 5e");
	expect(r, DOCTOR_OK, "eth1", "1000 Mbit/s", NULL);
	expect(r, DOCTOR_WARNING, "eth2", "half duplex", "cable");
	expect(r, DOCTOR_WARNING, "wlan0", "power save on, signal -50 dBm", "iw dev wlan0 set power_save off");
	expect(r, DOCTOR_WARNING, "wlan1", "weak signal (-80 dBm)", "access point");
	f.n = 0;
	doctor_interfaces(&f, saving, r);
	expect(r, DOCTOR_WARNING, "network", "no network interface", "connect it");
	assert_int_equal(doctor_power_save("no-such-if0"), SAVING_UNKNOWN);
}

static void firewalls_come_with_the_command_that_opens_them(void **state)
{
	struct doctor_report *r = *state;
	struct network_facts f = {.has_ufw = true, .has_firewalld = true, .has_filters = true};
	doctor_firewall(&f, r);
	expect(r, DOCTOR_WARNING, "firewall", "ufw", "sudo ufw allow 7433:7434/tcp");
	expect(r, DOCTOR_WARNING, "firewall", "firewalld", "--add-port=7433-7434/tcp");
	assert_int_equal(r->n, 2);
	f = (struct network_facts){.has_filters = true};
	doctor_firewall(&f, r);
	expect(r, DOCTOR_OK, "firewall", "only root can see", NULL);
}

static void a_port_that_somebody_has_is_no_wonder_while_hearth_runs(void **state)
{
	struct doctor_report *r = *state;
	char root[SCRATCH_CAP];
	assert_true(scratch_open(root));
	fake_tree_put(root, "/proc/net/tcp", "  sl\n   0: 00000000:1D09 00000000:0000 0A 0\n");
	doctor_ports(root, false, r);
	expect(r, DOCTOR_WARNING, "port 7433", "listens there", "serve --listen");
	expect(r, DOCTOR_OK, "port 7434", "free for hearth join", NULL);
	*r = (struct doctor_report){0};
	doctor_ports(root, true, r);
	expect(r, DOCTOR_OK, "port 7433", "a hearth runs", NULL);
	assert_int_equal(scratch_remove(root), 0);
}

static void coordinators_of_another_version_are_a_problem(void **state)
{
	struct doctor_report *r = *state;
	struct lan_search_result found = {.state = DISCOVERY_SETTLED, .list = {.n = 2, .n_refused = 3}};
	for (int i = 0; i < 2; i++) {
		struct found *f = &found.list.at[i];
		*f = (struct found){.key.interface = i + 1, .port = 7433, .addr = {[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)(i + 1)},
			.txt = {.id.b = {(uint8_t)(i + 1)}, .protocol_version = 1, .canon_version = 3 + (uint32_t)i}};
		snprintf(f->txt.name, sizeof f->txt.name, "home-%d", i);
	}
	doctor_discovery(&found, 1, 3, r);
	expect(r, DOCTOR_OK, "coordinator", "home-0", NULL);
	expect(r, DOCTOR_PROBLEM, "version", "home-1 (0200-0000-0000-0000) at 10.0.0.2:7433", "same version");
	expect(r, DOCTOR_WARNING, "discovery", "3 announcements", "look who");
	found = (struct lan_search_result){.state = DISCOVERY_OFF, .why = "no daemon"};
	doctor_discovery(&found, 1, 3, r);
	expect(r, DOCTOR_WARNING, "discovery", "no daemon", "apt install avahi-daemon");
}

static void links_that_are_slow_or_stall_are_told_apart(void **state)
{
	struct doctor_report *r = *state;
	struct doctor_rtts good = {.n = 6, .ms = {1, 2, 3, 1, 2, 9}}, slow = {.n = 5, .ms = {30, 40, 35, 32, 90}}, stalls = {.n = 6, .ms = {3, 2, 250, 3, 2, 3}}, few = {.n = 1, .ms = {400}},
		none = {0};
	doctor_link("good", &good, r);
	expect(r, DOCTOR_OK, "link", "good: round trip 2.0 ms", NULL);
	doctor_link("slow", &slow, r);
	expect(r, DOCTOR_WARNING, "link", "slow: round trip 35.0 ms", "5 GHz");
	doctor_link("stalls", &stalls, r);
	expect(r, DOCTOR_WARNING, "link", "one of 6 took 250", "power save off");
	doctor_link("few", &few, r);
	expect(r, DOCTOR_OK, "link", "400.0 ms (1 measured)", NULL);
	doctor_link("none", &none, r);
	assert_int_equal(r->n, 4);
}

// ---- reaching

static void a_port_that_listens_is_reached_and_a_dead_one_refused(void **state)
{
	struct doctor_report *r = *state;
	struct reach_result t;
	struct doctor_rtts rtts;
	uint16_t port;
	char addr[32];
	int fd = socket_listen(16, &port);
	snprintf(addr, sizeof addr, "127.0.0.1:%u", port);
	reach_try("", addr, 20000, &t);
	assert_int_equal(t.end, REACH_OK);
	reach_sample(addr, 2, &rtts);
	assert_int_equal(rtts.n, 2);
	close(fd);
	reach_try("", addr, 20000, &t);
	assert_int_equal(t.end, REACH_REFUSED);
	reach_explain("it", addr, &t, false, r);
	expect(r, DOCTOR_PROBLEM, "reachability", "nothing listens", "--listen");
	reach_try("", "no colon", 1000, &t);
	assert_int_equal(t.end, REACH_NO_NAME);
}

static void silence_is_explained_by_who_answers_arp_and_by_the_other_way(void **state)
{
	struct doctor_report *r = *state;
	struct reach_result t = {.end = REACH_SILENT, .neighbour = NEIGHBOUR_PRESENT};
	reach_explain("kitchen", "10.0.0.1:7433", &t, false, r);
	expect(r, DOCTOR_PROBLEM, "reachability", "a firewall drops", "open the port");
	t.neighbour = NEIGHBOUR_SILENT;
	reach_explain("kitchen", "10.0.0.2:7433", &t, false, r);
	expect(r, DOCTOR_PROBLEM, "reachability", "nobody in this network answers", "client isolation");
	t.neighbour = NEIGHBOUR_UNKNOWN;
	reach_explain("kitchen", "10.0.0.3:7433", &t, false, r);
	expect(r, DOCTOR_PROBLEM, "reachability", "10.0.0.3:7433: no answer", "NAT");
	reach_explain("kitchen", "10.0.0.4:7434", &t, true, r);
	expect(r, DOCTOR_PROBLEM, "reachability", "only one way works: kitchen reached this machine", "firewall");
	t.end = REACH_NO_ROUTE;
	reach_explain("kitchen", "10.0.0.5:7433", &t, false, r);
	expect(r, DOCTOR_PROBLEM, "reachability", "no route", "one network");
	t.neighbour = NEIGHBOUR_SILENT;
	reach_explain("kitchen", "10.0.0.6:7433", &t, false, r);
	expect(r, DOCTOR_PROBLEM, "reachability", "10.0.0.6:7433: nobody in this network answers", "client isolation");
}

// ---- a running cluster

static json_t *parse(const char *text)
{
	json_t *o = json_loads(text, 0, NULL);
	assert_non_null(o);
	return o;
}

static void nodes_relays_and_links_of_a_status_are_judged(void **state)
{
	struct doctor_report *r = *state;
	struct doctor_watch *w = calloc(1, sizeof *w);
	for (int i = 1; i <= 7; i++) {
		char text[1024];
		snprintf(text, sizeof text, "{\"ready\": true, \"model\": \"m\", \"nodes\": [{\"id\": \"aa\", \"name\": \"here\", \"state\": \"ready\", \"local\": true},"
			"{\"id\": \"bb\", \"name\": \"pi\", \"state\": \"ready\", \"next_link\": \"relay\", \"rtt_ms\": %d, \"rtt_n\": %d, \"heard\": 5000, \"late\": 900},"
			"{\"id\": \"cc\", \"name\": \"attic\", \"state\": \"absent\", \"detail\": \"silent\", \"next_link\": \"direct\", \"next_rtt_ms\": 2.5, \"next_rtt_n\": 3}]}",
			i == 4 ? 300 : 3, i);
		json_t *status = parse(text);
		doctor_watch_take(w, status);
		doctor_watch_take(w, status); // the same round trip again counts once
		if (i == 7)
			doctor_live_nodes(status, w, r);
		json_decref(status);
	}
	expect(r, DOCTOR_OK, "cluster", "ready: m", NULL);
	expect(r, DOCTOR_OK, "node", "pi: ready", NULL);
	expect(r, DOCTOR_WARNING, "node", "attic: is not connected: silent", "hearth join");
	expect(r, DOCTOR_WARNING, "node to node", "pi and the next machine reach each other in neither direction", "client isolation");
	expect(r, DOCTOR_OK, "node to node", "attic sends straight", NULL);
	expect(r, DOCTOR_WARNING, "link", "pi and the coordinator: round trip 3.0 ms, but one of 7 took 300", "power save");
	expect(r, DOCTOR_OK, "link", "attic and the next machine: round trip 2.5 ms (1 measured)", NULL);
	expect(r, DOCTOR_WARNING, "link", "pi: 900 of 5000 frames came late", "cable");
	free(w);
}

static void a_status_of_any_shape_is_survived(void **state)
{
	struct doctor_report *r = *state;
	struct doctor_watch *w = calloc(1, sizeof *w);
	const char *const odd[] = {"{}", "{\"nodes\": 7}", "{\"nodes\": [1, null, [], {}]}", "{\"ready\": 1, \"nodes\": [{\"id\": 5, \"name\": {}, \"state\": []}]}",
		"{\"nodes\": [{\"id\": \"x\", \"rtt_ms\": -1, \"rtt_n\": 9223372036854775807, \"heard\": -5, \"late\": 1e300}]}"};
	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		json_t *status = parse(odd[i]);
		doctor_watch_take(w, status);
		doctor_live_nodes(status, w, r);
		json_decref(status);
	}
	assert_true(r->n >= 5);
	free(w);
}

static void a_node_is_reached_where_it_listens(void **state)
{
	(void)state;
	char addr[ADDR_CAP];
	const struct { const char *json, *want; } cases[] = {
		{"{\"address\": \"10.0.0.7\", \"port\": 7434}", "10.0.0.7:7434"}, {"{\"address\": \"fd00::7\", \"port\": 1}", "[fd00::7]:1"},
		{"{\"address\": \"[fd00::7]\", \"port\": 1}", "[fd00::7]:1"}, {"{\"address\": \"10.0.0.7\"}", NULL}, {"{\"address\": \"10.0.0.7\", \"port\": 65536}", NULL},
		{"{\"address\": \"\", \"port\": 1}", NULL}, {"{\"address\": \"10.0.0.7\", \"port\": 7434, \"local\": true}", NULL}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		json_t *node = parse(cases[i].json);
		assert_int_equal(doctor_live_address(node, addr), cases[i].want != NULL);
		if (cases[i].want != NULL)
			assert_string_equal(addr, cases[i].want);
		json_decref(node);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(findings_are_counted_and_bounded_and_fit_for_a_terminal),
		T(memory_is_enough_little_or_too_little),
		T(limits_swap_and_pressure_are_said_with_a_way_out),
		T(processors_that_are_held_back_hot_busy_or_on_battery_are_warned_of),
		T(disks_are_judged_by_kind_room_and_rate),
		T(a_directory_that_others_may_enter_is_a_problem_with_its_command),
		T(a_clock_that_nobody_sets_is_warned_of),
		T(slow_cables_and_sleeping_radios_are_warned_of),
		T(firewalls_come_with_the_command_that_opens_them),
		T(a_port_that_somebody_has_is_no_wonder_while_hearth_runs),
		T(coordinators_of_another_version_are_a_problem),
		T(links_that_are_slow_or_stall_are_told_apart),
		T(a_port_that_listens_is_reached_and_a_dead_one_refused),
		T(silence_is_explained_by_who_answers_arp_and_by_the_other_way),
		T(nodes_relays_and_links_of_a_status_are_judged),
		T(a_status_of_any_shape_is_survived),
		T(a_node_is_reached_where_it_listens),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
