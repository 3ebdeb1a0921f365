// A member of a group at work: forwards told, contributions out and in, the engine from exchange to exchange. See node.h.
//
// Odd and even forwards have a place each. Where a member is in one: forward f, computing towards exchange x or waiting in it. What may come from another one then
// is its contribution to x; to x + 1 while this one waits, as it has sent its own; or to exchange 1 of f + 2, when x does not exist or is the last. So
// contributions are numbered over the forwards of a place (n_passed is that of x), two part buffers take turns, and the one that the engine reads is never written.
//
// In a ring most exchanges are hops, in which a member sends to the next one and waits for the one before. That one needs my contribution only when it
// has gone all the way round, so it may be n_members - 1 exchanges ahead; whoever is d places behind me, round the ring, d; and one only where everybody's
// contribution was needed in between (reach). As it is always so in exchange 1, nobody is two forwards of a place ahead. Nor does anybody know here how many
// exchanges of this forward are left when exchange 1 of the next comes: that has a part buffer of its own, and the others take turns.
#include "node/node_state.h"

#include "base/assert.h"
#include "base/log.h"
#include "proto/lnk1.h"

_Static_assert(NODE_ITEMS_MAX <= PART_ITEMS_MAX, "each item has a bit of part.failed");

static bool is_lead(const struct node *n)
{
	return n->plan.group.self == 0;
}

static bool is_waiting(const struct node *n)
{
	return n->at->id != 0 && !n->at->is_computing;
}

static uint64_t items_mask(const struct node *n)
{
	return n->at->n_items == 64 ? UINT64_MAX : (UINT64_C(1) << n->at->n_items) - 1;
}

static struct node_forward *place_of(struct node *n, uint64_t forward)
{
	return &n->forwards[forward % NODE_FORWARDS_MAX];
}

static int32_t place(const struct node *n)
{
	return (int32_t)(n->at - n->forwards);
}

// next_number returns the number of the forward that comes next in a place.
static uint64_t next_number(const struct node *n, const struct node_forward *f)
{
	return f->forward != 0 ? f->forward + NODE_FORWARDS_MAX : f == &n->forwards[0] ? NODE_FORWARDS_MAX : (uint64_t)(f - n->forwards);
}

// older_with returns the forward under way in another place than n->at that uses a slot and has begun before; NULL: none does.
static const struct node_forward *older_with(const struct node *n, int32_t slot)
{
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++) {
		const struct node_forward *f = &n->forwards[k];
		bool is_older = f != n->at && f->id != 0 && (n->at->id == 0 || f->forward < n->at->forward);
		for (int32_t i = 0; is_older && i < f->n_items; i++)
			if (f->items[i].slot == slot)
				return f;
	}
	return NULL;
}

// is_held: what goes on behind another forward, towards an exchange, waits until that one has passed it.
static bool is_held(const struct node *n, int32_t slot, int32_t layer_begin, int32_t layer_end, int32_t exchange)
{
	const struct node_forward *f = older_with(n, slot);
	return f != NULL && (f->exchange <= exchange || f->layer_begin != layer_begin || f->layer_end != layer_end);
}

bool node_group_holds(const struct node *n, int32_t slot, int32_t layer_begin, int32_t layer_end)
{
	return is_held(n, slot, layer_begin, layer_end, 1);
}

static bool is_streaming(const struct node *n)
{
	return n->report.weights.streamed > 0;
}

// has_room_for_two: nobody lets go what is read for one forward before the other needs it. Not known before everybody has contributed to one; whoever comes
// to give way to other programs says so with the next.
static bool has_room_for_two(const struct node *n)
{
	for (int32_t i = 0; i < n->plan.group.n_members; i++)
		if (i == n->plan.group.self ? is_streaming(n) : !n->group.stays[i])
			return false;
	return true;
}

struct node_forward *node_group_next(struct node *n)
{
	struct node_forward *f = place_of(n, n->group.n_begun + 1);
	return f->id == 0 && (!stage_has_forward(n) || has_room_for_two(n)) ? f : NULL;
}

static int32_t n_ways(const struct node *n)
{
	return node_part_ways(n->plan.group.mode, n->plan.group.n_members);
}

// way_of returns which of a member's part buffers a contribution has.
static int32_t way_of(const struct node *n, uint64_t number, int32_t exchange)
{
	const struct msg_group *g = &n->plan.group;
	if (split_is_ring(g->mode))
		return exchange == 1 ? g->n_members : exchange % g->n_members;
	return (int32_t)(number % 2);
}

// way_here is that of the exchange that this member computes towards or waits in, way_read that of the one before: the engine reads those.
static int32_t way_here(const struct node *n)
{
	return way_of(n, n->at->n_passed, n->at->exchange);
}

static int32_t way_read(const struct node *n, const struct node_forward *g)
{
	return g->exchange > 1 ? way_of(n, g->n_passed - 1, g->exchange - 1) : -1;
}

static struct group_part *part_now(struct node *n, int32_t member)
{
	return &n->at->parts[member][way_here(n)];
}

// is_hop: in this exchange members send to the next one only. What follows the layers' exchanges is everybody's.
static bool is_hop(const struct node *n, int32_t exchange)
{
	const struct msg_group *g = &n->plan.group;
	int32_t n_layers = n->at->layer_end - n->at->layer_begin;
	return split_is_hop(g->mode, g->n_members, exchange) && exchange <= n_layers * split_exchanges(g->mode, g->n_members, false);
}

// sends_to tells whether a member contributes something to another one, or nothing that counts, in an exchange of this forward.
static bool sends_to(const struct node *n, int32_t src, int32_t dst, int32_t exchange)
{
	return src != dst && (!is_hop(n, exchange) || src == split_before(dst, 1, n->plan.group.n_members));
}

// reach returns how many exchanges behind a member this one may be when that one contributes.
static int32_t reach(const struct node *n, int32_t src, int32_t exchange)
{
	int32_t way = 1, d = split_before(src, n->plan.group.self, n->plan.group.n_members);
	while (way < d && is_hop(n, exchange - way))
		way++;
	return way;
}

// ---- sending

// hop_link returns what goes to a member: a direct link, or the coordinator's. NULL: the plan is lost with it.
static struct node_link *hop_link(struct node *n, int32_t member)
{
	struct node_link *l = n->plan.group.members[member].present ? node_link_of(n, n->group.ids[member], NODE_LINK_DATA) : NULL;
	return l != NULL ? l : node_link_of(n, n->config.coordinator, NODE_LINK_DATA);
}

// One frame: `extra` bytes of payload behind the header, and then some of a buffer.
struct part_frame {
	struct part part;
	const uint8_t *extra;
	size_t extra_len;
	enum node_pool pool;
	int32_t buf;
	size_t off, len;
};

static void send_frame(struct node *n, int32_t dst, const struct part_frame *f, struct node_effects *fx)
{
	struct node_link *l = hop_link(n, dst);
	uint8_t head[FRAME_PART_BYTES + PART_START_BYTES_MAX];
	struct part p = f->part;
	if (l == NULL)
		return;
	p.dst = (uint8_t)dst;
	part_encode(&p, head);
	ASSERT(f->extra_len <= PART_START_BYTES_MAX);
	if (f->extra_len > 0)
		memcpy(head + FRAME_PART_BYTES, f->extra, f->extra_len);
	l->used = n->plan.epoch;
	struct node_effect *e = node_fx(fx, NODE_FX_SEND);
	e->u.send.link = l->handle;
	e->u.send.head_len = FRAME_PART_BYTES + f->extra_len;
	e->u.send.head = node_fx_bytes(fx, head, e->u.send.head_len);
	e->u.send.pool = f->pool;
	e->u.send.buf = f->len > 0 ? f->buf : -1;
	e->u.send.off = f->off;
	e->u.send.len = f->len;
	struct msg_group_report *r = &n->report.group;
	*(p.exchange == 0 ? &r->start_bytes : &r->part_bytes) += f->extra_len + f->len;
	r->n_frames++;
	r->overhead += FRAME_PART_BYTES + LNK1_RECORD_EXTRA;
	node_links_on_sent(n, l, f->extra_len + f->len, fx);
}

// spread sends a frame of a member's to whom it goes from here: everybody else, or the hub, who passes it on.
static void spread(struct node *n, const struct part_frame *f, struct node_effects *fx)
{
	const struct msg_group *g = &n->plan.group;
	bool passes_all = g->hub < 0 || g->hub == g->self;
	for (int32_t i = 0; i < g->n_members; i++)
		if (i != g->self && i != f->part.src && (passes_all || i == g->hub))
			send_frame(n, i, f, fx);
}

static struct part part_here(const struct node *n, int32_t exchange)
{
	return (struct part){.src = (uint8_t)n->plan.group.self, .stage = (uint16_t)n->plan.stage, .exchange = (uint16_t)exchange, .epoch = n->plan.epoch,
		.forward = n->at->forward, .streams = is_streaming(n)};
}

// send_own_to sends a member what is for it, through a hub or not. Even nothing is told: what has failed travels with it.
static void send_own_to(struct node *n, int32_t dst, struct node_effects *fx)
{
	struct node_forward *g = n->at;
	struct part_frame f = {.part = part_here(n, g->exchange), .pool = NODE_PARTS,
		.buf = node_part_buf(n->plan.group.n_members, n->plan.group.self, place(n), 0)};
	size_t at = 0;
	f.part.total = g->has_refused ? 0 : g->to[dst].len;
	if (g->has_refused || g->exchange > 1) // in exchange 1 it would end the forward before anybody could say why
		f.part.failed = g->failed | g->failed_there; // in a ring it goes on from one to the next
	do {
		size_t left = f.part.total - at;
		f.len = left < PART_PAYLOAD_MAX ? left : PART_PAYLOAD_MAX;
		f.off = g->to[dst].at + at;
		f.part.offset = (uint32_t)at;
		send_frame(n, dst, &f, fx);
		at += f.len;
	} while (at < f.part.total);
}

// send_own sends this member's contribution to the exchange that it waits in: to everybody else, or to the hub, who passes it on.
static void send_own(struct node *n, struct node_effects *fx)
{
	const struct msg_group *g = &n->plan.group;
	for (int32_t i = 0; i < g->n_members; i++)
		if (sends_to(n, g->self, i, n->at->exchange) && (g->hub < 0 || g->hub == g->self || i == g->hub))
			send_own_to(n, i, fx);
}

// send_start tells the others what is to be computed: exchange 0.
static void send_start(struct node *n, const struct part_start *s, struct node_effects *fx)
{
	uint8_t start[PART_START_BYTES_MAX];
	size_t row = stage_row_bytes(n), start_len = part_start_bytes(s->n_items), at = 0;
	struct part_frame f = {.part = part_here(n, 0), .extra = start, .extra_len = start_len};
	part_start_encode(s, start);
	f.part.total = (uint32_t)(start_len + (size_t)s->n_tokens * row);
	for (int32_t i = 0; i < s->n_items; i++) {
		size_t len = (size_t)s->items[i].n_tokens * row;
		for (size_t off = 0; off < len; off += f.len) {
			f.part.offset = (uint32_t)at;
			f.buf = n->at->items[i].buf;
			f.off = off;
			f.len = len - off < PART_PAYLOAD_MAX - f.extra_len ? len - off : PART_PAYLOAD_MAX - f.extra_len;
			spread(n, &f, fx);
			at += f.extra_len + f.len;
			f.extra_len = 0;
		}
	}
	ASSERT(at == f.part.total);
}

// ---- the end of a forward

// leave_exchange: nothing of the exchange that was waited in counts any more.
static void leave_exchange(struct node *n)
{
	struct node_forward *g = n->at;
	for (int32_t i = 0; i < GROUP_MEMBERS_MAX; i++)
		*part_now(n, i) = (struct group_part){0};
	g->n_passed++;
}

// give_up ends a forward that waits; one that is being computed ends with its next event.
static void give_up(struct node *n, struct node_effects *fx)
{
	if (n->at->is_computing) {
		n->at->is_dead = true;
		return;
	}
	if (n->at->id != 0 && is_lead(n))
		stage_drop_running(n, fx);
	n->at->id = 0;
}

// cut: this member can go on with nobody until there is another plan, which it asks for.
static void cut(struct node *n, const char *why, struct node_effects *fx)
{
	if (n->group.is_cut)
		return;
	node_log(fx, LOG_WARNING, "the group cannot go on: %s", why);
	struct node_forward *at = n->at;
	n->group.is_cut = true;
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++) {
		n->at = &n->forwards[k];
		give_up(n, fx);
	}
	n->at = at;
	node_report_next_link(n, true, fx);
}

void node_group_reset(struct node *n)
{
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++) {
		struct node_forward *f = &n->forwards[k], old = *f;
		bool stays = old.is_computing || n->plan.group.n_members == 0;
		*f = (struct node_forward){.id = stays ? old.id : 0, .n_items = old.n_items, .is_computing = old.is_computing, .is_dead = old.is_computing};
		memcpy(f->items, old.items, sizeof f->items);
	}
	n->at = n->forwards;
	n->group = (struct node_group){.part_bytes = n->group.part_bytes};
	for (int32_t i = 0; i < n->plan.group.n_members; i++)
		if (n->plan.group.members[i].present)
			n->group.ids[i] = node_peer_id(n->plan.group.members[i].public_key);
}

// void_forward: a member refused items before anything was exchanged. They are dropped, and the lead begins anew with the others.
static void void_forward(struct node *n, uint64_t failed, struct node_effects *fx)
{
	leave_exchange(n);
	n->at->id = 0;
	if (is_lead(n))
		stage_requeue_running(n, failed, fx);
}

// pump_exchange goes on when everybody's contribution is here.
static void pump_exchange(struct node *n, struct node_effects *fx)
{
	struct node_forward *g = n->at;
	uint64_t failed = 0;
	if (!is_waiting(n) || n->group.is_cut)
		return;
	for (int32_t i = 0; i < n->plan.group.n_members; i++) {
		const struct group_part *p = part_now(n, i);
		if (sends_to(n, i, n->plan.group.self, g->exchange) && !p->is_whole)
			return;
		failed |= p->failed & items_mask(n);
	}
	g->failed_there |= failed;
	if (g->exchange == 1 && (failed != 0 || g->has_refused)) {
		n->report.group.n_exchanges++;
		void_forward(n, failed | (g->has_refused ? g->failed : 0), fx);
		return;
	}
	for (int32_t i = 0; i < g->n_items; i++)
		if (is_held(n, g->items[i].slot, g->layer_begin, g->layer_end, g->exchange + 1))
			return;
	n->report.group.n_exchanges++;
	struct node_effect *f = node_fx(fx, NODE_FX_CONTINUE);
	f->u.resume.forward = place(n);
	f->u.resume.id = n->at->id;
	f->u.resume.which = way_here(n);
	g->is_computing = true;
	leave_exchange(n);
	g->exchange++;
}

// ---- the beginning

static void begin(struct node *n, int32_t layer_begin, int32_t layer_end, int32_t n_tokens)
{
	struct node_forward *g = n->at;
	g->forward = ++n->group.n_begun;
	ASSERT(g == place_of(n, g->forward));
	g->exchange = 1;
	g->failed = g->failed_there = 0;
	g->has_refused = false;
	g->layer_begin = layer_begin;
	g->layer_end = layer_end;
	n->at->id = ++n->next_id;
	n->n_tokens += (uint64_t)n_tokens;
	n->report.group.n_forwards++;
	n->report.group.n_tokens += (uint64_t)n_tokens;
}

static void compute(struct node *n, struct node_effects *fx)
{
	n->at->is_computing = true;
	struct node_effect *f = node_fx(fx, NODE_FX_FORWARD);
	f->u.forward.id = n->at->id;
	f->u.forward.forward = place(n);
	for (int32_t i = 0; i < n->at->n_items; i++)
		f->u.forward.is_behind = f->u.forward.is_behind || older_with(n, n->at->items[i].slot) != NULL;
	f->u.forward.layer_begin = n->at->layer_begin;
	f->u.forward.layer_end = n->at->layer_end;
	f->u.forward.n_items = n->at->n_items;
	f->u.forward.items = n->at->items;
}

void node_group_begin(struct node *n, const struct part_start *s, struct node_effects *fx)
{
	begin(n, s->layer_begin, s->layer_end, s->n_tokens);
	send_start(n, s, fx);
	compute(n, fx);
}

// refuse: items cannot be computed here, and nothing has been exchanged yet. Everybody gives the forward up.
static void refuse(struct node *n, uint64_t failed, struct node_effects *fx)
{
	n->at->failed = failed;
	n->at->has_refused = true;
	send_own(n, fx);
	pump_exchange(n, fx);
}

// bind_items: whose keys and values slots hold. Returns the items that build on what is not here.
static uint64_t bind_items(struct node *n, const struct part_start *s, struct node_effects *fx)
{
	uint64_t lost = 0;
	for (int32_t i = 0, row = 0; i < s->n_items; row += s->items[i++].n_tokens) {
		const struct part_item *it = &s->items[i];
		struct session_id *kv = &n->kv_session[it->slot];
		n->at->items[i] = (struct node_forward_item){.buf = (int32_t)(n->at->forward % NODE_FELLOW_BUFS), .row = row, .slot = it->slot, .pos = it->pos, .n_tokens = it->n_tokens,
			.want = it->want};
		n->at->sessions[i] = it->session;
		if (it->is_first)
			*kv = it->session;
		if (kv->v == it->session.v)
			continue;
		lost |= UINT64_C(1) << i;
		stage_report_failure(n, it->session, STEP_NOT_KEPT, "what it builds on is not here any more", fx);
	}
	n->at->n_items = s->n_items;
	n->has_kept = true;
	return lost;
}

// may_follow tells whether what the lead has told can begin here.
static bool may_follow(const struct node *n)
{
	const struct node_forward *g = n->at;
	if (!g->told.is_whole || g->id != 0 || n->group.is_cut || n->has_next)
		return false;
	for (int32_t i = 0; i < g->start.n_items; i++)
		if (is_held(n, (int32_t)g->start.items[i].slot, g->start.layer_begin, g->start.layer_end, 1))
			return false;
	return true;
}

// follow begins what the lead has told, in its order.
static void follow(struct node *n, struct node_effects *fx)
{
	for (n->at = place_of(n, n->group.n_begun + 1); may_follow(n); n->at = place_of(n, n->group.n_begun + 1)) {
		const struct part_start *s = &n->at->start;
		begin(n, s->layer_begin, s->layer_end, s->n_tokens);
		ASSERT(n->at->forward == n->at->told.forward);
		n->at->told = (struct group_part){0};
		uint64_t lost = bind_items(n, s, fx);
		if (lost != 0)
			refuse(n, lost, fx);
		else
			compute(n, fx);
	}
}

void node_group_pump(struct node *n, struct node_effects *fx)
{
	if (n->plan.epoch.v == 0 || !n->loaded || n->plan.group.n_members == 0)
		return;
	for (uint64_t k = 1; k <= NODE_FORWARDS_MAX; k++) { // the oldest first
		n->at = place_of(n, n->group.n_begun + k);
		pump_exchange(n, fx);
	}
	if (!is_lead(n))
		follow(n, fx);
}

// ---- the engine

// bytes_fit tells whether a contribution is as long as it must be.
static bool bytes_fit(const struct node *n, int32_t member, const struct group_part *p)
{
	const struct node_forward *g = n->at;
	bool refuses = p->exchange == 1 && (p->failed & items_mask(n)) != 0 && p->total == 0;
	return g->has_refused || refuses || p->total == g->bytes[member];
}

// check_early looks at what came before the engine had told what this exchange takes.
static void check_early(struct node *n, struct node_effects *fx)
{
	struct node_forward *g = n->at;
	if (g->told.forward != 0 && !split_is_ring(n->plan.group.mode)) { // a ring's lead has ended this one when others have not
		cut(n, "its lead began another forward in the middle of one", fx);
		return;
	}
	for (int32_t i = 0; i < n->plan.group.n_members; i++) {
		const struct group_part *p = part_now(n, i);
		bool is_of_it = p->forward == g->forward && p->exchange == g->exchange;
		if (i != n->plan.group.self && p->forward != 0 && (!is_of_it || !bytes_fit(n, i, p))) {
			cut(n, "a member computes another forward than the others", fx);
			return;
		}
	}
}

void node_group_on_exchange(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	struct node_forward *g = stage_find_forward(n, ev->u.exchange.id);
	if (g == NULL || !g->is_computing)
		return;
	n->at = g;
	g->is_computing = false;
	if (g->is_dead) {
		g->is_dead = false;
		give_up(n, fx);
		return;
	}
	for (int32_t i = 0; i < n->plan.group.n_members; i++) {
		g->bytes[i] = ev->u.exchange.bytes[i];
		g->to[i] = ev->u.exchange.to != NULL ? ev->u.exchange.to[i] : (struct split_sent){0, ev->u.exchange.bytes[n->plan.group.self]};
		ASSERT(g->bytes[i] <= n->group.part_bytes);
		ASSERT(g->to[i].len <= n->group.part_bytes);
		ASSERT(g->to[i].at <= n->group.part_bytes - g->to[i].len);
	}
	g->failed = ev->u.exchange.failed & items_mask(n);
	check_early(n, fx);
	if (n->group.is_cut)
		return;
	send_own(n, fx);
	pump_exchange(n, fx);
}

// report_items tells the coordinator of what failed here, and returns a bit for each.
static uint64_t report_items(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	uint64_t failed = 0;
	for (int32_t i = 0; i < n->at->n_items; i++) {
		struct session_id session = is_lead(n) ? stage_session_of(n, n->at->items[i].buf) : n->at->sessions[i];
		if (ev->u.forward_done.errs[i] == OK)
			continue;
		failed |= UINT64_C(1) << i;
		if (session.v != 0)
			stage_report_error(n, session, ev, i, fx);
	}
	return failed;
}

// check_ended: nobody may have contributed to an exchange that there was not.
static void check_ended(struct node *n, struct node_effects *fx)
{
	for (int32_t i = 0; i < n->plan.group.n_members * n_ways(n); i++)
		if (n->at->parts[i / n_ways(n)][i % n_ways(n)].forward == n->at->forward)
			cut(n, "a member computes another forward than the others", fx);
}

bool node_group_on_forward_done(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	struct node_forward *g = n->at;
	g->is_computing = false;
	if (g->is_dead) {
		g->is_dead = false;
		give_up(n, fx);
		return true;
	}
	if (ev->u.forward_done.was_cut) {
		uint64_t failed = report_items(n, ev, fx);
		if (g->exchange == 1)
			refuse(n, failed != 0 ? failed : items_mask(n), fx);
		else
			cut(n, "this member could not go on in the middle of a forward", fx);
		return true;
	}
	check_ended(n, fx);
	if (n->group.is_cut || is_lead(n))
		return n->group.is_cut;
	(void)report_items(n, ev, fx);
	n->n_steps += (uint64_t)n->at->n_items;
	n->at->id = 0;
	return true;
}

bool node_group_has_failed(const struct node *n, int32_t item)
{
	return n->plan.group.n_members > 0 && (n->at->failed_there >> item & 1) != 0;
}

// ---- what comes

// is_from tells whether a part of this member's may come on this link: from itself, the hub, or the coordinator, who pass on what it sent.
static bool is_from(const struct node *n, const struct node_link *l, int32_t src)
{
	const struct msg_group *g = &n->plan.group;
	int32_t from = g->hub >= 0 && g->hub != g->self ? g->hub : src;
	return node_id_is(l->peer, n->config.coordinator) || (g->members[from].present && node_id_is(l->peer, n->group.ids[from]));
}

// way_for returns the part buffer of a contribution that may come now; -1: it may not.
static int32_t way_for(const struct node *n, const struct part *p)
{
	const struct node_forward *g = n->at;
	bool is_next_forward = p->forward == next_number(n, g) && p->exchange == 1;
	int32_t sent = g->exchange - !is_waiting(n), ahead = (int32_t)p->exchange - g->exchange; // of this forward, as far as it goes
	if (is_next_forward)
		return way_of(n, g->n_passed + is_waiting(n), 1);
	if (g->id == 0 || p->forward != g->forward || ahead < 0)
		return -1;
	if (!sends_to(n, p->src, n->plan.group.self, p->exchange) || p->exchange - sent > reach(n, p->src, p->exchange))
		return -1;
	return way_of(n, g->n_passed + (uint64_t)ahead, p->exchange);
}

// goes_on tells whether a frame is the next one of what `t` has so far.
static bool goes_on(const struct group_part *t, const struct part *p)
{
	if (t->forward == 0)
		return p->offset == 0;
	return !t->is_whole && t->forward == p->forward && t->exchange == p->exchange && t->total == p->total && t->failed == p->failed && t->got == p->offset;
}

static void note_part(struct group_part *t, const struct part *p)
{
	*t = (struct group_part){.forward = p->forward, .exchange = p->exchange, .total = p->total, .failed = p->failed, .got = p->offset + p->payload_len};
	t->is_whole = t->got == t->total;
}

static const char *start_fault(const struct node *n, const struct part *p, const struct part_start *s)
{
	const struct msg_plan *plan = &n->plan;
	if (s->wire != plan->wire || s->n_tokens > plan->chunk_max || s->n_items > NODE_ITEMS_MAX)
		return "a forward of another wire type or size than the plan's";
	if (p->total != part_start_bytes(s->n_items) + (size_t)s->n_tokens * stage_row_bytes(n))
		return "hidden states of the wrong size";
	for (int32_t i = 0; i < s->n_items; i++)
		if (s->items[i].slot >= plan->n_slots || s->items[i].pos + s->items[i].n_tokens > plan->ctx_len)
			return "a slot or position outside the plan";
	for (int32_t i = 0; i < s->n_items; i++)
		if (s->items[i].want != HEAD_NOTHING && (!stage_has_output(n) || s->layer_end != plan->layers.at[plan->layers.n - 1].end))
			return "a forward that wants logits of members without the output head";
	for (int32_t i = 0; i < plan->layers.n; i++)
		if (plan->layers.at[i].begin <= s->layer_begin && s->layer_end <= plan->layers.at[i].end)
			return NULL;
	return "a forward of layers that are not here";
}

// take puts a frame's payload, without the first `skip` bytes, where it belongs, and passes it on if that is this member's part.
static void take(struct node *n, struct part_frame *f, size_t msg_off, struct node_effects *fx)
{
	if (f->len > 0) {
		struct node_effect *e = node_fx(fx, NODE_FX_TAKE);
		e->u.take.pool = f->pool;
		e->u.take.buf = f->buf;
		e->u.take.off = f->off;
		e->u.take.msg_off = msg_off;
		e->u.take.len = f->len;
	}
	if (n->plan.group.hub == n->plan.group.self)
		spread(n, f, fx);
}

// take_start takes a frame of exchange 0. Returns what is wrong with it, or NULL.
static const char *take_start(struct node *n, const struct part *p, const uint8_t *data, struct node_effects *fx)
{
	struct node_forward *g = n->at;
	const uint8_t *payload = data + FRAME_PART_BYTES;
	if (is_lead(n) || p->src != 0 || p->forward != next_number(n, g) || !goes_on(&g->told, p))
		return "a forward out of turn";
	size_t skip = 0;
	if (p->offset == 0) {
		struct part_start s;
		if (part_start_decode(payload, p->payload_len, &s) != OK)
			return "a malformed forward";
		const char *fault = start_fault(n, p, &s);
		if (fault != NULL)
			return fault;
		g->start = s;
		skip = part_start_bytes(s.n_items);
	}
	note_part(&g->told, p);
	n->last_step_ns = n->now_ns;
	struct part_frame f = {.part = *p, .extra = payload, .extra_len = skip, .pool = NODE_BUFS, .buf = (int32_t)(p->forward % NODE_FELLOW_BUFS),
		.off = p->offset + skip - part_start_bytes(g->start.n_items), .len = p->payload_len - skip};
	take(n, &f, FRAME_PART_BYTES + skip, fx);
	return NULL;
}

static const char *take_part(struct node *n, const struct part *p, struct node_effects *fx)
{
	struct node_forward *g = n->at;
	int32_t way = way_for(n, p);
	bool is_read = g->is_computing && way == way_read(n, g);
	if (way < 0 || is_read || !goes_on(&g->parts[p->src][way], p))
		return "a part out of turn";
	struct group_part *t = &g->parts[p->src][way], noted;
	note_part(&noted, p);
	bool is_known = is_waiting(n) && p->forward == g->forward && p->exchange == g->exchange;
	if (p->total > n->group.part_bytes || (is_known && !bytes_fit(n, p->src, &noted)))
		return "a part of the wrong size";
	*t = noted;
	n->group.stays[p->src] = !p->streams;
	struct part_frame f = {.part = *p, .pool = NODE_PARTS, .buf = node_part_buf(n->plan.group.n_members, p->src, place(n), way),
		.off = p->offset, .len = p->payload_len};
	take(n, &f, FRAME_PART_BYTES, fx);
	return NULL;
}

static const char *place_fault(const struct node *n, const struct part *p)
{
	const struct msg_group *g = &n->plan.group;
	if (!n->loaded)
		return "a part before the plan was ready";
	if (g->n_members == 0 || p->stage != n->plan.stage || p->dst != g->self || p->src >= g->n_members || p->src == g->self)
		return "a part for another member";
	return NULL;
}

void node_group_on_part(struct node *n, struct node_link *l, const uint8_t *data, size_t len, struct node_effects *fx)
{
	struct part p;
	if (part_decode(data, len, &p) != OK) {
		node_link_blame(l, "a malformed part", fx);
		return;
	}
	if (p.epoch.v != n->plan.epoch.v || n->group.is_cut)
		return; // of an old plan, or of one not here yet: its sender will be told
	const char *fault = place_fault(n, &p);
	if (fault == NULL && !is_from(n, l, p.src)) {
		node_link_ignore(l, "a part, and is not the member whose it is", fx);
		return;
	}
	n->at = place_of(n, p.forward);
	if (fault == NULL)
		fault = p.exchange == 0 ? take_start(n, &p, data, fx) : take_part(n, &p, fx);
	if (fault == NULL)
		node_group_pump(n, fx);
	else if (!node_id_is(l->peer, n->config.coordinator))
		node_link_blame(l, fault, fx);
	else if (n->loaded && n->plan.group.n_members > 0) // it is a member's beyond it
		cut(n, fault, fx);
	else
		node_link_ignore(l, fault, fx);
}

static void check_forward(const struct node *n, const struct node_forward *g)
{
	ASSERT(!g->is_computing || g->id != 0);
	ASSERT(!g->is_dead || g->is_computing);
	ASSERT(!n->group.is_cut || g->id == 0 || g->is_computing);
	ASSERT(g->forward <= n->group.n_begun);
	for (int32_t i = 0; i < GROUP_MEMBERS_MAX; i++) {
		for (int32_t k = 0; k < n_ways(n); k++) {
			const struct group_part *p = &g->parts[i][k];
			ASSERT(p->forward == 0 || (i < n->plan.group.n_members && i != n->plan.group.self));
			ASSERT(p->got <= p->total && p->total <= n->group.part_bytes);
			ASSERT(p->forward == 0 || p->forward == g->forward || p->forward == next_number(n, g));
		}
		// What the engine reads while it computes is not written. Cut while it waited, a member keeps what came early until the next plan.
		bool is_read = g->is_computing || (g->id == 0 && !n->group.is_cut);
		int32_t read = way_read(n, g);
		ASSERT(!is_read || read < 0 || g->parts[i][read].forward == 0);
	}
}

void node_group_check(const struct node *n)
{
	for (int32_t k = 0; n->plan.group.n_members > 0 && k < NODE_FORWARDS_MAX; k++)
		check_forward(n, &n->forwards[k]);
}
