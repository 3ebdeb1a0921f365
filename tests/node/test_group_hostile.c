// What members of a group may not send: the link closes, or the frame counts for nothing. This node is member 1 of 3; machine 1 leads, machine 2 is
// member 2.
#include "tests/support/node_host.h"

#define PART_MAX 64
#define EPOCH 5

struct group {
	struct host h;
	uint32_t lead, fellow; // direct links
};

static void group_plan(struct host *h, uint64_t epoch, int32_t hub, enum split_mode mode)
{
	struct msg m = {.type = MSG_PLAN};
	m.u.plan = (struct msg_plan){.epoch = {epoch}, .n_stages = 3, .stage = 1, .layers = {1, {{2, 4}}}, .n_slots = 2, .ctx_len = 16, .chunk_max = 4,
		.hop_credits = CREDITS, .group = {.n_members = 3, .self = 1, .mode = mode, .hub = hub, .shares = {1, 1, 1}}};
	m.u.plan.group.members[0] = peer(h, 1);
	m.u.plan.group.members[2] = peer(h, 2);
	control_on(h, h->control, &m);
}

static void group_loaded(struct host *h)
{
	struct node_event ev = {.type = NODE_EV_LOADED};
	ev.u.loaded.id = load_id(h);
	ev.u.loaded.part_bytes = PART_MAX;
	step(h, &ev);
}

static void join_in(struct group *g, int32_t hub, enum split_mode mode)
{
	start(&g->h);
	group_plan(&g->h, EPOCH, hub, mode);
	assert_int_equal(count_fx(&g->h, NODE_FX_CONNECT), 2);
	assert_int_equal(find_fx(&g->h, NODE_FX_LOAD, 0)->u.load.n_bufs, NODE_FELLOW_BUFS);
	group_loaded(&g->h);
	g->lead = up(&g->h, 1, NODE_LINK_DATA);
	g->fellow = up(&g->h, 2, NODE_LINK_DATA);
}

static void join_as(struct group *g, int32_t hub)
{
	join_in(g, hub, SPLIT_GATHER);
}

static void join(struct group *g)
{
	join_as(g, -1);
}

static struct part a_part(uint8_t src, uint64_t forward, uint16_t exchange, uint32_t total)
{
	return (struct part){.src = src, .dst = 1, .stage = 1, .exchange = exchange, .epoch = {EPOCH}, .forward = forward, .total = total};
}

static void send_part(struct host *h, uint32_t link, const struct part *p, uint32_t len)
{
	uint8_t bytes[FRAME_PART_BYTES + 1024] = {0};
	part_encode(p, bytes);
	frame(h, link, bytes, FRAME_PART_BYTES + len);
}

static void whole(struct host *h, uint32_t link, uint8_t src, uint64_t forward, uint16_t exchange, uint32_t total)
{
	struct part p = a_part(src, forward, exchange, total);
	send_part(h, link, &p, total);
}

static struct part_start a_start(void)
{
	return (struct part_start){.layer_begin = 2, .layer_end = 4, .n_items = 2, .n_tokens = 3,
		.items = {{.session = {7}, .slot = 0, .n_tokens = 2, .is_first = true}, {.session = {8}, .slot = 1, .n_tokens = 1, .is_first = true}}};
}

static void send_start(struct host *h, uint32_t link, uint64_t forward, const struct part_start *s, size_t more)
{
	uint8_t bytes[FRAME_PART_BYTES + PART_START_BYTES_MAX + CHUNK_TOKENS_MAX * HIDDEN * 4] = {0};
	size_t len = part_start_bytes(s->n_items) + (size_t)s->n_tokens * HIDDEN * 4 + more;
	struct part p = a_part(0, forward, 0, (uint32_t)len);
	part_encode(&p, bytes);
	part_start_encode(s, bytes + FRAME_PART_BYTES);
	frame(h, link, bytes, FRAME_PART_BYTES + len);
}

static void begin(struct group *g, uint64_t forward)
{
	struct part_start s = a_start();
	send_start(&g->h, g->lead, forward, &s, 0);
}

static void exchange(struct host *h, uint32_t id, uint32_t bytes0, uint32_t bytes1, uint32_t bytes2)
{
	const uint32_t bytes[] = {bytes0, bytes1, bytes2};
	struct node_event ev = {.type = NODE_EV_EXCHANGE};
	ev.u.exchange.id = id;
	ev.u.exchange.bytes = bytes;
	step(h, &ev);
}

static bool closes(struct host *h, uint32_t link)
{
	for (int32_t i = 0; i < h->fx->n; i++)
		if (h->fx->at[i].type == NODE_FX_CLOSE && h->fx->at[i].u.close.link == link)
			return true;
	return false;
}

static bool does_nothing(struct host *h)
{
	return count_fx(h, NODE_FX_CLOSE) + count_fx(h, NODE_FX_TAKE) + count_fx(h, NODE_FX_FORWARD) + count_fx(h, NODE_FX_CONTINUE) == 0 && !says_broken(h);
}

static void an_honest_forward_goes_from_exchange_to_exchange(void **state)
{
	(void)state;
	struct group g;
	join(&g);
	begin(&g, 1);
	assert_int_equal(count_fx(&g.h, NODE_FX_TAKE), 1);
	uint32_t id = forward_id(&g.h);
	assert_int_equal(find_fx(&g.h, NODE_FX_FORWARD, 0)->u.forward.items[1].row, 2);
	whole(&g.h, g.fellow, 2, 1, 1, 6); // before the engine here has come as far
	exchange(&g.h, id, 5, 0, 6);
	assert_int_equal(n_frames(&g.h, FRAME_PART, g.lead), 1); // nothing is a contribution too
	assert_int_equal(n_frames(&g.h, FRAME_PART, g.fellow), 1);
	struct part p = a_part(0, 1, 1, 5);
	send_part(&g.h, g.lead, &p, 3);
	assert_int_equal(count_fx(&g.h, NODE_FX_CONTINUE), 0);
	p.offset = 3;
	send_part(&g.h, g.lead, &p, 2);
	assert_int_equal(find_fx(&g.h, NODE_FX_TAKE, 0)->u.take.off, 3);
	assert_int_equal(count_fx(&g.h, NODE_FX_CONTINUE), 1);
	exchange(&g.h, id, 1, 1, 1);
	whole(&g.h, g.fellow, 2, 1, 2, 1);
	whole(&g.h, g.fellow, 2, 2, 1, 9); // it has all of this one, which is the last, and knows the next
	begin(&g, 2); // of the same slots: behind the first, which has passed its first exchange
	assert_int_equal(count_fx(&g.h, NODE_FX_FORWARD), 1);
	assert_true(find_fx(&g.h, NODE_FX_FORWARD, 0)->u.forward.is_behind);
	assert_int_not_equal(find_fx(&g.h, NODE_FX_FORWARD, 0)->u.forward.forward, 1);
	uint32_t second = forward_id(&g.h);
	exchange(&g.h, second, 1, 0, 9);
	whole(&g.h, g.lead, 0, 2, 1, 1);
	assert_int_equal(count_fx(&g.h, NODE_FX_CONTINUE), 0); // the first has not passed its second
	whole(&g.h, g.lead, 0, 1, 2, 1);
	assert_int_equal(count_fx(&g.h, NODE_FX_CONTINUE), 2);
	assert_int_equal(find_fx(&g.h, NODE_FX_CONTINUE, 0)->u.resume.id, id);
	assert_int_equal(find_fx(&g.h, NODE_FX_CONTINUE, 1)->u.resume.id, second);
	forward_done(&g.h, id);
	begin(&g, 3); // behind the second, which computes towards its second exchange
	assert_int_equal(count_fx(&g.h, NODE_FX_FORWARD), 1);
	stop(&g.h);
}

static void parts_out_of_turn_close_the_link(void **state)
{
	(void)state;
	static const struct {
		uint64_t forward;
		uint16_t exchange;
	} idle[] = {{0, 1}, {1, 2}, {2, 2}, {3, 1}, {4, 1}, {UINT64_MAX, 1}, {1, EXCHANGES_MAX}}, computing[] = {{1, 2}, {2, 2}, {3, 2}, {4, 1}, {5, 1}},
		waiting[] = {{1, 3}, {2, 2}, {3, 2}, {4, 1}, {5, 1}};
	struct group g;
	for (size_t i = 0; i < ARRAY_LEN(idle); i++) {
		join(&g);
		whole(&g.h, g.fellow, 2, idle[i].forward, idle[i].exchange, 4);
		assert_true(closes(&g.h, g.fellow));
		assert_int_equal(count_fx(&g.h, NODE_FX_TAKE), 0);
		stop(&g.h);
	}
	for (size_t i = 0; i < ARRAY_LEN(computing); i++) {
		join(&g);
		begin(&g, 1);
		whole(&g.h, g.fellow, 2, computing[i].forward, computing[i].exchange, 4);
		assert_true(closes(&g.h, g.fellow));
		stop(&g.h);
	}
	for (size_t i = 0; i < ARRAY_LEN(waiting); i++) {
		join(&g);
		begin(&g, 1);
		exchange(&g.h, forward_id(&g.h), 4, 4, 4);
		whole(&g.h, g.fellow, 2, waiting[i].forward, waiting[i].exchange, 4);
		assert_true(closes(&g.h, g.fellow));
		stop(&g.h);
	}
}

static void parts_that_overlap_leave_gaps_or_go_on_after_their_end_close_the_link(void **state)
{
	(void)state;
	static const struct part bad[] = {
		{.offset = 0, .total = 8},          // again
		{.offset = 3, .total = 8},          // overlaps
		{.offset = 5, .total = 8},          // a gap
		{.offset = 4, .total = 9},          // another total
		{.offset = 4, .total = 8, .failed = 1},
	};
	struct group g;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		join(&g);
		begin(&g, 1);
		struct part p = a_part(2, 1, 1, 8);
		send_part(&g.h, g.fellow, &p, 4);
		assert_int_equal(count_fx(&g.h, NODE_FX_TAKE), 1);
		p.offset = bad[i].offset, p.total = bad[i].total, p.failed = bad[i].failed;
		send_part(&g.h, g.fellow, &p, 2);
		assert_true(closes(&g.h, g.fellow));
		assert_int_equal(count_fx(&g.h, NODE_FX_TAKE), 0);
		stop(&g.h);
	}
	join(&g); // after the end
	begin(&g, 1);
	whole(&g.h, g.fellow, 2, 1, 1, 8);
	whole(&g.h, g.fellow, 2, 1, 1, 8);
	assert_true(closes(&g.h, g.fellow));
	stop(&g.h);
	join(&g); // twice nothing
	begin(&g, 1);
	whole(&g.h, g.fellow, 2, 1, 1, 0);
	whole(&g.h, g.fellow, 2, 1, 1, 0);
	assert_true(closes(&g.h, g.fellow));
	stop(&g.h);
}

static void parts_of_the_wrong_size_close_the_link_or_end_the_plan(void **state)
{
	(void)state;
	struct group g;
	join(&g);
	begin(&g, 1);
	whole(&g.h, g.fellow, 2, 1, 1, PART_MAX + 1);
	assert_true(closes(&g.h, g.fellow));
	stop(&g.h);
	join(&g);
	begin(&g, 1);
	uint32_t id = forward_id(&g.h);
	exchange(&g.h, id, 4, 4, 4);
	whole(&g.h, g.fellow, 2, 1, 1, 5);
	assert_true(closes(&g.h, g.fellow));
	stop(&g.h);
	join(&g); // it came before its size was known
	begin(&g, 1);
	id = forward_id(&g.h);
	whole(&g.h, g.fellow, 2, 1, 1, 5);
	exchange(&g.h, id, 4, 4, 4);
	assert_true(says_broken(&g.h));
	whole(&g.h, g.lead, 0, 1, 1, 4);
	assert_true(does_nothing(&g.h)); // until there is another plan
	group_plan(&g.h, EPOCH + 1, -1, SPLIT_GATHER);
	assert_int_equal(count_fx(&g.h, NODE_FX_LOAD), 0);
	stop(&g.h);
	join(&g); // no bytes, and nothing that failed
	begin(&g, 1);
	exchange(&g.h, forward_id(&g.h), 4, 4, 4);
	whole(&g.h, g.fellow, 2, 1, 1, 0);
	assert_true(closes(&g.h, g.fellow));
	stop(&g.h);
	join(&g); // a failed item that there is not
	begin(&g, 1);
	exchange(&g.h, forward_id(&g.h), 4, 4, 4);
	struct part p = a_part(2, 1, 1, 0);
	p.failed = UINT64_C(1) << 2;
	send_part(&g.h, g.fellow, &p, 0);
	assert_true(closes(&g.h, g.fellow));
	stop(&g.h);
}

static void parts_of_others_count_for_nothing(void **state)
{
	(void)state;
	struct group g;
	join(&g);
	begin(&g, 1);
	exchange(&g.h, forward_id(&g.h), 4, 4, 4);
	whole(&g.h, g.fellow, 0, 1, 1, 4); // the lead's, and not from it
	assert_true(does_nothing(&g.h));
	struct part p = a_part(2, 1, 1, 4);
	p.epoch.v = EPOCH - 1;
	send_part(&g.h, g.fellow, &p, 4);
	assert_true(does_nothing(&g.h));
	p.epoch.v = EPOCH + 1;
	send_part(&g.h, g.fellow, &p, 4);
	assert_true(does_nothing(&g.h));
	const struct part elsewhere[] = {
		{.src = 2, .dst = 0, .stage = 1}, {.src = 2, .dst = 1, .stage = 2}, {.src = 3, .dst = 1, .stage = 1}, {.src = 1, .dst = 0, .stage = 1}}; // another dst, stage, src; its own
	for (size_t i = 0; i < ARRAY_LEN(elsewhere); i++) {
		p = elsewhere[i];
		p.epoch.v = EPOCH, p.forward = p.exchange = 1, p.total = 4;
		send_part(&g.h, g.fellow, &p, 4);
		assert_true(closes(&g.h, g.fellow));
		assert_int_equal(count_fx(&g.h, NODE_FX_TAKE), 0);
	}
	stop(&g.h);
}

static void forwards_that_do_not_fit_the_plan_close_the_link(void **state)
{
	(void)state;
	struct group g;
#define REFUSED(change, more)                                                                                                                                  \
	do {                                                                                                                                                       \
		struct part_start s = a_start();                                                                                                                       \
		change;                                                                                                                                                \
		join(&g);                                                                                                                                              \
		send_start(&g.h, g.lead, 1, &s, more);                                                                                                                 \
		assert_true(closes(&g.h, g.lead));                                                                                                                     \
		assert_int_equal(count_fx(&g.h, NODE_FX_TAKE) + count_fx(&g.h, NODE_FX_FORWARD), 0);                                                                   \
		stop(&g.h);                                                                                                                                            \
	} while (0)
	REFUSED(s.wire = WIRE_F16, 0);
	REFUSED((s.items[0].n_tokens = 4, s.n_tokens = 5), 0); // longer than a chunk
	REFUSED(s.items[1].slot = 2, 0);
	REFUSED((s.items[1].pos = 16, s.items[1].is_first = false), 0);
	REFUSED(s.layer_begin = 1, 0);
	REFUSED(s.layer_end = 5, 0);
	REFUSED((void)s, 1);
	REFUSED((void)s, HIDDEN * 4);
	REFUSED(s.n_items = 0, 8);
	REFUSED(s.items[0].want = HEAD_BEST, 0); // it is not the last stage
	REFUSED(s.items[1].want = HEAD_LOGITS, 0);
#undef REFUSED
	struct part_start s = a_start();
	join(&g); // from one that does not lead
	send_start(&g.h, g.fellow, 1, &s, 0);
	assert_true(does_nothing(&g.h));
	struct part p = a_part(2, 1, 0, 40);
	send_part(&g.h, g.fellow, &p, 40);
	assert_true(closes(&g.h, g.fellow));
	p = a_part(0, 1, 0, 80); // cut in the middle of what is to be computed
	send_part(&g.h, g.lead, &p, 5);
	assert_true(closes(&g.h, g.lead));
	stop(&g.h);
	join(&g); // more of them told than there are places
	begin(&g, 1);
	begin(&g, 2);
	begin(&g, 4);
	assert_true(closes(&g.h, g.lead));
	stop(&g.h);
	join(&g); // in the middle of one
	begin(&g, 1);
	uint32_t id = forward_id(&g.h);
	begin(&g, 3);
	exchange(&g.h, id, 4, 4, 4);
	assert_true(says_broken(&g.h));
	stop(&g.h);
}

static void what_comes_through_the_coordinator_never_costs_its_link(void **state)
{
	(void)state;
	struct group g;
	join(&g);
	begin(&g, 1);
	exchange(&g.h, forward_id(&g.h), 4, 4, 4);
	whole(&g.h, g.h.data, 2, 7, 7, 4);
	assert_int_equal(count_fx(&g.h, NODE_FX_CLOSE), 0);
	assert_true(says_broken(&g.h));
	whole(&g.h, g.h.data, 2, 1, 1, 4);
	assert_true(does_nothing(&g.h));
	stop(&g.h);
}

static void parts_without_a_group_close_the_link(void **state)
{
	(void)state;
	struct group g;
	start(&g.h);
	group_plan(&g.h, EPOCH, -1, SPLIT_GATHER);
	g.lead = up(&g.h, 1, NODE_LINK_DATA);
	whole(&g.h, g.lead, 0, 1, 1, 4); // nothing is loaded
	assert_true(closes(&g.h, g.lead));
	stop(&g.h);
	uint32_t prev, next;
	join_ring(&g.h, &prev, &next);
	struct part p = a_part(0, 1, 1, 4);
	p.epoch.v = 1;
	send_part(&g.h, prev, &p, 4);
	assert_true(closes(&g.h, prev));
	const uint8_t cut[] = {FRAME_PART, 0, 1};
	frame(&g.h, next, cut, sizeof cut);
	assert_true(closes(&g.h, next));
	stop(&g.h);
}

static void a_fellow_takes_no_steps(void **state)
{
	(void)state;
	struct group g;
	join(&g);
	send_step(&g.h, g.lead, EPOCH, 7, 0);
	assert_int_equal(count_fx(&g.h, NODE_FX_TAKE) + count_fx(&g.h, NODE_FX_FORWARD), 0);
	send_step(&g.h, g.h.data, EPOCH, 7, 0);
	assert_int_equal(count_fx(&g.h, NODE_FX_TAKE) + count_fx(&g.h, NODE_FX_FORWARD), 0);
	stop(&g.h);
}

static void with_a_hub_only_it_is_heard(void **state)
{
	(void)state;
	struct group g;
	join_as(&g, 0); // the lead
	begin(&g, 1);
	exchange(&g.h, forward_id(&g.h), 4, 4, 4);
	assert_int_equal(n_frames(&g.h, FRAME_PART, g.lead), 1);
	assert_int_equal(n_frames(&g.h, FRAME_PART, g.fellow), 0);
	whole(&g.h, g.fellow, 2, 1, 1, 4);
	assert_true(does_nothing(&g.h));
	whole(&g.h, g.lead, 2, 1, 1, 4);
	assert_int_equal(count_fx(&g.h, NODE_FX_TAKE), 1);
	stop(&g.h);
	join_as(&g, 1); // this one
	begin(&g, 1);
	assert_int_equal(n_frames(&g.h, FRAME_PART, g.fellow), 1); // told to the other one
	uint32_t id = forward_id(&g.h);
	whole(&g.h, g.fellow, 2, 1, 1, 4);
	assert_int_equal(n_frames(&g.h, FRAME_PART, g.lead), 1);
	exchange(&g.h, id, 4, 4, 4);
	assert_int_equal(n_frames(&g.h, FRAME_PART, 0), 2);
	stop(&g.h);
}

// begin_hops brings this member, second of a ring of three, to where it computes towards exchange 2. The one before it is the lead.
static uint32_t begin_hops(struct group *g, enum split_mode mode)
{
	join_in(g, -1, mode);
	begin(g, 1);
	uint32_t id = forward_id(&g->h);
	exchange(&g->h, id, 4, 4, 4);
	assert_int_equal(n_frames(&g->h, FRAME_PART, g->lead) + n_frames(&g->h, FRAME_PART, g->fellow), 2); // in the first everybody hears of everybody
	whole(&g->h, g->lead, 0, 1, 1, 4);
	whole(&g->h, g->fellow, 2, 1, 1, 4);
	assert_int_equal(count_fx(&g->h, NODE_FX_CONTINUE), 1);
	return id;
}

static void a_hop_goes_to_the_next_member_and_waits_for_the_one_before(void **state)
{
	(void)state;
	struct group g;
	uint32_t id = begin_hops(&g, SPLIT_REDUCE_RING);
	exchange(&g.h, id, 6, 5, 0);
	assert_int_equal(n_frames(&g.h, FRAME_PART, g.lead), 0);
	assert_int_equal(n_frames(&g.h, FRAME_PART, g.fellow), 1);
	whole(&g.h, g.lead, 0, 1, 2, 6);
	assert_int_equal(count_fx(&g.h, NODE_FX_CONTINUE), 1);
	whole(&g.h, g.lead, 0, 1, 3, 3); // it is as far ahead as three can be
	whole(&g.h, g.lead, 0, 1, 4, 2);
	assert_int_equal(count_fx(&g.h, NODE_FX_TAKE), 1);
	exchange(&g.h, id, 3, 5, 0);
	assert_int_equal(count_fx(&g.h, NODE_FX_CONTINUE), 1);
	stop(&g.h);
}

static void hops_out_of_turn_close_the_link(void **state)
{
	(void)state;
	static const struct {
		enum split_mode mode;
		uint8_t src;
		uint64_t forward;
		uint16_t exchange;
	} bad[] = {
		{SPLIT_REDUCE_RING, 2, 1, 2}, // not the one before
		{SPLIT_REDUCE_RING, 0, 1, 1}, // again, into what the engine reads
		{SPLIT_REDUCE_RING, 0, 1 + NODE_FORWARDS_MAX, 1}, // likewise
		{SPLIT_REDUCE_RING, 2, 1 + NODE_FORWARDS_MAX, 1},
		{SPLIT_REDUCE_RING, 0, 1, 4}, // further than one can be that needs this member's part in exchange 1
		{SPLIT_REDUCE_RING, 0, 1, 5}, // and than there are buffers
		{SPLIT_REDUCE_RING, 0, 1 + NODE_FORWARDS_MAX, 2},
		{SPLIT_MIXED_RING, 0, 1, 3}, // exchange 2 is everybody's
		{SPLIT_MIXED_RING, 2, 1, 3},
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct group g;
		(void)begin_hops(&g, bad[i].mode);
		whole(&g.h, bad[i].src == 0 ? g.lead : g.fellow, bad[i].src, bad[i].forward, bad[i].exchange, 4);
		assert_true(closes(&g.h, bad[i].src == 0 ? g.lead : g.fellow));
		assert_int_equal(count_fx(&g.h, NODE_FX_TAKE), 0);
		stop(&g.h);
	}
}

static void a_member_that_is_revoked_is_parted_from_and_its_key_wiped(void **state)
{
	(void)state;
	struct group g;
	uint8_t psk[KEY_BYTES];
	join(&g);
	assert_true(node_find_psk(g.h.n, g.h.pk[2], psk));
	struct msg m = {.type = MSG_REVOKED, .u.revoked = {.member_epoch = {2}, .node = g.h.ids[2]}};
	control_on(&g.h, g.h.control, &m);
	assert_int_equal(count_fx(&g.h, NODE_FX_DISCONNECT), 1);
	assert_false(node_find_psk(g.h.n, g.h.pk[2], psk));
	struct msg_peer p = peer(&g.h, 2);
	assert_null(memmem(g.h.n, node_size(), p.psk, sizeof p.psk));
	assert_true(node_find_psk(g.h.n, g.h.pk[1], psk));
	stop(&g.h);
}

static void members_that_become_neighbours_keep_their_links(void **state)
{
	(void)state;
	struct group g;
	join(&g);
	plan(&g.h, EPOCH + 1, 2, 1);
	assert_int_equal(count_fx(&g.h, NODE_FX_CONNECT) + count_fx(&g.h, NODE_FX_DISCONNECT), 0);
	assert_int_equal(find_fx(&g.h, NODE_FX_LOAD, 0)->u.load.group->n_members, 0);
	stop(&g.h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_honest_forward_goes_from_exchange_to_exchange),
		cmocka_unit_test(parts_out_of_turn_close_the_link),
		cmocka_unit_test(parts_that_overlap_leave_gaps_or_go_on_after_their_end_close_the_link),
		cmocka_unit_test(parts_of_the_wrong_size_close_the_link_or_end_the_plan),
		cmocka_unit_test(parts_of_others_count_for_nothing),
		cmocka_unit_test(forwards_that_do_not_fit_the_plan_close_the_link),
		cmocka_unit_test(what_comes_through_the_coordinator_never_costs_its_link),
		cmocka_unit_test(parts_without_a_group_close_the_link),
		cmocka_unit_test(a_fellow_takes_no_steps),
		cmocka_unit_test(with_a_hub_only_it_is_heard),
		cmocka_unit_test(a_hop_goes_to_the_next_member_and_waits_for_the_one_before),
		cmocka_unit_test(hops_out_of_turn_close_the_link),
		cmocka_unit_test(a_member_that_is_revoked_is_parted_from_and_its_key_wiped),
		cmocka_unit_test(members_that_become_neighbours_keep_their_links),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
