// The ring as the coordinator sees it: links that have successors, replies that are not what is owed, silence, relayed hops.
#include "tests/support/coord_host.h"

// first_session: sessions of one run count from where those of the run before cannot be.
static struct session_id first_session(const struct host *h)
{
	return (struct session_id){((uint64_t)h->wall << 20) + 1};
}

// send_frame sends a step of `n_rows` rows; what the caller leaves zero is that of a first decode step.
static void send_frame(struct host *h, uint32_t link, struct step s, uint32_t n_rows)
{
	uint8_t bytes[FRAME_STEP_BYTES + 4 * 8] = {0};
	s.epoch.v = s.epoch.v ? s.epoch.v : epoch_of(h);
	s.session = s.session.v ? s.session : first_session(h);
	s.n_tokens = s.n_tokens ? s.n_tokens : 1;
	s.payload_len = n_rows * 8;
	step_encode(&s, bytes);
	frame(h, link, bytes, FRAME_STEP_BYTES + s.payload_len);
}

static void send_credit(struct host *h, uint32_t link, uint16_t src, uint16_t dst, uint16_t n)
{
	uint8_t bytes[FRAME_CREDIT_BYTES];
	struct credit cr = {.n = n, .src_span = src, .dst_span = dst, .epoch = {epoch_of(h)}};
	credit_encode(&cr, bytes);
	frame(h, link, bytes, sizeof bytes);
}

// forward_id is that of the embedding which this step began.
static uint32_t forward_id(struct host *h)
{
	assert_non_null(find_fx(h, COORD_FX_FORWARD, 0));
	return find_fx(h, COORD_FX_FORWARD, 0)->u.forward.id;
}

// embedded ends the embedding that this step began; true when there was one.
static bool embedded(struct host *h)
{
	struct coord_effect *f = find_fx(h, COORD_FX_FORWARD, 0);
	if (f == NULL)
		return false;
	forward_done(h, f->u.forward.id);
	return true;
}

static uint32_t sample_id(struct host *h)
{
	assert_non_null(find_fx(h, COORD_FX_SAMPLE, 0));
	return find_fx(h, COORD_FX_SAMPLE, 0)->u.sample.id;
}

static void sampled(struct host *h, uint32_t id)
{
	const struct coord_sampled items[COORD_ITEMS_MAX] = {{.token = 3}};
	struct coord_event ev = {.type = COORD_EV_SAMPLED};
	ev.u.sampled.id = id;
	ev.u.sampled.items = items;
	step(h, &ev);
}

// n_steps_sent counts steps of this step's effects on a link; link 0: on any.
static int32_t n_steps_sent(struct host *h, uint32_t link)
{
	int32_t n = 0;
	for (int32_t i = 0; i < h->fx->n; i++) {
		const struct coord_effect *f = &h->fx->at[i];
		n += f->type == COORD_FX_SEND && f->u.send.head[0] == FRAME_STEP && (link == 0 || f->u.send.link == link);
	}
	return n;
}

static void ready_with(struct host *h, int32_t n)
{
	struct coordinator_config config = patient_config();
	config.n_nodes_min = n;
	start_ready(h, &config, n);
}

// end_of returns this step's one end.
static const struct coord_effect *end_of(struct host *h)
{
	assert_int_equal(count_fx(h, COORD_FX_END), 1);
	return find_fx(h, COORD_FX_END, 0);
}

// ---- replies that are not what is owed

static void a_reply_without_the_rows_that_are_owed_ends_the_answer(void **state)
{
	(void)state;
	static const struct { enum step_reply reply; uint32_t n_tokens, n_rows; } bad[] = {
		{REPLY_NONE, 3, 0}, {REPLY_NONE, 1, 0}, {REPLY_LAST, 2, 1}, {REPLY_ALL, 3, 3}};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct host h;
		ready_with(&h, 1);
		submit(&h, 1, 3, 3);
		assert_true(embedded(&h));
		assert_int_equal(n_steps_sent(&h, h.data[1]), 1);
		send_frame(&h, h.data[1], (struct step){.reply = bad[i].reply, .n_tokens = bad[i].n_tokens, .dst_span = SPAN_HEAD}, bad[i].n_rows);
		assert_int_equal(end_of(&h)->u.end.err, ERR_STATE);
		assert_non_null(strstr(end_of(&h)->u.end.text, "node1"));
		stop(&h);
	}
}

// ---- an output head on the last stage

static void ready_with_output(struct host *h)
{
	struct coordinator_config config = patient_config();
	config.n_nodes_min = 1;
	config.has_output = true;
	start_ready(h, &config, 1);
}

static void send_reply(struct host *h, enum step_reply reply, uint32_t n_tokens, size_t bytes)
{
	uint8_t whole[FRAME_STEP_BYTES + 8192] = {0};
	struct step st = {.reply = reply, .epoch = {epoch_of(h)}, .session = first_session(h), .n_tokens = n_tokens, .dst_span = SPAN_HEAD,
		.payload_len = (uint32_t)bytes};
	assert_true(bytes <= 8192);
	step_encode(&st, whole);
	frame(h, h->data[1], whole, FRAME_STEP_BYTES + bytes);
}

static enum step_reply asked_for(struct host *h)
{
	for (int32_t i = 0; i < h->fx->n; i++) {
		const struct coord_effect *f = &h->fx->at[i];
		if (f->type == COORD_FX_SEND && f->u.send.head[0] == FRAME_STEP)
			return (enum step_reply)f->u.send.head[2];
	}
	fail();
	return REPLY_NONE;
}

static void a_last_stage_is_asked_for_candidates_and_they_are_drawn_from(void **state)
{
	(void)state;
	struct host h;
	ready_with_output(&h);
	submit(&h, 1, 3, 3); // greedy
	assert_true(embedded(&h));
	assert_int_equal(asked_for(&h), REPLY_BEST);
	send_reply(&h, REPLY_BEST, 3, head_reply_bytes(HEAD_BEST, base_config().vocab_size));
	const struct coord_effect *f = find_fx(&h, COORD_FX_SAMPLE, 0);
	assert_int_equal(f->u.sample.items[0].want, HEAD_BEST);
	assert_int_equal(f->u.sample.items[0].n_rows, 1);
	assert_true(f->u.sample.items[0].draw);
	stop(&h);
}

static void logits_that_were_not_asked_for_or_are_too_few_end_the_answer(void **state)
{
	(void)state;
	size_t best = head_reply_bytes(HEAD_BEST, base_config().vocab_size), all = head_reply_bytes(HEAD_LOGITS, base_config().vocab_size);
	const struct { enum step_reply reply; size_t bytes; } bad[] = {{REPLY_LOGITS, all}, {REPLY_BEST, best - 8}, {REPLY_BEST, best + 8}, {REPLY_BEST, 0},
		{REPLY_LAST, 8}, {REPLY_ALL, 24}};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct host h;
		ready_with_output(&h);
		submit(&h, 1, 3, 3);
		assert_true(embedded(&h));
		send_reply(&h, bad[i].reply, 3, bad[i].bytes);
		assert_int_equal(end_of(&h)->u.end.err, ERR_STATE);
		assert_int_equal(count_fx(&h, COORD_FX_SAMPLE), 0);
		stop(&h);
	}
	struct host h;
	ready_with(&h, 1); // nor from a stage without the output head
	submit(&h, 1, 3, 3);
	assert_true(embedded(&h));
	assert_int_equal(asked_for(&h), REPLY_LAST);
	send_reply(&h, REPLY_BEST, 3, best);
	assert_int_equal(end_of(&h)->u.end.err, ERR_STATE);
	stop(&h);
}

// ---- silence

static void stall(struct host *h)
{
	assert_int_equal(count_fx(h, COORD_FX_END), 0);
	assert_int_equal(run_to(h, COORD_FX_END, 60 * S), 60 * S);
}

static void a_ring_that_does_not_answer_is_given_up(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 1);
	uint64_t before = epoch_of(&h);
	submit(&h, 1, 3, 3);
	assert_true(embedded(&h));
	send_credit(&h, h.data[1], 0, SPAN_HEAD, 1); // it took the step, and that was all
	stall(&h);
	assert_int_equal(end_of(&h)->u.end.err, ERR_TIMEOUT);
	assert_non_null(strstr(end_of(&h)->u.end.text, "node1"));
	assert_true(epoch_of(&h) > before);
	be_ready(&h, 1);
	assert_int_equal(status(&h).n_active, 0);
	assert_int_equal(status(&h).n_bufs_used, 0);
	submit(&h, 2, 3, 3); // all credits are back
	for (int i = 0; i < 3; i++)
		embedded(&h);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	stop(&h);
}

static void the_machine_that_is_waited_for_is_named(void **state)
{
	(void)state;
	struct host h;
	struct msg m = {.type = MSG_PEER_LINK};
	// Three nodes, all relayed: 1 has passed the step on and 2 has it.
	ready_with(&h, 3);
	submit(&h, 1, 3, 3);
	embedded(&h);
	send_credit(&h, h.data[1], 0, SPAN_HEAD, 1);
	send_frame(&h, h.data[1], (struct step){.src_span = 0, .dst_span = 1, .n_tokens = 3}, 3);
	stall(&h);
	assert_non_null(strstr(end_of(&h)->u.end.text, "node node2"));
	stop(&h);
	// 1 sends to 2 directly, and 2 to 3: only that 1 has it no more is known.
	ready_with(&h, 3);
	m.u.peer_link.epoch.v = epoch_of(&h);
	m.u.peer_link.direct = true;
	message(&h, h.control[1], &m);
	message(&h, h.control[2], &m);
	submit(&h, 1, 3, 3);
	embedded(&h);
	send_credit(&h, h.data[1], 0, SPAN_HEAD, 1);
	stall(&h);
	assert_non_null(strstr(end_of(&h)->u.end.text, "node node2"));
	assert_non_null(strstr(end_of(&h)->u.end.text, "or one behind it"));
	stop(&h);
}

static void an_answer_that_waits_for_credits_which_never_come_ends(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 1);
	for (uint64_t r = 1; r <= 4; r++) { // four credits: cancelled answers have taken them all, and the node keeps them
		submit(&h, r, 3, 3);
		embedded(&h);
		assert_int_equal(n_steps_sent(&h, 0), 1);
		struct coord_event ev = {.type = COORD_EV_CANCEL, .u.cancel.req = r};
		step(&h, &ev);
	}
	submit(&h, 5, 3, 3);
	embedded(&h);
	assert_int_equal(n_steps_sent(&h, 0), 0);
	stall(&h);
	assert_int_equal(end_of(&h)->u.end.req, 5);
	assert_false(is_ready(&h));
	stop(&h);
}

// pass lets time go by, awake: after a gap without an event the core forgives all silence.
static void pass(struct host *h, int seconds)
{
	for (int i = 0; i < seconds; i++) {
		h->now += S;
		tick(h);
		assert_int_equal(count_fx(h, COORD_FX_END), 0);
	}
}

static void every_sign_of_the_ring_renews_patience(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 1);
	submit(&h, 1, 1, 5);
	embedded(&h);
	for (uint32_t seq = 0; seq < 4; seq++) {
		pass(&h, 59);
		send_credit(&h, h.data[1], 0, SPAN_HEAD, 1);
		send_frame(&h, h.data[1], (struct step){.reply = REPLY_LAST, .seq = seq, .pos = seq, .dst_span = SPAN_HEAD}, 1);
		uint32_t id = sample_id(&h);
		pass(&h, 100); // the head itself may take its time
		sampled(&h, id);
		assert_int_equal(count_fx(&h, COORD_FX_EMIT), 1);
		id = forward_id(&h);
		pass(&h, 100);
		forward_done(&h, id);
		assert_int_equal(n_steps_sent(&h, 0), 1);
	}
	stop(&h);
}

static void silence_while_this_machine_slept_is_no_stall(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 1);
	submit(&h, 1, 3, 3);
	embedded(&h);
	h.now += 3600 * S;
	tick(&h);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	stop(&h);
}

// ---- links with successors

static void frames_on_a_link_that_has_a_successor_still_count(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 1);
	submit(&h, 1, 3, 3);
	embedded(&h);
	uint32_t old = h.data[1];
	h.data[1] = link_up(&h, record(1).id, COORD_LINK_DATA);
	assert_int_equal(count_fx(&h, COORD_FX_CLOSE), 0); // the node may not know the new one yet
	send_credit(&h, old, 0, SPAN_HEAD, 1);
	send_frame(&h, old, (struct step){.reply = REPLY_LAST, .n_tokens = 3, .dst_span = SPAN_HEAD}, 1);
	assert_int_equal(count_fx(&h, COORD_FX_SAMPLE), 1);
	sampled(&h, sample_id(&h));
	assert_int_equal(find_fx(&h, COORD_FX_SEND, 0)->u.send.link, h.data[1]); // the credit
	embedded(&h);
	assert_int_equal(n_steps_sent(&h, h.data[1]), 1);
	down(&h, old, true);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	// A StepFailed on the old control link.
	uint32_t control = h.control[1];
	h.control[1] = link_up(&h, record(1).id, COORD_LINK_CONTROL);
	struct msg m = {.type = MSG_STEP_FAILED, .u.step_failed = {.epoch = {epoch_of(&h)}, .session = first_session(&h), .code = STEP_OTHER, .error = "too hot"}};
	message(&h, control, &m);
	assert_non_null(strstr(end_of(&h)->u.end.text, "too hot"));
	stop(&h);
}

static void steps_wait_for_the_credits_of_those_on_an_old_link(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 1);
	submit(&h, 1, 8, 3); // two chunks
	embedded(&h);
	assert_int_equal(n_steps_sent(&h, h.data[1]), 1);
	uint32_t id = forward_id(&h), old = h.data[1];
	h.data[1] = link_up(&h, record(1).id, COORD_LINK_DATA);
	forward_done(&h, id);
	assert_int_equal(n_steps_sent(&h, 0), 0); // it could overtake the first
	send_credit(&h, old, 0, SPAN_HEAD, 1);
	assert_int_equal(n_steps_sent(&h, h.data[1]), 1);
	stop(&h);
}

static void each_embedding_that_fails_ends_its_request_with_its_own_words(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	config.n_slots = 5;
	start_ready(&h, &config, 1);
	submit(&h, 1, 1, 3);
	uint32_t id = forward_id(&h);
	for (uint64_t req = 2; req <= 5; req++) // these wait for the head, and are embedded together
		submit(&h, req, 1, 3);
	forward_done(&h, id);
	struct coord_effect *f = find_fx(&h, COORD_FX_FORWARD, 0);
	assert_int_equal(f->u.forward.n_items, 4);
	struct coord_event ev = {.type = COORD_EV_FORWARD_DONE, .u.forward_done.id = f->u.forward.id};
	ev.u.forward_done.errs = (const enum err[]){ERR_NON_FINITE, OK, ERR_STATE, ERR_IO};
	ev.u.forward_done.texts = (const char *const[]){"embedding: too loud", "", "the file changed", ""};
	step(&h, &ev);
	assert_int_equal(count_fx(&h, COORD_FX_END), 3);
	static const struct {
		uint64_t req;
		enum err err;
		const char *text;
	} want[] = {{2, ERR_NON_FINITE, "embedding: too loud"}, {4, ERR_STATE, "the file changed"}, {5, ERR_IO, "the embedding failed on the coordinator"}};
	for (int32_t i = 0; i < 3; i++) {
		const struct coord_effect *end = find_fx(&h, COORD_FX_END, i);
		assert_int_equal(end->u.end.req, want[i].req);
		assert_int_equal(end->u.end.err, want[i].err);
		assert_string_equal(end->u.end.text, want[i].text);
	}
	assert_int_equal(n_steps_sent(&h, h.data[1]), 1); // the other one's
	stop(&h);
}

static void an_old_link_that_breaks_with_frames_of_the_plan_loses_it(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 1);
	submit(&h, 1, 3, 3);
	embedded(&h);
	uint32_t old = h.data[1];
	link_up(&h, record(1).id, COORD_LINK_DATA);
	down(&h, old, false);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0); // the answer begins again ..
	assert_false(is_ready(&h));
	be_ready(&h, 1); // .. over the new one
	assert_int_equal(count_fx(&h, COORD_FX_FORWARD), 1);
	stop(&h);
}

static void a_node_that_came_again_survives_the_end_of_its_old_links(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 1);
	uint32_t control = h.control[1], data = h.data[1];
	arrive(&h, 1); // restarted: its old connections have not been reset yet
	be_ready(&h, 1);
	submit(&h, 1, 3, 3);
	embedded(&h);
	down(&h, data, false);
	down(&h, control, false);
	assert_int_equal(count_fx(&h, COORD_FX_END), 0);
	assert_true(is_ready(&h));
	stop(&h);
}

static void a_hello_on_an_old_link_says_nothing_any_more(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 1);
	uint32_t old = h.control[1];
	h.control[1] = link_up(&h, record(1).id, COORD_LINK_CONTROL);
	uint32_t newest = h.control[1];
	h.control[1] = old;
	hello(&h, 1); // holds no plan
	assert_true(is_ready(&h));
	h.control[1] = newest;
	hello(&h, 1);
	assert_false(is_ready(&h));
	stop(&h);
}

static void an_old_link_is_closed_in_order_after_a_while(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 1);
	uint32_t old = h.data[1];
	link_up(&h, record(1).id, COORD_LINK_DATA);
	assert_int_equal(count_fx(&h, COORD_FX_CLOSE), 0);
	assert_int_equal(run_to(&h, COORD_FX_CLOSE, 5 * S), 5 * S);
	assert_int_equal(find_fx(&h, COORD_FX_CLOSE, 0)->u.close.link, old);
	assert_true(find_fx(&h, COORD_FX_CLOSE, 0)->u.close.orderly);
	for (int i = 0; i < 1000; i++) // one machine that dials without end takes two places, not all
		link_up(&h, record(1).id, COORD_LINK_DATA);
	assert_true(is_ready(&h));
	stop(&h);
}

static void a_link_that_ends_in_order_is_not_given_up_for_its_silence(void **state)
{
	(void)state;
	struct host h;
	uint8_t pong[FRAME_PING_BYTES];
	int32_t n_closed = 0;
	start_ready(&h, NULL, 1);
	submit(&h, 1, 3, 3);
	embedded(&h);
	uint32_t old = h.data[1];
	h.data[1] = link_up(&h, record(1).id, COORD_LINK_DATA);
	ping_encode(FRAME_PONG, 0, pong);
	for (int32_t i = 0; i < 12; i++) {
		h.now += S;
		frame(&h, h.control[1], pong, sizeof pong);
		frame(&h, h.data[1], pong, sizeof pong);
		tick(&h);
		n_closed += count_fx(&h, COORD_FX_CLOSE);
	}
	assert_int_equal(n_closed, 1); // after 5 s; its host then waits as long as silence is forgiven
	down(&h, old, true);
	assert_true(is_ready(&h));
	stop(&h);
}

// A short time to death comes before it would be closed anyway. Nothing is lost with it, and no plan.
static void an_old_link_that_is_silent_ends_in_order(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	uint8_t pong[FRAME_PING_BYTES];
	config.liveness = liveness_with(S);
	start_ready(&h, &config, 1);
	submit(&h, 1, 3, 3);
	embedded(&h);
	uint32_t old = h.data[1];
	h.data[1] = link_up(&h, record(1).id, COORD_LINK_DATA);
	ping_encode(FRAME_PONG, 0, pong);
	for (int32_t i = 0; i < 10 && count_fx(&h, COORD_FX_CLOSE) == 0; i++) {
		h.now += S / 8;
		frame(&h, h.control[1], pong, sizeof pong);
		frame(&h, h.data[1], pong, sizeof pong);
		tick(&h);
	}
	assert_int_equal(count_fx(&h, COORD_FX_CLOSE), 1);
	assert_int_equal(find_fx(&h, COORD_FX_CLOSE, 0)->u.close.link, old);
	assert_true(find_fx(&h, COORD_FX_CLOSE, 0)->u.close.orderly);
	assert_true(is_ready(&h));
	down(&h, old, true);
	assert_true(is_ready(&h));
	stop(&h);
}

// Its successor came because something was wrong with it: what was on its way there is not waited for.
static void an_old_link_that_was_silent_before_loses_the_plan(void **state)
{
	(void)state;
	struct host h;
	uint8_t pong[FRAME_PING_BYTES];
	start_ready(&h, NULL, 1);
	submit(&h, 1, 3, 3);
	embedded(&h);
	uint32_t old = h.data[1];
	ping_encode(FRAME_PONG, 0, pong);
	for (int32_t i = 0; i < 8; i++) {
		assert_true(is_ready(&h));
		h.now += S;
		frame(&h, h.control[1], pong, sizeof pong);
		if (i == 4)
			h.data[1] = link_up(&h, record(1).id, COORD_LINK_DATA);
		tick(&h);
	}
	assert_int_equal(find_fx(&h, COORD_FX_CLOSE, 0)->u.close.link, old);
	assert_false(find_fx(&h, COORD_FX_CLOSE, 0)->u.close.orderly);
	assert_false(is_ready(&h));
	stop(&h);
}

// ---- relay

static void who_ignores_its_credits_is_closed_before_its_victim(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 2);
	assert_int_equal(status(&h).members[0].stage, 0);
	submit(&h, 1, 3, 3);
	embedded(&h);
	const struct step s = {.src_span = 0, .dst_span = 1};
	for (int i = 0; i < 4; i++) {
		send_frame(&h, h.data[1], s, 1);
		assert_int_equal(find_fx(&h, COORD_FX_RELAY, 0)->u.close.link, h.data[2]);
	}
	send_frame(&h, h.data[1], s, 1);
	assert_int_equal(count_fx(&h, COORD_FX_RELAY), 0);
	assert_int_equal(find_fx(&h, COORD_FX_CLOSE, 0)->u.close.link, h.data[1]);
	send_credit(&h, h.data[2], 1, 0, 2);
	assert_int_equal(find_fx(&h, COORD_FX_RELAY, 0)->u.close.link, h.data[1]);
	for (int i = 0; i < 2; i++) {
		send_frame(&h, h.data[1], s, 1);
		assert_int_equal(count_fx(&h, COORD_FX_RELAY), 1);
	}
	send_credit(&h, h.data[2], 1, 0, 4);
	assert_int_equal(count_fx(&h, COORD_FX_RELAY), 1);
	send_credit(&h, h.data[2], 1, 0, 1); // more than was passed on to it
	assert_int_equal(count_fx(&h, COORD_FX_RELAY), 0);
	assert_int_equal(find_fx(&h, COORD_FX_CLOSE, 0)->u.close.link, h.data[2]);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reply_without_the_rows_that_are_owed_ends_the_answer),
		cmocka_unit_test(a_last_stage_is_asked_for_candidates_and_they_are_drawn_from),
		cmocka_unit_test(logits_that_were_not_asked_for_or_are_too_few_end_the_answer),
		cmocka_unit_test(a_ring_that_does_not_answer_is_given_up),
		cmocka_unit_test(the_machine_that_is_waited_for_is_named),
		cmocka_unit_test(an_answer_that_waits_for_credits_which_never_come_ends),
		cmocka_unit_test(every_sign_of_the_ring_renews_patience),
		cmocka_unit_test(silence_while_this_machine_slept_is_no_stall),
		cmocka_unit_test(frames_on_a_link_that_has_a_successor_still_count),
		cmocka_unit_test(steps_wait_for_the_credits_of_those_on_an_old_link),
		cmocka_unit_test(each_embedding_that_fails_ends_its_request_with_its_own_words),
		cmocka_unit_test(an_old_link_that_breaks_with_frames_of_the_plan_loses_it),
		cmocka_unit_test(a_node_that_came_again_survives_the_end_of_its_old_links),
		cmocka_unit_test(a_hello_on_an_old_link_says_nothing_any_more),
		cmocka_unit_test(an_old_link_is_closed_in_order_after_a_while),
		cmocka_unit_test(a_link_that_ends_in_order_is_not_given_up_for_its_silence),
		cmocka_unit_test(an_old_link_that_is_silent_ends_in_order),
		cmocka_unit_test(an_old_link_that_was_silent_before_loses_the_plan),
		cmocka_unit_test(who_ignores_its_credits_is_closed_before_its_victim),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
