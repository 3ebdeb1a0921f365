#include "net/link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "proto/frame.h"
#include "tests/support/link_world.h"
#include "tests/support/sockets.h"

static int setup(void **state)
{
	*state = world_open(LNK1_MEMBER, LNK1_DATA, NULL);
	return 0;
}

static int setup_join(void **state)
{
	*state = world_open(LNK1_JOIN, LNK1_CONTROL, NULL);
	return 0;
}

static int teardown(void **state)
{
	world_close(*state);
	return 0;
}

// ---- Up, frames ----

static void a_link_comes_up_and_both_sides_know_with_whom(void **state)
{
	struct world *w = *state;
	world_up(w);
	assert_memory_equal(w->client.info.peer_pk, w->fix.server_keys.pk, LNK1_KEY_LEN);
	assert_memory_equal(w->server.info.peer_pk, w->fix.node_keys.pk, LNK1_KEY_LEN);
	struct node_id id;
	lnk1_node_id(w->fix.node_keys.pk, id.b);
	assert_true(node_id_is(w->server.info.peer, id));
	assert_true(w->client.info.is_dialled);
	assert_false(w->server.info.is_dialled);
	assert_memory_equal(w->client.info.session_id, w->server.info.session_id, LNK1_SESSION_ID_LEN);
	assert_int_equal(w->client.info.kind, LNK1_DATA);
	assert_int_equal(w->server.info.record_max, w->client.info.record_max);
	assert_int_equal(w->client.info.member_epoch.v, w->fix.cfg.member_epoch);
	assert_true(w->server.info.addr.is_ip);
	assert_true(link_is_up(w->client.up));
	link_set_user(w->client.up, w);
	assert_ptr_equal(link_user(w->client.up), w);
}

struct frames_wanted {
	struct world_host *host;
	int n;
};

static bool have_frames(void *ctx)
{
	struct frames_wanted *f = ctx;
	return f->host->n_frames >= f->n;
}

static void frames_of_every_length_arrive_whole_in_order_both_ways(void **state)
{
	struct world *w = *state;
	world_up(w);
	uint32_t max = w->client.info.record_max;
	size_t total = 0;
	w->server.echo = true;
	w->client.frames_cap = 64u << 20;
	w->client.frames = malloc(w->client.frames_cap);
	uint8_t *sent = malloc(w->client.frames_cap);
	struct rng rng;
	rng_init(&rng, 8);
	int n = 0;
	for (int i = 0; i < 400; i++) {
		const size_t lens[] = {1, 2, max - 1, max, 1 + rng_below(&rng, 300), 1 + rng_below(&rng, max)};
		size_t len = lens[i % (i < 100 ? 5 : 6)];
		for (size_t k = 0; k < len; k++)
			sent[total + k] = (uint8_t)(rng_u32(&rng) >> 3);
		enum err e;
		while ((e = link_send(w->client.up, sent + total, len)) == ERR_LIMIT)
			world_run_for(w, 1000000);
		assert_int_equal(e, OK);
		total += len;
		n++;
		if (i % 16 == 15) // the echo must not fill the server's queue
			assert_true(world_run(w, have_frames, &(struct frames_wanted){&w->client, n}));
	}
	assert_true(world_run(w, have_frames, &(struct frames_wanted){&w->client, n}));
	assert_int_equal(w->client.frames_len, total);
	assert_memory_equal(w->client.frames, sent, total);
	struct link_stats s = link_get_stats(w->client.up);
	assert_int_equal(s.frames_in, n);
	assert_int_equal(s.frames_out, n);
	assert_int_equal(s.bytes_out, total + (size_t)n * LNK1_RECORD_EXTRA + LNK1_M1_LEN + LNK1_M3_LEN);
	assert_int_equal(s.bytes_in, total + (size_t)n * LNK1_RECORD_EXTRA + LNK1_M2_LEN + LNK1_M4_LEN);
	assert_true(s.heard_ns >= s.up_ns);
	free(sent);
}

static void lengths_outside_the_range_are_refused(void **state)
{
	struct world *w = *state;
	world_up(w);
	uint32_t max = w->client.info.record_max;
	uint8_t *big = calloc(1, max + 1u);
	assert_int_equal(link_send(w->client.up, big, 0), ERR_RANGE);
	assert_int_equal(link_send(w->client.up, big, max + 1u), ERR_RANGE);
	assert_int_equal(link_send2(w->client.up, big, 1, big, max), ERR_RANGE);
	assert_int_equal(link_send2(w->client.up, big, SIZE_MAX, big, 2), ERR_RANGE);
	assert_int_equal(link_send2(w->client.up, big, 1, big, max - 1u), OK);
	assert_true(world_run(w, have_frames, &(struct frames_wanted){&w->server, 1}));
	assert_int_equal(w->server.last_len, max);
	free(big);
}

static void head_and_payload_become_one_frame(void **state)
{
	struct world *w = *state;
	world_up(w);
	w->server.frames = malloc(w->server.frames_cap = 64);
	assert_int_equal(link_send2(w->client.up, (const uint8_t *)"head ", 5, (const uint8_t *)"payload", 7), OK);
	assert_int_equal(link_send2(w->client.up, (const uint8_t *)"!", 1, NULL, 0), OK);
	assert_true(world_run(w, have_frames, &(struct frames_wanted){&w->server, 2}));
	assert_memory_equal(w->server.frames, "head payload!", 13);
}

static bool is_writable(void *ctx)
{
	return ((struct world *)ctx)->client.n_writable > 0;
}

static void a_peer_that_does_not_read_fills_the_queue_and_no_more(void **state)
{
	struct world *w = *state;
	int listen_fd = socket_connect(NULL, link_listener_port(w->listener));
	struct lnk1_link keys;
	world_raw_handshake(w, listen_fd, &keys);
	assert_non_null(w->server.up);
	static uint8_t frame[100000];
	int n = 0;
	enum err e = OK;
	for (int i = 0; i < 10000 && e == OK; i++, n++) {
		e = link_send(w->server.up, frame, sizeof frame);
		if (e == ERR_LIMIT) { // until the kernel, too, takes no more
			world_run_for(w, WORLD_S / 20);
			e = link_send(w->server.up, frame, sizeof frame);
		}
	}
	assert_int_equal(e, ERR_LIMIT);
	assert_true(link_is_full(w->server.up));
	struct link_stats s = link_get_stats(w->server.up);
	assert_true(s.queued_frames <= w->limits.queued_frames);
	assert_true(s.queued_bytes <= w->limits.queued_bytes[LNK1_DATA] + sizeof frame + LNK1_RECORD_EXTRA);
	assert_int_equal(w->server.n_down, 0); // stuck is for the host to judge
	world_abort(&w->server);
	close(listen_fd);
	lnk1_stream_deinit(&keys.rx);
}

static void on_writable_comes_when_a_full_queue_has_drained(void **state)
{
	struct world *w = *state;
	world_up(w);
	static uint8_t frame[200000];
	while (link_send(w->client.up, frame, sizeof frame) == OK)
		;
	assert_int_equal(w->client.n_writable, 0);
	assert_true(world_run(w, is_writable, w));
	assert_int_equal(link_send(w->client.up, frame, sizeof frame), OK);
}

// ---- Ends ----

static void an_orderly_close_delivers_what_was_queued_and_is_orderly_at_both(void **state)
{
	struct world *w = *state;
	world_up(w);
	static uint8_t frame[100000];
	for (int i = 0; i < 20; i++) {
		assert_int_equal(link_send(w->client.up, frame, sizeof frame), OK);
		assert_int_equal(link_send(w->server.up, frame, sizeof frame), OK);
	}
	link_close(w->client.up);
	link_close(w->client.up); // twice is once
	assert_int_equal(link_send(w->client.up, frame, 1), ERR_CLOSED);
	assert_int_equal(w->client.n_down, 0); // never from inside
	assert_true(world_run(w, world_both_down, w));
	assert_int_equal(w->server.n_frames, 20);
	assert_int_equal(w->client.n_frames, 20);
	assert_int_equal(w->client.down.reason, LINK_DOWN_CLOSED);
	assert_int_equal(w->server.down.reason, LINK_DOWN_PEER_CLOSED);
	assert_true(w->client.down.was_up);
	assert_true(w->client.down.is_orderly && w->server.down.is_orderly);
}

// ends_after ends a new link, with one frame of this type that comes too late, and says whether the end counts as orderly.
static bool ends_after(struct world *w, uint8_t type, bool is_full)
{
	static uint8_t frame[100000];
	int n_down = w->client.n_down;
	enum err e = OK;
	world_up(w);
	frame[0] = type;
	if (!is_full)
		link_close(w->client.up);
	while (e == OK)
		e = link_send_or_end(w->client.up, frame, 9, frame + 9, sizeof frame - 9);
	assert_int_equal(e, is_full ? ERR_LIMIT : ERR_CLOSED);
	assert_false(link_is_up(w->client.up)); // and closed by it when it was full
	assert_int_equal(w->client.n_down, n_down); // never from inside
	assert_true(world_run(w, world_both_down, w));
	assert_int_equal(w->client.down.reason, LINK_DOWN_CLOSED);
	assert_int_equal(w->server.down.reason, LINK_DOWN_PEER_CLOSED);
	assert_true(w->server.down.is_orderly); // that one has sent all it wanted to
	return w->client.down.is_orderly;
}

static void an_end_that_lost_a_frame_is_not_orderly_unless_it_was_a_ping(void **state)
{
	struct world *w = *state;
	static const uint8_t types[] = {FRAME_CONTROL, FRAME_PING, FRAME_PONG, FRAME_STEP, FRAME_CREDIT, 0, 255};
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		bool is_ping = types[i] == FRAME_PING || types[i] == FRAME_PONG;
		assert_int_equal(ends_after(w, types[i], false), is_ping);
		assert_int_equal(ends_after(w, types[i], true), is_ping);
	}
}

static void both_sides_may_close_at_once(void **state)
{
	struct world *w = *state;
	world_up(w);
	link_close(w->client.up);
	link_close(w->server.up);
	assert_true(world_run(w, world_both_down, w));
	assert_int_equal(w->client.down.reason, LINK_DOWN_CLOSED);
	assert_int_equal(w->server.down.reason, LINK_DOWN_CLOSED);
}

static void an_end_without_final_is_a_loss(void **state)
{
	struct world *w = *state;
	world_up(w);
	link_abort(w->client.up);
	w->client.up = NULL;
	assert_true(world_run(w, world_server_down, w));
	assert_int_equal(w->server.down.reason, LINK_DOWN_LOST);
	assert_false(w->server.down.is_orderly);
	assert_int_equal(w->client.n_down, 0);
}

static void a_close_that_the_other_side_ignores_ends_in_time(void **state)
{
	struct world *w = *state;
	w->limits.close_ns = WORLD_S / 10;
	int fd = socket_connect(NULL, link_listener_port(w->listener));
	struct lnk1_link keys;
	world_raw_handshake(w, fd, &keys);
	link_close(w->server.up);
	assert_true(world_run(w, world_server_down, w));
	assert_int_equal(w->server.down.reason, LINK_DOWN_LOST);
	assert_int_equal(w->server.down.stream, STREAM_TIMEOUT);
	close(fd);
}

static void a_cut_waits_for_nobody_and_is_not_orderly(void **state)
{
	struct world *w = *state;
	int fd = socket_connect(NULL, link_listener_port(w->listener));
	struct lnk1_link keys;
	world_raw_handshake(w, fd, &keys);
	struct link *link = w->server.up;
	link_cut(link);
	link_cut(link); // twice is once
	link_close(link);
	assert_int_equal(link_send(link, (const uint8_t *)"x", 1), ERR_CLOSED);
	assert_int_equal(w->server.n_down, 0); // never from inside
	assert_true(loop_run_until(&w->loop, world_server_down, w, loop_clock_ns() + WORLD_S)); // close_ns is longer
	assert_int_equal(w->server.down.reason, LINK_DOWN_CLOSED);
	assert_false(w->server.down.is_orderly);
	assert_int_equal(w->server.n_down, 1);
	assert_true(world_raw_closed(w, fd));
	close(fd);
}

static bool two_up(void *ctx)
{
	struct world *w = ctx;
	return w->client.n_up == 2 && w->server.n_up == 2;
}

static void a_new_link_is_up_before_the_old_is_closed_and_no_frame_is_lost(void **state)
{
	struct world *w = *state;
	world_up(w);
	struct link *old_client = w->client.up, *old_server = w->server.up;
	world_dial(w, NULL);
	assert_true(world_run(w, two_up, w));
	assert_ptr_not_equal(w->client.up, old_client);
	static uint8_t frame[5000];
	for (int i = 0; i < 30; i++)
		assert_int_equal(link_send(old_server, frame, sizeof frame), OK);
	link_close(old_client);
	for (int i = 0; i < 30; i++)
		assert_int_equal(link_send(w->server.up, frame, sizeof frame), OK);
	assert_true(world_run(w, world_client_down, w));
	assert_true(world_run(w, have_frames, &(struct frames_wanted){&w->client, 60}));
	assert_int_equal(w->client.down.reason, LINK_DOWN_CLOSED);
	assert_non_null(w->client.up);
}

struct ups_wanted {
	struct world *w;
	int n;
};

static bool both_came_up(void *ctx)
{
	struct ups_wanted *x = ctx;
	return x->w->client.n_up >= x->n && x->w->server.n_up >= x->n;
}

static bool none_is_up(void *ctx)
{
	struct world *w = ctx;
	return w->client.up == NULL && w->server.up == NULL;
}

static void a_host_may_abort_close_or_cut_inside_any_callback(void **state)
{
	struct world *w = *state;
	bool *const flags[] = {&w->client.abort_on_up, &w->client.close_on_up, &w->client.cut_on_up, &w->server.abort_on_up, &w->server.close_on_up,
		&w->server.cut_on_up, &w->server.abort_on_frame, &w->server.close_on_frame, &w->server.cut_on_frame};
	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		*flags[i] = true;
		world_dial(w, NULL);
		assert_true(world_run(w, both_came_up, &(struct ups_wanted){w, (int)i + 1}));
		if (w->client.up != NULL) {
			enum err e = link_send(w->client.up, (const uint8_t *)"abc", 3);
			assert_true(e == OK || e == ERR_CLOSED);
		}
		assert_true(world_run(w, none_is_up, w));
		*flags[i] = false;
	}
}

static void links_that_are_left_over_end_with_the_loop(void **state)
{
	struct world *w = *state;
	world_up(w);
	static uint8_t frame[100000];
	for (int i = 0; i < 5; i++) {
		assert_int_equal(link_send(w->client.up, frame, sizeof frame), OK);
		assert_int_equal(link_send(w->server.up, frame, sizeof frame), OK);
	}
	link_close(w->client.up);        // orderly, and nobody waits for it
	world_dial(w, NULL);             // in the middle of connecting
	link_close(world_dial(w, NULL)); // on_down is still to come
	w->client.up = w->server.up = NULL;
	memset(w->server.live, 0, sizeof w->server.live);
	link_listener_close(w->listener);
	w->listener = NULL;
	loop_close(&w->loop); // here; ASan and LeakSanitizer watch
	assert_int_equal(w->client.n_down + w->server.n_down, 0);
}

// ---- Handshakes that fail ----

static void a_wrong_psk_is_closed_without_a_word(void **state)
{
	struct world *w = *state;
	w->fix.client.psk[0] ^= 1;
	world_dial(w, NULL);
	assert_true(world_run(w, world_client_down, w));
	assert_int_equal(w->client.down.reason, LINK_DOWN_LOST);
	assert_false(w->client.down.was_up);
	assert_int_equal(w->server.n_up + w->server.n_down, 0); // the host never saw it
	assert_int_equal(link_listener_get_stats(w->listener).n_failed, 1);
}

static void another_server_key_fails_at_the_client_or_the_server(void **state)
{
	struct world *w = *state;
	w->fix.client.server_pk[3] ^= 1;
	world_dial(w, NULL);
	assert_true(world_run(w, world_client_down, w));
	assert_false(w->client.down.was_up);
	assert_int_equal(w->server.n_up + w->server.n_down, 0);
}

static void another_protocol_version_is_said_plainly(void **state)
{
	struct world *w = *state;
	w->fix.client.protocol_min = w->fix.client.protocol_max = 9;
	world_dial(w, NULL);
	assert_true(world_run(w, world_client_down, w));
	assert_int_equal(w->client.down.reason, LINK_DOWN_HANDSHAKE);
	assert_int_equal(w->client.down.handshake, LNK1_NO_VERSION);
}

static void a_refused_connection_is_no_connection(void **state)
{
	struct world *w = *state;
	uint16_t port;
	close(socket_listen(1, &port));
	char addr[32];
	snprintf(addr, sizeof addr, "127.0.0.1:%u", port);
	world_dial(w, addr);
	assert_true(world_run(w, world_client_down, w));
	assert_int_equal(w->client.down.reason, LINK_DOWN_NO_CONNECTION);
	assert_int_equal(w->client.down.stream, STREAM_REFUSED);
}

static void a_server_that_says_nothing_meets_the_clients_deadline(void **state)
{
	struct world *w = *state;
	w->limits.handshake_ns = WORLD_S / 5;
	uint16_t port;
	int fd = socket_listen(8, &port);
	char addr[32];
	snprintf(addr, sizeof addr, "127.0.0.1:%u", port);
	int64_t begin_ns = loop_clock_ns();
	world_dial(w, addr);
	assert_true(world_run(w, world_client_down, w));
	assert_int_equal(w->client.down.reason, LINK_DOWN_HANDSHAKE_TIMEOUT);
	assert_true(loop_clock_ns() - begin_ns >= WORLD_S / 5);
	close(fd);
}

static void addresses_that_are_none_are_refused_at_once(void **state)
{
	struct world *w = *state;
	struct link_callbacks callbacks = world_callbacks(&w->client);
	static const char *const bad[] = {"", "host", "host:", ":7433", "gopher://x:1"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct link *link;
		struct errmsg em = {{0}};
		assert_int_equal(link_dial(&w->loop, bad[i], &w->fix.client, &w->limits, &callbacks, &link, &em), ERR_FORMAT);
		assert_true(em.text[0] != '\0');
		assert_null(link);
	}
}

static void a_link_closed_or_aborted_while_it_dials_says_so_or_nothing(void **state)
{
	struct world *w = *state;
	link_abort(world_dial(w, NULL));
	link_close(world_dial(w, NULL));
	assert_int_equal(w->client.n_down, 0);
	assert_true(world_run(w, world_client_down, w));
	assert_int_equal(w->client.down.reason, LINK_DOWN_CLOSED);
	assert_int_equal(w->client.n_down, 1);
	assert_int_equal(w->client.n_up, 0);
}

// ---- Join ----

static bool has_join(void *ctx)
{
	return ((struct world *)ctx)->n_joins > 0;
}

static void a_join_waits_for_the_hosts_word(void **state)
{
	struct world *w = *state;
	world_dial(w, NULL);
	assert_true(world_run(w, has_join, w));
	world_run_for(w, WORLD_S / 20);
	assert_int_equal(w->client.n_up, 0); // no M4 before the binding is on disk
	assert_memory_equal(w->join_info.token_id, w->fix.token_id, LNK1_TOKEN_ID_LEN);
	assert_memory_equal(w->join_info.peer_pk, w->fix.node_keys.pk, LNK1_KEY_LEN);
	link_accept(w->joining);
	assert_true(world_run(w, world_both_up, w));
	assert_int_equal(w->server.info.mode, LNK1_JOIN);
	link_close(w->server.up);
	assert_true(world_run(w, world_both_down, w));
}

static void a_refused_join_is_closed_without_a_word(void **state)
{
	struct world *w = *state;
	world_dial(w, NULL);
	assert_true(world_run(w, has_join, w));
	link_refuse(w->joining);
	assert_true(world_run(w, world_client_down, w));
	assert_int_equal(w->client.down.reason, LINK_DOWN_LOST);
	assert_int_equal(w->server.n_down, 1);
	assert_int_equal(w->server.n_up, 0);
}

static void a_join_the_host_never_answers_ends_at_the_deadline(void **state)
{
	struct world *w = *state;
	w->limits.handshake_ns = WORLD_S / 4;
	world_dial(w, NULL);
	assert_true(world_run(w, has_join, w));
	assert_true(world_run(w, world_server_down, w));
	assert_int_equal(w->server.down.reason, LINK_DOWN_HANDSHAKE_TIMEOUT);
	assert_true(world_run(w, world_client_down, w));
}

static void a_wrong_invite_secret_is_reported_to_the_host(void **state)
{
	struct world *w = *state;
	w->fix.client.token_secret[31] ^= 0x80;
	world_dial(w, NULL);
	assert_true(world_run(w, world_client_down, w));
	assert_int_equal(w->n_invite_failed, 1);
	assert_memory_equal(w->failed_token, w->fix.token_id, LNK1_TOKEN_ID_LEN);
	assert_int_equal(w->n_joins, 0);
}

static void a_join_without_an_invite_outstanding_is_not_answered(void **state)
{
	struct world *w = *state;
	w->fix.has_token = false;
	world_dial(w, NULL);
	assert_true(world_run(w, world_client_down, w));
	assert_int_equal(w->n_invite_failed, 0);
	assert_int_equal(w->n_joins, 0);
}

// ---- Many ----

static void kill_one(struct world *w, uint32_t i, struct rng *rng)
{
	static uint8_t frame[60000];
	struct link *link = world_dial(w, NULL);
	if (i % 5 == 0) { // at some moment of the handshake
		(void)loop_run_until(&w->loop, world_client_down, w, loop_clock_ns() + (int64_t)rng_below(rng, 1000000));
		link_abort(link);
		w->client.up = NULL;
		return;
	}
	assert_true(world_run(w, world_both_up, w));
	for (int k = 0; k < 8; k++) {
		(void)!link_send(w->client.up, frame, 1 + rng_below(rng, sizeof frame));
		(void)!link_send(w->server.up, frame, 1 + rng_below(rng, sizeof frame));
	}
	(void)loop_run_until(&w->loop, world_client_down, w, loop_clock_ns() + (int64_t)rng_below(rng, 500000));
	if (i % 5 == 1 && w->client.up != NULL)
		link_close(w->client.up);
	else if (i % 5 < 4 && w->client.up != NULL) {
		link_abort(w->client.up);
		w->client.up = NULL;
	} else if (w->server.up != NULL) {
		world_abort(&w->server);
	}
}

static bool all_quiet(void *ctx)
{
	struct world *w = ctx;
	return w->client.up == NULL && w->server.up == NULL && link_listener_get_stats(w->listener).n_unauth == 0;
}

static int setup_patient(void **state)
{
	struct link_limits limits = link_limits_default;
	limits.failed_burst = 100000; // aborted handshakes are failures, and this is no test of the bucket
	*state = world_open(LNK1_MEMBER, LNK1_DATA, &limits);
	return 0;
}

static void a_thousand_links_killed_under_traffic_leave_nothing(void **state)
{
	struct world *w = *state;
	w->server.echo = true;
	struct rng rng;
	rng_init(&rng, 9);
	int fds = open_descriptors();
	long kb = 0;
	for (uint32_t i = 0; i < 1100; i++) {
		if (i == 100) {
			kb = resident_kb();
		}
		kill_one(w, i, &rng);
		assert_true(world_run(w, all_quiet, w));
	}
	// NNG closes some sockets a little later, and tells nobody.
	for (int64_t end_ns = loop_clock_ns() + WORLD_PATIENCE; open_descriptors() > fds && loop_clock_ns() < end_ns;)
		world_run_for(w, 1000000);
	assert_true(open_descriptors() <= fds);
	print_message("memory grew by %ld KiB in 1,000 links\n", resident_kb() - kb);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(resident_kb() - kb < 4096);
#endif
}

#define WITH(s, f) cmocka_unit_test_setup_teardown(f, s, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(setup, a_link_comes_up_and_both_sides_know_with_whom),
		WITH(setup, frames_of_every_length_arrive_whole_in_order_both_ways),
		WITH(setup, lengths_outside_the_range_are_refused),
		WITH(setup, head_and_payload_become_one_frame),
		WITH(setup, a_peer_that_does_not_read_fills_the_queue_and_no_more),
		WITH(setup, on_writable_comes_when_a_full_queue_has_drained),
		WITH(setup, an_orderly_close_delivers_what_was_queued_and_is_orderly_at_both),
		WITH(setup, an_end_that_lost_a_frame_is_not_orderly_unless_it_was_a_ping),
		WITH(setup, both_sides_may_close_at_once),
		WITH(setup, an_end_without_final_is_a_loss),
		WITH(setup, a_close_that_the_other_side_ignores_ends_in_time),
		WITH(setup, a_cut_waits_for_nobody_and_is_not_orderly),
		WITH(setup, a_new_link_is_up_before_the_old_is_closed_and_no_frame_is_lost),
		WITH(setup, a_host_may_abort_close_or_cut_inside_any_callback),
		WITH(setup, links_that_are_left_over_end_with_the_loop),
		WITH(setup, a_wrong_psk_is_closed_without_a_word),
		WITH(setup, another_server_key_fails_at_the_client_or_the_server),
		WITH(setup, another_protocol_version_is_said_plainly),
		WITH(setup, a_refused_connection_is_no_connection),
		WITH(setup, a_server_that_says_nothing_meets_the_clients_deadline),
		WITH(setup, addresses_that_are_none_are_refused_at_once),
		WITH(setup, a_link_closed_or_aborted_while_it_dials_says_so_or_nothing),
		WITH(setup_join, a_join_waits_for_the_hosts_word),
		WITH(setup_join, a_refused_join_is_closed_without_a_word),
		WITH(setup_join, a_join_the_host_never_answers_ends_at_the_deadline),
		WITH(setup_join, a_wrong_invite_secret_is_reported_to_the_host),
		WITH(setup_join, a_join_without_an_invite_outstanding_is_not_answered),
		WITH(setup_patient, a_thousand_links_killed_under_traffic_leave_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
