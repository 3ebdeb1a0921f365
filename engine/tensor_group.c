#include "engine/tensor_group.h"

#include "base/assert.h"
#include "engine/member.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_MAX 64 // as of a stage
#define ITEMS_AT_HEAD 16 // tokens whose logits are made together

// A member on its thread. What it contributes lies in one of two boxes, taken in turn: others still read one while the next is filled.
struct group_member {
	struct engine *engine;
	struct pool *pool; // of one thread: the group's own
	uint8_t *boxes[2];
	struct split_sent to[2][GROUP_MEMBERS_MAX]; // in each box
	float *hidden; // (batch_max, hidden_dim)
	struct engine_item items[ITEMS_MAX];
	enum err err;
	struct errmsg em;
	uint64_t received, n_messages;
	struct head_rows *head;    // with has_output
	uint8_t *head_out;         // (ITEMS_AT_HEAD, what its rows give)
	struct head_rows_item head_items[ITEMS_AT_HEAD];
};

struct tensor_group {
	struct engine_config c;
	struct tensor_split split;
	struct pool *pool; // a thread for each member
	struct group_member members[GROUP_MEMBERS_MAX];
	uint64_t n_exchanges, head_bytes;
	_Atomic bool has_failed[2]; // a member gives up in an exchange with this box

	// The running call.
	int32_t layer_begin, layer_end, n_items;
	const struct engine_item *items;
	int32_t n_at_head;
};

static struct engine_config member_config(const struct engine_config *c, int32_t member, struct pool *pool)
{
	struct engine_config own = *c;
	own.member = member;
	own.pool = pool;
	own.defer_weights = true;
	return own;
}

static size_t head_out_bytes(const struct tensor_group *g, int32_t i)
{
	return head_reply_bytes_max(split_len(g->split.parts[i].vocab_rows));
}

static enum err open_head(struct tensor_group *g, int32_t i, struct errmsg *em)
{
	struct group_member *m = &g->members[i];
	if (!g->c.has_output)
		return OK;
	m->head_out = malloc(ITEMS_AT_HEAD * head_out_bytes(g, i) + 1);
	if (m->head_out == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for what %d members make of the output head", (int)g->split.n_members);
	return head_rows_open(m->engine, &m->head, em);
}

static enum err open_member(struct tensor_group *g, int32_t i, struct errmsg *em)
{
	struct group_member *m = &g->members[i];
	enum err err = pool_open(1, &m->pool);
	if (err != OK)
		return errmsg_fail(em, err, "cannot start a member of a group");
	struct engine_config c = member_config(&g->c, i, m->pool);
	err = engine_open(&c, &m->engine, em);
	if (err != OK)
		return err;
	size_t box = member_bytes_max(m->engine, c.batch_max), hidden = (size_t)c.batch_max * (size_t)engine_hparams(m->engine)->hidden_dim * sizeof(float);
	m->boxes[0] = malloc(box + 1);
	m->boxes[1] = malloc(box + 1);
	m->hidden = malloc(hidden);
	if (m->boxes[0] == NULL || m->boxes[1] == NULL || m->hidden == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for what %d members of a group send each other", (int)g->split.n_members);
	return open_head(g, i, em);
}

enum err tensor_group_open(const struct engine_config *c, struct tensor_group **out, struct errmsg *em)
{
	struct tensor_group *g = calloc(1, sizeof *g);
	if (g == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a group");
	g->c = *c;
	g->split = *c->split;
	g->c.split = &g->split;
	enum err err = pool_open(g->split.n_members, &g->pool);
	if (err != OK)
		errmsg_fail(em, err, "cannot start a thread for each of %d members", (int)g->split.n_members);
	for (int32_t i = 0; i < g->split.n_members && err == OK; i++)
		err = open_member(g, i, em);
	if (err == OK && !c->defer_weights)
		err = tensor_group_load_weights(g, &c->weights, em);
	if (err != OK) {
		tensor_group_close(g);
		return err;
	}
	*out = g;
	return OK;
}

void tensor_group_close(struct tensor_group *g)
{
	if (g == NULL)
		return;
	for (int32_t i = 0; i < g->split.n_members; i++) {
		struct group_member *m = &g->members[i];
		engine_close(m->engine);
		pool_close(m->pool);
		free(m->boxes[0]);
		free(m->boxes[1]);
		free(m->hidden);
		head_rows_close(m->head);
		free(m->head_out);
	}
	pool_close(g->pool);
	free(g);
}

// head_memory returns what a member's rows of the output head take beside its engine.
static uint64_t head_memory(const struct engine_config *c, const struct tensor_split *split, int32_t i)
{
	int32_t n_rows = split_len(split->parts[i].vocab_rows);
	return c->has_output ? head_rows_memory(c, n_rows) + ITEMS_AT_HEAD * head_reply_bytes_max(n_rows) : 0;
}

// member_size measures one member's engine.
static enum err member_size(const struct engine_config *c, int32_t member, struct pool *pool, struct engine_size *out, struct errmsg *em)
{
	struct engine_config own = member_config(c, member, pool);
	return engine_measure(&own, out, em);
}

enum err tensor_group_measure(const struct engine_config *c, struct engine_size *out, struct errmsg *em)
{
	struct pool *one;
	enum err err = pool_open(1, &one);
	*out = (struct engine_size){.bytes = sizeof(struct tensor_group)};
	if (err != OK)
		return errmsg_fail(em, err, "cannot start a member of a group");
	for (int32_t i = 0; i < c->split->n_members && err == OK; i++) {
		struct engine_size s;
		err = member_size(c, i, one, &s, em);
		if (err != OK)
			break;
		out->bytes += s.bytes + 2 * s.part_bytes + (uint64_t)c->batch_max * (uint64_t)model_hparams(c->model)->hidden_dim * sizeof(float) +
			head_memory(c, c->split, i);
		out->kv_bytes += s.kv_bytes;
		out->packed_bytes += s.packed_bytes;
		out->weight_bytes += s.weight_bytes;
		out->weight_least += s.weight_least;
	}
	pool_close(one);
	return err;
}

// part_of gives a member its least, and of the rest what its weights are of all.
static uint64_t part_of(uint64_t bytes, const struct engine_size *own, const struct engine_size *all)
{
	uint64_t rest = bytes > all->weight_least ? bytes - all->weight_least : 0;
	double share = all->weight_bytes > 0 ? (double)own->weight_bytes / (double)all->weight_bytes : 0;
	return own->weight_least + (uint64_t)((double)rest * share);
}

enum err tensor_group_load_weights(struct tensor_group *g, const struct residency_limits *limits, struct errmsg *em)
{
	struct engine_size all = {0}, own[GROUP_MEMBERS_MAX];
	enum err err = OK;
	for (int32_t i = 0; i < g->split.n_members && err == OK; i++) {
		err = member_size(&g->c, i, g->members[i].pool, &own[i], em);
		all.weight_bytes += own[i].weight_bytes;
		all.weight_least += own[i].weight_least;
	}
	if (err == OK && limits->is_capped && limits->bytes < all.weight_least)
		err = errmsg_fail(em, ERR_LIMIT, "%.1f MiB for weights are not enough for %d members: they need %.1f", (double)limits->bytes / 1048576,
			(int)g->split.n_members, (double)all.weight_least / 1048576);
	for (int32_t i = 0; i < g->split.n_members && err == OK; i++) {
		struct residency_limits l = *limits;
		if (l.is_capped) {
			l.bytes = part_of(limits->bytes, &own[i], &all);
			l.anon_bytes = part_of(limits->anon_bytes, &own[i], &all);
		}
		err = engine_load_weights(g->members[i].engine, &l, em);
	}
	return err;
}

void tensor_group_drop_weights(struct tensor_group *g)
{
	for (int32_t i = 0; i < g->split.n_members; i++)
		engine_drop_weights(g->members[i].engine);
}

void tensor_group_take_kv(struct tensor_group *g, const struct tensor_group *from)
{
	ASSERT(g->split.n_members == from->split.n_members);
	for (int32_t i = 0; i < g->split.n_members; i++)
		engine_take_kv(g->members[i].engine, from->members[i].engine);
}

uint64_t tensor_group_bytes(const struct tensor_group *g)
{
	uint64_t bytes = sizeof *g;
	for (int32_t i = 0; i < g->split.n_members; i++) {
		struct engine *e = g->members[i].engine;
		bytes += engine_bytes(e) + 2 * member_bytes_max(e, g->c.batch_max) + (uint64_t)g->c.batch_max * (uint64_t)engine_hparams(e)->hidden_dim * sizeof(float) +
			head_memory(&g->c, &g->split, i);
	}
	return bytes;
}

void tensor_group_weight_stats(struct tensor_group *g, struct residency_stats *out)
{
	engine_weight_stats(g->members[0].engine, out);
	for (int32_t i = 1; i < g->split.n_members; i++) {
		struct residency_stats s;
		engine_weight_stats(g->members[i].engine, &s);
		out->is_locked = out->is_locked && s.is_locked;
		out->n_units += s.n_units;
		out->n_streamed += s.n_streamed;
		out->window += s.window;
		out->pinned_bytes += s.pinned_bytes;
		out->streamed_bytes += s.streamed_bytes;
		out->window_bytes += s.window_bytes;
		out->read_bytes += s.read_bytes;
		out->wasted_bytes += s.wasted_bytes;
		out->read_ns = out->read_ns > s.read_ns ? out->read_ns : s.read_ns;
		out->stall_ns = out->stall_ns > s.stall_ns ? out->stall_ns : s.stall_ns; // they wait side by side
	}
}

struct engine *tensor_group_first(struct tensor_group *g)
{
	return g->members[0].engine;
}

void tensor_group_stats_get(const struct tensor_group *g, struct tensor_group_stats *out)
{
	*out = (struct tensor_group_stats){.n_exchanges = g->n_exchanges, .head_bytes = g->head_bytes};
	for (int32_t i = 0; i < g->split.n_members; i++) {
		out->received[i] = g->members[i].received;
		out->n_messages[i] = g->members[i].n_messages;
	}
}

// ---- a forward

static void take_items(struct tensor_group *g, struct group_member *m)
{
	size_t dim = (size_t)engine_hparams(m->engine)->hidden_dim;
	float *at = m->hidden;
	for (int32_t i = 0; i < g->n_items; i++) {
		size_t n = (size_t)g->items[i].n_tokens * dim;
		m->items[i] = g->items[i];
		m->items[i].hidden = at;
		memcpy(at, g->items[i].hidden, n * sizeof *at);
		at += n;
	}
}

// import_all takes what the others put into their boxes.
static enum err import_all(struct tensor_group *g, int32_t self, int32_t box)
{
	struct group_member *m = &g->members[self];
	enum err err = OK;
	for (int32_t i = 0; i < g->split.n_members && err == OK; i++) {
		const struct group_member *from = &g->members[i];
		struct split_sent sent = from->to[box][self];
		if (i == self || sent.len == 0)
			continue;
		err = member_import(m->engine, i, from->boxes[box] + sent.at, sent.len, &m->em);
		m->received += sent.len;
		m->n_messages++;
	}
	return err;
}

// run_member walks through the layers: at each exchange it waits until everybody has filled their box. One that cannot go on says so there, so that
// all leave in the same exchange.
static void run_member(void *ctx, int32_t self, int32_t n_members)
{
	struct tensor_group *g = ctx;
	struct group_member *m = &g->members[self];
	struct member_exchange at;
	bool waits = true;
	ASSERT(n_members == g->split.n_members);
	m->err = member_begin(m->engine, g->layer_begin, g->layer_end, m->items, g->n_items, &m->em);
	for (int32_t box = 0;; box = !box) {
		if (m->err == OK)
			m->err = member_compute(m->engine, &waits, &at, &m->em);
		if (!waits && (m->err == OK || m->err == ERR_NON_FINITE))
			return;
		if (m->err == OK) {
			member_export(m->engine, m->boxes[box], m->to[box]);
		} else {
			atomic_store(&g->has_failed[box], true);
		}
		if (self == 0)
			g->n_exchanges++;
		pool_barrier(g->pool);
		if (atomic_load(&g->has_failed[box]))
			return;
		m->err = import_all(g, self, box);
	}
}

// is_earlier tells which of two faults one machine alone would have met first.
static bool is_earlier(const struct engine_fault *a, const struct engine_fault *b)
{
	if (a->err == OK || b->err == OK)
		return a->err != OK;
	if (a->pos != b->pos || a->layer != b->layer)
		return a->pos != b->pos ? a->pos < b->pos : a->layer < b->layer;
	return a->in_kv && !b->in_kv;
}

static enum err settle(struct tensor_group *g, struct engine_item *items, struct errmsg *em)
{
	size_t dim = (size_t)engine_hparams(g->members[0].engine)->hidden_dim;
	enum err err = OK;
	for (int32_t k = 0; k < g->split.n_members && err == OK; k++)
		if (g->members[k].err != OK && g->members[k].err != ERR_NON_FINITE)
			err = errmsg_fail(em, g->members[k].err, "%s", g->members[k].em.text);
	for (int32_t i = 0; i < g->n_items; i++) {
		const struct engine_item *own = &g->members[0].items[i];
		items[i].fault = err == OK ? own->fault : (struct engine_fault){.err = err};
		for (int32_t k = 1; k < g->split.n_members && err == OK; k++)
			if (is_earlier(&g->members[k].items[i].fault, &items[i].fault))
				items[i].fault = g->members[k].items[i].fault;
		memcpy(items[i].hidden, own->hidden, (size_t)own->n_tokens * dim * sizeof(float));
	}
	for (int32_t i = 0; i < g->n_items && err == OK; i++)
		err = engine_fault_describe(g->members[0].engine, &items[i].fault, em);
	return err;
}

enum err tensor_group_forward_layers(struct tensor_group *g, int32_t layer_begin, int32_t layer_end, struct engine_item *items, int32_t n_items,
	struct errmsg *em)
{
	int64_t n_tokens = 0;
	ASSERT(n_items <= ITEMS_MAX);
	for (int32_t i = 0; i < n_items; i++)
		n_tokens += items[i].n_tokens;
	if (n_tokens > g->c.batch_max)
		return errmsg_fail(em, ERR_RANGE, "engine: more than %d tokens in one batch", (int)g->c.batch_max);
	g->layer_begin = layer_begin;
	g->layer_end = layer_end;
	g->items = items;
	g->n_items = n_items;
	atomic_store(&g->has_failed[0], false);
	atomic_store(&g->has_failed[1], false);
	for (int32_t i = 0; i < g->split.n_members; i++)
		take_items(g, &g->members[i]);
	pool_run(g->pool, run_member, g);
	return settle(g, items, em);
}

// ---- the output head

// run_head makes what a member's rows give, on its thread.
static void run_head(void *ctx, int32_t self, int32_t n_members)
{
	struct tensor_group *g = ctx;
	struct group_member *m = &g->members[self];
	ASSERT(n_members == g->split.n_members);
	m->err = head_rows_run(m->head, m->head_items, g->n_at_head, &m->em);
}

static enum err join_head(struct tensor_group *g, struct head_rows_item *it, int32_t at, struct errmsg *em)
{
	const uint8_t *parts[GROUP_MEMBERS_MAX];
	for (int32_t i = 0; i < g->split.n_members; i++) {
		parts[i] = g->members[i].head_items[at].out;
		g->head_bytes += head_reply_bytes(it->want, split_len(g->split.parts[i].vocab_rows));
	}
	enum err err = head_reply_join(&g->split, parts, it->want, it->out, em);
	it->err = err;
	return err == ERR_NON_FINITE ? OK : err;
}

enum err tensor_group_head(struct tensor_group *g, struct head_rows_item *items, int32_t n, struct errmsg *em)
{
	enum err err = OK;
	ASSERT(g->c.has_output);
	for (int32_t begin = 0; begin < n && err == OK; begin += ITEMS_AT_HEAD) {
		g->n_at_head = n - begin < ITEMS_AT_HEAD ? n - begin : ITEMS_AT_HEAD;
		for (int32_t i = 0; i < g->split.n_members; i++) {
			for (int32_t k = 0; k < g->n_at_head; k++) {
				g->members[i].head_items[k] = items[begin + k];
				g->members[i].head_items[k].out = g->members[i].head_out + (size_t)k * head_out_bytes(g, i);
			}
		}
		pool_run(g->pool, run_head, g);
		for (int32_t i = 0; i < g->split.n_members && err == OK; i++)
			if (g->members[i].err != OK)
				err = errmsg_fail(em, g->members[i].err, "%s", g->members[i].em.text);
		for (int32_t k = 0; k < g->n_at_head && err == OK; k++)
			err = join_head(g, &items[begin + k], k, em);
	}
	return err;
}
