// The planner of the simulated coordinator: any plan that the solver might give, drawn from the seed, after as long as it might take. The core
// must be right under every one of them; which of them is the fastest is partition/solve's matter.
#include "sim/world_state.h"

#include "base/assert.h"
#include "base/window_layout.h"

#include <math.h>

#define ANSWER_MAX_NS INT64_C(3000000000)
#define ROUNDS_DRAWN 4

void sim_planner_ask(struct sim_world *w, const struct coord_effect *f)
{
	struct sim_head *h = &w->head;
	struct sim_ask *a = &h->asks[f->u.plan.id % SIM_ASKS_MAX];
	ASSERT(f->u.plan.n <= STAGES_MAX);
	*a = (struct sim_ask){.id = f->u.plan.id, .n = f->u.plan.n, .has_current = f->u.plan.current != NULL};
	memcpy(a->nodes, f->u.plan.nodes, (size_t)a->n * sizeof a->nodes[0]);
	sim_at(w, w->now_ns + 1 + (int64_t)rng_below(&w->rng_plan, ANSWER_MAX_NS), EV_PLANNED, SIM_HEAD)->id = a->id;
}

static double between(struct rng *r, double low, double high)
{
	return low + (high - low) * (double)rng_below(r, 1 << 20) / (1 << 20);
}

// draw_members puts some of the members first, in any order but for the coordinator's own, which leads; returns how many.
static int32_t draw_members(struct sim_world *w, struct sim_ask *a)
{
	bool has_own = node_id_is(a->nodes[0], w->head.id);
	for (int32_t i = a->n - 1; i > has_own; i--) {
		int32_t k = has_own + (int32_t)rng_below(&w->rng_plan, (uint64_t)(i - has_own) + 1);
		struct node_id id = a->nodes[i];
		a->nodes[i] = a->nodes[k];
		a->nodes[k] = id;
	}
	int32_t n = 1 + (int32_t)rng_below(&w->rng_plan, (uint64_t)a->n);
	if (has_own && a->n > 1 && rng_below(&w->rng_plan, 4) == 0) { // without it
		memmove(a->nodes, a->nodes + 1, (size_t)(a->n - 1) * sizeof a->nodes[0]);
		n = n < a->n - 1 ? n : a->n - 1;
	}
	int32_t n_layers = w->model.config.n_layers;
	return n < n_layers ? n : n_layers;
}

// draw_groups puts members that follow each other into one group, in any mode and shares, or through a hub; returns how many stages there are.
static int32_t draw_groups(struct sim_world *w, const struct node_id *nodes, int32_t n, struct plan_group *out)
{
	int32_t n_stages = 0;
	for (int32_t i = 0; i < n;) {
		struct plan_group *g = &out[n_stages++];
		*g = plan_group_one(nodes[i++]);
		while (w->config.may_group && i < n && g->n < GROUP_MEMBERS_MAX && rng_below(&w->rng_plan, 2) == 0) {
			g->shares[g->n] = (uint32_t)rng_below(&w->rng_plan, 5);
			g->nodes[g->n++] = nodes[i++];
		}
		if (g->n == 1)
			continue;
		g->mode = (enum split_mode)rng_below(&w->rng_plan, N_SPLIT_MODES);
		if (g->mode == SPLIT_GATHER && rng_below(&w->rng_plan, 2) == 0)
			g->hub = 1 + (int32_t)rng_below(&w->rng_plan, (uint64_t)g->n);
	}
	return n_stages;
}

static void draw_plan(struct sim_world *w, struct sim_ask *a, struct plan *out)
{
	int32_t layers[STAGES_MAX];
	const char *names[STAGES_MAX];
	struct plan_group groups[STAGES_MAX];
	int32_t n = draw_groups(w, a->nodes, draw_members(w, a), groups);
	for (int32_t i = 0; i < n; i++) {
		layers[i] = 1;
		names[i] = "";
	}
	for (int32_t left = w->model.config.n_layers - n; left > 0; left--)
		layers[rng_below(&w->rng_plan, (uint64_t)n)]++;
	uint32_t shares[STAGES_MAX];
	for (int32_t i = 0; i < n; i++)
		shares[i] = groups[i].n > 1 ? 0 : (uint32_t)(sim_mix(a->id, (uint64_t)i) % (WINDOW_SHARE_WHOLE + 1));
	struct plan_want want = {.stream_shares = shares, .groups = groups, .n = n, .n_layers = w->model.config.n_layers, .n_rounds = 1 + (int32_t)rng_below(&w->rng_plan, ROUNDS_DRAWN)};
	struct errmsg em;
	enum err e = plan_given(&want, names, layers, out, &em);
	ASSERT(e == OK);
}

void sim_planner_answer(struct sim_world *w, uint32_t id)
{
	struct sim_ask *a = &w->head.asks[id % SIM_ASKS_MAX];
	struct coord_event ev = {.type = COORD_EV_PLANNED};
	struct plan plan;
	ev.u.planned.id = id;
	ev.u.planned.text = "";
	if (a->id != id || rng_below(&w->rng_plan, 8) == 0) { // overtaken by newer questions, or the figures were no good
		ev.u.planned.err = ERR_STATE;
		ev.u.planned.text = "no figures";
	} else {
		draw_plan(w, a, &plan);
		ev.u.planned.plan = &plan;
		ev.u.planned.token_s = between(&w->rng_plan, 0.01, 0.2);
		ev.u.planned.current_s = a->has_current ? ev.u.planned.token_s * between(&w->rng_plan, 0.9, 3) : INFINITY;
		ev.u.planned.move_s = between(&w->rng_plan, 0, 2);
	}
	sim_head_step(w, &ev);
}
