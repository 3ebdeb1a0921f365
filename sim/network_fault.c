// Cuts, partitions, slowness, stalls.
#include "sim/network_state.h"

#include "base/assert.h"

enum network_fate network_path_fate(const struct network *n, const struct network_link *l, int32_t from, int32_t to)
{
	const struct network_machine *a = &n->machines[from], *b = &n->machines[to];
	if (a->resets || b->resets || (l != NULL && l->resets))
		return NETWORK_RESET;
	if (a->group != b->group || a->is_silent_out || b->is_silent_in || (l != NULL && l->ways[from > to].is_silent))
		return NETWORK_SWALLOWED;
	return NETWORK_ARRIVES;
}

static bool is_on(const struct network *n, const struct network_flow *f, int32_t a, int32_t b)
{
	const struct network_link *l = &n->links[f->link];
	if (b == NETWORK_ALL)
		return l->lo == a || l->hi == a;
	return (l->lo == a && l->hi == b) || (l->lo == b && l->hi == a);
}

static struct network_machine *get_machine(struct network *n, int32_t machine)
{
	ASSERT(machine >= 0 && machine < n->limits.machines_max);
	return &n->machines[machine];
}

static void reset_flows(struct network *n, int32_t a, int32_t b)
{
	for (int32_t i = 0; i < n->limits.flows_max; i++)
		if (n->flows[i].is_open && is_on(n, &n->flows[i], a, b))
			n->flows[i].is_reset = true;
}

enum err network_cut(struct network *n, int32_t a, int32_t b, enum network_cut kind)
{
	if (b == NETWORK_ALL) {
		struct network_machine *m = get_machine(n, a);
		m->resets |= kind == NETWORK_CUT_RESET;
		m->is_silent_out |= kind != NETWORK_CUT_RESET;
		m->is_silent_in |= kind == NETWORK_CUT_BLACK_HOLE;
	} else {
		struct network_link *l;
		enum err e = network_get_link(n, a, b, &l);
		if (e != OK)
			return e;
		l->resets |= kind == NETWORK_CUT_RESET;
		l->ways[a > b].is_silent |= kind != NETWORK_CUT_RESET;
		l->ways[a < b].is_silent |= kind == NETWORK_CUT_BLACK_HOLE;
	}
	if (kind == NETWORK_CUT_RESET)
		reset_flows(n, a, b);
	return OK;
}

enum err network_heal(struct network *n, int32_t a, int32_t b)
{
	if (b == NETWORK_ALL) {
		struct network_machine *m = get_machine(n, a);
		m->resets = m->is_silent_out = m->is_silent_in = false;
		m->rate_factor = m->delay_factor = 1;
		return OK;
	}
	struct network_link *l;
	enum err e = network_get_link(n, a, b, &l);
	if (e != OK)
		return e;
	l->resets = l->ways[0].is_silent = l->ways[1].is_silent = false;
	l->rate_factor = l->delay_factor = 1;
	return OK;
}

void network_set_group(struct network *n, int32_t machine, int32_t group)
{
	get_machine(n, machine)->group = group;
}

enum err network_slow(struct network *n, int32_t a, int32_t b, double rate_factor, double delay_factor)
{
	ASSERT(rate_factor > 0 && rate_factor <= NETWORK_FACTOR_MAX);
	ASSERT(delay_factor > 0 && delay_factor <= NETWORK_FACTOR_MAX);
	struct network_link *l;
	if (b == NETWORK_ALL) {
		get_machine(n, a)->rate_factor = rate_factor;
		get_machine(n, a)->delay_factor = delay_factor;
		return OK;
	}
	enum err e = network_get_link(n, a, b, &l);
	if (e != OK)
		return e;
	l->rate_factor = rate_factor;
	l->delay_factor = delay_factor;
	return OK;
}

enum err network_stall(struct network *n, int32_t a, int32_t b, int64_t until_ns)
{
	ASSERT(until_ns <= FAR_NS);
	struct network_link *l;
	if (b == NETWORK_ALL) {
		get_machine(n, a)->stall_until_ns = until_ns;
		return OK;
	}
	enum err e = network_get_link(n, a, b, &l);
	if (e == OK)
		l->stall_until_ns = until_ns;
	return e;
}

struct network_fault network_fault_of(const struct network *n, int32_t a, int32_t b)
{
	ASSERT(a >= 0 && a < n->limits.machines_max);
	if (b == NETWORK_ALL) {
		const struct network_machine *m = &n->machines[a];
		return (struct network_fault){.is_reset = m->resets, .is_silent_out = m->is_silent_out, .is_silent_in = m->is_silent_in,
			.rate_factor = m->rate_factor, .delay_factor = m->delay_factor, .stall_until_ns = m->stall_until_ns};
	}
	ASSERT(b >= 0 && b < n->limits.machines_max);
	const struct network_link *l = network_find_link(n, a, b);
	if (l == NULL)
		return (struct network_fault){.rate_factor = 1, .delay_factor = 1};
	return (struct network_fault){.is_reset = l->resets, .is_silent_out = l->ways[a > b].is_silent, .is_silent_in = l->ways[a < b].is_silent,
		.rate_factor = l->rate_factor, .delay_factor = l->delay_factor, .stall_until_ns = l->stall_until_ns};
}
