#include "node/parts.h"

#include "base/assert.h"
#include "node/turns.h"
#include "proto/lnk1.h"

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
		.forward = n->at->forward, .streams = turns_is_streaming(n)};
}

// send_own_to sends a member what is for it, through a hub or not. Even nothing is told: what has failed travels with it.
static void send_own_to(struct node *n, int32_t dst, struct node_effects *fx)
{
	struct node_forward *g = n->at;
	struct part_frame f = {.part = part_here(n, g->exchange), .pool = NODE_PARTS,
		.buf = node_part_buf(n->plan.group.n_members, n->plan.group.self, turns_place(n), 0)};
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

void parts_send_own(struct node *n, struct node_effects *fx)
{
	const struct msg_group *g = &n->plan.group;
	for (int32_t i = 0; i < g->n_members; i++)
		if (turns_sends_to(n, g->self, i, n->at->exchange) && (g->hub < 0 || g->hub == g->self || i == g->hub))
			send_own_to(n, i, fx);
}

void parts_send_start(struct node *n, const struct part_start *s, struct node_effects *fx)
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

// ---- what comes

bool parts_is_from(const struct node *n, const struct node_link *l, int32_t src)
{
	const struct msg_group *g = &n->plan.group;
	int32_t from = g->hub >= 0 && g->hub != g->self ? g->hub : src;
	return node_id_is(l->peer, n->config.coordinator) || (g->members[from].present && node_id_is(l->peer, n->group.ids[from]));
}

const char *parts_place_fault(const struct node *n, const struct part *p)
{
	const struct msg_group *g = &n->plan.group;
	if (!n->loaded)
		return "a part before the plan was ready";
	if (g->n_members == 0 || p->stage != n->plan.stage || p->dst != g->self || p->src >= g->n_members || p->src == g->self)
		return "a part for another member";
	return NULL;
}

bool parts_fit(const struct node *n, int32_t member, const struct group_part *p)
{
	const struct node_forward *g = n->at;
	bool refuses = p->exchange == 1 && (p->failed & turns_items_mask(n)) != 0 && p->total == 0;
	return g->has_refused || refuses || p->total == g->bytes[member];
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
	if (turns_is_lead(n) || p->src != 0 || p->forward != turns_next_number(n, g) || !goes_on(&g->told, p))
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
	int32_t way = turns_way_for(n, p);
	bool is_read = g->is_computing && way == turns_way_read(n, g);
	if (way < 0 || is_read || !goes_on(&g->parts[p->src][way], p))
		return "a part out of turn";
	struct group_part *t = &g->parts[p->src][way], noted;
	note_part(&noted, p);
	bool is_known = turns_is_waiting(n) && p->forward == g->forward && p->exchange == g->exchange;
	if (p->total > n->group.part_bytes || (is_known && !parts_fit(n, p->src, &noted)))
		return "a part of the wrong size";
	*t = noted;
	n->group.stays[p->src] = !p->streams;
	struct part_frame f = {.part = *p, .pool = NODE_PARTS, .buf = node_part_buf(n->plan.group.n_members, p->src, turns_place(n), way),
		.off = p->offset, .len = p->payload_len};
	take(n, &f, FRAME_PART_BYTES, fx);
	return NULL;
}

const char *parts_take(struct node *n, const struct part *p, const uint8_t *data, struct node_effects *fx)
{
	return p->exchange == 0 ? take_start(n, p, data, fx) : take_part(n, p, fx);
}
