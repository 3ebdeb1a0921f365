#include "partition/what_if.h"

#include "base/assert.h"

#include <string.h>

#define ALIGNMENT 64 // of an arena's pieces

// The changed wants with what they point to.
struct changed {
	struct solve_want w;
	struct cluster cluster;
	struct cluster_device *devices; // (n_devices)
	struct solve_limit *limits;     // (n_devices)
};

static size_t copies_bytes(const struct solve_want *w)
{
	size_t n = (size_t)w->cluster->n_devices;
	return n * sizeof(struct cluster_device) + n * sizeof(struct solve_limit) + 2 * ALIGNMENT;
}

size_t what_if_scratch_bytes(const struct solve_want *w)
{
	size_t bytes = solve_scratch_bytes(w);
	return bytes > 0 ? bytes + copies_bytes(w) : 0;
}

static const struct cost_stage *stage_of(const struct cost_plan *p, int32_t device)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].device == device || (cost_group_of(p, i) && group_has(cost_group_of(p, i), device)))
			return &p->stages[i];
	return NULL;
}

static bool streams(const struct solve_want *w, const struct cost_plan *p)
{
	const struct cost_case c = {.cluster = w->cluster, .shape = w->shape, .plan = p, .params = w->params};
	for (int32_t i = 0; i < p->n_stages; i++) {
		struct cost_layout l;
		if (cost_layout_of(&c, i, &l, NULL) == OK && l.n_streamed > 0)
			return true;
	}
	return false;
}

bool what_if_makes_sense(const struct solve_want *w, const struct cost_plan *now, const struct what_if *q)
{
	switch (q->kind) {
	case WHAT_IF_ONE_ROUND:
		return now->n_rounds > 1 && w->rounds_min <= 1;
	case WHAT_IF_NO_DISKS:
		return streams(w, now);
	case WHAT_IF_WITHOUT:
		return stage_of(now, q->device) != NULL && w->cluster->n_devices > 1 && (w->limits == NULL || w->limits[q->device].layers_min == 0);
	case WHAT_IF_MEMORY:
		return w->cluster->devices[q->device].cap_bytes <= CLUSTER_BYTES_MAX / 2;
	case WHAT_IF_ACCELERATOR:
		return w->cluster->devices[q->device].accel_bytes == 0;
	case WHAT_IF_LINKS:
		return w->cluster->n_devices > 1;
	case WHAT_IF_QUANT:
		return q->shape->type != w->shape->type;
	}
	return false;
}

static enum err copy(const struct solve_want *w, struct arena *a, struct changed *out)
{
	size_t n = (size_t)w->cluster->n_devices;
	*out = (struct changed){.w = *w, .cluster = *w->cluster};
	out->devices = arena_alloc(a, n, sizeof *out->devices);
	out->limits = arena_alloc(a, n, sizeof *out->limits);
	if (out->devices == NULL || out->limits == NULL)
		return ERR_NOMEM;
	memcpy(out->devices, w->cluster->devices, n * sizeof *out->devices);
	for (size_t i = 0; i < n; i++)
		out->limits[i] = w->limits ? w->limits[i] : (struct solve_limit){.layers_max = LAYERS_MAX, .is_trusted = true};
	out->cluster.devices = out->devices;
	out->w.cluster = &out->cluster;
	out->w.limits = out->limits;
	out->w.incumbent = NULL;
	return OK;
}

static void change(const struct what_if *q, const struct cost_plan *now, struct changed *c)
{
	struct cluster_device *d = q->device >= 0 ? &c->devices[q->device] : NULL;
	switch (q->kind) {
	case WHAT_IF_ONE_ROUND:
		c->w.rounds_min = c->w.rounds_max = 1;
		break;
	case WHAT_IF_NO_DISKS:
		for (int32_t i = 0; i < c->cluster.n_devices; i++)
			c->devices[i].disk_rate = 0;
		break;
	case WHAT_IF_WITHOUT:
		c->limits[q->device] = (struct solve_limit){.is_trusted = c->limits[q->device].is_trusted};
		break;
	case WHAT_IF_MEMORY:
		ASSERT(d != NULL);
		d->cap_bytes *= 2;
		c->w.incumbent = now;
		break;
	case WHAT_IF_ACCELERATOR:
		ASSERT(d != NULL);
		d->accel_bytes = WHAT_IF_ACCEL_BYTES;
		d->accel_rate = WHAT_IF_ACCEL_RATE;
		d->accel_flops = WHAT_IF_ACCEL_FLOPS;
		c->w.incumbent = now;
		break;
	case WHAT_IF_LINKS:
		c->cluster.links = q->as->links;
		c->cluster.attach = q->as->attach;
		c->cluster.airs = q->as->airs;
		c->w.incumbent = now;
		break;
	case WHAT_IF_QUANT:
		c->w.shape = q->shape;
		break;
	}
}

enum err what_if_ask(const struct solve_want *w, const struct cost_plan *now, const struct what_if *q, struct arena *scratch,
	struct what_if_answer *out, struct errmsg *em)
{
	size_t used = scratch->used;
	struct changed c;
	struct solve_result r;
	*out = (struct what_if_answer){.status = OK};
	enum err e = copy(w, scratch, &c);
	if (e == OK) {
		change(q, now, &c);
		r.fates = NULL;
		e = solve(&c.w, scratch, &r, em);
	}
	scratch->used = used;
	if (e == ERR_NOMEM)
		return errmsg_fail(em, e, "no memory for another plan");
	out->status = e;
	if (e != OK)
		return OK;
	out->value = r.value;
	out->token_s = r.verdict.token_s;
	out->plan = r.plan;
	return OK;
}
