// Which chain a member belongs to, and who takes the place of one that was lost.
//
// With a placement each chain has its own layout, which it keeps: a lost member's layers go whole to one that stands by and has room for them, and
// only when nobody does to the neighbours; of a group, to its other members. Without one, members are dealt to the chains once; a member that comes later goes where one is missed.
#include "coordinator/coord_state.h"

#include "base/assert.h"

#include <stdio.h>

// When enough members are there, a chain waits this long for those that the placement names; then others take their layers.
#define PLACED_WAIT_NS INT64_C(10000000000)

static bool is_spare(const struct member *m)
{
	return m->chain < 0 && member_is_eligible(m);
}

int32_t placement_layers(const struct plan_stage *st, int32_t place)
{
	uint64_t sum = 0, own = st->who.shares[place];
	for (int32_t k = 0; k < st->who.n; k++)
		sum += st->who.shares[k];
	uint64_t n = ((uint64_t)layer_spans_count(&st->layers) * own + sum - 1) / sum;
	return n > 0 ? (int32_t)n : 1;
}

static bool can_hold(const struct member *m, int32_t n_layers)
{
	return m->hello.layers_max == 0 || m->hello.layers_max >= n_layers;
}

bool placement_can_take(const struct coordinator *c, const struct member *m, const struct plan_stage *st, int32_t place)
{
	return st->who.n > 1 ? can_hold(m, placement_layers(st, place)) : layer_spans_count(&st->layers) <= member_layers_max(c, m);
}

// is_better: one that has the blocks, then one that was not lost lately, then one with less room to waste.
static bool is_better(const struct coordinator *c, const struct member *a, const struct member *b, const struct plan_stage *st, int32_t place)
{
	if (prefetch_holds(c, a, st, place) != prefetch_holds(c, b, st, place))
		return prefetch_holds(c, a, st, place);
	if ((a->settle_ns == 0) != (b->settle_ns == 0))
		return a->settle_ns == 0;
	return a->hello.layers_max < b->hello.layers_max;
}

// find_spare returns who stands by for a place in `p` and is not in that yet; -1: nobody.
static int32_t find_spare(const struct coordinator *c, const struct plan *p, struct plan_seat at)
{
	const struct plan_stage *st = &p->stages[at.stage];
	int32_t best = -1;
	for (int32_t i = 0; i < c->n_members; i++) {
		const struct member *m = &c->members[i];
		if (is_spare(m) && placement_can_take(c, m, st, at.place) && (best < 0 || is_better(c, m, &c->members[best], st, at.place)) && plan_find(p, m->record.id) == NULL)
			best = i;
	}
	return best;
}

int32_t placement_spares(const struct coordinator *c, const struct chain *ch, struct node_id *out, int32_t cap)
{
	struct plan p = ch->plan;
	int32_t n = 0;
	for (int32_t i = 0; i < p.n_stages && n < cap; i++) {
		int32_t k = member_of_stage(c, ch, i), spare;
		if (k >= 0 && member_is_eligible(&c->members[k]))
			continue;
		if ((spare = find_spare(c, &p, (struct plan_seat){i, 0})) < 0)
			continue;
		out[n] = c->members[spare].record.id;
		p.stages[i].who = plan_group_one(out[n++]);
	}
	return n;
}

bool placement_is_enough(const struct coordinator *c, char why[REASON_CAP])
{
	int32_t n_joined = 0;
	for (int32_t i = 0; !c->had_plan && i < c->n_members; i++)
		n_joined += member_is_eligible(&c->members[i]) && !c->members[i].is_local;
	if (c->had_plan || n_joined >= c->config.n_nodes_min)
		return true;
	return planning_say_missing(c, why, "joined nodes", n_joined, c->config.n_nodes_min);
}

// ---- a chain of a placement

static bool is_called(const struct member *m, const char *name)
{
	return m->used && !m->pending && (strcmp(m->record.name, name) == 0 || strcmp(m->hello.name, name) == 0);
}

static struct node_id id_of(const struct coordinator *c, const struct chain *ch, const char *name)
{
	struct node_id none = {{0}};
	for (int32_t i = 0; i < c->n_members; i++)
		if (c->members[i].chain == ch->index && is_called(&c->members[i], name))
			return c->members[i].record.id;
	return none;
}

// first_layout is the placement itself; who is not there has no id.
static void first_layout(const struct coordinator *c, const struct chain *ch, struct plan *out)
{
	const struct placed_chain *p = &c->config.placement[ch->index];
	int32_t at = 0;
	*out = (struct plan){.n_layers = c->config.n_layers, .n_stages = p->n_stages, .n_rounds = 1};
	for (int32_t i = 0; i < p->n_stages; i++) {
		const struct placed_stage *st = &p->stages[i];
		out->stages[i].layers = layer_spans_one(at, at + st->n_layers);
		out->stages[i].stream_share = st->stream_share;
		at += st->n_layers;
		out->stages[i].who.n = st->n_members;
		if (st->n_members > 1) {
			out->stages[i].who.mode = c->config.group_mode;
			out->stages[i].who.payload = c->config.group_payload;
			out->stages[i].who.hub = st->hub;
		}
		for (int32_t k = 0; k < st->n_members; k++) {
			out->stages[i].who.shares[k] = st->n_members > 1 ? st->members[k].share : 1;
			out->stages[i].who.nodes[k] = id_of(c, ch, st->members[k].name);
		}
	}
}

static bool is_here(const struct coordinator *c, const struct chain *ch, struct node_id id)
{
	int32_t k = member_find(c, id);
	const struct member *m = k >= 0 ? &c->members[k] : NULL;
	bool is_settled = m != NULL && (m->stage >= 0 || m->settle_ns == 0 || ch->plan_state != PLAN_READY);
	return is_settled && m->chain == ch->index && member_is_eligible(m);
}

static bool has_room(const struct coordinator *c, const struct plan *p, char why[REASON_CAP])
{
	for (struct plan_seat s = {0}; plan_has_seat(p, s); s = plan_seat_after(p, s)) {
		const struct plan_stage *st = &p->stages[s.stage];
		const struct member *m = &c->members[member_find(c, plan_node(p, s))];
		int32_t n = placement_layers(st, s.place);
		if (can_hold(m, n))
			continue;
		char layers[LAYER_SPANS_CAP], part[64] = "";
		layer_spans_print(&st->layers, layers);
		if (st->who.n > 1)
			snprintf(part, sizeof part, ", of which it would hold as much as %d,", n);
		snprintf(why, REASON_CAP, "nobody stands by for layers %s, and node %s%s has room for %d", layers, m->hello.name, part, m->hello.layers_max);
		return false;
	}
	return true;
}

// stand_in gives places of `base` whose machine is not here to members that stand by. only_lead: of each stage of which nobody is here the first one.
static void stand_in(const struct coordinator *c, bool is_now, bool only_lead, struct plan *base, struct plan_alive *alive)
{
	for (struct plan_seat s = {0}; plan_has_seat(base, s); s = plan_seat_after(base, s)) {
		struct plan_stage *st = &base->stages[s.stage];
		bool is_lost = s.place == 0, *is = alive->is[s.stage];
		for (int32_t k = 0; k < st->who.n; k++)
			is_lost = is_lost && !is[k];
		int32_t spare = is[s.place] || (only_lead && !is_lost) ? -1 : find_spare(c, base, s);
		if (spare < 0 || (is_now && !prefetch_holds(c, &c->members[spare], st, s.place)))
			continue;
		st->who.nodes[s.place] = c->members[spare].record.id;
		is[s.place] = true;
	}
}

// say_missing names the first machine of a placement that has not come, which may be misspelled.
static bool say_missing(const struct coordinator *c, const struct chain *ch, const struct plan *base, const struct plan_alive *alive, int32_t n_alive,
	char why[REASON_CAP])
{
	char what[NAME_CAP + 64] = "machines of this chain";
	struct plan_seat s = {0};
	while (plan_has_seat(base, s) && alive->is[s.stage][s.place])
		s = plan_seat_after(base, s);
	if (ch->base.n_stages == 0 && plan_has_seat(base, s))
		snprintf(what, sizeof what, "machines of this chain, but not %s,", c->config.placement[ch->index].stages[s.stage].members[s.place].name);
	return planning_say_missing(c, why, what, n_alive, plan_n_nodes(base));
}

bool placement_choose(const struct coordinator *c, const struct chain *ch, bool is_now, struct plan *out, struct plan *base, char why[REASON_CAP])
{
	struct plan_alive alive = {.is = {{false}}};
	int32_t n_alive = 0;
	if (!placement_is_enough(c, why))
		return false;
	if (ch->base.n_stages > 0)
		*base = ch->base;
	else
		first_layout(c, ch, base);
	bool may_come = ch->base.n_stages == 0 && c->now_ns - c->enough_ns < PLACED_WAIT_NS;
	for (struct plan_seat s = {0}; plan_has_seat(base, s); s = plan_seat_after(base, s))
		alive.is[s.stage][s.place] = is_here(c, ch, plan_node(base, s));
	for (int32_t pass = 0; !may_come && pass < 2; pass++)
		stand_in(c, is_now, pass == 0, base, &alive);
	for (struct plan_seat s = {0}; plan_has_seat(base, s); s = plan_seat_after(base, s))
		n_alive += alive.is[s.stage][s.place];
	if (n_alive == 0 || (may_come && n_alive < plan_n_nodes(base)))
		return say_missing(c, ch, base, &alive, n_alive, why);
	enum err e = plan_repair(base, &alive, NULL, 0, out);
	ASSERT(e == OK); // somebody is left
	return has_room(c, out, why);
}

void placement_on_plan(struct coordinator *c, struct chain *ch)
{
	for (int32_t i = 0; !c->is_single && i < c->n_members; i++) {
		struct member *m = &c->members[i];
		bool is_in = m->used && plan_find(&ch->plan, m->record.id) != NULL;
		bool is_kept = c->config.placement != NULL ? plan_find(&ch->base, m->record.id) != NULL : member_is_eligible(m);
		if (is_in) {
			m->chain = ch->index;
		} else if (m->chain == ch->index && !is_kept) {
			m->chain = -1;
			m->told.v = 0;
		}
	}
}

// ---- giving members to chains

static bool is_of(const struct member *m, const struct placed_stage *st)
{
	for (int32_t i = 0; i < st->n_members; i++)
		if (is_called(m, st->members[i].name))
			return true;
	return false;
}

// named_by returns the chain that a member shall begin in; -1: none.
static int32_t named_by(const struct coordinator *c, const struct member *m)
{
	for (int32_t i = 0; i < c->n_chains; i++)
		for (int32_t k = 0; c->chains[i].base.n_stages == 0 && k < c->config.placement[i].n_stages; k++)
			if (is_of(m, &c->config.placement[i].stages[k]))
				return i;
	return -1;
}

int32_t placement_n_spares(const struct coordinator *c)
{
	int32_t n = 0;
	for (int32_t i = 0; i < c->n_members; i++)
		n += is_spare(&c->members[i]);
	return n;
}

static int32_t count_members(const struct coordinator *c, int32_t chain)
{
	int32_t n = 0;
	for (int32_t i = 0; i < c->n_members; i++)
		n += c->members[i].chain == chain && member_is_eligible(&c->members[i]);
	return n;
}

// deal gives each chain as many members as the next one, in turn, so that each has its share of every kind.
static void deal(struct coordinator *c)
{
	char why[REASON_CAP];
	int32_t n = 0;
	if (!placement_is_enough(c, why) || placement_n_spares(c) < c->n_chains)
		return;
	c->is_dealt = true;
	for (int32_t i = 0; i < c->n_members; i++) {
		if (!is_spare(&c->members[i]))
			continue;
		c->members[i].chain = n++ % c->n_chains;
		c->chains[c->members[i].chain].n_wanted++;
		planning_note(c, &c->members[i], true);
	}
}

// most_missed returns the chain that lacks members most: one without a plan, then one with fewer than it began with; -1: none does.
static int32_t most_missed(const struct coordinator *c)
{
	int32_t best = -1, best_lack = 0;
	for (int32_t i = 0; i < c->n_chains; i++) {
		const struct chain *ch = &c->chains[i];
		int32_t lack = ch->n_wanted - count_members(c, i);
		bool is_back_soon = c->now_ns < ch->grace_ns;
		if (lack <= 0 || is_back_soon)
			continue;
		lack += ch->plan_state == PLAN_NONE ? c->n_members : 0;
		if (lack > best_lack) {
			best = i;
			best_lack = lack;
		}
	}
	return best;
}

static void give_to_missed(struct coordinator *c)
{
	for (int32_t i = 0; i < c->n_members; i++) {
		struct member *m = &c->members[i];
		int32_t chain = is_spare(m) ? most_missed(c) : -1;
		if (chain < 0)
			continue;
		m->chain = chain;
		planning_note(c, m, m->settle_ns == 0);
	}
}

int64_t placement_deadline_ns(const struct coordinator *c)
{
	int64_t at_ns = c->enough_ns + PLACED_WAIT_NS;
	bool is_waiting = false;
	for (int32_t i = 0; c->enough_ns > 0 && i < c->n_chains; i++)
		is_waiting = is_waiting || c->chains[i].base.n_stages == 0;
	return is_waiting && at_ns > c->now_ns ? at_ns : INT64_MAX;
}

void placement_update(struct coordinator *c)
{
	if (c->is_single)
		return;
	if (c->config.placement != NULL) {
		char why[REASON_CAP];
		if (c->enough_ns == 0 && placement_is_enough(c, why))
			c->enough_ns = c->now_ns;
		for (int32_t i = 0; i < c->n_members; i++)
			if (is_spare(&c->members[i]))
				c->members[i].chain = named_by(c, &c->members[i]);
	} else if (!c->is_dealt) {
		deal(c);
	} else {
		give_to_missed(c);
	}
}
