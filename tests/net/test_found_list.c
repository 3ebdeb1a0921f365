#include "net/found_list.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct node_id id_of(unsigned n)
{
	return (struct node_id){{(uint8_t)(n >> 8), (uint8_t)n, 1}};
}

// at makes an announcement of coordinator `who` at a textual address.
static struct found at(unsigned who, const char *address, uint16_t port)
{
	struct found f = {.key = {.interface = 2}, .port = port, .interface_name = "wlan0"};
	f.txt.id = id_of(who);
	snprintf(f.txt.name, sizeof f.txt.name, "cluster-%u", who);
	snprintf(f.key.instance, sizeof f.key.instance, "%u at %.40s", who, address);
	if (inet_pton(AF_INET, address, f.addr + 12) == 1)
		f.addr[10] = f.addr[11] = 0xff;
	else
		assert_int_equal(inet_pton(AF_INET6, address, f.addr), 1);
	f.key.is_ipv6 = strchr(address, ':') != NULL;
	return f;
}

static bool put(struct found_list *l, unsigned who, const char *address)
{
	struct found f = at(who, address, 7433);
	return found_list_put(l, &f);
}

static void addresses_of_one_coordinator_come_best_first_and_once(void **state)
{
	(void)state;
	struct found_list l = {0};
	char addrs[ADDRS_MAX][ADDR_CAP];
	struct node_id id = id_of(1);
	assert_true(put(&l, 1, "fe80::1234"));
	assert_true(put(&l, 1, "fd00::7"));
	assert_true(put(&l, 2, "192.168.1.9"));
	assert_true(put(&l, 1, "192.168.1.10"));
	struct found again = at(1, "192.168.1.10", 7433);
	again.key.interface = 3; // heard on a second interface
	assert_true(found_list_put(&l, &again));
	assert_int_equal(found_list_addresses(&l, &id, addrs, ADDRS_MAX), 3);
	assert_string_equal(addrs[0], "192.168.1.10:7433");
	assert_string_equal(addrs[1], "[fd00::7]:7433");
	assert_string_equal(addrs[2], "[fe80::1234%wlan0]:7433");
	assert_int_equal(found_list_addresses(&l, &id, addrs, 1), 1);
	id = id_of(3);
	assert_int_equal(found_list_addresses(&l, &id, addrs, ADDRS_MAX), 0);
}

static void what_is_announced_again_replaces_and_what_ends_goes(void **state)
{
	(void)state;
	struct found_list l = {0};
	char addrs[ADDRS_MAX][ADDR_CAP];
	struct node_id id = id_of(1);
	struct found f = at(1, "10.0.0.1", 7433), moved = f;
	assert_true(found_list_put(&l, &f));
	moved.addr[15] = 2;
	assert_true(found_list_put(&l, &moved));
	assert_int_equal(l.n, 1);
	assert_int_equal(found_list_addresses(&l, &id, addrs, ADDRS_MAX), 1);
	assert_string_equal(addrs[0], "10.0.0.2:7433");
	assert_true(put(&l, 2, "10.0.0.3"));
	assert_true(found_list_remove(&l, &f.key));
	assert_false(found_list_remove(&l, &f.key));
	assert_int_equal(l.n, 1);
	assert_int_equal(l.at[0].txt.id.b[1], 2);
}

static void addresses_where_no_other_machine_is_are_refused(void **state)
{
	(void)state;
	struct found_list l = {0};
	const char *const bad[] = {"0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.251", "255.255.255.255", "::", "::1", "::1.2.3.4", "ff02::fb"};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_false(put(&l, 1, bad[i]));
	struct found f = at(1, "10.0.0.1", 0);
	assert_false(found_list_put(&l, &f));
	f = at(1, "fe80::1", 7433);
	f.interface_name[0] = '\0'; // of which network nobody can tell
	assert_false(found_list_put(&l, &f));
	f = at(1, "127.0.0.1", 7433);
	f.is_own = true;
	assert_true(found_list_put(&l, &f));
	assert_int_equal(l.n, 1);
	assert_int_equal(l.n_refused, 11);
}

static void thousands_of_fakes_take_a_bounded_place_and_are_counted(void **state)
{
	(void)state;
	struct found_list l = {0};
	static struct found_coordinator all[FOUND_SHOWN_MAX];
	for (unsigned i = 0; i < 5000; i++) {
		char address[32];
		snprintf(address, sizeof address, "10.1.%u.%u", i / 250, i % 250 + 1);
		assert_int_equal(put(&l, i, address), i < FOUND_MAX);
	}
	assert_int_equal(l.n, FOUND_MAX);
	assert_int_equal(l.n_refused, 5000 - FOUND_MAX);
	assert_int_equal(found_list_coordinators(&l, all), FOUND_SHOWN_MAX);
	// One of those there may still change, and its end makes room.
	assert_true(put(&l, 0, "10.1.0.1"));
	struct found first = at(0, "10.1.0.1", 7433);
	assert_true(found_list_remove(&l, &first.key));
	assert_true(put(&l, 7000, "10.2.0.1"));
}

static void one_fingerprint_at_many_places_is_one_coordinator_with_bounded_addresses(void **state)
{
	(void)state;
	struct found_list l = {0};
	static struct found_coordinator all[FOUND_SHOWN_MAX];
	for (unsigned i = 1; i < 40; i++) {
		char address[32];
		snprintf(address, sizeof address, "10.1.0.%u", i);
		assert_true(put(&l, 5, address));
	}
	assert_true(put(&l, 4, "10.9.9.9"));
	assert_int_equal(found_list_coordinators(&l, all), 2);
	assert_string_equal(all[0].txt.name, "cluster-4");
	assert_int_equal(all[0].n_addrs, 1);
	assert_string_equal(all[1].txt.name, "cluster-5");
	assert_int_equal(all[1].n_addrs, ADDRS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_of_one_coordinator_come_best_first_and_once),
		cmocka_unit_test(what_is_announced_again_replaces_and_what_ends_goes),
		cmocka_unit_test(addresses_where_no_other_machine_is_are_refused),
		cmocka_unit_test(thousands_of_fakes_take_a_bounded_place_and_are_counted),
		cmocka_unit_test(one_fingerprint_at_many_places_is_one_coordinator_with_bounded_addresses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
