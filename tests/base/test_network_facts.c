#include "base/network_facts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/fake_tree.h"
#include "tests/support/instrumented.h"
#include "tests/support/scratch.h"

static int open_tree(void **state)
{
	static char dir[SCRATCH_CAP];
	*state = dir;
	return scratch_open(dir) ? 0 : -1;
}

static int close_tree(void **state)
{
	return scratch_remove(*state);
}

static void put_interface(const char *root, const char *name, const char *file, const char *text)
{
	char path[128];
	snprintf(path, sizeof path, "/sys/class/net/%s/%s", name, file);
	fake_tree_put(root, path, text);
}

static struct network_facts facts_of(const char *root)
{
	struct network_facts f;
	network_facts_read(root, &f);
	return f;
}

static void real_interfaces_that_are_up_are_told_and_no_others(void **state)
{
	const char *root = *state;
	assert_int_equal(facts_of(root).n, 0);
	put_interface(root, "lo", "operstate", "unknown\n");
	put_interface(root, "docker0", "operstate", "up\n");
	put_interface(root, "eth0", "operstate", "up\n");
	put_interface(root, "eth0", "device/vendor", "x\n");
	put_interface(root, "eth0", "speed", "100\n");
	put_interface(root, "eth0", "duplex", "half\n");
	put_interface(root, "eth1", "operstate", "down\n");
	put_interface(root, "eth1", "device/vendor", "x\n");
	put_interface(root, "wlan0", "operstate", "up\n");
	put_interface(root, "wlan0", "wireless/x", "");
	put_interface(root, "wlan0", "speed", "-1\n");
	fake_tree_put(root, "/proc/net/wireless", "Inter-| sta-|   Quality\n face | tus | link level noise\n wlan0: 0000   54.  -71.  -256        0      0\n");
	struct network_facts f = facts_of(root);
	assert_int_equal(f.n, 2);
	assert_string_equal(f.at[0].name, "eth0");
	assert_true(!f.at[0].is_wireless && f.at[0].is_half_duplex && f.at[0].mbit == 100);
	assert_string_equal(f.at[1].name, "wlan0");
	assert_true(f.at[1].is_wireless && f.at[1].mbit == 0 && f.at[1].signal_dbm == -71);
}

static void figures_that_cannot_be_are_not_told(void **state)
{
	const char *root = *state;
	put_interface(root, "eth0", "operstate", "up\n");
	put_interface(root, "eth0", "device/vendor", "x\n");
	put_interface(root, "eth0", "speed", "4294967295\n");
	put_interface(root, "wlan0", "operstate", "up\n");
	put_interface(root, "wlan0", "phy80211/x", "");
	const char *const bad[] = {"", "wlan0:", "wlan0: 0 1. 54.", "wlan0: 0 1. -999.", "wlan0: 0 1. -", "wlan00: 0 1. -50."};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		fake_tree_put(root, "/proc/net/wireless", bad[i]);
		assert_int_equal(facts_of(root).at[1].signal_dbm, 0);
	}
	assert_int_equal(facts_of(root).at[0].mbit, 0);
}

static void firewalls_are_told_by_their_traces(void **state)
{
	const char *root = *state;
	fake_tree_put(root, "/etc/ufw/ufw.conf", "# ENABLED=yes\nENABLED=no\n");
	fake_tree_put(root, "/proc/modules", "nf_tables 303104 0 - Live 0x0\nxnf_tables 1 5 - Live\n");
	fake_tree_put(root, "/proc/12/comm", "bash\n");
	struct network_facts f = facts_of(root);
	assert_true(!f.has_ufw && !f.has_firewalld && !f.has_filters);
	fake_tree_put(root, "/etc/ufw/ufw.conf", "# ENABLED=no\nENABLED=yes\n");
	fake_tree_put(root, "/proc/modules", "e1000 1 0 -\nnf_tables 303104 56 nft_ct, Live 0x0\n");
	fake_tree_put(root, "/proc/77/comm", "firewalld\n");
	f = facts_of(root);
	assert_true(f.has_ufw && f.has_firewalld && f.has_filters);
}

static void a_port_counts_as_taken_where_somebody_listens(void **state)
{
	const char *root = *state;
	assert_false(network_listens(root, 7433));
	fake_tree_put(root, "/proc/net/tcp",
		"  sl  local_address rem_address   st\n   0: 0100007F:1D09 00000000:0000 01 00000000\n   1: 00000000:1D0A 00000000:0000 0A 0\n garbage\n");
	fake_tree_put(root, "/proc/net/tcp6", "  sl\n   0: 00000000000000000000000000000000:1D06 00000000000000000000000000000000:0000 0A 0\n");
	assert_false(network_listens(root, 7433)); // a connection, not a listener
	assert_true(network_listens(root, 7434));
	assert_true(network_listens(root, 7430));
}

// Time grows with the text, not with its square.
static void the_longest_table_is_looked_through_at_once(void **state)
{
	const char *root = *state;
	const size_t len = IS_INSTRUMENTED ? 1 << 14 : 1 << 20; // a sanitizer looks at all that is left at each number
	char *text = malloc(len);
	assert_non_null(text);
	for (size_t i = 0; i < len; i++)
		text[i] = "a:\n"[i % 3];
	fake_tree_put_bytes(root, "/proc/net/tcp", text, len);
	assert_false(network_listens(root, 7433));
	free(text);
}

static void who_answered_arp_is_there(void **state)
{
	const char *root = *state;
	assert_int_equal(network_neighbour_of(root, "10.0.0.1"), NEIGHBOUR_UNKNOWN);
	fake_tree_put(root, "/proc/net/arp",
		"IP address       HW type     Flags       HW address            Mask     Device\n10.0.0.1    0x1   0x2   aa:bb:cc:dd:ee:ff   *   eth0\n"
		"10.0.0.2         0x1         0x0         00:00:00:00:00:00     *        eth0\n10.0.0.3 \n10.0.0.4 0x1 zz");
	assert_int_equal(network_neighbour_of(root, "10.0.0.1"), NEIGHBOUR_PRESENT);
	assert_int_equal(network_neighbour_of(root, "10.0.0.2"), NEIGHBOUR_SILENT);
	assert_int_equal(network_neighbour_of(root, "10.0.0.3"), NEIGHBOUR_UNKNOWN);
	assert_int_equal(network_neighbour_of(root, "10.0.0.4"), NEIGHBOUR_UNKNOWN);
	assert_int_equal(network_neighbour_of(root, "10.0.0"), NEIGHBOUR_UNKNOWN);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, open_tree, close_tree)
	const struct CMUnitTest tests[] = {
		T(real_interfaces_that_are_up_are_told_and_no_others),
		T(figures_that_cannot_be_are_not_told),
		T(firewalls_are_told_by_their_traces),
		T(a_port_counts_as_taken_where_somebody_listens),
		T(the_longest_table_is_looked_through_at_once),
		T(who_answered_arp_is_there),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
