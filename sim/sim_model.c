#include "sim/sim_model.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "engine/generate.h"
#include "sim/sim_engine.h"

#include <stdlib.h>

// whole_layer runs a layer of either kind. kv is one row, where `before` is the position before's; NULL: there is none.
static uint64_t whole_layer(const struct sim_model *m, uint64_t h, int32_t layer, const uint64_t *before, uint64_t *kv)
{
	if (m->config.is_shared)
		return chain_shared_layer(h, layer, before, kv);
	return kv[0] = chain_layer(h, layer, before != NULL ? before[0] : CHAIN_START);
}

static enum err chain_answer(const struct sim_model *m, struct sim_answer *a)
{
	uint64_t *before = malloc((size_t)m->config.n_layers * CHAIN_UNITS * sizeof *before);
	if (before == NULL)
		return ERR_NOMEM;
	int32_t n = a->n_prompt;
	for (int32_t pos = 0; pos < a->n_prompt + a->n_predict - 1; pos++) {
		uint64_t h = chain_embed(a->tokens[pos]);
		for (int32_t l = 0; l < m->config.n_layers; l++) {
			uint64_t *kv = before + (size_t)l * CHAIN_UNITS, last[CHAIN_UNITS];
			memcpy(last, kv, sizeof last);
			h = whole_layer(m, h, l, pos > 0 ? last : NULL, kv);
		}
		if (a->hash_logits)
			a->hash = sim_mix(a->hash, h);
		if (pos + 1 == n) {
			a->tokens[n] = chain_draw(h, &a->sampling, n, m->config.vocab_size);
			n++;
		}
	}
	free(before);
	return OK;
}

// ---- the model

enum err sim_model_open(struct sim_model *m, const struct sim_model_config *c, enum wire_type wire, int32_t ctx_len, int32_t chunk_max,
	struct errmsg *em)
{
	*m = (struct sim_model){.config = *c, .wire = wire, .ctx_len = ctx_len, .chunk_max = chunk_max};
	if (c->real == NULL) {
		m->row_real = wire_bytes(wire, c->hidden_dim);
		m->row_kept = CHAIN_ROW;
		if (c->n_layers < 1 || c->n_layers > LAYERS_MAX || c->hidden_dim < 1 || c->vocab_size < 1)
			return errmsg_fail(em, ERR_RANGE, "a model of %d layers, width %d, %d tokens", c->n_layers, c->hidden_dim, c->vocab_size);
		return OK;
	}
	const struct hparams *hp = model_hparams(c->real);
	m->config.n_layers = hp->n_layers;
	m->config.hidden_dim = hp->hidden_dim;
	m->config.vocab_size = hp->vocab_size;
	m->row_real = m->row_kept = wire_bytes(wire, hp->hidden_dim);
	struct generate_config g = {.model = c->real, .kernels = c->kernels, .pool = c->pool, .ctx_len = ctx_len, .prefill_chunk = chunk_max, .wire = wire};
	return generate_open(&g, &m->reference, em);
}

void sim_model_close(struct sim_model *m)
{
	generate_close(m->reference);
	*m = (struct sim_model){0};
}

static uint64_t fold_hash(const struct logits_hash *h)
{
	char hex[2 * LOGITS_HASH_BYTES + 1];
	logits_hash_hex(h, hex);
	return sim_mix_bytes(0, hex, sizeof hex);
}

enum err sim_model_answer(struct sim_model *m, struct sim_answer *a, struct errmsg *em)
{
	a->hash = 0;
	if (m->config.real == NULL)
		return chain_answer(m, a);
	struct generate_request q = {
		.prompt = a->tokens, .n_prompt = a->n_prompt, .max_tokens = a->n_predict, .sampling = a->sampling, .hash_logits = a->hash_logits};
	struct generate_result r = {.tokens = a->tokens + a->n_prompt};
	enum err e = generate_run(m->reference, &q, &r, em);
	if (e == OK && a->hash_logits)
		a->hash = fold_hash(&r.hash);
	ASSERT(e != OK || r.n_tokens == a->n_predict); // whoever asks keeps within the context
	return e;
}

// ---- engines

static enum err open_real(struct sim_engine *e, struct errmsg *em)
{
	const struct sim_model *m = e->m;
	bool is_head = layer_spans_count(&e->layers) == 0;
	struct engine_config c = {
		.model = m->config.real,
		.kernels = m->config.kernels,
		.pool = m->config.pool,
		.layers = e->layers,
		.has_head = is_head,
		.n_slots = is_head ? 0 : e->n_slots,
		.ctx_len = is_head ? 0 : m->ctx_len,
		.batch_max = m->chunk_max,
		.wire = m->wire,
	};
	e->logits = calloc((size_t)e->n_slots, sizeof *e->logits);
	return e->logits == NULL ? ERR_NOMEM : stage_work_open(&c, &e->work, em);
}

static enum err open_chain(struct sim_engine *e)
{
	size_t n_layers = (size_t)layer_spans_count(&e->layers), n_slots = (size_t)e->n_slots;
	e->kv = malloc(n_slots * n_layers * (size_t)e->m->ctx_len * sim_kv_row(e) * sizeof *e->kv + 1);
	e->n_done = calloc(n_slots * n_layers + 1, sizeof *e->n_done);
	e->hash = calloc(n_slots, sizeof *e->hash);
	return e->kv && e->n_done && e->hash ? OK : ERR_NOMEM;
}

enum err sim_engine_open(const struct sim_model *m, const struct layer_spans *layers, int32_t n_slots, struct sim_engine **out,
	struct errmsg *em)
{
	struct sim_engine *e = calloc(1, sizeof *e);
	if (e == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a simulated engine");
	*e = (struct sim_engine){.m = m, .layers = *layers, .n_slots = n_slots};
	enum err err = m->config.real ? open_real(e, em) : open_chain(e);
	if (err != OK) {
		sim_engine_close(e);
		return err;
	}
	*out = e;
	return OK;
}

enum err sim_engine_share(struct sim_engine *e, enum split_mode mode, const uint32_t *shares, int32_t n, int32_t member, struct errmsg *em)
{
	if (!e->m->config.is_shared)
		return errmsg_fail(em, ERR_STATE, "a model whose layers cannot be shared");
	e->member = member;
	e->turns = malloc(NODE_FORWARDS_MAX * sizeof *e->turns);
	e->turn = e->turns;
	return e->turn != NULL ? tensor_split_make(&chain_shape, mode, shares, n, &e->split, em) : ERR_NOMEM;
}

void sim_engine_close(struct sim_engine *e)
{
	if (e == NULL)
		return;
	free(e->turns);
	stage_work_close(e->work);
	free(e->logits);
	free(e->kv);
	free(e->n_done);
	free(e->hash);
	free(e);
}

static void take_kv_of_slot(struct sim_engine *e, const struct sim_engine *from, int32_t slot)
{
	size_t to_layers = (size_t)layer_spans_count(&e->layers), from_layers = (size_t)layer_spans_count(&from->layers);
	for (int32_t l = 0; l < e->m->config.n_layers; l++) {
		int32_t to_idx = layer_spans_find(&e->layers, l), from_idx = layer_spans_find(&from->layers, l);
		if (to_idx < 0 || from_idx < 0)
			continue;
		size_t to = (size_t)slot * to_layers + (size_t)to_idx, at = (size_t)slot * from_layers + (size_t)from_idx;
		size_t row = sim_kv_row(e), layer = (size_t)e->m->ctx_len * row;
		e->n_done[to] = from->n_done[at];
		memcpy(e->kv + to * layer, from->kv + at * layer, (size_t)from->n_done[at] * row * sizeof *e->kv);
	}
}

void sim_engine_take_kv(struct sim_engine *e, const struct sim_engine *from)
{
	if (e->split.n_members != from->split.n_members || e->member != from->member || memcmp(&e->split, &from->split, sizeof e->split) != 0)
		return; // other parts of the layers
	if (e->work != NULL)
		stage_work_take_kv(e->work, from->work);
	for (int32_t i = 0; e->work == NULL && i < e->n_slots && i < from->n_slots; i++)
		take_kv_of_slot(e, from, i);
}

static void chain_forward(struct sim_engine *e, int32_t begin, int32_t end, struct sim_rows *it)
{
	int32_t n_layers = layer_spans_count(&e->layers), base = layer_spans_find(&e->layers, begin) - begin, *n_done = e->n_done + (size_t)it->slot * (size_t)n_layers;
	sim_check_rows(e, begin, end, it);
	if (it->err != OK)
		return;
	size_t row = sim_kv_row(e), layer = (size_t)e->m->ctx_len * row;
	uint64_t *kv = e->kv + (size_t)it->slot * (size_t)n_layers * layer;
	for (int32_t t = 0; t < it->n_tokens; t++) {
		uint64_t h = load_u64(it->data + CHAIN_ROW * t);
		size_t pos = (size_t)(it->pos + t);
		for (int32_t l = begin + base; l < end + base; l++) {
			uint64_t *here = kv + (size_t)l * layer + pos * row;
			h = whole_layer(e->m, h, l - base, pos > 0 ? here - row : NULL, here);
		}
		store_u64(it->data + CHAIN_ROW * t, h);
	}
	for (int32_t l = begin + base; l < end + base; l++)
		n_done[l] = it->pos + it->n_tokens;
}

static void real_forward(struct sim_engine *e, int32_t begin, int32_t end, struct sim_rows *items, int32_t n)
{
	struct stage_item work[NODES_MAX];
	ASSERT(n <= NODES_MAX);
	for (int32_t i = 0; i < n; i++)
		work[i] = (struct stage_item){.wire = items[i].data, .slot = items[i].slot, .pos = items[i].pos, .n_tokens = items[i].n_tokens};
	stage_work_forward(e->work, begin, end, work, n);
	for (int32_t i = 0; i < n; i++)
		items[i].err = work[i].err;
}

void sim_engine_forward(struct sim_engine *e, int32_t layer_begin, int32_t layer_end, struct sim_rows *items, int32_t n)
{
	if (e->work != NULL) {
		real_forward(e, layer_begin, layer_end, items, n);
		return;
	}
	for (int32_t i = 0; i < n; i++)
		chain_forward(e, layer_begin, layer_end, &items[i]);
}

void sim_engine_embed(struct sim_engine *e, const int32_t *tokens, int32_t n_tokens, uint8_t *out)
{
	if (e->work == NULL) {
		for (int32_t t = 0; t < n_tokens; t++)
			store_u64(out + CHAIN_ROW * t, chain_embed(tokens[t]));
		return;
	}
	struct embed_item item = {.tokens = tokens, .n_tokens = n_tokens, .wire = out};
	stage_work_embed(e->work, &item, 1);
	ASSERT(item.err == OK); // token ids were checked by the core
}

static uint64_t state_of(const struct sim_draw *d, int32_t row)
{
	uint64_t h = load_u64(d->data + CHAIN_ROW * row);
	return d->want == HEAD_NOTHING ? h : chain_reply(h, d->want);
}

static void chain_sample(struct sim_engine *e, struct sim_draw *d)
{
	uint64_t *hash = &e->hash[d->slot];
	if (d->first)
		*hash = 0;
	for (int32_t i = 0; d->hash && i < d->n_rows; i++)
		*hash = sim_mix(*hash, state_of(d, i));
	d->err = OK;
	if (d->draw)
		d->token = chain_draw(state_of(d, d->n_rows - 1), &d->sampling, d->pos, e->m->config.vocab_size);
}

static void real_sample(struct sim_engine *e, struct sim_draw *d)
{
	if (d->first)
		logits_hash_init(&e->logits[d->slot]);
	struct sample_item s = {.wire = d->data, .n_rows = d->n_rows, .hash = d->hash ? &e->logits[d->slot] : NULL, .draw = d->draw, .pos = d->pos,
		.sampling = d->sampling};
	stage_work_sample(e->work, &s, 1);
	d->token = s.token;
	d->err = s.err;
}

void sim_engine_sample(struct sim_engine *e, struct sim_draw *items, int32_t n)
{
	for (int32_t i = 0; i < n; i++) {
		if (e->work == NULL)
			chain_sample(e, &items[i]);
		else
			real_sample(e, &items[i]);
	}
}

uint64_t sim_engine_hash(const struct sim_engine *e, int32_t slot)
{
	return e->work == NULL ? e->hash[slot] : fold_hash(&e->logits[slot]);
}
