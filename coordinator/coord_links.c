// The coordinator's links: which are up, which one is sent on, what the end of one means. See coord_state.h for the rule.
#include "coordinator/coord_state.h"

#include <stdio.h>

enum link_end { LINK_CLOSED, LINK_RESET, LINK_SILENT };

struct coord_link *coord_link_find(struct coordinator *c, uint32_t handle)
{
	struct coord_link *l = &c->links[c->link_places[handle & (LINK_PLACES - 1)]];
	if (handle != 0 && l->handle == handle)
		return l;
	for (int32_t i = 0; i < c->n_links; i++) // its place was taken by a younger one
		if (handle != 0 && c->links[i].handle == handle)
			return &c->links[i];
	return NULL;
}

static struct coord_link *next_of(const struct coordinator *c, int32_t at)
{
	return at >= 0 ? &c->links[at] : NULL;
}

static void add_link(struct coordinator *c, struct coord_link *l)
{
	struct member *m = &c->members[l->member];
	int32_t i = (int32_t)(l - c->links);
	l->next = m->first_link;
	m->first_link = i;
	c->link_places[l->handle & (LINK_PLACES - 1)] = i;
	c->link_bound_ns[i / LINK_BLOCK] = INT64_MIN;
}

static void forget_link(struct coordinator *c, struct coord_link *l)
{
	int32_t i = (int32_t)(l - c->links), *at = &c->members[l->member].first_link;
	while (*at >= 0 && *at != i)
		at = &c->links[*at].next;
	if (*at == i)
		*at = l->next;
	l->handle = 0;
}

struct coord_link *coord_link_of(struct coordinator *c, int32_t member, enum coord_link_kind kind)
{
	struct coord_link *best = NULL;
	for (struct coord_link *l = next_of(c, c->members[member].first_link); l != NULL; l = next_of(c, l->next))
		if (!l->closing && l->kind == kind && (best == NULL || l->order > best->order))
			best = l;
	return best;
}

void coord_link_use(struct coordinator *c, struct coord_link *l)
{
	const struct chain *ch = member_chain(c, l->member);
	l->used = ch != NULL ? ch->plan.epoch : (struct plan_epoch){0};
}

// ---- down

static void note_absent(struct member *m, const char *reason)
{
	prefetch_forget(m);
	m->waits = false;
	m->state = m->state == MEMBER_REFUSED ? MEMBER_REFUSED : MEMBER_ABSENT;
	if (m->state == MEMBER_ABSENT)
		text_copy(m->detail, sizeof m->detail, m->leaving ? "left" : reason);
	m->leaving = false;
	m->told.v = 0;
}

// note_flap counts a loss of a member with a part. One that was healthy for long enough begins to count anew.
static void note_flap(struct coordinator *c, struct member *m)
{
	if (c->now_ns - m->lost_ns > 2 * c->config.liveness.flap_max_ns)
		m->n_flaps = 0;
	m->n_flaps++;
	m->lost_ns = c->now_ns;
}

// end_link forgets a link. Unless it had a successor and nothing on it is lost, the plan that needs its member is.
static void end_link(struct coordinator *c, struct coord_link *l, enum link_end how, const char *reason, struct coord_effects *fx)
{
	struct coord_link gone = *l;
	forget_link(c, l);
	if (gone.kind == COORD_LINK_JOIN)
		return;
	struct coord_link *left = coord_link_of(c, gone.member, gone.kind);
	if (left != NULL)
		left->retired = left->retired && gone.retired;
	struct chain *ch = member_chain(c, gone.member);
	bool was_used = ch != NULL && ch->plan_state != PLAN_NONE && gone.used.v == ch->plan.epoch.v;
	if (gone.retired && (how == LINK_CLOSED || !was_used))
		return;
	struct member *m = &c->members[gone.member];
	bool was_leaving = m->leaving;
	if (gone.kind == COORD_LINK_DATA)
		m->has_data = left != NULL;
	else if (left == NULL)
		note_absent(m, reason);
	if (m->stage >= 0) {
		note_flap(c, m);
		// After silence nobody is waited for: eight seconds were enough.
		ch->grace_ns = how == LINK_SILENT || was_leaving ? 0 : c->now_ns + c->config.liveness.rejoin_ns;
	}
	coord_lose_member(c, gone.member, reason, fx);
	planning_note(c, m, false);
}

void coord_links_on_down(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	struct coord_link *l = coord_link_find(c, ev->u.link_down.link);
	if (l != NULL)
		end_link(c, l, ev->u.link_down.orderly ? LINK_CLOSED : LINK_RESET, ev->u.link_down.reason, fx);
}

void coord_links_end(struct coordinator *c, int32_t member, struct coord_effects *fx)
{
	while (c->members[member].first_link >= 0)
		forget_link(c, &c->links[c->members[member].first_link]);
	coord_fx(fx, COORD_FX_DISCONNECT)->u.disconnect.node = c->members[member].record.id;
}

// ---- up

static void retire(struct coordinator *c, struct coord_link *l, struct coord_effects *fx)
{
	if (l->kind == COORD_LINK_JOIN) { // carries a grant and its acknowledgement: the machine has begun again
		coord_close(fx, l->handle, true);
		forget_link(c, l);
		return;
	}
	l->retired = true;
	l->retired_ns = c->now_ns;
	c->link_bound_ns[(l - c->links) / LINK_BLOCK] = INT64_MIN;
	if (l->kind == COORD_LINK_DATA)
		ring_on_retired(c, l->member);
}

// free_place returns an unused entry. One member has two links of a kind at most: the one before both is given up.
static struct coord_link *free_place(struct coordinator *c, int32_t member, enum coord_link_kind kind, struct coord_effects *fx)
{
	struct coord_link *place = NULL;
	for (int32_t i = 0; i < c->n_links; i++) {
		struct coord_link *l = &c->links[i];
		if (l->handle != 0 && l->retired && l->kind == kind && l->member == member) {
			coord_close(fx, l->handle, true);
			end_link(c, l, LINK_RESET, "it has two successors", fx);
		}
		if (l->handle == 0 && place == NULL)
			place = l;
	}
	return place;
}

void coord_links_on_up(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	int32_t member = member_find(c, ev->u.link_up.peer);
	enum coord_link_kind kind = ev->u.link_up.kind;
	bool is_known = member >= 0 && !c->members[member].pending; // else revoked since its handshake
	struct coord_link *l = is_known ? free_place(c, member, kind, fx) : NULL;
	if (l == NULL) {
		coord_close(fx, ev->u.link_up.link, false);
		return;
	}
	// One that has lost the old link says so with a Hello that holds no plan.
	struct coord_link *old = coord_link_of(c, member, kind);
	if (old != NULL)
		retire(c, old, fx);
	*l = (struct coord_link){.handle = ev->u.link_up.link, .kind = kind, .member = member, .order = ++c->n_links_up};
	add_link(c, l);
	liveness_init(&l->life, &c->config.liveness, c->now_ns);
	struct member *m = &c->members[member];
	switch (kind) {
	case COORD_LINK_JOIN: members_on_join_link(c, l, fx); break;
	case COORD_LINK_DATA:
		link_stats_forget(&m->stats);
		if (!m->has_data)
			planning_note(c, m, m->settle_ns == 0);
		m->has_data = true;
		break;
	case COORD_LINK_CONTROL:
		text_copy(m->remote, sizeof m->remote, ev->u.link_up.remote);
		if (m->state != MEMBER_READY)
			m->state = MEMBER_CONNECTED;
		break;
	}
}

// ---- what is learned of them

void coord_links_on_sent(struct coordinator *c, const struct coord_link *l, uint64_t bytes, struct coord_effects *fx)
{
	struct member *m = &c->members[l->member];
	uint8_t ping[FRAME_PING_BYTES];
	if (m->is_local || !link_stats_sent(&m->stats, bytes, c->now_ns))
		return;
	ping_encode(FRAME_PING, (uint64_t)c->now_ns, ping);
	coord_send_bytes(fx, l->handle, ping, sizeof ping);
}

void coord_links_on_pong(struct coordinator *c, const struct coord_link *l, uint64_t cookie)
{
	struct member *m = &c->members[l->member];
	if (l->kind == COORD_LINK_CONTROL)
		(void)round_trip_measure(&m->rtt, cookie, c->now_ns);
	else if (l->kind == COORD_LINK_DATA && link_stats_ponged(&m->stats, cookie, c->now_ns))
		link_stats_figures(&m->stats, &m->to_node);
}

// ---- time

static void end_retired(struct coord_link *l, struct coord_effects *fx)
{
	l->closing = true;
	coord_close(fx, l->handle, true);
}

static void check_link(struct coordinator *c, struct coord_link *l, struct coord_effects *fx)
{
	uint8_t ping[FRAME_PING_BYTES];
	char text[REASON_CAP];
	switch (liveness_step(&l->life, &c->config.liveness, c->now_ns)) {
	case LIVENESS_FINE: break;
	case LIVENESS_PING:
		if (l->kind == COORD_LINK_JOIN || l->retired)
			break; // the one carries a grant and its acknowledgement, nothing else; the other only what is still on its way
		if (l->kind == COORD_LINK_DATA)
			link_stats_pinged(&c->members[l->member].stats, c->now_ns);
		ping_encode(FRAME_PING, (uint64_t)c->now_ns, ping);
		coord_send_bytes(fx, l->handle, ping, sizeof ping);
		break;
	case LIVENESS_DEAD:
		if (l->retired && liveness_was_well(&l->life, &c->config.liveness, l->retired_ns)) { // what was on its way there has long come
			end_retired(l, fx);
			return;
		}
		snprintf(text, sizeof text, "silent for %lld ms", (long long)(c->config.liveness.dead_after_ns / 1000000));
		coord_close(fx, l->handle, false);
		end_link(c, l, LINK_SILENT, text, fx);
		return;
	}
	if (l->retired && c->now_ns - l->retired_ns >= LINK_RETIRE_NS)
		end_retired(l, fx);
}

// is_watched: one that we have closed ends soon, and its host says so.
static bool is_watched(const struct coordinator *c, const struct coord_link *l)
{
	return l->handle != 0 && !l->closing && !c->members[l->member].is_local;
}

// deadline_of returns when a link is to be looked at; it comes nearer only where that is noted (add_link, retire).
static int64_t deadline_of(const struct coordinator *c, const struct coord_link *l)
{
	if (!is_watched(c, l))
		return INT64_MAX;
	int64_t d = liveness_deadline_ns(&l->life, &c->config.liveness);
	bool is_sooner = l->retired && l->retired_ns + LINK_RETIRE_NS < d;
	return is_sooner ? l->retired_ns + LINK_RETIRE_NS : d;
}

void coord_links_tick(struct coordinator *c, struct coord_effects *fx)
{
	for (int32_t i = 0; i < c->n_links; i++) {
		struct coord_link *l = &c->links[i];
		if (i % LINK_BLOCK == 0 && c->link_bound_ns[i / LINK_BLOCK] > c->now_ns) {
			i += LINK_BLOCK - 1; // nothing of these is due
			continue;
		}
		if (is_watched(c, l))
			check_link(c, l, fx);
	}
}

bool coord_links_is_suspect(const struct coordinator *c, int32_t member)
{
	if (c->members[member].is_local)
		return false;
	for (const struct coord_link *l = next_of(c, c->members[member].first_link); l != NULL; l = next_of(c, l->next))
		if (!l->retired && liveness_is_suspect(&l->life, &c->config.liveness, c->now_ns))
			return true;
	return false;
}

void coord_links_forgive(struct coordinator *c)
{
	for (int32_t i = 0; i < c->n_links; i++)
		if (c->links[i].handle != 0)
			liveness_restart(&c->links[i].life, c->now_ns);
}

int64_t coord_links_deadline_ns(struct coordinator *c)
{
	int64_t first = INT64_MAX;
	for (int32_t b = 0; b * LINK_BLOCK < c->n_links; b++) {
		if (c->link_bound_ns[b] >= first)
			continue;
		int64_t block = INT64_MAX;
		for (int32_t i = b * LINK_BLOCK; i < c->n_links && i < (b + 1) * LINK_BLOCK; i++) {
			int64_t d = deadline_of(c, &c->links[i]);
			block = d < block ? d : block;
		}
		c->link_bound_ns[b] = block;
		first = block < first ? block : first;
	}
	return first;
}
