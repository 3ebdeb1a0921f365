// What a plan is worth: possible with these wants, and the value of the goal by the judge.
#include "partition/solve_inside.h"

#include "partition/plan.h"

static struct cost_case case_of(const struct solver *s, const struct cost_plan *p)
{
	return (struct cost_case){.cluster = s->w->cluster, .shape = s->w->shape, .plan = p, .params = s->w->params};
}

static const struct solve_limit *limit_of(const struct solver *s, int32_t device)
{
	static const struct solve_limit none = {.layers_max = LAYERS_MAX, .is_trusted = true};
	return s->w->limits ? &s->w->limits[device] : &none;
}

static int32_t layers_of(const struct cost_plan *p, int32_t device)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].device == device)
			return p->stages[i].n_layers;
	return 0;
}

static bool keeps_limits(const struct solver *s, const struct cost_plan *p)
{
	if (p->n_stages > s->devices_max)
		return false;
	for (int32_t d = 0; s->w->limits && d < s->w->cluster->n_devices; d++) {
		int32_t l = layers_of(p, d);
		if (l < s->w->limits[d].layers_min || l > s->w->limits[d].layers_max)
			return false;
	}
	for (int32_t i = 0; s->w->order && i < p->n_stages; i++) { // a subsequence of the order
		int32_t at = 0;
		while (at < s->w->n_order && s->w->order[at] != p->stages[i].device)
			at++;
		if (at == s->w->n_order)
			return false;
		for (int32_t j = 0; j < at && i + 1 < p->n_stages; j++)
			if (s->w->order[j] == p->stages[i + 1].device)
				return false;
	}
	return true;
}

// keeps_text: the first and last head_layers layers are on trusted devices. Whatever lies between may go anywhere.
static bool keeps_text(const struct solver *s, const struct cost_plan *p)
{
	int32_t n = s->w->head_layers, layer = 0;
	for (int32_t r = 0; n > 0 && r < p->n_rounds; r++) {
		for (int32_t i = 0; i < p->n_stages; i++) {
			int32_t l = p->stages[i].n_layers, begin = layer;
			layer += plan_round_begin(l, p->n_rounds, r + 1) - plan_round_begin(l, p->n_rounds, r);
			bool is_outer = layer > begin && (begin < n || layer > s->n_layers - n);
			if (is_outer && !limit_of(s, p->stages[i].device)->is_trusted)
				return false;
		}
	}
	return true;
}

static bool keeps_rounds(const struct solver *s, const struct cost_plan *p)
{
	return p->n_stages == 1 ? p->n_rounds == 1 : p->n_rounds >= s->rounds_min && p->n_rounds <= s->rounds_max;
}

// is_possible is cost_check without what the solver has checked once for all plans.
static bool is_possible(const struct solver *s, const struct cost_plan *p, bool *is_streaming)
{
	struct cost_case c = case_of(s, p);
	*is_streaming = false;
	if (!keeps_rounds(s, p) || !keeps_limits(s, p) || !keeps_text(s, p) || !solve_head_fits(s->w, p->head_on_accel) ||
		!(solve_ring_hops_s(s, p) < INFINITY))
		return false;
	for (int32_t i = 0; i < p->n_stages; i++) {
		struct cost_layout l;
		if (cost_layout_of(&c, i, &l, NULL) != OK)
			return false;
		*is_streaming = *is_streaming || l.n_streamed > 0;
	}
	return true;
}

bool solve_is_possible(const struct solver *s, const struct cost_plan *p)
{
	bool is_streaming;
	return is_possible(s, p, &is_streaming);
}

// score_parts asks the judge for the parts of the goal that have a weight. false: no memory, which solve_scratch_bytes rules out.
static bool score_parts(struct solver *s, const struct cost_case *c, struct solve_score *out)
{
	const struct solve_goal *g = &s->goal;
	struct cost_verdict v;
	if (cost_judge(c, s->judge_scratch, &v) != OK)
		return false;
	out->token_s = v.token_s;
	for (int32_t i = 0; i < c->plan->n_stages; i++)
		if (v.stages[i].read_s > 0)
			out->read_bytes += v.stages[i].read_s * c->cluster->devices[c->plan->stages[i].device].disk_rate;
	if (g->streams_weight > 0 && cost_streams(c, g->n_streams, s->judge_scratch, &out->stream_s) != OK)
		return false;
	if (g->ttft_weight > 0 && cost_ttft(c, g->n_prompt, g->chunk, s->judge_scratch, &out->ttft_s) != OK)
		return false;
	out->value = g->tpot_weight * out->token_s;
	if (g->streams_weight > 0)
		out->value += g->streams_weight * out->stream_s;
	if (g->ttft_weight > 0)
		out->value += g->ttft_weight * out->ttft_s;
	return true;
}

bool solve_score_parts(struct solver *s, const struct cost_plan *p, struct solve_score *out)
{
	struct cost_case c = case_of(s, p);
	*out = (struct solve_score){0};
	return score_parts(s, &c, out);
}

bool solve_judge_plan(struct solver *s, const struct cost_plan *p, double cutoff, struct solve_score *out)
{
	struct cost_case c = case_of(s, p);
	bool is_streaming;
	*out = (struct solve_score){0};
	if (!is_possible(s, p, &is_streaming) || s->goal.tpot_weight * cost_bound(&c) > cutoff * (1 + SOLVE_EQUAL))
		return false;
	s->n_judged++;
	return score_parts(s, &c, out) && out->value <= cutoff * (1 + SOLVE_EQUAL);
}

static int compare_devices(const struct cost_plan *a, const struct cost_plan *b)
{
	for (int32_t i = 0; i < a->n_stages && i < b->n_stages; i++)
		if (a->stages[i].device != b->stages[i].device)
			return a->stages[i].device < b->stages[i].device ? -1 : 1;
	return 0;
}

bool solve_is_better(const struct solve_candidate *a, const struct solve_candidate *b)
{
	if (a->score.value < b->score.value * (1 - SOLVE_EQUAL))
		return true;
	if (b->score.value < a->score.value * (1 - SOLVE_EQUAL))
		return false;
	if (a->plan.n_stages != b->plan.n_stages)
		return a->plan.n_stages < b->plan.n_stages;
	if (a->score.read_bytes < b->score.read_bytes * (1 - SOLVE_EQUAL) || b->score.read_bytes < a->score.read_bytes * (1 - SOLVE_EQUAL))
		return a->score.read_bytes < b->score.read_bytes;
	if (a->plan.n_rounds != b->plan.n_rounds)
		return a->plan.n_rounds < b->plan.n_rounds;
	return compare_devices(&a->plan, &b->plan) < 0;
}

bool solve_is_same(const struct cost_plan *a, const struct cost_plan *b)
{
	if (a->n_stages != b->n_stages || a->n_rounds != b->n_rounds || a->head_on_accel != b->head_on_accel)
		return false;
	for (int32_t i = 0; i < a->n_stages; i++) {
		const struct cost_stage *x = &a->stages[i], *y = &b->stages[i];
		if (x->device != y->device || x->n_layers != y->n_layers || x->n_streamed != y->n_streamed)
			return false;
	}
	return true;
}

void solve_keep(struct solver *s, const struct cost_plan *p)
{
	struct solve_candidate fresh = {.plan = *p};
	for (int32_t i = 0; i < s->n_kept; i++)
		if (solve_is_same(&s->kept[i].plan, p))
			return;
	double cutoff = s->n_kept == SOLVE_KEPT ? s->kept[SOLVE_KEPT - 1].score.value : INFINITY;
	if (!solve_judge_plan(s, p, cutoff, &fresh.score))
		return;
	int32_t at = s->n_kept < SOLVE_KEPT ? s->n_kept++ : SOLVE_KEPT - 1;
	for (; at > 0 && solve_is_better(&fresh, &s->kept[at - 1]); at--)
		s->kept[at] = s->kept[at - 1];
	s->kept[at] = fresh;
}
