// A member of a group at work: forwards from their beginning to their end, the engine from exchange to exchange. See node.h; turns.h for the order of
// exchanges, parts.h for what travels.
#include "node/node_state.h"

#include "base/assert.h"
#include "base/log.h"
#include "node/parts.h"
#include "node/turns.h"

_Static_assert(NODE_ITEMS_MAX <= PART_ITEMS_MAX, "each item has a bit of part.failed");

bool node_group_holds(const struct node *n, int32_t slot, int32_t layer_begin, int32_t layer_end)
{
	return turns_is_held(n, slot, layer_begin, layer_end, 1);
}

// has_room_for_two: nobody lets go what is read for one forward before the other needs it. Not known before everybody has contributed to one; whoever comes
// to give way to other programs says so with the next.
static bool has_room_for_two(const struct node *n)
{
	for (int32_t i = 0; i < n->plan.group.n_members; i++)
		if (i == n->plan.group.self ? turns_is_streaming(n) : !n->group.stays[i])
			return false;
	return true;
}

struct node_forward *node_group_next(struct node *n)
{
	struct node_forward *f = turns_place_of(n, n->group.n_begun + 1);
	return f->id == 0 && (!stage_has_forward(n) || has_room_for_two(n)) ? f : NULL;
}

// ---- the end of a forward

// leave_exchange: nothing of the exchange that was waited in counts any more.
static void leave_exchange(struct node *n)
{
	struct node_forward *g = n->at;
	for (int32_t i = 0; i < GROUP_MEMBERS_MAX; i++)
		*turns_part_now(n, i) = (struct group_part){0};
	g->n_passed++;
}

// give_up ends a forward that waits; one that is being computed ends with its next event.
static void give_up(struct node *n, struct node_effects *fx)
{
	if (n->at->is_computing) {
		n->at->is_dead = true;
		return;
	}
	if (n->at->id != 0 && turns_is_lead(n))
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
	if (turns_is_lead(n))
		stage_requeue_running(n, failed, fx);
}

// pump_exchange goes on when everybody's contribution is here.
static void pump_exchange(struct node *n, struct node_effects *fx)
{
	struct node_forward *g = n->at;
	uint64_t failed = 0;
	if (!turns_is_waiting(n) || n->group.is_cut)
		return;
	for (int32_t i = 0; i < n->plan.group.n_members; i++) {
		const struct group_part *p = turns_part_now(n, i);
		if (turns_sends_to(n, i, n->plan.group.self, g->exchange) && !p->is_whole)
			return;
		failed |= p->failed & turns_items_mask(n);
	}
	g->failed_there |= failed;
	if (g->exchange == 1 && (failed != 0 || g->has_refused)) {
		n->report.group.n_exchanges++;
		void_forward(n, failed | (g->has_refused ? g->failed : 0), fx);
		return;
	}
	for (int32_t i = 0; i < g->n_items; i++)
		if (turns_is_held(n, g->items[i].slot, g->layer_begin, g->layer_end, g->exchange + 1))
			return;
	n->report.group.n_exchanges++;
	struct node_effect *f = node_fx(fx, NODE_FX_CONTINUE);
	f->u.resume.forward = turns_place(n);
	f->u.resume.id = n->at->id;
	f->u.resume.which = turns_way_here(n);
	g->is_computing = true;
	leave_exchange(n);
	g->exchange++;
}

// ---- the beginning

static void begin(struct node *n, int32_t layer_begin, int32_t layer_end, int32_t n_tokens)
{
	struct node_forward *g = n->at;
	g->forward = ++n->group.n_begun;
	ASSERT(g == turns_place_of(n, g->forward));
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
	f->u.forward.forward = turns_place(n);
	for (int32_t i = 0; i < n->at->n_items; i++)
		f->u.forward.is_behind = f->u.forward.is_behind || turns_older_with(n, n->at->items[i].slot) != NULL;
	f->u.forward.layer_begin = n->at->layer_begin;
	f->u.forward.layer_end = n->at->layer_end;
	f->u.forward.n_items = n->at->n_items;
	f->u.forward.items = n->at->items;
}

void node_group_begin(struct node *n, const struct part_start *s, struct node_effects *fx)
{
	begin(n, s->layer_begin, s->layer_end, s->n_tokens);
	parts_send_start(n, s, fx);
	compute(n, fx);
}

// refuse: items cannot be computed here, and nothing has been exchanged yet. Everybody gives the forward up.
static void refuse(struct node *n, uint64_t failed, struct node_effects *fx)
{
	n->at->failed = failed;
	n->at->has_refused = true;
	parts_send_own(n, fx);
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
		if (turns_is_held(n, (int32_t)g->start.items[i].slot, g->start.layer_begin, g->start.layer_end, 1))
			return false;
	return true;
}

// follow begins what the lead has told, in its order.
static void follow(struct node *n, struct node_effects *fx)
{
	for (n->at = turns_place_of(n, n->group.n_begun + 1); may_follow(n); n->at = turns_place_of(n, n->group.n_begun + 1)) {
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
		n->at = turns_place_of(n, n->group.n_begun + k);
		pump_exchange(n, fx);
	}
	if (!turns_is_lead(n))
		follow(n, fx);
}

// ---- the engine

// check_early looks at what came before the engine had told what this exchange takes.
static void check_early(struct node *n, struct node_effects *fx)
{
	struct node_forward *g = n->at;
	if (g->told.forward != 0 && !split_is_ring(n->plan.group.mode)) { // a ring's lead has ended this one when others have not
		cut(n, "its lead began another forward in the middle of one", fx);
		return;
	}
	for (int32_t i = 0; i < n->plan.group.n_members; i++) {
		const struct group_part *p = turns_part_now(n, i);
		bool is_of_it = p->forward == g->forward && p->exchange == g->exchange;
		if (i != n->plan.group.self && p->forward != 0 && (!is_of_it || !parts_fit(n, i, p))) {
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
	g->failed = ev->u.exchange.failed & turns_items_mask(n);
	check_early(n, fx);
	if (n->group.is_cut)
		return;
	parts_send_own(n, fx);
	pump_exchange(n, fx);
}

// report_items tells the coordinator of what failed here, and returns a bit for each.
static uint64_t report_items(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	uint64_t failed = 0;
	for (int32_t i = 0; i < n->at->n_items; i++) {
		struct session_id session = turns_is_lead(n) ? stage_session_of(n, n->at->items[i].buf) : n->at->sessions[i];
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
	for (int32_t i = 0; i < n->plan.group.n_members * turns_n_ways(n); i++)
		if (n->at->parts[i / turns_n_ways(n)][i % turns_n_ways(n)].forward == n->at->forward)
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
			refuse(n, failed != 0 ? failed : turns_items_mask(n), fx);
		else
			cut(n, "this member could not go on in the middle of a forward", fx);
		return true;
	}
	check_ended(n, fx);
	if (n->group.is_cut || turns_is_lead(n))
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

void node_group_on_part(struct node *n, struct node_link *l, const uint8_t *data, size_t len, struct node_effects *fx)
{
	struct part p;
	if (part_decode(data, len, &p) != OK) {
		node_link_blame(l, "a malformed part", fx);
		return;
	}
	if (p.epoch.v != n->plan.epoch.v || n->group.is_cut)
		return; // of an old plan, or of one not here yet: its sender will be told
	const char *fault = parts_place_fault(n, &p);
	if (fault == NULL && !parts_is_from(n, l, p.src)) {
		node_link_ignore(l, "a part, and is not the member whose it is", fx);
		return;
	}
	n->at = turns_place_of(n, p.forward);
	if (fault == NULL)
		fault = parts_take(n, &p, data, fx);
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
		for (int32_t k = 0; k < turns_n_ways(n); k++) {
			const struct group_part *p = &g->parts[i][k];
			ASSERT(p->forward == 0 || (i < n->plan.group.n_members && i != n->plan.group.self));
			ASSERT(p->got <= p->total && p->total <= n->group.part_bytes);
			ASSERT(p->forward == 0 || p->forward == g->forward || p->forward == turns_next_number(n, g));
		}
		// What the engine reads while it computes is not written. Cut while it waited, a member keeps what came early until the next plan.
		bool is_read = g->is_computing || (g->id == 0 && !n->group.is_cut);
		int32_t read = turns_way_read(n, g);
		ASSERT(!is_read || read < 0 || g->parts[i][read].forward == 0);
	}
}

void node_group_check(const struct node *n)
{
	for (int32_t k = 0; n->plan.group.n_members > 0 && k < NODE_FORWARDS_MAX; k++)
		check_forward(n, &n->forwards[k]);
}
