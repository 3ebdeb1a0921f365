#include "partition/plan_best.h"

#include "base/assert.h"

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

// cost_of_plan: a repaired plan's rounds may be cut elsewhere; the solver counts them as it would cut them. False: somebody is no device, or shares its
// layers with others, which the solver does not count.
static bool cost_of_plan(const struct plan_ask *ask, const struct plan *p, struct cost_plan *out)
{
	*out = (struct cost_plan){.head = ask->want.head, .n_rounds = p->n_rounds, .n_stages = p->n_stages};
	for (int32_t i = 0; i < p->n_stages; i++) {
		int32_t device = find_device(ask, plan_lead(&p->stages[i]));
		if (device < 0 || p->stages[i].who.n > 1)
			return false;
		out->stages[i] = (struct cost_stage){.device = device, .n_layers = layer_spans_count(&p->stages[i].layers), .n_streamed = COST_STREAM_LEAST};
	}
	return true;
}

static void plan_of_cost(const struct plan_ask *ask, const struct cost_plan *p, struct plan *out)
{
	struct node_id nodes[STAGES_MAX];
	const char *names[STAGES_MAX];
	int32_t layers[STAGES_MAX];
	for (int32_t i = 0; i < p->n_stages; i++) {
		nodes[i] = ask->nodes[p->stages[i].device];
		names[i] = ask->want.cluster->devices[p->stages[i].device].name;
		layers[i] = p->stages[i].n_layers;
	}
	struct plan_want want = {.nodes = nodes, .n = p->n_stages, .n_layers = ask->want.shape->n_layers, .n_rounds = p->n_rounds};
	struct errmsg em;
	enum err e = plan_given(&want, names, layers, out, &em);
	ASSERT(e == OK); // the solver's layers add up
}

// load_s is the time a machine takes to read what it does not hold yet. A machine without a disk gets it over the network: the rate of that is not known
// here, and its memory's stands for it.
static double load_s(const struct plan_ask *ask, const struct plan_stage *st)
{
	const struct plan_stage *old = ask->current != NULL ? plan_find(ask->current, plan_lead(st)) : NULL;
	const struct cluster_device *d = &ask->want.cluster->devices[find_device(ask, plan_lead(st))];
	double bytes = 0;
	for (int32_t r = 0; r < st->layers.n; r++)
		for (int32_t layer = st->layers.at[r].begin; layer < st->layers.at[r].end; layer++)
			if (old == NULL || layer_spans_find(&old->layers, layer) < 0)
				bytes += (double)model_shape_layer_bytes(ask->want.shape, layer);
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
		double s = load_s(ask, &out->plan.stages[i]);
		out->move_s = s > out->move_s ? s : out->move_s;
	}
	say_left_out(want.cluster, fates, out->words);
	return OK;
}
