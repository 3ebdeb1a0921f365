#include "blocks/shell/block_server.h"

#include "proto/frame.h"
#include "tests/support/block_model.h"
#include "tests/support/link_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct log quiet = {.fd = -1};

struct place {
	struct world *w;
	struct block_model model;
	struct block_io *io;
	struct block_server *server;
	struct block_frame last; // what the client heard
	uint8_t bytes[2 * MODEL_BLOCK];
	int n_frames, n_blocks, n_refused, n_down;
};

static enum err read_model(void *ctx, uint32_t block, uint8_t *buf, struct errmsg *em)
{
	struct place *p = ctx;
	if (block == 3)
		return errmsg_fail(em, ERR_NOT_FOUND, "block 3 is not here");
	memcpy(buf, block_model_block(&p->model, block), manifest_block_bytes(&p->model.m, block));
	return OK;
}

static void on_server_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct place *p = ctx;
	block_server_take(p->server, link, info);
}

static void on_client_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	struct place *p = ctx;
	(void)link;
	p->n_frames++;
	if (frame[0] == FRAME_PONG)
		return;
	assert_int_equal(block_frame_decode(frame, len, &p->last), OK);
	p->n_blocks += p->last.type == BLOCK_FRAME_BLOCK;
	p->n_refused += p->last.type == BLOCK_FRAME_REFUSE;
	if (p->last.type == BLOCK_FRAME_BLOCK)
		memcpy(p->bytes, p->last.u.block.data, p->last.u.block.len);
}

static void on_client_down(void *ctx, struct link *link, const struct link_down *down)
{
	struct place *p = ctx;
	(void)link;
	(void)down;
	p->n_down++;
}

static int make_place(void **state)
{
	struct place *p = calloc(1, sizeof *p);
	struct errmsg em;
	block_model_open(&p->model, 1, 10, 5000, 4000, 0);
	p->w = world_open(LNK1_MEMBER, LNK1_BLOCKS, NULL);
	struct block_server_params params = {.loop = &p->w->loop, .log = &quiet, .limits = upload_limits_default, .ctx = p, .read = read_model};
	if (block_io_open(&p->w->loop, 2, &p->io, &em) != OK)
		return -1;
	params.io = p->io;
	if (block_server_open(&params, &p->server, &em) != OK)
		return -1;
	block_server_set_model(p->server, &p->model.m);
	world_up(p->w);
	// Both ends are ours from here on.
	struct link_callbacks client = {.ctx = p, .on_frame = on_client_frame, .on_down = on_client_down};
	link_set_callbacks(p->w->client.up, &client);
	on_server_up(p, p->w->server.up, &p->w->server.info);
	*state = p;
	return 0;
}

static int drop_place(void **state)
{
	struct place *p = *state;
	block_server_close(p->server);
	block_io_close(p->io);
	p->w->server.up = NULL;
	memset(p->w->server.live, 0, sizeof p->w->server.live);
	if (p->n_down > 0)
		p->w->client.up = NULL;
	world_close(p->w);
	block_model_close(&p->model);
	free(p);
	return 0;
}

static void say(struct place *p, const struct block_frame *f)
{
	uint8_t frame[BLOCK_FRAME_SMALL_MAX];
	assert_int_equal(link_send(p->w->client.up, frame, block_frame_encode(f, frame)), OK);
}

static void say_hello(struct place *p, uint8_t flip)
{
	struct block_frame f = {.type = BLOCK_FRAME_HELLO};
	memcpy(f.u.hello, p->model.m.hash, BLOCK_HASH_BYTES);
	f.u.hello[0] ^= flip;
	say(p, &f);
}

static void ask(struct place *p, uint32_t block)
{
	struct block_frame f = {.type = BLOCK_FRAME_GET};
	f.u.get.n = 1;
	f.u.get.blocks[0] = block;
	say(p, &f);
}

static bool has_heard(void *ctx)
{
	struct place *p = ctx;
	return p->n_blocks + p->n_refused > 0 || p->n_down > 0;
}

static void hear(struct place *p)
{
	p->n_blocks = p->n_refused = 0;
	assert_true(world_run(p->w, has_heard, p));
}

static void who_names_the_model_gets_its_blocks(void **state)
{
	struct place *p = *state;
	say_hello(p, 0);
	for (uint32_t i = 0; i < p->model.m.n_blocks; i++) {
		ask(p, i);
		hear(p);
		if (i == 3) {
			assert_int_equal(p->n_refused, 1);
			assert_int_equal(p->last.u.refuse.reason, FETCH_REFUSED_ABSENT);
			continue;
		}
		assert_int_equal(p->n_blocks, 1);
		assert_int_equal(p->last.u.block.block, i);
		assert_int_equal(p->last.u.block.form, BLOCK_FORM_RAW); // noise does not shrink
		assert_memory_equal(p->bytes, block_model_block(&p->model, i), manifest_block_bytes(&p->model.m, i));
	}
}

static void who_names_no_model_or_another_gets_nothing(void **state)
{
	struct place *p = *state;
	ask(p, 0);
	hear(p);
	assert_int_equal(p->last.type, BLOCK_FRAME_REFUSE);
	assert_int_equal(p->last.u.refuse.reason, FETCH_REFUSED_FOREIGN);
	say_hello(p, 1);
	hear(p);
	assert_int_equal(p->last.u.refuse.reason, FETCH_REFUSED_FOREIGN);
	ask(p, 0);
	hear(p);
	assert_int_equal(p->n_blocks, 0);
	assert_int_equal(p->last.u.refuse.reason, FETCH_REFUSED_FOREIGN);
	struct block_server_stats st;
	block_server_get_stats(p->server, &st);
	assert_int_equal(st.n_blocks, 0);
}

static void a_block_that_does_not_exist_is_refused(void **state)
{
	struct place *p = *state;
	say_hello(p, 0);
	ask(p, p->model.m.n_blocks);
	hear(p);
	assert_int_equal(p->last.u.refuse.reason, FETCH_REFUSED_ABSENT);
	ask(p, UINT32_MAX);
	hear(p);
	assert_int_equal(p->last.u.refuse.reason, FETCH_REFUSED_ABSENT);
}

static void what_does_not_belong_on_the_link_ends_it(void **state)
{
	struct place *p = *state;
	static const uint8_t junk[] = {BLOCK_FRAME_GET, 0, 1, 0, 9};
	assert_int_equal(link_send(p->w->client.up, junk, sizeof junk), OK);
	hear(p);
	assert_int_equal(p->n_down, 1);
	struct block_server_stats st;
	block_server_get_stats(p->server, &st);
	assert_int_equal(st.n_clients, 0);
}

static void a_frame_that_only_a_coordinator_sends_ends_the_link(void **state)
{
	struct place *p = *state;
	struct block_frame f = {.type = BLOCK_FRAME_PEER};
	say(p, &f);
	hear(p);
	assert_int_equal(p->n_down, 1);
}

// ask_again asks for one block as often as a frame holds, in so many frames.
static void ask_again(struct place *p, int n_frames)
{
	struct block_frame f = {.type = BLOCK_FRAME_GET, .u.get.n = BLOCK_FRAME_GET_MAX};
	for (size_t i = 0; i < BLOCK_FRAME_GET_MAX; i++)
		f.u.get.blocks[i] = 1;
	for (int i = 0; i < n_frames; i++)
		say(p, &f);
}

static bool has_two_frames_of_answers(void *ctx)
{
	struct place *p = ctx;
	return p->n_blocks + p->n_refused == 2 * BLOCK_FRAME_GET_MAX || p->n_down > 0;
}

static void who_asks_for_more_than_may_wait_is_told_busy_and_served_the_rest(void **state)
{
	struct place *p = *state;
	say_hello(p, 0);
	ask_again(p, 2);
	assert_true(world_run(p->w, has_two_frames_of_answers, p));
	assert_int_equal(p->n_down, 0);
	assert_in_range(p->n_blocks, UPLOAD_QUEUE_MAX, UPLOAD_QUEUE_MAX + 2 * upload_limits_default.reads_max);
	ask(p, 2);
	hear(p);
	assert_int_equal(p->n_blocks, 1);
	assert_int_equal(p->last.u.block.block, 2);
}

// is_over: the client hears of the end before the server, or after it.
static bool is_over(void *ctx)
{
	struct place *p = ctx;
	struct block_server_stats st;
	block_server_get_stats(p->server, &st);
	return p->n_down > 0 && st.n_clients == 0;
}

static void a_flood_of_requests_ends_its_link(void **state)
{
	struct place *p = *state;
	struct block_server_stats st;
	say_hello(p, 0);
	ask_again(p, 200);
	assert_true(world_run(p->w, is_over, p));
	block_server_get_stats(p->server, &st);
	assert_true(st.n_blocks <= 2 * UPLOAD_QUEUE_MAX);
}

static void a_member_that_is_none_any_more_is_cut_off(void **state)
{
	struct place *p = *state;
	say_hello(p, 0);
	ask(p, 1);
	hear(p);
	block_server_end_peer(p->server, p->w->server.info.peer);
	p->n_blocks = 0;
	hear(p);
	assert_int_equal(p->n_down, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_place, drop_place)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_names_the_model_gets_its_blocks),
		TEST(who_names_no_model_or_another_gets_nothing),
		TEST(a_block_that_does_not_exist_is_refused),
		TEST(what_does_not_belong_on_the_link_ends_it),
		TEST(a_frame_that_only_a_coordinator_sends_ends_the_link),
		TEST(who_asks_for_more_than_may_wait_is_told_busy_and_served_the_rest),
		TEST(a_flood_of_requests_ends_its_link),
		TEST(a_member_that_is_none_any_more_is_cut_off),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
