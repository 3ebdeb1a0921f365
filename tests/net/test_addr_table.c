#include "net/addr_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MS INT64_C(1000000)

static struct stream_peer v4(uint8_t last)
{
	return (struct stream_peer){.addr = {[10] = 0xff, [11] = 0xff, 192, 168, 1, last}, .is_ip = true};
}

static struct stream_peer v6(uint8_t net, uint8_t host)
{
	return (struct stream_peer){.addr = {0x20, 0x01, [7] = net, [15] = host}, .is_ip = true};
}

static void a_bucket_gives_its_burst_and_then_its_rate(void **state)
{
	(void)state;
	struct addr_table t;
	assert_int_equal(addr_table_open(&t, 8, 20, 5), OK);
	struct stream_peer p = v4(1);
	int64_t now = 1000 * MS;
	struct addr_entry *e = addr_table_enter(&t, &p, now);
	for (int i = 0; i < 5; i++)
		assert_true(addr_take(&t, e, now));
	assert_false(addr_take(&t, e, now));
	assert_int_equal(addr_next_ns(&t, e), now + 50 * MS);
	assert_false(addr_take(&t, e, now + 50 * MS - 1));
	assert_true(addr_take(&t, e, now + 50 * MS));
	assert_false(addr_take(&t, e, now + 50 * MS));
	// Twenty in the next second, whatever the steps.
	int n = 0;
	for (int64_t at = now + 50 * MS; at < now + 1050 * MS; at += 7 * MS)
		n += addr_take(&t, e, at);
	assert_in_range(n, 19, 20);
	// A long pause gives the burst back, and no more.
	now += 3600 * 1000 * MS;
	for (int i = 0; i < 5; i++)
		assert_true(addr_take(&t, e, now));
	assert_false(addr_take(&t, e, now));
	addr_table_close(&t);
}

static void a_token_given_back_can_be_taken_again_and_no_more_than_that(void **state)
{
	(void)state;
	struct addr_table t;
	assert_int_equal(addr_table_open(&t, 8, 1, 1), OK);
	struct stream_peer p = v4(1);
	struct addr_entry *e = addr_table_enter(&t, &p, 0);
	for (int i = 0; i < 100; i++) {
		assert_true(addr_take(&t, e, 5));
		assert_false(addr_take(&t, e, 5));
		addr_give_back(&t, e);
	}
	assert_true(addr_take(&t, e, 5));
	assert_false(addr_take(&t, e, 5));
	addr_table_close(&t);
}

static void addresses_are_apart_and_an_ipv6_network_is_one(void **state)
{
	(void)state;
	struct addr_table t;
	assert_int_equal(addr_table_open(&t, 8, 1, 1), OK);
	struct stream_peer a = v4(1), b = v4(2), c = v6(1, 1), d = v6(1, 2), e = v6(2, 1);
	assert_ptr_not_equal(addr_table_enter(&t, &a, 0), addr_table_enter(&t, &b, 0));
	assert_ptr_equal(addr_table_enter(&t, &c, 0), addr_table_enter(&t, &d, 0));
	assert_ptr_not_equal(addr_table_enter(&t, &d, 0), addr_table_enter(&t, &e, 0));
	assert_int_equal(addr_table_find(&t, &c)->n_conns, 3);
	addr_table_close(&t);
}

static void a_full_table_forgets_who_has_no_connection_and_fullest_bucket(void **state)
{
	(void)state;
	struct addr_table t;
	assert_int_equal(addr_table_open(&t, 4, 1, 5), OK);
	struct stream_peer p[6];
	for (uint8_t i = 0; i < 6; i++)
		p[i] = v4(i);
	for (int i = 0; i < 4; i++) {
		struct addr_entry *e = addr_table_enter(&t, &p[i], 0);
		for (int k = 0; k <= i; k++)
			assert_true(addr_take(&t, e, 0)); // address i has failed i + 1 times
		if (i != 0)
			addr_table_leave(e);
	}
	assert_non_null(addr_table_enter(&t, &p[4], 0));
	assert_non_null(addr_table_find(&t, &p[0])); // connected: stays, though its bucket is fullest
	assert_null(addr_table_find(&t, &p[1]));
	assert_non_null(addr_table_find(&t, &p[3]));
	assert_non_null(addr_table_enter(&t, &p[2], 0));
	assert_non_null(addr_table_enter(&t, &p[3], 0));
	assert_null(addr_table_enter(&t, &p[5], 0)); // everybody is connected
	addr_table_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bucket_gives_its_burst_and_then_its_rate),
		cmocka_unit_test(a_token_given_back_can_be_taken_again_and_no_more_than_that),
		cmocka_unit_test(addresses_are_apart_and_an_ipv6_network_is_one),
		cmocka_unit_test(a_full_table_forgets_who_has_no_connection_and_fullest_bucket),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
