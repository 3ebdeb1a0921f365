#include "sim/plan_gantt.h"
#include "sim/quantity.h"

#include <stdio.h>
#include <string.h>

#define WARM_TOKENS 20 // as the judge: windows are full then
#define INTERVALS_CAP 200000
#define ALIGNMENT 64

struct gantt {
	const struct cost_case *c;
	struct report *r;
	struct cost_runner runners[STAGES_MAX];
	int32_t head; // the head's row
	double begin_s;
	bool is_drawn; // false while the windows fill
};

static void add(struct gantt *g, enum report_kind kind, int32_t row, int32_t peer, double begin_s, double end_s)
{
	if (!g->is_drawn || end_s <= g->begin_s)
		return;
	if (begin_s < g->begin_s)
		begin_s = g->begin_s; // read ahead before the picture begins
	struct report_interval i = {.kind = kind,
		.device = row,
		.peer = peer,
		.n_tokens = 1,
		.begin_ns = quantity_ns(begin_s - g->begin_s),
		.end_ns = quantity_ns(end_s - g->begin_s)};
	report_add(g->r, &i);
}

static void on_read(void *ctx, int32_t stage, double begin_s, double end_s)
{
	add(ctx, REPORT_DISK, stage, -1, begin_s, end_s);
}

static double hop(struct gantt *g, int32_t from_row, int32_t to_row, int32_t from, int32_t to, double t)
{
	double s = cost_hop_s(g->c, from, to, 1);
	if (from != to)
		add(g, REPORT_LINK, from_row, to_row, t, t + s);
	return t + s;
}

static double walk_token(struct gantt *g, double t)
{
	const struct cost_plan *p = g->c->plan;
	const struct cost_batch b = cost_decode(g->c->params.kv_read);
	int32_t at = p->head, row = g->head;
	for (int32_t round = 0; round < p->n_rounds; round++) {
		for (int32_t i = 0; i < p->n_stages; i++) {
			struct cost_use use;
			t = hop(g, row, i, at, p->stages[i].device, t);
			double end_s = cost_runner_visit(&g->runners[i], round, t, &b, &use);
			add(g, REPORT_COMPUTE, i, -1, t, end_s);
			t = end_s;
			at = p->stages[i].device;
			row = i;
		}
	}
	t = hop(g, row, g->head, at, p->head, t);
	double end_s = t + cost_head_s(g->c, 1);
	add(g, REPORT_HEAD, g->head, -1, t, end_s);
	return end_s;
}

static enum err start_runners(struct gantt *g, struct arena *a)
{
	for (int32_t i = 0; i < g->c->plan->n_stages; i++) {
		enum err e = cost_runner_open(&g->runners[i], g->c, i, 0, a);
		if (e != OK)
			return e;
		g->runners[i].on_read = on_read;
		g->runners[i].on_read_ctx = g;
	}
	return OK;
}

static void name_rows(struct gantt *g, int32_t n_rows)
{
	const struct cost_plan *p = g->c->plan;
	for (int32_t i = 0; i < n_rows; i++) {
		int32_t device = i < p->n_stages ? p->stages[i].device : p->head;
		memcpy(g->r->devices[i].name, g->c->cluster->devices[device].name, NAME_CAP);
		const struct cost_group *group = i < p->n_stages ? cost_group_of(p, i) : NULL;
		if (group != NULL)
			snprintf(g->r->devices[i].name, NAME_CAP, "%.*s +%d", NAME_CAP - 8, g->c->cluster->devices[device].name, (int)group->n_members - 1);
	}
}

static void walk(struct gantt *g, int32_t n_tokens)
{
	double t = 0;
	for (int32_t i = 0; i < WARM_TOKENS; i++)
		t = walk_token(g, t);
	g->is_drawn = true;
	g->begin_s = t;
	report_submit(g->r, 0, 1);
	for (int32_t i = 0; i < n_tokens; i++) {
		t = walk_token(g, t);
		report_token(g->r, 0, quantity_ns(t - g->begin_s));
	}
}

enum err plan_gantt_open(const struct cost_case *c, int32_t n_tokens, struct report *out, struct errmsg *em)
{
	const struct cost_plan *p = c->plan;
	struct gantt g = {.c = c, .r = out, .head = p->n_stages};
	struct arena a;
	for (int32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].device == p->head)
			g.head = i;
	int32_t n_rows = p->n_stages + (g.head == p->n_stages);
	if (report_open(n_rows, 1, INTERVALS_CAP, (size_t)n_tokens, out) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a picture");
	enum err e = arena_open(cost_judge_bytes(c) + ALIGNMENT, &a);
	if (e == OK)
		e = start_runners(&g, &a);
	if (e == OK) {
		name_rows(&g, n_rows);
		walk(&g, n_tokens);
	}
	arena_close(&a);
	if (e == OK)
		return OK;
	report_close(out);
	return errmsg_fail(em, e, "no memory for a picture");
}
