#include "cli/lan_search.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S INT64_C(1000000000)

// What the network says, and when the search may end.
struct network {
	int n_coordinators;
	enum discovery_state end; // DISCOVERY_ON: never more than that
	bool is_interrupted;
	atomic_int n_ended;
};

static struct found coordinator(unsigned i)
{
	struct found f = {.key = {.interface = 1}, .port = 7433, .addr = {[10] = 0xff, 0xff, 192, 168, 1, (uint8_t)(i + 1)}};
	f.txt.id.b[0] = (uint8_t)(i + 1);
	snprintf(f.txt.name, sizeof f.txt.name, "home-%u", i);
	snprintf(f.key.instance, sizeof f.key.instance, "%u", i);
	return f;
}

static void play(const struct discovery_want *want, struct discovery_sink *sink, void *ctx)
{
	struct network *n = ctx;
	(void)want;
	for (int i = 0; i < n->n_coordinators; i++) {
		struct found f = coordinator((unsigned)i);
		discovery_sink_found(sink, &f);
	}
	discovery_sink_state(sink, n->end, n->end == DISCOVERY_OFF ? "the daemon sleeps" : "");
	struct pollfd stop = {.fd = discovery_sink_fd(sink), .events = POLLIN};
	while (poll(&stop, 1, -1) < 0)
		;
	atomic_fetch_add(&n->n_ended, 1);
}

static bool is_interrupted(void *ctx)
{
	const struct network *n = ctx;
	return n->is_interrupted;
}

static enum err search(struct network *n, const struct node_id *pinned, int64_t patience_ns, struct lan_search_result *r, struct errmsg *em)
{
	struct loop loop;
	struct discovery_backend backend = {play, n};
	assert_int_equal(loop_open(&loop, NULL), OK);
	struct lan_search_params p = {&loop, &backend, pinned, patience_ns, is_interrupted, n};
	enum err e = lan_search(&p, r, em);
	while (atomic_load(&n->n_ended) == 0)
		poll(NULL, 0, 1);
	loop_close(&loop);
	return e;
}

static void print(const struct lan_search_result *r, char out[4096])
{
	memset(out, 0, 4096);
	FILE *f = fmemopen(out, 4095, "w");
	lan_search_print(f, r);
	fclose(f);
}

static void everybody_who_was_found_is_listed_with_a_fingerprint(void **state)
{
	(void)state;
	struct network n = {.n_coordinators = 2, .end = DISCOVERY_SETTLED};
	struct lan_search_result r;
	char text[4096];
	assert_int_equal(search(&n, NULL, 20 * S, &r, NULL), OK);
	print(&r, text);
	assert_non_null(strstr(text, "home-0               0100-0000-0000-0000  192.168.1.1:7433\n"));
	assert_non_null(strstr(text, "home-1               0200-0000-0000-0000  192.168.1.2:7433\n"));
}

static void of_many_only_the_pinned_one_is_found_and_at_once(void **state)
{
	(void)state;
	struct network n = {.n_coordinators = 200, .end = DISCOVERY_ON}; // it would never settle
	struct lan_search_result r;
	struct address_list a;
	struct found wanted = coordinator(150);
	assert_int_equal(search(&n, &wanted.txt.id, 3600 * S, &r, NULL), OK);
	lan_search_addresses(&r, &wanted.txt.id, &a);
	assert_int_equal(a.n, 1);
	assert_string_equal(a.at[0], "192.168.1.151:7433");
	struct found other = coordinator(3);
	lan_search_addresses(&r, &other.txt.id, &a);
	assert_int_equal(a.n, 0);
}

static void a_daemon_that_is_not_there_is_said_and_stops_nothing(void **state)
{
	(void)state;
	struct network n = {.end = DISCOVERY_OFF};
	struct lan_search_result r;
	char text[4096];
	assert_int_equal(search(&n, NULL, 3600 * S, &r, NULL), OK);
	assert_int_equal(r.state, DISCOVERY_OFF);
	print(&r, text);
	assert_string_equal(text, "No look at this network: the daemon sleeps. The invite's addresses are used.\n");
}

static void a_daemon_that_never_answers_costs_the_patience_and_no_more(void **state)
{
	(void)state;
	struct network n = {.end = DISCOVERY_STARTING};
	struct lan_search_result r;
	assert_int_equal(search(&n, NULL, S / 1000, &r, NULL), OK);
	assert_int_equal(r.state, DISCOVERY_OFF);
	assert_string_equal(r.why, "avahi-daemon does not answer");
}

static void an_interrupt_ends_it(void **state)
{
	(void)state;
	struct network n = {.end = DISCOVERY_ON, .is_interrupted = true};
	struct lan_search_result r;
	struct errmsg em;
	assert_int_equal(search(&n, NULL, 3600 * S, &r, &em), ERR_CANCELLED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everybody_who_was_found_is_listed_with_a_fingerprint),
		cmocka_unit_test(of_many_only_the_pinned_one_is_found_and_at_once),
		cmocka_unit_test(a_daemon_that_is_not_there_is_said_and_stops_nothing),
		cmocka_unit_test(a_daemon_that_never_answers_costs_the_patience_and_no_more),
		cmocka_unit_test(an_interrupt_ends_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
