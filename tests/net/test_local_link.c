#include "net/local_link.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PATIENCE_NS INT64_C(20000000000)

// What one end heard: the bytes joined, and where each frame ended.
struct side {
	struct world *w;
	uint32_t end;
	int n_frames;
	size_t lens[1024];
	uint8_t bytes[8192];
	size_t n_bytes;
	bool echo, detach, detach_other, close;
	bool is_sending; // inside local_link_send
};

struct world {
	struct loop loop;
	struct local_link *link;
	struct side sides[2];
	int n_wanted; // frames, both sides together
	uint64_t turns_wanted;
};

static void on_frame(void *ctx, uint32_t end, const uint8_t *frame, size_t len)
{
	struct side *s = ctx;
	struct world *w = s->w;
	assert_int_equal(end, s->end);
	assert_false(s->is_sending);
	s->lens[s->n_frames++] = len;
	if (len <= sizeof s->bytes - s->n_bytes) {
		memcpy(s->bytes + s->n_bytes, frame, len);
		s->n_bytes += len;
	}
	if (s->echo)
		assert_int_equal(local_link_send(w->link, end, frame, len, NULL, 0), OK);
	if (s->detach)
		local_link_detach(w->link, end);
	if (s->detach_other)
		local_link_detach(w->link, 1 - end);
	if (s->close) {
		local_link_close(w->link);
		w->link = NULL;
	}
}

static void attach(struct world *w, uint32_t end)
{
	local_link_attach(w->link, end, &(struct local_callbacks){.ctx = &w->sides[end], .on_frame = on_frame});
}

static struct world *opened(enum lnk1_kind kind, const struct link_limits *limits)
{
	struct world *w = calloc(1, sizeof *w);
	assert_int_equal(loop_open(&w->loop, NULL), OK);
	assert_int_equal(local_link_open(&w->loop, kind, limits ? limits : &link_limits_default, &w->link, NULL), OK);
	for (uint32_t i = 0; i < 2; i++) {
		w->sides[i].w = w;
		w->sides[i].end = i;
	}
	return w;
}

static void closed(struct world *w)
{
	local_link_close(w->link);
	loop_close(&w->loop);
	free(w);
}

static enum err send_text(struct world *w, uint32_t end, const char *head, const char *payload)
{
	w->sides[1 - end].is_sending = true;
	enum err e = local_link_send(w->link, end, (const uint8_t *)head, strlen(head), (const uint8_t *)payload, payload ? strlen(payload) : 0);
	w->sides[1 - end].is_sending = false;
	return e;
}

static bool have_wanted(void *ctx)
{
	struct world *w = ctx;
	return w->sides[0].n_frames + w->sides[1].n_frames >= w->n_wanted;
}

static void wait_frames(struct world *w, int n)
{
	w->n_wanted = n;
	assert_true(loop_run_until(&w->loop, have_wanted, w, loop_clock_ns() + PATIENCE_NS));
}

static bool has_turned(void *ctx)
{
	struct world *w = ctx;
	return loop_get_stats(&w->loop).n_iterations >= w->turns_wanted;
}

static void wake(void *ctx)
{
	(void)ctx;
}

// settle gives the loop ten turns, with a task for each: what would arrive has arrived.
static void settle(struct world *w)
{
	struct loop_task task;
	loop_task_init(&task, wake, NULL);
	for (int i = 0; i < 10; i++) {
		loop_task_post(&w->loop, &task);
		w->turns_wanted = loop_get_stats(&w->loop).n_iterations + 1;
		assert_true(loop_run_until(&w->loop, has_turned, w, loop_clock_ns() + PATIENCE_NS));
	}
}

static void frames_arrive_whole_and_in_order_both_ways(void **state)
{
	(void)state;
	struct world *w = opened(LNK1_DATA, NULL);
	attach(w, 0);
	attach(w, 1);
	assert_int_equal(send_text(w, 0, "one", NULL), OK);
	assert_int_equal(send_text(w, 1, "A", "BC"), OK);
	assert_int_equal(send_text(w, 0, "tw", "o"), OK);
	assert_int_equal(send_text(w, 0, "", "three"), OK);
	assert_int_equal(w->sides[1].n_frames, 0); // never inside the sender's call
	wait_frames(w, 4);
	assert_int_equal(w->sides[1].n_frames, 3);
	assert_memory_equal(w->sides[1].bytes, "onetwothree", 11);
	assert_int_equal(w->sides[1].lens[1], 3);
	assert_int_equal(w->sides[0].n_frames, 1);
	assert_memory_equal(w->sides[0].bytes, "ABC", 3);
	closed(w);
}

static void a_thousand_frames_there_and_back_keep_their_order(void **state)
{
	(void)state;
	struct world *w = opened(LNK1_CONTROL, NULL);
	attach(w, 0);
	attach(w, 1);
	w->sides[1].echo = true;
	uint32_t sent = 0;
	while (sent < 1000) {
		for (int i = 0; i < 50; i++, sent++) {
			uint8_t frame[4] = {(uint8_t)sent, (uint8_t)(sent >> 8), 7, 7};
			assert_int_equal(local_link_send(w->link, 0, frame, 2, frame + 2, 2), OK);
		}
		wait_frames(w, 2 * (int)sent);
	}
	for (uint32_t i = 0; i < 1000; i++) {
		assert_int_equal(w->sides[0].lens[i], 4);
		assert_int_equal(w->sides[0].bytes[4 * i] | w->sides[0].bytes[4 * i + 1] << 8, i);
	}
	closed(w);
}

static void frames_wait_until_both_ends_are_attached(void **state)
{
	(void)state;
	struct world *w = opened(LNK1_DATA, NULL);
	assert_int_equal(send_text(w, 0, "early", NULL), OK);
	settle(w);
	attach(w, 1);
	settle(w);
	assert_int_equal(w->sides[1].n_frames, 0);
	attach(w, 0);
	wait_frames(w, 1);
	assert_memory_equal(w->sides[1].bytes, "early", 5);
	closed(w);
}

static void an_endless_conversation_leaves_the_loop_its_turns(void **state)
{
	(void)state;
	struct world *w = opened(LNK1_DATA, NULL);
	attach(w, 0);
	attach(w, 1);
	w->sides[0].echo = w->sides[1].echo = true;
	assert_int_equal(send_text(w, 0, "ping", NULL), OK);
	wait_frames(w, 100); // returns at all: each echo is a task of its own
	assert_in_range(w->sides[0].n_frames + w->sides[1].n_frames, 100, 102);
	closed(w);
}

static void lengths_have_the_limits_of_a_secure_link(void **state)
{
	(void)state;
	static const struct {
		enum lnk1_kind kind;
		size_t max;
	} cases[] = {{LNK1_CONTROL, CONTROL_RECORD_MAX}, {LNK1_DATA, DATA_RECORD_MAX}};
	uint8_t *big = calloc(1, DATA_RECORD_MAX + 1);
	for (size_t i = 0; i < 2; i++) {
		struct world *w = opened(cases[i].kind, NULL);
		size_t max = cases[i].max;
		attach(w, 0);
		attach(w, 1);
		assert_int_equal(local_link_send(w->link, 0, big, 0, NULL, 0), ERR_RANGE);
		assert_int_equal(local_link_send(w->link, 0, big, max + 1, NULL, 0), ERR_RANGE);
		assert_int_equal(local_link_send(w->link, 0, big, max, big, 1), ERR_RANGE);
		assert_int_equal(local_link_send(w->link, 0, big, 1, big, max), ERR_RANGE);
		assert_int_equal(local_link_send(w->link, 0, big, SIZE_MAX, big, 2), ERR_RANGE);
		assert_int_equal(local_link_send(w->link, 0, big, 2, big, SIZE_MAX), ERR_RANGE);
		assert_int_equal(local_link_send(w->link, 0, big, 1, big, max - 1), OK);
		assert_int_equal(local_link_send(w->link, 1, big, max, NULL, 0), OK);
		wait_frames(w, 2);
		assert_int_equal(w->sides[1].lens[0], max);
		assert_int_equal(w->sides[0].lens[0], max);
		closed(w);
	}
	free(big);
}

static void a_full_queue_refuses_and_takes_again_when_it_has_emptied(void **state)
{
	(void)state;
	struct world *w = opened(LNK1_CONTROL, NULL);
	attach(w, 0);
	attach(w, 1);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < LINK_QUEUE_FRAMES; i++)
			assert_int_equal(send_text(w, 0, "x", NULL), OK);
		assert_int_equal(send_text(w, 0, "y", NULL), ERR_LIMIT);
		assert_int_equal(send_text(w, 1, "z", NULL), OK); // the other way is free
		wait_frames(w, (round + 1) * (LINK_QUEUE_FRAMES + 1));
	}
	assert_int_equal(w->sides[1].n_frames, 3 * LINK_QUEUE_FRAMES);
	assert_null(memchr(w->sides[1].bytes, 'y', w->sides[1].n_bytes));
	closed(w);
}

static void bytes_that_wait_have_a_limit_too(void **state)
{
	(void)state;
	struct link_limits limits = link_limits_default;
	limits.queued_bytes[LNK1_DATA] = 10;
	struct world *w = opened(LNK1_DATA, &limits);
	attach(w, 0);
	attach(w, 1);
	assert_int_equal(send_text(w, 0, "12345678901", NULL), ERR_LIMIT);
	assert_int_equal(send_text(w, 0, "12345", "6"), OK);
	assert_int_equal(send_text(w, 0, "12345", NULL), ERR_LIMIT);
	assert_int_equal(send_text(w, 0, "1234", NULL), OK);
	wait_frames(w, 2);
	assert_int_equal(send_text(w, 0, "1234567890", NULL), OK);
	wait_frames(w, 3);
	closed(w);
}

static void closing_drops_what_is_under_way(void **state)
{
	(void)state;
	struct world *w = opened(LNK1_DATA, NULL);
	attach(w, 0);
	attach(w, 1);
	for (uint32_t end = 0; end < 2; end++)
		assert_int_equal(send_text(w, end, "never", "arrives"), OK);
	local_link_close(w->link); // a sanitizer sees what is not freed
	w->link = NULL;
	settle(w);
	assert_int_equal(w->sides[0].n_frames + w->sides[1].n_frames, 0);
	local_link_close(NULL);
	closed(w);
}

static void either_side_may_close_inside_a_frame(void **state)
{
	(void)state;
	for (uint32_t end = 0; end < 2; end++) {
		struct world *w = opened(LNK1_DATA, NULL);
		attach(w, 0);
		attach(w, 1);
		w->sides[end].close = true;
		for (int i = 0; i < 3; i++) {
			assert_int_equal(send_text(w, 0, "a", NULL), OK);
			assert_int_equal(send_text(w, 1, "b", NULL), OK);
		}
		settle(w);
		assert_null(w->link);
		assert_int_equal(w->sides[end].n_frames, 1);
		assert_int_equal(w->sides[1 - end].n_frames, end == 0 ? 0 : 3); // end 0 hears first
		closed(w);
	}
}

static void after_one_side_detached_nothing_goes_either_way(void **state)
{
	(void)state;
	for (uint32_t end = 0; end < 2; end++) {
		struct world *w = opened(LNK1_DATA, NULL);
		attach(w, 0);
		attach(w, 1);
		assert_int_equal(send_text(w, 0, "under way", NULL), OK);
		assert_int_equal(send_text(w, 1, "under way", NULL), OK);
		local_link_detach(w->link, end);
		settle(w);
		assert_int_equal(w->sides[0].n_frames + w->sides[1].n_frames, 0);
		assert_int_equal(send_text(w, 0, "x", NULL), ERR_CLOSED);
		assert_int_equal(send_text(w, 1, "x", NULL), ERR_CLOSED);
		local_link_detach(w->link, 1 - end);
		local_link_detach(NULL, 0);
		closed(w);
	}
}

static void a_side_that_detaches_inside_a_frame_is_the_last_to_hear_one(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < 4; k++) {
		uint32_t end = k & 1;
		struct world *w = opened(LNK1_DATA, NULL);
		attach(w, 0);
		attach(w, 1);
		w->sides[end].detach = k < 2;
		w->sides[end].detach_other = k >= 2;
		for (int i = 0; i < 3; i++) {
			assert_int_equal(send_text(w, 0, "a", NULL), OK);
			assert_int_equal(send_text(w, 1, "b", NULL), OK);
		}
		settle(w);
		assert_int_equal(w->sides[end].n_frames, 1);
		assert_int_equal(w->sides[1 - end].n_frames, end == 0 ? 0 : 3);
		assert_int_equal(send_text(w, end, "x", NULL), ERR_CLOSED);
		closed(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_arrive_whole_and_in_order_both_ways),
		cmocka_unit_test(a_thousand_frames_there_and_back_keep_their_order),
		cmocka_unit_test(frames_wait_until_both_ends_are_attached),
		cmocka_unit_test(an_endless_conversation_leaves_the_loop_its_turns),
		cmocka_unit_test(lengths_have_the_limits_of_a_secure_link),
		cmocka_unit_test(a_full_queue_refuses_and_takes_again_when_it_has_emptied),
		cmocka_unit_test(bytes_that_wait_have_a_limit_too),
		cmocka_unit_test(closing_drops_what_is_under_way),
		cmocka_unit_test(either_side_may_close_inside_a_frame),
		cmocka_unit_test(after_one_side_detached_nothing_goes_either_way),
		cmocka_unit_test(a_side_that_detaches_inside_a_frame_is_the_last_to_hear_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
