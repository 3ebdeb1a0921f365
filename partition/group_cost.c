// Messages of a group's exchanges; partition/group_time.c says how long they take.
#include "partition/group_cost.h"

#include "base/assert.h"

// ---- Checks

static bool reaches(const struct cluster *c, int32_t a, int32_t b)
{
	double s;
	return cluster_hop(c, a, b, 0, &s) && cluster_hop(c, b, a, 0, &s);
}

// through_hub: one member passes on what the others send, and they send each other nothing.
static bool through_hub(const struct cost_group *g)
{
	return g->mode == GROUP_GATHER && g->gather_form == GROUP_HUB;
}

// talk tells whether two members send each other anything. Without a hub all do: in each batch everybody tells everybody that they can compute it.
static bool talk(const struct cost_group *g, int32_t a, int32_t b)
{
	return !through_hub(g) || a == g->hub || b == g->hub;
}

static enum err check_members(const struct cluster *c, const struct cost_group *g, struct errmsg *em)
{
	for (int32_t i = 0; i < g->n_members; i++) {
		if (g->devices[i] < 0 || g->devices[i] >= c->n_devices)
			return errmsg_fail(em, ERR_RANGE, "group: a member is device %d of %d", g->devices[i], c->n_devices);
		for (int32_t j = 0; j < i; j++)
			if (g->devices[i] == g->devices[j])
				return errmsg_fail(em, ERR_RANGE, "group: %s is in it twice", c->devices[g->devices[i]].name);
	}
	for (int32_t i = 0; i < g->n_members; i++)
		for (int32_t j = 0; j < i; j++)
			if (talk(g, j, i) && !reaches(c, g->devices[i], g->devices[j]))
				return errmsg_fail(em, ERR_RANGE, "group: %s and %s do not reach each other", c->devices[g->devices[j]].name,
					c->devices[g->devices[i]].name);
	return OK;
}

static bool is_known(const struct split_shape *s)
{
	bool has_heads = s->n_heads >= 1 && s->n_kv_heads >= 1 && s->n_heads % s->n_kv_heads == 0 && s->head_dim >= 1;
	return has_heads && s->hidden_dim >= 1 && s->ffn_dim >= 1 && s->n_experts >= 0 && s->o_block >= 1 && s->down_block >= 1;
}

enum err group_check(const struct cluster *c, const struct model_shape *s, const struct cost_group *g, struct errmsg *em)
{
	struct group_split t;
	if (!is_known(&s->split))
		return errmsg_fail(em, ERR_RANGE, "group: how this model's layers are divided into heads is not known");
	if (g->n_members < 2 || g->n_members > GROUP_MEMBERS_MAX)
		return errmsg_fail(em, ERR_RANGE, "group: %d members, want 2 to %d", g->n_members, GROUP_MEMBERS_MAX);
	if (g->hub < 0 || g->hub >= g->n_members)
		return errmsg_fail(em, ERR_RANGE, "group: the hub is member %d of %d", g->hub, g->n_members);
	if (g->gather_form != GROUP_DIRECT && g->gather_form != GROUP_HUB && g->mode != GROUP_REDUCE)
		return errmsg_fail(em, ERR_RANGE, "group: gathering goes directly or through a hub");
	enum err e = check_members(c, g, em);
	return e == OK ? group_split_make(&s->split, g->mode, g->shares, g->n_members, &t, em) : e;
}

// ---- Messages

int32_t group_exchanges(const struct split_shape *s, enum group_mode mode, enum group_exchange out[GROUP_PARTS_MAX])
{
	int32_t n = 0;
	if (mode == GROUP_REDUCE) {
		out[n++] = GROUP_O_SUM;
	} else {
		out[n++] = GROUP_ATTENDED;
		out[n++] = GROUP_O;
	}
	if (s->n_experts > 0) {
		out[n++] = GROUP_EXPERTS;
	} else if (mode == GROUP_GATHER) {
		out[n++] = GROUP_GATED;
		out[n++] = GROUP_DOWN;
	} else {
		out[n++] = GROUP_DOWN_SUM;
	}
	return n;
}

static bool is_sum(enum group_exchange x)
{
	return x == GROUP_O_SUM || x == GROUP_DOWN_SUM;
}

int32_t group_steps(const struct cost_group *g, enum group_exchange x)
{
	if (x == GROUP_START)
		return through_hub(g) && g->hub != 0 ? 2 : 1;
	if (!is_sum(x))
		return g->gather_form == GROUP_HUB ? 2 : 1;
	switch (g->sum_form) {
	case GROUP_ALL: return 1;
	case GROUP_DIRECT:
	case GROUP_HUB: return 2;
	case GROUP_RING: return 2 * (g->n_members - 1);
	}
	return 0;
}

// part_bytes returns what a member contributes to a gathering.
static double part_bytes(
	const struct model_shape *s, const struct group_split *t, enum group_exchange x, const struct group_chosen *chosen, int32_t m)
{
	const struct split_shape *d = &s->split;
	const struct split_part *p = &t->rows.parts[m];
	switch (x) {
	case GROUP_ATTENDED: return (double)split_bytes(d, p, EXCHANGE_ATTENDED, d->o_block);
	case GROUP_O: return (double)split_bytes(d, p, EXCHANGE_O, d->o_block);
	case GROUP_GATED: return (double)split_bytes(d, p, EXCHANGE_GATED, d->down_block);
	case GROUP_DOWN: return (double)split_bytes(d, p, EXCHANGE_DOWN, d->down_block);
	case GROUP_EXPERTS: {
		double n = chosen != NULL ? chosen->n[m] : (double)s->n_experts_used * split_len(p->experts) / d->n_experts;
		return n * (double)split_bytes(d, p, EXCHANGE_EXPERTS, d->down_block);
	}
	case GROUP_O_SUM:
	case GROUP_DOWN_SUM:
	case GROUP_START: break;
	}
	return 0;
}

// put: a message, maybe without bytes.
static void put(struct group_step *out, int32_t from, int32_t to, double bytes)
{
	out->to[from] |= UINT32_C(1) << to;
	out->bytes[from][to] = bytes;
}

static void gather_step(const struct cost_group *g, const double *parts, int32_t step, struct group_step *out)
{
	double all = 0;
	for (int32_t i = 0; i < g->n_members; i++)
		all += parts[i];
	for (int32_t i = 0; i < g->n_members; i++) {
		for (int32_t j = 0; j < g->n_members; j++) {
			if (i == j)
				continue;
			if (g->gather_form == GROUP_DIRECT || (step == 0 && j == g->hub))
				put(out, i, j, parts[i]);
			else if (step == 1 && i == g->hub)
				put(out, i, j, all - parts[j]);
		}
	}
}

static int32_t around(int32_t i, int32_t n)
{
	return (i % n + n) % n;
}

// A sum's figures: lanes and masks of the product, and of how many outputs each member completes the sum.
struct sum {
	int32_t n, n_lanes;
	const uint32_t *masks;
	double values[GROUP_MEMBERS_MAX];
	double all;
};

static double nodes_bytes(const struct sum *a, uint32_t mask, double values)
{
	return sizeof(float) * split_nodes(a->n_lanes, mask) * values;
}

// ring_bytes: the outputs that member c completes start at c + 1, and each member they pass joins what its lanes complete; then they go round.
static double ring_bytes(const struct sum *a, int32_t from, int32_t step)
{
	uint32_t mask = 0;
	if (step >= a->n - 1)
		return sizeof(float) * a->values[around(from - (step - (a->n - 1)), a->n)];
	for (int32_t i = 0; i <= step; i++)
		mask |= a->masks[around(from - i, a->n)];
	return nodes_bytes(a, mask, a->values[around(from - step - 1, a->n)]);
}

static double sum_bytes(const struct cost_group *g, const struct sum *a, int32_t i, int32_t j, int32_t step)
{
	switch (g->sum_form) {
	case GROUP_ALL: return nodes_bytes(a, a->masks[i], a->all);
	case GROUP_HUB:
		if (step == 0)
			return j == g->hub ? nodes_bytes(a, a->masks[i], a->all) : 0;
		return i == g->hub ? sizeof(float) * a->all : 0;
	case GROUP_DIRECT: return step == 0 ? nodes_bytes(a, a->masks[i], a->values[j]) : sizeof(float) * a->values[i];
	case GROUP_RING: return ring_bytes(a, i, step);
	}
	return 0;
}

static void sum_step(const struct model_shape *s, const struct cost_group *g, const struct group_split *t, enum group_exchange x, int32_t step,
	struct group_step *out)
{
	bool is_o = x == GROUP_O_SUM;
	struct sum a = {.n = g->n_members, .n_lanes = is_o ? t->o_lanes : t->down_lanes, .masks = is_o ? t->o_mask : t->down_mask,
		.all = s->split.hidden_dim};
	for (int32_t i = 0; i < a.n; i++)
		a.values[i] = split_len(t->rows.parts[i].o_rows);
	for (int32_t i = 0; i < a.n; i++)
		for (int32_t j = 0; j < a.n; j++)
			if (i != j && (g->sum_form != GROUP_RING || j == around(i + 1, a.n)))
				put(out, i, j, sum_bytes(g, &a, i, j, step));
}

// start_step: the hidden states, from the lead to all or to the hub, who has them for the others.
static void start_step(const struct cost_group *g, double bytes, int32_t step, struct group_step *out)
{
	bool has_hub = through_hub(g) && g->hub != 0;
	int32_t from = step == 0 ? 0 : g->hub;
	for (int32_t i = 1; i < g->n_members; i++)
		if (i != from && (!has_hub || step == 1 || i == g->hub))
			put(out, from, i, bytes);
}

void group_step_of(const struct model_shape *s, const struct cost_group *g, const struct group_split *t, enum group_exchange x,
	const struct group_chosen *chosen, int32_t step, struct group_step *out)
{
	double parts[GROUP_MEMBERS_MAX];
	ASSERT(step >= 0 && step < group_steps(g, x));
	*out = (struct group_step){0};
	if (is_sum(x)) {
		sum_step(s, g, t, x, step, out);
	} else if (x == GROUP_START) {
		start_step(g, (double)s->hop_bytes, step, out);
	} else {
		for (int32_t i = 0; i < g->n_members; i++)
			parts[i] = part_bytes(s, t, x, chosen, i);
		gather_step(g, parts, step, out);
	}
}

const char *group_mode_words(enum group_mode m)
{
	switch (m) {
	case GROUP_GATHER: return "gather";
	case GROUP_MIXED: return "mixed";
	case GROUP_REDUCE: return "reduce";
	}
	return "unknown";
}

const char *group_form_words(enum group_form f)
{
	switch (f) {
	case GROUP_DIRECT: return "direct";
	case GROUP_HUB: return "hub";
	case GROUP_ALL: return "all";
	case GROUP_RING: return "ring";
	}
	return "unknown";
}
