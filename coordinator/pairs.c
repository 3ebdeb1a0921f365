// Keys that two machines share which have a link under a plan: neighbours in the ring, and members of a group with each other. They are kept while both
// stay members, so that a new plan breaks no link.
#include "coordinator/coord_state.h"

// is_pair: whichever comes first in the ring, so that a plan in another order breaks no link.
static bool is_pair(const struct pair *p, struct node_id a, struct node_id b)
{
	return (node_id_is(p->a, a) && node_id_is(p->b, b)) || (node_id_is(p->a, b) && node_id_is(p->b, a));
}

struct pair *pairs_find(struct coordinator *c, struct node_id a, struct node_id b)
{
	for (int32_t i = 0; i < c->n_chains * PAIRS_MAX; i++)
		if (c->pairs[i].used && is_pair(&c->pairs[i], a, b))
			return &c->pairs[i];
	return NULL;
}

// is_in_plan: two neighbours in the ring, or two of a group.
static bool is_in_plan(const struct chain *ch, const struct pair *p)
{
	for (int32_t i = 0; i < ch->plan.n_stages; i++) {
		const struct plan_group *g = &ch->plan.stages[i].who;
		int32_t next = planning_next(&ch->plan, i);
		if (next >= 0 && is_pair(p, plan_lead(&ch->plan.stages[i]), plan_lead(&ch->plan.stages[next])))
			return true;
		if (plan_group_find(g, p->a) >= 0 && plan_group_find(g, p->b) >= 0)
			return true;
	}
	return false;
}

struct pair *pairs_free(struct coordinator *c)
{
	for (int32_t i = 0; i < c->n_chains * PAIRS_MAX; i++) {
		bool is_needed = false;
		for (int32_t k = 0; c->pairs[i].used && k < c->n_chains; k++)
			is_needed = is_needed || is_in_plan(&c->chains[k], &c->pairs[i]);
		if (!is_needed)
			return &c->pairs[i];
	}
	return NULL;
}

struct pair *pairs_find_hop(struct coordinator *c, const struct plan *p, int32_t stage)
{
	return pairs_find(c, plan_lead(&p->stages[stage]), plan_lead(&p->stages[planning_next(p, stage)]));
}

// missing_in_group: the node on this machine is reached through the coordinator, and needs no key.
static bool missing_in_group(struct coordinator *c, const struct plan_group *g, struct pair *out)
{
	for (int32_t i = 0; i < g->n; i++) {
		for (int32_t k = i + 1; k < g->n; k++) {
			bool has_local = c->config.has_local_node && (node_id_is(g->nodes[i], c->config.self) || node_id_is(g->nodes[k], c->config.self));
			if (has_local || pairs_find(c, g->nodes[i], g->nodes[k]) != NULL)
				continue;
			*out = (struct pair){.a = g->nodes[i], .b = g->nodes[k]};
			return true;
		}
	}
	return false;
}

bool pairs_missing(struct coordinator *c, const struct chain *ch, struct pair *out)
{
	for (int32_t i = 0; i < ch->plan.n_stages; i++) {
		int32_t next = planning_next(&ch->plan, i);
		if (planning_is_between_machines(c, ch, i) && pairs_find_hop(c, &ch->plan, i) == NULL) {
			*out = (struct pair){.a = plan_lead(&ch->plan.stages[i]), .b = plan_lead(&ch->plan.stages[next])};
			return true;
		}
		if (missing_in_group(c, &ch->plan.stages[i].who, out))
			return true;
	}
	return false;
}

void pairs_forget(struct coordinator *c, struct node_id id)
{
	for (int32_t i = 0; i < c->n_chains * PAIRS_MAX; i++)
		if (c->pairs[i].used && (node_id_is(c->pairs[i].a, id) || node_id_is(c->pairs[i].b, id)))
			memset(&c->pairs[i], 0, sizeof c->pairs[i]);
}
