// The node's links: which are up, which one is sent on, what the end of one means. See node_state.h for the rule.
#include "node/node_state.h"

#include "base/log.h"
#include "proto/lnk1.h"

#define QUIET_NS 5000000000  // without a step: no answer is between two of its tokens

struct node_id node_peer_id(const uint8_t public_key[KEY_BYTES])
{
	struct node_id id;
	lnk1_node_id(public_key, id.b);
	return id;
}

bool node_peer_is(const struct msg_peer *p, struct node_id id)
{
	return p->present && node_id_is(node_peer_id(p->public_key), id);
}

static bool is_plan_peer(const struct node *n, struct node_id id)
{
	bool is_member = false;
	for (int32_t i = 0; i < n->plan.group.n_members; i++)
		is_member = is_member || node_peer_is(&n->plan.group.members[i], id);
	return is_member || node_peer_is(&n->plan.prev, id) || node_peer_is(&n->plan.next, id);
}

struct node_link *node_link_of(struct node *n, struct node_id peer, enum node_link_kind kind)
{
	struct node_link *best = NULL;
	for (size_t i = 0; i < NODE_LINKS_MAX; i++) {
		struct node_link *l = &n->links[i];
		if (l->handle != 0 && !l->closing && l->kind == kind && node_id_is(l->peer, peer) && (best == NULL || l->order > best->order))
			best = l;
	}
	return best;
}

struct node_link *node_link_find(struct node *n, uint32_t handle)
{
	for (size_t i = 0; i < NODE_LINKS_MAX; i++)
		if (n->links[i].handle == handle && handle != 0)
			return &n->links[i];
	return NULL;
}

static struct node_link *direct_link(struct node *n, const struct msg_peer *p)
{
	return p->present ? node_link_of(n, node_peer_id(p->public_key), NODE_LINK_DATA) : NULL;
}

struct node_link *node_next_direct(struct node *n)
{
	return direct_link(n, &n->plan.next);
}

struct node_link *node_prev_direct(struct node *n)
{
	return direct_link(n, &n->plan.prev);
}

void node_link_blame(struct node_link *l, const char *what, struct node_effects *fx)
{
	node_log(fx, LOG_WARNING, "a peer broke the protocol (%s): closing its link", what);
	node_fx_close(fx, l->handle, false);
}

void node_link_ignore(struct node_link *l, const char *what, struct node_effects *fx)
{
	if (!l->has_strayed)
		node_log(fx, LOG_WARNING, "a neighbour sent %s: ignored, and said once", what);
	l->has_strayed = true;
}

// ---- up

static void retire(struct node *n, struct node_link *l)
{
	l->retired = true;
	l->retired_ns = n->now_ns;
	bool takes_steps = node_id_is(l->peer, n->config.coordinator) || node_peer_is(&n->plan.next, l->peer);
	if (l->kind == NODE_LINK_DATA && takes_steps)
		stage_drain(n);
}

// end_link forgets a link whose end says, or may say, that frames of this plan are lost.
static void end_link(struct node *n, struct node_link *l, bool orderly, const char *reason, struct node_effects *fx)
{
	struct node_link gone = *l;
	l->handle = 0;
	struct node_link *left = node_link_of(n, gone.peer, gone.kind);
	if (left != NULL)
		left->retired = left->retired && gone.retired;
	bool was_used = gone.used.v == n->plan.epoch.v || n->plan_ns < gone.retired_ns + LINK_RETIRE_NS;
	if (gone.retired && (orderly || n->plan.epoch.v == 0 || !was_used))
		return;
	if (node_id_is(gone.peer, n->config.coordinator)) {
		node_log(fx, LOG_WARNING, "%s link to the coordinator lost (%s): trying again", gone.kind == NODE_LINK_CONTROL ? "control" : "data", reason);
		node_on_coordinator_lost(n, gone.kind, fx);
	} else if (is_plan_peer(n, gone.peer)) {
		// Either neighbour's: steps were lost with the one, credits with the other, and the far end may never have known it to be up.
		node_log(fx, LOG_WARNING, "a direct link to a neighbour was lost (%s)", reason);
		node_report_next_link(n, true, fx);
	}
}

// free_place returns an unused entry. When there is none, an old link of this kind to this peer is given up.
static struct node_link *free_place(struct node *n, struct node_id peer, enum node_link_kind kind, struct node_effects *fx)
{
	struct node_link *place = NULL, *oldest = NULL;
	for (size_t i = 0; i < NODE_LINKS_MAX && place == NULL; i++) {
		struct node_link *l = &n->links[i];
		if (l->handle == 0)
			place = l;
		else if (l->retired && l->kind == kind && node_id_is(l->peer, peer) && (oldest == NULL || l->order < oldest->order))
			oldest = l;
	}
	if (place != NULL || oldest == NULL)
		return place;
	node_fx_close(fx, oldest->handle, true);
	end_link(n, oldest, false, "it has too many successors", fx);
	return oldest;
}

void node_links_on_up(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	struct node_id peer = ev->u.link_up.peer;
	enum node_link_kind kind = ev->u.link_up.kind;
	bool is_coordinator = node_id_is(peer, n->config.coordinator);
	bool is_wanted = is_coordinator || (kind == NODE_LINK_DATA && is_plan_peer(n, peer));
	struct node_link *l = is_wanted ? free_place(n, peer, kind, fx) : NULL;
	if (l == NULL) {
		node_fx_close(fx, ev->u.link_up.link, true);
		return;
	}
	struct node_link *old = node_link_of(n, peer, kind);
	// A spare one's peer closes it, or uses it until it knows the other one: what comes on it counts, and nothing is sent on it.
	bool is_spare = old != NULL && ev->u.link_up.spare;
	if (old != NULL && !is_spare)
		retire(n, old);
	*l = (struct node_link){.handle = ev->u.link_up.link, .peer = peer, .kind = kind, .up_ns = n->now_ns, .epoch = n->member_epoch,
		.order = is_spare ? 0 : ++n->n_links_up, .retired = is_spare, .retired_ns = is_spare ? n->now_ns : 0};
	liveness_init(&l->life, &n->config.liveness, n->now_ns);
	if (old != NULL)
		l->stats = old->stats;
	link_stats_forget(&l->stats);
	if (is_spare)
		return;
	if (is_coordinator && kind == NODE_LINK_CONTROL)
		node_say_hello(n, fx);
	else if (node_peer_is(&n->plan.next, peer))
		node_report_next_link(n, false, fx);
}

void node_links_on_sent(struct node *n, struct node_link *l, uint64_t bytes, struct node_effects *fx)
{
	uint8_t ping[FRAME_PING_BYTES];
	if (n->config.local || !link_stats_sent(&l->stats, bytes, n->now_ns))
		return;
	ping_encode(FRAME_PING, (uint64_t)n->now_ns, ping);
	node_fx_send(fx, l->handle, ping, sizeof ping);
}

// ---- down

void node_links_on_down(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	struct node_link *l = node_link_find(n, ev->u.link_down.link);
	if (l != NULL)
		end_link(n, l, ev->u.link_down.orderly, ev->u.link_down.reason, fx);
}

void node_links_forget(struct node *n, struct node_id peer)
{
	for (size_t i = 0; i < NODE_LINKS_MAX; i++)
		if (n->links[i].handle != 0 && node_id_is(n->links[i].peer, peer))
			n->links[i].handle = 0;
}

// ---- time

// A link is made anew when nothing is on its way: then the hop has nothing to wait for.
bool node_links_has_calm(const struct node *n)
{
	bool has_out = false;
	for (int32_t i = 0; i < ROUNDS_MAX; i++)
		has_out = has_out || n->rounds[i].out.n > 0;
	return !stage_has_forward(n) && n->queue.n == 0 && !has_out && n->now_ns - n->last_step_ns >= QUIET_NS;
}

int64_t node_links_calm_ns(const struct node *n)
{
	return n->last_step_ns + QUIET_NS;
}

static void renew_or_close(struct node *n, struct node_link *l, struct node_effects *fx)
{
	if (l->retired) {
		if (n->now_ns - l->retired_ns >= LINK_RETIRE_NS) {
			l->closing = true;
			node_fx_close(fx, l->handle, true);
		}
		return;
	}
	bool is_old = n->now_ns - l->up_ns >= n->config.link_age_ns || l->epoch.v < n->member_epoch.v;
	if (l->refreshing || !is_old || !node_links_has_calm(n))
		return;
	l->refreshing = true;
	struct node_effect *f = node_fx(fx, NODE_FX_REFRESH);
	f->u.connect.peer = l->peer;
	f->u.connect.kind = l->kind;
}

// is_watched: one that we have closed ends soon, and its host says so.
static bool is_watched(const struct node_link *l)
{
	return l->handle != 0 && !l->closing;
}

static void check_link(struct node *n, struct node_link *l, struct node_effects *fx)
{
	uint8_t ping[FRAME_PING_BYTES];
	bool was_well = l->retired && liveness_was_well(&l->life, &n->config.liveness, l->retired_ns);
	switch (liveness_step(&l->life, &n->config.liveness, n->now_ns)) {
	case LIVENESS_FINE: break;
	case LIVENESS_PING:
		if (l->retired)
			break; // only what is still on its way comes there
		link_stats_pinged(&l->stats, n->now_ns);
		ping_encode(FRAME_PING, (uint64_t)n->now_ns, ping);
		node_fx_send(fx, l->handle, ping, sizeof ping);
		break;
	case LIVENESS_DEAD:
		liveness_init(&l->life, &n->config.liveness, n->now_ns); // once: the LINK_DOWN follows
		l->closing = l->retired;
		node_fx_close(fx, l->handle, was_well); // one that has a successor ends in order: what was on its way there has long come
		return;
	}
	renew_or_close(n, l, fx);
}

void node_links_tick(struct node *n, struct node_effects *fx)
{
	for (size_t i = 0; i < NODE_LINKS_MAX; i++)
		if (is_watched(&n->links[i]))
			check_link(n, &n->links[i], fx);
}

void node_links_forgive(struct node *n)
{
	for (size_t i = 0; i < NODE_LINKS_MAX; i++)
		if (n->links[i].handle != 0)
			liveness_restart(&n->links[i].life, n->now_ns);
}

int64_t node_links_deadline_ns(const struct node *n)
{
	int64_t deadline = INT64_MAX;
	for (size_t i = 0; i < NODE_LINKS_MAX; i++) {
		const struct node_link *l = &n->links[i];
		if (!is_watched(l))
			continue;
		int64_t d = liveness_deadline_ns(&l->life, &n->config.liveness);
		if (l->retired && l->retired_ns + LINK_RETIRE_NS < d)
			d = l->retired_ns + LINK_RETIRE_NS;
		if (d < deadline)
			deadline = d;
	}
	return deadline;
}
