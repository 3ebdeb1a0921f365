#include "node/shell/dialer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/link_world.h"
#include "tests/support/sockets.h"

#define MS INT64_C(1000000)

static const struct backoff_limits fast = {.first_ns = 4 * MS, .max_ns = 40 * MS, .steady_ns = 2000 * MS};

struct dialing {
	struct world *w;
	struct dialer *dialer;
	int n_params, n_failed, n_no_params;
	char failed_addrs[8][64];
	bool close_in_failed;
	int64_t last_next_ns;
};

static bool give_params(void *ctx, struct lnk1_client_params *out)
{
	struct dialing *d = ctx;
	d->n_params++;
	if (d->n_no_params > 0) {
		d->n_no_params--;
		return false;
	}
	*out = d->w->fix.client;
	return true;
}

static void on_failed(void *ctx, const char *addr, const struct link_down *down, int64_t next_ns)
{
	struct dialing *d = ctx;
	assert_true(down->text[0] != '\0');
	if (d->n_failed < 8)
		snprintf(d->failed_addrs[d->n_failed], sizeof d->failed_addrs[0], "%s", addr);
	d->n_failed++;
	d->last_next_ns = next_ns;
	if (d->close_in_failed) {
		dialer_close(d->dialer, true);
		d->dialer = NULL;
	}
}

static void open_dialer(struct dialing *d, uint32_t n, const char *const *addrs)
{
	struct dialer_params p = {.callbacks = world_callbacks(&d->w->client),
		.ctx = d,
		.params = give_params,
		.on_failed = on_failed,
		.limits = &d->w->limits,
		.backoff = &fast,
		.seed = 1,
		.n_addrs = n};
	for (uint32_t i = 0; i < n; i++)
		snprintf(p.addrs[i], ADDR_CAP, "%s", addrs[i]);
	assert_int_equal(dialer_open(&d->dialer, &d->w->loop, &p, NULL), OK);
}

// open_with_more: one address that nobody answers at, and others that may come.
static void open_with_more(struct dialing *d, const char *dead, const struct address_list *more)
{
	struct dialer_params p = {.callbacks = world_callbacks(&d->w->client), .ctx = d, .params = give_params, .on_failed = on_failed,
		.limits = &d->w->limits, .backoff = &fast, .seed = 1, .n_addrs = 1, .more = more};
	snprintf(p.addrs[0], ADDR_CAP, "%s", dead);
	assert_int_equal(dialer_open(&d->dialer, &d->w->loop, &p, NULL), OK);
}

static int setup(void **state)
{
	struct dialing *d = calloc(1, sizeof *d);
	d->w = world_open(LNK1_MEMBER, LNK1_DATA, NULL);
	*state = d;
	return 0;
}

static int teardown(void **state)
{
	struct dialing *d = *state;
	if (d->dialer != NULL) {
		dialer_close(d->dialer, false);
		d->w->client.up = NULL;
	}
	world_close(d->w);
	free(d);
	return 0;
}

struct count_wanted {
	const int *count;
	int n;
};

static bool count_reached(void *ctx)
{
	struct count_wanted *x = ctx;
	return *x->count >= x->n;
}

static void wait_count(struct dialing *d, const int *count, int n)
{
	assert_true(world_run(d->w, count_reached, &(struct count_wanted){count, n}));
}

static void dead_addr(char out[32])
{
	uint16_t port;
	close(socket_listen(1, &port));
	snprintf(out, 32, "127.0.0.1:%u", port);
}

static void addresses_are_tried_in_turn_until_one_answers(void **state)
{
	struct dialing *d = *state;
	char dead[32];
	dead_addr(dead);
	const char *addrs[] = {dead, "nonsense", d->w->addr};
	open_dialer(d, 3, addrs);
	assert_null(dialer_link(d->dialer));
	assert_true(world_run(d->w, world_both_up, d->w));
	assert_ptr_equal(dialer_link(d->dialer), d->w->client.up);
	assert_true(d->n_failed >= 2);
	assert_string_equal(d->failed_addrs[0] + 6, dead);
	assert_int_equal(d->w->client.n_down, 0); // attempts are no links
}

static void an_address_that_is_found_later_is_tried_too(void **state)
{
	struct dialing *d = *state;
	char dead[32];
	struct address_list more = {0};
	dead_addr(dead);
	open_with_more(d, dead, &more);
	wait_count(d, &d->n_failed, 2);
	more.n = 1;
	snprintf(more.at[0], ADDR_CAP, "%s", d->w->addr);
	assert_true(world_run(d->w, world_both_up, d->w));
	dialer_close(d->dialer, false); // `more` ends with this function
	d->dialer = NULL;
	d->w->client.up = NULL;
}

static void addresses_that_vanish_while_they_are_tried_leave_the_others(void **state)
{
	struct dialing *d = *state;
	char dead[32], dead_too[32];
	struct address_list more = {.n = 3};
	dead_addr(dead);
	dead_addr(dead_too);
	for (uint32_t i = 0; i < more.n; i++)
		snprintf(more.at[i], ADDR_CAP, "%s", dead_too);
	open_with_more(d, dead, &more);
	for (int n = 2; n < 12; n += 2) {
		wait_count(d, &d->n_failed, n);
		more.n = n % 4 ? 0 : 3;
	}
	dialer_close(d->dialer, false);
	d->dialer = NULL;
	assert_string_equal(d->failed_addrs[0] + 6, dead);
	assert_string_equal(d->failed_addrs[1] + 6, dead_too);
}

static void a_name_is_tried_in_both_families(void **state)
{
	struct dialing *d = *state;
	uint16_t port = link_listener_port(d->w->listener);
	char addr[32];
	snprintf(addr, sizeof addr, "localhost:%u", port); // which may mean ::1 first, where nobody listens
	const char *addrs[] = {addr};
	open_dialer(d, 1, addrs);
	assert_true(world_run(d->w, world_both_up, d->w));
}

static void attempts_go_on_for_ever_with_growing_pauses(void **state)
{
	struct dialing *d = *state;
	char dead[32];
	dead_addr(dead);
	const char *addrs[] = {dead};
	open_dialer(d, 1, addrs);
	wait_count(d, &d->n_failed, 12);
	assert_true(d->last_next_ns - loop_clock_ns() <= 40 * MS);
	assert_true(d->last_next_ns - loop_clock_ns() > 0); // the pause of the twelfth is the longest there is
}

static void a_lost_link_comes_up_again_by_itself(void **state)
{
	struct dialing *d = *state;
	const char *addrs[] = {d->w->addr};
	open_dialer(d, 1, addrs);
	for (int i = 1; i <= 5; i++) {
		wait_count(d, &d->w->client.n_up, i);
		wait_count(d, &d->w->server.n_up, i);
		if (i % 2 == 0) {
			link_close(d->w->server.up);
		} else {
			world_abort(&d->w->server);
		}
		wait_count(d, &d->w->client.n_down, i);
		assert_int_equal(d->w->client.down.reason, i % 2 == 0 ? LINK_DOWN_PEER_CLOSED : LINK_DOWN_LOST);
		assert_null(dialer_link(d->dialer));
	}
	assert_true(world_run(d->w, world_both_up, d->w));
	assert_int_equal(d->n_failed, 0);
}

static void a_renewal_brings_the_new_link_up_before_the_old_goes_down(void **state)
{
	struct dialing *d = *state;
	const char *addrs[] = {d->w->addr};
	open_dialer(d, 1, addrs);
	assert_true(world_run(d->w, world_both_up, d->w));
	uint8_t session[LNK1_SESSION_ID_LEN];
	memcpy(session, d->w->client.info.session_id, sizeof session);
	static uint8_t frame[50000];
	for (int i = 0; i < 20; i++)
		assert_int_equal(link_send(d->w->server.up, frame, sizeof frame), OK);
	dialer_renew(d->dialer);
	dialer_renew(d->dialer); // twice is once
	wait_count(d, &d->w->client.n_up, 2);
	assert_int_equal(d->w->client.n_down, 0);
	wait_count(d, &d->w->client.n_down, 1);
	assert_int_equal(d->w->client.down.reason, LINK_DOWN_CLOSED);
	assert_int_equal(d->w->client.n_frames, 20); // nothing under way on the old one was lost
	assert_true(memcmp(session, d->w->client.info.session_id, sizeof session) != 0);
	assert_ptr_equal(dialer_link(d->dialer), d->w->client.up);
	wait_count(d, &d->w->server.n_down, 1);
	world_run_for(d->w, 20 * MS);
	assert_int_equal(d->w->client.n_up, 2);
}

static void a_renewal_that_fails_leaves_the_old_link_up(void **state)
{
	struct dialing *d = *state;
	const char *addrs[] = {d->w->addr};
	open_dialer(d, 1, addrs);
	assert_true(world_run(d->w, world_both_up, d->w));
	d->w->fix.has_member = false; // revoked there, as it were
	dialer_renew(d->dialer);
	wait_count(d, &d->n_failed, 2);
	assert_int_equal(d->w->client.n_down, 0);
	assert_non_null(dialer_link(d->dialer));
	d->w->fix.has_member = true;
	wait_count(d, &d->w->client.n_up, 2);
	wait_count(d, &d->w->client.n_down, 1); // the old one's, in order
	wait_count(d, &d->w->server.n_down, 1);
}

static void an_orderly_close_still_tells_of_the_end_of_the_link(void **state)
{
	struct dialing *d = *state;
	const char *addrs[] = {d->w->addr};
	open_dialer(d, 1, addrs);
	assert_true(world_run(d->w, world_both_up, d->w));
	dialer_close(d->dialer, true);
	d->dialer = NULL;
	wait_count(d, &d->w->client.n_down, 1);
	wait_count(d, &d->w->server.n_down, 1);
	assert_int_equal(d->w->client.down.reason, LINK_DOWN_CLOSED);
	assert_int_equal(d->w->server.down.reason, LINK_DOWN_PEER_CLOSED);
}

static void a_dialer_closed_while_it_dials_or_inside_on_failed_leaves_nothing(void **state)
{
	struct dialing *d = *state;
	char dead[32];
	dead_addr(dead);
	const char *good[] = {d->w->addr}, *bad[] = {dead};
	for (int i = 0; i < 50; i++) {
		open_dialer(d, 1, good);
		world_run_for(d->w, i * 20000); // somewhere in the handshake
		dialer_close(d->dialer, i % 2 == 0);
		d->w->client.up = NULL;
	}
	d->close_in_failed = true;
	open_dialer(d, 1, bad);
	wait_count(d, &d->n_failed, 1);
	assert_null(d->dialer);
	world_run_for(d->w, 60 * MS);
	assert_int_equal(d->n_failed, 1);
}

static void without_parameters_it_asks_again_later(void **state)
{
	struct dialing *d = *state;
	d->n_no_params = 3;
	const char *addrs[] = {d->w->addr};
	open_dialer(d, 1, addrs);
	assert_true(world_run(d->w, world_both_up, d->w));
	assert_int_equal(d->n_params, 4);
}

static void no_address_is_refused(void **state)
{
	struct dialing *d = *state;
	struct dialer_params p = {.n_addrs = 0};
	struct dialer *none;
	struct errmsg em;
	assert_int_equal(dialer_open(&none, &d->w->loop, &p, &em), ERR_RANGE);
	assert_null(none);
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(addresses_are_tried_in_turn_until_one_answers),
		WITH(an_address_that_is_found_later_is_tried_too),
		WITH(addresses_that_vanish_while_they_are_tried_leave_the_others),
		WITH(a_name_is_tried_in_both_families),
		WITH(attempts_go_on_for_ever_with_growing_pauses),
		WITH(a_lost_link_comes_up_again_by_itself),
		WITH(a_renewal_brings_the_new_link_up_before_the_old_goes_down),
		WITH(a_renewal_that_fails_leaves_the_old_link_up),
		WITH(an_orderly_close_still_tells_of_the_end_of_the_link),
		WITH(a_dialer_closed_while_it_dials_or_inside_on_failed_leaves_nothing),
		WITH(without_parameters_it_asks_again_later),
		WITH(no_address_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
