#include "tests/support/made_logits.h"

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

static void must(enum err e, const struct errmsg *em)
{
	if (e != OK)
		fprintf(stderr, "%s\n", em->text);
	ASSERT(e == OK);
}

struct made made_open(const char *shape, const char *type, const char *more)
{
	struct made m = {0};
	struct errmsg em = {{0}};
	bool has_dir = scratch_open(m.dir);
	ASSERT(has_dir);
	made_model(m.dir, shape, type, more, m.path);
	must(model_open(m.path, &m.model, &em), &em);
	m.vocab_size = model_hparams(m.model)->vocab_size;
	m.hidden_dim = model_hparams(m.model)->hidden_dim;
	return m;
}

void made_close(struct made *m)
{
	model_close(m->model);
	scratch_remove(m->dir);
}

float *made_logits(const struct made *m, int32_t chunk, int32_t n_threads, const char *simd)
{
	struct pool *pool;
	struct engine *e;
	struct errmsg em = {{0}};
	float *hidden = malloc((size_t)MADE_IDS_MAX * (size_t)m->hidden_dim * sizeof *hidden);
	float *logits = malloc((size_t)MADE_IDS_MAX * (size_t)m->vocab_size * sizeof *logits);
	ASSERT(hidden != NULL && logits != NULL);
	enum err err = pool_open(n_threads, &pool);
	ASSERT(err == OK);
	const struct engine_config c = {.model = m->model, .kernels = kernels_find(simd, NULL), .pool = pool,
		.layers = layer_spans_one(0, model_hparams(m->model)->n_layers), .has_head = true, .n_slots = 1, .ctx_len = MADE_IDS_MAX, .batch_max = chunk};
	must(engine_open(&c, &e, &em), &em);
	for (int32_t pos = 0; pos < m->n_ids; pos += chunk) {
		int32_t n = m->n_ids - pos < chunk ? m->n_ids - pos : chunk;
		struct engine_item it = {.pos_begin = pos, .n_tokens = n, .tokens = m->ids + pos, .hidden = hidden};
		must(engine_embed(e, &it, 1, &em), &em);
		must(engine_forward(e, &it, 1, &em), &em);
		must(engine_logits(e, hidden, n, logits + (size_t)pos * (size_t)m->vocab_size, &em), &em);
	}
	engine_close(e);
	pool_close(pool);
	free(hidden);
	return logits;
}
