#include "engine/head_rows.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

#define ROWS_AT_ONCE 16 // of logits held: a row of a whole vocabulary is 200 KB and more

struct head_rows {
	struct engine *engine;
	struct split_range rows;
	int32_t hidden_dim, n_at_once;
	float *hidden; // (n_at_once, hidden_dim)
	float *logits; // (n_at_once, rows)
};

static int32_t n_at_once(const struct engine_config *c)
{
	int32_t n = c->n_slots < ROWS_AT_ONCE ? c->n_slots : ROWS_AT_ONCE; // a token of each slot
	n = n < c->batch_max ? n : c->batch_max;
	return n > 1 ? n : 1;
}

uint64_t head_rows_memory(const struct engine_config *c, int32_t n_rows)
{
	return sizeof(struct head_rows) + (uint64_t)n_at_once(c) * ((uint64_t)n_rows + (uint64_t)model_hparams(c->model)->hidden_dim) * sizeof(float);
}

enum err head_rows_open(struct engine *e, struct head_rows **out, struct errmsg *em)
{
	struct head_rows *h = calloc(1, sizeof *h);
	if (h == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for rows of the output head");
	h->engine = e;
	h->rows = engine_output_rows(e);
	h->hidden_dim = engine_hparams(e)->hidden_dim;
	h->n_at_once = n_at_once(engine_config_of(e));
	h->hidden = malloc((size_t)h->n_at_once * (size_t)h->hidden_dim * sizeof *h->hidden);
	h->logits = malloc((size_t)h->n_at_once * (size_t)split_len(h->rows) * sizeof *h->logits + 1);
	if (h->hidden == NULL || h->logits == NULL) {
		errmsg_fail(em, ERR_NOMEM, "no memory for logits of %d rows of the output head", (int)split_len(h->rows));
		head_rows_close(h);
		return ERR_NOMEM;
	}
	*out = h;
	return OK;
}

void head_rows_close(struct head_rows *h)
{
	if (h == NULL)
		return;
	free(h->hidden);
	free(h->logits);
	free(h);
}

enum err head_rows_run(struct head_rows *h, struct head_rows_item *items, int32_t n, struct errmsg *em)
{
	size_t dim = (size_t)h->hidden_dim, n_rows = (size_t)split_len(h->rows);
	for (int32_t begin = 0, n_now; begin < n; begin += n_now) {
		n_now = n - begin < h->n_at_once ? n - begin : h->n_at_once;
		for (int32_t i = 0; i < n_now; i++)
			memcpy(h->hidden + (size_t)i * dim, items[begin + i].hidden, dim * sizeof *h->hidden);
		enum err err = engine_logits(h->engine, h->hidden, n_now, h->logits, em);
		if (err != OK && err != ERR_NON_FINITE) // that some value is not finite, each item finds out for itself
			return err;
		for (int32_t i = 0; i < n_now; i++) {
			struct head_rows_item *it = &items[begin + i];
			ASSERT(it->want != HEAD_NOTHING);
			it->err = head_reply_choose(h->logits + (size_t)i * n_rows, h->rows.begin, (int32_t)n_rows, it->want, it->out);
		}
	}
	return OK;
}
