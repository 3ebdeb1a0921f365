// The queue of one direction: order, bounds, what is held, and its end; and a thousand random histories against a plain list.
#include "sim/shell/relay_queue.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t push(struct relay_queue *q, const void *bytes, uint32_t len, int64_t due_ns)
{
	uint8_t *room;
	uint32_t n;
	assert_int_equal(relay_queue_room(q, len, &room, &n), OK);
	if (n == 0)
		return 0;
	memcpy(room, bytes, n);
	relay_queue_push(q, n, due_ns);
	return n;
}

static void nothing_leaves_before_its_time(void **state)
{
	(void)state;
	struct relay_queue q = {0};
	const uint8_t *bytes;
	assert_int_equal(push(&q, "abc", 3, 10), 3);
	assert_int_equal(push(&q, "de", 2, 20), 2);
	assert_int_equal(relay_queue_due_ns(&q), 10);
	assert_int_equal(relay_queue_due(&q, 9, &bytes), 0);
	assert_int_equal(relay_queue_due(&q, 10, &bytes), 3);
	assert_int_equal(relay_queue_due(&q, 20, &bytes), 5);
	assert_memory_equal(bytes, "abcde", 5);
	relay_queue_pop(&q, 4, NULL, NULL);
	assert_int_equal(relay_queue_due_ns(&q), 20);
	assert_int_equal(relay_queue_due(&q, 20, &bytes), 1);
	assert_memory_equal(bytes, "e", 1);
	relay_queue_close(&q);
}

static void count_late(void *ctx, int64_t due_ns)
{
	int64_t *sum = ctx;
	*sum += due_ns;
}

static void each_piece_is_reported_once_when_its_last_byte_goes(void **state)
{
	(void)state;
	struct relay_queue q = {0};
	int64_t sum = 0;
	push(&q, "abc", 3, 10);
	push(&q, "de", 2, 20);
	relay_queue_pop(&q, 2, count_late, &sum);
	assert_int_equal(sum, 0);
	relay_queue_pop(&q, 1, count_late, &sum);
	assert_int_equal(sum, 10);
	relay_queue_pop(&q, 2, count_late, &sum);
	assert_int_equal(sum, 30);
	relay_queue_close(&q);
}

static void an_end_comes_last_and_once(void **state)
{
	(void)state;
	struct relay_queue q = {0};
	push(&q, "a", 1, 10);
	relay_queue_push_end(&q, RELAY_EOF, 10);
	assert_false(relay_queue_has_room(&q));
	assert_int_equal(relay_queue_take_end(&q, 10), RELAY_NO_END); // a byte stands before it
	relay_queue_pop(&q, 1, NULL, NULL);
	assert_int_equal(relay_queue_due_ns(&q), 10);
	assert_int_equal(relay_queue_take_end(&q, 9), RELAY_NO_END);
	assert_int_equal(relay_queue_take_end(&q, 10), RELAY_EOF);
	assert_int_equal(relay_queue_take_end(&q, 11), RELAY_NO_END);
	assert_int_equal(relay_queue_due_ns(&q), RELAY_HELD);
	relay_queue_close(&q);
}

static void a_reset_replaces_an_end_of_file(void **state)
{
	(void)state;
	struct relay_queue q = {0};
	relay_queue_push_end(&q, RELAY_EOF, 10);
	relay_queue_push_end(&q, RELAY_RESET, 20);
	assert_int_equal(relay_queue_take_end(&q, 10), RELAY_NO_END);
	assert_int_equal(relay_queue_take_end(&q, 20), RELAY_RESET);
	relay_queue_close(&q);
}

static void what_is_held_waits_for_its_release(void **state)
{
	(void)state;
	struct relay_queue q = {0};
	const uint8_t *bytes;
	push(&q, "a", 1, 10);
	push(&q, "bc", 2, RELAY_HELD);
	push(&q, "d", 1, RELAY_HELD);
	relay_queue_push_end(&q, RELAY_EOF, RELAY_HELD);
	assert_int_equal(relay_queue_due(&q, INT64_MAX - 1, &bytes), 1);
	relay_queue_pop(&q, 1, NULL, NULL);
	assert_int_equal(relay_queue_due_ns(&q), RELAY_HELD);
	relay_queue_release(&q, 50);
	assert_int_equal(relay_queue_due(&q, 50, &bytes), 3);
	relay_queue_pop(&q, 3, NULL, NULL);
	assert_int_equal(relay_queue_take_end(&q, 50), RELAY_EOF);
	relay_queue_close(&q);
}

static void it_is_bounded_in_bytes_and_in_pieces(void **state)
{
	(void)state;
	struct relay_queue q = {0};
	uint8_t *big = calloc(1, RELAY_QUEUE_BYTES);
	assert_int_equal(push(&q, big, RELAY_QUEUE_BYTES, 1), RELAY_QUEUE_BYTES);
	assert_int_equal(push(&q, big, 1, 1), 0);
	relay_queue_close(&q);
	for (uint32_t i = 0; i < RELAY_QUEUE_PIECES; i++)
		assert_int_equal(push(&q, "x", 1, 1), 1);
	assert_int_equal(push(&q, "x", 1, 1), 0);
	relay_queue_pop(&q, 1, NULL, NULL);
	assert_int_equal(push(&q, "x", 1, 1), 1);
	relay_queue_close(&q);
	free(big);
}

// Pieces of random lengths go in and out; what comes out is a counter that never skips, never before its time.
static void random_history(uint64_t seed)
{
	struct relay_queue q = {0};
	struct rng r;
	uint8_t chunk[200000];
	uint8_t in = 0, out = 0;
	int64_t now = 0, due = 0;
	size_t n_in = 0, n_out = 0;
	rng_init(&r, seed);
	for (int step = 0; step < 300; step++) {
		const uint8_t *bytes;
		uint8_t *room;
		uint32_t n;
		due += (int64_t)rng_below(&r, 5);
		assert_int_equal(relay_queue_room(&q, 1 + (uint32_t)rng_below(&r, sizeof chunk), &room, &n), OK);
		for (uint32_t i = 0; i < n; i++)
			room[i] = in++;
		if (n > 0)
			relay_queue_push(&q, n, due);
		n_in += n;
		now += (int64_t)rng_below(&r, 5);
		while ((n = relay_queue_due(&q, now, &bytes)) > 0 && rng_below(&r, 4) > 0) {
			assert_true(relay_queue_due_ns(&q) <= now);
			n = 1 + (uint32_t)rng_below(&r, n);
			for (uint32_t i = 0; i < n; i++)
				assert_int_equal(bytes[i], out++);
			relay_queue_pop(&q, n, NULL, NULL);
			n_out += n;
		}
		assert_int_equal(q.used, n_in - n_out);
	}
	relay_queue_close(&q);
}

static void random_histories_lose_and_reorder_nothing(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 30; seed++)
		random_history(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_leaves_before_its_time),
		cmocka_unit_test(each_piece_is_reported_once_when_its_last_byte_goes),
		cmocka_unit_test(an_end_comes_last_and_once),
		cmocka_unit_test(a_reset_replaces_an_end_of_file),
		cmocka_unit_test(what_is_held_waits_for_its_release),
		cmocka_unit_test(it_is_bounded_in_bytes_and_in_pieces),
		cmocka_unit_test(random_histories_lose_and_reorder_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
