// The head's work, the coordinator's or the last stage's: embedding, logits, what travels of them, hash and token.
#include "engine/stage_state.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "engine/wire.h"

#include <string.h>

// ---- lm_head on the last stage

static bool is_member(const struct stage_work *w)
{
	return w->n_members > 1 && w->group == NULL;
}

// rows_most returns how many rows the member with most of them has.
static int32_t rows_most(const struct stage_work *w)
{
	int32_t most = 0;
	for (int32_t i = 0; i < w->n_members; i++) {
		int32_t n = split_len(w->split.parts[i].vocab_rows);
		most = n > most ? n : most;
	}
	return most;
}

enum err stage_head_open(struct stage_work *w, const struct engine_config *c, struct errmsg *em)
{
	return c->has_output && w->group == NULL ? head_rows_open(w->engine, &w->head, em) : OK;
}

uint64_t stage_head_memory(const struct engine_config *c)
{
	if (!c->has_output || (c->split != NULL && c->member == MEMBER_EACH))
		return 0;
	return head_rows_memory(c, c->split != NULL ? split_len(c->split->parts[c->member].vocab_rows) : model_hparams(c->model)->vocab_size);
}

size_t stage_head_part_bytes(const struct stage_work *w)
{
	const struct engine_config *c = engine_config_of(w->engine);
	int32_t n = c->n_slots < w->batch_max ? c->n_slots : w->batch_max;
	return c->has_output ? (size_t)n * head_reply_bytes_max(rows_most(w)) : 0;
}

void stage_head_find(struct stage_work *w, struct batch *b)
{
	w->now->n_head = 0;
	for (int32_t i = 0; i < b->n; i++) {
		const struct stage_item *it = &b->items[b->from[i]];
		if (it->want == HEAD_NOTHING)
			continue;
		const float *last = b->at[i].hidden + (size_t)(it->n_tokens - 1) * (size_t)w->hidden_dim;
		w->now->head_from[w->now->n_head] = i;
		w->now->head_items[w->now->n_head++] = (struct head_rows_item){.hidden = last, .want = it->want, .out = it->wire};
	}
}

// note_fault: an item that had none has one now.
static void note_fault(const struct stage_work *w, struct batch *b, int32_t k)
{
	struct engine_item *at = &b->at[w->now->head_from[k]];
	if (w->now->head_items[k].err != OK && at->fault.err == OK)
		at->fault = (struct engine_fault){w->now->head_items[k].err, engine_hparams(w->engine)->n_layers, at->pos_begin + at->n_tokens - 1, false, 0};
}

enum err stage_head_run(struct stage_work *w, struct batch *b, struct errmsg *em)
{
	stage_head_find(w, b);
	if (w->now->n_head == 0)
		return OK;
	ASSERT(engine_config_of(w->engine)->has_output);
	enum err e = w->group != NULL ? tensor_group_head(w->group, w->now->head_items, w->now->n_head, em) : head_rows_run(w->head, w->now->head_items, w->now->n_head, em);
	for (int32_t k = 0; e == OK && k < w->now->n_head; k++)
		note_fault(w, b, k);
	return e;
}

// part_bytes returns what a member gives for all items together.
static size_t part_bytes(const struct stage_work *w, int32_t member)
{
	size_t bytes = 0;
	for (int32_t k = 0; k < w->now->n_head; k++)
		bytes += head_reply_bytes(w->now->head_items[k].want, split_len(w->split.parts[member].vocab_rows));
	return bytes;
}

enum err stage_head_contribute(struct stage_work *w, uint8_t *own, struct stage_turn *out, struct errmsg *em)
{
	struct batch *b = &w->now->batch;
	int32_t n_rows = split_len(w->split.parts[w->member].vocab_rows);
	ASSERT(is_member(w));
	ASSERT(w->head != NULL);
	uint8_t *at = own;
	for (int32_t k = 0; k < w->now->n_head; k++) {
		w->now->head_items[k].out = at;
		at += head_reply_bytes(w->now->head_items[k].want, n_rows);
	}
	enum err e = head_rows_run(w->head, w->now->head_items, w->now->n_head, em);
	for (int32_t k = 0; e == OK && k < w->now->n_head; k++) {
		if (b->at[w->now->head_from[k]].fault.err != OK) // it has failed before: what came out of it is nobody's
			head_reply_refuse(w->now->head_items[k].want, n_rows, w->now->head_items[k].out);
		note_fault(w, b, k);
	}
	for (int32_t i = 0; i < w->n_members; i++) {
		out->bytes[i] = w->member == 0 && i != 0 ? (uint32_t)part_bytes(w, i) : 0;
		out->to[i] = (struct split_sent){0, i == 0 && w->member != 0 ? (uint32_t)part_bytes(w, w->member) : 0};
	}
	return e;
}

enum err stage_head_join(struct stage_work *w, const uint8_t *const *parts, const uint8_t *own, struct errmsg *em)
{
	const uint8_t *at[GROUP_MEMBERS_MAX];
	struct batch *b = &w->now->batch;
	enum err e = OK;
	if (w->member != 0)
		return OK;
	for (int32_t i = 0; i < w->n_members; i++)
		at[i] = i == 0 ? own : parts[i];
	for (int32_t k = 0; k < w->now->n_head && e == OK; k++) {
		struct head_rows_item *it = &w->now->head_items[k];
		e = it->err = head_reply_join(&w->split, at, it->want, b->items[b->from[w->now->head_from[k]]].wire, em);
		e = e == ERR_NON_FINITE ? OK : e;
		note_fault(w, b, k);
		for (int32_t i = 0; i < w->n_members; i++)
			at[i] += head_reply_bytes(it->want, split_len(w->split.parts[i].vocab_rows));
	}
	return e;
}

// ---- the coordinator's

void stage_work_embed(struct stage_work *w, struct embed_item *items, int32_t n)
{
	struct errmsg em;
	enum err changed = model_check_unchanged(w->model, &em);
	for (int32_t i = 0; i < n; i++) {
		struct engine_item it = {.tokens = items[i].tokens, .n_tokens = items[i].n_tokens, .pos_begin = items[i].pos, .hidden = w->hidden};
		if (changed != OK)
			items[i].err = errmsg_fail(&items[i].em, changed, "%s", em.text);
		else
			items[i].err = engine_embed(w->engine, &it, 1, &items[i].em);
		if (items[i].err == OK)
			stage_encode_rows(w, w->hidden, items[i].n_tokens, items[i].wire);
	}
}

// A row of logits on its way: whose, and whether it is the one to draw from.
struct row {
	struct sample_item *item;
	bool is_last;
};

static void say_failed(struct sample_item *it)
{
	if (it->err == ERR_NON_FINITE)
		errmsg_fail(&it->em, it->err, "logits: not finite");
	else if (it->err != OK)
		errmsg_fail(&it->em, it->err, "the last stage sent candidates that are not in order, or none of the vocabulary");
}

static void settle_row(struct stage_work *w, const struct row *r, const float *logits)
{
	struct sample_item *it = r->item;
	if (it->err != OK)
		return;
	if (r->is_last && it->draw)
		it->err = sampler_draw(&it->sampling, logits, w->vocab_size, (uint64_t)it->pos, w->candidates, &it->token);
	else
		for (int32_t i = 0; i < w->vocab_size && it->err == OK; i++)
			it->err = logits[i] - logits[i] == 0 ? OK : ERR_NON_FINITE;
	say_failed(it);
	if (it->err == OK && it->hash)
		logits_hash_push(it->hash, logits, w->vocab_size);
}

static void run_rows(struct stage_work *w, const struct row *rows, int32_t n)
{
	struct errmsg why;
	if (n == 0)
		return;
	enum err e = engine_logits(w->engine, w->hidden, n, w->logits, &why);
	bool each_its_own = e == OK || e == ERR_NON_FINITE;
	for (int32_t i = 0; i < n; i++) {
		struct sample_item *it = rows[i].item;
		if (!each_its_own && it->err == OK)
			it->err = errmsg_fail(&it->em, e, "%s", why.text);
		settle_row(w, &rows[i], w->logits + (size_t)i * (size_t)w->vocab_size);
	}
}

// settle_reply takes what a stage has made of logits.
static void settle_reply(struct stage_work *w, struct sample_item *it)
{
	struct row r = {.item = it, .is_last = true};
	struct candidate best[SAMPLING_BEST_MAX];
	ASSERT(it->n_rows == 1);
	if (it->want == HEAD_LOGITS) {
		it->err = head_reply_logits(it->wire, w->vocab_size, w->logits);
		if (it->err == OK)
			settle_row(w, &r, w->logits);
		else
			say_failed(it);
		return;
	}
	ASSERT(it->hash == NULL);
	it->err = head_reply_best(it->wire, 0, w->vocab_size, best);
	if (it->err == OK && it->draw)
		it->token = sampler_draw_best(&it->sampling, best, head_reply_n_best(w->vocab_size), (uint64_t)it->pos);
	say_failed(it);
}

void stage_work_sample(struct stage_work *w, struct sample_item *items, int32_t n)
{
	struct row rows[LOGITS_ROWS_MAX];
	int32_t n_rows = 0, rows_max = w->batch_max < LOGITS_ROWS_MAX ? w->batch_max : LOGITS_ROWS_MAX;
	struct errmsg em;
	enum err changed = model_check_unchanged(w->model, &em);
	for (int32_t i = 0; i < n; i++) {
		items[i].err = changed == OK ? OK : errmsg_fail(&items[i].em, changed, "%s", em.text);
		if (items[i].err == OK && items[i].want != HEAD_NOTHING) {
			settle_reply(w, &items[i]);
			continue;
		}
		for (int32_t k = items[i].hash ? 0 : items[i].n_rows - 1; k < items[i].n_rows && items[i].err == OK; k++) {
			if (n_rows == rows_max) {
				run_rows(w, rows, n_rows);
				n_rows = 0;
			}
			float *at = w->hidden + (size_t)n_rows * (size_t)w->hidden_dim;
			items[i].err = stage_decode_rows(w, items[i].wire + (size_t)k * w->row_bytes, 1, at);
			if (items[i].err != OK)
				errmsg_fail(&items[i].em, items[i].err, "a hidden state came back that is not finite or no encoding of its wire type");
			else
				rows[n_rows++] = (struct row){.item = &items[i], .is_last = k == items[i].n_rows - 1};
		}
	}
	run_rows(w, rows, n_rows);
}
