// Messages of a group's exchanges, and how long they take.
#include "partition/group_cost.h"

#include "base/assert.h"

// ---- Checks

static bool reaches(const struct cluster *c, int32_t a, int32_t b)
{
	double s;
	return cluster_hop(c, a, b, 0, &s) && cluster_hop(c, b, a, 0, &s);
}

// talk tells whether two members send each other anything in a layer. Frames without bytes go through the coordinator, too.
static bool talk(const struct cost_group *g, int32_t a, int32_t b)
{
	bool is_direct = g->gather_form == GROUP_DIRECT && g->mode != GROUP_REDUCE;
	bool is_sum = g->mode != GROUP_GATHER, is_ring = is_sum && g->sum_form == GROUP_RING;
	if (a == 0 || b == 0 || is_direct || (is_sum && (g->sum_form == GROUP_DIRECT || g->sum_form == GROUP_ALL)))
		return true;
	return a == g->hub || b == g->hub || (is_ring && ((a + 1) % g->n_members == b || (b + 1) % g->n_members == a));
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
		return 1;
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

static void gather_step(const struct cost_group *g, const double *parts, int32_t step, struct group_step *out)
{
	double all = 0;
	for (int32_t i = 0; i < g->n_members; i++)
		all += parts[i];
	for (int32_t i = 0; i < g->n_members; i++) {
		for (int32_t j = 0; j < g->n_members; j++) {
			if (i == j)
				continue;
			if (g->gather_form == GROUP_DIRECT)
				out->bytes[i][j] = parts[i];
			else if (step == 0 && j == g->hub)
				out->bytes[i][j] = parts[i];
			else if (step == 1 && i == g->hub)
				out->bytes[i][j] = all - parts[j];
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
	case GROUP_RING: return j == around(i + 1, a->n) ? ring_bytes(a, i, step) : 0;
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
			out->bytes[i][j] = i == j ? 0 : sum_bytes(g, &a, i, j, step);
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
		for (int32_t i = 1; i < g->n_members; i++)
			out->bytes[0][i] = (double)s->hop_bytes;
	} else {
		for (int32_t i = 0; i < g->n_members; i++)
			parts[i] = part_bytes(s, t, x, chosen, i);
		gather_step(g, parts, step, out);
	}
}

// ---- Time

// The way of a message: out of its sender's port and into its receiver's. A link of their own is both.
struct way {
	double fixed_s;    // delay, software, and waking the receiver
	double out_s, in_s; // per byte
	double tail_s;     // per byte: of the last message, which goes in when it is out
};

static struct way way_between(const struct cluster *c, int32_t from, int32_t to)
{
	double wake_s = c->devices[to].visit_s;
	if (c->links) {
		const struct cluster_link *l = &c->links[(size_t)from * (size_t)c->n_devices + (size_t)to];
		return (struct way){.fixed_s = l->delay_s + l->software_s + wake_s, .out_s = 1 / l->rate, .in_s = 1 / l->rate};
	}
	const struct cluster_link *a = &c->attach[from], *b = &c->attach[to];
	double fast = a->rate > b->rate ? a->rate : b->rate;
	return (struct way){.fixed_s = a->delay_s + b->delay_s + a->software_s + b->software_s + wake_s,
		.out_s = 1 / a->rate,
		.in_s = 1 / b->rate,
		.tail_s = 1 / fast};
}

// air_s is the time that the air of a machine's access point is busy in a step: all that its stations send and receive.
static double air_s(const struct cluster *c, const struct cost_group *g, const struct group_step *step, int32_t air)
{
	double s = 0;
	for (int32_t i = 0; i < g->n_members; i++) {
		for (int32_t j = 0; j < g->n_members; j++) {
			if (!(step->bytes[i][j] > 0))
				continue;
			struct way w = way_between(c, g->devices[i], g->devices[j]);
			bool from = c->airs[g->devices[i]] == air, to = c->airs[g->devices[j]] == air;
			s += step->bytes[i][j] * (c->links && (from || to) ? w.out_s : (from ? w.out_s : 0) + (to ? w.in_s : 0));
		}
	}
	return s;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

double group_step_s(const struct cluster *c, const struct cost_group *g, const struct group_step *step, int32_t n_tokens)
{
	double out_s[GROUP_MEMBERS_MAX] = {0}, in_s[GROUP_MEMBERS_MAX] = {0}, air[GROUP_MEMBERS_MAX] = {0}, longest_s = 0;
	bool is_apart = c->links && c->links_apart;
	for (int32_t i = 0; i < g->n_members; i++) {
		if (c->airs && c->airs[g->devices[i]] >= 0)
			air[i] = air_s(c, g, step, c->airs[g->devices[i]]) * n_tokens;
		for (int32_t j = 0; j < g->n_members && !is_apart; j++) {
			double bytes = step->bytes[i][j] * n_tokens;
			if (!(bytes > 0))
				continue;
			struct way w = way_between(c, g->devices[i], g->devices[j]);
			out_s[i] += bytes * w.out_s;
			in_s[j] += bytes * w.in_s;
		}
	}
	for (int32_t i = 0; i < g->n_members; i++) {
		for (int32_t j = 0; j < g->n_members; j++) {
			double bytes = step->bytes[i][j] * n_tokens;
			if (!(bytes > 0))
				continue;
			struct way w = way_between(c, g->devices[i], g->devices[j]);
			double busy_s = is_apart ? bytes * w.out_s : larger(out_s[i], in_s[j]) + bytes * w.tail_s;
			longest_s = larger(longest_s, w.fixed_s + larger(busy_s, larger(air[i], air[j])));
		}
	}
	return longest_s;
}

void group_traffic_add(const struct cluster *c, const struct model_shape *s, const struct cost_group *g, const struct group_split *split,
	enum group_exchange x, int32_t n_tokens, struct group_traffic *t)
{
	t->n_exchanges++;
	for (int32_t step = 0; step < group_steps(g, x); step++) {
		struct group_step messages;
		group_step_of(s, g, split, x, NULL, step, &messages);
		t->n_steps++;
		t->seconds += group_step_s(c, g, &messages, n_tokens);
		for (int32_t i = 0; i < g->n_members; i++) {
			for (int32_t j = 0; j < g->n_members; j++) {
				t->sent[i] += messages.bytes[i][j] * n_tokens;
				t->received[j] += messages.bytes[i][j] * n_tokens;
			}
		}
	}
}

void group_layer_traffic(const struct cluster *c, const struct model_shape *s, const struct cost_group *g, const struct group_split *split,
	int32_t n_tokens, struct group_traffic *out)
{
	enum group_exchange list[GROUP_PARTS_MAX];
	int32_t n = group_exchanges(&s->split, g->mode, list);
	*out = (struct group_traffic){0};
	for (int32_t i = 0; i < n; i++)
		group_traffic_add(c, s, g, split, list[i], n_tokens, out);
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
