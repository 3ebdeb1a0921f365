#include "partition/plan_best.h"

#include "base/assert.h"
#include "base/window_layout.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int32_t find_device(const struct plan_ask *ask, struct node_id id)
{
	for (int32_t i = 0; i < ask->want.cluster->n_devices; i++)
		if (node_id_is(ask->nodes[i], id))
			return i;
	return -1;
}

enum split_mode plan_best_mode(const struct cost_group *g)
{
	if (g->mode == GROUP_GATHER)
		return SPLIT_GATHER;
	bool is_mixed = g->mode == GROUP_MIXED;
	switch (g->sum_form) {
	case GROUP_ALL: return is_mixed ? SPLIT_MIXED : SPLIT_REDUCE;
	case GROUP_HUB: return is_mixed ? SPLIT_MIXED_STAR : SPLIT_REDUCE_STAR;
	case GROUP_RING: return is_mixed ? SPLIT_MIXED_RING : SPLIT_REDUCE_RING;
	case GROUP_DIRECT: break;
	}
	return is_mixed ? SPLIT_MIXED_SCATTER : SPLIT_REDUCE_SCATTER;
}

static void put_mode(enum split_mode mode, struct cost_group *g)
{
	g->mode = !split_has_lanes(mode) ? GROUP_GATHER : split_has_o_lanes(mode) ? GROUP_REDUCE : GROUP_MIXED;
	g->sum_form = split_completes_all(mode) ? GROUP_ALL : split_is_star(mode) ? GROUP_HUB : split_is_ring(mode) ? GROUP_RING : GROUP_DIRECT;
}

// group_of_plan: false: a member is no device, or a hub passes on what is not gathered, which the cost model does not count.
static bool group_of_plan(const struct plan_ask *ask, const struct plan_group *who, struct cost_group *out)
{
	*out = (struct cost_group){.n_members = who->n, .gather_form = who->hub > 0 ? GROUP_HUB : GROUP_DIRECT, .hub = who->hub > 0 ? who->hub - 1 : 0};
	put_mode(who->mode, out);
	for (int32_t i = 0; i < who->n; i++) {
		out->devices[i] = find_device(ask, who->nodes[i]);
		out->shares[i] = who->shares[i];
		out->n_streamed[i] = COST_STREAM_LEAST;
		if (out->devices[i] < 0)
			return false;
	}
	return who->hub == 0 || out->mode == GROUP_GATHER;
}

static struct plan_group plan_of_group(const struct plan_ask *ask, const struct cost_group *g)
{
	struct plan_group out = {.n = g->n_members, .mode = plan_best_mode(g)};
	out.hub = g->mode == GROUP_GATHER && g->gather_form == GROUP_HUB ? g->hub + 1 : 0;
	for (int32_t i = 0; i < g->n_members; i++) {
		out.nodes[i] = ask->nodes[g->devices[i]];
		out.shares[i] = g->shares[i];
	}
	return out;
}

static struct cost_case case_of(const struct plan_ask *ask, const struct cost_plan *p)
{
	return (struct cost_case){.cluster = ask->want.cluster, .shape = ask->want.shape, .plan = p, .params = ask->want.params};
}

// Experts are read as the router asks for them, whatever a plan counts on.
uint32_t plan_best_stream_share(const struct cost_case *c, int32_t stage)
{
	struct cost_layout l;
	if (cost_group_of(c->plan, stage) != NULL || c->shape->expert_share > 0 || cost_layout_of(c, stage, &l, NULL) != OK || l.window <= WINDOW_MIN)
		return 0;
	return window_share_of(l.n_streamed, l.n_units);
}

// streams_of is what that machine makes of it, within what is possible with the present figures.
static int32_t streams_of(const struct plan_ask *ask, const struct cost_plan *p, int32_t stage, uint32_t share)
{
	const struct cost_case c = case_of(ask, p);
	struct cost_layout l;
	if (share == 0 || cost_group_of(p, stage) != NULL || cost_layout_of(&c, stage, &l, NULL) != OK || l.n_streamed == 0)
		return COST_STREAM_LEAST;
	int32_t n = window_share_units(share, l.n_units);
	return n > l.n_streamed ? n : l.n_streamed;
}

// cost_of_plan: a repaired plan's rounds may be cut elsewhere; the solver counts them as it would cut them. False: somebody is no device, or shares its
// layers with others where the wants allow no groups, or in more of them than the solver counts.
static bool cost_of_plan(const struct plan_ask *ask, const struct plan *p, struct cost_plan *out)
{
	*out = (struct cost_plan){.head = ask->want.head, .n_rounds = p->n_rounds, .n_stages = p->n_stages};
	for (int32_t i = 0; i < p->n_stages; i++) {
		int32_t device = find_device(ask, plan_lead(&p->stages[i]));
		bool is_group = p->stages[i].who.n > 1;
		if (device < 0 || (is_group && (!ask->want.allow_groups || out->n_groups == COST_GROUPS_MAX)))
			return false;
		if (is_group && !group_of_plan(ask, &p->stages[i].who, &out->groups[out->n_groups++]))
			return false;
		out->stages[i] = (struct cost_stage){.device = device, .n_layers = layer_spans_count(&p->stages[i].layers), .n_streamed = COST_STREAM_LEAST};
	}
	for (int32_t i = 0; i < p->n_stages; i++)
		out->stages[i].n_streamed = streams_of(ask, out, i, p->stages[i].stream_share);
	return true;
}

static void plan_of_cost(const struct plan_ask *ask, const struct cost_plan *p, struct plan *out)
{
	struct plan_group who[STAGES_MAX];
	const char *names[STAGES_MAX];
	int32_t layers[STAGES_MAX];
	uint32_t shares[STAGES_MAX];
	for (int32_t i = 0; i < p->n_stages; i++) {
		const struct cost_group *g = cost_group_of(p, i);
		who[i] = g ? plan_of_group(ask, g) : plan_group_one(ask->nodes[p->stages[i].device]);
		names[i] = ask->want.cluster->devices[p->stages[i].device].name;
		layers[i] = p->stages[i].n_layers;
		const struct cost_case c = case_of(ask, p);
		shares[i] = plan_best_stream_share(&c, i);
	}
	struct plan_want want = {.groups = who, .n = p->n_stages, .n_layers = ask->want.shape->n_layers, .n_rounds = p->n_rounds,
		.stream_shares = shares};
	struct errmsg em;
	enum err e = plan_given(&want, names, layers, out, &em);
	ASSERT(e == OK); // the solver's layers add up
}

// load_s is the time a machine takes to read what it does not hold yet. A machine without a disk gets it over the network: the rate of that is not known
// here, and its memory's stands for it.
static double load_s(const struct plan_ask *ask, const struct plan_stage *st, int32_t member)
{
	const struct plan_stage *old = ask->current != NULL ? plan_find(ask->current, st->who.nodes[member]) : NULL;
	const struct cluster_device *d = &ask->want.cluster->devices[find_device(ask, st->who.nodes[member])];
	double bytes = 0, shares = 0;
	if (old != NULL && memcmp(&old->who, &st->who, sizeof st->who) != 0 && (old->who.n > 1 || st->who.n > 1))
		old = NULL; // other parts of its layers
	for (int32_t i = 0; i < st->who.n; i++)
		shares += st->who.shares[i];
	for (int32_t r = 0; r < st->layers.n; r++)
		for (int32_t layer = st->layers.at[r].begin; layer < st->layers.at[r].end; layer++)
			if (old == NULL || layer_spans_find(&old->layers, layer) < 0)
				bytes += (double)model_shape_layer_bytes(ask->want.shape, layer);
	bytes = st->who.n > 1 ? bytes * (st->who.shares[member] / shares) : bytes;
	return bytes / (d->disk_rate > 0 ? d->disk_rate : cluster_cpu_rate(d, ask->want.shape->type));
}

static void say_left_out(const struct cluster *cl, const struct solve_device_fate *fates, char words[REASON_CAP])
{
	size_t len = 0;
	words[0] = '\0';
	for (int32_t i = 0; i < cl->n_devices; i++) {
		if (fates[i].fate == SOLVE_USED || fates[i].fate == SOLVE_FORBIDDEN)
			continue;
		int n = snprintf(words + len, REASON_CAP - len, "%s%s (%s)", len > 0 ? ", " : "", cl->devices[i].name, solve_fate_words(fates[i].fate));
		if (n < 0 || (size_t)n >= REASON_CAP - len) {
			words[len] = '\0'; // the rest does not fit
			return;
		}
		len += (size_t)n;
	}
}

// say_groups names the members of the first group, or of the nearest to one, with what a layer takes.
static void say_groups(const struct cluster *cl, const struct solve_result *r, char words[REASON_CAP])
{
	const struct solve_group_note *note = &r->groups;
	char names[REASON_CAP / 2] = "", rest[16] = "";
	for (int32_t i = 0; i < note->group.n_members; i++) {
		size_t len = strlen(names);
		snprintf(names + len, sizeof names - len, "%s%s", i > 0 ? "+" : "", cl->devices[note->group.devices[i]].name);
	}
	if (r->plan.n_groups > 1)
		snprintf(rest, sizeof rest, " (and others)");
	words[0] = '\0';
	if (note->why == SOLVE_GROUPS_FORMED)
		snprintf(words, REASON_CAP, "%s%s share layers: %.3g ms for one, %.2g of it exchanges, %.3g by the slowest alone; without groups %.3g ms a token", names, rest,
			note->layer_s * 1e3, note->exchange_s * 1e3, note->alone_s * 1e3, note->plain_s * 1e3);
	else if (note->why == SOLVE_GROUPS_LINKS)
		snprintf(words, REASON_CAP, "no layers are shared: %s would take %.3g ms for one, %.2g of it exchanges, the slowest alone %.3g", names, note->layer_s * 1e3,
			note->exchange_s * 1e3, note->alone_s * 1e3);
	else if (note->why == SOLVE_GROUPS_SLOWER)
		snprintf(words, REASON_CAP, "no layers are shared: with %s doing so a token would take %.3g ms", names, note->with_s * 1e3);
	else if (note->why == SOLVE_GROUPS_UNKNOWN || note->why == SOLVE_GROUPS_NO_ROOM)
		snprintf(words, REASON_CAP, "no layers are shared: %s", solve_groups_words(note->why));
}

enum err plan_best(const struct plan_ask *ask, struct arena *scratch, struct solve_device_fate *fates, struct plan_answer *out, struct errmsg *em)
{
	struct cost_plan current;
	struct solve_want want = ask->want;
	struct solve_result r = {.fates = fates};
	want.incumbent = ask->current != NULL && cost_of_plan(ask, ask->current, &current) ? &current : NULL;
	enum err e = solve(&want, scratch, &r, em);
	if (e != OK)
		return e;
	*out = (struct plan_answer){.token_s = r.value, .current_s = want.incumbent != NULL && r.incumbent_s >= 0 ? r.incumbent_s : INFINITY};
	plan_of_cost(ask, &r.plan, &out->plan);
	for (int32_t i = 0; i < out->plan.n_stages; i++) {
		for (int32_t m = 0; m < out->plan.stages[i].who.n; m++) {
			double s = load_s(ask, &out->plan.stages[i], m);
			out->move_s = s > out->move_s ? s : out->move_s;
		}
	}
	say_left_out(want.cluster, fates, out->words);
	say_groups(want.cluster, &r, out->groups);
	return OK;
}
