// Which machines to try as a group, and how they would exchange.
#include "partition/solve_groups.h"

#define CHOICE_DEVICES_MAX 32 // the fastest ones
#define SEEDS_MAX 16
#define SETS_MAX 128
#define SETS_OF_SIZE 3 // that are tried: equal machines make many equal sets
#define NEAR_STEPS 8 // of a layer: four gatherings through a hub, or two sums round three
#define GATHER_PARTS 64 // of a layer, where rows are cut

struct way_figures {
	double fixed_s, per_byte_s; // INFINITY: they do not reach each other
};

struct choice {
	const struct solver *s;
	double layer_bytes, payload; // of one layer with its KV; of its exchanges
	double worst_s;              // what a layer takes somewhere in the plan without groups
	bool is_strict;              // a group that takes longer is none, however slow its slowest member is alone
	int32_t n;
	int32_t devices[CHOICE_DEVICES_MAX];
	double rates[CHOICE_DEVICES_MAX];
	struct way_figures ways[CHOICE_DEVICES_MAX][CHOICE_DEVICES_MAX];
};

// Members by place among the devices of a choice.
struct set {
	uint32_t mask;
	double layer_s, ratio; // ratio: to what a layer takes its slowest member, or the slowest stage of the plan without groups
};

bool group_may(const struct solver *s, int32_t device)
{
	const struct solve_limit *l = s->w->limits ? &s->w->limits[device] : NULL;
	return l == NULL || (l->layers_min <= 1 && l->layers_max > l->layers_min); // not so many by hand
}

// rate_of is that of the accelerator where it holds an even part of the model.
static double rate_of(const struct solver *s, int32_t device, int32_t n_members)
{
	const struct cluster_device *d = &s->w->cluster->devices[device];
	bool holds_part = d->accel_bytes > 0 && (double)d->accel_bytes * n_members >= s->layer_mean_bytes * s->n_layers;
	return holds_part ? d->accel_rate : cluster_cpu_rate(d, s->w->shape->type);
}

static double kv_of(const struct solver *s)
{
	return (double)s->w->shape->kv_bytes * (double)s->w->params.kv_read;
}

// read_of is what a token reads of a layer.
static double read_of(const struct solver *s)
{
	return s->layer_mean_bytes * model_shape_read_share(s->w->shape, 1);
}

static double member_layer_s(const struct solver *s, int32_t device, int32_t n_members)
{
	return (read_of(s) + kv_of(s)) / rate_of(s, device, n_members);
}

static struct way_figures way_of(const struct cluster *c, int32_t a, int32_t b)
{
	double none_s, one_s, back_s;
	bool shares_air = c->airs && c->airs[a] >= 0 && c->airs[a] == c->airs[b];
	if (!cluster_hop(c, a, b, 0, &none_s) || !cluster_hop(c, b, a, 0, &back_s) || !cluster_hop(c, a, b, 1e6, &one_s))
		return (struct way_figures){INFINITY, INFINITY};
	// In the air messages follow each other; with a switch the two legs of different messages overlap.
	double per_byte_s = (one_s - none_s) / 1e6 * (c->links || shares_air ? 1 : 0.5);
	double wake_s = solve_most(c->devices[a].visit_s, c->devices[b].visit_s);
	return (struct way_figures){solve_most(none_s, back_s) + wake_s, shares_air ? 2 * per_byte_s : per_byte_s};
}

static void list_devices(struct choice *c)
{
	const struct solver *s = c->s;
	c->n = 0;
	for (int32_t d = 0; d < s->w->cluster->n_devices; d++) {
		double rate = rate_of(s, d, 4);
		if (!group_may(s, d) || (c->n == CHOICE_DEVICES_MAX && rate <= c->rates[c->n - 1]))
			continue;
		int32_t at = c->n < CHOICE_DEVICES_MAX ? c->n++ : c->n - 1;
		for (; at > 0 && rate > c->rates[at - 1]; at--) {
			c->rates[at] = c->rates[at - 1];
			c->devices[at] = c->devices[at - 1];
		}
		c->rates[at] = rate;
		c->devices[at] = d;
	}
	for (int32_t i = 0; i < c->n; i++)
		for (int32_t j = 0; j < c->n; j++)
			if (i != j)
				c->ways[i][j] = way_of(s->w->cluster, c->devices[i], c->devices[j]);
}

// A set that grows: its figures for one more member are maxima and sums.
struct growth {
	uint32_t mask;
	int32_t n;
	double rate, rate_least;
	struct way_figures all;  // the slowest way between any two
	struct way_figures near; // the slowest of those by which each member is near one of the others: a ring or a hub may do with such
};

static struct way_figures slower(struct way_figures a, struct way_figures b)
{
	return (struct way_figures){solve_most(a.fixed_s, b.fixed_s), solve_most(a.per_byte_s, b.per_byte_s)};
}

static struct growth grown(const struct choice *c, const struct growth *g, int32_t add)
{
	struct growth out = {g->mask | UINT32_C(1) << add, g->n + 1, g->rate + c->rates[add], c->rates[add], g->all, g->near};
	struct way_figures nearest = {INFINITY, 0};
	if (g->n == 0)
		return out;
	out.rate_least = solve_least(out.rate_least, g->rate_least);
	for (int32_t i = 0; i < c->n; i++) {
		if ((g->mask >> i & 1) == 0)
			continue;
		out.all = slower(out.all, c->ways[i][add]);
		nearest = c->ways[i][add].fixed_s < nearest.fixed_s ? c->ways[i][add] : nearest;
	}
	out.near = slower(out.near, nearest);
	return out;
}

// estimate: the quickest exchanges of a layer there are. Between all members two of one step each, or as good as that; with near ones only sums that go
// round twice, or four gatherings through a hub.
static double estimate_s(const struct choice *c, const struct growth *g)
{
	double bytes = c->payload * (g->n - 1) / g->n, n_hops = g->n == 2 ? 2 : NEAR_STEPS;
	double all_s = 2 * g->all.fixed_s + bytes * g->all.per_byte_s, near_s = n_hops * g->near.fixed_s + bytes * g->near.per_byte_s;
	return c->layer_bytes / g->rate + solve_least(all_s, near_s);
}

// limit_s is what a group must be faster than, of which the slowest member takes so long for a layer alone.
static double limit_s(const struct choice *c, double slowest_s)
{
	return c->is_strict ? c->worst_s : solve_most(slowest_s, c->worst_s);
}

static void add_set(struct set *sets, int32_t *n, const struct set *fresh)
{
	for (int32_t i = 0; i < *n; i++)
		if (sets[i].mask == fresh->mask)
			return;
	if (*n < SETS_MAX)
		sets[(*n)++] = *fresh;
}

// grow_from adds the machine that makes a layer fastest until there are as many as a group may have.
static void grow_from(const struct choice *c, int32_t seed, struct set *sets, int32_t *n, struct set *best)
{
	struct growth none = {0}, g = grown(c, &none, seed);
	int32_t most = c->s->devices_max < GROUP_MEMBERS_MAX ? c->s->devices_max : GROUP_MEMBERS_MAX;
	while (g.n < most) {
		struct growth next = {0};
		double next_s = INFINITY;
		for (int32_t i = 0; i < c->n; i++) {
			if (g.mask >> i & 1)
				continue;
			struct growth with = grown(c, &g, i);
			double s = estimate_s(c, &with);
			if (s < next_s) {
				next_s = s;
				next = with;
			}
		}
		if (!(next_s < INFINITY))
			break;
		g = next;
		struct set fresh = {g.mask, next_s, next_s / limit_s(c, c->layer_bytes / g.rate_least)};
		if (fresh.ratio < best->ratio)
			*best = fresh;
		if (fresh.ratio < 1)
			add_set(sets, n, &fresh);
	}
}

// ---- Shares, modes, forms

static void put_figures(const struct solver *s, struct group_pick *p)
{
	p->slowest_s = p->fastest_s = member_layer_s(s, p->group.devices[0], p->group.n_members);
	for (int32_t i = 1; i < p->group.n_members; i++) {
		double alone_s = member_layer_s(s, p->group.devices[i], p->group.n_members);
		p->slowest_s = solve_most(p->slowest_s, alone_s);
		p->fastest_s = solve_least(p->fastest_s, alone_s);
	}
}

// room_of is the part of so many layers that a member's memory holds.
static double room_of(const struct solver *s, int32_t device, int32_t n_layers)
{
	const struct cluster_device *d = &s->w->cluster->devices[device];
	double layer = (double)s->w->shape->layer_bytes + (double)s->w->shape->kv_bytes * (double)s->w->params.kv_alloc;
	double room = (double)d->cap_bytes - (double)d->reserved_bytes + (double)d->accel_bytes;
	room -= device == s->w->head ? (double)s->w->shape->head_bytes : 0;
	double most = s->w->limits ? s->w->limits[device].layers_max : n_layers;
	return solve_least(room / layer, most) / n_layers;
}

// share_by_rates deals a layer in as many parts as its mode has, one after the other to whom it makes slowest least; first while memory holds them, then
// to those with a disk, then to anybody.
static void share_by_rates(const struct solver *s, struct cost_group *g, int32_t n_layers, bool by_heads)
{
	const struct split_shape *shape = &s->w->shape->split;
	int32_t n_parts = g->mode != GROUP_GATHER ? shape->down_lanes : by_heads ? shape->n_kv_heads : GATHER_PARTS, n = g->n_members;
	double rooms[GROUP_MEMBERS_MAX], rates[GROUP_MEMBERS_MAX];
	for (int32_t i = 0; i < n; i++) {
		rooms[i] = room_of(s, g->devices[i], n_layers);
		rates[i] = rate_of(s, g->devices[i], n);
		g->shares[i] = 0;
		g->n_streamed[i] = COST_STREAM_LEAST;
	}
	for (int32_t part = 0; part < n_parts; part++) {
		int32_t best = -1, best_kind = 0;
		double best_s = INFINITY;
		for (int32_t i = 0; i < n; i++) {
			double share = (g->shares[i] + 1.0) / n_parts, share_s = share / rates[i];
			int32_t kind = share <= rooms[i] ? 0 : s->w->cluster->devices[g->devices[i]].disk_rate > 0 ? 1 : 2;
			if (best >= 0 && (kind > best_kind || (kind == best_kind && share_s >= best_s)))
				continue;
			best = i;
			best_kind = kind;
			best_s = share_s;
		}
		g->shares[best]++;
	}
}

// find_hub returns the member that is nearest to the others.
static int32_t find_hub(const struct cluster *c, const struct cost_group *g)
{
	int32_t hub = 0;
	double best_s = INFINITY;
	for (int32_t i = 0; i < g->n_members; i++) {
		double sum_s = 0, s;
		for (int32_t j = 0; j < g->n_members; j++)
			sum_s += i == j ? 0 : cluster_hop(c, g->devices[i], g->devices[j], 10000, &s) ? s : INFINITY;
		if (sum_s < best_s * (1 - SOLVE_EQUAL)) {
			best_s = sum_s;
			hub = i;
		}
	}
	return hub;
}

// try_forms computes a layer's time as the group is set, and keeps it when it is the best.
static void try_forms(const struct solver *s, const struct cost_group *g, struct group_pick *best)
{
	struct group_split split;
	struct group_work work;
	struct group_traffic traffic;
	const struct model_shape *shape = s->w->shape;
	if (group_check(s->w->cluster, shape, g, NULL) != OK || group_split_make(&shape->split, g->mode, g->shares, g->n_members, &split, NULL) != OK)
		return;
	group_work_of(&shape->split, &split, &work);
	group_layer_traffic(s->w->cluster, shape, g, &split, 1, &traffic);
	double sum_s = traffic.seconds;
	for (int32_t k = 0; k < work.n_parts; k++) {
		double part_s = 0;
		for (int32_t i = 0; i < g->n_members; i++) {
			double bytes = work.part[k][i] * read_of(s) + (k == 0 ? work.kv[i] * kv_of(s) : 0);
			part_s = solve_most(part_s, bytes / rate_of(s, g->devices[i], g->n_members));
		}
		sum_s += part_s;
	}
	if (!(sum_s < best->layer_s * (1 - SOLVE_EQUAL)))
		return;
	best->group = *g;
	best->layer_s = sum_s;
	best->exchange_s = traffic.seconds;
}

// quickest_hop_s is the least that any hop of a group takes.
static double quickest_hop_s(const struct cluster *c, const struct cost_group *g)
{
	double least_s = INFINITY;
	for (int32_t i = 0; i < g->n_members; i++)
		for (int32_t j = 0; j < g->n_members; j++)
			least_s = i == j ? least_s : solve_least(least_s, group_hop_s(c, g->devices[i], g->devices[j], 0));
	return least_s;
}

// try_ring: where links differ, also in the best order. A ring of two is a scatter.
static void try_ring(const struct solver *s, const struct cost_group *g, struct group_pick *best)
{
	const struct cluster *c = s->w->cluster;
	int32_t n_hops = 2 * (g->n_members - 1) * (g->mode == GROUP_REDUCE ? 2 : 1);
	struct cost_group ordered = *g;
	if (g->n_members <= 2 || n_hops * quickest_hop_s(c, g) >= best->exchange_s)
		return;
	try_forms(s, g, best);
	if (group_order(c, sizeof(float) * (double)s->w->shape->split.hidden_dim / g->n_members, &ordered))
		try_forms(s, &ordered, best);
}

void group_choose(const struct solver *s, struct group_pick *p, enum group_mode mode, int32_t n_layers, bool by_heads)
{
	static const enum group_form sums[] = {GROUP_ALL, GROUP_DIRECT, GROUP_HUB};
	struct cost_group g = p->group;
	p->layer_s = p->exchange_s = INFINITY;
	g.mode = mode;
	g.gather_form = g.sum_form = GROUP_DIRECT;
	g.hub = 0; // a star's centre is the lead
	share_by_rates(s, &g, n_layers, by_heads);
	for (size_t i = 0; i < ARRAY_LEN(sums) && mode != GROUP_GATHER; i++) {
		g.sum_form = sums[i];
		try_forms(s, &g, p);
	}
	if (mode != GROUP_GATHER) {
		g.sum_form = GROUP_RING;
		try_ring(s, &g, p);
	} else {
		try_forms(s, &g, p);
		g.gather_form = GROUP_HUB;
		g.hub = find_hub(s->w->cluster, &g);
		try_forms(s, &g, p);
	}
	p->exchange_s = p->layer_s < INFINITY ? p->exchange_s : 0;
	put_figures(s, p);
}

void group_choose_any(const struct solver *s, struct group_pick *p, int32_t n_layers)
{
	struct group_pick best = *p;
	best.layer_s = INFINITY;
	for (int32_t mode = GROUP_GATHER; mode <= GROUP_REDUCE; mode++) {
		struct group_pick tried = *p;
		group_choose(s, &tried, (enum group_mode)mode, n_layers, false);
		if (mode == GROUP_GATHER || tried.layer_s < best.layer_s * (1 - SOLVE_EQUAL))
			best = tried;
	}
	*p = best;
}

void group_measure(const struct solver *s, struct group_pick *p)
{
	struct cost_group g = p->group;
	p->layer_s = INFINITY;
	p->exchange_s = 0;
	try_forms(s, &g, p);
	put_figures(s, p);
}

// put_members: the head's device leads where it is one of them, else the first.
static void put_members(const struct choice *c, uint32_t mask, struct cost_group *g)
{
	*g = (struct cost_group){0};
	for (int32_t i = 0; i < c->n; i++)
		if (mask >> i & 1)
			g->devices[g->n_members++] = c->devices[i];
	for (int32_t i = 1; i < g->n_members; i++) {
		if (g->devices[i] != c->s->w->head)
			continue;
		g->devices[i] = g->devices[0];
		g->devices[0] = c->s->w->head;
	}
}

static void sort_sets(struct set *sets, int32_t n)
{
	for (int32_t i = 1; i < n; i++) {
		struct set at = sets[i];
		int32_t j = i;
		for (; j > 0 && at.layer_s < sets[j - 1].layer_s; j--)
			sets[j] = sets[j - 1];
		sets[j] = at;
	}
}

int32_t group_picks(const struct solver *s, double worst_s, bool is_strict, struct group_pick out[GROUP_PICKS_MAX], struct group_pick *best)
{
	struct choice c = {.s = s, .layer_bytes = read_of(s) + kv_of(s), .worst_s = worst_s, .is_strict = is_strict};
	const struct split_shape *d = &s->w->shape->split;
	struct set sets[SETS_MAX], nearest = {.ratio = INFINITY};
	int32_t n_sets = 0, n = 0, n_of_size[GROUP_MEMBERS_MAX + 1] = {0};
	c.payload = 1.125 * ((double)d->n_heads * d->head_dim + d->ffn_dim) + 8.0 * d->hidden_dim;
	*best = (struct group_pick){0};
	list_devices(&c);
	for (int32_t seed = 0; seed < c.n && seed < SEEDS_MAX; seed++)
		grow_from(&c, seed, sets, &n_sets, &nearest);
	sort_sets(sets, n_sets);
	for (int32_t i = 0; i < n_sets && n < GROUP_PICKS_MAX; i++) {
		struct group_pick *p = &out[n];
		put_members(&c, sets[i].mask, &p->group);
		group_choose_any(s, p, s->n_layers);
		if (p->layer_s < limit_s(&c, p->slowest_s) && n_of_size[p->group.n_members]++ < SETS_OF_SIZE)
			n++;
	}
	if (n > 0) {
		*best = out[0];
	} else if (nearest.mask != 0) {
		put_members(&c, nearest.mask, &best->group);
		group_choose_any(s, best, s->n_layers);
	}
	for (int32_t i = 1; i < n; i++) { // by what they turned out to take
		struct group_pick at = out[i];
		int32_t j = i;
		for (; j > 0 && at.layer_s < out[j - 1].layer_s; j--)
			out[j] = out[j - 1];
		out[j] = at;
	}
	return n;
}
