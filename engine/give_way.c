#include "engine/give_way.h"

#include "base/assert.h"

#define LOOKS_BUSY 2
#define LOOKS_QUIET 5
#define A_LITTLE 0.3 // of a processor: what any desktop does all the time is nobody's work

void give_way_init(struct give_way *g, int32_t n_max)
{
	ASSERT(n_max >= 1);
	*g = (struct give_way){.n_max = n_max, .n_now = n_max};
}

// n_allowed: a processor that others use in part counts as theirs.
static int32_t n_allowed(const struct give_way *g, double by_others, int32_t n_cpus)
{
	double left = n_cpus - by_others + A_LITTLE;
	int32_t n = left >= g->n_max ? g->n_max : left < 1 ? 1 : (int32_t)left;
	return n;
}

int32_t give_way_look(struct give_way *g, double by_others, int32_t n_cpus)
{
	int32_t n = n_allowed(g, by_others, n_cpus);
	if (n < g->n_now) {
		g->least_busy = g->n_busy == 0 || n > g->least_busy ? n : g->least_busy;
		g->n_quiet = 0;
		if (++g->n_busy < LOOKS_BUSY)
			return g->n_now;
		g->n_now = g->least_busy;
		g->n_busy = 0;
		return g->n_now;
	}
	g->n_busy = 0;
	g->n_quiet = n > g->n_now ? g->n_quiet + 1 : 0;
	if (g->n_quiet < LOOKS_QUIET)
		return g->n_now;
	g->n_quiet = LOOKS_QUIET - 1; // then one more with each look
	return ++g->n_now;
}
