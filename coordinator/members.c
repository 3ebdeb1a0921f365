// Members: invites, joins, hellos, revocations. What matters after a crash is on disk before anybody is told.
#include "coordinator/coord_state.h"

#include "base/assert.h"
#include "base/log.h"

#include <stdio.h>

#define INVITE_FAILURES_MAX 5
#define WALL_S_MAX (INT64_C(1) << 32) // seconds a deadline may lie ahead: what is later needs none

int32_t member_find(const struct coordinator *c, struct node_id id)
{
	for (int32_t i = 0; i < c->n_members; i++)
		if (c->members[i].used && node_id_is(c->members[i].record.id, id))
			return i;
	return -1;
}

struct chain *member_chain(const struct coordinator *c, int32_t member)
{
	int32_t i = c->members[member].chain;
	return i >= 0 ? &c->chains[i] : NULL;
}

int32_t member_of_stage(const struct coordinator *c, const struct chain *ch, int32_t stage)
{
	int32_t m = ch->members[stage];
	bool is_same = c->members[m].used && node_id_is(c->members[m].record.id, plan_lead(&ch->plan.stages[stage]));
	return is_same ? m : member_find(c, plan_lead(&ch->plan.stages[stage])); // revoked, and perhaps back in another place
}

int32_t member_of_seat(const struct coordinator *c, const struct chain *ch, struct plan_seat at)
{
	return at.place == 0 ? member_of_stage(c, ch, at.stage) : member_find(c, plan_node(&ch->plan, at));
}

bool member_is_eligible(const struct member *m)
{
	return m->used && !m->pending && m->state == MEMBER_READY && m->has_data && !m->leaving && !m->drained && m->retry_ns == 0;
}

static void set_member(const struct coordinator *c, struct member *m, const struct member_record *r)
{
	*m = (struct member){.used = true, .record = *r, .chain = c->is_single ? 0 : -1, .stage = -1, .first_link = -1};
	text_copy(m->hello.name, sizeof m->hello.name, r->name);
	planning_init_member(m);
}

void members_restore(struct coordinator *c, const struct coord_event *ev)
{
	c->member_epoch = ev->u.restored.member_epoch;
	for (int32_t i = 0; i < ev->u.restored.n_members && 1 + i < c->n_members; i++)
		set_member(c, &c->members[1 + i], &ev->u.restored.members[i]);
	for (int32_t i = 0; i < ev->u.restored.n_invites && i < INVITES_MAX; i++) {
		c->invites[i] = ev->u.restored.invites[i];
		c->invite_used[i] = true;
		c->invite_on_disk[i] = true;
	}
}

// ---- the store

static struct store_wait *store(struct coordinator *c, enum coord_store_op op, enum store_for what, struct coord_effects *fx, struct coord_effect **f)
{
	struct store_wait *w = NULL;
	for (int32_t i = 0; w == NULL && i < STORES_MAX; i++)
		if (c->stores[i].id == 0)
			w = &c->stores[i];
	if (w == NULL)
		return NULL; // a disk that does not keep up: the caller refuses
	*w = (struct store_wait){.id = ++c->next_id, .what = what};
	*f = coord_fx(fx, COORD_FX_STORE);
	(*f)->u.store.id = w->id;
	(*f)->u.store.op = op;
	return w;
}

// is_storing tells whether a write about this member is under way.
static bool is_storing(const struct coordinator *c, enum store_for what, struct node_id node)
{
	for (int32_t i = 0; i < STORES_MAX; i++)
		if (c->stores[i].id != 0 && c->stores[i].what == what && node_id_is(c->stores[i].node, node))
			return true;
	return false;
}

// ---- invites

static int32_t find_invite(const struct coordinator *c, const uint8_t token_id[TOKEN_ID_BYTES])
{
	for (int32_t i = 0; i < INVITES_MAX; i++)
		if (c->invite_used[i] && memcmp(c->invites[i].token_id, token_id, TOKEN_ID_BYTES) == 0)
			return i;
	return -1;
}

static void wipe_invite(struct coordinator *c, int32_t i)
{
	c->invite_used[i] = false;
	memset(&c->invites[i], 0, sizeof c->invites[i]);
}

// forget_invite takes it out of memory at once and off the disk when it can.
static void forget_invite(struct coordinator *c, int32_t i, struct coord_effects *fx)
{
	struct coord_effect *f;
	if (store(c, STORE_INVITE_DELETE, STORE_FOR_NOBODY, fx, &f) != NULL)
		memcpy(f->u.store.invite.token_id, c->invites[i].token_id, TOKEN_ID_BYTES);
	wipe_invite(c, i);
}

void members_expire(struct coordinator *c, struct coord_effects *fx)
{
	for (int32_t i = 0; i < INVITES_MAX; i++)
		if (c->invite_used[i] && c->wall_s > c->invites[i].expires_s)
			forget_invite(c, i, fx);
}

int64_t members_deadline_ns(const struct coordinator *c)
{
	int64_t left_s = INT64_MAX;
	for (int32_t i = 0; i < INVITES_MAX; i++) {
		if (c->invite_used[i] && c->invites[i].expires_s < c->wall_s)
			return c->now_ns;
		if (c->invite_used[i] && c->invites[i].expires_s - c->wall_s < left_s)
			left_s = c->invites[i].expires_s - c->wall_s;
	}
	// An invite stands to the end of its last second.
	return left_s > WALL_S_MAX ? INT64_MAX : c->now_ns + (left_s + 1) * INT64_C(1000000000);
}

bool coordinator_find_token(const struct coordinator *c, const uint8_t token_id[TOKEN_ID_BYTES], int64_t wall_s, uint8_t secret[KEY_BYTES])
{
	int32_t i = find_invite(c, token_id);
	if (i < 0 || !c->invite_on_disk[i] || wall_s > c->invites[i].expires_s)
		return false;
	memcpy(secret, c->invites[i].secret, KEY_BYTES);
	return true;
}

void members_on_invite(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	uint64_t ticket = ev->u.invite.ticket;
	int32_t i = 0;
	while (i < INVITES_MAX && c->invite_used[i])
		i++;
	if (i == INVITES_MAX) {
		coord_answer(fx, ticket, ERR_LIMIT, "%d invites are outstanding already: use one, or wait until the oldest expires (ten minutes)", INVITES_MAX);
		return;
	}
	struct coord_effect *f;
	struct store_wait *w = store(c, STORE_INVITE, STORE_FOR_INVITE, fx, &f);
	if (w == NULL) {
		coord_answer(fx, ticket, ERR_BUSY, "the state directory does not keep up: try again");
		return;
	}
	struct invite_record *r = &c->invites[i];
	*r = (struct invite_record){.expires_s = c->wall_s + ev->u.invite.ttl_s};
	memcpy(r->token_id, ev->u.invite.token_id, TOKEN_ID_BYTES);
	memcpy(r->secret, ev->u.invite.secret, KEY_BYTES);
	c->invite_used[i] = true;
	c->invite_on_disk[i] = false;
	w->ticket = ticket;
	memcpy(w->token_id, r->token_id, TOKEN_ID_BYTES);
	f->u.store.invite = *r;
}

static void on_invite_stored(struct coordinator *c, const struct store_wait *w, enum err err, struct coord_effects *fx)
{
	int32_t i = find_invite(c, w->token_id);
	if (i >= 0 && err == OK)
		c->invite_on_disk[i] = true;
	if (i >= 0 && err != OK)
		wipe_invite(c, i);
	coord_answer(fx, w->ticket, err, "%s", err == OK ? "" : "the invite could not be written to the state directory");
}

// ---- joining

static void refuse(uint32_t link, struct coord_effects *fx)
{
	coord_fx(fx, COORD_FX_REFUSE)->u.close.link = link;
}

void members_on_join_failed(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	int32_t i = find_invite(c, ev->u.join_failed.token_id);
	if (i < 0)
		return;
	c->invites[i].n_failures++;
	if (c->invites[i].n_failures >= INVITE_FAILURES_MAX) {
		coord_log(fx, LOG_WARNING, "an invite is void: %d machines failed to prove that they have it", INVITE_FAILURES_MAX);
		forget_invite(c, i, fx);
		return;
	}
	struct coord_effect *f;
	if (store(c, STORE_INVITE, STORE_FOR_NOBODY, fx, &f) != NULL)
		f->u.store.invite = c->invites[i];
}

// name_by_id: what a member is called until it has said its name, and that is on disk.
static void name_by_id(struct member_record *r)
{
	snprintf(r->name, sizeof r->name, "node-%02x%02x%02x%02x", r->id.b[0], r->id.b[1], r->id.b[2], r->id.b[3]);
}

static int32_t new_member(struct coordinator *c, const struct coord_event *ev)
{
	for (int32_t i = 1; i < c->n_members; i++) {
		if (c->members[i].used)
			continue;
		struct member_record r = {.id = ev->u.join.id};
		memcpy(r.public_key, ev->u.join.public_key, KEY_BYTES);
		memcpy(r.psk, ev->u.join.random, KEY_BYTES);
		name_by_id(&r);
		set_member(c, &c->members[i], &r);
		c->members[i].pending = true;
		return i;
	}
	return -1;
}

void members_on_join(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	uint32_t link = ev->u.join.link;
	int32_t inv = find_invite(c, ev->u.join.token_id);
	if (inv < 0 || !c->invite_on_disk[inv] || c->wall_s > c->invites[inv].expires_s || node_id_is(ev->u.join.id, c->config.self)) {
		refuse(link, fx);
		return;
	}
	if (is_storing(c, STORE_FOR_REVOKE, ev->u.join.id)) { // written behind the revocation, the binding would bring the key back
		refuse(link, fx);
		return;
	}
	struct invite_record *r = &c->invites[inv];
	if (r->bound && !node_id_is(r->bound_to, ev->u.join.id)) {
		coord_log(fx, LOG_WARNING, "an invite that serves one machine already was tried by another: refused");
		refuse(link, fx);
		return;
	}
	int32_t m = member_find(c, ev->u.join.id);
	if (m >= 0 && r->bound && !c->members[m].pending) { // it asks again: the same grant
		coord_fx(fx, COORD_FX_ACCEPT)->u.close.link = link;
		return;
	}
	if (m < 0)
		m = new_member(c, ev);
	struct coord_effect *f;
	struct store_wait *w = m >= 0 ? store(c, STORE_BIND, STORE_FOR_JOIN, fx, &f) : NULL;
	if (w == NULL) {
		if (m < 0)
			coord_log(fx, LOG_ERROR, "a machine wants to join, but the cluster has its %d members", c->n_members - 1);
		else if (c->members[m].pending && !is_storing(c, STORE_FOR_JOIN, ev->u.join.id))
			c->members[m].used = false;
		refuse(link, fx);
		return;
	}
	r->bound = true;
	r->bound_to = ev->u.join.id;
	w->link = link;
	w->node = ev->u.join.id;
	memcpy(w->token_id, r->token_id, TOKEN_ID_BYTES);
	f->u.store.member = c->members[m].record;
	f->u.store.invite = *r;
}

static void on_join_stored(struct coordinator *c, const struct store_wait *w, enum err err, struct coord_effects *fx)
{
	int32_t m = member_find(c, w->node), inv = find_invite(c, w->token_id);
	if (err == OK && m >= 0) {
		c->members[m].pending = false;
		coord_fx(fx, COORD_FX_ACCEPT)->u.close.link = w->link;
		return;
	}
	// A machine that came twice has another write under way: what that one says counts.
	bool is_last = !is_storing(c, STORE_FOR_JOIN, w->node);
	if (is_last && m >= 0 && c->members[m].pending)
		c->members[m] = (struct member){.chain = -1, .stage = -1, .first_link = -1};
	c->pauses_changed = true;
	if (is_last && inv >= 0)
		c->invites[inv].bound = false;
	coord_log(fx, LOG_ERROR, "a machine wanted to join, but its membership could not be written to the state directory");
	refuse(w->link, fx);
}

void members_on_join_link(struct coordinator *c, struct coord_link *l, struct coord_effects *fx)
{
	const struct member *mb = &c->members[l->member];
	struct msg m = {.type = MSG_JOIN_GRANT};
	struct msg_join_grant *g = &m.u.join_grant;
	memcpy(g->cluster_id, c->config.cluster_id, CLUSTER_ID_BYTES);
	memcpy(g->psk, mb->record.psk, KEY_BYTES);
	text_copy(g->name, sizeof g->name, mb->record.name);
	g->member_epoch = c->member_epoch;
	g->addresses = c->config.addresses;
	uint8_t frame[MSG_ENCODED_MAX];
	size_t len = msg_encode(&m, frame);
	coord_send_bytes(fx, l->handle, frame, len);
}

// bound_invite returns the invite that serves a member.
static int32_t bound_invite(const struct coordinator *c, struct node_id id)
{
	for (int32_t i = 0; i < INVITES_MAX; i++)
		if (c->invite_used[i] && c->invites[i].bound && node_id_is(c->invites[i].bound_to, id))
			return i;
	return -1;
}

void members_on_join_message(struct coordinator *c, struct coord_link *l, const struct msg *m, struct coord_effects *fx)
{
	int32_t inv = bound_invite(c, c->members[l->member].record.id);
	struct coord_effect *f;
	if (m->type != MSG_JOIN_ACK) {
		coord_close(fx, l->handle, false);
		return;
	}
	coord_log(fx, LOG_INFO, "%s joined the cluster", c->members[l->member].record.name);
	struct store_wait *w = inv >= 0 ? store(c, STORE_INVITE_DELETE, STORE_FOR_ACK, fx, &f) : NULL;
	if (w == NULL) {
		coord_close(fx, l->handle, true);
		return;
	}
	w->link = l->handle;
	memcpy(w->token_id, c->invites[inv].token_id, TOKEN_ID_BYTES);
	memcpy(f->u.store.invite.token_id, w->token_id, TOKEN_ID_BYTES);
}

static void on_ack_stored(struct coordinator *c, const struct store_wait *w, enum err err, struct coord_effects *fx)
{
	int32_t inv = find_invite(c, w->token_id);
	if (err == OK && inv >= 0)
		wipe_invite(c, inv);
	coord_close(fx, w->link, true);
}

// ---- hello

// settle_after: how long one that was lost must be healthy before answers are moved to it.
static int64_t settle_after(const struct liveness_limits *l, int32_t n_flaps)
{
	int64_t t = n_flaps < 2 ? l->settle_ns : l->flap_ns;
	for (int32_t i = 2; i < n_flaps && t < l->flap_max_ns; i++)
		t *= 2;
	return t < l->flap_max_ns ? t : l->flap_max_ns;
}

// keep_name writes what a member calls itself, so that after a restart an operator knows the absent, too.
static void keep_name(struct coordinator *c, struct member *m, struct coord_effects *fx)
{
	struct coord_effect *f;
	if (m->is_local || strcmp(m->record.name, m->hello.name) == 0)
		return;
	struct store_wait *w = store(c, STORE_NAME, STORE_FOR_NAME, fx, &f);
	if (w == NULL)
		return; // its next Hello tries again
	text_copy(m->record.name, sizeof m->record.name, m->hello.name);
	w->node = m->record.id;
	f->u.store.member = m->record;
}

static void on_name_stored(struct coordinator *c, const struct store_wait *w, enum err err, struct coord_effects *fx)
{
	int32_t i = member_find(c, w->node);
	if (err == OK || i < 0)
		return;
	coord_log(fx, LOG_WARNING, "the name of node %s could not be written to the state directory", c->members[i].record.name);
	name_by_id(&c->members[i].record);
}

// wait_for_model: whether it has the same file cannot be told yet.
static void wait_for_model(struct member *m, const struct msg_hello *h)
{
	m->hello = *h;
	m->waits = true;
	text_copy(m->detail, sizeof m->detail, "it waits until this machine has read its model file once");
}

void members_on_model(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	memcpy(c->config.model_hash, ev->u.model.hash, HASH_BYTES);
	c->config.model_unknown = false;
	for (int32_t i = 0; i < c->n_members; i++) {
		struct msg_hello h = c->members[i].hello;
		if (c->members[i].used && c->members[i].waits)
			members_on_hello(c, i, &h, fx);
	}
}

void members_on_hello(struct coordinator *c, int32_t member, const struct msg_hello *h, struct coord_effects *fx)
{
	struct member *m = &c->members[member];
	if (c->config.model_unknown && !m->is_local) {
		wait_for_model(m, h);
		return;
	}
	m->waits = false;
	const struct chain *ch = member_chain(c, member);
	bool has_plan = ch != NULL && (ch->plan_state == PLAN_LOADING || ch->plan_state == PLAN_READY);
	bool keeps_plan = has_plan && m->stage >= 0 && h->epoch.v == ch->plan.epoch.v;
	bool has_model = m->is_local || memcmp(h->model_hash, c->config.model_hash, HASH_BYTES) == 0;
	if (m->stage >= 0 && (!keeps_plan || !has_model))
		coord_lose_member(c, member, has_model ? "it has forgotten its part" : "its model file is another one now", fx);
	m->hello = *h;
	prefetch_on_hello(m, h);
	m->report = (struct msg_node_report){.disk_written = 0}; // its process may be another one
	observed_rate_begin(&m->decode);
	observed_rate_begin(&m->prefill);
	observed_rate_begin(&m->disk);
	if (!h->kept)
		m->kv_epoch.v = 0;
	m->leaving = false;
	m->bye_sent = false;
	m->load_failed = false; // who comes again is tried again; the pause after the next failure goes on growing
	m->retry_ns = 0;
	c->pauses_changed = true;
	m->told.v = 0;
	m->detail[0] = '\0';
	if (!has_model) {
		struct msg out = {.type = MSG_REFUSED};
		text_copy(out.u.refused.reason, REASON_CAP,
			"this machine's model file is not the coordinator's (the hashes differ): copy that one here, or leave --model out to fetch what is needed");
		text_copy(m->detail, sizeof m->detail, "its model file is not the coordinator's");
		m->state = MEMBER_REFUSED;
		coord_send_msg(c, member, &out, fx);
		coord_log(fx, LOG_ERROR, "node %s is refused: its model file is not the coordinator's", h->name);
		return;
	}
	m->state = MEMBER_READY;
	c->has_news = true;
	keep_name(c, m, fx);
	m->settle_ns = keeps_plan || m->n_flaps == 0 ? 0 : c->now_ns + settle_after(&c->config.liveness, m->n_flaps);
	struct msg out = {.type = MSG_WELCOME};
	text_copy(out.u.welcome.name, NAME_CAP, h->name);
	out.u.welcome.member_epoch = c->member_epoch;
	coord_send_msg(c, member, &out, fx);
	if (!keeps_plan) {
		planning_note(c, m, m->settle_ns == 0);
		coord_log(fx, LOG_INFO, "node %s is here (%s, %u threads)", h->name, h->simd, h->n_threads);
	}
}

// ---- revoking

static bool id_has_prefix(struct node_id id, const char *hex)
{
	static const char digits[] = "0123456789abcdef";
	size_t len = strlen(hex);
	if (len < 8 || len > 2 * NODE_ID_BYTES)
		return false;
	for (size_t i = 0; i < len; i++) {
		uint8_t nibble = i % 2 == 0 ? id.b[i / 2] >> 4 : id.b[i / 2] & 15;
		if (hex[i] != digits[nibble])
			return false;
	}
	return true;
}

static int32_t find_named(const struct coordinator *c, const char *who, int32_t *n_found)
{
	int32_t found = -1;
	*n_found = 0;
	for (int32_t i = 0; i < c->n_members; i++) {
		const struct member *m = &c->members[i];
		if (!m->used || m->is_local || m->pending)
			continue;
		if (strcmp(m->hello.name, who) == 0 || strcmp(m->record.name, who) == 0 || id_has_prefix(m->record.id, who)) {
			found = i;
			++*n_found;
		}
	}
	return found;
}

// next_epoch is above what is on disk and what is being written: two revocations at once have two epochs.
static struct member_epoch next_epoch(const struct coordinator *c)
{
	struct member_epoch e = c->member_epoch;
	for (int32_t i = 0; i < STORES_MAX; i++)
		if (c->stores[i].id != 0 && c->stores[i].what == STORE_FOR_REVOKE && c->stores[i].member_epoch.v > e.v)
			e = c->stores[i].member_epoch;
	e.v++;
	return e;
}

// find_or_answer returns the one member an operator means; else it says so, and returns -1.
static int32_t find_or_answer(const struct coordinator *c, uint64_t ticket, const char *who, struct coord_effects *fx)
{
	int32_t n_found, i = find_named(c, who, &n_found);
	if (n_found == 1)
		return i;
	coord_answer(fx, ticket, ERR_NOT_FOUND, n_found == 0 ? "no member is called %s (see hearth status)" :
		"several members are called %s: use the id that hearth status shows", who);
	return -1;
}

void members_on_drain(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	uint64_t ticket = ev->u.revoke.ticket;
	int32_t i = find_or_answer(c, ticket, ev->u.revoke.who, fx);
	if (i < 0)
		return;
	struct member *m = &c->members[i];
	char why[REASON_CAP];
	bool was_drained = m->drained;
	m->drained = !ev->u.revoke.undo;
	if (m->drained && m->stage >= 0 && !planning_is_possible(c, member_chain(c, i), why)) {
		m->drained = was_drained;
		coord_answer(fx, ticket, ERR_STATE, "nobody could take its layers: %s", why);
		return;
	}
	if (m->drained != was_drained)
		planning_note(c, m, m->stage >= 0 || member_is_eligible(m));
	coord_log(fx, LOG_INFO, "node %s %s", m->hello.name, m->drained ? "shall hold no layers" : "may hold layers again");
	coord_answer(fx, ticket, OK, "%s", m->hello.name);
}

void members_on_revoke(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	uint64_t ticket = ev->u.revoke.ticket;
	int32_t i = find_or_answer(c, ticket, ev->u.revoke.who, fx);
	if (i < 0)
		return;
	struct coord_effect *f;
	struct store_wait *w = store(c, STORE_REVOKE, STORE_FOR_REVOKE, fx, &f);
	if (w == NULL) {
		coord_answer(fx, ticket, ERR_BUSY, "the state directory does not keep up: try again");
		return;
	}
	w->ticket = ticket;
	w->node = c->members[i].record.id;
	w->member_epoch = next_epoch(c);
	f->u.store.member = c->members[i].record;
	f->u.store.member_epoch = w->member_epoch;
}

static void on_revoke_stored(struct coordinator *c, const struct store_wait *w, enum err err, struct coord_effects *fx)
{
	int32_t i = member_find(c, w->node);
	if (err != OK) {
		coord_answer(fx, w->ticket, err, "the revocation could not be written to the state directory: the node is still a member");
		return;
	}
	if (w->member_epoch.v > c->member_epoch.v)
		c->member_epoch = w->member_epoch;
	planning_note(c, i >= 0 ? &c->members[i] : NULL, false); // a plan whose keys are still drawn names the node, too
	if (i < 0) {
		coord_answer(fx, w->ticket, OK, "%s", "");
		return;
	}
	coord_lose_member(c, i, "it was revoked", fx);
	coord_links_end(c, i, fx);
	int32_t inv = bound_invite(c, w->node);
	if (inv >= 0)
		wipe_invite(c, inv);
	pairs_forget(c, w->node);
	member_figures_forget(c, w->node);
	memset(&c->members[i], 0, sizeof c->members[i]);
	c->members[i].chain = c->members[i].stage = c->members[i].first_link = -1;
	c->pauses_changed = true;

	struct msg m = {.type = MSG_REVOKED};
	m.u.revoked.member_epoch = c->member_epoch;
	m.u.revoked.node = w->node;
	for (int32_t k = 0; k < c->n_members; k++)
		if (c->members[k].used)
			coord_send_msg(c, k, &m, fx);
	coord_answer(fx, w->ticket, OK, "%s", "");
}

void members_on_stored(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	for (int32_t i = 0; i < STORES_MAX; i++) {
		struct store_wait w = c->stores[i];
		if (w.id == 0 || w.id != ev->u.stored.id)
			continue;
		c->stores[i].id = 0;
		switch (w.what) {
		case STORE_FOR_NOBODY: break;
		case STORE_FOR_INVITE: on_invite_stored(c, &w, ev->u.stored.err, fx); break;
		case STORE_FOR_JOIN: on_join_stored(c, &w, ev->u.stored.err, fx); break;
		case STORE_FOR_ACK: on_ack_stored(c, &w, ev->u.stored.err, fx); break;
		case STORE_FOR_NAME: on_name_stored(c, &w, ev->u.stored.err, fx); break;
		case STORE_FOR_REVOKE: on_revoke_stored(c, &w, ev->u.stored.err, fx); break;
		}
		return;
	}
}
