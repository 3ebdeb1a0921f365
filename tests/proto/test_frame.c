#include "proto/frame.h"

#include "base/bytes.h"
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PAYLOAD 64

static struct step a_step(void)
{
	return (struct step){.wire = WIRE_F16, .reply = REPLY_LAST, .flags = STEP_FIRST, .src_span = SPAN_HEAD, .dst_span = 0, .epoch = {7},
		.session = {9}, .seq = 0, .slot = 3, .pos = 0, .n_tokens = 2, .payload_len = PAYLOAD};
}

static void encode(const struct step *s, uint8_t out[FRAME_STEP_BYTES + PAYLOAD])
{
	step_encode(s, out);
	memset(out + FRAME_STEP_BYTES, 0xab, PAYLOAD);
}

static void a_step_comes_back_as_it_went(void **state)
{
	(void)state;
	uint8_t frame[FRAME_STEP_BYTES + PAYLOAD];
	struct step s = a_step(), got;
	encode(&s, frame);
	assert_int_equal(step_decode(frame, sizeof frame, &got), OK);
	assert_int_equal(got.wire, s.wire);
	assert_int_equal(got.reply, s.reply);
	assert_int_equal(got.flags, s.flags);
	assert_int_equal(got.src_span, s.src_span);
	assert_int_equal(got.dst_span, s.dst_span);
	assert_int_equal(got.epoch.v, 7);
	assert_int_equal(got.session.v, 9);
	assert_int_equal(got.slot, 3);
	assert_int_equal(got.n_tokens, 2);
	assert_int_equal(got.payload_len, PAYLOAD);
}

static void decode_refuses_every_length_but_its_own(void **state)
{
	(void)state;
	uint8_t frame[FRAME_STEP_BYTES + PAYLOAD + 1] = {0};
	struct step s = a_step(), got;
	encode(&s, frame);
	for (size_t len = 0; len <= sizeof frame; len++)
		assert_int_equal(step_decode(frame, len, &got), len == FRAME_STEP_BYTES + PAYLOAD ? OK : ERR_FORMAT);
}

// refused expects a refusal of a step that is well-formed but for a value.
static void refused(const struct step *s)
{
	uint8_t frame[FRAME_STEP_BYTES + PAYLOAD];
	struct step got;
	encode(s, frame);
	assert_int_equal(step_decode(frame, sizeof frame, &got), ERR_FORMAT);
}

static void decode_refuses_values_outside_their_range(void **state)
{
	(void)state;
	struct step s = a_step();
	s.session.v = 0;
	refused(&s);
	s = a_step();
	s.n_tokens = 0;
	refused(&s);
	s.n_tokens = CHUNK_TOKENS_MAX + 1;
	refused(&s);
	s = a_step();
	s.pos = INT32_MAX - 1; // pos + n_tokens would wrap an int32_t
	refused(&s);
	s = a_step();
	s.dst_span = SPANS_MAX;
	refused(&s);
	s = a_step();
	s.dst_span = s.src_span;
	refused(&s);
	s = a_step();
	s.flags = 2;
	refused(&s);
	s = a_step();
	s.payload_len = UINT32_MAX;
	refused(&s);
	s = a_step();
	s.slot = UINT32_MAX;
	refused(&s);
	s = a_step();
	s.n_tokens = CHUNK_TOKENS_MAX; // the last one that is allowed
	uint8_t frame[FRAME_STEP_BYTES + PAYLOAD];
	struct step got;
	encode(&s, frame);
	assert_int_equal(step_decode(frame, sizeof frame, &got), OK);
}

static void every_span_of_the_longest_road_has_frames(void **state)
{
	(void)state;
	for (uint16_t i = 0; i < SPANS_MAX; i++) {
		uint8_t frame[FRAME_STEP_BYTES + PAYLOAD];
		struct step s = a_step(), got_step;
		struct credit c = {.n = 1, .src_span = i, .dst_span = s.src_span, .epoch = {5}}, got_credit;
		s.dst_span = i;
		encode(&s, frame);
		assert_int_equal(step_decode(frame, sizeof frame, &got_step), OK);
		assert_int_equal(got_step.dst_span, i);
		credit_encode(&c, frame);
		assert_int_equal(credit_decode(frame, FRAME_CREDIT_BYTES, &got_credit), OK);
		assert_int_equal(got_credit.src_span, i);
	}
}

static void reserved_bytes_and_unknown_types_are_refused(void **state)
{
	(void)state;
	uint8_t frame[FRAME_STEP_BYTES + PAYLOAD];
	struct step s = a_step(), got;
	static const size_t at[] = {0, 1, 2, 44, 47};
	for (size_t i = 0; i < ARRAY_LEN(at); i++) {
		encode(&s, frame);
		frame[at[i]] = 0x7f;
		assert_int_equal(step_decode(frame, sizeof frame, &got), ERR_FORMAT);
	}
}

static void a_credit_comes_back_and_nothing_else_is_one(void **state)
{
	(void)state;
	uint8_t frame[FRAME_CREDIT_BYTES + 1] = {0};
	struct credit c = {.n = 3, .src_span = 2, .dst_span = 1, .epoch = {5}}, got;
	credit_encode(&c, frame);
	assert_int_equal(credit_decode(frame, FRAME_CREDIT_BYTES, &got), OK);
	assert_int_equal(got.n, 3);
	assert_int_equal(got.epoch.v, 5);
	assert_int_equal(credit_decode(frame, FRAME_CREDIT_BYTES - 1, &got), ERR_FORMAT);
	assert_int_equal(credit_decode(frame, FRAME_CREDIT_BYTES + 1, &got), ERR_FORMAT);
	c.n = 0;
	credit_encode(&c, frame);
	assert_int_equal(credit_decode(frame, FRAME_CREDIT_BYTES, &got), ERR_FORMAT);
}

static struct part a_part(void)
{
	return (struct part){.src = 2, .dst = 0, .stage = 3, .exchange = 5, .epoch = {7}, .forward = 9, .failed = UINT64_C(1) << 63, .streams = true, .offset = 100, .total = 100 + PAYLOAD};
}

static void a_part_comes_back_as_it_went(void **state)
{
	(void)state;
	uint8_t frame[FRAME_PART_BYTES + PAYLOAD + 1] = {0};
	struct part p = a_part(), got;
	part_encode(&p, frame);
	p.payload_len = PAYLOAD;
	assert_int_equal(part_decode(frame, FRAME_PART_BYTES + PAYLOAD, &got), OK);
	assert_memory_equal(&got, &p, sizeof p);
	assert_int_equal(part_decode(frame, FRAME_PART_BYTES + PAYLOAD + 1, &got), ERR_FORMAT); // beyond its total
	for (size_t len = 0; len <= FRAME_PART_BYTES; len++)
		assert_int_equal(part_decode(frame, len, &got), ERR_FORMAT);
	for (size_t len = FRAME_PART_BYTES + 1; len <= FRAME_PART_BYTES + PAYLOAD; len++)
		assert_int_equal(part_decode(frame, len, &got), OK);
	p = (struct part){.src = 2, .exchange = 5, .forward = 9};
	part_encode(&p, frame);
	assert_int_equal(part_decode(frame, FRAME_PART_BYTES, &got), OK); // nothing at all is a contribution too
	assert_int_equal(part_decode(frame, FRAME_PART_BYTES + 1, &got), ERR_FORMAT);
}

static void decode_refuses_parts_outside_their_range(void **state)
{
	(void)state;
	const struct part bad[] = {
		{.src = GROUP_MEMBERS_MAX, .forward = 1},
		{.dst = GROUP_MEMBERS_MAX, .forward = 1},
		{.src = 1, .dst = 1, .forward = 1},
		{.src = 1, .forward = 0},
		{.src = 1, .forward = 1, .stage = STAGES_MAX},
		{.src = 1, .forward = 1, .exchange = EXCHANGES_MAX + 1},
		{.src = 1, .forward = 1, .total = PART_BYTES_MAX + 1},
		{.src = 1, .forward = 1, .total = 10, .offset = 11},
		{.src = 1, .forward = 1, .total = 10, .offset = UINT32_MAX},
		{.src = 1, .forward = 1, .total = 10, .offset = 10}, // a frame of nothing
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		uint8_t frame[FRAME_PART_BYTES + 1] = {0};
		struct part got;
		part_encode(&bad[i], frame);
		assert_int_equal(part_decode(frame, FRAME_PART_BYTES, &got), ERR_FORMAT);
		if (i != 7 && i != 8 && i != 9)
			assert_int_equal(part_decode(frame, FRAME_PART_BYTES + 1, &got), ERR_FORMAT);
	}
	uint8_t frame[FRAME_PART_BYTES + PAYLOAD] = {0};
	struct part p = a_part(), got;
	part_encode(&p, frame);
	frame[3] = 2;
	assert_int_equal(part_decode(frame, sizeof frame, &got), ERR_FORMAT);
}

static struct part_start a_start(void)
{
	return (struct part_start){.layer_begin = 3, .layer_end = 9, .wire = WIRE_BF16, .n_items = 2, .n_tokens = 6,
		.items = {{.session = {8}, .slot = 1, .pos = 0, .n_tokens = 5, .is_first = true, .want = HEAD_BEST},
			{.session = {9}, .slot = 0, .pos = 77, .n_tokens = 1, .want = HEAD_LOGITS}}};
}

static void what_a_forward_computes_comes_back_as_it_went(void **state)
{
	(void)state;
	uint8_t bytes[PART_START_BYTES_MAX + 1] = {0};
	struct part_start s = a_start(), got;
	part_start_encode(&s, bytes);
	for (size_t len = 0; len <= sizeof bytes; len++)
		assert_int_equal(part_start_decode(bytes, len, &got), len < part_start_bytes(2) ? ERR_FORMAT : OK);
	assert_memory_equal(&got, &s, sizeof s);
}

static void refused_start(const struct part_start *s)
{
	uint8_t bytes[PART_START_BYTES_MAX] = {0};
	struct part_start got;
	part_start_encode(s, bytes);
	assert_int_equal(part_start_decode(bytes, sizeof bytes, &got), ERR_FORMAT);
}

static void decode_refuses_forwards_outside_their_range(void **state)
{
	(void)state;
#define REFUSED(field, value)                                                                                                                                  \
	do {                                                                                                                                                       \
		struct part_start s = a_start();                                                                                                                       \
		s.field = (value);                                                                                                                                     \
		refused_start(&s);                                                                                                                                     \
	} while (0)
	REFUSED(n_items, 0);
	REFUSED(layer_begin, 9);
	REFUSED(layer_end, LAYERS_MAX + 1);
	REFUSED(wire, (enum wire_type)N_WIRE_TYPES);
	REFUSED(items[0].session.v, 0);
	REFUSED(items[0].slot, 0); // the other's
	REFUSED(items[1].slot, SESSIONS_MAX);
	REFUSED(items[1].n_tokens, 0);
	REFUSED(items[1].n_tokens, CHUNK_TOKENS_MAX - 4); // one too many together
	REFUSED(items[1].pos, INT32_MAX);
	REFUSED(items[0].pos, 1); // a first one further on
#undef REFUSED
	struct part_start s = a_start(), got;
	uint8_t bytes[PART_START_BYTES_MAX] = {0};
	part_start_encode(&s, bytes);
	store_u16(bytes + 6, PART_ITEMS_MAX + 1);
	assert_int_equal(part_start_decode(bytes, sizeof bytes, &got), ERR_FORMAT);
	part_start_encode(&s, bytes);
	bytes[5] = 1;
	assert_int_equal(part_start_decode(bytes, sizeof bytes, &got), ERR_FORMAT);
	part_start_encode(&s, bytes);
	bytes[PART_START_HEAD_BYTES + 18] |= 4; // candidates and all logits
	assert_int_equal(part_start_decode(bytes, sizeof bytes, &got), ERR_FORMAT);
	part_start_encode(&s, bytes);
	bytes[PART_START_HEAD_BYTES + 18] |= 8;
	assert_int_equal(part_start_decode(bytes, sizeof bytes, &got), ERR_FORMAT);
}

static void clocks_carry_their_time(void **state)
{
	(void)state;
	uint8_t frame[FRAME_CLOCK_BYTES];
	uint64_t ms = 0;
	clock_encode(0x0102030405060708, frame);
	assert_int_equal(clock_decode(frame, sizeof frame, &ms), OK);
	assert_true(ms == 0x0102030405060708);
	assert_int_equal(clock_decode(frame, sizeof frame - 1, &ms), ERR_FORMAT);
	frame[0] = FRAME_PING;
	assert_int_equal(clock_decode(frame, sizeof frame, &ms), ERR_FORMAT);
}

static void pings_carry_their_cookie(void **state)
{
	(void)state;
	uint8_t frame[FRAME_PING_BYTES];
	uint64_t cookie = 0;
	ping_encode(FRAME_PING, 0x0102030405060708, frame);
	assert_int_equal(ping_decode(frame, sizeof frame, &cookie), OK);
	assert_true(cookie == 0x0102030405060708);
	assert_int_equal(ping_decode(frame, sizeof frame - 1, &cookie), ERR_FORMAT);
	frame[0] = FRAME_STEP;
	assert_int_equal(ping_decode(frame, sizeof frame, &cookie), ERR_FORMAT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_comes_back_as_it_went),
		cmocka_unit_test(decode_refuses_every_length_but_its_own),
		cmocka_unit_test(decode_refuses_values_outside_their_range),
		cmocka_unit_test(every_span_of_the_longest_road_has_frames),
		cmocka_unit_test(reserved_bytes_and_unknown_types_are_refused),
		cmocka_unit_test(a_credit_comes_back_and_nothing_else_is_one),
		cmocka_unit_test(a_part_comes_back_as_it_went),
		cmocka_unit_test(decode_refuses_parts_outside_their_range),
		cmocka_unit_test(what_a_forward_computes_comes_back_as_it_went),
		cmocka_unit_test(decode_refuses_forwards_outside_their_range),
		cmocka_unit_test(pings_carry_their_cookie),
		cmocka_unit_test(clocks_carry_their_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
