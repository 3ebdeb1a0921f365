// The states a stage has sent, kept until their slot serves another session: what a replacement of the next stage is fed with. The rows are
// the host's (KEEP, FETCH, DROP); here is what they are, and what they may take.
#include "node/node_state.h"

#include "base/assert.h"

static void forget_entry(struct node *n, int32_t entry, size_t row_bytes, struct node_effects *fx)
{
	struct node_kept *k = &n->kept[entry];
	if (k->n_rows > 0)
		node_fx(fx, NODE_FX_DROP)->u.keep.entry = entry;
	n->kept_bytes -= (uint64_t)k->n_rows * row_bytes;
	*k = (struct node_kept){0};
}

// find returns the entry with what enters a step's first layer, whatever the round in which it was sent; -1: none has it all.
static int32_t find(const struct node *n, const struct step *s)
{
	int32_t begin = (int32_t)s->pos, end = begin + (int32_t)s->n_tokens, layer = s->layer_begin;
	for (int32_t i = (int32_t)s->slot * ROUNDS_MAX; i < ((int32_t)s->slot + 1) * ROUNDS_MAX; i++) {
		const struct node_kept *k = &n->kept[i];
		bool is_here = (k->layer == layer && end <= k->n) || (k->old_layer == layer && begin >= k->n && end <= k->old_n);
		if (k->session.v == s->session.v && is_here)
			return i;
	}
	return -1;
}

bool kept_has(const struct node *n, const struct step *s)
{
	return find(n, s) >= 0;
}

static void fx_rows(enum node_effect_type type, int32_t entry, const struct step *s, int32_t buf, size_t row_bytes, struct node_effects *fx)
{
	struct node_effect *f = node_fx(fx, type);
	f->u.keep.entry = entry;
	f->u.keep.pos = (int32_t)s->pos;
	f->u.keep.n_tokens = (int32_t)s->n_tokens;
	f->u.keep.buf = buf;
	f->u.keep.row_bytes = row_bytes;
}

void kept_fetch(const struct node *n, const struct step *s, int32_t buf, size_t row_bytes, struct node_effects *fx)
{
	int32_t entry = find(n, s);
	ASSERT(entry >= 0);
	fx_rows(NODE_FX_FETCH, entry, s, buf, row_bytes, fx);
}

void kept_put(struct node *n, const struct step *s, int32_t round, int32_t buf, size_t row_bytes, struct node_effects *fx)
{
	int32_t entry = (int32_t)s->slot * ROUNDS_MAX + round, layer = n->plan.layers.at[round].end;
	struct node_kept *k = &n->kept[entry];
	int32_t begin = (int32_t)s->pos, end = begin + (int32_t)s->n_tokens;
	if (begin == 0 && k->session.v != s->session.v) {
		forget_entry(n, entry, row_bytes, fx);
		*k = (struct node_kept){.session = s->session, .layer = layer};
	} else if (begin == 0 && k->layer != layer) {
		*k = (struct node_kept){.session = s->session, .layer = layer, .old_layer = k->layer, .old_n = k->n, .n_rows = k->n_rows};
	}
	if (k->session.v != s->session.v || k->layer != layer || begin > k->n || end <= k->n)
		return; // a gap before it, or the very same rows
	int32_t more = end > k->n_rows ? end - k->n_rows : 0;
	if ((uint64_t)more * row_bytes > n->config.keep_bytes - n->kept_bytes) {
		forget_entry(n, entry, row_bytes, fx);
		return;
	}
	k->n = end;
	k->n_rows += more;
	n->kept_bytes += (uint64_t)more * row_bytes;
	fx_rows(NODE_FX_KEEP, entry, s, buf, row_bytes, fx);
}

void kept_forget(struct node *n, struct node_effects *fx)
{
	for (int32_t i = 0; i < KEPT_MAX; i++)
		if (n->kept[i].n_rows > 0)
			node_fx(fx, NODE_FX_DROP)->u.keep.entry = i;
	memset(n->kept, 0, sizeof n->kept);
	memset(n->kv_session, 0, sizeof n->kv_session);
	n->kept_bytes = 0;
}
