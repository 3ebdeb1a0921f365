// A scenario's links as a network of the simulator.
#include "sim/scenario.h"

#include "sim/network.h"
#include "sim/quantity.h"

#define FLOWS_PER_PAIR 8 // control and data, each with its successor while both live, and dials that cross
#define FLOWS_MAX 4096

static struct network_limits limits_of(int32_t n_machines)
{
	int32_t pairs = n_machines * (n_machines + 1) / 2, flows = pairs * FLOWS_PER_PAIR;
	return (struct network_limits){.machines_max = n_machines,
		.access_points_max = SCENARIO_ACCESS_POINTS_MAX,
		.links_max = pairs,
		.flows_max = flows < FLOWS_MAX ? flows : FLOWS_MAX};
}

size_t scenario_network_bytes(int32_t n_machines)
{
	struct network_limits l = limits_of(n_machines);
	return network_arena_bytes(&l);
}

// offset_ns is what makes the trace stand at the delay's offset at ready_ns: from 0 to its period, as times of a trace are not negative.
static int64_t offset_ns(const struct scenario_delay *d, int64_t ready_ns)
{
	int64_t period_ns = d->trace->period_ns, ns = (quantity_ns(d->offset_s) - ready_ns) % period_ns;
	return ns < 0 ? ns + period_ns : ns;
}

static struct network_delay delay_of(const struct scenario_delay *d, int64_t ready_ns)
{
	if (d->profile)
		return (struct network_delay){.kind = NETWORK_DELAY_PROFILE, .profile = d->profile};
	if (d->trace)
		return (struct network_delay){.kind = NETWORK_DELAY_TRACE, .trace = d->trace, .offset_ns = offset_ns(d, ready_ns)};
	return (struct network_delay){.kind = NETWORK_DELAY_NONE};
}

static enum err put_station(const struct scenario *s, int32_t device, int32_t machine, int64_t ready_ns, struct network *n, struct errmsg *em)
{
	const struct scenario_station *st = &s->stations[device];
	struct network_station_params p = {.access_point = NETWORK_WIRED, .delay = delay_of(&st->delay, ready_ns)};
	if (st->access_point >= 0) {
		p.access_point = st->access_point;
		p.air_bps = quantity_bits(s->access_points[st->access_point].rate);
	} else {
		p.up_bps = p.down_bps = quantity_bits(st->rate);
	}
	return network_station(n, machine, &p, em);
}

// What is fixed on both legs belongs to the pair, as the network has no fixed delay of a leg.
static enum err put_link(const struct scenario *s, const int32_t *machines, int32_t i, int32_t j, int64_t ready_ns, struct network *n,
	struct errmsg *em)
{
	int32_t a = machines[i], b = machines[j];
	const struct scenario_link *l = scenario_link(s, a, b);
	double fixed_s = l->delay.fixed_s + s->stations[a].delay.fixed_s + s->stations[b].delay.fixed_s;
	struct network_link_params p = {
		.base_ns = quantity_ns(fixed_s),
		.delay = delay_of(&l->delay, ready_ns),
		.rate_bps = quantity_bits(l->rate),
		.rate_back_bps = quantity_bits(l->rate),
		.loss = l->loss,
	};
	enum err e = network_link(n, i, j, &p, em);
	return e == OK && l->is_cut ? network_cut(n, i, j, NETWORK_CUT_RESET) : e;
}

enum err scenario_network(const struct scenario *s, const int32_t *machines, int32_t n_machines, struct arena *a,
	struct network *out, struct errmsg *em)
{
	struct network_limits limits = limits_of(n_machines);
	if (network_init(out, a, &limits, s->seed) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a network of %d machines", n_machines);
	enum err e = OK;
	for (int32_t i = 0; i < n_machines && e == OK; i++)
		e = put_station(s, machines[i], i, 0, out, em);
	for (int32_t i = 0; i < n_machines && e == OK; i++)
		for (int32_t j = i + 1; j < n_machines && e == OK; j++)
			e = put_link(s, machines, i, j, 0, out, em);
	return e;
}

static bool has_trace(const struct scenario_delay *d)
{
	return d->trace != NULL;
}

enum err scenario_network_ready(const struct scenario *s, const int32_t *machines, int32_t n_machines, int64_t now_ns,
	struct network *n, struct errmsg *em)
{
	enum err e = OK;
	for (int32_t i = 0; i < n_machines && e == OK; i++)
		if (has_trace(&s->stations[machines[i]].delay))
			e = put_station(s, machines[i], i, now_ns, n, em);
	for (int32_t i = 0; i < n_machines && e == OK; i++)
		for (int32_t j = i + 1; j < n_machines && e == OK; j++)
			if (has_trace(&scenario_link(s, machines[i], machines[j])->delay))
				e = put_link(s, machines, i, j, now_ns, n, em);
	return e;
}

// A member has links with the coordinator and its neighbours, of the chains it has been in and of those that were lost beside it.
#define SWARM_LINKS_EACH 32
#define SWARM_FLOWS_EACH 16

static struct network_limits swarm_limits(int32_t n_machines)
{
	return (struct network_limits){.machines_max = n_machines, .access_points_max = 1, .links_max = SWARM_LINKS_EACH * n_machines,
		.flows_max = SWARM_FLOWS_EACH * n_machines};
}

size_t scenario_swarm_network_bytes(int32_t n_machines)
{
	struct network_limits l = swarm_limits(n_machines);
	return network_arena_bytes(&l);
}

enum err scenario_swarm_network(const struct scenario *s, const int32_t *machines, int32_t n_machines, struct arena *a,
	struct network *out, struct errmsg *em)
{
	struct network_limits limits = swarm_limits(n_machines);
	const struct scenario_link *l = &s->default_link;
	struct network_link_params p = {.base_ns = quantity_ns(l->delay.fixed_s), .delay = delay_of(&l->delay, 0), .rate_bps = quantity_bits(l->rate),
		.rate_back_bps = quantity_bits(l->rate), .loss = l->loss};
	if (network_init(out, a, &limits, s->seed) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a network of %d machines", n_machines);
	enum err e = network_default_link(out, &p, em);
	for (int32_t i = 0; i < n_machines && e == OK; i++)
		e = put_station(s, machines[i], i, 0, out, em);
	return e;
}
