// How long a group's messages take: ports, air, and who passes on what two members without a link send each other.
#include "partition/group_cost.h"

#include <math.h>
#include <string.h>

#define PLACES_MAX (GROUP_MEMBERS_MAX + 1) // members, and who passes on between them without being one: the coordinator alone does. Of several, one would count as all

// The way of a message: out of its sender's port and into its receiver's, or through those of who passes it on. A link of their own is both.
struct way {
	double fixed_s;     // delay, software, and waking the receiver
	double out_s, in_s; // per byte
	double tail_s;      // per byte: of the last message, which goes in when it is out
	int32_t via;        // place of who passes it on; -1: nobody does
};

struct ways {
	int32_t n, devices[PLACES_MAX]; // places: the members, and maybe one more
	struct way at[GROUP_MEMBERS_MAX][GROUP_MEMBERS_MAX];
};

static int32_t place_of(struct ways *w, int32_t n_members, int32_t device)
{
	for (int32_t i = 0; i < n_members; i++)
		if (w->devices[i] == device)
			return i;
	w->devices[n_members] = device;
	w->n = n_members + 1;
	return n_members;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static const struct cluster_link *link_of(const struct cluster *c, int32_t from, int32_t to)
{
	return &c->links[(size_t)from * (size_t)c->n_devices + (size_t)to];
}

static struct way way_between(const struct cluster *c, int32_t from, int32_t to)
{
	double wake_s = c->devices[to].visit_s;
	if (c->links) {
		const struct cluster_link *l = link_of(c, from, to);
		return (struct way){.fixed_s = l->delay_s + l->software_s + wake_s, .out_s = 1 / l->rate, .in_s = 1 / l->rate, .via = -1};
	}
	const struct cluster_link *a = &c->attach[from], *b = &c->attach[to];
	return (struct way){.fixed_s = a->delay_s + b->delay_s + a->software_s + b->software_s + wake_s,
		.out_s = 1 / a->rate,
		.in_s = 1 / b->rate,
		.tail_s = 1 / larger(a->rate, b->rate),
		.via = -1};
}

// way_through is that of a message which somebody takes in, is woken by, and sends on.
static struct way way_through(const struct cluster *c, int32_t from, int32_t to, int32_t via, int32_t place)
{
	struct way there = way_between(c, from, via), on = way_between(c, via, to);
	return (struct way){.fixed_s = there.fixed_s + on.fixed_s,
		.out_s = there.out_s,
		.in_s = on.in_s,
		.tail_s = there.out_s < on.in_s ? there.out_s : on.in_s,
		.via = place};
}

static void ways_of(const struct cluster *c, const struct cost_group *g, struct ways *out)
{
	out->n = g->n_members;
	memcpy(out->devices, g->devices, sizeof g->devices);
	for (int32_t i = 0; i < g->n_members; i++) {
		for (int32_t j = 0; j < g->n_members; j++) {
			int32_t from = g->devices[i], to = g->devices[j], via = c->links && i != j ? link_of(c, from, to)->via - 1 : -1;
			if (i != j)
				out->at[i][j] = via >= 0 ? way_through(c, from, to, via, place_of(out, g->n_members, via)) : way_between(c, from, to);
		}
	}
}

// air_s is the time that the air of a machine's access point is busy in a step: all that its stations send and receive.
static double air_s(const struct cluster *c, const struct ways *w, int32_t n_members, const struct group_step *step, int32_t air)
{
	double s = 0;
	for (int32_t i = 0; i < n_members; i++) {
		for (int32_t j = 0; j < n_members; j++) {
			const struct way *way = &w->at[i][j];
			if (!(step->bytes[i][j] > 0))
				continue;
			bool from = c->airs[w->devices[i]] == air, to = c->airs[w->devices[j]] == air, via = way->via >= 0 && c->airs[w->devices[way->via]] == air;
			if (way->via >= 0)
				s += step->bytes[i][j] * ((from || via ? way->out_s : 0) + (via || to ? way->in_s : 0));
			else
				s += step->bytes[i][j] * (c->links && (from || to) ? way->out_s : (from ? way->out_s : 0) + (to ? way->in_s : 0));
		}
	}
	return s;
}

// How long each place's port and air are busy in a step.
struct busy {
	double out_s[PLACES_MAX], in_s[PLACES_MAX], air_s[PLACES_MAX];
};

static void busy_of(const struct cluster *c, const struct ways *w, int32_t n_members, const struct group_step *step, int32_t n_tokens, struct busy *out)
{
	bool is_apart = c->links && c->links_apart;
	*out = (struct busy){0};
	for (int32_t i = 0; i < w->n && c->airs; i++)
		if (c->airs[w->devices[i]] >= 0)
			out->air_s[i] = air_s(c, w, n_members, step, c->airs[w->devices[i]]) * n_tokens;
	for (int32_t i = 0; i < n_members; i++) {
		for (int32_t j = 0; j < n_members; j++) {
			const struct way *way = &w->at[i][j];
			double bytes = step->bytes[i][j] * n_tokens;
			if (!(bytes > 0) || (is_apart && way->via < 0))
				continue;
			out->out_s[i] += bytes * way->out_s;
			out->in_s[j] += bytes * way->in_s;
			if (way->via < 0)
				continue;
			out->in_s[way->via] += bytes * way->out_s;
			out->out_s[way->via] += bytes * way->in_s;
		}
	}
}

// message_s: one without bytes waits for nobody's port.
static double message_s(const struct cluster *c, const struct way *way, const struct busy *b, int32_t i, int32_t j, double bytes)
{
	bool is_apart = c->links && c->links_apart && way->via < 0;
	double busy_s = is_apart ? bytes * way->out_s : larger(b->out_s[i], b->in_s[j]), air = larger(b->air_s[i], b->air_s[j]);
	if (!(bytes > 0))
		return way->fixed_s;
	if (way->via >= 0) {
		busy_s = larger(busy_s, larger(b->in_s[way->via], b->out_s[way->via]));
		air = larger(air, b->air_s[way->via]);
	}
	return way->fixed_s + larger(is_apart ? busy_s : busy_s + bytes * way->tail_s, air);
}

// step_s is a step's time for n tokens: until the last message has come.
static double step_s(const struct cluster *c, const struct ways *w, int32_t n_members, const struct group_step *step, int32_t n_tokens)
{
	struct busy b;
	double longest_s = 0;
	busy_of(c, w, n_members, step, n_tokens, &b);
	for (int32_t i = 0; i < n_members; i++)
		for (int32_t j = 0; j < n_members; j++)
			if (step->to[i] >> j & 1)
				longest_s = larger(longest_s, message_s(c, &w->at[i][j], &b, i, j, step->bytes[i][j] * n_tokens));
	return longest_s;
}

static void count_bytes(const struct group_step *step, int32_t n_members, int32_t n_tokens, struct group_traffic *t)
{
	t->n_steps++;
	for (int32_t i = 0; i < n_members; i++) {
		for (int32_t j = 0; j < n_members; j++) {
			t->sent[i] += step->bytes[i][j] * n_tokens;
			t->received[j] += step->bytes[i][j] * n_tokens;
		}
	}
}

// slowest_wave_s: what begins at a member goes on from hop to hop, and nobody waits for others than the one before it. So the slowest of these waves is what
// is waited for before the next exchange of everybody with everybody; where there is none, each wave of the next sum begins where one of this ended, and a
// token takes the mean of those that follow each other.
static double slowest_wave_s(const double *waves, int32_t n, bool goes_on)
{
	double longest_s = 0;
	for (int32_t i = 0; i < n; i++) {
		double sum_s = waves[i];
		int32_t n_waves = 1;
		for (int32_t at = (i + 2 * (n - 1)) % n; goes_on && at != i; at = (at + 2 * (n - 1)) % n) {
			sum_s += waves[at];
			n_waves++;
		}
		longest_s = larger(longest_s, sum_s / n_waves);
	}
	return longest_s;
}

// add_ring adds a sum that goes round: no less than a port or an air has to carry.
static void add_ring(const struct cluster *c, const struct ways *w, const struct model_shape *s, const struct cost_group *g, const struct group_split *split,
	enum group_exchange x, int32_t n_tokens, struct group_traffic *t)
{
	int32_t n = g->n_members;
	double waves[GROUP_MEMBERS_MAX] = {0}, busy_s = 0;
	struct busy all = {0};
	for (int32_t step = 0; step < group_steps(g, x); step++) {
		struct group_step messages;
		struct busy b;
		group_step_of(s, g, split, x, NULL, step, &messages);
		count_bytes(&messages, n, n_tokens, t);
		busy_of(c, w, n, &messages, n_tokens, &b);
		for (int32_t i = 0; i < n; i++) {
			int32_t from = (i + step) % n, to = (from + 1) % n;
			waves[i] += message_s(c, &w->at[from][to], &b, from, to, messages.bytes[from][to] * n_tokens);
		}
		for (int32_t i = 0; i < w->n; i++) {
			all.out_s[i] += b.out_s[i];
			all.in_s[i] += b.in_s[i];
			all.air_s[i] += b.air_s[i];
		}
	}
	for (int32_t i = 0; i < w->n; i++)
		busy_s = larger(busy_s, larger(all.air_s[i], larger(all.out_s[i], all.in_s[i])));
	t->seconds += larger(busy_s, slowest_wave_s(waves, n, g->mode == GROUP_REDUCE));
}

static void add_exchange(const struct cluster *c, const struct ways *w, const struct model_shape *s, const struct cost_group *g,
	const struct group_split *split, enum group_exchange x, int32_t n_tokens, struct group_traffic *t)
{
	bool is_sum = x == GROUP_O_SUM || x == GROUP_DOWN_SUM;
	t->n_exchanges++;
	if (is_sum && g->sum_form == GROUP_RING) {
		add_ring(c, w, s, g, split, x, n_tokens, t);
		return;
	}
	for (int32_t step = 0; step < group_steps(g, x); step++) {
		struct group_step messages;
		group_step_of(s, g, split, x, NULL, step, &messages);
		count_bytes(&messages, g->n_members, n_tokens, t);
		t->seconds += step_s(c, w, g->n_members, &messages, n_tokens);
	}
}

// all_told_s: in the first exchange of a batch members of a ring, too, tell everybody that they can compute it: so much longer than a hop it takes.
static double all_told_s(const struct ways *w, const struct cost_group *g)
{
	double longest_s = 0, hops_s = 0;
	if (g->mode != GROUP_REDUCE || g->sum_form != GROUP_RING)
		return 0;
	for (int32_t i = 0; i < g->n_members; i++) {
		hops_s += w->at[i][(i + 1) % g->n_members].fixed_s;
		for (int32_t j = 0; j < g->n_members; j++)
			longest_s = i == j ? longest_s : larger(longest_s, w->at[i][j].fixed_s);
	}
	return longest_s - hops_s / g->n_members;
}

void group_traffic_add(const struct cluster *c, const struct model_shape *s, const struct cost_group *g, const struct group_split *split,
	enum group_exchange x, int32_t n_tokens, struct group_traffic *t)
{
	struct ways w;
	ways_of(c, g, &w);
	add_exchange(c, &w, s, g, split, x, n_tokens, t);
	if (x == GROUP_START)
		t->seconds += all_told_s(&w, g);
}

void group_layer_traffic(const struct cluster *c, const struct model_shape *s, const struct cost_group *g, const struct group_split *split,
	int32_t n_tokens, struct group_traffic *out)
{
	struct ways w;
	enum group_exchange list[GROUP_PARTS_MAX];
	int32_t n = group_exchanges(&s->split, g->mode, list);
	ways_of(c, g, &w);
	*out = (struct group_traffic){0};
	for (int32_t i = 0; i < n; i++)
		add_exchange(c, &w, s, g, split, list[i], n_tokens, out);
}

double group_hop_s(const struct cluster *c, int32_t from, int32_t to, double bytes)
{
	double s;
	if (!cluster_hop(c, from, to, bytes, &s))
		return INFINITY;
	int32_t via = c->links ? link_of(c, from, to)->via - 1 : -1;
	return s + c->devices[to].visit_s + (via >= 0 ? c->devices[via].visit_s : 0);
}
