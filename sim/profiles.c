#include "sim/profiles.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fmath.h"

#include <ctype.h>

#define NS_PER_MS 1e6
#define NS_PER_S 1e9
#define RTT_MIN_NS 1000            // a lognormal has no lower end; nothing answers faster than this
#define SCAN_BURST_NS INT64_C(1500000000)
#define SCAN_GAPS_MIN 8
#define SCAN_GAPS_MAX 12           // times 120 ms they fit the burst
#define SCAN_GAP_MIN_MS 60.0
#define SCAN_GAP_MAX_MS 120.0
#define SCAN_STALL_MIN_S 2.0
#define SCAN_STALL_MAX_S 7.0
#define RESTART_AFTER_MIN_S 10.0
#define RESTART_AFTER_MAX_S 60.0
#define RESTART_MIN_S 45.0
#define RESTART_MAX_S 120.0
#define REGIMES_FORGOTTEN_NS INT64_C(60000000000) // longer than thirty dwells: the regime is drawn afresh instead of stepped to
#define NEVER_NS INT64_MAX

// Weights, medians and shapes are the round-trip profiles of home links; where each comes from is said in docs/traces.md.
#define LN(w, median, shape) {w, PROFILE_LOGNORMAL, median, shape, 0}
#define UNI(w, from, to) {w, PROFILE_UNIFORM, from, to, 0}
#define PAR(w, from, exponent, most) {w, PROFILE_PARETO, from, exponent, most}
#define DWELLS .base_dwell_s = 2.0, .middle_dwell_s = 0.5
#define GOOD_5GHZ .base = LN(.96, 2, .4), .middle = LN(.035, 6, .5), .tail = PAR(.005, 15, 1.3, 120), DWELLS
#define TYPICAL .base = LN(.70, 2.3, .55), .middle = LN(.25, 10, .8), .tail = PAR(.05, 40, .9, 1500), DWELLS

static const struct profile table[] = {
	{.name = "W0", .words = "wired", .base = LN(1, .25, .25), .base_dwell_s = 2.0},
	{.name = "W1", .words = "good 5 GHz", GOOD_5GHZ},
	{.name = "W2", .words = "typical Wi-Fi", TYPICAL},
	{.name = "W3", .words = "Raspberry Pi on 2.4 GHz, power save off", .base = LN(.90, 6, .18), .middle = LN(.08, 9, .35), .tail = PAR(.02, 18, 1.8, 131), DWELLS},
	{.name = "W4", .words = "congested", .base = LN(.55, 12, .8), .middle = LN(.38, 40, .7), .tail = PAR(.07, 110, 1.3, 2000), DWELLS},
	{.name = "W5", .words = "Raspberry Pi, power save on", .base = LN(.30, 6, .4), .sleep = UNI(.50, 5, 205), .tail = PAR(.20, 250, 1.6, 2800), .base_dwell_s = 2.0},
	{.name = "W5b", .words = "laptop, power save on", .base = LN(.60, 2.5, .4), .sleep = UNI(.40, 50, 300), .base_dwell_s = 2.0},
	{.name = "W6", .words = "W1 whose radio scans every 120 s", GOOD_5GHZ, .scan_period_s = 120, .scan_stall_part = .1},
	{.name = "W7", .words = "W1 that roams once in 10 minutes", GOOD_5GHZ, .outage_period_s = 600,
		.outages = {{.5, .05, .1}, {.35, .2, .5}, {.1, .5, 1.5}, {.05, 3, 5}}},
	{.name = "W8", .words = "W2 whose access point restarts", TYPICAL, .restarts = true},
	{.name = "W9", .words = "a home of W1 with one W5", GOOD_5GHZ, .straggler = "W5"},
};

size_t n_profiles(void)
{
	return ARRAY_LEN(table);
}

const struct profile *profile_at(size_t i)
{
	ASSERT(i < ARRAY_LEN(table));
	return &table[i];
}

static bool is_same_name(const char *a, const char *b)
{
	for (; *a != '\0' && tolower((unsigned char)*a) == tolower((unsigned char)*b); a++, b++)
		;
	return *a == *b;
}

const struct profile *profile_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (is_same_name(name, table[i].name))
			return &table[i];
	return NULL;
}

const struct profile *profile_of_station(const struct profile *p, int32_t station)
{
	if (p->straggler == NULL)
		return p;
	return profile_find(station == 0 ? p->straggler : "W1");
}

// Random numbers. Each takes as many from the stream whatever their values are.

static double uniform(struct rng *r, double from, double to)
{
	return from + (to - from) * rng_u01(r);
}

// In (0, 1]: its logarithm is finite.
static double u01_above_zero(struct rng *r)
{
	return 1.0 - rng_u01(r);
}

static double exponential(struct rng *r, double mean)
{
	return -mean * fmath_logd(u01_above_zero(r));
}

// Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958; its sine is thrown away to keep no state. The root
// comes from a logarithm: sqrt is libm's.
static double normal(struct rng *r)
{
	double u = u01_above_zero(r), v = rng_u01(r), sine, cosine;
	double square = -2.0 * fmath_logd(u);
	double radius = square > 0 ? fmath_expd(0.5 * fmath_logd(square)) : 0;
	fmath_sincos(6.283185307179586 * v, &sine, &cosine);
	return radius * cosine;
}

static double component_ms(struct rng *r, const struct profile_component *c)
{
	double v;
	switch (c->shape) {
	case PROFILE_LOGNORMAL:
		return c->a * fmath_expd(c->b * normal(r));
	case PROFILE_UNIFORM:
		return uniform(r, c->a, c->b);
	case PROFILE_PARETO:
		v = c->a * fmath_expd(-fmath_logd(u01_above_zero(r)) / c->b);
		return v < c->cap ? v : c->cap;
	case PROFILE_NONE:
		break;
	}
	return 0;
}

static int64_t to_ns(double amount, double ns_per_unit)
{
	return (int64_t)(amount * ns_per_unit + 0.5);
}

// Regimes: at the end of each dwell the next one is drawn, with chances such that the time in each is its weight's part.

static double middle_part(const struct profile *p)
{
	double whole = p->base.weight + p->middle.weight;
	return whole > 0 ? p->middle.weight / whole : 0;
}

static void start_dwell(struct profile_state *s, int64_t at_ns, double chance_of_middle)
{
	s->in_middle = rng_u01(&s->draws) < chance_of_middle;
	double dwell_s = s->in_middle ? s->p->middle_dwell_s : s->p->base_dwell_s;
	s->regime_until_ns = at_ns + 1 + to_ns(exponential(&s->draws, dwell_s), NS_PER_S);
}

static void advance_regime(struct profile_state *s, int64_t now_ns)
{
	double part = middle_part(s->p);
	if (part <= 0)
		return;
	// Dwells forget their age, so a link looked at after long is one that starts now.
	if (now_ns - s->regime_until_ns > REGIMES_FORGOTTEN_NS) {
		start_dwell(s, now_ns, part);
		return;
	}
	double middle_rate = part / s->p->middle_dwell_s, base_rate = (1.0 - part) / s->p->base_dwell_s;
	while (s->regime_until_ns <= now_ns)
		start_dwell(s, s->regime_until_ns, middle_rate / (middle_rate + base_rate));
}

// Scans and outages. Their times depend on nothing but the seed.

static double outage_s(struct rng *r, const struct profile *p)
{
	double u = rng_u01(r), v = rng_u01(r);
	size_t i = 0;
	for (; i + 1 < PROFILE_OUTAGES_MAX && u >= p->outages[i].weight; i++)
		u -= p->outages[i].weight;
	return p->outages[i].from_s + (p->outages[i].to_s - p->outages[i].from_s) * v;
}

static void plan_event(struct profile_state *s, int64_t after_ns)
{
	const struct profile *p = s->p;
	if (p->scan_period_s > 0) {
		s->event_from_ns = after_ns + to_ns(p->scan_period_s * uniform(&s->events, .9, 1.1), NS_PER_S);
		s->event_has_gaps = rng_u01(&s->events) >= p->scan_stall_part;
		int64_t stall_ns = to_ns(uniform(&s->events, SCAN_STALL_MIN_S, SCAN_STALL_MAX_S), NS_PER_S);
		s->event_seed = rng_u64(&s->events);
		s->event_until_ns = s->event_from_ns + (s->event_has_gaps ? SCAN_BURST_NS : stall_ns);
	} else if (p->outage_period_s > 0) {
		s->event_from_ns = after_ns + to_ns(exponential(&s->events, p->outage_period_s), NS_PER_S);
		s->event_has_gaps = false;
		s->event_until_ns = s->event_from_ns + to_ns(outage_s(&s->events, p), NS_PER_S);
	} else {
		s->event_from_ns = s->event_until_ns = NEVER_NS;
	}
}

// gap_end returns when the gap ends that covers now, or 0: the gaps of a burst, with equal pauses after each.
static int64_t gap_end(const struct profile_state *s, int64_t now_ns)
{
	struct rng r;
	int64_t gaps_ns[SCAN_GAPS_MAX], sum_ns = 0, from_ns = s->event_from_ns;
	rng_init(&r, s->event_seed);
	int n = SCAN_GAPS_MIN + (int)rng_below(&r, SCAN_GAPS_MAX - SCAN_GAPS_MIN + 1);
	for (int i = 0; i < n; i++)
		sum_ns += gaps_ns[i] = to_ns(uniform(&r, SCAN_GAP_MIN_MS, SCAN_GAP_MAX_MS), NS_PER_MS);
	for (int i = 0; i < n; i++) {
		if (now_ns >= from_ns && now_ns < from_ns + gaps_ns[i])
			return from_ns + gaps_ns[i];
		from_ns += gaps_ns[i] + (SCAN_BURST_NS - sum_ns) / n;
	}
	return 0;
}

static int64_t blocked_until(struct profile_state *s, int64_t now_ns)
{
	while (now_ns >= s->event_until_ns && s->event_until_ns != NEVER_NS)
		plan_event(s, s->event_until_ns);
	if (now_ns < s->event_from_ns)
		return 0;
	return s->event_has_gaps ? gap_end(s, now_ns) : s->event_until_ns;
}

static void draw_anew(struct profile_state *s, int64_t now_ns, int64_t idle_ns)
{
	const struct profile *p = s->p;
	const struct profile_component *c = s->in_middle ? &p->middle : &p->base;
	double u = rng_u01(&s->draws);
	bool is_tail = u < p->tail.weight;
	bool sleeps = !is_tail && u < p->tail.weight + p->sleep.weight && idle_ns > PROFILE_IDLE_NS;
	if (is_tail)
		c = &p->tail;
	else if (sleeps)
		c = &p->sleep;
	int64_t rtt_ns = to_ns(component_ms(&s->draws, c), NS_PER_MS);
	s->last = (struct profile_draw){.start_ns = now_ns,
		.rtt_ns = rtt_ns > RTT_MIN_NS ? rtt_ns : RTT_MIN_NS,
		.blocks = is_tail || sleeps,
		.is_new_tail = is_tail};
}

void profile_init(struct profile_state *s, const struct profile *p, uint64_t seed, uint64_t shared_seed, int64_t start_ns)
{
	struct rng shared;
	*s = (struct profile_state){.p = p};
	rng_init(&s->draws, seed);
	rng_init(&s->events, rng_u64(&s->draws));
	rng_init(&shared, shared_seed);
	start_dwell(s, start_ns, middle_part(p));
	plan_event(s, start_ns);
	if (p->restarts) {
		s->silent_from_ns = start_ns + to_ns(uniform(&shared, RESTART_AFTER_MIN_S, RESTART_AFTER_MAX_S), NS_PER_S);
		s->silent_until_ns = s->silent_from_ns + to_ns(uniform(&shared, RESTART_MIN_S, RESTART_MAX_S), NS_PER_S);
	}
}

struct profile_draw profile_draw(struct profile_state *s, int64_t now_ns, int64_t idle_ns)
{
	s->last.is_new_tail = false;
	if (s->last.rtt_ns == 0 || now_ns - s->last.start_ns >= s->last.rtt_ns) {
		advance_regime(s, now_ns);
		draw_anew(s, now_ns, idle_ns);
	}
	s->last.blocked_until_ns = blocked_until(s, now_ns);
	s->last.silent_until_ns = now_ns >= s->silent_from_ns ? s->silent_until_ns : 0;
	return s->last;
}

int64_t profile_gate(int64_t start_ns, int64_t rtt_ns, int64_t t_ns)
{
	int64_t half_ns = rtt_ns / 2;
	if (t_ns < start_ns + half_ns)
		return start_ns + half_ns;
	return t_ns < start_ns + 2 * half_ns ? start_ns + 2 * half_ns : t_ns;
}
