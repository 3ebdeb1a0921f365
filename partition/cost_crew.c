// A group's members in time: what each computes of a layer, until the last one has, and what they then send each other (cost-model.md, section 6).
#include "partition/cost.h"

#include "base/assert.h"
#include "partition/cost_round.h"

static double larger(double a, double b)
{
	return a > b ? a : b;
}

void cost_crew_init(struct cost_crew *out, const struct cost_case *c, int32_t stage)
{
	const struct cost_group *g = out->group = cost_group_of(c->plan, stage);
	ASSERT(g != NULL);
	enum err e = group_split_make(&c->shape->split, g->mode, g->shares, g->n_members, &out->split, NULL);
	ASSERT(e == OK);
	group_work_of(&c->shape->split, &out->split, &out->work);
	out->n_tokens = 0;
	for (int32_t i = 0; i < g->n_members; i++) {
		const struct group_work *w = &out->work;
		out->parts[i] = (struct cost_part){.device = g->devices[i],
			.n_streamed = g->n_streamed[i],
			.bytes = w->bytes[i],
			.kv = w->kv[i],
			.flops = w->bytes[i],
			.attn = w->heads[i]};
		out->cases[i] = *c;
		out->cases[i].part = &out->parts[i];
	}
}

void cost_crew_tokens(struct cost_crew *w, const struct cost_case *c, int32_t n_tokens)
{
	struct group_traffic t, start = {0};
	if (w->n_tokens == n_tokens)
		return;
	group_layer_traffic(c->cluster, c->shape, w->group, &w->split, n_tokens, &t);
	group_traffic_add(c->cluster, c->shape, w->group, &w->split, GROUP_START, n_tokens, &start);
	w->layer_s = t.seconds;
	w->start_s = start.seconds;
	w->n_tokens = n_tokens;
}

void cost_crew_token(const struct cost_crew *w, const struct cost_case *c, int32_t stage, struct group_traffic *out)
{
	struct group_traffic layer, start = {0};
	int32_t n_layers = c->plan->stages[stage].n_layers, k = c->plan->n_rounds;
	group_layer_traffic(c->cluster, c->shape, w->group, &w->split, 1, &layer);
	group_traffic_add(c->cluster, c->shape, w->group, &w->split, GROUP_START, 1, &start);
	*out = (struct group_traffic){.n_exchanges = n_layers * layer.n_exchanges + k * start.n_exchanges,
		.n_steps = n_layers * layer.n_steps + k * start.n_steps,
		.seconds = n_layers * layer.seconds + k * start.seconds};
	for (int32_t i = 0; i < w->group->n_members; i++) {
		out->sent[i] = n_layers * layer.sent[i] + k * start.sent[i];
		out->received[i] = n_layers * layer.received[i] + k * start.received[i];
	}
}

double cost_crew_slack_s(const struct cost_crew *w, int32_t layer, const struct cost_batch *b, const double *work_s)
{
	const struct cost_case *c = &w->cases[0];
	double bytes = (double)model_shape_layer_bytes(c->shape, layer) * model_shape_read_share(c->shape, b->n_tokens), kv = (double)c->shape->kv_bytes * (double)b->kv_read;
	double parts_s = 0, longest_s = 0;
	for (int32_t k = 0; k < w->work.n_parts; k++) {
		double part_s = 0;
		for (int32_t i = 0; i < w->group->n_members; i++) {
			double all = bytes * w->work.bytes[i] + kv * w->work.kv[i], part = bytes * w->work.part[k][i] + (k == 0 ? kv * w->work.kv[i] : 0);
			part_s = all > 0 ? larger(part_s, work_s[i] * (part / all)) : part_s;
		}
		parts_s += part_s;
	}
	for (int32_t i = 0; i < w->group->n_members; i++)
		longest_s = larger(longest_s, work_s[i]);
	return larger(0, parts_s - longest_s);
}

// run_layer returns when every member has computed its part of a layer, which begins at t, and they have exchanged it.
static double run_layer(struct cost_crew *w, struct cost_round *at, double t, const struct cost_batch *b, struct cost_use *uses, struct cost_use *use)
{
	double work_s[GROUP_MEMBERS_MAX], end_s = t, stall_s = 0;
	int32_t layer = at[0].layer;
	for (int32_t i = 0; i < w->group->n_members; i++) {
		struct cost_use mine = {0};
		struct cost_item item;
		bool has_one = cost_round_next(&at[i], &item);
		ASSERT(has_one);
		double done_s = cost_runner_layer(&w->runners[i], &at[i], &item, t, b, &mine);
		work_s[i] = mine.busy_s;
		uses[i].read_bytes += mine.read_bytes;
		if (done_s > end_s) {
			end_s = done_s;
			stall_s = mine.stall_s;
		}
	}
	end_s += cost_crew_slack_s(w, layer, b, work_s);
	use->busy_s += end_s - t - stall_s;
	use->stall_s += stall_s;
	use->exchange_s += w->layer_s;
	return end_s + w->layer_s;
}

double cost_group_visit(struct cost_runner *r, int32_t round, double start_s, const struct cost_batch *b, struct cost_use *use)
{
	struct cost_crew *w = r->crew;
	struct cost_round at[GROUP_MEMBERS_MAX];
	struct cost_use uses[GROUP_MEMBERS_MAX] = {{0}};
	double visit_s = 0, t = start_s;
	cost_crew_tokens(w, r->c, b->n_tokens);
	*use = (struct cost_use){.exchange_s = w->start_s};
	for (int32_t i = 0; i < w->group->n_members; i++) {
		at[i] = cost_round_begin(&w->cases[i], r->stage, &w->runners[i].layout, round);
		visit_s = larger(visit_s, cost_device_of(&w->cases[i], r->stage)->visit_s);
		cost_runner_begin(&w->runners[i], start_s);
	}
	use->busy_s = visit_s;
	t += w->start_s + visit_s;
	while (at[0].n_left > 0)
		t = run_layer(w, at, t, b, uses, use);
	for (int32_t i = 0; i < w->group->n_members; i++) {
		const struct cluster_device *d = cost_device_of(&w->cases[i], r->stage);
		cost_runner_end(&w->runners[i], round, t);
		use->read_bytes += uses[i].read_bytes;
		if (uses[i].read_bytes > 0)
			use->read_s = larger(use->read_s, uses[i].read_bytes / d->disk_rate);
	}
	return t;
}

enum err cost_group_layout(const struct cost_case *c, int32_t stage, struct cost_layout *out, struct errmsg *em)
{
	struct cost_crew w;
	cost_crew_init(&w, c, stage);
	*out = (struct cost_layout){0};
	for (int32_t i = 0; i < w.group->n_members; i++) {
		struct cost_layout l;
		enum err e = cost_layout_of(&w.cases[i], stage, &l, em);
		if (e != OK)
			return e;
		out->n_units += l.n_units;
		out->n_slots += l.n_slots;
		out->n_streamed += l.n_streamed;
		out->n_times += l.n_times;
		out->pinned_bytes += l.pinned_bytes + (uint64_t)(l.n_accel * c->params.units_per_layer * l.unit_bytes);
		out->streamed_bytes += l.streamed_bytes;
	}
	return OK;
}

// n_places counts a device's places in the ring; as a lead it has its stage's.
static int32_t n_places(const struct cost_plan *p, int32_t device)
{
	int32_t n = 0;
	for (int32_t i = 0; i < p->n_stages; i++)
		n += p->stages[i].device == device;
	for (int32_t i = 0; i < p->n_groups; i++)
		for (int32_t m = 1; m < p->groups[i].n_members; m++)
			n += p->groups[i].devices[m] == device;
	return n;
}

enum err cost_group_check(const struct cost_case *c, struct errmsg *em)
{
	const struct cost_plan *p = c->plan;
	if (p->n_groups < 0 || p->n_groups > COST_GROUPS_MAX)
		return errmsg_fail(em, ERR_RANGE, "plan: %d groups, want 0 to %d", p->n_groups, COST_GROUPS_MAX);
	for (int32_t i = 0; i < p->n_groups; i++) {
		const struct cost_group *g = &p->groups[i];
		enum err e = group_check(c->cluster, c->shape, g, em);
		if (e != OK)
			return e;
	}
	for (int32_t i = 0; i < p->n_groups; i++) {
		for (int32_t m = 0; m < p->groups[i].n_members; m++)
			if (n_places(p, p->groups[i].devices[m]) > 1)
				return errmsg_fail(em, ERR_RANGE, "plan: %s is in the ring twice", c->cluster->devices[p->groups[i].devices[m]].name);
		if (n_places(p, p->groups[i].devices[0]) == 0)
			return errmsg_fail(em, ERR_RANGE, "plan: %s leads a group that has no layers", c->cluster->devices[p->groups[i].devices[0]].name);
	}
	return OK;
}

enum err cost_runner_open(struct cost_runner *r, const struct cost_case *c, int32_t stage, double start_s, struct arena *a)
{
	struct cost_layout l;
	enum err e = cost_layout_of(c, stage, &l, NULL);
	ASSERT(e == OK);
	double *ends = l.n_times > 0 ? arena_alloc(a, (size_t)l.n_times, sizeof *ends) : NULL;
	if (l.n_times > 0 && ends == NULL)
		return ERR_NOMEM;
	if (cost_group_of(c->plan, stage) == NULL) {
		cost_runner_init(r, c, stage, start_s, ends);
		return OK;
	}
	struct cost_crew *w = arena_alloc(a, 1, sizeof *w);
	if (w == NULL)
		return ERR_NOMEM;
	cost_crew_init(w, c, stage);
	for (int32_t i = 0; i < w->group->n_members; i++) {
		cost_runner_init(&w->runners[i], &w->cases[i], stage, start_s, ends);
		ends = ends != NULL ? ends + w->runners[i].layout.n_times : NULL;
	}
	*r = (struct cost_runner){.c = c, .stage = stage, .layout = l, .crew = w};
	return OK;
}
