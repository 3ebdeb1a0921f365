// Records that a peer makes by hand: what a link takes as a frame, and what ends it.
#include "net/link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "tests/support/link_world.h"
#include "tests/support/sockets.h"

static int setup(void **state)
{
	*state = world_open(LNK1_MEMBER, LNK1_DATA, NULL);
	return 0;
}

static int teardown(void **state)
{
	world_close(*state);
	return 0;
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

// A raw client that is through the handshake, and its keys.
struct raw {
	int fd;
	struct lnk1_link keys;
};

static struct raw raw_up(struct world *w)
{
	struct raw r = {.fd = socket_connect(NULL, link_listener_port(w->listener))};
	world_raw_handshake(w, r.fd, &r.keys);
	return r;
}

static size_t seal(struct raw *r, const char *text, uint8_t *out)
{
	uint32_t len = (uint32_t)strlen(text);
	assert_int_equal(lnk1_seal(&r->keys.tx, (const uint8_t *)text, len, out), OK);
	return len + LNK1_RECORD_EXTRA;
}

static void assert_record_refused(struct world *w, struct raw *r)
{
	assert_true(world_raw_closed(w, r->fd));
	assert_int_equal(w->server.n_down, 1);
	assert_int_equal(w->server.down.reason, LINK_DOWN_RECORD);
	assert_int_equal(w->server.n_frames, 0);
	close(r->fd);
}

static void two_frames_in_a_segment_and_one_in_single_bytes_are_frames(void **state)
{
	struct world *w = *state;
	w->server.frames = malloc(w->server.frames_cap = 64);
	struct raw r = raw_up(w);
	uint8_t buf[256];
	size_t n = seal(&r, "one ", buf);
	n += seal(&r, "two ", buf + n);
	socket_send(r.fd, buf, n);
	assert_true(world_run(w, have_frames, &(struct frames_wanted){&w->server, 2}));
	n = seal(&r, "three", buf);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(w->server.n_frames, 2);
		socket_send(r.fd, buf + i, 1);
		world_run_for(w, 500000);
	}
	assert_true(world_run(w, have_frames, &(struct frames_wanted){&w->server, 3}));
	assert_memory_equal(w->server.frames, "one two three", 13);
	close(r.fd);
	assert_true(world_run(w, world_server_down, w));
	assert_int_equal(w->server.down.reason, LINK_DOWN_LOST);
}

static void no_frame_comes_after_a_cut(void **state)
{
	struct world *w = *state;
	struct raw r = raw_up(w);
	uint8_t buf[256];
	w->server.cut_on_frame = true;
	size_t n = seal(&r, "one", buf);
	n += seal(&r, "two", buf + n);
	socket_send(r.fd, buf, n);
	assert_true(world_run(w, world_server_down, w));
	assert_int_equal(w->server.n_frames, 1);
	close(r.fd);
}

static void lengths_beyond_the_limit_close_before_their_bytes_come(void **state)
{
	struct world *w = *state;
	struct raw r = raw_up(w);
	uint8_t head[4];
	store_u32(head, r.keys.record_max + 1);
	socket_send(r.fd, head, 4);
	assert_record_refused(w, &r);
}

static void length_2_32_minus_1_closes(void **state)
{
	struct world *w = *state;
	struct raw r = raw_up(w);
	socket_send(r.fd, "\xff\xff\xff\xff", 4);
	assert_record_refused(w, &r);
}

static void length_0_that_is_no_final_closes(void **state)
{
	struct world *w = *state;
	struct raw r = raw_up(w);
	uint8_t junk[4 + 17] = {0};
	socket_send(r.fd, junk, sizeof junk);
	assert_record_refused(w, &r);
}

static void a_flipped_bit_anywhere_in_a_record_closes(void **state)
{
	// Bits of the length may ask for more bytes instead, which never come: those end as a loss, and nothing is delivered either way.
	for (size_t bit = 0; bit < 8 * (3 + LNK1_RECORD_EXTRA); bit += 5) {
		struct world *w = world_open(LNK1_MEMBER, LNK1_DATA, NULL);
		struct raw r = raw_up(w);
		uint8_t buf[64];
		size_t n = seal(&r, "abc", buf);
		buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
		socket_send(r.fd, buf, n);
		if (bit >= 32) {
			assert_record_refused(w, &r);
		} else {
			world_run_for(w, 20000000);
			close(r.fd);
			assert_true(world_run(w, world_server_down, w));
			assert_int_equal(w->server.n_frames, 0);
		}
		world_close(w);
	}
	(void)state;
}

static void a_repeated_record_closes(void **state)
{
	struct world *w = *state;
	struct raw r = raw_up(w);
	uint8_t buf[64];
	size_t n = seal(&r, "abc", buf);
	socket_send(r.fd, buf, n);
	assert_true(world_run(w, have_frames, &(struct frames_wanted){&w->server, 1}));
	socket_send(r.fd, buf, n);
	assert_true(world_run(w, world_server_down, w));
	assert_int_equal(w->server.down.reason, LINK_DOWN_RECORD);
	assert_int_equal(w->server.n_frames, 1);
	close(r.fd);
}

static void an_end_inside_a_record_is_a_loss(void **state)
{
	struct world *w = *state;
	struct raw r = raw_up(w);
	uint8_t buf[64];
	size_t n = seal(&r, "abc", buf);
	socket_send(r.fd, buf, n - 1);
	close(r.fd);
	assert_true(world_run(w, world_server_down, w));
	assert_int_equal(w->server.down.reason, LINK_DOWN_LOST);
	assert_int_equal(w->server.n_frames, 0);
}

static void bytes_behind_final_are_refused(void **state)
{
	struct world *w = *state;
	struct raw r = raw_up(w);
	uint8_t buf[64];
	assert_int_equal(lnk1_seal_final(&r.keys.tx, buf), OK);
	buf[LNK1_RECORD_EXTRA] = 0;
	socket_send(r.fd, buf, LNK1_RECORD_EXTRA + 1);
	assert_record_refused(w, &r);
}

static void final_is_answered_with_final(void **state)
{
	struct world *w = *state;
	struct raw r = raw_up(w);
	uint8_t buf[LNK1_RECORD_EXTRA], plain[1];
	uint32_t len = 1;
	size_t body_len;
	assert_int_equal(lnk1_seal_final(&r.keys.tx, buf), OK);
	socket_send(r.fd, buf, sizeof buf);
	assert_true(world_raw_recv(w, r.fd, buf, sizeof buf));
	assert_int_equal(lnk1_open_head(&r.keys.rx, buf, &body_len), OK);
	assert_int_equal(lnk1_open_body(&r.keys.rx, buf + LNK1_RECORD_HEAD, plain, &len), OK);
	assert_int_equal(len, 0);
	assert_true(lnk1_ended_well(&r.keys.rx));
	assert_true(world_raw_closed(w, r.fd));
	assert_int_equal(w->server.down.reason, LINK_DOWN_PEER_CLOSED);
	close(r.fd);
}

#define WITH(s, f) cmocka_unit_test_setup_teardown(f, s, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH(setup, two_frames_in_a_segment_and_one_in_single_bytes_are_frames),
		WITH(setup, no_frame_comes_after_a_cut),
		WITH(setup, lengths_beyond_the_limit_close_before_their_bytes_come),
		WITH(setup, length_2_32_minus_1_closes),
		WITH(setup, length_0_that_is_no_final_closes),
		cmocka_unit_test(a_flipped_bit_anywhere_in_a_record_closes),
		WITH(setup, a_repeated_record_closes),
		WITH(setup, an_end_inside_a_record_is_a_loss),
		WITH(setup, bytes_behind_final_are_refused),
		WITH(setup, final_is_answered_with_final),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
