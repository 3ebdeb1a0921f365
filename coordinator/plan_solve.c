#include "coordinator/plan_solve.h"

#include "coordinator/coord_state.h"

#include <string.h>

#define RATE_NEWS 0.03   // of a device's figures
#define LINK_NEWS 0.10   // of a link's
#define DELAY_NEWS 50e-6 // seconds of a link's delay, whatever share of it
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
			.rounds_max = has_rounds ? c->config.n_rounds : c->config.has_output ? 1 : SOLVE_ROUNDS_MAX, // lm_head follows layers
			.limits = out->limits,
			.allow_groups = c->config.may_group,
		},
		.nodes = out->nodes,
		.current = out->has_current ? &out->current : NULL,
	};
	return OK;
}

static bool is_near(double a, double b, double share)
{
	double least = a < b ? a : b, most = a < b ? b : a;
	return most - least <= share * most;
}

static bool is_device_news(const struct cluster_device *a, const struct cluster_device *b)
{
	bool is_same = strcmp(a->name, b->name) == 0 && is_near((double)a->cap_bytes, (double)b->cap_bytes, RATE_NEWS) &&
		is_near((double)a->reserved_bytes, (double)b->reserved_bytes, RATE_NEWS) && is_near(a->cpu_rate, b->cpu_rate, RATE_NEWS) &&
		is_near(a->cpu_flops, b->cpu_flops, RATE_NEWS) && is_near(a->disk_rate, b->disk_rate, RATE_NEWS) && is_near(a->visit_s, b->visit_s, LINK_NEWS);
	for (int32_t i = 0; is_same && i <= DTYPE_ID_MAX; i++)
		is_same = is_near(a->cpu_rate_of[i], b->cpu_rate_of[i], RATE_NEWS);
	return !is_same;
}

static bool is_link_news(const struct cluster_link *a, const struct cluster_link *b)
{
	double moved_s = a->delay_s > b->delay_s ? a->delay_s - b->delay_s : b->delay_s - a->delay_s;
	return (moved_s > DELAY_NEWS && !is_near(a->delay_s, b->delay_s, LINK_NEWS)) || !is_near(a->rate, b->rate, LINK_NEWS);
}

bool plan_solve_is_news(const struct plan_solve *before, const struct plan_solve *now)
{
	const struct cluster_view *a = &before->view, *b = &now->view;
	int32_t n = b->cluster.n_devices;
	if (a->cluster.n_devices != n || before->has_current != now->has_current ||
		(now->has_current && !planning_same_streams(&before->current, &now->current)))
		return true;
	for (int32_t i = 0; i < n; i++) {
		const struct solve_limit *l = &before->limits[i], *m = &now->limits[i];
		if (!node_id_is(before->nodes[i], now->nodes[i]) || l->layers_max != m->layers_max || is_device_news(&a->devices[i], &b->devices[i]))
			return true;
	}
	for (int32_t i = 0; i < n * n; i++)
		if (is_link_news(&a->links[i], &b->links[i]))
			return true;
	return false;
}

size_t plan_solve_scratch_bytes(const struct plan_solve *s)
{
	return solve_scratch_bytes(&s->ask.want);
}

enum err plan_solve_run(struct plan_solve *s, struct arena *scratch, struct plan_answer *out, struct errmsg *em)
{
	return plan_best(&s->ask, scratch, s->fates, out, em);
}
