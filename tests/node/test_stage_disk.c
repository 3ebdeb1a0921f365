// Steps whose states were kept on disk: they wait for their read in their place, and when it fails their answer begins again.
#include "node/node_state.h"
#include "tests/support/node_host.h"

// begun is a stage that keeps all it sends on disk and has sent positions 0 to n - 1 of session 7, under plan 1; then plan 2 is there. The
// stage behind has lost its layers: those are to be computed again from what was kept.
static void begin(struct host *h, uint32_t n, uint32_t *prev)
{
	uint32_t next;
	start(h);
	h->n->config.keep_disk_bytes = 1 << 20;
	plan(h, 1, 1, 2);
	loaded(h, OK);
	*prev = up(h, 1, NODE_LINK_DATA);
	next = up(h, 2, NODE_LINK_DATA);
	for (uint32_t i = 0; i < n; i++) {
		send_step(h, *prev, 1, 7, i);
		forwarded(h);
		struct node_event ev = {.type = NODE_EV_KEPT, .u.disk.id = find_fx(h, NODE_FX_KEEP_DISK, 0)->u.disk.id};
		assert_int_equal(count_fx(h, NODE_FX_KEEP), 0);
		step(h, &ev);
		send_credit(h, next, 1, 1);
	}
	plan(h, 2, 1, 2);
	assert_true(status(h).loaded);
}

// again asks for position `seq`, as it left our layers (2 and 3), to go on.
static void again(struct host *h, uint32_t link, uint32_t seq)
{
	uint8_t bytes[FRAME_STEP_BYTES];
	struct step s = {.reply = REPLY_NONE, .flags = seq == 0 ? STEP_FIRST : 0, .src_span = 0, .dst_span = 1, .epoch = {2}, .session = {7}, .seq = seq,
		.slot = 1, .pos = seq, .n_tokens = 1, .layer_begin = 4, .layer_end = 8};
	step_encode(&s, bytes);
	frame(h, link, bytes, sizeof bytes);
}

static uint32_t read_id(struct host *h)
{
	assert_non_null(find_fx(h, NODE_FX_FETCH_DISK, 0));
	return find_fx(h, NODE_FX_FETCH_DISK, 0)->u.disk.id;
}

// begin_reading: of n positions kept, the first is asked for and being read.
static uint32_t begin_reading(struct host *h, uint32_t n, uint32_t *prev)
{
	begin(h, n, prev);
	again(h, *prev, 0);
	return read_id(h);
}

static void fetched(struct host *h, uint32_t id, enum err err)
{
	struct node_event ev = {.type = NODE_EV_FETCHED, .u.disk = {.id = id, .err = err}};
	step(h, &ev);
}

static int32_t n_steps_out(struct host *h)
{
	return n_frames(h, FRAME_STEP, 0);
}

static void steps_wait_for_their_rows_one_after_the_other(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, first = begin_reading(&h, 3, &prev);
	assert_int_equal(n_steps_out(&h), 0);
	again(&h, prev, 1);
	assert_int_equal(count_fx(&h, NODE_FX_FETCH_DISK), 0); // one read at a time
	fetched(&h, first, OK);
	assert_int_equal(count_fx(&h, NODE_FX_TAKE_FETCHED), 1);
	assert_int_equal(n_steps_out(&h), 1);
	uint32_t second = read_id(&h);
	fetched(&h, first, OK); // an answer to nothing
	assert_int_equal(h.fx->n, 0);
	fetched(&h, second, OK);
	assert_int_equal(n_steps_out(&h), 1);
	assert_int_equal(status(&h).n_bufs_used, 0);
	stop(&h);
}

static void rows_that_do_not_open_make_the_answer_begin_again(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	uint32_t prev, id = begin_reading(&h, 3, &prev);
	again(&h, prev, 1);
	fetched(&h, id, ERR_AUTH);
	assert_true(sent(&h, MSG_STEP_FAILED, &m));
	assert_int_equal(m.u.step_failed.code, STEP_NOT_KEPT);
	assert_int_equal(m.u.step_failed.session.v, 7);
	assert_int_equal(n_steps_out(&h), 0);
	assert_int_equal(count_fx(&h, NODE_FX_TAKE_FETCHED), 0);
	assert_int_equal(n_frames(&h, FRAME_CREDIT, 0), 2); // both steps are gone
	assert_int_equal(count_fx(&h, NODE_FX_LOG), 1);
	assert_int_equal(status(&h).n_bufs_used, 0);
	again(&h, prev, 2); // it was under way already
	assert_int_equal(n_frames(&h, FRAME_CREDIT, 0), 1);
	assert_false(sent(&h, MSG_STEP_FAILED, &m));
	stop(&h);
}

static void an_answer_that_ends_does_not_take_what_is_read_for_it(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, id = begin_reading(&h, 2, &prev);
	control_on(&h, h.control, &(struct msg){.type = MSG_CANCEL, .u.cancel = {.epoch = {2}, .session = {7}}});
	assert_int_equal(status(&h).n_bufs_used, 0);
	send_step(&h, prev, 2, 9, 0); // takes the very same buffer
	fetched(&h, id, OK);
	assert_int_equal(count_fx(&h, NODE_FX_TAKE_FETCHED), 0);
	stop(&h);
}

static void a_plan_that_is_lost_forgets_who_waits(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, id = begin_reading(&h, 2, &prev);
	plan(&h, 3, 1, 2);
	assert_int_equal(status(&h).n_bufs_used, 0);
	fetched(&h, id, OK);
	assert_int_equal(count_fx(&h, NODE_FX_TAKE_FETCHED), 0);
	assert_int_equal(n_steps_out(&h), 0);
	stop(&h);
}

static void the_engine_works_for_others_while_one_waits(void **state)
{
	(void)state;
	struct host h;
	uint32_t prev, id = begin_reading(&h, 2, &prev);
	send_step(&h, prev, 2, 8, 0); // of another session
	assert_int_equal(count_fx(&h, NODE_FX_FORWARD), 1);
	forwarded(&h);
	assert_int_equal(n_steps_out(&h), 0); // behind it on the way out: credits have an order, and the read is short
	fetched(&h, id, OK);
	assert_int_equal(n_steps_out(&h), 2);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_wait_for_their_rows_one_after_the_other),
		cmocka_unit_test(rows_that_do_not_open_make_the_answer_begin_again),
		cmocka_unit_test(an_answer_that_ends_does_not_take_what_is_read_for_it),
		cmocka_unit_test(a_plan_that_is_lost_forgets_who_waits),
		cmocka_unit_test(the_engine_works_for_others_while_one_waits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
