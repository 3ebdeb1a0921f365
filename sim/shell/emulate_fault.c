// Faults of the relay: the network is told, connections that it ended end, and status remembers.
#include "sim/shell/emulate_state.h"

#include "base/assert.h"

#define NS_PER_S 1e9

static void check(const struct emulate *e, int32_t a, int32_t b)
{
	ASSERT(a >= 0 && a < e->t->n_devices);
	ASSERT(b == EMULATE_ALL || (b >= 0 && b < e->t->n_devices));
	ASSERT(a != b);
}

static bool is_on(const struct conn *c, int32_t a, int32_t b)
{
	if (c->state == CONN_FREE || c->state == CONN_DEAD)
		return false;
	if (b == EMULATE_ALL)
		return c->from == a || c->to == a;
	return (c->from == a && c->to == b) || (c->from == b && c->to == a);
}

static int32_t count(const struct emulate *e, int32_t a, int32_t b)
{
	int32_t n = 0;
	for (int32_t i = 0; i < e->n_conns_used; i++)
		n += is_on(&e->conns[i], a, b);
	return n;
}

static struct emulate_fault *fault_at(struct emulate *e, int32_t a, int32_t b)
{
	return b == EMULATE_ALL ? &e->device_faults[a] : &e->pair_faults[a * e->t->n_devices + b];
}

// must: every pair has a link from the start, so that no fault can fail for want of one.
static void must(enum err err)
{
	ASSERT(err == OK);
}

int32_t emulate_cut(struct emulate *e, int32_t a, int32_t b, enum network_cut kind)
{
	check(e, a, b);
	emulate_clock(e);
	int32_t n = count(e, a, b);
	must(network_cut(&e->network, a, b, kind));
	struct emulate_fault *f = fault_at(e, a, b);
	f->is_reset |= kind == NETWORK_CUT_RESET;
	f->is_silent_out |= kind != NETWORK_CUT_RESET;
	f->is_silent_in |= kind == NETWORK_CUT_BLACK_HOLE;
	for (int32_t i = 0; i < e->n_conns_used && kind == NETWORK_CUT_RESET; i++)
		if (is_on(&e->conns[i], a, b))
			conn_reset(&e->conns[i], "cut: reset");
	return n;
}

static void forget(struct emulate_fault *f)
{
	f->is_reset = f->is_silent_out = f->is_silent_in = false;
	f->slow = 1;
}

int32_t emulate_heal(struct emulate *e, int32_t a, int32_t b)
{
	check(e, a, b);
	emulate_clock(e);
	must(network_heal(&e->network, a, b));
	forget(fault_at(e, a, b));
	if (b != EMULATE_ALL)
		forget(fault_at(e, b, a));
	for (int32_t i = 0; i < e->n_conns_used; i++)
		if (is_on(&e->conns[i], a, b))
			conn_retry(&e->conns[i]);
	return count(e, a, b);
}

int32_t emulate_slow(struct emulate *e, int32_t a, int32_t b, double factor)
{
	check(e, a, b);
	ASSERT(factor >= 1 / EMULATE_FACTOR_MAX && factor <= EMULATE_FACTOR_MAX);
	emulate_clock(e);
	must(network_slow(&e->network, a, b, 1 / factor, factor));
	fault_at(e, a, b)->slow = factor;
	if (b != EMULATE_ALL)
		fault_at(e, b, a)->slow = factor;
	return count(e, a, b);
}

int32_t emulate_freeze(struct emulate *e, int32_t a, int32_t b, double seconds)
{
	check(e, a, b);
	ASSERT(seconds >= 0 && seconds <= EMULATE_FREEZE_MAX_S);
	int64_t until_ns = emulate_clock(e) + (int64_t)(seconds * NS_PER_S);
	must(network_stall(&e->network, a, b, until_ns));
	fault_at(e, a, b)->frozen_until_ns = until_ns;
	if (b != EMULATE_ALL)
		fault_at(e, b, a)->frozen_until_ns = until_ns;
	return count(e, a, b);
}

// A cut of a pair is kept as it was given; seen from the other side, what goes out there comes in here.
struct emulate_fault emulate_fault_of(const struct emulate *e, int32_t a, int32_t b)
{
	check(e, a, b);
	if (b == EMULATE_ALL)
		return e->device_faults[a];
	struct emulate_fault f = e->pair_faults[a * e->t->n_devices + b], back = e->pair_faults[b * e->t->n_devices + a];
	f.is_reset |= back.is_reset;
	f.is_silent_out |= back.is_silent_in;
	f.is_silent_in |= back.is_silent_out;
	return f;
}
