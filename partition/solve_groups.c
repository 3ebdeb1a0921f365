// Plans with groups: starts, moves measured by the closed form, and the exact judge at the end.
#include "partition/solve_groups.h"

#include "partition/cost_round.h"

#define WORK_MAX 600000      // layers of members that the closed form walks over, three times each: some forty milliseconds
#define WORK_MANY_MAX 100000 // of more machines than subsets are made of behind one access point: ten, as the rest takes thirty
#define POLISH_MAX 24
#define POLISH_MANY_MAX 4
#define SEATS_FEW 8 // machines of which each start can be balanced before the best are taken
#define STARTS_KEPT 4   // that are improved by moves and judged
#define NEAR 1.2        // what may become better than the plan there is
#define EACH_TO_EACH 4  // members that give parts of layers each to each
#define BALANCE_MOST 4  // parts of a layer that change hands at once
#define STREAM_LEVELS 8 // between as few streamed units as fit and as many as the disk reads in a token's time
#define EVAL_WORK 200   // of a plan, beside its layers

struct start {
	struct cost_plan plan;
	double token_s; // by the closed form
};

struct search {
	struct solver *s;
	int64_t work_left;
	int32_t polish_left; // plans that the judge may still be asked about
	int32_t n_picks;
	struct group_pick picks[GROUP_PICKS_MAX];
	int32_t n_starts;
	struct start starts[STARTS_KEPT]; // best first
};

static struct cost_case case_of(const struct solver *s, const struct cost_plan *p)
{
	return (struct cost_case){.cluster = s->w->cluster, .shape = s->w->shape, .plan = p, .params = s->w->params};
}

static int32_t group_at(const struct cost_plan *p, int32_t stage)
{
	const struct cost_group *g = cost_group_of(p, stage);
	return g == NULL ? -1 : (int32_t)(g - p->groups);
}

// layers_of returns how many layers a device holds, in a group or alone.
static int32_t layers_of(const struct cost_plan *p, int32_t device)
{
	for (int32_t i = 0; i < p->n_stages; i++) {
		const struct cost_group *g = cost_group_of(p, i);
		if (p->stages[i].device == device)
			return p->stages[i].n_layers;
		for (int32_t m = 0; g && m < g->n_members; m++)
			if (g->devices[m] == device)
				return p->stages[i].n_layers;
	}
	return 0;
}

static bool keeps_wants(const struct solver *s, const struct cost_plan *p)
{
	int32_t n = p->n_stages;
	for (int32_t i = 0; i < p->n_groups; i++)
		n += p->groups[i].n_members - 1;
	for (int32_t d = 0; s->w->limits && d < s->w->cluster->n_devices; d++) {
		int32_t l = layers_of(p, d);
		if (l < s->w->limits[d].layers_min || l > s->w->limits[d].layers_max)
			return false;
	}
	bool has_rounds = p->n_stages == 1 ? p->n_rounds == 1 : p->n_rounds >= s->rounds_min && p->n_rounds <= s->rounds_max;
	return n <= s->devices_max && has_rounds;
}

static bool is_possible(const struct solver *s, const struct cost_plan *p)
{
	struct cost_case c = case_of(s, p);
	struct cost_layout l;
	if (!keeps_wants(s, p) || cost_group_check(&c, NULL) != OK || !(solve_ring_hops_s(s, p) < INFINITY))
		return false;
	for (int32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].n_layers < 1 || cost_layout_of(&c, i, &l, NULL) != OK)
			return false;
	return true;
}

// token_of is a plan's time by the closed form; INFINITY: not possible, or the work is spent.
static double token_of(struct search *q, const struct cost_plan *p)
{
	struct cost_case c = case_of(q->s, p);
	struct cost_closed closed;
	if (q->work_left <= 0)
		return INFINITY;
	q->work_left -= EVAL_WORK;
	for (int32_t i = 0; i < p->n_stages; i++) {
		const struct cost_group *g = cost_group_of(p, i);
		q->work_left -= p->stages[i].n_layers * (g ? g->n_members * 3 : 1);
	}
	if (!is_possible(q->s, p))
		return INFINITY;
	cost_closed(&c, &closed);
	return closed.token_s;
}

static bool try_plan(struct search *q, struct start *at, const struct cost_plan *p)
{
	double token_s = token_of(q, p);
	if (!(token_s < at->token_s * (1 - SOLVE_EQUAL)))
		return false;
	*at = (struct start){*p, token_s};
	return true;
}

// ---- Shares

// move_share gives n parts of a layer from one member to another.
static bool move_share(struct search *q, struct start *at, int32_t group, int32_t from, int32_t to, uint32_t n)
{
	struct cost_plan p = at->plan;
	struct cost_group *g = &p.groups[group];
	if (g->shares[from] < n)
		return false;
	g->shares[from] -= n;
	g->shares[to] += n;
	g->n_streamed[from] = g->n_streamed[to] = COST_STREAM_LEAST;
	return try_plan(q, at, &p);
}

// move_pairs gives n parts from one member to another: of few members each to each, of many from or to the slowest.
static bool move_pairs(struct search *q, struct start *at, int32_t stage, uint32_t n)
{
	struct cost_case c = case_of(q->s, &at->plan);
	int32_t group = group_at(&at->plan, stage), n_members = at->plan.groups[group].n_members, slowest = 0;
	double z_s[GROUP_MEMBERS_MAX];
	cost_members_s(&c, stage, z_s);
	for (int32_t i = 1; i < n_members; i++)
		slowest = z_s[i] > z_s[slowest] ? i : slowest;
	for (int32_t k = 0; k < n_members * n_members; k++) {
		int32_t from = k / n_members, to = k % n_members;
		bool is_tried = from != to && (n_members <= EACH_TO_EACH || from == slowest || to == slowest);
		if (is_tried && move_share(q, at, group, from, to, n))
			return true;
	}
	return false;
}

static void swap_members(struct cost_group *g, int32_t a, int32_t b)
{
	int32_t device = g->devices[a], n_streamed = g->n_streamed[a];
	uint32_t share = g->shares[a];
	g->devices[a] = g->devices[b];
	g->shares[a] = g->shares[b];
	g->n_streamed[a] = g->n_streamed[b];
	g->devices[b] = device;
	g->shares[b] = share;
	g->n_streamed[b] = n_streamed;
}

// move_places swaps two members behind the lead: which heads and lanes are whose goes by their order.
static bool move_places(struct search *q, struct start *at, int32_t stage)
{
	int32_t group = group_at(&at->plan, stage);
	for (int32_t a = 1; a < at->plan.groups[group].n_members; a++) {
		for (int32_t b = a + 1; b < at->plan.groups[group].n_members; b++) {
			struct cost_plan p = at->plan;
			swap_members(&p.groups[group], a, b);
			if (try_plan(q, at, &p))
				return true;
		}
	}
	return false;
}

// balance moves parts of a group's layers between members, more of them and then single ones, until that gains no more.
static bool balance(struct search *q, struct start *at, int32_t stage)
{
	bool has_gained = false, is_possible_now = at->token_s < INFINITY;
	for (uint32_t n = BALANCE_MOST; n >= 1 && is_possible_now; n /= 2)
		while (q->work_left > 0 && (move_pairs(q, at, stage, n) || (n == 1 && move_places(q, at, stage))))
			has_gained = true;
	return has_gained;
}

// move_modes tries each mode with shares by rates, gathering also with whole KV heads; what comes near is balanced first, if that is wanted.
static bool move_modes(struct search *q, struct start *at, int32_t stage, bool balances)
{
	bool has_moved = false;
	for (int32_t mode = GROUP_GATHER - 1; mode <= GROUP_REDUCE; mode++) {
		struct cost_plan p = at->plan;
		bool by_heads = mode < GROUP_GATHER;
		struct cost_group *g = &p.groups[group_at(&p, stage)];
		struct group_pick pick = {.group = *g};
		group_choose(q->s, &pick, by_heads ? GROUP_GATHER : (enum group_mode)mode, p.stages[stage].n_layers, by_heads);
		if (!(pick.layer_s < INFINITY))
			continue;
		*g = pick.group;
		struct start tried = {p, token_of(q, &p)};
		if (balances && (q->s->n_seats <= SEATS_FEW || tried.token_s < at->token_s * NEAR))
			balance(q, &tried, stage);
		if (!(tried.token_s < at->token_s * (1 - SOLVE_EQUAL)))
			continue;
		*at = tried;
		has_moved = true;
	}
	return has_moved;
}

// ---- Streams

static int32_t level_of(int32_t least, int32_t most, int32_t level)
{
	return most <= least ? least : least + (int32_t)((int64_t)(most - least) * level / STREAM_LEVELS);
}

// set_streams lets all that stream do so at a level: more streaming has larger windows.
static void set_streams(const struct solver *s, struct cost_plan *p, int32_t level, double token_s)
{
	for (int32_t i = 0; i < p->n_stages; i++) {
		int32_t group = group_at(p, i);
		struct cost_case c = case_of(s, p);
		struct cost_crew w;
		if (group >= 0)
			cost_crew_init(&w, &c, i);
		for (int32_t m = 0; m < (group >= 0 ? p->groups[group].n_members : 1); m++) {
			const struct cost_case *mine = group >= 0 ? &w.cases[m] : &c;
			const struct cluster_device *d = &s->w->cluster->devices[group >= 0 ? w.parts[m].device : p->stages[i].device];
			int32_t *n = group >= 0 ? &p->groups[group].n_streamed[m] : &p->stages[i].n_streamed;
			struct cost_layout l;
			*n = COST_STREAM_LEAST;
			if (group >= 0)
				w.parts[m].n_streamed = COST_STREAM_LEAST;
			if (cost_layout_of(mine, i, &l, NULL) != OK || l.n_streamed == 0 || level == 0)
				continue;
			double most = token_s * d->disk_rate / l.unit_bytes;
			*n = level_of(l.n_streamed, most < l.n_units ? (int32_t)most : l.n_units, level);
		}
	}
}

static void move_streams(struct search *q, struct start *at)
{
	struct cost_plan p = at->plan;
	struct cost_case c = case_of(q->s, &p);
	struct cost_layout l;
	int32_t n_streamed = 0;
	for (int32_t i = 0; i < p.n_stages; i++)
		n_streamed += cost_layout_of(&c, i, &l, NULL) == OK ? l.n_streamed : 0;
	for (int32_t level = 0; level <= STREAM_LEVELS && n_streamed > 0; level++) {
		set_streams(q->s, &p, level, at->token_s);
		try_plan(q, at, &p);
	}
}

// ---- Moves

static void drop_stage(struct cost_plan *p, int32_t stage)
{
	int32_t group = group_at(p, stage);
	if (group >= 0)
		p->groups[group] = p->groups[--p->n_groups];
	solve_shift(p, stage, p->n_stages - 1);
	p->n_stages--;
	if (p->n_stages == 1)
		p->n_rounds = 1;
}

// loosen takes as few streamed units as fit: with other layers the old ones may be none.
static void loosen(struct cost_plan *p)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		p->stages[i].n_streamed = COST_STREAM_LEAST;
	for (int32_t i = 0; i < p->n_groups; i++)
		for (int32_t m = 0; m < p->groups[i].n_members; m++)
			p->groups[i].n_streamed[m] = COST_STREAM_LEAST;
}

static bool move_layers(struct search *q, struct start *at)
{
	static const int32_t steps[] = {LAYERS_MAX, 16, 4, 1};
	bool has_moved = false;
	for (int32_t k = 0; k < (int32_t)ARRAY_LEN(steps); k++) {
		for (int32_t a = 0; a < at->plan.n_stages; a++) {
			for (int32_t b = 0; b < at->plan.n_stages; b++) {
				struct cost_plan p = at->plan;
				if (a == b || a >= p.n_stages || (k > 0 && steps[k] >= p.stages[a].n_layers))
					continue;
				int32_t n = k == 0 ? p.stages[a].n_layers : steps[k];
				p.stages[a].n_layers -= n;
				p.stages[b].n_layers += n;
				loosen(&p);
				if (k == 0)
					drop_stage(&p, a);
				has_moved = try_plan(q, at, &p) || has_moved;
			}
		}
	}
	return has_moved;
}

static bool move_rounds(struct search *q, struct start *at)
{
	bool has_moved = false;
	for (int32_t d = -1; d <= 1; d += 2) {
		struct cost_plan p = at->plan;
		p.n_rounds += d;
		if (p.n_stages == 1 || p.n_rounds < 1)
			continue;
		has_moved = try_plan(q, at, &p) || has_moved;
		struct start other = {p, INFINITY};
		set_streams(q->s, &other.plan, STREAM_LEVELS, at->token_s);
		has_moved = try_plan(q, at, &other.plan) || has_moved;
	}
	return has_moved;
}

// choose_again sets mode, forms and shares for the members as they are now.
static void choose_again(const struct solver *s, struct cost_plan *p, int32_t group)
{
	struct group_pick pick = {.group = p->groups[group]};
	for (int32_t i = 0; i < p->n_stages; i++)
		if (group_at(p, i) == group)
			group_choose_any(s, &pick, p->stages[i].n_layers);
	if (pick.layer_s < INFINITY)
		p->groups[group] = pick.group;
}

static void remove_member(struct cost_group *g, int32_t member)
{
	for (int32_t m = member; m + 1 < g->n_members; m++) {
		g->devices[m] = g->devices[m + 1];
		g->shares[m] = g->shares[m + 1];
		g->n_streamed[m] = g->n_streamed[m + 1];
	}
	g->n_members--;
}

// is_picked tells whether a device is in one of the good sets.
static bool is_picked(const struct search *q, int32_t device)
{
	for (int32_t k = 0; k < q->n_picks; k++)
		if (group_has(&q->picks[k].group, device))
			return true;
	return false;
}

// move_members takes a member out of a group, who then holds nothing, or takes in a machine that holds nothing.
static bool move_members(struct search *q, struct start *at)
{
	bool has_moved = false;
	for (int32_t i = 0; i < at->plan.n_groups; i++) {
		for (int32_t m = 1; m < at->plan.groups[i].n_members && at->plan.groups[i].n_members > 2; m++) {
			struct cost_plan p = at->plan;
			remove_member(&p.groups[i], m);
			choose_again(q->s, &p, i);
			loosen(&p);
			has_moved = try_plan(q, at, &p) || has_moved;
		}
		for (int32_t d = 0; d < q->s->w->cluster->n_devices && q->work_left > 0; d++) {
			struct cost_plan p = at->plan;
			struct cost_group *g = &p.groups[i];
			if (!is_picked(q, d) || layers_of(&p, d) > 0 || g->n_members == GROUP_MEMBERS_MAX)
				continue;
			g->devices[g->n_members++] = d;
			choose_again(q->s, &p, i);
			loosen(&p);
			has_moved = try_plan(q, at, &p) || has_moved;
		}
	}
	return has_moved;
}

static void climb(struct search *q, struct start *at)
{
	bool has_moved;
	do {
		double before_s = at->token_s;
		has_moved = move_layers(q, at);
		has_moved = move_rounds(q, at) || has_moved;
		move_streams(q, at);
		has_moved = move_members(q, at) || has_moved;
		for (int32_t i = 0; i < at->plan.n_stages; i++)
			if (group_at(&at->plan, i) >= 0)
				has_moved = move_modes(q, at, i, true) || balance(q, at, i) || has_moved;
		has_moved = has_moved || at->token_s < before_s * (1 - 1e-6);
	} while (has_moved && q->work_left > 0);
}

// ---- Starts

static void keep_start(struct search *q, const struct start *fresh)
{
	if (!(fresh->token_s < INFINITY) || (q->n_starts == STARTS_KEPT && fresh->token_s >= q->starts[STARTS_KEPT - 1].token_s))
		return;
	for (int32_t i = 0; i < q->n_starts; i++)
		if (q->starts[i].token_s == fresh->token_s)
			return; // most likely the same
	int32_t at = q->n_starts < STARTS_KEPT ? q->n_starts++ : STARTS_KEPT - 1;
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

static void start_from(struct search *q, const struct cost_plan *p, bool balances)
{
	struct start at = {*p, token_of(q, p)};
	for (int32_t i = 0; i < at.plan.n_stages; i++)
		if (group_at(&at.plan, i) >= 0)
			move_modes(q, &at, i, balances);
	keep_start(q, &at);
}

static void find_starts(struct search *q, const struct cost_plan *base, bool balances)
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
static void add_groups(struct search *q, struct start *at)
{
	for (int32_t i = 0; i < q->n_picks; i++) {
		struct start with = {.token_s = INFINITY};
		if (!merged(&at->plan, &q->picks[i].group, &with.plan))
			continue;
		with.token_s = token_of(q, &with.plan);
		for (int32_t k = 0; k < with.plan.n_stages; k++)
			if (with.plan.stages[k].device == q->picks[i].group.devices[0])
				move_modes(q, &with, k, false);
		if (!(with.token_s < at->token_s * (1 - SOLVE_EQUAL)))
			continue;
		*at = with;
		climb(q, at);
	}
}

// ---- The judge

static bool judge(struct solver *s, const struct cost_plan *p, struct solve_candidate *out)
{
	*out = (struct solve_candidate){.plan = *p};
	if (!is_possible(s, p))
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
		if (layers_of(p, d) > 0)
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
	struct cost_case k = case_of(s, p);
	if (cost_check(&k, NULL) != OK || !judge(s, p, &c))
		return;
	out->incumbent_s = c.score.value;
	if (c.score.value < best->score.value * (1 - SOLVE_EQUAL))
		*best = c;
}

static bool streams(const struct solver *s, const struct cost_plan *p)
{
	struct cost_case c = case_of(s, p);
	struct cost_layout l;
	for (int32_t i = 0; i < p->n_stages; i++)
		if (cost_layout_of(&c, i, &l, NULL) == OK && l.n_streamed > 0)
			return true;
	return false;
}

static bool polish_with(struct search *q, struct solve_candidate *best, const struct cost_plan *p)
{
	struct solve_candidate c;
	q->polish_left--;
	if (q->polish_left < 0 || !judge(q->s, p, &c) || !(c.score.value < best->score.value * (1 - SOLVE_EQUAL)))
		return false;
	*best = c;
	return true;
}

// polish lets the judge try the neighbours of a plan that streams, which the closed form knows a little less well: single parts of layers to another
// member, and single layers to another stage.
static void polish(struct search *q, struct solve_candidate *best)
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
				loosen(&p);
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
			loosen(&p);
			has_moved = polish_with(q, best, &p) || has_moved;
		}
	}
}

static void take_best(struct search *q, struct solve_result *out)
{
	struct solve_candidate best = {.score.value = INFINITY}, c;
	for (int32_t i = 0; i < q->n_starts; i++)
		if (judge(q->s, &q->starts[i].plan, &c) && c.score.value < best.score.value * (1 - SOLVE_EQUAL))
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
	struct cost_case c = case_of(s, p);
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
	struct search q = {.s = s, .work_left = has_many ? WORK_MANY_MAX : WORK_MAX, .polish_left = has_many ? POLISH_MANY_MAX : POLISH_MAX};
	struct group_pick nearest;
	out->groups = (struct solve_group_note){.why = may_form(s), .plain_s = out->value};
	if (out->groups.why != SOLVE_GROUPS_FORMED)
		return;
	q.n_picks = group_picks(s, worst_layer_s(s, &out->plan), q.picks, &nearest);
	if (q.n_picks == 0) {
		out->groups.why = nearest.group.n_members > 0 ? SOLVE_GROUPS_LINKS : SOLVE_GROUPS_FEW;
		out->groups.group = nearest.group;
		out->groups.layer_s = nearest.layer_s;
		out->groups.exchange_s = nearest.exchange_s;
		out->groups.alone_s = nearest.slowest_s;
		return;
	}
	find_starts(&q, &out->plan, false);
	if (s->n_seats <= SEATS_FEW)
		find_starts(&q, &out->plan, true);
	int64_t part = q.work_left > 0 ? q.work_left / (q.n_starts > 0 ? q.n_starts : 1) : 0;
	q.work_left = 0;
	for (int32_t i = 0; i < q.n_starts; i++) { // each has its part, and what those before it left
		q.work_left += part;
		climb(&q, &q.starts[i]);
		add_groups(&q, &q.starts[i]);
	}
	take_best(&q, out);
}
