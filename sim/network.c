#include "sim/network_state.h"

#include "base/assert.h"

#include <string.h>

// What a seed is for.
enum seed_use { SEED_LEG, SEED_LINK, SEED_ACCESS_POINT, SEED_TAILS, SEED_FLOW };

static uint64_t sub_seed(const struct network *n, enum seed_use use, uint64_t id)
{
	struct rng r;
	rng_init(&r, n->seed ^ (uint64_t)use << 56);
	rng_init(&r, rng_u64(&r) ^ id);
	return rng_u64(&r);
}

// Links: pairs in an open-addressed table that never loses an entry.

static uint64_t pair_key(int32_t lo, int32_t hi)
{
	return (uint64_t)(uint32_t)lo << 32 | (uint32_t)hi;
}

static uint32_t find_place(const struct network *n, int32_t lo, int32_t hi)
{
	struct rng r;
	rng_init(&r, pair_key(lo, hi));
	uint32_t at = (uint32_t)rng_u64(&r) & (n->link_table_size - 1);
	for (; n->link_table[at] >= 0; at = (at + 1) & (n->link_table_size - 1)) {
		const struct network_link *l = &n->links[n->link_table[at]];
		if (l->lo == lo && l->hi == hi)
			break;
	}
	return at;
}

const struct network_link *network_find_link(const struct network *n, int32_t a, int32_t b)
{
	uint32_t at = find_place(n, a < b ? a : b, a < b ? b : a);
	return n->link_table[at] >= 0 ? &n->links[n->link_table[at]] : NULL;
}

static void start_delay(struct network_delay_state *s, const struct network_delay *d, uint64_t seed, uint64_t shared_seed, int64_t now_ns)
{
	*s = (struct network_delay_state){.d = *d};
	rng_init(&s->table_draws, seed);
	if (d->kind == NETWORK_DELAY_PROFILE)
		profile_init(&s->profile, d->profile, seed, shared_seed, now_ns);
}

// apply_link sets the parameters, which are seen from `first`; queues, order and faults stay.
static void apply_link(struct network *n, struct network_link *l, int32_t first, const struct network_link_params *p)
{
	bool turned = first != l->lo;
	uint64_t seed = sub_seed(n, SEED_LINK, pair_key(l->lo, l->hi));
	l->base_ns = p->base_ns;
	l->loss = p->loss;
	l->ways[turned].rate_bps = p->rate_bps;
	l->ways[!turned].rate_bps = p->rate_back_bps;
	l->ways[turned].deliveries = p->deliveries;
	l->ways[!turned].deliveries = p->deliveries_back;
	start_delay(&l->delay, &p->delay, seed, seed, n->now_ns);
}

enum err network_get_link(struct network *n, int32_t a, int32_t b, struct network_link **out)
{
	ASSERT(a >= 0 && a < n->limits.machines_max);
	ASSERT(b >= 0 && b < n->limits.machines_max);
	ASSERT(a != b);
	int32_t lo = a < b ? a : b, hi = a < b ? b : a;
	uint32_t at = find_place(n, lo, hi);
	if (n->link_table[at] < 0) {
		if (n->n_links == n->limits.links_max)
			return ERR_LIMIT;
		n->link_table[at] = n->n_links++;
		struct network_link *l = &n->links[n->link_table[at]];
		*l = (struct network_link){.lo = lo, .hi = hi, .last_active_ns = LONG_AGO_NS, .rate_factor = 1, .delay_factor = 1};
		apply_link(n, l, lo, &n->default_link);
	}
	*out = &n->links[n->link_table[at]];
	return OK;
}

// Making a network

static size_t rounded(size_t n, size_t size)
{
	return (n * size + 63) / 64 * 64;
}

static uint32_t table_size(const struct network_limits *limits)
{
	uint32_t size = 4;
	while (size < 2 * (uint32_t)limits->links_max)
		size *= 2;
	return size;
}

static void check_limits(const struct network_limits *l)
{
	ASSERT(l->machines_max >= 1 && l->machines_max <= 1 << 20);
	ASSERT(l->access_points_max >= 0 && l->access_points_max <= 1 << 20);
	ASSERT(l->links_max >= 1 && l->links_max <= 1 << 24);
	ASSERT(l->flows_max >= 1 && l->flows_max <= 1 << 24);
}

size_t network_arena_bytes(const struct network_limits *limits)
{
	check_limits(limits);
	return rounded((size_t)limits->machines_max, sizeof(struct network_machine)) +
		rounded((size_t)limits->access_points_max, sizeof(struct network_access_point)) +
		rounded((size_t)limits->links_max, sizeof(struct network_link)) + rounded(table_size(limits), sizeof(int32_t)) +
		rounded((size_t)limits->flows_max, sizeof(struct network_flow));
}

static enum err take_memory(struct network *n, struct arena *a)
{
	const struct network_limits *l = &n->limits;
	n->machines = arena_alloc(a, (size_t)l->machines_max, sizeof *n->machines);
	n->access_points = arena_alloc(a, (size_t)l->access_points_max, sizeof *n->access_points);
	n->links = arena_alloc(a, (size_t)l->links_max, sizeof *n->links);
	n->link_table = arena_alloc(a, n->link_table_size, sizeof *n->link_table);
	n->flows = arena_alloc(a, (size_t)l->flows_max, sizeof *n->flows);
	return n->machines && n->links && n->link_table && n->flows && (n->access_points || l->access_points_max == 0) ? OK : ERR_LIMIT;
}

enum err network_init(struct network *n, struct arena *a, const struct network_limits *limits, uint64_t seed)
{
	check_limits(limits);
	*n = (struct network){.limits = *limits, .seed = seed, .link_table_size = table_size(limits)};
	enum err e = take_memory(n, a);
	if (e != OK)
		return e;
	for (int32_t i = 0; i < limits->machines_max; i++)
		n->machines[i] = (struct network_machine){
			.p.access_point = NETWORK_WIRED, .last_active_ns = LONG_AGO_NS, .rate_factor = 1, .delay_factor = 1};
	for (int32_t i = 0; i < limits->access_points_max; i++)
		rng_init(&n->access_points[i].tails, sub_seed(n, SEED_TAILS, (uint64_t)i));
	memset(n->link_table, 0xff, n->link_table_size * sizeof *n->link_table);
	for (int32_t i = 0; i < limits->flows_max; i++)
		n->flows[i].next_free = i + 1 < limits->flows_max ? i + 1 : -1;
	return OK;
}

// Parameters: they come from scenario files, so what is wrong with them is said.

static enum err check_rate(uint64_t rate_bps, struct errmsg *em)
{
	if (rate_bps == 0 || (rate_bps >= NETWORK_RATE_MIN && rate_bps <= NETWORK_RATE_MAX))
		return OK;
	return errmsg_fail(em, ERR_RANGE, "a rate of %llu bits/s (want 0 for none, or %d to 2^40)", (unsigned long long)rate_bps, NETWORK_RATE_MIN);
}

static enum err check_delay(const struct network_delay *d, struct errmsg *em)
{
	if (d->kind == NETWORK_DELAY_PROFILE && d->profile == NULL)
		return errmsg_fail(em, ERR_RANGE, "a delay by profile without one");
	if (d->kind == NETWORK_DELAY_TRACE && (d->trace == NULL || d->trace->kind != TRACE_DELAY))
		return errmsg_fail(em, ERR_RANGE, "a delay by trace needs one with delays");
	if (d->kind == NETWORK_DELAY_TABLE && (d->trace == NULL || d->trace->kind != TRACE_TABLE))
		return errmsg_fail(em, ERR_RANGE, "a delay by table needs a distribution table");
	if (d->offset_ns < 0 || d->offset_ns > FAR_NS)
		return errmsg_fail(em, ERR_RANGE, "a trace begins at its time 0 or later");
	if (d->spread_ns < 0 || d->spread_ns > NETWORK_DELAY_MAX_NS)
		return errmsg_fail(em, ERR_RANGE, "a delay's spread is from 0 to an hour");
	return OK;
}

static enum err check_deliveries(const struct trace *t, struct errmsg *em)
{
	if (t == NULL || t->kind == TRACE_DELIVERIES)
		return OK;
	return errmsg_fail(em, ERR_RANGE, "a rate by trace needs one of deliveries (mahimahi's format)");
}

static enum err check_link(const struct network_link_params *p, struct errmsg *em)
{
	if (p->base_ns < 0 || p->base_ns > NETWORK_DELAY_MAX_NS)
		return errmsg_fail(em, ERR_RANGE, "a link's delay is from 0 to an hour");
	if (!(p->loss >= 0 && p->loss < 1))
		return errmsg_fail(em, ERR_RANGE, "a link's loss is from 0 to less than 1");
	enum err e = check_delay(&p->delay, em);
	if (e == OK)
		e = check_rate(p->rate_bps, em);
	if (e == OK)
		e = check_rate(p->rate_back_bps, em);
	if (e == OK)
		e = check_deliveries(p->deliveries, em);
	return e == OK ? check_deliveries(p->deliveries_back, em) : e;
}

enum err network_station(struct network *n, int32_t machine, const struct network_station_params *p, struct errmsg *em)
{
	ASSERT(machine >= 0 && machine < n->limits.machines_max);
	if (p->access_point != NETWORK_WIRED && (p->access_point < 0 || p->access_point >= n->limits.access_points_max))
		return errmsg_fail(em, ERR_RANGE, "access point %d (there are %d)", (int)p->access_point, (int)n->limits.access_points_max);
	enum err e = check_delay(&p->delay, em);
	if (e == OK)
		e = check_rate(p->air_bps, em);
	if (e == OK)
		e = check_rate(p->up_bps, em);
	if (e == OK)
		e = check_rate(p->down_bps, em);
	if (e != OK)
		return e;
	struct network_machine *m = &n->machines[machine];
	uint64_t seed = sub_seed(n, SEED_LEG, (uint64_t)machine);
	bool is_wired = p->access_point == NETWORK_WIRED;
	m->p = *p;
	start_delay(&m->delay, &p->delay, seed, is_wired ? seed : sub_seed(n, SEED_ACCESS_POINT, (uint64_t)p->access_point), n->now_ns);
	return OK;
}

enum err network_default_link(struct network *n, const struct network_link_params *p, struct errmsg *em)
{
	enum err e = check_link(p, em);
	if (e == OK)
		n->default_link = *p;
	return e;
}

enum err network_link(struct network *n, int32_t a, int32_t b, const struct network_link_params *p, struct errmsg *em)
{
	struct network_link *l;
	enum err e = check_link(p, em);
	if (e != OK)
		return e;
	e = network_get_link(n, a, b, &l);
	if (e != OK)
		return errmsg_fail(em, e, "more than %d links", (int)n->limits.links_max);
	apply_link(n, l, a, p);
	return OK;
}

// Flows

struct network_flow *network_get_flow(const struct network *n, int32_t flow)
{
	ASSERT(flow >= 0 && flow < n->limits.flows_max);
	ASSERT(n->flows[flow].is_open);
	return &n->flows[flow];
}

enum err network_open_flow(struct network *n, int32_t a, int32_t b, int32_t *flow)
{
	struct network_link *l;
	if (n->free_flow < 0)
		return ERR_LIMIT;
	enum err e = network_get_link(n, a, b, &l);
	if (e != OK)
		return e;
	*flow = n->free_flow;
	struct network_flow *f = &n->flows[*flow];
	n->free_flow = f->next_free;
	*f = (struct network_flow){.link = (int32_t)(l - n->links), .from = a, .next_free = -1, .is_open = true};
	// By the pair and its own count: flows of other pairs change nothing.
	rng_init(&f->losses, sub_seed(n, SEED_FLOW, pair_key(l->lo, l->hi)) + l->n_flows++);
	return OK;
}

void network_close_flow(struct network *n, int32_t flow)
{
	struct network_flow *f = network_get_flow(n, flow);
	f->is_open = false;
	f->next_free = n->free_flow;
	n->free_flow = flow;
}

bool network_is_held(const struct network *n, int32_t flow, enum network_direction d)
{
	return network_get_flow(n, flow)->sides[d].is_held;
}
