// Plans: who runs which layers, from "somebody came or went" to "every stage is ready".
#include "coordinator/coord_state.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/log.h"

#include <stdio.h>

// The pause before a plan counts again on a member that could not load its part: memory may be free again, a disk be back. Each failure
// costs the others a load, so that it grows to minutes.
static const struct backoff_limits load_backoff = {.first_ns = 5 * INT64_C(1000000000), .max_ns = 300 * INT64_C(1000000000)};

void planning_init_member(struct member *m)
{
	backoff_init(&m->backoff, &load_backoff, load_u64(m->record.id.b));
}

int32_t planning_next(const struct plan *p, int32_t stage)
{
	if (stage + 1 < p->n_stages)
		return stage + 1;
	return p->n_rounds > 1 ? 0 : -1;
}

bool planning_is_between_machines(const struct coordinator *c, const struct chain *ch, int32_t stage)
{
	int32_t next = planning_next(&ch->plan, stage);
	return next >= 0 && !c->members[member_of_stage(c, ch, stage)].is_local && !c->members[member_of_stage(c, ch, next)].is_local;
}

// ---- choosing

// add_failure says which member would be there if it could load its part.
static void add_failure(const struct coordinator *c, char why[REASON_CAP])
{
	size_t len = strlen(why);
	for (int32_t i = 0; i < c->n_members; i++) {
		const struct member *m = &c->members[i];
		if (!m->used || m->state != MEMBER_READY || m->retry_ns == 0)
			continue;
		snprintf(why + len, REASON_CAP - len, "; node %s cannot load its layers and is tried again: %s", m->hello.name,
			m->detail);
		return;
	}
}

bool planning_say_missing(const struct coordinator *c, char why[REASON_CAP], const char *what, int32_t have, int32_t want)
{
	snprintf(why, REASON_CAP, "%d of %d %s are here", have, want, what);
	add_failure(c, why);
	return false;
}

// repair changes the lost plan as little as can be: answers wait for it. False when there is none to change.
static bool repair(const struct chain *ch, const struct node_id *nodes, int32_t n, struct plan *out)
{
	struct plan_alive alive = {.is = {{false}}};
	bool taken[2 * STAGES_MAX] = {false};
	struct node_id spares[2 * STAGES_MAX];
	int32_t n_spares = 0;
	for (int32_t i = 0; i < ch->plan.n_stages; i++) {
		for (int32_t k = 0; k < n; k++) {
			int32_t place = plan_group_find(&ch->plan.stages[i].who, nodes[k]);
			if (place >= 0)
				alive.is[i][place] = taken[k] = true;
		}
	}
	for (int32_t k = 0; k < n; k++)
		if (!taken[k])
			spares[n_spares++] = nodes[k];
	return plan_repair(&ch->plan, &alive, spares, n_spares, out) == OK;
}

// What a chain would have next.
struct choice {
	struct plan plan;
	struct plan base; // of a placement
	bool is_repair;
	bool must_ask; // the solver first
	struct candidates who;
};

void planning_find_candidates(const struct coordinator *c, const struct chain *ch, struct candidates *out)
{
	bool is_running = ch->plan_state == PLAN_READY;
	out->n = 0;
	for (int32_t i = 0; i < c->n_members && out->n < STAGES_MAX; i++) {
		const struct member *m = &c->members[i];
		if (m->chain != ch->index || !member_is_eligible(m) || (is_running && m->stage < 0 && m->settle_ns != 0))
			continue;
		out->names[out->n] = m->hello.name;
		out->nodes[out->n++] = m->record.id;
	}
}

bool planning_is_somebody(const struct coordinator *c, const struct chain *ch, int32_t n, char why[REASON_CAP])
{
	if (!placement_is_enough(c, why))
		return false;
	if (!c->is_single && !c->is_dealt)
		return planning_say_missing(c, why, "machines that --replicas needs", placement_n_spares(c), c->n_chains);
	if (n > 0)
		return true;
	if (!c->is_single)
		snprintf(why, REASON_CAP, "none of the machines of chain %d is here", ch->index);
	else
		text_copy(why, REASON_CAP,
			c->config.has_local_node ? "the node on this machine is not ready" : "no node has joined, and this machine holds no layers (--no-node)");
	add_failure(c, why);
	return false;
}

// choose_repair: answers wait, and what is left of their plan can go on. With a given split only a spare may take a gap: nobody's share changes.
static bool choose_repair(const struct coordinator *c, const struct chain *ch, const struct candidates *who, struct plan *out)
{
	struct node_id nodes[2 * STAGES_MAX];
	if (sessions_count_active(c, ch) == 0 || ch->plan_moves)
		return false;
	memcpy(nodes, who->nodes, (size_t)who->n * sizeof nodes[0]);
	int32_t n_spares = c->is_single ? 0 : placement_spares(c, ch, nodes + who->n, STAGES_MAX);
	return repair(ch, nodes, who->n + n_spares, out) && (c->config.n_split == 0 || out->n_stages == c->config.n_split);
}

bool planning_split(const struct coordinator *c, const struct candidates *who, struct plan *out, char why[REASON_CAP])
{
	struct plan_want want = {.nodes = who->nodes, .n = who->n, .n_layers = c->config.n_layers, .n_rounds = c->config.n_rounds};
	struct errmsg em;
	if (c->config.n_split == 0) {
		plan_even(&want, out);
		return true;
	}
	if (who->n < c->config.n_split)
		return planning_say_missing(c, why, "stages of --split", who->n, c->config.n_split);
	want.n = c->config.n_split;
	want.stream_shares = c->config.split_streams;
	if (plan_given(&want, who->names, c->config.split, out, &em) != OK) {
		text_copy(why, REASON_CAP, em.text);
		return false;
	}
	return true;
}

// choose_best fills `out` as if every block were everywhere.
static bool choose_best(const struct coordinator *c, const struct chain *ch, struct choice *out, char why[REASON_CAP])
{
	out->is_repair = choose_repair(c, ch, &out->who, &out->plan);
	if (out->is_repair)
		return true;
	if (prefetch_is_due(c, ch)) {
		out->plan = ch->prospect;
		return true;
	}
	if (c->config.n_split == 0) {
		enum proposal_verdict verdict = proposals_choose(c, ch, &out->who, &out->plan);
		out->must_ask = verdict == PROPOSAL_ASK;
		if (verdict != PROPOSAL_UNKNOWN)
			return true;
	}
	return planning_split(c, &out->who, &out->plan, why);
}

// choose_own fills `out` from who is here of the chain; false when that is not enough, and `why` says so.
static bool choose_own(const struct coordinator *c, const struct chain *ch, struct choice *out, char why[REASON_CAP])
{
	struct candidates *who = &out->who;
	planning_find_candidates(c, ch, who);
	if (!planning_is_somebody(c, ch, who->n, why) || !choose_best(c, ch, out, why))
		return false;
	if (out->must_ask || prefetch_is_here(c, &out->plan))
		return true;
	struct plan present;
	if (!prefetch_choose(c, ch, who, &present))
		return true; // nobody else can hold those layers: they are waited for
	out->is_repair = ch->plan_repaired && planning_same_stages(&present, &ch->plan);
	out->plan = present;
	return true;
}

// choose_placed: like choose_own, with a layout that an operator gave.
static bool choose_placed(const struct coordinator *c, const struct chain *ch, struct choice *out, char why[REASON_CAP])
{
	struct choice now;
	if (!placement_choose(c, ch, false, &out->plan, &out->base, why))
		return false;
	if (ch->base.n_stages == 0 || prefetch_is_here(c, &out->plan))
		return true;
	if (prefetch_can_keep(c, ch)) {
		out->plan = ch->plan;
		out->base = ch->base;
	} else if (placement_choose(c, ch, true, &now.plan, &now.base, why) && prefetch_is_here(c, &now.plan)) {
		out->plan = now.plan;
		out->base = now.base;
	}
	return true;
}

static bool choose(const struct coordinator *c, const struct chain *ch, struct choice *out, char why[REASON_CAP])
{
	out->is_repair = out->must_ask = false;
	if (c->config.placement != NULL)
		return choose_placed(c, ch, out, why);
	return choose_own(c, ch, out, why);
}

bool planning_is_possible(const struct coordinator *c, const struct chain *ch, char why[REASON_CAP])
{
	struct choice next;
	return choose(c, ch, &next, why);
}

bool planning_same_stages(const struct plan *a, const struct plan *b)
{
	bool is_same = a->n_stages == b->n_stages && a->n_rounds == b->n_rounds;
	for (int32_t i = 0; is_same && i < a->n_stages; i++)
		is_same = plan_same_part(&a->stages[i], &b->stages[i]);
	return is_same;
}

bool planning_same_streams(const struct plan *a, const struct plan *b)
{
	bool is_same = planning_same_stages(a, b);
	for (int32_t i = 0; is_same && i < a->n_stages; i++)
		is_same = a->stages[i].stream_share == b->stages[i].stream_share;
	return is_same;
}

void planning_drop(struct coordinator *c, struct chain *ch, struct coord_effects *fx)
{
	bool was_ready = ch->plan_state == PLAN_READY;
	ch->plan_state = PLAN_NONE;
	ch->plan_dirty = true;
	c->has_news = true;
	if (was_ready)
		sessions_halt(c, ch, fx);
	for (int32_t i = 0; i < c->n_members; i++)
		if (c->members[i].chain == ch->index)
			c->members[i].stage = -1;
}

void planning_note(struct coordinator *c, const struct member *m, bool is_news)
{
	c->has_news = true;
	for (int32_t i = 0; i < c->n_chains; i++) {
		struct chain *ch = &c->chains[i];
		bool is_own = m != NULL && m->chain == i, is_new = (is_own && is_news) || ((is_own || m == NULL) && ch->plan_state != PLAN_READY);
		// Who stands by is news to a chain that has nobody for some layers, and none to one that loads: that would begin again.
		bool is_missed = m != NULL && m->chain < 0 &&
			(ch->plan_state == PLAN_NONE || (ch->plan_state == PLAN_READY && plan_n_nodes(&ch->plan) < plan_n_nodes(&ch->base)));
		ch->plan_dirty = ch->plan_dirty || is_new || is_missed;
	}
}

// say_bye lets go who wanted to leave and is not needed any more.
static void say_bye(struct coordinator *c, struct coord_effects *fx)
{
	struct msg m = {.type = MSG_BYE};
	for (int32_t i = 0; i < c->n_members; i++) {
		struct member *mb = &c->members[i];
		const struct chain *ch = member_chain(c, i);
		if (!mb->used || !mb->leaving || mb->bye_sent || (ch != NULL && ch->plan_state != PLAN_NONE && mb->stage >= 0))
			continue;
		mb->bye_sent = true;
		coord_send_msg(c, i, &m, fx);
	}
}

// is_starting: the node on this machine has not said Hello yet. That takes a moment, and is nothing to warn of.
static bool is_starting(const struct coordinator *c, const struct chain *ch)
{
	bool is_ours = c->members[0].chain == ch->index || c->members[0].chain < 0;
	return c->config.has_local_node && is_ours && !c->had_plan && c->members[0].state != MEMBER_READY;
}

// is_said: this chain waits for that already, or an earlier one does.
static bool is_said(const struct coordinator *c, const struct chain *ch, const char *why)
{
	for (int32_t i = 0; i <= ch->index; i++)
		if ((i == ch->index || c->chains[i].plan_state == PLAN_NONE) && strcmp(c->chains[i].waiting_for, why) == 0)
			return true;
	return false;
}

static void make_plan(struct coordinator *c, struct chain *ch, struct coord_effects *fx)
{
	struct choice next;
	char why[REASON_CAP];
	ch->plan_dirty = false;
	if (!choose(c, ch, &next, why)) {
		planning_drop(c, ch, fx);
		ch->plan_dirty = false;
		if (is_starting(c, ch))
			text_copy(why, sizeof why, "the node on this machine is starting");
		else if (!is_said(c, ch, why))
			coord_log(fx, LOG_WARNING, "no plan: %s", why);
		text_copy(ch->waiting_for, sizeof ch->waiting_for, why);
		return;
	}
	if (next.must_ask) {
		ch->plan_dirty = true;
		if (ch->plan_state == PLAN_NONE)
			text_copy(ch->waiting_for, sizeof ch->waiting_for, "the best plan is being worked out");
		proposals_ask(c, ch, &next.who, true, fx);
		return;
	}
	ch->prospect_moves = ch->prospect_moves || ch->plan_moves;
	ch->plan_moves = false;
	if (!next.is_repair)
		ch->proposal.is_wanted = false;
	if (ch->plan_state != PLAN_NONE && planning_same_stages(&next.plan, &ch->plan)) {
		ch->plan_repaired = ch->plan_repaired && ch->plan_state != PLAN_READY;
		return;
	}
	planning_drop(c, ch, fx);
	ch->plan_dirty = false;
	next.plan.epoch.v = ++c->last_epoch;
	ASSERT(plan_check(&next.plan) == OK);
	ch->plan = next.plan;
	if (c->config.placement != NULL)
		ch->base = next.base;
	for (int32_t i = 0; i < ch->plan.n_stages; i++)
		ch->members[i] = member_find(c, plan_lead(&ch->plan.stages[i]));
	ch->plan_repaired = next.is_repair;
	ch->plan_state = PLAN_KEYS;
	placement_on_plan(c, ch);
}

// ---- when

// may_come_back: somebody of the lost plan was lost by a reset a moment ago. With it nothing need be loaded anew.
static bool may_come_back(const struct coordinator *c, const struct chain *ch)
{
	for (struct plan_seat s = {0}; c->now_ns < ch->grace_ns && plan_has_seat(&ch->plan, s); s = plan_seat_after(&ch->plan, s)) {
		int32_t k = member_of_seat(c, ch, s);
		if (k >= 0 && !member_is_eligible(&c->members[k]) && !c->members[k].leaving && !c->members[k].drained && !c->members[k].load_failed)
			return true;
	}
	return false;
}

static bool somebody_leaves(const struct coordinator *c, const struct chain *ch)
{
	for (struct plan_seat s = {0}; plan_has_seat(&ch->plan, s); s = plan_seat_after(&ch->plan, s)) {
		int32_t k = member_of_seat(c, ch, s);
		if (k >= 0 && (c->members[k].leaving || c->members[k].drained))
			return true;
	}
	return false;
}

static bool should_plan(const struct coordinator *c, const struct chain *ch)
{
	if (!ch->plan_dirty && !ch->plan_repaired)
		return false;
	bool is_idle = sessions_count_active(c, ch) == 0;
	if (ch->plan_state == PLAN_READY && ch->plan_repaired && is_idle)
		return true;
	if (!ch->plan_dirty)
		return false;
	if (ch->plan_state == PLAN_NONE)
		return !may_come_back(c, ch);
	if (ch->plan_state != PLAN_READY || is_idle || ch->plan_moves)
		return true;
	// A newcomer waits for the answers under way. Who leaves does not, as long as the others can go on: to move costs less than to wait. To fetch does
	// not: until they have the blocks it stays.
	char why[REASON_CAP];
	struct choice next;
	return somebody_leaves(c, ch) && choose(c, ch, &next, why) && (next.must_ask || prefetch_is_here(c, &next.plan));
}

static void send_all(struct coordinator *c, struct chain *ch, struct coord_effects *fx)
{
	ch->plan_state = PLAN_LOADING;
	c->has_news = true;
	ring_reset(c, ch);
	for (struct plan_seat s = {0}; plan_has_seat(&ch->plan, s); s = plan_seat_after(&ch->plan, s))
		briefing_send(c, ch, s, fx);
	snprintf(ch->waiting_for, sizeof ch->waiting_for, "the nodes are loading their layers");
}

static void pump_chain(struct coordinator *c, struct chain *ch, struct coord_effects *fx)
{
	if (should_plan(c, ch))
		make_plan(c, ch, fx);
	if (ch->plan_state == PLAN_KEYS) {
		struct pair missing;
		if (!pairs_missing(c, ch, &missing)) {
			send_all(c, ch, fx);
		} else if (!c->random_asked) {
			c->random_asked = true;
			coord_fx(fx, COORD_FX_NEED_RANDOM);
		}
	}
}

void planning_pump(struct coordinator *c, struct coord_effects *fx)
{
	bool is_due = c->has_news;
	for (int32_t i = 0; i < c->n_chains; i++)
		is_due = is_due || c->chains[i].plan_dirty;
	for (int pass = 0; pass < (c->is_single ? 1 : 2); pass++) { // who is free after the first one may be missed elsewhere
		if (is_due)
			placement_update(c);
		if (is_due)
			prefetch_renew(c, fx);
		for (int32_t i = 0; i < c->n_chains; i++)
			pump_chain(c, &c->chains[i], fx);
	}
	if (!c->has_news)
		return;
	prefetch_ask(c, fx);
	briefing_tell_outsiders(c, fx);
	say_bye(c, fx);
	c->has_news = false;
}

void planning_on_random(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	c->random_asked = false;
	for (int32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = &c->chains[i];
		struct pair missing;
		struct pair *p = ch->plan_state == PLAN_KEYS && pairs_missing(c, ch, &missing) ? pairs_free(c) : NULL;
		if (p == NULL)
			continue;
		*p = (struct pair){.a = missing.a, .b = missing.b, .used = true};
		memcpy(p->psk, ev->u.random.bytes, KEY_BYTES);
		planning_pump(c, fx);
		return;
	}
}

void planning_retry(struct coordinator *c)
{
	bool is_late = c->enough_ns > 0 && placement_deadline_ns(c) == INT64_MAX; // who is not there by now is not waited for
	for (int32_t k = 0; is_late && k < c->n_chains; k++)
		c->chains[k].plan_dirty = c->chains[k].plan_dirty || (c->chains[k].base.n_stages == 0 && c->chains[k].plan_state == PLAN_NONE);
	bool is_due = c->pauses_changed || c->now_ns >= c->pause_deadline_ns;
	c->pauses_changed = c->pauses_changed || is_due;
	for (int32_t i = 0; is_due && i < c->n_members; i++) {
		struct member *m = &c->members[i];
		if (m->settle_ns != 0 && c->now_ns >= m->settle_ns) {
			m->settle_ns = 0;
			if (member_is_eligible(m))
				planning_note(c, m, true);
		}
		(void)prefetch_retry(c, m);
		if (m->retry_ns == 0 || c->now_ns < m->retry_ns)
			continue;
		m->retry_ns = 0;
		for (int32_t k = 0; k < c->n_chains; k++) {
			struct chain *ch = &c->chains[k];
			ch->plan_dirty = ch->plan_dirty || ((m->chain < 0 || m->chain == k) && ch->plan_state == PLAN_NONE);
		}
	}
}

static int64_t first_pause_ns(const struct coordinator *c)
{
	int64_t first = INT64_MAX;
	for (int32_t i = 0; i < c->n_members; i++) {
		const struct member *m = &c->members[i];
		if (m->retry_ns != 0 && m->retry_ns < first)
			first = m->retry_ns;
		if (m->settle_ns != 0 && m->settle_ns < first)
			first = m->settle_ns;
		if (m->ask_again_ns != 0 && m->ask_again_ns < first)
			first = m->ask_again_ns;
	}
	return first;
}

int64_t planning_deadline_ns(struct coordinator *c)
{
	int64_t deadline = placement_deadline_ns(c);
	for (int32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = &c->chains[i];
		if (ch->plan_state == PLAN_NONE && ch->grace_ns < deadline && may_come_back(c, ch))
			deadline = ch->grace_ns;
	}
	if (c->pauses_changed)
		c->pause_deadline_ns = first_pause_ns(c);
	c->pauses_changed = false;
	return c->pause_deadline_ns < deadline ? c->pause_deadline_ns : deadline;
}

// stand_back leaves a member out of plans for a while: it cannot do its part.
static void stand_back(struct coordinator *c, struct chain *ch, struct member *m, const char *what, const char *error, struct coord_effects *fx)
{
	int64_t pause_ns = backoff_next_ns(&m->backoff);
	coord_log(fx, LOG_ERROR, "node %s cannot %s: %s; the next plan after %lld s counts on it again", m->hello.name, what, error,
		(long long)(pause_ns / 1000000000));
	text_copy(m->detail, sizeof m->detail, error);
	m->load_failed = true;
	m->kv_epoch.v = 0;
	m->retry_ns = c->now_ns + pause_ns;
	c->pauses_changed = true;
	planning_drop(c, ch, fx);
}

static void on_ready(struct coordinator *c, struct chain *ch, struct coord_effects *fx)
{
	ch->plan_state = PLAN_READY;
	c->had_plan = true;
	ch->waiting_for[0] = '\0';
	int32_t n = plan_n_nodes(&ch->plan);
	coord_log(fx, LOG_INFO, "ready: %d layers on %d %s", ch->plan.n_layers, n, n == 1 ? "machine" : "machines");
	recovery_note_ready(c, ch, fx);
}

bool planning_on_weights_lost(struct coordinator *c, int32_t member, const char *error, struct coord_effects *fx)
{
	struct member *m = &c->members[member];
	struct chain *ch = member_chain(c, member);
	char why[REASON_CAP];
	m->retry_ns = c->now_ns + 1; // only to ask: not eligible
	bool can_go_on = planning_is_possible(c, ch, why);
	m->retry_ns = 0;
	if (can_go_on)
		stand_back(c, ch, m, "read its weights", error, fx);
	return can_go_on;
}

void planning_on_loaded(struct coordinator *c, int32_t member, struct plan_epoch epoch, const char *error, struct coord_effects *fx)
{
	struct member *m = &c->members[member];
	struct chain *ch = member_chain(c, member);
	if (ch == NULL || epoch.v != ch->plan.epoch.v || ch->plan_state != PLAN_LOADING || m->stage < 0)
		return;
	if (error[0] != '\0') {
		stand_back(c, ch, m, "take its part", error, fx);
		return;
	}
	m->loaded = true;
	prefetch_on_loaded(c, m, &ch->plan.stages[m->stage]);
	if (m->load_failed)
		m->detail[0] = '\0';
	m->load_failed = false;
	backoff_reset(&m->backoff);
	for (struct plan_seat s = {0}; plan_has_seat(&ch->plan, s); s = plan_seat_after(&ch->plan, s))
		if (!c->members[member_of_seat(c, ch, s)].loaded)
			return;
	on_ready(c, ch, fx);
}
