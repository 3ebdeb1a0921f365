// The head: token ids to hidden states, and hidden states to logits.
#include "base/assert.h"
#include "engine/crew.h"

static enum err check_tokens(const struct engine *e, const struct engine_item *it, struct errmsg *em)
{
	for (int32_t t = 0; t < it->n_tokens; t++) {
		if (it->tokens[t] < 0 || it->tokens[t] >= e->hp.vocab_size)
			return errmsg_fail(em, ERR_RANGE, "engine: token id %d, want 0 to %d", (int)it->tokens[t], (int)e->hp.vocab_size - 1);
	}
	return OK;
}

// embed_token reads one row: the table is as large as the output head, and a token looks at nothing else of it.
static enum err embed_token(struct engine *e, int32_t token, float *x, struct errmsg *em)
{
	enum err err = weight_files_read(e->files, e->embd_at + (uint64_t)token * e->embd.row_bytes, e->embd.row_bytes, e->embd_row, em);
	struct weight row = e->embd;
	row.data = e->embd_row;
	row.rows = 1;
	if (err == OK)
		kernels_row_to_f32(&row, 0, x);
	return err;
}

static enum err embed_item(struct engine *e, struct engine_item *it, struct errmsg *em)
{
	it->fault = (struct engine_fault){0};
	for (int32_t t = 0; t < it->n_tokens; t++) {
		float *x = it->hidden + (size_t)t * (size_t)e->hp.hidden_dim;
		int32_t bad;
		enum err err = embed_token(e, it->tokens[t], x, em);
		if (err != OK)
			return err;
		if (wire_round(e->c.wire, x, e->hp.hidden_dim, &bad) != OK && it->fault.err == OK)
			it->fault = (struct engine_fault){ERR_NON_FINITE, -1, it->pos_begin + t, false, x[bad]};
	}
	return OK;
}

enum err engine_embed(struct engine *e, struct engine_item *items, int32_t n_items, struct errmsg *em)
{
	ASSERT(e->c.has_head);
	enum err err = OK;
	for (int32_t i = 0; i < n_items && err == OK; i++)
		err = check_tokens(e, &items[i], em);
	if (err != OK)
		return err;
	for (int32_t i = 0; i < n_items; i++) {
		struct errmsg *to = err == OK ? em : NULL; // the first failure is the one that is told
		enum err read = embed_item(e, &items[i], to);
		if (read != OK)
			return read;
		if (items[i].fault.err != OK && err == OK)
			err = engine_fault_describe(e, &items[i].fault, em);
	}
	return err;
}

struct logits_run {
	struct crew crew;
	const float *hidden; // (n, hidden_dim)
	float *logits;       // (n, its rows)
	_Atomic bool bad;
};

static void product_output(struct hand *h, const void *ctx, int32_t unit)
{
	const struct logits_run *r = ctx;
	crew_products(h, unit, &(struct product){&h->crew->e->output, &h->crew->e->normed, r->logits, (size_t)h->crew->e->output.rows}, 1);
}

static void run_logits(void *ctx, int32_t thread_idx, int32_t n_threads)
{
	struct logits_run *r = ctx;
	struct engine *e = r->crew.e;
	struct hand h = {.crew = &r->crew, .idx = thread_idx, .n_hands = n_threads};
	size_t hidden_dim = (size_t)e->hp.hidden_dim, n_rows = (size_t)e->output.rows;
	int32_t begin, end;
	crew_tokens(&h, &begin, &end);
	for (int32_t t = begin; t < end; t++)
		kernels_rmsnorm(e->c.kernels, r->hidden + (size_t)t * hidden_dim, e->output_norm, e->hp.hidden_dim, e->hp.norm_eps,
			e->normed.x + (size_t)t * hidden_dim);
	crew_quantise(&h, &e->normed, begin, end);
	if (!crew_begin_units(&h, &e->output_units) || !crew_run_units(&h, &e->output_units, product_output, r))
		return;
	for (int32_t t = begin; t < end; t++) {
		if (!kernels_all_finite(e->c.kernels, r->logits + (size_t)t * n_rows, e->output.rows))
			atomic_store(&r->bad, true);
	}
}

enum err engine_logits(struct engine *e, const float *hidden, int32_t n, float *logits, struct errmsg *em)
{
	ASSERT(engine_has_output(e));
	if (n < 0 || n > e->c.batch_max)
		return errmsg_fail(em, ERR_RANGE, "engine: logits of %d tokens at once, want at most %d", (int)n, (int)e->c.batch_max);
	if (n == 0)
		return OK;
	struct logits_run r = {.crew = {.e = e, .n_tokens = n, .em = em}, .hidden = hidden, .logits = logits};
	crew_set_input(&e->normed, n);
	pool_run(e->c.pool, run_logits, &r);
	if (r.crew.err != OK)
		return r.crew.err;
	return r.bad ? errmsg_fail(em, ERR_NON_FINITE, "logits: a value is not finite") : OK;
}
