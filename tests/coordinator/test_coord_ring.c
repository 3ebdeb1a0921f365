// The ring as the coordinator sees it: links that have successors, replies that are not what is owed, silence, relayed hops; and what
// plans make of machines that cannot load or have no part.
#include "tests/support/coord_host.h"

#include "proto/lnk1.h"

static uint64_t epoch_of(struct host *h)
{
	struct coord_status st;
	coordinator_status(h->c, &st);
	return st.plan_epoch.v;
}

static void frame(struct host *h, uint32_t link, const uint8_t *bytes, size_t len)
{
	struct coord_event ev = {.type = COORD_EV_MESSAGE};
	ev.u.message.link = link;
	ev.u.message.data = bytes;
	ev.u.message.len = len;
	step(h, &ev);
}

// send_frame sends a step of `n_rows` rows; what the caller leaves zero is that of a first decode step.
// first_session: sessions of one run count from where those of the run before cannot be.
static struct session_id first_session(const struct host *h)
{
	return (struct session_id){((uint64_t)h->wall << 20) + 1};
}

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
	struct credit cr = {.n = n, .src_stage = src, .dst_stage = dst, .epoch = {epoch_of(h)}};
	credit_encode(&cr, bytes);
	frame(h, link, bytes, sizeof bytes);
}

static void down(struct host *h, uint32_t link, bool orderly)
{
	struct coord_event ev = {.type = COORD_EV_LINK_DOWN};
	ev.u.link_down.link = link;
	ev.u.link_down.orderly = orderly;
	ev.u.link_down.reason = "reset";
	step(h, &ev);
}

// embedded ends the embedding that this step began; true when there was one.
static bool embedded(struct host *h)
{
	struct coord_effect *f = find_fx(h, COORD_FX_FORWARD, 0);
	if (f == NULL)
		return false;
	struct coord_event ev = {.type = COORD_EV_FORWARD_DONE};
	ev.u.forward_done.id = f->u.forward.id;
	step(h, &ev);
	return true;
}

static void sampled(struct host *h)
{
	struct coord_effect *f = find_fx(h, COORD_FX_SAMPLE, 0);
	assert_non_null(f);
	const struct coord_sampled items[COORD_ITEMS_MAX] = {{.token = 3}};
	struct coord_event ev = {.type = COORD_EV_SAMPLED};
	ev.u.sampled.id = f->u.sample.id;
	ev.u.sampled.items = items;
	ev.u.sampled.text = "";
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
	struct coordinator_config config = base_config();
	config.liveness.dead_after_ns = config.liveness.suspect_after_ns = 100000 * S; // only what the tests say is lost
	config.n_nodes_min = n;
	start(h, &config, n);
	for (int32_t i = 1; i <= n; i++)
		arrive(h, i);
	be_ready(h, n);
}

static int32_t stage_of(struct host *h, int32_t i)
{
	struct coord_status st;
	coordinator_status(h->c, &st);
	return st.members[i - 1].stage;
}

static bool is_ready(struct host *h)
{
	struct coord_status st;
	coordinator_status(h->c, &st);
	return st.ready;
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
		send_frame(&h, h.data[1], (struct step){.reply = bad[i].reply, .n_tokens = bad[i].n_tokens, .dst_stage = STAGE_HEAD}, bad[i].n_rows);
		assert_int_equal(end_of(&h)->u.end.err, ERR_STATE);
		assert_non_null(strstr(end_of(&h)->u.end.text, "node1"));
		stop(&h);
	}
}

// ---- silence

static void stall(struct host *h)
{
	int64_t begin = h->now;
	for (int i = 0; i < 200 && count_fx(h, COORD_FX_END) == 0; i++) {
		assert_true(coordinator_deadline_ns(h->c) > h->now);
		h->now = coordinator_deadline_ns(h->c);
		assert_true(h->now - begin <= 60 * S);
		tick(h);
	}
	assert_int_equal(h->now - begin, 60 * S);
}

static void a_ring_that_does_not_answer_is_given_up(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 1);
	uint64_t before = epoch_of(&h);
	submit(&h, 1, 3, 3);
	assert_true(embedded(&h));
	send_credit(&h, h.data[1], 0, STAGE_HEAD, 1); // it took the step, and that was all
	stall(&h);
	assert_int_equal(end_of(&h)->u.end.err, ERR_TIMEOUT);
	assert_non_null(strstr(end_of(&h)->u.end.text, "node1"));
	assert_true(epoch_of(&h) > before);
	be_ready(&h, 1);
	struct coord_status st;
	coordinator_status(h.c, &st);
	assert_int_equal(st.n_active, 0);
	assert_int_equal(st.n_bufs_used, 0);
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
	send_credit(&h, h.data[1], 0, STAGE_HEAD, 1);
	send_frame(&h, h.data[1], (struct step){.src_stage = 0, .dst_stage = 1, .n_tokens = 3}, 3);
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
	send_credit(&h, h.data[1], 0, STAGE_HEAD, 1);
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
		struct coord_effects *kept = malloc(sizeof *kept); // ticks have effects of their own
		pass(&h, 59);
		send_credit(&h, h.data[1], 0, STAGE_HEAD, 1);
		send_frame(&h, h.data[1], (struct step){.reply = REPLY_LAST, .seq = seq, .pos = seq, .dst_stage = STAGE_HEAD}, 1);
		*kept = *h.fx;
		pass(&h, 100); // the head itself may take its time
		*h.fx = *kept;
		sampled(&h);
		assert_int_equal(count_fx(&h, COORD_FX_EMIT), 1);
		*kept = *h.fx;
		pass(&h, 100);
		*h.fx = *kept;
		embedded(&h);
		assert_int_equal(n_steps_sent(&h, 0), 1);
		free(kept);
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
	send_credit(&h, old, 0, STAGE_HEAD, 1);
	send_frame(&h, old, (struct step){.reply = REPLY_LAST, .n_tokens = 3, .dst_stage = STAGE_HEAD}, 1);
	assert_int_equal(count_fx(&h, COORD_FX_SAMPLE), 1);
	sampled(&h);
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
	uint32_t id = find_fx(&h, COORD_FX_FORWARD, 0)->u.forward.id, old = h.data[1];
	h.data[1] = link_up(&h, record(1).id, COORD_LINK_DATA);
	struct coord_event ev = {.type = COORD_EV_FORWARD_DONE, .u.forward_done.id = id};
	step(&h, &ev);
	assert_int_equal(n_steps_sent(&h, 0), 0); // it could overtake the first
	send_credit(&h, old, 0, STAGE_HEAD, 1);
	assert_int_equal(n_steps_sent(&h, h.data[1]), 1);
	stop(&h);
}

static void one_embedding_that_fails_ends_its_request_alone(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	config.n_slots = 3;
	start(&h, &config, 1);
	arrive(&h, 1);
	be_ready(&h, 1);
	submit(&h, 1, 1, 3);
	uint32_t id = find_fx(&h, COORD_FX_FORWARD, 0)->u.forward.id;
	submit(&h, 2, 1, 3); // these two wait for the head, and are embedded together
	submit(&h, 3, 1, 3);
	struct coord_event ev = {.type = COORD_EV_FORWARD_DONE, .u.forward_done.id = id};
	step(&h, &ev);
	struct coord_effect *f = find_fx(&h, COORD_FX_FORWARD, 0);
	assert_int_equal(f->u.forward.n_items, 2);
	ev.u.forward_done.id = f->u.forward.id;
	ev.u.forward_done.errs = (const enum err[]){ERR_NON_FINITE, OK};
	ev.u.forward_done.text = "embedding: too loud";
	step(&h, &ev);
	const struct coord_effect *end = end_of(&h);
	assert_int_equal(end->u.end.req, 2);
	assert_int_equal(end->u.end.err, ERR_NON_FINITE);
	assert_string_equal(end->u.end.text, "embedding: too loud");
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
	int64_t begin = h.now;
	while (count_fx(&h, COORD_FX_CLOSE) == 0 && h.now - begin < 7 * S) {
		assert_true(coordinator_deadline_ns(h.c) > h.now);
		h.now = coordinator_deadline_ns(h.c);
		tick(&h);
	}
	assert_int_equal(h.now - begin, 5 * S);
	assert_int_equal(find_fx(&h, COORD_FX_CLOSE, 0)->u.close.link, old);
	assert_true(find_fx(&h, COORD_FX_CLOSE, 0)->u.close.orderly);
	for (int i = 0; i < 1000; i++) // one machine that dials without end takes two places, not all
		link_up(&h, record(1).id, COORD_LINK_DATA);
	assert_true(is_ready(&h));
	stop(&h);
}

// ---- relay

static void who_ignores_its_credits_is_closed_before_its_victim(void **state)
{
	(void)state;
	struct host h;
	ready_with(&h, 2);
	assert_int_equal(stage_of(&h, 1), 0);
	submit(&h, 1, 3, 3);
	embedded(&h);
	const struct step s = {.src_stage = 0, .dst_stage = 1};
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

// ---- plans

static void fail_load(struct host *h, int32_t i)
{
	struct msg m = {.type = MSG_LOADED, .u.loaded = {.epoch = {epoch_of(h)}, .error = "no memory for layer 3"}};
	message(h, h->control[i], &m);
}

static void a_node_that_cannot_load_is_tried_again_after_a_pause(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct coord_status st;
	struct coordinator_config config = base_config();
	config.liveness.dead_after_ns = config.liveness.suspect_after_ns = 100000 * S;
	start(&h, &config, 1);
	arrive(&h, 1);
	assert_true(sent(&h, h.control[1], MSG_PLAN, &m));
	for (int round = 0; round < 8; round++) {
		fail_load(&h, 1);
		coordinator_status(h.c, &st);
		assert_string_equal(st.members[0].state, "cannot load");
		assert_string_equal(st.members[0].detail, "no memory for layer 3");
		assert_non_null(strstr(st.waiting_for, "no memory for layer 3"));
		int64_t begin = h.now;
		bool is_asked = false;
		while (!is_asked && h.now - begin <= 300 * S) {
			assert_true(coordinator_deadline_ns(h.c) > h.now);
			h.now = coordinator_deadline_ns(h.c);
			tick(&h);
			is_asked = sent(&h, h.control[1], MSG_PLAN, &m);
		}
		assert_true(is_asked);
		int64_t longest = (INT64_C(5) << round) * S;
		longest = longest < 300 * S ? longest : 300 * S;
		assert_true(h.now - begin >= longest / 2 && h.now - begin <= longest);
	}
	be_ready(&h, 1);
	coordinator_status(h.c, &st);
	assert_string_equal(st.members[0].state, "ready");
	assert_string_equal(st.members[0].detail, "");
	stop(&h);
}

static void a_cluster_that_works_is_not_disturbed_to_try_a_node_again(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = base_config();
	config.liveness.dead_after_ns = config.liveness.suspect_after_ns = 100000 * S;
	start(&h, &config, 3);
	arrive(&h, 1);
	arrive(&h, 2);
	random_bytes(&h);
	fail_load(&h, 2);
	be_ready(&h, 1);
	uint64_t before = epoch_of(&h);
	h.now += 600 * S;
	tick(&h);
	assert_int_equal(epoch_of(&h), before);
	arrive(&h, 3); // the next plan counts on it
	for (int i = 0; i < 3; i++)
		random_bytes(&h);
	assert_true(stage_of(&h, 2) >= 0);
	assert_true(stage_of(&h, 3) >= 0);
	stop(&h);
}

static void a_node_outside_the_plan_is_told(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct coordinator_config config = base_config();
	config.n_split = 1;
	config.split[0] = 6;
	start(&h, &config, 2);
	arrive(&h, 1);
	be_ready(&h, 1);
	arrive(&h, 2); // it may hold a plan of another time
	assert_true(sent(&h, h.control[2], MSG_PLAN, &m));
	assert_int_equal(m.u.plan.n_stages, 0);
	assert_int_equal(m.u.plan.epoch.v, epoch_of(&h));
	tick(&h);
	assert_false(sent(&h, h.control[2], MSG_PLAN, &m));
	struct msg leaving = {.type = MSG_LEAVING};
	message(&h, h.control[1], &leaving); // 2 takes its place
	assert_true(sent(&h, h.control[2], MSG_PLAN, &m));
	assert_int_equal(m.u.plan.n_stages, 1);
	assert_true(sent(&h, h.control[1], MSG_PLAN, &m));
	assert_int_equal(m.u.plan.n_stages, 0);
	stop(&h);
}

// key_of returns the pairwise key in the plan that is sent in this step to node i.
static void key_of(struct host *h, int32_t i, uint8_t psk[KEY_BYTES])
{
	struct msg m;
	assert_true(sent(h, h->control[i], MSG_PLAN, &m));
	assert_int_not_equal(m.u.plan.prev.present, m.u.plan.next.present);
	memcpy(psk, m.u.plan.prev.present ? m.u.plan.prev.psk : m.u.plan.next.psk, KEY_BYTES);
}

static void a_new_plan_keeps_the_key_of_two_neighbours(void **state)
{
	(void)state;
	struct host h;
	uint8_t before[KEY_BYTES], after[KEY_BYTES];
	struct coordinator_config config = base_config();
	config.n_nodes_min = 2;
	start(&h, &config, 2);
	arrive(&h, 1);
	arrive(&h, 2);
	random_bytes(&h);
	key_of(&h, 2, before);
	be_ready(&h, 2);
	down(&h, h.data[2], false);
	h.data[2] = link_up(&h, record(2).id, COORD_LINK_DATA);
	assert_int_equal(count_fx(&h, COORD_FX_NEED_RANDOM), 0);
	key_of(&h, 2, after);
	assert_memory_equal(before, after, KEY_BYTES);
	stop(&h);
}

static struct coord_member_status status_of_node(struct host *h, int32_t i)
{
	struct coord_status st;
	coordinator_status(h->c, &st);
	for (int32_t k = 0; k < st.n_members; k++)
		if (node_id_is(st.members[k].id, record(i).id))
			return st.members[k];
	fail();
	return st.members[0];
}

static void round_trips_are_those_of_pings_and_what_stages_measured(void **state)
{
	(void)state;
	struct host h;
	uint8_t pong[FRAME_PING_BYTES];
	ready_with(&h, 3);
	int32_t stage = status_of_node(&h, 1).stage, next = 0;
	for (int32_t i = 2; i <= 3; i++)
		next = status_of_node(&h, i).stage == stage + 1 ? i : next;
	assert_true(next > 0);
	assert_int_equal(status_of_node(&h, 1).rtt.n, 0);
	// A pong of a ping of 2.5 ms ago, one that was never sent, and one on the data link.
	ping_encode(FRAME_PONG, (uint64_t)(h.now - 2500000), pong);
	frame(&h, h.control[1], pong, sizeof pong);
	assert_true(status_of_node(&h, 1).rtt.n == 1 && status_of_node(&h, 1).rtt.last_ns == 2500000);
	frame(&h, h.data[1], pong, sizeof pong);
	ping_encode(FRAME_PONG, (uint64_t)h.now + 1, pong);
	frame(&h, h.control[1], pong, sizeof pong);
	assert_int_equal(status_of_node(&h, 1).rtt.n, 1);
	// What node 1 measured to the next stage counts, what it says of another does not.
	struct msg m = {.type = MSG_LINK_RTT, .u.link_rtt = {.peer = record(next).id, .rtt_us = 4200}};
	message(&h, h.control[1], &m);
	assert_true(status_of_node(&h, 1).next_rtt.n == 1 && status_of_node(&h, 1).next_rtt.last_ns == 4200000);
	m.u.link_rtt.peer = record(next == 2 ? 3 : 2).id;
	message(&h, h.control[1], &m);
	assert_int_equal(status_of_node(&h, 1).next_rtt.n, 1);
	assert_int_equal(count_fx(&h, COORD_FX_CLOSE), 0);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reply_without_the_rows_that_are_owed_ends_the_answer),
		cmocka_unit_test(a_ring_that_does_not_answer_is_given_up),
		cmocka_unit_test(the_machine_that_is_waited_for_is_named),
		cmocka_unit_test(an_answer_that_waits_for_credits_which_never_come_ends),
		cmocka_unit_test(every_sign_of_the_ring_renews_patience),
		cmocka_unit_test(silence_while_this_machine_slept_is_no_stall),
		cmocka_unit_test(frames_on_a_link_that_has_a_successor_still_count),
		cmocka_unit_test(steps_wait_for_the_credits_of_those_on_an_old_link),
		cmocka_unit_test(one_embedding_that_fails_ends_its_request_alone),
		cmocka_unit_test(an_old_link_that_breaks_with_frames_of_the_plan_loses_it),
		cmocka_unit_test(a_node_that_came_again_survives_the_end_of_its_old_links),
		cmocka_unit_test(a_hello_on_an_old_link_says_nothing_any_more),
		cmocka_unit_test(an_old_link_is_closed_in_order_after_a_while),
		cmocka_unit_test(who_ignores_its_credits_is_closed_before_its_victim),
		cmocka_unit_test(a_node_that_cannot_load_is_tried_again_after_a_pause),
		cmocka_unit_test(a_cluster_that_works_is_not_disturbed_to_try_a_node_again),
		cmocka_unit_test(a_node_outside_the_plan_is_told),
		cmocka_unit_test(round_trips_are_those_of_pings_and_what_stages_measured),
		cmocka_unit_test(a_new_plan_keeps_the_key_of_two_neighbours),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
