// Faults of the relay: the network is told, and connections that it ended end.
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
	for (int32_t i = 0; i < e->n_conns_used && kind == NETWORK_CUT_RESET; i++)
		if (is_on(&e->conns[i], a, b))
			conn_reset(&e->conns[i], "cut: reset");
	return n;
}

int32_t emulate_heal(struct emulate *e, int32_t a, int32_t b)
{
	check(e, a, b);
	emulate_clock(e);
	must(network_heal(&e->network, a, b));
	for (int32_t i = 0; i < e->n_conns_used; i++)
		if (is_on(&e->conns[i], a, b))
			conn_retry(&e->conns[i]);
	return count(e, a, b);
}

int32_t emulate_slow(struct emulate *e, int32_t a, int32_t b, double factor)
{
	check(e, a, b);
	ASSERT(factor >= 1 / NETWORK_FACTOR_MAX && factor <= NETWORK_FACTOR_MAX);
	emulate_clock(e);
	must(network_slow(&e->network, a, b, 1 / factor, factor));
	return count(e, a, b);
}

int32_t emulate_freeze(struct emulate *e, int32_t a, int32_t b, double seconds)
{
	check(e, a, b);
	ASSERT(seconds >= 0 && seconds <= EMULATE_FREEZE_MAX_S);
	int64_t until_ns = emulate_clock(e) + (int64_t)(seconds * NS_PER_S);
	must(network_stall(&e->network, a, b, until_ns));
	return count(e, a, b);
}

struct network_fault emulate_fault_of(const struct emulate *e, int32_t a, int32_t b)
{
	check(e, a, b);
	return network_fault_of(&e->network, a, b);
}
