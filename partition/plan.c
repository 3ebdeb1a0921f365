#include "partition/plan.h"

#include "base/assert.h"
#include "base/window_layout.h"

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

static struct plan_group stage_of(const struct plan_want *w, int32_t i)
{
	return w->groups != NULL ? w->groups[i] : plan_group_one(w->nodes[i]);
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
		out->stages[i].who = stage_of(w, i);
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
		out->stages[i].who = stage_of(w, i);
		out->stages[i].stream_share = w->stream_shares != NULL ? w->stream_shares[i] : 0;
	}
	if (at != w->n_layers)
		return errmsg_fail(em, ERR_RANGE, "split: %d stages hold %lld layers: the model has %d", w->n, (long long)at, w->n_layers);
	lay_out(out, layers, w->n_rounds);
	return OK;
}

// ---- repair

static bool is_lost(const struct plan *p, const struct plan_alive *alive, int32_t stage)
{
	for (int32_t k = 0; k < p->stages[stage].who.n; k++)
		if (alive->is[stage][k])
			return false;
	return true;
}

// n_gaps counts the runs of stages that are lost side by side: each takes one spare.
static int32_t n_gaps(const struct plan *p, const struct plan_alive *alive)
{
	int32_t n = 0;
	for (int32_t i = 0; i < p->n_stages; i++)
		n += is_lost(p, alive, i) && (i == 0 || !is_lost(p, alive, i - 1));
	return n;
}

// mend gives the places of who is lost to spares, and takes out those for which there is none. Somebody is left.
static void mend(struct plan_group *g, const bool *alive, const struct node_id **spares, int32_t *n_spares)
{
	struct plan_group left = {.mode = g->mode, .payload = g->payload};
	uint64_t sum = 0;
	for (int32_t k = 0; k < g->n; k++) {
		if (!alive[k] && *n_spares == 0)
			continue;
		left.hub = g->hub == k + 1 ? left.n + 1 : left.hub;
		left.nodes[left.n] = alive[k] ? g->nodes[k] : *(*spares)++;
		*n_spares -= !alive[k];
		left.shares[left.n++] = g->shares[k];
		sum += g->shares[k];
	}
	for (int32_t k = 0; sum == 0 && k < left.n; k++)
		left.shares[k] = 1; // they had nothing of a layer
	*g = left.n == 1 ? plan_group_one(left.nodes[0]) : left;
}

// take_in copies the stages of `old`; where a spare takes the place of some that were lost side by side, it is one stage in their stead.
static void take_in(const struct plan *old, const struct plan_alive *alive, const struct node_id *spares, int32_t n_spares, struct plan *out, bool *is_alive)
{
	int32_t n_for_gaps = n_gaps(old, alive);
	n_for_gaps = n_for_gaps < n_spares ? n_for_gaps : n_spares;
	int32_t n_used = 0, n_others = n_spares - n_for_gaps;
	const struct node_id *others = n_others > 0 ? spares + n_for_gaps : NULL;
	for (int32_t i = 0; i < old->n_stages;) {
		int32_t end = i + 1;
		struct plan_stage *st = &out->stages[out->n_stages];
		bool lost = is_lost(old, alive, i);
		*st = old->stages[i];
		is_alive[out->n_stages++] = !lost || n_used < n_for_gaps;
		if (!lost) {
			mend(&st->who, alive->is[i], &others, &n_others);
		} else if (n_used < n_for_gaps) {
			st->who = plan_group_one(spares[n_used++]);
			while (end < old->n_stages && is_lost(old, alive, end))
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

// keep_streams: what a stage was to stream holds for the part it had.
static void keep_streams(const struct plan *old, struct plan *p)
{
	for (int32_t i = 0; i < p->n_stages; i++) {
		const struct plan_stage *before = plan_find(old, plan_lead(&p->stages[i]));
		if (before == NULL || !plan_same_part(before, &p->stages[i]))
			p->stages[i].stream_share = 0;
	}
}

enum err plan_repair(const struct plan *old, const struct plan_alive *alive, const struct node_id *spares, int32_t n_spares, struct plan *out)
{
	bool is_alive[STAGES_MAX];
	*out = (struct plan){.n_layers = old->n_layers, .n_rounds = old->n_rounds};
	take_in(old, alive, spares, n_spares, out, is_alive);
	if (!close_gaps(out, is_alive))
		return ERR_NOT_FOUND;
	drop_lost(out, is_alive);
	keep_streams(old, out);
	return OK;
}

static bool is_group(const struct plan_group *g)
{
	uint64_t sum = 0;
	for (int32_t k = 0; k < g->n && k < GROUP_MEMBERS_MAX; k++)
		sum += g->shares[k];
	bool has_hub = g->hub > 0 && !split_has_lanes(g->mode); // with lanes each member gets something else: there is nothing to pass on
	return g->n >= 1 && g->n <= GROUP_MEMBERS_MAX && (g->hub == 0 || has_hub) && g->hub <= g->n && sum > 0;
}

static bool is_once(const struct plan *p, struct node_id node)
{
	int32_t n = 0;
	for (struct plan_seat s = {0}; plan_has_seat(p, s); s = plan_seat_after(p, s))
		n += node_id_is(plan_node(p, s), node);
	return n == 1;
}

static bool are_groups(const struct plan *p)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		if (!is_group(&p->stages[i].who))
			return false;
	if (plan_n_nodes(p) > STAGES_MAX)
		return false;
	for (struct plan_seat s = {0}; plan_has_seat(p, s); s = plan_seat_after(p, s))
		if (!is_once(p, plan_node(p, s)))
			return false;
	return true;
}

enum err plan_check(const struct plan *p)
{
	if (p->n_stages < 1 || p->n_stages > STAGES_MAX || p->n_rounds < 1 || p->n_rounds > (p->n_stages > 1 ? ROUNDS_MAX : 1))
		return ERR_RANGE;
	for (int32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].layers.n != p->n_rounds || layer_spans_count(&p->stages[i].layers) < 1)
			return ERR_RANGE;
	for (int32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].stream_share > (p->stages[i].who.n == 1 ? WINDOW_SHARE_WHOLE : 0))
			return ERR_RANGE;
	if (!are_groups(p))
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
