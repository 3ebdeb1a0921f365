#include "coordinator/plan_solve.h"

#include "coordinator/coord_state.h"

#define CONTEXT_PLANNED 2048 // positions a token looks at, where contexts may be longer: most answers end before

static bool is_asked(const struct coord_effect *f, struct node_id id)
{
	for (int32_t i = 0; i < f->u.plan.n; i++)
		if (node_id_is(f->u.plan.nodes[i], id))
			return true;
	return false;
}

// fill_device says who a device is, and what it may hold: nothing, if it was not asked about.
static void fill_device(const struct coordinator *c, const struct coord_effect *f, int32_t device, struct plan_solve *s)
{
	int32_t place = s->view.members[device];
	s->nodes[device] = (struct node_id){{0}};
	s->limits[device] = (struct solve_limit){.is_trusted = true};
	if (place < 0)
		return;
	const struct member *m = &c->members[place];
	s->nodes[device] = m->record.id;
	if (is_asked(f, m->record.id))
		s->limits[device].layers_max = m->hello.layers_max > 0 ? m->hello.layers_max : LAYERS_MAX;
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

enum err plan_solve_begin(const struct coordinator *c, const struct coord_effect *f, const struct model_shape *shape, struct plan_solve *out,
	struct errmsg *em)
{
	enum err e = coordinator_view(c, shape->type, &out->view, em);
	if (e != OK)
		return e;
	out->id = f->u.plan.id;
	out->has_current = f->u.plan.current != NULL;
	if (out->has_current)
		out->current = *f->u.plan.current;
	for (int32_t i = 0; i < out->view.cluster.n_devices; i++)
		fill_device(c, f, i, out);
	uint64_t ctx_len = (uint64_t)c->config.ctx_len;
	bool has_rounds = c->config.n_rounds > 1; // by hand
	out->ask = (struct plan_ask){
		.want = {
			.cluster = &out->view.cluster,
			.shape = shape,
			.params = {.units_per_layer = COST_UNITS_DEFAULT, .kv_alloc = ctx_len * (uint64_t)c->config.n_slots, .kv_read = at_most(ctx_len / 2, CONTEXT_PLANNED)},
			.rounds_min = has_rounds ? c->config.n_rounds : 1,
			.rounds_max = has_rounds ? c->config.n_rounds : SOLVE_ROUNDS_MAX,
			.limits = out->limits,
		},
		.nodes = out->nodes,
		.current = out->has_current ? &out->current : NULL,
	};
	return OK;
}

size_t plan_solve_scratch_bytes(const struct plan_solve *s)
{
	return solve_scratch_bytes(&s->ask.want);
}

enum err plan_solve_run(struct plan_solve *s, struct arena *scratch, struct plan_answer *out, struct errmsg *em)
{
	return plan_best(&s->ask, scratch, s->fates, out, em);
}
