#include "engine/expert_ffn.h"

#include "base/assert.h"
#include "base/fmath.h"
#include "engine/layer_parts.h"

#include <string.h>

#define AHEAD_TOKENS_MAX 2 // more tokens use so many experts that guessing some of them brings nothing

// likeliest returns the id of the greatest p, of equal ones the smallest.
static int32_t likeliest(float *p, int32_t n)
{
	int32_t best = 0;
	for (int32_t i = 1; i < n; i++)
		if (p[i] > p[best])
			best = i;
	return best;
}

void expert_route(float *logits, int32_t n_experts, int32_t n_used, struct expert_choice *out)
{
	float max = logits[0], sum = 0, chosen = 0;
	for (int32_t i = 1; i < n_experts; i++)
		max = logits[i] > max ? logits[i] : max;
	for (int32_t i = 0; i < n_experts; i++) {
		logits[i] = fmath_exp(logits[i] - max);
		sum += logits[i];
	}
	for (int32_t i = 0; i < n_experts; i++)
		logits[i] /= sum;
	for (int32_t i = 0; i < n_used; i++) {
		int32_t best = likeliest(logits, n_experts), at = i;
		for (; at > 0 && out[at - 1].expert > best; at--)
			out[at] = out[at - 1];
		out[at] = (struct expert_choice){.expert = best, .weight = logits[best]};
		logits[best] = -1; // taken
	}
	for (int32_t i = 0; i < n_used; i++)
		chosen += out[i].weight;
	for (int32_t i = 0; i < n_used; i++)
		out[i].weight /= chosen;
}

static struct expert_choice *choices_of(const struct engine *e, int32_t t)
{
	return e->choices + (size_t)t * (size_t)e->hp.n_experts_used;
}

static bool is_own(const struct engine *e, int32_t expert)
{
	return expert >= e->part.experts.begin && expert < e->part.experts.end;
}

static void router_products(struct hand *h, const struct engine_layer *l)
{
	struct engine *e = h->crew->e;
	int32_t rows = e->hp.n_experts, per_share = crew_rows_per_share(h, rows), share;
	while (crew_take(h, rows / per_share + (rows % per_share != 0), &share)) {
		int32_t begin = share * per_share, end = rows - begin > per_share ? begin + per_share : rows;
		kernels_matmul(e->c.kernels, &l->router, &e->normed.acts[ACT_F32], begin, end, e->router_logits, (size_t)rows);
	}
}

// route_token: a token whose logits are not finite has failed, and what it chooses is of no use; any choice serves.
static void route_token(struct engine *e, int32_t layer, int32_t t)
{
	int32_t n = e->hp.n_experts;
	float *logits = e->router_logits + (size_t)t * (size_t)n;
	struct engine_token *tok = &e->tokens[t];
	if (!kernels_all_finite(e->c.kernels, logits, n)) {
		int32_t bad = 0;
		while (fmath_is_finite(logits[bad]))
			bad++;
		if (tok->fault.err == OK)
			tok->fault = (struct engine_fault){ERR_NON_FINITE, layer, tok->pos, false, logits[bad]};
		memset(logits, 0, (size_t)n * sizeof *logits);
	}
	expert_route(logits, n, e->hp.n_experts_used, choices_of(e, t));
	memset(e->delta + (size_t)t * (size_t)e->hp.hidden_dim, 0, (size_t)e->hp.hidden_dim * sizeof *e->delta);
}

// ---- groups; the first hand plans them while the others wait for the phase to begin

static void count_choices(struct engine *e, int32_t n_tokens)
{
	int32_t n = n_tokens * e->hp.n_experts_used;
	memset(e->expert_tokens, 0, (size_t)e->hp.n_experts * sizeof *e->expert_tokens);
	for (int32_t i = 0; i < n; i++)
		e->expert_tokens[e->choices[i].expert]++;
}

// plan_group takes the next experts whose pairs fit the scratch; at least one, since one expert has at most batch_max tokens.
static void plan_group(struct engine *e, int32_t expert_begin, int32_t n_tokens)
{
	struct expert_group g = {.expert_begin = expert_begin};
	int32_t expert = expert_begin;
	for (; expert < e->part.experts.end; expert++) {
		int32_t n = e->expert_tokens[expert];
		if (n == 0)
			continue;
		if (n > e->pairs_cap - g.n_pairs || g.n_parts == e->experts_at_once)
			break;
		e->expert_parts[g.n_parts++] = (struct expert_part){expert, g.n_pairs, g.n_pairs + n};
		g.n_pairs += n;
	}
	g.expert_end = expert;
	for (int32_t i = 0; i < g.n_parts; i++)
		e->expert_next[e->expert_parts[i].expert] = e->expert_parts[i].pair_begin;
	for (int32_t t = 0; t < n_tokens && g.n_parts > 0; t++) {
		struct expert_choice *c = choices_of(e, t);
		for (int32_t i = 0; i < e->hp.n_experts_used; i++) {
			if (c[i].expert < g.expert_begin || c[i].expert >= g.expert_end)
				continue;
			c[i].pair = e->expert_next[c[i].expert]++;
			e->pair_tokens[c[i].pair] = t;
		}
	}
	e->group = g;
	crew_set_input(&e->picked, g.n_pairs);
	crew_set_input(&e->gated, g.n_pairs);
}

// hold_group has the experts of the planned group in memory until they are let go.
static enum err hold_group(struct engine *e, int32_t layer, struct errmsg *em)
{
	if (e->expert_cache == NULL || e->group.n_parts == 0)
		return OK;
	for (int32_t i = 0; i < e->group.n_parts; i++)
		e->expert_held[i] = engine_expert_unit(e, layer, e->expert_parts[i].expert);
	pool_rest(e->c.pool);
	enum err err = expert_cache_acquire(e->expert_cache, e->expert_held, e->group.n_parts, em);
	pool_resume(e->c.pool);
	return err;
}

static void let_group_go(struct engine *e, int32_t n_parts)
{
	if (e->expert_cache != NULL)
		expert_cache_release(e->expert_cache, e->expert_held, n_parts);
}

// expect_next shows the next layer's router what its layer's input is so far: a residual stream changes little in a layer, so some of its choice
// is the one it will make, and reading goes on while this layer computes.
static void expect_next(struct engine *e, int32_t layer, int32_t n_tokens)
{
	if (e->expert_cache == NULL || n_tokens > AHEAD_TOKENS_MAX || layer + 1 >= e->hp.n_layers || layer_spans_find(&e->c.layers, layer + 1) < 0)
		return;
	const struct engine_layer *next = &e->layers[layer_spans_find(&e->c.layers, layer + 1)];
	struct acts acts;
	acts_init(&acts, ACT_F32, 1, e->hp.hidden_dim, NULL);
	for (int32_t t = 0; t < n_tokens; t++) {
		kernels_rmsnorm(e->c.kernels, e->tokens[t].hidden, next->ffn_norm, e->hp.hidden_dim, e->hp.norm_eps, e->ahead_x);
		acts_set(&acts, e->ahead_x, 1);
		kernels_matmul(e->c.kernels, &next->router, &acts, 0, e->hp.n_experts, e->ahead_logits, (size_t)e->hp.n_experts);
		if (!kernels_all_finite(e->c.kernels, e->ahead_logits, e->hp.n_experts))
			continue;
		expert_route(e->ahead_logits, e->hp.n_experts, e->hp.n_experts_used, e->ahead_choices);
		for (int32_t i = 0; i < e->hp.n_experts_used; i++)
			if (is_own(e, e->ahead_choices[i].expert))
				expert_cache_expect(e->expert_cache, &(int32_t){engine_expert_unit(e, layer + 1, e->ahead_choices[i].expert)}, 1);
	}
}

// begin_group is what the first hand does before a group is computed.
static enum err begin_group(struct hand *h, int32_t layer, int32_t expert_begin)
{
	struct engine *e = h->crew->e;
	plan_group(e, expert_begin, h->crew->n_tokens);
	enum err err = hold_group(e, layer, h->crew->em);
	if (err == OK && expert_begin == e->part.experts.begin)
		expect_next(e, layer, h->crew->n_tokens);
	return err;
}

// ---- phases of a group

static void hand_share(const struct hand *h, int32_t n, int32_t *begin, int32_t *end)
{
	*begin = (int32_t)((int64_t)n * h->idx / h->n_hands);
	*end = (int32_t)((int64_t)n * (h->idx + 1) / h->n_hands);
}

static void gather_pairs(struct hand *h, int32_t n_pairs)
{
	struct engine *e = h->crew->e;
	size_t n = (size_t)e->hp.hidden_dim;
	int32_t begin, end;
	hand_share(h, n_pairs, &begin, &end);
	for (int32_t p = begin; p < end; p++)
		memcpy(e->picked.x + (size_t)p * n, e->normed.x + (size_t)e->pair_tokens[p] * n, n * sizeof(float));
	crew_quantise(h, &e->picked, begin, end);
}

// A share of rows of one expert of the group.
struct rows_share {
	const struct expert_part *part;
	int32_t begin, end;
};

static bool take_rows(struct hand *h, int32_t rows, struct rows_share *out)
{
	const struct engine *e = h->crew->e;
	int32_t per_share = crew_rows_per_share(h, rows * e->group.n_parts), share;
	per_share = per_share < rows ? per_share : rows;
	int32_t of_part = rows / per_share + (rows % per_share != 0);
	if (!crew_take(h, of_part * e->group.n_parts, &share))
		return false;
	out->part = &e->expert_parts[share / of_part];
	out->begin = share % of_part * per_share;
	out->end = rows - out->begin > per_share ? out->begin + per_share : rows;
	return true;
}

static void product_of_pairs(const struct engine *e, const struct weight *w, const struct engine_input *in, const struct rows_share *s, float *y)
{
	struct acts of_part = acts_part(&in->acts[kernels_act_kind(w->type)], s->part->pair_begin, s->part->pair_end);
	size_t stride = (size_t)w->rows;
	kernels_matmul(e->c.kernels, w, &of_part, s->begin, s->end, y + (size_t)s->part->pair_begin * stride, stride);
}

static void gate_and_up(struct hand *h, int32_t layer)
{
	struct engine *e = h->crew->e;
	struct rows_share s;
	while (take_rows(h, e->hp.ffn_dim, &s)) {
		struct weight gate = engine_expert_weight(e, layer, s.part->expert, EXPERT_GATE), up = engine_expert_weight(e, layer, s.part->expert, EXPERT_UP);
		product_of_pairs(e, &gate, &e->picked, &s, e->gated.x);
		product_of_pairs(e, &up, &e->picked, &s, e->up);
		for (int32_t p = s.part->pair_begin; p < s.part->pair_end; p++) {
			size_t at = (size_t)p * (size_t)e->hp.ffn_dim + (size_t)s.begin;
			kernels_swiglu(e->c.kernels, e->gated.x + at, e->up + at, s.end - s.begin, e->gated.x + at);
		}
	}
}

static void down(struct hand *h, int32_t layer)
{
	struct engine *e = h->crew->e;
	struct rows_share s;
	while (take_rows(h, e->hp.hidden_dim, &s)) {
		struct weight w = engine_expert_weight(e, layer, s.part->expert, EXPERT_DOWN);
		product_of_pairs(e, &w, &e->gated, &s, e->expert_out);
	}
}

// add_group adds what a group's experts computed for tokens [begin, end): each token's experts ascending, groups as well.
static void add_group(struct engine *e, const struct expert_group *g, int32_t begin, int32_t end)
{
	size_t n = (size_t)e->hp.hidden_dim;
	for (int32_t t = begin; t < end; t++) {
		const struct expert_choice *c = choices_of(e, t);
		for (int32_t i = 0; i < e->hp.n_experts_used; i++)
			if (c[i].expert >= g->expert_begin && c[i].expert < g->expert_end)
				kernels_add_scaled(e->c.kernels, e->delta + (size_t)t * n, c[i].weight, e->expert_out + (size_t)c[i].pair * n, e->hp.hidden_dim);
	}
}

// keep_group puts what a group's experts computed for tokens [begin, end) beside what other members will send.
static void keep_group(struct engine *e, const struct expert_group *g, int32_t begin, int32_t end)
{
	size_t n = (size_t)e->hp.hidden_dim;
	for (int32_t i = begin * e->hp.n_experts_used; i < end * e->hp.n_experts_used; i++)
		if (e->choices[i].expert >= g->expert_begin && e->choices[i].expert < g->expert_end)
			memcpy(e->chosen_out + (size_t)i * n, e->expert_out + (size_t)e->choices[i].pair * n, n * sizeof(float));
}

void expert_ffn_add(struct hand *h)
{
	struct engine *e = h->crew->e;
	size_t n = (size_t)e->hp.hidden_dim;
	int32_t begin, end, used = e->hp.n_experts_used;
	crew_tokens(h, &begin, &end);
	for (int32_t i = begin * used; i < end * used; i++)
		kernels_add_scaled(e->c.kernels, e->delta + (size_t)(i / used) * n, e->choices[i].weight, e->chosen_out + (size_t)i * n, e->hp.hidden_dim);
}

// run_group computes the group that was planned, up to its outputs.
static void run_group(struct hand *h, int32_t layer, const struct expert_group *g)
{
	struct engine *e = h->crew->e;
	int32_t begin, end;
	gather_pairs(h, g->n_pairs);
	crew_end_phase(h);
	gate_and_up(h, layer);
	crew_end_phase(h);
	hand_share(h, g->n_pairs, &begin, &end);
	crew_quantise(h, &e->gated, begin, end);
	crew_end_phase(h);
	down(h, layer);
	crew_end_phase(h);
}

bool expert_ffn_block(struct hand *h, int32_t layer)
{
	struct engine *e = h->crew->e;
	struct expert_group g = {.expert_end = e->part.experts.begin};
	int32_t begin, end;
	crew_tokens(h, &begin, &end);
	crew_end_phase(h);
	router_products(h, layer_of(e, layer));
	crew_end_phase(h);
	for (int32_t t = begin; t < end; t++)
		route_token(e, layer, t);
	crew_end_phase(h);
	if (h->idx == 0)
		count_choices(e, h->crew->n_tokens);
	for (;;) {
		if (!crew_end_phase_if(h, h->idx == 0 ? begin_group(h, layer, g.expert_end) : OK))
			return false;
		g = e->group; // the first hand plans the next one while others still add this one's outputs
		if (g.n_parts == 0)
			return true;
		run_group(h, layer, &g);
		if (h->idx == 0)
			let_group_go(e, g.n_parts);
		if (e->chosen_out == NULL)
			add_group(e, &g, begin, end);
		else
			keep_group(e, &g, begin, end);
	}
}
