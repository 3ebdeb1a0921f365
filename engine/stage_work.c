#include "engine/stage_work.h"

#include "base/assert.h"
#include "engine/member.h"
#include "engine/stage_state.h"
#include "engine/wire.h"

#include <stdlib.h>
#include <string.h>

// n_logits returns how many rows of logits a head holds at once.
static size_t n_logits(const struct engine_config *c)
{
	return c->embeds_only ? 1 : LOGITS_ROWS_MAX;
}

// n_hidden returns of how many tokens hidden states are held.
static size_t n_hidden(const struct engine_config *c)
{
	return (size_t)c->batch_max * (size_t)(c->n_forwards > 1 ? c->n_forwards : 1);
}

static uint64_t own_bytes(const struct engine_config *c, const struct hparams *hp)
{
	uint64_t bytes = sizeof(struct stage_work) + (uint64_t)n_hidden(c) * (uint64_t)hp->hidden_dim * sizeof(float);
	if (c->has_head)
		bytes += n_logits(c) * (uint64_t)hp->vocab_size * sizeof(float) + SAMPLER_SCRATCH((uint64_t)hp->vocab_size) * sizeof(struct candidate);
	return bytes + stage_head_memory(c);
}

static enum err allocate(struct stage_work *w, const struct engine_config *c, struct errmsg *em)
{
	w->hidden = malloc(n_hidden(c) * (size_t)w->hidden_dim * sizeof *w->hidden);
	if (c->has_head) {
		w->logits = malloc(n_logits(c) * (size_t)w->vocab_size * sizeof *w->logits);
		w->candidates = malloc(SAMPLER_SCRATCH(w->vocab_size) * sizeof *w->candidates);
	}
	if (w->hidden == NULL || (c->has_head && (w->logits == NULL || w->candidates == NULL)))
		return errmsg_fail(em, ERR_NOMEM, "no memory for %d hidden states", w->batch_max);
	return stage_head_open(w, c, em);
}

static bool is_group(const struct engine_config *c)
{
	return c->split != NULL && c->member == MEMBER_EACH;
}

enum err stage_work_open(const struct engine_config *c, struct stage_work **out, struct errmsg *em)
{
	struct stage_work *w = calloc(1, sizeof *w);
	if (w == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a stage");
	enum err e = model_check_unchanged(c->model, em);
	if (e == OK && is_group(c))
		e = tensor_group_open(c, &w->group, em);
	else if (e == OK)
		e = engine_open(c, &w->engine, em);
	if (e != OK)
		goto fail;
	if (w->group != NULL)
		w->engine = tensor_group_first(w->group);
	w->now = w->forwards;
	w->model = c->model;
	w->wire = c->wire;
	w->hidden_dim = engine_hparams(w->engine)->hidden_dim;
	w->vocab_size = engine_hparams(w->engine)->vocab_size;
	w->batch_max = c->batch_max;
	w->own_bytes = own_bytes(c, engine_hparams(w->engine));
	w->member = c->member;
	w->n_members = c->split != NULL ? c->split->n_members : 1;
	if (c->split != NULL)
		w->split = *c->split;
	w->row_bytes = wire_bytes(c->wire, w->hidden_dim);
	e = allocate(w, c, em);
	if (e != OK)
		goto fail;
	*out = w;
	return OK;
fail:
	stage_work_close(w);
	return e;
}

void stage_work_close(struct stage_work *w)
{
	if (w == NULL)
		return;
	head_rows_close(w->head);
	if (w->group != NULL)
		tensor_group_close(w->group);
	else
		engine_close(w->engine);
	free(w->hidden);
	free(w->logits);
	free(w->candidates);
	free(w);
}

enum err stage_work_measure(const struct engine_config *c, struct engine_size *out, struct errmsg *em)
{
	enum err e = is_group(c) ? tensor_group_measure(c, out, em) : engine_measure(c, out, em);
	out->bytes += own_bytes(c, model_hparams(c->model));
	return e;
}

enum err stage_work_load_weights(struct stage_work *w, const struct residency_limits *limits, struct errmsg *em)
{
	return w->group != NULL ? tensor_group_load_weights(w->group, limits, em) : engine_load_weights(w->engine, limits, em);
}

void stage_work_drop_weights(struct stage_work *w)
{
	if (w->group != NULL)
		tensor_group_drop_weights(w->group);
	else
		engine_drop_weights(w->engine);
}

uint64_t stage_work_bytes(const struct stage_work *w)
{
	return (w->group != NULL ? tensor_group_bytes(w->group) : engine_bytes(w->engine)) + w->own_bytes;
}

bool stage_work_group_stats(const struct stage_work *w, struct tensor_group_stats *out)
{
	if (w->group != NULL)
		tensor_group_stats_get(w->group, out);
	return w->group != NULL;
}

void stage_work_weight_stats(struct stage_work *w, struct residency_stats *out)
{
	if (w->group != NULL)
		tensor_group_weight_stats(w->group, out);
	else
		engine_weight_stats(w->engine, out);
}

enum err stage_decode_rows(const struct stage_work *w, const uint8_t *wire, int32_t n, float *out)
{
	for (int32_t i = 0; i < n; i++) {
		enum err e = wire_decode(w->wire, wire + (size_t)i * w->row_bytes, w->hidden_dim, out + (size_t)i * (size_t)w->hidden_dim);
		if (e != OK)
			return e;
	}
	return OK;
}

void stage_encode_rows(const struct stage_work *w, const float *x, int32_t n, uint8_t *wire)
{
	for (int32_t i = 0; i < n; i++)
		wire_encode(w->wire, x + (size_t)i * (size_t)w->hidden_dim, w->hidden_dim, wire + (size_t)i * w->row_bytes);
}

void stage_work_take_kv(struct stage_work *w, const struct stage_work *from)
{
	if (w->group != NULL && from->group != NULL)
		tensor_group_take_kv(w->group, from->group);
	else if (w->group == NULL && from->group == NULL)
		engine_take_kv(w->engine, from->engine);
}

// take_batch decodes what has arrived. False: the model file is not what it was, which every item says.
static bool take_batch(struct stage_work *w, struct stage_item *items, int32_t n, struct batch *b)
{
	float *at = w->hidden + (size_t)(w->now - w->forwards) * (size_t)w->batch_max * (size_t)w->hidden_dim;
	struct errmsg em;
	ASSERT(n <= ITEMS_MAX);
	b->items = items;
	b->n_items = n;
	b->n = 0;
	enum err e = model_check_unchanged(w->model, &em);
	for (int32_t i = 0; i < n; i++) {
		items[i].err = e != OK ? errmsg_fail(&items[i].em, e, "%s", em.text) : stage_decode_rows(w, items[i].wire, items[i].n_tokens, at);
		if (e == OK && items[i].err != OK)
			errmsg_fail(&items[i].em, items[i].err, "a hidden state arrived that is not finite or no encoding of its wire type");
		if (items[i].err != OK)
			continue;
		b->from[b->n] = i;
		b->at[b->n++] = (struct engine_item){.slot = items[i].slot, .pos_begin = items[i].pos, .n_tokens = items[i].n_tokens, .hidden = at};
		at += (size_t)items[i].n_tokens * (size_t)w->hidden_dim;
	}
	return e == OK;
}

static bool is_each_its_own(enum err e)
{
	return e == OK || e == ERR_NON_FINITE;
}

// settle_batch tells items how they have ended.
static void settle_batch(struct stage_work *w, const struct batch *b, enum err e, const struct errmsg *em)
{
	for (int32_t i = 0; i < b->n; i++) {
		struct stage_item *it = &b->items[b->from[i]];
		if (!is_each_its_own(e))
			it->err = errmsg_fail(&it->em, e, "%s", em->text);
		else if (b->at[i].fault.err != OK)
			it->err = engine_fault_describe(w->engine, &b->at[i].fault, &it->em);
		else if (it->want == HEAD_NOTHING || w->now->n_head == 0)
			stage_encode_rows(w, b->at[i].hidden, it->n_tokens, it->wire);
	}
}

void stage_work_forward(struct stage_work *w, int32_t layer_begin, int32_t layer_end, struct stage_item *items, int32_t n)
{
	struct batch b;
	struct errmsg em;
	if (!take_batch(w, items, n, &b))
		return;
	enum err e = w->group != NULL ? tensor_group_forward_layers(w->group, layer_begin, layer_end, b.at, b.n, &em) :
		engine_forward_layers(w->engine, layer_begin, layer_end, b.at, b.n, &em);
	if (is_each_its_own(e)) {
		enum err head = stage_head_run(w, &b, &em);
		e = head != OK ? head : e;
	}
	settle_batch(w, &b, e, &em);
}

// ---- a member of a group

size_t stage_work_part_bytes(const struct stage_work *w)
{
	size_t layers = member_bytes_max(w->engine, w->batch_max), head = stage_head_part_bytes(w);
	return layers > head ? layers : head;
}

static void end_turn(struct stage_work *w, enum err e, const struct errmsg *em, struct stage_turn *out)
{
	settle_batch(w, &w->now->batch, e, em);
	out->was_cut = !is_each_its_own(e);
}

static void note_failed(const struct stage_work *w, struct stage_turn *out)
{
	for (int32_t i = 0; i < w->now->batch.n_items; i++)
		out->failed |= (uint64_t)(w->now->batch.items[i].err != OK) << i;
}

// go_to_head: the layers are done. Where tokens want logits there is one exchange more, which gives them to the first member.
static void go_to_head(struct stage_work *w, enum err e, struct errmsg *em, uint8_t *own, struct stage_turn *out)
{
	if (is_each_its_own(e)) {
		stage_head_find(w, &w->now->batch);
		enum err head = w->now->n_head > 0 ? stage_head_contribute(w, own, out, em) : OK;
		e = head != OK ? head : e;
	}
	w->now->is_at_head = is_each_its_own(e) && w->now->n_head > 0;
	out->waits = w->now->is_at_head;
	if (!w->now->is_at_head) {
		end_turn(w, e, em, out);
		return;
	}
	note_failed(w, out);
	for (int32_t i = 0; i < w->now->batch.n; i++)
		out->failed |= (uint64_t)(w->now->batch.at[i].fault.err != OK) << w->now->batch.from[i];
}

// compute goes as far as the next exchange.
static void compute(struct stage_work *w, uint8_t *own, struct stage_turn *out)
{
	struct member_exchange at;
	struct errmsg em;
	bool waits = false;
	enum err e = member_compute(w->engine, &waits, &at, &em);
	out->waits = waits;
	if (!waits) {
		go_to_head(w, e, &em, own, out);
		return;
	}
	note_failed(w, out);
	for (int32_t i = 0; i < w->now->batch.n; i++)
		out->failed |= (uint64_t)member_has_failed(w->engine, i) << w->now->batch.from[i];
	for (int32_t i = 0; i < w->n_members; i++)
		out->bytes[i] = w->now->bytes[i] = i == w->member ? 0 : (uint32_t)member_bytes(w->engine, i, w->member);
	member_export(w->engine, own, out->to);
}

static enum err begin_items(struct stage_work *w, int32_t layer_begin, int32_t layer_end, struct engine_item *items, int32_t n, const struct stage_turn *t,
	struct errmsg *em)
{
	return (t->is_behind ? member_begin_behind : member_begin)(w->engine, layer_begin, layer_end, items, n, em);
}

// take_turn turns to the forward that a call is about.
static void take_turn(struct stage_work *w, struct stage_turn *t)
{
	*t = (struct stage_turn){.forward = t->forward, .is_behind = t->is_behind};
	member_use(w->engine, t->forward);
	w->now = &w->forwards[t->forward];
}

// refuse finds the items that cannot be computed here: each alone would be refused.
static void refuse(struct stage_work *w, int32_t layer_begin, int32_t layer_end, enum err e, const struct errmsg *why, struct stage_turn *out)
{
	struct batch *b = &w->now->batch;
	out->was_cut = true;
	bool is_any = false;
	for (int32_t i = 0; i < b->n; i++) {
		struct stage_item *it = &b->items[b->from[i]];
		it->err = begin_items(w, layer_begin, layer_end, &b->at[i], 1, out, &it->em);
		is_any = is_any || it->err != OK;
	}
	if (!is_any)
		settle_batch(w, b, e, why);
}

void stage_work_member_begin(struct stage_work *w, int32_t layer_begin, int32_t layer_end, struct stage_item *items, int32_t n, uint8_t *own,
	struct stage_turn *out)
{
	struct errmsg em;
	take_turn(w, out);
	w->now->is_at_head = false;
	w->now->n_head = 0;
	if (!take_batch(w, items, n, &w->now->batch)) {
		out->was_cut = true;
		return;
	}
	enum err e = begin_items(w, layer_begin, layer_end, w->now->batch.at, w->now->batch.n, out, &em);
	if (e != OK)
		refuse(w, layer_begin, layer_end, e, &em, out);
	else
		compute(w, own, out);
}

void stage_work_member_continue(struct stage_work *w, const uint8_t *const *parts, uint8_t *own, struct stage_turn *out)
{
	struct errmsg em;
	take_turn(w, out);
	if (w->now->is_at_head) {
		w->now->is_at_head = false;
		end_turn(w, stage_head_join(w, parts, own, &em), &em, out);
		return;
	}
	for (int32_t i = 0; i < w->n_members; i++) {
		if (i == w->member || w->now->bytes[i] == 0)
			continue;
		enum err e = member_import(w->engine, i, parts[i], w->now->bytes[i], &em);
		if (e != OK) {
			end_turn(w, e, &em, out);
			return;
		}
	}
	compute(w, own, out);
}

