// The states a stage has sent, kept until their slot serves another session: what a replacement of the next stage is fed with. The rows are
// the host's (KEEP, FETCH, DROP); here is what they are, and what they may take.
#include "node/node_state.h"

static void forget_slot(struct node *n, int32_t slot, size_t row_bytes, struct node_effects *fx)
{
	struct node_kept *k = &n->kept[slot];
	if (k->n_rows > 0)
		node_fx(fx, NODE_FX_DROP)->u.keep.slot = slot;
	n->kept_bytes -= (uint64_t)k->n_rows * row_bytes;
	*k = (struct node_kept){0};
}

bool kept_has(const struct node *n, const struct step *s, int32_t layer)
{
	const struct node_kept *k = &n->kept[s->slot];
	int32_t begin = (int32_t)s->pos, end = begin + (int32_t)s->n_tokens;
	if (k->session.v != s->session.v)
		return false;
	return (k->layer == layer && end <= k->n) || (k->old_layer == layer && begin >= k->n && end <= k->old_n);
}

static void fx_rows(enum node_effect_type type, const struct step *s, int32_t buf, size_t row_bytes, struct node_effects *fx)
{
	struct node_effect *f = node_fx(fx, type);
	f->u.keep.slot = (int32_t)s->slot;
	f->u.keep.pos = (int32_t)s->pos;
	f->u.keep.n_tokens = (int32_t)s->n_tokens;
	f->u.keep.buf = buf;
	f->u.keep.row_bytes = row_bytes;
}

void kept_fetch(const struct step *s, int32_t buf, size_t row_bytes, struct node_effects *fx)
{
	fx_rows(NODE_FX_FETCH, s, buf, row_bytes, fx);
}

void kept_put(struct node *n, const struct step *s, int32_t layer, int32_t buf, size_t row_bytes, struct node_effects *fx)
{
	struct node_kept *k = &n->kept[s->slot];
	int32_t begin = (int32_t)s->pos, end = begin + (int32_t)s->n_tokens;
	if (begin == 0 && k->session.v != s->session.v) {
		forget_slot(n, (int32_t)s->slot, row_bytes, fx);
		*k = (struct node_kept){.session = s->session, .layer = layer};
	} else if (begin == 0 && k->layer != layer) {
		*k = (struct node_kept){.session = s->session, .layer = layer, .old_layer = k->layer, .old_n = k->n, .n_rows = k->n_rows};
	}
	if (k->session.v != s->session.v || k->layer != layer || begin > k->n || end <= k->n)
		return; // a gap before it, or the very same rows
	int32_t more = end > k->n_rows ? end - k->n_rows : 0;
	if ((uint64_t)more * row_bytes > n->config.keep_bytes - n->kept_bytes) {
		forget_slot(n, (int32_t)s->slot, row_bytes, fx);
		return;
	}
	k->n = end;
	k->n_rows += more;
	n->kept_bytes += (uint64_t)more * row_bytes;
	fx_rows(NODE_FX_KEEP, s, buf, row_bytes, fx);
}

void kept_forget(struct node *n, struct node_effects *fx)
{
	for (int32_t i = 0; i < SESSIONS_MAX; i++)
		if (n->kept[i].n_rows > 0)
			node_fx(fx, NODE_FX_DROP)->u.keep.slot = i;
	memset(n->kept, 0, sizeof n->kept);
	memset(n->kv_session, 0, sizeof n->kv_session);
	n->kept_bytes = 0;
}
