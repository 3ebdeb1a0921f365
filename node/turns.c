#include "node/turns.h"

uint64_t turns_next_number(const struct node *n, const struct node_forward *f)
{
	return f->forward != 0 ? f->forward + NODE_FORWARDS_MAX : f == &n->forwards[0] ? NODE_FORWARDS_MAX : (uint64_t)(f - n->forwards);
}

const struct node_forward *turns_older_with(const struct node *n, int32_t slot)
{
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++) {
		const struct node_forward *f = &n->forwards[k];
		bool is_older = f != n->at && f->id != 0 && (n->at->id == 0 || f->forward < n->at->forward);
		for (int32_t i = 0; is_older && i < f->n_items; i++)
			if (f->items[i].slot == slot)
				return f;
	}
	return NULL;
}

bool turns_is_held(const struct node *n, int32_t slot, int32_t layer_begin, int32_t layer_end, int32_t exchange)
{
	const struct node_forward *f = turns_older_with(n, slot);
	return f != NULL && (f->exchange <= exchange || f->layer_begin != layer_begin || f->layer_end != layer_end);
}

int32_t turns_n_ways(const struct node *n)
{
	return node_part_ways(n->plan.group.mode, n->plan.group.n_members);
}

int32_t turns_way_of(const struct node *n, uint64_t number, int32_t exchange)
{
	const struct msg_group *g = &n->plan.group;
	if (split_is_ring(g->mode))
		return exchange == 1 ? g->n_members : exchange % g->n_members;
	return (int32_t)(number % 2);
}

int32_t turns_way_here(const struct node *n)
{
	return turns_way_of(n, n->at->n_passed, n->at->exchange);
}

int32_t turns_way_read(const struct node *n, const struct node_forward *g)
{
	return g->exchange > 1 ? turns_way_of(n, g->n_passed - 1, g->exchange - 1) : -1;
}

struct group_part *turns_part_now(struct node *n, int32_t member)
{
	return &n->at->parts[member][turns_way_here(n)];
}

// is_hop: in this exchange members send to the next one only. What follows the layers' exchanges is everybody's.
static bool is_hop(const struct node *n, int32_t exchange)
{
	const struct msg_group *g = &n->plan.group;
	int32_t n_layers = n->at->layer_end - n->at->layer_begin;
	return split_is_hop(g->mode, g->n_members, exchange) && exchange <= n_layers * split_exchanges(g->mode, g->n_members, false);
}

bool turns_sends_to(const struct node *n, int32_t src, int32_t dst, int32_t exchange)
{
	return src != dst && (!is_hop(n, exchange) || src == split_before(dst, 1, n->plan.group.n_members));
}

// reach returns how many exchanges behind a member this one may be when that one contributes.
static int32_t reach(const struct node *n, int32_t src, int32_t exchange)
{
	int32_t way = 1, d = split_before(src, n->plan.group.self, n->plan.group.n_members);
	while (way < d && is_hop(n, exchange - way))
		way++;
	return way;
}

int32_t turns_way_for(const struct node *n, const struct part *p)
{
	const struct node_forward *g = n->at;
	bool is_next_forward = p->forward == turns_next_number(n, g) && p->exchange == 1;
	int32_t sent = g->exchange - !turns_is_waiting(n), ahead = (int32_t)p->exchange - g->exchange; // of this forward, as far as it goes
	if (is_next_forward)
		return turns_way_of(n, g->n_passed + turns_is_waiting(n), 1);
	if (g->id == 0 || p->forward != g->forward || ahead < 0)
		return -1;
	if (!turns_sends_to(n, p->src, n->plan.group.self, p->exchange) || p->exchange - sent > reach(n, p->src, p->exchange))
		return -1;
	return turns_way_of(n, g->n_passed + (uint64_t)ahead, p->exchange);
}
