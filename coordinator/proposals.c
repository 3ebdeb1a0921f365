// Plans by cost: when the solver is asked, and when its answer is worth a change.
//
// The solver takes longer than a step may, so it runs outside: PLAN names the members, PLANNED brings the fastest plan over them that it
// found. A chain that needs a plan for members it has no answer about goes on with the plan it has, or waits; when the solver knows no figures
// of somebody, layers are split evenly. Where answers wait for a lost plan nothing is asked: it is repaired at once, and bettered later.
//
// A chain that runs is looked at every LOOK_NS, with the figures of that moment. Another plan is taken when two answers in a row, PERSIST_NS
// apart, promise enough: on an idle ring GAIN_IDLE of a token's time; under answers GAIN_BUSY, and over the tokens that they may still
// take twice what it costs to load layers elsewhere and to compute again what those kept. After a change the next one is put off,
// longer each time, so that figures which swing do not make the cluster swing.
#include "coordinator/coord_state.h"

#include "base/log.h"

#include <math.h>

#define SECOND_NS INT64_C(1000000000)
#define LOOK_NS (30 * SECOND_NS)
#define PERSIST_NS (20 * SECOND_NS)
#define SETTLED_NS (3600 * SECOND_NS) // a plan that lasted this long was no swing
#define GAIN_IDLE 0.05
#define GAIN_BUSY 0.10
#define GROUPS_FACTOR 2.0 // of both, where groups are formed, dissolved or have other members
#define COST_FACTOR 2.0

static const struct backoff_limits change_backoff = {.first_ns = 120 * SECOND_NS, .max_ns = 1800 * SECOND_NS};

void proposals_init(struct chain *ch)
{
	backoff_init(&ch->proposal.changes, &change_backoff, (uint64_t)ch->index + 1);
}

static bool is_about(const struct proposal *p, const struct candidates *who)
{
	return p->n == who->n && memcmp(p->nodes, who->nodes, (size_t)p->n * sizeof p->nodes[0]) == 0;
}

static bool is_within(const struct plan *p, const struct candidates *who)
{
	for (int32_t i = 0; i < p->n_stages; i++) {
		int32_t n_there = 0;
		for (int32_t k = 0; k < who->n; k++)
			n_there += plan_group_find(&p->stages[i].who, who->nodes[k]) >= 0;
		if (n_there < p->stages[i].who.n)
			return false;
	}
	return true;
}

enum proposal_verdict proposals_choose(const struct coordinator *c, const struct chain *ch, const struct candidates *who, struct plan *out)
{
	const struct proposal *p = &ch->proposal;
	bool is_running = ch->plan_state == PLAN_READY;
	if (!c->config.by_cost)
		return PROPOSAL_UNKNOWN;
	bool is_coming = p->id != 0 && p->is_wanted;
	if (!p->is_known || is_coming || !is_about(p, who) || (is_running && ch->plan_repaired && !p->is_wanted))
		return PROPOSAL_ASK;
	if (p->err != OK)
		return PROPOSAL_UNKNOWN;
	*out = is_running && !p->is_wanted && is_within(&ch->plan, who) ? ch->plan : p->plan;
	return PROPOSAL_PLAN;
}

void proposals_ask(struct coordinator *c, struct chain *ch, const struct candidates *who, bool is_wanted, struct coord_effects *fx)
{
	struct proposal *p = &ch->proposal;
	bool is_same = is_about(p, who);
	if (p->id != 0 && is_same) {
		p->is_wanted = p->is_wanted || is_wanted;
		return; // its answer is on the way
	}
	if (!is_same) {
		p->is_known = false;
		p->gain_since_ns = 0;
		p->n = who->n;
		memcpy(p->nodes, who->nodes, (size_t)who->n * sizeof p->nodes[0]);
	}
	p->is_wanted = is_wanted;
	p->id = ++c->next_id;
	p->look_ns = c->now_ns + LOOK_NS;
	struct coord_effect *f = coord_fx(fx, COORD_FX_PLAN);
	f->u.plan.id = p->id;
	f->u.plan.chain = ch->index;
	f->u.plan.n = p->n;
	f->u.plan.nodes = p->nodes;
	f->u.plan.current = ch->plan_state == PLAN_READY ? &ch->plan : NULL;
}

// ---- what an answer is worth

// n_tokens_left: answers run side by side, so that the longest counts.
static int32_t n_tokens_left(const struct coordinator *c, const struct chain *ch)
{
	int32_t most = 0;
	for (int32_t i = 0; i < c->n_sessions; i++) {
		const struct session *s = &c->sessions[i];
		if (s->state == SESSION_ACTIVE && s->chain == ch->index && s->n_max - s->n_tokens > most)
			most = s->n_max - s->n_tokens;
	}
	return most;
}

static int64_t n_positions_kept(const struct coordinator *c, const struct chain *ch)
{
	int64_t n = 0;
	for (int32_t i = 0; i < c->n_sessions; i++)
		if (c->sessions[i].state == SESSION_ACTIVE && c->sessions[i].chain == ch->index)
			n += c->sessions[i].pos_back;
	return n;
}

// has_same_parts: each machine of a stage has the same part of its layers as under another plan, so that their keys and values are of use (recovery_note_part).
static bool has_same_parts(const struct plan_stage *from, const struct plan_stage *to)
{
	for (int32_t k = 0; k < to->who.n; k++) {
		int32_t place = plan_group_find(&from->who, to->who.nodes[k]);
		struct layer_part before = place >= 0 ? plan_part_of(from, place) : (struct layer_part){0}, part = plan_part_of(to, k);
		if (place < 0 || !layer_part_equal(&before, &part))
			return false;
	}
	return true;
}

// n_layers_moved counts the layers of `to` that its machine does not have under `from`, or of which its group does not have the same parts.
static int32_t n_layers_moved(const struct plan *from, const struct plan *to)
{
	int32_t n = 0;
	for (int32_t i = 0; i < to->n_stages; i++) {
		const struct plan_stage *old = plan_find(from, plan_lead(&to->stages[i]));
		if (old != NULL && !has_same_parts(old, &to->stages[i]))
			old = NULL;
		for (int32_t r = 0; r < to->stages[i].layers.n; r++)
			for (int32_t layer = to->stages[i].layers.at[r].begin; layer < to->stages[i].layers.at[r].end; layer++)
				n += old == NULL || layer_spans_find(&old->layers, layer) < 0;
	}
	return n;
}

static const struct plan_group *group_of(const struct plan *p, struct node_id node)
{
	const struct plan_stage *st = plan_find(p, node);
	return st != NULL && st->who.n > 1 ? &st->who : NULL;
}

static bool keeps_groups_of(const struct plan *a, const struct plan *b)
{
	for (struct plan_seat s = {0}; plan_has_seat(a, s); s = plan_seat_after(a, s)) {
		const struct plan_group *g = group_of(a, plan_node(a, s)), *h = group_of(b, plan_node(a, s));
		for (int32_t k = 0; g != NULL && k < g->n; k++)
			if (h == NULL || h->n != g->n || plan_group_find(h, g->nodes[k]) < 0)
				return false;
	}
	return true;
}

// least_gain is what another plan must save of a token's time. What exchanges take is known less well than what hops do, and looks different
// while there are none: machines that begin or cease to share layers must gain more, so that a cluster does not swing between the two.
static double least_gain(const struct plan *from, const struct plan *to, double gain)
{
	return keeps_groups_of(from, to) && keeps_groups_of(to, from) ? gain : GROUPS_FACTOR * gain;
}

static bool is_worth_it(const struct coordinator *c, const struct chain *ch)
{
	const struct proposal *p = &ch->proposal;
	double saved_s = p->current_s - p->token_s;
	if (sessions_count_active(c, ch) == 0)
		return saved_s >= least_gain(&ch->plan, &p->plan, GAIN_IDLE) * p->current_s;
	double share = (double)n_layers_moved(&ch->plan, &p->plan) / ch->plan.n_layers;
	double again_s = (double)n_positions_kept(c, ch) * share * p->token_s;
	return saved_s >= least_gain(&ch->plan, &p->plan, GAIN_BUSY) * p->current_s && n_tokens_left(c, ch) * saved_s > COST_FACTOR * (p->move_s + again_s);
}

// look_at_gain decides whether the plan of a chain that runs shall give way to the answer.
static void look_at_gain(struct coordinator *c, struct chain *ch, struct coord_effects *fx)
{
	struct proposal *p = &ch->proposal;
	if (planning_same_stages(&p->plan, &ch->plan) || !is_worth_it(c, ch)) {
		p->gain_since_ns = 0;
		return;
	}
	if (p->gain_since_ns == 0)
		p->gain_since_ns = c->now_ns;
	if (c->now_ns - p->gain_since_ns < PERSIST_NS || c->now_ns < p->next_change_ns)
		return;
	coord_log(fx, LOG_INFO, "a better plan: %.3g ms a token instead of %.3g", p->token_s * 1e3, p->current_s * 1e3);
	if (p->groups[0] != '\0')
		coord_log(fx, LOG_INFO, "%s", p->groups);
	if (c->now_ns - p->next_change_ns > SETTLED_NS)
		backoff_reset(&p->changes);
	p->next_change_ns = c->now_ns + backoff_next_ns(&p->changes);
	p->gain_since_ns = 0;
	p->is_wanted = true;
	ch->plan_dirty = ch->plan_moves = true;
	c->n_better++;
}

void proposals_status(const struct chain *ch, struct coord_chain_status *out)
{
	const struct proposal *p = &ch->proposal;
	out->n_rounds = ch->plan.n_rounds;
	if (!p->is_known || p->err != OK || ch->plan_state != PLAN_READY)
		return;
	bool is_it = planning_same_stages(&p->plan, &ch->plan);
	bool is_as_told = is_it && (p->current_s == INFINITY || planning_same_streams(&p->plan, &ch->plan));
	out->predicted_s = is_as_told ? p->token_s : p->current_s < INFINITY ? p->current_s : 0;
	if (!is_it)
		return;
	text_copy(out->left_out, sizeof out->left_out, p->left_out);
	text_copy(out->groups, sizeof out->groups, p->groups);
}

static struct chain *find_asked(struct coordinator *c, uint32_t id)
{
	for (int32_t i = 0; id != 0 && i < c->n_chains; i++)
		if (c->chains[i].proposal.id == id)
			return &c->chains[i];
	return NULL;
}

// log_plan says what comes: who is left out, and who shares layers.
static void log_plan(const struct proposal *p, struct coord_effects *fx)
{
	coord_log(fx, LOG_INFO, "planned: %.3g ms a token%s%s", p->token_s * 1e3, p->left_out[0] != '\0' ? "; left out: " : "", p->left_out);
	if (p->groups[0] != '\0')
		coord_log(fx, LOG_INFO, "%s", p->groups);
}

void proposals_on_planned(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx)
{
	struct chain *ch = find_asked(c, ev->u.planned.id);
	if (ch == NULL)
		return; // asked about others since
	struct proposal *p = &ch->proposal;
	p->id = 0;
	p->is_known = true;
	p->err = ev->u.planned.err;
	c->has_news = true; // members may have something to fetch for it
	if (p->err != OK) {
		if (p->is_wanted)
			coord_log(fx, LOG_INFO, "layers are split evenly: %s", ev->u.planned.text);
		return;
	}
	p->plan = *ev->u.planned.plan;
	p->token_s = ev->u.planned.token_s;
	p->current_s = ev->u.planned.current_s;
	p->move_s = ev->u.planned.move_s;
	text_copy(p->left_out, sizeof p->left_out, ev->u.planned.text);
	text_copy(p->groups, sizeof p->groups, ev->u.planned.groups != NULL ? ev->u.planned.groups : "");
	if (p->is_wanted)
		log_plan(p, fx);
	if (!p->is_wanted && ch->plan_state == PLAN_READY)
		look_at_gain(c, ch, fx);
}

void proposals_on_figures(struct coordinator *c, int32_t member, bool is_first)
{
	struct chain *ch = member_chain(c, member);
	if (!c->config.by_cost || ch == NULL)
		return;
	ch->proposal.look_ns = c->now_ns;
	if (!is_first)
		return;
	ch->proposal.is_known = false; // what was answered, or is on its way, knew nothing of it
	ch->proposal.id = 0;
	ch->plan_dirty = true;
}

void proposals_tick(struct coordinator *c, struct coord_effects *fx)
{
	for (int32_t i = 0; c->config.by_cost && i < c->n_chains; i++) {
		struct chain *ch = &c->chains[i];
		struct candidates who;
		if (ch->plan_state != PLAN_READY || ch->plan_dirty || ch->proposal.id != 0 || c->now_ns < ch->proposal.look_ns)
			continue;
		planning_find_candidates(c, ch, &who);
		if (who.n > 0)
			proposals_ask(c, ch, &who, false, fx);
	}
}

int64_t proposals_deadline_ns(const struct coordinator *c)
{
	int64_t first = INT64_MAX;
	for (int32_t i = 0; c->config.by_cost && i < c->n_chains; i++) {
		const struct chain *ch = &c->chains[i];
		if (ch->plan_state == PLAN_READY && !ch->plan_dirty && ch->proposal.id == 0 && ch->proposal.look_ns < first)
			first = ch->proposal.look_ns;
	}
	return first;
}
