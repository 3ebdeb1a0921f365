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

static struct network_delay delay_of(const struct scenario_delay *d)
{
	if (d->profile)
		return (struct network_delay){.kind = NETWORK_DELAY_PROFILE, .profile = d->profile};
	if (d->trace)
		return (struct network_delay){.kind = NETWORK_DELAY_TRACE, .trace = d->trace};
	return (struct network_delay){.kind = NETWORK_DELAY_NONE};
}

static enum err put_station(const struct scenario *s, int32_t device, int32_t machine, struct network *n, struct errmsg *em)
{
	const struct scenario_station *st = &s->stations[device];
	struct network_station_params p = {.access_point = NETWORK_WIRED, .delay = delay_of(&st->delay)};
	if (st->access_point >= 0) {
		p.access_point = st->access_point;
		p.air_bps = quantity_bits(s->access_points[st->access_point].rate);
	} else {
		p.up_bps = p.down_bps = quantity_bits(st->rate);
	}
	return network_station(n, machine, &p, em);
}

// What is fixed on both legs belongs to the pair, as the network has no fixed delay of a leg.
static enum err put_link(const struct scenario *s, int32_t a, int32_t b, int32_t machine_a, int32_t machine_b, struct network *n,
	struct errmsg *em)
{
	const struct scenario_link *l = scenario_link(s, a, b);
	double fixed_s = l->delay.fixed_s + s->stations[a].delay.fixed_s + s->stations[b].delay.fixed_s;
	struct network_link_params p = {
		.base_ns = quantity_ns(fixed_s),
		.delay = delay_of(&l->delay),
		.rate_bps = quantity_bits(l->rate),
		.rate_back_bps = quantity_bits(l->rate),
		.loss = l->loss,
	};
	return network_link(n, machine_a, machine_b, &p, em);
}

enum err scenario_network(const struct scenario *s, const int32_t *machines, int32_t n_machines, struct arena *a,
	struct network *out, struct errmsg *em)
{
	struct network_limits limits = limits_of(n_machines);
	if (network_init(out, a, &limits, s->seed) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a network of %d machines", n_machines);
	enum err e = OK;
	for (int32_t i = 0; i < n_machines && e == OK; i++)
		e = put_station(s, machines[i], i, out, em);
	for (int32_t i = 0; i < n_machines && e == OK; i++)
		for (int32_t j = i + 1; j < n_machines && e == OK; j++)
			e = put_link(s, machines[i], machines[j], i, j, out, em);
	return e;
}
