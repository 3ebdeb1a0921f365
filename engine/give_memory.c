#include "engine/give_memory.h"

// Looks are GIVE_WAY_LOOK_S apart (engine/give_way.h).
#define LOOKS_SHORT 2
#define LOOKS_WAIT 5       // until the kernel's mean of ten seconds has forgotten what was before
#define LOOKS_QUIET 30
#define LOOKS_QUIET_MAX 480
#define LOOKS_REGRET 150   // short again so soon after taking back: that was too early
#define PRESSURE_SHORT 1000 // a tenth of the time somebody waits, as `hearth doctor` warns of
#define PRESSURE_QUIET 100
#define LOW_LEAST (UINT64_C(64) << 20)
#define LOW_MOST (UINT64_C(512) << 20)

static uint64_t least_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

// low_water: with less available the system is about to evict what programs need.
static uint64_t low_water(const struct memory_look *l)
{
	return least_of(LOW_MOST, most_of(LOW_LEAST, l->total_bytes / 32));
}

void give_memory_init(struct give_memory *g)
{
	*g = (struct give_memory){.hold = GIVE_MEMORY_ALL, .quiet_want = LOOKS_QUIET, .since_more = LOOKS_REGRET};
}

void give_memory_stage(struct give_memory *g, uint64_t full, uint64_t least)
{
	g->full = full;
	g->least = least_of(least, full);
	if (g->hold == GIVE_MEMORY_ALL)
		return;
	g->top = most_of(g->top, full);
	g->hold = most_of(g->hold, g->least);
}

bool give_memory_is_short(const struct memory_look *l)
{
	return l->pressure >= PRESSURE_SHORT || l->available_bytes < low_water(l);
}

static uint64_t step_of(const struct give_memory *g)
{
	return most_of(g->full, g->hold == GIVE_MEMORY_ALL ? 0 : g->top) / 4;
}

static void release(struct give_memory *g, const struct memory_look *l)
{
	uint64_t now = least_of(g->hold, g->full), low = low_water(l), by = step_of(g);
	if (l->available_bytes < low)
		by = most_of(by, 2 * low - l->available_bytes);
	if (g->hold == GIVE_MEMORY_ALL)
		g->top = g->full;
	g->hold = most_of(g->least, now > by ? now - by : 0);
	g->n_wait = LOOKS_WAIT;
	g->n_short = 0;
	if (g->since_more < LOOKS_REGRET)
		g->quiet_want = g->quiet_want * 2 < LOOKS_QUIET_MAX ? g->quiet_want * 2 : LOOKS_QUIET_MAX;
	g->since_more = LOOKS_REGRET;
}

static void take_back(struct give_memory *g)
{
	uint64_t by = step_of(g);
	g->n_quiet = 0;
	g->since_more = 0;
	g->hold = g->top - g->hold <= by || g->hold >= g->top ? GIVE_MEMORY_ALL : g->hold + by;
}

uint64_t give_memory_look(struct give_memory *g, const struct memory_look *l)
{
	bool is_quiet = l->pressure < PRESSURE_QUIET && l->available_bytes >= 2 * low_water(l) + step_of(g);
	if (g->since_more < LOOKS_REGRET)
		g->since_more++;
	if (g->n_wait > 0) {
		g->n_wait--;
		return g->hold;
	}
	if (give_memory_is_short(l)) {
		g->n_quiet = 0;
		if (++g->n_short >= LOOKS_SHORT && least_of(g->hold, g->full) > g->least)
			release(g, l);
		return g->hold;
	}
	g->n_short = 0;
	g->n_quiet = is_quiet ? g->n_quiet + 1 : 0;
	if (g->hold != GIVE_MEMORY_ALL && g->n_quiet >= g->quiet_want)
		take_back(g);
	else if (g->hold == GIVE_MEMORY_ALL && g->n_quiet >= LOOKS_QUIET_MAX)
		g->quiet_want = LOOKS_QUIET;
	return g->hold;
}
