#include "partition/plan.h"

#include "base/assert.h"

static struct layer_span *span_at(struct plan *p, int32_t at)
{
	return &p->stages[at % p->n_stages].layers.at[at / p->n_stages];
}

// lay_out cuts the layers of each stage into rounds as evenly as they go (plan_round_begin), in the way that the cost model counts on.
static void lay_out(struct plan *p, const int32_t *n_layers, int32_t n_rounds)
{
	int32_t most = 1, at = 0;
	for (int32_t i = 0; i < p->n_stages; i++)
		most = n_layers[i] > most ? n_layers[i] : most;
	p->n_rounds = p->n_stages == 1 ? 1 : n_rounds < most ? n_rounds : most;
	for (int32_t r = 0; r < p->n_rounds; r++) {
		for (int32_t i = 0; i < p->n_stages; i++) {
			int32_t len = plan_round_begin(n_layers[i], p->n_rounds, r + 1) - plan_round_begin(n_layers[i], p->n_rounds, r);
			p->stages[i].layers.n = p->n_rounds;
			p->stages[i].layers.at[r] = (struct layer_span){at, at + len};
			at += len;
		}
	}
}

void plan_even(const struct plan_want *w, struct plan *out)
{
	int32_t n_layers[STAGES_MAX];
	ASSERT(w->n >= 1);
	ASSERT(w->n_layers >= 1);
	ASSERT(w->n_rounds >= 1 && w->n_rounds <= ROUNDS_MAX);
	*out = (struct plan){.n_layers = w->n_layers};
	out->n_stages = w->n < w->n_layers ? w->n : w->n_layers;
	if (out->n_stages > STAGES_MAX)
		out->n_stages = STAGES_MAX;
	for (int32_t i = 0; i < out->n_stages; i++) {
		out->stages[i].node = w->nodes[i];
		n_layers[i] = w->n_layers / out->n_stages + (i < w->n_layers % out->n_stages);
	}
	lay_out(out, n_layers, w->n_rounds);
}

enum err plan_given(const struct plan_want *w, const char *const *names, const int32_t *layers, struct plan *out, struct errmsg *em)
{
	ASSERT(w->n >= 1 && w->n <= STAGES_MAX);
	ASSERT(w->n_rounds >= 1 && w->n_rounds <= ROUNDS_MAX);
	*out = (struct plan){.n_layers = w->n_layers, .n_stages = w->n};
	int64_t at = 0;
	for (int32_t i = 0; i < w->n; i++) {
		if (layers[i] < 1)
			return errmsg_fail(em, ERR_RANGE, "split: stage %d (%s) has %d layers: give each stage at least one", i, names[i], layers[i]);
		at += layers[i];
		if (at > w->n_layers)
			return errmsg_fail(em, ERR_RANGE, "split: stage %d (%s) ends at layer %lld: the model has %d layers", i, names[i], (long long)at,
				w->n_layers);
		out->stages[i].node = w->nodes[i];
	}
	if (at != w->n_layers)
		return errmsg_fail(em, ERR_RANGE, "split: %d stages hold %lld layers: the model has %d", w->n, (long long)at, w->n_layers);
	lay_out(out, layers, w->n_rounds);
	return OK;
}

// ---- repair

// take_in copies the stages of `old`; where a spare takes the place of some that were lost side by side, it is one stage in their stead.
static void take_in(const struct plan *old, const bool *alive, const struct node_id *spares, int32_t n_spares, struct plan *out, bool *is_alive)
{
	int32_t n_used = 0;
	for (int32_t i = 0; i < old->n_stages;) {
		int32_t end = i + 1;
		struct plan_stage *st = &out->stages[out->n_stages];
		*st = old->stages[i];
		is_alive[out->n_stages++] = alive[i] || n_used < n_spares;
		if (!alive[i] && n_used < n_spares) {
			st->node = spares[n_used++];
			while (end < old->n_stages && !alive[end])
				end++;
			for (int32_t r = 0; r < old->n_rounds; r++)
				st->layers.at[r].end = old->stages[end - 1].layers.at[r].end;
		}
		i = end;
	}
}

// close_gaps gives what is lost along the road to the spans before and behind it, a half each. False: there is neither.
static bool close_gaps(struct plan *p, const bool *alive)
{
	int32_t n = plan_n_spans(p);
	for (int32_t at = 0, end; at < n; at = end) {
		for (end = at; end < n && !alive[end % p->n_stages];)
			end++;
		if (end == at) {
			end++;
			continue;
		}
		struct layer_span *before = at > 0 ? span_at(p, at - 1) : NULL, *behind = end < n ? span_at(p, end) : NULL;
		int32_t first = span_at(p, at)->begin, last = span_at(p, end - 1)->end;
		if (before == NULL && behind == NULL)
			return false;
		int32_t cut = before == NULL ? first : behind == NULL ? last : first + (last - first + 1) / 2;
		if (before != NULL)
			before->end = cut;
		if (behind != NULL)
			behind->begin = cut;
	}
	return true;
}

static void drop_lost(struct plan *p, const bool *alive)
{
	int32_t n = 0;
	for (int32_t i = 0; i < p->n_stages; i++)
		if (alive[i])
			p->stages[n++] = p->stages[i];
	p->n_stages = n;
	if (n != 1)
		return;
	p->n_rounds = 1;
	p->stages[0].layers = layer_spans_one(0, p->n_layers);
}

enum err plan_repair(const struct plan *old, const bool *alive, const struct node_id *spares, int32_t n_spares, struct plan *out)
{
	bool is_alive[STAGES_MAX];
	*out = (struct plan){.n_layers = old->n_layers, .n_rounds = old->n_rounds};
	take_in(old, alive, spares, n_spares, out, is_alive);
	if (!close_gaps(out, is_alive))
		return ERR_NOT_FOUND;
	drop_lost(out, is_alive);
	return OK;
}

enum err plan_check(const struct plan *p)
{
	if (p->n_stages < 1 || p->n_stages > STAGES_MAX || p->n_rounds < 1 || p->n_rounds > (p->n_stages > 1 ? ROUNDS_MAX : 1))
		return ERR_RANGE;
	for (int32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].layers.n != p->n_rounds || layer_spans_count(&p->stages[i].layers) < 1)
			return ERR_RANGE;
	int32_t at = 0;
	for (int32_t i = 0; i < plan_n_spans(p); i++) {
		const struct layer_span *s = plan_span(p, i);
		if (s->begin != at || s->end < at)
			return ERR_RANGE;
		at = s->end;
	}
	return at == p->n_layers ? OK : ERR_RANGE;
}
