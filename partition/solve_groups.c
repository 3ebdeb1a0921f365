// Plans with groups: where to start, and the exact judge at the end; between them are partition/group_moves.c's moves.
#include "partition/solve_groups.h"

#include "partition/group_moves.h"

#define WORK_MAX 600000      // layers of members that the closed form walks over, three times each: some forty milliseconds
#define WORK_MANY_MAX 100000 // of more machines than subsets are made of behind one access point: ten, as the rest takes thirty
#define POLISH_MAX 24
#define POLISH_MANY_MAX 4

static void keep_start(struct group_search *q, const struct group_start *fresh)
{
	if (!(fresh->token_s < INFINITY) || (q->n_starts == GROUP_STARTS_KEPT && fresh->token_s >= q->starts[GROUP_STARTS_KEPT - 1].token_s))
		return;
	for (int32_t i = 0; i < q->n_starts; i++)
		if (q->starts[i].token_s == fresh->token_s)
			return; // most likely the same
	int32_t at = q->n_starts < GROUP_STARTS_KEPT ? q->n_starts++ : GROUP_STARTS_KEPT - 1;
	for (; at > 0 && fresh->token_s < q->starts[at - 1].token_s; at--)
		q->starts[at] = q->starts[at - 1];
	q->starts[at] = *fresh;
}

// merged puts a group in the place of those of its members that are stages, with their layers. false: none of them is, or one is in a group.
static bool merged(const struct cost_plan *base, const struct cost_group *g, struct cost_plan *out)
{
	int32_t at = -1, layers = 0, n = 0;
	*out = *base;
	if (base->n_groups == COST_GROUPS_MAX)
		return false;
	for (int32_t i = 0; i < base->n_groups; i++)
		for (int32_t m = 0; m < base->groups[i].n_members; m++)
			if (group_has(g, base->groups[i].devices[m]))
				return false;
	for (int32_t i = 0; i < base->n_stages; i++) {
		if (!group_has(g, base->stages[i].device)) {
			out->stages[n++] = base->stages[i];
			continue;
		}
		layers += base->stages[i].n_layers;
		if (at < 0)
			at = n++;
	}
	if (at < 0)
		return false;
	out->n_stages = n;
	out->stages[at] = (struct cost_stage){.device = g->devices[0], .n_layers = layers, .n_streamed = COST_STREAM_LEAST};
	out->groups[out->n_groups++] = *g;
	if (n == 1)
		out->n_rounds = 1;
	for (int32_t i = 1; i < n; i++) // the head's device comes first
		if (out->stages[i].device == out->head)
			solve_shift(out, i, 0);
	return true;
}

static void start_at(struct group_search *q, const struct cost_plan *p, bool balances)
{
	struct group_start at = {*p, group_moves_token_s(q, p)};
	for (int32_t i = 0; i < at.plan.n_stages; i++)
		if (group_moves_group_at(&at.plan, i) >= 0)
			group_moves_modes(q, &at, i, balances);
	keep_start(q, &at);
}

// start_from starts with the output head in either memory: what it leaves decides whose shares fit.
static void start_from(struct group_search *q, const struct cost_plan *p, bool balances)
{
	struct cost_plan other = *p;
	start_at(q, p, balances);
	if (q->s->n_seats <= GROUP_SEATS_FEW && group_moves_head(q->s, &other))
		start_at(q, &other, balances);
}

static void find_starts(struct group_search *q, const struct cost_plan *base, bool balances)
{
	for (int32_t i = 0; i < q->n_picks; i++) {
		struct cost_plan p = {.head = base->head, .head_on_accel = base->head_on_accel, .n_rounds = 1, .n_stages = 1, .n_groups = 1};
		p.groups[0] = q->picks[i].group;
		p.stages[0] = (struct cost_stage){.device = p.groups[0].devices[0], .n_layers = q->s->n_layers, .n_streamed = COST_STREAM_LEAST};
		start_from(q, &p, balances);
		if (merged(base, &q->picks[i].group, &p) && p.n_stages > 1)
			start_from(q, &p, balances);
	}
}

// add_groups makes groups of what is left beside the first one.
static void add_groups(struct group_search *q, struct group_start *at)
{
	for (int32_t i = 0; i < q->n_picks; i++) {
		struct group_start with = {.token_s = INFINITY};
		if (!merged(&at->plan, &q->picks[i].group, &with.plan))
			continue;
		with.token_s = group_moves_token_s(q, &with.plan);
		for (int32_t k = 0; k < with.plan.n_stages; k++)
			if (with.plan.stages[k].device == q->picks[i].group.devices[0])
				group_moves_modes(q, &with, k, false);
		if (!(with.token_s < at->token_s * (1 - SOLVE_EQUAL)))
			continue;
		*at = with;
		group_moves_climb(q, at);
	}
}

// ---- The judge

// judge asks the judge about a plan; false: it is not possible, or proved to be no better than `cutoff`.
static bool judge(struct solver *s, const struct cost_plan *p, double cutoff, struct solve_candidate *out)
{
	struct cost_case k = group_moves_case(s, p);
	*out = (struct solve_candidate){.plan = *p};
	if (!group_moves_possible(s, p) || s->goal.tpot_weight * cost_bound(&k) >= cutoff)
		return false;
	s->n_judged++;
	return solve_score_parts(s, p, &out->score);
}

static void note_group(const struct solver *s, const struct cost_plan *p, struct solve_group_note *note)
{
	struct group_pick pick = {.group = p->groups[0]};
	note->group = p->groups[0];
	group_measure(s, &pick);
	note->layer_s = pick.layer_s;
	note->exchange_s = pick.exchange_s;
	note->alone_s = pick.slowest_s;
}

static void put_fates(struct solver *s, const struct cost_plan *p, double plain_s, struct solve_device_fate *fates)
{
	for (int32_t d = 0; d < s->w->cluster->n_devices && fates; d++) {
		if (group_moves_layers_of(p, d) > 0)
			fates[d] = (struct solve_device_fate){.fate = SOLVE_USED};
		else if (fates[d].fate == SOLVE_USED)
			fates[d] = (struct solve_device_fate){.fate = SOLVE_SLOWER, .with_s = plain_s};
	}
}

// try_incumbent takes a plan with groups that there is already as one more candidate.
static void try_incumbent(struct solver *s, struct solve_result *out, struct solve_candidate *best)
{
	const struct cost_plan *p = s->w->incumbent;
	struct solve_candidate c;
	if (p == NULL || p->n_groups == 0 || p->head != s->w->head)
		return;
	struct cost_case k = group_moves_case(s, p);
	if (cost_check(&k, NULL) != OK || !judge(s, p, INFINITY, &c))
		return;
	out->incumbent_s = c.score.value;
	if (c.score.value < best->score.value * (1 - SOLVE_EQUAL))
		*best = c;
}

static bool streams(const struct solver *s, const struct cost_plan *p)
{
	struct cost_case c = group_moves_case(s, p);
	struct cost_layout l;
	for (int32_t i = 0; i < p->n_stages; i++)
		if (cost_layout_of(&c, i, &l, NULL) == OK && l.n_streamed > 0)
			return true;
	return false;
}

static bool polish_with(struct group_search *q, struct solve_candidate *best, const struct cost_plan *p)
{
	struct solve_candidate c;
	q->polish_left--;
	if (q->polish_left < 0 || !judge(q->s, p, best->score.value, &c) || !(c.score.value < best->score.value * (1 - SOLVE_EQUAL)))
		return false;
	*best = c;
	return true;
}

// polish lets the judge try the neighbours of a plan that streams, which the closed form knows a little less well: single parts of layers to another
// member, and single layers to another stage.
static void polish(struct group_search *q, struct solve_candidate *best)
{
	for (bool has_moved = streams(q->s, &best->plan); has_moved && q->polish_left > 0;) {
		has_moved = false;
		for (int32_t i = 0; i < best->plan.n_groups; i++) {
			for (int32_t k = 0; k < best->plan.groups[i].n_members * best->plan.groups[i].n_members; k++) {
				struct cost_plan p = best->plan;
				struct cost_group *g = &p.groups[i];
				int32_t from = k / g->n_members, to = k % g->n_members;
				if (from == to || g->shares[from] == 0)
					continue;
				g->shares[from]--;
				g->shares[to]++;
				group_moves_loosen(&p);
				has_moved = polish_with(q, best, &p) || has_moved;
			}
		}
		for (int32_t k = 0; k < best->plan.n_stages * best->plan.n_stages; k++) {
			struct cost_plan p = best->plan;
			int32_t from = k / p.n_stages, to = k % p.n_stages;
			if (from == to || p.stages[from].n_layers < 2)
				continue;
			p.stages[from].n_layers--;
			p.stages[to].n_layers++;
			group_moves_loosen(&p);
			has_moved = polish_with(q, best, &p) || has_moved;
		}
	}
}

static void take_best(struct group_search *q, struct solve_result *out)
{
	struct solve_candidate best = {.score.value = INFINITY}, c;
	for (int32_t i = 0; i < q->n_starts; i++)
		if (judge(q->s, &q->starts[i].plan, best.score.value, &c) && c.score.value < best.score.value * (1 - SOLVE_EQUAL))
			best = c;
	if (best.score.value < INFINITY)
		polish(q, &best);
	try_incumbent(q->s, out, &best);
	if (!(best.score.value < INFINITY)) {
		out->groups.why = SOLVE_GROUPS_NO_ROOM;
		return;
	}
	note_group(q->s, &best.plan, &out->groups);
	out->groups.with_s = best.score.value;
	out->groups.why = best.score.value < out->value * (1 - SOLVE_EQUAL) ? SOLVE_GROUPS_FORMED : SOLVE_GROUPS_SLOWER;
	if (out->groups.why != SOLVE_GROUPS_FORMED)
		return;
	put_fates(q->s, &best.plan, out->value, out->fates);
	out->plan = best.plan;
	out->value = best.score.value;
	out->ttft_s = best.score.ttft_s;
	out->stream_s = best.score.stream_s;
	out->n_judged = q->s->n_judged;
}

static enum solve_groups may_form(const struct solver *s)
{
	const struct solve_want *w = s->w;
	if (!w->allow_groups || w->order != NULL || w->head_layers > 0 || w->params.policy != COST_WINDOW || s->devices_max < 2)
		return SOLVE_GROUPS_OFF;
	return w->shape->split.n_heads < 1 ? SOLVE_GROUPS_UNKNOWN : SOLVE_GROUPS_FORMED;
}

// worst_layer_s is the most that a layer takes in a plan: on the mean, with its hops, or in one of its stages.
static double worst_layer_s(const struct solver *s, const struct cost_plan *p)
{
	struct cost_case c = group_moves_case(s, p);
	struct cost_closed closed;
	cost_closed(&c, &closed);
	double worst_s = closed.token_s / s->n_layers;
	for (int32_t i = 0; i < p->n_stages; i++)
		worst_s = solve_most(worst_s, closed.z_s[i] / p->stages[i].n_layers);
	return worst_s;
}

void solve_groups(struct solver *s, struct solve_result *out)
{
	bool has_many = s->hops == SOLVE_HOPS_SUM && s->n_seats > SOLVE_SUBSET_DEVICES;
	struct group_search q = {.s = s, .work_left = has_many ? WORK_MANY_MAX : WORK_MAX, .polish_left = has_many ? POLISH_MANY_MAX : POLISH_MAX};
	struct group_pick nearest;
	out->groups = (struct solve_group_note){.why = may_form(s), .plain_s = out->value};
	if (out->groups.why != SOLVE_GROUPS_FORMED)
		return;
	// Where the machines have room for all layers a group that is slower than every layer without groups gives nothing but the time to try it.
	q.n_picks = group_picks(s, worst_layer_s(s, &out->plan), has_many && !streams(s, &out->plan), q.picks, &nearest);
	if (q.n_picks == 0) {
		out->groups.why = nearest.group.n_members > 0 ? SOLVE_GROUPS_LINKS : SOLVE_GROUPS_FEW;
		out->groups.group = nearest.group;
		out->groups.layer_s = nearest.layer_s;
		out->groups.exchange_s = nearest.exchange_s;
		out->groups.alone_s = nearest.slowest_s;
		return;
	}
	find_starts(&q, &out->plan, false);
	if (s->n_seats <= GROUP_SEATS_FEW)
		find_starts(&q, &out->plan, true);
	int64_t part = q.work_left > 0 ? q.work_left / (q.n_starts > 0 ? q.n_starts : 1) : 0;
	q.work_left = 0;
	for (int32_t i = 0; i < q.n_starts; i++) { // each has its part, and what those before it left
		q.work_left += part;
		for (int32_t k = 0; k < q.starts[i].plan.n_stages && s->n_seats <= GROUP_SEATS_FEW; k++)
			if (group_moves_group_at(&q.starts[i].plan, k) >= 0)
				group_moves_eighths(&q, &q.starts[i], k, part / 4);
		group_moves_climb(&q, &q.starts[i]);
		add_groups(&q, &q.starts[i]);
	}
	take_best(&q, out);
}
