// A stage of a piped ring: steps come by once in each round.
#include "tests/support/node_host.h"

// in_rounds is in plan 1 as stage 0 of 2 with two rounds, layers 0 to 1 and 4 to 6, joined to the other stage by *link.
static void in_rounds(struct host *h, uint32_t *link)
{
	start(h);
	struct msg m = {.type = MSG_PLAN};
	m.u.plan = (struct msg_plan){.epoch = {1}, .n_stages = 2, .stage = 0, .layers = {2, {{0, 2}, {4, 7}}}, .n_slots = 2, .ctx_len = 16, .chunk_max = 4,
		.hop_credits = 2, .stream_share = 20000, .prev = peer(h, 1), .next = peer(h, 1)};
	control_on(h, h->control, &m);
	assert_int_equal(find_fx(h, NODE_FX_LOAD, 0)->u.load.n_bufs, 4);
	assert_int_equal(layer_spans_count(&find_fx(h, NODE_FX_LOAD, 0)->u.load.layers), 5);
	assert_int_equal(find_fx(h, NODE_FX_LOAD, 0)->u.load.stream_share, 20000);
	loaded(h, OK);
	*link = up(h, 1, NODE_LINK_DATA);
}

static void a_plan_that_only_streams_otherwise_loads_nothing(void **state)
{
	(void)state;
	struct host h;
	uint32_t link;
	in_rounds(&h, &link);
	struct msg m = {.type = MSG_PLAN};
	m.u.plan = (struct msg_plan){.epoch = {2}, .n_stages = 2, .stage = 0, .layers = {2, {{0, 2}, {4, 7}}}, .n_slots = 2, .ctx_len = 16, .chunk_max = 4,
		.hop_credits = 2, .stream_share = 30000, .prev = peer(&h, 1), .next = peer(&h, 1)};
	control_on(&h, h.control, &m);
	assert_int_equal(count_fx(&h, NODE_FX_LOAD), 0);
	m.u.plan.epoch.v = 3;
	m.u.plan.layers.at[1].end = 6; // another reason
	control_on(&h, h.control, &m);
	assert_int_equal(find_fx(&h, NODE_FX_LOAD, 0)->u.load.stream_share, 30000);
	stop(&h);
}

// come sends step `seq` of session 7 into a round, on the link it would come on.
static void come(struct host *h, uint32_t link, int32_t round, uint32_t seq)
{
	uint8_t bytes[FRAME_STEP_BYTES + HIDDEN * 4] = {0};
	struct step s = {.reply = REPLY_LAST, .flags = seq == 0 ? STEP_FIRST : 0, .src_span = round == 0 ? SPAN_HEAD : 1, .dst_span = round == 0 ? 0 : 2,
		.epoch = {1}, .session = {7}, .seq = seq, .slot = 1, .pos = seq, .n_tokens = 1, .payload_len = HIDDEN * 4};
	step_encode(&s, bytes);
	frame(h, link, bytes, sizeof bytes);
}

static void credited(struct host *h, uint32_t link, uint16_t from, uint16_t to)
{
	uint8_t bytes[FRAME_CREDIT_BYTES];
	struct credit c = {.n = 1, .src_span = from, .dst_span = to, .epoch = {1}};
	credit_encode(&c, bytes);
	frame(h, link, bytes, sizeof bytes);
}

// sent_to returns where the step of this event's effects goes; -1: there is none.
static int32_t sent_to(struct host *h, uint32_t link)
{
	struct step s;
	for (int32_t i = 0; i < h->fx->n; i++) {
		const struct node_effect *f = &h->fx->at[i];
		if (f->type != NODE_FX_SEND || f->u.send.head[0] != FRAME_STEP)
			continue;
		assert_int_equal(f->u.send.link, link);
		uint8_t whole[FRAME_STEP_BYTES + HIDDEN * 4] = {0};
		memcpy(whole, f->u.send.head, FRAME_STEP_BYTES);
		assert_int_equal(step_decode(whole, FRAME_STEP_BYTES + f->u.send.len, &s), OK);
		assert_int_equal(s.src_span + 1, s.dst_span);
		return s.dst_span;
	}
	return -1;
}

static void a_step_runs_the_layers_of_its_round(void **state)
{
	(void)state;
	struct host h;
	uint32_t link;
	in_rounds(&h, &link);
	come(&h, h.data, 0, 0);
	assert_int_equal(find_fx(&h, NODE_FX_FORWARD, 0)->u.forward.layer_begin, 0);
	assert_int_equal(find_fx(&h, NODE_FX_FORWARD, 0)->u.forward.layer_end, 2);
	forwarded(&h);
	assert_int_equal(sent_to(&h, link), 1);
	come(&h, link, 1, 0);
	assert_int_equal(find_fx(&h, NODE_FX_FORWARD, 0)->u.forward.layer_begin, 4);
	assert_int_equal(find_fx(&h, NODE_FX_FORWARD, 0)->u.forward.layer_end, 7);
	forwarded(&h);
	assert_int_equal(sent_to(&h, link), 3);
	stop(&h);
}

static void a_round_without_credits_does_not_hold_up_another(void **state)
{
	(void)state;
	struct host h;
	uint32_t link;
	in_rounds(&h, &link);
	for (uint32_t seq = 0; seq < 2; seq++) { // both credits of the first round's hop out
		come(&h, h.data, 0, seq);
		forwarded(&h);
		assert_int_equal(sent_to(&h, link), 1);
	}
	come(&h, h.data, 0, 2);
	forwarded(&h);
	assert_int_equal(sent_to(&h, link), -1);
	come(&h, link, 1, 0);
	forwarded(&h);
	assert_int_equal(sent_to(&h, link), 3);
	credited(&h, link, 1, 0);
	assert_int_equal(sent_to(&h, link), 1);
	stop(&h);
}

static void each_round_counts_its_own_steps(void **state)
{
	(void)state;
	struct host h;
	uint32_t link;
	in_rounds(&h, &link);
	come(&h, h.data, 0, 0);
	forwarded(&h);
	come(&h, link, 1, 1); // its first step of this round is still out
	struct msg m;
	assert_true(sent(&h, MSG_STEP_FAILED, &m));
	stop(&h);
}

static void only_the_coordinator_speaks_for_the_head(void **state)
{
	(void)state;
	struct host h;
	uint32_t link;
	in_rounds(&h, &link);
	come(&h, link, 0, 0); // a neighbour, as if it were the head
	assert_int_equal(count_fx(&h, NODE_FX_FORWARD), 0);
	assert_int_equal(status(&h).n_bufs_used, 0);
	come(&h, h.data, 1, 0); // passed on by the coordinator: no session is here yet
	assert_int_equal(count_fx(&h, NODE_FX_FORWARD), 0);
	assert_int_equal(status(&h).n_bufs_used, 0);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plan_that_only_streams_otherwise_loads_nothing),
		cmocka_unit_test(a_step_runs_the_layers_of_its_round),
		cmocka_unit_test(a_round_without_credits_does_not_hold_up_another),
		cmocka_unit_test(each_round_counts_its_own_steps),
		cmocka_unit_test(only_the_coordinator_speaks_for_the_head),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
