#include "partition/group_moves.h"

#include "partition/cost_round.h"

#define NEAR 1.2        // what may become better than the plan there is
#define EACH_TO_EACH 4  // members that give parts of layers each to each
#define EIGHTHS_MEMBERS 3 // members whose shares are tried in every number of eighths
#define BALANCE_MOST 4  // parts of a layer that change hands at once
#define STREAM_LEVELS 8 // between as few streamed units as fit and as many as the disk reads in a token's time
#define EVAL_WORK 200   // of a plan, beside its layers

struct cost_case group_moves_case(const struct solver *s, const struct cost_plan *p)
{
	return (struct cost_case){.cluster = s->w->cluster, .shape = s->w->shape, .plan = p, .params = s->w->params};
}

int32_t group_moves_group_at(const struct cost_plan *p, int32_t stage)
{
	const struct cost_group *g = cost_group_of(p, stage);
	return g == NULL ? -1 : (int32_t)(g - p->groups);
}

int32_t group_moves_layers_of(const struct cost_plan *p, int32_t device)
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

// part_of returns how many layers' worth a device holds: of a group's, its share of them, rounded up.
static int32_t part_of(const struct cost_plan *p, int32_t device)
{
	int32_t n_layers = group_moves_layers_of(p, device);
	for (int32_t i = 0; i < p->n_groups; i++) {
		const struct cost_group *g = &p->groups[i];
		uint64_t sum = 0, own = 0;
		for (int32_t m = 0; m < g->n_members; m++) {
			sum += g->shares[m];
			own += g->devices[m] == device ? g->shares[m] : 0;
		}
		if (group_has(g, device) && sum > 0)
			return own == 0 ? 1 : (int32_t)(((uint64_t)n_layers * own + sum - 1) / sum);
	}
	return n_layers;
}

static bool keeps_wants(const struct solver *s, const struct cost_plan *p)
{
	int32_t n = p->n_stages;
	for (int32_t i = 0; i < p->n_groups; i++)
		n += p->groups[i].n_members - 1;
	for (int32_t d = 0; s->w->limits && d < s->w->cluster->n_devices; d++) {
		int32_t l = part_of(p, d);
		if (l < s->w->limits[d].layers_min || l > s->w->limits[d].layers_max)
			return false;
	}
	bool has_rounds = p->n_stages == 1 ? p->n_rounds == 1 : p->n_rounds >= s->rounds_min && p->n_rounds <= s->rounds_max;
	return n <= s->devices_max && has_rounds;
}

bool group_moves_possible(const struct solver *s, const struct cost_plan *p)
{
	struct cost_case c = group_moves_case(s, p);
	struct cost_layout l;
	if (!keeps_wants(s, p) || cost_group_check(&c, NULL) != OK || !(solve_ring_hops_s(s, p) < INFINITY))
		return false;
	for (int32_t i = 0; i < p->n_stages; i++) {
		const struct cost_group *g = cost_group_of(p, i);
		if (p->stages[i].n_layers < 1 || cost_layout_of(&c, i, &l, NULL) != OK || (g && g->mode != GROUP_GATHER && l.n_streamed > 0))
			return false; // columns that are dealt by lanes stay in memory, and none of them is streamed (engine/lane_sums.h)
	}
	return true;
}

double group_moves_token_s(struct group_search *q, const struct cost_plan *p)
{
	struct cost_case c = group_moves_case(q->s, p);
	struct cost_closed closed;
	if (q->work_left <= 0)
		return INFINITY;
	q->work_left -= EVAL_WORK;
	for (int32_t i = 0; i < p->n_stages; i++) {
		const struct cost_group *g = cost_group_of(p, i);
		q->work_left -= p->stages[i].n_layers * (g ? g->n_members * 3 : 1);
	}
	if (!group_moves_possible(q->s, p))
		return INFINITY;
	cost_closed(&c, &closed);
	return closed.token_s;
}

bool group_moves_try(struct group_search *q, struct group_start *at, const struct cost_plan *p)
{
	double token_s = group_moves_token_s(q, p);
	if (!(token_s < at->token_s * (1 - SOLVE_EQUAL)))
		return false;
	*at = (struct group_start){*p, token_s};
	return true;
}

// ---- Shares

// move_share gives n parts of a layer from one member to another.
static bool move_share(struct group_search *q, struct group_start *at, int32_t group, int32_t from, int32_t to, uint32_t n)
{
	struct cost_plan p = at->plan;
	struct cost_group *g = &p.groups[group];
	if (g->shares[from] < n)
		return false;
	g->shares[from] -= n;
	g->shares[to] += n;
	g->n_streamed[from] = g->n_streamed[to] = COST_STREAM_LEAST;
	return group_moves_try(q, at, &p);
}

// move_pairs gives n parts from one member to another: of few members each to each, of many from or to the slowest.
static bool move_pairs(struct group_search *q, struct group_start *at, int32_t stage, uint32_t n)
{
	struct cost_case c = group_moves_case(q->s, &at->plan);
	int32_t group = group_moves_group_at(&at->plan, stage), n_members = at->plan.groups[group].n_members, slowest = 0;
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

// move_places swaps two members behind the lead: which heads and lanes are whose goes by their order.
static bool move_places(struct group_search *q, struct group_start *at, int32_t stage)
{
	int32_t group = group_moves_group_at(&at->plan, stage);
	for (int32_t a = 1; a < at->plan.groups[group].n_members; a++) {
		for (int32_t b = a + 1; b < at->plan.groups[group].n_members; b++) {
			struct cost_plan p = at->plan;
			group_members_swap(&p.groups[group], a, b);
			if (group_moves_try(q, at, &p))
				return true;
		}
	}
	return false;
}

// balance moves parts of a group's layers between members, more of them and then single ones, until that gains no more.
static bool balance(struct group_search *q, struct group_start *at, int32_t stage)
{
	bool has_gained = false, is_possible_now = at->token_s < INFINITY;
	for (uint32_t n = BALANCE_MOST; n >= 1 && is_possible_now; n /= 2)
		while (q->work_left > 0 && (move_pairs(q, at, stage, n) || (n == 1 && move_places(q, at, stage))))
			has_gained = true;
	return has_gained;
}

// deal_eighths gives the shares of two or three members every number of eighths: those by rates may not fit, which no move mends, or lie in a valley of
// windows and heads. It spends at most `most` of the work.
static bool deal_eighths(struct group_search *q, struct group_start *at, int32_t stage, int64_t most)
{
	int32_t group = group_moves_group_at(&at->plan, stage), n_members = at->plan.groups[group].n_members;
	int64_t least_left = q->work_left - most;
	bool has_moved = false;
	for (uint32_t k = 0; k < 64 && n_members <= EIGHTHS_MEMBERS && q->work_left > least_left; k++) {
		struct cost_plan p = at->plan;
		struct cost_group *g = &p.groups[group];
		uint32_t first = 1 + k / 8, second = n_members == 2 ? 8 - first : 1 + k % 8;
		if (first + second > 8 || second == 0 || (n_members == 2 && k % 8 != 0) || (n_members == 3 && first + second == 8))
			continue;
		g->shares[0] = first;
		g->shares[1] = second;
		g->shares[2] = n_members == 3 ? 8 - first - second : 0;
		group_moves_loosen(&p);
		has_moved = group_moves_try(q, at, &p) || has_moved;
	}
	return has_moved;
}

bool group_moves_eighths(struct group_search *q, struct group_start *at, int32_t stage, int64_t most)
{
	bool has_moved = false;
	for (int32_t mode = GROUP_GATHER; mode <= GROUP_REDUCE; mode++) {
		struct group_start tried = {at->plan, INFINITY};
		struct cost_group *g = &tried.plan.groups[group_moves_group_at(&tried.plan, stage)];
		struct group_pick pick = {.group = *g};
		group_choose(q->s, &pick, (enum group_mode)mode, tried.plan.stages[stage].n_layers, false);
		if (!(pick.layer_s < INFINITY))
			continue;
		*g = pick.group;
		if (!deal_eighths(q, &tried, stage, most / 3) || !(tried.token_s < at->token_s * (1 - SOLVE_EQUAL)))
			continue;
		*at = tried;
		has_moved = true;
	}
	return has_moved;
}

bool group_moves_modes(struct group_search *q, struct group_start *at, int32_t stage, bool balances)
{
	bool has_moved = false;
	for (int32_t mode = GROUP_GATHER - 1; mode <= GROUP_REDUCE; mode++) {
		struct cost_plan p = at->plan;
		bool by_heads = mode < GROUP_GATHER;
		struct cost_group *g = &p.groups[group_moves_group_at(&p, stage)];
		struct group_pick pick = {.group = *g};
		group_choose(q->s, &pick, by_heads ? GROUP_GATHER : (enum group_mode)mode, p.stages[stage].n_layers, by_heads);
		if (!(pick.layer_s < INFINITY))
			continue;
		*g = pick.group;
		struct group_start tried = {p, group_moves_token_s(q, &p)};
		if (!(tried.token_s < INFINITY) && q->s->n_seats <= GROUP_SEATS_FEW)
			deal_eighths(q, &tried, stage, q->work_left / 64);
		if (balances && (q->s->n_seats <= GROUP_SEATS_FEW || tried.token_s < at->token_s * NEAR))
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
		int32_t group = group_moves_group_at(p, i);
		struct cost_case c = group_moves_case(s, p);
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

static void move_streams(struct group_search *q, struct group_start *at)
{
	struct cost_plan p = at->plan;
	struct cost_case c = group_moves_case(q->s, &p);
	struct cost_layout l;
	int32_t n_streamed = 0;
	for (int32_t i = 0; i < p.n_stages; i++)
		n_streamed += cost_layout_of(&c, i, &l, NULL) == OK ? l.n_streamed : 0;
	for (int32_t level = 0; level <= STREAM_LEVELS && n_streamed > 0; level++) {
		set_streams(q->s, &p, level, at->token_s);
		group_moves_try(q, at, &p);
	}
}

// ---- Moves

static void drop_stage(struct cost_plan *p, int32_t stage)
{
	int32_t group = group_moves_group_at(p, stage);
	if (group >= 0)
		p->groups[group] = p->groups[--p->n_groups];
	solve_shift(p, stage, p->n_stages - 1);
	p->n_stages--;
	if (p->n_stages == 1)
		p->n_rounds = 1;
}

void group_moves_loosen(struct cost_plan *p)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		p->stages[i].n_streamed = COST_STREAM_LEAST;
	for (int32_t i = 0; i < p->n_groups; i++)
		for (int32_t m = 0; m < p->groups[i].n_members; m++)
			p->groups[i].n_streamed[m] = COST_STREAM_LEAST;
}

static bool move_layers(struct group_search *q, struct group_start *at)
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
				group_moves_loosen(&p);
				if (k == 0)
					drop_stage(&p, a);
				has_moved = group_moves_try(q, at, &p) || has_moved;
			}
		}
	}
	return has_moved;
}

static bool move_rounds(struct group_search *q, struct group_start *at)
{
	bool has_moved = false;
	for (int32_t d = -1; d <= 1; d += 2) {
		struct cost_plan p = at->plan;
		p.n_rounds += d;
		if (p.n_stages == 1 || p.n_rounds < 1)
			continue;
		has_moved = group_moves_try(q, at, &p) || has_moved;
		struct group_start other = {p, INFINITY};
		set_streams(q->s, &other.plan, STREAM_LEVELS, at->token_s);
		has_moved = group_moves_try(q, at, &other.plan) || has_moved;
	}
	return has_moved;
}

bool group_moves_head(const struct solver *s, struct cost_plan *p)
{
	const struct cluster_device *d = &s->w->cluster->devices[p->head];
	if (!p->head_on_accel && (s->w->shape->head_bytes == 0 || d->accel_bytes < s->w->shape->head_bytes))
		return false;
	p->head_on_accel = !p->head_on_accel;
	group_moves_loosen(p);
	return true;
}

void group_moves_climb(struct group_search *q, struct group_start *at)
{
	bool has_moved;
	do {
		double before_s = at->token_s;
		has_moved = move_layers(q, at);
		has_moved = move_rounds(q, at) || has_moved;
		struct cost_plan other = at->plan;
		has_moved = (group_moves_head(q->s, &other) && group_moves_try(q, at, &other)) || has_moved;
		move_streams(q, at);
		has_moved = group_members_move(q, at) || has_moved;
		for (int32_t i = 0; i < at->plan.n_stages; i++)
			if (group_moves_group_at(&at->plan, i) >= 0)
				has_moved = group_moves_modes(q, at, i, true) || balance(q, at, i) || has_moved;
		has_moved = has_moved || at->token_s < before_s * (1 - 1e-6);
	} while (has_moved && q->work_left > 0);
}
