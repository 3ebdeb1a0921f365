// Members without the model file: what they fetch before a plan counts on them.
//
// A chain has a prospect: the plan it would have if every block were everywhere. Who would get layers in it that it does not hold is told so
// (Prepare), and fetches them while the present plan goes on. When all is here the prospect becomes the plan, as any better plan does: when no
// answer is under way. Until then the chain does with those who hold their part: the plan it has, or one of those alone. Only where there is none,
// at the first start of machines that all have nothing, does a plan count on layers that are still to come.
//
// A prospect that others fetch for already takes newcomers in only while it is young: a swarm to which somebody comes every minute would never
// finish. One for which all is here goes first, too. What a member held and what it was asked for is forgotten with its link, and said anew by its Hello.
#include "coordinator/coord_state.h"

#include "base/assert.h"
#include "base/log.h"

#define YOUNG_NS INT64_C(60000000000)

// ---- what is here

// has_output: who runs the last layers has the output head too, or rows of it.
static bool has_output(const struct coordinator *c, const struct layer_spans *layers)
{
	return c->config.has_output && layers->n > 0 && layers->at[layers->n - 1].end == c->config.n_layers;
}

bool prefetch_holds(const struct coordinator *c, const struct member *m, const struct plan_stage *st, int32_t place)
{
	struct layer_part part = plan_part_of(st, place);
	bool lacks_output = has_output(c, &st->layers) && !held_has_output(&m->held, &part);
	return !m->hello.fetches || (held_covers(&m->held, &part, &st->layers) && !lacks_output);
}

bool prefetch_is_here(const struct coordinator *c, const struct plan *p)
{
	for (struct plan_seat s = {0}; plan_has_seat(p, s); s = plan_seat_after(p, s)) {
		int32_t k = member_find(c, plan_node(p, s));
		if (k < 0 || !prefetch_holds(c, &c->members[k], &p->stages[s.stage], s.place))
			return false;
	}
	return true;
}

// is_staying: a member of the chain's plan that is not lost to it. One that leaves stays until the others have what it holds.
static bool is_staying(const struct chain *ch, const struct member *m)
{
	return member_is_eligible(m) || (ch->plan_state == PLAN_READY && m->stage >= 0 && m->state == MEMBER_READY && m->has_data && !m->bye_sent && m->retry_ns == 0);
}

static bool all_are(const struct coordinator *c, const struct chain *ch, const struct plan *p, bool (*test)(const struct chain *, const struct member *))
{
	for (struct plan_seat s = {0}; plan_has_seat(p, s); s = plan_seat_after(p, s)) {
		int32_t k = member_find(c, plan_node(p, s));
		if (k < 0 || c->members[k].chain != ch->index || !test(ch, &c->members[k]))
			return false;
	}
	return p->n_stages > 0;
}

static bool is_eligible(const struct chain *ch, const struct member *m)
{
	(void)ch;
	return member_is_eligible(m);
}

// ---- a plan of what is here

static bool can_take(const struct coordinator *c, const struct member *m, const struct plan_stage *st)
{
	int32_t place = plan_group_find(&st->who, m->record.id);
	return prefetch_holds(c, m, st, place) && placement_can_take(c, m, st, place);
}

// drop_unable takes out who cannot have its part of the plan now. Returns how many.
static int32_t drop_unable(const struct coordinator *c, const struct plan *p, struct candidates *who)
{
	int32_t n = 0, n_before = who->n;
	for (int32_t i = 0; i < n_before; i++) {
		const struct plan_stage *st = plan_find(p, who->nodes[i]);
		if (st != NULL && !can_take(c, &c->members[member_find(c, who->nodes[i])], st))
			continue;
		who->names[n] = who->names[i];
		who->nodes[n++] = who->nodes[i];
	}
	who->n = n;
	return n_before - n;
}

static int32_t count_joined(const struct coordinator *c, const struct candidates *who)
{
	int32_t n = 0;
	for (int32_t i = 0; i < who->n; i++)
		n += !c->members[member_find(c, who->nodes[i])].is_local;
	return n;
}

// choose_able makes a plan of those who have what they would get: the others are left out one round after the other, as each plan without one gives the
// rest other parts.
static bool choose_able(const struct coordinator *c, const struct candidates *all, struct plan *out)
{
	char why[REASON_CAP];
	struct candidates who = *all;
	while (who.n > 0 && planning_split(c, &who, out, why))
		if (drop_unable(c, out, &who) == 0)
			return c->had_plan || count_joined(c, &who) >= c->config.n_nodes_min;
	return false;
}

bool prefetch_choose(const struct coordinator *c, const struct chain *ch, const struct candidates *who, struct plan *out)
{
	if (prefetch_can_keep(c, ch)) {
		*out = ch->plan;
		return true;
	}
	return choose_able(c, who, out);
}

bool prefetch_can_keep(const struct coordinator *c, const struct chain *ch)
{
	return all_are(c, ch, &ch->plan, is_staying) && prefetch_is_here(c, &ch->plan);
}

// ---- who is asked for what

// ask for the part that a place of a stage has; NULL: nothing is to be fetched any more.
static void ask(struct coordinator *c, int32_t member, const struct plan_stage *st, int32_t place, struct coord_effects *fx)
{
	static const struct layer_spans none = {0};
	struct member *m = &c->members[member];
	struct msg out = {.type = MSG_PREPARE};
	m->asked = st != NULL ? st->layers : none;
	m->asked_part = st != NULL ? plan_part_of(st, place) : (struct layer_part){0};
	m->asks = st != NULL;
	out.u.prepare.serial = ++m->ask_serial;
	out.u.prepare.layers = m->asked;
	out.u.prepare.part = m->asked_part;
	out.u.prepare.has_output = has_output(c, &m->asked);
	coord_send_msg(c, member, &out, fx);
	if (!m->asks)
		return;
	char text[LAYER_SPANS_CAP];
	layer_spans_print(&m->asked, text);
	coord_log(fx, LOG_INFO, "node %s fetches %slayers %s, to take them over when they are there", m->hello.name, m->asked_part.n > 0 ? "its part of " : "", text);
}

// find_next returns what the chain would have next if every block were everywhere; false: nothing else than it has, or that is not known yet.
static bool find_next(struct coordinator *c, struct chain *ch, struct plan *out, struct coord_effects *fx)
{
	char why[REASON_CAP];
	struct plan base;
	struct candidates who;
	bool is_running = ch->plan_state == PLAN_READY;
	if (c->config.placement != NULL)
		return placement_choose(c, ch, false, out, &base, why);
	planning_find_candidates(c, ch, &who);
	if (!planning_is_somebody(c, ch, who.n, why))
		return false;
	switch (c->config.n_split > 0 ? PROPOSAL_UNKNOWN : proposals_choose(c, ch, &who, out)) {
	case PROPOSAL_UNKNOWN: return planning_split(c, &who, out, why);
	case PROPOSAL_PLAN: return !is_running || !planning_same_stages(out, &ch->plan);
	case PROPOSAL_ASK: break;
	}
	if (is_running) // else the plan itself is asked for
		proposals_ask(c, ch, &who, true, fx);
	return false;
}

static void renew_prospect(struct coordinator *c, struct chain *ch, struct coord_effects *fx)
{
	struct plan next;
	bool is_possible = all_are(c, ch, &ch->prospect, is_eligible);
	if (!is_possible)
		ch->prospect.n_stages = 0;
	if (!find_next(c, ch, &next, fx) || (is_possible && planning_same_stages(&next, &ch->prospect)))
		return;
	bool is_pending = is_possible && !planning_same_stages(&ch->prospect, &ch->plan);
	bool is_old = c->now_ns - ch->prospect_ns >= YOUNG_NS;
	if (is_pending && (is_old || prefetch_is_here(c, &ch->prospect)) && !prefetch_is_here(c, &next))
		return;
	ch->prospect = next;
	ch->prospect_ns = c->now_ns;
	ch->prospect_moves = false;
}

bool prefetch_is_due(const struct coordinator *c, const struct chain *ch)
{
	return all_are(c, ch, &ch->prospect, is_eligible) && !planning_same_stages(&ch->prospect, &ch->plan) && prefetch_is_here(c, &ch->prospect);
}

// stage_of returns the stage that a member would be of in the prospect of its chain, and its place there; NULL: none.
static const struct plan_stage *stage_of(const struct coordinator *c, const struct member *m, int32_t *place)
{
	const struct chain *ch = m->chain >= 0 ? &c->chains[m->chain] : NULL;
	const struct plan_stage *st = ch != NULL ? plan_find(&ch->prospect, m->record.id) : NULL;
	*place = st != NULL ? plan_group_find(&st->who, m->record.id) : 0;
	return st;
}

static bool is_same(const struct layer_spans *layers, const struct layer_part *part, const struct plan_stage *st, int32_t place)
{
	struct layer_part other = plan_part_of(st, place);
	return layer_spans_equal(layers, &st->layers) && layer_part_equal(part, &other);
}

// gets_it: a plan that is being loaded gives it that part anyway.
static bool gets_it(const struct chain *ch, const struct member *m, const struct plan_stage *st, int32_t place)
{
	bool is_loading = ch->plan_state == PLAN_KEYS || ch->plan_state == PLAN_LOADING;
	const struct plan_stage *now = is_loading ? plan_find(&ch->plan, m->record.id) : NULL;
	struct layer_part part = plan_part_of(st, place);
	return now != NULL && is_same(&st->layers, &part, now, plan_group_find(&now->who, m->record.id));
}

static void look_at(struct coordinator *c, int32_t member, struct coord_effects *fx)
{
	struct member *m = &c->members[member];
	int32_t place = 0;
	if (!m->used || !m->hello.fetches || m->state != MEMBER_READY || m->ask_again_ns != 0)
		return;
	const struct plan_stage *st = member_is_eligible(m) ? stage_of(c, m, &place) : NULL;
	bool is_asked = st != NULL && m->asks && is_same(&m->asked, &m->asked_part, st, place);
	if (st != NULL && !is_asked && !prefetch_holds(c, m, st, place) && !gets_it(member_chain(c, member), m, st, place))
		ask(c, member, st, place, fx);
	else if (m->asks && !is_asked)
		ask(c, member, NULL, 0, fx);
}

void prefetch_renew(struct coordinator *c, struct coord_effects *fx)
{
	bool fetches = false;
	for (int32_t i = 0; i < c->n_members; i++)
		fetches = fetches || (c->members[i].used && c->members[i].hello.fetches);
	for (int32_t i = 0; i < c->n_chains; i++) {
		if (fetches)
			renew_prospect(c, &c->chains[i], fx);
		else
			c->chains[i].prospect.n_stages = 0;
	}
}

void prefetch_ask(struct coordinator *c, struct coord_effects *fx)
{
	for (int32_t i = 0; i < c->n_members; i++)
		look_at(c, i, fx);
}

// ---- what they say

void prefetch_forget(struct member *m)
{
	memset(&m->held, 0, sizeof m->held);
	m->asked.n = 0;
	m->asks = false;
	m->ask_again_ns = 0;
}

void prefetch_on_hello(struct member *m, const struct msg_hello *h)
{
	prefetch_forget(m);
	m->held = h->held;
}

void prefetch_on_loaded(const struct coordinator *c, struct member *m, const struct plan_stage *st)
{
	struct layer_part part = plan_part_of(st, m->place);
	struct layer_set layers = layer_set_of(&st->layers);
	m->held.n = 0;
	held_add(&m->held, &part, &layers);
	if (has_output(c, &st->layers))
		held_add_output(&m->held, &part);
}

static void on_failed(struct coordinator *c, struct member *m, const char *error, struct coord_effects *fx)
{
	int64_t pause_ns = backoff_next_ns(&m->backoff);
	coord_log(fx, LOG_ERROR, "node %s cannot fetch its layers: %s; it is asked again after %lld s", m->hello.name, error, (long long)(pause_ns / 1000000000));
	c->pauses_changed = true;
	m->ask_again_ns = c->now_ns + pause_ns;
	if (m->stage >= 0)
		return; // what it holds now it goes on computing
	text_copy(m->detail, sizeof m->detail, error);
	m->load_failed = true;
	m->retry_ns = m->ask_again_ns; // the others' prospect does without it until then
}

void prefetch_on_prepared(struct coordinator *c, int32_t member, uint64_t serial, const char *error, struct coord_effects *fx)
{
	struct member *m = &c->members[member];
	const struct chain *ch = member_chain(c, member);
	if (!m->asks || serial != m->ask_serial)
		return;
	m->asks = false;
	if (error[0] != '\0') {
		on_failed(c, m, error, fx);
	} else {
		struct held_layers had = m->held;
		struct layer_set asked = layer_set_of(&m->asked);
		m->held.n = 0;
		if (ch != NULL && m->stage >= 0 && m->loaded) {
			struct layer_part part = plan_part_of(&ch->plan.stages[m->stage], m->place);
			struct layer_set layers = layer_set_of(&ch->plan.stages[m->stage].layers), of_part = held_of(&had, &part);
			layer_set_keep(&layers, &of_part);
			held_add(&m->held, &part, &layers);
			if (held_has_output(&had, &part))
				held_add_output(&m->held, &part);
		}
		held_add(&m->held, &m->asked_part, &asked);
		if (has_output(c, &m->asked))
			held_add_output(&m->held, &m->asked_part);
		backoff_reset(&m->backoff);
		if (m->load_failed)
			m->detail[0] = '\0';
		m->load_failed = false;
		coord_log(fx, LOG_INFO, "node %s has its layers", m->hello.name);
	}
	planning_note(c, m, true);
	if (ch != NULL && prefetch_is_due(c, ch) && ch->prospect_moves)
		c->chains[ch->index].plan_moves = true;
}

bool prefetch_retry(struct coordinator *c, struct member *m)
{
	bool is_due = m->ask_again_ns != 0 && c->now_ns >= m->ask_again_ns;
	if (!is_due)
		return false;
	m->ask_again_ns = 0;
	c->has_news = true;
	return true;
}

void prefetch_check(const struct coordinator *c)
{
	for (int32_t i = 0; i < c->n_members; i++) {
		const struct member *m = &c->members[i];
		ASSERT(!m->asks || (m->used && m->hello.fetches && m->asked.n > 0));
		ASSERT(m->ask_again_ns == 0 || !m->asks);
	}
}
