#include "net/discovery.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PATIENCE_NS INT64_C(20000000000)

// A backend that plays a script: what the network does, step by step, from a thread of its own.
struct fake {
	struct discovery_backend backend;
	atomic_int n_ended;
	int n_fakes; // announcements of others before ours
	bool ends_ours;
	bool is_stuck; // does not look at the descriptor until it is let go
	atomic_bool is_let_go;
};

struct world {
	struct loop loop;
	struct discovery *d;
	struct fake fake;
	int n_changes;
	bool close_inside;
};

static struct found announcement(unsigned who, unsigned host)
{
	struct found f = {.key = {.interface = 1}, .port = 7433, .addr = {[10] = 0xff, 0xff, 10, 0, (uint8_t)(host >> 8), (uint8_t)host}};
	f.txt.id.b[0] = (uint8_t)who;
	f.txt.id.b[1] = (uint8_t)(who >> 8);
	f.txt.id.b[2] = 1;
	snprintf(f.key.instance, sizeof f.key.instance, "%u/%u", who, host);
	return f;
}

static void play(const struct discovery_want *want, struct discovery_sink *sink, void *ctx)
{
	struct fake *fake = ctx;
	(void)want;
	while (fake->is_stuck && !atomic_load(&fake->is_let_go))
		poll(NULL, 0, 1);
	discovery_sink_state(sink, DISCOVERY_ON, "");
	for (int i = 0; i < fake->n_fakes; i++) {
		struct found f = announcement(1000 + (unsigned)i, 1 + (unsigned)i);
		discovery_sink_found(sink, &f);
	}
	struct found ours = announcement(7, 200);
	discovery_sink_found(sink, &ours);
	if (fake->ends_ours)
		discovery_sink_gone(sink, &ours.key);
	discovery_sink_state(sink, DISCOVERY_SETTLED, "");
	struct pollfd stop = {.fd = discovery_sink_fd(sink), .events = POLLIN};
	while (poll(&stop, 1, -1) < 0)
		;
	assert_true(discovery_sink_is_over(sink));
	discovery_sink_clear(sink); // after the end: nobody hears of it
	discovery_sink_state(sink, DISCOVERY_OFF, "over");
	atomic_fetch_add(&fake->n_ended, 1);
}

static void on_change(void *ctx, struct discovery *d)
{
	struct world *w = ctx;
	assert_ptr_equal(d, w->d);
	w->n_changes++;
	if (w->close_inside) {
		discovery_close(w->d);
		w->d = NULL;
	}
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	w->fake.backend = (struct discovery_backend){play, &w->fake};
	*state = w;
	return loop_open(&w->loop, NULL) == OK ? 0 : -1;
}

// wait_end: nothing wakes the loop when the thread has ended.
static void wait_end(struct world *w)
{
	for (int64_t end_ns = loop_clock_ns() + PATIENCE_NS; atomic_load(&w->fake.n_ended) == 0; poll(NULL, 0, 1))
		assert_true(loop_clock_ns() < end_ns);
}

static int teardown(void **state)
{
	struct world *w = *state;
	discovery_close(w->d);
	if (w->fake.backend.run != NULL)
		wait_end(w); // its memory must outlive the thread
	loop_close(&w->loop);
	free(w);
	return 0;
}

static void begin(struct world *w, const struct discovery_backend *backend, const struct node_id *pinned)
{
	struct discovery_params p = {.loop = &w->loop, .backend = backend, .want = {.browse = true}, .on_change = on_change, .ctx = w};
	if (pinned != NULL) {
		p.want.is_pinned = true;
		p.want.pinned = *pinned;
	}
	assert_int_equal(discovery_open(&p, &w->d, NULL), OK);
}

static bool has_settled(void *ctx)
{
	struct world *w = ctx;
	return w->d == NULL || (w->n_changes > 0 && discovery_get_state(w->d, NULL) == DISCOVERY_SETTLED);
}

static bool is_off(void *ctx)
{
	struct world *w = ctx;
	return discovery_get_state(w->d, NULL) == DISCOVERY_OFF;
}

static void what_is_announced_is_seen_from_the_loop(void **state)
{
	struct world *w = *state;
	struct found_list l;
	begin(w, &w->fake.backend, NULL);
	assert_true(loop_run_until(&w->loop, has_settled, w, loop_clock_ns() + PATIENCE_NS));
	discovery_get_list(w->d, &l);
	assert_int_equal(l.n, 1);
	assert_int_equal(l.at[0].txt.id.b[0], 7);
	assert_true(w->n_changes >= 1);
}

static void an_announcement_that_ends_is_gone(void **state)
{
	struct world *w = *state;
	struct found_list l;
	w->fake.ends_ours = true;
	begin(w, &w->fake.backend, NULL);
	assert_true(loop_run_until(&w->loop, has_settled, w, loop_clock_ns() + PATIENCE_NS));
	discovery_get_list(w->d, &l);
	assert_int_equal(l.n, 0);
}

static void thousands_of_others_do_not_hide_a_pinned_coordinator(void **state)
{
	struct world *w = *state;
	struct found_list l;
	struct found ours = announcement(7, 200);
	w->fake.n_fakes = 5000;
	begin(w, &w->fake.backend, &ours.txt.id);
	assert_true(loop_run_until(&w->loop, has_settled, w, loop_clock_ns() + PATIENCE_NS));
	discovery_get_list(w->d, &l);
	assert_int_equal(l.n, 1);
	assert_true(w->n_changes <= 3); // those that are passed over wake nobody
}

static void it_may_be_closed_inside_its_event(void **state)
{
	struct world *w = *state;
	w->close_inside = true;
	begin(w, &w->fake.backend, NULL);
	assert_true(loop_run_until(&w->loop, has_settled, w, loop_clock_ns() + PATIENCE_NS));
	assert_null(w->d);
	assert_int_equal(w->n_changes, 1);
}

static void a_backend_that_hangs_delays_neither_open_nor_close(void **state)
{
	struct world *w = *state;
	w->fake.is_stuck = true;
	int64_t before_ns = loop_clock_ns();
	begin(w, &w->fake.backend, NULL);
	discovery_close(w->d);
	w->d = NULL;
	assert_true(loop_clock_ns() - before_ns < PATIENCE_NS);
	assert_int_equal(atomic_load(&w->fake.n_ended), 0); // it went on without waiting for it
	atomic_store(&w->fake.is_let_go, true);
	wait_end(w);
	assert_int_equal(w->n_changes, 0);
}

static void a_loop_that_closes_ends_it(void **state)
{
	struct world *w = *state;
	begin(w, &w->fake.backend, NULL);
	loop_close(&w->loop);
	w->d = NULL;
	wait_end(w);
	assert_int_equal(loop_open(&w->loop, NULL), OK);
}

static void without_a_daemon_it_says_what_to_install(void **state)
{
	struct world *w = *state;
	char text[ERRMSG_CAP];
	setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus", 1);
	begin(w, &discovery_avahi, NULL);
	w->fake.backend.run = NULL;
	assert_true(loop_run_until(&w->loop, is_off, w, loop_clock_ns() + PATIENCE_NS));
	discovery_get_state(w->d, text);
	assert_non_null(strstr(text, "avahi-daemon"));
	assert_non_null(strstr(text, "apt install"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(what_is_announced_is_seen_from_the_loop),
		T(an_announcement_that_ends_is_gone),
		T(thousands_of_others_do_not_hide_a_pinned_coordinator),
		T(it_may_be_closed_inside_its_event),
		T(a_backend_that_hangs_delays_neither_open_nor_close),
		T(a_loop_that_closes_ends_it),
		T(without_a_daemon_it_says_what_to_install),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
