#include "engine/generate.h"

#include "base/arena.h"
#include "base/thread.h"
#include "engine/sampler.h"

#include <stdlib.h>

#define LOGITS_ROWS 32 // prompt tokens whose logits are computed together when they are hashed: 6 MiB at 49,152 tokens of vocabulary

struct generate {
	struct engine *engine;
	struct arena arena;
	int32_t ctx_len, chunk, vocab_size, hidden_dim, logits_rows;
	float *hidden;             // (chunk, hidden_dim)
	float *logits;             // (logits_rows, vocab_size)
	struct candidate *scratch; // (SAMPLER_SCRATCH(vocab_size))
};

// A call in progress.
struct run {
	struct generate *g;
	const struct generate_request *q;
	struct generate_result *r;
	struct errmsg *em;
	int64_t begin_ns;
};

enum err generate_open(const struct generate_config *c, struct generate **out, struct errmsg *em)
{
	const struct hparams *hp = model_hparams(c->model);
	struct generate *g = calloc(1, sizeof *g);
	if (g == NULL)
		return errmsg_fail(em, ERR_NOMEM, "cannot allocate %zu bytes", sizeof *g);
	g->ctx_len = c->ctx_len;
	g->chunk = c->prefill_chunk < c->ctx_len ? c->prefill_chunk : c->ctx_len;
	g->vocab_size = hp->vocab_size;
	g->hidden_dim = hp->hidden_dim;
	g->logits_rows = g->chunk < LOGITS_ROWS ? g->chunk : LOGITS_ROWS;
	const struct engine_config ec = {
		.model = c->model, .kernels = c->kernels, .pool = c->pool,
		.layers = layer_spans_one(0, hp->n_layers), .has_head = true,
		.n_slots = 1, .ctx_len = c->ctx_len, .batch_max = g->chunk, .wire = c->wire,
	};
	enum err err = engine_open(&ec, &g->engine, em);
	if (err != OK)
		goto fail;
	size_t hidden = (size_t)g->chunk * (size_t)g->hidden_dim, logits = (size_t)g->logits_rows * (size_t)g->vocab_size;
	size_t bytes = (hidden + logits) * sizeof(float) + SAMPLER_SCRATCH(g->vocab_size) * sizeof *g->scratch + 3 * 64;
	err = arena_open(bytes, &g->arena);
	if (err != OK) {
		errmsg_fail(em, err, "cannot allocate %zu MiB for logits", bytes >> 20);
		goto fail;
	}
	g->hidden = arena_alloc_raw(&g->arena, hidden, sizeof(float));
	g->logits = arena_alloc_raw(&g->arena, logits, sizeof(float));
	g->scratch = arena_alloc_raw(&g->arena, SAMPLER_SCRATCH(g->vocab_size), sizeof *g->scratch);
	*out = g;
	return OK;
fail:
	generate_close(g);
	return err;
}

void generate_close(struct generate *g)
{
	if (g == NULL)
		return;
	engine_close(g->engine);
	arena_close(&g->arena);
	free(g);
}

// feed computes n tokens from position `pos` on through all layers.
static enum err feed(struct run *run, const int32_t *tokens, int32_t pos, int32_t n)
{
	struct generate *g = run->g;
	struct engine_item item = {.slot = 0, .pos_begin = pos, .n_tokens = n, .tokens = tokens, .hidden = g->hidden};
	enum err err = engine_embed(g->engine, &item, 1, run->em);
	if (err == OK)
		err = engine_forward(g->engine, &item, 1, run->em);
	if (err == OK)
		run->r->n_fed += n;
	return err;
}

// read_logits computes the logits of rows [begin, begin + n) of the hidden states; the last row's are left in g->logits + (n - 1) rows.
static enum err read_logits(struct run *run, int32_t begin, int32_t n)
{
	struct generate *g = run->g;
	enum err err = engine_logits(g->engine, g->hidden + (size_t)begin * (size_t)g->hidden_dim, n, g->logits, run->em);
	for (int32_t i = 0; i < n && err == OK && run->q->hash_logits; i++)
		logits_hash_push(&run->r->hash, g->logits + (size_t)i * (size_t)g->vocab_size, g->vocab_size);
	return err;
}

// hash_rows does all rows but the last, which its caller needs by itself.
static enum err hash_rows(struct run *run, int32_t n)
{
	int64_t begin_ns = thread_clock_ns();
	enum err err = OK;
	for (int32_t at = 0; at < n && err == OK; at += run->g->logits_rows)
		err = read_logits(run, at, n - at < run->g->logits_rows ? n - at : run->g->logits_rows);
	run->r->hash_ns += thread_clock_ns() - begin_ns;
	return err;
}

static bool is_cancelled(const struct run *run)
{
	return run->q->is_cancelled != NULL && run->q->is_cancelled(run->q->ctx);
}

// prefill leaves the logits of the prompt's last token in g->logits.
static enum err prefill(struct run *run)
{
	const struct generate_request *q = run->q;
	for (int32_t pos = 0; pos < q->n_prompt;) {
		if (is_cancelled(run))
			return errmsg_fail(run->em, ERR_CANCELLED, "cancelled");
		int32_t n = q->n_prompt - pos < run->g->chunk ? q->n_prompt - pos : run->g->chunk;
		enum err err = feed(run, q->prompt + pos, pos, n);
		pos += n;
		bool is_last = pos == q->n_prompt;
		if (err == OK && q->hash_logits)
			err = hash_rows(run, is_last ? n - 1 : n);
		if (err == OK && is_last)
			err = read_logits(run, n - 1, 1);
		if (err != OK)
			return err;
	}
	run->r->prefill_ns = thread_clock_ns() - run->begin_ns - run->r->hash_ns;
	return OK;
}

// draw takes the next token from g->logits; *more tells whether the answer goes on.
static enum err draw(struct run *run, bool *more)
{
	const struct generate_request *q = run->q;
	struct generate_result *r = run->r;
	int32_t token;
	uint64_t pos = (uint64_t)q->n_prompt + (uint64_t)r->n_tokens;
	enum err err = sampler_draw(&q->sampling, run->g->logits, run->g->vocab_size, pos, run->g->scratch, &token);
	if (err != OK)
		return errmsg_fail(run->em, err, "logits: a value is not finite");
	r->tokens[r->n_tokens++] = token;
	int64_t since_ns = thread_clock_ns() - run->begin_ns;
	if (r->n_tokens == 1)
		r->ttft_ns = since_ns;
	r->decode_ns = since_ns - r->ttft_ns;
	*more = false;
	if (q->on_token != NULL && !q->on_token(q->ctx, token))
		r->stop = GENERATE_TOKEN;
	else if (r->n_tokens == q->max_tokens)
		r->stop = GENERATE_LENGTH;
	else if (r->n_fed == run->g->ctx_len)
		r->stop = GENERATE_CTX;
	else
		*more = true;
	return OK;
}

static enum err check_request(const struct generate *g, const struct generate_request *q, struct errmsg *em)
{
	if (q->n_prompt < 1)
		return errmsg_fail(em, ERR_RANGE, "the prompt is empty: there is nothing to continue");
	if (q->n_prompt > g->ctx_len)
		return errmsg_fail(em, ERR_RANGE, "the prompt has %d tokens, the context %d", (int)q->n_prompt, (int)g->ctx_len);
	return sampler_check(&q->sampling, em);
}

enum err generate_run(struct generate *g, const struct generate_request *q, struct generate_result *r, struct errmsg *em)
{
	*r = (struct generate_result){.tokens = r->tokens, .stop = GENERATE_LENGTH};
	enum err err = check_request(g, q, em);
	if (err != OK)
		return err;
	struct run run = {.g = g, .q = q, .r = r, .em = em, .begin_ns = thread_clock_ns()};
	logits_hash_init(&r->hash);
	err = prefill(&run);
	bool more = err == OK && q->max_tokens > 0;
	while (err == OK && more) {
		err = draw(&run, &more);
		if (err != OK || !more)
			break;
		if (is_cancelled(&run))
			return errmsg_fail(em, ERR_CANCELLED, "cancelled");
		err = feed(&run, &r->tokens[r->n_tokens - 1], r->n_fed, 1);
		if (err == OK)
			err = read_logits(&run, 0, 1);
	}
	return err;
}
