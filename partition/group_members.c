// Moves of machines between groups, stages of their own and no layers at all.
#include "partition/group_moves.h"

#define CUTS 6 // numbers of layers that are tried for a stage's new neighbour

void group_members_swap(struct cost_group *g, int32_t a, int32_t b)
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

// choose_again sets mode, forms and shares for the members as they are now.
static void choose_again(const struct group_search *q, struct cost_plan *p, int32_t group)
{
	struct group_pick pick = {.group = p->groups[group]};
	for (int32_t i = 0; i < p->n_stages; i++)
		if (group_moves_group_at(p, i) == group)
			group_choose_any(q->s, &pick, p->stages[i].n_layers);
	if (pick.layer_s < INFINITY)
		p->groups[group] = pick.group;
}

// is_picked tells whether a device is in one of the good sets.
static bool is_picked(const struct group_search *q, int32_t device)
{
	for (int32_t k = 0; k < q->n_picks; k++)
		if (group_has(&q->picks[k].group, device))
			return true;
	return false;
}

// is_few: of many machines only what gains most is tried.
static bool is_few(const struct group_search *q)
{
	return q->s->n_seats <= GROUP_SEATS_FEW;
}

static int32_t stage_of_group(const struct cost_plan *p, int32_t group)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		if (group_moves_group_at(p, i) == group)
			return i;
	return -1;
}

// put_head_first: the head's device begins the ring where it holds layers.
static void put_head_first(struct cost_plan *p)
{
	for (int32_t i = 1; i < p->n_stages; i++)
		if (p->stages[i].device == p->head)
			solve_shift(p, i, 0);
}

// try_changed tries a plan whose group has other members than before, of few machines in each mode.
static bool try_changed(struct group_search *q, struct group_start *at, struct cost_plan *p, int32_t group)
{
	put_head_first(p);
	group_moves_loosen(p);
	choose_again(q, p, group);
	if (!is_few(q))
		return group_moves_try(q, at, p);
	struct group_start tried = {*p, group_moves_token_s(q, p)};
	group_moves_modes(q, &tried, stage_of_group(p, group), true);
	if (!(tried.token_s < at->token_s * (1 - SOLVE_EQUAL)))
		return false;
	*at = tried;
	return true;
}

// take_out removes a member; another one leads then where it did.
static void take_out(struct cost_plan *p, int32_t group, int32_t member)
{
	struct cost_group *g = &p->groups[group];
	int32_t stage = stage_of_group(p, group);
	for (int32_t m = member; m + 1 < g->n_members; m++)
		group_members_swap(g, m, m + 1);
	g->n_members--;
	g->hub = 0;
	p->stages[stage].device = g->devices[0];
}

static bool add_stage(struct cost_plan *p, int32_t donor, int32_t device, int32_t n_layers)
{
	if (p->n_stages == STAGES_MAX || n_layers < 1 || n_layers >= p->stages[donor].n_layers)
		return false;
	p->stages[donor].n_layers -= n_layers;
	p->stages[p->n_stages++] = (struct cost_stage){.device = device, .n_layers = n_layers};
	solve_shift(p, p->n_stages - 1, donor + 1);
	return true;
}

// cut_of returns the k-th of some numbers of layers for a stage beside one that has n.
static int32_t cut_of(int32_t n, int32_t k)
{
	return n <= CUTS + 1 ? k + 1 : 1 + (int32_t)((int64_t)(n - 2) * k / (CUTS - 1));
}

// move_out lets a member of three or more have layers of its own, or none.
static bool move_out(struct group_search *q, struct group_start *at, int32_t group)
{
	bool has_moved = false;
	for (int32_t m = 0; m < at->plan.groups[group].n_members && at->plan.groups[group].n_members > 2; m++) {
		struct cost_plan without = at->plan;
		int32_t device = without.groups[group].devices[m], stage = stage_of_group(&without, group);
		take_out(&without, group, m);
		if (m > 0 || device != without.head) {
			struct cost_plan p = without;
			has_moved = try_changed(q, at, &p, group) || has_moved;
		}
		for (int32_t k = 0; k < CUTS && !has_moved && is_few(q); k++) {
			struct cost_plan p = without;
			if (add_stage(&p, stage, device, cut_of(p.stages[stage].n_layers, k)))
				has_moved = try_changed(q, at, &p, group) || has_moved;
		}
		if (has_moved)
			return true;
	}
	return false;
}

// move_in lets a machine that holds nothing, or has a stage of its own, be a member.
static bool move_in(struct group_search *q, struct group_start *at, int32_t group)
{
	bool has_moved = false;
	for (int32_t d = 0; d < q->s->w->cluster->n_devices && q->work_left > 0; d++) {
		struct cost_plan p = at->plan;
		struct cost_group *g = &p.groups[group];
		int32_t own = -1, stage = stage_of_group(&p, group);
		for (int32_t i = 0; i < p.n_stages; i++)
			own = p.stages[i].device == d ? i : own;
		bool is_free = own >= 0 ? is_few(q) && group_moves_group_at(&p, own) < 0 : group_moves_layers_of(&p, d) == 0 && is_picked(q, d);
		if (!is_free || !group_may(q->s, d) || g->n_members == GROUP_MEMBERS_MAX)
			continue;
		g->devices[g->n_members++] = d;
		if (own >= 0) {
			p.stages[stage].n_layers += p.stages[own].n_layers;
			solve_shift(&p, own, p.n_stages - 1);
			p.n_stages--;
			p.n_rounds = p.n_stages == 1 ? 1 : p.n_rounds;
			stage = stage_of_group(&p, group);
		}
		if (d == p.head) {
			group_members_swap(g, 0, g->n_members - 1);
			p.stages[stage].device = d;
		}
		has_moved = try_changed(q, at, &p, group) || has_moved;
	}
	return has_moved;
}

// move_beside gives layers of a stage to a machine that holds nothing.
static bool move_beside(struct group_search *q, struct group_start *at)
{
	bool has_moved = false;
	for (int32_t k = 0; k < q->s->n_seats * CUTS && !has_moved; k++) {
		int32_t d = q->s->seats[k / CUTS].device;
		for (int32_t i = 0; i < at->plan.n_stages && group_moves_layers_of(&at->plan, d) == 0; i++) {
			struct cost_plan p = at->plan;
			if (!add_stage(&p, i, d, cut_of(p.stages[i].n_layers, k % CUTS)))
				continue;
			put_head_first(&p);
			group_moves_loosen(&p);
			has_moved = group_moves_try(q, at, &p) || has_moved;
		}
	}
	return has_moved;
}

// put_device puts device b where a is, as a member or a stage.
static void put_device(struct cost_plan *p, int32_t a, int32_t b)
{
	for (int32_t i = 0; i < p->n_groups; i++)
		for (int32_t m = 0; m < p->groups[i].n_members; m++)
			if (p->groups[i].devices[m] == a)
				p->groups[i].devices[m] = b;
	for (int32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].device == a)
			p->stages[i].device = b;
}

// lead_by makes the head's device lead its group, or, with m > 0, another member.
static void lead_by(struct cost_plan *p, int32_t group, int32_t m)
{
	struct cost_group *g = &p->groups[group];
	int32_t stage = stage_of_group(p, group);
	for (int32_t i = 1; i < g->n_members && m == 0; i++)
		m = g->devices[i] == p->head ? i : m;
	group_members_swap(g, 0, m);
	p->stages[stage].device = g->devices[0];
}

// move_swap exchanges a member and another machine, wherever that is, or the lead and another member.
static bool move_swap(struct group_search *q, struct group_start *at, int32_t group)
{
	bool has_moved = false;
	for (int32_t m = 0; m < at->plan.groups[group].n_members; m++) {
		for (int32_t k = 0; k < q->s->n_seats && q->work_left > 0; k++) {
			struct cost_plan p = at->plan;
			int32_t a = p.groups[group].devices[m], b = q->s->seats[k].device;
			if (group_has(&p.groups[group], b) || !group_may(q->s, b))
				continue;
			put_device(&p, a, -1);
			put_device(&p, b, a);
			put_device(&p, -1, b);
			for (int32_t i = 0; i < p.n_groups; i++)
				lead_by(&p, i, 0);
			has_moved = try_changed(q, at, &p, group) || has_moved;
		}
		struct cost_plan p = at->plan;
		if (m == 0 || p.groups[group].devices[0] == p.head)
			continue;
		lead_by(&p, group, m);
		group_moves_loosen(&p);
		has_moved = group_moves_try(q, at, &p) || has_moved;
	}
	return has_moved;
}

bool group_members_move(struct group_search *q, struct group_start *at)
{
	bool has_moved = false;
	for (int32_t i = 0; i < at->plan.n_groups; i++) {
		has_moved = move_out(q, at, i) || has_moved;
		has_moved = move_in(q, at, i) || has_moved;
		if (is_few(q))
			has_moved = move_swap(q, at, i) || has_moved;
	}
	if (is_few(q))
		has_moved = move_beside(q, at) || has_moved;
	return has_moved;
}
