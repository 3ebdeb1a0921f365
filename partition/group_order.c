// In which order sums go round a group: each wave of them goes over all links of the ring, so that their sum counts (partition/group_time.c).
#include "partition/solve_groups.h"

#include <string.h>

#define SEARCH_MAX 16384 // members put in a place: more than all orders of eight take; of more members it is the best order found by then

struct tour {
	int32_t n;
	double hop_s[GROUP_MEMBERS_MAX][GROUP_MEMBERS_MAX];
	double in_s[GROUP_MEMBERS_MAX]; // the quickest hop to each
	int32_t order[GROUP_MEMBERS_MAX], best[GROUP_MEMBERS_MAX];
	double best_s;
	int32_t left; // of SEARCH_MAX
};

static bool is_less(double a, double b)
{
	return a < b * (1 - SOLVE_EQUAL);
}

// rest_s is the least that it takes to go to everybody who is not in his place yet, and back to the lead.
static double rest_s(const struct tour *t, uint32_t free)
{
	double s = t->in_s[0];
	for (int32_t i = 1; i < t->n; i++)
		s += free >> i & 1 ? t->in_s[i] : 0;
	return s;
}

// nearest returns who of those in `open` is next to a member; -1: nobody is left.
static int32_t nearest(const struct tour *t, int32_t from, uint32_t open)
{
	int32_t at = -1;
	for (int32_t i = 1; i < t->n; i++)
		if ((open >> i & 1) && (at < 0 || t->hop_s[from][i] < t->hop_s[from][at]))
			at = i;
	return at;
}

// extend puts everybody who is not in his place yet next, nearest first. Depth: as many members as there are.
static void extend(struct tour *t, int32_t n_placed, uint32_t free, double sum_s)
{
	int32_t last = t->order[n_placed - 1];
	if (n_placed == t->n && is_less(sum_s + t->hop_s[last][0], t->best_s)) {
		t->best_s = sum_s + t->hop_s[last][0];
		memcpy(t->best, t->order, sizeof t->best);
	}
	uint32_t open = free;
	for (int32_t next; (next = nearest(t, last, open)) >= 0 && t->left > 0;) {
		double with_s = sum_s + t->hop_s[last][next];
		uint32_t others = free & ~(UINT32_C(1) << next);
		open &= ~(UINT32_C(1) << next);
		if (!is_less(with_s + rest_s(t, others), t->best_s))
			continue;
		t->left--;
		t->order[n_placed] = next;
		extend(t, n_placed + 1, others, with_s);
	}
}

static void measure(const struct cluster *c, const struct cost_group *g, double bytes, struct tour *t)
{
	for (int32_t i = 0; i < t->n; i++)
		t->in_s[i] = INFINITY;
	for (int32_t i = 0; i < t->n; i++) {
		for (int32_t j = 0; j < t->n; j++) {
			t->hop_s[i][j] = i == j ? INFINITY : group_hop_s(c, g->devices[i], g->devices[j], bytes);
			t->in_s[j] = solve_least(t->in_s[j], t->hop_s[i][j]);
		}
	}
	for (int32_t i = 0; i < t->n; i++)
		t->best_s += t->hop_s[i][(i + 1) % t->n];
}

bool group_order(const struct cluster *c, double bytes, struct cost_group *g)
{
	struct tour t = {.n = g->n_members, .left = SEARCH_MAX};
	struct cost_group was = *g;
	if (t.n <= 2)
		return false;
	measure(c, g, bytes, &t);
	double given_s = t.best_s;
	extend(&t, 1, (UINT32_C(1) << t.n) - 2, 0);
	if (!is_less(t.best_s, given_s))
		return false;
	for (int32_t i = 0; i < t.n; i++) {
		g->devices[i] = was.devices[t.best[i]];
		g->shares[i] = was.shares[t.best[i]];
		g->n_streamed[i] = was.n_streamed[t.best[i]];
	}
	return true;
}
